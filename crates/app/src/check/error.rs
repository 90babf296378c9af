//! Why a device or file cannot be looked at.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use flashyard_block::OpenError;

use crate::control::{ErrorKind, HasKind};
use crate::service::Fault;

/// Why something cannot be looked at.
#[derive(Debug)]
pub enum CheckError {
    /// It cannot be read.
    Read(PathBuf, io::Error),
    /// It cannot be opened, or is not what it should be: of what, if that has to be said.
    Fault(Option<PathBuf>, Box<Fault>),
}

impl CheckError {
    /// What is wrong with what is at `path`.
    pub fn at(path: &Path, fault: impl Into<Fault>) -> Self {
        Self::Fault(Some(path.to_owned()), Box::new(fault.into()))
    }

    /// What is at `path` cannot be opened.
    pub fn opened(path: &Path, error: OpenError) -> Self {
        // What the system refuses says of what.
        let named = matches!(
            error,
            OpenError::System { .. } | OpenError::Alignment { .. }
        );
        Self::Fault((!named).then(|| path.to_owned()), Box::new(error.into()))
    }

    /// Whether another process has it, and may let go of it soon.
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::Fault(_, fault) if fault.is_in_use_elsewhere())
    }
}

impl HasKind for CheckError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Read(_, error) => ErrorKind::of_given(error),
            Self::Fault(_, fault) => fault.kind(),
        }
    }
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::Fault(Some(path), fault) => write!(f, "{}: {fault}", path.display()),
            Self::Fault(None, fault) => fault.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use flashyard_drives::open_channel::PartitionError;

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
        assert!(CheckError::opened(Path::new("/dev/nvme0n1"), busy()).is_in_use());
        assert!(CheckError::Fault(None, Box::new(PartitionError::from(busy()).into())).is_in_use());
        let missing = CheckError::Read("/x".into(), io::ErrorKind::NotFound.into());
        assert!(!missing.is_in_use());
    }
}
