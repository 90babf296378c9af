//! TCP. A stream's operations own what they work on; dropping the stream cancels them and closes the socket.

use std::io;
use std::net::SocketAddr;

use crate::{Buf, Gather, RecvIntoOp, RecvOp, SendOp};

/// A listening socket.
#[derive(Debug)]
pub struct TcpListener {}

impl TcpListener {
    /// Waits for the next connection; `TCP_NODELAY` is set on it.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        unimplemented!()
    }

    /// The address it listens on (the port is real even if 0 was asked for).
    pub fn local_addr(&self) -> SocketAddr {
        unimplemented!()
    }
}

/// One TCP connection. At most one receive and one send may be in flight at a time (asserted).
#[derive(Debug)]
pub struct TcpStream {}

impl TcpStream {
    /// Receives what is there, at most 16 KiB, into the core's shared ring: an idle connection holds no memory.
    /// An empty chunk is the peer's end of stream.
    pub fn recv(&self) -> RecvOp {
        unimplemented!()
    }

    /// Receives into `buf[at..]` (payload straight to where it belongs, or a big batch). Gives the number of
    /// bytes, 0 at the end of the stream.
    pub fn recv_into(&self, buf: Buf, at: usize) -> RecvIntoOp {
        let _ = (buf, at);
        unimplemented!()
    }

    /// Sends everything in `gather`, in order; gives it back uncleared.
    pub fn send(&self, gather: Gather) -> SendOp {
        let _ = gather;
        unimplemented!()
    }

    /// Ends both directions now: pending operations finish with what they have or an error.
    pub fn shutdown(&self) {
        unimplemented!()
    }

    /// The other end's address.
    pub fn peer_addr(&self) -> SocketAddr {
        unimplemented!()
    }

    /// This end's address.
    pub fn local_addr(&self) -> SocketAddr {
        unimplemented!()
    }

    /// Gives the connection away to another core, see [`crate::Rt::attach`].
    ///
    /// # Panics
    /// When an operation is in flight.
    pub fn detach(self) -> Detached {
        unimplemented!()
    }
}

/// A connection on its way to another core.
#[derive(Debug)]
pub struct Detached {}
