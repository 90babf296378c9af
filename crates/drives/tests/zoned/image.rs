//! A zoned device that an earlier version has written: it is opened, checked and repaired, and
//! today's version writes the same layout.

use std::path::Path;

use flashyard_block::Verdict;
use flashyard_corpus::Image;
use flashyard_drives::open_channel::{OpenChannel, PartitionError, Wanted};
use flashyard_runtime::sim::{Config, Disk, Machine, World, ZoneConfig};
use flashyard_runtime::{Buf, OpenOptions, Rt, ZoneModel};
use flashyard_testbed::{flush, read, write};

use crate::check::checked;
use crate::{BLOCK, DISK, UUID, world};

const ZONE: u64 = 1 << 20;
/// Zones of each of the two units.
const EACH: u64 = 16;
/// Bytes of a write unit.
const UNIT: usize = 64 << 10;

fn empty() -> (World, Machine, Disk) {
    let zones = ZoneConfig {
        zone_bytes: ZONE,
        capacity: ZONE,
        zones: 2 * EACH as u32,
        active_most: 0,
        model: ZoneModel::HostManaged,
    };
    world(Config::calm(1), zones)
}

/// A disk with what the image says, of which the zones are written as far as that goes.
fn with_image() -> (World, Machine, Disk) {
    let (world, machine, disk) = empty();
    world.run(&machine, |rt| async move {
        let options = OpenOptions {
            write: true,
            ..OpenOptions::default()
        };
        let file = rt.open(Path::new(DISK), options).expect("it is there");
        let content = Image::named("zoned").bytes();
        for (start, zone) in (0..)
            .step_by(ZONE as usize)
            .zip(content.chunks(ZONE as usize))
        {
            let written = zone
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |at| at + 1);
            let units = zone[..written.next_multiple_of(UNIT)].chunks(UNIT);
            for (at, unit) in (start..).step_by(UNIT).zip(units) {
                let mut buf = Buf::take(UNIT).expect("memory");
                buf.copy_from_slice(unit);
                let (written, _) = file.write_at(buf, at, true).await;
                assert_eq!(written.expect("in order"), UNIT);
            }
        }
    });
    (world, machine, disk)
}

async fn open(rt: &Rt) -> Result<OpenChannel, PartitionError> {
    OpenChannel::open_zoned(rt, Path::new(DISK), Some(2), UUID).await
}

/// The partitions and data of the image.
async fn make(rt: &Rt) -> OpenChannel {
    let device = open(rt).await.unwrap();
    for (uuid, name, lbas, value) in [(1, "db", 5..21, 0xd5), (2, "logs", 0..3, 0x55)] {
        let wanted = Wanted::Count(1);
        let created = device.create(name, [uuid; 16], &wanted, 200).await;
        let partition = created.unwrap();
        for lba in lbas {
            write(&*partition, lba, BLOCK, value).await.unwrap();
        }
        flush(&*partition).await.unwrap();
    }
    device.stop().await.unwrap();
    device
}

async fn examine(device: &OpenChannel) {
    let names: Vec<String> = device.list().into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["db", "logs"]);
    for (name, lbas, value) in [("db", 5..21, 0xd5), ("logs", 0..3, 0x55)] {
        let partition = device.partition(name).expect("it is listed");
        for lba in 0..32 {
            let value = if lbas.contains(&lba) { value } else { 0 };
            let found = read(&*partition, lba, BLOCK).await.unwrap();
            assert_eq!(found, [value; BLOCK], "{name} {lba}");
        }
    }
}

/// Where a copy of the layout is.
fn place(copy: u64) -> u64 {
    copy * EACH * ZONE
}

#[test]
fn a_device_of_an_earlier_version_is_opened_checked_and_repaired() {
    for damaged in [None, Some(0), Some(1)] {
        let (world, machine, disk) = with_image();
        if let Some(copy) = damaged {
            disk.flip(place(copy) + 70, 4);
        }
        let report = checked(&world, &machine).expect("it can be looked at");
        assert!(report.problems.is_empty(), "{damaged:?}: {report}");
        match damaged {
            Some(copy) => {
                let name = ["first", "second"][copy as usize];
                let message = format!("the {name} copy of the layout is not usable: ");
                assert!(report.repairs[0].starts_with(&message), "{report}");
            }
            None => assert_eq!(report.verdict(), Verdict::Sound, "{report}"),
        }
        for _ in 0..2 {
            world.run(&machine, |rt| async move {
                examine(&open(&rt).await.expect("one is whole")).await;
            });
            machine.power_cut();
            machine.restart();
            let report = checked(&world, &machine).expect("it can be looked at");
            assert_eq!(report.verdict(), Verdict::Sound, "{damaged:?}: {report}");
        }
    }
}

#[test]
fn a_device_of_which_both_layouts_are_damaged_is_refused() {
    let (world, machine, disk) = with_image();
    for copy in 0..2 {
        disk.flip(place(copy) + 70, 4);
    }
    let report = checked(&world, &machine).expect("it can be looked at");
    assert_eq!(report.verdict(), Verdict::Lost, "{report}");
    let refused = world.run(&machine, |rt| async move { open(&rt).await.err() });
    let refused = refused.expect("none is whole");
    assert!(matches!(refused, PartitionError::Damaged(_)), "{refused}");
}

#[test]
fn the_bytes_are_those_of_the_earlier_version() {
    let (world, machine, disk) = empty();
    world.run(&machine, |rt| async move { drop(make(&rt).await) });
    let expected = Image::named("zoned").bytes();
    let found = disk.read(0..disk.size());
    for (at, (found, expected)) in found.chunks(BLOCK).zip(expected.chunks(BLOCK)).enumerate() {
        assert!(found == expected, "block {at}");
    }
}
