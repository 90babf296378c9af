//! The REST API: HTTP/1.1 with JSON bodies, over a Unix socket in the state directory that only its
//! owner can open, and over TCP for those who have a token or a certificate, with TLS where it leaves the machine. It is the only way into a running
//! target; the command line uses it as well.
//!
//! [`operations`] is what can be asked, [`call`] the same from the client's side.

mod access;
mod answer;
mod call;
mod client;
mod dashboard;
mod listen;
mod openapi;
mod operations;
mod page;
mod parts;
mod place;
mod record;
mod route;
mod seats;
mod tls;
mod tokens;

use std::fmt;
use std::fs;
use std::future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::audit::Audit;
use crate::control::{Asker, ErrorKind, HasKind, Request, Shows};
use crate::listening::{Listening, Purpose};

use access::Access;
pub use access::AccessFiles;
pub use client::{AskError, ask, ask_and_follow, follow};
use listen::{Come, Listener};
pub use place::{Place, PlaceError, Remote, RemoteFiles};
pub use tls::{TlsError, TlsFiles};
use tokens::TokensError;

/// Longest body of a request: a configuration file of thousands of entries fits.
const BODY_BYTES_MAX: usize = 16 << 20;

/// Name of the socket in the state directory.
const SOCKET: &str = "api.sock";

/// Before the path of every operation: a change that clients would not survive gets another one.
const PREFIX: &str = "/api/v1";

/// Who carries requests out. A request may take long: each has a thread of its own.
pub trait Serve<T, E>: Fn(Request, &dyn Asker) -> Result<T, E> + Send + Sync + 'static {}

impl<T, E, S> Serve<T, E> for S where
    S: Fn(Request, &dyn Asker) -> Result<T, E> + Send + Sync + 'static
{
}

/// A listening API; it ends, and its socket goes, when dropped.
#[derive(Debug)]
pub struct Api {
    path: PathBuf,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Api {
    /// Listens in `state`, and at an address for those who get in there, and answers by `serve`.
    /// What is to change something is recorded.
    pub fn start<T, E>(
        state: &Path,
        tcp: Option<Tcp>,
        audit: Arc<Audit>,
        serve: impl Serve<T, E>,
    ) -> io::Result<Self>
    where
        T: Shows,
        E: HasKind + 'static,
    {
        let path = state.join(SOCKET);
        let listener = bind(&path)?;
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            // Of both ways in.
            .max_blocking_threads(2 * seats::Seats::MOST)
            .thread_name("api")
            .build()?;
        let (end, ended) = oneshot::channel();
        let serve = Arc::new(serve);
        let thread = thread::Builder::new().name("api".into()).spawn(move || {
            runtime.block_on(serve_until(ended, listener, tcp, &audit, &serve));
            // A thread at work ends by itself; the target waits for that, and not this thread.
            runtime.shutdown_background();
        })?;
        Ok(Self {
            path,
            end: Some(end),
            thread: Some(thread),
        })
    }
}

/// Serves both ways in until `ended`, and then whoever has a request at work until it is answered.
async fn serve_until<T, E>(
    ended: oneshot::Receiver<()>,
    unix: UnixListener,
    tcp: Option<Tcp>,
    audit: &Arc<Audit>,
    serve: &Arc<impl Serve<T, E>>,
) where
    T: Shows,
    E: HasKind + 'static,
{
    let expected = "it does not block, in a runtime";
    let unix = tokio::net::UnixListener::from_std(unix).expect(expected);
    let here = Listener::new(serve, audit, None);
    let there = tcp.map(|Tcp { listener, access }| {
        let tcp = tokio::net::TcpListener::from_std(listener).expect(expected);
        (tcp, Listener::new(serve, audit, Some(access)))
    });
    let over_tcp = async {
        match &there {
            Some((tcp, there)) => {
                let accept = async || {
                    let (stream, address) = tcp.accept().await?;
                    Ok(Come::Tcp(stream, address))
                };
                there.serve(accept).await;
            }
            None => future::pending().await,
        }
    };
    tokio::select! {
        () = here.serve(async || Ok(Come::Unix(unix.accept().await?.0))) => {}
        () = over_tcp => {}
        _ = ended => {}
    }
    here.end().await;
    if let Some((_, there)) = there {
        there.end().await;
    }
}

/// Where the API listens as well, for those who have a token or a certificate.
#[derive(Debug)]
pub struct Tcp {
    listener: TcpListener,
    access: Arc<Access>,
}

/// Reads anew who gets in, while the API listens.
#[derive(Clone, Debug)]
pub struct Renewal(Arc<Access>);

/// Why the API does not listen there.
#[derive(Debug)]
pub enum TcpError {
    /// What is sent there could be read on the way.
    NotLoopback(SocketAddr),
    /// The system refuses it.
    Refused(SocketAddr, io::Error),
    /// There are no tokens.
    Tokens(TokensError),
    /// There is no TLS.
    Tls(TlsError),
}

impl fmt::Display for TcpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoopback(address) => write!(
                f,
                "without TLS the API listens on loopback addresses only, since tokens and answers could be read on the way: \
                 give --api-cert and --api-key as well, or 127.0.0.1:{}",
                address.port()
            ),
            Self::Refused(address, error) => {
                write!(
                    f,
                    "the API cannot listen on {address}: {error}; choose another port"
                )
            }
            Self::Tokens(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
        }
    }
}

impl HasKind for TcpError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotLoopback(_) => ErrorKind::Invalid,
            Self::Refused(_, error) => ErrorKind::of_given(error),
            Self::Tokens(error) => error.kind(),
            Self::Tls(error) => error.kind(),
        }
    }
}

impl Tcp {
    /// Listens on an address, a loopback one if nothing is encrypted, for whom the files let in.
    pub fn open(
        address: SocketAddr,
        files: AccessFiles,
        listening: &Listening,
    ) -> Result<Self, TcpError> {
        let access = Arc::new(Self::access(address, files)?);
        let refused = |error| TcpError::Refused(address, error);
        let listener = listening.open(Purpose::Api, address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        Ok(Self { listener, access })
    }

    /// Whether the address and the files may be used.
    pub fn check(address: SocketAddr, files: AccessFiles) -> Result<(), TcpError> {
        Self::access(address, files).map(drop)
    }

    fn access(address: SocketAddr, files: AccessFiles) -> Result<Access, TcpError> {
        if files.tls.is_none() && !address.ip().is_loopback() {
            return Err(TcpError::NotLoopback(address));
        }
        Access::read(files)
    }

    /// Where it listens, with its real port.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What reads the files anew.
    pub fn renewal(&self) -> Renewal {
        Renewal(Arc::clone(&self.access))
    }

    /// How an address begins that leads to it.
    pub fn scheme(&self) -> &'static str {
        match self.access.is_encrypted() {
            true => "https",
            false => "http",
        }
    }
}

impl Renewal {
    /// Reads all files, or leaves all as it was.
    pub fn renew(&self) -> Result<(), TcpError> {
        self.0.renew()
    }
}

/// A socket that only the owner of the state directory can open.
fn bind(path: &Path) -> io::Result<UnixListener> {
    // The state store's lock is ours, so a socket that is still there has no owner.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl Drop for Api {
    fn drop(&mut self) {
        // Nothing can be done about a failure, and the next start removes it anyway.
        let _ = fs::remove_file(&self.path);
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
