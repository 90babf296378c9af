//! Vector commands to the device, and what the owner of the FTL has to do.

use alloc::vec::Vec;

use crate::channel::{MOST_ADDRESSES, Metadata};

/// Names a vector command until its completion was reported.
pub type Tag = u32;

/// What the owner of an FTL has to do next, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Submit the vector command [`Ftl::io`](super::Ftl::io) shows.
    Submit(Tag),
    /// Copy data of a host's write into a slot of the write buffer, now.
    Store {
        /// The command.
        id: u64,
        /// Which of its units, counted from zero.
        unit: u32,
        /// The slot.
        slot: u32,
    },
    /// Copy data for a host's read out of a slot of the write buffer, now.
    Load {
        /// The command.
        id: u64,
        /// Which of its units, counted from zero.
        unit: u32,
        /// The slot.
        slot: u32,
    },
    /// A unit of a host's read is zeros.
    Zeroes {
        /// The command.
        id: u64,
        /// Which of its units, counted from zero.
        unit: u32,
    },
    /// A command is done.
    Done {
        /// The command.
        id: u64,
        /// How it ended.
        outcome: Outcome,
    },
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done. Of a write without [`durable`](super::Op::Write::durable) and a deallocation that
    /// means: until the power goes, or for good after the next flush.
    Success,
    /// The medium has lost data that were to be read.
    Unreadable,
    /// The partition takes no more writes; what it has can be read.
    ReadOnly,
}

/// What a vector command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoOp {
    /// Reads sectors, with their metadata.
    Read,
    /// Writes sectors, with metadata.
    Write,
    /// Resets chunks.
    Reset,
    /// Asks for the report of the chunk at the only address, for
    /// [`Ftl::on_report`](super::Ftl::on_report).
    Report,
}

/// The source or destination of a sector's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A slot of the write buffer.
    Slot(u32),
    /// A page of the FTL: [`Ftl::page`](super::Ftl::page) gives it before a write, and
    /// [`Ftl::on_page`](super::Ftl::on_page) takes it after a read, before the completion is
    /// reported.
    Page,
    /// A host's read: the command and which of its units.
    Host(u64, u32),
    /// Of a write: zeroes. Of a read: data that are not needed.
    Unused,
}

/// A vector command to the device.
#[derive(Clone, Debug)]
pub struct Io {
    pub(super) op: IoOp,
    pub(super) count: u32,
    pub(super) addresses: [u64; MOST_ADDRESSES],
    pub(super) metadata: [Metadata; MOST_ADDRESSES],
    pub(super) parts: [Part; MOST_ADDRESSES],
    /// The numbers of the units; of resets, of the chunks.
    pub(super) units: [u32; MOST_ADDRESSES],
    pub(super) purpose: Purpose,
    pub(super) tries: u8,
    pub(super) busy: bool,
}

/// Why there is a vector command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A host's read: which command.
    Read(u32),
    /// A write into an open chunk.
    Write(u32),
    /// A report of an open chunk.
    Report(u32),
    /// Reads of garbage collection.
    Collect,
    /// Erases chunks of a line.
    Erase(u32),
    /// Reads of recovery.
    Recover,
}

impl Io {
    /// What to do.
    pub fn op(&self) -> IoOp {
        self.op
    }

    /// With these sectors or chunks.
    pub fn addresses(&self) -> &[u64] {
        &self.addresses[..self.count as usize]
    }

    /// What a write stores beside them.
    pub fn metadata(&self) -> &[Metadata] {
        &self.metadata[..self.count as usize]
    }

    /// Where the data of each come from or go to.
    pub fn parts(&self) -> &[Part] {
        &self.parts[..self.count as usize]
    }

    pub(super) fn push(&mut self, unit: u32, address: u64, metadata: Metadata, part: Part) {
        let place = self.count as usize;
        self.units[place] = unit;
        self.addresses[place] = address;
        self.metadata[place] = metadata;
        self.parts[place] = part;
        self.count += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.count as usize == MOST_ADDRESSES
    }
}

/// Vector commands that are made or in flight.
#[derive(Debug, Default)]
pub(super) struct Ios {
    all: Vec<Io>,
    unused: Vec<Tag>,
}

impl Ios {
    /// A command without addresses.
    pub fn begin(&mut self, op: IoOp, purpose: Purpose) -> Tag {
        let tag = self.unused.pop().unwrap_or_else(|| {
            self.all.push(Io {
                op,
                count: 0,
                addresses: [0; MOST_ADDRESSES],
                metadata: [Metadata::default(); MOST_ADDRESSES],
                parts: [Part::Unused; MOST_ADDRESSES],
                units: [0; MOST_ADDRESSES],
                purpose,
                tries: 0,
                busy: false,
            });
            self.all.len() as Tag - 1
        });
        let io = self.get_mut(tag);
        (io.op, io.purpose, io.count) = (op, purpose, 0);
        (io.tries, io.busy) = (0, true);
        tag
    }

    pub fn get(&self, tag: Tag) -> &Io {
        &self.all[tag as usize]
    }

    pub fn get_mut(&mut self, tag: Tag) -> &mut Io {
        &mut self.all[tag as usize]
    }

    /// The command that is in flight as `tag`; nothing when none is.
    pub fn in_flight(&self, tag: Tag) -> Option<&Io> {
        self.all.get(tag as usize).filter(|io| io.busy)
    }

    pub fn release(&mut self, tag: Tag) {
        self.get_mut(tag).busy = false;
        self.unused.push(tag);
    }

    pub fn outstanding(&self) -> usize {
        self.all.len() - self.unused.len()
    }
}

/// Reads that failed once, to be tried again: units and what belongs to them.
pub(super) type Retries = Vec<(u32, Part)>;
