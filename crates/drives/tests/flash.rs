//! Emulated drives, in the simulated world: virtual time, so nothing is late and the seed decides
//! all.

use std::cell::Cell;
use std::future::Future;
use std::path::Path;
use std::rc::Rc;

use flashyard_block::pool::Pool;
use flashyard_block::{Device, DeviceExt, FileDevice, FileOptions, Io, IoError, OpenError, Tag};
use flashyard_drives::flash::{Store, pattern};
use flashyard_drives::{FlashDevice, FlashOptions, FlashStats};
use flashyard_flash::ssd::{self, Condition};
use flashyard_flash::{Profile, UNIT_BYTES};
use flashyard_runtime::sim::{Config, World};
use flashyard_runtime::{Buf, Rt};
use flashyard_testbed::{
    behaves_as_an_array, filled, flush, read, refuses_what_is_not_there, write,
};
use flashyard_time::{Duration, Rng, Time};

const MIB: u64 = 1 << 20;
const CAPACITY: u64 = 256 * MIB;

fn model(profile: &str, condition: Condition) -> ssd::Device {
    let profile = Profile::named(profile).expect("it ships");
    ssd::Device::in_condition(&profile, CAPACITY, 1, condition).expect("the capacity fits")
}

fn dct983(rt: &Rt, block_size: u32, store: Store) -> FlashDevice {
    let options = FlashOptions {
        block_size,
        store,
        dilation: 1,
    };
    FlashDevice::new(rt, model("dct983", Condition::Clean), options).expect("it is made right")
}

/// Runs `test` on a machine of a simulated world.
fn in_world<F: Future + 'static>(config: Config, test: impl FnOnce(Rt) -> F) -> F::Output {
    let world = World::new(config);
    let machine = world.machine(1);
    world.run(&machine, test)
}

/// A world in which programs take no time, so that all that passes is the drive's.
fn timeless() -> Config {
    Config {
        turn: (Duration::ZERO, Duration::ZERO),
        ..Config::calm(1)
    }
}

/// How long `io` takes.
async fn span(rt: &Rt, io: impl Future<Output = Result<(), IoError>>) -> Duration {
    let begun = rt.now();
    io.await.expect("it is in order");
    rt.now() - begun
}

async fn read_blocks(device: &FlashDevice, lba: u64, len: usize) -> Result<(), IoError> {
    read(device, lba, len).await.map(drop)
}

#[test]
fn it_is_an_array() {
    for seed in 0..4 {
        in_world(Config::stormy(seed), move |rt| async move {
            for block_size in [512, 4096] {
                let device = dct983(&rt, block_size, Store::Memory);
                behaves_as_an_array(&device, seed, 200).await;
                refuses_what_is_not_there(&device).await;
                assert!(device.allocated() > 0);
            }
        });
    }
}

#[test]
fn it_is_an_array_over_a_file_that_outlives_it() {
    in_world(Config::stormy(3), |rt| async move {
        let path = Path::new("/content");
        let file = |block_size, size| {
            let rt = rt.clone();
            let options = FileOptions {
                block_size,
                size,
                read_only: false,
            };
            async move { FileDevice::open(&rt, path, options).await }
        };
        let device = dct983(
            &rt,
            512,
            Store::File(file(512, Some(CAPACITY)).await.unwrap()),
        );
        behaves_as_an_array(&device, 1, 200).await;
        refuses_what_is_not_there(&device).await;
        assert!(
            device.info().volatile_cache,
            "the file is flushed by a flush only"
        );
        write(&device, 77, 4096, 5).await.unwrap();
        flush(&device).await.unwrap();
        drop(device);
        let device = dct983(&rt, 512, Store::File(file(512, None).await.unwrap()));
        assert_eq!(read(&device, 77, 4096).await.unwrap(), [5; 4096]);
        drop(device);
        let wrong = FlashDevice::new(
            &rt,
            model("dct983", Condition::Empty),
            FlashOptions {
                block_size: 4096,
                store: Store::File(file(512, None).await.unwrap()),
                dilation: 1,
            },
        );
        assert!(matches!(wrong, Err(OpenError::Config(_))));
    });
}

#[test]
fn an_io_takes_as_long_as_the_model_says() {
    in_world(timeless(), |rt| async move {
        let device = dct983(&rt, 4096, Store::Memory);
        let once = span(&rt, read_blocks(&device, 5, 4096)).await;
        let expected = {
            let mut drive = model("dct983", Condition::Clean);
            let command = ssd::Command {
                tag: 0,
                op: ssd::Op::Read,
                start: 5,
                units: 1,
            };
            drive.submit(drive.now(), command).unwrap();
            let mut done = Vec::new();
            drive.advance(Time::MAX, &mut done);
            Duration::from_ns(done[0].at.as_ns())
        };
        assert_eq!(once, expected);
        let stats = device.stats();
        assert_eq!((stats.lateness.count(), stats.lateness.max()), (1, 0));
        assert_eq!(stats.latency.max(), once.as_ns());
        assert!(!stats.is_void(once));
        device.clear_timing();
        assert_eq!(device.stats().lateness.count(), 0);
        assert_eq!(device.stats().drive.read_units, 1);

        let slow = FlashOptions {
            block_size: 4096,
            store: Store::Memory,
            dilation: 10,
        };
        let slow = FlashDevice::new(&rt, model("dct983", Condition::Clean), slow).unwrap();
        let dilated = span(&rt, read_blocks(&slow, 5, 4096)).await;
        assert_eq!(dilated.as_ns(), 10 * once.as_ns());
    });
}

#[test]
fn a_part_of_a_unit_is_read_before_it_is_written() {
    in_world(timeless(), |rt| async move {
        let device = dct983(&rt, 512, Store::Memory);
        let whole = span(&rt, write(&device, 8, 4096, 1)).await;
        let read = span(&rt, read_blocks(&device, 2048, 512)).await;
        let part = span(&rt, write(&device, 2048, 512, 1)).await;
        assert_eq!(part.as_ns(), read.as_ns() + whole.as_ns());
        let stats = device.stats().drive;
        assert_eq!((stats.read_units, stats.written_units), (2, 2));
        // The ends of a range that is deallocated are written anew, the rest is forgotten.
        device.deallocate(Tag::default(), 12, 16).await.unwrap();
        let stats = device.stats().drive;
        assert_eq!((stats.read_units, stats.written_units), (4, 4));
        assert_eq!(stats.deallocated_units, 1);
        // Zeroes that keep the space are written.
        device
            .write_zeroes(Tag::default(), 8, 16, false)
            .await
            .unwrap();
        assert_eq!(device.stats().drive.written_units, 6);
    });
}

#[test]
fn a_volatile_buffer_is_flushed() {
    in_world(timeless(), |rt| async move {
        for (profile, volatile) in [("dct983", false), ("970pro", true)] {
            let options = FlashOptions {
                block_size: 4096,
                store: Store::Pattern,
                dilation: 1,
            };
            let device = FlashDevice::new(&rt, model(profile, Condition::Clean), options).unwrap();
            assert_eq!(device.info().volatile_cache, volatile);
            let cached = span(&rt, write(&device, 1, 4096, 1)).await;
            let flushed = span(&rt, flush(&device)).await;
            let durable = device.write(Tag::default(), 2, filled(4096, 1), true);
            let through = span(&rt, durable).await;
            let slow = Duration::from_us(100);
            assert_eq!(flushed > slow, volatile, "{profile}");
            assert_eq!(through > slow, volatile, "{profile}");
            assert!(cached < slow);
        }
    });
}

/// What becomes of a drive under a load must not depend on whether the load goes through the block
/// layer.
#[test]
fn the_block_layer_adds_no_time_of_its_own() {
    // Reads and writes that end at the same instant would be followed up in any order.
    for (reads, depth) in [(100, 16), (0, 16), (50, 1)] {
        let load = Load {
            reads,
            depth,
            span: Duration::from_ms(20),
        };
        let fragmented = || model("dct983", Condition::Fragmented(100));
        let expected = load.on_model(fragmented());
        for seed in 0..2 {
            let config = Config { seed, ..timeless() };
            let through = in_world(config, move |rt| async move {
                let options = FlashOptions {
                    block_size: 4096,
                    store: Store::Pattern,
                    dilation: 1,
                };
                let device = FlashDevice::new(&rt, fragmented(), options).unwrap();
                load.on_device(&rt, Rc::new(device)).await
            });
            assert_eq!(through.lateness.count(), expected.completions);
            assert_eq!(through.lateness.max(), 0);
            assert_eq!(through.drive, expected, "{reads} % reads");
        }
    }
}

/// Random reads and writes of a unit, so many at a time, begun a microsecond apart. Each follows
/// its own chance.
#[derive(Clone, Copy)]
struct Load {
    reads: u64,
    depth: u64,
    span: Duration,
}

impl Load {
    fn chances(self) -> Vec<Rng> {
        (0..self.depth)
            .map(|worker| Rng::new(1).split(worker))
            .collect()
    }

    /// Whether to read, and where.
    fn draw(self, chance: &mut Rng) -> (bool, u64) {
        (
            chance.chance(self.reads, 100),
            chance.below(CAPACITY / UNIT_BYTES),
        )
    }

    fn on_model(self, mut drive: ssd::Device) -> ssd::Stats {
        let mut chances = self.chances();
        let mut done: Vec<_> = (0..self.depth)
            .map(|tag| {
                let at = Time::ZERO + Duration::from_us(tag);
                ssd::Completion { at, tag }
            })
            .collect();
        loop {
            for completion in done
                .drain(..)
                .filter(|done| done.at < Time::ZERO + self.span)
            {
                let (read, start) = self.draw(&mut chances[completion.tag as usize]);
                let command = ssd::Command {
                    tag: completion.tag,
                    op: if read { ssd::Op::Read } else { ssd::Op::Write },
                    start,
                    units: 1,
                };
                drive.submit(completion.at, command).unwrap();
            }
            let Some(next) = drive.next_completion() else {
                return drive.stats();
            };
            drive.advance(next, &mut done);
        }
    }

    async fn on_device(self, rt: &Rt, device: Rc<FlashDevice>) -> FlashStats {
        let begin = rt.now();
        let workers = (0..).zip(self.chances()).map(|(worker, mut chance)| {
            let (rt, device) = (rt.clone(), device.clone());
            rt.clone().spawn(async move {
                rt.sleep_until(begin + Duration::from_us(worker)).await;
                while rt.now() < begin + self.span {
                    match self.draw(&mut chance) {
                        (true, lba) => read_blocks(&device, lba, 4096).await.unwrap(),
                        (false, lba) => write(&*device, lba, 4096, 1).await.unwrap(),
                    }
                }
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.await;
        }
        device.stats()
    }
}

#[test]
fn a_full_drive_is_busy_and_what_is_given_up_leaves_nothing_behind() {
    in_world(Config::calm(1), |rt| async move {
        let device = dct983(&rt, 4096, Store::Memory);
        write(&device, 0, 4096, 7).await.unwrap();
        for _ in 0..2 {
            let mut in_flight = Vec::new();
            loop {
                match device.submit(Tag::default(), Io::Flush).try_finish() {
                    Ok(result) => {
                        assert_eq!(result.err(), Some(IoError::Busy));
                        break;
                    }
                    Err(io) => in_flight.push(io),
                }
            }
            assert_eq!(in_flight.len(), 65_536);
            assert_eq!(write(&device, 0, 4096, 8).await, Err(IoError::Busy));
            let exchange =
                device.compare_and_write(Tag::default(), 0, filled(4096, 7), filled(4096, 9), true);
            assert_eq!(exchange.await, Err(IoError::Busy));
            // Half of them are waited for.
            for (number, io) in in_flight.into_iter().enumerate() {
                if number % 2 == 0 {
                    io.await.unwrap();
                }
            }
            rt.sleep(Duration::from_ms(500)).await;
            assert_eq!(device.stats().in_flight, 0);
            assert_eq!(read(&device, 0, 4096).await.unwrap(), [7; 4096]);
        }
    });
}

#[test]
fn a_write_given_up_is_done() {
    in_world(Config::calm(1), |rt| async move {
        let device = dct983(&rt, 4096, Store::Memory);
        drop(device.write(Tag::default(), 3, filled(4096, 9), false));
        assert_eq!(read(&device, 3, 4096).await.unwrap(), [9; 4096]);
        assert_eq!(device.stats().drive.written_units, 1);
    });
}

#[test]
fn what_is_in_flight_ends_without_its_device() {
    in_world(Config::calm(1), |rt| async move {
        let device = dct983(&rt, 4096, Store::Memory);
        let ios: Vec<_> = (0..100)
            .map(|lba| device.read(Tag::default(), lba, Buf::take(4096).unwrap()))
            .collect();
        drop(device);
        for io in ios {
            io.await.unwrap();
        }
    });
}

#[test]
fn a_drive_without_waiting_io_wakes_no_task() {
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    let device = Rc::new(Cell::new(None));
    let kept = device.clone();
    world.run(&machine, |rt| async move {
        let device = dct983(&rt, 4096, Store::Pattern);
        // Programs go on for milliseconds after the last write is complete.
        for lba in (0..2048).step_by(32) {
            write(&device, lba, 128 << 10, 1).await.unwrap();
        }
        kept.set(Some(device));
    });
    let events = world.events();
    world.run_for(Duration::from_secs(10));
    assert!(
        world.events() - events < 10,
        "{} events",
        world.events() - events
    );
    let device = device.take().expect("it was made");
    let before = device.stats().drive;
    assert_eq!(before.written_units, 2048);
    assert!(
        before.programs > 0,
        "time has passed for the drive all the same"
    );
}

/// A volume on a preconditioned drive is as slow as the drive, unless the space had data of another
/// owner, which are forgotten.
#[test]
fn a_pool_leaves_a_new_drive_in_its_condition() {
    in_world(timeless(), |rt| async move {
        let device = Rc::new(dct983(&rt, 4096, Store::Memory));
        assert!(device.is_blank());
        let pool = Pool::create(&rt, device.clone(), [1; 16], false)
            .await
            .unwrap();
        assert!(!device.is_blank());
        let volume = pool.create_volume("v", [2; 16], 64 * MIB).await.unwrap();
        assert_eq!(device.stats().drive.deallocated_units, 0);
        let from_flash = span(&rt, async { read(&*volume, 9, 4096).await.map(drop) }).await;
        assert!(from_flash > Duration::from_us(80));
        write(&*volume, 0, 4096, 1).await.unwrap();
        drop(volume);
        pool.delete("v").await.unwrap();
        assert_eq!(
            device.stats().drive.deallocated_units,
            64 * MIB / UNIT_BYTES
        );
        drop(pool);
        let pool = Pool::create(&rt, device.clone(), [3; 16], true)
            .await
            .unwrap();
        pool.create_volume("w", [4; 16], 128 * MIB).await.unwrap();
        assert_eq!(
            device.stats().drive.deallocated_units,
            128 * MIB / UNIT_BYTES
        );
    });
}

/// A reader of a pattern knows that it is whole and not older than what was there before.
#[test]
fn a_pattern_is_checked_end_to_end() {
    in_world(Config::stormy(9), |rt| async move {
        for block_size in [512, 4096] {
            let device = dct983(&rt, block_size, Store::Pattern);
            let mut seen = vec![0; 64];
            let mut rng = Rng::new(4);
            for _ in 0..500 {
                let lba = rng.below(64);
                let count = 1 + rng.below(64 - lba);
                let len = count as usize * block_size as usize;
                match rng.below(8) {
                    0..3 => write(&device, lba, len, 0xff).await.unwrap(),
                    3 => {
                        device.deallocate(Tag::default(), lba, count).await.unwrap();
                        seen[lba as usize..(lba + count) as usize].fill(0);
                    }
                    _ => {
                        let bytes = read(&device, lba, len).await.unwrap();
                        for (lba, block) in (lba..).zip(bytes.chunks(block_size as usize)) {
                            let number = pattern::written_by(lba, block).expect("it is whole");
                            assert!(number >= seen[lba as usize]);
                            seen[lba as usize] = number;
                        }
                    }
                }
            }
            assert!(seen.iter().max() > Some(&100));
            let known = read(&device, 3, block_size as usize).await.unwrap();
            let (mut same, mut new) = (
                filled(block_size as usize, 0),
                filled(block_size as usize, 1),
            );
            same.copy_from_slice(&known);
            new.fill(1);
            let exchange = device.compare_and_write(Tag::default(), 3, same, new, false);
            assert_eq!(exchange.await, Ok(()));
            assert_ne!(read(&device, 3, block_size as usize).await.unwrap(), known);
        }
    });
}
