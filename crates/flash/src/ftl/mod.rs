//! A host FTL: an ordinary block device over parallel units of an open-channel device that no other
//! writer uses.
//!
//! It is a state machine: it decides, its owner acts. The owner keeps all payload: the bytes of
//! [`slots`](Ftl::slots) slots of 4 KiB, the write buffer. It [submits](Ftl::submit) commands in
//! units of 4 KiB, does what [`poll`](Ftl::poll) says until it says nothing more, and reports
//! complete vector commands:
//!
//! ```text
//! while let Some(action) = ftl.poll(now) {
//!     Submit(tag)   => by ftl.io(tag): a vector command to the device with those addresses and
//!                      metadata. Data of each sector by its part: a slot, a page (ftl.page before
//!                      a write), a host's read, or unused. A report asks for the state of one
//!                      chunk.
//!     Store / Load  => copy a unit from a host's write into a slot, from a slot to a host's read,
//!                      before the next poll
//!     Zeroes        => a unit of a host's read has no data
//!     Done          => answer the host
//! }
//! ftl.on_page(tag, place, bytes)               for each page that was read, before
//! ftl.on_completion(now, tag, failed, metadata)
//! ftl.on_report(now, tag, chunk)
//! ```
//!
//! [`next_wakeup`](Ftl::next_wakeup) says when to poll though nothing was completed. When the power
//! goes, owner and FTL are forgotten; a new one [recovers](Ftl::recover) from the chunk report and
//! what it reads.
//!
//! **What holds.** A flush, or a durable write, is answered when what it covers can be read after a
//! power cut; until then the copies that were durable before stay. A unit reads as the version that
//! the last flush covers, or as one written since; a deallocated unit as zeros. What the medium has
//! lost reads as [`Unreadable`](Outcome::Unreadable), never as an older version. All units carry a
//! sequence and a checksum over key, place and contents of their metadata. One thing is not so:
//! when a sector goes bad that was written after the last checkpoint, and the power goes too,
//! recovery cannot know whose data were in it. It counts such sectors
//! ([`RecoveryStats::unreadable_sectors`]), and as many units may read as they were before.
//!
//! **How.** Lines of one chunk per parallel unit are filled in write vectors striped over the
//! units, the host's data, moved data and checkpoints in lines of their own. Data that are moved
//! keep their sequence. A checkpoint of the map is written every so often; recovery reads it, and
//! the metadata of what was written since. A tombstone, the record of a deallocation, stays where
//! it is until a checkpoint shows the same. After a recovery nothing else is written or erased
//! before a checkpoint is complete: what recovery decided is never decided again.

mod buffer;
mod checkpoint;
mod collect;
mod command;
mod host;
mod io;
mod layout;
mod lines;
mod map;
mod open_chunks;
mod options;
mod pace;
mod recover;
mod recovery;
mod replay;
mod stamp;
mod stats;
mod write;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use flashyard_time::Time;

pub use command::{Command, Op, Rejected};
pub use io::{Action, Io, IoOp, Outcome, Part, Tag};
pub use options::{BuildError, Choice, Options};
pub use recovery::{RecoverError, RecoveryStats};
pub use stats::{Space, Stats};

use crate::channel::{ChunkInfo, ChunkState, Geometry, MOST_ADDRESSES, Metadata};
use buffer::Buffer;
use checkpoint::Checkpoint;
use collect::Collector;
use command::Host;
use io::{Ios, Purpose};
use layout::Layout;
use lines::{Lines, STREAMS, Stream};
use map::Map;
use open_chunks::{OpenChunks, Writer};
use pace::Pace;
use recovery::Recovery;

/// The state of an FTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Erases what was there; takes no commands yet.
    Formatting,
    /// Recovers from flash; takes no commands yet.
    Recovering,
    /// Takes all commands.
    Ready,
    /// Takes reads: too few good chunks are left. What was acknowledged is there.
    ReadOnly,
    /// Recovery was not possible.
    Failed(RecoverError),
}

/// A host FTL over exclusive parallel units.
#[derive(Debug)]
pub struct Ftl {
    key: u64,
    now: Time,
    layout: Layout,
    options: Options,
    state: State,
    map: Map,
    buffer: Buffer,
    lines: Lines,
    ios: Ios,
    out: VecDeque<Action>,
    writers: [Writer; 3],
    open: OpenChunks,
    host: Host,
    collector: Collector,
    pace: Pace,
    checkpoint: Checkpoint,
    recovery: Option<Box<Recovery>>,
    /// The next write of the host gets it.
    sequence: u64,
    /// Nothing is in flight, yet there is work: reserves may be used.
    desperate: bool,
    stats: Stats,
}

impl Ftl {
    /// Makes a new partition of `units`, each a group and a parallel unit in it; whatever is in
    /// them is erased. The `key`, a random number, is needed to recover. `report` has the chunks of
    /// these units; others are ignored.
    pub fn format(
        geometry: &Geometry,
        units: &[(u32, u32)],
        report: impl IntoIterator<Item = ChunkInfo>,
        key: u64,
        options: Options,
    ) -> Result<Self, BuildError> {
        let mut ftl = Self::build(geometry, units, key, options)?;
        for info in report {
            let Some(chunk) = ftl.layout.chunk_at(geometry, info.address) else {
                continue;
            };
            match info.state {
                ChunkState::Free => {}
                ChunkState::Offline => ftl.lines.set_bad(chunk),
                ChunkState::Open | ChunkState::Closed => {
                    ftl.lines.set_used(chunk);
                    ftl.lines
                        .restore(chunk / ftl.layout.width, Stream::Host, 0, true);
                }
            }
        }
        let good = ftl.lines.good_units();
        ftl.layout.size(good, options.over_provisioning)?;
        ftl.map = Map::new(&ftl.layout);
        ftl.checkpoint.request();
        Ok(ftl)
    }

    /// Opens a partition that was formatted with the same units, in the same order, and the same
    /// key.
    pub fn recover(
        geometry: &Geometry,
        units: &[(u32, u32)],
        report: impl IntoIterator<Item = ChunkInfo>,
        key: u64,
        options: Options,
    ) -> Result<Self, BuildError> {
        let mut ftl = Self::build(geometry, units, key, options)?;
        let mut recovery = Recovery::new(&ftl.layout);
        for info in report {
            let Some(chunk) = ftl.layout.chunk_at(geometry, info.address) else {
                continue;
            };
            match info.state {
                ChunkState::Free => {}
                ChunkState::Offline => ftl.lines.set_bad(chunk),
                ChunkState::Open | ChunkState::Closed => {
                    ftl.lines.set_used(chunk);
                    recovery.found(&ftl.layout, chunk, &info);
                }
            }
        }
        ftl.state = State::Recovering;
        ftl.recovery = Some(Box::new(recovery));
        Ok(ftl)
    }

    fn build(
        geometry: &Geometry,
        units: &[(u32, u32)],
        key: u64,
        options: Options,
    ) -> Result<Self, BuildError> {
        /// Open chunks of a parallel unit: two of each writer, and as many left by power cuts.
        const OPEN_CHUNKS: u32 = 12;
        if (1..OPEN_CHUNKS).contains(&geometry.open_chunks_per_pu) {
            return Err(BuildError::OpenChunks { least: OPEN_CHUNKS });
        }
        let layout = Layout::new(geometry, units)?;
        // Every chunk of a line may hold back what is not durable, and one vector more is needed to
        // make it so.
        let held = layout.width * (layout.distance + 3 * layout.grain);
        // No more than a line: when the partition becomes read-only, what is in there has to fit
        // into what is erased.
        let most = layout.line_units.clamp(held, 1 << 24);
        let ring = options.write_slots.clamp(held, most);
        let buffer = Buffer::new(ring, held + 2 * MOST_ADDRESSES as u32);
        Ok(Self {
            key,
            now: Time::ZERO,
            map: Map::new(&layout),
            lines: Lines::new(&layout),
            ios: Ios::default(),
            out: VecDeque::with_capacity(256),
            writers: STREAMS.map(|_| Writer::default()),
            open: OpenChunks::default(),
            host: Host::default(),
            collector: Collector::default(),
            pace: Pace::new(4 * layout.width * layout.grain),
            checkpoint: Checkpoint::default(),
            recovery: None,
            sequence: 1,
            desperate: false,
            stats: Stats::default(),
            state: State::Formatting,
            buffer,
            layout,
            options,
        })
    }

    /// The state of the FTL.
    pub fn state(&self) -> State {
        self.state
    }

    /// Units shown to the host; 0 before a recovery has found out.
    pub fn capacity(&self) -> u64 {
        u64::from(self.layout.logical)
    }

    /// Whether nothing is stored: everything reads as zeroes. Scans the whole map.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Slots of the write buffer that the owner keeps bytes for, one unit each.
    pub fn slots(&self) -> u32 {
        self.buffer.len()
    }

    /// What to do next; nothing until something completes, is submitted, or the time has come.
    pub fn poll(&mut self, now: Time) -> Option<Action> {
        self.now = self.now.max(now);
        if self.out.is_empty() {
            self.step();
            if self.out.is_empty() && self.ios.outstanding() == 0 && self.has_work() {
                self.work_desperately();
            }
        }
        self.out.pop_front()
    }

    /// When to poll though nothing was completed.
    pub fn next_wakeup(&self) -> Option<Time> {
        self.open.next_report()
    }

    /// A vector command that is to be submitted or in flight.
    ///
    /// # Panics
    /// When no command of that tag was ever made.
    pub fn io(&self, tag: Tag) -> &Io {
        self.ios.get(tag)
    }

    /// A vector command is complete. A bit of `failed` for each address that failed, the lowest for
    /// the first; of a read, `metadata` of each address. A completion that is not waited for
    /// changes nothing.
    pub fn on_completion(&mut self, now: Time, tag: Tag, failed: u64, metadata: &[Metadata]) {
        self.now = self.now.max(now);
        let Some(io) = self.ios.in_flight(tag) else {
            return;
        };
        match io.purpose {
            Purpose::Read(command) => self.host_read_done(tag, command, failed, metadata),
            Purpose::Write(open) => self.write_done(tag, open, failed),
            Purpose::Collect => self.collect_read_done(tag, failed, metadata),
            Purpose::Erase(line) => self.erase_done(tag, line, failed),
            Purpose::Recover => self.recover_read_done(tag, failed, metadata),
            Purpose::Report(_) => {}
        }
    }

    /// The report of a chunk that was asked for; nothing when the device knows no such chunk.
    pub fn on_report(&mut self, now: Time, tag: Tag, chunk: Option<ChunkInfo>) {
        self.now = self.now.max(now);
        let purpose = self.ios.in_flight(tag).map(|io| io.purpose);
        if let Some(Purpose::Report(open)) = purpose {
            self.ios.release(tag);
            self.reported(open, chunk);
        }
    }

    /// Counters since the FTL was built.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The space of the partition.
    pub fn space(&self) -> Space {
        let own = (self.layout.checkpoint_lines + self.layout.keep()) * self.layout.line_units;
        let good = u64::from(self.lines.good_units());
        let erases = || self.lines.iter().map(|(_, line)| line.erases);
        Space {
            capacity: self.capacity(),
            good,
            spare: good.saturating_sub(u64::from(own) + self.capacity()),
            erases: (erases().min().unwrap_or(0), erases().max().unwrap_or(0)),
            memory: self.tables_bytes(),
        }
    }

    /// Lets every part do what can be done now.
    fn step(&mut self) {
        match self.state {
            State::Failed(_) => return,
            State::Recovering => return self.recover_more(),
            State::Formatting | State::Ready | State::ReadOnly => {}
        }
        self.ask_for_reports();
        self.collect();
        self.advance_checkpoint();
        self.admit();
        if !self.checkpoint.is_first() {
            let flushing = self.must_flush();
            self.write(Stream::Host, flushing);
            self.write(Stream::Moved, self.desperate);
        }
        self.collect();
    }

    /// Nothing is in flight and nothing can be done in good order: finishes what is half full, and
    /// takes from the reserve. When that does not help either, flash has run out.
    fn work_desperately(&mut self) {
        self.desperate = true;
        self.step();
        self.desperate = false;
        if self.out.is_empty() && self.ios.outstanding() == 0 && self.next_wakeup().is_none() {
            self.go_read_only();
            self.give_up();
        }
    }

    fn has_work(&self) -> bool {
        let buffered = self.state == State::ReadOnly && !self.buffer.is_empty();
        buffered
            || self.host.is_waiting()
            || self.checkpoint.is_due()
            || self.state == State::Formatting
    }

    /// Takes no more writes.
    pub(super) fn go_read_only(&mut self) {
        if matches!(self.state, State::Ready | State::Formatting) {
            self.state = State::ReadOnly;
        }
    }

    /// Goes read-only when too few good chunks are left for data to be moved.
    pub(super) fn check_spare(&mut self) {
        let own = (self.layout.checkpoint_lines + self.layout.keep()) * self.layout.line_units;
        let data = self.lines.good_units().saturating_sub(own);
        let least = self.layout.logical + self.layout.logical / 64;
        if data < least {
            self.go_read_only();
        }
    }

    /// Checks the invariants, for tests; `Err` names the one that is violated.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.state == State::Recovering {
            return Ok(());
        }
        self.map.check(&self.buffer)
    }
}
