//! Tells the service manager that has started the program how it is (sd_notify(3)): one datagram
//! for each change, to the socket that `NOTIFY_SOCKET` names. Without the variable nobody is told.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;
use std::{env, io};

use rustix::time::{ClockId, clock_gettime};

use crate::out;
use crate::rights;

/// A manager that does not take a datagram for so long is not told.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where to tell it.
#[derive(Debug, Default)]
pub struct Manager {
    socket: Option<(UnixDatagram, SocketAddr)>,
}

/// How the program is.
#[derive(Clone, Copy, Debug)]
pub enum Condition<'a> {
    /// It serves; in words.
    Ready(&'a str),
    /// It applies its configuration again, and will be ready when it has done so.
    Reloading,
    /// It ends.
    Stopping,
}

impl Manager {
    /// The one that has started this program, if there is one.
    pub fn found() -> Self {
        let name = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let socket = name.and_then(|name| match open(&name) {
            Ok(socket) => Some(socket),
            Err(error) => {
                out::note(format_args!("cannot use NOTIFY_SOCKET: {error}"));
                None
            }
        });
        Self { socket }
    }

    /// Tells it.
    pub fn tell(&self, condition: Condition<'_>) {
        self.send(&condition.message(), &[]);
    }

    /// Has it keep files under a name, in the place of those that it keeps there, and give them to
    /// the process that comes next (`LISTEN_FDS`).
    pub fn keep(&self, name: &str, files: &[BorrowedFd<'_>]) {
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), &[]);
        for files in files.chunks(rights::FILES_MOST) {
            self.send(&format!("FDSTORE=1\nFDNAME={name}"), files);
        }
    }

    /// Sends one message. That it cannot be sent is said, and ends nothing.
    fn send(&self, message: &str, files: &[BorrowedFd<'_>]) {
        let Some((socket, manager)) = &self.socket else {
            return;
        };
        let connected = socket.connect_addr(manager);
        let sent = connected.and_then(|()| rights::send(socket, message.as_bytes(), files));
        if let Err(error) = sent {
            out::note(format_args!(
                "cannot tell the service manager how the target is: {error}"
            ));
        }
    }
}

/// A path, or after `@` a name that is in no folder.
fn open(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let manager = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok((socket, manager))
}

impl Condition<'_> {
    fn message(self) -> String {
        match self {
            Self::Ready(status) => format!("READY=1\nSTATUS={}", status.replace('\n', " ")),
            Self::Reloading => format!(
                "RELOADING=1\nMONOTONIC_USEC={}\nSTATUS=applying the configuration file",
                monotonic_us()
            ),
            Self::Stopping => "STOPPING=1\nSTATUS=finishing what is in flight".to_owned(),
        }
    }
}

/// From this the manager knows which of two reloads a message is about.
fn monotonic_us() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}
