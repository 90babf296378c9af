//! The boundary between the executor and its two drivers. The executor owns tasks, timers and the
//! operation table; a driver performs operations, tells the time and, in the simulated world,
//! decides what goes first. `uring` is dispatched statically, `sim` through the trait object.

use std::any::Any;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;

use flashyard_time::{Duration, Time};

use crate::Gather;
use crate::handle::{FileId, FileInfo, Handle, OpenOptions, SocketId};
use crate::op::{Completion, Operation};
use crate::table::Table;
use crate::ticket::Ticket;
use crate::uring::Uring;
use crate::zone::Zoned;

/// A connection between two cores. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) enum Loose {
    /// A file descriptor of this process.
    Fd(OwnedFd),
    /// Whatever the simulated world names its sockets by.
    Simulated(Box<dyn Any + Send>),
}

/// The interface of a driver. Nothing here calls back into the executor; a driver never keeps a
/// reference to an operation beyond the call, it finds it again in the table by its ticket (the
/// address stays the same until the completion has been handed out, so the kernel may keep pointers
/// into it).
pub(crate) trait Drive {
    /// The clock, read now; monotonic.
    fn now(&mut self) -> Time;

    /// A random number.
    fn random(&mut self) -> u64;

    /// Which of `ready` tasks (at least 1), counted from the one that has waited longest, is polled
    /// next.
    fn pick(&mut self, ready: usize) -> usize {
        let _ = ready;
        0
    }

    /// Starts an operation. Its end is reported by `reap`, exactly once, never before this call
    /// returns.
    fn submit(&mut self, ticket: Ticket, operation: &mut Operation);

    /// Whether a receive may stay out of the table, where `used` are. The core then has the driver
    /// try it with every `flush`.
    fn receives_directly(&mut self, used: usize) -> bool {
        let _ = used;
        false
    }

    /// Sends what a socket takes at once, if anything is to be sent past the table. Gives the
    /// number of bytes; 0 leaves everything, also any error, to `submit`.
    fn send_now(&mut self, socket: SocketId, gather: &Gather) -> io::Result<usize> {
        let _ = (socket, gather);
        Ok(0)
    }

    /// Asks for an early end of an operation that has been submitted and not reaped. It still ends
    /// exactly once, with whatever result.
    fn cancel(&mut self, ticket: Ticket, operation: &mut Operation);

    /// Appends the operations that have ended, without waiting.
    fn reap(&mut self, table: &mut Table, done: &mut Vec<Completion>);

    /// The end of a turn: submits to the kernel. `wait`: if nothing has ended, sleep until
    /// something does, `until` has come or the core is kicked. The simulated world never asks to
    /// wait: it knows when each of its cores has something to do.
    fn flush(&mut self, table: &mut Table, wait: Wait);

    /// A listening socket and its real address.
    fn listen(&mut self, addr: SocketAddr) -> io::Result<(Handle<SocketId>, SocketAddr)>;

    /// A listening socket of this process, and its address. A simulated machine has none.
    fn adopt(&mut self, listener: TcpListener) -> io::Result<(Handle<SocketId>, SocketAddr)> {
        drop(listener);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Ends both directions of a connection now.
    fn shutdown(&mut self, socket: SocketId);

    /// The same, and what the peer has not taken is forgotten.
    fn abort(&mut self, socket: SocketId);

    /// Has the system drop a peer that acknowledges or takes nothing for so long.
    fn set_patience(&mut self, socket: SocketId, span: Duration);

    /// Takes a connection out of this driver. No operation on it is in flight.
    fn detach(&mut self, socket: Handle<SocketId>) -> Loose;

    /// Takes a connection in.
    fn attach(&mut self, loose: Loose) -> Handle<SocketId>;

    /// Opens a file or a block device.
    fn open(&mut self, path: &Path, options: OpenOptions)
    -> io::Result<(Handle<FileId>, FileInfo)>;

    /// The size of a regular file at this moment.
    fn size(&mut self, file: FileId) -> io::Result<u64>;

    /// Sets the size of a regular file.
    fn set_size(&mut self, file: FileId, size: u64) -> io::Result<()>;

    /// The zone parameters of a file; nothing when it is not a zoned block device.
    fn zoned(&mut self, file: FileId) -> io::Result<Option<Zoned>>;
}

/// What `flush` may do when nothing has ended. The simulated world asks for [`Wait::No`] only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Return at once: there is work.
    No,
    /// There is no work, but some is expected soon: look out for it for a moment.
    Spin,
    /// Sleep until something happens, at the latest until this instant.
    Until(Time),
}

/// The driver of one core.
pub(crate) enum Driver {
    /// The real machine.
    Uring(Box<Uring>),
    /// A core of a simulated machine.
    Sim(Box<dyn Drive>),
}

macro_rules! dispatch {
    ($self:ident, $driver:ident => $call:expr) => {
        match $self {
            Driver::Uring($driver) => $call,
            Driver::Sim($driver) => $call,
        }
    };
}

/// What every turn asks for is dispatched statically.
impl Driver {
    /// The driver, for rare calls.
    pub(crate) fn seldom(&mut self) -> &mut dyn Drive {
        match self {
            Self::Uring(driver) => &mut **driver,
            Self::Sim(driver) => &mut **driver,
        }
    }

    pub(crate) fn now(&mut self) -> Time {
        dispatch!(self, driver => driver.now())
    }

    pub(crate) fn submit(&mut self, ticket: Ticket, operation: &mut Operation) {
        dispatch!(self, driver => driver.submit(ticket, operation));
    }

    #[inline]
    pub(crate) fn receives_directly(&mut self, used: usize) -> bool {
        dispatch!(self, driver => driver.receives_directly(used))
    }

    #[inline]
    pub(crate) fn send_now(&mut self, socket: SocketId, gather: &Gather) -> io::Result<usize> {
        dispatch!(self, driver => driver.send_now(socket, gather))
    }

    pub(crate) fn cancel(&mut self, ticket: Ticket, operation: &mut Operation) {
        dispatch!(self, driver => driver.cancel(ticket, operation));
    }

    pub(crate) fn reap(&mut self, table: &mut Table, done: &mut Vec<Completion>) {
        dispatch!(self, driver => driver.reap(table, done));
    }

    pub(crate) fn flush(&mut self, table: &mut Table, wait: Wait) {
        dispatch!(self, driver => driver.flush(table, wait));
    }
}
