//! What is wrong, by who has to act. Each is one line for a person that says what is wrong and what
//! to do; a program decides by the type, never by the text.

use std::fmt;

use flashyard_block::OpenError;
use flashyard_block::crypt::CryptError;
use flashyard_block::pool::PoolError;
use flashyard_drives::open_channel::{LayoutError, PartitionError};
use flashyard_engine::ConfigError;
use flashyard_keys::KeyError;

pub use super::cause::{
    DriveFault, InUse, Internal, Invalid, NotFound, ProfileFault, Refused, RemoteFault, ToImport,
    Unavailable,
};
use crate::control::{ErrorKind, HasKind};
use crate::sockets::SocketError;
use crate::spec::{FileError, PartitionError as UnitsError, SettingError, SpecError};
use crate::state::StateError;

/// What is wrong, for whoever asked.
#[derive(Debug)]
pub enum Fault {
    /// What was asked for cannot be: whoever asked has to ask for something else.
    Invalid(Invalid),
    /// It names something that is not there.
    NotFound(NotFound),
    /// Something else has it: that has to let go first.
    InUse(InUse),
    /// It could be done, and would break a promise, lose data or show them to somebody.
    Refused(Refused),
    /// A device or another machine cannot do it now: whoever runs that has to act.
    Unavailable(Unavailable),
    /// The program or its store failed: whoever runs the target has to act.
    Internal(Internal),
    /// The configuration file of the target says nothing: whoever runs the target has to mend it.
    File(FileError),
    /// A step of a configuration file failed: which, why, and what became of the others.
    Step(String, Box<Fault>, Rest),
}

/// What became of the other steps of a configuration file when one failed.
#[derive(Debug)]
pub enum Rest {
    /// They were taken back, but for what could not be.
    TakenBack(Vec<String>),
    /// They are done.
    Done,
    /// Of an import: the pool and the volumes in it that the file names are imported.
    PoolStays,
}

impl Fault {
    /// Whether another process has what is needed, and may let go of it soon.
    pub fn is_in_use_elsewhere(&self) -> bool {
        match self {
            Self::InUse(InUse::Open(_) | InUse::Store(..)) => true,
            Self::Step(_, fault, _) => fault.is_in_use_elsewhere(),
            _ => false,
        }
    }
}

impl HasKind for Fault {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Invalid(_) | Self::File(_) => ErrorKind::Invalid,
            Self::NotFound(_) => ErrorKind::NotFound,
            Self::InUse(_) => ErrorKind::InUse,
            Self::Refused(_) => ErrorKind::Refused,
            Self::Unavailable(_) => ErrorKind::Unavailable,
            Self::Internal(_) => ErrorKind::Internal,
            Self::Step(_, fault, _) => fault.kind(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(cause) => cause.fmt(f),
            Self::NotFound(cause) => cause.fmt(f),
            Self::InUse(cause) => cause.fmt(f),
            Self::Refused(cause) => cause.fmt(f),
            Self::Unavailable(cause) => cause.fmt(f),
            Self::Internal(cause) => cause.fmt(f),
            Self::File(error) => error.fmt(f),
            Self::Step(what, fault, Rest::Done) => {
                write!(
                    f,
                    "could not {what}: {fault}; all else that the file says is done"
                )
            }
            Self::Step(what, fault, Rest::PoolStays) => write!(
                f,
                "could not {what}: {fault}; the pool is imported and stays, with the volumes that it has: `flashyard volume \
                 import` takes over the others one by one"
            ),
            Self::Step(what, fault, Rest::TakenBack(kept)) if kept.is_empty() => {
                write!(f, "could not {what}: {fault}; nothing was changed")
            }
            Self::Step(what, fault, Rest::TakenBack(kept)) => write!(
                f,
                "could not {what}: {fault}; what was changed before that could not all be taken back, which the next start \
                 tries again: {}",
                kept.join("; ")
            ),
        }
    }
}

impl std::error::Error for Fault {}

macro_rules! causes {
    ($($cause:ident),*) => {$(
        impl From<$cause> for Fault {
            fn from(cause: $cause) -> Self {
                Self::$cause(cause)
            }
        }
    )*};
}

causes!(Invalid, NotFound, InUse, Refused, Unavailable, Internal);

impl From<SpecError> for Fault {
    fn from(error: SpecError) -> Self {
        Self::Invalid(Invalid::Spec(error))
    }
}

impl From<SettingError> for Fault {
    fn from(error: SettingError) -> Self {
        Self::Invalid(Invalid::Spec(SpecError::Setting(error)))
    }
}

impl From<UnitsError> for Fault {
    fn from(error: UnitsError) -> Self {
        Self::Invalid(Invalid::Units(error))
    }
}

impl From<StateError> for Fault {
    fn from(error: StateError) -> Self {
        match error {
            StateError::NumberTooGreat { .. }
            | StateError::TooNew(_)
            | StateError::NoBackup(..) => Self::Invalid(Invalid::State(error)),
            StateError::Directory(_, ref why) | StateError::Backup(_, ref why)
                if ErrorKind::of_given(why) == ErrorKind::Invalid =>
            {
                Self::Invalid(Invalid::State(error))
            }
            StateError::DeviceExists(_)
            | StateError::NumberTaken { .. }
            | StateError::NoNumber(_)
            | StateError::Locked(_)
            | StateError::Busy(_)
            | StateError::BackupExists(_) => Self::InUse(InUse::State(error)),
            StateError::InPlace(_) => Self::Refused(Refused::State(error)),
            StateError::Directory(..)
            | StateError::Backup(..)
            | StateError::Io(..)
            | StateError::Sqlite(_)
            | StateError::Damaged(_)
            | StateError::Refused(..) => Self::Internal(Internal::State(error)),
        }
    }
}

impl From<SocketError> for Fault {
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::Taken(_) | SocketError::OtherTarget(_) => {
                Self::InUse(InUse::SocketPlace(error))
            }
            SocketError::Unknown(..) | SocketError::Open(_) => {
                Self::Invalid(Invalid::Socket(error))
            }
            SocketError::Folder(_, ref why) | SocketError::Refused(_, ref why)
                if ErrorKind::of_given(why) == ErrorKind::Invalid =>
            {
                Self::Invalid(Invalid::Socket(error))
            }
            SocketError::Folder(..) | SocketError::Refused(..) => {
                Self::Unavailable(Unavailable::Socket(error))
            }
        }
    }
}

impl From<ConfigError> for Fault {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::NamespaceNumber
            | ConfigError::InvalidName
            | ConfigError::InvalidNumber => Self::Invalid(Invalid::Engine(error)),
            ConfigError::NamespaceExists | ConfigError::TenantExists | ConfigError::NqnTaken => {
                Self::InUse(InUse::Engine(error))
            }
            ConfigError::FixedNames => Self::Refused(Refused::Engine(error)),
            ConfigError::NoSuchTenant
            | ConfigError::NoSuchNamespace
            | ConfigError::NoSuchDevice => Self::Internal(Internal::Engine(error)),
        }
    }
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Self {
        match error {
            _ if error.is_in_use() => Self::InUse(InUse::Open(error)),
            OpenError::System { .. } => Self::Unavailable(Unavailable::Open(error)),
            OpenError::Config(_) | OpenError::Alignment { .. } => {
                Self::Invalid(Invalid::Open(error))
            }
        }
    }
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Name(_)
            | PoolError::Size(_)
            | PoolError::Plain(_)
            | PoolError::Shrink { .. }
            | PoolError::NeedsMapped
            | PoolError::Locked
            | PoolError::NotEncrypted
            | PoolError::Key(KeyError::WrongSecret)
            | PoolError::TooSmall { .. } => Self::Invalid(Invalid::Pool(error)),
            PoolError::NotFound(_) | PoolError::NoUuid(_) | PoolError::NoSnapshot { .. } => {
                Self::NotFound(NotFound::InPool(error))
            }
            PoolError::Exists(_)
            | PoolError::InUse(_)
            | PoolError::UuidTaken
            | PoolError::SnapshotExists { .. }
            | PoolError::HasSnapshots { .. }
            | PoolError::HasClones { .. } => Self::InUse(InUse::Pool(error)),
            PoolError::Full { .. }
            | PoolError::TooManyVolumes
            | PoolError::Reserved { .. }
            | PoolError::AllReserved(_)
            | PoolError::Fragmented
            | PoolError::NoSnapshots
            | PoolError::NotNewest { .. }
            | PoolError::TooManySnapshots(_)
            | PoolError::HoldsPool
            | PoolError::Occupied(_) => Self::Refused(Refused::Pool(error)),
            PoolError::NotAPool
            | PoolError::Newer { .. }
            | PoolError::Damaged(_)
            | PoolError::Geometry(_)
            | PoolError::Rows
            | PoolError::Key(_)
            | PoolError::KeysDamaged(_)
            | PoolError::Device { .. }
            | PoolError::Mapped(_)
            | PoolError::Stuck => Self::Unavailable(Unavailable::Pool(error)),
        }
    }
}

impl From<CryptError> for Fault {
    fn from(error: CryptError) -> Self {
        Self::Unavailable(Unavailable::Crypt(None, error))
    }
}

impl From<PartitionError> for Fault {
    fn from(error: PartitionError) -> Self {
        match error {
            _ if error.is_in_use() => Self::InUse(InUse::Store(None, error)),
            PartitionError::InUse(_)
            | PartitionError::Layout(LayoutError::Exists(_) | LayoutError::Overlap(..)) => {
                Self::InUse(InUse::Partition(error))
            }
            PartitionError::Layout(LayoutError::Unknown(_)) => {
                Self::NotFound(NotFound::Partition(error))
            }
            PartitionError::Layout(_) | PartitionError::Build(_) | PartitionError::Geometry(_) => {
                Self::Invalid(Invalid::Partition(error))
            }
            _ => Self::Unavailable(Unavailable::Partition(None, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    const EBUSY: i32 = 16;

    /// A drive that is mounted, a locked file and a zoned drive that another program drives.
    #[test]
    fn what_another_process_has_is_told_by_its_type() {
        let system = |errno| OpenError::System {
            path: "/dev/nvme0n1".into(),
            action: "open",
            source: io::Error::from_raw_os_error(errno),
        };
        let zoned = || PartitionError::from(system(EBUSY));
        for (fault, elsewhere) in [
            (Fault::from(system(EBUSY)), true),
            (Fault::from(zoned()), true),
            (Fault::from(InUse::Store(Some("z".into()), zoned())), true),
            (Fault::from(system(2)), false),
            (Fault::from(OpenError::Config("it is in use".into())), false),
            (Fault::from(PartitionError::InUse("p".into())), false),
        ] {
            assert_eq!(fault.is_in_use_elsewhere(), elsewhere, "{fault}");
            let step = Fault::Step("create".into(), Box::new(fault), Rest::Done);
            assert_eq!(step.is_in_use_elsewhere(), elsewhere, "{step}");
        }
    }
}
