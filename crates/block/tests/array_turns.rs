//! Background work of arrays takes turns where somebody gives them: a piece in each, nothing
//! without one, and nobody who does I/O waits for one.

mod arrays;

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::num::NonZeroU64;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use arrays::{always, in_world, memories, named, plain};
use flashyard_block::array::{Array, Options, RebuildPriority};
use flashyard_block::fault::{FaultDevice, FaultKind, FaultOn};
use flashyard_block::pool::{MappedOptions, MappedPool, NewVolume};
use flashyard_block::{Device, IoError, SharedDevice, Step, SystemWork, Turn, Turns};
use flashyard_runtime::Rt;
use flashyard_sched::{Class, Op};
use flashyard_testbed::{read, write};
use flashyard_time::{Duration, Rng};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// Bytes that are copied together, and such pieces of a region.
const PIECE: u64 = 128 << 10;
const PIECES: usize = 8;

/// Gives turns when the test says so.
#[derive(Default)]
struct Referee {
    free: bool,
    allowed: usize,
    asked: Vec<Step>,
    withdrawn: usize,
    ended: Vec<bool>,
    wakers: Vec<Waker>,
}

#[derive(Clone, Default)]
struct Whistle(Rc<RefCell<Referee>>);

/// A wait, until it has its turn.
struct Wait(Whistle, bool);

struct Given(Whistle);

impl Whistle {
    /// Lets so many go, or all from now on.
    fn allow(&self, turns: usize) {
        let mut referee = self.0.borrow_mut();
        referee.allowed += turns;
        referee.wakers.drain(..).for_each(Waker::wake);
    }

    fn allow_all(&self) {
        self.0.borrow_mut().free = true;
        self.allow(0);
    }

    fn asked(&self) -> Vec<Step> {
        self.0.borrow().asked.clone()
    }
}

impl Turns for Whistle {
    fn wait(&self, step: Step) -> Pin<Box<dyn Future<Output = Box<dyn Turn>>>> {
        self.0.borrow_mut().asked.push(step);
        let mut wait = Wait(self.clone(), false);
        Box::pin(poll_fn(move |context| {
            let whistle = wait.0.clone();
            let mut referee = whistle.0.borrow_mut();
            if !referee.free && referee.allowed == 0 {
                referee.wakers.push(context.waker().clone());
                return Poll::Pending;
            }
            referee.allowed = referee.allowed.saturating_sub(1);
            wait.1 = true;
            let turn: Box<dyn Turn> = Box::new(Given(whistle.clone()));
            Poll::Ready(turn)
        }))
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.0.0.borrow_mut().withdrawn += usize::from(!self.1);
    }
}

impl Turn for Given {
    fn begin(&mut self) {}

    fn end(self: Box<Self>, ok: bool) {
        self.0.0.borrow_mut().ended.push(ok);
    }
}

/// Time for everything that can go on.
async fn pass(rt: &Rt) {
    rt.sleep(Duration::from_ms(20)).await;
}

fn faulty(rt: &Rt, device: &SharedDevice) -> Rc<FaultDevice> {
    Rc::new(FaultDevice::new(rt, device.clone(), 1, Vec::new()))
}

fn copied(array: &Array) -> u64 {
    let members = array.status().members.into_iter();
    members.map(|member| member.counts.copied_bytes).sum()
}

async fn settle(rt: &Rt, array: &Array) {
    for _ in 0..1000 {
        if array.status().rebuild.is_none() {
            return;
        }
        rt.sleep(Duration::from_ms(100)).await;
    }
    panic!("{:?}", array.status());
}

/// A mirror of two whose second member is being replaced, and waits for its first turn.
async fn replacing(rt: &Rt, devices: &[SharedDevice]) -> (Array, Whistle) {
    let array = plain(rt, &devices[..2], 2).await;
    for block in 0..600 {
        let value = 1 + (block % 250) as u8;
        write(&array, block, BLOCK, value).await.expect("both work");
    }
    let whistle = Whistle::default();
    let turns: Rc<dyn Turns> = Rc::new(whistle.clone());
    array.take_turns(&turns);
    let new = named("m2", &devices[2]);
    array.replace("m1", new, false).await.expect("it is blank");
    pass(rt).await;
    (array, whistle)
}

#[test]
fn a_rebuild_goes_a_piece_in_each_turn_and_says_what_it_is() {
    in_world(async |rt| {
        let (array, whistle) = replacing(&rt, &memories(3, 8 * MIB)).await;
        assert_eq!((copied(&array), whistle.asked().len()), (0, 1));
        for turns in 1..=PIECES {
            whistle.allow(1);
            pass(&rt).await;
            assert_eq!(copied(&array), turns as u64 * PIECE);
        }
        let of = |number: u64| Step {
            work: SystemWork::Rebuild,
            class: Class::Background,
            op: Op::Write,
            bytes: PIECE,
            lba: number * PIECE / BLOCK as u64,
        };
        let wanted: Vec<Step> = (0..=PIECES as u64).map(of).collect();
        assert_eq!(whistle.asked(), wanted);
        assert_eq!(whistle.0.borrow().ended, [true; PIECES]);
        // Nobody who does I/O waits for the next turn, wherever it is.
        for block in [0, 300, 511] {
            write(&array, block, BLOCK, 0x77).await.expect("two work");
            assert_eq!(read(&array, block, BLOCK).await, Ok(vec![0x77; BLOCK]));
        }
        whistle.allow_all();
        settle(&rt, &array).await;
        assert!(!array.status().is_degraded());
    });
}

/// A rebuild has a share while one more failure would lose data, unless somebody has said
/// otherwise. What is said holds from the next piece on.
#[test]
fn a_rebuild_has_the_priority_that_it_was_given() {
    use RebuildPriority::{Auto, High, Low};
    for (at_stake, given, class) in [
        (false, Auto, Class::Background),
        (false, Low, Class::Background),
        (false, High, Class::Throughput),
        (true, Auto, Class::Throughput),
        (true, Low, Class::Background),
        (true, High, Class::Throughput),
    ] {
        in_world(async move |rt| {
            let devices = memories(3, 8 * MIB);
            let layers: Vec<Rc<FaultDevice>> = devices.iter().map(|it| faulty(&rt, it)).collect();
            let members: Vec<SharedDevice> = layers.iter().map(|it| it.clone() as _).collect();
            let (array, whistle) = replacing(&rt, &members).await;
            assert_eq!(array.status().rebuild_priority, Auto);
            if at_stake {
                layers[1].set(vec![always(FaultKind::Error, FaultOn::Writes)]);
                write(&array, 600, BLOCK, 0x65).await.expect("two work");
            }
            // What waits for its turn keeps the class that it had.
            array.set_rebuild_priority(given);
            whistle.allow(1);
            pass(&rt).await;
            let asked = whistle.asked();
            let last = asked.last().expect("it goes on");
            let wanted = (SystemWork::Rebuild, class);
            assert_eq!((last.work, last.class), wanted, "{at_stake} {given:?}");
            assert_eq!(array.status().rebuild_priority, given);
        });
    }
}

/// A limit holds a rebuild back, and holds from the next piece on; hosts are not held.
#[test]
fn a_rebuild_is_as_slow_as_it_was_said_to_be() {
    in_world(async |rt| {
        let (array, whistle) = replacing(&rt, &memories(3, 40 * MIB)).await;
        let limit = |mb: u64| NonZeroU64::new(mb * 1_000_000);
        array.set_rebuild_limit(limit(10));
        assert_eq!(array.status().rebuild_limit, limit(10));
        whistle.allow_all();
        let before = copied(&array);
        rt.sleep(Duration::from_secs(1)).await;
        let slow = copied(&array) - before;
        // A piece had no limit when it began to wait for its turn.
        let wanted = 10_000_000 - PIECE..=10_000_000 + 2 * PIECE;
        assert!(wanted.contains(&slow), "{slow}");
        let begun = rt.now();
        write(&array, 2048, BLOCK, 0x77).await.expect("all work");
        assert!(rt.now() - begun < Duration::from_ms(1));
        array.set_rebuild_limit(limit(20));
        let before = copied(&array);
        rt.sleep(Duration::from_ms(500)).await;
        let faster = copied(&array) - before;
        // The first one waits as long as before: as long as two take now.
        let wanted = 10_000_000 - 3 * PIECE..=10_000_000;
        assert!(wanted.contains(&faster), "{faster}");
        array.set_rebuild_limit(None);
        pass(&rt).await;
        pass(&rt).await;
        assert!(array.status().rebuild.is_none(), "{:?}", array.status());
    });
}

/// A piece that was made equal already is not trusted when a write to it has failed since.
#[test]
fn a_region_whose_write_has_failed_between_two_turns_is_copied_from_the_beginning() {
    in_world(async |rt| {
        let devices = memories(3, 8 * MIB);
        let layers: Vec<Rc<FaultDevice>> = devices.iter().map(|it| faulty(&rt, it)).collect();
        let members: Vec<SharedDevice> = layers.iter().map(|it| it.clone() as _).collect();
        let (array, whistle) = replacing(&rt, &members).await;
        let place = find(&devices[0], 4).await;
        // The first one makes the region unequal, and what waits for its turn is out of date.
        fail(&array, &layers).await;
        whistle.allow(1 + 2);
        pass(&rt).await;
        let works: Vec<SystemWork> = whistle.asked().iter().map(|step| step.work).collect();
        let (rebuild, resync) = (SystemWork::Rebuild, SystemWork::Resync);
        assert_eq!(works, [rebuild, resync, resync, resync]);
        // The second one comes to the medium of one of them.
        fail(&array, &layers).await;
        let landed = write(&*devices[0], place, BLOCK, 0x66).await;
        landed.expect("it works");
        whistle.allow_all();
        settle(&rt, &array).await;
        let found = read(&array, 3, BLOCK).await;
        array.close().await;
        for device in [&devices[0], &devices[2]] {
            assert_eq!(read(&**device, place, BLOCK).await, found);
        }
    });
}

/// A write that fails at all members, which stay.
async fn fail(array: &Array, layers: &[Rc<FaultDevice>]) {
    for layer in layers {
        layer.set(vec![always(FaultKind::Error, FaultOn::Writes)]);
    }
    assert!(write(array, 3, BLOCK, 0x65).await.is_err());
    for layer in layers {
        layer.set(Vec::new());
    }
}

/// The block of a device that holds a block of this value first.
async fn find(device: &SharedDevice, value: u8) -> u64 {
    for lba in 0..device.info().blocks {
        if read(&**device, lba, BLOCK).await == Ok(vec![value; BLOCK]) {
            return lba;
        }
    }
    panic!("it holds no block of {value:#x}")
}

/// Who reads what a crash has left different has it made equal without a turn.
#[test]
fn a_read_does_not_wait_for_the_turn_of_a_resync() {
    in_world(async |rt| {
        let devices = memories(2, 8 * MIB);
        let array = plain(&rt, &devices, 2).await;
        write(&array, 7, BLOCK, 0x5a).await.expect("both work");
        write(&array, 1000, BLOCK, 0x5b).await.expect("both work");
        // As a crash leaves it.
        drop(array);
        let found = Array::open(&rt, arrays::new(&devices), None, Options::default(), false);
        let array = found.await.expect("all members are there");
        let whistle = Whistle::default();
        let turns: Rc<dyn Turns> = Rc::new(whistle.clone());
        array.take_turns(&turns);
        pass(&rt).await;
        let left = array.status().rebuild.map(|rebuild| rebuild.of);
        assert!(left.is_some_and(|left| left >= 2), "{left:?}");
        for (block, value) in [(1000, 0x5b), (7, 0x5a)] {
            assert_eq!(read(&array, block, BLOCK).await, Ok(vec![value; BLOCK]));
        }
        whistle.allow_all();
        settle(&rt, &array).await;
        let asked = whistle.asked();
        assert!(
            !asked.is_empty() && asked.iter().all(|step| step.work == SystemWork::Resync),
            "{asked:?}"
        );
        array.close().await;
    });
}

#[test]
fn the_end_of_an_array_withdraws_what_waits_for_its_turn() {
    in_world(async |rt| {
        let devices = memories(3, 8 * MIB);
        let (array, whistle) = replacing(&rt, &devices).await;
        array.close().await;
        pass(&rt).await;
        assert_eq!(whistle.0.borrow().withdrawn, 1);
        whistle.allow_all();
        rt.sleep(Duration::from_secs(10)).await;
        assert_eq!((copied(&array), whistle.asked().len()), (0, 1));
        assert_eq!(read(&array, 0, BLOCK).await, Err(IoError::NotReady));
    });
}

#[test]
fn a_scrub_reads_a_piece_of_all_copies_in_each_turn_and_none_when_it_is_stopped() {
    in_world(async |rt| {
        let array = plain(&rt, &memories(3, 8 * MIB), 3).await;
        let whistle = Whistle::default();
        let turns: Rc<dyn Turns> = Rc::new(whistle.clone());
        array.take_turns(&turns);
        array.scrub();
        whistle.allow(PIECES);
        pass(&rt).await;
        let asked = whistle.asked();
        assert_eq!(asked.len(), PIECES + 1);
        let is_read =
            |it: &Step| (it.work, it.op, it.bytes) == (SystemWork::Scrub, Op::Read, 3 * PIECE);
        assert!(asked.iter().all(is_read), "{asked:?}");
        assert_eq!(array.status().scrub.done, 1);
        array.stop_scrub();
        whistle.allow_all();
        pass(&rt).await;
        assert_eq!(whistle.asked().len(), PIECES + 1);
        assert!(!array.status().scrub.running);
        array.scrub();
        for _ in 0..100 {
            pass(&rt).await;
        }
        let scrub = array.status().scrub;
        assert!(!scrub.running && scrub.done == scrub.of, "{scrub:?}");
        array.close().await;
    });
}

/// A scrub of a mapped pool waits for its turns, and hosts do not wait for it: not even for the
/// segment that it reads, when there is no room but what garbage collection makes.
#[test]
fn a_scrub_of_a_mapped_pool_takes_turns_and_is_in_the_way_of_no_write() {
    in_world(async |rt| {
        let array = Rc::new(plain(&rt, &memories(2, 38 * MIB), 2).await);
        let options = MappedOptions {
            records: Some(1500),
            ..MappedOptions::default()
        };
        let made = MappedPool::create(&rt, array.clone(), [7; 16], options).await;
        let pool = made.expect("it is large enough");
        let new = vec![NewVolume::new("v", [1; 16], 1 << 30)];
        let made = pool.create_volumes(new).await.expect("there is room");
        let volume: SharedDevice = made[0].clone();
        let blocks = pool.info().bytes / BLOCK as u64 * 85 / 100;
        for lba in (0..blocks - 16).step_by(16) {
            let written = write(&*volume, lba, 16 * BLOCK, 1).await;
            written.expect("there is room");
        }
        let whistle = Whistle::default();
        let turns: Rc<dyn Turns> = Rc::new(whistle.clone());
        volume.take_turns(&turns);
        pool.scrub().expect("none runs");
        pass(&rt).await;
        let asked = whistle.asked();
        assert_eq!(asked.len(), 1);
        assert_eq!((asked[0].work, asked[0].op), (SystemWork::Scrub, Op::Read));
        assert_eq!(asked[0].bytes % (2 * BLOCK as u64), 0);
        for turns in 2..6 {
            whistle.allow(1);
            pass(&rt).await;
            assert_eq!(whistle.asked().len(), turns);
        }
        let mut rng = Rng::new(1);
        for _ in 0..2 * blocks / 16 {
            let lba = rng.below(blocks - 16);
            let written = write(&*volume, lba, 16 * BLOCK, 2).await;
            written.expect("garbage collection makes room");
        }
        // It went on without a turn while they waited for room.
        assert!(whistle.0.borrow().withdrawn > 0);
        assert!(pool.info().scrub.is_some_and(|it| it.running));
        whistle.allow_all();
        while pool.info().scrub.is_some_and(|it| it.running) {
            pass(&rt).await;
        }
        let found = pool.info().scrub.expect("there was one");
        assert_eq!((found.done, found.unresolved), (found.of, 0));
        // The end does not wait for a turn.
        *whistle.0.borrow_mut() = Referee::default();
        pool.scrub().expect("none runs");
        pass(&rt).await;
        pool.close().await;
        array.close().await;
        assert_eq!(whistle.0.borrow().withdrawn, 1);
    });
}
