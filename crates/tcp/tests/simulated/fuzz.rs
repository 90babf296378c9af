//! A seeded stream of malformed and mis-ordered PDUs and random commands against a live target: it
//! may refuse and drop its tormentor, but it does not panic, loses no memory, and a neighbour
//! notices nothing.

use flashyard_nvme::SubmissionQueueEntry;
use flashyard_nvme::tcp::{Digests, ICReq};
use flashyard_runtime::Buf;
use flashyard_runtime::sim::Config;
use flashyard_testbed::hostile::{self, damage, noise};
use flashyard_testbed::{BLOCK, Bench, Client, Incoming, Site, memory, pattern, subnqn};
use flashyard_time::{Duration, Rng};

/// One hostile connection: as far into the protocol as chance takes it, then noise.
async fn torment(bench: &Bench, rng: &mut Rng) {
    let digests = hostile::digests(rng);
    let mut client = match rng.below(4) {
        0 => Client::silent(&bench.host_rt, bench.addr).await,
        1 => Client::initialized(&bench.host_rt, bench.addr, digests).await,
        2 => bench.admin_with("a", 1, digests).await.0,
        _ => {
            let (admin, io) = bench.connect_with("a", 1, digests, 64).await;
            // The Admin connection lives on beside it for a while.
            let rt = bench.host_rt.clone();
            bench
                .host_rt
                .spawn(async move {
                    rt.sleep(Duration::from_ms(500)).await;
                    drop(admin);
                })
                .detach();
            io
        }
    };
    for _ in 0..rng.below(60) {
        let mut bytes = pdu(&client, rng);
        if rng.chance(1, 4) {
            damage(&mut bytes, rng);
        }
        client.send_bytes(&bytes).await;
        if rng.chance(1, 8)
            && matches!(
                client.next_within(Duration::from_ms(5)).await,
                Some(Incoming::End)
            )
        {
            return;
        }
    }
}

fn pdu(client: &Client, rng: &mut Rng) -> Vec<u8> {
    match rng.below(12) {
        0 => ICReq::default().encode().to_vec(),
        1 => noise(rng, 200),
        2 | 3 => {
            let pdu = hostile::data(rng);
            client.h2c_data(pdu, &vec![0xee; pdu.datal as usize])
        }
        _ => {
            let data_len = if rng.chance(1, 2) {
                0
            } else {
                512 * rng.below(17) as usize
            };
            client.capsule(hostile::command(rng, 1, BLOCK), &vec![0xdd; data_len])
        }
    }
}

#[test]
fn torment_of_one_tenant_is_not_noticed_by_the_other() {
    for seed in 0..40 {
        let before = Buf::balance();
        let site = Site::new(Config::stormy(seed), 2);
        site.run(|bench| async move {
            bench.attach_memory("a", 1);
            bench.attach("b", 1, 1, memory(16 << 20));
            let (mut admin, mut neighbour) = bench.connect("b", 9).await;
            let secret = pattern(seed, 64 << 10);
            let written = neighbour.write_by_r2t(1, 0, &secret, BLOCK, 1 << 20).await;
            assert!(written.is_success());
            let mut rng = Rng::new(seed);
            for _ in 0..12 {
                torment(&bench, &mut rng).await;
                assert_eq!(
                    neighbour.read(1, 0, 16, BLOCK).await.expect("served"),
                    secret
                );
            }
            assert!(
                admin
                    .command(SubmissionQueueEntry::keep_alive(), &[])
                    .await
                    .status()
                    .is_success()
            );
            drop((admin, neighbour));
            // Longer than every deadline of a connection.
            bench.host_rt.sleep(Duration::from_secs(60)).await;
            let snapshot = bench.target.snapshot();
            assert_eq!(snapshot.connections_per_core, [0, 0], "seed {seed}");
            assert!(snapshot.controllers.is_empty() && snapshot.unconnected == 0);
            for core in &bench.cores {
                core.shutdown().await;
            }
        });
        drop(site);
        assert_eq!(Buf::balance(), before, "seed {seed}");
    }
}

/// What a hostile host reads of its own namespace is its own: zeroes, or what it wrote.
#[test]
fn no_bytes_of_another_tenant() {
    for seed in 0..20 {
        let site = Site::new(Config::stormy(seed), 1);
        site.run(|bench| async move {
            bench.attach_memory("a", 1);
            bench.attach_memory("b", 1);
            let (_admin, mut victim) = bench.connect("b", 2).await;
            assert!(
                victim
                    .write_by_r2t(1, 0, &vec![0xab; 1 << 20], BLOCK, 1 << 20)
                    .await
                    .is_success()
            );
            assert_eq!(
                victim.read(1, 0, 256, BLOCK).await.expect("good").len(),
                1 << 20
            );
            let (_admin, mut thief) = bench.connect("a", 1).await;
            let mut rng = Rng::new(seed);
            for _ in 0..200 {
                let bytes = thief.capsule(hostile::command(&mut rng, 1, BLOCK), &[]);
                thief.send_bytes(&bytes).await;
                while let Some(incoming) = thief.next_within(Duration::from_ms(1)).await {
                    match incoming {
                        Incoming::Data { data, .. } => assert!(!data.contains(&0xab)),
                        Incoming::End => return,
                        _ => {}
                    }
                }
            }
            let other = Client::initialized(&bench.host_rt, bench.addr, Digests::default()).await;
            drop((other, subnqn("a")));
        });
    }
}
