//! A lane: its open segment, the batch that is being filled, and those in flight.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use super::io::{Part, Request, Tag};
use super::segments::Geometry;
use crate::chunk::{Stored, begin};
use crate::entry::Lineage;
use crate::format::BLOCK_SECTORS;
use crate::format::batch::{Lane, Place, Record};

/// Listed segments that hosts leave to garbage collection, which needs some to empty others.
pub(super) const KEPT: u32 = 8;

/// Listed segments that a lane leaves for others; garbage collection those in which failed batches
/// are written again.
pub(super) fn kept(lane: Lane) -> u32 {
    match lane {
        Lane::Latency | Lane::User => KEPT,
        Lane::Collector => 2,
    }
}

/// Who is answered when a batch is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Waiter {
    pub request: Request,
    pub lineage: Lineage,
    /// Answered when the batch is durable.
    pub durable: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Fate {
    #[default]
    InFlight,
    Done,
    Failed,
}

/// Records and data that are written in one write.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub number: u64,
    pub sequence: u64,
    pub checksum: u64,
    pub segment: u32,
    pub block: u32,
    /// Sectors of data, with gaps.
    pub data: u32,
    pub records: Vec<Record>,
    /// Under which number the memory tables know each record.
    pub layers: Vec<Lineage>,
    pub parts: Vec<Part>,
    pub waiters: Vec<Waiter>,
    pub tag: Option<Tag>,
    pub fate: Fate,
    /// Items of the segment's footer before it.
    pub items_before: usize,
}

impl Batch {
    /// Blocks with the header, and those that fill the last row.
    pub fn blocks(&self, geometry: Geometry) -> u32 {
        geometry.whole(1 + self.data.div_ceil(BLOCK_SECTORS as u32))
    }

    /// Adds data, to the last part if they follow it.
    pub fn push(&mut self, part: Part) {
        let last = self.parts.last_mut();
        match (last, part) {
            (
                Some(Part::Host {
                    request,
                    first,
                    sectors,
                }),
                Part::Host {
                    request: other,
                    first: next,
                    sectors: more,
                },
            ) if *request == other && *first + *sectors == next => *sectors += more,
            (
                Some(Part::Copy {
                    read,
                    first,
                    sectors,
                }),
                Part::Copy {
                    read: other,
                    first: next,
                    sectors: more,
                },
            ) if *read == other && *first + *sectors == next => *sectors += more,
            _ => self.parts.push(part),
        }
    }

    /// Makes place for `sectors` of data with this codec; gives the first of them, counted from the
    /// header on.
    pub fn take(&mut self, sectors: u32, codec: u8) -> u32 {
        let first = begin(self.data.into(), codec) as u32;
        if first > self.data {
            self.parts.push(Part::Gap(first - self.data));
        }
        self.data = first + sectors;
        first
    }

    /// Empty, with the memory of its lists.
    pub fn clear(&mut self) {
        self.records.clear();
        self.layers.clear();
        self.parts.clear();
        self.waiters.clear();
        (self.data, self.tag, self.fate) = (0, None, Fate::InFlight);
    }
}

/// Where a lane's last complete batch ends.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct End {
    pub number: u64,
    pub sequence: u64,
    pub checksum: u64,
    pub segment: u32,
    pub block: u32,
}

/// What a host has asked and what could not begin yet.
#[derive(Debug)]
pub(super) struct Waiting {
    pub waiter: Waiter,
    pub chunk: u64,
    pub ask: Ask,
}

impl Waiting {
    pub fn chunks(&self) -> Range<u64> {
        match &self.ask {
            Ask::Write(stored) => self.chunk..self.chunk + stored.len() as u64,
            Ask::Trim(chunks) => chunks.clone(),
        }
    }
}

/// What waits for space.
#[derive(Debug)]
pub(super) struct Parked {
    pub waiting: Waiting,
    /// The leaf that says how much it takes, if it waits for that.
    pub page: Option<u32>,
}

impl Parked {
    pub fn lineage(&self) -> Lineage {
        self.waiting.waiter.lineage
    }
}

#[derive(Debug)]
pub(super) enum Ask {
    Write(Vec<Stored>),
    Trim(Range<u64>),
}

#[derive(Debug, Default)]
pub(super) struct LaneState {
    pub segment: Option<Place>,
    /// Items of its footer, encoded.
    pub items: Vec<u8>,
    pub open: Option<Batch>,
    pub in_flight: VecDeque<Batch>,
    /// The number of the last batch that was issued.
    pub issued: u64,
    /// The checksum of the last batch that was issued.
    pub checksum: u64,
    /// That of the last batch before the segment.
    pub before_segment: u64,
    pub complete: End,
    /// Number and sequence of the last batch that is durable.
    pub durable: (u64, u64),
    pub waiting: VecDeque<Waiting>,
    /// A batch has failed: nothing is issued until all in flight have ended.
    pub failing: bool,
    /// What is to be written again, in order.
    pub redo: VecDeque<Batch>,
    pub failures: u32,
    /// It has no segment to go on with.
    pub starved: bool,
}

impl LaneState {
    pub fn is_idle(&self) -> bool {
        self.open.is_none() && self.in_flight.is_empty() && self.redo.is_empty()
    }
}
