//! Power cuts: which data a drive still has when it comes back.
//!
//! A protected buffer keeps the dies programming for as long as its capacitors last; a volatile one
//! is gone at once. Data of the host that was in neither flash nor kept is as if it had not been
//! written: its addresses go back to what they held before, unit by unit. What was flushed stays,
//! and so does what garbage collection was moving: it leaves the source alone until the copy is
//! settled. A program that is cut short leaves its cells unreadable, with the lower pages in
//! them; the drive fills such rows up and goes on behind them. A block that was being erased is
//! erased again. Deallocated units stay deallocated once that was acknowledged, flushed or not: the
//! drive logs them at once.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use flashyard_time::{Duration, Time};

use super::Device;
use super::map::{NONE, Use, Writer};
use crate::die::Job;
use crate::profile::Victim;

/// The power-loss protection of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerCut {
    /// How long the capacitors of a protected buffer keep the dies programming. A volatile buffer
    /// has none.
    pub hold_up: Duration,
    /// The map is written down after so many rows of programs; what came later is found by
    /// reading it. At least one.
    pub checkpoint_rows: u64,
}

/// The recovery of a drive after a power cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// When it takes commands again; those that come earlier wait.
    pub ready: Time,
    /// How long that took.
    pub spent: Duration,
    /// Units that were programmed while the capacitors lasted.
    pub held_up_units: u64,
    /// Programs that were cut short.
    pub torn_programs: u32,
    /// Superblocks whose erase was cut short and done again.
    pub erased_again: u32,
    /// Units whose last write is lost, in ascending order.
    pub lost: Vec<Lost>,
}

/// A unit whose last write is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its address.
    pub unit: u64,
    /// How many of its last writes are lost. Zero when only a copy of settled data was, which the
    /// capacitors of a protected buffer should have saved.
    pub writes: u32,
    /// What it holds now.
    pub content: Content,
}

/// What a unit holds after its last writes were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The write before them.
    Earlier,
    /// Nothing, as before them.
    Nothing,
    /// Nothing, though there was something before: the drive relied on its capacitors, and they did
    /// not last.
    Gone,
}

impl Default for PowerCut {
    /// Capacitors that last for 100 ms, far longer than a buffer takes, and a checkpoint every 256
    /// rows.
    fn default() -> Self {
        Self {
            hold_up: Duration::from_ms(100),
            checkpoint_rows: 256,
        }
    }
}

/// The state of the recovery from a cut.
struct Cut {
    /// For each die, how many more programs it can end; nothing when its power is gone.
    left: Vec<Option<u64>>,
    held_up: u64,
    torn: BTreeSet<u32>,
    /// Programs whose data is not in the flash, whether torn or not begun.
    dead: BTreeSet<u32>,
}

impl Device {
    /// Units that the host has written so far, in the order of its commands and within each in
    /// ascending order; those of commands that are not complete may be among them.
    pub fn accepted_units(&self) -> u64 {
        self.unsettled.accepted()
    }

    /// How many of these, counted from the first, survive every power cut, whatever the capacitors
    /// do. The owner of the data needs to know what the others replaced, and no more.
    pub fn settled_units(&self) -> u64 {
        self.unsettled.settled()
    }

    /// Cuts the power at `now` and brings the drive back. Commands in flight are gone without
    /// completion; those completed before can still be fetched.
    pub fn power_cut(&mut self, now: Time, power: &PowerCut) -> Recovered {
        self.run(now.as_ns());
        let rows = self.rows_to_scan(power);
        let cut = self.stop(power);
        let lost = self.roll_back(&cut);
        self.close_rows(&cut);
        let (erased_again, mut spent) = self.restart();
        spent += rows * u64::from(self.layout.pages_per_program) * self.profile.read_lower_ns;
        spent += self.make_room();
        self.collector.headroom = self.counted_headroom();
        self.clock += spent;
        Recovered {
            ready: Time::from_ns(self.clock),
            spent: Duration::from_ns(spent),
            held_up_units: cut.held_up * u64::from(self.layout.program_units),
            torn_programs: cut.torn.len() as u32,
            erased_again,
            lost,
        }
    }

    /// Rows that are read to find out what is in the flash: those not settled, and those since the
    /// last checkpoint.
    fn rows_to_scan(&self, power: &PowerCut) -> u64 {
        let open: usize = Writer::ALL
            .iter()
            .map(|&writer| self.unsettled.rows(writer).count())
            .sum();
        let programs = self.dies.total().programs;
        let rows = programs / u64::from(self.layout.dies);
        open as u64 + rows % power.checkpoint_rows.max(1)
    }

    /// Stops everything, and says what of the buffer is in the flash then.
    fn stop(&mut self, power: &PowerCut) -> Cut {
        let mut begun = Vec::new();
        self.dies.cut(|job| {
            if let Job::Program(program) = job {
                begun.push(program.token);
            }
        });
        let programs = if self.buffer_protected {
            // With a budget for programming dies they take turns.
            let turns = u64::from(self.layout.dies).div_ceil(self.profile.programming_dies);
            let slowest = self.profile.program_ns.max(self.profile.program_upper_ns);
            power.hold_up.as_ns() / (slowest * turns)
        } else {
            0
        };
        let mut cut = Cut {
            left: vec![Some(programs); self.layout.dies as usize],
            held_up: 0,
            torn: BTreeSet::new(),
            dead: BTreeSet::new(),
        };
        for &program in &begun {
            self.hold_up(&mut cut, program, true);
        }
        // What was moved has no source any more where the buffer is protected: it goes first.
        for writer in [Writer::Collector, Writer::Host, Writer::HostCold] {
            let rows = self.unsettled.rows(writer);
            let programs: Vec<u32> = rows.flat_map(|row| self.layout.programs_of(row)).collect();
            for program in programs {
                if !self.map.is_programmed(program) && !cut.dead.contains(&program) {
                    self.hold_up(&mut cut, program, false);
                }
            }
        }
        cut
    }

    /// Ends a program with what power its die has left, or tears it.
    fn hold_up(&mut self, cut: &mut Cut, program: u32, begun: bool) {
        let left = &mut cut.left[(program % self.layout.dies) as usize];
        match left {
            Some(1..) => {
                *left = left.map(|left| left - 1);
                cut.held_up += 1;
                self.map.set_programmed(program);
                return;
            }
            // Whatever runs out of power does so while it programs.
            Some(0) if begun || cut.held_up > 0 => {
                *left = None;
                cut.torn.insert(program);
                cut.dead.extend(self.layout.sharing_cells(program));
            }
            _ => {}
        }
        cut.dead.insert(program);
    }

    /// Maps what was lost to what it replaced.
    fn roll_back(&mut self, cut: &Cut) -> Vec<Lost> {
        let mut mapped = Vec::new();
        for unit in cut
            .dead
            .iter()
            .flat_map(|&program| self.layout.units_of(program))
        {
            let logical = self.map.logical_of[unit as usize];
            if logical != NONE && self.map.physical_of[logical as usize] == unit {
                mapped.push((logical, unit));
            }
        }
        mapped.sort_unstable();
        let mut lost = Vec::new();
        for (logical, unit) in mapped {
            let (writes, content, survivor) = self.survivor(cut, logical, unit);
            self.map.unmap(logical);
            if content == Content::Earlier {
                self.map.place(logical, survivor);
            }
            if writes > 0 || content != Content::Earlier {
                lost.push(Lost {
                    unit: u64::from(logical),
                    writes,
                    content,
                });
            }
        }
        for unit in cut
            .dead
            .iter()
            .flat_map(|&program| self.layout.units_of(program))
        {
            self.map.forget(unit);
        }
        lost
    }

    /// Goes back from `unit` to the last place of `logical` that is in the flash, over so many
    /// writes of the host.
    fn survivor(&self, cut: &Cut, logical: u32, unit: u32) -> (u32, Content, u32) {
        let (mut at, mut writes, mut moved) = (unit, 0, 0);
        let most = cut.dead.len() * self.layout.program_units as usize;
        while at != NONE && cut.dead.contains(&self.layout.program(at)) {
            // Where superblocks are erased before their copies are settled, places may name each
            // other in a circle.
            moved += 1;
            let origin = self.unsettled.origin(at, self.layout.row_units());
            let Some((writer, replaced)) = origin.filter(|_| moved <= most) else {
                return (writes, Content::Gone, NONE);
            };
            writes += u32::from(writer != Writer::Collector);
            at = replaced;
        }
        if at == NONE {
            return (writes, Content::Nothing, NONE);
        }
        let there = self.map.logical_of[at as usize] == logical
            && self.map.use_of(at) != Use::Erasing
            && self.map.is_programmed(self.layout.program(at));
        match there {
            true => (writes, Content::Earlier, at),
            false => (writes, Content::Gone, NONE),
        }
    }

    /// Fills up the rows that were begun, and has each write point go on behind the last of them
    /// whose cells were touched, at the beginning of a group.
    fn close_rows(&mut self, cut: &Cut) {
        for writer in Writer::ALL {
            let rows: Vec<u32> = self.unsettled.rows(writer).collect();
            let touched = rows.iter().rposition(|&row| {
                let mut programs = self.layout.programs_of(row);
                programs
                    .any(|program| self.map.is_programmed(program) || cut.torn.contains(&program))
            });
            let point = self.map.points[writer as usize];
            let open = (point.left > 0).then(|| self.map.superblock_of(point.next));
            for (place, &row) in rows.iter().enumerate() {
                let begins = row * self.layout.row_units();
                let kept_clean = touched.is_none_or(|touched| place > touched)
                    && open == Some(self.map.superblock_of(begins));
                if kept_clean {
                    // Behind the last touched row nothing was programmed: the point goes back.
                    self.retreat(writer, begins);
                    break;
                }
                self.fill_up(row);
            }
            self.align(writer);
        }
    }

    /// Has a write point go on at `next`, in its open superblock.
    fn retreat(&mut self, writer: Writer, next: u32) {
        let point = &mut self.map.points[writer as usize];
        point.left += point.next - next;
        point.next = next;
    }

    /// Has a write point go on at the next group, and fills up what is before that.
    fn align(&mut self, writer: Writer) {
        loop {
            let point = self.map.points[writer as usize];
            if point.left == 0 || self.layout.ends_group(point.next) {
                return;
            }
            let row = point.next / self.layout.row_units();
            let end = (row + 1) * self.layout.row_units();
            self.map.skip(writer, end - point.next);
            self.fill_up(row);
        }
    }

    fn fill_up(&mut self, row: u32) {
        for program in self.layout.programs_of(row) {
            if !self.map.is_programmed(program) {
                self.map.set_programmed(program);
            }
        }
    }

    /// Forgets what was in flight. How many superblocks had to be erased again, and how long that
    /// took.
    fn restart(&mut self) -> (u32, u64) {
        self.unsettled.settle_all();
        self.barriers.clear();
        self.waiting.clear();
        self.commands.clear();
        self.unused.clear();
        (self.buffer_used, self.programs_in_flight) = (0, 0);
        (self.firmware_free, self.link_in_free, self.link_out_free) = (0, 0, 0);
        let mut again = 0;
        for superblock in 0..self.layout.superblocks {
            match self.map.uses[superblock as usize] {
                Use::Victim => self.map.uses[superblock as usize] = Use::Closed,
                Use::Erasing => {
                    again += 1;
                    self.map.free(superblock);
                }
                _ => {}
            }
        }
        let (pace, erased) = (self.collector.unit_ns, self.collector.erased);
        self.reset_collector(None);
        (self.collector.unit_ns, self.collector.erased) = (pace, erased);
        let spent = if again > 0 { self.profile.erase_ns } else { 0 };
        (again, spent)
    }

    /// Collects before anything else until the host may be let in: every cut wastes rows, and many
    /// of them, one soon after the other, could waste them all. How long it took.
    fn make_room(&mut self) -> u64 {
        let mut spent = 0;
        while self.collector_is_behind() || self.map.free.is_empty() {
            let Some(victim) = self.map.victim(Victim::Greedy) else {
                break;
            };
            for unit in self.map.rewrite(victim) {
                if let Some(program) = self.layout.completed_by(unit + 1) {
                    self.map.set_programmed(program);
                }
            }
            let rows = u64::from(self.layout.superblock_units / self.layout.row_units());
            spent += rows * (self.profile.read_lower_ns + self.profile.program_ns);
            spent += self.profile.erase_ns;
            self.collector.headroom = self.counted_headroom();
        }
        self.align(Writer::Collector);
        spent
    }
}

#[cfg(test)]
mod tests;
