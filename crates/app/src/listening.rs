//! The sockets that the target listens at, for whoever comes after this process. A socket is made
//! here, or was given to this process by the service manager that has kept it or by the target
//! before (`takeover.rs`). Those who accept have a duplicate: as long as another one is open
//! somewhere, connections wait where nobody accepts, and are not refused.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;

use crate::notify::Manager;
use crate::out::note;

/// Who connects to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Hosts, by NVMe/TCP.
    Hosts,
    /// Clients of the API.
    Api,
}

impl Purpose {
    const ALL: [Self; 2] = [Self::Hosts, Self::Api];

    /// The service manager keeps it under this name.
    fn name(self) -> &'static str {
        match self {
            Self::Hosts => "nvme-tcp",
            Self::Api => "api",
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Listening {
    sockets: Mutex<Sockets>,
    manager: Arc<Manager>,
}

#[derive(Debug, Default)]
struct Sockets {
    /// Given to this process, and not asked for yet.
    given: Vec<TcpListener>,
    /// A duplicate of each that somebody accepts from.
    used: Vec<(Purpose, TcpListener)>,
    /// The target serves: what is given is used, and the manager knows what is.
    serves: bool,
}

/// What the manager has given to this process (`LISTEN_FDS`, sd_listen_fds(3)). To be asked before
/// there is another thread, since it takes this out of the environment.
pub fn given_by_manager() -> Vec<TcpListener> {
    let mut given = ListenFd::from_env();
    let count = given.len();
    let take = |number| match given.take_tcp_listener(number) {
        Ok(listener) => listener,
        Err(error) => {
            note(format_args!(
                "a file that the service manager has given to the target is not used: {error}"
            ));
            None
        }
    };
    (0..count).filter_map(take).collect()
}

impl Listening {
    /// With what was given to this process; what is used is told to `manager`.
    pub fn new(manager: Arc<Manager>, given: Vec<TcpListener>) -> Self {
        let listening = Self {
            manager,
            ..Self::default()
        };
        listening.give(given);
        listening
    }

    /// More that is given to this process.
    pub fn give(&self, given: Vec<TcpListener>) {
        for listener in given {
            match (socket_acceptconn(&listener), listener.local_addr()) {
                (Ok(true), Ok(_)) => self.lock().given.push(listener),
                _ => note(format_args!(
                    "a socket that was given to the target listens nowhere: it is closed"
                )),
            }
        }
    }

    /// Listens at an address: at the socket that was given for it, or at a new one.
    pub fn open(&self, purpose: Purpose, asked: SocketAddr) -> io::Result<TcpListener> {
        let mut sockets = self.lock();
        let listener = match sockets.take(asked) {
            Some(given) => given,
            None => TcpListener::bind(asked)?,
        };
        sockets.used.push((purpose, listener.try_clone()?));
        Ok(listener)
    }

    /// Has a socket for an address, while the target before has its own: what cannot be had is
    /// found out before that has ended. Port 0 is another one each time.
    pub fn reserve(&self, asked: SocketAddr) -> io::Result<()> {
        let mut sockets = self.lock();
        let given = match sockets.take(asked) {
            Some(given) => given,
            None if asked.port() == 0 => return Ok(()),
            None => TcpListener::bind(asked)?,
        };
        sockets.given.push(given);
        Ok(())
    }

    /// Nobody accepts at an address any more.
    pub fn close(&self, purpose: Purpose, real: SocketAddr) {
        let other = |(of, it): &(Purpose, TcpListener)| *of != purpose || !listens_at(it, real);
        self.lock().used.retain(other);
    }

    /// The target serves: closes what was given and is not to be used, and has the manager keep
    /// what is.
    pub fn serve(&self) {
        let mut sockets = self.lock();
        for unused in sockets.given.drain(..) {
            let Ok(address) = unused.local_addr() else {
                continue;
            };
            note(format_args!(
                "the target was given a socket that listens at {address}, where it is not to listen: it is closed"
            ));
        }
        sockets.serves = true;
        drop(sockets);
        for purpose in Purpose::ALL {
            self.keep(purpose);
        }
    }

    /// Where hosts connect has changed.
    pub fn change(&self) {
        if self.lock().serves {
            self.keep(Purpose::Hosts);
        }
    }

    /// Has the manager keep what is used, in the place of what it has.
    fn keep(&self, purpose: Purpose) {
        let sockets = self.lock();
        let used = sockets.used.iter().filter(|(of, _)| *of == purpose);
        let files: Vec<_> = used.map(|(_, listener)| listener.as_fd()).collect();
        self.manager.keep(purpose.name(), &files);
    }

    /// Has `send` send all that is used to somebody.
    pub fn with_used<T>(&self, send: impl FnOnce(&[BorrowedFd<'_>]) -> T) -> T {
        let sockets = self.lock();
        let files: Vec<_> = sockets.used.iter().map(|(_, it)| it.as_fd()).collect();
        send(&files)
    }

    fn lock(&self) -> MutexGuard<'_, Sockets> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sockets {
    /// The one that was given for an address.
    fn take(&mut self, asked: SocketAddr) -> Option<TcpListener> {
        let found = self.given.iter().position(|it| listens_at(it, asked));
        found.map(|at| self.given.swap_remove(at))
    }
}

fn listens_at(listener: &TcpListener, address: SocketAddr) -> bool {
    listener.local_addr().is_ok_and(|own| own == address)
}
