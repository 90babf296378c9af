//! A binary heap over small numbers whose keys change: who is next, by virtual or by real time.

use alloc::vec::Vec;

/// Where an item is that is not in the heap.
const NOWHERE: u32 = u32::MAX;

/// Items, each a small number, ordered by key and then by number. Every change takes time logarithmic in the number
/// of items; memory is taken when an item is first seen and kept.
#[derive(Debug, Default)]
pub(super) struct Heap {
    order: Vec<(u64, u32)>,
    places: Vec<u32>,
}

impl Heap {
    /// The item with the least key, and its key.
    #[inline]
    pub(super) fn first(&self) -> Option<(u32, u64)> {
        self.order.first().map(|&(key, item)| (item, key))
    }

    /// The least key; beyond all others when nothing is in.
    #[inline]
    pub(super) fn least(&self) -> u64 {
        self.order.first().map_or(u64::MAX, |&(key, _)| key)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Puts `item` in, or gives it another key.
    #[inline]
    pub(super) fn set(&mut self, item: u32, key: u64) {
        let index = item as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, NOWHERE);
        }
        let place = self.places[index];
        if place == NOWHERE {
            self.order.push((key, item));
            self.rise(self.order.len() - 1);
        } else {
            let before = core::mem::replace(&mut self.order[place as usize].0, key);
            if key < before {
                self.rise(place as usize);
            } else {
                self.sink(place as usize);
            }
        }
    }

    /// Takes `item` out, if it is in.
    #[inline]
    pub(super) fn remove(&mut self, item: u32) {
        let Some(&place) = self.places.get(item as usize) else {
            return;
        };
        if place == NOWHERE {
            return;
        }
        self.places[item as usize] = NOWHERE;
        let last = self.order.pop().expect("an item with a place is in");
        if last.1 != item {
            self.order[place as usize] = last;
            self.rise(place as usize);
            self.sink(self.places[last.1 as usize] as usize);
        }
    }

    /// Moves what is at `place` up to where its key belongs.
    fn rise(&mut self, mut place: usize) {
        let moving = self.order[place];
        while place > 0 {
            let above = (place - 1) / 2;
            if self.order[above] <= moving {
                break;
            }
            self.put(place, self.order[above]);
            place = above;
        }
        self.put(place, moving);
    }

    /// Moves what is at `place` down to where its key belongs.
    fn sink(&mut self, mut place: usize) {
        let moving = self.order[place];
        loop {
            let left = 2 * place + 1;
            let Some(&under) = self.order.get(left) else {
                break;
            };
            let right = self.order.get(left + 1).copied();
            let (least, entry) = match right {
                Some(right) if right < under => (left + 1, right),
                _ => (left, under),
            };
            if moving <= entry {
                break;
            }
            self.put(place, entry);
            place = least;
        }
        self.put(place, moving);
    }

    #[inline]
    fn put(&mut self, place: usize, entry: (u64, u32)) {
        self.order[place] = entry;
        self.places[entry.1 as usize] = place as u32;
    }
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
