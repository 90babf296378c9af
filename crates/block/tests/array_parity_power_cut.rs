//! The power is cut after each change of the members of an array with parity, and of what was not
//! flushed on each of them any subset survives, torn between sectors. Members fail before, are
//! missing when it is opened again, and fail after it. What is opened has all rows that were
//! flushed, gives every block the same each time it is read, and when it has recovered so, too,
//! without any members that parity bears the loss of.

mod arrays;

use std::collections::BTreeMap;
use std::rc::Rc;

use arrays::{ARRAY, Drive, Log, cut, in_world, named, new};
use flashyard_block::array::{Array, Layout, Options};
use flashyard_block::{Device, DeviceExt, SharedDevice, Tag};
use flashyard_runtime::{Buf, Rt};
use flashyard_testbed::{Content, Event, flush, read, write};
use flashyard_time::{Duration, Rng};

const MIB: usize = 1 << 20;
const BLOCK: usize = 4096;
/// Superblocks, map, what all have alike, and a region of rows.
const MEMBER: usize = 8 * MIB;
/// Rows that are used, so that those of a region are not all.
const USED: u64 = 40;

/// What was written at a place: from which event on, flushed by which, and the value.
#[derive(Clone, Copy)]
struct Written {
    began: usize,
    flushed: usize,
    value: u8,
}

struct Life {
    start: Vec<Content>,
    events: Vec<(usize, Event)>,
    made: usize,
    /// Rows are written once.
    rows: BTreeMap<u64, Written>,
    /// Blocks in place, again and again.
    blocks: BTreeMap<u64, Vec<Written>>,
    first: u64,
    length: u64,
    parity: usize,
}

async fn live(rt: &Rt, columns: usize, parity: usize, seed: u64, dies: bool) -> Life {
    let log = Log::default();
    let start = vec![Content::zeroes(MEMBER); columns];
    let drives: Vec<Rc<Drive>> = (0..columns)
        .map(|at| Drive::new(at, start[at].clone(), &log, seed + at as u64))
        .collect();
    let devices: Vec<SharedDevice> = drives.iter().map(|it| it.clone() as SharedDevice).collect();
    let layout = Layout {
        copies: columns,
        parity,
        safe_read: false,
    };
    let array = Array::create(rt, new(&devices), ARRAY, layout, Options::default(), false).await;
    let array = array.expect("devices that hold nothing");
    let rows = array.rows().expect("it has parity");
    let (first, length) = (rows.from / BLOCK as u64, rows.bytes / BLOCK as u64);
    let mut life = Life {
        start,
        events: Vec::new(),
        made: log.borrow().len(),
        rows: BTreeMap::new(),
        blocks: BTreeMap::new(),
        first,
        length,
        parity,
    };
    let mut rng = Rng::new(seed);
    let mut next = 0;
    let dead_at = 5 + rng.below(8);
    for step in 0..18u64 {
        if dies && step == dead_at {
            drives[1].dead.set(true);
        }
        let began = log.borrow().len();
        let value = 1 + step as u8;
        let written = Written {
            began,
            flushed: usize::MAX,
            value,
        };
        match rng.below(7) {
            0 | 1 => {
                flush(&array).await.expect("enough work");
                let now = log.borrow().len();
                let fresh = life.rows.values_mut();
                for it in fresh.chain(life.blocks.values_mut().flatten()) {
                    it.flushed = it.flushed.min(now);
                }
            }
            2 => rt.sleep(Duration::from_secs(3)).await,
            3 => {
                let lba = rng.below(6);
                write(&array, lba, BLOCK, value).await.expect("enough work");
                life.blocks.entry(lba).or_default().push(written);
            }
            _ if next < USED => {
                let count = (1 + rng.below(3)).min(USED - next);
                let lba = first + next * length;
                let mut buf = Buf::take((count * length) as usize * BLOCK).expect("memory");
                for (lba, block) in (lba..).zip(buf.chunks_mut(BLOCK)) {
                    block.fill(content(lba, value));
                }
                let done = array.write(Tag::default(), lba, buf, false).await;
                done.expect("enough work");
                for row in next..next + count {
                    life.rows.insert(row, written);
                }
                next += count;
            }
            _ => {}
        }
    }
    life.events.clone_from(&log.borrow());
    life
}

/// What a block of a row has.
fn content(lba: u64, value: u8) -> u8 {
    value.wrapping_mul(37).wrapping_add(lba as u8)
}

/// What every block holds that may have been written, and some others.
async fn read_all(array: &Array, life: &Life) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for lba in (0..6).chain(life.first..life.first + (USED + 2) * life.length) {
        let read = read(array, lba, BLOCK).await;
        found.push(read.expect("enough are there"));
    }
    // Several at once are the same as one by one.
    let whole = (USED + 2) * life.length;
    let all = read(array, life.first, whole as usize * BLOCK).await;
    assert_eq!(all.expect("enough are there"), found[6..].concat());
    found
}

/// Holds what was read against what was promised.
fn check(life: &Life, seen: &[Vec<u8>], happened: usize, place: &str) {
    for (lba, writes) in &life.blocks {
        let durable = writes.iter().rposition(|it| it.flushed <= happened);
        let newer = writes.iter().skip(durable.unwrap_or(0));
        let newer = newer.filter(|it| it.began <= happened);
        let mut allowed: Vec<u8> = newer.map(|it| it.value).collect();
        allowed.extend(durable.is_none().then_some(0));
        let block = &seen[*lba as usize];
        let torn = block.iter().find(|byte| !allowed.contains(byte));
        assert_eq!(torn, None, "{place}: block {lba}, {allowed:?}");
    }
    let durable = life.rows.iter().filter(|(_, it)| it.flushed <= happened);
    for (row, it) in durable {
        for at in row * life.length..(row + 1) * life.length {
            let expected = content(life.first + at, it.value);
            let block = &seen[6 + at as usize];
            let whole = block.iter().all(|byte| *byte == expected);
            assert!(whole, "{place}: row {row} holds {:#x}", block[0]);
        }
    }
}

fn drives(contents: &[Content], log: &Log, seed: u64) -> Vec<SharedDevice> {
    let contents = contents.iter().enumerate();
    contents
        .map(|(at, it)| Drive::new(at, it.clone(), log, seed + at as u64) as SharedDevice)
        .collect()
}

/// Opens what is left without some members.
async fn open_without(rt: &Rt, devices: &[SharedDevice], without: &[usize], place: &str) -> Array {
    let left = (0..devices.len()).filter(|at| !without.contains(at));
    let left = left
        .map(|at| named(&format!("m{at}"), &devices[at]))
        .collect();
    let array = Array::open(rt, left, None, Options::default(), true).await;
    array.unwrap_or_else(|error| panic!("{place}, without {without:?}: {error}"))
}

async fn recovered(rt: &Rt, array: &Array, place: &str) {
    for _ in 0..200 {
        if array.status().rebuild.is_none() {
            return;
        }
        rt.sleep(Duration::from_ms(100)).await;
    }
    panic!("{place}: {:?}", array.status());
}

async fn examine(rt: &Rt, life: &Life, happened: usize, failed: bool, seed: u64) {
    let place = format!("seed {seed}, cut after {happened} events");
    let mut rng = Rng::new(seed ^ happened as u64);
    let left = cut(&life.start, &life.events[..happened], &mut rng);
    let log = Log::default();
    let devices = drives(&left, &log, seed);
    // One may have failed before; as many are missing now as are borne then.
    let columns = devices.len();
    let bears = life.parity - usize::from(failed);
    let first = rng.below(columns as u64) as usize;
    let missing: Vec<usize> = match rng.below(2) {
        0 => Vec::new(),
        _ => (0..bears).map(|at| (first + at) % columns).collect(),
    };
    let array = open_without(rt, &devices, &missing, &place).await;
    let seen = read_all(&array, life).await;
    check(life, &seen, happened, &place);
    assert_eq!(read_all(&array, life).await, seen, "{place}: again");
    let while_it_recovers = log.borrow().len();
    recovered(rt, &array, &place).await;
    assert_eq!(read_all(&array, life).await, seen, "{place}: recovered");
    drop(array);
    // The recovery is cut, and the same members are missing.
    let events = log.borrow().clone();
    let behind = (events.len() - while_it_recovers) as u64;
    let cut_at = while_it_recovers + rng.below(behind + 1) as usize;
    let twice = cut(&left, &events[..cut_at], &mut rng);
    let second = Log::default();
    let devices = drives(&twice, &second, 5);
    let array = open_without(rt, &devices, &missing, &place).await;
    assert_eq!(read_all(&array, life).await, seen, "{place}: cut twice");
    drop(array);
    // They come back, old; all recover. Then any others may go.
    let array = open_without(rt, &devices, &[], &place).await;
    assert_eq!(read_all(&array, life).await, seen, "{place}: all");
    recovered(rt, &array, &place).await;
    assert!(!array.status().is_degraded(), "{place}");
    array.close().await;
    drop(array);
    let whole = cut(&twice, &second.borrow(), &mut rng);
    for lost in 0..columns {
        let without: Vec<usize> = (0..life.parity)
            .map(|at| (lost + at * 2) % columns)
            .collect();
        let devices = drives(&whole, &Log::default(), 9);
        let array = open_without(rt, &devices, &without, &place).await;
        let now = read_all(&array, life).await;
        assert!(now == seen, "{place}: without {without:?} it is different");
    }
}

fn cuts(columns: usize, parity: usize, dies: bool, seeds: std::ops::Range<u64>) {
    in_world(async move |rt: Rt| {
        for seed in seeds {
            let life = live(&rt, columns, parity, seed, dies).await;
            let mut happened = life.made + seed as usize % 3;
            while happened <= life.events.len() {
                examine(&rt, &life, happened, dies, seed).await;
                happened += 3;
            }
        }
    });
}

#[test]
fn parity_bears_cuts_and_the_loss_of_any_member_then() {
    cuts(3, 1, false, 0..2);
    cuts(5, 1, false, 2..3);
}

#[test]
fn parity_bears_cuts_after_a_member_has_failed() {
    cuts(4, 1, true, 10..12);
}

#[test]
fn double_parity_bears_cuts_and_the_loss_of_any_two_members_then() {
    cuts(5, 2, false, 20..22);
}

#[test]
fn double_parity_bears_cuts_after_a_member_has_failed() {
    cuts(4, 2, true, 30..32);
}
