//! The power is cut after each change of the members of an array, and of what was not flushed on
//! each of them any subset survives, torn between sectors. Members fail before and are back after
//! it, old. What is opened then has all that was flushed, gives every block the same each time it
//! is read, also by other copies and after another cut in the middle of recovery, and a member that
//! was left behind is never read before it has everything.

mod arrays;

use std::collections::BTreeMap;
use std::rc::Rc;

use arrays::{Drive, Log, cut, in_world, new, open, open_degraded, plain};
use flashyard_block::array::{Array, ArrayError, MemberState};
use flashyard_block::{Device, SharedDevice};
use flashyard_runtime::Rt;
use flashyard_testbed::{Content, Event, flush, read, write};
use flashyard_time::{Duration, Rng};

const MIB: usize = 1 << 20;
const BLOCK: usize = 4096;
/// Superblocks, map, and three regions.
const MEMBER: usize = 6 * MIB;

/// A write of a block: when it began and when it was flushed, in events, and the value.
struct Written {
    began: usize,
    flushed: usize,
    value: u8,
}

/// What a user did.
#[derive(Default)]
struct History {
    writes: BTreeMap<u64, Vec<Written>>,
}

impl History {
    /// Whether a block may hold `value` after a cut.
    fn allows(&self, lba: u64, value: u8, happened: usize) -> bool {
        let Some(writes) = self.writes.get(&lba) else {
            return value == 0;
        };
        let durable = writes.iter().rposition(|it| it.flushed <= happened);
        let newer = writes.iter().skip(durable.unwrap_or(0));
        let mut newer = newer.filter(|it| it.began <= happened);
        (durable.is_none() && value == 0) || newer.any(|it| it.value == value)
    }
}

struct Life {
    start: Vec<Content>,
    events: Vec<(usize, Event)>,
    /// Events until the array was there.
    made: usize,
    history: History,
}

/// Some writes and flushes on an array of which a member may die on the way.
async fn live(rt: &Rt, members: usize, copies: usize, seed: u64, dies: bool) -> Life {
    let log = Log::default();
    let start = vec![Content::zeroes(MEMBER); members];
    let drives: Vec<Rc<Drive>> = (0..members)
        .map(|at| Drive::new(at, start[at].clone(), &log, seed + at as u64))
        .collect();
    let devices: Vec<SharedDevice> = drives.iter().map(|it| it.clone() as SharedDevice).collect();
    let array = plain(rt, &devices, copies).await;
    let made = log.borrow().len();
    let mut rng = Rng::new(seed);
    let mut history = History::default();
    let mut fresh: Vec<(u64, usize)> = Vec::new();
    let dead_at = 8 + rng.below(8);
    for step in 0..24u64 {
        if dies && step == dead_at {
            drives[1].dead.set(true);
        }
        match rng.below(6) {
            0 => {
                flush(&array).await.expect("one copy works");
                let now = log.borrow().len();
                for (lba, at) in fresh.drain(..) {
                    history.writes.get_mut(&lba).expect("it was written")[at].flushed = now;
                }
            }
            // Dirty regions become clean.
            1 => rt.sleep(Duration::from_secs(3)).await,
            _ => {
                let lba = rng.below(array.info().blocks);
                let value = 1 + step as u8;
                let began = log.borrow().len();
                write(&array, lba, BLOCK, value)
                    .await
                    .expect("one copy works");
                let writes = history.writes.entry(lba).or_default();
                writes.push(Written {
                    began,
                    flushed: usize::MAX,
                    value,
                });
                fresh.push((lba, writes.len() - 1));
            }
        }
    }
    let events = log.borrow().clone();
    Life {
        start,
        events,
        made,
        history,
    }
}

/// Every written block and some others.
async fn read_all(array: &Array, life: &Life) -> BTreeMap<u64, u8> {
    let blocks = array.info().blocks;
    let some = (0..blocks).step_by(61);
    let mut found = BTreeMap::new();
    for lba in life.history.writes.keys().copied().chain(some) {
        let bytes = read(array, lba, BLOCK).await.expect("a copy is there");
        for sector in bytes.chunks(512) {
            assert!(
                sector.iter().all(|byte| *byte == sector[0]),
                "a torn sector"
            );
        }
        // A write of several sectors may be torn; the first one stands for the block.
        found.insert(lba, bytes[0]);
    }
    found
}

fn drives(contents: &[Content], log: &Log, seed: u64) -> Vec<SharedDevice> {
    let contents = contents.iter().enumerate();
    contents
        .map(|(at, it)| Drive::new(at, it.clone(), log, seed + at as u64) as SharedDevice)
        .collect()
}

/// Waits until everybody has everything.
async fn recovered(rt: &Rt, array: &Array, place: &str) {
    for _ in 0..100 {
        let status = array.status();
        if status.rebuild.is_none() {
            assert!(!status.is_degraded(), "{place}: {status:?}");
            return;
        }
        rt.sleep(Duration::from_ms(100)).await;
    }
    panic!("{place}: {:?}", array.status());
}

async fn examine(rt: &Rt, life: &Life, happened: usize, copies: usize, seed: u64) {
    let place = format!("seed {seed}, cut after {happened} events");
    let mut rng = Rng::new(seed ^ happened as u64);
    let left = cut(&life.start, &life.events[..happened], &mut rng);
    let log = Log::default();
    let mut devices = drives(&left, &log, seed);
    if rng.below(2) == 0 {
        devices.reverse();
    }
    let array = match open(rt, &devices).await {
        Ok(array) => array,
        Err(error) => panic!("{place}: {error}"),
    };
    let seen = read_all(&array, life).await;
    for (lba, value) in &seen {
        assert!(
            life.history.allows(*lba, *value, happened),
            "{place}: block {lba} holds {value:#x}"
        );
    }
    // By whichever copy, each time.
    assert_eq!(read_all(&array, life).await, seen, "{place}");
    let while_it_recovers = log.borrow().len();
    recovered(rt, &array, &place).await;
    assert_eq!(read_all(&array, life).await, seen, "{place}");
    drop(array);
    again(
        rt,
        life,
        &left,
        &log,
        while_it_recovers,
        (copies, &seen, &place),
    )
    .await;
}

/// Cuts the recovery too: what was read then does not change. When nothing is cut any more, each
/// member has all of it.
async fn again(
    rt: &Rt,
    life: &Life,
    left: &[Content],
    log: &Log,
    while_it_recovers: usize,
    (copies, seen, place): (usize, &BTreeMap<u64, u8>, &str),
) {
    let events = log.borrow().clone();
    let mut rng = Rng::new(events.len() as u64);
    let behind = while_it_recovers as u64;
    let cut_at = behind + rng.below(events.len() as u64 - behind + 1);
    let twice = cut(left, &events[..cut_at as usize], &mut rng);
    let second = Log::default();
    let devices = drives(&twice, &second, 5);
    let array = open(rt, &devices)
        .await
        .unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_eq!(
        &read_all(&array, life).await,
        seen,
        "{place}: after a second cut"
    );
    recovered(rt, &array, place).await;
    array.close().await;
    drop(array);
    let whole = cut(&twice, &second.borrow(), &mut rng);
    for alone in 0..whole.len().min(copies) {
        // Of one set each member is enough, and knows it if it is known that no other went on.
        if whole.len() > copies {
            break;
        }
        let third = Log::default();
        let devices = drives(&whole, &third, 9);
        let one = std::slice::from_ref(&devices[alone]);
        if copies > 1 {
            let refused = open(rt, one).await.err();
            assert!(
                matches!(refused, Some(ArrayError::MayBeOld(_))),
                "{place}: {refused:?}"
            );
        }
        let array = open_degraded(rt, one).await;
        let array = array.unwrap_or_else(|error| panic!("{place}: {error}"));
        assert_eq!(
            &read_all(&array, life).await,
            seen,
            "{place}: member {alone} alone"
        );
    }
}

fn cuts(members: usize, copies: usize, dies: bool, seeds: std::ops::Range<u64>) {
    in_world(async move |rt: Rt| {
        for seed in seeds {
            let life = live(&rt, members, copies, seed, dies).await;
            for happened in life.made..=life.events.len() {
                examine(&rt, &life, happened, copies, seed).await;
            }
        }
    });
}

#[test]
fn two_copies_bear_every_cut() {
    cuts(2, 2, false, 0..2);
}

#[test]
fn two_copies_bear_every_cut_and_the_loss_of_one() {
    cuts(2, 2, true, 10..12);
}

#[test]
fn three_copies_bear_every_cut_and_the_loss_of_one() {
    cuts(3, 3, true, 20..21);
}

#[test]
fn two_mirrors_bear_every_cut_and_the_loss_of_a_member() {
    cuts(4, 2, true, 30..31);
}

/// After a member has failed and more was written, the others open without it and it does not open
/// without them.
#[test]
fn a_member_that_was_left_behind_is_never_the_truth() {
    in_world(async |rt: Rt| {
        for seed in 40..44 {
            let life = live(&rt, 2, 2, seed, true).await;
            let mut rng = Rng::new(seed);
            let left = cut(&life.start, &life.events, &mut rng);
            let devices = drives(&left, &Log::default(), 1);
            let old = open(&rt, &devices[1..]).await.err();
            assert!(matches!(old, Some(ArrayError::MayBeOld(_))), "{old:?}");
            let array = open(&rt, &devices[..1])
                .await
                .expect("its failure is recorded");
            let seen = read_all(&array, &life).await;
            for (lba, value) in &seen {
                assert!(life.history.allows(*lba, *value, life.events.len()));
            }
            drop(array);
            // It is used by force, and so is the other one: both have data that the other lacks.
            let old = open_degraded(&rt, &devices[1..]).await.expect("by force");
            drop(old);
            let both = open(&rt, &devices).await.err();
            assert!(matches!(both, Some(ArrayError::Diverged(..))), "{both:?}");
            let both = Array::open(
                &rt,
                new(&devices),
                None,
                flashyard_block::array::Options::default(),
                true,
            );
            assert!(both.await.is_err(), "not by force either");
        }
    });
}

/// A member that is away for a while gets what it lacks and no more.
#[test]
fn a_member_that_comes_back_gets_only_what_it_lacks() {
    in_world(async |rt: Rt| {
        let log = Log::default();
        let contents = vec![Content::zeroes(40 * MIB); 2];
        let drives: Vec<Rc<Drive>> = (0..2)
            .map(|at| Drive::new(at, contents[at].clone(), &log, 3))
            .collect();
        let devices: Vec<SharedDevice> =
            drives.iter().map(|it| it.clone() as SharedDevice).collect();
        let array = plain(&rt, &devices, 2).await;
        for region in 0..30 {
            write(&array, region * 256, BLOCK, 1)
                .await
                .expect("both work");
        }
        flush(&array).await.expect("both work");
        rt.sleep(Duration::from_secs(20)).await;
        assert_eq!(array.status().dirty_regions, 0);
        drives[1].dead.set(true);
        write(&array, 256, BLOCK, 2).await.expect("one works");
        assert_eq!(array.status().members[1].state, MemberState::Failed);
        rt.sleep(Duration::from_secs(20)).await;
        drives[1].dead.set(false);
        drop(array);
        let array = open(&rt, &devices).await.expect("both are there");
        recovered(&rt, &array, "back").await;
        let copied = array.status().members[1].counts.copied_bytes;
        assert!(copied > 0 && copied <= 4 * MIB as u64, "{copied} bytes");
        let alone = open_degraded(&rt, &devices[1..])
            .await
            .expect("it has everything");
        assert_eq!(read(&alone, 256, BLOCK).await, Ok(vec![2; BLOCK]));
    });
}

/// A member that dies anywhere in the opening does not keep the array from being opened.
#[test]
fn a_member_that_dies_while_the_array_is_opened_is_done_without() {
    in_world(async |rt: Rt| {
        let life = live(&rt, 2, 2, 50, false).await;
        let left = cut(&life.start, &life.events, &mut Rng::new(50));
        for ios in 0..24 {
            let log = Log::default();
            let dying = Drive::new(1, left[1].clone(), &log, 2);
            dying.dies_after(ios);
            let other = Drive::new(0, left[0].clone(), &log, 1);
            let devices: [SharedDevice; 2] = [other, dying];
            let array = open_degraded(&rt, &devices).await;
            let array = array.unwrap_or_else(|error| panic!("after {ios} I/Os: {error}"));
            for (lba, value) in read_all(&array, &life).await {
                let allowed = life.history.allows(lba, value, life.events.len());
                assert!(allowed, "after {ios} I/Os: block {lba} holds {value:#x}");
            }
        }
    });
}
