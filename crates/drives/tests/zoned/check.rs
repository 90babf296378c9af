//! A check of a zoned device that is not in use: what is found, and that nothing is changed.

use std::path::Path;

use flashyard_block::Verdict;
use flashyard_drives::open_channel::{
    OpenChannel, PartitionError, Report, Wanted, check_zoned, is_zoned,
};
use flashyard_runtime::sim::{Config, Disk, Machine, World};
use flashyard_runtime::{OpenOptions, Rt, ZoneState};

use crate::{BLOCK, DISK, UUID, ZONE, open, world, zones};
use flashyard_testbed::{filled, flush, write};

/// What [`check_zoned`] finds on the device, of which it changes nothing.
pub(crate) fn checked(world: &World, machine: &Machine) -> Result<Report, PartitionError> {
    world.run(machine, |rt| async move {
        let before = zone_states(&rt).await;
        let report = check_zoned(&rt, Path::new(DISK)).await;
        assert_eq!(zone_states(&rt).await, before, "it is left as it was");
        report
    })
}

async fn zone_states(rt: &Rt) -> Vec<(ZoneState, u64)> {
    let file = rt.open(Path::new(DISK), OpenOptions::default()).unwrap();
    let zones = file.report_zones(0, 64).await.unwrap();
    zones
        .iter()
        .map(|zone| (zone.state, zone.pointer))
        .collect()
}

/// What a check says after a cut is what is found when the device is opened.
pub(crate) fn check_agrees(world: &World, machine: &Machine, seed: u64) {
    let report = checked(world, machine).expect("it can be looked at");
    assert_eq!(report.verdict(), Verdict::Sound, "seed {seed}: {report}");
    let bytes = world.run(machine, |rt| async move {
        open(&rt).await.unwrap().list().remove(0).bytes
    });
    machine.crash();
    machine.restart();
    let db = &report.partitions[0];
    assert_eq!((db.name.as_str(), db.units), ("db", 2), "seed {seed}");
    assert_eq!((db.bytes, db.lost), (bytes, 0), "seed {seed}");
    assert!(db.recoverable, "seed {seed}");
}

/// A device in use until the power went, with partitions `one` and `two` of a unit each, out of
/// `units`.
fn with_two(units: Option<u32>) -> (World, Machine, Disk) {
    let (world, machine, disk) = world(Config::calm(1), zones(0));
    world.run(&machine, move |rt| async move {
        let opened = OpenChannel::open_zoned(&rt, Path::new(DISK), units, UUID).await;
        let device = opened.unwrap();
        for (value, name) in [(1, "one"), (2, "two")] {
            let wanted = Wanted::Count(1);
            let created = device.create(name, [value; 16], &wanted, 200).await;
            let partition = created.unwrap();
            write(&*partition, 0, 64 * BLOCK, 0xA0 + value)
                .await
                .unwrap();
            flush(&*partition).await.unwrap();
        }
    });
    machine.power_cut();
    machine.restart();
    (world, machine, disk)
}

/// The zones in which copies of the layout are.
fn copies(disk: &Disk) -> Vec<u64> {
    let is_copy = |zone: &u64| disk.read(zone * ZONE..zone * ZONE + 8) == b"FLSHUNIT";
    (0..64).filter(is_copy).collect()
}

#[test]
fn a_check_finds_into_how_many_units_a_device_is_divided() {
    for (units, number) in [(None, 2), (Some(4), 4), (Some(7), 7), (Some(8), 8)] {
        let (world, machine, disk) = with_two(units);
        let last = 64 / number * (number - 1);
        assert_eq!(copies(&disk), [0, last], "{units:?}");
        let report = checked(&world, &machine).expect("it can be looked at");
        assert_eq!(report.verdict(), Verdict::Sound, "{units:?}: {report}");
        let found = report
            .partitions
            .iter()
            .map(|one| (one.name.as_str(), one.recoverable));
        assert!(found.eq([("one", true), ("two", true)]), "{report}");

        // By the other copy, too.
        disk.flip(100, 1);
        let report = checked(&world, &machine).expect("it can be looked at");
        let message = report.to_string();
        assert!(
            message.contains("the first copy of the layout is not usable"),
            "{message}"
        );
        assert!(
            message.contains("unit 0.0, chunk 0: the data of write unit 0"),
            "{message}"
        );
        assert_eq!(
            (
                report.partitions.len(),
                report.repairs.len(),
                report.verdict()
            ),
            (2, 2, Verdict::Repairable),
            "{message}"
        );
        disk.flip(last * ZONE + 100, 1);
        let report = checked(&world, &machine).expect("it can be looked at");
        assert!(report.partitions.is_empty() && report.verdict() == Verdict::Lost);
        let message = report.to_string();
        assert!(
            message.contains("the layout of the partitions is damaged"),
            "{message}"
        );
    }
}

#[test]
fn a_check_finds_what_is_rotten() {
    let (world, machine, disk) = with_two(Some(4));
    let data = (0..64 * ZONE).step_by(BLOCK);
    let mut data = data.filter(|at| disk.read(*at..at + 16) == [0xA2; 16]);
    let at = data.next().expect("it was written");
    disk.flip(at + 1234, 4);
    let report = checked(&world, &machine).expect("it can be looked at");
    let [problem] = &report.problems[..] else {
        panic!("{report}");
    };
    let chunk = at / ZONE;
    let place = format!("unit 0.{}, chunk {}:", chunk / 16, chunk % 16);
    assert!(problem.starts_with(&place), "{problem}");
    assert!(report.partitions.iter().all(|one| one.recoverable));
}

#[test]
fn what_cannot_be_checked_is_refused() {
    let (world, machine, _) = world(Config::calm(1), zones(0));
    let message = checked(&world, &machine)
        .expect_err("there is nothing")
        .to_string();
    assert!(message.contains("/dev/zoned0 is empty"), "{message}");
    let message = world.run(&machine, |rt| async move {
        assert!(is_zoned(&rt, Path::new(DISK)).unwrap());
        let device = open(&rt).await.unwrap();
        let refused = check_zoned(&rt, Path::new(DISK))
            .await
            .expect_err("it is used");
        drop(device);
        assert!(refused.is_in_use(), "EBUSY says so: {refused}");
        refused.to_string()
    });
    assert!(
        message.contains("another program uses it: stop that one first"),
        "{message}"
    );

    machine.add_disk("/dev/plain0", 1 << 20);
    world.run(&machine, |rt| async move {
        assert!(!is_zoned(&rt, Path::new("/dev/plain0")).unwrap());
        assert!(is_zoned(&rt, Path::new("/dev/nothing")).is_err());
        let refused = check_zoned(&rt, Path::new("/dev/plain0")).await;
        assert!(
            refused
                .expect_err("it has none")
                .to_string()
                .contains("has no zones")
        );
    });
}

/// A device that another program has written is neither read as ours nor changed.
#[test]
fn a_check_refuses_what_others_have_written() {
    let (world, machine, _) = world(Config::calm(1), zones(0));
    world.run(&machine, |rt| async move {
        let options = OpenOptions {
            write: true,
            direct: true,
            ..OpenOptions::default()
        };
        let file = rt.open(Path::new(DISK), options).unwrap();
        let theirs = file.write_at(filled(1 << 17, 7), 5 * ZONE, true).await.0;
        assert!(theirs.is_ok());
    });
    let message = checked(&world, &machine)
        .expect_err("it is theirs")
        .to_string();
    assert!(message.contains("holds something else"), "{message}");
}
