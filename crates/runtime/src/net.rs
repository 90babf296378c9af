//! TCP. A stream's operations own what they work on; dropping the stream cancels them and closes
//! the socket.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use flashyard_time::Duration;

use crate::driver::{Connected, Drive, Loose, SocketId};
use crate::executor::Core;
use crate::op::{Flight, Operation, Outcome, Ticket};
use crate::{Buf, Gather, RecvIntoOp, RecvOp, SendOp};

/// A socket as streams and operations share it; closed when the last of them lets go.
pub(crate) struct Socket {
    core: Rc<Core>,
    id: SocketId,
    receiving: Cell<Direction>,
    sending: Cell<Direction>,
    /// Given away: not to be closed.
    detached: Cell<bool>,
}

/// What is going on in one direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Idle,
    Busy(Ticket),
    /// An operation was dropped half-way: which bytes went is unknown, so no more may follow.
    Spoilt,
}

impl Socket {
    pub(crate) fn new(core: Rc<Core>, id: SocketId) -> Rc<Self> {
        let (receiving, sending) = (Cell::new(Direction::Idle), Cell::new(Direction::Idle));
        Rc::new(Self {
            core,
            id,
            receiving,
            sending,
            detached: Cell::new(false),
        })
    }

    /// The driver's name for it.
    pub(crate) fn id(&self) -> SocketId {
        self.id
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.detached.get() {
            self.core.with_driver(|driver| driver.close_socket(self.id));
        }
    }
}

impl Operation {
    /// The operation has ended and leaves the table: its direction is free again.
    pub(crate) fn settle(&self) {
        if let Some(direction) = self.direction()
            && let Direction::Busy(_) = direction.get()
        {
            direction.set(Direction::Idle);
        }
    }

    /// The operation's future was dropped before its end was known.
    pub(crate) fn spoil(&self) {
        if let Some(direction) = self.direction() {
            direction.set(Direction::Spoilt);
        }
    }

    fn direction(&self) -> Option<&Cell<Direction>> {
        match self {
            Self::Recv { socket } | Self::RecvInto { socket, .. } => Some(&socket.receiving),
            Self::Send { socket, .. } => Some(&socket.sending),
            _ => None,
        }
    }
}

/// A listening socket.
pub struct TcpListener {
    socket: Rc<Socket>,
    addr: SocketAddr,
}

impl TcpListener {
    pub(crate) fn new(socket: Rc<Socket>, addr: SocketAddr) -> Self {
        Self { socket, addr }
    }

    /// Waits for the next connection; `TCP_NODELAY` is set on it.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        let core = &self.socket.core;
        let (_, result) = core
            .start(Operation::Accept {
                listener: self.socket.clone(),
            })
            .await;
        TcpStream::of_outcome(core, result)
    }

    /// The address it listens on (the port is real even if 0 was asked for).
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TcpListener({})", self.addr)
    }
}

/// One TCP connection. At most one receive and one send may be in flight at a time (asserted).
/// Dropping an unfinished receive or send leaves open which bytes went: after it, that direction
/// only gives errors.
pub struct TcpStream {
    socket: Rc<Socket>,
    local: SocketAddr,
    peer: SocketAddr,
}

impl TcpStream {
    /// Receives what is there, at most 16 KiB, into the core's shared ring: an idle connection
    /// holds no memory. An empty chunk is the peer's end of stream.
    pub fn recv(&self) -> RecvOp {
        RecvOp(self.start(
            &self.socket.receiving,
            Operation::Recv {
                socket: self.socket.clone(),
            },
        ))
    }

    /// Receives into `buf[at..]` (payload straight to where it belongs, or a big batch). Gives the
    /// number of bytes, 0 at the end of the stream.
    ///
    /// # Panics
    /// When nothing of `buf` is behind `at`.
    pub fn recv_into(&self, buf: Buf, at: usize) -> RecvIntoOp {
        assert!(at < buf.len(), "no room behind {at} of {} bytes", buf.len());
        let operation = Operation::RecvInto {
            socket: self.socket.clone(),
            buf,
            at,
        };
        RecvIntoOp(self.start(&self.socket.receiving, operation))
    }

    /// Sends everything in `gather`, in order; gives it back uncleared.
    pub fn send(&self, gather: Gather) -> SendOp {
        let operation = Operation::Send {
            socket: self.socket.clone(),
            gather,
            sent: 0,
        };
        SendOp(self.start(&self.socket.sending, operation))
    }

    /// Ends both directions now: pending operations finish with what they have or an error.
    pub fn shutdown(&self) {
        self.socket
            .core
            .with_driver(|driver| driver.shutdown(self.socket.id));
    }

    /// Ends both directions now, and forgets what the peer has not taken: who does not read holds
    /// no memory of the system then. The peer may see a reset.
    pub fn abort(&self) {
        self.socket
            .core
            .with_driver(|driver| driver.abort(self.socket.id));
    }

    /// Whoever leaves what was sent unacknowledged, or takes nothing while there is something for
    /// it, is dropped after about `span` by the system. In the simulated world, where no memory is
    /// at stake, it is not.
    pub fn set_patience(&self, span: Duration) {
        self.socket
            .core
            .with_driver(|driver| driver.set_patience(self.socket.id, span));
    }

    /// The other end's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// This end's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Gives the connection away to another core, see [`crate::Rt::attach`].
    ///
    /// # Panics
    /// When an operation is in flight.
    pub fn detach(self) -> Detached {
        let socket = &self.socket;
        assert_eq!(Rc::strong_count(socket), 1, "an operation is in flight");
        socket.detached.set(true);
        let loose = socket.core.with_driver(|driver| driver.detach(socket.id));
        Detached {
            loose,
            local: self.local,
            peer: self.peer,
        }
    }

    pub(crate) fn of_outcome(core: &Rc<Core>, result: io::Result<Outcome>) -> io::Result<Self> {
        let Outcome::Connected(Connected { id, local, peer }) = result? else {
            unreachable!("accept and connect bring a connection")
        };
        Ok(Self {
            socket: Socket::new(core.clone(), id),
            local,
            peer,
        })
    }

    pub(crate) fn attach(core: &Rc<Core>, stream: Detached) -> Self {
        let Detached { loose, local, peer } = stream;
        let id = core.with_driver(|driver| driver.attach(loose));
        Self {
            socket: Socket::new(core.clone(), id),
            local,
            peer,
        }
    }

    fn start(&self, direction: &Cell<Direction>, operation: Operation) -> Flight {
        match direction.get() {
            Direction::Idle => {
                let flight = self.socket.core.start(operation);
                direction.set(Direction::Busy(flight.ticket()));
                flight
            }
            Direction::Spoilt => {
                let text = "an earlier operation on this connection was given up half-way";
                let error = io::Error::new(io::ErrorKind::ConnectionAborted, text);
                self.socket.core.fail(operation, error)
            }
            Direction::Busy(_) => panic!("one receive and one send at a time"),
        }
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        for direction in [&self.socket.receiving, &self.socket.sending] {
            if let Direction::Busy(ticket) = direction.get() {
                self.socket.core.cancel(ticket);
            }
        }
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TcpStream({} to {})", self.local, self.peer)
    }
}

/// A connection on its way to another core. Dropping it closes the connection.
#[derive(Debug)]
pub struct Detached {
    loose: Loose,
    local: SocketAddr,
    peer: SocketAddr,
}
