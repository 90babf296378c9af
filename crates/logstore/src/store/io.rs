//! What the store asks its driver to do, and the table of I/Os in flight.

use alloc::vec::Vec;
use core::fmt;

use crate::entry::{Entry, LEAF_CHUNKS, Lineage};
use crate::format::batch::Lane;
use crate::format::{BLOCK_SECTORS, SECTOR, chunk_sum};

/// Blocks of a host's read or write at most, wherever it begins in a chunk.
pub const MOST_BLOCKS: u32 = 32;
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
    /// A snapshot of the volume is being made, or it is being restored.
    Changing,
    /// It is a snapshot, which takes no writes and has no snapshots.
    Snapshot,
    /// The volume has snapshots.
    HasSnapshots,
    /// The snapshot has clones.
    HasClones,
    /// There are newer snapshots of the volume.
    NotNewest,
    /// The volume has as many snapshots as it can have.
    TooManySnapshots,
    /// There is no such form of chunks, or the volume has another one.
    Form,
    /// There are as many volumes as a pool can have.
    TooManyVolumes,
    /// That much cannot be reserved, only so many blocks.
    Space(u64),
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
            Self::Changing => "another snapshot of the volume is just being made or restored",
            Self::Snapshot => "a snapshot takes no writes and has no snapshots of its own",
            Self::HasSnapshots => "the volume has snapshots; delete them first",
            Self::HasClones => "the snapshot has clones; delete them first",
            Self::NotNewest => "there are newer snapshots of the volume; delete them first",
            Self::TooManySnapshots => "the volume has as many snapshots as it can have; delete one",
            Self::Form => "the volume does not store its chunks like that",
            Self::TooManyVolumes => "the pool has as many volumes as it can have; delete one",
            Self::Space(_) => "there is not so much free; reserve less",
            Self::ReadOnly => "the pool can only be read",
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
    /// Blocks of a read, from its `first` one, are zeroes.
    Zeroes {
        /// The read.
        request: Request,
        /// The first, counted from the beginning of the read.
        first: u32,
        /// How many.
        blocks: u32,
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
    /// Sectors of a host's write, as its chunks are stored one after another.
    Host {
        /// The write.
        request: Request,
        /// The first, counted from the beginning of the write.
        first: u32,
        /// How many.
        sectors: u32,
    },
    /// What an earlier read gave.
    Copy {
        /// The read.
        read: Tag,
        /// The first sector of it.
        first: u32,
        /// How many.
        sectors: u32,
    },
    /// So many sectors of zeroes.
    Gap(u32),
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
    /// For a host's read: which, and the first of its blocks that these are.
    pub host: Option<(Request, u32)>,
    pub(super) purpose: Purpose,
    /// Chunks that were read, with their checksums.
    pub(super) chunks: Vec<Read>,
    /// Pages of the map that are written, in order.
    pub(super) targets: Vec<Target>,
    /// Sectors that moves still need of what was read.
    pub(super) copies: u32,
    pub(super) tries: u8,
    in_flight: bool,
    /// Whose it is; a batch, or what is read for a request, of those listed.
    pub(super) payer: Payer,
    pub(super) payers: Vec<(Lineage, u64)>,
}

/// A chunk that is read, as it is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    /// Whose data they are.
    pub lineage: Lineage,
    /// Which chunk.
    pub chunk: u64,
    /// The first of its sectors in what is read.
    pub first: u32,
    /// Its sectors.
    pub sectors: u32,
    /// How it is compressed; 0 when it is not.
    pub codec: u8,
    pub(super) crc: u32,
}

impl Read {
    /// A chunk that lies where its entry says, read by an I/O that begins at this block.
    pub(super) fn new(lineage: Lineage, chunk: u64, entry: Entry, block: u64) -> Self {
        Self {
            lineage,
            chunk,
            first: (entry.address() - block * BLOCK_SECTORS) as u32,
            sectors: entry.sectors(),
            codec: entry.codec(),
            crc: entry.crc,
        }
    }

    /// Its bytes in what was read; nothing when that is too short.
    pub fn of<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let from = self.first as usize * SECTOR;
        bytes.get(from..from + self.sectors as usize * SECTOR)
    }

    /// Whether they are what was written.
    pub(super) fn is_good(&self, bytes: &[u8]) -> bool {
        self.of(bytes).is_some_and(|bytes| self.is_stored_as(bytes))
    }

    /// Whether it is stored as these bytes.
    pub(super) fn is_stored_as(&self, bytes: &[u8]) -> bool {
        chunk_sum(self.lineage, self.chunk, bytes) == self.crc
    }
}

impl Io {
    /// The chunks that a read of data gives, in order.
    pub fn chunks(&self) -> &[Read] {
        &self.chunks
    }

    /// Whether what is read is as it was written, and fills the blocks: nothing is compressed.
    pub fn is_plain(&self) -> bool {
        self.chunks.iter().all(|chunk| chunk.codec == 0)
    }
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
    /// Records of a segment that is scrubbed, and what else is.
    ScrubList,
    Scrub,
    /// What recovery wants to know.
    Recover(u32),
}

/// Whose an I/O is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Payer {
    /// Nobody's in particular.
    #[default]
    Pool,
    /// Of those that are listed with it.
    Listed,
    /// Of those for whom garbage is collected.
    Collection,
    /// Of those for whom the map is written.
    Map,
}

impl Purpose {
    fn payer(self) -> Payer {
        match self {
            Self::Batch(Lane::Collector, _) | Self::Collect | Self::List(_) => Payer::Collection,
            Self::Batch(..) => Payer::Listed,
            Self::MapRun | Self::Superblock | Self::Footer(_) => Payer::Map,
            _ => Payer::Pool,
        }
    }
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
                chunks: Vec::new(),
                targets: Vec::new(),
                copies: 0,
                tries: 0,
                in_flight: true,
                payer: Payer::Pool,
                payers: Vec::new(),
            });
            self.all.len() as u32 - 1
        });
        let io = &mut self.all[number as usize];
        (io.op, io.block, io.blocks, io.purpose) = (op, block, blocks, purpose);
        (io.host, io.copies, io.tries, io.in_flight) = (None, 0, 0, true);
        io.payer = purpose.payer();
        io.payers.clear();
        io.parts.clear();
        io.own.clear();
        io.chunks.clear();
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
