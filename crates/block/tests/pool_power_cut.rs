//! The power is cut at every change of a pool's disk, and of what was not flushed any subset
//! survives, writes torn between sectors. Whatever is left must open as the state before or after
//! the change that was cut, with all flushed data of its volumes, and with nothing of what was
//! there before them.

use std::collections::BTreeMap;

use flashyard_block::pool::{Pool, VolumeInfo, check};
use flashyard_block::{SharedDevice, Verdict};
use flashyard_runtime::Rt;
use flashyard_testbed::cut::{SECTOR, after_cut, survive};
use flashyard_testbed::{Content, Disk, Event, apply, flush, read, run, write};
use flashyard_time::Rng;

const MIB: u64 = 1 << 20;
const EXTENTS: u64 = 8;
const BLOCK: usize = 4096;

/// What a user did, and when it was done: the number of events on the disk by then.
struct History {
    /// Lists of volumes, from when on they were true.
    states: Vec<(usize, Vec<VolumeInfo>)>,
    /// Values of blocks by volume and block: when the write began and when it was flushed, and the
    /// value.
    writes: BTreeMap<([u8; 16], u64), Vec<Written>>,
}

struct Written {
    began: usize,
    flushed: usize,
    value: u8,
}

/// So long that the metadata of a few volumes takes several sectors.
fn long_name(step: u8) -> String {
    format!("volume-{step:0>50}")
}

/// A user of a pool on a disk.
struct User {
    disk: Disk,
    pool: Pool,
    rng: Rng,
    history: History,
}

impl User {
    async fn new(rt: &Rt, seed: u64) -> Self {
        let mut content = vec![0xee; ((2 + EXTENTS) * MIB) as usize];
        content[..2 * MIB as usize].fill(0);
        let disk = Disk::new(BLOCK as u32, content, seed);
        let pool = Pool::create(rt, disk.shared(), [7; 16], false)
            .await
            .unwrap();
        let history = History {
            states: Vec::new(),
            writes: BTreeMap::new(),
        };
        let mut user = Self {
            disk,
            pool,
            rng: Rng::new(seed),
            history,
        };
        user.note();
        user
    }

    fn note(&mut self) {
        self.history
            .states
            .push((self.disk.happened(), self.pool.list()));
    }

    async fn change(&mut self, step: u8) {
        let volumes = self.pool.list();
        let bytes = 1 + self.rng.below(3 * MIB);
        let some = volumes.get(self.rng.below(4) as usize).cloned();
        // Running out of space is part of life here.
        let _outcome = match some {
            Some(volume) if self.rng.below(2) == 0 => self.pool.delete(&volume.name).await,
            Some(volume) if self.rng.below(3) == 0 => {
                self.pool.rename(&volume.name, &long_name(step)).await
            }
            Some(volume) => self.pool.grow(&volume.name, volume.bytes + bytes).await,
            None => self
                .pool
                .create_volume(&long_name(step), [step; 16], bytes)
                .await
                .map(drop),
        };
        self.note();
    }

    /// Writes some blocks of each volume, the later ones without a flush.
    async fn fill(&mut self) {
        for info in self.pool.list() {
            let volume = self.pool.volume(&info.name).unwrap();
            let mut fresh = Vec::new();
            for _ in 0..3 {
                let lba = self.rng.below(volume.info().blocks);
                let value = 1 + self.rng.below(200) as u8;
                let began = self.disk.happened();
                write(&*volume, lba, BLOCK, value).await.unwrap();
                fresh.push((
                    lba,
                    Written {
                        began,
                        flushed: usize::MAX,
                        value,
                    },
                ));
            }
            if self.rng.below(2) == 0 {
                flush(&*volume).await.unwrap();
                for (_, written) in &mut fresh {
                    written.flushed = self.disk.happened();
                }
            }
            for (lba, written) in fresh {
                self.history
                    .writes
                    .entry((info.uuid, lba))
                    .or_default()
                    .push(written);
            }
        }
    }
}

impl History {
    /// The states that may be found after a cut when `happened` events had happened.
    fn possible(&self, happened: usize) -> &[(usize, Vec<VolumeInfo>)] {
        let next = self.states.partition_point(|(when, _)| *when <= happened);
        &self.states[next - 1..(next + 1).min(self.states.len())]
    }

    /// Whether a block may hold `value` after a cut.
    fn allows(&self, uuid: [u8; 16], lba: u64, value: u8, happened: usize) -> bool {
        let Some(writes) = self.writes.get(&(uuid, lba)) else {
            return value == 0;
        };
        let durable = writes
            .iter()
            .rposition(|written| written.flushed <= happened);
        let newer = writes
            .iter()
            .skip(durable.unwrap_or(0))
            .filter(|written| written.began <= happened);
        (durable.is_none() && value == 0) || newer.into_iter().any(|written| written.value == value)
    }
}

async fn examine(rt: &Rt, disk: &Disk, history: &History, happened: usize, seed: u64) {
    let place = format!("seed {seed}, cut after {happened} events");
    let pool = match Pool::open(rt, disk.shared()).await {
        Ok(pool) => pool,
        Err(error) => panic!("{place}: {error}"),
    };
    let list = pool.list();
    assert!(
        history
            .possible(happened)
            .iter()
            .any(|(_, state)| *state == list),
        "{place}: neither old nor new"
    );
    let report = check(rt, disk.shared()).await.unwrap();
    assert_eq!(report.volumes, list);
    assert_ne!(report.verdict(), Verdict::Lost, "{place}: {report}");
    for info in &list {
        let volume = pool.volume(&info.name).unwrap();
        examine_volume(&volume, info.uuid, history, happened, &place).await;
    }
}

async fn examine_volume(
    volume: &SharedDevice,
    uuid: [u8; 16],
    history: &History,
    happened: usize,
    place: &str,
) {
    let blocks = volume.info().blocks;
    let written = history
        .writes
        .range((uuid, 0)..=(uuid, u64::MAX))
        .map(|((_, lba), _)| *lba);
    let sampled = (0..blocks).step_by(97).chain([blocks - 1]);
    for lba in written.chain(sampled).filter(|lba| *lba < blocks) {
        let bytes = read(&**volume, lba, BLOCK).await.unwrap();
        for sector in bytes.chunks(SECTOR) {
            let value = sector[0];
            assert!(
                sector.iter().all(|&byte| byte == value),
                "{place}: a torn sector"
            );
            assert!(
                history.allows(uuid, lba, value, happened),
                "{place}: block {lba} of {uuid:?} holds {value:#x}"
            );
        }
    }
}

/// Between the copies of a change there is nothing to restore: the next change puts it right.
#[test]
fn a_kill_between_the_copies_is_repairable() {
    run(async |rt: Rt| {
        let user = User::new(&rt, 1).await;
        let start = user.disk.content();
        user.pool.create_volume("a", [1; 16], MIB).await.unwrap();
        let mut events = user.disk.events();
        // The second copy of the last change was not written.
        let flush = events.pop();
        let write = events.pop();
        assert!(matches!(
            (write, flush),
            (Some(Event::Write { .. }), Some(Event::Flush))
        ));
        let mut left = start;
        for event in &events {
            apply(&mut left, event);
        }
        let disk = Disk::new(BLOCK as u32, left, 1);
        let report = check(&rt, disk.shared()).await.unwrap();
        assert_eq!(report.verdict(), Verdict::Repairable, "{report}");
        let pool = Pool::open(&rt, disk.shared()).await.unwrap();
        assert_eq!(pool.list(), user.pool.list());
        pool.create_volume("b", [2; 16], MIB).await.unwrap();
        let report = check(&rt, disk.shared()).await.unwrap();
        assert_eq!(report.verdict(), Verdict::Sound, "{report}");
    });
}

/// Cuts the power after each event, three times each.
async fn cut_everywhere(rt: &Rt, events: &[Event], start: Content, history: &History, seed: u64) {
    let mut content = start;
    let mut rng = Rng::new(seed).split(1);
    let mut flushed = 0;
    for happened in 0..=events.len() {
        if happened > 0 && matches!(events[happened - 1], Event::Flush) {
            for event in &events[flushed..happened] {
                apply(&mut content, event);
            }
            flushed = happened;
        }
        if happened < history.states[0].0 {
            continue;
        }
        for _ in 0..3 {
            let mut left = content.clone();
            survive(&mut left, &events[flushed..happened], &mut rng);
            let disk = Disk::new(BLOCK as u32, left, seed);
            examine(rt, &disk, history, happened, seed).await;
            let written = disk.events().into_iter();
            let written = written
                .filter(|event| !matches!(event, Event::Flush))
                .count();
            assert_eq!(written, 0, "opening writes nothing");
        }
    }
}

#[test]
fn every_cut_leaves_the_old_or_the_new_state_and_all_flushed_data() {
    run(async |rt: Rt| {
        for seed in 0..4 {
            let mut user = User::new(&rt, seed).await;
            for step in 1..10 {
                user.change(step).await;
                user.fill().await;
            }
            let mut start = vec![0xee; ((2 + EXTENTS) * MIB) as usize];
            start[..2 * MIB as usize].fill(0);
            cut_everywhere(&rt, &user.disk.events(), start.into(), &user.history, seed).await;
        }
    });
}

#[test]
fn creating_a_pool_over_another_leaves_one_of_them() {
    run(async |rt: Rt| {
        let user = User::new(&rt, 1).await;
        let start = user.disk.content();
        let disk = Disk::new(BLOCK as u32, start.clone(), 2);
        Pool::create(&rt, disk.shared(), [8; 16], true)
            .await
            .unwrap();
        let events = disk.events();
        let mut found = Vec::new();
        for happened in 0..=events.len() {
            for seed in 0..8 {
                let content = after_cut(&start, &events[..happened], seed);
                let pool = Pool::open(&rt, Disk::new(BLOCK as u32, content, 1).shared())
                    .await
                    .unwrap();
                found.push(pool.info().uuid[0]);
            }
        }
        assert!(found.contains(&7) && found.ends_with(&[8; 8]));
    });
}

#[test]
fn a_change_after_one_copy_was_lost_can_be_cut_too() {
    run(async |rt: Rt| {
        for lost in 0..2 {
            let user = User::new(&rt, 3).await;
            for step in 1..6 {
                user.pool
                    .create_volume(&long_name(step), [step; 16], MIB)
                    .await
                    .unwrap();
            }
            let mut start = user.disk.content().bytes();
            start[lost * MIB as usize + 40] ^= 1;
            let start = Content::from(start);
            let disk = Disk::new(BLOCK as u32, start.clone(), 4);
            let pool = Pool::open(&rt, disk.shared()).await.unwrap();
            let old = pool.list();
            pool.grow(&long_name(2), 2 * MIB).await.unwrap();
            let events = disk.events();
            for happened in 0..=events.len() {
                for seed in 0..8 {
                    let left = after_cut(&start, &events[..happened], seed);
                    let found = Pool::open(&rt, Disk::new(BLOCK as u32, left, 1).shared())
                        .await
                        .unwrap();
                    assert!(
                        [&old, &pool.list()].contains(&&found.list()),
                        "cut after {happened}"
                    );
                }
            }
        }
    });
}
