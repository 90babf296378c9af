//! What a well-behaved host asks for.

use flashyard_block::IoError;
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::dsm::DsmRange;
use flashyard_nvme::fabrics::Connect;
use flashyard_nvme::feature::{FeatureId, HostBehavior};
use flashyard_nvme::tcp::Digests;
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_testbed::{
    BLOCK, Client, Identity, Incoming, NO_DIGESTS, Site, memory, pattern, subnqn,
};

use crate::devices::Held;

const ALL_DIGESTS: [Digests; 4] = [
    NO_DIGESTS,
    Digests {
        header: true,
        data: false,
    },
    Digests {
        header: false,
        data: true,
    },
    Digests {
        header: true,
        data: true,
    },
];

#[test]
fn data_come_back_as_written_with_every_kind_of_digest() {
    for (seed, digests) in (0..).zip(ALL_DIGESTS.repeat(8)) {
        let site = Site::new(Config::stormy(seed), 1);
        site.run(|bench| async move {
            bench.attach_memory("a", 1);
            let (_admin, mut io) = bench.connect_with("a", 1, digests, 32).await;
            let small = pattern(seed, 8192);
            assert_eq!(
                io.write_in_capsule(1, 3, &small, BLOCK).await,
                Status::SUCCESS
            );
            assert_eq!(io.read(1, 3, 2, BLOCK).await.expect("good"), small);
            let large = pattern(seed + 1, 1 << 20);
            assert_eq!(
                io.write_by_r2t(1, 100, &large, BLOCK, 1 << 20).await,
                Status::SUCCESS
            );
            assert_eq!(io.read(1, 100, 256, BLOCK).await.expect("good"), large);
            let pieces = pattern(seed + 2, 128 << 10);
            assert_eq!(
                io.write_by_r2t(1, 512, &pieces, BLOCK, 12_000).await,
                Status::SUCCESS
            );
            assert_eq!(io.read(1, 512, 32, BLOCK).await.expect("good"), pieces);
            assert_eq!(
                io.read(1, 600, 1, BLOCK).await.expect("good"),
                vec![0; 4096]
            );
            let all = io.read(1, 100, 256, BLOCK).await.expect("good");
            assert_eq!(all, large, "nobody wrote over it");
        });
    }
}

#[test]
fn in_capsule_data_may_begin_later_in_the_capsule() {
    let site = Site::new(Config::calm(1), 1);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        let (_admin, mut io) = bench.connect("a", 1).await;
        let data = pattern(1, 8192);
        let sgl = Sgl::InCapsule {
            offset: 1024,
            length: BLOCK,
        };
        let write = SubmissionQueueEntry::write(1, LbaRange { slba: 0, blocks: 1 }, sgl);
        assert_eq!(io.command(write, &data).await.status(), Status::SUCCESS);
        assert_eq!(
            io.read(1, 0, 1, BLOCK).await.expect("good"),
            data[1024..1024 + 4096]
        );
    });
}

#[test]
fn the_other_commands() {
    let site = Site::new(Config::stormy(5), 1);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        let (_admin, mut io) = bench.connect("a", 1).await;
        let data = pattern(9, 16 << 10);
        assert_eq!(
            io.write_by_r2t(1, 0, &data, BLOCK, 1 << 20).await,
            Status::SUCCESS
        );
        assert_eq!(
            io.command(SubmissionQueueEntry::flush(1), &[])
                .await
                .status(),
            Status::SUCCESS
        );

        let range = LbaRange { slba: 0, blocks: 1 };
        let compare = SubmissionQueueEntry::compare(
            1,
            range,
            Sgl::InCapsule {
                offset: 0,
                length: BLOCK,
            },
        );
        assert_eq!(
            io.command(compare, &data[..4096]).await.status(),
            Status::SUCCESS
        );
        let status = io.command(compare, &data[4096..8192]).await.status();
        assert!(status.is(Status::COMPARE_FAILURE), "{status}");

        let zero = SubmissionQueueEntry::write_zeroes(1, range, true);
        assert_eq!(io.command(zero, &[]).await.status(), Status::SUCCESS);
        assert_eq!(io.read(1, 0, 1, BLOCK).await.expect("good"), vec![0; 4096]);

        let ranges = [
            DsmRange {
                attributes: 0,
                blocks: 1,
                slba: 1,
            },
            DsmRange {
                attributes: 0,
                blocks: 1,
                slba: 3,
            },
        ];
        let list: Vec<u8> = ranges.iter().flat_map(DsmRange::encode).collect();
        let sgl = Sgl::InCapsule {
            offset: 0,
            length: 32,
        };
        let trim = SubmissionQueueEntry::deallocate(1, 2, sgl);
        assert_eq!(io.command(trim, &list).await.status(), Status::SUCCESS);
        let now = io.read(1, 0, 4, BLOCK).await.expect("good");
        assert_eq!(now[4096..8192], [0; 4096]);
        assert_eq!(now[8192..12288], data[8192..12288]);
        assert_eq!(now[12288..], [0; 4096]);
    });
}

#[test]
fn refusals_have_their_status() {
    let site = Site::new(Config::calm(3), 1);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        let (_admin, mut io) = bench.connect("a", 1).await;
        let read = |nsid, slba, blocks| {
            let sgl = Sgl::Transport {
                length: blocks * BLOCK,
            };
            SubmissionQueueEntry::read(nsid, LbaRange { slba, blocks }, sgl)
        };
        let table = [
            (read(2, 0, 1), Status::INVALID_NAMESPACE_OR_FORMAT),
            (read(1, 4096, 1), Status::LBA_OUT_OF_RANGE),
            (read(1, u64::MAX, 1), Status::LBA_OUT_OF_RANGE),
            (read(1, 0, 257), Status::INVALID_FIELD),
            (SubmissionQueueEntry::raw(0x77, 1), Status::INVALID_OPCODE),
        ];
        for (entry, expected) in table {
            let status = io.command(entry, &[]).await.status();
            assert!(
                status.is(expected) && status.dnr() && status.more(),
                "{entry:?}: {status}"
            );
        }
        assert_eq!(
            io.read(1, 0, 1, BLOCK)
                .await
                .expect("the queue lives")
                .len(),
            4096
        );
    });
}

#[test]
fn success_is_said_by_the_data_only_without_flow_control() {
    let site = Site::new(Config::calm(4), 1);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        let (_admin, cntlid) = bench.admin("a", 1).await;
        for (qid, cattr) in [(1, 0), (2, Connect::CATTR_DISABLE_SQ_FLOW_CONTROL)] {
            let mut io = Client::initialized(&bench.host_rt, bench.addr, NO_DIGESTS).await;
            let connect = Connect {
                qid,
                sqsize: 31,
                cattr,
                ..Connect::default()
            };
            let response = io
                .connect(connect, cntlid, &subnqn("a"), &Identity::number(1))
                .await;
            assert_eq!(response.sqhd() == 0xffff, cattr != 0);
            let sgl = Sgl::Transport { length: BLOCK };
            let read = SubmissionQueueEntry::read(1, LbaRange { slba: 0, blocks: 1 }, sgl);
            io.submit(read, &[]).await;
            let Incoming::Data { header, .. } = io.next().await else {
                panic!("data")
            };
            assert_eq!(header.success, cattr != 0);
            if cattr == 0 {
                assert_eq!(io.response().await.sqhd(), 2);
            }
        }
    });
}

#[test]
fn one_seed_one_history() {
    let history = |seed| {
        let site = Site::new(Config::stormy(seed), 2);
        site.run(|bench| async move {
            bench.attach_memory("a", 1);
            let (_admin, mut io) = bench.connect("a", 1).await;
            for n in 0..20 {
                let data = pattern(n, 4096);
                assert_eq!(
                    io.write_in_capsule(1, n, &data, BLOCK).await,
                    Status::SUCCESS
                );
                assert_eq!(io.read(1, n, 1, BLOCK).await.expect("good"), data);
            }
        });
        site.world.digest()
    };
    assert_eq!(history(11), history(11));
    assert_ne!(history(11), history(12));
}

/// A retry delay goes only to a host that has said by Host Behavior Support that it waits.
#[test]
fn busy_with_and_without_a_retry_delay() {
    let site = Site::new(Config::calm(9), 1);
    site.run(|bench| async move {
        let (device, gate) = Held::around(memory(1 << 20));
        bench.attach("a", 1, 0, device);
        let (mut admin, mut io) = bench.connect("a", 1).await;
        gate.failing.set(Some(IoError::Busy));
        let plain = io.read(1, 0, 1, BLOCK).await.expect_err("busy");
        assert!(plain.is(Status::COMMAND_INTERRUPTED) && plain.crd() == 0 && !plain.dnr());
        let behavior = HostBehavior {
            acre: true,
            ..HostBehavior::default()
        };
        let sgl = Sgl::InCapsule {
            offset: 0,
            length: HostBehavior::LEN as u32,
        };
        let set = SubmissionQueueEntry::set_features(FeatureId::HOST_BEHAVIOR_SUPPORT.0, 0, 0);
        let answer = admin.command(set.with_sgl(sgl), &behavior.encode()).await;
        assert!(answer.status().is_success(), "{answer:?}");
        let delayed = io.read(1, 0, 1, BLOCK).await.expect_err("busy");
        assert!(delayed.is(Status::COMMAND_INTERRUPTED) && delayed.crd() == 1);
    });
}
