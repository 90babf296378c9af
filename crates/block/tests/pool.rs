//! Pools and their volumes: what users see.

use std::rc::Rc;

use flashyard_block::pool::{NewVolume, Pool, PoolError, VolumeForm, check};
use flashyard_block::{Device, DeviceExt, IoError, MemoryDevice, SharedDevice, Tag, Verdict};
use flashyard_runtime::Rt;
use flashyard_testbed::{Disk, filled, flush, read, run, write, yields};
use flashyard_time::Rng;

const MIB: u64 = 1 << 20;
const UUID: [u8; 16] = *b"the pool's uuid!";

fn uuid(n: u8) -> [u8; 16] {
    [n; 16]
}

/// A disk with room for `extents`, full of data of an earlier owner.
fn used_disk(extents: u64) -> Disk {
    let mut content = vec![0xee; ((2 + extents) * MIB) as usize];
    content[..2 * MIB as usize].fill(0);
    Disk::new(4096, content, 1)
}

async fn new_pool(rt: &Rt, disk: &Disk) -> Pool {
    Pool::create(rt, disk.shared(), UUID, false)
        .await
        .expect("the disk holds nothing known")
}

async fn all_zero(device: &dyn Device) -> bool {
    let info = device.info();
    let per_mib = MIB / u64::from(info.block_size);
    for lba in (0..info.blocks).step_by(per_mib as usize) {
        let len = per_mib.min(info.blocks - lba) as usize * info.block_size as usize;
        if read(device, lba, len).await.unwrap() != vec![0; len] {
            return false;
        }
    }
    true
}

#[test]
fn volumes_are_made_grown_listed_deleted_and_found_again() {
    run(async |rt: Rt| {
        let disk = used_disk(20);
        let pool = new_pool(&rt, &disk).await;
        let a = pool.create_volume("a", uuid(1), 3 * MIB + 5).await.unwrap();
        let b = pool.create_volume("b", uuid(2), 4 * MIB).await.unwrap();
        assert_eq!(a.info().blocks, 3 * 256 + 1);
        assert!(all_zero(&*a).await && all_zero(&*b).await);

        pool.grow("a", 6 * MIB).await.unwrap();
        assert_eq!(a.info().blocks, 6 * 256);
        assert!(all_zero(&*a).await, "the part in the old last extent, too");
        // Across the border of two runs of extents.
        write(&*a, 4 * 256 - 3, 6 * 4096, 7).await.unwrap();
        assert_eq!(
            read(&*a, 4 * 256 - 3, 6 * 4096).await.unwrap(),
            vec![7; 6 * 4096]
        );
        assert!(all_zero(&*b).await);
        flush(&*a).await.unwrap();
        pool.rename("a", "z").await.unwrap();
        assert!(pool.volume("a").is_none() && pool.volume("z").is_some());
        assert_eq!(read(&*a, 4 * 256 - 3, 4096).await.unwrap(), vec![7; 4096]);

        pool.delete("b").await.unwrap();
        assert_eq!(write(&*b, 0, 4096, 1).await, Err(IoError::NotReady));
        assert_eq!(flush(&*b).await, Err(IoError::NotReady));
        assert!(pool.volume("b").is_none());
        let info = pool.info();
        assert_eq!((info.bytes, info.free), (20 * MIB, 14 * MIB));

        let again = Pool::open(&rt, disk.shared()).await.unwrap();
        assert_eq!(again.list(), pool.list());
        assert_eq!(again.info(), info);
        let a = again.volume("z").unwrap();
        assert_eq!(
            read(&*a, 4 * 256 - 3, 6 * 4096).await.unwrap(),
            vec![7; 6 * 4096]
        );
        let c = again.create_volume("c", uuid(3), 14 * MIB).await.unwrap();
        assert!(all_zero(&*c).await);
        let report = check(&rt, disk.shared()).await.unwrap();
        assert_eq!(report.verdict(), Verdict::Sound, "{report}");
        assert_eq!(report.volumes, again.list());
    });
}

#[test]
fn volumes_made_together_are_all_there_or_none() {
    run(async |rt: Rt| {
        let disk = used_disk(10);
        let pool = new_pool(&rt, &disk).await;
        let wanted = |sizes: &[u64]| {
            let each = sizes.iter().zip(1..).map(|(mib, n)| NewVolume {
                owner: None,
                form: VolumeForm::default(),
                name: format!("v{n}"),
                uuid: uuid(n),
                bytes: mib * MIB,
            });
            each.collect::<Vec<_>>()
        };
        let before = pool.info();
        let refused = pool.create_volumes(wanted(&[3, 4, 5])).await.map(drop);
        assert!(
            matches!(refused, Err(PoolError::Full { .. })),
            "{refused:?}"
        );
        assert_eq!((pool.list().len(), pool.info()), (0, before));
        let mut twice = wanted(&[1, 1]);
        twice[1].name = "v1".to_owned();
        let refused = pool.create_volumes(twice).await.map(drop);
        assert_eq!(refused, Err(PoolError::Exists("v1".to_owned())));
        assert_eq!((pool.list().len(), pool.info()), (0, before));

        let made = pool.create_volumes(wanted(&[3, 4, 1])).await.unwrap();
        assert_eq!(pool.info().generation, before.generation + 1);
        let sizes: Vec<u64> = made.iter().map(|it| it.info().blocks / 256).collect();
        assert_eq!(sizes, [3, 4, 1]);
        for device in &made {
            assert!(all_zero(&**device).await);
        }
        let (name, second) = pool.find(uuid(2)).unwrap();
        assert_eq!((name.as_str(), second.info().blocks), ("v2", 4 * 256));
        assert!(pool.find(uuid(9)).is_none());
        let again = Pool::open(&rt, disk.shared()).await.unwrap();
        assert_eq!(again.list(), pool.list());
    });
}

#[test]
fn a_pool_is_not_made_over_something_else() {
    run(async |rt: Rt| {
        let disk = used_disk(4);
        let pool = new_pool(&rt, &disk).await;
        pool.create_volume("old", uuid(1), MIB).await.unwrap();
        let occupied = Pool::create(&rt, disk.shared(), uuid(9), false).await.err();
        assert!(matches!(occupied, Some(PoolError::HoldsPool)));
        let forced = Pool::create(&rt, disk.shared(), uuid(9), true)
            .await
            .unwrap();
        assert_eq!(forced.list(), []);
        let reopened = Pool::open(&rt, disk.shared()).await.unwrap();
        assert_eq!((reopened.info().uuid, reopened.list()), (uuid(9), vec![]));

        let other = used_disk(4);
        other.bytes()[1080..1082].copy_from_slice(&[0x53, 0xef]);
        let occupied = Pool::create(&rt, other.shared(), UUID, false).await.err();
        assert_eq!(
            occupied,
            Some(PoolError::Occupied("an ext file system".into()))
        );
        assert_eq!(
            Pool::open(&rt, other.shared()).await.err(),
            Some(PoolError::NotAPool)
        );
    });
}

#[test]
fn a_destroyed_pool_leaves_an_empty_device() {
    run(async |rt: Rt| {
        let disk = used_disk(4);
        let pool = new_pool(&rt, &disk).await;
        pool.create_volume("v", uuid(1), MIB).await.unwrap();
        assert_eq!(pool.destroy().await, Err(PoolError::InUse("v".to_owned())));
        pool.delete("v").await.unwrap();
        pool.destroy().await.unwrap();
        assert_eq!(
            pool.create_volume("w", uuid(2), MIB).await.err(),
            Some(PoolError::Stuck)
        );
        assert_eq!(
            Pool::open(&rt, disk.shared()).await.err(),
            Some(PoolError::NotAPool)
        );
        let next = Pool::create(&rt, disk.shared(), uuid(9), false).await;
        assert_eq!(next.unwrap().info().uuid, uuid(9));
    });
}

#[test]
fn a_pool_is_opened_only_on_its_device() {
    run(async |rt: Rt| {
        let disk = used_disk(4);
        let pool = new_pool(&rt, &disk).await;
        pool.create_volume("v", uuid(1), 4 * MIB).await.unwrap();
        let content = disk.content().bytes();
        let opened = async |block_size, content: Vec<u8>| {
            Pool::open(&rt, Disk::new(block_size, content, 1).shared()).await
        };
        let blocks = opened(512, content.clone()).await.err();
        assert!(
            matches!(blocks, Some(PoolError::Geometry(why)) if why.contains("block_size = 4096"))
        );
        let smaller = opened(4096, content[..5 * MIB as usize].to_vec())
            .await
            .err();
        assert!(matches!(smaller, Some(PoolError::Geometry(_))));
        let mut larger = content.clone();
        larger.resize(10 * MIB as usize, 0xee);
        let larger = opened(4096, larger).await.unwrap();
        assert_eq!(larger.info().free, 4 * MIB);
        let new = larger.create_volume("w", uuid(2), 4 * MIB).await.unwrap();
        assert!(all_zero(&*new).await);
    });
}

#[test]
fn one_damaged_copy_loses_nothing_and_two_are_reported() {
    run(async |rt: Rt| {
        for copy in 0..2 {
            let disk = used_disk(8);
            let pool = new_pool(&rt, &disk).await;
            pool.create_volume("a", uuid(1), 2 * MIB).await.unwrap();
            pool.create_volume("b", uuid(2), 2 * MIB).await.unwrap();
            pool.delete("a").await.unwrap();
            pool.grow("b", 3 * MIB).await.unwrap();
            disk.bytes()[copy * MIB as usize + 70] ^= 1;
            let report = check(&rt, disk.shared()).await.unwrap();
            assert!(
                report.verdict() == Verdict::Repairable
                    && !report.copies[copy].whole
                    && report.copies[1 - copy].whole
            );

            let again = Pool::open(&rt, disk.shared()).await.unwrap();
            assert_eq!(again.list(), pool.list());
            assert_eq!(
                check(&rt, disk.shared()).await.unwrap().verdict(),
                Verdict::Sound,
                "it was repaired"
            );
            // What one copy alone calls clean is not believed.
            disk.bytes()[2 * MIB as usize..4 * MIB as usize].fill(0xcc);
            let c = again.create_volume("c", uuid(3), 4 * MIB).await.unwrap();
            assert!(all_zero(&*c).await);
            assert_eq!(
                check(&rt, disk.shared()).await.unwrap().verdict(),
                Verdict::Sound
            );

            disk.bytes()[70] ^= 1;
            disk.bytes()[MIB as usize + 71] ^= 1;
            let both = Pool::open(&rt, disk.shared()).await.err();
            assert!(matches!(both, Some(PoolError::Damaged(_))));
            let create = Pool::create(&rt, disk.shared(), UUID, false).await.err();
            assert!(matches!(create, Some(PoolError::HoldsPool)));
        }
    });
}

#[test]
fn any_content_of_a_disk_is_refused_or_consistent() {
    run(async |rt: Rt| {
        let disk = used_disk(6);
        let pool = new_pool(&rt, &disk).await;
        for n in 1..5 {
            pool.create_volume(&format!("v{n}"), uuid(n), MIB)
                .await
                .unwrap();
        }
        let original = disk.content().bytes();
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let mut bytes = disk.bytes();
            bytes[..2 * MIB as usize].copy_from_slice(&original[..2 * MIB as usize]);
            for _ in 0..=rng.below(20) {
                let at = rng.below(2) * MIB + rng.below(500);
                bytes[at as usize] = rng.below(256) as u8;
            }
            drop(bytes);
            let report = check(&rt, disk.shared()).await.unwrap();
            match Pool::open(&rt, disk.shared()).await {
                Ok(opened) => assert_eq!(opened.list(), pool.list(), "seed {seed}"),
                Err(error) => assert!(
                    report.problems.contains(&error.to_string()),
                    "seed {seed}: {error}"
                ),
            }
        }
    });
}

#[test]
fn io_goes_on_while_a_volume_grows_and_stays_inside() {
    run(async |rt: Rt| {
        let disk = used_disk(16);
        let pool = new_pool(&rt, &disk).await;
        let volumes: Vec<SharedDevice> = [
            pool.create_volume("a", uuid(1), MIB).await.unwrap(),
            pool.create_volume("b", uuid(2), MIB).await.unwrap(),
        ]
        .into();
        let writers: Vec<_> = volumes
            .iter()
            .zip([10u8, 20])
            .map(|(volume, value)| {
                let volume = volume.clone();
                rt.spawn(async move {
                    for round in 0..200u64 {
                        let blocks = volume.info().blocks;
                        let lba = round * 37 % (blocks - 4);
                        write(&*volume, lba, 4 * 4096, value).await.unwrap();
                        assert_eq!(
                            read(&*volume, lba, 4 * 4096).await.unwrap(),
                            vec![value; 4 * 4096]
                        );
                        let last = volume.info().blocks - 1;
                        let behind = write(&*volume, last, 2 * 4096, value).await;
                        assert_eq!(behind, Err(IoError::OutOfRange));
                    }
                })
            })
            .collect();
        for step in 2..7 {
            pool.grow("a", step * MIB).await.unwrap();
            pool.grow("b", step * MIB).await.unwrap();
        }
        for writer in writers {
            writer.await;
        }
        for (volume, value) in volumes.iter().zip([10u8, 20]) {
            for lba in 0..volume.info().blocks {
                let block = read(&**volume, lba, 4096).await.unwrap();
                assert!(
                    block.iter().all(|&byte| byte == value) || block.iter().all(|&byte| byte == 0)
                );
            }
        }
    });
}

#[test]
fn space_is_not_reused_before_the_last_write_of_its_old_owner_has_landed() {
    run(async |rt: Rt| {
        for seed in 0..40 {
            let disk = Disk::new(4096, vec![0; 6 * MIB as usize], seed).behind_a_kernel(&rt);
            let pool = new_pool(&rt, &disk).await;
            let old = pool.create_volume("old", uuid(1), 4 * MIB).await.unwrap();
            let mut rng = Rng::new(seed);
            for _ in 0..20 {
                let mut io = old.write(
                    Tag::default(),
                    rng.below(1020),
                    filled(4 * 4096, 0xdd),
                    false,
                );
                // Issued, then no task waits for it.
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                let _issued = std::pin::Pin::new(&mut io).poll(&mut context);
            }
            pool.delete("old").await.unwrap();
            let new = pool.create_volume("new", uuid(2), 4 * MIB).await.unwrap();
            yields(1500).await;
            assert!(all_zero(&*new).await, "seed {seed}");
        }
    });
}

#[test]
fn a_change_that_failed_half_way_stops_further_ones_until_the_pool_is_opened_again() {
    run(async |rt: Rt| {
        for fail_after in 0..8 {
            let disk = used_disk(8);
            let pool = new_pool(&rt, &disk).await;
            let keep = pool.create_volume("keep", uuid(1), MIB).await.unwrap();
            write(&*keep, 3, 4096, 9).await.unwrap();
            disk.fail_after(fail_after);
            let made = pool.create_volume("more", uuid(2), 2 * MIB).await;
            disk.fail_after(u64::MAX);
            let again = pool.create_volume("later", uuid(3), MIB).await.err();
            let committing = (2..6).contains(&fail_after);
            assert_eq!(again == Some(PoolError::Stuck), committing, "{fail_after}");
            assert_eq!(made.is_ok(), fail_after >= 6);
            assert_eq!(read(&*keep, 3, 4096).await.unwrap(), [9; 4096]);
            let opened = Pool::open(&rt, disk.shared()).await.unwrap();
            assert!(opened.volume("keep").is_some());
            opened.delete("keep").await.unwrap();
            assert_eq!(
                check(&rt, disk.shared()).await.unwrap().verdict(),
                Verdict::Sound
            );
        }
    });
}

#[test]
fn a_pool_over_a_large_sparse_device_costs_little() {
    run(async |rt: Rt| {
        let memory = Rc::new(MemoryDevice::new(512, 1 << 40).unwrap());
        let pool = Pool::create(&rt, memory.clone(), UUID, false)
            .await
            .unwrap();
        let volume = pool.create_volume("v", uuid(1), 900 << 30).await.unwrap();
        write(&*volume, (900 << 21) - 8, 4096, 3).await.unwrap();
        assert!(memory.allocated() < 1 << 20);
        pool.delete("v").await.unwrap();
        assert!(memory.allocated() <= 128 << 10, "only the metadata is left");
    });
}
