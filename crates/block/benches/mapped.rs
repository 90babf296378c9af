//! Mapped volumes against raw ones on devices in memory, side by side: random I/O of 4 KiB, 32 at
//! a time, on one core; and how long a sparse pool of 1 TiB takes to open.

use std::rc::Rc;
use std::time::Instant;

use flashyard_block::pool::{Kind, MappedOptions, MappedPool, Pool};
use flashyard_block::{DeviceExt, MemoryDevice, SharedDevice, Tag};
use flashyard_runtime::{Buf, Rt, uring};
use flashyard_time::Rng;

const BLOCK: usize = 4096;
/// Blocks of each volume: 256 MiB.
const BLOCKS: u64 = 1 << 16;
const DEPTH: u64 = 32;
const PASSES: u64 = 7;
/// Leaves of the map that the third volume has in memory, of 195.
const LEAVES: usize = 64;

/// A volume that is full; of a mapped one so many leaves of the map are in memory.
async fn volume(rt: &Rt, kind: Kind, leaves: Option<usize>) -> (Pool, SharedDevice) {
    let device = Rc::new(MemoryDevice::new(4096, 1 << 30).expect("a good size"));
    let options = MappedOptions {
        leaves,
        ..MappedOptions::default()
    };
    let pool = match kind {
        Kind::Raw => Pool::create_kind(rt, device, [1; 16], kind, false).await,
        Kind::Mapped => {
            let pool = MappedPool::create(rt, device, [1; 16], options).await;
            pool.map(Pool::Mapped)
        }
    };
    let pool = pool.expect("it is empty");
    let made = pool
        .create_volume("v", [2; 16], BLOCKS * BLOCK as u64)
        .await;
    let volume = made.expect("there is room");
    for lba in (0..BLOCKS).step_by(32) {
        let mut buf = Buf::take(32 * BLOCK).expect("memory");
        Rng::new(lba).fill_bytes(&mut buf);
        let written = volume.write(Tag::default(), lba, buf, false).await;
        written.expect("there is room");
    }
    (pool, volume)
}

async fn worker(volume: SharedDevice, seed: u64, ios: u64, writes: bool) {
    let (mut rng, tag) = (Rng::new(seed), Tag::default());
    for _ in 0..ios {
        let lba = rng.below(BLOCKS);
        let buf = Buf::take(BLOCK).expect("memory");
        match writes {
            true => volume
                .write(tag, lba, buf, false)
                .await
                .expect("there is room"),
            false => drop(volume.read(tag, lba, buf).await.expect("good memory")),
        }
    }
}

/// I/Os per second.
async fn rate(rt: &Rt, volume: &SharedDevice, ios: u64, writes: bool, seed: u64) -> f64 {
    let begun = Instant::now();
    let work = |task| worker(volume.clone(), seed * DEPTH + task, ios / DEPTH, writes);
    let tasks: Vec<_> = (0..DEPTH).map(|task| rt.spawn(work(task))).collect();
    for task in tasks {
        task.await;
    }
    ios as f64 / begun.elapsed().as_secs_f64()
}

async fn side_by_side(rt: Rt) {
    let only: Option<String> = std::env::args().nth(1).filter(|arg| !arg.starts_with("--"));
    let (_raw_pool, raw) = volume(&rt, Kind::Raw, None).await;
    let (mapped_pool, mapped) = volume(&rt, Kind::Mapped, None).await;
    let (_large_pool, large) = volume(&rt, Kind::Mapped, Some(LEAVES)).await;
    if let Some(which) = only {
        // For counting instructions: one kind of I/O, and no clock.
        let volume = match &*which {
            which if which.contains("raw") => &raw,
            which if which.contains("large") => &large,
            _ => &mapped,
        };
        let writes = which.contains("write");
        let ios = std::env::args().nth(2).and_then(|ios| ios.parse().ok());
        rate(&rt, volume, ios.unwrap_or(64_000), writes, 1).await;
        return;
    }
    for (name, writes, ios) in [("read", false, 400_000), ("write", true, 200_000)] {
        let mut best = [0.0_f64; 3];
        for pass in 0..PASSES {
            for (volume, best) in [&raw, &mapped, &large].into_iter().zip(&mut best) {
                *best = best.max(rate(&rt, volume, ios, writes, pass).await);
            }
        }
        let [raw, mapped, large] = best;
        println!(
            "4 KiB random {name}, 32 at a time: raw {raw:.0}/s, mapped {mapped:.0}/s, ratio {:.2}; \
             a third of its map in memory {large:.0}/s, ratio {:.2}",
            mapped / raw,
            large / raw
        );
    }
    if let Pool::Mapped(pool) = &mapped_pool {
        println!("{:?}", pool.stats());
    }
    mapped_pool.close().await;
    open_large(&rt).await;
}

async fn open_large(rt: &Rt) {
    let device: SharedDevice = Rc::new(MemoryDevice::new(4096, 1 << 40).expect("a good size"));
    let begun = Instant::now();
    let made = Pool::create_kind(rt, device.clone(), [1; 16], Kind::Mapped, false).await;
    let pool = made.expect("it is empty");
    println!("a pool of 1 TiB is made in {:?}", begun.elapsed());
    let volume = pool
        .create_volume("v", [2; 16], 1 << 40)
        .await
        .expect("it is thin");
    for lba in 0..1000 {
        let buf = Buf::take(BLOCK).expect("memory");
        let written = volume
            .write(Tag::default(), lba * 250_000, buf, false)
            .await;
        written.expect("there is room");
    }
    drop(volume);
    pool.close().await;
    drop(pool);
    let begun = Instant::now();
    let pool = Pool::open(rt, device).await.expect("it is whole");
    println!(
        "and opened in {:?}, with 1000 records to replay",
        begun.elapsed()
    );
    pool.close().await;
}

fn main() {
    uring::run(uring::Config::default(), side_by_side).expect("io_uring is allowed here");
}
