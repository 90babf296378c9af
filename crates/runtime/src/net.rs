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
use std::task::{Context, Poll};

use flashyard_time::Duration;

use crate::driver::Loose;
use crate::executor::Core;
use crate::flight::{Flight, ends_as};
use crate::handle::{Connected, Direction, Socket};
use crate::op::{Operation, Outcome, Receive, Room};
use crate::table::Finished;
use crate::{Buf, Chunk, Gather};

/// A listening socket.
pub struct TcpListener {
    core: Rc<Core>,
    socket: Rc<Socket>,
    addr: SocketAddr,
}

impl TcpListener {
    pub(crate) fn new(core: Rc<Core>, socket: Rc<Socket>, addr: SocketAddr) -> Self {
        Self { core, socket, addr }
    }

    /// Waits for the next connection; `TCP_NODELAY` is set on it.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        let listener = self.socket.clone();
        let (_, result) = Flight::start(&self.core, Operation::Accept { listener }).await;
        TcpStream::of_outcome(&self.core, result)
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
/// Dropping an unfinished receive or send leaves it unknown which bytes were moved: after that,
/// this direction only gives errors.
pub struct TcpStream {
    core: Rc<Core>,
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
            self.core.send_now(self.socket.id(), &gather)
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
        let id = self.socket.id();
        self.core.with_driver(|driver| driver.shutdown(id));
    }

    /// Ends both directions now, and forgets what the peer has not taken: a peer that does not read
    /// holds no memory of the system then. The peer may see a reset.
    pub fn abort(&self) {
        let id = self.socket.id();
        self.core.with_driver(|driver| driver.abort(id));
    }

    /// A peer that leaves what was sent unacknowledged, or takes nothing while there is something
    /// for it, is dropped after about `span` by the system. In the simulated world, where no memory
    /// is at stake, it is not.
    pub fn set_patience(&self, span: Duration) {
        let id = self.socket.id();
        self.core
            .with_driver(|driver| driver.set_patience(id, span));
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
        let (core, socket) = (self.core.clone(), self.socket.clone());
        let (local, peer) = (self.local, self.peer);
        drop(self);
        let socket = Rc::into_inner(socket).expect("an operation is in flight");
        let loose = core.with_driver(|driver| driver.detach(socket.handle));
        Detached { loose, local, peer }
    }

    pub(crate) fn of_outcome(core: &Rc<Core>, result: io::Result<Outcome>) -> io::Result<Self> {
        let Outcome::Connected(connected) = result? else {
            unreachable!("accept and connect bring a connection")
        };
        Ok(Self::new(core, *connected))
    }

    pub(crate) fn attach(core: &Rc<Core>, stream: Detached) -> Self {
        let Detached { loose, local, peer } = stream;
        let socket = core.with_driver(|driver| driver.attach(loose));
        Self::new(
            core,
            Connected {
                socket,
                local,
                peer,
            },
        )
    }

    fn new(core: &Rc<Core>, connected: Connected) -> Self {
        let Connected {
            socket,
            local,
            peer,
        } = connected;
        Self {
            core: core.clone(),
            socket: Socket::new(socket),
            local,
            peer,
        }
    }

    #[inline]
    fn receive(&self, room: Option<Room>) -> Receiving {
        let socket = self.socket.clone();
        let mut receive = Receive { socket, room };
        let receiving = &self.socket.receiving;
        if receiving.get() == Direction::Idle {
            match self.core.receive_directly(receive) {
                Ok(place) => {
                    receiving.set(Direction::Direct(place));
                    return Receiving::Direct(self.core.clone(), self.socket.clone());
                }
                Err(back) => receive = back,
            }
        }
        Receiving::Flight(self.start(receiving, Operation::Receive(receive)))
    }

    fn start(&self, direction: &Cell<Direction>, operation: Operation) -> Flight {
        match direction.get() {
            Direction::Idle => {
                let flight = Flight::start(&self.core, operation);
                direction.set(Direction::Busy(flight.ticket()));
                flight
            }
            Direction::Spoilt => {
                let text = "an earlier operation on this connection was given up half-way";
                let error = io::Error::new(io::ErrorKind::ConnectionAborted, text);
                Flight::fail(&self.core, operation, error)
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
                Direction::Busy(ticket) => self.core.cancel(ticket),
                Direction::Direct(place) => self.core.cancel_direct(place),
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
    Direct(Rc<Core>, Rc<Socket>),
    Flight(Flight),
    Ended,
}

impl Future for Receiving {
    type Output = Filled;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Filled> {
        let ended = match &mut *self {
            Self::Direct(core, socket) => match socket.receiving.get() {
                Direction::Direct(place) => {
                    core.poll_direct(place, context.waker())
                        .map(|(receive, result)| {
                            socket.receiving.set(Direction::Idle);
                            (result, receive.room)
                        })
                }
                Direction::Busy(ticket) => {
                    core.poll_operation(ticket, context.waker()).map(with_room)
                }
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
        Operation::Receive(receive) => (result, receive.room),
        _ => unreachable!("the operation is the one that was started"),
    }
}

impl Drop for Receiving {
    #[inline]
    fn drop(&mut self) {
        if let Self::Direct(core, socket) = self {
            match socket.receiving.get() {
                Direction::Direct(place) => {
                    socket.receiving.set(Direction::Spoilt);
                    core.abandon_direct(place);
                }
                Direction::Busy(ticket) => core.abandon_operation(ticket),
                Direction::Idle | Direction::Spoilt => {}
            }
        }
    }
}

ends_as! {
    /// A receive into the shared ring.
    #[must_use = "dropping it cancels the receive"]
    RecvOp(Receiving) -> io::Result<Chunk> {
        |(result, _)| match result? {
            Outcome::Chunk(chunk) => Ok(chunk),
            _ => unreachable!("a receive brings a chunk"),
        }
    }
}

ends_as! {
    /// A receive into a given buffer.
    #[must_use = "dropping it cancels the receive"]
    RecvIntoOp(Receiving) -> (io::Result<usize>, Buf) {
        |(result, room)| match room {
            Some(room) => (result.map(Outcome::bytes), room.buf),
            None => unreachable!("the operation is the one that was started"),
        }
    }
}

ends_as! {
    /// A receive into two buffers.
    #[must_use = "dropping it cancels the receive"]
    RecvIntoBothOp(Receiving) -> (io::Result<usize>, Buf, Buf) {
        |(result, room)| match room {
            Some(Room {
                buf,
                behind: Some(behind),
                ..
            }) => (result.map(Outcome::bytes), buf, behind),
            _ => unreachable!("the operation is the one that was started"),
        }
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
