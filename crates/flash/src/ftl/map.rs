//! The page map: where the durable copy of each logical unit is, or the newest of those still in
//! the write buffer.
//!
//! An entry is a unit in flash, or a slot of the buffer, whose `older` leads on to what it will
//! replace: a chain from the newest version to the durable one. What is in flash is valid as long
//! as it is the end of a chain, so that what is not yet durable never costs what was.

use alloc::vec;
use alloc::vec::Vec;

use super::buffer::Buffer;
use super::layout::{FIRST_SLOT, Layout, NONE, is_slot, is_unit};

/// What leads to a place in a chain: the entry of the map, or a slot in front of it.
#[derive(Clone, Copy, Debug)]
enum Link {
    Entry,
    Slot(u32),
}

#[derive(Debug)]
pub(super) struct Map {
    entries: Vec<u32>,
    /// One bit for each unit: it is the end of a chain.
    live: Vec<u64>,
    /// Valid units of each line.
    pub valid: Vec<u32>,
    line_units: u32,
}

impl Map {
    pub fn new(layout: &Layout) -> Self {
        Self {
            entries: vec![NONE; layout.logical as usize],
            live: vec![0; (layout.units() as usize).div_ceil(64)],
            valid: vec![0; layout.lines as usize],
            line_units: layout.line_units,
        }
    }

    /// Whether no logical unit has a version: all read as zeroes.
    pub fn is_empty(&self) -> bool {
        self.entries.iter().all(|entry| *entry == NONE)
    }

    /// The newest version of a logical unit: a slot, a unit or a mark.
    pub fn newest(&self, logical: u32) -> u32 {
        self.entries[logical as usize]
    }

    /// The durable version of a logical unit: a unit or a mark.
    pub fn durable(&self, buffer: &Buffer, logical: u32) -> u32 {
        let mut entry = self.newest(logical);
        while is_slot(entry) {
            entry = buffer.slot(entry - FIRST_SLOT).older;
        }
        entry
    }

    pub fn is_live(&self, unit: u32) -> bool {
        self.live[unit as usize / 64] >> (unit % 64) & 1 == 1
    }

    /// The first live unit from `from` on and before `end`.
    pub fn next_live(&self, from: u32, end: u32) -> Option<u32> {
        let mut unit = from;
        while unit < end {
            let rest = self.live[unit as usize / 64] >> (unit % 64);
            if rest != 0 {
                let found = unit + rest.trailing_zeros();
                return (found < end).then_some(found);
            }
            unit = (unit / 64 + 1) * 64;
        }
        None
    }

    /// Puts a slot in front of the chain of its logical unit. Returns what it is in front of.
    pub fn push(&mut self, logical: u32, slot: u32) -> u32 {
        core::mem::replace(&mut self.entries[logical as usize], FIRST_SLOT + slot)
    }

    /// What `slot` holds is durable in `unit`. False when the chain has lost it.
    pub fn settle(&mut self, buffer: &mut Buffer, slot: u32, unit: u32) -> bool {
        let logical = buffer.slot(slot).logical;
        let Some(link) = self.link_to(buffer, logical, FIRST_SLOT + slot) else {
            return false;
        };
        let older = buffer.slot(slot).older;
        debug_assert!(!is_slot(older), "older versions are durable before");
        self.set(buffer, logical, link, unit);
        self.replace(older, unit);
        true
    }

    /// The durable copy of `logical` has moved from one unit to another, or is lost. False when it
    /// was not there any more.
    pub fn relocate(&mut self, buffer: &mut Buffer, logical: u32, from: u32, to: u32) -> bool {
        let Some(link) = self.link_to(buffer, logical, from) else {
            return false;
        };
        self.set(buffer, logical, link, to);
        self.replace(from, to);
        true
    }

    /// What was written to `logical` before `sequence` is no more.
    pub fn cut(&mut self, buffer: &mut Buffer, logical: u32, sequence: u64) {
        let mut link = Link::Entry;
        let mut entry = self.newest(logical);
        while is_slot(entry) && buffer.slot(entry - FIRST_SLOT).sequence > sequence {
            link = Link::Slot(entry - FIRST_SLOT);
            entry = buffer.slot(entry - FIRST_SLOT).older;
        }
        let mut end = entry;
        while is_slot(end) {
            end = buffer.slot(end - FIRST_SLOT).older;
        }
        self.set(buffer, logical, link, NONE);
        self.replace(end, NONE);
    }

    /// Sets what recovery has found.
    pub fn restore(&mut self, logical: u32, entry: u32) {
        self.entries[logical as usize] = entry;
        self.replace(NONE, entry);
    }

    /// Which logical units have their durable copies in these units, which are in order, and in
    /// which. Looks through the whole map: for what cannot be read any more.
    pub fn owners(&self, buffer: &Buffer, units: &[u32]) -> Vec<(u32, u32)> {
        (0..self.entries.len() as u32)
            .map(|logical| (logical, self.durable(buffer, logical)))
            .filter(|(_, unit)| units.binary_search(unit).is_ok())
            .collect()
    }

    /// Who leads to `target` in the chain of `logical`: a slot, or the entry itself.
    fn link_to(&self, buffer: &Buffer, logical: u32, target: u32) -> Option<Link> {
        let mut link = Link::Entry;
        let mut entry = self.newest(logical);
        while entry != target {
            if !is_slot(entry) {
                return None;
            }
            link = Link::Slot(entry - FIRST_SLOT);
            entry = buffer.slot(entry - FIRST_SLOT).older;
        }
        Some(link)
    }

    fn set(&mut self, buffer: &mut Buffer, logical: u32, link: Link, entry: u32) {
        match link {
            Link::Slot(slot) => buffer.slot_mut(slot).older = entry,
            Link::Entry => self.entries[logical as usize] = entry,
        }
    }

    /// Counts `old` as not valid and `new` as valid, where they are units.
    fn replace(&mut self, old: u32, new: u32) {
        if is_unit(old) {
            self.live[old as usize / 64] &= !(1 << (old % 64));
            self.valid[(old / self.line_units) as usize] -= 1;
        }
        if is_unit(new) {
            self.live[new as usize / 64] |= 1 << (new % 64);
            self.valid[(new / self.line_units) as usize] += 1;
        }
    }

    /// Bytes that the map takes.
    pub fn bytes(&self) -> u64 {
        (self.entries.len() * 4 + self.live.len() * 8 + self.valid.len() * 4) as u64
    }

    /// What holds at every instant; `Err` says what does not.
    pub fn check(&self, buffer: &Buffer) -> Result<(), &'static str> {
        let mut live = vec![0; self.live.len()];
        let mut valid = vec![0; self.valid.len()];
        for logical in 0..self.entries.len() as u32 {
            let end = self.durable(buffer, logical);
            if is_unit(end) {
                live[end as usize / 64] |= 1_u64 << (end % 64);
                valid[(end / self.line_units) as usize] += 1;
            }
        }
        if live == self.live && valid == self.valid {
            Ok(())
        } else {
            Err("what is counted as valid is not what chains end in")
        }
    }
}
