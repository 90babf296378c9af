//! A mapped pool on parity of which one member tells and keeps wrong things, in silence: whatever
//! is read, by hosts, by garbage collection, of the map or by recovery, is what was written, and
//! what is wrong is computed from the other members and written anew. Members fail and are replaced
//! under a host at work.

mod arrays;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use arrays::{Covered, in_world, memories, new, rounds};
use flashyard_block::array::{Array, Layout, MemberState, Options};
use flashyard_block::fault::{FaultDevice, FaultKind, FaultOn, FaultRule, Frequency};
use flashyard_block::pool::{MappedOptions, MappedPool, NewVolume, Pool, PoolError, Scrub};
use flashyard_block::{Device, DeviceExt, SharedDevice, Tag};
use flashyard_runtime::{Buf, Rt};
use flashyard_testbed::{read, write};
use flashyard_time::{Duration, Rng};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// Blocks of the volume that are written.
const BLOCKS: u64 = 3000;
/// The first block of a member with data, behind what all members have alike.
const DATA: u64 = 7 * MIB / BLOCK as u64;

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
    async fn new(rt: &Rt, count: usize, parity: usize, seed: u64) -> Self {
        let data = (count - parity) as u64;
        let devices = memories(count, (11 + 48_u64.div_ceil(data)) * MIB);
        let layer = |it: &SharedDevice| Rc::new(FaultDevice::new(rt, it.clone(), seed, Vec::new()));
        let layers: Vec<Rc<FaultDevice>> = devices.iter().map(layer).collect();
        let layout = Layout {
            copies: count,
            parity,
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
        self.pool = pool.expect("parity is enough");
        self.volume = self.pool.volume("v").expect("it was made");
    }

    /// Another device takes the place of member `m{at}`, under this name.
    async fn replace(&mut self, at: usize, fresh: SharedDevice, name: &str) {
        let layer = FaultDevice::new(&self.rt, fresh, at as u64, Vec::new());
        self.layers[at] = Rc::new(layer);
        let new = arrays::named(name, &members(&self.layers)[at]);
        let replaced = self.array.replace(&format!("m{at}"), new, false).await;
        replaced.expect("it is large enough");
    }

    /// Whether no member is missing, being rebuilt or replaced.
    fn has_all_members(&self) -> bool {
        let members = self.array.status().members;
        members
            .iter()
            .all(|it| it.state == MemberState::Active && !it.leaving)
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
        let found = found.expect("parity is enough");
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

const SHAPES: [(usize, usize); 4] = [(3, 1), (5, 1), (4, 2), (7, 2)];

#[test]
fn one_member_lies_and_nobody_reads_it() {
    let lives = SHAPES.len() as u64 * rounds();
    let covered = Rc::new(RefCell::new(vec![Covered::default(); SHAPES.len()]));
    for (seed, (count, parity)) in (0..lives).zip(SHAPES.into_iter().cycle()) {
        let covered = covered.clone();
        in_world(async move |rt| {
            let mut life = Life::new(&rt, count, parity, seed).await;
            let liar = seed as usize % count;
            let end = life.layers[liar].info().blocks;
            life.layers[liar].set(lies(20_000_000, end));
            let mut lies_in_all = vec![0; count];
            for _ in 0..3 {
                for _ in 0..800 {
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

/// What was changed on one member, block by block, is right on it again after a scrub: also parity,
/// and nothing that is needed is missed without another one.
#[test]
fn what_one_member_has_lost_comes_back() {
    for (seed, (count, parity)) in (0..).zip(SHAPES) {
        in_world(async move |rt| {
            let mut life = Life::new(&rt, count, parity, seed).await;
            for _ in 0..500 {
                life.step().await;
            }
            life.pool.checkpoint().await.expect("it works");
            let bad = seed as usize % count;
            let end = life.layers[bad].info().blocks;
            let mut rng = Rng::new(seed);
            for lba in DATA..end {
                if rng.below(3) == 0 {
                    let junk = content(rng.below(u64::MAX), 1);
                    let spoilt = life.layers[bad].write(Tag::default(), lba, junk, false);
                    spoilt.await.expect("it works");
                }
            }
            life.reopen().await;
            let first = life.scrub().await;
            assert!(first.repaired > 30, "seed {seed}: {first:?}");
            assert_eq!((first.done, first.unresolved), (first.of, 0), "seed {seed}");
            life.compared().await;
            let status = life.array.status();
            for (at, member) in status.members.iter().enumerate() {
                let wrong = member.counts.wrong_reads;
                // Where what is wrong is not needed, parity of another member follows it: that one
                // has read nothing wrong.
                let expected = if at == bad { wrong > 30 } else { wrong == 0 };
                assert!(expected, "seed {seed}: {status:?}");
            }
            let second = life.scrub().await;
            assert_eq!((second.repaired, second.unresolved), (0, 0), "seed {seed}");
            let before = healed(&life);
            life.compared().await;
            assert_eq!(healed(&life), before, "seed {seed}");
            // As many others as parity bears are not needed any more.
            for lost in 1..=parity {
                let fault = FaultRule::new(FaultKind::Gone).on(FaultOn::All).always();
                life.layers[(bad + lost) % count].set(vec![fault]);
            }
            life.verify_all().await;
            assert!(life.array.status().is_degraded());
        });
    }
}

fn healed(life: &Life) -> u64 {
    let status = life.array.status();
    status.members.iter().map(|it| it.counts.healed).sum()
}

impl Life {
    /// Until the array has made parity agree.
    async fn compared(&mut self) {
        while self.array.status().scrub.running {
            self.rt.sleep(Duration::from_ms(100)).await;
        }
    }
}

/// A member that is replaced gets what is needed; the rest becomes zeroes on all members, whatever
/// they held, so that rows agree there.
#[test]
fn a_rebuild_copies_what_is_needed() {
    for (seed, (count, parity)) in (0..).zip(SHAPES) {
        in_world(async move |rt| {
            let mut life = Life::new(&rt, count, parity, seed).await;
            for _ in 0..60 {
                life.step().await;
            }
            life.pool.checkpoint().await.expect("it works");
            let end = life.layers[0].info().blocks;
            let fresh = memories(1, end * BLOCK as u64).remove(0);
            for lba in DATA..end {
                let junk = fresh.write(Tag::default(), lba, content(seed ^ lba, 1), false);
                junk.await.expect("it works");
            }
            for lba in end - 300..end {
                let junk = content(lba, 1);
                let old = life.layers[1].write(Tag::default(), lba, junk, false);
                old.await.expect("it works");
            }
            life.replace(0, fresh, "n").await;
            while !life.has_all_members() {
                life.step().await;
                rt.sleep(Duration::from_ms(2)).await;
            }
            let status = life.array.status();
            let new = status.members.iter().find(|it| it.name == "n");
            let copied = new.expect("it is a member").counts.copied_bytes;
            let all = (end - DATA) * BLOCK as u64;
            assert!(
                copied > 0 && copied < all / 2,
                "seed {seed}: {copied} of {all}"
            );
            let found = life.scrub().await;
            assert_eq!((found.repaired, found.unresolved), (0, 0), "seed {seed}");
            life.compared().await;
            assert_eq!(healed(&life), 0, "seed {seed}");
            // What was not copied is used now, and others are not needed.
            for _ in 0..500 {
                life.step().await;
            }
            for lost in 1..=parity {
                let fault = FaultRule::new(FaultKind::Gone).on(FaultOn::All).always();
                life.layers[lost].set(vec![fault]);
            }
            life.verify_all().await;
            assert!(life.array.status().is_degraded());
        });
    }
}

/// A pool that is closed says nothing of what lies on its array any more, though somebody holds a
/// volume of it still: what others write there is copied.
#[test]
fn a_closed_pool_does_not_say_what_is_needed() {
    in_world(async move |rt| {
        let mut life = Life::new(&rt, 3, 1, 1).await;
        life.pool.close().await;
        let (row, blocks) = (2, life.array.info().blocks);
        let value = |block: u64| 1 + (block % 250) as u8;
        for block in (1024..blocks - row).step_by(row as usize) {
            let written = write(&*life.array, block, row as usize * BLOCK, value(block));
            written.await.expect("a whole row");
        }
        let bytes = life.layers[0].info().blocks * BLOCK as u64;
        let fresh = memories(1, bytes).remove(0);
        life.replace(0, fresh, "n").await;
        while !life.has_all_members() {
            rt.sleep(Duration::from_ms(2)).await;
        }
        for block in (1024..blocks - row).step_by(row as usize) {
            let found = read(&*life.array, block, row as usize * BLOCK).await;
            let found = found.expect("all work");
            assert!(found.iter().all(|it| *it == value(block)), "block {block}");
        }
    });
}

#[test]
fn members_fail_are_rebuilt_and_come_back_under_a_host_at_work() {
    for (seed, (count, parity)) in (0..).zip(SHAPES) {
        in_world(async move |rt| {
            let mut life = Life::new(&rt, count, parity, seed).await;
            for round in 0..3 {
                let lost = (seed as usize + round) % count;
                let gone = FaultRule::new(FaultKind::Error)
                    .on(FaultOn::Writes)
                    .always();
                life.layers[lost].set(vec![gone]);
                for _ in 0..150 {
                    life.step().await;
                }
                assert!(life.array.status().is_degraded(), "seed {seed}");
                life.layers[lost].set(vec![]);
                if round == 1 {
                    // It comes back, old, and gets what it has missed.
                    life.reopen().await;
                } else {
                    let bytes = life.layers[lost].info().blocks * BLOCK as u64;
                    let fresh = memories(1, bytes).remove(0);
                    life.replace(lost, fresh, &format!("n{round}")).await;
                }
                while life.array.status().rebuild.is_some() {
                    life.step().await;
                    rt.sleep(Duration::from_ms(2)).await;
                }
                assert!(!life.array.status().is_degraded(), "seed {seed}");
                life.reopen().await;
            }
            life.verify_all().await;
            // What was rebuilt is right, whichever others are missing.
            for lost in 0..parity {
                let gone = FaultRule::new(FaultKind::Gone).on(FaultOn::All).always();
                let other = (seed as usize + 3 + lost) % count;
                life.layers[other].set(vec![gone]);
            }
            life.verify_all().await;
        });
    }
}

#[test]
fn raw_pools_are_refused_and_too_small_ones_say_what_is_needed() {
    in_world(async move |rt| {
        let layout = Layout {
            copies: 3,
            parity: 1,
            safe_read: false,
        };
        let devices = memories(3, 12 * MIB);
        let array = Array::create(
            &rt,
            new(&devices),
            arrays::ARRAY,
            layout,
            Options::default(),
            false,
        );
        let array: SharedDevice = Rc::new(array.await.expect("they hold nothing"));
        let raw = Pool::create(&rt, array.clone(), [7; 16], false).await.err();
        assert_eq!(raw, Some(PoolError::NeedsMapped));
        let small = MappedPool::create(&rt, array, [7; 16], OPTIONS).await.err();
        assert!(
            matches!(small, Some(PoolError::TooSmall { .. })),
            "{small:?}"
        );
    });
}
