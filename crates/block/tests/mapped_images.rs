//! Mapped pools that an earlier version has written, with a log that is to be replayed: alone,
//! encrypted, on a mirror, on parity, on two sets of it, and on double parity. Each is opened,
//! checked, and read whole, its snapshots and a clone as well; then it is worked on.
//! `FLASHYARD_WRITE_IMAGES=1` writes the images anew, as today's version would have it.

mod arrays;
mod encrypted;

use std::rc::Rc;

use arrays::{ARRAY, Drive, Log, in_world, named, new};
use encrypted::{create, open};
use flashyard_block::array::{self, Array, Layout, Options};
use flashyard_block::pool::{NewSnapshot, NewVolume, Owner, Pool, VolumeForm, check};
use flashyard_block::{DeviceExt, SharedDevice, Tag, Verdict};
use flashyard_codec::compress::Codec;
use flashyard_corpus::Image;
use flashyard_runtime::Rt;
use flashyard_testbed::{Content, Disk, filled, read};
use flashyard_time::{Duration, Rng};

const MIB: usize = 1 << 20;
const BLOCK: usize = 4096;
/// Blocks that are looked at.
const BLOCKS: usize = 16;
const POOL: [u8; 16] = *b"the pool's uuid!";

/// What an image is of: its devices lie in it one behind the other.
#[derive(Clone, Copy, Debug)]
struct Kept {
    name: &'static str,
    members: usize,
    /// Of so many members; all have parity in as many.
    set: usize,
    parity: usize,
    encrypted: bool,
}

const fn kept(name: &'static str, sets: usize, (set, parity): (usize, usize)) -> Kept {
    Kept {
        name,
        members: sets * set,
        set,
        parity,
        encrypted: false,
    }
}

const KEPT: [Kept; 6] = [
    kept("mapped", 1, (1, 0)),
    Kept {
        encrypted: true,
        ..kept("mapped-encrypted", 1, (1, 0))
    },
    kept("mapped-mirror", 1, (2, 0)),
    kept("mapped-parity", 1, (3, 1)),
    kept("mapped-parity-sets", 2, (3, 1)),
    kept("mapped-double-parity", 1, (4, 2)),
];

/// Volumes, snapshots and clones by the number in their UUID, and the value of each block.
const CONTENT: [(u8, [u8; BLOCKS]); 6] = [
    // The volume `plain`, its snapshots `one` and `two`, and `copy`, a clone of the first.
    (1, [1, 7, 4, 4, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
    (11, [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
    (12, [1, 1, 4, 4, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
    (4, [6, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
    // `lz4`, in chunks of 16 KiB, and `zstd`, in chunks of 4 KiB.
    (2, [2, 2, 2, 2, 2, 5, 2, 2, 8, 8, 2, 2, 2, 2, 2, 2]),
    (3, [3, 3, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
];

/// A block: words that name its place and value; 9 is what cannot be compressed.
fn fill(block: &mut [u8], place: u64, value: u8) {
    let mut rng = Rng::new(place);
    for word in block.chunks_exact_mut(8) {
        let content = match value {
            9 => rng.next_u64(),
            _ => u64::from(value) * 0x0101_0000 + place,
        };
        word.copy_from_slice(&content.to_le_bytes());
    }
}

async fn put(volume: &SharedDevice, first: u64, blocks: usize, value: u8) {
    let mut data = filled(blocks * BLOCK, 0);
    for (block, place) in data.chunks_exact_mut(BLOCK).zip(first..) {
        fill(block, place, value);
    }
    let written = volume.write(Tag::default(), first, data, false).await;
    written.expect("there is room");
    let flushed = volume.flush(Tag::default()).await;
    flushed.expect("the disk works");
}

/// The devices of an image, from their contents.
fn disks(kept: Kept, bytes: &[u8]) -> Vec<Disk> {
    let parts = bytes.chunks_exact(bytes.len() / kept.members).zip(1..);
    parts
        .map(|(part, seed)| Disk::new(BLOCK as u32, part.to_vec(), seed))
        .collect()
}

fn shared(disks: &[Disk]) -> Vec<SharedDevice> {
    disks.iter().map(Disk::shared).collect()
}

/// What the pool stands on: the device, or the array of all members but these.
async fn below(
    rt: &Rt,
    devices: &[SharedDevice],
    without: &[usize],
) -> (Option<Rc<Array>>, SharedDevice) {
    if let [device] = devices {
        return (None, device.clone());
    }
    let left = (0..devices.len()).filter(|at| !without.contains(at));
    let left = left.map(|at| named(&format!("m{at}"), &devices[at]));
    let degraded = !without.is_empty();
    let array = Array::open(rt, left.collect(), None, Options::default(), degraded).await;
    let array = Rc::new(array.expect("parity bears it"));
    (Some(array.clone()), array)
}

async fn holds_its_content(pool: &Pool, place: &str) {
    for (uuid, values) in CONTENT {
        let (name, device) = pool.find([uuid; 16]).expect("it is there");
        let bytes = read(&*device, 0, BLOCKS * BLOCK).await.expect("good");
        for ((block, value), place_of) in bytes.chunks_exact(BLOCK).zip(values).zip(0..) {
            let mut expected = vec![0; BLOCK];
            if value != 0 {
                fill(&mut expected, place_of, value);
            }
            assert!(*block == expected, "{place}: block {place_of} of {name}");
        }
    }
    let names: Vec<_> = pool.snapshots().into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["one", "two"], "{place}");
    let owners = pool.list().into_iter().filter_map(|it| it.owner);
    let tenants: Vec<_> = owners.map(|it| it.tenant).collect();
    assert_eq!(tenants, ["db"], "{place}");
}

/// Opens it, looks at all of it, works on it, and opens it again.
async fn use_it(rt: &Rt, kept: Kept, bytes: &[u8], without: &[usize]) {
    let place = format!("{} without {without:?}", kept.name);
    let disks = disks(kept, bytes);
    for disk in disks.iter().filter(|_| kept.members > 1) {
        let report = array::check(disk).await.expect("it can be read");
        let report = report.expect("it is a member");
        assert_ne!(report.verdict(), Verdict::Lost, "{place}: {report}");
    }
    let (array, device) = below(rt, &shared(&disks), without).await;
    let report = check(rt, device.clone()).await.expect("it can be read");
    assert_ne!(report.verdict(), Verdict::Lost, "{place}: {report}");
    let pool = open(rt, &device).await;
    assert_eq!(pool.info().encrypted, kept.encrypted);
    holds_its_content(&pool, &place).await;
    let fresh = pool.create_volume("fresh", [9; 16], MIB as u64).await;
    put(&fresh.expect("there is room"), 0, 4, 1).await;
    pool.close().await;
    drop(pool);
    let report = check(rt, device.clone()).await.expect("it can be read");
    assert_ne!(report.verdict(), Verdict::Lost, "{place}: {report}");
    let pool = open(rt, &device).await;
    holds_its_content(&pool, &place).await;
    for snapshot in ["two", "one"] {
        if snapshot == "one" {
            pool.delete("copy").await.expect("it has no snapshots");
        }
        let deleted = pool.delete_snapshot("plain", snapshot).await;
        deleted.expect("it has no clone");
    }
    pool.close().await;
    drop((pool, device));
    if let Some(array) = array {
        array.close().await;
    }
}

#[test]
fn mapped_pools_of_an_earlier_version_are_opened_checked_and_read() {
    for kept in KEPT {
        in_world(async move |rt: Rt| {
            let bytes = Image::named(kept.name).bytes();
            use_it(&rt, kept, &bytes, &[]).await;
        });
    }
}

/// Each member of an image is gone, and with double parity or a mirror also what may go besides.
#[test]
fn members_that_an_earlier_version_has_written_give_what_a_missing_one_had() {
    for kept in KEPT.into_iter().filter(|it| it.members > 1) {
        in_world(async move |rt: Rt| {
            let bytes = Image::named(kept.name).bytes();
            for lost in 0..kept.members {
                let lost: Vec<_> = match (kept.parity, kept.members / kept.set) {
                    (2, _) => vec![lost, (lost + 1) % kept.members],
                    (_, 1) => vec![lost],
                    // One of each set.
                    _ => vec![lost % kept.set, kept.set + lost / 2],
                };
                use_it(&rt, kept, &bytes, &lost).await;
            }
        });
    }
}

#[test]
fn an_encrypted_pool_of_an_earlier_version_stays_closed_without_its_key() {
    in_world(async |rt: Rt| {
        let bytes = Image::named("mapped-encrypted").bytes();
        let disk = Disk::new(BLOCK as u32, bytes.clone(), 1);
        assert!(Pool::open(&rt, disk.shared()).await.is_err());
        let header = flashyard_block::pool::KeyHeader::find(&disk).await;
        let header = header.expect("it can be read").expect("it is encrypted");
        assert!(header.open(&encrypted::secret(b'b')).is_err());
        assert!(*disk.bytes() == bytes, "nothing was changed");
    });
}

/// How the images were made; nothing of it was closed in good order. What today's version writes in
/// that way is no image, and has to be as good.
#[test]
fn what_is_written_in_the_same_way_today_is_opened_checked_and_read() {
    for kept in KEPT {
        in_world(async move |rt: Rt| {
            let data = kept.members / kept.set * (kept.set - kept.parity).max(1);
            let bytes = match kept.parity {
                0 => 42 * MIB,
                _ => (9 + 40_usize.div_ceil(data)) * MIB,
            };
            let log = Log::default();
            let drive = |at| Drive::new(at, Content::zeroes(bytes), &log, at as u64);
            let drives: Vec<_> = (0..kept.members).map(drive).collect();
            let devices: Vec<_> = drives.iter().map(|it| it.clone() as SharedDevice).collect();
            live(&rt, kept, &devices).await;
            let contents: Vec<_> = drives.iter().map(|it| it.content().bytes()).collect();
            let all = contents.concat();
            if std::env::var_os("FLASHYARD_WRITE_IMAGES").is_some() {
                let what = format!("A mapped pool that was cut off: {kept:?}");
                Image::keep(kept.name, &what, &all);
            }
            use_it(&rt, kept, &all, &[]).await;
        });
    }
}

async fn live(rt: &Rt, kept: Kept, devices: &[SharedDevice]) {
    let (array, device) = match devices {
        [device] => (None, device.clone()),
        _ => {
            let layout = Layout {
                copies: kept.set,
                parity: kept.parity,
                safe_read: false,
            };
            let options = Options::default();
            let array = Array::create(rt, new(devices), ARRAY, layout, options, false).await;
            let array = Rc::new(array.expect("devices that hold nothing"));
            (Some(array.clone()), array as SharedDevice)
        }
    };
    let pool = create(rt, &device, POOL, kept.encrypted).await;
    let wanted = |name: &str, uuid: u8, chunk, compression| NewVolume {
        form: VolumeForm { chunk, compression },
        ..NewVolume::new(name, [uuid; 16], 64 * MIB as u64)
    };
    let volumes = vec![
        wanted("plain", 1, 4 << 10, None),
        wanted("lz4", 2, 16 << 10, Some(Codec::Lz4)),
        wanted("zstd", 3, 4 << 10, Some(Codec::Zstd)),
    ];
    let volumes = pool.create_volumes(volumes).await.expect("there is room");
    let owner = Owner {
        tenant: "db".into(),
        nguid: [5; 16],
        eui64: None,
        nsid: 1,
    };
    pool.set_owner("plain", owner).await.expect("it is there");
    put(&volumes[0], 0, 8, 1).await;
    put(&volumes[1], 0, 16, 2).await;
    put(&volumes[2], 0, 2, 3).await;
    put(&volumes[2], 2, 1, 9).await;
    snapshot(&pool, "one", 11).await;
    put(&volumes[0], 2, 2, 4).await;
    let trimmed = volumes[0].deallocate(Tag::default(), 6, 1).await;
    trimmed.expect("it works");
    put(&volumes[1], 5, 1, 5).await;
    let copy = NewVolume::new("copy", [4; 16], 64 * MIB as u64);
    let copy = pool.clone_snapshot("plain", "one", copy).await;
    put(&copy.expect("the snapshot is there"), 0, 1, 6).await;
    snapshot(&pool, "two", 12).await;
    put(&volumes[0], 1, 1, 7).await;
    put(&volumes[1], 8, 2, 8).await;
    // The region map of an array comes to rest, but for what is written at the end.
    rt.sleep(Duration::from_secs(20)).await;
    put(&volumes[1], 8, 2, 8).await;
    drop(array);
}

async fn snapshot(pool: &Pool, name: &str, uuid: u8) {
    let wanted = NewSnapshot {
        volume: "plain".into(),
        name: name.into(),
        uuid: [uuid; 16],
    };
    let made = pool.snapshot(vec![wanted], 1000).await;
    made.expect("there is a place");
}
