//! Compare-and-write is one step for all I/O that shares the range.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use flashyard_block::array::{Array, Layout, NewMember, Options};
use flashyard_block::pool::Pool;
use flashyard_block::{Device, DeviceExt, FileDevice, IoError, SharedDevice, Tag};
use flashyard_runtime::Rt;
use flashyard_runtime::sim::{Config, World};
use flashyard_testbed::{Disk, filled, read, run, write, yields};
use flashyard_time::{Duration, Rng};

const MIB: u64 = 1 << 20;

fn disk(rt: &Rt, seed: u64) -> SharedDevice {
    let disk = Disk::new(512, vec![0; 8 * MIB as usize], seed);
    disk.behind_a_kernel(rt).shared()
}

/// Two mirrors of two disks; every second one compares what it reads.
async fn mirrors(rt: &Rt, seed: u64) -> SharedDevice {
    let members = (0..4).map(|at| NewMember {
        name: format!("d{at}"),
        device: disk(rt, seed + at),
    });
    let layout = Layout {
        copies: 2,
        parity: 0,
        safe_read: seed.is_multiple_of(2),
    };
    let options = Options::default();
    let array = Array::create(rt, members.collect(), [7; 16], layout, options, false).await;
    Rc::new(array.unwrap())
}

async fn volume(rt: &Rt, device: SharedDevice) -> SharedDevice {
    let pool = Pool::create(rt, device, [1; 16], false).await.unwrap();
    // Two runs of extents: the blocks in the middle lie on both.
    let volume = pool.create_volume("a", [1; 16], MIB).await.unwrap();
    pool.create_volume("b", [2; 16], MIB).await.unwrap();
    pool.grow("a", 2 * MIB).await.unwrap();
    volume
}

/// Two blocks across the border, of runs or of stripes, both full of one value.
const LBA: u64 = 2047;
const LEN: usize = 1024;

/// So many volumes on a disk, and a fourth as many arrays that are volumes, each with its seed.
async fn seeded(rt: &Rt, seeds: u64) -> Vec<(u64, SharedDevice)> {
    let mut all = Vec::new();
    for seed in 0..seeds {
        all.push((seed, volume(rt, disk(rt, seed)).await));
    }
    for seed in 0..seeds / 4 {
        all.push((seed, mirrors(rt, seed).await));
    }
    all
}

async fn value(volume: &dyn Device) -> u8 {
    let bytes = read(volume, LBA, LEN).await.unwrap();
    assert!(
        bytes.iter().all(|&byte| byte == bytes[0]),
        "half of a write was seen"
    );
    bytes[0]
}

#[test]
fn concurrent_increments_are_all_counted() {
    run(async |rt: Rt| {
        for (seed, volume) in seeded(&rt, 30).await {
            let tasks: Vec<_> = (0..5)
                .map(|task| {
                    let volume = volume.clone();
                    rt.spawn(async move {
                        let mut rng = Rng::new(seed).split(task);
                        let mut done = 0;
                        while done < 10 {
                            yields(rng.below(3)).await;
                            // The read may see the two blocks apart: only the compare-and-write is
                            // one step.
                            let now = read(&*volume, LBA, LEN).await.unwrap()[0];
                            let (old, new) = (filled(LEN, now), filled(LEN, now + 1));
                            match volume
                                .compare_and_write(Tag::default(), LBA, old, new, false)
                                .await
                            {
                                Ok(()) => done += 1,
                                Err(error) => assert_eq!(error, IoError::Miscompare),
                            }
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await;
            }
            assert_eq!(value(&*volume).await, 50, "seed {seed}");
        }
    });
}

#[test]
fn a_write_never_falls_between_compare_and_write() {
    run(async |rt: Rt| {
        for (seed, volume) in seeded(&rt, 100).await {
            let written = Rc::new(Cell::new(false));
            let writer = rt.spawn({
                let (volume, written) = (volume.clone(), written.clone());
                async move {
                    yields(Rng::new(seed).below(60)).await;
                    write(&*volume, LBA, LEN, 100).await.unwrap();
                    written.set(true);
                }
            });
            yields(Rng::new(seed).at(9) % 60).await;
            let outcome = volume
                .compare_and_write(Tag::default(), LBA, filled(LEN, 0), filled(LEN, 1), false)
                .await;
            writer.await;
            // Whichever came first, the plain write is not lost.
            assert_eq!(value(&*volume).await, 100, "seed {seed}: {outcome:?}");
            assert!(written.get());
        }
    });
}

#[test]
fn what_does_not_touch_the_range_is_not_held_up_for_ever() {
    run(async |rt: Rt| {
        let volume = volume(&rt, disk(&rt, 3)).await;
        let others: Vec<_> = (0..20)
            .map(|n| {
                let volume = volume.clone();
                rt.spawn(async move { write(&*volume, n, 512, n as u8).await })
            })
            .collect();
        for _ in 0..10 {
            // Given up at any stage, an exclusive section leaves the gate as it was.
            let section =
                volume.compare_and_write(Tag::default(), 5, filled(512, 9), filled(512, 1), false);
            let stopped = rt.spawn(section);
            yields(2).await;
            drop(stopped);
        }
        for other in others {
            other.await.unwrap();
        }
        write(&*volume, 5, 512, 77).await.unwrap();
        let same = volume
            .compare_and_write(Tag::default(), 5, filled(512, 77), filled(512, 78), true)
            .await;
        assert_eq!(same, Ok(()));
        assert_eq!(read(&*volume, 5, 512).await.unwrap(), [78; 512]);
    });
}

/// A write to one block of the range, at its beginning or end, is lost if it falls between compare
/// and write.
async fn writes_one_block_beside_the_exchange(rt: &Rt, device: &SharedDevice, seed: u64) {
    const FIRST: u64 = 2046;
    const BLOCKS: u64 = 3;
    let block = device.info().block_size as usize;
    let len = BLOCKS as usize * block;
    let mut rng = Rng::new(seed);
    write(&**device, FIRST, len, 0).await.unwrap();
    let lba = FIRST + rng.below(BLOCKS);
    let (late, writing) = (rng.below(200_000), device.clone());
    let writer = rt.spawn({
        let rt = rt.clone();
        async move {
            rt.sleep(Duration::from_ns(late)).await;
            write(&*writing, lba, block, 100).await.unwrap();
        }
    });
    rt.sleep(Duration::from_ns(rng.below(100_000))).await;
    let exchange =
        device.compare_and_write(Tag::default(), FIRST, filled(len, 0), filled(len, 1), false);
    let outcome = exchange.await;
    writer.await;
    let found = read(&**device, lba, block).await.unwrap();
    assert_eq!(
        found,
        vec![100; block],
        "seed {seed}, block {lba}: {outcome:?}"
    );
}

#[test]
fn a_write_to_the_first_or_last_block_of_an_exchange_is_not_lost() {
    for seed in 0..200 {
        let world = World::new(Config::stormy(seed));
        let machine = world.machine(1);
        machine.add_disk("/dev/disk", 8 * MIB);
        world.run(&machine, async move |rt: Rt| {
            let file = FileDevice::open_block(&rt, Path::new("/dev/disk"), 512, false).unwrap();
            let device: SharedDevice = Rc::new(file);
            writes_one_block_beside_the_exchange(&rt, &device, seed).await;
            let pool = Pool::create(&rt, device, [1; 16], true).await.unwrap();
            let volume = pool.create_volume("a", [1; 16], 2 * MIB).await.unwrap();
            writes_one_block_beside_the_exchange(&rt, &volume, seed).await;
        });
    }
}
