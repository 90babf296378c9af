//! Checkpoints: an exact cut, made durable. What happens in which order, and the superblock.

use alloc::vec::Vec;

use super::io::{Action, IoOp, Outcome, Part, Purpose, Request, Tag, Target};
use super::lane::End;
use super::segments::{Growth, Use};
use super::split::{Fresh, Splits};
use super::state::{Limits, ReadOnly, State, Store};
use crate::format::batch::Lane;
use crate::format::superblock::{
    COPIES, Features, LogEntry, MOST_INCARNATIONS, MOST_LOG, SUPERBLOCK, Tail,
};
use crate::format::{BLOCK, superblock::Superblock};

/// What a checkpoint does; each phase ends when its writes have.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// Batches with frozen records are not complete yet.
    Freeze,
    Leaves,
    Deletes,
    System,
    Table,
    Directory,
    /// Flushes everything that the superblock refers to.
    Flush,
    First,
    FlushFirst,
    Second,
    FlushSecond,
}

/// What a superblock is written for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Kind {
    /// A new cut.
    #[default]
    Cut,
    /// More segments for lanes, at the same cut.
    List,
    /// A new incarnation, at the same cut.
    Incarnation,
}

#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    pub phase: Phase,
    pub kind: Kind,
    /// A cut is wanted.
    pub wanted: bool,
    /// More listed segments are wanted.
    pub list_wanted: bool,
    /// The next touched leaf of the frozen table.
    pub next: usize,
    /// Layers of volumes that end with the next cut.
    pub splits: Vec<Splits>,
    /// What the pool becomes with the next one, and what may be used of it when that is durable.
    pub growth: Option<(Request, Growth)>,
    pub limits: Option<Limits>,
    /// Layers that have ended with this one, until leaves have their records.
    pub fresh: Vec<Fresh>,
    /// This checkpoint takes leaves of what is deleted, and so many at most.
    pub deletes: bool,
    pub most_merged: usize,
    /// Garbage collection leaves the next turn to what is deleted.
    pub deletes_next: bool,
    /// Leaves that have to leave their segment.
    pub moving: Vec<u32>,
    /// The last batch of each lane before the cut, and where it ended.
    cut: [u64; 3],
    ends: [End; 3],
    /// Writes in flight.
    pub writes: u32,
    /// The flush that is waited for.
    ticket: u64,
    next_superblock: Option<Superblock>,
    /// Segments that nothing refers to in this cut.
    freeing: Vec<u32>,
    /// Segments that nothing refers to in the next one.
    pub drained: Vec<u32>,
    waiting: Vec<Request>,
    pub serving: Vec<Request>,
    /// None begins any more, and who waits for that.
    is_last: bool,
    last: Option<Request>,
    pub failures: u32,
    /// Blocks of batches since the last cut.
    pub log_blocks: u64,
}

/// A run of pages that is being filled, in its own segment.
#[derive(Debug, Default)]
pub(super) struct MapWriter {
    pub segment: Option<u32>,
    /// The next block in it.
    pub next: u32,
    pub run: Vec<u8>,
    pub targets: Vec<Target>,
}

impl Checkpoint {
    /// A request that is done when what is there now is durable.
    pub fn wait(&mut self, request: Request) {
        self.waiting.push(request);
        self.wanted = true;
    }

    /// None begins any more; a request is done when none is on its way.
    pub fn end(&mut self, request: Request) {
        self.is_last = true;
        self.last = Some(request);
    }

    /// Layers that are to end with the next cut.
    pub fn split(&mut self, splits: Splits) {
        self.splits.push(splits);
    }

    /// Whether a superblock is on its way.
    pub fn is_busy(&self) -> bool {
        self.phase != Phase::Idle
    }

    /// Whether a cut waits for batches.
    pub fn is_freezing(&self) -> bool {
        self.phase == Phase::Freeze
    }

    /// A batch is complete, and all before it.
    pub fn completed(&mut self, lane: Lane, end: End) {
        if end.number <= self.cut[lane as usize] {
            self.ends[lane as usize] = end;
        }
    }

    /// Who waits for what will not happen.
    pub fn give_up(&mut self) -> Vec<Request> {
        let mut all = core::mem::take(&mut self.waiting);
        all.append(&mut self.serving);
        all.extend(self.last.take());
        let splits = core::mem::take(&mut self.splits);
        all.extend(splits.into_iter().map(|splits| splits.request));
        all.extend(self.growth.take().map(|(request, _)| request));
        all
    }

    pub fn begin(&mut self, kind: Kind) {
        self.kind = kind;
        self.phase = match kind {
            Kind::Cut => Phase::Freeze,
            Kind::List | Kind::Incarnation => Phase::Flush,
        };
        self.ticket = 0;
    }
}

impl Store {
    pub(super) fn step_checkpoint(&mut self) {
        loop {
            let before = self.checkpoint.phase;
            match before {
                Phase::Idle => self.begin_checkpoint(),
                Phase::Freeze => self.await_cut(),
                Phase::Leaves => self.apply_leaves(),
                Phase::Deletes => self.apply_deletes(),
                Phase::System => self.write_phase(Phase::Table, Self::write_system),
                Phase::Table => self.write_phase(Phase::Directory, Self::write_tables),
                Phase::Directory => self.write_phase(Phase::Flush, Self::write_directories),
                Phase::Flush => self.flush_phase(Phase::First),
                Phase::First => self.superblock_phase(Phase::FlushFirst),
                Phase::FlushFirst => self.flush_phase(Phase::Second),
                Phase::Second => self.superblock_phase(Phase::FlushSecond),
                Phase::FlushSecond => {
                    self.flush_phase(Phase::Idle);
                    if self.checkpoint.phase == Phase::Idle {
                        self.finish_checkpoint();
                    }
                }
            }
            if self.checkpoint.phase == before || self.checkpoint.phase == Phase::Idle {
                return;
            }
            self.progress = true;
        }
    }

    fn begin_checkpoint(&mut self) {
        if self.checkpoint.is_last {
            if let Some(request) = self.checkpoint.last.take() {
                self.answer(request, Outcome::Success);
            }
            return;
        }
        if self.checker.is_some() || self.state != State::Ready {
            return;
        }
        let few = self.segments.listed() < self.limits.listed / 2;
        if (few || self.checkpoint.list_wanted) && self.can_list() {
            self.checkpoint.list_wanted = false;
            return self.checkpoint.begin(Kind::List);
        }
        if !self.frozen.is_empty() {
            // What recovery found: its cut is where the log of the former life ends.
            self.checkpoint.wanted = true;
        }
        // Chunks that are written again and again take no room in the table, but in the log.
        let full = self.superblock.log.len() == MOST_LOG;
        let long = self.checkpoint.log_blocks >= self.limits.log_blocks || few && full;
        if self.active.room() < self.limits.records / 4 || long {
            self.checkpoint.wanted = true;
        }
        let asked = !self.checkpoint.splits.is_empty() || self.checkpoint.growth.is_some();
        if asked || self.may_merge() {
            self.checkpoint.wanted = true;
        }
        let failing = self.lanes.iter().any(|lane| lane.failing);
        if self.checkpoint.wanted && !failing {
            self.freeze();
        }
    }

    /// Whether a superblock at the same cut can list more segments.
    pub(super) fn can_list(&self) -> bool {
        self.segments.free() > self.limits.map_reserve && self.superblock.log.len() < MOST_LOG
    }

    /// The cut: batches that are open are closed, records that come now belong to the next one.
    fn freeze(&mut self) {
        self.payers.age();
        for lane in Lane::ALL {
            self.issue(lane);
            let state = &self.lanes[lane as usize];
            self.checkpoint.cut[lane as usize] = state.issued;
            self.checkpoint.ends[lane as usize] = state.complete;
        }
        let whole = self.frozen.is_empty();
        if whole {
            core::mem::swap(&mut self.active, &mut self.frozen);
            self.accounts.cut();
        } else {
            // Only the log of the former life is cut; what was written since stays, and with it
            // the segments that are empty because of it.
            self.checkpoint.cut = [0; 3];
            self.checkpoint.ends = [End::default(); 3];
        }
        self.checkpoint.wanted = false;
        if whole {
            self.checkpoint.log_blocks = 0;
            self.split_layers();
            self.take_growth();
            self.checkpoint.deletes = self.is_deleting() && self.collector.is_idle();
            self.begin_freeing();
        }
        let waiting = core::mem::take(&mut self.checkpoint.waiting);
        self.checkpoint.serving.extend(waiting);
        self.checkpoint.next = 0;
        self.choose_moving();
        self.checkpoint.begin(Kind::Cut);
    }

    /// Whether a cut can take leaves of what is deleted.
    fn may_merge(&self) -> bool {
        self.is_deleting() && self.collector.is_idle() && self.frozen.is_empty()
    }

    /// Nothing in this cut refers to segments that are drained and not being read.
    fn begin_freeing(&mut self) {
        let (ready, later) = core::mem::take(&mut self.checkpoint.drained)
            .into_iter()
            .partition(|&segment| self.segments.get(segment).readers == 0);
        self.checkpoint.freeing = ready;
        self.checkpoint.drained = later;
        for place in 0..self.checkpoint.freeing.len() {
            let segment = self.checkpoint.freeing[place];
            self.segments.set_use(segment, Use::Freeing);
        }
    }

    fn await_cut(&mut self) {
        let cut = &self.checkpoint.cut;
        let mut lanes = self.lanes.iter().zip(cut);
        if lanes.all(|(lane, &cut)| lane.complete.number >= cut) {
            self.checkpoint.phase = Phase::Leaves;
        }
    }

    /// Writes what `write` puts into runs, and goes on when all of it is written.
    fn write_phase(&mut self, next: Phase, write: fn(&mut Self)) {
        write(self);
        self.end_runs();
        if self.checkpoint.writes == 0 {
            self.checkpoint.phase = next;
        }
    }

    fn flush_phase(&mut self, next: Phase) {
        if self.checkpoint.ticket == 0 {
            self.checkpoint.ticket = self.flusher.want();
        }
        if self.flusher.finished >= self.checkpoint.ticket {
            self.checkpoint.ticket = 0;
            self.checkpoint.phase = next;
            if self.is_cut_short {
                // What is read now stays as it is, and nothing is decided of what is missing.
                self.checkpoint.phase = Phase::Idle;
                self.state = State::ReadOnly(ReadOnly::Log);
                self.progress = true;
                return;
            }
            if next == Phase::First {
                let superblock = self.build_superblock();
                self.checkpoint.next_superblock = Some(superblock);
            }
            if matches!(next, Phase::First | Phase::Second) {
                self.write_superblocks(if next == Phase::First { 0 } else { 2 });
            }
        }
    }

    fn superblock_phase(&mut self, next: Phase) {
        if self.checkpoint.writes == 0 {
            self.checkpoint.phase = next;
        }
    }

    fn write_superblocks(&mut self, first: u8) {
        for copy in first..(first + 2).min(COPIES as u8) {
            let Some(superblock) = &self.checkpoint.next_superblock else {
                return;
            };
            let own = superblock.encode(copy);
            let blocks = (SUPERBLOCK / BLOCK) as u32;
            let op = IoOp::WriteSuperblock(copy);
            let tag = self.ios.begin(op, 0, blocks, Purpose::Superblock);
            let io = self.ios.get_mut(tag);
            io.own = own;
            io.parts.push(Part::Own);
            self.checkpoint.writes += 1;
            self.out.push_back(Action::Submit(tag));
        }
    }

    pub(super) fn superblock_ended(&mut self, tag: Tag, good: bool) {
        self.ios.release(tag);
        self.checkpoint.writes -= 1;
        if !good {
            self.go_read_only();
        }
    }

    fn build_superblock(&mut self) -> Superblock {
        let mut next = self.superblock.clone();
        next.generation += 1;
        let parent = self.superblock.encode(0);
        next.parent = crate::format::fields::get_u64(&parent, 0);
        next.next_lineage = self.next_lineage;
        for volume in self.volumes.values() {
            next.features = next.features.with(Features::of(volume.form));
            if volume.reserved > 0 {
                next.features = next.features.with(Features::RESERVED);
            }
        }
        match self.checkpoint.kind {
            Kind::Cut => self.describe_cut(&mut next),
            Kind::List => {}
            Kind::Incarnation => {
                let history = &mut next.incarnations;
                history.push((next.incarnation, next.generation));
                if history.len() > MOST_INCARNATIONS {
                    history.remove(0);
                }
                next.incarnation = self.incarnation;
                next.tails = [Tail::default(); 3];
                next.log.clone_from(&self.decided);
            }
        }
        self.propose(&mut next);
        next
    }

    /// What a new cut says: the map, and the log that begins at it.
    fn describe_cut(&mut self, next: &mut Superblock) {
        next.pages = self.pages.count();
        if self.volumes.values().any(|volume| volume.parent.is_some()) {
            next.features = next.features.with(Features::SNAPSHOTS);
        }
        next.directory.clone_from(&self.pages.directory);
        self.describe_growth(next);
        self.decided.clear();
        let mut listed = core::mem::take(&mut next.log);
        for lane in Lane::ALL {
            let end = self.checkpoint.ends[lane as usize];
            next.tails[lane as usize] = Tail {
                checksum: end.checksum,
                watermark: end.sequence,
            };
        }
        for number in 0..self.segments.geometry.segments {
            let segment = *self.segments.get(number);
            let lane = segment.lane as usize;
            let open = self.lanes[lane].segment.map(|place| place.segment) == Some(number);
            let end = self.checkpoint.ends[lane];
            let from = match segment.log_from {
                None => continue,
                Some(_) if !open && segment.last <= end.number => None,
                Some(_) if end.number > 0 && end.segment == number => Some(end.block),
                from => from,
            };
            self.segments.get_mut(number).log_from = from;
            next.log.extend(from.map(|from| LogEntry {
                segment: number,
                generation: segment.generation,
                incarnation: self.incarnation,
                from,
                end: None,
            }));
        }
        // Behind those in use are the others, in the order in which lanes will take them.
        listed.retain(|entry| self.segments.get(entry.segment).used == Use::Listed);
        next.log.append(&mut listed);
    }

    /// Lists free segments for lanes. They may be used when the superblock is durable.
    fn propose(&mut self, next: &mut Superblock) {
        let mut listed = self.segments.listed();
        while listed < self.limits.listed
            && self.segments.free() > self.limits.map_reserve
            && next.log.len() < MOST_LOG
        {
            let Some(number) = self.segments.find_free(self.hand) else {
                return;
            };
            self.hand = number;
            self.segments.set_use(number, Use::Proposed);
            let segment = self.segments.get_mut(number);
            segment.generation += 1;
            let entry = LogEntry {
                segment: number,
                generation: segment.generation,
                incarnation: self.incarnation,
                from: 0,
                end: None,
            };
            self.segments.touch(number);
            next.log.push(entry);
            listed += 1;
        }
    }

    /// All copies are durable: what only they allow may be done.
    fn finish_checkpoint(&mut self) {
        if let Some(superblock) = self.checkpoint.next_superblock.take() {
            self.superblock = superblock;
        }
        for number in 0..self.segments.geometry.segments {
            if self.segments.get(number).used == Use::Proposed {
                self.segments.set_use(number, Use::Listed);
            }
        }
        match self.checkpoint.kind {
            Kind::Cut => {
                self.stats.checkpoints += 1;
                if core::mem::take(&mut self.checkpoint.deletes) {
                    self.checkpoint.deletes_next = false;
                }
                self.free_segments();
                self.finish_growth();
                self.unpark(|_| true);
                for request in core::mem::take(&mut self.checkpoint.serving) {
                    self.answer(request, Outcome::Success);
                }
            }
            Kind::List | Kind::Incarnation => self.stats.commits += 1,
        }
        if self.state == State::Opening {
            self.state = State::Ready;
        }
        self.progress = true;
    }

    fn free_segments(&mut self) {
        let mut gone = core::mem::take(&mut self.checkpoint.freeing);
        let open = [self.writers[0].segment, self.writers[1].segment];
        let empty = self.segments.iter().filter(|(number, segment)| {
            segment.used == Use::Map && segment.live == 0 && !open.contains(&Some(*number))
        });
        gone.extend(empty.map(|(number, _)| number));
        for segment in gone {
            let state = self.segments.get_mut(segment);
            (state.live, state.log_from, state.suspect) = (0, None, false);
            self.segments.touch(segment);
            if !self.options.discard {
                self.segments.set_use(segment, Use::Free);
                continue;
            }
            self.segments.set_use(segment, Use::Discarding);
            let block = self.segments.geometry.block(segment);
            let blocks = self.segments.geometry.segment_blocks;
            let purpose = Purpose::Discard(segment);
            let tag = self.ios.begin(IoOp::Discard, block, blocks, purpose);
            self.out.push_back(Action::Submit(tag));
        }
    }

    pub(super) fn discard_ended(&mut self, tag: Tag, segment: u32) {
        self.ios.release(tag);
        self.segments.set_use(segment, Use::Free);
    }
}
