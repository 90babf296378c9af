//! TCP. A stream's operations own what they work on; dropping the stream cancels them and closes
//! the socket. A send that the socket takes at once, and a receive that the core tries by itself,
//! are in no table: they become operations of the driver only when they have to wait there.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use flashyard_time::Duration;

use crate::direct::{Place, Receive};
use crate::driver::{Connected, Drive, Loose, SocketId};
use crate::executor::Core;
use crate::op::{Finished, Flight, Operation, Outcome, Room, Ticket};
use crate::{Buf, Chunk, Gather};

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
    /// An operation in the table.
    Busy(Ticket),
    /// A receive past the table.
    Direct(Place),
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
    #[inline]
    pub(crate) fn id(&self) -> SocketId {
        self.id
    }

    /// The end of the receive past the table.
    #[inline]
    fn end_direct(&self, place: Place, waker: &Waker) -> Option<Filled> {
        let (receive, result) = self.core.poll_direct(place, waker)?;
        self.receiving.set(Direction::Idle);
        Some((result, receive.room))
    }

    /// The receive that went past the table is in it now.
    pub(crate) fn receive_in_table(&self, ticket: Ticket) {
        self.receiving.set(Direction::Busy(ticket));
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
    #[inline]
    pub fn recv(&self) -> RecvOp {
        RecvOp(self.receive(None))
    }

    /// Receives into `buf[at..]` (payload straight to where it belongs, or a big batch). Gives the
    /// number of bytes, 0 at the end of the stream.
    ///
    /// # Panics
    /// When nothing of `buf` is behind `at`.
    pub fn recv_into(&self, buf: Buf, at: usize) -> RecvIntoOp {
        assert!(at < buf.len(), "no room behind {at} of {} bytes", buf.len());
        let behind = None;
        RecvIntoOp(self.receive(Some(Room { buf, at, behind })))
    }

    /// The same; what is more than `buf` has room for goes to `behind` in the same call: the rest
    /// of some payload straight to where it belongs, and what follows it.
    ///
    /// # Panics
    /// When nothing of `buf` is behind `at`.
    pub fn recv_into_both(&self, buf: Buf, at: usize, behind: Buf) -> RecvIntoBothOp {
        assert!(at < buf.len(), "no room behind {at} of {} bytes", buf.len());
        let behind = Some(behind);
        RecvIntoBothOp(self.receive(Some(Room { buf, at, behind })))
    }

    /// Sends everything in `gather`, in order; gives it back uncleared. What the socket takes at
    /// once is gone when this returns.
    #[inline]
    pub fn send(&self, gather: Gather) -> SendOp {
        let sent = if self.socket.sending.get() == Direction::Idle {
            self.socket.core.send_now(self.socket.id, &gather)
        } else {
            Ok(0)
        };
        match sent {
            Ok(sent) if sent < gather.len() || sent == 0 => {
                let operation = Operation::Send {
                    socket: self.socket.clone(),
                    gather,
                    sent,
                };
                SendOp(Send::Flight(self.start(&self.socket.sending, operation)))
            }
            result => SendOp(Send::Ended(Some((result.map(drop), gather)))),
        }
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
        let Outcome::Connected(connected) = result? else {
            unreachable!("accept and connect bring a connection")
        };
        let Connected { id, local, peer } = *connected;
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

    #[inline]
    fn receive(&self, room: Option<Room>) -> Receiving {
        let socket = &self.socket;
        if socket.receiving.get() == Direction::Idle && socket.core.receives_directly() {
            let receive = Receive {
                socket: socket.clone(),
                room,
            };
            let place = socket.core.receive_directly(receive);
            socket.receiving.set(Direction::Direct(place));
            return Receiving::Direct(socket.clone());
        }
        let socket = socket.clone();
        let operation = match room {
            Some(room) => Operation::RecvInto { socket, room },
            None => Operation::Recv { socket },
        };
        Receiving::Flight(self.start(&self.socket.receiving, operation))
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
            Direction::Busy(_) | Direction::Direct(_) => {
                panic!("one receive and one send at a time")
            }
        }
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        for direction in [&self.socket.receiving, &self.socket.sending] {
            match direction.get() {
                Direction::Busy(ticket) => self.socket.core.cancel(ticket),
                Direction::Direct(place) => self.socket.core.cancel_direct(place),
                Direction::Idle | Direction::Spoilt => {}
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

/// How a receive ended, and what it had to fill.
type Filled = (io::Result<Outcome>, Option<Room>);

/// A receive as its future has it.
enum Receiving {
    /// Past the table, or in it since the core has given it to the driver; the socket knows.
    Direct(Rc<Socket>),
    Flight(Flight),
    Ended,
}

impl Receiving {
    #[inline]
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Filled> {
        let ended = match self {
            Self::Direct(socket) => match socket.receiving.get() {
                Direction::Direct(place) => socket.end_direct(place, context.waker()),
                Direction::Busy(ticket) => socket
                    .core
                    .poll_operation(ticket, context.waker())
                    .map(with_room),
                Direction::Idle | Direction::Spoilt => unreachable!("it has not ended"),
            },
            Self::Flight(flight) => return Pin::new(flight).poll(context).map(with_room),
            Self::Ended => panic!("polled after it was ready"),
        };
        match ended {
            Some(ended) => {
                *self = Self::Ended;
                Poll::Ready(ended)
            }
            None => Poll::Pending,
        }
    }
}

/// The end of a receive that was in the table.
fn with_room((operation, result): Finished) -> Filled {
    match operation {
        Operation::RecvInto { room, .. } => (result, Some(room)),
        _ => (result, None),
    }
}

impl Drop for Receiving {
    #[inline]
    fn drop(&mut self) {
        if let Self::Direct(socket) = self {
            match socket.receiving.get() {
                Direction::Direct(place) => {
                    socket.receiving.set(Direction::Spoilt);
                    socket.core.abandon_direct(place);
                }
                Direction::Busy(ticket) => socket.core.abandon_operation(ticket),
                Direction::Idle | Direction::Spoilt => {}
            }
        }
    }
}

/// A receive into the shared ring.
#[must_use = "dropping it cancels the receive"]
pub struct RecvOp(Receiving);

impl Future for RecvOp {
    type Output = io::Result<Chunk>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context).map(|(result, _)| match result? {
            Outcome::Chunk(chunk) => Ok(chunk),
            _ => unreachable!("a receive brings a chunk"),
        })
    }
}

/// A receive into a given buffer.
#[must_use = "dropping it cancels the receive"]
pub struct RecvIntoOp(Receiving);

impl Future for RecvIntoOp {
    type Output = (io::Result<usize>, Buf);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context).map(|(result, room)| match room {
            Some(room) => (result.map(Outcome::bytes), room.buf),
            None => unreachable!("the operation is the one that was started"),
        })
    }
}

/// A receive into two buffers.
#[must_use = "dropping it cancels the receive"]
pub struct RecvIntoBothOp(Receiving);

impl Future for RecvIntoBothOp {
    type Output = (io::Result<usize>, Buf, Buf);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context).map(|(result, room)| match room {
            Some(Room {
                buf,
                behind: Some(behind),
                ..
            }) => (result.map(Outcome::bytes), buf, behind),
            _ => unreachable!("the operation is the one that was started"),
        })
    }
}

/// A gathered send.
#[must_use = "dropping it cancels the send"]
pub struct SendOp(Send);

enum Send {
    /// The socket took all of it, or has failed.
    Ended(Option<(io::Result<()>, Gather)>),
    Flight(Flight),
}

impl Future for SendOp {
    type Output = (io::Result<()>, Gather);

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Send::Ended(ended) => Poll::Ready(ended.take().expect("polled after it was ready")),
            Send::Flight(flight) => {
                Pin::new(flight)
                    .poll(context)
                    .map(|(operation, result)| match operation {
                        Operation::Send { gather, .. } => (result.map(drop), gather),
                        _ => unreachable!("the operation is the one that was started"),
                    })
            }
        }
    }
}
