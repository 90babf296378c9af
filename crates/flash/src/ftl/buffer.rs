//! The write buffer: a ring of what the host wrote, in order, and slots for what garbage collection
//! moves.
//!
//! The owner of the FTL keeps the bytes; this file keeps what they are. Writes of the host take
//! effect on the map in their order, each slot when it and all before it are durable.

use alloc::vec;
use alloc::vec::Vec;

use super::layout::NONE;

/// How far a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Empty,
    /// To be written.
    Waiting,
    /// In a write vector, or written and not durable yet.
    Written,
    /// Durable.
    Durable,
}

/// What is in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Data,
    Tombstones,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub stage: Stage,
    pub holds: Holds,
    pub logical: u32,
    pub sequence: u64,
    /// What the slot replaces: the next in the chain; of the collector's slots, the unit that is
    /// moved; of tombstones, the slot with the other copy.
    pub older: u32,
    /// The unit it was written to.
    pub unit: u32,
}

#[derive(Debug)]
pub(super) struct Buffer {
    slots: Vec<Slot>,
    /// Slots of the ring; those behind belong to garbage collection.
    ring: u32,
    /// The position of the next slot of the ring, and of the first one in use.
    pub head: u64,
    pub tail: u64,
    collector: Vec<u32>,
}

impl Buffer {
    pub fn new(ring: u32, collector: u32) -> Self {
        let empty = Slot {
            stage: Stage::Empty,
            holds: Holds::Data,
            logical: 0,
            sequence: 0,
            older: NONE,
            unit: NONE,
        };
        Self {
            slots: vec![empty; (ring + collector) as usize],
            ring,
            head: 0,
            tail: 0,
            collector: (ring..ring + collector).rev().collect(),
        }
    }

    pub fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    pub fn slot_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    /// All slots.
    pub fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Whether nothing is in the ring.
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    pub fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Takes the next slot of the ring, which is not full.
    pub fn take(&mut self, holds: Holds, logical: u32, sequence: u64) -> u32 {
        let slot = self.slot_at(self.head);
        self.slots[slot as usize] = Slot {
            stage: Stage::Waiting,
            holds,
            logical,
            sequence,
            older: NONE,
            unit: NONE,
        };
        self.head += 1;
        slot
    }

    /// The first slot of the ring when it is durable.
    pub fn first_durable(&self) -> Option<u32> {
        let slot = self.slot_at(self.tail);
        let durable = self.tail < self.head && self.slots[slot as usize].stage == Stage::Durable;
        durable.then_some(slot)
    }

    /// The first slot of the ring leaves.
    pub fn release_first(&mut self) {
        let slot = self.slot_at(self.tail);
        self.slots[slot as usize].stage = Stage::Empty;
        self.tail += 1;
    }

    /// The slot `back` before the one written last, if it has not been given to a vector.
    pub fn last_waiting(&self, back: u64) -> Option<u32> {
        let position = self.head.checked_sub(1 + back)?;
        let slot = self.slot_at(position);
        let waits = position >= self.tail && self.slots[slot as usize].stage == Stage::Waiting;
        waits.then_some(slot)
    }

    /// Slots of the ring that are free.
    pub fn room(&self) -> u64 {
        u64::from(self.ring) - (self.head - self.tail)
    }

    /// The sequence of the first slot in use.
    pub fn first_sequence(&self) -> Option<u64> {
        (self.tail < self.head).then(|| self.slot(self.slot_at(self.tail)).sequence)
    }

    pub fn collector_free(&self) -> u32 {
        self.collector.len() as u32
    }

    /// A slot for what is moved from `unit`.
    pub fn take_collector(&mut self, unit: u32) -> Option<u32> {
        let slot = self.collector.pop()?;
        let taken = self.slot_mut(slot);
        (taken.stage, taken.older) = (Stage::Waiting, unit);
        Some(slot)
    }

    pub fn release_collector(&mut self, slot: u32) {
        self.slot_mut(slot).stage = Stage::Empty;
        self.collector.push(slot);
    }

    pub fn is_collectors(&self, slot: u32) -> bool {
        slot >= self.ring
    }

    fn slot_at(&self, position: u64) -> u32 {
        (position % u64::from(self.ring)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_durable_behind_a_gap_waits_for_the_gap() {
        let mut buffer = Buffer::new(4, 1);
        let slots = [0, 1, 2].map(|unit| buffer.take(Holds::Data, unit, u64::from(unit)));
        for later in [2, 1] {
            buffer.slot_mut(slots[later]).stage = Stage::Durable;
            assert_eq!(buffer.first_durable(), None);
        }
        buffer.slot_mut(slots[0]).stage = Stage::Durable;
        for slot in slots {
            assert_eq!(buffer.first_durable(), Some(slot));
            buffer.release_first();
        }
        assert_eq!(buffer.first_durable(), None);
    }
}
