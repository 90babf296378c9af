//! Data of writes by R2T that come one behind the other, with commands between them: what follows
//! the data of one PDU is received with them, and belongs to the next.

use flashyard_nvme::command::LbaRange;
use flashyard_nvme::tcp::{Digests, H2CData, R2T};
use flashyard_nvme::{Sgl, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_testbed::{BLOCK, Client, Incoming, Site, pattern};
use flashyard_time::Rng;

const SEEDS: u64 = if cfg!(debug_assertions) { 6 } else { 100 };
const ROUNDS: u64 = 6;
/// Writes of a round, each to blocks of its own.
const WRITES: u64 = 6;
/// Blocks of the largest write.
const MOST: u64 = 40;

/// One write of a round.
struct Write {
    slba: u64,
    data: Vec<u8>,
}

/// Has R2Ts sent for writes of several sizes, and sends all their data in one stretch, cut at
/// random, with small writes in capsules between them; then everything is read again.
async fn round(io: &mut Client, rng: &mut Rng, number: u64) {
    let writes: Vec<_> = (0..WRITES)
        .map(|n| Write {
            slba: n * MOST,
            data: pattern(
                number * 100 + n,
                (1 + rng.below(MOST)) as usize * BLOCK as usize,
            ),
        })
        .collect();
    let mut cids = Vec::new();
    for write in &writes {
        let length = write.data.len() as u32;
        let entry = SubmissionQueueEntry::write(1, range(write), Sgl::Transport { length });
        cids.push(io.submit(entry, &[]).await);
    }
    let mut requested = Vec::new();
    while requested.len() < writes.len() {
        let Incoming::R2t(r2t) = io.next().await else {
            panic!("an R2T comes")
        };
        requested.push(r2t);
    }
    let mut stream = Vec::new();
    let mut small = Vec::new();
    for r2t in &requested {
        let n = cids.iter().position(|cid| *cid == r2t.cccid);
        push(
            io,
            rng,
            r2t,
            &writes[n.expect("it was asked for")].data,
            &mut stream,
        );
        if rng.chance(1, 2) {
            let write = Write {
                slba: WRITES * MOST + small.len() as u64,
                data: pattern(number * 100 + 50 + small.len() as u64, BLOCK as usize),
            };
            let sgl = Sgl::InCapsule {
                offset: 0,
                length: BLOCK,
            };
            let entry = SubmissionQueueEntry::write(1, range(&write), sgl);
            let cid = 60_000 + small.len() as u16;
            stream.extend(io.capsule(entry.with_cid(cid), &write.data));
            small.push(write);
        }
    }
    while !stream.is_empty() {
        let len = (1 + rng.below(150_000) as usize).min(stream.len());
        io.send_bytes(&stream[..len]).await;
        stream.drain(..len);
    }
    for _ in 0..writes.len() + small.len() {
        assert!(io.response().await.status().is_success());
    }
    for write in writes.iter().chain(&small) {
        let blocks = range(write).blocks;
        let read = io.read(1, write.slba, blocks, BLOCK).await;
        assert!(
            read.expect("a good read") == write.data,
            "at {}",
            write.slba
        );
    }
}

fn range(write: &Write) -> LbaRange {
    LbaRange {
        slba: write.slba,
        blocks: write.data.len() as u32 / BLOCK,
    }
}

/// The data that an R2T asks for, in one PDU or in several.
fn push(io: &Client, rng: &mut Rng, r2t: &R2T, data: &[u8], stream: &mut Vec<u8>) {
    let piece = if rng.chance(1, 2) { data.len() } else { 12_000 };
    for (n, part) in data.chunks(piece).enumerate() {
        let datao = (n * piece) as u32;
        let pdu = H2CData {
            cccid: r2t.cccid,
            ttag: r2t.ttag,
            datao,
            datal: part.len() as u32,
            last: datao as usize + part.len() == data.len(),
        };
        stream.extend(io.h2c_data(pdu, part));
    }
}

#[test]
fn what_follows_large_data_is_not_mixed_with_them() {
    for seed in 0..SEEDS {
        let config = match seed % 2 {
            0 => Config::calm(seed),
            _ => Config::stormy(seed),
        };
        let digests = Digests {
            header: seed % 3 == 1,
            data: seed % 3 == 2,
        };
        let site = Site::new(config, 1);
        site.run(move |bench| async move {
            bench.attach_memory("a", 1);
            let (_admin, mut io) = bench.connect_with("a", 1, digests, 128).await;
            let mut rng = Rng::new(seed);
            for number in 0..ROUNDS {
                round(&mut io, &mut rng, number).await;
            }
        });
    }
}
