//! Mapped pools and their volumes: what users see.

use std::rc::Rc;

use flashyard_block::pool::{
    Kind, MappedOptions, MappedPool, NewVolume, Owner, Pool, PoolError, check,
};
use flashyard_block::{DeviceExt, IoError, MemoryDevice, SharedDevice, Tag, Verdict};
use flashyard_runtime::Rt;
use flashyard_runtime::sim::{Config, World};
use flashyard_testbed::{
    Disk, behaves_as_an_array, flush, read, refuses_what_is_not_there, run, write, yields,
};
use flashyard_time::Rng;

const MIB: u64 = 1 << 20;
const UUID: [u8; 16] = *b"the pool's uuid!";

fn memory(block_size: u32, bytes: u64) -> SharedDevice {
    Rc::new(MemoryDevice::new(block_size, bytes).expect("a good size"))
}

async fn new_pool(rt: &Rt, device: &SharedDevice) -> Pool {
    let made = Pool::create_kind(rt, device.clone(), UUID, Kind::Mapped, false).await;
    made.expect("the device holds nothing known")
}

async fn reopen(rt: &Rt, pool: Pool, device: &SharedDevice) -> Pool {
    pool.close().await;
    drop(pool);
    Pool::open(rt, device.clone()).await.expect("it is whole")
}

async fn assert_sound(rt: &Rt, device: &SharedDevice) {
    let report = check(rt, device.clone()).await.expect("it can be read");
    assert_eq!(report.verdict(), Verdict::Sound, "{report}");
}

#[test]
fn a_volume_is_an_array_and_is_found_again() {
    for block_size in [512, 4096] {
        let world = World::new(Config::calm(1));
        world.run(&world.machine(1), move |rt: Rt| async move {
            let device = memory(block_size, 64 * MIB);
            let mut pool = new_pool(&rt, &device).await;
            let volume = pool.create_volume("v", [1; 16], 1 << 40).await.unwrap();
            assert_eq!(volume.info().block_size, 4096);
            refuses_what_is_not_there(&*volume).await;
            for seed in 0..4 {
                behaves_as_an_array(&*volume, seed, 300).await;
                volume.deallocate(Tag::default(), 0, 1 << 28).await.unwrap();
            }
            for value in 1..6 {
                let volume = pool.volume("v").expect("it is there");
                write(&*volume, 7, 5 * 4096, value).await.unwrap();
                pool = reopen(&rt, pool, &device).await;
                let volume = pool.volume("v").expect("it is there");
                assert_eq!(read(&*volume, 7, 5 * 4096).await, Ok(vec![value; 5 * 4096]));
                assert_eq!(read(&*volume, 12, 4096).await, Ok(vec![0; 4096]));
                assert_sound(&rt, &device).await;
            }
        });
    }
}

/// Checkpoints and garbage collection read leaves of a map of which a third is kept in memory.
#[test]
fn a_map_that_is_larger_than_what_is_kept_of_it_in_memory() {
    const BLOCKS: u64 = 200 * 336;
    const WRITERS: u64 = 32;
    const WRITES: u64 = 1500;
    let world = World::new(Config::calm(1));
    world.run(&world.machine(1), move |rt: Rt| async move {
        let device = memory(4096, 640 * MIB);
        let options = MappedOptions {
            leaves: Some(64),
            ..MappedOptions::default()
        };
        let pool = MappedPool::create(&rt, device.clone(), UUID, options).await;
        let pool = pool.expect("the device holds nothing known");
        let all = Pool::Mapped(pool.clone());
        let volume = all.create_volume("v", [1; 16], BLOCKS * 4096).await;
        let volume = volume.expect("there is room");
        for at in (0..BLOCKS).step_by(32) {
            write(&*volume, at, 32 * 4096, 1)
                .await
                .expect("there is room");
        }
        let writers = (0..WRITERS).map(|writer| {
            let volume = volume.clone();
            rt.spawn(async move {
                let mut rng = Rng::new(writer);
                for _ in 0..WRITES {
                    let at = rng.below(BLOCKS);
                    write(&*volume, at, 4096, (at % 251) as u8)
                        .await
                        .expect("there is room");
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await;
        }
        assert!(pool.stats().victims > 0, "{:?}", pool.stats());
        assert!(pool.stats().checkpoints > 10, "{:?}", pool.stats());
        for at in (0..BLOCKS).step_by(97) {
            let found = read(&*volume, at, 4096).await.expect("it was written");
            assert!([1, (at % 251) as u8].contains(&found[0]), "block {at}");
        }
        pool.close().await;
        assert_sound(&rt, &device).await;
    });
}

#[test]
fn an_array_on_a_disk_that_takes_its_time() {
    run(async |rt: Rt| {
        for seed in 0..4 {
            let disk = Disk::new(4096, vec![0; 40 * MIB as usize], seed);
            let device = disk.behind_a_kernel(&rt).shared();
            let pool = new_pool(&rt, &device).await;
            let volume = pool.create_volume("v", [1; 16], 8 * MIB).await.unwrap();
            behaves_as_an_array(&*volume, seed, 200).await;
            pool.close().await;
        }
    });
}

#[test]
fn volumes_are_made_grown_renamed_deleted_and_keep_whose_they_are() {
    run(async |rt: Rt| {
        let device = memory(4096, 40 * MIB);
        let pool = new_pool(&rt, &device).await;
        let owner = Owner {
            tenant: "db".into(),
            nguid: [9; 16],
            eui64: Some([8; 8]),
            nsid: 3,
        };
        let a = NewVolume {
            owner: Some(owner.clone()),
            ..NewVolume::new("a", [1; 16], 5 * MIB + 1)
        };
        let made = pool.create_volumes(vec![a, NewVolume::new("b", [2; 16], MIB)]);
        let made = made.await.unwrap();
        assert_eq!(made[0].info().blocks, 5 * 256 + 1);
        let refused = |name: &str, uuid, bytes| vec![NewVolume::new(name, uuid, bytes)];
        for (wanted, why) in [
            (refused("a", [3; 16], 1), PoolError::Exists("a".into())),
            (refused("-", [3; 16], 1), PoolError::Name("-".into())),
            (refused("c", [2; 16], 1), PoolError::UuidTaken),
            (refused("c", [3; 16], 0), PoolError::Size(0)),
            (refused("c", [3; 16], 1 << 60), PoolError::Size(1 << 60)),
        ] {
            assert_eq!(pool.create_volumes(wanted).await.err(), Some(why));
        }
        let shrink = Err(PoolError::Shrink {
            name: "b".into(),
            bytes: MIB,
        });
        assert_eq!(pool.grow("b", MIB - 4096).await, shrink);
        write(&*made[1], 255, 4096, 5).await.unwrap();
        pool.grow("b", 1 << 44).await.unwrap();
        pool.rename("b", "c").await.unwrap();
        pool.set_owner(
            "c",
            Owner {
                nsid: 4,
                ..owner.clone()
            },
        )
        .await
        .unwrap();
        flush(&*made[1]).await.unwrap();
        let before = pool.list();
        let pool = reopen(&rt, pool, &device).await;
        assert_eq!(pool.list().len(), 2);
        let shown: Vec<_> = pool
            .list()
            .into_iter()
            .map(|it| (it.name, it.bytes, it.owner))
            .collect();
        let expected: Vec<_> = before
            .into_iter()
            .map(|it| (it.name, it.bytes, it.owner))
            .collect();
        assert_eq!(shown, expected);
        assert_eq!(shown[0], ("a".into(), 5 * MIB + 4096, Some(owner)));
        let c = pool.volume("c").expect("it was renamed");
        assert_eq!(read(&*c, 255, 4096).await, Ok(vec![5; 4096]));
        assert_eq!(read(&*c, (1 << 32) - 1, 4096).await, Ok(vec![0; 4096]));
        // What was looked at is as it was.
        let looked = Pool::look(&rt, device.clone()).await.expect("it is whole");
        assert_eq!((looked.0.uuid, looked.0.kind), (UUID, Kind::Mapped));
        assert_eq!(looked.1.len(), 2);

        assert_eq!(pool.destroy().await, Err(PoolError::InUse("a".into())));
        pool.delete("a").await.unwrap();
        pool.delete("c").await.unwrap();
        assert_eq!(read(&*c, 0, 4096).await, Err(IoError::NotReady));
        pool.destroy().await.unwrap();
        assert_eq!(
            pool.create_volume("d", [4; 16], 1).await.err(),
            Some(PoolError::Stuck)
        );
        let gone = Pool::open(&rt, device.clone()).await.err();
        assert_eq!(gone, Some(PoolError::NotAPool));
        Pool::create(&rt, device, UUID, false)
            .await
            .expect("it is free");
    });
}

#[test]
fn a_pool_is_refused_where_it_cannot_be_and_where_it_would_destroy_something() {
    run(async |rt: Rt| {
        let small = memory(4096, 31 * MIB);
        let refused = Pool::create_kind(&rt, small, UUID, Kind::Mapped, true).await;
        let why = refused.err().expect("it is too small");
        assert_eq!(
            why.to_string(),
            "a pool needs 33554432 bytes, the device has 32505856"
        );
        let device = memory(4096, 32 * MIB);
        let raw = Pool::create(&rt, device.clone(), UUID, false)
            .await
            .unwrap();
        drop(raw);
        let kind = Kind::Mapped;
        let refused = Pool::create_kind(&rt, device.clone(), UUID, kind, false).await;
        assert_eq!(refused.err(), Some(PoolError::HoldsPool));
        let mapped = Pool::create_kind(&rt, device.clone(), UUID, kind, true)
            .await
            .unwrap();
        assert!(mapped.info().bytes > 16 * MIB, "{:?}", mapped.info());
        mapped.close().await;
        let refused = Pool::create(&rt, device.clone(), UUID, false).await;
        assert_eq!(refused.err(), Some(PoolError::HoldsPool));
    });
}

/// A checkpoint that is on its way when the pool is closed is let end: all superblocks say the
/// same, and nothing is to be repaired.
#[test]
fn a_pool_that_is_closed_in_a_checkpoint_has_nothing_to_be_repaired() {
    run(async |rt: Rt| {
        let mut all = 0;
        for polls in (0..40).step_by(2) {
            let disk = Disk::new(4096, vec![0; 33 << 20], polls);
            let device = disk.shared();
            let pool = new_pool(&rt, &device).await;
            let volume = pool.create_volume("v", [1; 16], MIB).await;
            let volume = volume.expect("there is room");
            write(&*volume, 0, 8 * 4096, 7)
                .await
                .expect("there is room");
            let Pool::Mapped(mapped) = &pool else {
                panic!("it was made mapped");
            };
            let mut checkpoint = std::pin::pin!(mapped.checkpoint());
            let begun = std::future::poll_fn(|context| {
                std::task::Poll::Ready(checkpoint.as_mut().poll(context).is_ready())
            });
            assert!(!begun.await, "it takes some turns");
            let before = disk.happened();
            yields(polls).await;
            let cut_off = disk.happened() - before;
            pool.close().await;
            all += usize::from(disk.happened() - before > cut_off);
            drop(volume);
            assert_sound(&rt, &device).await;
        }
        assert!(all > 10, "{all} were closed before it had ended");
    });
}
