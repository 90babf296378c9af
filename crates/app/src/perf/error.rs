//! Why nothing was measured.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use flashyard_host::{ConnectError, HostError};

use crate::control::{ErrorKind, HasKind};
use crate::spec::Address;

/// Why nothing was measured, in one line that says what to do. Reads and writes that failed are in
/// the report.
#[derive(Debug)]
pub enum PerfError {
    /// The name cannot be looked up.
    Unknown(Address, io::Error),
    /// Nobody listens there.
    Unreachable(Address, io::Error),
    /// The target takes no more hosts.
    Connect(SocketAddr, ConnectError),
    /// Another job has found out why.
    OtherJob,
    /// The namespace does not answer.
    Identify(u32, HostError),
    /// There is none of this number.
    NoNamespace(u32),
    /// Its blocks are not to be had.
    NoFormat,
    /// `--bs` and the block size of the volume.
    Block(u32, u32),
    /// `--bs` and the most that the target takes at once.
    TooMuch(u32, usize),
    /// The volume has not a block of `--bs` for each job.
    TooSmall(u16, u32),
    /// The core of a job failed.
    Core(io::Error),
    /// A thread cannot be started.
    Thread(io::Error),
    /// Bare sockets failed.
    Baseline(io::Error),
    /// A fault of this program.
    Panicked(&'static str),
}

impl fmt::Display for PerfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(address, error) => write!(f, "cannot look up {address}: {error}"),
            Self::Unreachable(address, error) => write!(f, "cannot connect to {address}: {error}"),
            Self::Connect(address, error) => write!(f, "cannot connect to {address}: {error}"),
            Self::OtherJob => f.write_str("another job could not connect"),
            Self::Identify(nsid, error) => {
                write!(f, "namespace {nsid} cannot be identified: {error}")
            }
            Self::NoNamespace(nsid) => write!(
                f,
                "there is no namespace {nsid}: attach a volume to the tenant, or give another --nsid"
            ),
            Self::NoFormat => f.write_str("the namespace has no usable format"),
            Self::Block(block, volume) => write!(
                f,
                "--bs {block} is not a multiple of the volume's block of {volume} bytes"
            ),
            Self::TooMuch(block, most) => write!(
                f,
                "--bs {block} is more than the target takes at once ({most} bytes)"
            ),
            Self::TooSmall(jobs, block) => {
                write!(
                    f,
                    "the volume is smaller than {jobs} blocks of --bs {block}"
                )
            }
            Self::Core(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
            Self::Baseline(error) => {
                write!(f, "the bare sockets of --baseline failed: {error}")
            }
            Self::Panicked(what) => write!(f, "{what} panicked"),
        }
    }
}

impl std::error::Error for PerfError {}

impl HasKind for PerfError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Block(..)
            | Self::TooMuch(..)
            | Self::TooSmall(..)
            | Self::Connect(_, ConnectError::Option(_)) => ErrorKind::Invalid,
            Self::NoNamespace(_) | Self::Connect(_, ConnectError::InvalidParameter(_)) => {
                ErrorKind::NotFound
            }
            Self::Unknown(..)
            | Self::Unreachable(..)
            | Self::Connect(..)
            | Self::OtherJob
            | Self::Identify(..)
            | Self::NoFormat => ErrorKind::Unavailable,
            // On a processor that somebody has named.
            Self::Core(error) => ErrorKind::of_given(error),
            Self::Thread(_) | Self::Baseline(_) | Self::Panicked(_) => ErrorKind::Internal,
        }
    }
}
