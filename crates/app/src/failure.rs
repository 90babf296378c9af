//! Why a command failed, by who has to act. The exit status follows from it: 2 for what is no
//! command, 1 for all else.

use std::fmt;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use flashyard_engine::Limits;
use flashyard_host::ConnectError;
use flashyard_nvme::log::NotStatistics;
use flashyard_nvme::nqn::InvalidNqn;

use crate::api::{AskError, PlaceError, TcpError};
use crate::check::error::CheckError;
use crate::control::{ErrorKind, HasKind, HealthState, KindName, SnapshotName};
use crate::json;
use crate::lab::output::OutputError;
use crate::perf::error::PerfError;
use crate::service::Fault;
use crate::spec::{Address, FileError, SettingError, SpecError};
use crate::state::StateError;
use crate::takeover::TakeoverError;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// Whoever typed it: that is no command.
    Usage(clap::Error),
    /// Whoever typed it: what is asked for cannot be, or has to be confirmed.
    Invalid(Invalid),
    /// The target that was asked says who, or is not there.
    Target(AskError),
    /// The target in this process says who.
    Fault(Fault),
    /// Whoever runs what was to be looked at.
    Unavailable(Unavailable),
    /// Whoever runs this machine.
    System(System),
    /// No one: the command did what it should, and what it looked at is not in order.
    Found(Found),
    /// Whoever sent this signal, and has what there was until then.
    Stopped(i32),
}

/// What cannot be as it was typed.
#[derive(Debug)]
pub enum Invalid {
    /// What destroys data is not done without a word.
    Destroys(KindName, String),
    /// What shows the data of a volume to the hosts of a tenant is not done without a word.
    GivesAway(String, String),
    /// What loses all that was written since a snapshot is not done without a word.
    LosesSince(SnapshotName),
    /// What destroys a snapshot is not done without a word.
    LosesSnapshot(SnapshotName),
    /// What shows a snapshot to the hosts of a tenant is not done without a word.
    ShowsSnapshot(SnapshotName, String),
    /// A snapshot is compared with what is no version of its volume.
    OtherVolume(String),
    /// No change is given.
    NothingToChange,
    /// No permissions are given.
    NoPermissions,
    /// Not a path.
    Path(String, io::Error),
    /// A configuration file that says nothing.
    File(FileError),
    /// A file that cannot be written.
    Unwritable(PathBuf, io::Error),
    /// A file that cannot be read.
    Unreadable(PathBuf, io::Error),
    /// Not the log of I/O statistics.
    Statistics(PathBuf, NotStatistics),
    /// Too few buffers for a core.
    Buffers,
    /// Not the name of a host.
    HostNqn(String, InvalidNqn),
    /// An address for the API.
    Api(TcpError),
    /// Where a target is to be asked.
    Place(PlaceError),
    /// There is nothing to draw on.
    NoTerminal,
    /// JSON of what goes on until somebody ends it.
    JsonOfScreen,
    /// No column of this table: what was typed, and what there is.
    NoColumn(&'static str, String, Vec<&'static str>),
}

/// What cannot be looked at.
#[derive(Debug)]
pub enum Unavailable {
    /// Another target, for a measurement.
    Perf(PerfError),
    /// A pool or a file.
    Check(CheckError),
    /// Another target, asked what it offers.
    Discover(Address, ConnectError),
    /// The name of a host that cannot be looked up.
    Unknown(Address, io::Error),
    /// The drive of the demonstration.
    Drive(&'static str),
    /// A target that this process was to take over from.
    Takeover(TakeoverError),
}

/// What the system refuses.
#[derive(Debug)]
pub enum System {
    /// To tell of signals.
    Signals(io::Error),
    /// A core for the target.
    Core(io::Error),
    /// A core for this command.
    Runtime(io::Error),
    /// The socket of the API in this directory.
    Api(PathBuf, io::Error),
    /// To take the output.
    Print(io::Error),
    /// Files of an experiment.
    Output(OutputError),
    /// To draw on the terminal, or to read its keys.
    Terminal(io::Error),
}

/// What is not in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// So many seeds.
    Seeds(usize),
    /// Of so many rows of an experiment so many pass.
    Rows {
        /// Those that pass.
        passed: usize,
        /// All that are compared with something.
        all: usize,
    },
    /// Reads or writes of a measurement.
    Perf,
    /// What is on this device or in this file.
    Lost(PathBuf),
    /// A target that is not healthy.
    Health(HealthState),
}

impl Failure {
    /// Tells whoever typed the command, as JSON too if that was asked for and nothing was printed
    /// yet, and gives the exit status.
    pub fn tell(&self, json: bool) -> ExitCode {
        if let Some(kind) = self.kind().filter(|_| json) {
            json::print_error(kind, &self.message());
        }
        if let Self::Usage(error) = self {
            // Where it cannot be printed, the exit status shows it.
            let _ = error.print();
            return ExitCode::from(2);
        }
        // Its terminal may have gone, which is no reason to panic.
        let _ = writeln!(io::stderr(), "flashyard: {self}");
        match self {
            // As shells tell that a signal ended a command.
            Self::Stopped(signal) => {
                u8::try_from(128 + signal).map_or(ExitCode::FAILURE, ExitCode::from)
            }
            // As monitors expect it.
            Self::Found(Found::Health(HealthState::Degraded)) => ExitCode::from(3),
            Self::Found(Found::Health(HealthState::Failed)) => ExitCode::from(4),
            _ => ExitCode::FAILURE,
        }
    }
}

impl Failure {
    /// Who has to act; nothing where the command has answered, and the answer says what is wrong.
    fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Usage(_) => Some(ErrorKind::Usage),
            Self::Invalid(Invalid::Api(error)) => Some(error.kind()),
            Self::Invalid(Invalid::Place(error)) => Some(error.kind()),
            Self::Invalid(_) => Some(ErrorKind::Invalid),
            Self::Target(error) => Some(error.kind()),
            Self::Fault(fault) => Some(fault.kind()),
            Self::Unavailable(cause) => Some(cause.kind()),
            Self::System(cause) => Some(cause.kind()),
            Self::Found(_) | Self::Stopped(_) => None,
        }
    }

    /// In one line.
    fn message(&self) -> String {
        let text = self.to_string();
        let Self::Usage(_) = self else {
            return text;
        };
        let first = text.split("\n\n").next().unwrap_or_default();
        let words: Vec<&str> = first.split_whitespace().skip(1).collect();
        words.join(" ")
    }
}

impl HasKind for Unavailable {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Perf(error) => error.kind(),
            Self::Check(error) => error.kind(),
            Self::Takeover(TakeoverError::Address(_, error)) => ErrorKind::of_given(error),
            Self::Discover(..) | Self::Unknown(..) | Self::Drive(_) | Self::Takeover(_) => {
                ErrorKind::Unavailable
            }
        }
    }
}

impl HasKind for System {
    fn kind(&self) -> ErrorKind {
        match self {
            // A processor, a directory and files that somebody has named.
            Self::Core(error) | Self::Api(_, error) => ErrorKind::of_given(error),
            Self::Output(error) => ErrorKind::of_given(error.why()),
            Self::Signals(_) | Self::Runtime(_) | Self::Print(_) | Self::Terminal(_) => {
                ErrorKind::Internal
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(error) => error.fmt(f),
            Self::Invalid(cause) => cause.fmt(f),
            Self::Target(error) => error.fmt(f),
            Self::Fault(fault) => fault.fmt(f),
            Self::Unavailable(cause) => cause.fmt(f),
            Self::System(cause) => cause.fmt(f),
            Self::Found(cause) => cause.fmt(f),
            Self::Stopped(_) => {
                f.write_str("stopped by a signal; what was there until then is shown")
            }
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Api(error) => error.fmt(f),
            Self::Place(error) => error.fmt(f),
            Self::Destroys(kind, name) => write!(
                f,
                "this destroys all data in {} `{name}`: say --yes to do it",
                kind.name()
            ),
            Self::GivesAway(volume, tenant) => write!(
                f,
                "this gives all data in volume `{volume}` to the hosts of tenant `{tenant}`, and takes it from those that \
                 have it now: say --yes to do it"
            ),
            Self::LosesSince(snapshot) => write!(
                f,
                "this destroys all that was written to volume `{}` since {snapshot}: say --yes to do it",
                snapshot.volume
            ),
            Self::LosesSnapshot(snapshot) => write!(
                f,
                "this destroys snapshot {snapshot}: say --yes to do it"
            ),
            Self::ShowsSnapshot(snapshot, tenant) => write!(
                f,
                "this shows all data in {snapshot} to the hosts of tenant `{tenant}`: say --yes to do it"
            ),
            Self::OtherVolume(volume) => write!(
                f,
                "only versions of one volume can be compared; give another snapshot of `{volume}`, or `{volume}` itself"
            ),
            Self::NothingToChange => f.write_str(
                "nothing to change: give --host, --class, --weight, --guarantee, --limit, --latency-target or --quota",
            ),
            Self::NoPermissions => {
                f.write_str("nothing to change: give --mode, --owner, --group, --doorbells or --cores")
            }
            Self::Path(path, error) => write!(f, "`{path}` is no path: {error}"),
            Self::File(error) => error.fmt(f),
            Self::Unwritable(path, error) => write!(f, "cannot write {}: {error}", path.display()),
            Self::Unreadable(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::Statistics(path, why) => write!(
                f,
                "{} is no log of I/O statistics: {why}; read one with `nvme get-log DEVICE --log-id=0xd0 --log-len=4096 --raw-binary`",
                path.display()
            ),
            Self::Buffers => write!(
                f,
                "--buffers is for each core and must be at least {} MiB, for two of the largest commands",
                Limits::LEAST_BUFFERS >> 20
            ),
            Self::HostNqn(nqn, error) => write!(f, "--hostnqn {nqn}: {error}"),
            Self::NoTerminal => f.write_str(
                "there is no terminal to draw on: `flashyard iostat` prints lines, and `flashyard top --once` one table",
            ),
            Self::JsonOfScreen => f.write_str(
                "a screen has no JSON: `flashyard top --once --json` prints one table, and `flashyard iostat --json` goes on",
            ),
            Self::NoColumn(table, typed, columns) => write!(
                f,
                "the table of {table} has no column `{typed}`: give one of {}",
                columns.join(", ")
            ),
        }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Perf(error) => error.fmt(f),
            Self::Check(error) => error.fmt(f),
            Self::Discover(address, error) => write!(
                f,
                "cannot ask {address}: {error}; is a target listening there?"
            ),
            Self::Unknown(address, error) => write!(f, "cannot look up {address}: {error}"),
            Self::Drive(device) => write!(f, "{device} does not answer any more"),
            Self::Takeover(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signals(error) => write!(f, "cannot catch signals: {error}"),
            Self::Core(error) => write!(f, "cannot start a core: {error}"),
            Self::Runtime(error) => error.fmt(f),
            Self::Api(directory, error) if error.kind() == io::ErrorKind::InvalidInput => {
                write!(
                    f,
                    "{} is too long for the path of a socket: choose a shorter --state",
                    directory.display()
                )
            }
            Self::Api(directory, error) => write!(
                f,
                "cannot open the socket of the API in {}: {error}",
                directory.display()
            ),
            Self::Print(error) => write!(f, "cannot print: {error}"),
            Self::Terminal(error) => write!(f, "cannot use the terminal: {error}"),
            Self::Output(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seeds(1) => f.write_str("1 seed has a finding"),
            Self::Seeds(several) => write!(f, "{several} seeds have a finding"),
            Self::Rows { passed, all } => write!(f, "{passed} of {all} rows pass"),
            Self::Health(state) => write!(f, "the target is {state}: `flashyard health` says more"),
            Self::Perf => f.write_str("not everything that was read or written was in order"),
            Self::Lost(path) => write!(
                f,
                "{} is not sound: restore what is reported lost from a backup",
                path.display()
            ),
        }
    }
}

macro_rules! from {
    ($($cause:ty => $to:expr,)*) => {$(
        impl From<$cause> for Failure {
            fn from(cause: $cause) -> Self {
                $to(cause)
            }
        }
    )*};
}

from! {
    clap::Error => Self::Usage,
    Invalid => Self::Invalid,
    AskError => Self::Target,
    Fault => Self::Fault,
    SpecError => |error| Self::Fault(Fault::from(error)),
    SettingError => |error| Self::Fault(Fault::from(error)),
    StateError => |error| Self::Fault(Fault::from(error)),
    Unavailable => Self::Unavailable,
    PerfError => |error| Self::Unavailable(Unavailable::Perf(error)),
    TakeoverError => |error| Self::Unavailable(Unavailable::Takeover(error)),
    CheckError => |error| Self::Unavailable(Unavailable::Check(error)),
    System => Self::System,
    OutputError => |error| Self::System(System::Output(error)),
    Found => Self::Found,
}
