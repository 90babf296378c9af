//! Executes accepted commands: sensing, programming, erasing, and completions to the host.

use flashyard_time::Time;

use super::accept::bits;
use super::faults::Kind;
use super::{Action, Chunk, ChunkState, Completion, Device, Event, Status};
use crate::die::{Erase, Happened, Lane, Program, Read};

/// Bits of a token that tell the address within the command.
const PLACE_BITS: u32 = 6;

impl Device {
    /// Lets everything happen that is due at `now`. An instant that has passed already changes
    /// nothing.
    pub(super) fn run(&mut self, now: u64) {
        while let Some((at, happened)) = self.dies.next(now) {
            self.clock = at;
            match happened {
                Happened::Sorted(Lane::Arrive, index) => self.arrive(index),
                Happened::Sorted(Lane::Hit, index) => self.program_all(index),
                Happened::Sorted(_, index) => self.complete(index),
                Happened::Read(read) => self.sensed(read),
                Happened::Loaded(program) => self.loaded(program),
                Happened::Programmed(program) => self.programmed(program),
                Happened::Erased(erase) => self.erased(erase),
                Happened::Rare(never) => match never {},
            }
        }
        self.clock = self.clock.max(now);
    }

    /// A command has left the firmware.
    fn arrive(&mut self, index: u32) {
        let command = &self.commands[index as usize];
        if command.accepted == 0 {
            return self.answer(index);
        }
        match command.action {
            Action::Read | Action::Copy => self.read_all(index),
            Action::Write => {
                let units = u64::from(command.accepted.count_ones());
                self.link_in_free =
                    self.link_in_free.max(self.clock) + units * self.front.link_unit;
                self.dies.events.push(Lane::Hit, self.link_in_free, index);
            }
            Action::Reset => self.reset_all(index),
        }
    }

    /// Begins one read for each cell.
    fn read_all(&mut self, index: u32) {
        let command = &self.commands[index as usize];
        let (accepted, count, units) = (command.accepted, command.count, command.units);
        let cell = self.geometry.cell;
        let mut place = 0;
        while place < u32::from(count) {
            let unit = units[place as usize];
            let mut length = 1;
            while place + length < u32::from(count)
                && accepted >> (place + length) & 1 == 1
                && units[(place + length) as usize] == unit + length
                && (unit + length) / cell == unit / cell
            {
                length += 1;
            }
            if accepted >> place & 1 == 0 {
                place += 1;
                continue;
            }
            let (chunk, sector) = self.split(unit);
            let read = Read {
                token: index << PLACE_BITS | place,
                die: self.die_of(chunk),
                units: length as u8,
                page_type: self.geometry.page_type(sector),
                background: false,
            };
            self.commands[index as usize].parts += 1;
            self.dies.read(self.clock, read);
            place += length;
        }
    }

    /// The data of a cell are in the controller.
    fn sensed(&mut self, read: Read) {
        let (index, first) = parts(read.token);
        let count = u32::from(read.units);
        for place in first..first + count {
            let unit = self.commands[index as usize].units[place as usize];
            if self.lot.strikes(Kind::Read, unit) {
                self.commands[index as usize].fail(1 << place, Status::Unreadable);
            } else if self.commands[index as usize].action == Action::Read {
                self.commands[index as usize].metadata[place as usize] = self.metadata_of(unit);
            }
            let (chunk, _) = self.split(unit);
            self.chunks[chunk].readers -= 1;
            self.begin_waiting_erase(chunk);
        }
        self.stats.read_sectors += u64::from(count);
        let command = &mut self.commands[index as usize];
        command.parts -= 1;
        let last = command.parts == 0;
        if command.action == Action::Copy {
            if last {
                self.program_all(index);
            }
            return;
        }
        self.link_out_free =
            self.link_out_free.max(self.clock) + u64::from(count) * self.front.link_unit;
        if last {
            let at = self.link_out_free + self.front.read_exit;
            self.dies.events.push(Lane::ReadDone, at, index);
        }
    }

    /// Begins the program of every accepted write unit.
    fn program_all(&mut self, index: u32) {
        let size = self.geometry.ws_min;
        let command = &self.commands[index as usize];
        let (accepted, count, targets) = (command.accepted, command.count, *command.targets());
        for first in (0..u32::from(count)).step_by(size as usize) {
            if accepted >> first & 1 == 0 {
                continue;
            }
            if self.commands[index as usize].action == Action::Copy {
                self.copy_metadata(index, first);
            }
            let (chunk, sector) = self.split(targets[first as usize]);
            let page_type = self.geometry.page_type(sector);
            let program = Program {
                token: index << PLACE_BITS | first,
                die: self.die_of(chunk),
                page_type,
                background: false,
                tell_loaded: self.options.buffered,
                longer_by: self.longer_by(page_type),
            };
            self.commands[index as usize].parts += 1;
            self.commands[index as usize].programs += 1;
            self.dies.program(self.clock, program);
        }
    }

    /// By how much the next program of a page takes longer than usual.
    fn longer_by(&mut self, page_type: u8) -> i32 {
        let usual = if page_type == 0 {
            self.geometry.program_ns.0
        } else {
            self.geometry.program_ns.1
        };
        let most = usual / 1000 * u64::from(self.options.program_spread.min(1000));
        if most == 0 {
            return 0;
        }
        let drawn = self.spread.below(2 * most + 1);
        (drawn.cast_signed() - most.cast_signed()) as i32
    }

    fn copy_metadata(&mut self, index: u32, first: u32) {
        for place in first as usize..(first + self.geometry.ws_min) as usize {
            let command = &self.commands[index as usize];
            let (from, to) = (command.units[place], command.targets[place]);
            self.put_metadata(to, self.metadata_of(from));
        }
    }

    /// A die has taken the data of a write that is complete with that.
    fn loaded(&mut self, program: Program) {
        let (index, first) = parts(program.token);
        let (chunk, _) = self.split(self.commands[index as usize].targets()[first as usize]);
        if self.chunks[chunk].state == ChunkState::Open {
            self.chunks[chunk].acknowledged += self.geometry.ws_min;
        } else {
            self.fail_write(index, first);
        }
        self.end_part(index);
    }

    /// A program has ended.
    fn programmed(&mut self, program: Program) {
        let (index, first) = parts(program.token);
        let command = &mut self.commands[index as usize];
        command.programs -= 1;
        let unit = command.targets()[first as usize];
        let unread = self.lacks_source(index, first);
        let (chunk, _) = self.split(unit);
        self.chunks[chunk].writers -= 1;
        self.begin_waiting_erase(chunk);
        let open = self.chunks[chunk].state == ChunkState::Open;
        if open && (unread || self.lot.strikes(Kind::Write, unit)) {
            self.close_early(chunk);
        }
        if self.chunks[chunk].state == ChunkState::Open {
            self.advance_chunk(chunk);
        } else if !self.options.buffered {
            self.fail_write(index, first);
        }
        if self.options.buffered {
            self.release(index);
        } else {
            self.end_part(index);
        }
    }

    /// Whether a write unit is a copy of what could not be read.
    pub(super) fn lacks_source(&self, index: u32, first: u32) -> bool {
        let command = &self.commands[index as usize];
        let unit = bits(first, self.geometry.ws_min);
        command.action == Action::Copy && command.failed & unit != 0
    }

    /// A write unit of an open chunk is programmed.
    fn advance_chunk(&mut self, number: usize) {
        let size = self.geometry.ws_min;
        self.stats.written_sectors += u64::from(size);
        let die = self.die_of(number) as usize;
        let chunk = &mut self.chunks[number];
        chunk.programmed += size;
        if !self.options.buffered {
            chunk.acknowledged = chunk.programmed;
        }
        if chunk.programmed == self.geometry.clba {
            chunk.state = ChunkState::Closed;
            self.open[die] -= 1;
        }
    }

    /// A program of an open chunk has failed.
    fn close_early(&mut self, number: usize) {
        let die = self.die_of(number) as usize;
        let torn = self.chunks[number].programmed + self.geometry.ws_min;
        self.chunks[number].close_early(torn);
        self.open[die] -= 1;
        self.stats.closed_early += 1;
        self.notify(number, Event::ClosedEarly);
    }

    fn fail_write(&mut self, index: u32, first: u32) {
        let unit = bits(first, self.geometry.ws_min);
        self.commands[index as usize].fail(unit, Status::ClosedEarly);
    }

    /// Begins every accepted reset, or has it wait for what came before.
    fn reset_all(&mut self, index: u32) {
        let command = &self.commands[index as usize];
        let (accepted, count, units) = (command.accepted, command.count, command.units);
        for place in (0..u32::from(count)).filter(|place| accepted >> place & 1 == 1) {
            let token = index << PLACE_BITS | place;
            self.commands[index as usize].parts += 1;
            let (chunk, _) = self.split(units[place as usize]);
            self.chunks[chunk].waiting = Some(token);
            self.begin_waiting_erase(chunk);
        }
    }

    /// Begins the reset of a chunk once nothing that came before it is in flight.
    fn begin_waiting_erase(&mut self, chunk: usize) {
        if self.chunks[chunk].is_quiet()
            && let Some(token) = self.chunks[chunk].waiting.take()
        {
            self.begin_erase(token);
        }
    }

    fn begin_erase(&mut self, token: u32) {
        let (index, place) = parts(token);
        let (chunk, _) = self.split(self.commands[index as usize].units[place as usize]);
        let die = self.die_of(chunk);
        let resets = &mut self.resets[die as usize];
        *resets = resets.wrapping_add(1);
        let instant = !resets.is_multiple_of(self.geometry.reset_dilution);
        let erase = Erase {
            token,
            die,
            instant,
        };
        self.dies.erase(self.clock, erase);
    }

    /// An erase has ended.
    fn erased(&mut self, erase: Erase) {
        let (index, place) = parts(erase.token);
        let unit = self.commands[index as usize].units[place as usize];
        let (number, _) = self.split(unit);
        self.stats.resets += 1;
        if self.chunks[number].state == ChunkState::Open {
            self.open[erase.die as usize] -= 1;
        }
        self.chunks[number].erased();
        let failed = self.lot.strikes(Kind::Reset, unit);
        let worn = self.is_worn(&self.chunks[number]);
        if failed || worn {
            self.chunks[number].take_offline();
            self.stats.taken_offline += 1;
            let event = if failed {
                Event::ResetFailed
            } else {
                Event::WornOut
            };
            self.notify(number, event);
            self.commands[index as usize].fail(1 << place, Status::Offline);
        }
        self.end_part(index);
    }

    fn is_worn(&self, chunk: &Chunk) -> bool {
        self.options.endurance > 0 && chunk.resets >= self.options.endurance
    }

    /// A part of a command that sends nothing to the host has ended.
    fn end_part(&mut self, index: u32) {
        let command = &mut self.commands[index as usize];
        command.parts -= 1;
        if command.parts == 0 {
            self.answer(index);
        }
    }

    /// Completes a command that sends nothing to the host.
    fn answer(&mut self, index: u32) {
        let at = self.clock + self.front.write_exit;
        self.dies.events.push(Lane::WriteDone, at, index);
    }

    fn complete(&mut self, index: u32) {
        let command = &mut self.commands[index as usize];
        command.complete = true;
        let completion = Completion {
            at: Time::from_ns(self.clock),
            tag: command.tag,
            status: command.status,
            failed: command.failed,
            slot: index,
            serial: command.serial,
        };
        self.stats.completions += 1;
        self.stats.failures += u64::from(completion.failed != 0);
        for word in [
            self.clock ^ completion.tag.rotate_left(32),
            completion.failed.rotate_left(8) ^ completion.status as u64,
        ] {
            let mixed = word.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            self.digest = (self.digest.rotate_left(5) ^ mixed).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        }
        self.done.push(completion);
        self.release(index);
    }

    /// Frees the place of a command that is complete and has no program in flight.
    fn release(&mut self, index: u32) {
        let command = &self.commands[index as usize];
        if command.complete && command.programs == 0 {
            self.unused.push(index);
        }
    }
}

/// Command and address of a token.
pub(super) fn parts(token: u32) -> (u32, u32) {
    (token >> PLACE_BITS, token & ((1 << PLACE_BITS) - 1))
}
