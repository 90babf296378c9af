//! The power is cut under a mapped pool: at every change of its disk in a short life, and at random
//! ones in a life long enough for garbage collection. Of what was not flushed any subset survives,
//! torn between sectors. Flushed data are there, every block is as some write since left it, the
//! check finds nothing wrong, and what was read once stays through a cut of the recovery itself.

mod arrays;
mod encrypted;

use std::collections::BTreeMap;
use std::ops::Range;

use arrays::{in_world, rounds};
use encrypted::{create, try_open};
use flashyard_block::pool::{NewVolume, Pool, PoolError, VolumeForm, check};
use flashyard_block::{DeviceExt, SharedDevice, Tag, Verdict};
use flashyard_codec::compress::Codec;
use flashyard_runtime::Rt;
use flashyard_testbed::cut::after_cut;
use flashyard_testbed::{Content, Disk, Event, filled, read};
use flashyard_time::Rng;

const MIB: usize = 1 << 20;
const BLOCK: usize = 4096;
/// Blocks of the volume that are written.
const BLOCKS: u64 = 2048;

/// How volumes keep their data; which one follows from the seed, and whether it is encrypted.
const FORMS: [VolumeForm; 5] = [
    form(4 << 10, None),
    form(16 << 10, Some(Codec::Lz4)),
    form(4 << 10, Some(Codec::Zstd)),
    form(16 << 10, None),
    form(16 << 10, Some(Codec::Zstd)),
];

const fn form(chunk: u32, compression: Option<Codec>) -> VolumeForm {
    VolumeForm { chunk, compression }
}

/// What a block holds: its value first, and behind that what can be compressed, what cannot, or
/// zeroes. All of it is zeroes where the value is 0.
fn fill(block: &mut [u8], place: u64, value: u32) {
    let mut rng = Rng::new(u64::from(value) << 32 | place);
    block.fill(0);
    match value % 3 {
        _ if value == 0 => {}
        0 => block.fill(value as u8),
        1 => block.chunks_exact_mut(8).for_each(|word| {
            word.copy_from_slice(&rng.next_u64().to_le_bytes());
        }),
        _ => {}
    }
    block[..4].copy_from_slice(&value.to_le_bytes());
}

/// A write of a block: when it began and when it was durable, in events of the disk.
#[derive(Clone, Copy)]
struct Written {
    began: usize,
    durable: usize,
    value: u32,
}

/// What a host did with a volume.
#[derive(Default)]
struct History {
    writes: BTreeMap<u64, Vec<Written>>,
}

impl History {
    fn begin(&mut self, blocks: Range<u64>, began: usize, value: u32) {
        for block in blocks {
            let written = Written {
                began,
                durable: usize::MAX,
                value,
            };
            self.writes.entry(block).or_default().push(written);
        }
    }

    /// All that was written so far is durable.
    fn flushed(&mut self, happened: usize) {
        for written in self.writes.values_mut().flatten() {
            written.durable = written.durable.min(happened);
        }
    }

    /// The last write of each block is.
    fn durable(&mut self, blocks: Range<u64>, happened: usize) {
        for block in blocks {
            let writes = self.writes.get_mut(&block).into_iter().flatten();
            for written in writes {
                written.durable = written.durable.min(happened);
            }
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

/// A host at work on a volume of a mapped pool.
struct Life {
    disk: Disk,
    pool: Pool,
    volume: SharedDevice,
    rng: Rng,
    history: History,
    value: u32,
    start: usize,
}

impl Life {
    async fn new(rt: &Rt, seed: u64) -> Self {
        let disk = Disk::new(BLOCK as u32, vec![0; 33 * MIB], seed);
        let pool = create(rt, &disk.shared(), [7; 16], seed.is_multiple_of(2)).await;
        let wanted = NewVolume {
            form: FORMS[seed as usize % FORMS.len()],
            ..NewVolume::new("v", [1; 16], 1 << 30)
        };
        let volume = pool.create_volumes(vec![wanted]).await.unwrap().remove(0);
        Self {
            start: disk.happened(),
            disk,
            pool,
            volume,
            rng: Rng::new(seed),
            history: History::default(),
            value: 0,
        }
    }

    async fn step(&mut self) {
        let first = self.rng.below(BLOCKS - 32);
        let blocks = first..first + 1 + self.rng.below(32);
        let (tag, count) = (Tag::default(), blocks.end - blocks.start);
        let began = self.disk.happened();
        match self.rng.below(10) {
            0 => {
                self.volume.flush(tag).await.unwrap();
                self.history.flushed(self.disk.happened());
            }
            1 => {
                self.history.begin(blocks, began, 0);
                self.volume.deallocate(tag, first, count).await.unwrap();
            }
            chance => {
                self.value += 1;
                let mut data = filled(count as usize * BLOCK, 0);
                for (block, place) in data.chunks_exact_mut(BLOCK).zip(first..) {
                    fill(block, place, self.value);
                }
                self.history.begin(blocks.clone(), began, self.value);
                let fua = chance == 2;
                self.volume.write(tag, first, data, fua).await.unwrap();
                if fua {
                    self.history.durable(blocks, self.disk.happened());
                }
            }
        }
    }
}

/// The value of each block, or that it is torn.
async fn values(pool: &Pool) -> Vec<u32> {
    let volume = pool.volume("v").expect("it was made durably");
    let mut values = Vec::new();
    for block in (0..BLOCKS).step_by(32) {
        let bytes = read(&*volume, block, 32 * BLOCK).await.expect("good media");
        let mut places = block..;
        values.extend(bytes.chunks_exact(BLOCK).map(|block| {
            let value = u32::from_le_bytes(block[..4].try_into().expect("4 bytes"));
            let mut whole = vec![0; BLOCK];
            fill(&mut whole, places.next().expect("a place"), value);
            assert!(*block == whole, "a torn block");
            value
        }));
    }
    values
}

/// Cuts the power after so many events, and once more in the recovery.
async fn cut(rt: &Rt, life: &Life, events: &[Event], happened: usize, seed: u64) {
    let place = format!("seed {seed}, cut after {happened} events");
    let blank = Content::zeroes(life.disk.content().size());
    let left = after_cut(&blank, &events[..happened], seed ^ happened as u64);
    let disk = Disk::new(BLOCK as u32, left.clone(), seed);
    let report = check(rt, disk.shared()).await.expect("it can be read");
    assert_ne!(report.verdict(), Verdict::Lost, "{place}: {report}");
    assert!(disk.content() == left, "{place}: a check writes nothing");

    let pool = try_open(rt, &disk.shared()).await.expect(&place);
    assert_eq!(
        pool.info().bytes,
        life.pool.info().bytes,
        "{place}: all of the disk"
    );
    let found = values(&pool).await;
    for (block, value) in (0..).zip(&found) {
        assert!(
            life.history.allows(block, *value, happened),
            "{place}: block {block} has {value}"
        );
    }
    pool.close().await;
    let again = disk.events();
    let cut = seed as usize * 31 % (again.len() + 1);
    let left = after_cut(&left, &again[..cut], seed);
    let disk = Disk::new(BLOCK as u32, left, seed);
    let pool = try_open(rt, &disk.shared()).await.expect(&place);
    // Nothing was read before the incarnation was durable, if the cut came before that.
    if cut == again.len() {
        assert!(
            values(&pool).await == found,
            "{place}: what was read has changed"
        );
    } else {
        for (block, value) in (0..).zip(values(&pool).await) {
            assert!(life.history.allows(block, value, happened), "{place}");
        }
    }
    pool.close().await;
    let report = check(rt, disk.shared()).await.expect("it can be read");
    assert_ne!(report.verdict(), Verdict::Lost, "{place}: {report}");
}

#[test]
fn a_cut_at_every_change_loses_nothing_that_was_flushed() {
    for seed in 0..3 * rounds() {
        in_world(async move |rt: Rt| {
            let mut life = Life::new(&rt, seed).await;
            for _ in 0..30 {
                life.step().await;
            }
            life.pool.close().await;
            let events = life.disk.events();
            assert!(events.len() > life.start + 30, "the host was at work");
            for happened in life.start..=events.len() {
                cut(&rt, &life, &events, happened, seed).await;
            }
            eprintln!("cut {}", events.len() + 1 - life.start);
        });
    }
}

#[test]
fn a_cut_at_every_change_while_the_pool_takes_up_a_larger_disk_loses_nothing() {
    for seed in 200..200 + 2 * rounds() {
        in_world(async move |rt: Rt| {
            let mut life = Life::new(&rt, seed).await;
            for _ in 0..10 {
                life.step().await;
            }
            let before = life.pool.info().bytes;
            life.disk.bytes().resize(67 * MIB, 0);
            life.start = life.disk.happened();
            let pool = life.pool.clone();
            let grown = rt.spawn(async move { pool.extend().await });
            for _ in 0..10 {
                life.step().await;
            }
            grown.await.expect("the disk takes writes");
            let after = life.pool.info().bytes;
            assert!(after > before + 20 * MIB as u64, "{before} {after}");
            life.pool.extend().await.expect("there is no more");
            life.pool.close().await;
            let events = life.disk.events();
            for happened in life.start..=events.len() {
                cut(&rt, &life, &events, happened, seed).await;
            }
            eprintln!("cut {}", events.len() + 1 - life.start);
        });
    }
}

#[test]
fn a_smaller_disk_is_refused_and_one_that_has_grown_is_used_when_it_is_opened() {
    in_world(async |rt: Rt| {
        let mut life = Life::new(&rt, 1).await;
        life.step().await;
        life.pool.close().await;
        for bytes in [34 * MIB, 50 * MIB, 50 * MIB - BLOCK] {
            let mut content = life.disk.content().bytes();
            content.resize(bytes, 0);
            let disk = Disk::new(BLOCK as u32, content, 1);
            let pool = try_open(&rt, &disk.shared()).await.expect("it is whole");
            let report = (pool.info().bytes, bytes);
            assert!(pool.info().bytes > life.pool.info().bytes, "{report:?}");
            pool.close().await;
            let content = disk.content().bytes();
            for less in [bytes - MIB, 33 * MIB - BLOCK] {
                let smaller = Disk::new(BLOCK as u32, content[..less].to_vec(), 1);
                let refused = try_open(&rt, &smaller.shared()).await;
                let why = refused.err().expect("it is smaller").to_string();
                assert!(why.contains("give it its size back"), "{why}");
                assert!(*smaller.bytes() == content[..less], "nothing is written");
            }
        }
    });
}

#[test]
fn a_cut_at_every_change_of_an_exchange_leaves_each_name_with_one_volume() {
    in_world(async |rt: Rt| {
        let mut life = Life::new(&rt, 300).await;
        let other = NewVolume::new("other", [2; 16], 8 << 20);
        life.pool.create_volumes(vec![other]).await.unwrap();
        life.start = life.disk.happened();
        let unknown = life.pool.exchange([1; 16], [9; 16]).await;
        assert!(
            matches!(unknown, Err(PoolError::NoUuid(uuid)) if uuid == [9; 16]),
            "{unknown:?}"
        );
        life.pool
            .exchange([1; 16], [2; 16])
            .await
            .expect("both are there");
        let sizes = |pool: &Pool| {
            let volumes = pool.list().into_iter();
            let facts = volumes.map(|it| (it.name, it.uuid[0], it.bytes));
            facts.collect::<Vec<_>>()
        };
        let (small, large) = (8 << 20, 1 << 30);
        let named = |other, v| vec![("other".into(), 2, other), ("v".into(), 1, v)];
        assert_eq!(sizes(&life.pool), named(large, small));
        life.pool.close().await;
        let (events, mut seen) = (life.disk.events(), [0; 2]);
        for happened in life.start..=events.len() {
            let left = after_cut(
                &Content::zeroes(33 * MIB),
                &events[..happened],
                happened as u64,
            );
            let disk = Disk::new(BLOCK as u32, left, 1);
            let pool = try_open(&rt, &disk.shared()).await.expect("it is whole");
            let found = sizes(&pool);
            let exchanged = found == named(large, small);
            assert!(exchanged || found == named(small, large), "{found:?}");
            seen[usize::from(exchanged)] += 1;
            pool.close().await;
        }
        assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    });
}

#[test]
fn random_cuts_of_a_life_with_garbage_collection_lose_nothing_that_was_flushed() {
    for seed in 100..100 + 2 * rounds() {
        in_world(async move |rt: Rt| {
            let mut life = Life::new(&rt, seed).await;
            for _ in 0..900 {
                life.step().await;
            }
            let Pool::Mapped(pool) = &life.pool else {
                panic!("it was made mapped");
            };
            let stats = pool.stats();
            assert!(stats.checkpoints > 10 && stats.victims > 10, "{stats:?}");
            life.pool.close().await;
            let events = life.disk.events();
            let mut rng = Rng::new(seed);
            for _ in 0..8 {
                let span = (events.len() - life.start) as u64;
                let happened = life.start + rng.below(span + 1) as usize;
                cut(&rt, &life, &events, happened, seed).await;
            }
            eprintln!("cut 8");
        });
    }
}
