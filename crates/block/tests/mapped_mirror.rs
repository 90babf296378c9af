//! A mapped pool on mirrors of which one member tells and keeps wrong things, in silence: whatever
//! is read, by hosts, by garbage collection, of the map or by recovery, is what was written, and
//! what is wrong is written anew from another copy.

mod arrays;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use arrays::{Covered, in_world, memories, new, rounds};
use flashyard_block::array::{Array, Layout, Options};
use flashyard_block::fault::{FaultDevice, FaultKind, FaultOn, FaultRule, Frequency};
use flashyard_block::pool::{MappedOptions, MappedPool, NewVolume, Scrub};
use flashyard_block::{Device, DeviceExt, IoError, SharedDevice, Tag};
use flashyard_runtime::{Buf, Rt};
use flashyard_testbed::read;
use flashyard_time::{Duration, Rng};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// Blocks of the volume that are written.
const BLOCKS: u64 = 4000;
/// The first block of a member with data, behind the first signpost of the pool.
const DATA: u64 = 3 * MIB / BLOCK as u64 + 8;

fn content(seed: u64, blocks: u64) -> Buf {
    let mut buf = Buf::take(blocks as usize * BLOCK).expect("memory");
    for (at, block) in (0..).zip(buf.chunks_exact_mut(BLOCK)) {
        let word = Rng::new(seed).at(at).to_le_bytes();
        block.copy_from_slice(&word.repeat(BLOCK / 8));
    }
    buf
}

struct Life {
    rt: Rt,
    layers: Vec<Rc<FaultDevice>>,
    array: Rc<Array>,
    pool: MappedPool,
    volume: SharedDevice,
    rng: Rng,
    written: BTreeMap<u64, Vec<u8>>,
}

/// Members m0, m1 and so on of layers.
fn members(layers: &[Rc<FaultDevice>]) -> Vec<SharedDevice> {
    layers.iter().map(|it| it.clone() as _).collect()
}

/// Checkpoints come often.
const OPTIONS: MappedOptions = MappedOptions {
    records: Some(1500),
    leaves: None,
};

impl Life {
    async fn new(rt: &Rt, count: usize, copies: usize, seed: u64) -> Self {
        let devices = memories(count, (34 / (count / copies) as u64 + 4) * MIB);
        let layer = |it: &SharedDevice| Rc::new(FaultDevice::new(rt, it.clone(), seed, Vec::new()));
        let layers: Vec<Rc<FaultDevice>> = devices.iter().map(layer).collect();
        let layout = Layout {
            copies,
            parity: 0,
            safe_read: false,
        };
        let new = new(&members(&layers));
        let array = Array::create(rt, new, arrays::ARRAY, layout, Options::default(), false).await;
        let array = Rc::new(array.expect("they hold nothing"));
        let made = MappedPool::create(rt, array.clone(), [7; 16], OPTIONS).await;
        let pool = made.expect("it is large enough");
        let new = vec![NewVolume::new("v", [1; 16], 1 << 30)];
        let volume = pool
            .create_volumes(new)
            .await
            .expect("there is room")
            .remove(0);
        let mut life = Self {
            rt: rt.clone(),
            layers,
            array,
            volume,
            pool,
            rng: Rng::new(seed),
            written: BTreeMap::new(),
        };
        life.reopen().await;
        life
    }

    /// Closes everything and opens it again.
    async fn reopen(&mut self) {
        self.pool.close().await;
        self.array.close().await;
        let devices = members(&self.layers);
        let array = arrays::open(&self.rt, &devices).await;
        self.array = Rc::new(array.expect("all members are there"));
        let pool = MappedPool::open(&self.rt, self.array.clone(), OPTIONS).await;
        self.pool = pool.expect("one copy of everything is good");
        self.volume = self.pool.volume("v").expect("it was made");
    }

    async fn step(&mut self) {
        let tag = Tag::default();
        let (at, blocks) = (self.rng.below(BLOCKS), 1 + self.rng.below(16));
        match self.rng.below(20) {
            0 => self.volume.flush(tag).await.expect("it works"),
            1 => {
                let trimmed = self.volume.deallocate(tag, at, blocks).await;
                trimmed.expect("it works");
                (at..at + blocks).for_each(|block| drop(self.written.remove(&block)));
            }
            2..11 => self.verify(at, blocks).await,
            _ => {
                let data = content(self.rng.below(u64::MAX), blocks);
                for (block, bytes) in (at..).zip(data.chunks_exact(BLOCK)) {
                    self.written.insert(block, bytes.to_vec());
                }
                let written = self.volume.write(tag, at, data, false).await;
                written.expect("it works");
            }
        }
    }

    async fn verify(&mut self, at: u64, blocks: u64) {
        let found = read(&*self.volume, at, blocks as usize * BLOCK).await;
        let found = found.expect("a copy is good");
        for (block, bytes) in (at..).zip(found.chunks_exact(BLOCK)) {
            let zeroes = [0; BLOCK];
            let expected = self.written.get(&block).map_or(&zeroes[..], Vec::as_slice);
            assert!(bytes == expected, "block {block} is wrong");
        }
    }

    /// Scrubs to the end, with hosts at work.
    async fn scrub(&mut self) -> Scrub {
        self.pool.scrub().expect("the pool is open");
        loop {
            self.step().await;
            self.rt.sleep(Duration::from_ms(1)).await;
            let found = self.pool.info().scrub.expect("one was begun");
            if !found.running {
                return found;
            }
        }
    }

    async fn verify_all(&mut self) {
        for at in (0..BLOCKS + 16).step_by(16) {
            self.verify(at, 16).await;
        }
    }
}

/// All that a medium does in silence, and errors, at its data.
fn lies(rate: u32, end: u64) -> Vec<FaultRule> {
    let kinds = [
        FaultRule::new(FaultKind::Poison).on(FaultOn::All),
        FaultRule::new(FaultKind::Lost),
        FaultRule::new(FaultKind::Torn),
        FaultRule::new(FaultKind::Misdirected).on(FaultOn::All),
        FaultRule::new(FaultKind::Stale),
        FaultRule::new(FaultKind::Error).on(FaultOn::Reads),
    ];
    let rules = kinds.map(|rule| rule.at(Frequency::Rate(rate)).within(DATA..end));
    rules.into()
}

/// Members and copies.
const SHAPES: [(usize, usize); 3] = [(2, 2), (3, 3), (4, 2)];

#[test]
fn one_member_lies_and_nobody_reads_it() {
    let lives = SHAPES.len() as u64 * rounds();
    let covered = Rc::new(RefCell::new(vec![Covered::default(); SHAPES.len()]));
    for seed in 0..lives {
        let covered = covered.clone();
        in_world(async move |rt| {
            let (count, copies) = SHAPES[seed as usize % SHAPES.len()];
            let mut life = Life::new(&rt, count, copies, seed).await;
            let liar = seed as usize % count;
            let end = life.layers[liar].info().blocks;
            life.layers[liar].set(lies(20_000_000, end));
            let mut lies_in_all = vec![0; count];
            for _ in 0..4 {
                for _ in 0..1200 {
                    life.step().await;
                }
                let stats = life.pool.stats();
                assert!(stats.checkpoints > 0, "seed {seed}: {stats:?}");
                covered.borrow_mut()[seed as usize % SHAPES.len()].victims += stats.victims;
                for (lies, member) in lies_in_all.iter_mut().zip(life.array.status().members) {
                    *lies += member.counts.wrong_reads;
                    covered.borrow_mut()[seed as usize % SHAPES.len()].healed +=
                        member.counts.healed;
                }
                life.reopen().await;
            }
            life.verify_all().await;
            covered.borrow_mut()[seed as usize % SHAPES.len()].add_injected(&life.layers[liar]);
            for (member, lies) in lies_in_all.iter().enumerate() {
                assert_eq!(*lies > 0, member == liar, "seed {seed}: {lies_in_all:?}");
            }
        });
    }
    Covered::check_shapes(&covered.borrow(), lives);
}

/// What was changed on one member, block by block, is right on it again after all was read.
#[test]
fn what_one_member_has_lost_comes_back() {
    for seed in 0..4 {
        in_world(async move |rt| {
            let mut life = Life::new(&rt, 2, 2, seed).await;
            for _ in 0..600 {
                life.step().await;
            }
            life.pool.checkpoint().await.expect("it works");
            let (bad, good) = (seed as usize % 2, (seed as usize + 1) % 2);
            let end = life.layers[bad].info().blocks;
            let mut rng = Rng::new(seed);
            for lba in DATA..end {
                if rng.below(3) == 0 {
                    let junk = content(rng.below(u64::MAX), 1);
                    let spoilt = life.layers[bad]
                        .write(Tag::default(), lba, junk, false)
                        .await;
                    spoilt.expect("it works");
                }
            }
            life.reopen().await;
            let first = life.scrub().await;
            assert!(first.repaired > 100, "seed {seed}: {first:?}");
            assert_eq!((first.done, first.unresolved), (first.of, 0), "seed {seed}");
            let status = life.array.status();
            assert!(status.members[bad].counts.wrong_reads > 100, "{status:?}");
            assert_eq!(status.members[good].counts.wrong_reads, 0, "{status:?}");
            let second = life.scrub().await;
            assert_eq!((second.repaired, second.unresolved), (0, 0), "seed {seed}");
            // The other one is not needed any more.
            let fault = FaultRule::new(FaultKind::Gone).on(FaultOn::All).always();
            life.layers[good].set(vec![fault]);
            life.verify_all().await;
            assert!(life.array.status().is_degraded());
        });
    }
}

/// With one copy a scrub says what is lost.
#[test]
fn a_scrub_of_one_copy_counts_what_is_lost() {
    in_world(async move |rt| {
        let mut life = Life::new(&rt, 1, 1, 1).await;
        for _ in 0..300 {
            life.step().await;
        }
        life.pool.checkpoint().await.expect("it works");
        assert_eq!(life.scrub().await.unresolved, 0);
        let (block, bytes) = life.written.iter().next_back().expect("some are written");
        let (block, bytes) = (*block, bytes.clone());
        let mut spoilt = 0;
        for lba in DATA..life.layers[0].info().blocks {
            let layer = &life.layers[0];
            if read(&**layer, lba, BLOCK).await.as_ref() == Ok(&bytes) {
                let written = layer.write(Tag::default(), lba, content(!0, 1), false);
                written.await.expect("it works");
                spoilt += 1;
            }
        }
        let found = life.scrub().await;
        assert_eq!((found.unresolved, found.repaired), (spoilt, 0));
        let lost = read(&*life.volume, block, BLOCK).await;
        assert_eq!(lost, Err(IoError::Read));
    });
}
