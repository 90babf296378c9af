//! Places data that are to be written, and reports when they are durable.
//!
//! Each stream fills one line, a vector into one chunk after another. What is in a chunk is held
//! back until the device guarantees that it can be read after a power cut: when enough is written
//! behind it, or the chunk is closed. When a write fails, the device is asked where the chunk ends;
//! what is behind that is written elsewhere, in the same order.

use flashyard_time::Duration;

use super::buffer::{Holds, Stage};
use super::io::{Action, IoOp, Part, Purpose, Tag};
use super::lines::{STREAMS, Stream};
use super::open_chunks::Item;
use super::stamp::{Kind, PageWriter, Stamp};
use super::{Ftl, State};
use crate::channel::{ChunkInfo, ChunkState, Metadata};

/// How many vectors a chunk may be ahead of the others of its line.
const SKEW: u32 = 4;

impl Ftl {
    /// Has `item` written in its stream.
    pub(super) fn enqueue(&mut self, stream: Stream, item: Item) {
        self.writers[stream as usize].queue.push_back(item);
    }

    /// Writes what fills vectors; with `force` the rest too, and what makes it durable.
    pub(super) fn write(&mut self, stream: Stream, force: bool) {
        loop {
            let queued = self.writers[stream as usize].queue.len() as u32;
            if queued == 0 || (queued < self.layout.grain && !force) {
                break;
            }
            let Some(open) = self.next_chunk(stream) else {
                return;
            };
            if stream == Stream::Host && !self.host_may_write() {
                return;
            }
            self.write_vector(open);
        }
        if force && self.layout.distance > 0 {
            self.pad(stream);
        }
    }

    /// Whether the pace lets the host write a vector.
    fn host_may_write(&mut self) -> bool {
        if self.desperate || !self.is_collecting() {
            return true;
        }
        let headroom = self.headroom();
        self.pace
            .spend(self.layout.grain, headroom, self.layout.line_units)
    }

    /// Writes padding behind what is held back and has nothing else behind it.
    fn pad(&mut self, stream: Stream) {
        for open in 0..self.open.chunks.len() as u32 {
            let chunk = self.open.get(open);
            if chunk.stream == stream
                && !chunk.held.is_empty()
                && chunk.writes == 0
                && !chunk.failed
                && chunk.next < self.layout.chunk_units
            {
                self.write_vector(open);
            }
        }
    }

    /// The chunk that the next vector of a stream goes to; nothing while all are busy or no line
    /// can be had.
    fn next_chunk(&mut self, stream: Stream) -> Option<u32> {
        let (most, end, grain) = (
            self.options.writes_per_chunk.clamp(1, 2),
            self.layout.chunk_units,
            self.layout.grain,
        );
        let writer = &self.writers[stream as usize];
        let writable = |open: u32| !self.open.get(open).failed && self.open.get(open).next < end;
        let behind = writer.chunks.iter().filter(|&&open| writable(open));
        let Some(least) = behind.map(|&open| self.open.get(open).next).min() else {
            return self.next_line(stream);
        };
        let count = writer.chunks.len();
        let turn = (0..count).map(|step| (writer.cursor + step) % count);
        let found = turn.into_iter().find(|&place| {
            let open = writer.chunks[place];
            let chunk = self.open.get(open);
            writable(open) && chunk.in_flight() < most && chunk.next < least + SKEW * grain
        })?;
        let open = writer.chunks[found];
        self.writers[stream as usize].cursor = found + 1;
        Some(open)
    }

    /// Leaves the line of a stream, and opens another if it may have one.
    fn next_line(&mut self, stream: Stream) -> Option<u32> {
        self.leave_line(stream);
        let reserve = match stream {
            Stream::Checkpoint => 0,
            // What is in the write buffer comes first, and then nothing comes any more.
            Stream::Host if self.state == State::ReadOnly => 0,
            Stream::Moved if self.state == State::ReadOnly && !self.desperate => return None,
            // Should the power go before it has won a line, what is in this one is of no account,
            // and it is erased.
            Stream::Moved if self.desperate && !self.checkpoint_needs_line() => 0,
            Stream::Moved => self.layout.checkpoint_lines,
            Stream::Host => self.layout.host_reserve(),
        };
        if self.lines.free() <= reserve {
            return None;
        }
        let line = self.lines.open(stream)?;
        for chunk in line * self.layout.width..(line + 1) * self.layout.width {
            if !self.lines.is_bad(chunk) {
                let open = self.open.begin(stream, chunk);
                self.writers[stream as usize].chunks.push(open);
                self.lines.get_mut(line).open_chunks += 1;
            }
        }
        let writer = &mut self.writers[stream as usize];
        (writer.line, writer.cursor) = (Some(line), 1);
        writer.room = self.lines.capacity(line);
        writer.chunks.first().copied()
    }

    /// Places nothing more in the line of a stream.
    pub(super) fn leave_line(&mut self, stream: Stream) {
        let Some(line) = self.writers[stream as usize].line.take() else {
            return;
        };
        self.writers[stream as usize].room = 0;
        self.lines.get_mut(line).left = true;
        let mut chunks = core::mem::take(&mut self.writers[stream as usize].chunks);
        for open in chunks.drain(..) {
            self.retire_if_done(open);
        }
        self.writers[stream as usize].chunks = chunks;
        self.lines.close_if_done(line);
    }

    /// Writes the next vector into an open chunk: what is queued, and padding.
    fn write_vector(&mut self, open: u32) {
        let grain = self.layout.grain;
        let (stream, chunk, next) = {
            let chunk = self.open.get_mut(open);
            chunk.next += grain;
            chunk.writes += 1;
            (chunk.stream, chunk.chunk, chunk.next - grain)
        };
        let line = chunk / self.layout.width;
        let serial = self.lines.get(line).serial;
        self.lines.set_used(chunk);
        let tag = self.ios.begin(IoOp::Write, Purpose::Write(open));
        let mut padding = 0;
        for sector in next..next + grain {
            let unit = self.layout.unit(chunk, sector);
            let item = self.writers[stream as usize].queue.pop_front();
            let (stamp, part) = match item {
                Some(item) => {
                    self.lines.get_mut(line).unsettled += 1;
                    self.open.get_mut(open).held.push_back((sector, item));
                    self.describe(item, serial)
                }
                None => {
                    padding += 1;
                    (self.padding(stream, serial), Part::Unused)
                }
            };
            let (address, metadata) = (self.layout.address(unit), stamp.encode(self.key, unit));
            self.ios.get_mut(tag).push(unit, address, metadata, part);
        }
        self.count_written(stream, line, padding);
        self.out.push_back(Action::Submit(tag));
    }

    fn count_written(&mut self, stream: Stream, line: u32, padding: u32) {
        let grain = self.layout.grain;
        self.stats.padding_units += u64::from(padding);
        self.stats.written_units += u64::from(grain);
        if self.writers[stream as usize].line == Some(line) {
            let writer = &mut self.writers[stream as usize];
            writer.room = writer.room.saturating_sub(grain);
        }
        match stream {
            Stream::Host => self.checkpoint.count(grain),
            Stream::Moved => {
                self.checkpoint.count(grain);
                self.stats.moved_units += u64::from(grain - padding);
                self.pace.earn(grain);
            }
            Stream::Checkpoint => {
                self.stats.checkpoint_units += u64::from(grain);
                self.lines.get_mut(line).generation = self.checkpoint.generation();
            }
        }
    }

    /// What stands beside an item, and where its data are.
    fn describe(&mut self, item: Item, serial: u32) -> (Stamp, Part) {
        let stamp = |kind, logical, sequence| Stamp {
            kind,
            logical,
            sequence,
            serial,
        };
        match item {
            Item::Page(page) => {
                let generation = self.checkpoint.generation();
                (stamp(Kind::Page, page, generation), Part::Page)
            }
            Item::Root => {
                let generation = self.checkpoint.generation();
                (stamp(Kind::Root, 0, generation), Part::Page)
            }
            Item::Slot(number) => {
                let moved = self.buffer.is_collectors(number);
                let slot = self.buffer.slot_mut(number);
                slot.stage = Stage::Written;
                let (kind, part) = match slot.holds {
                    Holds::Tombstones => (Kind::Tombstones, Part::Page),
                    Holds::Data if moved => (Kind::Moved, Part::Slot(number)),
                    Holds::Data => (Kind::Data, Part::Slot(number)),
                };
                (stamp(kind, slot.logical, slot.sequence), part)
            }
        }
    }

    fn padding(&self, stream: Stream, serial: u32) -> Stamp {
        let (kind, sequence) = match stream {
            Stream::Host => (Kind::HostPadding, 0),
            Stream::Moved => (Kind::MovedPadding, 0),
            Stream::Checkpoint => (Kind::CheckpointPadding, self.checkpoint.generation()),
        };
        Stamp {
            kind,
            logical: 0,
            sequence,
            serial,
        }
    }

    /// Fills `bytes`, 4 KiB, with the page that a write has at `place`.
    ///
    /// # Panics
    /// When `bytes` are not 4 KiB.
    pub fn page(&self, tag: Tag, place: usize, bytes: &mut [u8]) {
        assert_eq!(bytes.len() as u64, crate::UNIT_BYTES, "a page has 4 KiB");
        let page = PageWriter::new(bytes);
        let Some(io) = self.ios.in_flight(tag) else {
            return;
        };
        let Purpose::Write(open) = io.purpose else {
            return;
        };
        let Some(&unit) = io.units.get(place) else {
            return;
        };
        let sector = self.layout.sector(unit);
        let held = &self.open.get(open).held;
        let item = held.iter().rev().find(|(at, _)| *at == sector);
        match item {
            Some(&(_, Item::Slot(slot))) => self.write_records(slot, page, unit),
            Some(&(_, Item::Page(number))) => self.write_page(number, page, unit),
            Some(&(_, Item::Root)) => self.write_root(page, unit),
            None => {}
        }
    }

    /// A write into an open chunk is complete.
    pub(super) fn write_done(&mut self, tag: Tag, open: u32, failed: u64) {
        let io = self.ios.get(tag);
        let (sector, count) = (self.layout.sector(io.units[0]), io.count);
        self.ios.release(tag);
        self.open.get_mut(open).writes -= 1;
        if failed == 0 {
            self.open.get_mut(open).acknowledge(sector, count);
        } else if !self.open.get(open).failed {
            self.fail_chunk(open);
        }
        let chunk = self.open.get(open);
        if chunk.failed {
            if chunk.writes == 0 && !chunk.asked {
                self.ask_for_report(open);
            }
            return;
        }
        let acknowledged = chunk.acknowledged;
        let full = acknowledged == self.layout.chunk_units;
        self.settle_chunk(open, acknowledged.saturating_sub(self.layout.distance));
        if full && !self.open.get(open).held.is_empty() {
            self.ask_for_report(open);
        }
        self.retire_if_done(open);
    }

    /// Nothing more is written into a chunk: a write has failed.
    fn fail_chunk(&mut self, open: u32) {
        let chunk = self.open.get_mut(open);
        chunk.failed = true;
        let (stream, line) = (chunk.stream, chunk.chunk / self.layout.width);
        let left = self.layout.chunk_units - chunk.next;
        self.stats.failed_writes += 1;
        self.lines.get_mut(line).suspect = true;
        let writer = &mut self.writers[stream as usize];
        if writer.line == Some(line) {
            writer.room = writer.room.saturating_sub(left);
        }
    }

    fn ask_for_report(&mut self, open: u32) {
        let chunk = self.open.get_mut(open);
        (chunk.asked, chunk.ask_at) = (true, None);
        let unit = self.layout.unit(chunk.chunk, 0);
        let address = self.layout.address(unit);
        let tag = self.ios.begin(IoOp::Report, Purpose::Report(open));
        let io = self.ios.get_mut(tag);
        io.push(unit, address, Metadata::default(), Part::Unused);
        self.out.push_back(Action::Submit(tag));
    }

    /// Asks again about chunks that were not closed when they were asked last.
    pub(super) fn ask_for_reports(&mut self) {
        let mut place = 0;
        while let Some(&open) = self.open.asking.get(place) {
            let due = self.open.get(open).ask_at.is_some_and(|at| at <= self.now);
            if due {
                self.open.asking.swap_remove(place);
                self.ask_for_report(open);
            } else {
                place += 1;
            }
        }
    }

    /// The device has said how far a chunk is written.
    pub(super) fn reported(&mut self, open: u32, info: Option<ChunkInfo>) {
        let (state, pointer) = info.map_or((ChunkState::Offline, 0), |info| {
            (info.state, info.write_pointer)
        });
        if state == ChunkState::Open && !self.open.get(open).failed {
            let again = self.now + Duration::from_ns(self.layout.write_ns.max(1));
            self.open.get_mut(open).ask_at = Some(again);
            self.open.asking.push(open);
            return;
        }
        let durable = match state {
            ChunkState::Closed => pointer,
            ChunkState::Open => pointer.saturating_sub(self.layout.distance),
            ChunkState::Free | ChunkState::Offline => 0,
        };
        self.open.get_mut(open).asked = false;
        self.settle_chunk(open, durable);
        self.write_elsewhere(open);
        self.retire_if_done(open);
    }

    /// What a chunk holds before sector `end` is durable.
    fn settle_chunk(&mut self, open: u32, end: u32) {
        let chunk = self.open.get(open).chunk;
        let line = chunk / self.layout.width;
        while let Some(&(sector, item)) = self.open.get(open).held.front()
            && sector < end
        {
            self.open.get_mut(open).held.pop_front();
            self.settle(item, self.layout.unit(chunk, sector), line);
        }
        self.settle_ring();
        self.lines.close_if_done(line);
    }

    fn settle(&mut self, item: Item, unit: u32, line: u32) {
        match item {
            Item::Slot(slot) if self.buffer.is_collectors(slot) => {
                let moved = *self.buffer.slot(slot);
                self.map
                    .relocate(&mut self.buffer, moved.logical, moved.older, unit);
                self.release_moved(slot);
                self.lines.get_mut(line).unsettled -= 1;
            }
            Item::Slot(slot) => {
                let slot = self.buffer.slot_mut(slot);
                (slot.stage, slot.unit) = (Stage::Durable, unit);
            }
            Item::Page(_) | Item::Root => {
                self.checkpoint.settle();
                self.lines.get_mut(line).unsettled -= 1;
            }
        }
    }

    /// Queues again, in front, what a chunk holds.
    fn write_elsewhere(&mut self, open: u32) {
        let chunk = self.open.get(open);
        let (stream, line) = (chunk.stream, chunk.chunk / self.layout.width);
        while let Some((_, item)) = self.open.get_mut(open).held.pop_back() {
            self.lines.get_mut(line).unsettled -= 1;
            if let Item::Slot(slot) = item {
                self.buffer.slot_mut(slot).stage = Stage::Waiting;
            }
            self.writers[stream as usize].queue.push_front(item);
        }
    }

    /// Forgets a chunk that is filled or failed, and holds nothing back.
    fn retire_if_done(&mut self, open: u32) {
        let chunk = self.open.get(open);
        let line = chunk.chunk / self.layout.width;
        let stream = chunk.stream;
        let over =
            chunk.failed || chunk.next == self.layout.chunk_units || self.lines.get(line).left;
        if !over || chunk.writes > 0 || chunk.asked || !chunk.held.is_empty() {
            return;
        }
        self.writers[stream as usize]
            .chunks
            .retain(|&one| one != open);
        self.open.unused.push(open);
        self.lines.get_mut(line).open_chunks -= 1;
        self.lines.close_if_done(line);
    }

    /// Units left in the lines of the streams that data go to.
    pub(super) fn room(&self) -> u32 {
        let data = STREAMS
            .iter()
            .filter(|&&stream| stream != Stream::Checkpoint);
        data.map(|&stream| self.writers[stream as usize].room).sum()
    }
}
