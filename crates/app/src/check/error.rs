//! Why a device or file cannot be looked at.

use std::fmt;
use std::io;
use std::path::PathBuf;

use flashyard_block::OpenError;
use flashyard_block::pool::PoolError;
use flashyard_drives::open_channel::PartitionError;

/// Why something cannot be looked at.
#[derive(Debug)]
pub enum CheckError {
    /// It cannot be read.
    Read(PathBuf, io::Error),
    /// It cannot be opened.
    Open(OpenError),
    /// Partitions: of what, if that has to be said, and what is wrong.
    Partitions(Option<PathBuf>, PartitionError),
    /// The pool that should be on it.
    Pool(PathBuf, PoolError),
}

impl CheckError {
    /// Whether another process has it, and may let go of it soon.
    pub fn is_in_use(&self) -> bool {
        match self {
            Self::Open(error) => error.is_in_use(),
            Self::Partitions(_, error) => error.is_in_use(),
            Self::Read(..) | Self::Pool(..) => false,
        }
    }
}

impl From<OpenError> for CheckError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::Open(error) => error.fmt(f),
            Self::Partitions(Some(path), error) => write!(f, "{}: {error}", path.display()),
            Self::Partitions(None, error) => error.fmt(f),
            Self::Pool(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EBUSY: i32 = 16;

    /// A file that is locked, a drive that is mounted, and a zoned drive in use.
    #[test]
    fn what_another_process_has_is_waited_for() {
        let busy = || OpenError::System {
            path: "/dev/nvme0n1".into(),
            action: "open",
            source: io::Error::from_raw_os_error(EBUSY),
        };
        assert!(CheckError::from(busy()).is_in_use());
        assert!(CheckError::Partitions(None, busy().into()).is_in_use());
        let missing = CheckError::Read("/x".into(), io::ErrorKind::NotFound.into());
        assert!(!missing.is_in_use());
    }
}
