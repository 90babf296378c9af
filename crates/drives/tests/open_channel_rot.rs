//! Open-channel devices in files whose content rots: what is not what was written is a read error.

use std::path::Path;

use flashyard_block::{FileDevice, FileOptions, IoError, Verdict};
use flashyard_checksum::Crc32c;
use flashyard_drives::open_channel::{Medium, OpenChannel, Report, Wanted, check};
use flashyard_flash::Profile;
use flashyard_flash::channel;
use flashyard_runtime::Rt;
use flashyard_runtime::sim::{Config, Disk, World};
use flashyard_testbed::{flush, read, write};

const BLOCK: usize = 4096;
const PATH: &str = "/flash";

/// Opens a device of two channels with one unit each, made if it is not there.
async fn open(rt: &Rt) -> OpenChannel {
    let mut profile = Profile::named("cnex").expect("it ships");
    profile.channels = 2;
    profile.dies_per_channel = 1;
    let device = channel::Device::new(&profile, 32 << 20, 1, channel::Options::default());
    let device = device.expect("the capacity fits");
    let options = FileOptions {
        block_size: BLOCK as u32,
        size: Some(Medium::file_bytes(&device)),
        read_only: false,
    };
    let file = FileDevice::open(rt, Path::new(PATH), options).await;
    let file = file.expect("it is free");
    let medium = Medium::in_file(rt, device, file, Some([7; 16])).await;
    let opened = OpenChannel::open(rt, medium.expect("it is sound"), [9; 16], 1).await;
    opened.expect("it is sound")
}

async fn look(rt: &Rt) -> Report {
    let options = FileOptions {
        block_size: BLOCK as u32,
        size: None,
        read_only: true,
    };
    let file = FileDevice::open(rt, Path::new(PATH), options).await;
    let report = check(rt, file.expect("it is free")).await;
    report.expect("it can be read")
}

/// Where in the file sectors are that hold only this byte.
fn sectors_of(disk: &Disk, value: u8) -> Vec<u64> {
    let holds = |at: &u64| {
        disk.read(*at..at + BLOCK as u64)
            .iter()
            .all(|byte| *byte == value)
    };
    (0..disk.size()).step_by(BLOCK).filter(holds).collect()
}

/// A sector that is not what was written is a read error, in the life in which it was written and
/// later, and nothing else is.
#[test]
fn what_is_rotten_is_not_read() {
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    let at = machine.clone();
    world.run(&machine, |rt| async move {
        let device = open(&rt).await;
        let wanted = Wanted::Channels(vec![0]);
        let partition = device.create("db", [1; 16], &wanted, 200).await.unwrap();
        for lba in 0..256 {
            write(&*partition, lba, BLOCK, lba as u8).await.unwrap();
        }
        flush(&*partition).await.unwrap();
        let disk = at.disk(PATH).expect("it was made");
        let rotten = sectors_of(&disk, 77);
        assert!(!rotten.is_empty());
        for at in rotten {
            disk.flip(at + 1234, 8);
        }
        assert_eq!(read(&*partition, 77, BLOCK).await, Err(IoError::Read));
        assert_eq!(read(&*partition, 70, 16 * BLOCK).await, Err(IoError::Read));
        device.stop().await.unwrap();
        device.close().await;
        drop(partition);

        let device = open(&rt).await;
        let partition = device.partition("db").expect("it is there");
        for lba in 0..256 {
            let found = read(&*partition, lba, BLOCK).await;
            match lba {
                77 => assert_eq!(found, Err(IoError::Read)),
                _ => assert_eq!(found, Ok(vec![lba as u8; BLOCK]), "{lba}"),
            }
        }
        write(&*partition, 77, BLOCK, 1).await.unwrap();
        flush(&*partition).await.unwrap();
        assert_eq!(read(&*partition, 77, BLOCK).await, Ok(vec![1; BLOCK]));
    });
}

/// Chunks of the device, and pieces of the units of each.
const CHUNKS: usize = 64;
const DATA: usize = 8 * 17;

/// Makes a file one of version 1: without checksums of sectors, and with each head before the units
/// of its chunk.
fn make_first_version(disk: &Disk) {
    let bytes = disk.read(0..disk.size());
    let mut pieces: Vec<Vec<u8>> = bytes.chunks(BLOCK).map(<[u8]>::to_vec).collect();
    let sum = |bytes: &[u8]| Crc32c::of(bytes);
    for piece in &mut pieces {
        let (checked, end) = match &piece[..4] {
            b"FLWU" => (8, 36 + 16 * 16),
            b"FLCH" => (8, 36),
            _ if piece.starts_with(b"FLSHIMAG") => (0, BLOCK),
            _ => continue,
        };
        piece[end..].fill(0);
        let place = if checked == 0 {
            piece[8] = 1;
            piece[12..16].fill(0);
            12
        } else {
            4
        };
        if piece.starts_with(b"FLCH") && piece[28] == 3 {
            piece[28] = 1;
        }
        let sum = sum(&piece[checked..end]);
        piece[place..place + 4].copy_from_slice(&sum.to_le_bytes());
    }
    let data = pieces.split_off(2 + CHUNKS);
    let mut moved = pieces[..2].to_vec();
    for (head, data) in pieces[2..].iter().zip(data.chunks(DATA)) {
        moved.push(head.clone());
        moved.extend_from_slice(data);
    }
    disk.write(0, &moved.concat());
}

/// A file of a former version is used as it was: what is in it is read, written, and taken up
/// again.
#[test]
fn a_file_without_checksums_of_sectors_stays_usable() {
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    let at = machine.clone();
    world.run(&machine, |rt| async move {
        let device = open(&rt).await;
        let wanted = Wanted::Channels(vec![0]);
        let partition = device.create("db", [1; 16], &wanted, 200).await.unwrap();
        for lba in 0..256 {
            write(&*partition, lba, BLOCK, 3).await.unwrap();
        }
        device.stop().await.unwrap();
        device.close().await;
        let disk = at.disk(PATH).expect("it was made");
        make_first_version(&disk);
        assert_eq!(look(&rt).await.verdict(), Verdict::Sound);
        for life in 0..2 {
            let device = open(&rt).await;
            let partition = device.partition("db").expect("it is there");
            assert_eq!(
                read(&*partition, 100, BLOCK).await,
                Ok(vec![3 + life; BLOCK])
            );
            assert_eq!(read(&*partition, 200, BLOCK).await, Ok(vec![3; BLOCK]));
            for lba in 0..128 {
                write(&*partition, lba, BLOCK, 4 + life).await.unwrap();
            }
            device.stop().await.unwrap();
            device.close().await;
            assert_eq!(disk.read(8..12), [1, 0, 0, 0]);
            let report = look(&rt).await;
            assert!(
                report.verdict() == Verdict::Sound && report.partitions[0].recoverable,
                "{report}"
            );
        }
    });
}
