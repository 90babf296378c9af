//! A mapped volume against a raw one on an emulated drive that is fragmented, in virtual time:
//! random writes of 4 KiB, 32 in flight, when the pool is so full and in its steady state.
//!
//! `cargo bench -p flashyard-drives --bench mapped -- [MiB of the drive] [percent of the pool]`

use std::rc::Rc;

use flashyard_block::pool::{Kind, Pool};
use flashyard_block::{DeviceExt, MemoryDevice, SharedDevice, Tag};
use flashyard_drives::flash::Store;
use flashyard_drives::{FlashDevice, FlashOptions};
use flashyard_flash::Profile;
use flashyard_flash::ssd::{self, Condition};
use flashyard_runtime::sim::{Config, World};
use flashyard_runtime::{Buf, Rt};
use flashyard_time::Rng;

const BLOCK: usize = 4096;
const DEPTH: u64 = 32;

/// What a run has shown.
struct Seen {
    iops: f64,
    /// 4 KiB blocks written to the drive, and to its flash, for each block of the host.
    drive: f64,
    flash: f64,
}

async fn worker(volume: SharedDevice, seed: u64, blocks: u64, ios: u64) {
    let mut rng = Rng::new(seed);
    for _ in 0..ios {
        let mut buf = Buf::take(BLOCK).expect("memory");
        // Data that no pool leaves out, as it may do with zeroes.
        buf.fill(2);
        let lba = rng.below(blocks);
        let written = volume.write(Tag::default(), lba, buf, false).await;
        written.expect("there is room");
    }
}

/// What volumes of a mapped pool of this size can have.
async fn mapped_space(rt: &Rt, mib: u64) -> u64 {
    let memory = MemoryDevice::new(4096, mib << 20).expect("a good size");
    let pool = Pool::create_kind(rt, Rc::new(memory), [1; 16], Kind::Mapped, false).await;
    let pool = pool.expect("it is empty");
    pool.close().await;
    pool.info().bytes
}

fn programmed(stats: &ssd::Stats) -> u64 {
    stats.written_units + stats.moved_units + stats.padded_units
}

/// So many random writes, 32 in flight.
async fn write(rt: &Rt, volume: &SharedDevice, blocks: u64, ios: u64, seed: u64) {
    let work = |task| worker(volume.clone(), seed * DEPTH + task, blocks, ios / DEPTH);
    let tasks: Vec<_> = (0..DEPTH).map(|task| rt.spawn(work(task))).collect();
    for task in tasks {
        task.await;
    }
}

async fn measure(rt: Rt, mib: u64, percent: u64, kind: Kind) -> Seen {
    let profile = Profile::named("dct983").expect("a profile that ships");
    let condition = Condition::Fragmented(100);
    let model = ssd::Device::in_condition(&profile, mib << 20, 1, condition);
    let options = FlashOptions {
        block_size: 4096,
        store: Store::Memory,
        dilation: 1,
    };
    let drive = FlashDevice::new(&rt, model.expect("the size fits it"), options);
    let drive = Rc::new(drive.expect("a good size"));
    let pool = Pool::create_kind(&rt, drive.clone(), [1; 16], kind, false).await;
    let pool = pool.expect("it is empty");
    // Of what a mapped pool of this size can sell, for both.
    let space = match kind {
        Kind::Mapped => pool.info().bytes,
        Kind::Raw => mapped_space(&rt, mib).await,
    };
    let blocks = space / BLOCK as u64 * percent / 100;
    let made = pool.create_volume("v", [2; 16], blocks * BLOCK as u64);
    let volume = made.await.expect("there is room");
    for lba in (0..blocks).step_by(32) {
        let len = 32.min(blocks - lba) as usize * BLOCK;
        let mut buf = Buf::take(len).expect("memory");
        buf.fill(1);
        let written = volume.write(Tag::default(), lba, buf, false).await;
        written.expect("there is room");
    }
    let all = (mib << 20) / BLOCK as u64;
    write(&rt, &volume, blocks, 3 * all, 1).await;
    let (before, begun) = (drive.stats().drive, rt.now());
    write(&rt, &volume, blocks, all, 2).await;
    let (after, span) = (drive.stats().drive, rt.now() - begun);
    pool.close().await;
    Seen {
        iops: all as f64 / span.as_secs_f64(),
        drive: (after.written_units - before.written_units) as f64 / all as f64,
        flash: (programmed(&after) - programmed(&before)) as f64 / all as f64,
    }
}

fn run(mib: u64, percent: u64, kind: Kind) -> Seen {
    let world = World::new(Config {
        max_steps: u64::MAX,
        ..Config::calm(1)
    });
    let machine = world.machine(1);
    world.run(&machine, move |rt| measure(rt, mib, percent, kind))
}

fn main() {
    let words = std::env::args().skip(1).filter(|word| word != "--bench");
    let numbers: Vec<u64> = words.map(|word| word.parse().expect("a number")).collect();
    let mib = numbers.first().copied().unwrap_or(1024);
    let percents = numbers.get(1).map_or(vec![70], |&percent| vec![percent]);
    for percent in percents {
        let raw = run(mib, percent, Kind::Raw);
        let mapped = run(mib, percent, Kind::Mapped);
        for (name, seen) in [("raw", &raw), ("mapped", &mapped)] {
            println!(
                "{percent} %, {name}: {:.0} IOPS; {:.2} blocks to the drive and {:.2} to its flash for each",
                seen.iops, seen.drive, seen.flash
            );
        }
        println!("ratio {:.2}", mapped.iops / raw.iops);
    }
}
