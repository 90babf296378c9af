//! The page map: which physical unit holds a logical one, and the state of the superblocks.
//!
//! A physical unit is valid exactly when the logical unit written into it is still mapped to it.
//! The bit and the count that say so save looks into a map far larger than the caches; tests check
//! them against it.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::hint::black_box;
use core::ops::Range;

use super::layout::{Divisor, Layout};
use crate::profile::Victim;

/// No unit: not mapped, or nothing written.
pub(super) const NONE: u32 = u32::MAX;

/// What a superblock is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Free,
    /// Being written at a write point.
    Open,
    /// Completely programmed.
    Closed,
    /// Being collected.
    Victim,
    Erasing,
    /// Completely written, but some of it still in the buffer: nothing to collect yet.
    Full,
}

/// A place where data is appended.
#[derive(Clone, Copy, Debug)]
pub(super) struct WritePoint {
    /// The next unit; meaningful while `left` is above zero.
    pub next: u32,
    /// Units left in the open superblock.
    pub left: u32,
}

/// The source of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    Host,
    Collector,
    /// The host, for what it says will stay.
    HostCold,
}

impl Writer {
    pub const ALL: [Self; 3] = [Self::Host, Self::Collector, Self::HostCold];
}

#[derive(Debug)]
pub(super) struct Map {
    /// Logical to physical.
    pub physical_of: Vec<u32>,
    /// Physical to logical.
    pub logical_of: Vec<u32>,
    /// One bit for each physical unit: it is valid.
    live: Vec<u64>,
    /// Valid units of each superblock.
    pub valid: Vec<u32>,
    pub uses: Vec<Use>,
    pub erases: Vec<u32>,
    /// When each superblock was opened last, in openings since the drive was built.
    pub opened: Vec<u64>,
    /// Openings so far.
    pub openings: u64,
    pub free: VecDeque<u32>,
    /// One bit for each program: its data is in the flash.
    pub programmed: Vec<u64>,
    /// Programs of each superblock that have not ended.
    unprogrammed: Vec<u32>,
    programs: u32,
    pub points: [WritePoint; 3],
    superblock_units: Divisor,
    ahead: Ahead,
    #[cfg(test)]
    pub content: Content,
}

/// What a drive's flash holds, for tests: which write of which logical unit.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct Content {
    /// The last write of each logical unit, counted from one.
    pub writes: Vec<u32>,
    /// For each physical unit what is in it: the logical unit and its write.
    pub held: Vec<Option<(u32, u32)>>,
}

/// What commands will look at, and is fetched before they get there.
#[derive(Debug, Default)]
struct Ahead {
    /// Logical units of the last commands. They are looked up together: a processor waits for
    /// several as long as for one.
    next: [u32; MOST_AHEAD],
    waiting: usize,
    /// Where what the last writes replace lies.
    replaced: [u32; MOST_AHEAD],
}

/// Reads get to the map soon; writes wait for the buffer.
const READS_AHEAD: usize = 2;
const MOST_AHEAD: usize = 4;

impl Map {
    /// A map of a drive on which nothing was written.
    pub fn new(layout: &Layout) -> Self {
        let superblocks = layout.superblocks as usize;
        let programs = (layout.physical() / layout.program_units) as usize;
        Self {
            physical_of: vec![NONE; layout.logical as usize],
            logical_of: vec![NONE; layout.physical() as usize],
            valid: vec![0; superblocks],
            uses: vec![Use::Free; superblocks],
            erases: vec![0; superblocks],
            opened: vec![0; superblocks],
            openings: 0,
            free: (0..layout.superblocks).collect(),
            programmed: vec![0; programs.div_ceil(64)],
            unprogrammed: vec![programs as u32 / layout.superblocks; superblocks],
            programs: programs as u32 / layout.superblocks,
            points: [WritePoint { next: 0, left: 0 }; 3],
            live: vec![0; (layout.physical() as usize).div_ceil(64)],
            superblock_units: Divisor::new(layout.superblock_units),
            ahead: Ahead::default(),
            #[cfg(test)]
            content: Content {
                writes: vec![0; layout.logical as usize],
                held: vec![None; layout.physical() as usize],
            },
        }
    }

    pub fn is_programmed(&self, program: u32) -> bool {
        self.programmed[program as usize / 64] >> (program % 64) & 1 == 1
    }

    pub fn set_programmed(&mut self, program: u32) {
        self.programmed[program as usize / 64] |= 1 << (program % 64);
        let superblock = (program / self.programs) as usize;
        self.unprogrammed[superblock] -= 1;
        if self.unprogrammed[superblock] == 0 && self.uses[superblock] == Use::Full {
            self.uses[superblock] = Use::Closed;
        }
    }

    /// One bit for each valid unit of the cell that begins at `first`, the lowest for the first.
    pub fn valid_in_cell(&self, first: u32, units: u32) -> u64 {
        self.live[first as usize / 64] >> (first % 64) & (u64::MAX >> (64 - units))
    }

    /// Says that a command for `logical` is on its way. Changes nothing but what is in the caches.
    pub fn look_ahead(&mut self, logical: u32, writes: bool) {
        let ahead = &mut self.ahead;
        ahead.next[ahead.waiting] = logical;
        ahead.waiting += 1;
        let enough = if writes { MOST_AHEAD } else { READS_AHEAD };
        if ahead.waiting < enough {
            return;
        }
        ahead.waiting = 0;
        let find = |logical: u32| self.physical_of[logical as usize];
        if !writes {
            black_box([ahead.next[0], ahead.next[1]].map(find));
            return;
        }
        let found = ahead.next.map(find);
        let replaced = core::mem::replace(&mut ahead.replaced, found);
        black_box(replaced.map(|unit| self.live.get(unit as usize / 64).copied()));
    }

    /// Says that `unit`, which holds `logical`, is where it is.
    pub fn place(&mut self, logical: u32, unit: u32) {
        self.physical_of[logical as usize] = unit;
        self.live[unit as usize / 64] |= 1 << (unit % 64);
        self.valid[self.superblock_units.divide(unit) as usize] += 1;
    }

    /// Appends `logical` at the writer's point, which has a unit left or finds a free superblock.
    /// With [`NONE`] it is padding. Returns the unit and the one that held it before.
    pub fn append(&mut self, writer: Writer, logical: u32) -> (u32, u32) {
        let unit = self.take(writer);
        self.logical_of[unit as usize] = logical;
        if logical == NONE {
            return (unit, NONE);
        }
        #[cfg(test)]
        self.content.write(logical, unit);
        let replaced = self.displace(logical);
        self.place(logical, unit);
        (unit, replaced)
    }

    /// Appends the `valid` units of the cell that begins at `first` at the collector's point, as
    /// many as the cell there takes, and removes them from `valid`. Adds where each was to `from`
    /// and returns where they are now.
    pub fn relocate(
        &mut self,
        first: u32,
        valid: &mut u64,
        cell_units: u32,
        from: &mut VecDeque<u32>,
    ) -> Range<u32> {
        let to = self.take_cell(valid.count_ones(), cell_units);
        let moved = to.len() as u32;
        let before = *valid;
        for unit in to.clone() {
            let source = first + valid.trailing_zeros();
            *valid &= *valid - 1;
            let logical = self.logical_of[source as usize];
            self.logical_of[unit as usize] = logical;
            self.physical_of[logical as usize] = unit;
            from.push_back(source);
            #[cfg(test)]
            self.content.copy(source, unit);
        }
        self.live[first as usize / 64] &= !((before ^ *valid) << (first % 64));
        self.valid[self.superblock_units.divide(first) as usize] -= moved;
        self.live[to.start as usize / 64] |= (u64::MAX >> (64 - moved)) << (to.start % 64);
        self.valid[self.superblock_units.divide(to.start) as usize] += moved;
        to
    }

    /// Frees a superblock and writes what was valid in it at the collector's point, by way of
    /// memory: it takes no more than the flash that it frees. Returns the units written.
    pub fn rewrite(&mut self, superblock: u32) -> Vec<u32> {
        let first = superblock * self.superblock_units.by();
        let units = first..first + self.superblock_units.by();
        let valid: Vec<u32> = units.filter(|&unit| self.is_valid(unit)).collect();
        let held: Vec<u32> = (valid.iter())
            .map(|&unit| self.logical_of[unit as usize])
            .collect();
        #[cfg(test)]
        let content: Vec<_> = (valid.iter())
            .map(|&unit| self.content.held[unit as usize])
            .collect();
        for &logical in &held {
            self.unmap(logical);
        }
        self.free(superblock);
        let mut written = Vec::with_capacity(held.len());
        for logical in held {
            let unit = self.take(Writer::Collector);
            self.logical_of[unit as usize] = logical;
            self.place(logical, unit);
            #[cfg(test)]
            {
                self.content.held[unit as usize] = content[written.len()];
            }
            written.push(unit);
        }
        written
    }

    /// Forgets where `logical` is; false when it was nowhere.
    pub fn unmap(&mut self, logical: u32) -> bool {
        self.displace(logical) != NONE
    }

    /// Forgets where `logical` is, and returns it.
    fn displace(&mut self, logical: u32) -> u32 {
        let unit = core::mem::replace(&mut self.physical_of[logical as usize], NONE);
        if unit != NONE {
            self.invalidate(unit);
        }
        unit
    }

    /// The closed superblock with the fewest valid units, or the one opened first, of those that
    /// erasing gains any.
    pub fn victim(&self, choice: Victim) -> Option<u32> {
        match choice {
            Victim::Greedy => self.least_closed(|superblock| u64::from(self.valid[superblock])),
            Victim::Fifo => self.least_closed(|superblock| self.opened[superblock]),
        }
    }

    fn least_closed(&self, key: impl Fn(usize) -> u64) -> Option<u32> {
        let full = self.superblock_units.by();
        let mut least = (u64::MAX, None);
        for (superblock, state) in self.uses.iter().enumerate() {
            let key = key(superblock);
            if key < least.0 && *state == Use::Closed && self.valid[superblock] < full {
                least = (key, Some(superblock as u32));
            }
        }
        least.1
    }

    /// Makes `superblock` free again, all of its units having moved.
    pub fn free(&mut self, superblock: u32) {
        assert_eq!(
            self.valid[superblock as usize], 0,
            "valid data would be erased"
        );
        let units =
            superblock * self.superblock_units.by()..(superblock + 1) * self.superblock_units.by();
        units.for_each(|unit| self.forget(unit));
        let programs = superblock * self.programs..(superblock + 1) * self.programs;
        for program in programs {
            self.programmed[program as usize / 64] &= !(1 << (program % 64));
        }
        self.unprogrammed[superblock as usize] = self.programs;
        self.uses[superblock as usize] = Use::Free;
        self.erases[superblock as usize] += 1;
        self.free.push_back(superblock);
    }

    /// Whether a unit of the superblock of `unit` that comes before it is valid.
    pub fn is_valid_before(&self, unit: u32) -> bool {
        let first = self.superblock_of(unit) * self.superblock_units.by();
        (first..unit).any(|unit| self.is_valid(unit))
    }

    fn is_valid(&self, unit: u32) -> bool {
        self.live[unit as usize / 64] >> (unit % 64) & 1 == 1
    }

    pub fn superblock_of(&self, unit: u32) -> u32 {
        self.superblock_units.divide(unit)
    }

    /// What the superblock of `unit` is used for.
    pub fn use_of(&self, unit: u32) -> Use {
        self.uses[self.superblock_of(unit) as usize]
    }

    /// Leaves out `units` at the writer's point, in its open superblock.
    pub fn skip(&mut self, writer: Writer, units: u32) {
        let point = &mut self.points[writer as usize];
        let first = point.next;
        point.next += units;
        point.left -= units;
        if point.left == 0 {
            let superblock = self.superblock_of(first) as usize;
            self.uses[superblock] = match self.unprogrammed[superblock] {
                0 => Use::Closed,
                _ => Use::Full,
            };
        }
    }

    /// The flash of `unit` holds nothing that could be read.
    pub fn forget(&mut self, unit: u32) {
        self.logical_of[unit as usize] = NONE;
        #[cfg(test)]
        self.content.erase(unit);
    }

    fn invalidate(&mut self, unit: u32) {
        self.live[unit as usize / 64] &= !(1 << (unit % 64));
        self.valid[self.superblock_units.divide(unit) as usize] -= 1;
    }

    /// The next unit at the writer's point.
    fn take(&mut self, writer: Writer) -> u32 {
        if self.points[writer as usize].left == 0 {
            self.open(writer);
        }
        let point = &mut self.points[writer as usize];
        let unit = point.next;
        point.next += 1;
        point.left -= 1;
        if point.left == 0 {
            self.uses[self.superblock_units.divide(unit) as usize] = Use::Full;
        }
        unit
    }

    /// The next units at the collector's point, at most `wanted` and not beyond the end of a cell.
    fn take_cell(&mut self, wanted: u32, cell_units: u32) -> Range<u32> {
        if self.points[Writer::Collector as usize].left == 0 {
            self.open(Writer::Collector);
        }
        let point = &mut self.points[Writer::Collector as usize];
        let taken = wanted.min(cell_units - (point.next & (cell_units - 1)));
        let units = point.next..point.next + taken;
        point.next += taken;
        point.left -= taken;
        if point.left == 0 {
            self.uses[self.superblock_units.divide(units.start) as usize] = Use::Full;
        }
        units
    }

    fn open(&mut self, writer: Writer) {
        let superblock = self
            .free
            .pop_front()
            .expect("the pace keeps superblocks free");
        self.uses[superblock as usize] = Use::Open;
        self.openings += 1;
        self.opened[superblock as usize] = self.openings;
        self.points[writer as usize] = WritePoint {
            next: superblock * self.superblock_units.by(),
            left: self.superblock_units.by(),
        };
    }

    /// What holds at every instant. `Err` says what does not.
    pub fn check(&self) -> Result<(), &'static str> {
        let mut valid = vec![0; self.valid.len()];
        let mut live = vec![0; self.live.len()];
        for (logical, &unit) in self.physical_of.iter().enumerate() {
            if unit != NONE {
                if self.logical_of.get(unit as usize) != Some(&(logical as u32)) {
                    return Err("a mapped unit holds another logical unit");
                }
                valid[self.superblock_units.divide(unit) as usize] += 1;
                live[unit as usize / 64] |= 1_u64 << (unit % 64);
            }
        }
        let empty = |state: &Use| matches!(state, Use::Free | Use::Erasing);
        if (self.uses.iter().zip(&valid)).any(|(state, valid)| empty(state) && *valid > 0) {
            return Err("what is free holds valid data");
        }
        for point in self.points.iter().filter(|point| point.left > 0) {
            let mut unwritten = point.next..point.next + point.left;
            if unwritten.any(|unit| live[unit as usize / 64] >> (unit % 64) & 1 == 1) {
                return Err("what is not written is valid");
            }
        }
        if valid != self.valid || live != self.live {
            return Err("what is counted as valid differs from the map");
        }
        let free = self
            .uses
            .iter()
            .filter(|state| **state == Use::Free)
            .count();
        let listed = self
            .free
            .iter()
            .all(|&free| self.uses[free as usize] == Use::Free);
        if free != self.free.len() || !listed {
            return Err("free superblocks are not the ones listed");
        }
        let open = self
            .uses
            .iter()
            .filter(|state| **state == Use::Open)
            .count();
        if open != self.points.iter().filter(|point| point.left > 0).count() {
            return Err("open superblocks are not the ones written");
        }
        Ok(())
    }
}

#[cfg(test)]
impl Content {
    fn write(&mut self, logical: u32, unit: u32) {
        self.writes[logical as usize] += 1;
        self.held[unit as usize] = Some((logical, self.writes[logical as usize]));
    }

    fn copy(&mut self, from: u32, to: u32) {
        self.held[to as usize] = self.held[from as usize];
    }

    fn erase(&mut self, unit: u32) {
        self.held[unit as usize] = None;
    }
}
