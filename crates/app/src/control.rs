//! The control socket: one JSON request a line, one JSON answer a line, over a Unix socket in the
//! state directory that only its owner can open. The same types serve both ends.

mod arrays;
mod asker;
mod functions;
mod migration;
mod plan;
mod seats;
mod snapshots;
mod space;
mod view;

use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::spec::{
    ClassName, DeviceSpec, Document, DoorbellName, FaultSpec, FunctionSpec, KeyText, PartitionSpec,
    PolicyName, PoolSpec, RatesSpec, Size, SocketMode, Span, TargetSettings, TenantSpec,
    VolumeSpec,
};

pub use arrays::{ArrayChange, ArrayHow, ArrayOf, ArrayView};
use asker::Client;
pub use asker::{Asker, Progress};
pub use functions::{FunctionRow, FunctionView, GuestState, GuestView};
pub use migration::{MigrationState, MigrationView};
pub use plan::{AppliedView, How, KeyChange, ObjectChange, Risk, Verb};
use seats::{Seat, Seats};
pub use snapshots::*;
pub use space::SpaceView;
pub use view::*;

/// Longest request line, with its end: a configuration file of thousands of entries fits.
const REQUEST_BYTES_MAX: usize = 16 << 20;

/// How long an answer waits for a client that does not read.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// After a failed accept: until the next try.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Name of the socket in the state directory.
const SOCKET: &str = "control.sock";

/// What can be asked of a running target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Everything at a glance.
    Status,
    /// The target's own settings.
    ShowTarget,
    /// Other settings of the target.
    SetTarget(TargetSettings),
    /// All of a kind.
    List(KindName),
    /// One of a kind.
    Show(KindName, String),
    /// A new device.
    CreateDevice(DeviceSpec),
    /// A new device before another one, even if that holds something, which is lost.
    CreateDeviceOver(DeviceSpec),
    /// Another key or passphrase for an encrypted device.
    Rekey {
        /// Which.
        name: String,
        /// Where the new one is.
        key: KeyText,
    },
    /// The same for an encrypted pool: which, and where the new one is.
    RekeyPool(String, KeyText),
    /// An encrypted device less, and its key forgotten.
    EraseKey(String),
    /// A device made of others, new or as it is on them, and a pool on it.
    CreateArray {
        /// What it is to be.
        of: Box<ArrayOf>,
        /// How it begins.
        how: ArrayHow,
    },
    /// Other members for the array under a pool, or work on it.
    ChangeArray {
        /// The pool, or the array itself.
        name: String,
        /// What is to be done.
        change: ArrayChange,
    },
    /// A new pool.
    CreatePool {
        /// What it is to be.
        spec: PoolSpec,
        /// Even if the device holds something.
        force: bool,
    },
    /// A pool that is on a device, and that the state does not know.
    ImportPool {
        /// What it is to be called, and where it is.
        spec: PoolSpec,
        /// The tenant of its volumes; none yet if not given.
        tenant: Option<String>,
        /// Only tell what there is.
        list: bool,
    },
    /// Partitions that are on a device, and that the state does not know.
    ImportPartitions {
        /// The device.
        device: String,
        /// Which; all if not given.
        name: Option<String>,
        /// The policy in front of those that the file does not name; `fair` if not given.
        #[serde(default)]
        policy: Option<PolicyName>,
        /// Only tell what there is.
        list: bool,
    },
    /// A volume that is in a pool, and that the state does not know; its UUID and size are there.
    ImportVolume(VolumeSpec),
    /// A new tenant.
    CreateTenant {
        /// What it is to be.
        #[serde(flatten)]
        spec: TenantSpec,
        /// Even if a device cannot give what it is promised.
        #[serde(default)]
        force: bool,
    },
    /// A new volume.
    CreateVolume {
        /// What it is to be.
        spec: VolumeSpec,
        /// Even if its tenant is promised more there than it can have.
        force: bool,
    },
    /// New functions, all of them or none.
    CreateFunctions(Vec<FunctionSpec>),
    /// Other permissions for the socket of a function.
    SetFunction {
        /// Which.
        name: String,
        /// What is to change.
        #[serde(flatten)]
        change: FunctionChange,
    },
    /// One function less.
    DeleteFunction {
        /// Which.
        name: String,
        /// Even while a virtual machine uses it.
        connected: bool,
    },
    /// Other settings for a tenant.
    SetTenant {
        /// Which.
        name: String,
        /// What is to change.
        change: TenantChange,
        /// Even if a device cannot give what it is promised.
        #[serde(default)]
        force: bool,
    },
    /// Another policy for a device, while it is used.
    SetDevice {
        /// Which.
        name: String,
        /// The policy from now on.
        policy: PolicyName,
    },
    /// Other faults for a device that injects them, while it is used.
    SetFaults {
        /// Which.
        name: String,
        /// The faults from now on.
        faults: Vec<FaultSpec>,
    },
    /// What a device can give.
    Calibrate {
        /// Which.
        device: String,
        /// Measure it by writing it over: its content is lost.
        destroy: bool,
        /// Tell how far it is until the answer comes.
        #[serde(default)]
        progress: bool,
    },
    /// Where the latency of a tenant comes from.
    Why {
        /// Which.
        tenant: String,
    },
    /// More units for a partition.
    GrowPartition {
        /// Which.
        name: String,
        /// The units that it is to have beside its own.
        more: PartitionSpec,
    },
    /// A larger size for a volume, or write protection.
    SetVolume {
        /// Which.
        name: String,
        /// What is to change.
        change: VolumeChange,
    },
    /// Another name for a volume.
    RenameVolume {
        /// Which.
        name: String,
        /// What it is called from now on.
        new: String,
    },
    /// A volume with its content for another tenant.
    MoveVolume {
        /// Which.
        name: String,
        /// Who is to have it.
        tenant: String,
        /// Its number there; a free one if not given.
        nsid: Option<u32>,
        /// Even if that tenant is promised more there than it can have.
        force: bool,
    },
    /// A volume for another pool, while it is used.
    MigrateVolume {
        /// Which.
        name: String,
        /// The pool that it goes to.
        to: String,
        /// Answer when the copying has begun; it goes on by itself.
        background: bool,
        /// Even if its tenant is promised more there than it can have.
        force: bool,
        /// Tell how far it is until the answer comes.
        #[serde(default)]
        progress: bool,
    },
    /// A volume that goes to another pool is to stay where it is.
    CancelMigration(String),
    /// Another name for a tenant.
    RenameTenant {
        /// Which.
        name: String,
        /// What it is called from now on.
        new: String,
    },
    /// Something about snapshots.
    AskSnapshots(SnapshotAsk),
    /// Something is to be done with snapshots.
    ChangeSnapshot(SnapshotChange),
    /// The configuration file that makes what is there.
    Export,
    /// A copy of the state store, in a file that is not there yet; an absolute path.
    Backup(PathBuf),
    /// One less of a kind.
    Delete(KindName, String),
    /// The partition of a device, whether the target knows it or not.
    DeletePartition {
        /// Its name.
        name: String,
        /// The device.
        device: String,
    },
    /// Create and change what the configuration names.
    Apply {
        /// What should be there.
        file: Document,
        /// What else is wanted.
        #[serde(flatten)]
        how: How,
    },
}

impl Request {
    /// What the answer is about: a kind of thing, in the plural, or a question; nothing where the
    /// answer says it.
    pub fn noun(&self) -> &'static str {
        match self {
            Self::List(kind) | Self::Show(kind, _) => kind.plural(),
            Self::CreateDevice(spec) if spec.partition().is_some() => KindName::Partition.plural(),
            Self::GrowPartition { .. } => KindName::Partition.plural(),
            Self::CreateDevice(_)
            | Self::CreateDeviceOver(_)
            | Self::Rekey { .. }
            | Self::SetDevice { .. }
            | Self::SetFaults { .. } => KindName::Device.plural(),
            // What was found in a pool is not shown as a pool is.
            Self::CreateArray { of, how } => match of.pool {
                Some(_) if how.import => "",
                Some(_) => KindName::Pool.plural(),
                None => KindName::Device.plural(),
            },
            Self::CreatePool { .. } | Self::RekeyPool(..) | Self::ChangeArray { .. } => {
                KindName::Pool.plural()
            }
            Self::CreateTenant { .. } | Self::SetTenant { .. } | Self::RenameTenant { .. } => {
                KindName::Tenant.plural()
            }
            Self::AskSnapshots(_) | Self::ChangeSnapshot(SnapshotChange::Create(_)) => "snapshots",
            Self::CreateVolume { .. }
            | Self::ImportVolume(_)
            | Self::SetVolume { .. }
            | Self::RenameVolume { .. }
            | Self::MigrateVolume { .. }
            | Self::CancelMigration(_)
            | Self::ChangeSnapshot(_)
            | Self::MoveVolume { .. } => KindName::Volume.plural(),
            Self::CreateFunctions(_) | Self::SetFunction { .. } => KindName::Function.plural(),
            Self::Why { .. } => "why",
            _ => "",
        }
    }
}

/// What is to change in a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeChange {
    /// How large it is to be.
    Size(Size),
    /// Whether writes are refused.
    ReadOnly(bool),
}

/// What is to change in a tenant; what is not given stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantChange {
    /// The new list of hosts.
    pub hosts: Option<Vec<String>>,
    /// The new class.
    pub class: Option<ClassName>,
    /// The new weight.
    pub weight: Option<u32>,
    /// The new guarantee; an empty one removes it.
    pub guarantee: Option<RatesSpec>,
    /// The new limit; an empty one removes it.
    pub limit: Option<RatesSpec>,
    /// The new latency target; zero removes it.
    pub latency_target: Option<Span>,
}

/// What is to change in a function; what is not given stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionChange {
    /// The new permissions of its socket.
    pub mode: Option<SocketMode>,
    /// The new owner.
    pub owner: Option<String>,
    /// The new group.
    pub group: Option<String>,
    /// How a guest rings, from the next start on.
    pub doorbells: Option<DoorbellName>,
}

/// The kinds of thing a request can be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KindName {
    /// Devices.
    Device,
    /// Devices that are partitions of others.
    Partition,
    /// Pools.
    Pool,
    /// Tenants.
    Tenant,
    /// Volumes.
    Volume,
    /// Functions.
    Function,
}

impl KindName {
    /// Several of it.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Device => "devices",
            Self::Partition => "partitions",
            Self::Pool => "pools",
            Self::Tenant => "tenants",
            Self::Volume => "volumes",
            Self::Function => "functions",
        }
    }
}

/// What comes back: a view, or one line that says what to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer<T> {
    /// Done.
    Ok(T),
    /// Not done, or not all of it.
    Error(Trouble),
    /// How far it is; something else comes later. Only where the request asks for it.
    Progress(Progress),
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trouble {
    /// Who has to act.
    pub kind: ErrorKind,
    /// One line that says what to do.
    pub message: String,
}

/// Who has to act, by what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Whoever typed it: that is no command.
    Usage,
    /// Whoever asked: it cannot be.
    Invalid,
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

/// A listening control socket; removed when dropped.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
}

impl Control {
    /// Listens in `state` and answers by `serve`, a thread for each connection.
    pub fn start<S, T, E>(state: &Path, serve: S) -> io::Result<Self>
    where
        S: Fn(Request, &dyn Asker) -> Result<T, E> + Send + Sync + 'static,
        T: Serialize,
        E: HasKind,
    {
        let path = state.join(SOCKET);
        // The state store's lock is ours, so a socket that is still there has no owner.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        let serve = Arc::new(serve);
        thread::Builder::new()
            .name("control".into())
            .spawn(move || accept(&listener, &serve))?;
        Ok(Self { path })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Nothing can be done about a failure, and the next start removes it anyway.
        let _ = fs::remove_file(&self.path);
    }
}

fn accept<S, T, E>(listener: &UnixListener, serve: &Arc<S>)
where
    S: Fn(Request, &dyn Asker) -> Result<T, E> + Send + Sync + 'static,
    T: Serialize,
    E: HasKind,
{
    let seats = Seats::default();
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // No file descriptors left: it would fail again at once.
            thread::sleep(ACCEPT_RETRY);
            continue;
        };
        let stream = Arc::new(stream);
        let Some(mut seat) = seats.take(&stream) else {
            let busy = "too many requests are at work: ask again in a moment";
            // Who does not hear it sees the end.
            let _ = refuse(&stream, ErrorKind::Unavailable, &busy);
            continue;
        };
        let serve = Arc::clone(serve);
        // A thread that cannot be had gives up its connection; the next one may get one.
        let _ = thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                // A client that goes away in the middle gets no answer.
                let _ = converse(&stream, &mut seat, &*serve);
            });
    }
}

/// What a client has sent.
enum Line {
    Whole(Vec<u8>),
    TooLong,
    /// It ended in the middle: what it meant is unknown.
    Cut,
    End,
}

fn converse<T: Serialize, E: HasKind>(
    stream: &UnixStream,
    seat: &mut Seat,
    serve: &impl Fn(Request, &dyn Asker) -> Result<T, E>,
) -> io::Result<()> {
    stream.set_write_timeout(Some(ANSWER_PATIENCE))?;
    let mut reader = BufReader::new(stream);
    loop {
        let line = match read_line(&mut reader)? {
            Line::Whole(line) => line,
            Line::TooLong => return refuse(stream, ErrorKind::Invalid, &AskError::TooLong),
            Line::Cut => {
                return refuse(
                    stream,
                    ErrorKind::Invalid,
                    &"the request has no end of line: nothing was done",
                );
            }
            Line::End => return Ok(()),
        };
        let Some(work) = seat.begin() else {
            return Ok(());
        };
        let client = Client::new(stream, &mut reader);
        match serde_json::from_slice(&line).map(|request| serve(request, &client)) {
            Ok(Ok(view)) => answer(stream, &Answer::Ok(view))?,
            Ok(Err(fault)) => refuse(stream, fault.kind(), &fault)?,
            Err(error) => refuse(
                stream,
                ErrorKind::Invalid,
                &format_args!("the request is not understood: {error}"),
            )?,
        }
        drop(work);
    }
}

fn read_line(reader: &mut impl BufRead) -> io::Result<Line> {
    let mut line = Vec::new();
    let most = REQUEST_BYTES_MAX as u64;
    reader.by_ref().take(most).read_until(b'\n', &mut line)?;
    Ok(match line.last() {
        None => Line::End,
        Some(b'\n') => Line::Whole(line),
        Some(_) if line.len() == REQUEST_BYTES_MAX => Line::TooLong,
        Some(_) => Line::Cut,
    })
}

fn refuse(stream: &UnixStream, kind: ErrorKind, why: &dyn fmt::Display) -> io::Result<()> {
    let message = why.to_string();
    answer(stream, &Answer::<()>::Error(Trouble { kind, message }))
}

fn answer<T: Serialize>(mut stream: &UnixStream, answer: &Answer<T>) -> io::Result<()> {
    let mut text = serde_json::to_string(answer).expect("answers are plain data");
    text.push('\n');
    stream.write_all(text.as_bytes())
}

/// Why a target that was asked gave nothing.
#[derive(Debug)]
pub enum AskError {
    /// None runs on this state directory.
    NoTarget(PathBuf),
    /// Its socket cannot be used.
    Unreachable(PathBuf, io::Error),
    /// The request is longer than any may be.
    TooLong,
    /// It went away before it had answered.
    Lost(io::Error),
    /// It says why it did not do it.
    Refused(Trouble),
    /// What it says is no answer.
    NotUnderstood(serde_json::Error),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTarget(state) => write!(
                f,
                "no target runs on {}: start one with `flashyard serve`, or give --state",
                state.display()
            ),
            Self::Unreachable(path, error) => {
                write!(f, "cannot reach the target at {}: {error}", path.display())
            }
            Self::TooLong => write!(
                f,
                "a request has at most {} MiB, and nothing was done: apply the file in parts",
                REQUEST_BYTES_MAX >> 20
            ),
            Self::Lost(error) => write!(
                f,
                "the target went away in the middle: {error}; ask again with `list`"
            ),
            Self::Refused(why) => f.write_str(&why.message),
            Self::NotUnderstood(error) => write!(
                f,
                "the target's answer is not understood ({error}): is it another version?"
            ),
        }
    }
}

impl std::error::Error for AskError {}

impl HasKind for AskError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused(why) => why.kind,
            Self::TooLong => ErrorKind::Invalid,
            Self::NoTarget(_) | Self::Unreachable(..) | Self::Lost(_) | Self::NotUnderstood(_) => {
                ErrorKind::Unavailable
            }
        }
    }
}

/// Asks the target whose state directory is `state`.
pub fn ask<T: DeserializeOwned>(state: &Path, request: &Request) -> Result<T, AskError> {
    ask_and_follow(state, request, |_| {})
}

/// The same, and says how far the target is, if the request asks for that.
pub fn ask_and_follow<T: DeserializeOwned>(
    state: &Path,
    request: &Request,
    mut follow: impl FnMut(Progress),
) -> Result<T, AskError> {
    let path = state.join(SOCKET);
    let mut stream = UnixStream::connect(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            AskError::NoTarget(state.to_owned())
        }
        _ => AskError::Unreachable(path.clone(), error),
    })?;
    let mut text = serde_json::to_string(request).expect("requests are plain data");
    text.push('\n');
    if text.len() > REQUEST_BYTES_MAX {
        return Err(AskError::TooLong);
    }
    stream.write_all(text.as_bytes()).map_err(AskError::Lost)?;
    let mut reader = BufReader::new(&stream);
    loop {
        let mut line = String::new();
        let read = reader.read_line(&mut line).map_err(AskError::Lost)?;
        if read == 0 {
            return Err(AskError::Lost(io::ErrorKind::UnexpectedEof.into()));
        }
        match serde_json::from_str(&line) {
            Ok(Answer::Ok(value)) => return Ok(value),
            Ok(Answer::Error(message)) => return Err(AskError::Refused(message)),
            Ok(Answer::Progress(progress)) => follow(progress),
            Err(error) => return Err(AskError::NotUnderstood(error)),
        }
    }
}

#[cfg(test)]
mod tests;
