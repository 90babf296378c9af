//! Garbage collection, and how it throttles the host.
//!
//! Headroom is the number of units that can be written before the reserve of free superblocks is
//! touched. Every unit of the host takes one; every cell that is collected gives as many as were no
//! longer valid in it. Below zero the collector works, and the host is let in at the rate at which
//! headroom is being gained, a little faster or slower the less or the more it is ahead. Without
//! that pace writes would wait for whole superblocks: the same rate with a far longer tail.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::layout::Layout;
use super::map::{Use, Writer};
use super::unsettled::Mark;
use super::{Active, Device};
use crate::die::{Erase, Lane, Read};
use crate::{Profile, UNIT_BYTES};

/// Units of headroom over which the pace is measured.
const MEASURED_UNITS: u64 = 512;

#[derive(Debug)]
pub(super) struct Collector {
    /// Units that can be written before the reserve is touched.
    pub headroom: i64,
    /// The superblock being read and the next unit to look at.
    scan: Option<(u32, u32)>,
    /// Superblocks being read or erased, and reads or erases not ended.
    busy: Vec<Busy>,
    /// Reads in flight, each of one page of every plane.
    reads: u32,
    most_reads: u32,
    /// Units read that will be written.
    expected: u32,
    /// Units written and not programmed.
    pub buffered: u32,
    most_buffered: u32,
    /// How far the host may be ahead.
    lead: u64,
    /// Time per unit of headroom gained.
    pub unit_ns: u64,
    /// When measuring began and what was gained since; nothing while the collector rests.
    measured: Option<(u64, u64)>,
    /// The next write of the host is not let in before.
    pub next_admission: u64,
    /// An event for that is set.
    pub timer: bool,
    /// Superblocks erased, for the dilution of erases.
    pub erased: u64,
    /// Superblocks that hold nothing valid, but what a power cut would go back to, and until when.
    pub pinned: VecDeque<(Mark, u32)>,
    /// Units of padding that free flash was sought with since the host wrote anything.
    padded: u64,
}

#[derive(Debug)]
struct Busy {
    superblock: u32,
    pending: u32,
}

impl Collector {
    pub fn new(profile: &Profile, layout: &Layout) -> Self {
        let buffer = (profile.buffer_bytes / UNIT_BYTES).min(u64::from(u32::MAX)) as u32;
        let spare = u64::from(layout.reserve - 2) * u64::from(layout.superblock_units);
        Self {
            headroom: i64::from(layout.superblocks - layout.reserve)
                * i64::from(layout.superblock_units),
            scan: None,
            busy: Vec::with_capacity(layout.reserve as usize),
            reads: 0,
            most_reads: (profile.gc_reads / profile.planes).max(1) as u32,
            expected: 0,
            buffered: 0,
            most_buffered: buffer,
            lead: profile.gc_lead_units.min(spare),
            // A first guess, a write amplification of 5; it is measured as soon as the collector
            // works.
            unit_ns: profile.program_ns * 5 / u64::from(layout.program_units * layout.dies),
            measured: None,
            next_admission: 0,
            timer: false,
            erased: 0,
            pinned: VecDeque::new(),
            padded: 0,
        }
    }

    /// How far the host is ahead.
    fn debt(&self) -> u64 {
        u64::try_from(-self.headroom).unwrap_or(0)
    }

    /// Time that a unit of the host takes at the present debt: half to one and a half of what
    /// gaining one takes.
    fn pace(&self) -> u64 {
        self.unit_ns * (self.lead / 2 + self.debt()) / self.lead
    }

    /// Counts `gained` units of headroom.
    fn gain(&mut self, now: u64, gained: u32) {
        self.headroom += i64::from(gained);
        let (since, sum) = self.measured.unwrap_or((now, 0));
        let sum = sum + u64::from(gained);
        if sum < MEASURED_UNITS {
            self.measured = Some((since, sum));
        } else {
            self.unit_ns = (self.unit_ns * 7 + (now - since) / sum) / 8;
            self.measured = Some((now, 0));
        }
    }
}

impl Device {
    /// Lets writes in and collects, as far as both can go now or until something in flight ends.
    pub(super) fn pump(&mut self) {
        loop {
            let before = self.progress();
            if !self.waiting.is_empty() {
                self.admit();
            }
            if self.collect() {
                self.admit();
            }
            self.relieve();
            if self.is_pumped_again() || self.progress() == before {
                return;
            }
        }
    }

    /// Whether no write waits, or something is in flight whose end lets it go on.
    fn is_pumped_again(&self) -> bool {
        let collector = &self.collector;
        self.waiting.is_empty()
            || self.programs_in_flight > 0
            || collector.reads > 0
            || collector.timer
            || self.is_erasing()
    }

    fn is_erasing(&self) -> bool {
        let mut busy = self.collector.busy.iter();
        busy.any(|busy| self.map.uses[busy.superblock as usize] == Use::Erasing)
    }

    /// Differs when anything was written, padded, looked at or erased in between.
    fn progress(&self) -> (u64, u64, u64, i64, Option<(u32, u32)>) {
        let (stats, collector) = (&self.stats, &self.collector);
        (
            stats.written_units,
            stats.padded_units,
            collector.erased,
            collector.headroom,
            collector.scan,
        )
    }

    /// Puts waiting writes into the buffer.
    fn admit(&mut self) {
        while let Some(&index) = self.waiting.front() {
            let command = self.commands[index as usize];
            if command.admitted == 0 && !self.pace_lets_in(&command) {
                return;
            }
            let mut admitted = command.admitted;
            let writer = command.op.writer();
            while admitted < command.units && self.has_room(writer) {
                self.append_host(writer, command.start + admitted);
                admitted += 1;
            }
            let taken = admitted - command.admitted;
            self.collector.headroom -= i64::from(taken);
            self.stats.written_units += u64::from(taken);
            if taken > 0 {
                self.collector.padded = 0;
            }
            self.commands[index as usize].admitted = admitted;
            if admitted < command.units {
                return;
            }
            self.waiting.pop_front();
            self.written(index);
        }
    }

    /// Whether a write may begin; if only the time for it has not come, sets an event.
    fn pace_lets_in(&mut self, command: &Active) -> bool {
        if self.collector.headroom >= 0 {
            return true;
        }
        if self.collector_is_behind() || !self.has_room(command.op.writer()) {
            return false;
        }
        let collector = &mut self.collector;
        if self.clock < collector.next_admission {
            if !core::mem::replace(&mut collector.timer, true) {
                self.dies
                    .events
                    .push(Lane::Admit, collector.next_admission, 0);
            }
            return false;
        }
        collector.next_admission = self.clock + collector.pace() * u64::from(command.units);
        true
    }

    /// Whether buffer and flash take another unit of the host, with enough left for what is being
    /// collected.
    fn has_room(&self, writer: Writer) -> bool {
        if self.buffer_used >= self.buffer_units {
            return false;
        }
        if self.map.points[writer as usize].left > 0 {
            return true;
        }
        let free = self.map.free.len() as u32;
        let kept = free
            .saturating_sub(1)
            .saturating_mul(self.layout.superblock_units);
        let left = self.map.points[Writer::Collector as usize].left;
        free > 1 && kept.saturating_add(left) >= self.collector.expected + self.layout.cell_units
    }

    /// Reads cells of victims as long as headroom is wanted and reads may be added. True when a
    /// superblock became free at once.
    fn collect(&mut self) -> bool {
        let mut freed = false;
        while self.collector.headroom < 0 {
            if !self.may_collect() {
                return freed;
            }
            let Some((victim, unit)) = self.collector.scan.or_else(|| self.choose_victim()) else {
                self.collector.measured = None;
                return freed;
            };
            freed |= self.collect_cell(victim, unit, self.layout.cell_units);
        }
        self.collector.measured = None;
        freed
    }

    /// Reads what is valid in the cell of a victim that begins at `unit`, as far as there is room
    /// for that; the rest another time. True when a superblock became free at once.
    fn collect_cell(&mut self, victim: u32, unit: u32, room: u32) -> bool {
        let next = unit + self.layout.cell_units;
        let valid = self
            .map
            .valid_in_cell(unit, self.layout.cell_units)
            .count_ones();
        if valid > room {
            self.collector.scan = Some((victim, unit));
            self.collector.headroom -= i64::from(room);
            self.begin_collector_read(unit, room);
            return false;
        }
        self.collector
            .gain(self.clock, self.layout.cell_units - valid);
        if valid > 0 {
            self.begin_collector_read(unit, valid);
        }
        if next == (victim + 1) * self.layout.superblock_units {
            self.collector.scan = None;
            self.end_of_part(victim)
        } else {
            self.collector.scan = Some((victim, next));
            false
        }
    }

    /// Whether so little is free that the host has to wait.
    pub(super) fn collector_is_behind(&self) -> bool {
        self.collector.debt() >= self.collector.lead
    }

    /// Whether another cell may be read: reads, buffer and flash permitting.
    fn may_collect(&self) -> bool {
        let collector = &self.collector;
        let wanted = collector.expected + self.layout.cell_units;
        collector.reads < collector.most_reads
            && collector.buffered + wanted <= collector.most_buffered
            && self.has_flash_to_collect()
    }

    /// Whether another cell has a place to go to.
    fn has_flash_to_collect(&self) -> bool {
        let free = (self.map.free.len() as u32).saturating_mul(self.layout.superblock_units);
        let writable = free.saturating_add(self.map.points[Writer::Collector as usize].left);
        self.collector.expected + self.layout.cell_units <= writable
    }

    fn choose_victim(&mut self) -> Option<(u32, u32)> {
        let superblock = self.map.victim(self.profile.gc_victim)?;
        self.map.uses[superblock as usize] = Use::Victim;
        // One part is the scan itself, which ends with its last cell.
        self.collector.busy.push(Busy {
            superblock,
            pending: 1,
        });
        Some((superblock, superblock * self.layout.superblock_units))
    }

    fn begin_collector_read(&mut self, unit: u32, valid: u32) {
        let superblock = unit / self.layout.superblock_units;
        self.collector.reads += 1;
        self.collector.expected += valid;
        let busy = self
            .collector
            .busy
            .iter_mut()
            .find(|busy| busy.superblock == superblock);
        busy.expect("the victim is busy").pending += 1;
        let place = self.layout.cell(unit);
        let read = Read {
            token: unit,
            die: place.die,
            units: valid as u8,
            page_type: place.page_type,
            background: true,
        };
        self.dies.read(self.clock, read);
    }

    /// A cell has been read: writes what is still valid in it.
    pub(super) fn collector_read(&mut self, first: u32, expected: u32) {
        self.collector.reads -= 1;
        self.collector.expected -= expected;
        let mut valid = self.map.valid_in_cell(first, self.layout.cell_units);
        while valid.count_ones() > expected {
            // There was no room for the whole cell.
            valid &= u64::MAX >> (valid.leading_zeros() + 1);
        }
        let moved = valid.count_ones();
        self.collector.buffered += moved;
        while valid != 0 {
            let from = self.unsettled.replaced(Writer::Collector);
            let to = self
                .map
                .relocate(first, &mut valid, self.layout.cell_units, from);
            self.begin_row(Writer::Collector, to.start);
            self.end_cell(Writer::Collector, to.end);
        }
        self.stats.moved_units += u64::from(moved);
        self.collector.gain(self.clock, expected - moved);
        self.end_of_part(first / self.layout.superblock_units);
        self.pump();
    }

    /// One of the reads or erases of `superblock`, or its scan, has ended. True when it became
    /// free.
    fn end_of_part(&mut self, superblock: u32) -> bool {
        let place = self
            .collector
            .busy
            .iter()
            .position(|busy| busy.superblock == superblock);
        let place = place.expect("only a busy superblock has parts");
        let busy = &mut self.collector.busy[place];
        busy.pending -= 1;
        if busy.pending > 0 {
            return false;
        }
        self.collector.busy.swap_remove(place);
        if self.map.uses[superblock as usize] == Use::Victim {
            return self.emptied(superblock);
        }
        self.map.free(superblock);
        true
    }

    /// Everything valid has been moved out of `superblock`. True when it became free.
    fn emptied(&mut self, superblock: u32) -> bool {
        let mark = self.unsettled.mark();
        if !self.buffer_protected && !self.unsettled.is_settled(mark) {
            self.collector.pinned.push_back((mark, superblock));
            return false;
        }
        self.erase(superblock)
    }

    /// Erases what was kept until its copies, and what replaced the rest, would outlive a power
    /// cut.
    pub(super) fn release_pinned(&mut self) {
        while let Some(&(mark, superblock)) = self.collector.pinned.front()
            && self.unsettled.is_settled(mark)
        {
            self.collector.pinned.pop_front();
            self.erase(superblock);
        }
    }

    /// Fills rows up when nothing goes on until the flash that waits for them is free. Not earlier:
    /// filling takes flash, too. Where a superblock is a few rows, padding can take as much as
    /// collecting gains, without end; when so much was padded that this is likely, rows are filled
    /// with data as far as there are any.
    fn relieve(&mut self) {
        let Some(&(mark, _)) = self.collector.pinned.front() else {
            return;
        };
        let stuck = if self.collector.headroom < 0 {
            // Nothing was measured when there was nothing to collect.
            !self.has_flash_to_collect() || self.collector.measured.is_none()
        } else {
            self.buffer_used < self.buffer_units
                && self
                    .waiting
                    .front()
                    .is_some_and(|&index| !self.has_room(self.commands[index as usize].op.writer()))
        };
        if self.collector.reads > 0 || !stuck {
            return;
        }
        let reserve = u64::from(self.layout.reserve) * u64::from(self.layout.superblock_units);
        let in_vain = self.collector.padded >= reserve;
        if in_vain && self.unsettled.holds_up(Writer::Collector, mark) {
            self.collect_into_rest();
            if self.collector.reads > 0 {
                return;
            }
        }
        let padded = self.stats.padded_units;
        for writer in Writer::ALL {
            let room = writer != Writer::Collector || self.collector_may_fill();
            if room && self.unsettled.holds_up(writer, mark) {
                if in_vain {
                    self.fill_with_waiting(writer);
                }
                self.fill_group(writer);
            }
        }
        self.collector.padded += self.stats.padded_units - padded;
    }

    /// Collects what fits into the group of rows that the collector has begun, be it parts of
    /// cells.
    fn collect_into_rest(&mut self) {
        loop {
            let point = self.map.points[Writer::Collector as usize];
            let begun = point.left > 0 && !self.layout.ends_group(point.next);
            let room = point.left.saturating_sub(self.collector.expected);
            if !begun || room == 0 || self.collector.reads >= self.collector.most_reads {
                return;
            }
            let Some((victim, unit)) = self.collector.scan.or_else(|| self.choose_victim()) else {
                return;
            };
            self.collect_cell(victim, unit, room.min(self.layout.cell_units));
        }
    }

    /// Fills the group of rows that a write point of the host has begun with what waits to be
    /// written there, if that is next. It takes no more flash than padding.
    fn fill_with_waiting(&mut self, writer: Writer) {
        while let Some(&index) = self.waiting.front() {
            let command = self.commands[index as usize];
            let point = self.map.points[writer as usize];
            let begun = point.left > 0 && !self.layout.ends_group(point.next);
            let room = begun && self.buffer_used < self.buffer_units;
            if command.op.writer() != writer || !room {
                return;
            }
            self.append_host(writer, command.start + command.admitted);
            self.collector.headroom -= 1;
            self.stats.written_units += 1;
            self.commands[index as usize].admitted += 1;
            if command.admitted + 1 == command.units {
                self.waiting.pop_front();
                self.written(index);
            }
        }
    }

    /// Whether what is being read still finds room when the collector fills its rows up. If not, it
    /// will fill them.
    fn collector_may_fill(&self) -> bool {
        let point = self.map.points[Writer::Collector as usize];
        let begun = point.next - self.layout.group_start(point.next);
        let left = (point.left + begun).saturating_sub(self.layout.group_units());
        let free = (self.map.free.len() as u32).saturating_mul(self.layout.superblock_units);
        free.saturating_add(left) >= self.collector.expected
    }

    /// Erases a superblock; of a drive scaled down, most at once. True when it became free.
    fn erase(&mut self, superblock: u32) -> bool {
        self.stats.collected += 1;
        self.collector.erased += 1;
        self.map.uses[superblock as usize] = Use::Erasing;
        let takes_time = self
            .collector
            .erased
            .is_multiple_of(u64::from(self.layout.erase_dilution));
        if takes_time {
            self.collector.busy.push(Busy {
                superblock,
                pending: self.layout.dies,
            });
            self.begin_erases(superblock);
        } else {
            self.map.free(superblock);
        }
        !takes_time
    }

    /// Erases `superblock` on every die.
    fn begin_erases(&mut self, superblock: u32) {
        for die in 0..self.layout.dies {
            let token = superblock;
            let erase = Erase {
                token,
                die,
                instant: false,
            };
            self.dies.erase(self.clock, erase);
        }
    }

    /// A die has erased its block of `superblock`.
    pub(super) fn erased(&mut self, superblock: u32) {
        self.end_of_part(superblock);
    }

    /// The headroom, counted from what it means.
    pub(super) fn counted_headroom(&self) -> i64 {
        let superblock = i64::from(self.layout.superblock_units);
        let states = |wanted: Use| {
            let found = self.map.uses.iter().filter(|state| **state == wanted);
            found.map(|_| 1).sum::<i64>()
        };
        let scanned = states(Use::Victim) * superblock
            - self.collector.scan.map_or(0, |(victim, next)| {
                superblock - i64::from(next - victim * self.layout.superblock_units)
            });
        let left: i64 = self
            .map
            .points
            .iter()
            .map(|point| i64::from(point.left))
            .sum();
        (states(Use::Free) + states(Use::Erasing) - i64::from(self.layout.reserve)) * superblock
            + scanned
            + left
            - i64::from(self.collector.expected)
    }

    /// Counts anew what follows from a map that was set while nothing is in flight. `scan` goes on
    /// where it was.
    pub(super) fn reset_collector(&mut self, scan: Option<(u32, u32)>) {
        self.collector = Collector::new(&self.profile, &self.layout);
        self.collector.scan = scan;
        if let Some((superblock, _)) = scan {
            self.collector.busy.push(Busy {
                superblock,
                pending: 1,
            });
        }
        self.collector.headroom = self.counted_headroom();
    }

    /// The superblock being collected and the next unit to look at.
    pub(super) fn scan(&self) -> Option<(u32, u32)> {
        self.collector.scan
    }
}
