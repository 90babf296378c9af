//! Garbage collection: reads what is valid in a line, has it written elsewhere, and erases the
//! line.

use alloc::vec::Vec;

use super::io::{Action, IoOp, Part, Purpose, Retries, Tag};
use super::layout::LOST;
use super::lines::{Stream, Use};
use super::open_chunks::Item;
use super::stamp::{Kind, Stamp};
use super::{Ftl, State};
use crate::channel::{MOST_ADDRESSES, Metadata};

/// Erases between two checks of how unevenly lines are worn.
const ERASES_PER_LOOK: u64 = 8;

/// Lines lost one after another at which erasing is given up, when few are left.
const DEAD_IN_A_ROW: u32 = 2;

#[derive(Debug, Default)]
pub(super) struct Collector {
    /// The line being read, and how far: vectors of all its chunks, one after another.
    victim: Option<(u32, u32)>,
    /// Lines that were read and whose data are on their way.
    drained: Vec<u32>,
    /// Lines being erased.
    erasing: Vec<u32>,
    /// Vectors being read.
    reads: u32,
    /// Reads that failed, to be tried again, and how often they were.
    again: Vec<(Retries, u8)>,
    /// Units that cannot be read, not yet taken out of the map.
    lost: Vec<u32>,
    /// Erases when wear was looked at last.
    looked: u64,
    /// Lines that are no longer needed are to be looked for.
    sweep: bool,
    /// Lines that were lost one after another when they were to be erased.
    dead: u32,
}

impl Ftl {
    /// Units that can be written before lines run short.
    pub(super) fn headroom(&self) -> i64 {
        let units = i64::from(self.layout.line_units);
        let spare = i64::from(self.lines.free()) - i64::from(self.layout.keep());
        let passed = self
            .collector
            .victim
            .map_or(0, |(_, step)| step * self.layout.grain);
        let ending = self.collector.drained.iter().chain(&self.collector.erasing);
        let ending: i64 = ending
            .map(|&line| i64::from(self.lines.capacity(line)))
            .sum();
        let moving = i64::from(self.writers[Stream::Moved as usize].queue.len() as u32);
        spare * units + i64::from(self.room()) + i64::from(passed) + ending - moving
    }

    /// Whether the collector can gain space.
    pub(super) fn is_collecting(&self) -> bool {
        self.collector.victim.is_some() || !self.collector.drained.is_empty()
    }

    /// Collects.
    pub(super) fn collect(&mut self) {
        self.erase_what_is_empty();
        if self.checkpoint.is_first() {
            return;
        }
        if self.collector.victim.is_none() || self.collector.reads == 0 {
            self.record_losses();
        }
        self.choose_victim();
        self.read_again();
        while self.collector.reads < self.options.collector_reads.max(1) && self.read_victim() {}
    }

    /// Erases lines that are no longer needed.
    fn erase_what_is_empty(&mut self) {
        let mut place = 0;
        while let Some(&line) = self.collector.drained.get(place) {
            let state = self.lines.get(line);
            let needed = state.readers > 0 || state.needed_until > self.checkpoint.complete();
            if self.map.valid[line as usize] == 0 && !needed {
                self.collector.drained.swap_remove(place);
                self.erase(line);
            } else {
                place += 1;
            }
        }
        if self.state == State::Formatting || core::mem::take(&mut self.collector.sweep) {
            self.erase_leftovers();
        }
    }

    /// Erases lines whose checkpoints are superseded, and those in which nothing is valid; while
    /// formatting, all that was there before.
    fn erase_leftovers(&mut self) {
        let complete = self.checkpoint.complete();
        for line in 0..self.layout.lines {
            let state = self.lines.get(line);
            let over = match self.state {
                State::Formatting => state.serial == 0,
                _ if state.stream == Stream::Checkpoint => state.generation < complete,
                _ => self.map.valid[line as usize] == 0 && state.needed_until <= complete,
            };
            if over && state.state == Use::Closed && state.readers == 0 {
                self.erase(line);
            }
        }
    }

    /// A checkpoint is complete, or recovery is: there may be lines that are no longer needed.
    pub(super) fn sweep(&mut self) {
        self.collector.sweep = true;
    }

    fn choose_victim(&mut self) {
        let short = self.headroom() < i64::from(self.layout.line_units);
        if self.collector.victim.is_some() || !self.may_collect() {
            return;
        }
        let complete = self.checkpoint.complete();
        // It gives back the line that it takes and sets no price: the host does not wait for it
        // longer than for others.
        if let Some(line) = self.cold_line(complete).filter(|_| !self.desperate) {
            self.begin_victim(line);
            return;
        }
        let victim = (short || self.desperate).then(|| {
            self.lines
                .victim(&self.map.valid, self.options.victim, complete)
        });
        let Some(line) = victim.flatten() else {
            if let Some(generation) = self.lines.awaited(complete).filter(|_| short) {
                self.checkpoint.want(generation);
            }
            return;
        };
        self.begin_victim(line);
        let valid = self.map.valid[line as usize];
        self.pace.measure(valid, self.lines.capacity(line));
    }

    fn begin_victim(&mut self, line: u32) {
        self.lines.get_mut(line).state = Use::Victim;
        self.collector.victim = Some((line, 0));
    }

    /// Read-only, only room for what is in the write buffer is worth an erase: it may cost another
    /// chunk.
    fn may_collect(&self) -> bool {
        let room = self.lines.free() > 0 || self.writers[Stream::Host as usize].room > 0;
        self.state != State::ReadOnly || !(self.buffer.is_empty() || room)
    }

    /// A line whose data change so seldom that it wears less than others.
    fn cold_line(&mut self, complete: u64) -> Option<u32> {
        if self.stats.erases < self.collector.looked + ERASES_PER_LOOK {
            return None;
        }
        self.collector.looked = self.stats.erases;
        self.lines.coldest(self.options.wear_spread, complete)
    }

    /// Reads the next valid units of the victim; false when nothing can be read now.
    fn read_victim(&mut self) -> bool {
        let Some((line, mut step)) = self.collector.victim else {
            return false;
        };
        if self.buffer.collector_free() < MOST_ADDRESSES as u32 || !self.may_collect() {
            return false;
        }
        let steps = self.layout.line_units / self.layout.grain;
        let tag = self.ios.begin(IoOp::Read, Purpose::Collect);
        while step < steps {
            let (row, column) = (step / self.layout.width, step % self.layout.width);
            let chunk = line * self.layout.width + column;
            let first = self.layout.unit(chunk, row * self.layout.grain);
            if self.ios.get(tag).count + self.layout.grain > MOST_ADDRESSES as u32 {
                break;
            }
            self.read_live(tag, first, first + self.layout.grain);
            step += 1;
        }
        self.collector.victim = Some((line, step));
        if step == steps {
            self.collector.victim = None;
            self.collector.drained.push(line);
        }
        if self.ios.get(tag).count == 0 {
            self.ios.release(tag);
            return step < steps;
        }
        self.collector.reads += 1;
        self.out.push_back(Action::Submit(tag));
        true
    }

    /// Adds what is valid in a range of units to a read, each with a slot.
    fn read_live(&mut self, tag: Tag, first: u32, end: u32) {
        let mut from = first;
        while let Some(unit) = self.map.next_live(from, end) {
            let slot = self
                .buffer
                .take_collector(unit)
                .expect("as many slots as addresses were free");
            self.lines.get_mut(self.layout.line_of(unit)).readers += 1;
            self.add_collected(tag, unit, Part::Slot(slot));
            from = unit + 1;
        }
    }

    fn add_collected(&mut self, tag: Tag, unit: u32, part: Part) {
        let address = self.layout.address(unit);
        let io = self.ios.get_mut(tag);
        io.push(unit, address, Metadata::default(), part);
    }

    /// Data of a victim are in their slots: queues what is still the durable copy of something.
    pub(super) fn collect_read_done(&mut self, tag: Tag, failed: u64, metadata: &[Metadata]) {
        let io = self.ios.get(tag);
        let (count, units, parts, tries) = (io.count, io.units, io.parts, io.tries);
        self.ios.release(tag);
        self.collector.reads -= 1;
        let mut again = Retries::new();
        for place in 0..count as usize {
            let (unit, part) = (units[place], parts[place]);
            let Part::Slot(slot) = part else {
                continue;
            };
            if !self.map.is_live(unit) {
                self.release_moved(slot);
                continue;
            }
            let read = metadata.get(place).filter(|_| failed >> place & 1 == 0);
            let stamp = read.and_then(|metadata| self.data_stamp(unit, *metadata));
            match stamp {
                Some(stamp) => self.move_unit(slot, stamp),
                None if tries < self.options.read_retries => again.push((unit, part)),
                None => {
                    self.lines.get_mut(self.layout.line_of(unit)).readers += 1;
                    self.collector.lost.push(unit);
                    self.release_moved(slot);
                }
            }
        }
        if !again.is_empty() {
            self.collector.again.push((again, tries + 1));
        }
    }

    /// A slot is free again. Until then the line it was read from is not erased: the same unit
    /// could by chance come to hold the same logical one again, and be taken for what was read.
    pub(super) fn release_moved(&mut self, slot: u32) {
        let from = self.layout.line_of(self.buffer.slot(slot).older);
        self.lines.get_mut(from).readers -= 1;
        self.buffer.release_collector(slot);
    }

    /// What stands beside a unit that is the durable copy of what it says.
    fn data_stamp(&self, unit: u32, metadata: Metadata) -> Option<Stamp> {
        let stamp = Stamp::decode(self.key, unit, metadata)?;
        let data = matches!(stamp.kind, Kind::Data | Kind::Moved);
        let mapped = data
            && stamp.logical < self.layout.logical
            && self.map.durable(&self.buffer, stamp.logical) == unit;
        mapped.then_some(stamp)
    }

    fn move_unit(&mut self, slot: u32, stamp: Stamp) {
        let taken = self.buffer.slot_mut(slot);
        (taken.logical, taken.sequence) = (stamp.logical, stamp.sequence);
        self.enqueue(Stream::Moved, Item::Slot(slot));
    }

    /// Reads again what could not be read.
    fn read_again(&mut self) {
        for (units, tries) in core::mem::take(&mut self.collector.again) {
            let tag = self.ios.begin(IoOp::Read, Purpose::Collect);
            self.ios.get_mut(tag).tries = tries;
            for (unit, part) in units {
                self.add_collected(tag, unit, part);
            }
            self.collector.reads += 1;
            self.out.push_back(Action::Submit(tag));
        }
    }

    /// Says in the map which data the medium has lost, so that no older version is taken for them.
    /// Their lines are not erased before a checkpoint says the same: until then it is there to be
    /// seen that they cannot be read.
    fn record_losses(&mut self) {
        if self.collector.lost.is_empty() {
            return;
        }
        let mut lost = core::mem::take(&mut self.collector.lost);
        lost.sort_unstable();
        let owners = self.map.owners(&self.buffer, &lost);
        for &(logical, unit) in &owners {
            self.map.relocate(&mut self.buffer, logical, unit, LOST);
        }
        self.stats.lost_units += owners.len() as u64;
        let generation = self.checkpoint.next_generation();
        self.checkpoint.want(generation);
        for unit in lost {
            let line = self.lines.get_mut(self.layout.line_of(unit));
            line.readers -= 1;
            line.needed_until = generation;
        }
    }

    fn erase(&mut self, line: u32) {
        self.lines.get_mut(line).state = Use::Erasing;
        self.collector.erasing.push(line);
        let mut tag: Option<Tag> = None;
        for chunk in line * self.layout.width..(line + 1) * self.layout.width {
            if !self.lines.is_used(chunk) {
                continue;
            }
            let io = match tag.filter(|&tag| !self.ios.get(tag).is_full()) {
                Some(io) => io,
                None => self.begin_erase(line),
            };
            tag = Some(io);
            let address = self.layout.address(self.layout.unit(chunk, 0));
            self.ios
                .get_mut(io)
                .push(chunk, address, Metadata::default(), Part::Unused);
        }
        self.end_erase_if_done(line);
    }

    fn begin_erase(&mut self, line: u32) -> Tag {
        self.lines.get_mut(line).unsettled += 1;
        let tag = self.ios.begin(IoOp::Reset, Purpose::Erase(line));
        self.out.push_back(Action::Submit(tag));
        tag
    }

    /// Chunks of a line are erased, or bad from now on.
    pub(super) fn erase_done(&mut self, tag: Tag, line: u32, failed: u64) {
        let io = self.ios.get(tag);
        let (count, chunks) = (io.count, io.units);
        self.ios.release(tag);
        for (place, &chunk) in chunks[..count as usize].iter().enumerate() {
            if failed >> place & 1 == 1 {
                self.stats.failed_erases += 1;
                self.lines.set_bad(chunk);
            }
        }
        self.lines.get_mut(line).unsettled -= 1;
        self.end_erase_if_done(line);
        self.check_spare();
    }

    fn end_erase_if_done(&mut self, line: u32) {
        if self.lines.get(line).unsettled > 0 {
            return;
        }
        self.collector.erasing.retain(|&one| one != line);
        self.lines.erased(line);
        self.stats.erases += 1;
        let dead = self.lines.get(line).state == Use::Dead;
        self.collector.dead = if dead { self.collector.dead + 1 } else { 0 };
        // Flash that is worn evenly ends all at once. There has to be some left for the write
        // buffer.
        if self.collector.dead >= DEAD_IN_A_ROW && self.lines.free() <= self.layout.host_reserve() {
            self.go_read_only();
        }
    }
}
