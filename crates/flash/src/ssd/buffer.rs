//! The write buffer: written data go on to the dies row by row, when a row is full or a command
//! waits for it.

use super::command::Op;
use super::map::{NONE, Writer};
use super::{Device, Done};
use crate::die::{Lane, Program};

impl Device {
    /// All units of a write are in the buffer.
    pub(super) fn written(&mut self, index: u32) {
        let command = self.commands[index as usize];
        self.link_in_free =
            self.link_in_free.max(self.clock) + u64::from(command.units) * self.front.link_unit;
        if command.op == Op::WriteThrough && !self.buffer_protected {
            self.force_out(index);
        } else {
            self.dies.events.push(
                Lane::WriteDone,
                self.link_in_free + self.front.write_exit,
                index,
            );
        }
    }

    /// Completes `index` when everything the host has written so far is settled. Rows begun are
    /// filled up.
    pub(super) fn force_out(&mut self, index: u32) {
        for writer in [Writer::Host, Writer::HostCold] {
            self.fill_group(writer);
        }
        let written = self.unsettled.mark_of(|writer| writer != Writer::Collector);
        self.barriers.push_back((written, index));
        self.release_barriers();
        self.pump();
    }

    /// Fills up what a write point has begun, so that nothing more has to be written until it
    /// settles.
    pub(super) fn fill_group(&mut self, writer: Writer) {
        loop {
            let point = self.map.points[writer as usize];
            if point.left == 0 || self.layout.ends_group(point.next) {
                break;
            }
            match writer {
                Writer::Collector => self.collector.buffered += 1,
                _ => self.buffer_used += 1,
            }
            let (unit, replaced) = self.map.append(writer, NONE);
            self.begin_row(writer, unit);
            self.unsettled.replaced(writer).push_back(replaced);
            self.end_cell(writer, unit + 1);
            self.collector.headroom -= 1;
            self.stats.padded_units += 1;
        }
    }

    fn release_barriers(&mut self) {
        while let Some(&(mark, index)) = self.barriers.front()
            && self.unsettled.is_settled(mark)
        {
            self.barriers.pop_front();
            let data = self.link_in_free.max(self.clock);
            self.dies
                .events
                .push_rare(data + self.front.flush, Done(index));
        }
    }

    /// Puts a unit of the host into the buffer and begins the program that it completes.
    pub(super) fn append_host(&mut self, writer: Writer, logical: u32) {
        let (unit, replaced) = self.map.append(writer, logical);
        self.buffer_used += 1;
        self.begin_row(writer, unit);
        self.unsettled.write(writer, replaced);
        self.end_cell(writer, unit + 1);
    }

    /// Counts the row that begins at `unit`, if one does.
    pub(super) fn begin_row(&mut self, writer: Writer, unit: u32) {
        if self.layout.begins_row(unit) {
            let row = self.layout.row_units();
            let ends_group = self.layout.ends_group(unit + row);
            self.unsettled
                .begin(writer, unit / row, self.layout.dies, ends_group);
        }
    }

    /// Has the die program what is complete once the unit before `next` is written.
    pub(super) fn end_cell(&mut self, writer: Writer, next: u32) {
        let Some(program) = self.layout.completed_by(next) else {
            return;
        };
        let job = Program {
            token: program,
            die: program % self.layout.dies,
            page_type: self.layout.program_type(program),
            background: writer == Writer::Collector,
            tell_loaded: false,
            longer_by: 0,
        };
        self.programs_in_flight += 1;
        self.dies.program(self.clock, job);
    }

    /// A program has ended.
    pub(super) fn programmed(&mut self, program: Program) {
        self.programs_in_flight -= 1;
        self.map.set_programmed(program.token);
        if program.background {
            self.collector.buffered -= self.layout.program_units;
        } else {
            self.buffer_used -= self.layout.program_units;
        }
        let row = program.token / self.layout.dies;
        if self.unsettled.programmed(row, self.layout.row_units()) {
            self.release_barriers();
            self.release_pinned();
        }
        self.pump();
    }
}
