//! The executor: tasks, time, and the loop that turns. One turn: take all that has finished, run every task
//! that became ready until none is left, then [`TurnEnd`] waiters, then submit once.

use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use flashyard_time::{Duration, Time};

use crate::{File, OpenOptions, TcpListener, TcpStream};

/// A handle to the core's executor and driver. Cheap to clone, bound to its thread.
#[derive(Clone, Debug)]
pub struct Rt {}

impl Rt {
    /// The clock of this machine, read once per turn and at every call here; monotonic.
    pub fn now(&self) -> Time {
        unimplemented!()
    }

    /// Starts a task. It is polled for the first time in this turn, not inside this call.
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + 'static,
    {
        let _ = future;
        unimplemented!()
    }

    /// Resolves when `deadline` has come.
    pub fn sleep_until(&self, deadline: Time) -> Sleep {
        let _ = deadline;
        unimplemented!()
    }

    /// Resolves after `span`.
    pub fn sleep(&self, span: Duration) -> Sleep {
        self.sleep_until(self.now() + span)
    }

    /// Resolves when every task that could run in this turn has run: the moment to send what they gathered.
    pub fn turn_end(&self) -> TurnEnd {
        unimplemented!()
    }

    /// Listens for TCP connections (address reuse on, backlog 1024). `Unsupported address in use` and such come
    /// as the operating system's error.
    pub fn listen(&self, addr: SocketAddr) -> io::Result<TcpListener> {
        let _ = addr;
        unimplemented!()
    }

    /// Opens a TCP connection with `TCP_NODELAY`.
    pub async fn connect(&self, addr: SocketAddr) -> io::Result<TcpStream> {
        let _ = addr;
        unimplemented!()
    }

    /// Takes over a connection that another core gave away.
    pub fn attach(&self, stream: crate::Detached) -> TcpStream {
        let _ = stream;
        unimplemented!()
    }

    /// Opens a file or a block device. Done at once (open is a slow-path call).
    pub fn open(&self, path: &Path, options: OpenOptions) -> io::Result<File> {
        let _ = (path, options);
        unimplemented!()
    }

    /// Which core (0, 1, ...) of its machine this is.
    pub fn core(&self) -> usize {
        unimplemented!()
    }

    /// A random number: from the operating system, or from the world's seed.
    pub fn random(&self) -> u64 {
        unimplemented!()
    }
}

/// A running task. Dropping it cancels the task (its future is dropped, its operations are cancelled);
/// [`Task::detach`] lets it run on. As a future it gives the task's result.
#[derive(Debug)]
pub struct Task<T> {
    result: PhantomData<T>,
}

impl<T> Task<T> {
    /// Lets the task run to its end on its own.
    pub fn detach(self) {}

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        unimplemented!()
    }
}

impl<T> Future for Task<T> {
    type Output = T;
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        unimplemented!()
    }
}

/// Many short tasks of one type without an allocation each: a bounded set of reusable places. `run` polls the
/// future at once, in place; only if it has to wait does it become a task of its own. Made for one command
/// each of a connection. Dropping the pool cancels all.
pub struct CommandPool<F: Future<Output = ()>> {
    future: PhantomData<F>,
}

impl<F: Future<Output = ()> + 'static> CommandPool<F> {
    /// A pool for at most `capacity` waiting futures; memory is taken as it is needed and kept.
    pub fn new(rt: &Rt, capacity: usize) -> Self {
        let _ = (rt, capacity);
        unimplemented!()
    }

    /// Polls `future` now; keeps it as a task if it is not ready. `Err` gives it back unpolled when `capacity`
    /// futures are waiting.
    pub fn run(&self, future: F) -> Result<(), F> {
        let _ = future;
        unimplemented!()
    }

    /// How many futures are waiting.
    pub fn waiting(&self) -> usize {
        unimplemented!()
    }
}

/// See [`Rt::sleep_until`].
#[derive(Debug)]
pub struct Sleep {}

impl Future for Sleep {
    type Output = ();
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        unimplemented!()
    }
}

/// See [`Rt::turn_end`].
#[derive(Debug)]
pub struct TurnEnd {}

impl Future for TurnEnd {
    type Output = ();
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        unimplemented!()
    }
}
