//! Pools on mirrors of which one member holds something else where the metadata are: they open as
//! if nothing had happened, and what was wrong is written anew.

mod arrays;
mod encrypted;

use arrays::{in_world, memories, new};
use encrypted::{create, open, secret};
use flashyard_block::array::{Array, Layout, Options};
use flashyard_block::crypt::{self, Header};
use flashyard_block::fault::{FaultDevice, FaultKind, FaultOn};
use flashyard_block::pool::{NewVolume, Pool};
use flashyard_block::{Device, DeviceExt, Overlay, SharedDevice, Tag};
use flashyard_runtime::{Buf, Rt};
use flashyard_testbed::{filled, flush, read, write};
use std::rc::Rc;

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
const UUID: [u8; 16] = [7; 16];

/// Members, copies, and which of each set has lost what it had.
const LAYOUTS: [(usize, usize, usize); 5] = [(2, 2, 0), (2, 2, 1), (4, 2, 0), (4, 2, 1), (3, 3, 1)];

fn layout(copies: usize) -> Layout {
    Layout {
        copies,
        parity: 0,
        safe_read: false,
    }
}

async fn array(rt: &Rt, members: &[SharedDevice]) -> Rc<Array> {
    Rc::new(arrays::open(rt, members).await.expect("all are there"))
}

/// The block of a member where the data of the array begin, with the metadata of a pool.
async fn first_block(member: &SharedDevice) -> u64 {
    for lba in 2 * MIB / BLOCK as u64.. {
        let found = read(&**member, lba, BLOCK).await.expect("it is there");
        if found.starts_with(b"FLSHPOOL") {
            return lba;
        }
    }
    unreachable!("a read behind the end fails");
}

async fn fill_with_junk(member: &SharedDevice, first: u64, bytes: u64) {
    for lba in first..first + bytes / BLOCK as u64 {
        let mut junk = Buf::take(BLOCK).expect("memory");
        junk.fill(0x5a);
        let written = member.write(Tag::default(), lba, junk, false).await;
        written.expect("it works");
    }
}

/// What a pool with one written volume leaves on its members.
async fn leave(rt: &Rt, members: &[SharedDevice], layout: Layout, kind: (bool, bool)) {
    let options = Options::default();
    let made = Array::create(rt, new(members), arrays::ARRAY, layout, options, false);
    let array = Rc::new(made.await.expect("they hold nothing"));
    let device: SharedDevice = array.clone();
    let pool = match kind {
        (false, _) => Pool::create(rt, device, UUID, false)
            .await
            .expect("it fits"),
        (true, encrypted) => create(rt, &device, UUID, encrypted).await,
    };
    let wanted = vec![NewVolume::new("v", [1; 16], 4 * MIB)];
    let volume = pool
        .create_volumes(wanted)
        .await
        .expect("there is room")
        .remove(0);
    write(&*volume, 0, 8 * BLOCK, 9).await.expect("it works");
    flush(&*volume).await.expect("it works");
    pool.close().await;
    array.close().await;
}

/// Junk at both places on one member of each set.
async fn damage(members: &[SharedDevice], copies: usize, bad: usize) {
    let first = first_block(&members[0]).await;
    let each = 2 * MIB * copies as u64 / members.len() as u64;
    for member in members.iter().skip(bad).step_by(copies) {
        fill_with_junk(member, first, each).await;
    }
}

#[test]
fn a_member_has_lost_the_metadata() {
    for (count, copies, bad) in LAYOUTS {
        for kind in [(false, false), (true, false), (true, true)] {
            in_world(async move |rt| {
                let members = memories(count, 40 * MIB);
                leave(&rt, &members, layout(copies), kind).await;
                damage(&members, copies, bad).await;
                let array = array(&rt, &members).await;
                let pool = open(&rt, &(array.clone() as SharedDevice)).await;
                let volume = pool.volume("v").expect("it was made");
                let found = read(&*volume, 0, 8 * BLOCK).await.expect("it is there");
                assert!(
                    found[..] == filled(8 * BLOCK, 9)[..],
                    "{count} {bad} {kind:?}"
                );
                pool.close().await;
                array.close().await;
                opens_without_any_member(&rt, &members, copies).await;
            });
        }
    }
}

/// No member is needed any more: what is written to the others meanwhile stays in memory.
async fn opens_without_any_member(rt: &Rt, members: &[SharedDevice], copies: usize) {
    for gone in 0..copies {
        let kept = members
            .iter()
            .enumerate()
            .filter(|(at, _)| at % copies != gone);
        let over = |member: &SharedDevice| Rc::new(Overlay::new(member.clone())) as SharedDevice;
        let kept: Vec<SharedDevice> = kept.map(|(_, it)| over(it)).collect();
        let opened = arrays::open_degraded(rt, &kept).await;
        let array = Rc::new(opened.expect("one of each set is there"));
        let pool = open(rt, &(array.clone() as SharedDevice)).await;
        assert!(pool.volume("v").is_some(), "without {gone} of each set");
        pool.close().await;
        array.close().await;
    }
}

async fn content(member: &SharedDevice, first: u64, bytes: u64) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for lba in first..first + bytes / BLOCK as u64 {
        found.push(block(&**member, lba).await);
    }
    found
}

/// One member has missed a change, and what the other has of it is lost: the volume that it made is
/// gone, and whoever gets its space next reads nothing of what was written there.
#[test]
fn what_a_stale_member_calls_clean_is_cleaned_before_it_is_given_away() {
    for (stale, junk) in [(0, 1), (1, 0)] {
        in_world(async move |rt| {
            let members = memories(2, 40 * MIB);
            let options = Options::default();
            let made = Array::create(&rt, new(&members), arrays::ARRAY, layout(2), options, false);
            let array = Rc::new(made.await.expect("they hold nothing"));
            let device: SharedDevice = array.clone();
            let pool = Pool::create(&rt, device, UUID, false).await;
            let pool = pool.expect("it fits");
            let first = first_block(&members[stale]).await;
            let before = content(&members[stale], first, 2 * MIB).await;
            let volume = pool.create_volume("secret", [1; 16], 8 * MIB).await;
            let volume = volume.expect("there is room");
            write(&*volume, 0, 8 * BLOCK, 9).await.expect("it works");
            flush(&*volume).await.expect("it works");
            pool.close().await;
            array.close().await;
            restore(&members[stale], first, &before).await;
            fill_with_junk(&members[junk], first, 2 * MIB).await;

            let array = self::array(&rt, &members).await;
            for _ in 0..2 {
                let pool = open(&rt, &(array.clone() as SharedDevice)).await;
                assert!(pool.volume("secret").is_none(), "nothing tells of it");
                pool.close().await;
            }
            let pool = open(&rt, &(array.clone() as SharedDevice)).await;
            let volume = pool.create_volume("next", [2; 16], 8 * MIB).await;
            let volume = volume.expect("there is room");
            let found = read(&*volume, 0, 8 * BLOCK).await.expect("it is there");
            assert!(found.iter().all(|byte| *byte == 0), "{stale} is stale");
            pool.close().await;
            array.close().await;
        });
    }
}

/// Each member has a block in the place of the metadata that it cannot read: what the others have
/// of it makes both copies whole.
#[test]
fn members_that_cannot_read_a_block_each_make_up_for_each_other() {
    for kind in [(false, false), (true, false), (true, true)] {
        in_world(async move |rt| {
            let members = memories(2, 40 * MIB);
            leave(&rt, &members, layout(2), kind).await;
            let first = first_block(&members[0]).await;
            let layer = |(number, member): (u64, &SharedDevice)| {
                let bad = [0, MIB].map(|place| {
                    // In another stripe of each copy.
                    let lba = first + (place + (1 + number) * 128 * 1024) / BLOCK as u64;
                    arrays::always(FaultKind::Error, FaultOn::Reads).within(lba..lba + 1)
                });
                let layer = FaultDevice::new(&rt, member.clone(), 1, bad.to_vec());
                Rc::new(layer) as SharedDevice
            };
            let layers: Vec<SharedDevice> = (0..).zip(&members).map(layer).collect();
            let array = array(&rt, &layers).await;
            let pool = open(&rt, &(array.clone() as SharedDevice)).await;
            let volume = pool.volume("v").expect("it was made");
            let found = read(&*volume, 0, 8 * BLOCK).await.expect("it is there");
            assert!(found[..] == filled(8 * BLOCK, 9)[..], "{kind:?}");
            pool.close().await;
            array.close().await;
        });
    }
}

/// Members of parity have the metadata alike: any of them may lose it, and any other one may be
/// gone then.
#[test]
fn a_member_of_parity_has_lost_the_metadata() {
    for (encrypted, bad) in [(false, 0), (false, 2), (true, 1)] {
        in_world(async move |rt| {
            let members = memories(3, 40 * MIB);
            let parity = Layout {
                copies: 3,
                parity: 1,
                safe_read: false,
            };
            leave(&rt, &members, parity, (true, encrypted)).await;
            let first = first_block(&members[0]).await;
            fill_with_junk(&members[bad], first, 2 * MIB).await;
            let array = array(&rt, &members).await;
            let pool = open(&rt, &(array.clone() as SharedDevice)).await;
            let volume = pool.volume("v").expect("it was made");
            let found = read(&*volume, 0, 8 * BLOCK).await.expect("it is there");
            assert!(found[..] == filled(8 * BLOCK, 9)[..], "{bad} is bad");
            pool.close().await;
            array.close().await;
            opens_without_any_member(&rt, &members, 3).await;
        });
    }
}

/// A mirror below the layer that encrypts: one member has lost the header, or keeps an older one.
#[test]
fn the_header_of_an_encrypted_mirror_is_found_on_the_other_member() {
    for (bad, is_junk) in [(0, true), (1, true), (0, false), (1, false)] {
        in_world(async move |rt| {
            let members = memories(2, 16 * MIB);
            let array = arrays::plain(&rt, &members, 2).await;
            let info = array.info();
            let (old, key) = Header::make(&info, UUID, &secret(b'a')).expect("it has room");
            let old = crypt::store(&array, old).await.expect("it works");
            let mut first = 0;
            while block(&*members[bad], first).await != block(&array, 0).await {
                first += 1;
            }
            let before = content(&members[bad], first, crypt::DATA_START).await;
            let new = old
                .with_secret(&key, 0, &secret(b'b'))
                .expect("it has room");
            let new = crypt::store(&array, new).await.expect("it works");
            match is_junk {
                true => fill_with_junk(&members[bad], first, crypt::DATA_START).await,
                false => restore(&members[bad], first, &before).await,
            }
            for _ in 0..2 {
                let found = crypt::find(&array).await.expect("one has it");
                assert_eq!(found.generation(), new.generation());
                assert!(found.open(&secret(b'b')).is_ok(), "{bad} {is_junk}");
            }
            array.close().await;
            // What was lost is back: the other member is not needed any more.
            let kept = [Rc::new(Overlay::new(members[bad].clone())) as SharedDevice];
            let array = arrays::open_degraded(&rt, &kept)
                .await
                .expect("one is there");
            let found = crypt::find(&array).await.expect("it has it again");
            assert_eq!(found.generation(), new.generation());
            array.close().await;
        });
    }
}

/// What a block holds.
async fn block(device: &dyn Device, lba: u64) -> Vec<u8> {
    let found = read(device, lba, BLOCK).await;
    found.expect("it is there")
}

async fn restore(member: &SharedDevice, first: u64, blocks: &[Vec<u8>]) {
    for (lba, block) in (first..).zip(blocks) {
        let mut data = Buf::take(BLOCK).expect("memory");
        data.copy_from_slice(block);
        let written = member.write(Tag::default(), lba, data, false);
        written.await.expect("it works");
    }
}
