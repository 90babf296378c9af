//! Hosts that cost more than their share, and what they get.

use flashyard_engine::Limits;
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::tcp::{Digests, H2CData};
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::Buf;
use flashyard_runtime::sim::Config;
use flashyard_testbed::{BLOCK, Client, Incoming, NO_DIGESTS, Site, memory, pattern, tenant};
use flashyard_time::Duration;

/// Connections that say nothing, or only half of something, are closed in time, and do not keep
/// others out.
#[test]
fn half_a_pdu_and_floods_of_connections() {
    let limits = Limits {
        unconnected: 200,
        unconnected_per_address: 40,
        ..Limits::default()
    };
    let site = Site::with_limits(Config::calm(1), 2, limits);
    site.run(|bench| async move {
        let mut silent = Vec::new();
        for n in 0..60 {
            let mut client = Client::silent(&bench.host_rt, bench.addr).await;
            client.send_bytes(&[0, 0, 128, 0, 128, 0, 0][..n % 8]).await;
            silent.push(client);
        }
        bench.host_rt.sleep(Duration::from_ms(10)).await;
        assert_eq!(bench.target.snapshot().unconnected, 40);
        bench.host_rt.sleep(Duration::from_secs(12)).await;
        assert_eq!(bench.target.snapshot().unconnected, 0);
        for client in &mut silent {
            client.closed().await;
        }
        let (_admin, _io) = bench.connect("a", 1).await;
    });
}

#[test]
fn a_host_that_never_connects() {
    let site = Site::new(Config::calm(2), 1);
    site.run(|bench| async move {
        let mut client = Client::initialized(&bench.host_rt, bench.addr, NO_DIGESTS).await;
        for _ in 0..100 {
            let get = SubmissionQueueEntry::property_get(0, true);
            assert!(
                client
                    .command(get, &[])
                    .await
                    .status()
                    .is(Status::COMMAND_SEQUENCE_ERROR)
            );
        }
        let begun = bench.host_rt.now();
        client.closed().await;
        assert!(bench.host_rt.now().since(begun) < Duration::from_secs(20));
    });
}

/// A host that reads nothing stops being served, is dropped in the end, and costs no more than its
/// share.
#[test]
fn a_host_that_takes_nothing() {
    let site = Site::new(Config::calm(3), 1);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        bench.attach_memory("b", 1);
        let (_other_admin, mut other) = bench.connect("b", 2).await;
        let data = pattern(1, 1 << 20);
        assert_eq!(
            other.write_by_r2t(1, 0, &data, BLOCK, 1 << 20).await,
            Status::SUCCESS
        );
        let (_admin, mut io) = bench.connect("a", 1).await;
        assert_eq!(
            io.write_by_r2t(1, 0, &data, BLOCK, 1 << 20).await,
            Status::SUCCESS
        );
        for _ in 0..127 {
            let sgl = Sgl::Transport { length: 1 << 20 };
            io.submit(
                SubmissionQueueEntry::read(
                    1,
                    LbaRange {
                        slba: 0,
                        blocks: 256,
                    },
                    sgl,
                ),
                &[],
            )
            .await;
        }
        bench.host_rt.sleep(Duration::from_secs(5)).await;
        for _ in 0..20 {
            assert_eq!(
                other
                    .read(1, 0, 256, BLOCK)
                    .await
                    .expect("others are served"),
                data
            );
        }
        bench.host_rt.sleep(Duration::from_secs(40)).await;
        let mut pdus = 0;
        while !matches!(io.next().await, Incoming::End) {
            pdus += 1;
            if pdus > 3 {
                break;
            }
        }
        assert!(pdus <= 3, "no more than the sockets hold");
    });
}

/// A host that is asked for data and sends none is dropped; what waits behind is answered to come
/// again before.
#[test]
fn a_host_that_owes_data() {
    let site = Site::new(Config::calm(4), 1);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        let (_admin, mut io) = bench.connect("a", 1).await;
        let sgl = Sgl::Transport { length: 1 << 20 };
        for _ in 0..10 {
            io.submit(
                SubmissionQueueEntry::write(
                    1,
                    LbaRange {
                        slba: 0,
                        blocks: 256,
                    },
                    sgl,
                ),
                &[],
            )
            .await;
        }
        let (mut requested, mut interrupted) = (0, 0);
        let begun = bench.host_rt.now();
        loop {
            match io.next().await {
                Incoming::R2t(_) => requested += 1,
                Incoming::Response(entry) => {
                    assert!(entry.status().is(Status::COMMAND_INTERRUPTED), "{entry:?}");
                    interrupted += 1;
                }
                Incoming::End => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(requested, 2, "as many as the bound of a connection allows");
        assert_eq!(interrupted, 8, "all the others");
        assert!(bench.host_rt.now().since(begun) < Duration::from_secs(40));
    });
}

/// Nor does it help to send the data byte by byte.
#[test]
fn a_host_that_trickles() {
    let site = Site::new(Config::calm(6), 1);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        let (_admin, mut io) = bench.connect("a", 1).await;
        let range = LbaRange {
            slba: 0,
            blocks: 16,
        };
        let sgl = Sgl::Transport { length: 16 * BLOCK };
        io.submit(SubmissionQueueEntry::write(1, range, sgl), &[])
            .await;
        let Incoming::R2t(r2t) = io.next().await else {
            panic!("an R2T")
        };
        let begun = bench.host_rt.now();
        for n in 0..16 {
            let pdu = H2CData {
                cccid: r2t.cccid,
                ttag: r2t.ttag,
                datao: n * BLOCK,
                datal: BLOCK,
                last: n == 15,
            };
            let bytes = io.h2c_data(pdu, &[7; 4096]);
            io.send_bytes(&bytes).await;
            if let Some(Incoming::End) = io.next_within(Duration::from_secs(5)).await {
                break;
            }
        }
        assert!(bench.host_rt.now().since(begun) < Duration::from_secs(40));
        assert!(matches!(io.next().await, Incoming::End));
    });
}

/// More writes than there is memory for: each waits for its turn, none fails.
#[test]
fn more_writes_than_memory() {
    for seed in 0..10 {
        let limits = Limits {
            capsule_bytes: 16 << 10,
            tenant_bytes: 2 << 20,
            core_bytes: 2 << 20,
            ..Limits::default()
        };
        let site = Site::with_limits(Config::stormy(seed), 1, limits);
        site.run(|bench| async move {
            bench.attach_memory("a", 1);
            let mut tasks = Vec::new();
            for host in 1..=4u8 {
                let bench = bench.clone();
                tasks.push(bench.host_rt.clone().spawn(async move {
                    let (admin, mut io) = bench.connect("a", host).await;
                    let at = u64::from(host) * 512;
                    let large = pattern(at, 512 << 10);
                    for _ in 0..4 {
                        assert_eq!(
                            io.write_by_r2t(1, at, &large, BLOCK, 1 << 20).await,
                            Status::SUCCESS
                        );
                        let range = LbaRange {
                            slba: at + 200,
                            blocks: 2,
                        };
                        let write = SubmissionQueueEntry::write(
                            1,
                            range,
                            Sgl::InCapsule {
                                offset: 0,
                                length: 8192,
                            },
                        );
                        for _ in 0..16 {
                            io.submit(write, &large[..8192]).await;
                        }
                        for _ in 0..16 {
                            assert_eq!(io.response().await.status(), Status::SUCCESS);
                        }
                        assert_eq!(io.read(1, at, 128, BLOCK).await.expect("good"), large);
                    }
                    drop((admin, io));
                }));
            }
            for task in tasks {
                task.await;
            }
        });
    }
}

/// Whatever has happened, in the end no memory is missing.
#[test]
fn memory_comes_back() {
    for seed in 0..20 {
        let before = Buf::balance();
        let site = Site::new(Config::stormy(seed), 2);
        site.run(|bench| async move {
            let (device, gate) = crate::devices::Held::around(memory(4 << 20));
            bench.attach("a", 1, 1, device);
            for host in 1..=3 {
                let (admin, mut io) = bench.connect("a", host).await;
                gate.shut();
                for n in 0..16u64 {
                    let range = LbaRange { slba: n, blocks: 1 };
                    let (entry, data) = match n % 3 {
                        0 => (
                            SubmissionQueueEntry::read(1, range, Sgl::Transport { length: BLOCK }),
                            vec![],
                        ),
                        1 => (
                            SubmissionQueueEntry::write(1, range, Sgl::Transport { length: BLOCK }),
                            vec![],
                        ),
                        _ => {
                            let sgl = Sgl::InCapsule {
                                offset: 0,
                                length: BLOCK,
                            };
                            (SubmissionQueueEntry::write(1, range, sgl), vec![1; 4096])
                        }
                    };
                    io.submit(entry, &data).await;
                }
                bench
                    .host_rt
                    .sleep(Duration::from_ms(u64::from(host) * 3))
                    .await;
                drop((admin, io));
                bench.host_rt.sleep(Duration::from_ms(5)).await;
                gate.open();
            }
            bench.host_rt.sleep(Duration::from_secs(3)).await;
            assert!(bench.target.snapshot().controllers.is_empty());
            for core in &bench.cores {
                core.shutdown().await;
            }
        });
        drop(site);
        assert_eq!(Buf::balance(), before, "seed {seed}");
    }
}

#[test]
fn a_thousand_connections() {
    let limits = Limits {
        unconnected_per_address: 2000,
        unconnected: 2000,
        ..Limits::default()
    };
    let site = Site::with_limits(Config::calm(5), 2, limits);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        let mut hosts = Vec::new();
        for n in 0..10u8 {
            let (admin, cntlid) = bench.admin("a", n + 1).await;
            let mut queues = Vec::new();
            for qid in 1..100 {
                queues.push(
                    bench
                        .io_with("a", n + 1, NO_DIGESTS, (cntlid, qid, 8))
                        .await,
                );
            }
            hosts.push((admin, queues));
        }
        assert_eq!(bench.target.snapshot().connections_per_core, [500, 500]);
        for (_, queues) in &mut hosts {
            for io in queues {
                assert_eq!(io.read(1, 0, 1, BLOCK).await.expect("served").len(), 4096);
            }
        }
    });
}

/// Tenants whose hosts owe data on as many connections as they like leave memory for the others.
#[test]
fn tenants_that_owe_data_leave_memory_for_others() {
    let site = Site::new(Config::calm(7), 1);
    site.run(|bench| async move {
        bench
            .target
            .set_tenant(tenant(3, "c", &["*"]))
            .expect("a good tenant");
        for name in ["a", "b", "c"] {
            bench.attach_memory(name, 1);
        }
        let mut debtors = Vec::new();
        for (name, host) in [("a", 1), ("b", 2)] {
            let (admin, cntlid) = bench.admin(name, host).await;
            debtors.push(admin);
            for qid in 1..=40 {
                let mut io = bench
                    .io_with(name, host, NO_DIGESTS, (cntlid, qid, 32))
                    .await;
                for _ in 0..2 {
                    let write = SubmissionQueueEntry::write(
                        1,
                        LbaRange {
                            slba: 0,
                            blocks: (1 << 20) / BLOCK,
                        },
                        Sgl::Transport { length: 1 << 20 },
                    );
                    io.submit(write, &[]).await;
                }
                debtors.push(io);
            }
        }
        let (_admin, mut io) = bench.connect("c", 3).await;
        let begun = bench.host_rt.now();
        let data = pattern(1, 1 << 20);
        let status = io.write_by_r2t(1, 0, &data, BLOCK, 1 << 20).await;
        assert_eq!(status, Status::SUCCESS);
        assert!(bench.host_rt.now().since(begun) < Duration::from_secs(1));
    });
}

/// Nor do many tenants, each of which holds as much as it may.
#[test]
fn many_tenants_that_owe_data_leave_memory_for_another() {
    let site = Site::new(Config::calm(10), 1);
    site.run(|bench| async move {
        let mut debtors = Vec::new();
        for id in 3..15_u8 {
            let name = format!("t{id}");
            let spec = tenant(u32::from(id), &name, &["*"]);
            bench.target.set_tenant(spec).expect("a good tenant");
            bench.attach_memory(&name, 1);
            let (admin, cntlid) = bench.admin(&name, id).await;
            debtors.push(admin);
            for qid in 1..=12 {
                let seat = (cntlid, qid, 32);
                let mut io = bench.io_with(&name, id, NO_DIGESTS, seat).await;
                for _ in 0..2 {
                    let range = LbaRange {
                        slba: 0,
                        blocks: 256,
                    };
                    let sgl = Sgl::Transport { length: 1 << 20 };
                    io.submit(SubmissionQueueEntry::write(1, range, sgl), &[])
                        .await;
                }
                debtors.push(io);
            }
        }
        bench.attach_memory("b", 1);
        let (_admin, mut io) = bench.connect("b", 2).await;
        let begun = bench.host_rt.now();
        let data = pattern(1, 1 << 20);
        for _ in 0..4 {
            let status = io.write_by_r2t(1, 0, &data, BLOCK, 1 << 20).await;
            assert_eq!(status, Status::SUCCESS);
        }
        assert!(bench.host_rt.now().since(begun) < Duration::from_secs(1));
    });
}

/// Long transfers on more connections than a tenant's memory has room for: they take turns, and all
/// are served.
#[test]
fn long_transfers_at_depth_share_the_memory_of_their_tenant() {
    let site = Site::new(Config::calm(8), 1);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        let (_admin, cntlid) = bench.admin("a", 1).await;
        let mut queues = Vec::new();
        for qid in 1..=24 {
            let mut io = bench.io_with("a", 1, NO_DIGESTS, (cntlid, qid, 32)).await;
            let data = pattern(u64::from(qid), 1 << 20);
            queues.push(bench.host_rt.spawn(async move {
                let status = io.write_by_r2t(1, 0, &data, BLOCK, 1 << 18).await;
                assert_eq!(status, Status::SUCCESS);
                let read = io.read(1, 0, (1 << 20) / BLOCK, BLOCK).await;
                assert_eq!(read.expect("good").len(), 1 << 20);
            }));
        }
        for queue in queues {
            queue.await;
        }
    });
}

/// An Admin queue whose host takes nothing is served no further than a page or so.
#[test]
fn log_pages_that_nobody_takes() {
    let config = Config {
        socket_buffer: 64 << 10,
        ..Config::calm(9)
    };
    let digests = Digests {
        header: true,
        data: true,
    };
    let site = Site::new(config, 1);
    site.run(move |bench| async move {
        let (mut admin, _) = bench.admin_with("a", 1, digests).await;
        let length = 1 << 20;
        let dwords: u32 = length / 4 - 1;
        let log = SubmissionQueueEntry::raw(0x02, 0xffff_ffff)
            .with_cdw(10, 2 | dwords << 16)
            .with_cdw(11, dwords >> 16)
            .with_sgl(Sgl::Transport { length });
        for _ in 0..3 {
            admin.submit(log, &[]).await;
        }
        // CC.EN to 0: the state shows whether it has been looked at.
        let disable = SubmissionQueueEntry::property_set(0x14, false, 0x0046_0000);
        admin.submit(disable, &[]).await;
        bench.host_rt.sleep(Duration::from_secs(5)).await;
        assert!(bench.target.snapshot().controllers[0].enabled);
        for _ in 0..3 {
            let Incoming::Data {
                data, digest_ok, ..
            } = admin.next().await
            else {
                panic!("a log page")
            };
            assert!(digest_ok && data.len() == length as usize);
            assert!(data[1..512].iter().any(|byte| *byte != 0));
            assert!(data[512..].iter().all(|byte| *byte == 0));
            assert!(admin.response().await.status().is_success());
        }
        assert!(admin.response().await.status().is_success());
        assert!(!bench.target.snapshot().controllers[0].enabled);
    });
}
