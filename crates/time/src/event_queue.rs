//! Events ordered by time, and among equal times by the order in which they were added.
//!
//! A binary heap of small entries over a table of values. Each value knows its place in the heap,
//! so a cancelled event leaves at once: timers that are set and cancelled all day take no memory.

use alloc::vec::Vec;

use crate::Time;

/// Names one event of an [`EventQueue`]. It is never reused, so a key kept too long cancels
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventKey {
    order: u64,
    slot: u32,
}

/// A queue of events at instants. Adding, taking and cancelling cost O(log n).
///
/// ```
/// use flashyard_time::{EventQueue, Time};
///
/// let mut queue = EventQueue::new();
/// let late = queue.push(Time::from_ns(20), "late");
/// queue.push(Time::from_ns(10), "first");
/// queue.push(Time::from_ns(10), "second");
/// assert_eq!(queue.cancel(late), Some("late"));
/// assert_eq!(queue.pop(), Some((Time::from_ns(10), "first")));
/// assert_eq!(queue.pop(), Some((Time::from_ns(10), "second")));
/// assert_eq!(queue.pop(), None);
/// ```
#[derive(Clone, Debug)]
pub struct EventQueue<T> {
    /// The least entry first; the children of place `n` are at `2n + 1` and `2n + 2`.
    heap: Vec<Entry>,
    slots: Vec<Slot<T>>,
    /// The first slot of the chain of free ones.
    free: Option<u32>,
    next_order: u64,
}

/// What the heap compares, kept together so that sifting does not visit the slots.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Time,
    order: u64,
    slot: u32,
}

#[derive(Clone, Debug)]
enum Slot<T> {
    Used { place: u32, order: u64, value: T },
    Free { next: Option<u32> },
}

impl<T> EventQueue<T> {
    /// A queue without events; it allocates on the first [`EventQueue::push`].
    pub const fn new() -> Self {
        Self {
            heap: Vec::new(),
            slots: Vec::new(),
            free: None,
            next_order: 0,
        }
    }

    /// A queue that takes `capacity` events without allocating.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            heap: Vec::with_capacity(capacity),
            slots: Vec::with_capacity(capacity),
            ..Self::new()
        }
    }

    /// How many events wait.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True when no event waits.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// The instant of the first event.
    pub fn next_time(&self) -> Option<Time> {
        self.heap.first().map(|entry| entry.at)
    }

    /// Adds `value` at instant `at`, behind all others of that instant.
    pub fn push(&mut self, at: Time, value: T) -> EventKey {
        let order = self.next_order;
        self.next_order += 1;
        let place = self.heap.len();
        let slot = self.fill_slot(Slot::Used {
            place: place as u32,
            order,
            value,
        });
        self.heap.push(Entry { at, order, slot });
        self.sift_up(place);
        EventKey { order, slot }
    }

    /// Takes the first event and its instant.
    pub fn pop(&mut self) -> Option<(Time, T)> {
        let first = *self.heap.first()?;
        Some((first.at, self.remove(0)))
    }

    /// Takes the first event when its instant is not later than `now`.
    pub fn pop_due(&mut self, now: Time) -> Option<(Time, T)> {
        if self.next_time()? <= now {
            self.pop()
        } else {
            None
        }
    }

    /// Takes the event that `key` names; `None` when it was taken before.
    pub fn cancel(&mut self, key: EventKey) -> Option<T> {
        match self.slots.get(key.slot as usize) {
            Some(&Slot::Used { place, order, .. }) if order == key.order => {
                Some(self.remove(place as usize))
            }
            _ => None,
        }
    }

    /// Drops every event. Keys of dropped events cancel nothing.
    pub fn clear(&mut self) {
        self.heap.clear();
        self.slots.clear();
        self.free = None;
    }

    fn fill_slot(&mut self, used: Slot<T>) -> u32 {
        if let Some(slot) = self.free {
            let freed = core::mem::replace(&mut self.slots[slot as usize], used);
            let Slot::Free { next } = freed else {
                unreachable!("the free chain holds free slots only")
            };
            self.free = next;
            slot
        } else {
            let slot = u32::try_from(self.slots.len()).expect("2^32 events outgrow any memory");
            self.slots.push(used);
            slot
        }
    }

    /// Takes the event at `place` of the heap out of heap and slots.
    fn remove(&mut self, place: usize) -> T {
        let removed = self.heap.swap_remove(place);
        if place < self.heap.len() {
            // What came from the end may belong on either side of where the hole was.
            let settled = self.sift_up(place);
            self.sift_down(settled);
        }
        let freed = Slot::Free { next: self.free };
        self.free = Some(removed.slot);
        match core::mem::replace(&mut self.slots[removed.slot as usize], freed) {
            Slot::Used { value, .. } => value,
            Slot::Free { .. } => unreachable!("the heap names used slots only"),
        }
    }

    /// Moves the entry at `place` towards the front as far as it goes; its new place.
    fn sift_up(&mut self, mut place: usize) -> usize {
        let entry = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent].before(&entry) {
                break;
            }
            self.settle(place, self.heap[parent]);
            place = parent;
        }
        self.settle(place, entry);
        place
    }

    /// Moves the entry at `place` towards the back as far as it goes.
    fn sift_down(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let (left, right) = (2 * place + 1, 2 * place + 2);
            let Some(left_entry) = self.heap.get(left) else {
                break;
            };
            let child = match self.heap.get(right) {
                Some(right_entry) if right_entry.before(left_entry) => right,
                _ => left,
            };
            if entry.before(&self.heap[child]) {
                break;
            }
            self.settle(place, self.heap[child]);
            place = child;
        }
        self.settle(place, entry);
    }

    /// Puts `entry` at `place` and tells its slot.
    fn settle(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        if let Slot::Used { place: known, .. } = &mut self.slots[entry.slot as usize] {
            *known = place as u32;
        }
    }
}

impl<T> Default for EventQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl Entry {
    fn before(&self, other: &Self) -> bool {
        (self.at, self.order) < (other.at, other.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    /// The same face over a plain list.
    #[derive(Default)]
    struct Model {
        events: Vec<(Time, EventKey, u64)>,
    }

    impl Model {
        fn first(&self) -> Option<usize> {
            (0..self.events.len())
                .min_by_key(|&index| (self.events[index].0, self.events[index].1.order))
        }

        fn pop_due(&mut self, now: Time) -> Option<(Time, u64)> {
            let first = self.first().filter(|&index| self.events[index].0 <= now)?;
            let (at, _, value) = self.events.remove(first);
            Some((at, value))
        }

        fn cancel(&mut self, key: EventKey) -> Option<u64> {
            let index = self.events.iter().position(|event| event.1 == key)?;
            Some(self.events.remove(index).2)
        }
    }

    #[test]
    fn agrees_with_a_plain_list() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut queue = EventQueue::new();
            let mut model = Model::default();
            let mut keys = Vec::new();
            // Few instants make many ties; many make deep heaps.
            let instants = 1 << rng.below(12);
            for step in 0..400 {
                match rng.below(8) {
                    0..4 => {
                        let at = Time::from_ns(rng.below(instants));
                        let key = queue.push(at, step);
                        model.events.push((at, key, step));
                        keys.push(key);
                    }
                    4..6 => {
                        let now = Time::from_ns(rng.below(instants));
                        assert_eq!(
                            queue.pop_due(now),
                            model.pop_due(now),
                            "seed {seed} step {step}"
                        );
                    }
                    6 => {
                        if let Some(&key) = rng.pick(&keys) {
                            assert_eq!(
                                queue.cancel(key),
                                model.cancel(key),
                                "seed {seed} step {step}"
                            );
                        }
                    }
                    _ => assert_eq!(
                        queue.pop(),
                        model.pop_due(Time::MAX),
                        "seed {seed} step {step}"
                    ),
                }
                assert_eq!(queue.len(), model.events.len());
                assert_eq!(
                    queue.next_time(),
                    model.first().map(|index| model.events[index].0)
                );
            }
            while let Some(popped) = queue.pop() {
                assert_eq!(
                    Some(popped),
                    model.pop_due(Time::MAX),
                    "seed {seed} at the end"
                );
            }
            assert!(model.events.is_empty());
        }
    }

    #[test]
    fn equal_instants_keep_the_order_of_adding() {
        let mut queue = EventQueue::new();
        for value in 0..100 {
            queue.push(Time::ZERO, value);
        }
        assert!((0..100).all(|value| queue.pop() == Some((Time::ZERO, value))));
    }

    #[test]
    fn a_stale_key_cancels_nothing() {
        let mut queue = EventQueue::new();
        let stale = queue.push(Time::ZERO, 'a');
        queue.pop();
        queue.push(Time::ZERO, 'b');
        assert_eq!(queue.cancel(stale), None);
        assert_eq!(queue.len(), 1);
        queue.clear();
        queue.push(Time::ZERO, 'c');
        assert_eq!(queue.cancel(stale), None);
    }

    #[test]
    fn cancelled_timers_take_no_memory() {
        let mut queue = EventQueue::with_capacity(2);
        let capacity = (queue.heap.capacity(), queue.slots.capacity());
        for round in 0..10_000 {
            let key = queue.push(Time::from_ns(u64::MAX - round), round);
            assert_eq!(queue.cancel(key), Some(round));
        }
        assert_eq!((queue.heap.capacity(), queue.slots.capacity()), capacity);
    }
}
