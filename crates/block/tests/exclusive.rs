//! Compare-and-write is one step for everybody who shares the range.

mod support;

use std::cell::Cell;
use std::rc::Rc;

use flashyard_block::pool::Pool;
use flashyard_block::{Device, IoError, SharedDevice, Tag};
use flashyard_runtime::Rt;
use flashyard_time::Rng;
use support::{Disk, filled, read, run, write, yields};

const MIB: u64 = 1 << 20;

async fn volume(rt: &Rt, seed: u64) -> SharedDevice {
    let disk = Disk::new(512, vec![0; 8 * MIB as usize], seed).behind_a_kernel(rt);
    let pool = Pool::create(rt, disk.shared(), [1; 16], false)
        .await
        .unwrap();
    // Two runs of extents: the blocks in the middle lie on both.
    let volume = pool.create_volume("a", [1; 16], MIB).await.unwrap();
    pool.create_volume("b", [2; 16], MIB).await.unwrap();
    pool.grow("a", 2 * MIB).await.unwrap();
    volume
}

/// Two blocks across the border, both full of one value.
const LBA: u64 = 2047;
const LEN: usize = 1024;

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
        for seed in 0..30 {
            let volume = volume(&rt, seed).await;
            let tasks: Vec<_> = (0..5)
                .map(|task| {
                    let volume = volume.clone();
                    rt.spawn(async move {
                        let mut rng = Rng::new(seed).split(task);
                        let mut done = 0;
                        while done < 10 {
                            yields(rng.below(3)).await;
                            // The read may see the two blocks apart: only the compare-and-write is one step.
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
        for seed in 0..100 {
            let volume = volume(&rt, seed).await;
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
        let volume = volume(&rt, 3).await;
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
