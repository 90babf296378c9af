//! Snapshots of volumes: what is asked, and what is shown of them.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::page::Page;
use crate::spec::NamespaceUuid;

/// A snapshot as users write it: `VOLUME@NAME`. What is no such thing names no volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotName {
    /// Of which volume.
    pub volume: String,
    /// Its own name.
    pub name: String,
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.volume, self.name)
    }
}

/// Why something names no snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotASnapshot(String);

impl fmt::Display for NotASnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no snapshot; write VOLUME@NAME", self.0)
    }
}

impl std::error::Error for NotASnapshot {}

impl FromStr for SnapshotName {
    type Err = NotASnapshot;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('@') {
            Some((volume, name)) if !volume.is_empty() && !name.is_empty() => Ok(Self {
                volume: volume.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(NotASnapshot(text.to_owned())),
        }
    }
}

/// A volume, or a snapshot of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// A volume as it is now.
    Now(String),
    /// A volume as it was.
    Snapshot(SnapshotName),
}

impl FromStr for Version {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.parse() {
            Ok(snapshot) => Self::Snapshot(snapshot),
            Err(NotASnapshot(volume)) => Self::Now(volume),
        })
    }
}

/// What can be asked of snapshots without changing anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotAsk {
    /// All or those of one volume, or a part of these.
    List(Option<String>, Page<SnapshotName>),
    /// One, with what deleting it would free.
    Show(SnapshotName),
    /// What was written to a volume after a snapshot, or at all, until another or now: a part of it
    /// that begins at this byte.
    Diff {
        /// Which.
        volume: String,
        /// The older snapshot.
        since: Option<String>,
        /// The newer one.
        until: Option<String>,
        /// Where the part begins, in bytes.
        from: u64,
    },
}

/// What can be done with snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotChange {
    /// New ones, all of the same moment.
    Create(Vec<SnapshotName>),
    /// One less.
    Delete(SnapshotName),
    /// Its volume becomes what it is.
    Restore(SnapshotName),
    /// A volume that begins as it.
    Clone(NewVersion),
    /// A volume that is it, and takes no writes.
    Share(NewVersion),
}

impl SnapshotChange {
    /// The snapshots that it is about.
    pub fn snapshots(&self) -> &[SnapshotName] {
        match self {
            Self::Create(all) => all,
            Self::Delete(one) | Self::Restore(one) => std::slice::from_ref(one),
            Self::Clone(new) | Self::Share(new) => std::slice::from_ref(&new.of),
        }
    }
}

/// A volume that is made of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewVersion {
    /// The snapshot.
    pub of: SnapshotName,
    /// What it is called.
    pub name: String,
    /// Whose it is; whose the snapshot's volume is if not given.
    pub tenant: Option<String>,
    /// Its number in the tenant's subsystem; a free one if not given.
    pub nsid: Option<u32>,
}

/// A snapshot.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotView {
    /// As it is typed.
    pub name: String,
    pub volume: String,
    pub pool: String,
    pub uuid: NamespaceUuid,
    /// Bytes of the volume as it was.
    pub size: u64,
    /// Bytes that it stores: what was written since the snapshot before it.
    pub own_bytes: u64,
    /// Bytes that it has and older snapshots store.
    pub shared_bytes: u64,
    /// Bytes that deleting it would free, at most `own_bytes`; nothing in a list, and while it has
    /// clones.
    pub frees_bytes: Option<u64>,
    /// When it was made.
    pub made: Option<String>,
    /// Volumes that began as it.
    pub clones: Vec<String>,
    /// Volumes that are it.
    pub shared_as: Vec<String>,
}

/// Where the data of a volume in a mapped pool are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StoredView {
    /// Bytes that it stores itself.
    pub own_bytes: u64,
    /// Bytes that it has and snapshots store.
    pub shared_bytes: u64,
    /// Bytes of those that it stores itself before they were compressed; not of a snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
    /// How many times more was written; nothing while nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression_ratio: Option<f64>,
}

/// A part of what differs between two versions of a volume.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct DiffView {
    /// Bytes in all ranges.
    pub changed_bytes: u64,
    /// What was written or deallocated, in order.
    pub ranges: Vec<RangeView>,
    /// The byte where the next part begins; null at the end.
    pub next_bytes: Option<u64>,
}

/// Bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RangeView {
    pub offset_bytes: u64,
    pub length_bytes: u64,
}
