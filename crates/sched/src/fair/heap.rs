//! A binary heap over small numbers whose keys change: who is next, by virtual or by real time.

use alloc::vec::Vec;

/// Where an item is that is not in the heap.
const NOWHERE: u32 = u32::MAX;

/// Items, each a small number, ordered by key and then by number. Every change takes time
/// logarithmic in the number of items; memory is taken when an item is first seen and kept.
#[derive(Debug, Default)]
pub(super) struct Heap {
    order: Vec<Entry>,
    places: Vec<u32>,
}

/// A key and, below it, an item, as one number: to compare two takes two instructions and no
/// branch.
type Entry = u128;

#[inline]
fn entry(key: u64, item: u32) -> Entry {
    (Entry::from(key) << 64) | Entry::from(item)
}

#[inline]
fn key(entry: Entry) -> u64 {
    (entry >> 64) as u64
}

impl Heap {
    /// The item with the least key, and its key.
    #[inline]
    pub(super) fn first(&self) -> Option<(u32, u64)> {
        self.order.first().map(|&first| (first as u32, key(first)))
    }

    /// The least key; beyond all others when nothing is in.
    #[inline]
    pub(super) fn least(&self) -> u64 {
        self.order.first().map_or(u64::MAX, |&first| key(first))
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The key of `item`, if it is in.
    #[cfg(test)]
    pub(super) fn key_of(&self, item: u32) -> Option<u64> {
        let place = self.places.get(item as usize)?;
        self.order.get(*place as usize).map(|&entry| key(entry))
    }

    /// Puts `item` in, or gives it another key.
    #[inline]
    pub(super) fn set(&mut self, item: u32, key: u64) {
        match self.places.get(item as usize) {
            Some(&place) if place != NOWHERE => self.change(place as usize, entry(key, item)),
            _ => self.add(item, key),
        }
    }

    #[inline(never)]
    fn add(&mut self, item: u32, key: u64) {
        let index = item as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, NOWHERE);
        }
        let place = self.order.len();
        self.order.push(entry(key, item));
        // Alone it is where it belongs.
        self.places[index] = 0;
        if place > 0 {
            self.rise(place);
        }
    }

    #[inline]
    fn change(&mut self, place: usize, entry: Entry) {
        let before = core::mem::replace(&mut self.order[place], entry);
        if entry > before {
            if 2 * place + 1 < self.order.len() {
                self.sink(place);
            }
        } else if entry < before {
            self.rise(place);
        }
    }

    /// Takes `item` out, if it is in.
    #[inline]
    pub(super) fn remove(&mut self, item: u32) {
        match self.places.get(item as usize) {
            Some(&place) if place != NOWHERE => self.take_out(item, place as usize),
            _ => {}
        }
    }

    #[inline(never)]
    fn take_out(&mut self, item: u32, place: usize) {
        self.places[item as usize] = NOWHERE;
        let last = self.order.pop().expect("an item with a place is in");
        if last as u32 != item {
            self.order[place] = last;
            self.rise(place);
            self.sink(self.places[last as u32 as usize] as usize);
        }
    }

    /// Moves what is at `place` up to where its key belongs.
    fn rise(&mut self, mut place: usize) {
        let (order, places) = (&mut self.order[..], &mut self.places[..]);
        let moving = order[place];
        while place > 0 {
            let above = (place - 1) / 2;
            if order[above] <= moving {
                break;
            }
            put(order, places, place, order[above]);
            place = above;
        }
        put(order, places, place, moving);
    }

    /// Moves what is at `place` down to where its key belongs.
    fn sink(&mut self, mut place: usize) {
        let (order, places) = (&mut self.order[..], &mut self.places[..]);
        let moving = order[place];
        while let Some(&left) = order.get(2 * place + 1) {
            let right = order.get(2 * place + 2).copied().unwrap_or(Entry::MAX);
            let least = left.min(right);
            if moving <= least {
                break;
            }
            put(order, places, place, least);
            place = 2 * place + 1 + usize::from(right < left);
        }
        put(order, places, place, moving);
    }
}

#[inline]
fn put(order: &mut [Entry], places: &mut [u32], place: usize, entry: Entry) {
    order[place] = entry;
    places[entry as u32 as usize] = place as u32;
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;

    #[test]
    fn the_first_is_the_least_whatever_changes() {
        let mut heap = Heap::default();
        let mut model = [None::<u64>; 40];
        let mut chance = Rng::new(1);
        for _ in 0..5_000 {
            let item = chance.below(40) as u32;
            if chance.chance(1, 3) {
                heap.remove(item);
                model[item as usize] = None;
            } else {
                let key = chance.below(20);
                heap.set(item, key);
                model[item as usize] = Some(key);
            }
            let least = (0..)
                .zip(model)
                .filter_map(|(item, key)| Some((key?, item)))
                .min()
                .map(|(key, item)| (item, key));
            assert_eq!(heap.first(), least);
            assert_eq!(heap.is_empty(), least.is_none());
        }
    }
}
