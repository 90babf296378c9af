//! Several cores: connections are spread, devices are reached wherever they are at home.

use flashyard_nvme::command::LbaRange;
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_sched::{Fifo, Window};
use flashyard_testbed::{BLOCK, Incoming, NO_DIGESTS, Site, memory, pattern};
use flashyard_time::Duration;

use crate::devices::Held;

#[test]
fn every_connection_reaches_every_device() {
    for seed in 0..5 {
        let site = Site::new(Config::stormy(seed), 3);
        site.run(|bench| async move {
            for core in 0..3 {
                bench.attach("a", core as u32 + 1, core, memory(4 << 20));
            }
            let (_admin, cntlid) = bench.admin("a", 1).await;
            let mut queues = Vec::new();
            for qid in 1..=5 {
                queues.push(bench.io_with("a", 1, NO_DIGESTS, (cntlid, qid, 32)).await);
            }
            assert_eq!(bench.target.snapshot().connections_per_core, [2, 2, 2]);
            for (n, io) in (0..).zip(&mut queues) {
                for nsid in 1..=3 {
                    let data = pattern(n * 10 + u64::from(nsid), 64 << 10);
                    assert_eq!(
                        io.write_by_r2t(nsid, 100 * n, &data, BLOCK, 9000).await,
                        Status::SUCCESS
                    );
                    assert_eq!(
                        io.write_in_capsule(nsid, 100 * n + 50, &data[..8192], BLOCK)
                            .await,
                        Status::SUCCESS
                    );
                }
            }
            for (n, io) in (0..).zip(queues.iter_mut().rev()) {
                let n = 4 - n;
                for nsid in 1..=3 {
                    let data = pattern(n * 10 + u64::from(nsid), 64 << 10);
                    assert_eq!(io.read(nsid, 100 * n, 16, BLOCK).await.expect("good"), data);
                    assert_eq!(
                        io.read(nsid, 100 * n + 50, 2, BLOCK).await.expect("good"),
                        data[..8192]
                    );
                }
            }
            let counters = bench.target.snapshot().tenants[0].counters;
            assert_eq!(
                (counters.reads, counters.writes, counters.errors),
                (30, 30, 0)
            );
            assert_eq!(counters.bytes_read, 15 * (72 << 10));
        });
    }
}

#[test]
fn shutdown_finishes() {
    let site = Site::new(Config::stormy(9), 2);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        let (mut admin, mut io) = bench.connect("a", 1).await;
        io.read(1, 0, 1, BLOCK).await.expect("good");
        for core in &bench.cores {
            core.shutdown().await;
        }
        admin.closed().await;
        io.closed().await;
        assert!(bench.target.snapshot().controllers.is_empty());
    });
}

/// A device of core 0 that takes one I/O at a time, and one host's queue on core 1.
const ONE: Window = Window {
    ios: 1,
    bytes: u64::MAX,
};

/// A write of 16 blocks whose data need an R2T.
fn write_by_r2t(slba: u64) -> SubmissionQueueEntry {
    let sgl = Sgl::Transport { length: 16 * BLOCK };
    SubmissionQueueEntry::write(1, LbaRange { slba, blocks: 16 }, sgl)
}

#[test]
fn data_are_not_invited_before_the_home_has_picked_the_write() {
    for seed in 0..5 {
        let site = Site::new(Config::stormy(seed), 2);
        site.run(|bench| async move {
            let (device, gate) = Held::around(memory(1 << 20));
            let switch = bench.cores[0].add_switch(Box::new(Fifo::new(ONE)));
            let device = bench.cores[0].add_device(device, &switch);
            bench.attach_handle("a", 1, &device);
            let (_admin, mut io) = bench.connect("a", 1).await;
            gate.shut();
            let sgl = Sgl::Transport { length: BLOCK };
            let read = SubmissionQueueEntry::read(1, LbaRange { slba: 0, blocks: 1 }, sgl);
            io.submit(read, &[]).await;
            bench.host_rt.sleep(Duration::from_ms(300)).await;
            io.submit(write_by_r2t(16), &[]).await;
            let rt = bench.host_rt.clone();
            let first = rt.clone().spawn(async move {
                let first = io.next().await;
                (io, first, rt.now())
            });
            bench.host_rt.sleep(Duration::from_ms(500)).await;
            let opened = bench.host_rt.now();
            gate.open();
            let (mut io, mut next, at) = first.await;
            assert!(at >= opened, "the device was busy with the read: {next:?}");
            let mut answered = 0;
            loop {
                match next {
                    Incoming::R2t(r2t) => {
                        io.send_requested(&r2t, &pattern(1, 64 << 10), 9000).await;
                    }
                    Incoming::Response(entry) => {
                        assert!(entry.status().is_success());
                        answered += 1;
                    }
                    Incoming::Data { header, .. } => answered += usize::from(header.success),
                    other => panic!("{other:?}"),
                }
                if answered == 2 {
                    break;
                }
                next = io.next().await;
            }
            assert_eq!(
                io.read(1, 16, 16, BLOCK).await.expect("good"),
                pattern(1, 64 << 10)
            );
        });
    }
}

/// A host that has an R2T and goes away gives the device back to the others.
#[test]
fn a_grant_that_is_not_used_is_returned() {
    for seed in 0..5 {
        let site = Site::new(Config::stormy(seed), 2);
        site.run(|bench| async move {
            let switch = bench.cores[0].add_switch(Box::new(Fifo::new(ONE)));
            let device = bench.cores[0].add_device(memory(1 << 20), &switch);
            bench.attach_handle("a", 1, &device);
            bench.attach_handle("b", 1, &device);
            let (admin, mut io) = bench.connect("a", 1).await;
            io.submit(write_by_r2t(0), &[]).await;
            assert!(matches!(io.next().await, Incoming::R2t(_)));
            let (_other_admin, mut other) = bench.connect("b", 2).await;
            // More of the first host's writes queue behind the one that was granted.
            for slba in 1..4 {
                io.submit(write_by_r2t(16 * slba), &[]).await;
            }
            bench.host_rt.sleep(Duration::from_ms(300)).await;
            drop((admin, io));
            let data = pattern(2, 64 << 10);
            assert_eq!(
                other.write_by_r2t(1, 32, &data, BLOCK, 9000).await,
                Status::SUCCESS
            );
            assert_eq!(other.read(1, 32, 16, BLOCK).await.expect("good"), data);
        });
    }
}

/// A host that has an R2T and sends nothing does not keep the others from the device, and when it
/// sends at last its write is done.
#[test]
fn a_turn_that_is_not_used_lapses() {
    for home in [0, 1] {
        let site = Site::new(Config::stormy(7), 2);
        site.run(move |bench| async move {
            let switch = bench.cores[home].add_switch(Box::new(Fifo::new(ONE)));
            let device = bench.cores[home].add_device(memory(1 << 20), &switch);
            bench.attach_handle("a", 1, &device);
            bench.attach_handle("b", 1, &device);
            let (_admin, mut slow) = bench.connect("a", 1).await;
            let (_other_admin, mut other) = bench.connect("b", 2).await;
            slow.submit(write_by_r2t(0), &[]).await;
            let Incoming::R2t(r2t) = slow.next().await else {
                panic!("its R2T comes");
            };
            let begun = bench.host_rt.now();
            let data = pattern(2, 64 << 10);
            assert_eq!(
                other.write_by_r2t(1, 32, &data, BLOCK, 9000).await,
                Status::SUCCESS
            );
            assert!(bench.host_rt.now().since(begun) < Duration::from_secs(2));
            slow.send_requested(&r2t, &pattern(1, 64 << 10), 9000).await;
            assert!(slow.response().await.status().is_success());
            for (slba, seed) in [(0, 1), (32, 2)] {
                let read = other.read(1, slba, 16, BLOCK).await.expect("good");
                assert_eq!(read, pattern(seed, 64 << 10));
            }
        });
    }
}
