//! The store: everything it knows, and how it is set up.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

use super::accounts::Accounts;
use super::cache::Cache;
use super::check::{Checker, Report};
use super::checkpoint::{Checkpoint, MapWriter};
use super::collector::Collector;
use super::differ::{Differ, Difference};
use super::flusher::Flusher;
use super::io::{Action, Io, Ios, Request, Tag};
use super::lane::{Batch, KEPT, LaneState, Parked};
use super::map::{Pages, Tree};
use super::payers::Payers;
use super::reads::Reads;
use super::recovery::{OpenError, Recovery};
use super::scrubber::{Scrubbed, Scrubber};
use super::segments::{Geometry, Segments, Use};
use crate::chunk::Form;
use crate::entry::{Entry, Lineage};
use crate::format::batch::Lane;
use crate::format::rows::{LABEL, VolumeRow};
use crate::format::superblock::{LogEntry, Superblock};
use crate::keyed::Secret;
use crate::table::Table;

/// Pages that the catalogue of volumes can have.
pub(super) const CATALOGUE_PAGES: u32 = 64;
/// Snapshots of a volume at most.
pub const MOST_SNAPSHOTS: usize = 256;
/// Volumes and snapshots of a pool at most.
pub const MOST_VOLUMES: usize = CATALOGUE_PAGES as usize * 15;

/// What may be chosen each time a pool is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Records of the memory table; never more than a 64th of the pool's chunks, if those are 256.
    pub records: usize,
    /// Leaves in memory, 4 KiB each.
    pub leaves: usize,
    /// Segments that hold nothing are deallocated on the device.
    pub discard: bool,
    /// A number that tenants do not know.
    pub seed: u64,
    /// Batches in flight in a lane while an incomplete one is issued at once.
    pub at_once: usize,
    /// Blocks written since the last flush at which the store flushes by itself.
    pub unproved_blocks: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            records: 1 << 20,
            leaves: 1 << 14,
            discard: false,
            seed: 0,
            at_once: 4,
            unproved_blocks: (64 << 20) / 4096,
        }
    }
}

/// Why a pool can only be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadOnly {
    /// The device has failed writes.
    Device,
    /// The medium has lost a part of the log that was durable: volumes are as they were before.
    Log,
}

/// How a store is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Writes its first superblocks, or reads what a former life has left.
    Opening,
    /// Takes all requests.
    Ready,
    /// Takes reads.
    ReadOnly(ReadOnly),
    /// It could not be opened.
    Failed(OpenError),
}

/// What was done since the store was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Blocks of host data in batches.
    pub host_blocks: u64,
    /// Blocks of data that were moved.
    pub moved_blocks: u64,
    /// Blocks of headers and footers.
    pub header_blocks: u64,
    /// Blocks of the map.
    pub map_blocks: u64,
    /// Checkpoints that are durable.
    pub checkpoints: u64,
    /// Superblocks written between checkpoints.
    pub commits: u64,
    /// Segments that were emptied.
    pub victims: u64,
    /// Batches that were written again.
    pub reissued: u64,
    /// Chunks and pages that did not verify when they were read.
    pub bad_reads: u64,
    /// Chunks that were lost, found by garbage collection.
    pub poisoned: u64,
    /// Pages of the map of which the second copy was needed, or none was good.
    pub bad_pages: u64,
    /// Blocks that recovery read.
    pub recovery_blocks: u64,
}

/// What a pool has, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// What volumes may use.
    pub capacity: u64,
    /// What they use, the map included; after the last checkpoint more by what is pending.
    pub used: u64,
    /// What is kept for some of them beside that.
    pub reserved: u64,
    /// Segments that can be written before garbage collection has to make room; negative when it
    /// lags behind. What a host pays for grows as this falls.
    pub headroom: i64,
}

/// What is stored of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Chunks that are mapped.
    pub chunks: u64,
    /// Sectors of 512 bytes that they take.
    pub sectors: u64,
    /// How many of them are compressed.
    pub packed: u64,
}

impl Tally {
    /// One entry more.
    pub(super) fn add(&mut self, entry: Entry) {
        self.chunks += u64::from(entry.is_stored());
        self.sectors += u64::from(entry.sectors());
        self.packed += u64::from(entry.is_stored() && entry.codec() != 0);
    }

    /// What was counted `before` is not there any more, and this is.
    pub(super) fn change(&mut self, before: Self, now: Self) {
        let change = |all: &mut u64, before: u64, now: u64| {
            *all = all.saturating_add(now).saturating_sub(before);
        };
        change(&mut self.chunks, before.chunks, now.chunks);
        change(&mut self.sectors, before.sectors, now.sectors);
        change(&mut self.packed, before.packed, now.packed);
    }

    /// The sectors that are charged: never more than a device has, whatever a catalogue says.
    pub(super) fn cost(self) -> u64 {
        let most = 1 << 50;
        self.sectors.saturating_add(self.packed).min(most)
    }
}

/// A mapped volume, or a snapshot of one.
#[derive(Debug)]
pub struct Volume {
    /// Its number.
    pub lineage: Lineage,
    /// Whose data it holds: its own number, or for a snapshot that of its volume.
    pub data: Lineage,
    /// The snapshot below it, which has what it inherits.
    pub parent: Option<Lineage>,
    /// Its size in chunks.
    pub chunks: u64,
    /// What it stores itself, at the last cut.
    pub tally: Tally,
    /// How it keeps its chunks.
    pub form: Form,
    /// Chunks that snapshots below it store, at the last cut.
    pub shared: u64,
    /// When the driver has said that it was made; 0 for what is no snapshot.
    pub made: u64,
    /// What is kept for it and its snapshots, in MiB.
    pub reserved: u32,
    /// What the driver wants to know of it.
    pub label: [u8; LABEL],
    /// It is being deleted, and takes nothing.
    pub deleting: bool,
    pub(super) epoch: u32,
    pub(super) lane: Lane,
    /// The last batch of each lane with its records.
    pub(super) last: [u64; 3],
    pub(super) tree: Tree,
}

impl Volume {
    /// A volume in which nothing was written yet.
    pub(super) fn new(lineage: Lineage, chunks: u64, label: [u8; LABEL]) -> Self {
        Self {
            lineage,
            data: lineage,
            parent: None,
            chunks,
            tally: Tally::default(),
            form: Form::default(),
            shared: 0,
            made: 0,
            reserved: 0,
            label,
            deleting: false,
            epoch: 1,
            lane: Lane::User,
            last: [0; 3],
            tree: Tree::default(),
        }
    }

    /// Whether it is a snapshot: it takes no writes.
    pub fn is_snapshot(&self) -> bool {
        self.data != self.lineage
    }

    pub(super) fn row(&self) -> VolumeRow {
        VolumeRow {
            lineage: self.lineage,
            deleting: self.deleting,
            epoch: self.epoch,
            data: self.data,
            parent: self.parent,
            chunks: self.chunks,
            root: self.tree.root(),
            mapped: self.tally.chunks,
            sectors: self.tally.sectors,
            packed: self.tally.packed,
            form: self.form,
            shared: self.shared,
            made: self.made,
            reserved: self.reserved,
            label: self.label,
        }
    }
}

/// What may be used of a pool, and what is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Records of the memory table.
    pub records: usize,
    /// Blocks of log at which a cut is due: as many as those records take, each in a batch.
    pub log_blocks: u64,
    /// Segments that only checkpoints take.
    pub map_reserve: u32,
    /// Headroom below which garbage collection works.
    pub lead: u32,
    /// Blocks that volumes and their maps may use.
    pub capacity: u64,
    /// Segments that a superblock lists, if there are as many.
    pub listed: u32,
}

impl Limits {
    /// Nothing when there are too few segments to work at all.
    pub fn new(geometry: Geometry, options: &Options) -> Option<Self> {
        if !geometry.is_possible() {
            return None;
        }
        let blocks = u64::from(geometry.segments) * u64::from(geometry.segment_blocks);
        let records = options
            .records
            .min((blocks / 64) as usize)
            .clamp(256, 1 << 20);
        // Every record may be of another leaf; what stands above the leaves is written twice.
        let pages = records as u64 + records as u64 / 8 + 16 + u64::from(geometry.segments) / 60;
        // Each phase of a checkpoint fills the last row of its two runs.
        let pages = pages + 6 * u64::from(geometry.row - 1);
        let map = pages.div_ceil(u64::from(geometry.segment_blocks)) as u32 + 2;
        let map_reserve = 2 * map;
        let lead = (geometry.segments / 12).max(4);
        let rest = geometry
            .segments
            .checked_sub(map_reserve + lead + 2 * KEPT)?;
        // Somewhere there is always a segment with less in it than is worth to move.
        let capacity = u64::from(rest) * u64::from(geometry.most_live()) * 97 / 100;
        (capacity > 0).then_some(Self {
            records,
            log_blocks: 2 * records as u64,
            map_reserve,
            lead,
            capacity,
            listed: (geometry.segments / 16).clamp(2 * KEPT, 256),
        })
    }
}

/// The store of a pool's mapped volumes.
#[derive(Debug)]
pub struct Store {
    pub(super) pool: [u8; 16],
    pub(super) secret: Secret,
    pub(super) options: Options,
    pub(super) limits: Limits,
    pub(super) state: State,
    pub(super) ios: Ios,
    pub(super) out: VecDeque<Action>,
    pub(super) segments: Segments,
    pub(super) pages: Pages,
    pub(super) cache: Cache,
    /// Leaves being read.
    pub(super) loading: BTreeSet<u32>,
    /// Leaves that the medium has lost.
    pub(super) lost: BTreeSet<u32>,
    /// Volumes and snapshots.
    pub(super) volumes: BTreeMap<Lineage, Volume>,
    /// Snapshots, by volume and the epoch that they have ended.
    pub(super) snapshots: BTreeMap<(Lineage, u32), Lineage>,
    pub(super) next_lineage: u32,
    pub(super) active: Table,
    pub(super) frozen: Table,
    /// What volumes take, and what is kept for them.
    pub(super) accounts: Accounts,
    /// Writes for which there is no space now.
    pub(super) parked: Vec<Parked>,
    pub(super) lanes: [LaneState; 3],
    /// Batches to be used again.
    pub(super) spare: Vec<Batch>,
    pub(super) flusher: Flusher,
    pub(super) reads: Reads,
    pub(super) writers: [MapWriter; 2],
    pub(super) checkpoint: Checkpoint,
    pub(super) collector: Collector,
    pub(super) payers: Payers,
    pub(super) checker: Option<Checker>,
    pub(super) scrubber: Option<Scrubber>,
    pub(super) scrubbed: Scrubbed,
    pub(super) differ: Option<Differ>,
    /// What the last comparison found.
    pub(super) difference: Option<Difference>,
    /// What the last check found.
    pub(super) report: Option<Report>,
    pub(super) recovery: Option<Recovery>,
    /// The newest durable superblock.
    pub(super) superblock: Superblock,
    /// What recovery decided of the log and leaves do not know yet.
    pub(super) decided: Vec<LogEntry>,
    /// A part of the log that was durable is missing.
    pub(super) is_cut_short: bool,
    pub(super) incarnation: u32,
    /// The sequence of the last batch.
    pub(super) sequence: u64,
    /// The segment that was given last.
    pub(super) hand: u32,
    pub(super) stats: Stats,
    /// Something has changed: another look may find more to do.
    pub(super) progress: bool,
}

impl Store {
    /// What to do next; nothing until something completes or is asked.
    pub fn poll(&mut self) -> Option<Action> {
        if self.out.is_empty() {
            self.step();
        }
        self.out.pop_front()
    }

    /// What was decided already, and no more. A driver that takes many requests in one turn calls
    /// this after each, and [`poll`](Self::poll) at the end of the turn: then what they write goes
    /// in as few batches as can be.
    pub fn decided(&mut self) -> Option<Action> {
        self.out.pop_front()
    }

    /// Whether the data of a read that has ended are needed until [`Action::Forget`].
    pub fn keeps(&self, tag: Tag) -> bool {
        self.ios.get(tag).copies > 0
    }

    /// An I/O that is to be submitted or in flight.
    ///
    /// # Panics
    /// When no I/O of that tag was ever made.
    pub fn io(&self, tag: Tag) -> &Io {
        self.ios.get(tag)
    }

    /// Whether these blocks of the device lie in segments that hold nothing, and to which nothing
    /// is written before it is asked for.
    pub fn is_unneeded(&self, blocks: Range<u64>) -> bool {
        let segment = |block: u64| Some(self.segments.geometry.locate(block)?.0);
        let ends = segment(blocks.start).zip(segment(blocks.end.saturating_sub(1)));
        let is_free = |segment| self.segments.get(segment).used == Use::Free;
        let all_free = |(first, last)| (first..=last).all(is_free);
        self.state == State::Ready && ends.is_some_and(all_free)
    }

    /// How the store is.
    pub fn state(&self) -> State {
        self.state
    }

    /// The identity of the pool.
    pub fn pool(&self) -> [u8; 16] {
        self.pool
    }

    /// All volumes.
    pub fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.values()
    }

    /// What was done since the store was opened.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// What the pool has.
    pub fn space(&self) -> Space {
        Space {
            capacity: self.limits.capacity,
            used: self.used(),
            reserved: self.accounts.reserved(),
            headroom: self.headroom(),
        }
    }

    /// Whether nothing is in flight or waits.
    pub fn is_idle(&self) -> bool {
        self.ios.outstanding() == 0 && self.out.is_empty()
    }

    /// The newest superblock that is durable in all copies.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Answers a request.
    pub(super) fn answer(&mut self, request: Request, outcome: super::io::Outcome) {
        self.out.push_back(Action::Done { request, outcome });
    }

    /// Blocks in use, at most.
    pub(super) fn used(&self) -> u64 {
        self.accounts.taken() + self.system()
    }

    /// Blocks of the map that belong to no volume.
    fn system(&self) -> u64 {
        2 * self.pages.used().saturating_sub(self.accounts.pages())
    }

    /// Blocks that all volumes may claim.
    pub(super) fn rest(&self) -> u64 {
        self.limits.capacity.saturating_sub(self.system())
    }

    /// Segments that can be written before room has to be made.
    pub(super) fn headroom(&self) -> i64 {
        let there = self.segments.free() + self.segments.listed();
        i64::from(there) - i64::from(self.limits.map_reserve + self.limits.lead)
    }
}
