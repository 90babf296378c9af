//! The handle to the executor of a core, for everything above the runtime.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::task::Waker;

use flashyard_time::{Duration, Time};

use crate::executor::Core;
use crate::flight::Flight;
use crate::handle::{Handle, Socket, SocketId};
use crate::op::Operation;
use crate::sleep::{Sleep, TurnEnd};
use crate::task::Task;
use crate::timer::Precision;
use crate::watch::{Watch, Watched};
use crate::{File, OpenOptions, TcpListener, TcpStream};

/// A handle to the core's executor and driver. Cheap to clone, bound to its thread.
#[derive(Clone)]
pub struct Rt {
    pub(crate) core: Rc<Core>,
}

impl Rt {
    /// The clock of this machine, read at this call; monotonic.
    pub fn now(&self) -> Time {
        self.core.now()
    }

    /// The clock as it was when this turn began: free of cost, and at most a turn old.
    pub fn turn_time(&self) -> Time {
        self.core.turn_time()
    }

    /// Starts a task. It is polled for the first time in this turn, not inside this call.
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + 'static,
    {
        Task::spawn(self.core.queue().clone(), future)
    }

    /// Resolves when `deadline` has come.
    pub fn sleep_until(&self, deadline: Time) -> Sleep {
        Sleep::new(self.core.clone(), deadline, Precision::Usual)
    }

    /// The same, to the microsecond: the core polls the clock for the last 60 us, since its wake-up
    /// from sleep is not exact. For what has to happen at an instant, such as the end of an
    /// emulated I/O. A core that always has one of these ahead never sleeps.
    pub fn sleep_until_precise(&self, deadline: Time) -> Sleep {
        Sleep::new(self.core.clone(), deadline, Precision::Precise)
    }

    /// Resolves after `span`.
    pub fn sleep(&self, span: Duration) -> Sleep {
        self.sleep_until(self.now() + span)
    }

    /// Resolves when every task that could run in this turn has run: the moment to send what they
    /// gathered.
    pub fn turn_end(&self) -> TurnEnd {
        TurnEnd::new(self.core.clone())
    }

    /// The same on behalf of a task that waits for something else: `waker`, which is that task's,
    /// is woken at the end of this turn. It need not be polled before only to begin to wait.
    #[inline]
    pub fn turn_end_for(&self, waker: Waker) -> TurnEnd {
        TurnEnd::begun(self.core.clone(), waker)
    }

    /// Listens for TCP connections (address reuse on, backlog 1024). Errors of the operating
    /// system, such as address in use, are returned.
    pub fn listen(&self, addr: SocketAddr) -> io::Result<TcpListener> {
        let listening = self.core.with_driver(|driver| driver.listen(addr))?;
        Ok(self.listener(listening))
    }

    /// Accepts from a socket of this process that listens already. Only for the real machine.
    pub fn listen_on(&self, listener: std::net::TcpListener) -> io::Result<TcpListener> {
        let listening = self.core.with_driver(|driver| driver.adopt(listener))?;
        Ok(self.listener(listening))
    }

    fn listener(&self, (handle, addr): (Handle<SocketId>, SocketAddr)) -> TcpListener {
        TcpListener::new(self.core.clone(), Socket::new(handle), addr)
    }

    /// Opens a TCP connection with `TCP_NODELAY`.
    pub async fn connect(&self, addr: SocketAddr) -> io::Result<TcpStream> {
        let (_, result) = Flight::start(&self.core, Operation::Connect { addr }).await;
        TcpStream::of_outcome(&self.core, result)
    }

    /// Takes over a connection that another core gave away.
    pub fn attach(&self, stream: crate::Detached) -> TcpStream {
        TcpStream::attach(&self.core, stream)
    }

    /// Opens a file or a block device. Done at once (open is a slow-path call).
    pub fn open(&self, path: &Path, options: OpenOptions) -> io::Result<File> {
        let (handle, info) = self.core.with_driver(|driver| driver.open(path, options))?;
        Ok(File::new(self.core.clone(), handle, info))
    }

    /// Looks at `watched` in every turn from now on.
    pub fn watch(&self, watched: Rc<dyn Watched>) -> Watch {
        self.core.watches().add(watched)
    }

    /// Which core (0, 1, ...) of its machine this is.
    pub fn core(&self) -> usize {
        self.core.index()
    }

    /// A random number: from the operating system, or from the world's seed.
    pub fn random(&self) -> u64 {
        self.core.with_driver(|driver| driver.random())
    }
}

impl fmt::Debug for Rt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Rt(core {})", self.core.index())
    }
}
