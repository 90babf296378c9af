//! Snapshots and clones of volumes whose chunks are longer than their blocks or compressed, written
//! in parts of chunks.

use std::collections::BTreeMap;
use std::rc::Rc;

use flashyard_block::pool::{Kind, NewSnapshot, NewVolume, Pool, VolumeForm, check};
use flashyard_block::{DeviceExt, IoError, MemoryDevice, SharedDevice, Tag, Verdict};
use flashyard_codec::compress::Codec;
use flashyard_runtime::Rt;
use flashyard_runtime::sim::{Config, World};
use flashyard_testbed::{Paced, filled, read, run, write};
use flashyard_time::{Duration, Rng};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
const UUID: [u8; 16] = *b"the pool's uuid!";
/// Blocks of each volume.
const BLOCKS: u64 = 96;

/// Long chunks in each codec, and short ones in one.
const FORMS: [(u32, Option<Codec>); 4] = [
    (16 << 10, Some(Codec::Lz4)),
    (16 << 10, None),
    (16 << 10, Some(Codec::Zstd)),
    (4 << 10, Some(Codec::Lz4)),
];

fn form(number: u64) -> VolumeForm {
    let (chunk, compression) = FORMS[number as usize % FORMS.len()];
    VolumeForm { chunk, compression }
}

fn memory() -> SharedDevice {
    Rc::new(MemoryDevice::new(4096, 64 * MIB).expect("a good size"))
}

async fn new_pool(rt: &Rt, device: &SharedDevice) -> Pool {
    let made = Pool::create_kind(rt, device.clone(), UUID, Kind::Mapped, false).await;
    made.expect("the device holds nothing known")
}

/// What a block has: of two versions one can be compressed.
fn content(version: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    let mut noise = Rng::new(version);
    for (place, word) in bytes.chunks_mut(8).enumerate() {
        let value = match (version, place) {
            (0, _) => 0,
            (_, 0) => version,
            _ if version.is_multiple_of(2) => noise.next_u64(),
            _ => version,
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// What is in a pool, as versions of blocks.
struct Model {
    rt: Rt,
    device: SharedDevice,
    pool: Pool,
    chance: Rng,
    form: VolumeForm,
    /// Volumes: their UUID, and what they have.
    volumes: BTreeMap<String, ([u8; 16], Vec<u64>)>,
    /// Snapshots of each volume, the oldest first: name, UUID, what they have, clones of it.
    snapshots: BTreeMap<String, Vec<Snapshot>>,
    /// Whose snapshot a clone is.
    origins: BTreeMap<String, (String, String)>,
    next: u64,
}

struct Snapshot {
    name: String,
    uuid: [u8; 16],
    versions: Vec<u64>,
}

impl Model {
    async fn new(rt: &Rt, seed: u64) -> Self {
        let device = memory();
        let pool = new_pool(rt, &device).await;
        let mut model = Self {
            rt: rt.clone(),
            device,
            pool,
            chance: Rng::new(seed),
            form: form(seed),
            volumes: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            origins: BTreeMap::new(),
            next: 1,
        };
        let uuid = model.uuid();
        let wanted = NewVolume {
            form: model.form,
            ..NewVolume::new("v", uuid, BLOCKS * BLOCK as u64)
        };
        let made = model.pool.create_volumes(vec![wanted]).await;
        made.expect("there is room");
        let none = vec![0; BLOCKS as usize];
        model.volumes.insert("v".into(), (uuid, none));
        model
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn uuid(&mut self) -> [u8; 16] {
        let mut uuid = [7; 16];
        uuid[..8].copy_from_slice(&self.next().to_le_bytes());
        uuid
    }

    /// One of the volumes.
    fn any(&mut self) -> String {
        let place = self.chance.below(self.volumes.len() as u64);
        let mut names = self.volumes.keys();
        names.nth(place as usize).expect("there are some").clone()
    }

    /// One of the snapshots of a volume.
    fn any_of(&mut self, volume: &str) -> Option<usize> {
        let count = self.snapshots.get(volume).map_or(0, Vec::len) as u64;
        (count > 0).then(|| self.chance.below(count) as usize)
    }

    fn has_clones(&self, volume: &str, snapshot: &str) -> bool {
        let of = (volume.to_owned(), snapshot.to_owned());
        self.origins.values().any(|origin| *origin == of)
    }

    async fn step(&mut self) {
        let volume = self.any();
        match self.chance.below(40) {
            0 | 1 => self.snapshot(&volume).await,
            2 => self.clone_one(&volume).await,
            3 => self.restore(&volume).await,
            4 => self.delete_snapshot(&volume).await,
            5 => self.delete(&volume).await,
            6 => self.reopen().await,
            7..11 => self.trim(&volume).await,
            _ => self.write(&volume).await,
        }
    }

    async fn write(&mut self, volume: &str) {
        let first = self.chance.below(BLOCKS - 10);
        let count = 1 + self.chance.below(10);
        let versions: Vec<u64> = (0..count).map(|_| self.next()).collect();
        let mut bytes = filled(count as usize * BLOCK, 0);
        for (place, version) in bytes.chunks_mut(BLOCK).zip(&versions) {
            place.copy_from_slice(&content(*version));
        }
        let device = self.pool.volume(volume).expect("it is there");
        let written = device.write(Tag::default(), first, bytes, false).await;
        written.expect("there is room");
        let (_, now) = self.volumes.get_mut(volume).expect("it is there");
        now[first as usize..][..versions.len()].copy_from_slice(&versions);
    }

    async fn trim(&mut self, volume: &str) {
        let first = self.chance.below(BLOCKS - 20);
        let count = 1 + self.chance.below(20);
        let device = self.pool.volume(volume).expect("it is there");
        let done = device.deallocate(Tag::default(), first, count).await;
        done.expect("it is good");
        let (_, now) = self.volumes.get_mut(volume).expect("it is there");
        now[first as usize..][..count as usize].fill(0);
    }

    async fn snapshot(&mut self, volume: &str) {
        let (name, uuid) = (format!("s{}", self.next()), self.uuid());
        let wanted = NewSnapshot {
            volume: volume.into(),
            name: name.clone(),
            uuid,
        };
        let made = self.pool.snapshot(vec![wanted], 1).await;
        made.expect("there is a place");
        let versions = self.volumes[volume].1.clone();
        let all = self.snapshots.entry(volume.into()).or_default();
        all.push(Snapshot {
            name,
            uuid,
            versions,
        });
    }

    async fn clone_one(&mut self, volume: &str) {
        let Some(place) = self.any_of(volume).filter(|_| self.volumes.len() < 6) else {
            return;
        };
        let (name, uuid) = (format!("c{}", self.next()), self.uuid());
        let of = &self.snapshots[volume][place];
        let clone = NewVolume::new(&name, uuid, 0);
        let made = self.pool.clone_snapshot(volume, &of.name, clone).await;
        made.expect("there is a place");
        self.volumes
            .insert(name.clone(), (uuid, of.versions.clone()));
        self.origins.insert(name, (volume.into(), of.name.clone()));
    }

    async fn restore(&mut self, volume: &str) {
        let newest = self.snapshots.get(volume).and_then(|all| all.last());
        if let Some(newest) = newest {
            let done = self.pool.restore(volume, &newest.name).await;
            done.expect("it is the newest");
            let versions = newest.versions.clone();
            let (_, now) = self.volumes.get_mut(volume).expect("it is there");
            *now = versions;
        }
    }

    async fn delete_snapshot(&mut self, volume: &str) {
        let Some(place) = self.any_of(volume) else {
            return;
        };
        let name = self.snapshots[volume][place].name.clone();
        if !self.has_clones(volume, &name) {
            let deleted = self.pool.delete_snapshot(volume, &name).await;
            deleted.expect("nothing stands on it");
            let all = self.snapshots.get_mut(volume).expect("it has some");
            all.remove(place);
        }
    }

    async fn delete(&mut self, volume: &str) {
        let of_it = self.snapshots.get(volume).map_or(0, Vec::len);
        if of_it == 0 && self.volumes.len() > 1 {
            let deleted = self.pool.delete(volume).await;
            deleted.expect("it has no snapshots");
            self.volumes.remove(volume);
            self.origins.remove(volume);
        }
    }

    async fn reopen(&mut self) {
        self.pool.close().await;
        let opened = Pool::open(&self.rt, self.device.clone()).await;
        self.pool = opened.expect("it is whole");
        assert_eq!(self.pool.list().len(), self.volumes.len());
        let mut forms = self.pool.list().into_iter().map(|one| one.form);
        assert!(forms.all(|form| form == self.form), "clones are as volumes");
        let report = check(&self.rt, self.device.clone()).await;
        let report = report.expect("it can be read");
        assert_eq!(report.verdict(), Verdict::Sound, "{report}");
    }

    /// Every volume and snapshot has what it has to have, read in pieces that cut chunks.
    async fn assert_all(&self, piece: u64) {
        let snapshots = self.snapshots.values().flatten();
        let snapshots = snapshots.map(|one| (one.uuid, &one.versions));
        let volumes = self.volumes.values().map(|(uuid, now)| (*uuid, now));
        for (uuid, versions) in volumes.chain(snapshots) {
            let (name, device) = self.pool.find(uuid).expect("it is there");
            for first in (0..BLOCKS).step_by(piece as usize) {
                let count = piece.min(BLOCKS - first) as usize;
                let found = read(&*device, first, count * BLOCK).await;
                let found = found.unwrap_or_else(|why| panic!("{name} at {first}: {why:?}"));
                for (at, block) in (first as usize..).zip(found.chunks(BLOCK)) {
                    assert!(block == content(versions[at]), "{name}, block {at}");
                }
            }
        }
    }
}

#[test]
fn volumes_snapshots_and_clones_with_long_chunks_are_what_was_written_to_each() {
    for seed in 0..8 {
        run(async move |rt: Rt| {
            let mut model = Model::new(&rt, seed).await;
            for round in 0..16 {
                for _ in 0..40 {
                    model.step().await;
                }
                model.assert_all(1 + (seed + round) % 9).await;
            }
            let (clones, taken) = (model.origins.len(), model.next);
            assert!(clones > 0, "{clones} clones, {taken} versions");
            model.reopen().await;
            model.assert_all(32).await;
            model.pool.close().await;
        });
    }
}

/// A device that takes some time for each I/O.
fn slow(rt: &Rt, seed: u64) -> SharedDevice {
    let (clock, chance) = (rt.clone(), std::cell::RefCell::new(Rng::new(seed)));
    let pace = move |_, _: &_| clock.sleep(Duration::from_us(chance.borrow_mut().below(90)));
    Rc::new(Paced::new(memory(), pace))
}

/// Writes parts of chunks, and exchanges blocks, while the volume goes back to a snapshot: nothing
/// that was written since and before comes back with them.
#[test]
fn what_was_written_since_a_snapshot_does_not_come_back_when_parts_are_written_meanwhile() {
    for seed in 0..10 {
        let world = World::new(Config::calm(seed));
        world.run(&world.machine(1), move |rt: Rt| async move {
            let pool = new_pool(&rt, &slow(&rt, seed)).await;
            let wanted = NewVolume {
                form: form(0),
                ..NewVolume::new("v", [1; 16], BLOCKS * BLOCK as u64)
            };
            let made = pool.create_volumes(vec![wanted]).await;
            let volume = made.expect("there is room").remove(0);
            let all = BLOCKS as usize * BLOCK;
            write(&*volume, 0, all, 1).await.expect("there is room");
            let snapshot = NewSnapshot {
                volume: "v".into(),
                name: "one".into(),
                uuid: [2; 16],
            };
            let made = pool.snapshot(vec![snapshot], 1).await;
            made.expect("there is a place");
            write(&*volume, 0, all, 2).await.expect("there is room");
            let mut others = Vec::new();
            // In every chunk one block is written, or one is exchanged if nothing has changed.
            for chunk in 0..BLOCKS / 4 {
                let (volume, clock) = (volume.clone(), rt.clone());
                others.push(rt.spawn(async move {
                    clock.sleep(Duration::from_us(40 * (chunk / 2))).await;
                    let (block, value) = (4 * chunk, || filled(BLOCK, 3));
                    let (tag, was) = (Tag::default(), filled(BLOCK, 2));
                    match chunk % 2 {
                        0 => volume.write(tag, block, value(), false).await,
                        _ => {
                            let io = volume.compare_and_write(tag, block, was, value(), false);
                            io.await
                        }
                    }
                }));
            }
            rt.sleep(Duration::from_us(100 + 30 * seed)).await;
            let restored = pool.restore("v", "one").await;
            restored.expect("it is the newest");
            for other in others {
                let ended = other.await;
                assert!(matches!(ended, Ok(()) | Err(IoError::Miscompare)));
            }
            let found = read(&*volume, 0, all).await.expect("it is good");
            for (at, block) in found.chunks(BLOCK).enumerate() {
                let written = at % 8 == 0 && block[0] == 3;
                assert!(block[0] == 1 || written, "block {at} has {}", block[0]);
            }
            pool.close().await;
        });
    }
}
