//! The power is cut under a mapped pool on a mirror or on parity, with snapshots; by the seed it is
//! encrypted, and its volume compressed. Of what was not flushed on each member any subset
//! survives, torn between sectors. Members fail before, are missing at the cut, fail while what was
//! left is recovered, and go after that. Flushed data are there, every block is as some write since
//! left it, snapshots are exactly what they were, what was read once stays through a cut of the
//! recovery, and all of it without any members that the array bears the loss of.

mod arrays;
mod encrypted;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use arrays::{ARRAY, Drive, Log, cut, in_world, named, new, rounds};
use encrypted::secret;
use flashyard_block::array::{Array, Layout, Options};
use flashyard_block::pool::{
    KeyHeader, MappedOptions, MappedPool, NewSnapshot, NewVolume, VolumeForm, check,
};
use flashyard_block::{Device, DeviceExt, SharedDevice, Tag, Verdict};
use flashyard_codec::compress::Codec;
use flashyard_runtime::{Buf, Rt};
use flashyard_testbed::{Content, Event, read};
use flashyard_time::{Duration, Rng};

const MIB: usize = 1 << 20;
const BLOCK: usize = 4096;
/// Blocks of the volume that are written.
const BLOCKS: u64 = 384;
/// Cuts of a life.
const CUTS: u64 = 6;
/// Checkpoints come often.
const OPTIONS: MappedOptions = MappedOptions {
    records: Some(300),
    leaves: None,
};
const POOL: [u8; 16] = [7; 16];

/// How volumes keep their data; which one follows from the seed.
const FORMS: [(u32, Option<Codec>); 5] = [
    (16 << 10, Some(Codec::Lz4)),
    (4 << 10, None),
    (4 << 10, Some(Codec::Zstd)),
    (16 << 10, Some(Codec::Zstd)),
    (16 << 10, None),
];

/// What the pool stands on, and whether a member dies under it.
#[derive(Clone, Copy, Debug)]
struct Stack {
    /// Of each set.
    members: usize,
    /// Sets; all but the first are added in the middle of the life.
    sets: usize,
    /// Columns of parity; none in a mirror.
    parity: usize,
    dies: bool,
}

impl Stack {
    /// Members that may be lost.
    fn bears(self) -> usize {
        match self.parity {
            0 => self.members - 1,
            parity => parity,
        }
    }

    fn all(self) -> usize {
        self.sets * self.members
    }

    /// Hardly more than the least a pool can be on: all of it is read and compared.
    fn member_bytes(self) -> usize {
        match self.parity {
            0 => 36 * MIB,
            parity => (7 + 34_usize.div_ceil(self.members - parity)) * MIB,
        }
    }
}

/// What a block holds: zeroes for 0, else words of its value, or what cannot be compressed.
fn fill(block: &mut [u8], value: u32) {
    for (word, at) in block.chunks_exact_mut(4).zip(0u32..) {
        let noise = at.wrapping_mul(0x9e37_79b9).rotate_left(value % 31) ^ at << 7;
        let content = match value % 3 {
            1 if at > 0 => noise.wrapping_mul(value | 1),
            _ => value,
        };
        word.copy_from_slice(&content.to_le_bytes());
    }
}

/// A write of a block: when it began and when it was durable, in events of all members.
#[derive(Clone, Copy)]
struct Written {
    began: usize,
    durable: usize,
    value: u32,
}

/// A snapshot: when it began and was there, when its end began and it was gone, and what it holds.
struct Moment {
    name: String,
    began: usize,
    made: usize,
    ending: usize,
    gone: usize,
    values: Vec<u32>,
}

struct Life {
    stack: Stack,
    start: Vec<Content>,
    events: Vec<(usize, Event)>,
    made: usize,
    /// When a member died.
    died: usize,
    /// When the array began to grow, and had grown.
    growing: usize,
    grown: usize,
    writes: BTreeMap<u64, Vec<Written>>,
    snapshots: Vec<Moment>,
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

    /// All that was written so far is durable.
    fn flushed(&mut self, now: usize) {
        for it in self.writes.values_mut().flatten() {
            it.durable = it.durable.min(now);
        }
    }

    fn last(&self, block: u64) -> u32 {
        let writes = self.writes.get(&block);
        writes.and_then(|them| them.last()).map_or(0, |it| it.value)
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

/// A host at work.
struct Host {
    rt: Rt,
    log: Log,
    drives: Vec<Rc<Drive>>,
    pool: MappedPool,
    volume: SharedDevice,
    /// Somebody else's, who never flushes.
    other: SharedDevice,
    rng: Rng,
    life: Life,
    array: Rc<Array>,
}

impl Host {
    async fn new(rt: &Rt, stack: Stack, seed: u64) -> Self {
        let log = Log::default();
        let start = vec![Content::zeroes(stack.member_bytes()); stack.all()];
        let drives: Vec<Rc<Drive>> = (0..stack.all())
            .map(|at| Drive::new(at, start[at].clone(), &log, seed + at as u64))
            .collect();
        let first = &drives[..stack.members];
        let devices: Vec<_> = first.iter().map(|it| it.clone() as SharedDevice).collect();
        let layout = Layout {
            copies: stack.members,
            parity: stack.parity,
            safe_read: false,
        };
        let array = Array::create(rt, new(&devices), ARRAY, layout, Options::default(), false);
        let array = Rc::new(array.await.expect("devices that hold nothing"));
        let pool = make(rt, array.clone(), seed.is_multiple_of(2)).await;
        let (chunk, compression) = FORMS[seed as usize % FORMS.len()];
        let wanted = NewVolume {
            form: VolumeForm { chunk, compression },
            ..NewVolume::new("v", [1; 16], 1 << 30)
        };
        let wanted = vec![wanted, NewVolume::new("other", [2; 16], 1 << 30)];
        let made = pool.create_volumes(wanted).await;
        let mut made = made.expect("there is room");
        let (other, volume) = (made.remove(1), made.remove(0));
        let life = Life {
            stack,
            start,
            events: Vec::new(),
            made: log.borrow().len(),
            died: usize::MAX,
            growing: usize::MAX,
            grown: usize::MAX,
            writes: BTreeMap::new(),
            snapshots: Vec::new(),
        };
        Self {
            rt: rt.clone(),
            log,
            drives,
            pool,
            volume,
            other,
            rng: Rng::new(seed),
            life,
            array,
        }
    }

    fn now(&self) -> usize {
        self.log.borrow().len()
    }

    async fn step(&mut self, value: u32) {
        let first = self.rng.below(BLOCKS - 32);
        let blocks = first..first + 1 + self.rng.below(32);
        let (tag, count) = (Tag::default(), blocks.end - blocks.start);
        let began = self.now();
        match self.rng.below(10) {
            0 | 1 => {
                self.volume.flush(tag).await.expect("enough work");
                self.life.flushed(self.now());
            }
            2 => {
                self.life.begin(blocks, began, 0);
                let trimmed = self.volume.deallocate(tag, first, count).await;
                trimmed.expect("enough work");
            }
            3 => self.rt.sleep(Duration::from_secs(3)).await,
            4 => self.change_snapshots(value).await,
            5 => {
                let data = Buf::take_zeroed(count as usize * BLOCK).expect("memory");
                let written = self.other.write(tag, first, data, false).await;
                written.expect("enough work");
            }
            _ => {
                let mut data = Buf::take(count as usize * BLOCK).expect("memory");
                for block in data.chunks_exact_mut(BLOCK) {
                    fill(block, value);
                }
                self.life.begin(blocks, began, value);
                let written = self.volume.write(tag, first, data, false).await;
                written.expect("enough work");
            }
        }
    }

    /// The array grows by its other sets, and the pool with it.
    async fn grow(&mut self) {
        let devices = self.drives.iter().map(|it| it.clone() as SharedDevice);
        let devices: Vec<_> = devices.collect();
        let more = new(&devices)[self.life.stack.members..].to_vec();
        let before = self.pool.info().bytes;
        self.array
            .add(more, false)
            .await
            .expect("they hold nothing");
        self.pool.extend().await.expect("enough work");
        assert!(self.pool.info().bytes > before + 16 * MIB as u64);
    }

    /// Makes a snapshot, or deletes one.
    async fn change_snapshots(&mut self, value: u32) {
        let began = self.now();
        let there = self.life.snapshots.iter();
        let oldest = there
            .filter(|it| it.gone == usize::MAX)
            .map(|it| it.name.clone());
        if let Some(oldest) = oldest.clone().next().filter(|_| oldest.count() > 2) {
            let deleted = self.pool.delete_snapshot("v", &oldest).await;
            deleted.expect("it has no clones");
            let now = self.now();
            let mut snapshots = self.life.snapshots.iter_mut();
            let gone = snapshots.find(|it| it.name == oldest).expect("it is there");
            (gone.ending, gone.gone) = (began, now);
            return;
        }
        let name = format!("s{value}");
        let wanted = NewSnapshot {
            volume: "v".into(),
            name: name.clone(),
            uuid: u128::from(value).to_le_bytes(),
        };
        let made = self.pool.snapshot(vec![wanted], 1000).await;
        made.expect("enough work");
        let made = self.now();
        self.life.flushed(made);
        let values = (0..BLOCKS).map(|block| self.life.last(block)).collect();
        self.life.snapshots.push(Moment {
            name,
            began,
            made,
            ending: usize::MAX,
            gone: usize::MAX,
            values,
        });
    }
}

async fn make(rt: &Rt, array: SharedDevice, encrypted: bool) -> MappedPool {
    let pool = match encrypted {
        false => MappedPool::create(rt, array, POOL, OPTIONS).await,
        true => {
            let with = KeyHeader::make(POOL, &secret(b'a')).expect("there is chance");
            MappedPool::create_encrypted(rt, array, with, OPTIONS).await
        }
    };
    pool.expect("it is large enough")
}

async fn live(rt: &Rt, stack: Stack, seed: u64) -> Life {
    let mut host = Host::new(rt, stack, seed).await;
    let dead_at = 20 + host.rng.below(40) as u32;
    for step in 0..90 {
        if stack.dies && step == dead_at {
            host.drives[1].dead.set(true);
            host.life.died = host.now();
        }
        if stack.sets > 1 && step == 45 {
            host.life.growing = host.now();
            host.grow().await;
            host.life.grown = host.now();
        }
        host.step(1 + step).await;
    }
    assert!(!host.life.snapshots.is_empty(), "chance gave none");
    host.life.events = host.log.take();
    host.life
}

/// The value of each block of a volume or snapshot.
async fn values(device: &dyn Device) -> Vec<u32> {
    let mut values = Vec::new();
    // Blocks of one write are alike.
    let mut whole = vec![0; BLOCK];
    let mut filled = 0;
    for block in (0..BLOCKS).step_by(32) {
        let bytes = read(device, block, 32 * BLOCK).await;
        for block in bytes.expect("enough is left").chunks_exact(BLOCK) {
            let value = u32::from_le_bytes(block[..4].try_into().expect("4 bytes"));
            if filled != value {
                fill(&mut whole, value);
                filled = value;
            }
            assert!(block == whole, "a torn block");
            values.push(value);
        }
    }
    values
}

/// What was found of the volume, and the names of its snapshots.
#[derive(PartialEq, Eq, Debug)]
struct Found(Vec<u32>, Vec<String>);

/// Looks at all there is, and whether it may be so after a cut.
async fn look(pool: &MappedPool, life: &Life, happened: usize, place: &str) -> Found {
    let volume = pool.volume("v").expect("it was made durably");
    let found = values(&*volume).await;
    for (block, value) in (0..).zip(&found) {
        let allowed = life.allows(block, *value, happened);
        assert!(allowed, "{place}: block {block} has {value}");
    }
    let names: Vec<_> = pool.snapshots().into_iter().map(|it| it.name).collect();
    for moment in &life.snapshots {
        let is_there = names.contains(&moment.name);
        let may = moment.began <= happened && happened < moment.gone;
        let must = moment.made <= happened && happened < moment.ending;
        assert!(is_there || !must, "{place}: {} is lost", moment.name);
        assert!(may || !is_there, "{place}: {} is back", moment.name);
        if is_there {
            let uuid: u128 = moment.name[1..].parse().expect("its number");
            let (_, device) = pool.find(uuid.to_le_bytes()).expect("it is listed");
            let same = values(&*device).await == moment.values;
            assert!(same, "{place}: {} has changed", moment.name);
        }
    }
    Found(found, names)
}

fn drives(contents: &[Content], log: &Log, seed: u64) -> Vec<Rc<Drive>> {
    let contents = contents.iter().enumerate();
    contents
        .map(|(at, it)| Drive::new(at, it.clone(), log, seed + at as u64))
        .collect()
}

/// Opens what is left without some members.
async fn open(
    rt: &Rt,
    drives: &[Rc<Drive>],
    without: &[usize],
    place: &str,
) -> (Rc<Array>, MappedPool) {
    let left = (0..drives.len()).filter(|at| !without.contains(at));
    let left = left.map(|at| named(&format!("m{at}"), &(drives[at].clone() as SharedDevice)));
    let array = Array::open(rt, left.collect(), None, Options::default(), true).await;
    let array = Rc::new(array.unwrap_or_else(|error| panic!("{place}, {without:?}: {error}")));
    let header = KeyHeader::find(&*array).await.expect("enough is left");
    let pool = match header {
        None => MappedPool::open(rt, array.clone(), OPTIONS).await,
        Some(header) => {
            let (key, _) = header.open(&secret(b'a')).expect("it is the secret");
            MappedPool::unlock(rt, array.clone(), OPTIONS, key).await
        }
    };
    let pool = pool.unwrap_or_else(|error| panic!("{place}, without {without:?}: {error}"));
    (array, pool)
}

/// Members that are away when the rest is opened, and one that dies after so many I/Os of that.
fn losses(life: &Life, round: u64, rng: &mut Rng) -> (Vec<usize>, Option<(usize, u64)>) {
    let members = life.stack.members;
    let bears = life.stack.bears() - usize::from(life.stack.dies);
    let first = rng.below(members as u64) as usize;
    let kind = if bears == 0 { 0 } else { round % 3 };
    let set = rng.below(life.stack.sets as u64) as usize * members;
    let away = (0..bears).map(|at| set + (first + at) % members);
    match kind {
        0 => (Vec::new(), None),
        2 => (away.collect(), None),
        _ => {
            // The one that died in life is old already.
            let dying = match life.stack.dies && first == 1 {
                true => 0,
                false => first,
            };
            let ios = (1 << rng.below(9)) + rng.below(16);
            (Vec::new(), Some((dying, ios)))
        }
    }
}

/// Cuts, opens, and cuts again; whether a member has died in between.
async fn examine(rt: &Rt, life: &Life, happened: usize, (seed, round): (u64, u64)) -> bool {
    let mut rng = Rng::new(seed ^ happened as u64);
    let (mut missing, dying) = losses(life, round, &mut rng);
    let place =
        format!("seed {seed}, cut after {happened} events, without {missing:?}, dying {dying:?}");
    let left = cut(&life.start, &life.events[..happened], &mut rng);
    let log = Log::default();
    let devices = drives(&left, &log, seed);
    if let Some((dying, ios)) = dying {
        devices[dying].dies_after(ios);
    }
    let (array, pool) = open(rt, &devices, &missing, &place).await;
    let found = look(&pool, life, happened, &place).await;
    let seen = log.borrow().len();
    rt.sleep(Duration::from_ms(rng.below(3000))).await;
    drop((pool, array));
    let died = dying.is_some_and(|(dying, _)| devices[dying].dead.get());
    // The recovery is cut as well, after what was read or before.
    let events = log.borrow().clone();
    let cut_at = match rng.below(2) {
        0 => events.len(),
        _ => rng.below(events.len() as u64 + 1) as usize,
    };
    let again = cut(&left, &events[..cut_at], &mut rng);
    let second = Log::default();
    let devices = drives(&again, &second, 5);
    // The one that has died is back, or is not.
    missing.extend(dying.map(|(dying, _)| dying).filter(|_| rng.below(2) == 0));
    let (array, pool) = open(rt, &devices, &missing, &place).await;
    let known = look(&pool, life, happened, &place).await;
    assert!(
        cut_at < seen || known == found,
        "{place}: what was read has changed"
    );
    drop((pool, array));
    let now = cut(&again, &second.borrow(), &mut rng);
    whole_again(rt, life, &now, &known, happened, (&place, &mut rng)).await;
    died
}

/// All members get what they lack; gives how many blocks a scrub finds that do not agree then.
async fn rebuild(rt: &Rt, array: &Array) -> u64 {
    while array.status().rebuild.is_some() {
        rt.sleep(Duration::from_ms(100)).await;
    }
    array.scrub();
    while array.status().scrub.running {
        rt.sleep(Duration::from_ms(100)).await;
    }
    let members = array.status().members;
    members.iter().map(|it| it.counts.healed).sum()
}

/// The drives of each set: what was to be a set may be spares, if its growth was cut.
fn sets(array: &Array) -> Vec<Vec<usize>> {
    let mut sets = BTreeMap::<usize, Vec<usize>>::new();
    for member in array.status().members {
        if let Some(set) = member.set {
            let drive = member.name[1..].parse().expect("the number of its drive");
            sets.entry(set).or_default().push(drive);
        }
    }
    sets.into_values().collect()
}

/// Those that were missing come back, old, and the power goes again somewhere in their rebuild.
/// When all have recovered any others may go.
async fn whole_again(
    rt: &Rt,
    life: &Life,
    left: &[Content],
    known: &Found,
    happened: usize,
    (place, rng): (&str, &mut Rng),
) {
    let log = Log::default();
    let stack = open(rt, &drives(left, &log, 6), &[], place).await;
    rebuild(rt, &stack.0).await;
    drop(stack);
    let cut_at = rng.below(log.borrow().len() as u64 + 1) as usize;
    let left = &cut(left, &log.borrow()[..cut_at], rng);
    let log = Log::default();
    let devices = drives(left, &log, 7);
    let (array, pool) = open(rt, &devices, &[], place).await;
    let differ = rebuild(rt, &array).await;
    assert_eq!(
        differ, 0,
        "{place}, and after {cut_at} events of the rebuild"
    );
    assert!(!array.status().is_degraded(), "{place}");
    pool.close().await;
    drop(pool);
    let report = check(rt, array.clone()).await.expect("it can be read");
    assert_eq!(report.verdict(), Verdict::Sound, "{place}: {report}");
    let sets = sets(&array);
    array.close().await;
    drop(array);
    let whole = cut(left, &log.borrow(), rng);
    let columns = life.stack.members;
    let lost = rng.below(columns as u64) as usize;
    let apart = if columns > 3 { 2 } else { 1 };
    let of_each = (0..life.stack.bears()).map(|at| (lost + apart * at) % columns);
    let without = sets
        .iter()
        .flat_map(|set| of_each.clone().map(|at| set[at]));
    let without: Vec<usize> = without.collect();
    let devices = drives(&whole, &Log::default(), 9);
    let (_array, pool) = open(rt, &devices, &without, place).await;
    let last = look(&pool, life, happened, place).await;
    assert!(last == *known, "{place}: without {without:?}");
}

fn cuts(members: usize, parity: usize, dies: bool, seed: u64) {
    let sets = 1;
    cuts_of(
        Stack {
            members,
            sets,
            parity,
            dies,
        },
        seed,
    );
}

fn cuts_of(stack: Stack, seed: u64) {
    let dies = stack.dies;
    // One in three is to die in the recovery; that of few I/Os is over before some do.
    let died = Rc::new(Cell::new(0));
    for seed in seed..seed + rounds() {
        let died = Rc::clone(&died);
        // A world of its own: what a seed has found it finds again.
        in_world(async move |rt: Rt| {
            let life = live(&rt, stack, seed).await;
            let mut rng = Rng::new(seed);
            for round in 0..CUTS {
                // Some while the failure of a member is being recorded.
                let (from, to) = match round < CUTS / 2 {
                    true if dies => (life.died, life.events.len().min(life.died + 40)),
                    true if stack.sets > 1 => (life.growing, life.grown),
                    _ => (life.made, life.events.len()),
                };
                let happened = from + rng.below((to - from) as u64 + 1) as usize;
                let one = examine(&rt, &life, happened, (seed, round)).await;
                died.set(died.get() + u64::from(one));
            }
            eprintln!("cut {CUTS}");
        });
    }
    let may_die = stack.bears() > usize::from(dies);
    assert!(died.get() > 0 || !may_die, "none has died in a recovery");
}

#[test]
fn parity_under_a_pool_bears_cuts_and_the_loss_of_any_member() {
    cuts(3, 1, false, 100);
    cuts(5, 1, false, 201);
}

#[test]
fn parity_under_a_pool_bears_cuts_after_a_member_has_failed() {
    cuts(4, 1, true, 302);
}

#[test]
fn double_parity_under_a_pool_bears_cuts_and_the_loss_of_two_members() {
    cuts(5, 2, false, 400);
    cuts(4, 2, true, 508);
    // An opening is cut while the record that it found is on one member only.
    cuts(4, 2, true, 1235);
}

#[test]
fn a_mirror_under_a_pool_bears_cuts_and_the_loss_of_all_members_but_one() {
    cuts(2, 0, false, 600);
    cuts(3, 0, true, 702);
}

/// Sets are added in the middle of the life, which half of the cuts hit.
#[test]
fn an_array_under_a_pool_grows_through_cuts() {
    let stack = |members, parity| Stack {
        members,
        sets: 2,
        parity,
        dies: false,
    };
    cuts_of(stack(3, 1), 800);
    cuts_of(stack(4, 2), 810);
    cuts_of(stack(2, 0), 820);
}

/// At whatever I/O of an opening a member of a mirror dies, the other one gives everything.
#[test]
fn a_member_may_die_at_any_io_of_an_opening() {
    in_world(|rt| async move {
        let stack = Stack {
            members: 2,
            sets: 1,
            parity: 0,
            dies: false,
        };
        let life = live(&rt, stack, 650).await;
        let mut rng = Rng::new(650);
        let happened = life.events.len();
        let left = cut(&life.start, &life.events, &mut rng);
        for (dying, ios) in (1..=24).flat_map(|ios| [(0, ios), (1, ios)]) {
            let devices = drives(&left, &Log::default(), ios);
            devices[dying].dies_after(ios);
            let place = format!("member {dying} dies after {ios} I/Os");
            let (array, pool) = open(&rt, &devices, &[], &place).await;
            assert!(devices[dying].dead.get(), "{place}: it was over before");
            look(&pool, &life, happened, &place).await;
            drop((pool, array));
        }
    });
}
