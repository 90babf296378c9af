//! Open-channel devices in files that an earlier version has written, of both versions of the file:
//! they are opened, checked and repaired, and today's version writes the same layout.

use std::path::Path;

use flashyard_block::{FileDevice, FileOptions, Verdict};
use flashyard_corpus::Image;
use flashyard_drives::open_channel::{
    Medium, OpenChannel, PartitionError, Report, Wanted, check, is_image,
};
use flashyard_flash::{Profile, channel};
use flashyard_runtime::Rt;
use flashyard_runtime::sim::{Config, Disk, Machine, World};
use flashyard_testbed::read;

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
const PATH: &str = "/flash";

/// Pieces of a chunk in the file without its head: eight units of 64 KiB, each with its record.
const CHUNK: u64 = 8 * 17;
/// Chunks of each of the two units.
const CHUNKS: u64 = 32;

/// The device that the images are of.
fn factory() -> channel::Device {
    let mut profile = Profile::named("cnex").expect("it ships");
    profile.channels = 2;
    profile.dies_per_channel = 1;
    let device = channel::Device::new(&profile, 32 * MIB, 1, channel::Options::default());
    device.expect("the capacity fits")
}

async fn file(rt: &Rt, size: Option<u64>, read_only: bool) -> FileDevice {
    let options = FileOptions {
        block_size: BLOCK as u32,
        size,
        read_only,
    };
    let opened = FileDevice::open(rt, Path::new(PATH), options).await;
    opened.expect("it is free")
}

/// A file with what `image` says.
async fn disk(rt: &Rt, machine: &Machine, image: &str) -> Disk {
    let image = Image::named(image);
    drop(file(rt, Some(image.size), false).await);
    let disk = machine.disk(PATH).expect("it was made");
    for (offset, part) in &image.parts {
        disk.write(*offset, part);
    }
    disk
}

/// Where a copy of the layout is in a file of a version.
fn place(version: u32, copy: u64) -> u64 {
    let piece = match version {
        1 => 2 + copy * CHUNKS * (1 + CHUNK) + 2,
        _ => 2 + 2 * CHUNKS + copy * CHUNKS * CHUNK + 1,
    };
    piece * BLOCK as u64
}

async fn look(rt: &Rt) -> Report {
    let report = check(rt, file(rt, None, true).await).await;
    report.expect("it can be read")
}

async fn open(rt: &Rt) -> Result<OpenChannel, PartitionError> {
    let device = factory();
    let size = Medium::file_bytes(&device);
    let medium = Medium::in_file(rt, device, file(rt, Some(size), false).await, Some([7; 16]));
    OpenChannel::open(rt, medium.await?, [9; 16], 1).await
}

/// What has to be in a file: partition db in any case.
async fn examine(device: &OpenChannel, has_logs: bool) {
    let names: Vec<String> = device.list().into_iter().map(|one| one.name).collect();
    let expected = ["db", "logs"];
    assert_eq!(names, expected[..=usize::from(has_logs)]);
    let info = device.list().remove(0);
    assert_eq!((info.uuid, info.over_provisioning), ([1; 16], 200));
    assert_eq!(info.units, [(0, 0)]);
    let db = device.partition("db").expect("it is listed");
    for lba in 0..32 {
        let value = if (5..21).contains(&lba) { 0xd5 } else { 0 };
        assert_eq!(read(&*db, lba, BLOCK).await.unwrap(), [value; BLOCK]);
    }
}

#[test]
fn files_of_an_earlier_version_are_opened_checked_and_repaired() {
    let older = "one copy is older: a change was cut off; it is repaired when the device is opened";
    let sound = ["open-channel", "open-channel-1"];
    let cut = ["open-channel-cut", "open-channel-cut-1"];
    for (images, is_cut) in [(sound, false), (cut, true)] {
        for (image, version) in images.into_iter().zip([2, 1]) {
            for damaged in [None, Some(0), Some(1)] {
                let world = World::new(Config::calm(1));
                let machine = world.machine(1);
                let at = machine.clone();
                world.run(&machine, |rt| async move {
                    let disk = disk(&rt, &at, image).await;
                    assert!(is_image(&disk.read(0..4096)));
                    if let Some(copy) = damaged {
                        disk.flip(place(version, copy) + 70, 4);
                    }
                    let report = look(&rt).await;
                    let place = format!("{image}, {damaged:?}: {report}");
                    assert!(report.problems.is_empty(), "{place}");
                    match damaged {
                        Some(copy) => {
                            let name = ["first", "second"][copy as usize];
                            let message = format!("the {name} copy of the layout is not usable: ");
                            assert!(report.repairs[0].starts_with(&message), "{place}");
                            assert!(!report.copies[copy as usize].whole, "{place}");
                        }
                        None if is_cut => assert_eq!(report.repairs, [older], "{place}"),
                        None => assert!(report.repairs.is_empty(), "{place}"),
                    }

                    // After the cut the first copy alone knows of the second partition.
                    let has_logs = !(is_cut && damaged == Some(0));
                    let device = open(&rt).await.expect("one is whole");
                    examine(&device, has_logs).await;
                    device.close().await;
                    drop(device);
                    let report = look(&rt).await;
                    assert_eq!(report.verdict(), Verdict::Sound, "{image}: {report}");
                    examine(&open(&rt).await.expect("it is sound"), has_logs).await;
                });
            }
        }
    }
}

#[test]
fn a_file_of_which_both_layouts_are_damaged_is_refused_and_left_alone() {
    for (image, version) in [("open-channel", 2), ("open-channel-cut-1", 1)] {
        let world = World::new(Config::calm(1));
        let machine = world.machine(1);
        let at = machine.clone();
        world.run(&machine, |rt| async move {
            let disk = disk(&rt, &at, image).await;
            for copy in 0..2 {
                disk.flip(place(version, copy) + 70, 4);
            }
            let layouts = || {
                [0, 1].map(|copy| {
                    let at = place(version, copy);
                    disk.read(at..at + BLOCK as u64)
                })
            };
            let before = layouts();
            let report = look(&rt).await;
            assert_eq!(report.verdict(), Verdict::Lost, "{report}");
            let refused = open(&rt).await.err().expect("none is whole");
            assert!(matches!(refused, PartitionError::Damaged(_)), "{refused}");
            assert!(layouts() == before, "nothing was changed");
        });
    }
}

#[test]
fn the_layout_has_the_bytes_of_the_earlier_version() {
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    let at = machine.clone();
    world.run(&machine, |rt| async move {
        let device = open(&rt).await.expect("it is made");
        for (name, channel) in [("db", 0), ("logs", 1)] {
            let wanted = Wanted::Channels(vec![channel]);
            let uuid = [channel as u8 + 1; 16];
            let created = device.create(name, uuid, &wanted, 200).await;
            drop(created.expect("the channel is free"));
        }
        device.close().await;
        let expected = Image::named("open-channel").bytes();
        let disk = at.disk(PATH).expect("it was made");
        for copy in 0..2 {
            let at = place(2, copy);
            let layout = disk.read(at..at + BLOCK as u64);
            assert!(layout == expected[at as usize..][..BLOCK], "copy {copy}");
        }
    });
}
