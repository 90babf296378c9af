//! Encrypted mapped pools: what is on the device, and what becomes of keys.

mod encrypted;

use std::collections::BTreeMap;

use encrypted::{create, open, secret, try_open};
use flashyard_block::pool::{
    Forgotten, KeyHeader, Kind, NewSnapshot, NewVolume, Pool, PoolError, VolumeForm, check,
};
use flashyard_block::superblock::seal;
use flashyard_block::{DeviceExt, IoError, SharedDevice, Tag, Verdict};
use flashyard_codec::compress::Codec;
use flashyard_keys::KeyError;
use flashyard_runtime::Rt;
use flashyard_testbed::cut::after_cut;
use flashyard_testbed::{Content, Disk, Event, filled, flush, read, run, write};
use flashyard_time::Rng;

const MIB: usize = 1 << 20;
const BLOCK: usize = 4096;
const UUID: [u8; 16] = [7; 16];
/// Where the two copies of the header and of the keys are, in bytes.
const HEADERS: [usize; 2] = [20 * BLOCK, 276 * BLOCK];
const KEYS: [usize; 2] = [21 * BLOCK, 277 * BLOCK];
/// Where data begin.
const LOG: usize = 512 * BLOCK;

fn disk() -> Disk {
    Disk::new(BLOCK as u32, Content::zeroes(33 * MIB), 1)
}

/// The wrapped keys of a copy, by volume.
fn keys(content: &[u8], copy: usize) -> BTreeMap<u32, Vec<u8>> {
    let area = &content[KEYS[copy]..KEYS[copy] + 120 * BLOCK];
    let kept = area.chunks_exact(512).filter(|it| it.starts_with(b"FYVK"));
    kept.map(|sector| {
        let volume = sector[8..12].try_into().expect("four bytes");
        (u32::from_le_bytes(volume), sector[32..124].to_vec())
    })
    .collect()
}

/// Whether these bytes are anywhere in others.
fn holds(content: &[u8], bytes: &[u8]) -> bool {
    let mut rest = content;
    while let Some(at) = rest.iter().position(|byte| *byte == bytes[0]) {
        if rest[at..].starts_with(bytes) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

async fn fill(volume: &SharedDevice, value: u8) {
    write(&**volume, 0, 8 * BLOCK, value)
        .await
        .expect("it works");
    flush(&**volume).await.expect("it works");
}

fn snapshot(volume: &str, name: &str, uuid: u8) -> NewSnapshot {
    NewSnapshot {
        volume: volume.into(),
        name: name.into(),
        uuid: [uuid; 16],
    }
}

#[test]
fn nothing_of_what_was_written_can_be_found_on_the_device() {
    run(async |rt: Rt| {
        let codecs = [None, Some(Codec::Lz4), Some(Codec::Zstd)];
        for (encrypted, compression) in [
            (false, None),
            (true, codecs[0]),
            (true, codecs[1]),
            (true, codecs[2]),
        ] {
            for chunk in VolumeForm::CHUNKS {
                let disk = disk();
                let pool = create(&rt, &disk.shared(), UUID, encrypted).await;
                let form = VolumeForm { chunk, compression };
                let wanted = |name: &str, uuid| NewVolume {
                    form,
                    ..NewVolume::new(name, [uuid; 16], 16 * MIB as u64)
                };
                let two = vec![wanted("v", 1), wanted("w", 2)];
                let volumes = pool.create_volumes(two).await.expect("there is room");
                // Half of each KiB cannot be compressed; the rest is the same in both volumes.
                let mut rng = Rng::new(1);
                let mut data = filled(MIB, 0);
                for part in data.chunks_exact_mut(1024) {
                    part[..512]
                        .chunks_exact_mut(8)
                        .for_each(|word| word.copy_from_slice(&rng.next_u64().to_le_bytes()));
                    part[512..].fill(b'p');
                }
                let plain = data.to_vec();
                for volume in &volumes {
                    for round in 0..12 {
                        let written =
                            volume.write(Tag::default(), round * 64, buf(&plain), round == 5);
                        written.await.expect("it works");
                    }
                }
                let Pool::Mapped(mapped) = &pool else {
                    panic!("it was made mapped")
                };
                mapped.checkpoint().await.expect("it works");
                assert_eq!(read(&*volumes[0], 11 * 64, MIB).await, Ok(plain.clone()));
                pool.close().await;
                let content = disk.content().bytes();
                let found = (0..MIB)
                    .step_by(400 << 10)
                    .any(|at| holds(&content, &plain[at..at + 16]));
                assert_eq!(found, !encrypted, "{form:?}");
                if encrypted {
                    assert!(!holds(&content[LOG..], &[b'p'; 16]), "{form:?}");
                }
            }
        }
    });
}

fn buf(bytes: &[u8]) -> flashyard_runtime::Buf {
    let mut buf = filled(bytes.len(), 0);
    buf.copy_from_slice(bytes);
    buf
}

/// The same data at the same place are stored differently in two volumes, and the same block in two
/// places of one.
#[test]
fn each_volume_has_a_key_and_each_block_a_tweak_of_its_own() {
    run(async |rt: Rt| {
        let disk = disk();
        let pool = create(&rt, &disk.shared(), UUID, true).await;
        for (name, uuid) in [("v", 1), ("w", 2)] {
            let volume = pool.create_volume(name, [uuid; 16], MIB as u64).await;
            fill(&volume.expect("there is room"), 9).await;
        }
        let content = disk.content().bytes();
        let [first, second] = [keys(&content, 0), keys(&content, 1)];
        assert_eq!(first.len(), 2);
        assert_eq!(first, second);
        // All of the log that cannot be zeroes, a header or a page of the map.
        let mut stored: Vec<&[u8]> = content[LOG..]
            .chunks_exact(BLOCK)
            .filter(|block| {
                let others: usize = block.iter().map(|byte| usize::from(*byte != 0)).sum();
                others > BLOCK - BLOCK / 32
            })
            .collect();
        assert_eq!(stored.len(), 16);
        stored.sort_unstable();
        stored.dedup();
        assert_eq!(stored.len(), 16);
        pool.close().await;
    });
}

#[test]
fn without_the_right_key_nothing_is_read_and_nothing_changes() {
    run(async |rt: Rt| {
        let disk = disk();
        let device = disk.shared();
        let pool = create(&rt, &device, UUID, true).await;
        let volume = pool.create_volume("v", [1; 16], MIB as u64).await;
        fill(&volume.expect("there is room"), 9).await;
        pool.close().await;
        let before = disk.content().bytes();
        let header = KeyHeader::find(&disk).await.expect("the disk works");
        let header = header.expect("it is encrypted");
        assert_eq!(header.uuid(), UUID);
        assert_eq!(
            header.open(&secret(b'b')).err(),
            Some(KeyError::WrongSecret)
        );
        let refused = Pool::open(&rt, device.clone()).await.err();
        assert_eq!(refused, Some(PoolError::Locked));
        let refused = Pool::create_kind(
            &rt,
            device.clone(),
            UUID,
            flashyard_block::pool::Kind::Mapped,
            false,
        );
        assert_eq!(refused.await.err(), Some(PoolError::HoldsPool));
        // Who looks sees what there is, and none of it.
        let (info, volumes) = Pool::look(&rt, device.clone()).await.expect("it is whole");
        assert!(info.encrypted && volumes.len() == 1);
        let report = check(&rt, device.clone()).await.expect("it can be read");
        assert_eq!(report.verdict(), Verdict::Sound, "{report}");
        assert!(*disk.bytes() == before);

        let (_, other) = KeyHeader::make([8; 16], &secret(b'a')).expect("there is chance");
        let pool = Pool::unlock(&rt, device.clone(), other)
            .await
            .expect("it is whole");
        let volume = pool.volume("v").expect("it is listed");
        assert_eq!(read(&*volume, 0, BLOCK).await, Err(IoError::Read));
        assert_eq!(write(&*volume, 0, BLOCK, 1).await, Err(IoError::Write));
        pool.close().await;
        let pool = open(&rt, &device).await;
        let volume = pool.volume("v").expect("it is listed");
        assert_eq!(read(&*volume, 0, BLOCK).await, Ok(vec![9; BLOCK]));
        pool.close().await;

        let plain = Disk::new(BLOCK as u32, Content::zeroes(33 * MIB), 1);
        let (_, key) = KeyHeader::make(UUID, &secret(b'a')).expect("there is chance");
        create(&rt, &plain.shared(), UUID, false)
            .await
            .close()
            .await;
        assert_eq!(KeyHeader::find(&plain).await, Ok(None));
        let refused = Pool::unlock(&rt, plain.shared(), key.clone()).await.err();
        assert_eq!(refused, Some(PoolError::NotEncrypted));
        let raw = Disk::new(BLOCK as u32, Content::zeroes(33 * MIB), 1);
        Pool::create(&rt, raw.shared(), UUID, false)
            .await
            .expect("it is blank");
        let refused = Pool::unlock(&rt, raw.shared(), key).await.err();
        assert_eq!(refused, Some(PoolError::NotEncrypted));
    });
}

/// What is damaged of keys at one place is put right from the other; at both, one volume is lost.
#[test]
fn a_copy_of_a_key_that_is_lost_is_put_right() {
    run(async |rt: Rt| {
        let disk = disk();
        let device = disk.shared();
        let pool = create(&rt, &device, UUID, true).await;
        for (name, uuid) in [("v", 1), ("w", 2)] {
            let volume = pool.create_volume(name, [uuid; 16], MIB as u64).await;
            fill(&volume.expect("there is room"), uuid).await;
        }
        pool.close().await;
        for at in [
            HEADERS[0] + 60,
            HEADERS[1] + 60,
            KEYS[0] + 40,
            KEYS[1] + 512 + 9,
        ] {
            disk.bytes()[at] ^= 4;
            let report = check(&rt, device.clone()).await.expect("it can be read");
            let is_header = HEADERS.contains(&(at - 60));
            let expected = if is_header {
                Verdict::Sound
            } else {
                Verdict::Repairable
            };
            assert_eq!(report.verdict(), expected, "{report}");
            open(&rt, &device).await.close().await;
            let content = disk.content().bytes();
            assert_eq!(keys(&content, 0), keys(&content, 1));
            assert_eq!(
                content[HEADERS[0]..][..BLOCK],
                content[HEADERS[1]..][..BLOCK]
            );
            let report = check(&rt, device.clone()).await.expect("it can be read");
            assert_eq!(report.verdict(), Verdict::Sound, "{report}");
        }
        for place in KEYS {
            disk.bytes()[place + 40] ^= 4;
        }
        let report = check(&rt, device.clone()).await.expect("it can be read");
        assert!(
            report.to_string().contains("key of volume v are lost"),
            "{report}"
        );
        let damaged = disk.bytes()[KEYS[0]..][..512].to_vec();
        let pool = open(&rt, &device).await;
        let [v, w] = ["v", "w"].map(|name| pool.volume(name).expect("it is listed"));
        assert_eq!(read(&*v, 0, BLOCK).await, Err(IoError::Read));
        assert_eq!(read(&*w, 0, BLOCK).await, Ok(vec![2; BLOCK]));
        // Somebody may know how to put it right.
        assert_eq!(disk.bytes()[KEYS[0]..][..512], damaged);
        pool.delete("v").await.expect("it is deleted");
        pool.close().await;
        open(&rt, &device).await.close().await;
        assert_eq!(disk.bytes()[KEYS[0]..][..512], [0; 512]);

        for place in HEADERS {
            disk.bytes()[place + 60] ^= 4;
        }
        assert!(matches!(
            try_open(&rt, &device).await,
            Err(PoolError::KeysDamaged(_))
        ));
        for place in HEADERS {
            disk.bytes()[place..place + BLOCK].fill(0);
        }
        let gone = Pool::open(&rt, device.clone()).await.err();
        assert!(matches!(gone, Some(PoolError::KeysDamaged(_))), "{gone:?}");
        let report = check(&rt, device).await.expect("it can be read");
        assert_eq!(report.verdict(), Verdict::Lost, "{report}");
    });
}

/// Any bytes at the places of keys: no panic, what is read is right or an error, and nothing is
/// lost of which one copy is good.
#[test]
fn what_is_spoilt_of_keys_is_refused_or_put_right() {
    run(async |rt: Rt| {
        let disk = disk();
        let pool = create(&rt, &disk.shared(), UUID, true).await;
        let volume = pool.create_volume("v", [1; 16], MIB as u64).await;
        fill(&volume.expect("there is room"), 9).await;
        pool.close().await;
        let sound = disk.content().bytes();
        let (mut refused, mut unreadable, mut good) = (0, 0, 0);
        for seed in 0..120 {
            let mut rng = Rng::new(seed);
            let mut content = sound.clone();
            let mut spoilt = [false; 2];
            for _ in 0..=rng.below(3) {
                let copy = rng.below(2) as usize;
                let (first, len) = [(HEADERS[copy], 200), (KEYS[copy], 128)][rng.below(2) as usize];
                let at = first + rng.below(len) as usize;
                content[at] ^= 1 << rng.below(8);
                spoilt[copy] = true;
                if rng.below(2) == 0 {
                    let length = content[HEADERS[copy] + 12..][..4]
                        .try_into()
                        .expect("four bytes");
                    let length = (u32::from_le_bytes(length) as usize).clamp(64, 4096);
                    seal(&mut content[HEADERS[copy]..][..length]);
                }
            }
            let disk = Disk::new(BLOCK as u32, content, seed);
            check(&rt, disk.shared()).await.expect("it can be read");
            let Ok(pool) = try_open(&rt, &disk.shared()).await else {
                refused += 1;
                continue;
            };
            let volume = pool.volume("v").expect("it is listed");
            match read(&*volume, 0, BLOCK).await {
                Ok(found) => {
                    assert_eq!(found, vec![9; BLOCK], "seed {seed}");
                    good += 1;
                }
                Err(error) => {
                    assert_eq!((error, spoilt), (IoError::Read, [true; 2]), "seed {seed}");
                    unreadable += 1;
                }
            }
            pool.close().await;
        }
        assert!(
            refused > 0 && unreadable > 0 && good > 30,
            "{refused} {unreadable} {good}"
        );
    });
}

/// What happened to volumes: when each began to be made and was there, and when it began to be
/// deleted and was gone, in events of the disk.
#[derive(Clone, Debug)]
struct Fate {
    value: u8,
    key: Vec<u8>,
    made: [usize; 2],
    deleted: [usize; 2],
}

struct Life {
    disk: Disk,
    pool: Pool,
    fates: BTreeMap<String, Fate>,
}

impl Life {
    /// Notes what was made since `began`: each volume has one value in its first blocks.
    async fn made(&mut self, began: usize, names: &[(&str, u8)]) {
        for (name, value) in names {
            fill(&self.pool.volume(name).expect("it is there"), *value).await;
        }
        let content = self.disk.content().bytes();
        let all = keys(&content, 0);
        assert_eq!(all, keys(&content, 1), "it is durable at both places");
        let known = |key: &Vec<u8>| self.fates.values().any(|fate| fate.key == *key);
        let new: Vec<_> = all.into_values().filter(|key| !known(key)).collect();
        assert_eq!(new.len(), names.len());
        for ((name, value), key) in names.iter().zip(new) {
            let fate = Fate {
                value: *value,
                key,
                made: [began, self.disk.happened()],
                deleted: [usize::MAX; 2],
            };
            self.fates.insert((*name).into(), fate);
        }
    }

    async fn delete(&mut self, name: &str) {
        let began = self.disk.happened();
        self.pool.delete(name).await.expect("it has no snapshots");
        let fate = self.fates.get_mut(name).expect("it was made");
        fate.deleted = [began, self.disk.happened()];
    }
}

/// Makes, clones and deletes volumes; the pool too.
async fn lives(rt: &Rt) -> (Life, usize) {
    let disk = disk();
    let pool = create(rt, &disk.shared(), UUID, true).await;
    let start = disk.happened();
    let mut life = Life {
        disk,
        pool,
        fates: BTreeMap::new(),
    };
    life.pool
        .create_volume("a", [1; 16], MIB as u64)
        .await
        .expect("there is room");
    life.made(start, &[("a", 11)]).await;
    let began = life.disk.happened();
    let both = vec![
        NewVolume::new("b", [2; 16], MIB as u64),
        NewVolume::new("c", [3; 16], MIB as u64),
    ];
    life.pool.create_volumes(both).await.expect("there is room");
    life.made(began, &[("b", 12), ("c", 13)]).await;
    life.pool
        .snapshot(vec![snapshot("a", "s", 21)], 0)
        .await
        .expect("there is room");
    let began = life.disk.happened();
    let clone = NewVolume::new("d", [4; 16], 0);
    life.pool
        .clone_snapshot("a", "s", clone)
        .await
        .expect("there is room");
    life.made(began, &[("d", 14)]).await;
    life.delete("b").await;
    life.delete("d").await;
    // It gets the place of one that was deleted.
    let began = life.disk.happened();
    life.pool
        .create_volume("e", [5; 16], MIB as u64)
        .await
        .expect("there is room");
    life.made(began, &[("e", 15)]).await;
    life.pool
        .delete_snapshot("a", "s")
        .await
        .expect("it has no clones");
    for name in ["a", "c", "e"] {
        life.delete(name).await;
    }
    let end = life.disk.happened();
    life.pool.destroy().await.expect("it is empty");
    (life, end)
}

/// Looks at what a cut has left.
async fn look(rt: &Rt, life: &Life, left: Content, happened: usize, is_last: bool) {
    let place = format!("cut after {happened}");
    let before_log = left.part(0..LOG);
    for (name, fate) in &life.fates {
        let gone = fate.deleted[1] <= happened;
        assert!(
            !gone || !holds(&before_log, &fate.key),
            "{place}: the key of {name} is left"
        );
    }
    let disk = Disk::new(BLOCK as u32, left, 1);
    let pool = match try_open(rt, &disk.shared()).await {
        Ok(pool) => pool,
        // The pool was being destroyed.
        Err(PoolError::NotAPool | PoolError::KeysDamaged(_)) if is_last => return,
        Err(error) => panic!("{place}: {error}"),
    };
    let mut expected = Vec::new();
    for (name, fate) in &life.fates {
        let there = pool.volume(name);
        if happened < fate.made[0] || fate.deleted[1] <= happened {
            assert!(there.is_none(), "{place}: {name}");
        }
        if fate.made[1] <= happened && happened <= fate.deleted[0] {
            assert!(there.is_some(), "{place}: {name}");
        }
        let Some(volume) = there else { continue };
        expected.push(name);
        let found = read(&*volume, 0, 8 * BLOCK).await;
        let found = found.unwrap_or_else(|error| panic!("{place}: {name}: {error:?}"));
        if fate.made[1] <= happened {
            assert!(found == vec![fate.value; found.len()], "{place}: {name}");
        }
        // What it has is used on.
        write(&*volume, 9, BLOCK, 1).await.expect(&place);
        assert_eq!(
            read(&*volume, 9, BLOCK).await,
            Ok(vec![1; BLOCK]),
            "{place}"
        );
    }
    let content = disk.content().part(0..LOG);
    let [first, second] = [keys(&content, 0), keys(&content, 1)];
    assert_eq!(first, second, "{place}");
    assert_eq!(first.len(), expected.len(), "{place}: {expected:?}");
    for (name, fate) in &life.fates {
        let kept = first.values().any(|key| *key == fate.key);
        assert_eq!(kept, expected.contains(&name), "{place}: {name}");
    }
    pool.close().await;
    let report = check(rt, disk.shared()).await.expect("it can be read");
    assert_ne!(report.verdict(), Verdict::Lost, "{place}: {report}");
}

/// The power is cut at every change of the disk while volumes come and go: no key is missing of a
/// volume that is there, and none stays of one that is not.
#[test]
fn a_cut_at_any_change_loses_no_key_and_keeps_none_that_was_erased() {
    run(async |rt: Rt| {
        let (life, end) = lives(&rt).await;
        let events: Vec<Event> = life.disk.events();
        let start = life.fates["a"].made[0];
        let blank = Content::zeroes(33 * MIB);
        let mut cuts = 0;
        for happened in start..=events.len() {
            for seed in [happened as u64, 1 + happened as u64 * 3] {
                let left = after_cut(&blank, &events[..happened], seed);
                look(&rt, &life, left, happened, happened > end).await;
                cuts += 1;
            }
        }
        assert!(cuts > 200, "{cuts} cuts");
        // What was the pool has neither keys nor anything else where they were.
        let content = life.disk.bytes();
        for first in HEADERS {
            assert!(
                content[first..first + 121 * BLOCK]
                    .iter()
                    .all(|byte| *byte == 0)
            );
        }
    });
}

/// The opening after a cut is cut, too.
#[test]
fn a_cut_of_an_opening_that_overwrites_keys_is_made_good_by_the_next() {
    run(async |rt: Rt| {
        let (life, _) = lives(&rt).await;
        let events = life.disk.events();
        let blank = Content::zeroes(33 * MIB);
        let fate = &life.fates["b"];
        let mut erased_later = 0;
        for happened in fate.deleted[0]..fate.deleted[1] {
            let left = after_cut(&blank, &events[..happened], 5);
            let disk = Disk::new(BLOCK as u32, left.clone(), 1);
            let pool = open(&rt, &disk.shared()).await;
            let there = pool.volume("b").is_some();
            pool.close().await;
            if there || !holds(&left.part(0..LOG), &fate.key) {
                continue;
            }
            erased_later += 1;
            let again = disk.events();
            for cut in 0..=again.len() {
                let left = after_cut(&left, &again[..cut], cut as u64);
                look(&rt, &life, left, happened, false).await;
            }
        }
        assert!(
            erased_later > 0,
            "the deletion was durable before its key was gone"
        );
    });
}

/// The power is cut at every write while a secret is changed: one of the two opens the pool.
#[test]
fn a_cut_while_the_secret_changes_leaves_one_that_opens() {
    run(async |rt: Rt| {
        let disk = disk();
        let pool = create(&rt, &disk.shared(), UUID, true).await;
        let volume = pool.create_volume("v", [1; 16], MIB as u64).await;
        fill(&volume.expect("there is room"), 9).await;
        let before = disk.happened();
        let find = async |disk: &Disk| {
            let header = KeyHeader::find(disk).await.expect("the disk works");
            header.expect("it is encrypted")
        };
        let header = find(&disk).await;
        let (key, place) = header.open(&secret(b'a')).expect("it is its own");
        let both = header
            .with_secret(&key, place, &secret(b'b'))
            .expect("there is chance");
        let both = both.store(&disk).await.expect("the disk works");
        assert_eq!(both.secrets(), 2);
        let middle = disk.happened();
        let last = both.only(1).store(&disk).await.expect("the disk works");
        assert_eq!(last.open(&secret(b'a')).err(), Some(KeyError::WrongSecret));
        // The pool is used meanwhile.
        pool.create_volume("w", [2; 16], MIB as u64)
            .await
            .expect("there is room");
        pool.close().await;
        let events = disk.events();
        let blank = Content::zeroes(33 * MIB);
        for happened in before..=events.len() {
            let left = after_cut(&blank, &events[..happened], happened as u64);
            let left = Disk::new(BLOCK as u32, left, 1);
            let found = find(&left).await;
            let [by_old, by_new] = [b'a', b'b'].map(|letter| found.open(&secret(letter)));
            assert!(happened > middle || by_old.is_ok(), "cut after {happened}");
            assert!(happened < middle || by_new.is_ok(), "cut after {happened}");
            let (key, _) = by_new.or(by_old).expect("one of the two");
            let pool = Pool::unlock(&rt, left.shared(), key)
                .await
                .expect("it is whole");
            let volume = pool.volume("v").expect("it was made before");
            assert_eq!(read(&*volume, 0, BLOCK).await, Ok(vec![9; BLOCK]));
            pool.close().await;
        }
    });
}

/// A pool is forgotten without its key, and the power is cut at every write of it: what is left can
/// be forgotten again, and no key is left then.
#[test]
fn a_pool_that_nobody_can_open_is_forgotten_with_all_its_keys() {
    run(async |rt: Rt| {
        let disk = disk();
        let pool = create(&rt, &disk.shared(), UUID, true).await;
        let volume = pool.create_volume("v", [1; 16], MIB as u64).await;
        fill(&volume.expect("there is room"), 9).await;
        pool.close().await;
        let key = keys(&disk.bytes(), 0).into_values().next().expect("one");
        let before = disk.happened();
        let other = Pool::forget_encrypted(&disk.shared(), [8; 16]).await;
        assert_eq!(other, Ok(Forgotten::Other));
        assert!(only_flushed(&disk, before), "another pool stays as it is");
        let forgotten = Pool::forget_encrypted(&disk.shared(), UUID).await;
        assert_eq!(forgotten, Ok(Forgotten::Erased));
        let (events, blank) = (disk.events(), Content::zeroes(33 * MIB));
        let mut outcomes = BTreeMap::new();
        for happened in before..=events.len() {
            for seed in 0..4 {
                let left = after_cut(&blank, &events[..happened], seed);
                let signpost =
                    |block: usize| holds(&left.part(block * BLOCK..(block + 1) * BLOCK), &UUID);
                let is_there = [0, 256].into_iter().any(signpost);
                let left = Disk::new(BLOCK as u32, left, 1);
                let again = Pool::forget_encrypted(&left.shared(), UUID).await;
                let again = again.unwrap_or_else(|why| panic!("cut after {happened}: {why}"));
                assert_eq!(again == Forgotten::Erased, is_there, "cut after {happened}");
                *outcomes.entry(format!("{again:?}")).or_insert(0) += 1;
                let content = left.content().part(0..LOG);
                assert!(!holds(&content, &key), "cut after {happened}");
                for first in HEADERS {
                    let area = &content[first..first + 121 * BLOCK];
                    assert!(area.iter().all(|byte| *byte == 0), "cut after {happened}");
                }
            }
        }
        assert_eq!(outcomes.len(), 2, "{outcomes:?}");
        let opened = Pool::open(&rt, disk.shared()).await.err();
        assert_eq!(opened, Some(PoolError::NotAPool));
    });
}

fn only_flushed(disk: &Disk, since: usize) -> bool {
    let all = disk.events().split_off(since);
    all.iter().all(|event| matches!(event, Event::Flush))
}

#[test]
fn only_an_encrypted_pool_is_forgotten_unopened() {
    run(async |rt: Rt| {
        for kind in [Kind::Raw, Kind::Mapped] {
            let disk = disk();
            let made = Pool::create_kind(&rt, disk.shared(), UUID, kind, false).await;
            made.expect("it holds nothing").close().await;
            let before = disk.happened();
            let forgotten = Pool::forget_encrypted(&disk.shared(), UUID).await;
            match kind {
                Kind::Raw => assert_eq!(forgotten, Ok(Forgotten::Other)),
                Kind::Mapped => assert_eq!(forgotten, Err(PoolError::NotEncrypted)),
            }
            assert!(only_flushed(&disk, before));
        }
        let blank = Pool::forget_encrypted(&disk().shared(), UUID).await;
        assert_eq!(blank, Ok(Forgotten::Absent));
    });
}
