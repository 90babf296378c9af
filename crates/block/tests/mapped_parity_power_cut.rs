//! The power is cut under a mapped pool on parity: of what was not flushed on each member any
//! subset survives, torn between sectors. Members fail before, are missing at the cut, and go after
//! it. Flushed data are there, every block is as some write since left it, what was read once stays
//! through a cut of the recovery, and all of it without any members that parity bears the loss of.

mod arrays;

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use arrays::{ARRAY, Drive, Log, cut, in_world, named, new};
use flashyard_block::array::{Array, Layout, Options};
use flashyard_block::pool::{MappedOptions, MappedPool, NewVolume};
use flashyard_block::{DeviceExt, SharedDevice, Tag};
use flashyard_runtime::{Buf, Rt};
use flashyard_testbed::{Event, read};
use flashyard_time::{Duration, Rng};

const MIB: usize = 1 << 20;
const BLOCK: usize = 4096;
/// Blocks of the volume that are written.
const BLOCKS: u64 = 384;
/// Checkpoints come often.
const OPTIONS: MappedOptions = MappedOptions { records: Some(300) };

/// A write of a block: when it began and when it was durable, in events of all members.
#[derive(Clone, Copy)]
struct Written {
    began: usize,
    durable: usize,
    value: u32,
}

struct Life {
    start: Vec<Vec<u8>>,
    events: Vec<(usize, Event)>,
    made: usize,
    parity: usize,
    writes: BTreeMap<u64, Vec<Written>>,
}

impl Life {
    fn begin(&mut self, blocks: Range<u64>, began: usize, value: u32) {
        for block in blocks {
            let durable = usize::MAX;
            let written = Written {
                began,
                durable,
                value,
            };
            self.writes.entry(block).or_default().push(written);
        }
    }

    /// Whether a block may have a value after a cut.
    fn allows(&self, block: u64, value: u32, happened: usize) -> bool {
        let Some(writes) = self.writes.get(&block) else {
            return value == 0;
        };
        let durable = writes.iter().rposition(|it| it.durable <= happened);
        let mut newer = writes[durable.unwrap_or(0)..].iter();
        (durable.is_none() && value == 0)
            || newer.any(|it| it.began <= happened && it.value == value)
    }
}

fn member_bytes(columns: usize, parity: usize) -> usize {
    (9 + 40_usize.div_ceil(columns - parity)) * MIB
}

async fn live(rt: &Rt, columns: usize, parity: usize, seed: u64, dies: bool) -> Life {
    let log = Log::default();
    let start = vec![vec![0; member_bytes(columns, parity)]; columns];
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
    let array: SharedDevice = Rc::new(array.expect("devices that hold nothing"));
    let pool = MappedPool::create(rt, array, [7; 16], OPTIONS).await;
    let pool = pool.expect("it is large enough");
    let wanted = vec![NewVolume::new("v", [1; 16], 1 << 30)];
    let volume = pool
        .create_volumes(wanted)
        .await
        .expect("there is room")
        .remove(0);
    let mut life = Life {
        start,
        events: Vec::new(),
        made: log.borrow().len(),
        parity,
        writes: BTreeMap::new(),
    };
    let mut rng = Rng::new(seed);
    let dead_at = 20 + rng.below(40);
    for step in 0..90 {
        if dies && step == dead_at {
            drives[1].dead.set(true);
        }
        let first = rng.below(BLOCKS - 32);
        let blocks = first..first + 1 + rng.below(32);
        let (tag, count) = (Tag::default(), blocks.end - blocks.start);
        let began = log.borrow().len();
        match rng.below(9) {
            0 | 1 => {
                volume.flush(tag).await.expect("enough work");
                let now = log.borrow().len();
                for it in life.writes.values_mut().flatten() {
                    it.durable = it.durable.min(now);
                }
            }
            2 => {
                life.begin(blocks, began, 0);
                volume
                    .deallocate(tag, first, count)
                    .await
                    .expect("enough work");
            }
            3 => rt.sleep(Duration::from_secs(3)).await,
            _ => {
                let value = 1 + step as u32;
                let mut data = Buf::take(count as usize * BLOCK).expect("memory");
                for word in data.chunks_exact_mut(4) {
                    word.copy_from_slice(&value.to_le_bytes());
                }
                life.begin(blocks, began, value);
                volume
                    .write(tag, first, data, false)
                    .await
                    .expect("enough work");
            }
        }
    }
    life.events.clone_from(&log.borrow());
    life
}

/// The value of each block.
async fn values(pool: &MappedPool) -> Vec<u32> {
    let volume = pool.volume("v").expect("it was made durably");
    let mut values = Vec::new();
    for block in (0..BLOCKS).step_by(32) {
        let bytes = read(&*volume, block, 32 * BLOCK)
            .await
            .expect("parity is enough");
        for block in bytes.chunks_exact(BLOCK) {
            let whole = block.chunks_exact(4).all(|word| *word == block[..4]);
            assert!(whole, "a torn block");
            values.push(u32::from_le_bytes(block[..4].try_into().expect("4 bytes")));
        }
    }
    values
}

fn drives(contents: &[Vec<u8>], log: &Log, seed: u64) -> Vec<SharedDevice> {
    let contents = contents.iter().enumerate();
    contents
        .map(|(at, it)| Drive::new(at, it.clone(), log, seed + at as u64) as SharedDevice)
        .collect()
}

/// Opens what is left without some members.
async fn open(
    rt: &Rt,
    devices: &[SharedDevice],
    without: &[usize],
    place: &str,
) -> (Rc<Array>, MappedPool) {
    let left = (0..devices.len()).filter(|at| !without.contains(at));
    let left = left.map(|at| named(&format!("m{at}"), &devices[at]));
    let array = Array::open(rt, left.collect(), None, Options::default(), true).await;
    let array = Rc::new(array.unwrap_or_else(|error| panic!("{place}, {without:?}: {error}")));
    let pool = MappedPool::open(rt, array.clone(), OPTIONS).await;
    let pool = pool.unwrap_or_else(|error| panic!("{place}, without {without:?}: {error}"));
    (array, pool)
}

async fn examine(rt: &Rt, life: &Life, happened: usize, failed: bool, seed: u64) {
    let place = format!("seed {seed}, cut after {happened} events");
    let mut rng = Rng::new(seed ^ happened as u64);
    let left = cut(&life.start, &life.events[..happened], &mut rng);
    let log = Log::default();
    let devices = drives(&left, &log, seed);
    let columns = devices.len();
    let bears = life.parity - usize::from(failed);
    let first = rng.below(columns as u64) as usize;
    let missing: Vec<usize> = match rng.below(2) {
        0 => Vec::new(),
        _ => (0..bears).map(|at| (first + at) % columns).collect(),
    };
    let (array, pool) = open(rt, &devices, &missing, &place).await;
    let found = values(&pool).await;
    for (block, value) in (0..).zip(&found) {
        assert!(
            life.allows(block, *value, happened),
            "{place}: block {block} has {value}"
        );
    }
    drop((pool, array));
    // Everything is cut again as it is, without what was not flushed.
    let again = cut(&left, &log.borrow(), &mut rng);
    let second = Log::default();
    let devices = drives(&again, &second, 5);
    let (array, pool) = open(rt, &devices, &missing, &place).await;
    assert!(
        values(&pool).await == found,
        "{place}: what was read has changed"
    );
    drop((pool, array));
    // Those that were missing come back, old. When all have recovered any others may go.
    let third = Log::default();
    let now = cut(&again, &second.borrow(), &mut rng);
    let devices = drives(&now, &third, 6);
    let (array, pool) = open(rt, &devices, &[], &place).await;
    while array.status().rebuild.is_some() {
        rt.sleep(Duration::from_ms(100)).await;
    }
    assert!(!array.status().is_degraded(), "{place}");
    pool.close().await;
    array.close().await;
    drop((pool, array));
    let whole = cut(&now, &third.borrow(), &mut rng);
    let lost = rng.below(columns as u64) as usize;
    let without: Vec<usize> = (0..life.parity)
        .map(|at| (lost + 2 * at) % columns)
        .collect();
    let devices = drives(&whole, &Log::default(), 9);
    let (_array, pool) = open(rt, &devices, &without, &place).await;
    assert!(values(&pool).await == found, "{place}: without {without:?}");
}

fn rounds() -> u64 {
    let rounds = std::env::var("FLASHYARD_ROUNDS").ok();
    rounds.and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn cuts(columns: usize, parity: usize, dies: bool, seed: u64) {
    in_world(async move |rt: Rt| {
        for seed in seed..seed + rounds() {
            let life = live(&rt, columns, parity, seed, dies).await;
            let mut rng = Rng::new(seed);
            for _ in 0..10 {
                let span = (life.events.len() - life.made) as u64;
                let happened = life.made + rng.below(span + 1) as usize;
                examine(&rt, &life, happened, dies, seed).await;
            }
        }
    });
}

#[test]
fn parity_under_a_pool_bears_cuts_and_the_loss_of_any_member() {
    cuts(3, 1, false, 100);
    cuts(5, 1, false, 200);
}

#[test]
fn parity_under_a_pool_bears_cuts_after_a_member_has_failed() {
    cuts(4, 1, true, 300);
}

#[test]
fn double_parity_under_a_pool_bears_cuts_and_the_loss_of_two_members() {
    cuts(5, 2, false, 400);
    cuts(4, 2, true, 500);
}
