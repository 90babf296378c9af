//! Pools that an earlier version has written: they are opened, checked and repaired, and today's
//! version writes the same bytes.

use flashyard_block::Verdict;
use flashyard_block::pool::{Pool, PoolError, check};
use flashyard_corpus::Image;
use flashyard_runtime::Rt;
use flashyard_testbed::{Disk, run};

const MIB: u64 = 1 << 20;
const UUID: [u8; 16] = *b"the pool's uuid!";

/// A disk with what `image` says, and one bit changed in each of the copies that are `damaged`.
fn disk(image: &str, damaged: &[usize]) -> Disk {
    let mut content = Image::named(image).bytes();
    for copy in damaged {
        content[copy * MIB as usize + 70] ^= 4;
    }
    Disk::new(4096, content, 1)
}

/// Names, UUIDs, bytes and allocated bytes of all volumes.
type Volumes = Vec<(String, [u8; 16], u64, u64)>;

fn volumes(second: u64) -> Volumes {
    vec![
        ("log.s-1".into(), [2; 16], second * MIB, second * MIB),
        ("orders".into(), [1; 16], 3 * MIB, 3 * MIB),
    ]
}

fn list(pool: &Pool) -> Volumes {
    let listed = pool.list().into_iter();
    let volumes = listed.map(|one| (one.name, one.uuid, one.bytes, one.allocated));
    volumes.collect()
}

#[test]
fn pools_of_an_earlier_version_are_opened_checked_and_repaired() {
    let cut = "one copy is older: a change was cut off; the next change repairs it";
    let first = "the first copy is not usable: its checksum is wrong; opening the pool \
                 writes it anew from the other one";
    let second = "the second copy is not usable: its checksum is wrong; opening the \
                  pool writes it anew from the other one";
    // The image, the damaged copies, what is to be repaired, and the generation that counts.
    let none: &[usize] = &[];
    let cases = [
        ("pool", none, None, 7),
        ("pool-cut", none, Some(cut), 8),
        ("pool", &[0], Some(first), 7),
        ("pool", &[1], Some(second), 7),
        ("pool-cut", &[0], Some(first), 7),
        ("pool-cut", &[1], Some(second), 8),
    ];
    run(async move |rt: Rt| {
        for (image, damaged, repair, generation) in cases {
            // It grew by the change that was cut off.
            let second = generation - 6;
            let disk = disk(image, damaged);
            let report = check(&rt, disk.shared()).await.expect("it can be read");
            let repairs: Vec<&str> = report.repairs.iter().map(String::as_str).collect();
            assert_eq!(repairs, Vec::from_iter(repair), "{image} {damaged:?}");
            assert!(report.problems.is_empty(), "{report}");

            let pool = Pool::open(&rt, disk.shared()).await.expect("one is whole");
            assert_eq!(list(&pool), volumes(second), "{image} {damaged:?}");
            let info = pool.info();
            // What was damaged was written anew, as a state of its own.
            let opened = generation + damaged.len() as u64;
            assert_eq!(
                (info.uuid, info.bytes, info.generation),
                (UUID, 6 * MIB, opened)
            );
            pool.rename("orders", "sales").await.unwrap();
            pool.rename("sales", "orders").await.unwrap();
            let report = check(&rt, disk.shared()).await.expect("it can be read");
            assert_eq!(report.verdict(), Verdict::Sound, "{image}: {report}");
            let again = Pool::open(&rt, disk.shared()).await.expect("it is whole");
            assert_eq!(list(&again), volumes(second), "{image} {damaged:?}");
        }
    });
}

#[test]
fn a_pool_of_which_both_copies_are_damaged_is_refused_and_left_alone() {
    run(async |rt: Rt| {
        for image in ["pool", "pool-cut"] {
            let disk = disk(image, &[0, 1]);
            let before = disk.content().bytes();
            let report = check(&rt, disk.shared()).await.expect("it can be read");
            assert_eq!(report.verdict(), Verdict::Lost);
            assert!(report.volumes.is_empty() && report.repairs.is_empty());
            let why = || "its checksum is wrong".to_owned();
            let refused = Pool::open(&rt, disk.shared()).await.err();
            assert_eq!(refused, Some(PoolError::Damaged([why(), why()])));
            let refused = Pool::create(&rt, disk.shared(), UUID, false).await.err();
            assert_eq!(refused, Some(PoolError::HoldsPool));
            assert!(*disk.bytes() == before, "nothing was changed");
        }
    });
}

/// The changes that made the images, once more.
#[test]
fn the_bytes_are_those_of_the_earlier_version() {
    run(async |rt: Rt| {
        let disk = Disk::new(4096, vec![0; 8 * MIB as usize], 1);
        let created = Pool::create(&rt, disk.shared(), UUID, false).await;
        let pool = created.expect("the disk is empty");
        let add = async |name, uuid, bytes| {
            let created = pool.create_volume(name, [uuid; 16], bytes).await;
            drop(created.expect("there is room"));
        };
        add("orders", 1, MIB + 5).await;
        add("gone", 9, MIB).await;
        add("logs", 2, MIB).await;
        pool.grow("orders", 3 * MIB).await.unwrap();
        pool.delete("gone").await.unwrap();
        pool.rename("logs", "log.s-1").await.unwrap();
        assert!(*disk.bytes() == Image::named("pool").bytes());
        pool.grow("log.s-1", 2 * MIB).await.unwrap();
        let cut = Image::named("pool-cut").bytes();
        // Only one copy of the last change was written there.
        let copy = |bytes: &[u8], copy: u64| bytes[(copy * MIB) as usize..][..4096].to_vec();
        assert!(copy(&disk.bytes(), 0) == copy(&cut, 0));
        assert!(copy(&disk.bytes(), 1) == copy(&cut, 0));
    });
}
