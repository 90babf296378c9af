//! Commands of the host: reads, writes, deallocations and flushes.

use super::buffer::Holds;
use super::command::{Active, Command, Op, Record, Rejected};
use super::io::{Action, IoOp, Outcome, Part, Purpose, Tag};
use super::layout::{FIRST_SLOT, LOST, NONE, is_slot, is_unit};
use super::lines::Stream;
use super::open_chunks::Item;
use super::stamp::{Kind, PageWriter, Stamp};
use super::{Ftl, State};
use crate::channel::Metadata;

/// Deallocations that may be in flight; more wait.
const MOST_RECORDS: usize = 128;
/// Commands that may be in flight.
const MOST_COMMANDS: usize = 65_536;

impl Ftl {
    /// Takes a command. Its parts and its end are reported by [`Ftl::poll`].
    pub fn submit(&mut self, command: Command) -> Result<(), Rejected> {
        if !matches!(self.state, State::Ready | State::ReadOnly) {
            return Err(Rejected::NotReady);
        }
        let flushes = matches!(command.op, Op::Flush | Op::Stop);
        let end = command.first.checked_add(u64::from(command.count));
        let fits = end.is_some_and(|end| command.count > 0 && end <= self.capacity());
        if !(flushes || fits) {
            return Err(Rejected::OutOfRange);
        }
        if self.host.commands.len() - self.host.unused.len() >= MOST_COMMANDS {
            return Err(Rejected::QueueFull);
        }
        let number = self.begin(command);
        match command.op {
            Op::Read => self.read(number),
            Op::Write { .. } | Op::Deallocate if self.state == State::ReadOnly => {
                self.finish(number, Outcome::ReadOnly);
            }
            Op::Write { .. } | Op::Deallocate => self.host.waiting.push_back(number),
            Op::Flush | Op::Stop => {
                let position = (self.buffer.head, number);
                self.host.flushes.push_back(position);
                self.answer_flushes();
            }
        }
        Ok(())
    }

    /// The device address of the durable copy of a unit; nothing when it has none.
    pub fn locate(&self, unit: u64) -> Option<u64> {
        let logical = u32::try_from(unit)
            .ok()
            .filter(|_| unit < self.capacity())?;
        let entry = self.map.durable(&self.buffer, logical);
        is_unit(entry).then(|| self.layout.address(entry))
    }

    fn begin(&mut self, command: Command) -> u32 {
        let active = Active {
            command,
            stored: 0,
            reads: 0,
            outcome: Outcome::Success,
        };
        if let Some(number) = self.host.unused.pop() {
            self.host.commands[number as usize] = active;
            return number;
        }
        self.host.commands.push(active);
        self.host.commands.len() as u32 - 1
    }

    fn finish(&mut self, number: u32, outcome: Outcome) {
        let id = self.host.commands[number as usize].command.id;
        self.host.unused.push(number);
        self.out.push_back(Action::Done { id, outcome });
    }

    /// Says where each unit of a read is, and reads from the device what is there.
    fn read(&mut self, number: u32) {
        let Command {
            id, first, count, ..
        } = self.host.commands[number as usize].command;
        let mut tag: Option<Tag> = None;
        for unit in 0..count {
            let logical = first as u32 + unit;
            match self.look_up(logical) {
                NONE => self.out.push_back(Action::Zeroes { id, unit }),
                LOST => self.host.commands[number as usize].outcome = Outcome::Unreadable,
                entry if is_slot(entry) => {
                    let slot = entry - FIRST_SLOT;
                    self.out.push_back(Action::Load { id, unit, slot });
                }
                entry => {
                    let io = tag.unwrap_or_else(|| self.begin_read(number));
                    tag = self.add_read(io, entry, Part::Host(id, unit)).then_some(io);
                }
            }
        }
        if let Some(tag) = tag {
            self.out.push_back(Action::Submit(tag));
        }
        self.finish_read(number);
    }

    /// Where the newest version of a logical unit is.
    fn look_up(&self, logical: u32) -> u32 {
        let newest = self.map.newest(logical);
        if self.host.records.is_empty() {
            return newest;
        }
        let sequence = match is_slot(newest) {
            true => self.buffer.slot(newest - FIRST_SLOT).sequence,
            false => 0,
        };
        let emptied = self
            .host
            .records
            .iter()
            .any(|(_, record)| record.covers(logical) && record.sequence > sequence);
        if emptied { NONE } else { newest }
    }

    fn begin_read(&mut self, number: u32) -> Tag {
        self.host.commands[number as usize].reads += 1;
        self.ios.begin(IoOp::Read, Purpose::Read(number))
    }

    /// Adds a unit to a read of the host; false when it was the last that fits, and the read is
    /// submitted.
    fn add_read(&mut self, tag: Tag, unit: u32, part: Part) -> bool {
        self.lines.get_mut(self.layout.line_of(unit)).readers += 1;
        let address = self.layout.address(unit);
        let io = self.ios.get_mut(tag);
        io.push(unit, address, Metadata::default(), part);
        let full = io.is_full();
        if full {
            self.out.push_back(Action::Submit(tag));
        }
        !full
    }

    /// A vector of a read is complete: what failed is read again, from where it is now.
    pub(super) fn host_read_done(
        &mut self,
        tag: Tag,
        number: u32,
        failed: u64,
        metadata: &[Metadata],
    ) {
        let command = self.host.commands[number as usize].command;
        let io = self.ios.get(tag);
        let (count, units, parts, tries) = (io.count, io.units, io.parts, io.tries);
        self.ios.release(tag);
        let mut again: Option<Tag> = None;
        for place in 0..count as usize {
            self.lines
                .get_mut(self.layout.line_of(units[place]))
                .readers -= 1;
            let Part::Host(_, unit) = parts[place] else {
                continue;
            };
            let sound = failed >> place & 1 == 0
                && self.is_data_of(
                    units[place],
                    metadata.get(place),
                    command.first as u32 + unit,
                );
            if sound {
                continue;
            }
            if tries >= self.options.read_retries {
                self.stats.unreadable_reads += 1;
                self.host.commands[number as usize].outcome = Outcome::Unreadable;
                continue;
            }
            // As many as were in this vector fit into one.
            let tag =
                *again.get_or_insert_with(|| self.ios.begin(IoOp::Read, Purpose::Read(number)));
            self.ios.get_mut(tag).tries = tries + 1;
            self.lines
                .get_mut(self.layout.line_of(units[place]))
                .readers += 1;
            let address = self.layout.address(units[place]);
            let io = self.ios.get_mut(tag);
            io.push(units[place], address, Metadata::default(), parts[place]);
        }
        match again {
            Some(tag) => self.out.push_back(Action::Submit(tag)),
            None => self.host.commands[number as usize].reads -= 1,
        }
        self.finish_read(number);
    }

    /// Whether what stands beside a unit says that it holds data of a logical unit.
    fn is_data_of(&self, unit: u32, metadata: Option<&Metadata>, logical: u32) -> bool {
        let stamp = metadata.and_then(|metadata| Stamp::decode(self.key, unit, *metadata));
        stamp.is_some_and(|stamp| {
            matches!(stamp.kind, Kind::Data | Kind::Moved) && stamp.logical == logical
        })
    }

    fn finish_read(&mut self, number: u32) {
        let active = self.host.commands[number as usize];
        if active.reads == 0 {
            self.stats.read_units += u64::from(active.command.count);
            self.finish(number, active.outcome);
        }
    }

    /// Gives slots to what waits for them.
    pub(super) fn admit(&mut self) {
        while let Some(&number) = self.host.waiting.front() {
            let done = match self.host.commands[number as usize].command.op {
                _ if self.state == State::ReadOnly => {
                    self.finish(number, Outcome::ReadOnly);
                    true
                }
                Op::Deallocate => self.admit_deallocation(number),
                _ => self.admit_write(number),
            };
            if !done {
                break;
            }
            self.host.waiting.pop_front();
        }
    }

    /// Stores units of a write while there are slots; false when not all have got one.
    fn admit_write(&mut self, number: u32) -> bool {
        let Active {
            command, stored, ..
        } = self.host.commands[number as usize];
        for unit in stored..command.count {
            if self.buffer.is_full() {
                self.host.commands[number as usize].stored = unit;
                return false;
            }
            let logical = command.first as u32 + unit;
            let sequence = self.next_sequence();
            let slot = self.buffer.take(Holds::Data, logical, sequence);
            self.buffer.slot_mut(slot).older = self.map.push(logical, slot);
            self.enqueue(Stream::Host, Item::Slot(slot));
            let id = command.id;
            self.out.push_back(Action::Store { id, unit, slot });
        }
        self.stats.host_units += u64::from(command.count);
        if command.op == (Op::Write { durable: true }) {
            self.host.flushes.push_back((self.buffer.head, number));
        } else {
            self.finish(number, Outcome::Success);
        }
        true
    }

    fn admit_deallocation(&mut self, number: u32) -> bool {
        let command = self.host.commands[number as usize].command;
        let record = Record {
            first: command.first as u32,
            count: command.count,
            sequence: self.sequence,
        };
        if !self.can_record() {
            return false;
        }
        self.record(record);
        self.sequence += 1;
        self.stats.deallocated_units += u64::from(command.count);
        self.finish(number, Outcome::Success);
        true
    }

    /// Whether there is room for a record.
    fn can_record(&self) -> bool {
        self.host.records.len() < MOST_RECORDS
            && (self.last_records().is_some() || self.buffer.room() >= 2)
    }

    /// The slot that takes another record: nothing was written after it, and neither copy is on its
    /// way.
    fn last_records(&self) -> Option<u32> {
        let last = self.buffer.last_waiting(0);
        last.filter(|&slot| {
            self.buffer.slot(slot).holds == Holds::Tombstones
                && self.buffer.last_waiting(1) == Some(self.buffer.slot(slot).older)
        })
    }

    /// Puts a record into the ring, where there is room. It is written twice: one sector that goes
    /// bad would bring back whatever its records have emptied. It takes effect with the second
    /// copy, which knows the first.
    fn record(&mut self, record: Record) {
        let slot = self.last_records().unwrap_or_else(|| {
            let mut copies = [0; 2];
            for copy in &mut copies {
                *copy = self.buffer.take(Holds::Tombstones, 0, self.sequence);
                self.enqueue(Stream::Host, Item::Slot(*copy));
            }
            let [first, second] = copies;
            (
                self.buffer.slot_mut(first).older,
                self.buffer.slot_mut(second).older,
            ) = (second, first);
            second
        });
        self.host.records.push((slot, record));
    }

    fn next_sequence(&mut self) -> u64 {
        let sequence = self.sequence;
        self.sequence += 1;
        sequence
    }

    /// Writes the records of a slot into a page.
    pub(super) fn write_records(&self, slot: u32, mut page: PageWriter<'_>, unit: u32) {
        let other = self.buffer.slot(slot).older;
        let records = self.host.records.iter();
        let records = records.filter(|(at, _)| *at == slot || *at == other);
        page.put_u64(records.clone().count() as u64);
        for (_, record) in records {
            page.put_u32(record.first);
            page.put_u32(record.count);
            page.put_u64(record.sequence);
        }
        page.seal(self.key, self.buffer.slot(slot).sequence, unit);
    }

    /// Lets everything at the start of the ring that is durable take effect on the map.
    pub(super) fn settle_ring(&mut self) {
        while let Some(number) = self.buffer.first_durable() {
            let slot = *self.buffer.slot(number);
            match slot.holds {
                Holds::Data => {
                    self.map.settle(&mut self.buffer, number, slot.unit);
                }
                Holds::Tombstones => self.settle_records(number),
            }
            let line = self.layout.line_of(slot.unit);
            self.lines.get_mut(line).unsettled -= 1;
            if slot.holds == Holds::Tombstones {
                self.lines.get_mut(line).needed_until = self.checkpoint.next_generation();
            }
            self.lines.close_if_done(line);
            self.buffer.release_first();
        }
        self.answer_flushes();
    }

    fn settle_records(&mut self, slot: u32) {
        let mut place = 0;
        while let Some(&(at, record)) = self.host.records.get(place) {
            if at != slot {
                place += 1;
                continue;
            }
            self.host.records.remove(place);
            for logical in record.first..record.first + record.count {
                if self.map.newest(logical) != NONE {
                    self.map.cut(&mut self.buffer, logical, record.sequence);
                }
            }
        }
    }

    /// Whether what waits in the ring has to be written though it does not fill a vector.
    pub(super) fn must_flush(&self) -> bool {
        // A full table of records moves on like a flush. Read-only, nothing follows that vectors
        // could wait for.
        self.desperate
            || self.state == State::ReadOnly
            || self.host.records.len() >= MOST_RECORDS
            || !self.host.flushes.is_empty()
    }

    fn answer_flushes(&mut self) {
        while let Some(&(position, number)) = self.host.flushes.front() {
            if self.buffer.tail < position {
                break;
            }
            self.host.flushes.pop_front();
            // What a recovery found is on flash as it is; for want of good chunks it wrote nothing.
            let as_found = self.checkpoint.is_first();
            if self.host.commands[number as usize].command.op == Op::Stop && !as_found {
                let generation = self.checkpoint.request();
                self.host.stops.push_back((generation, number));
            } else {
                self.finish(number, Outcome::Success);
            }
        }
    }

    /// Answers commands that waited for a checkpoint.
    pub(super) fn answer_stops(&mut self, complete: u64) {
        while let Some(&(generation, number)) = self.host.stops.front() {
            if generation > complete {
                break;
            }
            self.host.stops.pop_front();
            self.finish(number, Outcome::Success);
        }
    }

    /// Nothing more can be written: all commands that wait for that end.
    pub(super) fn give_up(&mut self) {
        let flushes = core::mem::take(&mut self.host.flushes);
        let stops = core::mem::take(&mut self.host.stops);
        for (_, number) in flushes.into_iter().chain(stops) {
            self.finish(number, Outcome::ReadOnly);
        }
        self.checkpoint.give_up();
        self.admit();
    }
}
