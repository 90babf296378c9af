//! Why partitions of an open-channel device cannot be used or changed.

use std::fmt;

use flashyard_block::{IoError, OpenError};
use flashyard_flash::ftl::{BuildError, RecoverError};

use super::layout::LayoutError;

/// Why a change of partitions, or opening a device, failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionError {
    /// What is asked for cannot be: the caller has to ask for something else.
    Layout(LayoutError),
    /// A translation layer cannot be built over the units.
    Build(BuildError),
    /// A partition that is there cannot be taken up: its name, and why.
    Recover(String, RecoverError),
    /// The partition is used: its user has to stop first.
    InUse(String),
    /// The device cannot have partitions.
    Geometry(String),
    /// Both copies of the layout are unusable.
    Damaged(String),
    /// The layout was written by a later version of this program.
    Newer(u32),
    /// The medium failed while the layout was written.
    Medium,
    /// Memory has run out.
    Memory,
    /// What keeps the flash cannot be used.
    Store(String),
    /// Another process has what keeps the flash; it may be free later.
    StoreInUse(String),
    /// The device has no power.
    Off,
    /// What keeps the flash has no space left.
    Full,
    /// What keeps the flash has failed.
    Failed(IoError),
}

impl fmt::Display for PartitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(error) => error.fmt(f),
            Self::Build(error) => error.fmt(f),
            // Its data are there, for another program: they must not be deleted for that.
            Self::Recover(name, error @ RecoverError::Version(_)) => {
                write!(f, "partition {name} cannot be taken up: {error}")
            }
            Self::Recover(name, error) => {
                write!(
                    f,
                    "partition {name} cannot be taken up ({error:?}): delete it, its data are lost"
                )
            }
            Self::InUse(name) => {
                write!(
                    f,
                    "partition {name} is used: delete the pools and volumes on it first"
                )
            }
            Self::Geometry(what) | Self::Store(what) | Self::StoreInUse(what) => {
                f.write_str(what)
            },
            Self::Damaged(what) => write!(
                f,
                "the layout of the partitions is damaged ({what}): restore the device"
            ),
            Self::Newer(version) => write!(
                f,
                "the layout of the partitions has version {version}: use the program that wrote it, or a later one"
            ),
            Self::Medium => f.write_str(
                "the flash that holds the layout of the partitions failed: replace the device",
            ),
            Self::Memory => f.write_str("memory has run out: free some and try again"),
            Self::Off => f.write_str("the device has no power"),
            Self::Failed(why) => write!(
                f,
                "the file that holds the flash has failed ({why:?}): repair its disk, or free space on it, and start the target \
                 again"
            ),
            Self::Full => f.write_str(
                "no space is left for the file that holds the flash: free some where it is, and try again",
            ),
        }
    }
}

impl std::error::Error for PartitionError {}

impl PartitionError {
    /// Whether another process has what keeps the flash; it may be free later.
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::StoreInUse(_))
    }
}

impl From<OpenError> for PartitionError {
    fn from(error: OpenError) -> Self {
        match error.is_in_use() {
            true => Self::StoreInUse(error.to_string()),
            false => Self::Store(error.to_string()),
        }
    }
}

impl From<LayoutError> for PartitionError {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

impl From<BuildError> for PartitionError {
    fn from(error: BuildError) -> Self {
        Self::Build(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_of_another_version_is_not_to_be_deleted() {
        let message = PartitionError::Recover("db".into(), RecoverError::Version(1)).to_string();
        assert!(
            message.contains("partition db") && message.contains("version 1"),
            "{message}"
        );
        assert!(!message.contains("delete"), "its data are there: {message}");
        let message = PartitionError::Recover("db".into(), RecoverError::Unreadable).to_string();
        assert!(message.contains("delete it"), "{message}");
    }
}
