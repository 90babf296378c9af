//! Why nothing was measured.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use flashyard_host::vfio::{ClientError, GuestError};
use flashyard_host::{ConnectError, HostError};

use super::peer::Peer;
use crate::control::{ErrorKind, HasKind};
use crate::spec::Address;

/// Why nothing was measured, in one line that says what to do. Reads and writes that failed are in
/// the report.
#[derive(Debug)]
pub enum PerfError {
    /// The name cannot be looked up.
    Unknown(Address, io::Error),
    /// Nobody listens there.
    Unreachable(Peer, io::Error),
    /// The target takes no more hosts.
    Connect(SocketAddr, ConnectError),
    /// The function cannot be used.
    Function(PathBuf, GuestError),
    /// This option is not one for a function.
    NotOfFunction(&'static str),
    /// A target has many subsystems.
    NoSubsystem,
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
            Self::Function(path, error) => describe(f, path, error),
            Self::NotOfFunction(option) => write!(
                f,
                "{option} is of NVMe/TCP: leave it out with --connect vfio-user:PATH"
            ),
            Self::NoSubsystem => f.write_str(
                "--subnqn is missing: give the tenant's subsystem, as `flashyard tenant show` prints it",
            ),
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

/// Why a function cannot be used.
fn describe(f: &mut fmt::Formatter<'_>, path: &Path, error: &GuestError) -> fmt::Result {
    let path = path.display();
    match error {
        GuestError::Client(ClientError::Io(error)) => {
            write!(f, "cannot connect to the function at {path}: {error}")
        }
        GuestError::Client(ClientError::Closed) => write!(
            f,
            "the function at {path} has closed the connection: it takes one client at a time"
        ),
        GuestError::Client(ClientError::Refused(errno)) => {
            let error = io::Error::from_raw_os_error(errno.cast_signed());
            write!(f, "the function at {path} refuses a request: {error}")
        }
        GuestError::Client(ClientError::Reply) => {
            write!(f, "what listens at {path} does not speak vfio-user")
        }
        GuestError::Memory => {
            f.write_str("there is no memory for the guest: give a smaller --qd, --queues or --bs")
        }
        GuestError::NotReady(status) if status.cfs => write!(
            f,
            "the controller of the function at {path} has failed (CSTS.CFS)"
        ),
        GuestError::NotReady(_) => write!(
            f,
            "the controller of the function at {path} does not become ready"
        ),
        GuestError::Status(status) => {
            write!(f, "the function at {path} answered {status} at its start")
        }
        GuestError::Full => f.write_str("--bs is more than a function is given at once (2 MiB)"),
    }
}

impl std::error::Error for PerfError {}

impl HasKind for PerfError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Block(..)
            | Self::TooMuch(..)
            | Self::TooSmall(..)
            | Self::NotOfFunction(_)
            | Self::NoSubsystem
            | Self::Connect(_, ConnectError::Option(_)) => ErrorKind::Invalid,
            Self::NoNamespace(_) | Self::Connect(_, ConnectError::InvalidParameter(_)) => {
                ErrorKind::NotFound
            }
            Self::Unknown(..)
            | Self::Unreachable(..)
            | Self::Connect(..)
            | Self::Function(..)
            | Self::OtherJob
            | Self::Identify(..)
            | Self::NoFormat => ErrorKind::Unavailable,
            // On a processor that somebody has named.
            Self::Core(error) => ErrorKind::of_given(error),
            Self::Thread(_) | Self::Baseline(_) | Self::Panicked(_) => ErrorKind::Internal,
        }
    }
}
