//! The log-structured store of mapped volumes, as decisions: formats, map, garbage collection,
//! checkpoints and recovery. It holds no payload and does no I/O; whoever places it on a device
//! (its *driver*) does both.
//!
//! # How the store is driven
//!
//! The driver hands in what hosts ask, does what [`Store::poll`] says until it says nothing more,
//! and reports the end of each I/O:
//!
//! ```text
//! store.write(request, volume, chunk, &stored, fua)   compressed and summed (chunk_sum)
//! store.read / trim / flush / create_volume / change_volume / delete_volume / check
//! store.snapshot / clone_snapshot / restore
//! while let Some(action) = store.poll() {
//!     Submit(tag)        => store.io(tag) says what: write, read, flush, discard, superblock.
//!                           The parts of a write are bytes of the store, sectors of a host's write
//!                           as they are stored, what an earlier read gave (a move), or a gap.
//!                           A read whose data are as hosts see them goes to the host's buffer;
//!                           another one is decompressed by io.chunks().
//!     Zeroes { .. }      => these blocks of a host's read are zeroes
//!     Forget(tag)        => the buffer of that read is not needed any more
//!     Done { .. }        => answer the request; data of its write are not needed any more
//! }
//! store.completed(tag, Ok(bytes) or Err(IoError))   bytes of a read, which the store verifies
//! ```
//!
//! A read of a host goes to the driver's buffer for that request; it is valid when the request is
//! done with success. A `tag` names an I/O until its end was reported and, for a read whose
//! data are moved, until `Forget`. Requests are numbers of the driver's choice, one at a time each.
//!
//! The unit of hosts is a chunk, of 4 or 16 KiB as the volume's [`Form`] says. Smaller writes are
//! the driver's: it reads, merges and writes under an exclusive range, which writes of whole chunks
//! take as well. Reads and writes have up to [`Form::most_chunks`], trims up to [`MOST_TRIM`];
//! longer ones are cut by the driver, so that no turn takes long.
//!
//! To open a pool the driver reads the copies of the superblock ([`COPIES`] places of
//! [`SUPERBLOCK`] bytes, which it chooses) and gives them to [`Store::open`]; from then on it polls
//! as ever, and hosts may come when the [`State`] is `Ready`.
//!
//! # What holds
//!
//! A flush, and a write with `fua`, is answered when what it covers survives a power cut. Answered
//! writes are read from then on; a chunk whose last write was not flushed is after a cut as one of
//! the writes since the last flush left it, or as that flush found it. What was read once after an
//! opening never changes by a later cut. Data are verified whenever they are read; what the medium
//! has lost is an error for its chunk, never older or foreign data.
//!
//! # How
//!
//! Data go to free *segments* in *batches*: a header with records, and their payload, in one
//! write. The header is the journal. Each *lane* (latency, user, collector) has its own open
//! segment; its batches are answered, made durable and recovered in order. A batch that fails
//! closes its segment, and it and all behind it are written again before any is answered.
//!
//! The [memory table](Table) has every record since the last cut, leaves of a radix tree have the
//! older ones. A *checkpoint* freezes the table, changes and writes each touched leaf once, then
//! the segment table and catalogue at the same cut, then superblocks A and B, then C and D, with
//! a flush before each pair and at the end. Only then is anything freed.
//!
//! Recovery reads the superblock, the map but for its leaves, and the segments that the superblock
//! lists, nothing else. It commits a new incarnation, which says where the log of the former one
//! ends, before the first I/O: what recovery decided is never decided again.
//! Each header says how far its lane was durable. Where the log ends before that, recovery looks
//! beyond for headers that say so: the medium has lost a part, and the pool can only be read.
//!
//! A volume is a stack of *layers*. A snapshot ends one at a cut and begins the next, with a tree
//! that is empty; leaves of it name the layer below that has what they inherit. An address is in
//! one leaf only, whatever has the chunk, so garbage collection changes one entry. A layer that is
//! deleted gives its leaves to the next one, some in each checkpoint. A clone is a volume above a
//! snapshot.
//!
//! A volume claims what it takes with its snapshots, or what is [reserved](Store::reserve) for it;
//! no write is taken that would make all claims more than the pool has, or those of an owner more
//! than its [quota](Store::set_quota). What waits for a cut to know holds up nobody else.
//!
//! What is compressed is packed to sectors of 512 bytes; all else begins at a whole block.
//! Checksums are of the stored bytes, so garbage collection and the check need no codec and no key.
//!
//! A device that has become larger is [taken up](Store::grow) by a cut: the superblock that says so
//! is the first that lists segments behind the former end.
//!
//! A device may take whole rows only (parity): then every write to a segment begins and ends with a
//! row, and each row is written once in each use of its segment ([`Geometry::row`]).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod chunk;
mod entry;
pub mod format;
mod keyed;
mod store;
mod table;

pub use chunk::{CHUNK_SHIFTS, Form, MOST_CODEC, Stored};
pub use entry::{CHUNK_BITS, Entry, LEAF_CHUNKS, Lineage};
pub use format::superblock::{COPIES, SUPERBLOCK};
pub use keyed::Secret;
pub use store::{
    Action, Difference, Geometry, Growth, Io, IoError, IoOp, MOST_BLOCKS, MOST_RANGES,
    MOST_SNAPSHOTS, MOST_TRIM, MOST_VOLUMES, OpenError, Options, Outcome, Owned, Part, Parts,
    Problem, RESERVED_UNIT, Read, ReadOnly, Refused, Report, Request, Scrubbed, Space, State,
    Stats, Store, Tag, Tally, Volume,
};
pub use table::{Full, Known, MOST_RECORDS, MOST_TRIMS, Table};
