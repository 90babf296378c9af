//! Partitions whose flash has failed, with pools and volumes on them: what is reported, and that
//! all of it can be deleted.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::rig::{Scratch, Target, names, path, target_perf};

const PIECE: u64 = 4096;

/// A device of sixteen channels in a file, four of them in partition `db`, which holds pool `fast`
/// with volume `cut`; the volume has been written, and the target has stopped.
fn used(scratch: &Scratch) -> PathBuf {
    let target = Target::start(scratch, &[]);
    let image = scratch.join("oc0.img");
    let device = [
        "device",
        "create",
        "oc0",
        "--kind",
        "open-channel",
        "--size",
        "512MiB",
    ];
    let store = ["--store", "file", "--path", path(&image)];
    target.json(&[device.as_slice(), &store].concat());
    target.json(&[
        "partition",
        "create",
        "db",
        "--device",
        "oc0",
        "--channels",
        "0-3",
    ]);
    target.json(&["pool", "create", "fast", "--device", "db"]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    target.json(&volume("cut"));
    let report = target_perf(&target, &["--nsid", "1", "--rw", "randrw", "--verify"]);
    assert_eq!(report["errors"], 0);
    assert_eq!(target.terminate(), 0);
    image
}

fn volume(name: &str) -> [&str; 9] {
    [
        "volume", "create", name, "--pool", "fast", "--size", "8MiB", "--tenant", "db",
    ]
}

/// A file that holds a device, as `open_channel::image` describes it.
struct Image {
    file: File,
    uuid: [u8; 16],
    /// Pieces of the head of a chunk, and of its units.
    pieces: (u64, u64),
    /// Chunks of the device.
    chunks: u32,
    /// Chunks of a channel.
    channel: u32,
}

impl Image {
    fn open(path: &Path) -> Self {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.expect("it is there");
        let header = piece(&file, 0);
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four"));
        let (groups, pus, chunks) = (word(32), word(36), word(40));
        let (clba, ws_min) = (word(44), word(48));
        let (units, record) = (u64::from(clba / ws_min), 16 + 20 * u64::from(ws_min));
        Self {
            uuid: header[16..32].try_into().expect("sixteen"),
            pieces: (
                (40 + units * record).div_ceil(PIECE),
                units * u64::from(1 + ws_min),
            ),
            chunks: groups * pus * chunks,
            channel: pus * chunks,
            file,
        }
    }

    /// The piece where the head of a chunk is.
    fn head(&self, chunk: u32) -> u64 {
        2 + u64::from(chunk) * self.pieces.0
    }

    /// The piece where the first record of a chunk is.
    fn record(&self, chunk: u32) -> u64 {
        self.head(self.chunks) + u64::from(chunk) * self.pieces.1
    }

    /// Has every chunk of the first four channels fail in which nothing is written, but for the
    /// layout's.
    fn wear_out(&self) {
        for chunk in 1..4 * self.channel {
            let head = self.head(chunk);
            if piece(&self.file, self.record(chunk))
                .iter()
                .all(|byte| *byte == 0)
            {
                let mut piece = [0; 36];
                piece[..4].copy_from_slice(b"FLCH");
                piece[8..16].copy_from_slice(&self.uuid[..8]);
                piece[16..20].copy_from_slice(&chunk.to_le_bytes());
                piece[28] = 2;
                let sum = crc32c(&piece[8..]);
                piece[4..8].copy_from_slice(&sum.to_le_bytes());
                let written = self.file.write_all_at(&piece, head * PIECE);
                written.expect("it is writable");
            }
        }
    }

    /// Damages the heads of all chunks of the first four channels, but for the layout's.
    fn rot(&self) {
        for chunk in 1..4 * self.channel {
            let written = self
                .file
                .write_all_at(&[0xff; 36], self.head(chunk) * PIECE);
            written.expect("it is writable");
        }
    }
}

fn piece(file: &File, number: u64) -> [u8; PIECE as usize] {
    let mut piece = [0; PIECE as usize];
    let read = file.read_exact_at(&mut piece, number * PIECE);
    read.expect("it is that long");
    piece
}

fn crc32c(bytes: &[u8]) -> u32 {
    let bit = |sum: u32| (sum >> 1) ^ ((sum & 1) * 0x82f6_3b78);
    let byte = |sum: u32, byte: &u8| (0..8).fold(sum ^ u32::from(*byte), |sum, _| bit(sum));
    !bytes.iter().fold(u32::MAX, byte)
}

/// Deletes everything that stands on partition `db`, and that; it stays deleted.
fn delete_all(scratch: &Scratch, target: Target) {
    target.refused(
        &["partition", "delete", "db", "--yes"],
        "is used by pool `fast`",
    );
    target.refused(&["pool", "delete", "fast"], "has volume `cut`");
    target.json(&["volume", "delete", "cut", "--yes"]);
    target.json(&["pool", "delete", "fast"]);
    target.json(&["partition", "delete", "db", "--yes"]);
    assert_eq!(target.terminate(), 0);
    let target = Target::start(scratch, &[]);
    for kind in ["volume", "pool", "partition"] {
        assert!(names(&target.json(&[kind, "list"])).is_empty(), "{kind}");
    }
    target.refused(
        &["partition", "delete", "db", "--yes"],
        "there is no partition `db`",
    );
    target.json(&["device", "delete", "oc0"]);
    assert_eq!(target.terminate(), 0);
}

#[test]
fn a_partition_that_is_read_only_is_read_and_can_be_deleted_with_all_that_is_on_it() {
    let scratch = Scratch::new("wornout");
    Image::open(&used(&scratch)).wear_out();
    let target = Target::start(&scratch, &[]);
    let shown = target.json(&["partition", "show", "db"]);
    assert_eq!(shown["state"], "read-only");
    let fault = shown["fault"].as_str().expect("it says why");
    assert!(
        fault.contains("then delete its volumes, its pool and the partition"),
        "{fault}"
    );
    let report = target_perf(&target, &["--nsid", "1", "--rw", "randread"]);
    assert_eq!(report["errors"], 0);
    target.refused(&volume("other"), "partition `db` takes no more writes");
    target.refused(
        &["volume", "set", "cut", "--size", "12MiB"],
        "partition `db` takes no more writes",
    );
    delete_all(&scratch, target);
}

#[test]
fn a_partition_that_is_lost_can_be_deleted_with_all_that_was_on_it() {
    let scratch = Scratch::new("lostpool");
    Image::open(&used(&scratch)).rot();
    let target = Target::start(&scratch, &[]);
    let shown = target.json(&["partition", "show", "db"]);
    let fault = shown["fault"].as_str().expect("it says why");
    assert!(fault.contains("cannot be taken up"), "{fault}");
    delete_all(&scratch, target);
}
