//! The control socket: one JSON request a line, one JSON answer a line, over a Unix socket in the state
//! directory that only its owner can open. The same types serve both ends.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::spec::{
    ClassName, Config, DeviceSpec, PartitionSpec, PolicyName, PoolSpec, RatesSpec, Size, Span,
    TargetSettings, TenantSpec, VolumeSpec,
};

/// Longest request line: a configuration file of thousands of entries fits.
const REQUEST_BYTES_MAX: u64 = 16 << 20;

/// Connections served at once; more are closed.
const CONNECTIONS_MAX: usize = 64;

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
    /// A new pool.
    CreatePool {
        /// What it is to be.
        spec: PoolSpec,
        /// Even if the device holds something.
        force: bool,
    },
    /// A new tenant.
    CreateTenant(TenantSpec),
    /// A new volume.
    CreateVolume(VolumeSpec),
    /// Other settings for a tenant.
    SetTenant {
        /// Which.
        name: String,
        /// What is to change.
        change: TenantChange,
    },
    /// Another policy for a device, while it is used.
    SetDevice {
        /// Which.
        name: String,
        /// The policy from now on.
        policy: PolicyName,
    },
    /// What a device can give.
    Calibrate {
        /// Which.
        device: String,
        /// Measure writes too: its content is lost.
        destroy: bool,
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
    },
    /// Another name for a tenant.
    RenameTenant {
        /// Which.
        name: String,
        /// What it is called from now on.
        new: String,
    },
    /// One less of a kind.
    Delete(KindName, String),
    /// Create and change what the configuration names.
    Apply {
        /// What should be there.
        config: Config,
        /// Only tell.
        plan: bool,
    },
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
}

/// What comes back: a value, or one line that says what to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Done.
    Ok(Value),
    /// Not done, or not all of it.
    Error(String),
}

/// A listening control socket; removed when dropped.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
}

impl Control {
    /// Listens in `state` and answers by `serve`, a thread for each connection.
    pub fn start(
        state: &Path,
        serve: impl Fn(Request) -> Answer + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let path = state.join(SOCKET);
        // The state store's lock is ours, so a socket that is still there belongs to nobody.
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

fn accept<S>(listener: &UnixListener, serve: &Arc<S>)
where
    S: Fn(Request) -> Answer + Send + Sync + 'static,
{
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // No file descriptors left: it would fail again at once.
            thread::sleep(ACCEPT_RETRY);
            continue;
        };
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (serve, counter) = (Arc::clone(serve), Arc::clone(&open));
        let spawned = thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                // A client that goes away in the middle has nobody to be told.
                let _ = converse(&stream, &*serve);
                counter.fetch_sub(1, Ordering::Relaxed);
            });
        if spawned.is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn converse(stream: &UnixStream, serve: &(impl Fn(Request) -> Answer + ?Sized)) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        line.clear();
        if (&mut reader).take(REQUEST_BYTES_MAX).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let answer = match serde_json::from_str(&line) {
            Ok(request) => serve(request),
            Err(error) => Answer::Error(format!("the request is not understood: {error}")),
        };
        let mut text = serde_json::to_string(&answer).expect("answers are plain data");
        text.push('\n');
        let mut writer = stream;
        writer.write_all(text.as_bytes())?;
    }
}

/// Asks the target whose state directory is `state`.
pub fn ask(state: &Path, request: &Request) -> Result<Value, String> {
    let path = state.join(SOCKET);
    let mut stream = UnixStream::connect(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            format!(
                "no target runs on {}: start one with `flashyard serve`, or give --state",
                state.display()
            )
        }
        _ => format!("cannot reach the target at {}: {error}", path.display()),
    })?;
    let mut text = serde_json::to_string(request).expect("requests are plain data");
    text.push('\n');
    let lost =
        |error| format!("the target went away in the middle: {error}; ask again with `list`");
    stream.write_all(text.as_bytes()).map_err(lost)?;
    let mut line = String::new();
    let read = BufReader::new(&stream).read_line(&mut line).map_err(lost)?;
    if read == 0 {
        return Err(lost(io::ErrorKind::UnexpectedEof.into()));
    }
    match serde_json::from_str(&line) {
        Ok(Answer::Ok(value)) => Ok(value),
        Ok(Answer::Error(message)) => Err(message),
        Err(error) => Err(format!(
            "the target's answer is not understood ({error}): is it another version?"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_dies_before_it_answers_is_told() {
        let name = format!("flashyard-control-dies-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("the temporary directory is writable");
        let socket = UnixListener::bind(directory.join(SOCKET)).expect("nobody has it");
        let dies = thread::spawn(move || {
            let (stream, _) = socket.accept().expect("somebody asks");
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line)
        });
        let fault = ask(&directory, &Request::Status).expect_err("nobody answers");
        assert!(fault.contains("went away in the middle"), "{fault}");
        assert!(dies.join().expect("it ended").is_ok());
        fs::remove_dir_all(&directory).expect("it is ours");
    }

    #[test]
    fn a_request_is_answered_and_rubbish_is_told() {
        let directory =
            std::env::temp_dir().join(format!("flashyard-control-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("the temporary directory is writable");
        let control = Control::start(&directory, |request| match request {
            Request::Status => Answer::Ok(Value::from(7)),
            other => Answer::Error(format!("{other:?}")),
        })
        .expect("it listens");
        assert_eq!(ask(&directory, &Request::Status), Ok(Value::from(7)));
        let refused =
            ask(&directory, &Request::List(KindName::Pool)).expect_err("an error comes as one");
        assert!(refused.contains("Pool"), "{refused}");

        let mut stream = UnixStream::connect(directory.join(SOCKET)).expect("it listens");
        stream
            .write_all(b"{\"open\": \"sesame\"}\n")
            .expect("it reads");
        let mut line = String::new();
        BufReader::new(&stream)
            .read_line(&mut line)
            .expect("it answers");
        assert!(line.contains("not understood"), "{line}");

        drop(control);
        let gone = ask(&directory, &Request::Status).expect_err("nobody listens");
        assert!(gone.contains("flashyard serve"), "{gone}");
        fs::remove_dir_all(&directory).expect("it is ours");
    }
}
