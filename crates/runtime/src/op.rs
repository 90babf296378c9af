//! Operations of a driver, and their results. An operation owns its buffers, and holds the socket
//! or file that it is on.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use crate::handle::{Connected, Direction, OpenFile, Socket};
use crate::remains::Held;
use crate::ticket::Ticket;
use crate::zone::{Zone, ZoneAction};
use crate::{Buf, Chunk, Gather, Lent, Shared};

/// An operation. Sockets and files are held by the operation: they are closed when the
/// last operation on them has ended.
pub(crate) enum Operation {
    /// Wait for a connection on a listening socket. Ends with [`Outcome::Connected`].
    Accept { listener: Rc<Socket> },
    /// Open a connection. Ends with [`Outcome::Connected`].
    Connect { addr: SocketAddr },
    /// Receive what is there.
    Receive(Receive),
    /// Send all of `gather`; `sent` bytes of it are sent already (the driver's to count). Ends with
    /// [`Outcome::Done`].
    Send {
        socket: Rc<Socket>,
        gather: Gather,
        sent: usize,
    },
    /// Read `buf.len()` bytes at `offset`; `moved` bytes are there already (the driver's to count).
    /// Ends with [`Outcome::Bytes`], fewer only at the end of the file.
    Read {
        file: Rc<OpenFile>,
        buf: Buf,
        offset: u64,
        moved: usize,
    },
    /// Write `data` at `offset`; ends with [`Outcome::Bytes`].
    Write {
        file: Rc<OpenFile>,
        data: Shared,
        offset: u64,
        durable: bool,
        moved: usize,
    },
    /// Move data between the file at `offset` and memory that others change meanwhile; `durable`
    /// as for a write. On the real machine only. Ends with [`Outcome::Bytes`].
    Lent {
        file: Rc<OpenFile>,
        memory: Box<Lent>,
        offset: u64,
        way: Way,
        moved: usize,
    },
    /// Make everything written durable. Ends with [`Outcome::Done`], as do those below.
    Sync { file: Rc<OpenFile> },
    /// Free a range; it reads as zeroes.
    Punch {
        file: Rc<OpenFile>,
        offset: u64,
        len: u64,
    },
    /// Make a range read as zeroes, space kept.
    Zero {
        file: Rc<OpenFile>,
        offset: u64,
        len: u64,
    },
    /// Do something with zones of a zoned block device.
    Zone {
        file: Rc<OpenFile>,
        action: ZoneAction,
    },
    /// Wait until a descriptor can be read from, or written to. On the real machine only, as is the
    /// next one.
    Ready { fd: Rc<Held>, write: bool },
    /// Add 1 to an event counter. It ends well, too, when the counter is full: whoever waits for it
    /// has not looked yet.
    Signal { fd: Rc<Held>, one: [u8; 8] },
}

/// Which way data of a file go.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Read,
    Write { durable: bool },
}

/// A receive. Ends with [`Outcome::Bytes`], 0 at the end of the stream; without room with
/// [`Outcome::Chunk`], empty at the end of the stream.
pub(crate) struct Receive {
    pub(crate) socket: Rc<Socket>,
    /// Where the bytes go; nothing when they go into memory of the driver.
    pub(crate) room: Option<Room>,
}

/// Where received bytes go: to `buf[at..]`, and what is more than that to `behind`.
pub(crate) struct Room {
    pub(crate) buf: Buf,
    pub(crate) at: usize,
    pub(crate) behind: Option<Buf>,
}

impl Room {
    /// The memory, in the order in which it is filled.
    #[inline]
    pub(crate) fn pieces(&mut self) -> (&mut [u8], &mut [u8]) {
        let behind = self.behind.as_deref_mut().unwrap_or_default();
        (&mut self.buf[self.at..], behind)
    }
}

/// What ends an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// The other end of a connection: its data come at any time.
    Peer,
    /// A file or block device.
    Device,
    /// This machine: a socket takes what is sent to it at once, as a rule.
    Local,
}

impl Operation {
    /// What ends it.
    pub(crate) fn ended_by(&self) -> EndedBy {
        match self {
            Self::Accept { .. } | Self::Connect { .. } | Self::Receive(_) | Self::Ready { .. } => {
                EndedBy::Peer
            }
            Self::Send { .. } | Self::Signal { .. } => EndedBy::Local,
            Self::Read { .. }
            | Self::Write { .. }
            | Self::Lent { .. }
            | Self::Sync { .. }
            | Self::Punch { .. }
            | Self::Zero { .. }
            | Self::Zone { .. } => EndedBy::Device,
        }
    }

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
            Self::Receive(receive) => Some(&receive.socket.receiving),
            Self::Send { socket, .. } => Some(&socket.sending),
            _ => None,
        }
    }
}

/// The result of an operation that succeeded.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done,
    Bytes(usize),
    Chunk(Chunk),
    Connected(Box<Connected>),
    Zones(Vec<Zone>),
}

impl Outcome {
    /// What a transfer has moved.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Bytes(moved) => moved,
            _ => unreachable!("a transfer brings a number of bytes"),
        }
    }
}

/// The end of one operation, as a driver reports it.
pub(crate) struct Completion {
    pub(crate) ticket: Ticket,
    pub(crate) result: io::Result<Outcome>,
}
