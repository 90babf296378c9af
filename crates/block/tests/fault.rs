//! The layer that injects faults, before a device by itself: what it does not change is as without
//! it, and what it keeps is bounded. What hosts see of each fault is in `host/tests/faults.rs`.

#[path = "../../runtime/tests/support/counting.rs"]
mod counting;

use std::num::NonZeroU64;
use std::rc::Rc;

use flashyard_block::fault::{FaultDevice, FaultKind, FaultOn, FaultRule, Frequency};
use flashyard_block::{
    Device, DeviceExt, FileDevice, Health, Info, Io, IoError, IoFuture, Limits, MemoryDevice,
    SharedDevice, Tag,
};
use flashyard_runtime::sim::{Config, World};
use flashyard_runtime::{Buf, Data, Rt, Shared};
use flashyard_testbed::{
    Disk, behaves_as_an_array, filled, flush, read, refuses_what_is_not_there, write,
};
use flashyard_time::Duration;

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

const BLOCK: usize = 4096;
const DISK: &str = "/dev/disk";
/// What the layer keeps in its memory at most, in blocks.
const MOST: u64 = (16 << 20) / BLOCK as u64;

fn in_world<F: Future<Output = ()> + 'static>(main: impl FnOnce(Rt) -> F) {
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    machine.add_disk(DISK, 8 << 20);
    world.run(&machine, main);
}

fn memory(bytes: u64) -> Rc<MemoryDevice> {
    Rc::new(MemoryDevice::new(BLOCK as u32, bytes).expect("a good size"))
}

fn layer(rt: &Rt, below: SharedDevice, rules: impl Into<Vec<FaultRule>>) -> Rc<FaultDevice> {
    Rc::new(FaultDevice::new(rt, below, 1, rules.into()))
}

fn injected(layer: &FaultDevice) -> u64 {
    let counts = layer.counts().into_iter();
    counts.map(|(_, counts)| counts.injected).sum()
}

/// Faults that never hit, that only delay, and writes that are kept in the layer: what is read is
/// what was written.
#[test]
fn content_is_that_of_an_array_where_no_fault_changes_it() {
    let never = |kind| FaultRule::new(kind).at(Frequency::Rate(0));
    let cases: Vec<(Vec<FaultRule>, bool)> = vec![
        (vec![], false),
        (
            vec![never(FaultKind::Poison), never(FaultKind::Stale)],
            false,
        ),
        (
            vec![FaultRule::new(FaultKind::Lost).always().within(1024..1025)],
            false,
        ),
        (
            vec![FaultRule::new(FaultKind::Latency {
                fixed: Duration::from_us(7),
                spread: Duration::from_us(90),
            })],
            true,
        ),
        (vec![FaultRule::new(FaultKind::LyingFlush)], true),
        (
            vec![FaultRule::new(FaultKind::LyingFlush).at(Frequency::Rate(500_000_000))],
            true,
        ),
    ];
    for (rules, hits) in cases {
        for on_disk in [false, true] {
            let rules = rules.clone();
            in_world(move |rt| async move {
                let below: SharedDevice = match on_disk {
                    true => {
                        let disk = FileDevice::open_block(&rt, DISK.as_ref(), BLOCK as u32, false);
                        Rc::new(disk.expect("the disk is there"))
                    }
                    false => memory(8 << 20),
                };
                let layer = layer(&rt, below.clone(), rules);
                assert_eq!(layer.info(), below.info());
                behaves_as_an_array(&*layer, 5, 300).await;
                refuses_what_is_not_there(&*layer).await;
                assert_eq!(injected(&layer) > 0, hits);
                // Nothing is lost when faults are taken away, and nothing is left in the layer.
                let before = read(&*layer, 0, 1 << 20).await;
                layer.set(Vec::new());
                rt.sleep(Duration::from_secs(1)).await;
                assert_eq!(layer.unflushed_bytes(), 0);
                layer.close();
                assert_eq!(read(&*below, 0, 1 << 20).await, before);
            });
        }
    }
}

/// A device of which nothing is as the trait has it for a device that says nothing. It names all
/// methods of the trait: a layer has to forward a new one, too.
struct Unusual;

impl Device for Unusual {
    fn info(&self) -> Info {
        Info {
            block_size: 512,
            blocks: 77,
            volatile_cache: true,
            read_only: true,
            deallocate: true,
            limits: Limits {
                write_granularity: 1,
                optimal_write: 2,
                atomic_write: 3,
                deallocate_granularity: 4,
            },
        }
    }

    fn submit(&self, _: Tag, io: Io) -> IoFuture {
        IoFuture::ended(Err(match io {
            Io::Flush => IoError::Busy,
            _ => IoError::Read,
        }))
    }

    fn health(&self) -> Health {
        Health {
            spare: 7,
            worn_out: true,
        }
    }

    fn moved(&self) -> Option<u64> {
        Some(99)
    }

    fn is_blank(&self) -> bool {
        true
    }

    fn is_page_cached(&self) -> bool {
        true
    }
}

/// What a layer says of itself is what its device says: with faults and without.
#[test]
fn a_layer_is_what_its_device_is() {
    in_world(|rt| async move {
        let never = FaultRule::new(FaultKind::Poison).at(Frequency::Rate(0));
        for rules in [vec![], vec![never]] {
            let layer = layer(&rt, Rc::new(Unusual), rules);
            assert_eq!(layer.info(), Unusual.info());
            assert_eq!(layer.health(), Unusual.health());
            assert_eq!(layer.moved(), Unusual.moved());
            assert!(layer.is_blank());
            assert!(layer.is_page_cached());
            assert_eq!(flush(&*layer).await, Err(IoError::Busy));
            assert_eq!(read(&*layer, 0, 512).await, Err(IoError::Read));
        }
    });
}

/// Many I/Os to the same few blocks at a time, while what is kept goes to the device now and then:
/// no write overtakes a later one.
#[test]
fn writes_that_are_kept_and_those_that_are_not_keep_their_order() {
    in_world(|rt| async move {
        let disk = Disk::new(BLOCK as u32, vec![0; 64 * BLOCK], 9).behind_a_kernel(&rt);
        let rule = FaultRule::new(FaultKind::LyingFlush).at(Frequency::Rate(300_000_000));
        let layer = layer(&rt, disk.shared(), [rule.clone()]);
        for round in 0..40_u8 {
            let writers = (0..4_u64).map(|block| {
                let layer = layer.clone();
                rt.spawn(async move {
                    for turn in 0..8_u8 {
                        let (lba, value) = (block * 2, round.wrapping_mul(8).wrapping_add(turn));
                        let tag = Tag::default();
                        let data = filled(2 * BLOCK, value);
                        let fua = turn % 3 == 0;
                        layer.write(tag, lba, data, fua).await.expect("written");
                        let there = read(&*layer, lba, 2 * BLOCK).await.expect("read");
                        assert!(there.iter().all(|byte| *byte == value), "{round} {turn}");
                        if turn % 4 == block as u8 {
                            flush(&*layer).await.expect("flushed");
                        }
                    }
                })
            });
            for writer in writers.collect::<Vec<_>>() {
                writer.await;
            }
            if round % 10 == 9 {
                let present = read(&*layer, 0, 8 * BLOCK).await.expect("read");
                layer.set(Vec::new());
                rt.sleep(Duration::from_ms(1)).await;
                flush(&*layer).await.expect("flushed");
                assert!(disk.bytes()[..8 * BLOCK] == present[..]);
                layer.set(vec![rule.clone()]);
            }
        }
    });
}

/// An I/O that no fault hits goes on as it came: the same buffers, and nothing allocated.
#[test]
fn what_is_not_hit_is_neither_copied_nor_allocated_for() {
    in_world(|rt| async move {
        let below = memory(1 << 20);
        write(&*below, 0, 8 * BLOCK, 7).await.expect("written");
        let elsewhere = [
            FaultKind::Poison,
            FaultKind::Error,
            FaultKind::Hang,
            FaultKind::Stale,
        ];
        let elsewhere = elsewhere.map(|kind| FaultRule::new(kind).always().within(200..201));
        let nth = Frequency::Every(NonZeroU64::new(1 << 40).expect("not 0"));
        let seldom = FaultRule::new(FaultKind::Lost).at(nth);
        for rules in [vec![], elsewhere.to_vec(), vec![seldom]] {
            let layer = layer(&rt, below.clone(), rules);
            let data = Shared::from(filled(BLOCK, 7));
            for round in 0..3 {
                let before = counting::allocations();
                let into = Buf::take(BLOCK).expect("memory");
                let place = into.as_ptr();
                let read = layer.submit(Tag::default(), Io::Read { lba: 0, into });
                match read.await.map(|done| done.data) {
                    Ok(Data::Buf(buf)) => assert_eq!(buf.as_ptr(), place),
                    other => panic!("{other:?}"),
                }
                let (data, fua) = (data.clone(), false);
                let written = layer.submit(Tag::default(), Io::Write { lba: 1, data, fua });
                assert!(written.await.is_ok());
                let after = counting::allocations();
                assert!(
                    round == 0 || after == before,
                    "{} allocations",
                    after - before
                );
            }
        }
    });
}

/// Of more writes than the layer keeps, the rest goes to the device, and is not lost.
#[test]
fn no_more_is_kept_than_the_bound() {
    in_world(|rt| async move {
        let below = memory(64 << 20);
        let layer = layer(&rt, below.clone(), [FaultRule::new(FaultKind::LyingFlush)]);
        for lba in 0..MOST + 10 {
            write(&*layer, lba, BLOCK, 1).await.expect("written");
        }
        assert_eq!(layer.unflushed_bytes(), MOST * BLOCK as u64);
        let (_, counts) = layer.counts()[0];
        assert_eq!((counts.injected, counts.missed), (MOST, 10));
        layer.close();
        assert_eq!(read(&*below, MOST - 1, BLOCK).await, Ok(vec![0; BLOCK]));
        assert_eq!(read(&*below, MOST, BLOCK).await, Ok(vec![1; BLOCK]));
    });
}

/// The oldest former content goes first, and a read of what is not known any more is right.
#[test]
fn former_content_is_kept_up_to_the_bound() {
    in_world(|rt| async move {
        let stale = FaultRule::new(FaultKind::Stale).always();
        let layer = layer(&rt, memory(64 << 20), [stale]);
        for value in [1, 2] {
            for lba in 0..MOST + 10 {
                write(&*layer, lba, BLOCK, value).await.expect("written");
            }
        }
        assert_eq!(read(&*layer, 9, BLOCK).await, Ok(vec![2; BLOCK]));
        assert_eq!(read(&*layer, 10, BLOCK).await, Ok(vec![1; BLOCK]));
        let (_, counts) = layer.counts()[0];
        assert_eq!((counts.injected, counts.missed), (1, 1));
    });
}

/// What could not be written to the device is tried again with the next flush.
#[test]
fn a_failed_device_is_reported_and_what_is_kept_stays() {
    in_world(|rt| async move {
        let disk = Disk::new(BLOCK as u32, vec![0; 64 * BLOCK], 3);
        let rule = FaultRule::new(FaultKind::LyingFlush).at(Frequency::Rate(0));
        let layer = layer(&rt, disk.shared(), [rule]);
        write(&*layer, 3, BLOCK, 5).await.expect("it is kept");
        disk.fail_after(0);
        assert_eq!(flush(&*layer).await, Err(IoError::Write));
        assert_eq!(read(&*layer, 3, BLOCK).await, Ok(vec![5; BLOCK]));
        disk.fail_after(u64::MAX);
        assert_eq!(flush(&*layer).await, Ok(()));
        assert_eq!(layer.unflushed_bytes(), 0);
        assert_eq!(disk.bytes()[3 * BLOCK], 5);
    });
}

/// What is not written is not kept either, and reads meet their faults.
#[test]
fn a_device_that_takes_no_writes_has_faults_of_reads_only() {
    in_world(|rt| async move {
        let disk = FileDevice::open_block(&rt, DISK.as_ref(), BLOCK as u32, true);
        let disk = Rc::new(disk.expect("the disk is there"));
        let lies = FaultRule::new(FaultKind::LyingFlush);
        let unread = FaultRule::new(FaultKind::Error).on(FaultOn::Reads);
        let layer = layer(&rt, disk, [lies, unread]);
        let refused = Err(IoError::WriteProtected);
        assert_eq!(write(&*layer, 0, BLOCK, 1).await, refused);
        assert_eq!(layer.unflushed_bytes(), 0);
        assert_eq!(read(&*layer, 0, BLOCK).await, Err(IoError::Read));
        assert_eq!(injected(&layer), 1);
    });
}

/// An I/O that is delayed goes on at once when its fault is taken away, and when the target ends;
/// from then on none is delayed.
#[test]
fn a_delay_ends_with_its_fault_and_with_the_target() {
    in_world(|rt| async move {
        let long = FaultKind::Latency {
            fixed: Duration::from_secs(3600),
            spread: Duration::ZERO,
        };
        let ends: [fn(&FaultDevice); 3] = [
            |layer| layer.set(Vec::new()),
            FaultDevice::release,
            FaultDevice::close,
        ];
        for end in ends {
            let below = memory(1 << 20);
            let layer = layer(&rt, below.clone(), [FaultRule::new(long)]);
            let begun = rt.now();
            let delayed = layer.clone();
            let delayed = rt.spawn(async move { write(&*delayed, 0, BLOCK, 1).await });
            rt.sleep(Duration::from_ms(1)).await;
            // Another fault that is set meanwhile changes nothing.
            let other = FaultRule::new(FaultKind::Lost).within(9..10);
            layer.set(vec![other, FaultRule::new(long)]);
            rt.sleep(Duration::from_ms(1)).await;
            assert_eq!(read(&*below, 0, BLOCK).await, Ok(vec![0; BLOCK]));
            end(&layer);
            assert_eq!(delayed.await, Ok(()));
            assert_eq!(read(&*layer, 0, BLOCK).await, Ok(vec![1; BLOCK]));
            assert!(rt.now() < begun + Duration::from_secs(1), "it was delayed");
        }
    });
}

/// An I/O that hangs and is given up leaves nothing behind, and one that was begun runs on.
#[test]
fn an_io_that_was_given_up_leaves_nothing() {
    in_world(|rt| async move {
        let below = memory(1 << 20);
        let hang = FaultRule::new(FaultKind::Hang).on(FaultOn::Writes);
        let layer = layer(&rt, below.clone(), [hang]);
        let before = Buf::balance();
        for _ in 0..10 {
            let io = layer.write(Tag::default(), 0, filled(BLOCK, 1), false);
            let waited = rt.spawn(io);
            rt.sleep(Duration::from_ms(1)).await;
            drop(waited);
        }
        rt.sleep(Duration::from_ms(1)).await;
        assert_eq!(Buf::balance(), before);
        layer.set(Vec::new());
        rt.sleep(Duration::from_ms(1)).await;
        assert_eq!(read(&*below, 0, BLOCK).await, Ok(vec![0; BLOCK]));
    });
}
