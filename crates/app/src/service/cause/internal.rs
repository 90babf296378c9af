//! What only we, or the system below, can put right.

use std::fmt;
use std::io;

use flashyard_block::crypt::CryptError;
use flashyard_engine::ConfigError;
use flashyard_nvme::nqn::InvalidNqn;

use crate::state::StateError;

/// What failed in the program or under it.
#[derive(Debug)]
pub enum Internal {
    /// The library that encrypts.
    Crypt(CryptError),
    /// The state store.
    State(StateError),
    /// Engine and inventory are not of one mind.
    Engine(ConfigError),
    /// The name of this target as a host, or of a function.
    HostNqn(InvalidNqn),
    /// The name of a subsystem.
    Subnqn(InvalidNqn),
    /// The audit log.
    Audit(io::Error),
}

impl fmt::Display for Internal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crypt(error) => error.fmt(f),
            Self::State(error) => error.fmt(f),
            Self::Engine(error) => error.fmt(f),
            Self::HostNqn(error) | Self::Subnqn(error) => error.fmt(f),
            Self::Audit(error) => write!(
                f,
                "the audit log in the state directory cannot be read: {error}; see to its disk"
            ),
        }
    }
}
