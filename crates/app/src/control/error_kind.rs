//! Why a request fails, by who has to act: programs decide by this and not by a text.

use std::fmt;
use std::io;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who has to act, by what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Whoever typed it: that is no command.
    Usage,
    /// Whoever asked: it cannot be.
    Invalid,
    /// Whoever asked: somebody else may ask that.
    Forbidden,
    /// Whoever asked: what it names is not there.
    NotFound,
    /// Whoever has what it needs.
    InUse,
    /// Whoever asked: it could be done, and would break a promise or lose data.
    Refused,
    /// Whoever runs a device or another machine.
    Unavailable,
    /// Whoever runs the target or this machine.
    Internal,
}

impl ErrorKind {
    /// Who has to act when the system refuses what somebody has given, such as a path: whoever gave
    /// it, or whoever runs the machine.
    pub fn of_given(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::InvalidFilename
            | io::ErrorKind::InvalidInput => Self::Invalid,
            _ => Self::Internal,
        }
    }
}

/// An error that says who has to act.
pub trait HasKind: fmt::Display {
    /// Who that is.
    fn kind(&self) -> ErrorKind;
}
