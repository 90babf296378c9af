//! A volume whose content goes to another device while it is used, by seed: what hosts see is one
//! block device all the time, whatever happens to the target.

mod history;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use flashyard_block::migration::{CopyError, Migration, Side, Sides, Start};
use flashyard_block::{Device, DeviceExt, IoError, MemoryDevice, SharedDevice, Tag};
use flashyard_runtime::sim::{Config, World};
use flashyard_runtime::{Buf, Data, Rt};
use flashyard_testbed::{Paced, behaves_as_an_array, filled, read, refuses_what_is_not_there};
use flashyard_time::{Duration, Rng, Time};

use history::{Event, What, is_linearizable};

const BLOCK: usize = 512;
/// Four pieces of the copying.
const BYTES: u64 = 2 << 20;

fn memory() -> SharedDevice {
    Rc::new(MemoryDevice::new(BLOCK as u32, BYTES).expect("a good size"))
}

/// Each I/O takes up to `most`.
fn paced(rt: &Rt, device: &SharedDevice, seed: u64, most: Duration) -> SharedDevice {
    let (rt, rng) = (rt.clone(), RefCell::new(Rng::new(seed)));
    Rc::new(Paced::new(device.clone(), move |_, _| {
        rt.sleep(Duration::from_ns(rng.borrow_mut().below(most.as_ns())))
    }))
}

fn sides(source: &SharedDevice, target: &SharedDevice) -> Sides {
    Sides {
        source: source.clone(),
        copy_from: source.clone(),
        target: target.clone(),
        copy_to: target.clone(),
    }
}

/// All of it: copies, records where the volume is (which takes a while), and switches.
async fn whole_move(
    rt: &Rt,
    migration: &Migration,
    is_recorded: &Cell<bool>,
) -> Result<(), CopyError> {
    migration.copy().await?;
    migration.begin_switch().await?;
    rt.sleep(Duration::from_us(300)).await;
    is_recorded.set(true);
    migration.end(Side::Target).await;
    Ok(())
}

async fn content(device: &SharedDevice) -> Vec<u8> {
    read(&**device, 0, BYTES as usize)
        .await
        .expect("it can be read")
}

fn in_world<F: Future<Output = ()> + 'static>(seed: u64, main: impl FnOnce(Rt) -> F) {
    let world = World::new(Config::stormy(seed));
    let machine = world.machine(1);
    world.run(&machine, main);
}

#[test]
fn what_is_copied_is_what_an_array_holds() {
    for seed in 0..20 {
        in_world(seed, move |rt| async move {
            let (source, target) = (memory(), memory());
            let slow = Duration::from_us(100 + 40 * seed);
            let all = sides(&source, &paced(&rt, &target, seed, slow));
            let migration = Migration::new(&rt, all, Start::default());
            let (moved, clock) = (migration.clone(), rt.clone());
            let moving =
                rt.spawn(async move { whole_move(&clock, &moved, &Cell::new(false)).await });
            behaves_as_an_array(&migration, seed, 100).await;
            refuses_what_is_not_there(&migration).await;
            assert_eq!(moving.await, Ok(()));
            assert!(content(&source).await == content(&target).await);
            // From now on the source gets nothing.
            let before = content(&source).await;
            assert!(
                migration
                    .write(Tag::default(), 3, filled(BLOCK, 0xc3), false)
                    .await
                    .is_ok()
            );
            assert!(content(&source).await == before && content(&target).await != before);
            assert_eq!(migration.progress().copied(), BYTES);
        });
    }
}

/// Space of a thin target is taken only for what is not zero.
#[test]
fn zeroes_are_not_written_to_what_is_empty() {
    in_world(1, |rt| async move {
        let (source, target) = (memory(), memory());
        let tag = Tag::default();
        assert!(
            source
                .write(tag, 100, filled(64 << 10, 7), false)
                .await
                .is_ok()
        );
        let writes = Rc::new(Cell::new(0));
        let counted = Rc::clone(&writes);
        let watched = Paced::new(target.clone(), move |_, io| {
            counted.set(counted.get() + io.transfers());
            async {}
        });
        let all = Sides {
            target: Rc::new(watched),
            ..sides(&source, &target)
        };
        let all = Sides {
            copy_to: all.target.clone(),
            ..all
        };
        let migration = Migration::new(&rt, all, Start::default());
        assert_eq!(migration.copy().await, Ok(()));
        assert!(content(&source).await == content(&target).await);
        // By units of 16 KiB.
        assert!(writes.get() <= 96 << 10, "{} bytes", writes.get());
        assert_eq!(migration.progress().written(), writes.get() as u64);
    });
}

/// A switch of one turn before the source: a write has it until it ends, and what copies waits for
/// it. A piece that is written to all the time is copied nevertheless.
#[test]
fn a_write_that_waits_for_a_piece_does_not_keep_that_from_being_copied() {
    in_world(2, |rt| async move {
        let (source, target) = (memory(), memory());
        let holders = Rc::new(Cell::new(0));
        let (clock, held) = (rt.clone(), Rc::clone(&holders));
        let switched = |device: &SharedDevice| -> SharedDevice {
            let (clock, held) = (clock.clone(), held.clone());
            Rc::new(Paced::new(device.clone(), move |_, _| {
                let (clock, held) = (clock.clone(), held.clone());
                async move {
                    while held.get() > 0 {
                        clock.sleep(Duration::from_us(20)).await;
                    }
                }
            }))
        };
        let all = Sides {
            source: paced(&rt, &source, 3, Duration::from_us(50)),
            copy_from: switched(&paced(&rt, &source, 4, Duration::from_us(200))),
            copy_to: switched(&target),
            target: target.clone(),
        };
        let migration = Migration::new(&rt, all, Start::default());
        let copies = rt.spawn({
            let migration = migration.clone();
            async move { migration.copy().await }
        });
        let copied = Rc::new(Cell::new(false));
        let (clock, volume, ends) = (rt.clone(), migration.clone(), copied.clone());
        let writes = rt.spawn(async move {
            let mut value = 1;
            while !ends.get() {
                holders.set(holders.get() + 1);
                let data = of_value(value, BLOCK);
                let written = volume.write(Tag::default(), 5, data, false).await;
                holders.set(holders.get() - 1);
                assert_eq!(written, Ok(()));
                value += 1;
                clock.sleep(Duration::from_us(30)).await;
            }
        });
        let done = rt.timeout(Duration::from_secs(10), copies).await;
        assert_eq!(done, Some(Ok(())), "neither goes on");
        copied.set(true);
        writes.await;
        assert!(migration.progress().repeated() > 0, "chance was kind");
        assert!(content(&source).await == content(&target).await);
    });
}

/// The operations of all that use a few blocks, with the time of each.
struct Hosts {
    rt: Rt,
    volume: Rc<dyn Device>,
    /// Of each block that is used.
    events: RefCell<Vec<Vec<Event>>>,
    next: Cell<u32>,
    may_fail: Rc<Cell<bool>>,
}

/// Blocks that are used: around borders of pieces.
const FIRST: u64 = 1022;
const USED: u64 = 4;
const OPERATIONS: usize = 30;

impl Hosts {
    fn note(&self, block: u64, from: Time, what: What) {
        let to = self.rt.now();
        self.events.borrow_mut()[block as usize].push(Event { from, to, what });
    }

    fn note_write(&self, blocks: Range<u64>, from: Time, done: Result<(), IoError>, value: u32) {
        match done {
            Ok(()) => blocks.for_each(|block| self.note(block, from, What::Write(value))),
            Err(error) => self.on_failure(error),
        }
    }

    /// What has failed has done nothing, and only the target fails, once it is the volume.
    fn on_failure(&self, error: IoError) {
        assert_eq!((error, self.may_fail.get()), (IoError::Write, true));
    }

    /// One operation on some blocks that lie together.
    async fn act(&self, rng: &mut Rng) {
        let first = rng.below(USED);
        let count = 1 + rng.below((USED - first).min(3));
        let blocks = first..first + count;
        let (lba, bytes) = (FIRST + first, count as usize * BLOCK);
        let (from, tag) = (self.rt.now(), Tag::default());
        let value = self.next.get();
        self.next.set(value + 1);
        match rng.below(8) {
            0..3 => {
                let fua = rng.below(2) == 0;
                let done = self
                    .volume
                    .write(tag, lba, of_value(value, bytes), fua)
                    .await;
                self.note_write(blocks, from, done, value);
            }
            3 => {
                let done = match rng.below(2) {
                    0 => self.volume.write_zeroes(tag, lba, count, true).await,
                    _ => self.volume.deallocate(tag, lba, count).await,
                };
                self.note_write(blocks, from, done, 0);
            }
            4 => {
                let (block, old) = (first, rng.below(u64::from(value)) as u32);
                let (compare, new) = (of_value(old, BLOCK), of_value(value, BLOCK));
                let done = self.volume.compare_and_write(tag, lba, compare, new, false);
                match done.await {
                    Ok(()) => self.note(block, from, What::Swap(old, value)),
                    Err(IoError::Miscompare) => self.note(block, from, What::Differs(old)),
                    Err(error) => self.on_failure(error),
                }
            }
            _ => {
                let Ok(data) = self.volume.read(tag, lba, filled(bytes, 0xee)).await else {
                    return;
                };
                for (at, block) in blocks.enumerate() {
                    self.note(block, from, What::Read(value_of(&data, at)));
                }
            }
        }
    }
}

fn of_value(value: u32, bytes: usize) -> Buf {
    let mut buf = filled(bytes, 0);
    for word in buf.chunks_exact_mut(4) {
        word.copy_from_slice(&value.to_le_bytes());
    }
    buf
}

/// What block `at` of `data` holds, all of which is one value.
fn value_of(data: &Data, at: usize) -> u32 {
    let Data::Buf(buf) = data else {
        return 0;
    };
    let block = &buf[at * BLOCK..(at + 1) * BLOCK];
    let mut words = block
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")));
    let first = words.next().unwrap_or(0);
    assert!(words.all(|word| word == first), "a torn block");
    first
}

/// What becomes of the target.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Sound,
    FailsAt(Duration),
    CancelledAt(Duration),
}

/// Overlapping writes, zeroes and compare-and-writes while the cursor comes by, and the volume
/// switches, or stays: each block is one block all the time.
fn blocks_are_linearizable(seed: u64, fate: Fate) -> bool {
    let moved = Rc::new(Cell::new(false));
    let has_moved = Rc::clone(&moved);
    in_world(seed, move |rt| async move {
        let mut rng = Rng::new(seed);
        let most = |rng: &mut Rng| Duration::from_us(10 + rng.below(400));
        let fast = |rt: &Rt, it: &SharedDevice, rng: &mut Rng| {
            paced(rt, it, rng.below(1 << 40), most(rng))
        };
        let (source, target) = (memory(), memory());
        let broken = Rc::new(Cell::new(false));
        let target: SharedDevice = Rc::new(Breaks {
            below: target,
            broken: Rc::clone(&broken),
        });
        let may_fail = Rc::new(Cell::new(false));
        let all = sides(&fast(&rt, &source, &mut rng), &fast(&rt, &target, &mut rng));
        let migration = Migration::new(&rt, all, Start::default());
        let hosts = Rc::new(Hosts {
            rt: rt.clone(),
            volume: Rc::new(migration.clone()),
            events: RefCell::new(vec![Vec::new(); USED as usize]),
            next: Cell::new(1),
            may_fail: Rc::clone(&may_fail),
        });
        match fate {
            Fate::Sound => {}
            Fate::FailsAt(at) => {
                let clock = rt.clone();
                rt.spawn(async move {
                    clock.sleep(at).await;
                    broken.set(true);
                })
                .detach();
            }
            Fate::CancelledAt(at) => {
                let (clock, migration) = (rt.clone(), migration.clone());
                rt.spawn(async move {
                    clock.sleep(at).await;
                    migration.end(Side::Source).await;
                })
                .detach();
            }
        }
        let tasks: Vec<_> = (0..4)
            .map(|host| {
                let (hosts, mut rng) = (Rc::clone(&hosts), Rng::new(seed ^ host << 32));
                rt.spawn(async move {
                    for _ in 0..OPERATIONS {
                        hosts.act(&mut rng).await;
                        hosts.rt.sleep(Duration::from_us(rng.below(120))).await;
                    }
                })
            })
            .collect();
        has_moved.set(whole_move(&rt, &migration, &may_fail).await.is_ok());
        for task in tasks {
            task.await;
        }
        let events = hosts.events.borrow();
        for (block, events) in events.iter().enumerate() {
            assert!(
                is_linearizable(0, events),
                "seed {seed}, block {block}: {events:#?}"
            );
        }
    });
    moved.get()
}

/// Fails every write from a moment on.
struct Breaks {
    below: SharedDevice,
    broken: Rc<Cell<bool>>,
}

impl Device for Breaks {
    fn info(&self) -> flashyard_block::Info {
        self.below.info()
    }

    fn submit(&self, tag: Tag, io: flashyard_block::Io) -> flashyard_block::IoFuture {
        match self.broken.get() && !matches!(io, flashyard_block::Io::Read { .. }) {
            true => flashyard_block::IoFuture::ready(Err(IoError::Write)),
            false => self.below.submit(tag, io),
        }
    }
}

#[test]
fn one_block_is_one_block_while_it_moves() {
    history::check_the_checker();
    let moved = (0..300)
        .filter(|seed| blocks_are_linearizable(*seed, Fate::Sound))
        .count();
    assert_eq!(moved, 300);
}

#[test]
fn one_block_is_one_block_when_the_target_fails_or_nobody_wants_it() {
    let mut moved = 0;
    for seed in 0..400 {
        let at = Duration::from_us(Rng::new(seed).below(12_000));
        let fate = match seed % 2 {
            0 => Fate::FailsAt(at),
            _ => Fate::CancelledAt(at),
        };
        moved += usize::from(blocks_are_linearizable(seed, fate));
    }
    assert!(moved > 10 && moved < 390, "{moved}");
}

/// What decides between both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Decision {
    Ends(Side),
    TargetMayCount,
}

/// While both sides count a write that the target does not take ends when it is known whether the
/// source is enough.
#[test]
fn a_write_that_one_side_lacks_ends_when_it_is_known_what_counts() {
    for (decision, outcome) in [
        (Decision::Ends(Side::Source), Ok(())),
        (Decision::Ends(Side::Target), Err(IoError::Write)),
        (Decision::TargetMayCount, Err(IoError::Write)),
    ] {
        in_world(7, move |rt| async move {
            let broken = Rc::new(Cell::new(false));
            let target: SharedDevice = Rc::new(Breaks {
                below: memory(),
                broken: Rc::clone(&broken),
            });
            let migration = Migration::new(&rt, sides(&memory(), &target), Start::default());
            assert_eq!(migration.copy().await, Ok(()));
            assert_eq!(migration.begin_switch().await, Ok(()));
            broken.set(true);
            let (host, ended) = (migration.clone(), Rc::new(Cell::new(false)));
            let has_ended = Rc::clone(&ended);
            let write = rt.spawn(async move {
                let written = host.write(Tag::default(), 5, filled(BLOCK, 1), false).await;
                has_ended.set(true);
                written
            });
            rt.sleep(Duration::from_secs(60)).await;
            assert!(!ended.get(), "{decision:?}");
            match decision {
                Decision::Ends(side) => migration.end(side).await,
                Decision::TargetMayCount => migration.target_may_count(),
            }
            assert_eq!(write.await, outcome, "{decision:?}");
        });
    }
}
