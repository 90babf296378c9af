//! A binary heap over small numbers whose keys change: who is next, by virtual or by real time.

use alloc::vec::Vec;

/// Where an item is that is not in the heap.
const NOWHERE: u32 = u32::MAX;

/// Items, each a small number, ordered by key and then by number. Every change takes time logarithmic in the number
/// of items; memory is taken when an item is first seen and kept.
#[derive(Debug, Default)]
pub(super) struct Heap {
    order: Vec<u32>,
    keys: Vec<u64>,
    places: Vec<u32>,
}

impl Heap {
    /// The item with the least key, and its key.
    #[inline]
    pub(super) fn first(&self) -> Option<(u32, u64)> {
        let item = *self.order.first()?;
        Some((item, self.keys[item as usize]))
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
            self.keys.resize(index + 1, 0);
        }
        self.keys[index] = key;
        if self.places[index] == NOWHERE {
            self.places[index] = self.order.len() as u32;
            self.order.push(item);
        }
        self.settle(self.places[index] as usize);
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
        if last != item {
            self.order[place as usize] = last;
            self.places[last as usize] = place;
            self.settle(place as usize);
        }
    }

    fn rank(&self, place: usize) -> (u64, u32) {
        let item = self.order[place];
        (self.keys[item as usize], item)
    }

    /// Moves what is at `place` to where its key belongs.
    fn settle(&mut self, mut place: usize) {
        while place > 0 && self.rank(place) < self.rank((place - 1) / 2) {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
        loop {
            let left = 2 * place + 1;
            if left >= self.order.len() {
                return;
            }
            let right = left + 1;
            let least = if right < self.order.len() && self.rank(right) < self.rank(left) {
                right
            } else {
                left
            };
            if self.rank(place) <= self.rank(least) {
                return;
            }
            self.swap(place, least);
            place = least;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.order.swap(one, other);
        self.places[self.order[one] as usize] = one as u32;
        self.places[self.order[other] as usize] = other as u32;
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
