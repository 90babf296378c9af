//! The REST API: HTTP/1.1 with JSON bodies, over a Unix socket in the state directory that only its
//! owner can open, and over TCP for those who have a token or a certificate, with TLS where it
//! leaves the machine. It is the only way into a running target; the command line uses it as well.
//!
//! [`operations`] is what can be asked, [`call`] the same from the client's side.

mod accept;
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
mod private;
mod record;
mod route;
mod serve;
mod slots;
mod tcp;
mod tls;
mod tokens;

use std::fs;
use std::future;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::audit::Audit;
use crate::control::{HasKind, Shows};

pub use access::{AccessFiles, TcpError};
pub use client::{AskError, ask, ask_and_follow, follow};
use listen::{Accepted, Listener};
pub use place::{Place, PlaceError, Remote, RemoteFiles};
use serve::{SOCKET, Serve};
pub use tcp::{Renewal, Tcp};
pub use tls::TlsFiles;

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
            .max_blocking_threads(2 * slots::Slots::MOST)
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
                    Ok(Accepted::Tcp(stream, address))
                };
                there.serve(accept).await;
            }
            None => future::pending().await,
        }
    };
    tokio::select! {
        () = here.serve(async || Ok(Accepted::Unix(unix.accept().await?.0))) => {}
        () = over_tcp => {}
        _ = ended => {}
    }
    here.end().await;
    if let Some((_, there)) = there {
        there.end().await;
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
