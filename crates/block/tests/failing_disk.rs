//! Files on disks that fail and lose power, in the simulated world.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use flashyard_block::pool::Pool;
use flashyard_block::{Device, DeviceExt, FileDevice, FileOptions, IoError, Tag};
use flashyard_runtime::sim::{Access, Config, Machine, World};
use flashyard_runtime::{OpenOptions, Rt};
use flashyard_testbed::{filled, flush, read, write};
use flashyard_time::{Duration, Rng};

const MIB: u64 = 1 << 20;
const PATH: &str = "/dev/disk";
const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const ENODEV: i32 = 19;

fn world(config: Config, size: u64) -> (World, Machine) {
    let world = World::new(config);
    let machine = world.machine(1);
    machine.add_disk(PATH, size);
    (world, machine)
}

fn open(rt: &Rt) -> FileDevice {
    FileDevice::open_block(rt, Path::new(PATH), 4096, false).expect("the disk is there")
}

#[test]
fn after_a_failed_flush_nothing_is_promised_any_more() {
    for seed in 0..20 {
        let (world, machine) = world(Config::calm(seed), MIB);
        let disk = machine.disk(PATH).unwrap();
        world.run(&machine, async move |rt: Rt| {
            let device = Rc::new(open(&rt));
            write(&*device, 0, 4096, 1).await.unwrap();
            disk.fail(Access::Sync, 0..0, EIO, Some(1));
            // Many at once: some share the flush that fails, the others come after it.
            let flushes: Vec<_> = (0..5)
                .map(|_| {
                    let device = device.clone();
                    rt.spawn(async move { flush(&*device).await })
                })
                .collect();
            for flushed in flushes {
                assert_eq!(flushed.await, Err(IoError::Write), "seed {seed}");
            }
            disk.repair();
            assert_eq!(flush(&*device).await, Err(IoError::Write));
            assert_eq!(write(&*device, 1, 4096, 1).await, Err(IoError::Write));
            assert_eq!(
                device.deallocate(Tag::default(), 1, 1).await,
                Err(IoError::Write)
            );
            assert_eq!(
                read(&*device, 0, 4096).await.unwrap(),
                [1; 4096],
                "reads go on"
            );
            drop(device);
            let again = open(&rt);
            assert_eq!(flush(&again).await, Ok(()));
        });
    }
}

#[test]
fn a_failed_durable_write_breaks_the_promise_only_when_data_may_be_lost() {
    let (world, machine) = world(Config::calm(1), MIB);
    let disk = machine.disk(PATH).unwrap();
    world.run(&machine, async move |rt: Rt| {
        let device = open(&rt);
        let durable = async |value| {
            device
                .write(Tag::default(), 0, filled(4096, value), true)
                .await
        };
        disk.fail(Access::Write, 0..MIB, ENOSPC, Some(1));
        assert_eq!(durable(1).await, Err(IoError::NoSpace));
        assert_eq!(durable(2).await, Ok(()));
        disk.fail(Access::Write, 0..MIB, EIO, Some(1));
        assert_eq!(write(&device, 0, 4096, 3).await, Err(IoError::Write));
        assert_eq!(
            flush(&device).await,
            Ok(()),
            "the writer without a promise saw the error"
        );
        disk.fail(Access::Write, 0..MIB, EIO, Some(1));
        assert_eq!(durable(4).await, Err(IoError::Write));
        assert_eq!(flush(&device).await, Err(IoError::Write));
    });
}

#[test]
fn errors_of_the_medium_reach_the_one_who_asked() {
    let (world, machine) = world(Config::calm(1), MIB);
    let disk = machine.disk(PATH).unwrap();
    world.run(&machine, async move |rt: Rt| {
        let device = open(&rt);
        disk.fail(Access::Read, 4096..8192, EIO, None);
        assert_eq!(read(&device, 0, 8192).await, Err(IoError::Read));
        assert!(read(&device, 0, 4096).await.is_ok());
        let both = device
            .compare_and_write(Tag::default(), 1, filled(4096, 0), filled(4096, 1), false)
            .await;
        assert_eq!(both, Err(IoError::Read));
        disk.repair();
        disk.fail(Access::Read, 0..MIB, ENODEV, None);
        assert_eq!(read(&device, 0, 4096).await, Err(IoError::NotReady));
        // The gate is as it was.
        disk.repair();
        let both = device
            .compare_and_write(Tag::default(), 1, filled(4096, 0), filled(4096, 1), false)
            .await;
        assert_eq!(both, Ok(()));
    });
}

#[test]
fn what_was_flushed_or_forced_survives_a_power_cut() {
    for seed in 0..60 {
        let (world, machine) = world(Config::stormy(seed), MIB);
        let written = world.run(&machine, async move |rt: Rt| {
            let device = open(&rt);
            let mut rng = Rng::new(seed);
            let mut last = vec![None; 256];
            for step in 0..60u8 {
                let lba = rng.below(256);
                let durable = rng.below(3) == 0;
                device
                    .write(Tag::default(), lba, filled(4096, step), durable)
                    .await
                    .unwrap();
                last[lba as usize] = Some((step, durable));
                if rng.below(8) == 0 {
                    flush(&device).await.unwrap();
                    last.iter_mut()
                        .flatten()
                        .for_each(|(_, durable)| *durable = true);
                }
            }
            last
        });
        machine.power_cut();
        machine.restart();
        world.run(&machine, async move |rt: Rt| {
            let device = open(&rt);
            for (lba, written) in written.iter().enumerate() {
                if let Some((value, true)) = written {
                    let bytes = read(&device, lba as u64, 4096).await.unwrap();
                    assert!(
                        bytes.iter().all(|byte| byte == value),
                        "seed {seed} block {lba}"
                    );
                }
            }
        });
    }
}

/// How a writer of the next test makes sure that what it wrote is on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    Flush,
    ForcedUnitAccess,
    ForcedCompareAndWrite,
}

/// Writers with a block each, at once: what one of them was promised is there after a power cut at
/// any moment, whichever flush was running when it asked. Past the page cache and through it (where
/// the file's blocks are smaller than the sectors of its disk).
#[test]
fn a_promise_covers_what_was_written_before_it_whatever_else_is_being_flushed() {
    use Promise::{Flush, ForcedCompareAndWrite, ForcedUnitAccess};
    for (promise, block_size) in [Flush, ForcedUnitAccess, ForcedCompareAndWrite]
        .into_iter()
        .flat_map(|promise| [(promise, 512), (promise, 4096)])
    {
        for seed in 0..40 {
            let mut config = Config::calm(seed);
            config.disk.sector = 4096;
            let world = World::new(config);
            let machine = world.machine(1);
            let promised = world.run(&machine, async move |rt: Rt| {
                let device = Rc::new(open_file(&rt, block_size).await);
                assert_eq!(device.is_direct(), block_size == 4096);
                let promised: Rc<[Cell<u8>]> = (0..6).map(|_| Cell::new(0)).collect();
                for writer in 0..promised.len() {
                    let task = keep_writing(
                        rt.clone(),
                        device.clone(),
                        promise,
                        writer,
                        promised.clone(),
                    );
                    rt.spawn(task).detach();
                }
                rt.sleep(Duration::from_ns(Rng::new(seed).below(3_000_000)))
                    .await;
                promised.iter().map(Cell::get).collect::<Vec<u8>>()
            });
            machine.power_cut();
            machine.restart();
            world.run(&machine, async move |rt: Rt| {
                let device = open_file(&rt, block_size).await;
                for (writer, promised) in promised.into_iter().enumerate() {
                    let bytes = read(&device, writer as u64, block_size as usize).await.unwrap();
                    assert!(
                        bytes[0] >= promised,
                        "{promise:?} of {block_size} bytes, seed {seed}, writer {writer}: {promised} is lost, {} is there",
                        bytes[0]
                    );
                }
            });
        }
    }
}

async fn open_file(rt: &Rt, block_size: u32) -> FileDevice {
    let options = FileOptions {
        block_size,
        size: Some(MIB),
        read_only: false,
    };
    FileDevice::open(rt, Path::new("/file"), options)
        .await
        .unwrap()
}

/// Writes 1, 2, 3, ... to a block, and notes what was promised to be on the medium.
async fn keep_writing(
    rt: Rt,
    device: Rc<FileDevice>,
    promise: Promise,
    writer: usize,
    promised: Rc<[Cell<u8>]>,
) {
    let (tag, lba, len) = (
        Tag::default(),
        writer as u64,
        device.info().block_size as usize,
    );
    for value in 1..=u8::MAX {
        rt.sleep(Duration::from_ns(rt.random() % 100_000)).await;
        match promise {
            Promise::Flush => {
                write(&*device, lba, len, value).await.unwrap();
                flush(&*device).await.unwrap();
            }
            Promise::ForcedUnitAccess => {
                device
                    .write(tag, lba, filled(len, value), true)
                    .await
                    .unwrap();
            }
            Promise::ForcedCompareAndWrite => {
                let (old, new) = (filled(len, value - 1), filled(len, value));
                device
                    .compare_and_write(tag, lba, old, new, true)
                    .await
                    .unwrap();
            }
        }
        promised[writer].set(value);
    }
}

/// Tasks that are dropped at any moment, over a pool over a file: nothing hangs, nothing lands
/// late.
#[test]
fn withdrawn_io_neither_blocks_nor_comes_back() {
    for seed in 0..60 {
        let (world, machine) = world(Config::stormy(seed), 8 * MIB);
        world.run(&machine, async move |rt: Rt| {
            let pool = Pool::create(&rt, Rc::new(open(&rt)), [1; 16], false)
                .await
                .unwrap();
            let volume = pool.create_volume("v", [1; 16], 2 * MIB).await.unwrap();
            let mut rng = Rng::new(seed);
            for _ in 0..40 {
                let device = volume.clone();
                let (lba, kind) = (rng.below(500), rng.below(4));
                let task = rt.spawn(async move {
                    match kind {
                        0 => write(&*device, lba, 8192, 0xdd).await,
                        1 => {
                            device
                                .compare_and_write(
                                    Tag::default(),
                                    lba,
                                    filled(4096, 0),
                                    filled(4096, 0xdd),
                                    true,
                                )
                                .await
                        }
                        2 => flush(&*device).await,
                        _ => read(&*device, lba, 8192).await.map(drop),
                    }
                });
                rt.sleep(Duration::from_ns(rng.below(200_000))).await;
                if rng.below(2) == 0 {
                    drop(task);
                } else {
                    task.detach();
                }
            }
            let whole = volume
                .compare_and_write(Tag::default(), 510, filled(4096, 0), filled(4096, 1), false)
                .await;
            assert_eq!(whole, Ok(()), "seed {seed}");
            pool.delete("v").await.unwrap();
            let new = pool.create_volume("w", [2; 16], 2 * MIB).await.unwrap();
            rt.sleep(Duration::from_secs(1)).await;
            for lba in (0..512).step_by(64) {
                assert!(
                    read(&*new, lba, 64 * 4096).await.unwrap() == vec![0; 64 * 4096],
                    "seed {seed}"
                );
            }
        });
    }
}

#[test]
fn one_seed_one_trace() {
    let digest = |seed| {
        let (world, machine) = world(Config::stormy(seed), 8 * MIB);
        world.run(&machine, async move |rt: Rt| {
            let pool = Pool::create(&rt, Rc::new(open(&rt)), [1; 16], false)
                .await
                .unwrap();
            pool.create_volume("v", [1; 16], 2 * MIB).await.unwrap();
            pool.delete("v").await.unwrap();
        });
        world.digest()
    };
    assert_eq!(digest(5), digest(5));
    assert_ne!(digest(5), digest(6));
}

/// A file that is truncated loses what was behind its end, for good: no write makes zeroes
/// of it.
#[test]
fn a_file_that_is_cut_short_fails_where_it_was_and_keeps_failing() {
    #[derive(Clone, Copy, Debug)]
    enum By {
        Read,
        Flush,
        Sweep,
    }
    for noticed in [By::Read, By::Flush, By::Sweep] {
        let world = World::new(Config::calm(1));
        let machine = world.machine(1);
        world.run(&machine, async move |rt: Rt| {
            let path = Path::new("/srv/disk");
            let options = FileOptions {
                block_size: 4096,
                size: Some(MIB),
                read_only: false,
            };
            let device = FileDevice::open(&rt, path, options).await.unwrap();
            write(&device, 0, MIB as usize, 7).await.unwrap();
            flush(&device).await.unwrap();
            let other = OpenOptions {
                write: true,
                ..OpenOptions::default()
            };
            let other = rt.open(path, other).unwrap();
            other.set_size(MIB / 2 + 512).unwrap();
            match noticed {
                By::Read => {
                    assert_eq!(read(&device, 128, 4096).await, Err(IoError::Read));
                }
                By::Flush => assert_eq!(flush(&device).await, Err(IoError::Write)),
                By::Sweep => drop(device.health()),
            }
            // One that ends where the device ends would make all that was lost read as zeroes.
            assert_eq!(
                write(&device, 255, 4096, 8).await,
                Err(IoError::Write),
                "{noticed:?}"
            );
            let zeroed = device.write_zeroes(Tag::default(), 0, 256, false).await;
            assert_eq!(zeroed, Err(IoError::Write));
            assert_eq!(flush(&device).await, Err(IoError::Write));
            other.set_size(MIB).unwrap();
            for lba in [128, 129, 255] {
                assert_eq!(read(&device, lba, 4096).await, Err(IoError::Read), "{lba}");
                assert_eq!(write(&device, lba, 4096, 8).await, Err(IoError::Write));
            }
            assert_eq!(
                read(&device, 127, 4096).await.unwrap(),
                [7; 4096],
                "reads go on"
            );
            assert_eq!(flush(&device).await, Err(IoError::Write));
        });
    }
}

/// A write that makes the file longer again does not hide that it was cut short.
#[test]
fn a_write_behind_the_end_hides_no_cut() {
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    world.run(&machine, async move |rt: Rt| {
        let path = Path::new("/srv/disk");
        let options = FileOptions {
            block_size: 4096,
            size: Some(MIB),
            read_only: false,
        };
        let device = FileDevice::open(&rt, path, options).await.unwrap();
        write(&device, 0, MIB as usize, 7).await.unwrap();
        let other = OpenOptions {
            write: true,
            ..OpenOptions::default()
        };
        rt.open(path, other).unwrap().set_size(4096).unwrap();
        // It was not noticed.
        write(&device, 100, 4096, 8).await.unwrap();
        assert_eq!(
            flush(&device).await,
            Err(IoError::Write),
            "what was written is lost"
        );
        assert_eq!(write(&device, 0, 4096, 8).await, Err(IoError::Write));
        assert_eq!(read(&device, 200, 4096).await, Err(IoError::Read));
    });
}
