//! Fused Compare and Write.

use flashyard_nvme::command::{Fuse, LbaRange};
use flashyard_nvme::tcp::{Digests, H2CData};
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_sched::{Fifo, Window};
use flashyard_testbed::{BLOCK, Bench, Client, Incoming, Site, memory, pattern};
use flashyard_time::Duration;

const RANGE: LbaRange = LbaRange { slba: 5, blocks: 1 };

fn halves(sgl: Sgl, range: LbaRange) -> [SubmissionQueueEntry; 2] {
    [
        SubmissionQueueEntry::compare(1, range, sgl).with_fuse(Fuse::First),
        SubmissionQueueEntry::write(1, range, sgl).with_fuse(Fuse::Second),
    ]
}

async fn in_capsule(io: &mut Client, compare: &[u8], write: &[u8]) -> [Status; 2] {
    let [first, second] = halves(
        Sgl::InCapsule {
            offset: 0,
            length: BLOCK,
        },
        RANGE,
    );
    let first = io.submit(first, compare).await;
    let second = io.submit(second, write).await;
    let answers = [io.response().await, io.response().await];
    assert_eq!([answers[0].cid(), answers[1].cid()], [first, second]);
    answers.map(|answer| answer.status())
}

async fn prepared(bench: &Bench) -> (Client, Client) {
    bench.attach_memory("a", 1);
    bench.connect("a", 1).await
}

#[test]
fn it_writes_only_if_equal() {
    let site = Site::new(Config::stormy(1), 1);
    site.run(|bench| async move {
        let (_admin, mut io) = prepared(&bench).await;
        let (zero, new) = (vec![0; 4096], pattern(1, 4096));
        assert_eq!(in_capsule(&mut io, &zero, &new).await, [Status::SUCCESS; 2]);
        assert_eq!(io.read(1, 5, 1, BLOCK).await.expect("good"), new);
        let [first, second] = in_capsule(&mut io, &zero, &pattern(2, 4096)).await;
        assert!(first.is(Status::COMPARE_FAILURE) && second.is(Status::ABORTED_FAILED_FUSED));
        assert_eq!(io.read(1, 5, 1, BLOCK).await.expect("good"), new);
    });
}

/// Pairs are made by arrival; R2Ts may be served in any order.
#[test]
fn several_pairs_with_their_data_in_reverse_order() {
    for seed in 0..10 {
        let site = Site::new(Config::stormy(seed), 1);
        site.run(|bench| async move {
            let (_admin, mut io) = prepared(&bench).await;
            let mut data = std::collections::BTreeMap::new();
            for pair in 0..4u64 {
                let range = LbaRange {
                    slba: 10 + pair,
                    blocks: 1,
                };
                let [first, second] = halves(Sgl::Transport { length: BLOCK }, range);
                data.insert(io.submit(first, &[]).await, vec![0; 4096]);
                data.insert(io.submit(second, &[]).await, pattern(pair, 4096));
            }
            let mut invitations = Vec::new();
            while invitations.len() < 8 {
                let Incoming::R2t(r2t) = io.next().await else {
                    panic!("an R2T")
                };
                invitations.push(r2t);
            }
            for r2t in invitations.iter().rev() {
                io.send_requested(r2t, &data[&r2t.cccid], 1000).await;
            }
            for _ in 0..8 {
                assert_eq!(io.response().await.status(), Status::SUCCESS);
            }
            for pair in 0..4 {
                assert_eq!(
                    io.read(1, 10 + pair, 1, BLOCK).await.expect("good"),
                    pattern(pair, 4096)
                );
            }
        });
    }
}

#[test]
fn halves_without_their_other_half() {
    let site = Site::new(Config::stormy(2), 1);
    site.run(|bench| async move {
        let (_admin, mut io) = prepared(&bench).await;
        let sgl = Sgl::InCapsule {
            offset: 0,
            length: BLOCK,
        };
        let [first, second] = halves(sgl, RANGE);
        let data = pattern(1, 4096);

        assert!(
            io.command(second, &data)
                .await
                .status()
                .is(Status::ABORTED_MISSING_FUSED)
        );

        let lone = io.submit(first, &data).await;
        let flush = io.submit(SubmissionQueueEntry::flush(1), &[]).await;
        let (a, b) = (io.response().await, io.response().await);
        assert_eq!((a.cid(), b.cid()), (lone, flush));
        assert!(a.status().is(Status::ABORTED_MISSING_FUSED) && b.status().is_success());

        let lone = io.submit(first, &data).await;
        let [first, second] = halves(sgl, LbaRange { slba: 6, blocks: 1 });
        io.submit(first, &[0; 4096]).await;
        io.submit(second, &data).await;
        let answer = io.response().await;
        assert!(answer.cid() == lone && answer.status().is(Status::ABORTED_MISSING_FUSED));
        assert!(
            io.response().await.status().is_success() && io.response().await.status().is_success()
        );

        let [first, _] = halves(sgl, RANGE);
        let [_, second] = halves(sgl, LbaRange { slba: 7, blocks: 1 });
        io.submit(first, &data).await;
        io.submit(second, &data).await;
        assert!(
            !io.response().await.status().is_success(),
            "not the same range"
        );
        assert!(!io.response().await.status().is_success());
        assert_eq!(io.read(1, 7, 1, BLOCK).await.expect("good"), vec![0; 4096]);
    });
}

/// A host that owes the data of a pair does not keep the others from the device.
#[test]
fn a_pair_that_waits_for_its_data_has_no_turn() {
    for home in [0, 1] {
        let site = Site::new(Config::stormy(3), 2);
        site.run(move |bench| async move {
            let one = Window {
                ios: 1,
                bytes: 1 << 30,
            };
            let switch = bench.cores[home].add_switch(Box::new(Fifo::new(one)));
            let device = bench.cores[home].add_device(memory(1 << 20), &switch);
            bench.attach_handle("a", 1, &device);
            bench.attach_handle("b", 1, &device);
            let (_admin, mut slow) = bench.connect("a", 1).await;
            let (_other_admin, mut other) = bench.connect("b", 2).await;
            for half in halves(Sgl::Transport { length: BLOCK }, RANGE) {
                slow.submit(half, &[]).await;
            }
            let mut invitations = Vec::new();
            for _ in 0..2 {
                match slow.next().await {
                    Incoming::R2t(r2t) => invitations.push(r2t),
                    other => panic!("both halves get an R2T, and then {other:?}"),
                }
            }
            let begun = bench.host_rt.now();
            other.read(1, 0, 1, BLOCK).await.expect("good");
            assert!(bench.host_rt.now().since(begun) < Duration::from_secs(2));
            for r2t in invitations {
                slow.send_requested(&r2t, &[0; 4096], 4096).await;
            }
            for _ in 0..2 {
                assert!(slow.response().await.status().is_success());
            }
        });
    }
}

/// A pair of which the first half's data arrive damaged fails when all of its data are there, and
/// its connection goes on.
#[test]
fn damaged_data_of_a_half_are_not_fatal() {
    let digests = Digests {
        header: false,
        data: true,
    };
    for damaged in [0, 1] {
        let site = Site::new(Config::calm(4), 1);
        site.run(move |bench| async move {
            bench.attach_memory("a", 1);
            let (_admin, mut io) = bench.connect_with("a", 1, digests, 32).await;
            let mut cids = Vec::new();
            for half in halves(Sgl::Transport { length: BLOCK }, RANGE) {
                cids.push(io.submit(half, &[]).await);
            }
            for (half, cid) in cids.iter().enumerate() {
                let Incoming::R2t(r2t) = io.next().await else {
                    panic!("both halves get an R2T")
                };
                assert_eq!(r2t.cccid, *cid);
                let pdu = H2CData {
                    cccid: r2t.cccid,
                    ttag: r2t.ttag,
                    datao: 0,
                    datal: BLOCK,
                    last: true,
                };
                let mut bytes = io.h2c_data(pdu, &[0; 4096]);
                if half == damaged {
                    bytes[100] ^= 1;
                }
                io.send_bytes(&bytes).await;
                bench.host_rt.sleep(Duration::from_ms(5)).await;
            }
            for cid in cids {
                let answer = io.response().await;
                assert!(answer.cid() == cid && !answer.status().is_success());
            }
            assert_eq!(io.read(1, 5, 1, BLOCK).await, Ok(vec![0; 4096]));
        });
    }
}
