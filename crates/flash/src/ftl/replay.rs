//! Decides, from a checkpoint and what was written since it began, where every logical unit is.
//!
//! Each page of the checkpoint says which writes of the host are in it. Of what was written after
//! those, the highest sequence wins. What has a sequence from before is a copy that garbage
//! collection made, perhaps of a version that was overwritten meanwhile: it counts only where the
//! unit that the checkpoint names has been erased, for then the copy of it is durable. A
//! deallocation from before is in the page.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::Ftl;
use super::layout::{LOST, NONE, is_unit};
use super::lines::Stream;
use super::recovery::{Found, Head, Recovery};
use super::stamp::{SETTLED, UNITS_PER_PAGE};

/// Sequences that may be in use and were not found: what was in the write buffer.
const MARGIN: u64 = 1 << 24;

impl Ftl {
    /// Sets the map and the lines to what was found.
    pub(super) fn replay(&mut self, recovery: &mut Recovery) {
        self.restore_lines(recovery);
        self.decide(recovery);
        let root = recovery.root.expect("recovery goes on with a root only");
        self.sequence = recovery.most_sequence.max(root.sequence) + MARGIN;
        self.lines
            .begin_serials(recovery.most_serial.max(root.serial));
        self.checkpoint
            .resume(root.generation, recovery.most_generation);
        self.sweep();
        self.forget(recovery);
    }

    /// The decision for each logical unit, in order.
    fn decide(&mut self, recovery: &mut Recovery) {
        let applied = recovery.root.map_or(0, |root| root.applied);
        let mut found = core::mem::take(&mut recovery.found);
        found.retain(|copy| copy.logical < self.layout.logical);
        // Of copies of the same version the first one wins: what garbage collection had not
        // finished is done again.
        found.sort_unstable_by_key(|copy| {
            let serial = recovery.heads[self.layout.chunk_of(copy.unit) as usize].serial;
            (copy.logical, copy.sequence, Reverse(serial), copy.unit)
        });
        let mut gone = core::mem::take(&mut recovery.gone);
        gone.retain(|gone| gone.sequence > applied);
        gone.sort_unstable_by_key(|gone| gone.first);
        let (mut gone, mut reach) = (gone.into_iter().peekable(), BinaryHeap::new());
        let mut copies = found.as_slice();
        for logical in 0..self.layout.logical {
            while let Some(next) = gone.next_if(|gone| gone.first <= logical) {
                reach.push((next.sequence, next.first + next.count));
            }
            while reach.peek().is_some_and(|(_, end)| *end <= logical) {
                reach.pop();
            }
            let count = copies
                .iter()
                .take_while(|copy| copy.logical == logical)
                .count();
            let newest = count.checked_sub(1).map(|last| copies[last]);
            copies = &copies[count..];
            let emptied = reach.peek().map_or(0, |(sequence, _)| *sequence);
            let entry = self.winner(recovery, logical, newest, emptied);
            if entry == LOST {
                recovery.stats.lost_units += 1;
            }
            self.map.restore(logical, entry);
        }
    }

    fn winner(
        &self,
        recovery: &Recovery,
        logical: u32,
        newest: Option<Found>,
        emptied: u64,
    ) -> u32 {
        let applied = recovery.applied[(logical / UNITS_PER_PAGE) as usize];
        if let Some(copy) = newest.filter(|copy| copy.sequence > applied.max(emptied)) {
            return copy.unit;
        }
        if emptied > applied {
            return NONE;
        }
        match recovery.entries[logical as usize] {
            mark @ (NONE | LOST) => mark,
            unit if self.is_there(recovery, unit) => unit,
            _ => newest.map_or(LOST, |copy| copy.unit),
        }
    }

    /// Whether a unit still holds what it held when the checkpoint named it.
    fn is_there(&self, recovery: &Recovery, unit: u32) -> bool {
        if !is_unit(unit) || unit >= self.layout.units() {
            return false;
        }
        let head = recovery.heads[self.layout.chunk_of(unit) as usize];
        let (serial, _) = recovery.table[self.layout.line_of(unit) as usize];
        head.serial != 0 && head.serial == serial && self.layout.sector(unit) < head.readable
    }

    fn restore_lines(&mut self, recovery: &Recovery) {
        let next = recovery.most_generation + 1;
        for line in 0..self.layout.lines {
            let (serial, flags) = recovery.table[line as usize];
            let chunks = line * self.layout.width..(line + 1) * self.layout.width;
            let used = |chunk: &u32| self.lines.is_used(*chunk);
            let heads = chunks.clone().filter(used);
            let heads: Vec<Head> = heads.map(|chunk| recovery.heads[chunk as usize]).collect();
            let here = heads.iter().map(|head| head.serial).max().unwrap_or(0);
            self.lines.get_mut(line).erases =
                (flags & !SETTLED) + u32::from(here != serial && serial != 0);
            if heads.is_empty() {
                continue;
            }
            let whole = heads
                .iter()
                .all(|head| head.readable == self.layout.chunk_units)
                && heads.len() as u32 == self.lines.get(line).good;
            let stream = match heads.iter().any(|head| head.checkpoint) {
                true => Stream::Checkpoint,
                false => Stream::Host,
            };
            self.lines.restore(line, stream, here, !whole);
            let state = self.lines.get_mut(line);
            let needed = heads.iter().any(|head| head.needed);
            state.generation = if needed { recovery.stats.generation } else { 0 };
            if heads.iter().any(|head| head.tombstones) {
                state.needed_until = next;
            }
        }
    }

    /// Frees what recovery needed.
    fn forget(&mut self, recovery: &mut Recovery) {
        let stats = recovery.stats;
        *recovery = Recovery::new(&self.layout);
        recovery.stats = stats;
        recovery.heads = Vec::new();
    }
}
