//! What can go wrong with a pool. `Display` is one line that says what to do.

use std::fmt;

use flashyard_keys::KeyError;
use flashyard_logstore::{MOST_SNAPSHOTS, OpenError};

use super::names::MAX_NAME;
use super::raw::{MAX_RUNS, MAX_VOLUMES};
use crate::IoError;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// Not a name for a volume.
    Name(String),
    /// A volume of this name is there already.
    Exists(String),
    /// There is no volume of this name.
    NotFound(String),
    /// No volume of the pool has this UUID.
    NoUuid([u8; 16]),
    /// The pool has this volume still.
    InUse(String),
    /// The UUID is all zero or another volume's.
    UuidTaken,
    /// A volume of a raw pool keeps its data as they are; its name.
    Plain(String),
    /// No volume can have this size, in bytes.
    Size(u64),
    /// Volumes do not shrink.
    Shrink {
        /// The volume.
        name: String,
        /// Its size in bytes.
        bytes: u64,
    },
    /// Not enough space.
    Full {
        /// Bytes that were needed, in whole extents.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// So much cannot be kept for a volume.
    Reserved {
        /// The volume.
        volume: String,
        /// Bytes that were asked for.
        needed: u64,
        /// Bytes that can be reserved.
        free: u64,
    },
    /// In a raw pool every volume has all its space from the beginning; what was to be set.
    AllReserved(&'static str),
    /// The bound on volumes is reached.
    TooManyVolumes,
    /// A raw pool has no snapshots.
    NoSnapshots,
    /// There is no snapshot of this name.
    NoSnapshot {
        /// The volume.
        volume: String,
        /// The snapshot.
        name: String,
    },
    /// A snapshot of this name is there already, or twice in one change.
    SnapshotExists {
        /// The volume.
        volume: String,
        /// The snapshot.
        name: String,
    },
    /// A volume that was to be deleted has a snapshot.
    HasSnapshots {
        /// The volume.
        volume: String,
        /// One of its snapshots.
        name: String,
    },
    /// A snapshot that was to be deleted has a clone.
    HasClones {
        /// The snapshot, with its volume.
        snapshot: String,
        /// One of its clones.
        clone: String,
    },
    /// A volume goes back to its newest snapshot only.
    NotNewest {
        /// The snapshot, with its volume.
        snapshot: String,
        /// The newest one.
        newer: String,
    },
    /// The volume has as many snapshots as it can have.
    TooManySnapshots(String),
    /// The bound on runs of extents is reached.
    Fragmented,
    /// The device is too small for a pool.
    TooSmall {
        /// Its size in bytes.
        bytes: u64,
        /// The least size in bytes.
        least: u64,
    },
    /// The device holds something; its name.
    Occupied(String),
    /// The device holds a pool, or the remains of one.
    HoldsPool,
    /// There is no pool on the device.
    NotAPool,
    /// The pool was made by a later Flashyard.
    Newer {
        /// The version of its layout.
        version: u32,
    },
    /// Neither copy of the metadata can be used; what is wrong with each.
    Damaged([String; 2]),
    /// The device is not the one that the pool was made on.
    Geometry(String),
    /// The rows of the device are none that the pool can be on.
    Rows,
    /// A raw pool on a device that takes whole rows only.
    NeedsMapped,
    /// The device failed.
    Device {
        /// What was being done, as "reading the metadata".
        action: &'static str,
        /// What the device said.
        error: IoError,
    },
    /// What a mapped pool has on its device cannot be used.
    Mapped(OpenError),
    /// The pool is encrypted, and its key was not given.
    Locked,
    /// A key was given, and the pool is not encrypted.
    NotEncrypted,
    /// What the key of the pool is in cannot be used, or OpenSSL does not encrypt.
    Key(KeyError),
    /// Neither copy of the header with the key can be used; what is wrong with each.
    KeysDamaged([String; 2]),
    /// An earlier change failed half way, so the state on the device is unknown.
    Stuck,
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "{name:?} cannot name a volume: use 1 to {MAX_NAME} of a-z A-Z 0-9 . _ - and begin with a letter or digit"
            ),
            Self::Exists(name) => {
                write!(f, "there is a volume {name} already: choose another name")
            }
            Self::NotFound(name) => write!(
                f,
                "there is no volume {name} in this pool: list shows those there are"
            ),
            Self::NoUuid(uuid) => write!(
                f,
                "there is no volume with the UUID {:032x} in this pool: list shows those there are",
                u128::from_be_bytes(*uuid)
            ),
            Self::InUse(name) => write!(
                f,
                "the pool has volume {name} still: delete its volumes first"
            ),
            Self::UuidTaken => f.write_str(
                "a volume needs a UUID of its own that is not all zero: give another one",
            ),
            Self::Plain(name) => write!(
                f,
                "volume {name} cannot be compressed, and has no chunks, in a raw pool: use a pool of kind mapped"
            ),
            Self::Size(bytes) => write!(
                f,
                "a volume cannot have {bytes} bytes: give a size of 1 byte to 8 EiB"
            ),
            Self::Shrink { name, bytes } => {
                write!(
                    f,
                    "volume {name} has {bytes} bytes and cannot shrink: give a larger size"
                )
            }
            Self::Full { needed, free } => {
                write!(
                    f,
                    "{needed} bytes are needed and {free} are free: delete a volume or use a larger device"
                )
            }
            Self::Reserved {
                volume,
                needed,
                free,
            } => write!(
                f,
                "{needed} bytes cannot be reserved for volume {volume}, only {free} are free for it: reserve less, raise its tenant's quota, or delete something"
            ),
            Self::AllReserved(what) => write!(
                f,
                "a raw pool has no {what}: its volumes have all their space from the beginning; use a pool of kind mapped"
            ),
            Self::TooManyVolumes => write!(
                f,
                "a pool has at most {MAX_VOLUMES} volumes: use a second pool"
            ),
            Self::NoSnapshots => f.write_str(
                "a raw pool has no snapshots: make a pool with kind = \"mapped\" and bring the volume there with `volume move --to`",
            ),
            Self::NoSnapshot { volume, name } => write!(
                f,
                "volume {volume} has no snapshot {name}: `snapshot list` shows those there are"
            ),
            Self::SnapshotExists { volume, name } => write!(
                f,
                "volume {volume} has a snapshot {name} already: choose another name"
            ),
            Self::HasSnapshots { volume, name } => write!(
                f,
                "volume {volume} has snapshot {volume}@{name} still: delete its snapshots first"
            ),
            Self::HasClones { snapshot, clone } => write!(
                f,
                "volume {clone} is a clone of {snapshot}: delete that volume first"
            ),
            Self::NotNewest { snapshot, newer } => write!(
                f,
                "{snapshot} is older than snapshot {newer}: delete the newer ones first, or make a clone of it"
            ),
            Self::TooManySnapshots(volume) => write!(
                f,
                "volume {volume} has {MOST_SNAPSHOTS} snapshots, as many as it can have: delete one"
            ),
            Self::Fragmented => {
                write!(
                    f,
                    "the free space is in too many pieces (at most {MAX_RUNS}): delete a volume first"
                )
            }
            Self::TooSmall { bytes, least } => {
                write!(f, "a pool needs {least} bytes, the device has {bytes}")
            }
            Self::Occupied(what) => {
                write!(
                    f,
                    "the device holds {what}: choose another one, or force it if that may be destroyed"
                )
            }
            Self::HoldsPool => f.write_str(
                "the device holds a pool, or the remains of one: open that, or force a new one, which destroys it",
            ),
            Self::NotAPool => f.write_str("there is no pool on this device: create one"),
            Self::Newer {
                version: crate::array::MEMBER_VERSION
                | crate::array::PARITY_VERSION
                | crate::array::SETS_VERSION,
            } => f.write_str(
                "the device is a member of an array of several: name all of them, in any order",
            ),
            Self::Newer { version } => {
                write!(
                    f,
                    "the pool was made by a later version (layout {version}): use that version"
                )
            }
            Self::Damaged([first, second]) => write!(
                f,
                "both copies of the pool's metadata are unusable (first: {first}; second: {second}): restore the device from a backup"
            ),
            Self::Geometry(what) => f.write_str(what),
            Self::Rows => f.write_str(
                "the pool cannot lie on the rows of this device: it was made on another one, or the device by a later version",
            ),
            Self::NeedsMapped => f.write_str(
                "a raw pool cannot be on parity, which takes whole rows only: make it with kind mapped",
            ),
            Self::Device { action, error } => {
                write!(f, "{action} failed: {error:?}; see to the device")
            }
            Self::Mapped(OpenError::CannotWrite) => {
                f.write_str("the pool cannot be opened: the device takes no writes; see to the device")
            }
            Self::Mapped(why @ OpenError::Smaller { .. }) => {
                write!(f, "the pool cannot be opened: {why}")
            }
            Self::Mapped(why) => write!(
                f,
                "the pool cannot be opened: {why}; restore the device from a backup"
            ),
            Self::Locked => f.write_str("the pool is encrypted: give its key or passphrase"),
            Self::NotEncrypted => f.write_str(
                "the pool is not encrypted: give no key, or look whether this is the right device",
            ),
            Self::Key(error) => error.fmt(f),
            Self::KeysDamaged([first, second]) => write!(
                f,
                "both copies of the header with the pool's key are unusable (first: {first}; second: {second}): restore the device from a backup"
            ),
            Self::Stuck => f.write_str(
                "an earlier change failed half way: see to the device, then open the pool again",
            ),
        }
    }
}

impl PoolError {
    /// What reading the start of a device has failed with.
    pub fn from_reading(error: IoError) -> Self {
        device_error("reading the start of the device")(error)
    }
}

impl std::error::Error for PoolError {}

/// Names what was being done when a device failed.
pub(super) fn device_error(action: &'static str) -> impl Fn(IoError) -> PoolError {
    move |error| PoolError::Device { action, error }
}
