//! Sockets and files that a driver has opened. Each is closed at once when its last holder lets go:
//! a stream or a file, or an operation on it that is still in flight.

use std::any::Any;
use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use crate::ticket::{Place, Ticket};

/// A socket (listening or connected) of a driver; the driver chooses the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SocketId(pub(crate) u32);

/// An open file of a driver; the driver chooses the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FileId(pub(crate) u32);

/// A socket or a file that a driver has opened. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Handle<Id> {
    /// The driver's name for it.
    pub(crate) id: Id,
    pub(crate) owner: Owner,
}

/// What closes a socket or a file when it is dropped.
#[derive(Debug)]
pub(crate) enum Owner {
    /// A socket of this process.
    Socket(OwnedFd),
    /// A socket or file of another driver, which closes itself.
    Other(#[expect(dead_code, reason = "it is held for its end")] Box<dyn Any>),
}

/// A new connection, accepted or made.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) socket: Handle<SocketId>,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
}

/// A socket as its stream or listener and their operations share it.
pub(crate) struct Socket {
    pub(crate) handle: Handle<SocketId>,
    pub(crate) receiving: Cell<Direction>,
    pub(crate) sending: Cell<Direction>,
}

impl Socket {
    pub(crate) fn new(handle: Handle<SocketId>) -> Rc<Self> {
        Rc::new(Self {
            handle,
            receiving: Cell::default(),
            sending: Cell::default(),
        })
    }

    /// The driver's name for it.
    #[inline]
    pub(crate) fn id(&self) -> SocketId {
        self.handle.id
    }
}

/// The state of one direction of a connection.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Direction {
    #[default]
    Idle,
    /// An operation in the table.
    Busy(Ticket),
    /// A receive past the table.
    Direct(Place),
    /// An operation was dropped half-way: which bytes were moved is unknown, so no more may follow.
    Spoilt,
}

/// A file as its handle and operations share it.
pub(crate) struct OpenFile {
    pub(crate) handle: Handle<FileId>,
    pub(crate) info: Cell<FileInfo>,
}

impl OpenFile {
    pub(crate) fn new(handle: Handle<FileId>, info: FileInfo) -> Rc<Self> {
        let info = Cell::new(info);
        Rc::new(Self { handle, info })
    }

    /// The driver's name for it.
    pub(crate) fn id(&self) -> FileId {
        self.handle.id
    }

    /// What it is.
    pub(crate) fn info(&self) -> FileInfo {
        self.info.get()
    }
}

/// How to open. All false: read-only, must exist, through the page cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Open for writing too.
    pub write: bool,
    /// Create if missing.
    pub create: bool,
    /// Past the page cache where the file system can; [`FileInfo::direct`] tells whether it could.
    pub direct: bool,
    /// Refuse if another process holds it so (advisory lock, `O_EXCL` for block devices).
    pub exclusive: bool,
}

/// The kind of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A kernel block device.
    Block,
}

/// Facts about an open file.
#[derive(Clone, Copy, Debug)]
pub struct FileInfo {
    /// Regular file or block device.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Whether transfers go past the page cache.
    pub direct: bool,
    /// Transfers' offsets and lengths must be multiples of this (1 when not direct; at least the
    /// logical block size on block devices).
    pub alignment: u32,
}
