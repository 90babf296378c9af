//! Several cores: connections are spread, devices are reached wherever they are at home.

use flashyard_nvme::Status;
use flashyard_runtime::sim::Config;

use crate::world::{BLOCK, NO_DIGESTS, Site, memory, pattern};

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
                        io.write_invited(nsid, 100 * n, &data, BLOCK, 9000).await,
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
