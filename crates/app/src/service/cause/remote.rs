//! What is wrong with a drive, its profile or another target, in words.

use std::fmt;

use super::{DeviceKind, DriveFault, ProfileFault, RemoteFault, UNIT_BYTES, units};

impl fmt::Display for RemoteFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, namespace {} of {}: {}; allow host {} there, and start it first",
            self.address, self.nsid, self.subnqn, self.error, self.hostnqn
        )
    }
}

impl fmt::Display for DriveFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Profile(fault) => fault.fmt(f),
            Self::Size {
                kind,
                profile,
                size,
                least,
                most,
            } => {
                let size = units::size(*size);
                let range = format!("from {} to {}", units::size(*least), units::size(*most));
                match kind {
                    DeviceKind::OpenChannel => write!(
                        f,
                        "size is {size}; an open-channel device of profile {profile} has {range}"
                    ),
                    _ => write!(
                        f,
                        "size is {size}; a drive of profile {profile} has a multiple of {UNIT_BYTES} bytes, {range}"
                    ),
                }
            }
            Self::Memory {
                size,
                needed,
                free,
                most,
            } => write!(
                f,
                "size is {}; the model of such a drive takes {} of memory, and {} are free: give at most {}",
                units::size(*size),
                units::size(*needed),
                units::size(*free),
                units::size(*most),
            ),
        }
    }
}

impl fmt::Display for ProfileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "there is no profile `{name}`"),
            Self::Read(name, error) => write!(f, "cannot read profile {name}: {error}"),
            Self::Wrong(name, error) => write!(f, "profile {name}: {error}"),
        }
    }
}
