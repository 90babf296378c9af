//! What users learn of pools and their volumes, and what they say of new ones.

use std::fmt;
use std::ops::Range;

use flashyard_codec::compress::Codec;

use crate::Verdict;
use crate::superblock::{COPY_NAMES, CopyReport};

/// How a pool keeps the data of its volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In extents of the device, with nothing between.
    Raw,
    /// In a log, with a map and checksums.
    Mapped,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raw => "raw",
            Self::Mapped => "mapped",
        })
    }
}

/// How a volume keeps its data. Of a raw pool all are plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeForm {
    /// Bytes that are stored, compressed and summed as a whole: 4 or 16 KiB. Writes of less read
    /// and write all of them.
    pub chunk: u32,
    /// How chunks are compressed where that saves an eighth.
    pub compression: Option<Codec>,
}

impl Default for VolumeForm {
    fn default() -> Self {
        Self {
            chunk: Self::CHUNKS[0],
            compression: None,
        }
    }
}

impl VolumeForm {
    /// Lengths that chunks can have.
    pub const CHUNKS: [u32; 2] = [4 << 10, 16 << 10];

    /// Whether data are stored as hosts see them, block by block.
    pub fn is_plain(self) -> bool {
        self == Self::default()
    }
}

/// What became of a pool that was to be forgotten unopened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// Its keys are overwritten, and the device holds no pool any more.
    Erased,
    /// There was no pool on the device.
    Absent,
    /// Another pool is on the device, and stays.
    Other,
}

/// Facts about a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolInfo {
    /// How it keeps data.
    pub kind: Kind,
    /// Given when it was created.
    pub uuid: [u8; 16],
    /// Whether what its volumes store is encrypted.
    pub encrypted: bool,
    /// Bytes per block, of all volumes.
    pub block_size: u32,
    /// Bytes that volumes can use in all.
    pub bytes: u64,
    /// Bytes of these that are free.
    pub free: u64,
    /// Bytes of these that are kept for some of the volumes.
    pub reserved: u64,
    /// Bytes of all volumes as they are shown to hosts; in a mapped pool these may be more than
    /// there are.
    pub logical: u64,
    /// Bytes that snapshots store, which volumes may have as well.
    pub snapshots: u64,
    /// Bytes of these that were written, before they were compressed.
    pub written: u64,
    /// Bytes that they take.
    pub stored: u64,
    /// Number of changes so far.
    pub generation: u64,
    /// The scrub that runs, or the last one since it was opened, of a mapped pool.
    pub scrub: Option<Scrub>,
    /// Why it can only be read, if so.
    pub read_only: Option<ReadOnly>,
}

/// Why a pool can only be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOnly {
    /// Its device has failed writes.
    Device,
    /// A part of its log that was durable cannot be read: volumes are as they were before that.
    Log,
}

/// A scrub of a pool that verifies what it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrub {
    /// Whether it runs.
    pub running: bool,
    /// Segments and pages of the map that were read.
    pub done: u64,
    /// All of them.
    pub of: u64,
    /// Copies of blocks that were written anew.
    pub repaired: u64,
    /// Chunks and pages of which no copy is good.
    pub unresolved: u64,
}

/// Facts about a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Unique in its pool.
    pub name: String,
    /// Given when it was created, never changes.
    pub uuid: [u8; 16],
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes of the pool that it takes: whole extents, or what is stored of what was written.
    pub allocated: u64,
    /// Bytes beside these that it has and snapshots store.
    pub shared: u64,
    /// Bytes that were written, before they were compressed; of a raw pool the same.
    pub written: u64,
    /// Bytes of the pool that are kept for it and its snapshots, what they take included.
    pub reserved: u64,
    /// How it keeps its data.
    pub form: VolumeForm,
    /// Whose it is, as far as the pool keeps that.
    pub owner: Option<Owner>,
}

/// What the volumes of a tenant take of a pool, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantSpace {
    /// The tenant.
    pub tenant: String,
    /// What they and their snapshots take, with their map.
    pub used: u64,
    /// What is kept for them beside that.
    pub reserved: u64,
    /// What both may be together.
    pub quota: Option<u64>,
}

/// Facts about a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// The volume.
    pub volume: String,
    /// Unique among its snapshots.
    pub name: String,
    /// Given when it was made, never changes.
    pub uuid: [u8; 16],
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes of the pool that it stores: what was written since the snapshot before it.
    pub allocated: u64,
    /// Bytes beside these that it has and older snapshots store.
    pub shared: u64,
    /// When it was made, as whoever made it counts.
    pub made: u64,
    /// Volumes that began as it.
    pub clones: Vec<String>,
}

/// A snapshot to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSnapshot {
    /// Of which volume.
    pub volume: String,
    /// Unique among its snapshots.
    pub name: String,
    /// Given once, never changes.
    pub uuid: [u8; 16],
}

/// A part of what differs between two versions of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Bytes that were written or deallocated, in order.
    pub ranges: Vec<Range<u64>>,
    /// The byte where the next part begins; nothing at the end.
    pub next: Option<u64>,
}

/// Whose a volume is, and how hosts know it. A mapped pool keeps this, so that a target that has
/// lost its state finds it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The name of the tenant, of 64 bytes at most.
    pub tenant: String,
    /// Its NGUID.
    pub nguid: [u8; 16],
    /// Its EUI64, if it has one.
    pub eui64: Option<[u8; 8]>,
    /// Its number in the tenant's subsystem.
    pub nsid: u32,
}

/// A volume to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVolume {
    /// Unique in its pool.
    pub name: String,
    /// Given once, never changes.
    pub uuid: [u8; 16],
    /// Size in bytes; rounded up to whole blocks, or chunks.
    pub bytes: u64,
    /// How it keeps its data; a raw pool takes a plain one only.
    pub form: VolumeForm,
    /// Whose it is; a raw pool does not keep that.
    pub owner: Option<Owner>,
}

impl NewVolume {
    /// A volume of which the pool is not to know whose it is.
    pub fn new(name: impl Into<String>, uuid: [u8; 16], bytes: u64) -> Self {
        Self {
            name: name.into(),
            uuid,
            bytes,
            form: VolumeForm::default(),
            owner: None,
        }
    }
}

/// What [`check`](super::check) found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How the pool keeps data.
    pub kind: Kind,
    /// The two copies of the metadata.
    pub copies: [CopyReport; 2],
    /// What is repaired when the device is used again, one line each.
    pub repairs: Vec<String>,
    /// What is lost, or cannot be used, one line each.
    pub problems: Vec<String>,
    /// The volumes of the newest whole copy.
    pub volumes: Vec<VolumeInfo>,
}

impl Report {
    /// The verdict.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(&self.repairs, &self.problems)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, copy) in COPY_NAMES.iter().zip(&self.copies) {
            writeln!(f, "{name} copy: {}", copy.state)?;
        }
        for volume in &self.volumes {
            writeln!(
                f,
                "volume {}: {} bytes, {} allocated",
                volume.name, volume.bytes, volume.allocated
            )?;
        }
        for repair in &self.repairs {
            writeln!(f, "to be put right: {repair}")?;
        }
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        self.verdict().fmt(f)
    }
}
