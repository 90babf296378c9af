//! How one process takes over from another on the same state (`serve --take-over`): over a socket
//! in the state directory, which only its owner can open.
//!
//! 1. The successor has checked what can be checked, and connects.
//! 2. The target sends its listening sockets. It goes on.
//! 3. The successor has a socket for each of its addresses, and says [`END`].
//! 4. The target says [`ENDING`], ends as at a signal, and closes the connection with its process.
//! 5. The successor waits for that, and starts as always.
//!
//! Whoever goes away before 4, the other one is as it was.

use std::fmt;
use std::fs::{self, Permissions};
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::process::{Uid, geteuid};
use serde::{Deserialize, Serialize};

use crate::listening::Listening;
use crate::out::note;
use crate::rights;

/// Name of the socket in the state directory.
const SOCKET: &str = "takeover.sock";

/// Successors that wait for their turn to ask.
const BACKLOG: i32 = 4;
const END: &[u8] = b"end";
const ENDING: &[u8] = b"ending";
/// Longest message.
const MESSAGE_BYTES: usize = 4096;

/// How long the other one may take for a step, which is a moment's work.
const STEP: Duration = Duration::from_secs(30);
/// How often somebody is told that the target before has not ended yet.
const REMINDER: Duration = Duration::from_secs(10);

/// What a target tells its successor first. Successors do not mind what else there is.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    version: String,
}

/// Where a target waits for its successor; gone when dropped.
#[derive(Debug)]
pub struct Waiting(PathBuf);

impl Waiting {
    /// Gives `listening` to whoever asks for it, and has this process end by `end` when that one
    /// says so.
    pub fn start(
        state: &Path,
        listening: &Arc<Listening>,
        end: mpsc::Sender<()>,
    ) -> io::Result<Self> {
        let path = state.join(SOCKET);
        // The state store's lock is ours, so a socket that is still there has no owner.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = packets()?;
        bind(&socket, &SocketAddrUnix::new(&path)?)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        listen(&socket, BACKLOG)?;
        let listener = UnixListener::from(socket);
        let listening = Arc::clone(listening);
        let thread = thread::Builder::new().name("takeover".into());
        thread.spawn(move || wait(&listener, &listening, &end))?;
        Ok(Self(path))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // The next start removes it anyway.
        let _ = fs::remove_file(&self.0);
    }
}

/// Serves successors one by one, until one takes over.
fn wait(listener: &UnixListener, listening: &Listening, end: &mpsc::Sender<()>) {
    for connection in listener.incoming() {
        let Ok(connection) = connection else {
            // No descriptors are left: whoever asks has to wait.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if !is_trusted(&connection) {
            note(format_args!(
                "process {} of another user is not to take over, and the target goes on",
                peer(&connection)
            ));
            continue;
        }
        match hand_over(&connection, listening) {
            Ok(true) => {
                note(format_args!(
                    "process {} takes over: finishing what is in flight",
                    peer(&connection)
                ));
                // It is open until this process has ended, which is what the successor waits for.
                mem::forget(connection);
                let _ = end.send(());
                return;
            }
            Ok(false) => {}
            Err(error) => note(format_args!(
                "a process that was to take over did not, and the target goes on: {error}"
            )),
        }
    }
}

/// Whether the successor has all it needs, and this process is to end.
fn hand_over(connection: &UnixStream, listening: &Listening) -> io::Result<bool> {
    connection.set_read_timeout(Some(STEP))?;
    connection.set_write_timeout(Some(STEP))?;
    let hello = Hello {
        version: env!("CARGO_PKG_VERSION").into(),
    };
    let hello = serde_json::to_vec(&hello)?;
    listening.with_used(|sockets| {
        let most = sockets.len().min(rights::FILES_MOST);
        if most < sockets.len() {
            note(format_args!(
                "the target listens at {} sockets, and its successor gets {most} of them: it cannot listen at the others \
                 before this process has ended",
                sockets.len()
            ));
        }
        rights::send(connection, &hello, &sockets[..most])
    })?;
    let mut answer = [0; MESSAGE_BYTES];
    let (length, _) = rights::receive(connection, &mut answer)?;
    if length == 0 {
        return Ok(false);
    }
    if answer[..length] != *END {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // It fails when the successor has gone since.
    rights::send(connection, ENDING, &[])?;
    Ok(true)
}

/// The target that is to be taken over from.
#[derive(Debug)]
pub struct Predecessor {
    connection: UnixStream,
    state: PathBuf,
    version: String,
}

/// Why it cannot be taken over from. It goes on, if it was there.
#[derive(Debug)]
pub enum TakeoverError {
    /// The socket in this state directory cannot be used.
    Socket(PathBuf, io::Error),
    /// Something else answers there.
    NotUnderstood(PathBuf),
    /// What answers there is a process of somebody else.
    OtherUser(PathBuf),
    /// An address that the target does not listen at, and this process cannot.
    Address(SocketAddr, io::Error),
}

impl fmt::Display for TakeoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(state, error) => write!(
                f,
                "cannot take over from the target that uses the state in {}: {error}; see whether it still runs, end it, and \
                 start without --take-over",
                state.display()
            ),
            Self::NotUnderstood(state) => write!(
                f,
                "what uses the state in {} does not answer as a target does: end it, and start without --take-over",
                state.display()
            ),
            Self::OtherUser(state) => write!(
                f,
                "what uses the state in {} is a process of another user: start as that user, or see what it is",
                state.display()
            ),
            Self::Address(address, error) => write!(
                f,
                "cannot listen at {address}: {error}. The target that was to be taken over from goes on; it does not listen \
                 there itself"
            ),
        }
    }
}

impl Predecessor {
    /// The target that uses the state in a directory, if there is one, and its sockets.
    pub fn find(state: &Path) -> Result<Option<(Self, Vec<OwnedFd>)>, TakeoverError> {
        let failed = |error: io::Error| TakeoverError::Socket(state.to_owned(), error);
        let socket = packets().map_err(failed)?;
        let address = SocketAddrUnix::new(state.join(SOCKET)).map_err(io::Error::from);
        let connected =
            address.and_then(|address| connect(&socket, &address).map_err(io::Error::from));
        match connected.map_err(|error| (error.kind(), error)) {
            // None was there, or it has left its socket when it was killed.
            Err((io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused, _)) => {
                return Ok(None);
            }
            connected => connected.map_err(|(_, error)| failed(error))?,
        }
        let connection = UnixStream::from(socket);
        if !is_trusted(&connection) && !geteuid().is_root() {
            return Err(TakeoverError::OtherUser(state.to_owned()));
        }
        connection.set_read_timeout(Some(STEP)).map_err(failed)?;
        connection.set_write_timeout(Some(STEP)).map_err(failed)?;
        let mut message = [0; MESSAGE_BYTES];
        let (length, files) = match rights::receive(&connection, &mut message) {
            Ok((0, _)) => return Ok(None),
            Err(error) if has_ended(&error) => return Ok(None),
            received => received.map_err(failed)?,
        };
        let hello: Hello = serde_json::from_slice(&message[..length])
            .map_err(|_| TakeoverError::NotUnderstood(state.to_owned()))?;
        let found = Self {
            connection,
            state: state.to_owned(),
            version: hello.version,
        };
        Ok(Some((found, files)))
    }

    /// Has it end, and returns when its process has ended.
    pub fn end(self) -> Result<(), TakeoverError> {
        let failed = |error| TakeoverError::Socket(self.state.clone(), error);
        let process = peer(&self.connection);
        note(format_args!(
            "taking over from process {process}, version {}",
            self.version
        ));
        let mut message = [0; MESSAGE_BYTES];
        let said = rights::send(&self.connection, END, &[])
            .and_then(|()| rights::receive(&self.connection, &mut message));
        match said {
            // It has ended by itself; if it only does not answer, it still has the state.
            Ok((0, _)) => return Ok(()),
            Err(error) if has_ended(&error) => return Ok(()),
            Ok((length, _)) if message[..length] == *ENDING => {}
            Ok(_) => return Err(TakeoverError::NotUnderstood(self.state)),
            Err(error) => return Err(failed(error)),
        }
        let patience = Some(REMINDER);
        self.connection.set_read_timeout(patience).map_err(failed)?;
        loop {
            match rights::receive(&self.connection, &mut message) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => note(format_args!(
                    "process {process} has not ended yet: it waits for what is in flight at its devices"
                )),
                // Its end, in good order or not.
                _ => return Ok(()),
            }
        }
    }
}

/// A socket for messages, each of which comes whole.
fn packets() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

/// The other end's process has gone.
fn has_ended(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

/// Whether the other end's process may do what this one may: the permissions of the socket say so
/// too, as long as nobody changes them.
fn is_trusted(connection: &UnixStream) -> bool {
    socket_peercred(connection).is_ok_and(|of| is_of(of.uid, geteuid()))
}

fn is_of(uid: Uid, own: Uid) -> bool {
    uid == own || uid.is_root()
}

/// The process at the other end.
fn peer(connection: &UnixStream) -> i32 {
    socket_peercred(connection).map_or(0, |of| of.pid.as_raw_nonzero().get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_user_and_root_take_over_and_are_taken_over_from() {
        let of = |raw| Uid::from_raw(raw);
        for (uid, own, is_trusted) in [
            (0, 0, true),
            (0, 1000, true),
            (1000, 1000, true),
            (1001, 1000, false),
            (1000, 0, false),
        ] {
            assert_eq!(is_of(of(uid), of(own)), is_trusted, "{uid} {own}");
        }
        let (one, other) = UnixStream::pair().expect("there are two");
        assert!(is_trusted(&one) && is_trusted(&other));
    }
}
