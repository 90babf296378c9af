//! Partitions of a zoned block device, in the simulated world: the disk keeps the rules of zones,
//! and takes write pointers back when the power goes.

mod check;
mod image;
use std::collections::BTreeMap;
use std::path::Path;

use flashyard_block::{Device, DeviceExt, FileDevice, IoError};
use flashyard_drives::open_channel::{OpenChannel, PartitionError, Wanted};
use flashyard_runtime::sim::{Access, Config, Disk, Machine, World, ZoneConfig};
use flashyard_runtime::{OpenOptions, Rt, ZoneModel, ZoneState};
use flashyard_testbed::{
    behaves_as_an_array, filled, flush, read, refuses_what_is_not_there, write,
};
use flashyard_time::{Duration, Rng};

const DISK: &str = "/dev/zoned0";
const UUID: [u8; 16] = [9; 16];
const BLOCK: usize = 4096;
const ZONE: u64 = 2 << 20;
/// Of Linux: the device has failed.
const EIO: i32 = 5;

/// Zones that can hold 30 write units, and a little more.
fn zones(active_most: u32) -> ZoneConfig {
    ZoneConfig {
        zone_bytes: ZONE,
        capacity: 30 * 65_536 + 8192,
        zones: 64,
        active_most,
        model: ZoneModel::HostManaged,
    }
}

async fn open(rt: &Rt) -> Result<OpenChannel, PartitionError> {
    OpenChannel::open_zoned(rt, Path::new(DISK), Some(4), UUID).await
}

fn world(config: Config, zones: ZoneConfig) -> (World, Machine, Disk) {
    let world = World::new(config);
    let machine = world.machine(1);
    let disk = machine.add_zoned_disk(DISK, zones);
    (world, machine, disk)
}

/// Why the device is refused.
fn refusal(zones: ZoneConfig, units: Option<u32>) -> String {
    let (world, machine, _) = world(Config::calm(1), zones);
    world.run(&machine, move |rt| async move {
        let opened = OpenChannel::open_zoned(&rt, Path::new(DISK), units, UUID).await;
        opened.err().expect("it is refused").to_string()
    })
}

#[test]
fn a_partition_is_an_array() {
    for (seed, active_most) in [(0, 0), (1, 14), (2, 7)] {
        let (world, machine, _) = world(Config::stormy(seed), zones(active_most));
        world.run(&machine, move |rt| async move {
            let device = open(&rt).await.unwrap();
            assert!(device.is_zoned());
            let wanted = Wanted::Count(2);
            let partition = device.create("db", UUID, &wanted, 200).await.unwrap();
            assert!(partition.is_blank());
            behaves_as_an_array(&*partition, seed, 200).await;
            refuses_what_is_not_there(&*partition).await;
            let info = device.list().remove(0);
            assert!(!info.own_channels && !info.read_only && info.written.0 > 0);
        });
    }
}

/// Garbage collection erases zones and goes round many times, with as few active zones as there may
/// be.
#[test]
fn it_is_written_over_and_over() {
    let (world, machine, _) = world(Config::calm(3), zones(7));
    world.run(&machine, |rt| async move {
        let device = open(&rt).await.unwrap();
        let wanted = Wanted::Count(2);
        let partition = device.create("db", UUID, &wanted, 300).await.unwrap();
        let blocks = partition.info().blocks;
        let mut chance = Rng::new(5);
        let mut content = vec![0_u8; blocks as usize];
        for round in 0..blocks / 4 * 5 {
            let (lba, value) = (chance.below(blocks - 8), round as u8);
            write(&*partition, lba, 8 * BLOCK, value).await.unwrap();
            content[lba as usize..lba as usize + 8].fill(value);
        }
        for (lba, value) in (0..).zip(&content) {
            let found = read(&*partition, lba, BLOCK).await.unwrap();
            assert_eq!(found, [*value; BLOCK], "{lba}");
        }
        let info = device.list().remove(0);
        assert!(info.erases.1 > 3, "{info:?}");
        assert!(!info.read_only);
    });
}

/// What has happened to each block since what is known to be on the medium, values that were not
/// acknowledged included.
struct Oracle {
    possible: Vec<Vec<u8>>,
}

impl Oracle {
    const BLOCKS: u64 = 600;

    fn new() -> Self {
        Self {
            possible: vec![vec![0]; Self::BLOCKS as usize],
        }
    }

    fn flushed(&mut self) {
        for versions in &mut self.possible {
            versions.drain(..versions.len() - 1);
        }
    }
}

/// What was flushed is there after a cut, what was written since is there or not, nothing else is;
/// whenever the power goes, during recovery too.
#[test]
fn what_was_flushed_survives_cuts() {
    let seeds = if cfg!(debug_assertions) { 12 } else { 200 };
    for seed in 0..seeds {
        let active_most = [0, 7, 14][(seed % 3) as usize];
        let config = match seed % 4 {
            0 => Config::stormy(seed),
            _ => Config::calm(seed),
        };
        let (world, machine, _) = world(config, zones(active_most));
        let mut chance = Rng::new(seed);
        let mut oracle = Oracle::new();
        world.run(&machine, |rt| async move {
            let device = open(&rt).await.unwrap();
            let wanted = Wanted::Count(2);
            device.create("db", UUID, &wanted, 200).await.unwrap();
        });
        for life in 0..4 {
            oracle = live(&world, &machine, oracle, life, &mut chance);
            machine.power_cut();
            machine.restart();
            while chance.chance(1, 3) {
                let opening = machine.rt(0).spawn(open_only(machine.rt(0)));
                world.run_for(Duration::from_us(chance.below(20_000)));
                machine.power_cut();
                machine.restart();
                drop(opening);
            }
            check::check_agrees(&world, &machine, seed);
            oracle = look(&world, &machine, oracle, seed);
        }
    }
}

/// The power goes while a new device gets its first layout and its first partition, again and
/// again: there is the partition or there is not, and the device is never taken for that of another
/// program.
#[test]
fn a_new_device_can_be_cut_at_any_instant() {
    let mut found = [0; 2];
    for seed in 0..if cfg!(debug_assertions) { 60 } else { 1000 } {
        let (world, machine, _) = world(Config::calm(seed), zones(0));
        let mut chance = Rng::new(seed);
        for _ in 0..chance.range(1..4) {
            let making = machine.rt(0).spawn(make(machine.rt(0)));
            world.run_for(Duration::from_us(chance.below(1500)));
            machine.power_cut();
            machine.restart();
            drop(making);
        }
        let report = check::checked(&world, &machine);
        let seen = report.map_or(0, |report| report.partitions.len());
        let there = world.run(&machine, |rt| async move {
            let device = open(&rt).await.unwrap();
            let there = device.list().len();
            if there == 0 {
                let wanted = Wanted::Count(4);
                device.create("db", UUID, &wanted, 200).await.unwrap();
            }
            let partition = device.partition("db").expect("it is there");
            write(&*partition, 0, BLOCK, 1).await.unwrap();
            flush(&*partition).await.unwrap();
            there
        });
        assert_eq!(seen, there, "seed {seed}");
        found[there] += 1;
    }
    assert!(found[0] > 0 && found[1] > 0, "{found:?}");
}

async fn make(rt: Rt) {
    let device = open(&rt).await.unwrap();
    if device.partition("db").is_none() {
        let wanted = Wanted::Count(4);
        device.create("db", UUID, &wanted, 200).await.unwrap();
    }
    // Kept until the power goes.
    std::future::pending::<()>().await;
    drop(device);
}

async fn open_only(rt: Rt) {
    let device = open(&rt).await;
    // Kept until the power goes.
    std::future::pending::<()>().await;
    drop(device);
}

/// Writes and flushes for a while. Then some are in flight.
fn live(world: &World, machine: &Machine, oracle: Oracle, life: u64, chance: &mut Rng) -> Oracle {
    let mut chance = chance.split(life);
    world.run(machine, move |rt| async move {
        let (mut oracle, device) = (oracle, open(&rt).await.unwrap());
        let partition = device.partition("db").expect("it is there");
        for _ in 0..chance.range(10..200) {
            let lba = chance.below(Oracle::BLOCKS);
            let value = 1 + chance.below(250) as u8;
            let known = &mut oracle.possible[lba as usize];
            if chance.chance(1, 12) {
                let tag = flashyard_block::Tag::default();
                partition.deallocate(tag, lba, 1).await.unwrap();
                known.push(0);
            } else {
                write(&*partition, lba, BLOCK, value).await.unwrap();
                known.push(value);
            }
            if chance.chance(1, 50) {
                flush(&*partition).await.unwrap();
                oracle.flushed();
            }
        }
        for _ in 0..chance.below(20) {
            let lba = chance.below(Oracle::BLOCKS);
            let value = 1 + chance.below(250) as u8;
            oracle.possible[lba as usize].push(value);
            let tag = flashyard_block::Tag::default();
            let fua = chance.chance(1, 2);
            let written = partition.write(tag, lba, filled(BLOCK, value), fua);
            rt.spawn(written).detach();
        }
        rt.sleep(Duration::from_us(chance.below(300))).await;
        // The power cut takes the device from its user.
        std::mem::forget(device);
        oracle
    })
}

/// Reads everything; what is found is what is there from now on.
fn look(world: &World, machine: &Machine, oracle: Oracle, seed: u64) -> Oracle {
    let looked = world.run(machine, move |rt| async move {
        let (mut oracle, device) = (oracle, open(&rt).await.unwrap());
        let partition = device.partition("db").expect("it is there");
        for (lba, versions) in (0..).zip(&mut oracle.possible) {
            let found = read(&*partition, lba, BLOCK).await.unwrap();
            assert!(
                found.iter().all(|byte| *byte == found[0]),
                "seed {seed}, {lba}"
            );
            assert!(
                versions.contains(&found[0]),
                "seed {seed}, {lba}: {} {versions:?}",
                found[0]
            );
            *versions = vec![found[0]];
        }
        oracle
    });
    machine.crash();
    machine.restart();
    looked
}

#[test]
fn partitions_are_found_again_and_apart() {
    let (world, machine, _) = world(Config::calm(1), zones(0));
    world.run(&machine, |rt| async move {
        let device = open(&rt).await.unwrap();
        for (value, name) in [(1, "one"), (2, "two")] {
            let wanted = Wanted::Count(1);
            let partition = device
                .create(name, [value; 16], &wanted, 200)
                .await
                .unwrap();
            for lba in 0..100 {
                write(&*partition, lba, BLOCK, value).await.unwrap();
            }
            partition.stop().await.unwrap();
        }
    });
    machine.power_cut();
    machine.restart();
    world.run(&machine, |rt| async move {
        let device = open(&rt).await.unwrap();
        assert_eq!(device.free().len(), 2);
        for (value, name) in [(1, "one"), (2, "two")] {
            let partition = device.partition(name).expect("it is there");
            for lba in 0..100 {
                assert_eq!(read(&*partition, lba, BLOCK).await.unwrap(), [value; BLOCK]);
            }
        }
        device.delete("one").await.unwrap();
        let grown = device.grow("two", &Wanted::Count(1)).await;
        assert_eq!(grown, Ok(()));
        let two = device.partition("two").expect("it is there");
        let blocks = two.info().blocks;
        assert_eq!(
            read(&*two, blocks - 1, BLOCK).await.unwrap(),
            [0; BLOCK],
            "nothing of the other tenant"
        );
    });
}

/// What lies between the units of a zone is never taken for data, wherever a read begins and ends,
/// and whether the trailers of the units are known or come with their data.
#[test]
fn reads_across_units_bring_data_only() {
    const BLOCKS: u64 = 64;
    let (world, machine, _) = world(Config::calm(1), zones(0));
    let content = |lba: u64| (lba + 1) as u8;
    world.run(&machine, move |rt| async move {
        let device = open(&rt).await.unwrap();
        let wanted = Wanted::Count(1);
        let partition = device.create("db", UUID, &wanted, 200).await.unwrap();
        let mut data = filled(BLOCKS as usize * BLOCK, 0);
        for (lba, block) in (0..).zip(data.chunks_exact_mut(BLOCK)) {
            block.fill(content(lba));
        }
        let tag = flashyard_block::Tag::default();
        partition.write(tag, 0, data, true).await.unwrap();
    });
    for first in 0..BLOCKS - 1 {
        for count in [2, 4, 9, 17, 32] {
            machine.crash();
            machine.restart();
            world.run(&machine, move |rt| async move {
                let device = open(&rt).await.unwrap();
                let partition = device.partition("db").expect("it is there");
                let end = BLOCKS.min(first + count);
                for again in [false, true] {
                    let len = (end - first) as usize * BLOCK;
                    let found = read(&*partition, first, len).await.unwrap();
                    for (lba, block) in (first..end).zip(found.chunks_exact(BLOCK)) {
                        assert_eq!(
                            block,
                            [content(lba); BLOCK],
                            "{lba} of {first}..{end}, {again}"
                        );
                    }
                }
            });
        }
    }
}

#[test]
fn few_active_zones_bound_the_partitions() {
    let (world, machine, _) = world(Config::calm(1), zones(8));
    world.run(&machine, |rt| async move {
        let device = open(&rt).await.unwrap();
        let create = |name, count| {
            let wanted = Wanted::Count(count);
            let device = &device;
            async move { device.create(name, UUID, &wanted, 200).await.err() }
        };
        let refused = create("large", 3).await.expect("it is refused").to_string();
        assert!(refused.contains("2 units in all, not 3"), "{refused}");
        assert_eq!(create("one", 1).await, None);
        assert_eq!(create("two", 1).await, None);
        let refused = device.grow("two", &Wanted::Count(1)).await;
        assert!(
            matches!(refused, Err(PartitionError::Geometry(_))),
            "{refused:?}"
        );
        assert_eq!(device.list().len(), 2);
    });
}

#[test]
fn what_is_no_such_device_is_refused() {
    let usual = zones(0);
    let cases = [
        (
            ZoneConfig {
                model: ZoneModel::HostAware,
                ..usual
            },
            Some(4),
            "is host-aware",
        ),
        (zones(3), Some(4), "3 zones be partly written: 4 are needed"),
        (usual, Some(1), "at least 2 units"),
        (usual, Some(9), "would have 7 each"),
        (
            ZoneConfig {
                capacity: 32_768,
                ..usual
            },
            None,
            "at least 8 zones of 64 KiB",
        ),
    ];
    for (zones, units, why) in cases {
        let message = refusal(zones, units);
        assert!(message.contains(why), "{message}");
    }
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    machine.add_disk(DISK, 1 << 30);
    let message = world.run(&machine, |rt| async move {
        open(&rt).await.err().expect("it is refused").to_string()
    });
    assert!(
        message.contains("has no zones: set kind = \"block\""),
        "{message}"
    );
}

#[test]
fn a_zoned_disk_is_no_plain_one() {
    let (world, machine, _) = world(Config::calm(1), zones(0));
    world.run(&machine, |rt| async move {
        let plain = FileDevice::open_block(&rt, Path::new(DISK), 4096, false);
        let message = plain.err().expect("it is refused").to_string();
        assert!(message.contains("set kind = \"zoned\""), "{message}");
        // To look at it is another matter.
        assert!(FileDevice::open_block(&rt, Path::new(DISK), 4096, true).is_ok());
    });
}

#[test]
fn what_others_have_written_is_not_touched() {
    let (world, machine, disk) = world(Config::calm(1), zones(0));
    let message = world.run(&machine, |rt| async move {
        let options = OpenOptions {
            write: true,
            direct: true,
            ..OpenOptions::default()
        };
        let file = rt.open(Path::new(DISK), options).unwrap();
        let theirs = file.write_at(filled(1 << 17, 7), 5 * ZONE, true).await.0;
        assert!(theirs.is_ok());
        let message = open(&rt).await.err().expect("it is refused").to_string();
        let zone = file.report_zones(5 * ZONE, 1).await.unwrap()[0];
        assert_eq!(zone.state, ZoneState::Active, "it is not even finished");
        message
    });
    assert!(message.contains("holds something else"), "{message}");
    assert!(message.contains("blkzone reset /dev/zoned0"), "{message}");
    assert_eq!(disk.read(5 * ZONE..5 * ZONE + 4), [7; 4]);
}

/// Writes and resets fail, zones are given up: nothing that was acknowledged is lost as long as
/// there are others.
#[test]
fn zones_that_fail_are_done_without() {
    for seed in 0..if cfg!(debug_assertions) { 4 } else { 40 } {
        let (world, machine, disk) = world(Config::calm(seed), zones(0));
        world.run(&machine, move |rt| async move {
            let device = open(&rt).await.unwrap();
            let wanted = Wanted::Count(4);
            let partition = device.create("db", UUID, &wanted, 300).await.unwrap();
            let mut chance = Rng::new(seed);
            let mut content = BTreeMap::new();
            // The first zones have the layout.
            let some = |chance: &mut Rng| ZONE * (2 + chance.below(44));
            for round in 0..6000 {
                let lba = chance.below(partition.info().blocks);
                write(&*partition, lba, BLOCK, round as u8).await.unwrap();
                content.insert(lba, round as u8);
                if round % 800 == 400 {
                    let zone = some(&mut chance);
                    disk.fail(Access::Write, zone..zone + ZONE, EIO, Some(1));
                    let zone = some(&mut chance);
                    disk.fail(Access::Zone, zone..zone + ZONE, EIO, Some(1));
                }
            }
            flush(&*partition).await.unwrap();
            for (lba, value) in &content {
                assert_eq!(
                    read(&*partition, *lba, BLOCK).await.unwrap(),
                    [*value; BLOCK],
                    "seed {seed}, {lba}"
                );
            }
            drop((device, partition));
            rt.sleep(Duration::from_ms(100)).await;
            disk.repair();
            let device = open(&rt).await.unwrap();
            let partition = device.partition("db").expect("it is there");
            for (lba, value) in &content {
                assert_eq!(
                    read(&*partition, *lba, BLOCK).await.unwrap(),
                    [*value; BLOCK],
                    "seed {seed}, {lba}"
                );
            }
        });
    }
}

#[test]
fn rotten_data_are_an_error_and_never_data_of_another_owner() {
    let (world, machine, disk) = world(Config::calm(1), zones(0));
    world.run(&machine, move |rt| async move {
        let device = open(&rt).await.unwrap();
        let wanted = Wanted::Count(1);
        let partition = device.create("db", UUID, &wanted, 200).await.unwrap();
        write(&*partition, 0, 64 * BLOCK, 0xAB).await.unwrap();
        flush(&*partition).await.unwrap();
        for offset in (0..64 * ZONE).step_by(BLOCK) {
            if disk.read(offset..offset + 16) == [0xAB; 16] {
                disk.flip(offset + 77, 1);
            }
        }
        assert_eq!(read(&*partition, 5, BLOCK).await, Err(IoError::Read));
        write(&*partition, 5, BLOCK, 1).await.unwrap();
        flush(&*partition).await.unwrap();
        assert_eq!(read(&*partition, 5, BLOCK).await.unwrap(), [1; BLOCK]);
    });
}
