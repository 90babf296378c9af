//! Snapshots of mapped volumes and clones of them: what users see.

mod encrypted;

use std::rc::Rc;

use encrypted::{create, open};
use flashyard_block::pool::{NewSnapshot, NewVolume, Pool, PoolError, check};
use flashyard_block::{DeviceExt, IoError, MemoryDevice, SharedDevice, Tag, Verdict};
use flashyard_runtime::Rt;
use flashyard_testbed::{read, run, write};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
const UUID: [u8; 16] = *b"the pool's uuid!";

fn memory() -> SharedDevice {
    Rc::new(MemoryDevice::new(4096, 64 * MIB).expect("a good size"))
}

async fn new_pool(rt: &Rt, device: &SharedDevice) -> Pool {
    create(rt, device, UUID, false).await
}

async fn reopen(rt: &Rt, pool: Pool, device: &SharedDevice) -> Pool {
    pool.close().await;
    drop(pool);
    open(rt, device).await
}

fn snapshot(volume: &str, name: &str, uuid: u8) -> NewSnapshot {
    NewSnapshot {
        volume: volume.into(),
        name: name.into(),
        uuid: [uuid; 16],
    }
}

/// What a volume or snapshot has in each of its first blocks.
async fn values(pool: &Pool, uuid: u8) -> Vec<u8> {
    let (_, device) = pool.find([uuid; 16]).expect("it is there");
    let bytes = read(&*device, 0, 6 * BLOCK as usize).await.expect("good");
    bytes.chunks(BLOCK as usize).map(|block| block[0]).collect()
}

#[test]
fn snapshots_stay_clones_go_their_own_way_and_all_of_it_is_found_again() {
    run(async |rt: Rt| {
        for encrypted in [false, true] {
            live_with_snapshots(&rt, encrypted).await;
        }
    });
}

async fn live_with_snapshots(rt: &Rt, encrypted: bool) {
    let device = memory();
    let mut pool = create(rt, &device, UUID, encrypted).await;
    let volume = pool
        .create_volume("v", [1; 16], MIB)
        .await
        .expect("there is room");
    write(&*volume, 0, 4 * BLOCK as usize, 1)
        .await
        .expect("there is room");
    pool.snapshot(vec![snapshot("v", "one", 11)], 1000)
        .await
        .expect("there is a place");
    write(&*volume, 1, BLOCK as usize, 2)
        .await
        .expect("there is room");
    volume
        .deallocate(Tag::default(), 3, 1)
        .await
        .expect("it is good");
    pool.snapshot(vec![snapshot("v", "two", 12)], 2000)
        .await
        .expect("there is a place");
    write(&*volume, 0, BLOCK as usize, 3)
        .await
        .expect("there is room");
    let clone = NewVolume::new("c", [21; 16], 0);
    let clone = pool
        .clone_snapshot("v", "one", clone)
        .await
        .expect("there is a place");
    assert_eq!(clone.info().blocks, MIB / BLOCK);
    write(&*clone, 5, BLOCK as usize, 4)
        .await
        .expect("there is room");
    for _ in 0..3 {
        assert_eq!(values(&pool, 1).await, [3, 2, 1, 0, 0, 0]);
        assert_eq!(values(&pool, 11).await, [1, 1, 1, 1, 0, 0]);
        assert_eq!(values(&pool, 12).await, [1, 2, 1, 0, 0, 0]);
        assert_eq!(values(&pool, 21).await, [1, 1, 1, 1, 0, 4]);
        let report = check(rt, device.clone()).await.expect("it can be read");
        assert_eq!(report.verdict(), Verdict::Sound, "{report}");
        pool = reopen(rt, pool, &device).await;
    }
    let all = pool.snapshots();
    let facts = all
        .iter()
        .map(|one| (&*one.name, one.made, one.allocated / BLOCK));
    let facts: Vec<_> = facts.collect();
    assert_eq!(facts, [("one", 1000, 4), ("two", 2000, 1)]);
    assert_eq!(
        (all[1].shared / BLOCK, &all[0].clones),
        (2, &vec!["c".to_owned()])
    );
    let volumes = pool.list();
    let counts = volumes
        .iter()
        .map(|it| (&*it.name, it.allocated / BLOCK, it.shared / BLOCK));
    let counts: Vec<_> = counts.collect();
    assert_eq!(counts, [("c", 1, 4), ("v", 1, 2)]);
    assert_eq!(pool.info().snapshots, 5 * BLOCK);
    assert_eq!(pool.info().logical, 2 * MIB);
    pool.rename("v", "w").await.expect("the name is free");
    assert_eq!(pool.snapshots()[0].volume, "w");
    pool.restore("w", "two").await.expect("it is the newest");
    assert_eq!(values(&pool, 1).await, [1, 2, 1, 0, 0, 0]);
    pool.delete("c").await.expect("nothing stands on it");
    pool.delete_snapshot("w", "one")
        .await
        .expect("nothing stands on it");
    pool.delete_snapshot("w", "two")
        .await
        .expect("nothing stands on it");
    pool = reopen(rt, pool, &device).await;
    assert_eq!(values(&pool, 1).await, [1, 2, 1, 0, 0, 0]);
    assert_eq!(pool.snapshots(), []);
    pool.delete("w").await.expect("nothing stands on it");
    pool.destroy().await.expect("it has no volumes");
}

#[test]
fn what_cannot_be_done_is_refused_with_what_to_do() {
    run(async |rt: Rt| {
        let device = memory();
        let pool = new_pool(&rt, &device).await;
        for (name, uuid) in [("v", 1), ("w", 2)] {
            let volume = pool
                .create_volume(name, [uuid; 16], MIB)
                .await
                .expect("there is room");
            write(&*volume, 0, BLOCK as usize, uuid)
                .await
                .expect("there is room");
        }
        let two = vec![snapshot("v", "one", 11), snapshot("w", "one", 12)];
        pool.snapshot(two, 0).await.expect("there is a place");
        pool.snapshot(vec![snapshot("v", "two", 13)], 0)
            .await
            .expect("there is a place");
        let (_, frozen) = pool.find([11; 16]).expect("it is there");
        assert!(frozen.info().read_only);
        let written = write(&*frozen, 0, BLOCK as usize, 9).await;
        assert_eq!(written, Err(IoError::WriteProtected));
        let trimmed = frozen.deallocate(Tag::default(), 0, 1).await;
        assert_eq!(trimmed, Err(IoError::WriteProtected));
        pool.clone_snapshot("v", "one", NewVolume::new("c", [21; 16], 0))
            .await
            .expect("there is a place");
        let refused = [
            pool.snapshot(vec![snapshot("v", "one", 14)], 0).await,
            pool.snapshot(vec![snapshot("v", "bad/name", 14)], 0).await,
            pool.snapshot(vec![snapshot("x", "one", 14)], 0).await,
            pool.snapshot(vec![snapshot("v", "three", 12)], 0).await,
            pool.delete_snapshot("v", "three").await,
            pool.delete_snapshot("v", "one").await,
            pool.restore("v", "one").await,
            pool.delete("v").await,
            pool.clone_snapshot("w", "one", NewVolume::new("v", [22; 16], 0))
                .await
                .map(drop),
        ];
        let text = |result: &Result<(), PoolError>| match result {
            Ok(()) => String::from("done"),
            Err(error) => error.to_string(),
        };
        let lines: Vec<String> = refused.iter().map(text).collect();
        let expected = [
            "volume v has a snapshot one already",
            "\"bad/name\" cannot name a volume",
            "there is no volume x in this pool",
            "a volume needs a UUID of its own",
            "volume v has no snapshot three",
            "volume c is a clone of v@one: delete that volume first",
            "v@one is older than snapshot two: delete the newer ones first",
            "volume v has snapshot v@one still: delete its snapshots first",
            "there is a volume v already",
        ];
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.starts_with(expected), "{line}");
        }
        assert_eq!(pool.snapshots().len(), 3);
        assert_eq!(values(&pool, 21).await, [1, 0, 0, 0, 0, 0]);
        let raw = Pool::create(&rt, memory(), UUID, false)
            .await
            .expect("it holds nothing");
        raw.create_volume("v", [1; 16], MIB)
            .await
            .expect("there is room");
        let refused = raw.snapshot(vec![snapshot("v", "one", 11)], 0).await;
        assert_eq!(refused, Err(PoolError::NoSnapshots));
        pool.close().await;
    });
}

#[test]
fn what_differs_is_told_in_bytes() {
    run(async |rt: Rt| {
        let pool = new_pool(&rt, &memory()).await;
        let volume = pool
            .create_volume("v", [1; 16], 8 * MIB)
            .await
            .expect("there is room");
        write(&*volume, 10, 3 * BLOCK as usize, 1)
            .await
            .expect("there is room");
        pool.snapshot(vec![snapshot("v", "one", 11)], 0)
            .await
            .expect("there is a place");
        write(&*volume, 12, 2 * BLOCK as usize, 2)
            .await
            .expect("there is room");
        volume
            .deallocate(Tag::default(), 10, 1)
            .await
            .expect("it is good");
        pool.snapshot(vec![snapshot("v", "two", 12)], 0)
            .await
            .expect("there is a place");
        write(&*volume, 900, BLOCK as usize, 3)
            .await
            .expect("there is room");
        let part = async |since, until, from| {
            let found = pool
                .changes("v", since, until, from)
                .await
                .expect("both are there");
            let blocks = found.ranges.iter();
            let blocks: Vec<_> = blocks
                .map(|it| (it.start / BLOCK, it.end / BLOCK))
                .collect();
            (blocks, found.next)
        };
        assert_eq!(part(None, Some("one"), 0).await, (vec![(10, 13)], None));
        let changed = vec![(10, 11), (12, 14)];
        assert_eq!(part(Some("one"), Some("two"), 0).await, (changed, None));
        assert_eq!(part(Some("two"), None, 0).await, (vec![(900, 901)], None));
        let all = part(Some("one"), None, 11 * BLOCK).await;
        assert_eq!(all, (vec![(12, 14), (900, 901)], None));
        pool.close().await;
    });
}

#[test]
fn a_long_difference_comes_in_parts() {
    run(async |rt: Rt| {
        let pool = new_pool(&rt, &memory()).await;
        let volume = pool
            .create_volume("v", [1; 16], 1 << 40)
            .await
            .expect("there is room");
        let blocks: Vec<u64> = (0..5000).map(|place| 2 * place).chain([1 << 27]).collect();
        for &block in &blocks {
            write(&*volume, block, BLOCK as usize, 4)
                .await
                .expect("there is room");
        }
        let (mut found, mut from, mut parts) = (Vec::new(), Some(0), 0);
        while let Some(at) = from {
            let part = pool
                .changes("v", None, None, at)
                .await
                .expect("both are there");
            found.extend(part.ranges.into_iter().map(|it| it.start / BLOCK));
            (from, parts) = (part.next, parts + 1);
        }
        assert_eq!(found, blocks);
        assert!(parts > 10, "{parts} parts");
        pool.close().await;
    });
}

/// What a snapshot would free is what it frees, in blocks of 4 KiB.
#[test]
fn what_a_snapshot_alone_would_free_is_what_its_deletion_frees() {
    run(async |rt: Rt| {
        let device = memory();
        let mut pool = new_pool(&rt, &device).await;
        let volume = pool.create_volume("v", [1; 16], 16 * MIB).await;
        let volume = volume.expect("there is room");
        let fill = async |volume: &SharedDevice, first, blocks: u64, value| {
            let len = (blocks * BLOCK) as usize;
            let written = write(&**volume, first, len, value).await;
            written.expect("there is room");
        };
        let keep = async |pool: &Pool, name: &str, uuid| {
            let kept = pool.snapshot(vec![snapshot("v", name, uuid)], 0).await;
            kept.expect("there is a place");
        };
        fill(&volume, 0, 100, 1).await;
        keep(&pool, "one", 11).await;
        fill(&volume, 50, 20, 2).await;
        keep(&pool, "two", 12).await;
        fill(&volume, 0, 10, 3).await;
        fill(&volume, 60, 5, 3).await;
        let trimmed = volume.deallocate(Tag::default(), 90, 10).await;
        trimmed.expect("it is good");
        let freed = async |pool: &Pool, name: &str| {
            let bytes = pool.freed_by("v", name).await.expect("it is there");
            bytes / BLOCK
        };
        // What the second has from the first is freed by neither alone, until one has gone.
        assert_eq!(freed(&pool, "one").await, 20);
        assert_eq!(freed(&pool, "two").await, 5);
        pool = reopen(&rt, pool, &device).await;
        assert_eq!(freed(&pool, "one").await, 20);
        let stored = async |pool: &Pool| {
            // A snapshot is made at a cut, after which counts are exact.
            keep(pool, "now", 13).await;
            let all = pool.snapshots().into_iter();
            let stored = all.filter(|it| it.name != "now").map(|it| it.allocated);
            let stored: u64 = stored.sum();
            pool.delete_snapshot("v", "now").await.expect("no clones");
            stored / BLOCK
        };
        let before = stored(&pool).await;
        pool.delete_snapshot("v", "one").await.expect("no clones");
        assert_eq!(freed(&pool, "two").await, 25);
        let unknown = pool.freed_by("v", "one").await;
        assert!(
            matches!(unknown, Err(PoolError::NoSnapshot { .. })),
            "{unknown:?}"
        );
        // What goes gives its leaves away in some checkpoint after this one.
        let mut between = stored(&pool).await;
        for _ in 0..10 {
            if between > 20 {
                break;
            }
            between = stored(&pool).await;
        }
        assert_eq!(before - between, 20);
        assert_eq!(freed(&pool, "two").await, 25);
        pool.close().await;
    });
}
