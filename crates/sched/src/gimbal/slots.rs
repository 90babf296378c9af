//! Virtual slots: I/Os of a tenant in groups of equal cost, each done only when all of its members
//! are.

use alloc::vec::Vec;

/// The slots of one tenant. At most one is open and being filled; the others are full and wait for
/// their members.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    all: Vec<Slot>,
    open: usize,
    /// Closed and not yet done.
    closed: u32,
    /// Members of the slot that was done last: the worth of a slot in I/Os.
    members: u32,
    size: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    length: u64,
    submits: u32,
    completions: u32,
    closed: bool,
}

/// Before a slot was done, as many I/Os of 4 KiB as fit.
const FIRST_MEMBERS: u32 = 32;

impl Slots {
    /// `most` slots of `size` bytes of cost each, and one to fill meanwhile.
    pub(super) fn new(most: u32, size: u64) -> Self {
        Self {
            all: alloc::vec![Slot::default(); most.max(1) as usize + 1],
            open: 0,
            closed: 0,
            members: FIRST_MEMBERS,
            size,
        }
    }

    /// Slots that are full and not yet done.
    pub(super) fn closed(&self) -> u32 {
        self.closed
    }

    /// I/Os in a slot, by the one that was done last.
    pub(super) fn members(&self) -> u32 {
        self.members
    }

    /// Adds an I/O of this cost to the open slot; says which that is. A slot is full when its
    /// members cost its size or more: an I/O is never divided.
    ///
    /// # Panics
    /// When all slots are full: a tenant with as many as it may have is not asked.
    pub(super) fn add(&mut self, cost: u64) -> u32 {
        let place = self.open;
        let slot = &mut self.all[place];
        assert!(!slot.closed, "a tenant without a free slot is deferred");
        slot.length = slot.length.saturating_add(cost);
        slot.submits += 1;
        if slot.length >= self.size {
            slot.closed = true;
            self.closed += 1;
            self.open = self.free_place().unwrap_or(place);
        }
        place as u32
    }

    /// A member has ended. Whether its slot is done with it.
    pub(super) fn end(&mut self, place: u32) -> bool {
        let slot = &mut self.all[place as usize];
        slot.completions += 1;
        assert!(slot.completions <= slot.submits, "a member ends once");
        let done = slot.closed && slot.completions == slot.submits;
        if done {
            self.members = slot.submits;
            *slot = Slot::default();
            self.closed -= 1;
            if self.all[self.open].closed {
                self.open = place as usize;
            }
        }
        done
    }

    fn free_place(&self) -> Option<usize> {
        self.all.iter().position(|slot| !slot.closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 128 << 10;

    #[test]
    fn a_slot_holds_its_size_in_cost() {
        for (cost, members) in [(4 << 10, 32), (36 << 10, 4), (SIZE, 1), (9 * SIZE, 1)] {
            let mut slots = Slots::new(8, SIZE);
            let mut filled = 0;
            while slots.closed() == 0 {
                assert_eq!(slots.add(cost), 0);
                filled += 1;
            }
            assert_eq!(filled, members);
            let done: Vec<_> = (0..members).map(|_| slots.end(0)).collect();
            assert_eq!(done.iter().filter(|done| **done).count(), 1);
            assert!(done.last().is_some_and(|done| *done));
            assert_eq!((slots.closed(), slots.members()), (0, members));
        }
    }

    #[test]
    fn an_open_slot_is_not_done_and_full_ones_are_in_any_order() {
        let mut slots = Slots::new(2, SIZE);
        let first = slots.add(SIZE);
        let second = slots.add(SIZE);
        let third = slots.add(SIZE / 2);
        assert_eq!(slots.closed(), 2);
        assert!(!slots.end(third));
        assert!(slots.end(second) && slots.end(first));
        assert_eq!(slots.add(SIZE / 2), third);
        assert_eq!(slots.closed(), 1);
    }

    #[test]
    #[should_panic(expected = "deferred")]
    fn more_than_all_slots_cannot_be_filled() {
        let mut slots = Slots::new(1, SIZE);
        for _ in 0..3 {
            slots.add(SIZE);
        }
    }
}
