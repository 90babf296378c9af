//! A mapped pool of which the medium has changed a header of the log: a mirror has another copy;
//! without one the pool can be read, says so, and is not written to.

mod arrays;

use std::rc::Rc;

use arrays::{in_world, memories};
use flashyard_block::pool::{Kind, Pool, ReadOnly, check};
use flashyard_block::{DeviceExt, IoError, SharedDevice, Tag, Verdict};
use flashyard_runtime::Rt;
use flashyard_testbed::{filled, flush, read, write};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
const UUID: [u8; 16] = *b"the pool's uuid!";
/// Blocks that are written, each with its number, and flushed one by one.
const WRITTEN: u64 = 50;

/// Makes a pool and fills a part of its log.
async fn fill(rt: &Rt, device: &SharedDevice) {
    let made = Pool::create_kind(rt, device.clone(), UUID, Kind::Mapped, false).await;
    let pool = made.expect("the device holds nothing known");
    let volume = pool.create_volume("v", [1; 16], MIB).await;
    let volume = volume.expect("there is room");
    for block in 0..WRITTEN {
        let written = write(&*volume, block, BLOCK, block as u8).await;
        written.expect("there is room");
        flush(&*volume).await.expect("it is good");
    }
    pool.close().await;
}

/// Where the header is that was written some before the last one, in the same segment.
async fn header(member: &SharedDevice) -> (u64, Vec<u8>) {
    let number = |bytes: &[u8], at: usize| {
        let bytes = bytes[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(bytes)
    };
    let mut all = Vec::new();
    for lba in 0..member.info().blocks {
        let bytes = read(&**member, lba, BLOCK).await.expect("it is good");
        if bytes[8..12] == *b"FYLB" {
            all.push((number(&bytes, 16), number(&bytes, 28), lba, bytes));
        }
    }
    all.sort();
    let (_, last, ..) = *all.last().expect("there are some");
    let (_, segment, lba, bytes) = all.swap_remove(all.len() - 6);
    assert_eq!(segment, last, "no footer repeats it");
    (lba, bytes)
}

/// Writes the header back, with a bit of it changed or not.
async fn put(member: &SharedDevice, (lba, bytes): &(u64, Vec<u8>), changed: bool) {
    let mut buf = filled(BLOCK, 0);
    buf.copy_from_slice(bytes);
    buf[44] ^= u8::from(changed);
    let written = member.write(Tag::default(), *lba, buf, false).await;
    written.expect("it is good");
}

async fn assert_whole(rt: &Rt, device: &SharedDevice) {
    let pool = Pool::open(rt, device.clone()).await.expect("it is whole");
    assert_eq!(pool.info().read_only, None);
    let volume = pool.volume("v").expect("it is there");
    for block in 0..WRITTEN {
        let found = read(&*volume, block, BLOCK).await;
        assert_eq!(found, Ok(vec![block as u8; BLOCK]));
    }
    pool.close().await;
}

async fn assert_cut_short(rt: &Rt, device: &SharedDevice) {
    for _ in 0..2 {
        let opened = Pool::open(rt, device.clone()).await;
        let pool = opened.expect("it can be read");
        assert_eq!(pool.info().read_only, Some(ReadOnly::Log));
        let volume = pool.volume("v").expect("it is there");
        assert!(volume.info().read_only);
        let refused = write(&*volume, 0, BLOCK, 9).await;
        assert_eq!(refused, Err(IoError::WriteProtected));
        let found = read(&*volume, 30, BLOCK).await;
        assert_eq!(found, Ok(vec![30; BLOCK]), "what was written before it");
        let refused = pool.create_volume("w", [2; 16], MIB).await;
        assert!(refused.is_err());
        pool.close().await;
    }
    let report = check(rt, device.clone()).await.expect("it can be read");
    assert_eq!(report.verdict(), Verdict::Lost, "{report}");
    let said = report.to_string();
    let why = "a part of the log that was flushed cannot be read";
    assert!(said.contains(why), "{said}");
}

#[test]
fn a_pool_that_has_lost_a_part_of_its_log_can_only_be_read() {
    in_world(async |rt: Rt| {
        let device = memories(1, 40 * MIB).remove(0);
        fill(&rt, &device).await;
        let header = header(&device).await;
        put(&device, &header, true).await;
        assert_cut_short(&rt, &device).await;
        // Nothing was written: it is whole when the header is.
        put(&device, &header, false).await;
        assert_whole(&rt, &device).await;
    });
}

#[test]
fn a_header_that_one_copy_has_lost_is_written_anew_from_another() {
    in_world(async |rt: Rt| {
        let mut healed = [0, 0];
        // Segments are read at the same time, so chance has a part in which copy is asked for the
        // header: of eight pools each, some ask the ill one.
        for (ill, turn) in (0..16).map(|pool| (pool % 2, pool / 2)) {
            let members = memories(2, 40 * MIB);
            let array: SharedDevice = Rc::new(arrays::plain(&rt, &members, 2).await);
            fill(&rt, &array).await;
            let header = header(&members[ill]).await;
            put(&members[ill], &header, true).await;
            for lba in 0..turn as u64 {
                read(&*array, lba, BLOCK).await.expect("it is good");
            }
            assert_whole(&rt, &array).await;
            let found = read(&*members[ill], header.0, BLOCK).await;
            healed[ill] += usize::from(found.expect("it is good") == header.1);
        }
        assert!(healed[0] > 0 && healed[1] > 0, "{healed:?}");
    });
}

#[test]
fn a_header_that_every_copy_has_lost_makes_a_pool_that_can_only_be_read() {
    in_world(async |rt: Rt| {
        let members = memories(2, 40 * MIB);
        let array: SharedDevice = Rc::new(arrays::plain(&rt, &members, 2).await);
        fill(&rt, &array).await;
        let header = header(&members[0]).await;
        for ill in &members {
            put(ill, &header, true).await;
        }
        assert_cut_short(&rt, &array).await;
    });
}
