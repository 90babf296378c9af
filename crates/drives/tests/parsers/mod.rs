//! Any bytes as what an open-channel device keeps: its layout, and the file that it is in. Used by
//! the tests here and by the fuzz targets.

use std::path::Path;

use flashyard_block::superblock::seal;
use flashyard_block::{Device, DeviceExt, FileDevice, FileOptions, Tag};
use flashyard_checksum::Crc32c;
use flashyard_corpus::Image;
use flashyard_drives::open_channel::{Medium, OpenChannel, Wanted, check, describe_layout};
use flashyard_flash::{Profile, channel};
use flashyard_runtime::sim::{Config, World};
use flashyard_runtime::{Buf, Rt};

const PATH: &str = "/flash";
const PIECE: usize = 4096;
/// Bytes of a head or a record before what is in it.
const BEGINNING: usize = 36;
/// Where a head has the checksum of its records, and the records.
const TABLE: (usize, usize) = (36, 40);
/// Bytes of a record in a head: 16 sectors with metadata and checksums.
const BODY: usize = 16 + 16 * 16 + 16 * 4;

/// Reads bytes as a copy of the layout, as they are and with the right length and checksum.
pub(crate) fn layout(bytes: &[u8]) {
    describe_layout(bytes);
    let mut sealed = bytes.to_vec();
    seal_layout(&mut sealed, bytes.len());
    let report = describe_layout(&sealed);
    assert_eq!(report.whole, report.generation.is_some());
    assert!(!report.state.is_empty());
}

/// Looks at a small file: what a header has behind its magic, then whatever follows it.
pub(crate) fn header(bytes: &[u8]) {
    let mut content = vec![0; 16 * PIECE];
    let (front, rest) = bytes.split_at(bytes.len().min(56));
    content[8..8 + front.len()].copy_from_slice(front);
    seal_piece(&mut content[..PIECE], b"FLSHIMAG");
    content.copy_within(..PIECE, PIECE);
    let rest = &rest[..rest.len().min(14 * PIECE)];
    content[2 * PIECE..][..rest.len()].copy_from_slice(rest);
    let size = content.len() as u64;
    in_file(size, vec![(0, content)]);
}

/// Looks at and opens an image of which pieces are changed: the first byte says of which image,
/// then there are changes of a piece that is not empty (1 byte), the place in it (2), the number of
/// bytes (1), and the bytes.
pub(crate) fn image(bytes: &[u8]) {
    let Some((which, mut changes)) = bytes.split_first() else {
        return;
    };
    let names = [
        "open-channel",
        "open-channel-1",
        "open-channel-cut",
        "open-channel-cut-1",
    ];
    let image = Image::named(names[*which as usize % names.len()]);
    let mut pieces = pieces(&image);
    while let Some(([piece, high, low, len], rest)) = changes.split_first_chunk() {
        let len = usize::from(*len % 32).min(rest.len());
        let (new, rest) = rest.split_at(len);
        changes = rest;
        let count = pieces.len();
        let (_, piece) = &mut pieces[*piece as usize % count];
        let place = usize::from(u16::from_be_bytes([*high, *low])) % (PIECE - 32);
        piece[place..place + len].copy_from_slice(new);
        for magic in [&b"FLSHIMAG"[..], b"FLCH", b"FLWU"] {
            if piece.starts_with(magic) {
                seal_piece(piece, magic);
            }
        }
        if piece.starts_with(b"FLSHUNIT") {
            let length = u32::from_le_bytes([piece[12], piece[13], piece[14], piece[15]]);
            seal_layout(piece, length as usize);
        }
    }
    in_file(image.size, pieces);
}

/// The pieces of an image in which something is.
fn pieces(image: &Image) -> Vec<(u64, Vec<u8>)> {
    let mut pieces: Vec<(u64, Vec<u8>)> = Vec::new();
    for (offset, part) in &image.parts {
        for (at, byte) in (*offset..).zip(part) {
            let (start, place) = (at / PIECE as u64 * PIECE as u64, at as usize % PIECE);
            if pieces.last().is_none_or(|(last, _)| *last != start) {
                pieces.push((start, vec![0; PIECE]));
            }
            let last = pieces.last_mut().expect("one was added");
            last.1[place] = *byte;
        }
    }
    pieces
}

/// Begins a piece with `magic`, and gives it the checksums that are right for it.
fn seal_piece(piece: &mut [u8], magic: &[u8]) {
    piece[..magic.len()].copy_from_slice(magic);
    if magic == b"FLSHIMAG" {
        piece[12..16].fill(0);
        let sum = checksum(piece);
        piece[12..16].copy_from_slice(&sum);
        return;
    }
    if magic == b"FLCH" {
        let sectors = u32::from_le_bytes([piece[32], piece[33], piece[34], piece[35]]);
        let end = TABLE.1 + (sectors as usize / 16).min(8) * BODY;
        let sum = checksum(&piece[TABLE.1..end]);
        piece[TABLE.0..TABLE.1].copy_from_slice(&sum);
    }
    let end = match magic {
        b"FLCH" => BEGINNING,
        _ => BEGINNING + 16 * 16 + 16 * 4,
    };
    let sum = checksum(&piece[8..end]);
    piece[4..8].copy_from_slice(&sum);
}

fn seal_layout(bytes: &mut [u8], length: usize) {
    if (20..=bytes.len()).contains(&length) {
        bytes[12..16].copy_from_slice(&(length as u32).to_le_bytes());
        seal(&mut bytes[..length]);
    }
}

fn checksum(bytes: &[u8]) -> [u8; 4] {
    let mut digest = Crc32c::new();
    digest.update(bytes);
    digest.value().to_le_bytes()
}

/// Looks at and opens a file of `size` bytes with these parts.
fn in_file(size: u64, parts: Vec<(u64, Vec<u8>)>) {
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    let at = machine.clone();
    world.run(&machine, |rt| async move {
        drop(file(&rt, Some(size), false).await);
        let disk = at.disk(PATH).expect("it was made");
        for (offset, part) in &parts {
            disk.write(*offset, part);
        }
        if let Ok(report) = check(&rt, file(&rt, None, true).await).await {
            assert!(!report.to_string().is_empty());
        }
        let device = factory();
        let file = file(&rt, None, false).await;
        let Ok(medium) = Medium::in_file(&rt, device, file, None).await else {
            return;
        };
        if let Ok(device) = OpenChannel::open(&rt, medium, [9; 16], 1).await {
            use_it(&device).await;
        }
    });
}

async fn file(rt: &Rt, size: Option<u64>, read_only: bool) -> FileDevice {
    let options = FileOptions {
        block_size: PIECE as u32,
        size,
        read_only,
    };
    let opened = FileDevice::open(rt, Path::new(PATH), options).await;
    opened.expect("it is free")
}

async fn use_it(device: &OpenChannel) {
    let tag = Tag::default();
    for info in device.list() {
        let partition = device.partition(&info.name).expect("it is listed");
        for lba in [0, 5, partition.info().blocks - 1] {
            let buf = Buf::take(PIECE).expect("tests need few buffers");
            // It may be lost.
            let _read = partition.read(tag, lba, buf).await;
        }
        let buf = Buf::take_zeroed(PIECE).expect("tests need few buffers");
        let _written = partition.write(tag, 1, buf, true).await;
    }
    let wanted = Wanted::Count(1);
    let _created = device
        .create("of-the-fuzzer", [0xf5; 16], &wanted, 200)
        .await;
    if let Some(info) = device.list().first() {
        let _deleted = device.delete(&info.name).await;
    }
    // What has failed says so.
    let _stopped = device.stop().await;
    device.close().await;
}

/// The device that the images are of.
fn factory() -> channel::Device {
    let mut profile = Profile::named("cnex").expect("it ships");
    profile.channels = 2;
    profile.dies_per_channel = 1;
    let device = channel::Device::new(&profile, 32 << 20, 1, channel::Options::default());
    device.expect("the capacity fits")
}
