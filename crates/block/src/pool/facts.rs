//! What users learn of pools and their volumes, and what they say of new ones.

use std::fmt;

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

/// Facts about a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolInfo {
    /// How it keeps data.
    pub kind: Kind,
    /// Given when it was created.
    pub uuid: [u8; 16],
    /// Bytes per block, of all volumes.
    pub block_size: u32,
    /// Bytes that volumes can use in all.
    pub bytes: u64,
    /// Bytes of these that are free.
    pub free: u64,
    /// Bytes of all volumes as they are shown to hosts; in a mapped pool these may be more than
    /// there are.
    pub logical: u64,
    /// Number of changes so far.
    pub generation: u64,
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
    /// Bytes of the pool that it takes: whole extents, or the blocks that were written.
    pub allocated: u64,
    /// Whose it is, as far as the pool keeps that.
    pub owner: Option<Owner>,
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
    /// Size in bytes; rounded up to whole blocks.
    pub bytes: u64,
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
