//! What the store asks its driver to do, and the table of I/Os in flight.

use alloc::vec::Vec;
use core::fmt;

use crate::entry::{LEAF_CHUNKS, Lineage};
use crate::format::batch::Lane;

/// Chunks of a read or a write at most.
pub const MOST_CHUNKS: u32 = 32;
/// Chunks of a trim at most.
pub const MOST_TRIM: u64 = 64 * LEAF_CHUNKS;

/// A request of a host, numbered by the driver; no two in flight have the same.
pub type Request = u64;

/// Why a request was not taken. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The store is being opened, or could not be.
    NotReady,
    /// There is no such volume, or it is being deleted.
    NoVolume,
    /// No chunks, too many, or some beyond the end of the volume.
    Range,
    /// The volume has I/O that is not durable yet.
    Busy,
    /// There are as many volumes as a pool can have.
    TooManyVolumes,
    /// The device has failed writes.
    ReadOnly,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReady => "the pool is being opened or could not be opened",
            Self::NoVolume => "there is no such volume",
            Self::Range => "no chunks, too many, or some beyond the end of the volume",
            Self::Busy => "the volume has I/O that is not durable yet; flush it first",
            Self::TooManyVolumes => "the pool has as many volumes as it can have; delete one",
            Self::ReadOnly => "the device has failed writes; the pool can only be read",
        })
    }
}

impl core::error::Error for Refused {}

/// An I/O of the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Tag(pub u32);

/// What is to be done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Do the I/O that [`io`](super::Store::io) describes, and report its end.
    Submit(Tag),
    /// The data of this read are not needed any more.
    Forget(Tag),
    /// Chunks of a read, from its `first` one, are zeroes.
    Zeroes {
        /// The read.
        request: Request,
        /// The first, counted from the beginning of the read.
        first: u32,
        /// How many.
        chunks: u32,
    },
    /// A request is done.
    Done {
        /// Which.
        request: Request,
        /// How it ended.
        outcome: Outcome,
    },
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As it was asked.
    Success,
    /// The medium has lost data in this range.
    MediaError,
    /// The pool is full; a trim or a delete makes room.
    NoSpace,
    /// The device has failed writes: the pool takes none any more.
    ReadOnly,
}

/// What an I/O does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoOp {
    /// Writes the parts one after another.
    Write,
    /// Reads, for the store or for a host's request.
    Read,
    /// Makes all completed writes durable.
    Flush,
    /// Tells the device that the blocks hold nothing.
    Discard,
    /// Writes a copy of the superblock, whose place the driver knows.
    WriteSuperblock(u8),
}

/// A part of what is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// All bytes in [`Io::own`].
    Own,
    /// Chunks of a host's write.
    Host {
        /// The write.
        request: Request,
        /// The first, counted from the beginning of the write.
        first: u32,
        /// How many.
        chunks: u32,
    },
    /// What an earlier read gave.
    Copy {
        /// The read.
        read: Tag,
        /// The first block of it.
        first: u32,
        /// How many.
        blocks: u32,
    },
}

/// Why an I/O failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoError {
    /// The device could not do it.
    Failed,
    /// Below a thin device there is no space.
    NoSpace,
}

/// An I/O of the store.
#[derive(Debug)]
pub struct Io {
    /// What it does.
    pub op: IoOp,
    /// The first block of the device.
    pub block: u64,
    /// Blocks.
    pub blocks: u32,
    /// What is written.
    pub parts: Vec<Part>,
    /// Bytes of the store that are written.
    pub own: Vec<u8>,
    /// For a host's read: which, and the first of its chunks that these are.
    pub host: Option<(Request, u32)>,
    pub(super) purpose: Purpose,
    /// Chunks that were read, with their checksums.
    pub(super) sums: Vec<Sum>,
    /// Pages of the map that are written, in order.
    pub(super) targets: Vec<Target>,
    /// Moves that still need what was read.
    pub(super) copies: u32,
    pub(super) tries: u8,
    in_flight: bool,
}

/// What a chunk has to be when it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sum {
    pub lineage: Lineage,
    pub chunk: u64,
    pub crc: u32,
}

/// A page of the map on its way to its place, or to its second place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Target {
    pub page: AnyPage,
    pub second: bool,
}

/// A page of the map.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum AnyPage {
    /// One with a number.
    Numbered(u32),
    /// Of the page table.
    Table(u32),
    /// Of the directory.
    Directory(u32),
}

/// Why the store does an I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    None,
    /// A batch of this number.
    Batch(Lane, u64),
    Footer(u32),
    /// A read of a host, in its slot.
    Host(u32),
    Leaf(u32),
    MapRun,
    Flush,
    Superblock,
    Discard(u32),
    /// Records of a victim.
    List(u32),
    /// Data of a victim.
    Collect,
    /// What recovery wants to know.
    Recover(u32),
}

/// I/Os by tag. Their lists keep their memory.
#[derive(Debug, Default)]
pub(super) struct Ios {
    all: Vec<Io>,
    free: Vec<u32>,
}

impl Ios {
    pub fn begin(&mut self, op: IoOp, block: u64, blocks: u32, purpose: Purpose) -> Tag {
        let number = self.free.pop().unwrap_or_else(|| {
            self.all.push(Io {
                op,
                block,
                blocks,
                parts: Vec::new(),
                own: Vec::new(),
                host: None,
                purpose,
                sums: Vec::new(),
                targets: Vec::new(),
                copies: 0,
                tries: 0,
                in_flight: true,
            });
            self.all.len() as u32 - 1
        });
        let io = &mut self.all[number as usize];
        (io.op, io.block, io.blocks, io.purpose) = (op, block, blocks, purpose);
        (io.host, io.copies, io.tries, io.in_flight) = (None, 0, 0, true);
        io.parts.clear();
        io.own.clear();
        io.sums.clear();
        io.targets.clear();
        Tag(number)
    }

    pub fn get(&self, tag: Tag) -> &Io {
        &self.all[tag.0 as usize]
    }

    pub fn get_mut(&mut self, tag: Tag) -> &mut Io {
        &mut self.all[tag.0 as usize]
    }

    /// The purpose of an I/O that has ended now; nothing for one that nobody waits for.
    pub fn end(&mut self, tag: Tag) -> Option<Purpose> {
        let io = self.all.get_mut(tag.0 as usize)?;
        core::mem::take(&mut io.in_flight).then_some(io.purpose)
    }

    /// The same once more.
    pub fn again(&mut self, tag: Tag) {
        let io = self.get_mut(tag);
        io.tries += 1;
        io.in_flight = true;
    }

    pub fn release(&mut self, tag: Tag) {
        self.get_mut(tag).purpose = Purpose::None;
        self.free.push(tag.0);
    }

    /// How many are in flight, or keep data.
    pub fn outstanding(&self) -> usize {
        self.all.len() - self.free.len()
    }
}
