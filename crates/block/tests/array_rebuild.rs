//! What a member gets that takes the place of another one: all of it, and durably, whatever happens
//! meanwhile.

mod arrays;

use std::cell::Cell;
use std::rc::Rc;

use arrays::{ARRAY, Drive, Log, Moody, always, cut, in_world, memories, named, new, plain};
use flashyard_block::array::{Array, Layout, MemberState, Options};
use flashyard_block::fault::{FaultDevice, FaultKind, FaultOn, FaultRule};
use flashyard_block::pool::{NewVolume, Pool, RawPool};
use flashyard_block::{Copies, Device, DeviceExt, Io, IoError, MemoryDevice, SharedDevice, Tag};
use flashyard_runtime::Rt;
use flashyard_testbed::{Content, Event, filled, flush, read, write};
use flashyard_time::{Duration, Rng};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// What is no event at a drive: the rebuild begins.
const BEGUN: (usize, Event) = (usize::MAX, Event::Flush);
/// The first block in rows, where members have a region for each MiB.
const FIRST_ROW: u64 = 4 * REGION;
/// Blocks of a region.
const REGION: u64 = MIB / BLOCK as u64;

fn faulty(rt: &Rt, device: &SharedDevice) -> Rc<FaultDevice> {
    Rc::new(FaultDevice::new(rt, device.clone(), 1, Vec::new()))
}

async fn settle(rt: &Rt, array: &Array) {
    for _ in 0..1000 {
        if array.status().rebuild.is_none() {
            return;
        }
        rt.sleep(Duration::from_ms(100)).await;
    }
    panic!("{:?}", array.status());
}

/// The block of a device that holds a block of this value.
async fn find(device: &SharedDevice, value: u8) -> u64 {
    for lba in 0..device.info().blocks {
        if read(&**device, lba, BLOCK).await == Ok(vec![value; BLOCK]) {
            return lba;
        }
    }
    panic!("it holds no block of {value:#x}")
}

/// A spare joins while a region is copied to another one: it needs the beginning of that, too.
#[test]
fn a_member_that_joins_in_the_middle_of_a_copy_gets_all_of_it() {
    for late in 0..12 {
        in_world(async move |rt| {
            let devices = memories(5, 8 * MIB);
            let (slow, first, second) = (
                faulty(&rt, &devices[0]),
                faulty(&rt, &devices[1]),
                faulty(&rt, &devices[2]),
            );
            let members: [SharedDevice; 3] = [slow.clone(), first.clone(), second.clone()];
            let array = plain(&rt, &members, 3).await;
            for block in 0..4 * REGION {
                let value = 1 + (block % 250) as u8;
                write(&array, block, BLOCK, value).await.expect("all work");
            }
            let gone = vec![always(FaultKind::Gone, FaultOn::All)];
            first.set(gone.clone());
            second.set(gone);
            write(&array, 0, BLOCK, 1).await.expect("one works");
            let latency = FaultKind::Latency {
                fixed: Duration::from_ms(1),
                spread: Duration::ZERO,
            };
            slow.set(vec![FaultRule::new(latency).on(FaultOn::Reads)]);
            array
                .add_spares(vec![named("m3", &devices[3])], false)
                .await
                .expect("it is blank");
            rt.sleep(Duration::from_us(500 + 330 * late)).await;
            array
                .add_spares(vec![named("m4", &devices[4])], false)
                .await
                .expect("it is blank");
            settle(&rt, &array).await;
            assert!(!array.status().is_degraded());
            array.close().await;
            drop(array);
            let alone = arrays::open_degraded(&rt, &devices[4..]).await;
            let array = alone.expect("it has everything");
            for block in 0..4 * REGION {
                let value = 1 + (block % 250) as u8;
                let found = read(&array, block, BLOCK).await;
                assert_eq!(found, Ok(vec![value; BLOCK]), "block {block}, {late}");
            }
        });
    }
}

/// What one copy has lost in silence does not spread to the member that replaces another one.
#[test]
fn a_member_that_works_is_replaced_by_what_it_holds() {
    in_world(async |rt| {
        let devices = memories(3, 8 * MIB);
        let array = plain(&rt, &devices[..2], 2).await;
        write(&array, 300, BLOCK, 0x5a).await.expect("both work");
        let place = find(&devices[0], 0x5a).await;
        let lost = devices[0].write(Tag::default(), place, filled(BLOCK, 0xbb), false);
        lost.await.expect("it works");
        let new = named("m2", &devices[2]);
        array.replace("m1", new, false).await.expect("it is blank");
        settle(&rt, &array).await;
        assert_eq!(find(&devices[2], 0x5a).await, place);
    });
}

/// Copies that may differ, after a write that failed everywhere, are made equal from any of them
/// that can be read.
#[test]
fn regions_are_made_equal_though_a_copy_cannot_be_read() {
    in_world(async |rt| {
        let devices = memories(3, 8 * MIB);
        let layers: Vec<Rc<FaultDevice>> = devices.iter().map(|it| faulty(&rt, it)).collect();
        let members: Vec<SharedDevice> = layers.iter().map(|it| it.clone() as _).collect();
        let array = plain(&rt, &members, 3).await;
        write(&array, 7, BLOCK, 0x5a).await.expect("all work");
        let place = find(&devices[0], 0x5a).await;
        for layer in &layers {
            layer.set(vec![always(FaultKind::Error, FaultOn::Writes)]);
        }
        assert_eq!(write(&array, 7, BLOCK, 0x66).await, Err(IoError::Write));
        // What the write has left: it came to the medium of one of them.
        let landed = devices[2].write(Tag::default(), place, filled(BLOCK, 0x66), false);
        landed.await.expect("it works");
        for layer in &layers[1..] {
            layer.set(Vec::new());
        }
        layers[0].set(vec![
            FaultRule::new(FaultKind::Error)
                .on(FaultOn::Reads)
                .always()
                .within(place..place + 1),
        ]);
        let found = read(&array, 7, BLOCK).await.expect("two can be read");
        layers[0].set(Vec::new());
        for _ in 0..6 {
            assert_eq!(read(&array, 7, BLOCK).await.as_ref(), Ok(&found));
        }
        for device in &devices {
            assert_eq!(read(&**device, place, BLOCK).await.as_ref(), Ok(&found));
        }
    });
}

/// A member has everything only when what was copied to it is flushed.
#[test]
fn a_member_is_not_read_before_its_copy_is_durable() {
    in_world(async |rt| {
        let devices = memories(2, 8 * MIB);
        let array = plain(&rt, &devices, 2).await;
        write(&array, 7, BLOCK, 0x5a).await.expect("both work");
        flush(&array).await.expect("both work");
        let blank: SharedDevice = Rc::new(MemoryDevice::new(4096, 8 * MIB).expect("a size"));
        let moody = Moody::new(blank);
        let new: SharedDevice = moody.clone();
        array
            .replace("m1", named("m2", &new), false)
            .await
            .expect("it is blank");
        moody.busy_for(|io| matches!(io, flashyard_block::Io::Flush));
        let state = |array: &Array| {
            let members = array.status().members;
            members.iter().find(|it| it.name == "m2").map(|it| it.state)
        };
        for _ in 0..300 {
            rt.sleep(Duration::from_ms(100)).await;
            assert_eq!(state(&array), Some(MemberState::Rebuilding));
        }
        moody.busy_for(|_| false);
        settle(&rt, &array).await;
        assert_eq!(state(&array), Some(MemberState::Active));
    });
}

/// The only copy of a block cannot be read: all else is rebuilt, and said is what is lost. The new
/// member is not read before that block was written again.
#[test]
fn a_rebuild_goes_on_where_the_only_copy_cannot_be_read() {
    in_world(async |rt| {
        let devices = memories(3, 8 * MIB);
        let (layer, gone) = (faulty(&rt, &devices[0]), faulty(&rt, &devices[1]));
        let members: [SharedDevice; 2] = [layer.clone(), gone.clone()];
        let array = plain(&rt, &members, 2).await;
        let lost = REGION + 9;
        let written = [(lost - 1, 1), (lost, 0x5a), (lost + 1, 2), (3 * REGION, 3)];
        for (lba, value) in written {
            write(&array, lba, BLOCK, value).await.expect("both work");
        }
        let place = find(&devices[0], 0x5a).await;
        layer.set(vec![
            always(FaultKind::Error, FaultOn::Reads).within(place..place + 1),
        ]);
        gone.set(vec![always(FaultKind::Gone, FaultOn::All)]);
        write(&array, 0, BLOCK, 4).await.expect("one works");
        let new = named("m2", &devices[2]);
        array.replace("m1", new, false).await.expect("it is blank");
        rt.sleep(Duration::from_secs(30)).await;
        let status = array.status();
        let left = status.rebuild.expect("a block is lost");
        assert_eq!(left.of - left.done, 1, "all other regions are copied");
        let said = status.notes.concat();
        assert!(said.contains("4096 bytes of set 0"), "{said}");
        for (lba, value) in [(place - 1, 1), (place + 1, 2), (place + 2 * REGION - 9, 3)] {
            assert_eq!(read(&*devices[2], lba, BLOCK).await, Ok(vec![value; BLOCK]));
        }
        for _ in 0..4 {
            assert_eq!(read(&array, lost, BLOCK).await, Err(IoError::Read));
        }
        write(&array, lost, BLOCK, 7)
            .await
            .expect("it can be written");
        layer.set(Vec::new());
        settle(&rt, &array).await;
        let status = array.status();
        assert!(
            !status.is_degraded() && status.notes.is_empty(),
            "{status:?}"
        );
        for _ in 0..4 {
            assert_eq!(read(&array, lost, BLOCK).await, Ok(vec![7; BLOCK]));
            assert_eq!(read(&array, lost + 1, BLOCK).await, Ok(vec![2; BLOCK]));
        }
    });
}

/// Drives with this content.
fn drives(contents: &[Content], log: &Log) -> Vec<SharedDevice> {
    let contents = contents.iter().enumerate();
    contents
        .map(|(at, it)| Drive::new(at, it.clone(), log, at as u64) as SharedDevice)
        .collect()
}

/// There is no memory for zeroes on one member when others hold them already, and from then on
/// somebody needs what is there: rows agree again all the same.
#[test]
fn zeroes_that_are_not_on_all_members_are_no_content() {
    for (columns, parity) in [(5, 2), (3, 1)] {
        in_world(async move |rt| {
            let devices = memories(columns + 1, 9 * MIB);
            let last = Moody::new(devices[columns - 1].clone());
            let mut members = devices[..columns].to_vec();
            members[columns - 1] = last.clone();
            let array = full_of_rows(&rt, &members, parity).await;
            let unneeded = Rc::new(Cell::new(true));
            let said = unneeded.clone();
            Copies::set_unneeded(
                &array,
                Box::new(move |range| said.get() && range.start >= FIRST_ROW),
            );
            let refused = unneeded.clone();
            last.busy_for(move |io| matches!(io, Io::Zero { .. }) && refused.replace(false));
            let with = named("n", &devices[columns]);
            let replaced = array.replace("m0", with, false).await;
            replaced.expect("it is large enough");
            settle(&rt, &array).await;
            assert!(!unneeded.get(), "nothing was to become zeroes");
            assert_eq!(healed_by_a_scrub(&rt, &array).await, 0, "{columns}");
        });
    }
}

/// An array with parity, all of whose rows hold something.
async fn full_of_rows(rt: &Rt, devices: &[SharedDevice], parity: usize) -> Array {
    let layout = Layout {
        copies: devices.len(),
        parity,
        safe_read: false,
    };
    let made = Array::create(rt, new(devices), ARRAY, layout, Options::default(), false);
    let array = made.await.expect("they hold nothing");
    let row = (devices.len() - parity) as u64;
    let mut block = FIRST_ROW;
    while block + row <= array.info().blocks {
        let value = 1 + (block % 250) as u8;
        let written = write(&array, block, row as usize * BLOCK, value);
        written.await.expect("a whole row");
        block += row;
    }
    flush(&array).await.expect("all work");
    // Until no region is dirty.
    rt.sleep(Duration::from_secs(20)).await;
    array
}

/// How many blocks do not agree.
async fn healed_by_a_scrub(rt: &Rt, array: &Array) -> u64 {
    array.scrub();
    while array.status().scrub.running {
        rt.sleep(Duration::from_ms(100)).await;
    }
    let members = array.status().members;
    members.iter().map(|it| it.counts.healed).sum()
}

/// What is on an array is not needed, until the power goes in the middle of a rebuild. Then all
/// rows agree again when that has ended: those that had become zeroes on some members only, too.
#[test]
fn the_power_may_go_while_what_is_not_needed_becomes_zeroes() {
    let mut cleared = 0;
    for seed in 0..24 {
        let (columns, parity) = [(5, 2), (3, 1)][seed as usize % 2];
        let log = Log::default();
        let start = vec![Content::zeroes(9 * MIB as usize); columns + 1];
        let (life, contents) = (log.clone(), start.clone());
        in_world(async move |rt| {
            let devices = drives(&contents, &life);
            let array = full_of_rows(&rt, &devices[..columns], parity).await;
            life.borrow_mut().push(BEGUN);
            Copies::set_unneeded(&array, Box::new(|_| true));
            let with = named("n", &devices[columns]);
            let replaced = array.replace("m0", with, false).await;
            replaced.expect("it is large enough");
            settle(&rt, &array).await;
            array.close().await;
        });
        let events = log.borrow().clone();
        let is_begun = |(number, _): &(usize, Event)| *number == BEGUN.0;
        let begun = events.iter().position(is_begun).expect("it was");
        let mut rng = Rng::new(seed);
        let end = begun + 1 + rng.below((events.len() - begun) as u64) as usize;
        let events: Vec<_> = [&events[..begun], &events[begun + 1..end]].concat();
        cleared += events[begun..]
            .iter()
            .filter(|it| matches!(it.1, Event::Zero { .. }))
            .count();
        let left = cut(&start, &events, &mut rng);
        in_world(async move |rt| {
            let array = arrays::open_degraded(&rt, &drives(&left, &Log::default())).await;
            let array = array.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            settle(&rt, &array).await;
            let healed = healed_by_a_scrub(&rt, &array).await;
            assert_eq!(healed, 0, "seed {seed}, {end} events: {:?}", array.status());
            array.close().await;
        });
    }
    assert!(cleared > 100, "{cleared}");
}

/// A volume of this size in a raw pool, with this value in all blocks.
async fn filled_volume(pool: &RawPool, name: &str, bytes: u64, value: u8) -> SharedDevice {
    let mut uuid = [value; 16];
    uuid[..name.len()].copy_from_slice(name.as_bytes());
    let wanted = NewVolume::new(name, uuid, bytes);
    let made = pool.create_volumes(vec![wanted]).await;
    let volume = made.expect("there is room").remove(0);
    let step = MIB / BLOCK as u64;
    for block in (0..volume.info().blocks).step_by(step as usize) {
        let written = write(&*volume, block, MIB as usize, value).await;
        written.expect("all work");
    }
    volume
}

/// Whether all blocks of a volume have this value.
async fn holds(volume: &SharedDevice, value: u8) -> bool {
    for block in 0..volume.info().blocks {
        if read(&**volume, block, BLOCK).await != Ok(vec![value; BLOCK]) {
            return false;
        }
    }
    true
}

/// What no volume has is not copied. Copies agree where a volume was deleted, also where one is
/// made while the rebuild goes on, which reads as zeroes and keeps what is written to it.
#[test]
fn a_rebuild_under_a_raw_pool_copies_what_volumes_have() {
    for sets in 1..=2u64 {
        in_world(async move |rt| {
            let devices = memories(2 * sets as usize + 1, 40 * MIB);
            let (members, new) = devices.split_at(2 * sets as usize);
            let array = Rc::new(plain(&rt, members, 2).await);
            let device = array.clone() as SharedDevice;
            let pool = RawPool::create(&rt, device, [7; 16], false).await;
            let pool = pool.expect("it holds nothing");
            let kept = filled_volume(&pool, "kept", 6 * MIB, 1).await;
            filled_volume(&pool, "gone", 20 * MIB, 2).await;
            let replaced = array.replace("m1", named("n", &new[0]), false).await;
            replaced.expect("it is large enough");
            pool.delete("gone").await.expect("it is there");
            let made = filled_volume(&pool, "made", 3 * MIB, 3).await;
            settle(&rt, &array).await;

            let status = array.status();
            let copied = status.members.iter().map(|it| it.counts.copied_bytes);
            let copied = copied.sum::<u64>();
            // Superblocks, 9 MiB of volumes, and what "gone" had yet when it was looked at.
            assert!(copied <= 16 * MIB, "{copied} bytes");
            assert!(status.members.iter().any(|it| it.name == "n"), "{status:?}");
            array.scrub();
            while array.status().scrub.running {
                rt.sleep(Duration::from_ms(100)).await;
            }
            let scrub = array.status().scrub;
            assert_eq!((scrub.repaired, scrub.unresolved), (0, 0), "{sets}");
            assert!(holds(&kept, 1).await && holds(&made, 3).await, "{sets}");
        });
    }
}

/// Once a raw pool is closed, another one may be on the array: it says nothing any more.
#[test]
fn a_raw_pool_that_is_closed_calls_nothing_unneeded() {
    in_world(async move |rt| {
        let devices = memories(3, 16 * MIB);
        let array = Rc::new(plain(&rt, &devices[..2], 2).await);
        let device = array.clone() as SharedDevice;
        let pool = Pool::create(&rt, device, [7; 16], false).await;
        let pool = pool.expect("it holds nothing");
        pool.close().await;
        let last = array.info().blocks - 1;
        let written = write(&*array, last, BLOCK, 9).await;
        written.expect("all work");
        let replaced = array.replace("m1", named("n", &devices[2]), false).await;
        replaced.expect("it is large enough");
        settle(&rt, &array).await;
        let kept = read(&*array, last, BLOCK).await == Ok(vec![9; BLOCK]);
        assert!(kept, "it became zeroes");
        drop(pool);
    });
}
