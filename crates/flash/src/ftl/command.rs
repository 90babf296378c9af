//! Commands of the host, and what those in flight wait for.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use super::io::Outcome;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads units.
    Read,
    /// Writes units.
    Write {
        /// Answered when a power cut would not lose it (FUA).
        durable: bool,
    },
    /// Units shall read as zeros; what they held may be forgotten.
    Deallocate,
    /// Makes everything durable that was answered before.
    Flush,
    /// A flush, and a checkpoint: the next recovery has little to read.
    Stop,
}

/// A command of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// What actions call it by; should be unique among those in flight.
    pub id: u64,
    /// What to do.
    pub op: Op,
    /// The first unit; of no account for a flush.
    pub first: u64,
    /// Units; of no account for a flush.
    pub count: u32,
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The FTL is being formatted or recovered, or that failed.
    NotReady,
    /// No units, or some beyond the capacity.
    OutOfRange,
    /// Too many commands are in flight.
    QueueFull,
}

/// Units without data from some point on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub first: u32,
    pub count: u32,
    pub sequence: u64,
}

impl Record {
    pub fn covers(&self, logical: u32) -> bool {
        logical.wrapping_sub(self.first) < self.count
    }
}

/// Commands and what they wait for.
#[derive(Debug, Default)]
pub(super) struct Host {
    pub commands: Vec<Active>,
    pub unused: Vec<u32>,
    /// Writes and deallocations that have not got slots for all their units.
    pub waiting: VecDeque<u32>,
    /// What waits until the ring has got to a position, in order.
    pub flushes: VecDeque<(u64, u32)>,
    /// What waits for the checkpoint of a generation.
    pub stops: VecDeque<(u64, u32)>,
    /// Records in slots of the ring that are not in effect: of the two slots that have a copy each,
    /// the second.
    pub records: Vec<(u32, Record)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Active {
    pub command: Command,
    /// Units that have got their slots.
    pub stored: u32,
    /// Vectors that a read waits for.
    pub reads: u32,
    pub outcome: Outcome,
}

impl Host {
    pub fn is_waiting(&self) -> bool {
        !(self.waiting.is_empty() && self.flushes.is_empty() && self.stops.is_empty())
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReady => "the partition is being prepared or could not be recovered",
            Self::OutOfRange => "no units, or some beyond the capacity",
            Self::QueueFull => "too many commands are in flight",
        })
    }
}

impl core::error::Error for Rejected {}
