//! Checks who wrote what an owner reads. Owners come and go on one disk, in pools and with the
//! whole disk, and the power is cut at every change of the disk; of what was not flushed any subset
//! survives. Each owner fills what it has with a byte of its own, and reads zeroes or that byte,
//! whatever was cut off and whichever owner had the space before.
//!
//! Of a whole disk the test keeps, as a state store does, what was noted before and after it was
//! made clean.

use std::iter::once;

use flashyard_block::pool::{Pool, PoolError};
use flashyard_block::{Device, MemoryDevice, SharedDevice, make_clean};
use flashyard_runtime::Rt;
use flashyard_testbed::cut::survive;
use flashyard_testbed::{Content, Disk, Event, apply, flush, read, run, write};
use flashyard_time::Rng;

const MIB: u64 = 1 << 20;
const EXTENTS: u64 = 4;
const BLOCK: u32 = 512;
/// On the disk before its first owner.
const BEFORE: u8 = 0xee;
const STRANGER: u8 = 0xfe;

/// What the state store says of the disk; durable at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Note {
    Free,
    Pool,
    Creating,
    Ready(u8),
    Deleting,
}

struct Life {
    rt: Rt,
    disk: Disk,
    pool: Option<Pool>,
    note: Note,
    /// The notes, from which event of the disk on they were true.
    notes: Vec<(usize, Note)>,
    owners: u8,
    rng: Rng,
}

impl Life {
    fn new(rt: &Rt, seed: u64) -> Self {
        let mut life = Self {
            rt: rt.clone(),
            disk: Disk::new(BLOCK, vec![BEFORE; ((2 + EXTENTS) * MIB) as usize], seed),
            pool: None,
            note: Note::Free,
            notes: Vec::new(),
            owners: 0,
            rng: Rng::new(seed),
        };
        life.set(Note::Free);
        life
    }

    fn set(&mut self, note: Note) {
        self.note = note;
        self.notes.push((self.disk.happened(), note));
    }

    fn owner(&mut self) -> u8 {
        self.owners += 1;
        self.owners
    }

    async fn step(&mut self) {
        match (self.note, self.pool.clone()) {
            (Note::Pool, Some(pool)) => self.step_in_pool(pool).await,
            (Note::Ready(owner), _) => {
                self.use_some(self.disk.shared(), owner).await;
                if self.rng.below(2) == 0 {
                    self.set(Note::Deleting);
                    clean(&self.disk).await;
                    self.set(Note::Free);
                }
            }
            _ if self.rng.below(2) == 0 => {
                self.set(Note::Pool);
                let pool = Pool::create(&self.rt, self.disk.shared(), [7; 16], true).await;
                self.pool = Some(pool.unwrap());
            }
            _ => {
                self.set(Note::Creating);
                clean(&self.disk).await;
                let owner = self.owner();
                self.set(Note::Ready(owner));
                self.use_some(self.disk.shared(), owner).await;
            }
        }
    }

    async fn step_in_pool(&mut self, pool: Pool) {
        let volumes = pool.list();
        let some = volumes.get(self.rng.below(volumes.len() as u64 + 1) as usize);
        let some = some.cloned();
        match some {
            // There may be no space left for more.
            Some(volume) if self.rng.below(2) == 0 => {
                drop(pool.grow(&volume.name, volume.bytes + MIB).await);
            }
            Some(volume) => pool.delete(&volume.name).await.unwrap(),
            None if volumes.is_empty() && self.rng.below(3) == 0 => {
                pool.destroy().await.unwrap();
                self.pool = None;
                return self.set(Note::Free);
            }
            None => {
                let (owner, bytes) = (self.owner(), 1 + self.rng.below(MIB));
                drop(
                    pool.create_volume(&format!("v{owner}"), [owner; 16], bytes)
                        .await,
                );
            }
        }
        for info in pool.list() {
            let volume = pool.volume(&info.name).unwrap();
            self.use_some(volume, info.uuid[0]).await;
        }
    }

    /// Writes some of a device over, and flushes that or not.
    async fn use_some(&mut self, device: SharedDevice, owner: u8) {
        only(&*device, owner, "in the middle of it").await;
        let blocks = device.info().blocks;
        for _ in 0..2 {
            let lba = self.rng.below(blocks);
            let count = (blocks - lba).min(1 + self.rng.below(MIB / u64::from(BLOCK)));
            let bytes = count * u64::from(BLOCK);
            write(&*device, lba, bytes as usize, owner).await.unwrap();
        }
        if self.rng.below(2) == 0 {
            flush(&*device).await.unwrap();
        }
    }

    /// The notes that may stand in the store when the power goes after `happened` events.
    fn possible(&self, happened: usize) -> impl Iterator<Item = Note> {
        let end = self.notes.partition_point(|(when, _)| *when <= happened);
        let sure = self.notes.partition_point(|(when, _)| *when < happened);
        self.notes[sure.saturating_sub(1)..end]
            .iter()
            .map(|(_, note)| *note)
    }
}

async fn clean(disk: &Disk) {
    make_clean(disk, once(0..disk.info().blocks)).await.unwrap();
}

/// A device holds zeroes, or what `owner` has written.
async fn only(device: &dyn Device, owner: u8, place: &str) {
    let blocks = device.info().blocks;
    for lba in (0..blocks).step_by(2048) {
        let len = (blocks - lba).min(2048) as usize * BLOCK as usize;
        let bytes = read(device, lba, len).await.unwrap();
        for sector in bytes.chunks_exact(BLOCK as usize) {
            let (first, same) = (sector[0], sector == [sector[0]; BLOCK as usize]);
            assert!(
                same && [0, owner].contains(&first),
                "{place}: {owner:#x} reads what {first:#x} has written"
            );
        }
    }
}

/// Starts again on what a cut has left, and has a stranger get all there is.
async fn examine(rt: &Rt, disk: &Disk, note: Note, place: &str) {
    match note {
        Note::Pool => {
            let pool = match Pool::open(rt, disk.shared()).await {
                Err(PoolError::NotAPool | PoolError::Damaged(_)) => {
                    Pool::create(rt, disk.shared(), [7; 16], true).await
                }
                opened => opened,
            };
            examine_pool(&pool.unwrap(), place).await;
        }
        Note::Ready(owner) => only(disk, owner, place).await,
        Note::Free | Note::Creating | Note::Deleting => {}
    }
    clean(disk).await;
    only(disk, STRANGER, place).await;
}

async fn examine_pool(pool: &Pool, place: &str) {
    for info in pool.list() {
        let volume = pool.volume(&info.name).unwrap();
        only(&*volume, info.uuid[0], place).await;
    }
    if pool.info().free > 0 {
        let free = pool.info().free;
        let rest = pool.create_volume("stranger", [STRANGER; 16], free).await;
        only(&*rest.unwrap(), STRANGER, place).await;
    }
}

/// Cuts the power after each event, twice each.
async fn cut_everywhere(life: &Life, seed: u64) {
    let events = life.disk.events();
    let mut content = Content::from(vec![BEFORE; ((2 + EXTENTS) * MIB) as usize]);
    let mut rng = Rng::new(seed).split(1);
    let mut flushed = 0;
    for happened in 0..=events.len() {
        if happened > 0 && matches!(events[happened - 1], Event::Flush) {
            for event in &events[flushed..happened] {
                apply(&mut content, event);
            }
            flushed = happened;
        }
        for note in life.possible(happened) {
            let mut left = content.clone();
            survive(&mut left, &events[flushed..happened], &mut rng);
            let disk = Disk::new(BLOCK, left, seed);
            let place = format!("seed {seed}, cut after {happened} events, {note:?}");
            examine(&life.rt, &disk, note, &place).await;
        }
    }
}

#[test]
fn no_owner_reads_data_of_another_after_a_power_cut() {
    run(async |rt: Rt| {
        for seed in 0..6 {
            let mut life = Life::new(&rt, seed);
            for _ in 0..14 {
                life.step().await;
            }
            cut_everywhere(&life, seed).await;
        }
    });
}

/// What is cleaned in several commands is cleaned to its ends, and nothing beside it.
#[test]
fn all_of_a_large_range_is_cleaned_and_no_more() {
    run(async |_: Rt| {
        let device = MemoryDevice::new(4096, 5 << 29).unwrap();
        let (blocks, piece) = (device.info().blocks, (1 << 30) / 4096);
        let inside = [1, piece, piece + 1, 2 * piece, 2 * piece + 1, blocks - 2];
        for lba in inside.into_iter().chain([0, blocks - 1]) {
            write(&device, lba, 4096, 7).await.unwrap();
        }
        make_clean(&device, once(1..blocks - 1)).await.unwrap();
        for lba in inside {
            assert_eq!(read(&device, lba, 4096).await.unwrap(), [0; 4096], "{lba}");
        }
        for lba in [0, blocks - 1] {
            assert_eq!(read(&device, lba, 4096).await.unwrap(), [7; 4096], "{lba}");
        }
    });
}

/// Space that could not be freed when its volume was deleted is zeroed before another owner gets
/// it, on a disk that says that it could and on one that was opened again since.
#[test]
fn a_failed_free_is_no_clean_space() {
    run(async |rt: Rt| {
        for reopened in [false, true] {
            let disk = Disk::new(BLOCK, vec![0; ((2 + EXTENTS) * MIB) as usize], 1);
            let mut pool = Pool::create(&rt, disk.shared(), [7; 16], false)
                .await
                .unwrap();
            let volume = pool
                .create_volume("a", [1; 16], EXTENTS * MIB)
                .await
                .unwrap();
            write(&*volume, 0, MIB as usize, 1).await.unwrap();
            // Two copies of the metadata, each written and flushed; what frees space comes after
            // them.
            disk.fail_after(4);
            pool.delete("a").await.unwrap();
            disk.fail_after(u64::MAX);
            // The change after it writes down what is clean.
            pool.create_volume("b", [2; 16], MIB).await.unwrap();
            if reopened {
                pool = Pool::open(&rt, disk.shared()).await.unwrap();
            }
            pool.create_volume("c", [3; 16], 2 * MIB).await.unwrap();
            for (name, owner) in [("b", 2), ("c", 3)] {
                only(&*pool.volume(name).unwrap(), owner, name).await;
            }
        }
    });
}
