//! Leaves in memory, as they are on the device or will be after the checkpoint that changes them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::format::Block;

#[derive(Debug)]
pub(super) struct Cache {
    /// The slot of each page, and one more; 0 for none.
    slot_of: Vec<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    hand: usize,
    capacity: usize,
    /// Slots with pins.
    pinned: usize,
}

#[derive(Debug)]
struct Slot {
    page: u32,
    hot: bool,
    /// Writes that have not ended: until then the device has nothing to read.
    pins: u32,
    bytes: Option<Box<Block>>,
}

impl Cache {
    /// A cache of so many leaves, and those that are being written.
    pub fn new(capacity: usize) -> Self {
        Self {
            slot_of: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            hand: 0,
            capacity: capacity.max(64),
            pinned: 0,
        }
    }

    fn slot(&self, page: u32) -> Option<usize> {
        let slot = *self.slot_of.get(page as usize)?;
        (slot != 0).then(|| slot as usize - 1)
    }

    pub fn has(&self, page: u32) -> bool {
        self.slot(page).is_some()
    }

    #[inline]
    pub fn get(&mut self, page: u32) -> Option<&Block> {
        let slot = self.slot(page)?;
        let slot = &mut self.slots[slot];
        slot.hot = true;
        slot.bytes.as_deref()
    }

    pub fn get_mut(&mut self, page: u32) -> Option<&mut Block> {
        let slot = self.slot(page)?;
        self.slots[slot].bytes.as_deref_mut()
    }

    pub fn insert(&mut self, page: u32, bytes: Box<Block>) {
        if self.has(page) {
            return;
        }
        let slot = self.take_slot();
        self.slots[slot] = Slot {
            page,
            hot: true,
            pins: 0,
            bytes: Some(bytes),
        };
        if self.slot_of.len() <= page as usize {
            self.slot_of.resize(page as usize + 1, 0);
        }
        self.slot_of[page as usize] = slot as u32 + 1;
    }

    pub fn remove(&mut self, page: u32) {
        if let Some(slot) = self.slot(page) {
            self.empty(slot);
            self.free.push(slot as u32);
        }
    }

    pub fn pin(&mut self, page: u32) {
        if let Some(slot) = self.slot(page) {
            self.slots[slot].pins += 1;
            self.pinned += usize::from(self.slots[slot].pins == 1);
        }
    }

    pub fn unpin(&mut self, page: u32) {
        if let Some(slot) = self.slot(page).filter(|slot| self.slots[*slot].pins > 0) {
            self.slots[slot].pins -= 1;
            self.pinned -= usize::from(self.slots[slot].pins == 0);
        }
    }

    fn empty(&mut self, slot: usize) {
        self.slot_of[self.slots[slot].page as usize] = 0;
        self.slots[slot].bytes = None;
        self.pinned -= usize::from(self.slots[slot].pins > 0);
        self.slots[slot].pins = 0;
    }

    fn take_slot(&mut self) -> usize {
        if let Some(slot) = self.free.pop() {
            return slot as usize;
        }
        // What is being written has room of its own: a checkpoint that reads leaves ahead would
        // have each take the place of the one before otherwise, and read them again without end.
        let is_full = self.slots.len() - self.pinned >= self.capacity;
        // Twice around: the first time cools what is hot.
        let turns = if is_full { 2 * self.slots.len() } else { 0 };
        for _ in 0..turns {
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &mut self.slots[self.hand];
            if slot.pins == 0 && !core::mem::take(&mut slot.hot) {
                self.empty(self.hand);
                return self.hand;
            }
        }
        self.slots.push(Slot {
            page: 0,
            hot: false,
            pins: 0,
            bytes: None,
        });
        self.slots.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(cache: &mut Cache, pages: core::ops::Range<u32>) {
        for page in pages {
            cache.insert(page, Box::new([page as u8; crate::format::BLOCK]));
        }
    }

    #[test]
    fn what_is_being_written_takes_no_room_from_what_is_read() {
        let mut cache = Cache::new(64);
        insert(&mut cache, 1..1000);
        assert_eq!(cache.slots.len(), 64);
        let here: Vec<u32> = (1..1000).filter(|&page| cache.has(page)).collect();
        assert_eq!(here.len(), 64);
        for &page in &here {
            cache.pin(page);
            cache.pin(page);
        }
        insert(&mut cache, 2000..2064);
        assert!((2000..2064).all(|page| cache.has(page)));
        assert!(here.iter().all(|&page| cache.has(page)));
        // What is written no longer, or is gone, is room again.
        for &page in &here {
            cache.unpin(page);
        }
        assert_eq!(cache.pinned, 64);
        cache.remove(here[0]);
        for &page in &here {
            cache.unpin(page);
            cache.unpin(page);
        }
        assert_eq!(cache.pinned, 0);
        let slots = cache.slots.len();
        insert(&mut cache, 3000..4000);
        assert_eq!(cache.slots.len(), slots);
    }
}
