//! Volumes of mapped pools with long chunks, compression and encryption, over data that can be
//! compressed, that cannot, zeroes, and all of them mixed.

mod encrypted;

use std::rc::Rc;

use encrypted::{create, open};
use flashyard_block::pool::{NewVolume, Pool, PoolError, VolumeForm, check};
use flashyard_block::{DeviceExt, IoError, MemoryDevice, SharedDevice, Tag, Verdict};
use flashyard_codec::compress::Codec;
use flashyard_runtime::sim::{Config, World};
use flashyard_runtime::{Buf, Rt};
use flashyard_testbed::{Disk, behaves_as_an_array, filled, flush, read, run, write};
use flashyard_time::Rng;

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
const UUID: [u8; 16] = *b"the pool's uuid!";

fn forms() -> Vec<VolumeForm> {
    let codecs = [None, Some(Codec::Lz4), Some(Codec::Zstd)];
    let all = VolumeForm::CHUNKS
        .into_iter()
        .flat_map(|chunk| codecs.map(|compression| VolumeForm { chunk, compression }));
    all.collect()
}

fn memory(block_size: u32, bytes: u64) -> SharedDevice {
    Rc::new(MemoryDevice::new(block_size, bytes).expect("a good size"))
}

/// All forms, plain and encrypted.
fn kinds() -> impl Iterator<Item = (VolumeForm, bool)> {
    let both = |form| [false, true].map(|encrypted| (form, encrypted));
    forms().into_iter().flat_map(both)
}

async fn new_volume(pool: &Pool, form: VolumeForm, bytes: u64) -> SharedDevice {
    let wanted = NewVolume {
        form,
        ..NewVolume::new("v", [1; 16], bytes)
    };
    let made = pool.create_volumes(vec![wanted]).await;
    made.expect("there is room").remove(0)
}

/// A pool that was closed has nothing to be repaired: the last checkpoint was let end.
async fn assert_whole(rt: &Rt, device: &SharedDevice) {
    let report = check(rt, device.clone()).await.expect("it can be read");
    assert_eq!(report.verdict(), Verdict::Sound, "{report}");
}

/// Data of a kind: text, noise, zeroes, or changing all 1 KiB.
fn data(kind: u64, len: usize, chance: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for (place, part) in bytes.chunks_mut(1024).enumerate() {
        match (kind, place % 3) {
            (0, _) | (3, 0) => {
                let word = chance.below(900).to_string();
                part.iter_mut()
                    .zip(word.bytes().cycle())
                    .for_each(|(to, from)| *to = from);
            }
            (1, _) | (3, 1) => part
                .iter_mut()
                .for_each(|byte| *byte = chance.below(256) as u8),
            _ => {}
        }
    }
    bytes
}

fn buf(bytes: &[u8]) -> Buf {
    let mut buf = filled(bytes.len(), 0);
    buf.copy_from_slice(bytes);
    buf
}

#[test]
fn a_volume_of_any_form_is_an_array_and_is_found_again() {
    let block_sizes = [512, 4096, 4096, 512].into_iter().cycle();
    for ((form, encrypted), block_size) in kinds().zip(block_sizes) {
        let world = World::new(Config::calm(1));
        world.run(&world.machine(1), move |rt: Rt| async move {
            let device = memory(block_size, 64 * MIB);
            let pool = create(&rt, &device, UUID, encrypted).await;
            let volume = new_volume(&pool, form, 1 << 40).await;
            assert_eq!(volume.info().block_size, 4096);
            for seed in 0..4 {
                behaves_as_an_array(&*volume, seed, 250).await;
                volume
                    .deallocate(Tag::default(), 0, 1 << 28)
                    .await
                    .expect("it is good");
            }
            write(&*volume, 7, 5 * BLOCK, 9)
                .await
                .expect("there is room");
            pool.close().await;
            drop((pool, volume));
            let pool = open(&rt, &device).await;
            assert_eq!(pool.list()[0].form, form);
            assert_eq!(pool.info().encrypted, encrypted);
            let volume = pool.volume("v").expect("it is there");
            assert_eq!(read(&*volume, 7, 5 * BLOCK).await, Ok(vec![9; 5 * BLOCK]));
            assert_eq!(read(&*volume, 12, BLOCK).await, Ok(vec![0; BLOCK]));
            pool.close().await;
            assert_whole(&rt, &device).await;
        });
    }
}

#[test]
fn data_of_every_kind_come_back_through_garbage_collection_and_openings() {
    run(async |rt: Rt| {
        for (seed, (form, encrypted)) in (0..).zip(kinds()) {
            let disk = Disk::new(512, vec![0; 40 << 20], seed);
            let device = disk.shared();
            let mut pool = create(&rt, &device, UUID, encrypted).await;
            let mut volume = new_volume(&pool, form, 16 * MIB).await;
            let mut chance = Rng::new(seed);
            let mut model = vec![0; 6 << 20];
            let blocks = (model.len() / BLOCK) as u64;
            for step in 0..500 {
                let first = chance.below(blocks - 80);
                let len = (1 + chance.below(80)) as usize * BLOCK;
                let at = first as usize * BLOCK..first as usize * BLOCK + len;
                match chance.below(8) {
                    0 => {
                        let count = (len / BLOCK) as u64;
                        volume
                            .deallocate(Tag::default(), first, count)
                            .await
                            .expect("it is good");
                        model[at].fill(0);
                    }
                    1 | 2 => {
                        assert!(read(&*volume, first, len).await.expect("it is good") == model[at])
                    }
                    kind => {
                        let bytes = data(kind % 4, len, &mut chance);
                        let written = volume.write(Tag::default(), first, buf(&bytes), kind == 7);
                        written.await.expect("there is room");
                        model[at].copy_from_slice(&bytes);
                    }
                }
                if step % 120 == 119 {
                    flush(&*volume).await.expect("it is good");
                    pool.close().await;
                    drop((pool, volume));
                    pool = open(&rt, &device).await;
                    volume = pool.volume("v").expect("it is there");
                }
            }
            for (at, part) in (0..).step_by(256).zip(model.chunks(1 << 20)) {
                let found = read(&*volume, at, part.len()).await.expect("it is good");
                assert!(found == part, "{form:?}, encrypted: {encrypted}");
            }
            pool.close().await;
            assert_whole(&rt, &device).await;
        }
    });
}

#[test]
fn what_is_compressed_takes_less_zeroes_nothing_and_what_cannot_be_no_more() {
    let world = World::new(Config::calm(1));
    world.run(&world.machine(1), move |rt: Rt| async move {
        for (form, encrypted) in kinds() {
            let device = memory(4096, 64 * MIB);
            let pool = create(&rt, &device, UUID, encrypted).await;
            let volume = new_volume(&pool, form, 16 * MIB).await;
            let mut chance = Rng::new(1);
            let mut taken = Vec::new();
            for kind in 0..3 {
                let bytes = data(kind, 1 << 20, &mut chance);
                let written = volume.write(Tag::default(), 0, buf(&bytes), true);
                written.await.expect("there is room");
                let Pool::Mapped(mapped) = &pool else {
                    panic!("it was made mapped");
                };
                mapped.checkpoint().await.expect("it is good");
                let info = &pool.list()[0];
                let facts = pool.info();
                assert_eq!(
                    (info.written, info.allocated),
                    (facts.written, facts.stored)
                );
                taken.push((info.written, info.allocated));
            }
            let [text, noise, zeroes] = taken[..] else {
                panic!("three kinds");
            };
            assert_eq!(noise, (MIB, MIB), "{form:?}");
            match form.compression {
                None => assert_eq!((text, zeroes), (noise, noise), "{form:?}"),
                Some(_) => {
                    assert!(text.0 == MIB && text.1 < MIB / 3, "{form:?}: {text:?}");
                    assert_eq!(zeroes, (0, 0), "{form:?}");
                }
            }
        }
    });
}

/// Writes of parts, of whole chunks, trims and reads of one chunk, many at once: each block is as
/// one of the last writes left it, and what was answered is never gone.
#[test]
fn parts_of_a_chunk_that_are_written_at_once_do_not_undo_each_other() {
    for seed in 0..12 {
        let world = World::new(Config::calm(seed));
        world.run(&world.machine(1), move |rt: Rt| async move {
            let disk = Disk::new(4096, vec![0; 40 << 20], seed);
            let pool = create(&rt, &disk.shared(), UUID, seed % 2 == 1).await;
            let form = forms()[3 + seed as usize % 3];
            let volume = new_volume(&pool, form, MIB).await;
            let mut chance = Rng::new(seed);
            for round in 0..40 {
                // Each writes blocks of its own of the same chunks.
                let mut writes = Vec::new();
                let mut at = chance.below(3);
                let from = at;
                while at < 40 {
                    let count = 1 + chance.below(6);
                    let value = 1 + (round * 40 + at) as u8 % 250;
                    let bytes = filled(count as usize * BLOCK, value);
                    let volume = volume.clone();
                    let io = rt
                        .spawn(async move { volume.write(Tag::default(), at, bytes, false).await });
                    writes.push((at, count, value, io));
                    at += count;
                }
                let mut expected = vec![0; (at - from) as usize * BLOCK];
                for (first, count, value, io) in writes {
                    io.await.expect("there is room");
                    let place = (first - from) as usize * BLOCK;
                    expected[place..place + count as usize * BLOCK].fill(value);
                }
                let found = read(&*volume, from, expected.len())
                    .await
                    .expect("it is good");
                assert!(found == expected, "seed {seed}, round {round}");
            }
            pool.close().await;
        });
    }
}

#[test]
fn stored_bytes_that_were_changed_are_an_error_and_never_data() {
    let (mut errors, mut flips) = (0, 0);
    let world = World::new(Config::calm(1));
    for (form, encrypted) in kinds() {
        let world = &world;
        let (bad, all) = world.run(&world.machine(1), move |rt: Rt| async move {
            let device = memory(4096, 40 * MIB);
            let pool = create(&rt, &device, UUID, encrypted).await;
            let volume = new_volume(&pool, form, 2 * MIB).await;
            let mut chance = Rng::new(5);
            let bytes = data(3, 1 << 20, &mut chance);
            volume
                .write(Tag::default(), 0, buf(&bytes), true)
                .await
                .expect("there is room");
            let (mut bad, mut all) = (0, 0);
            for _ in 0..60 {
                // A bit of the log, of data or of what is known of them.
                let block = 512 + chance.below(700);
                let mut stored = read(&*device, block, BLOCK).await.expect("it is good");
                let bit = chance.below(8 * BLOCK as u64) as usize;
                stored[bit / 8] ^= 1 << (bit % 8);
                device
                    .write(Tag::default(), block, buf(&stored), false)
                    .await
                    .expect("there is room");
                all += 1;
                for at in (0..256).step_by(4) {
                    let place = at as usize * BLOCK..at as usize * BLOCK + 4 * BLOCK;
                    match read(&*volume, at, 4 * BLOCK).await {
                        Ok(found) => assert!(found == bytes[place], "{form:?}"),
                        Err(error) => {
                            assert_eq!(error, IoError::Read);
                            bad += 1;
                        }
                    }
                }
                stored[bit / 8] ^= 1 << (bit % 8);
                device
                    .write(Tag::default(), block, buf(&stored), false)
                    .await
                    .expect("there is room");
            }
            pool.close().await;
            (bad, all)
        });
        errors += bad;
        flips += all;
    }
    assert!(
        errors > 20 && errors < flips,
        "{errors} errors of {flips} flips"
    );
}

#[test]
fn a_raw_pool_refuses_what_only_a_mapped_one_can() {
    let world = World::new(Config::calm(1));
    world.run(&world.machine(1), |rt: Rt| async move {
        let device = memory(4096, 64 * MIB);
        let pool = Pool::create(&rt, device.clone(), UUID, false)
            .await
            .expect("it holds nothing");
        for form in forms().into_iter().skip(1) {
            let wanted = NewVolume {
                form,
                ..NewVolume::new("v", [1; 16], MIB)
            };
            let refused = pool.create_volumes(vec![wanted]).await.err();
            assert_eq!(refused, Some(PoolError::Plain("v".into())));
        }
        assert!(pool.list().is_empty());
    });
}
