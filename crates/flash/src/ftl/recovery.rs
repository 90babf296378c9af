//! The state of a recovery: what it has found so far.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::io::Tag;
use super::layout::Layout;
use super::stamp::{Root, VERSION};
use crate::channel::{ChunkInfo, ChunkState};

/// Why a partition cannot be recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoverError {
    /// No checkpoint: it was never formatted, or with another key, or formatting was interrupted.
    NotFormatted,
    /// The newest checkpoint cannot be read; an older one would bring back what is gone.
    Unreadable,
    /// It was formatted with another geometry or other units.
    Mismatch,
    /// Its checkpoint has another version than this program writes and reads.
    Version(u32),
    /// Something in it was not written by this partition.
    Foreign {
        /// The sector.
        address: u64,
    },
}

/// What a recovery did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryStats {
    /// Sectors read, those read again included.
    pub read_sectors: u64,
    /// Sectors of lines that were not settled in the checkpoint.
    pub scanned_sectors: u64,
    /// Of these, what could not be read: whose data they were is not known.
    pub unreadable_sectors: u64,
    /// Units whose data should be there and are not.
    pub lost_units: u64,
    /// The checkpoint that was used.
    pub generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Heads,
    Checkpoints,
    Roots,
    Pages,
    Scan,
    Tombstones,
}

/// What is known of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// Sectors that can be read.
    pub readable: u32,
    /// Of its line; 0 when it is erased or cannot be read.
    pub serial: u32,
    pub checkpoint: bool,
    pub tombstones: bool,
    /// The newest checkpoint that has pages in it, and the last sector that says so.
    pub generation: u64,
    pub last: u32,
    /// Pages of the checkpoint that is used are in it.
    pub needed: bool,
}

/// A copy of a logical unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub logical: u32,
    pub unit: u32,
    pub sequence: u64,
}

/// Logical units that have no data from some sequence on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone {
    pub first: u32,
    pub count: u32,
    pub sequence: u64,
}

#[derive(Debug)]
pub(super) struct Recovery {
    pub phase: Phase,
    pub heads: Vec<Head>,
    /// Ranges to read: the next unit and the one behind the last.
    pub work: VecDeque<(u32, u32)>,
    /// Units to read again, and how often they were.
    pub again: Vec<(u32, u8)>,
    pub reads: u32,
    /// Pages that have been taken of the vectors in flight.
    pub taken: Vec<(Tag, u64)>,
    /// Pages and roots of checkpoints: generation, number, unit.
    pub pages: Vec<(u64, u32, u32)>,
    pub roots: Vec<(u64, u32)>,
    pub root: Option<Root>,
    /// Whether each page of the checkpoint has been read.
    pub loaded: Vec<bool>,
    pub entries: Vec<u32>,
    /// Of each page of the map: writes of the host up to this sequence are in it, and none after.
    pub applied: Vec<u64>,
    pub table: Vec<(u32, u32)>,
    pub found: Vec<Found>,
    pub gone: Vec<Gone>,
    pub tombstones: Vec<(u32, u64)>,
    /// Units of checkpoints that cannot be read.
    pub hidden: Vec<u32>,
    pub most_sequence: u64,
    pub most_serial: u32,
    /// Of all checkpoints that were begun.
    pub most_generation: u64,
    pub stats: RecoveryStats,
}

impl Recovery {
    pub fn new(layout: &Layout) -> Self {
        let unknown = Head {
            readable: 0,
            serial: 0,
            checkpoint: false,
            tombstones: false,
            generation: 0,
            last: 0,
            needed: false,
        };
        Self {
            phase: Phase::Heads,
            heads: vec![unknown; layout.chunks() as usize],
            work: VecDeque::new(),
            again: Vec::new(),
            reads: 0,
            taken: Vec::new(),
            pages: Vec::new(),
            roots: Vec::new(),
            root: None,
            loaded: Vec::new(),
            entries: Vec::new(),
            applied: Vec::new(),
            table: vec![(0, 0); layout.lines as usize],
            found: Vec::new(),
            gone: Vec::new(),
            tombstones: Vec::new(),
            hidden: Vec::new(),
            most_sequence: 0,
            most_serial: 0,
            most_generation: 0,
            stats: RecoveryStats::default(),
        }
    }

    /// A chunk is not erased.
    pub fn found(&mut self, layout: &Layout, chunk: u32, info: &ChunkInfo) {
        let readable = match info.state {
            ChunkState::Closed => info.write_pointer,
            ChunkState::Open => info.write_pointer.saturating_sub(layout.distance),
            ChunkState::Free | ChunkState::Offline => 0,
        };
        self.heads[chunk as usize].readable = readable.min(layout.chunk_units);
        if readable > 0 {
            let first = layout.unit(chunk, 0);
            self.work.push_back((first, first + 1));
        }
    }

    /// The page that is in a unit.
    pub fn page_at(&self, unit: u32) -> Option<(u64, u32, u32)> {
        let found = self.pages.binary_search_by_key(&unit, |(_, _, at)| *at);
        found.ok().map(|place| self.pages[place])
    }

    /// Has everything readable of chunks read.
    pub fn read_chunks(&mut self, layout: &Layout, wanted: impl Fn(u32, &Head) -> bool) {
        for (chunk, head) in (0..).zip(&self.heads) {
            if head.readable > 0 && wanted(chunk, head) {
                let first = layout.unit(chunk, 0);
                self.work.push_back((first, first + head.readable));
            }
        }
    }
}

impl fmt::Display for RecoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFormatted => {
                f.write_str("no checkpoint was found: the partition has to be created anew")
            }
            Self::Unreadable => {
                f.write_str("the newest checkpoint cannot be read; an older one would bring back old data")
            }
            Self::Mismatch => f.write_str(
                "the partition was made with other units or another geometry: use those in the same order",
            ),
            Self::Version(version) => write!(
                f,
                "its checkpoint has version {version}, this program reads version {VERSION}: \
                 use the program that wrote it"
            ),
            Self::Foreign { address } => {
                write!(f, "sector {address:#x} was not written by this partition")
            }
        }
    }
}

impl core::error::Error for RecoverError {}
