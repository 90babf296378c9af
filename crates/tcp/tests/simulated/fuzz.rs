//! A seeded stream of malformed and mis-ordered PDUs and random commands against a live target: it
//! may refuse and drop its tormentor, but it does not panic, loses no memory, and a neighbour
//! notices nothing.

use flashyard_nvme::SubmissionQueueEntry;
use flashyard_nvme::tcp::{Digests, H2CData, ICReq};
use flashyard_runtime::Buf;
use flashyard_runtime::sim::Config;
use flashyard_testbed::{BLOCK, Bench, Client, Incoming, Site, memory, pattern, subnqn};
use flashyard_time::{Duration, Rng};

/// One hostile connection: as far into the protocol as chance takes it, then noise.
async fn torment(bench: &Bench, rng: &mut Rng) {
    let digests = Digests {
        header: rng.chance(1, 2),
        data: rng.chance(1, 2),
    };
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
            let datal = 1 + rng.below(20_000) as u32;
            let pdu = H2CData {
                cccid: rng.below(70) as u16,
                ttag: rng.below(5) as u16,
                datao: if rng.chance(1, 2) {
                    0
                } else {
                    rng.next_u64() as u32
                },
                datal,
                last: rng.chance(1, 2),
            };
            client.h2c_data(pdu, &vec![0xee; datal as usize])
        }
        _ => {
            let data_len = if rng.chance(1, 2) {
                0
            } else {
                512 * rng.below(17) as usize
            };
            client.capsule(command(rng), &vec![0xdd; data_len])
        }
    }
}

/// A command that looks like one: known opcodes and small numbers more often than not.
fn command(rng: &mut Rng) -> SubmissionQueueEntry {
    let opcodes = [0, 1, 2, 5, 6, 8, 9, 0x0a, 0x0c, 0x0d, 0x18, 0x7f];
    let opcode = if rng.chance(9, 10) {
        *rng.pick(&opcodes).expect("some")
    } else {
        rng.next_u64() as u8
    };
    let nsid = if rng.chance(4, 5) {
        1
    } else {
        rng.next_u64() as u32
    };
    let mut entry = SubmissionQueueEntry::raw(opcode, nsid).with_cid(rng.below(70) as u16);
    for dword in 10..16 {
        let value = match rng.below(4) {
            0 => rng.next_u64() as u32,
            1 => rng.below(32) as u32,
            _ => 0,
        };
        entry = entry.with_cdw(dword, value);
    }
    let mut raw = entry.sgl().encode();
    let length = if rng.chance(2, 3) {
        BLOCK * (1 + rng.below(3) as u32)
    } else {
        rng.next_u64() as u32
    };
    raw[8..12].copy_from_slice(&length.to_le_bytes());
    raw[15] = *rng
        .pick(&[0x01, 0x5a, 0x5a, 0x00, 0x40, 0x30])
        .expect("some");
    let fuse = [
        flashyard_nvme::command::Fuse::First,
        flashyard_nvme::command::Fuse::Second,
    ];
    let entry = entry.with_sgl(flashyard_nvme::Sgl::parse(&raw));
    if rng.chance(1, 6) {
        entry.with_fuse(*rng.pick(&fuse).expect("some"))
    } else {
        entry
    }
}

fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    match rng.below(3) {
        0 => bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize),
        1 => {
            let at = rng.below(bytes.len().min(24) as u64) as usize;
            bytes[at] = rng.next_u64() as u8;
        }
        _ => {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
        }
    }
}

fn noise(rng: &mut Rng, most: u64) -> Vec<u8> {
    let mut bytes = vec![0; rng.below(most) as usize];
    rng.fill_bytes(&mut bytes);
    bytes
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
            let written = neighbour.write_invited(1, 0, &secret, BLOCK, 1 << 20).await;
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
                    .write_invited(1, 0, &vec![0xab; 1 << 20], BLOCK, 1 << 20)
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
                let bytes = thief.capsule(command(&mut rng), &[]);
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
