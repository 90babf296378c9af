//! Commands of a drive, and their completions.

use core::fmt;

use flashyard_time::Time;

use super::map::Writer;
use crate::{ProfileError, UNIT_BYTES};

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads units.
    Read,
    /// Writes units into the buffer.
    Write,
    /// Writes units that will stay for longer than others, into superblocks of their own.
    WriteCold,
    /// Writes units; complete once they survive a power cut.
    WriteThrough,
    /// Deallocates units.
    Deallocate,
    /// Complete once all writes completed before survive a power cut; start and units mean nothing.
    Flush,
}

impl Op {
    /// Where what the host writes goes.
    pub(super) fn writer(self) -> Writer {
        match self {
            Self::WriteCold => Writer::HostCold,
            _ => Writer::Host,
        }
    }
}

/// A command to a drive. Addresses count units of [`UNIT_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Identifies the completion; need not be unique.
    pub tag: u64,
    /// What to do.
    pub op: Op,
    /// The first unit.
    pub start: u64,
    /// How many units.
    pub units: u32,
}

/// A command that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// When it was done.
    pub at: Time,
    /// The tag of the command.
    pub tag: u64,
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// Some unit lies beyond the capacity, or there is none.
    OutOfRange,
    /// As many commands as the drive takes are in flight.
    QueueFull,
}

/// Why a drive cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// The profile is not sound.
    Profile(ProfileError),
    /// The capacity in bytes is not a multiple of [`UNIT_BYTES`], or out of these bounds.
    Capacity {
        /// The least that works with this profile.
        least: u64,
        /// More than addresses reach.
        most: u64,
    },
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfRange => "no unit, or one beyond the capacity",
            Self::QueueFull => "too many commands are in flight",
        })
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Profile(error) => error.fmt(f),
            Self::Capacity { least, most } => {
                write!(
                    f,
                    "the capacity must be a multiple of {UNIT_BYTES} from {least} to {most} bytes"
                )
            }
        }
    }
}

impl core::error::Error for Rejected {}
impl core::error::Error for BuildError {}
