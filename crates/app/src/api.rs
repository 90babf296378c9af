//! The REST API: HTTP/1.1 with JSON bodies, over a Unix socket in the state directory that only its
//! owner can open. It is the only way into a running target; the command line uses it as well.
//!
//! [`operations`] is what can be asked, [`call`] the same from the client's side.

mod answer;
mod call;
mod client;
mod listen;
mod operations;
mod seats;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use serde::Serialize;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::control::{Asker, HasKind, Request};

pub use client::{AskError, ask, ask_and_follow};

/// Longest body of a request: a configuration file of thousands of entries fits.
const BODY_BYTES_MAX: usize = 16 << 20;

/// Name of the socket in the state directory.
const SOCKET: &str = "api.sock";

/// Before the path of every operation: a change that clients would not survive gets another one.
const PREFIX: &str = "/api/v1";

/// What is answered: JSON, but for what other programs have a form of their own.
pub trait Shows: Serialize + 'static {
    /// Figures for Prometheus, instead of JSON.
    fn metrics(&self) -> Option<&str> {
        None
    }
}

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
    /// Listens in `state` and answers by `serve`.
    pub fn start<T, E>(state: &Path, serve: impl Serve<T, E>) -> io::Result<Self>
    where
        T: Shows,
        E: HasKind + 'static,
    {
        let path = state.join(SOCKET);
        let listener = bind(&path)?;
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(seats::Seats::MOST)
            .thread_name("api")
            .build()?;
        let (end, ended) = oneshot::channel();
        let serve = Arc::new(serve);
        let thread = thread::Builder::new().name("api".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = listen::listen(listener, serve) => {}
                    _ = ended => {}
                }
            });
            // Who is at work ends by itself; the target waits for that, and not this thread.
            runtime.shutdown_background();
        })?;
        Ok(Self {
            path,
            end: Some(end),
            thread: Some(thread),
        })
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
