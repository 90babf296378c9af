//! Pools on mirrors of which one member holds something else where the metadata are: they open as
//! if nothing had happened, and what was wrong is written anew.

mod arrays;
mod encrypted;

use arrays::{in_world, memories, new};
use encrypted::{create, open};
use flashyard_block::array::{Array, Layout, Options};
use flashyard_block::pool::{NewVolume, Pool};
use flashyard_block::{DeviceExt, Overlay, SharedDevice, Tag};
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
async fn leave(rt: &Rt, members: &[SharedDevice], copies: usize, kind: (bool, bool)) {
    let options = Options::default();
    let made = Array::create(
        rt,
        new(members),
        arrays::ARRAY,
        layout(copies),
        options,
        false,
    );
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
                leave(&rt, &members, copies, kind).await;
                damage(&members, copies, bad).await;
                let array = array(&rt, &members).await;
                let pool = open(&rt, &(array.clone() as SharedDevice)).await;
                let volume = pool.volume("v").expect("it was made");
                let found = read(&*volume, 0, 8 * BLOCK).await.expect("it is there");
                assert!(
                    found[..] == filled(8 * BLOCK, 9)[..],
                    "{count} {bad} {kind:?}"
                );
                // A change writes the metadata of a raw pool anew.
                pool.rename("v", "w").await.expect("it works");
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
        assert!(pool.volume("w").is_some(), "without {gone} of each set");
        pool.close().await;
        array.close().await;
    }
}
