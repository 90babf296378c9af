//! The events of a device in the order of their time: those of its dies and channels, and those of
//! its owner.
//!
//! Nearly every event lies a constant span ahead, so events of one kind come sorted: a first-in
//! first-out lane per kind, of which the earliest head is next. The rest, rare, goes through a
//! queue that can also cancel.

use alloc::collections::VecDeque;

use flashyard_time::{EventKey, EventQueue, Time};

/// Lanes of sorted events. Those of one instant happen in the order of their lanes. The owner uses
/// those that are not about dies and channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// A command left the firmware.
    Arrive,
    /// A die has sensed a lower page.
    SenseLower,
    SenseMiddle,
    SenseUpper,
    /// A channel moved 1 to 4 units.
    Move1,
    Move2,
    Move3,
    Move4,
    /// The buffer gave the data of a read.
    Hit,
    /// A read is complete.
    ReadDone,
    /// A write is complete.
    WriteDone,
    /// The pace lets the next write in; there is at most one such event.
    Admit,
}

const LANES: [Lane; 12] = [
    Lane::Arrive,
    Lane::SenseLower,
    Lane::SenseMiddle,
    Lane::SenseUpper,
    Lane::Move1,
    Lane::Move2,
    Lane::Move3,
    Lane::Move4,
    Lane::Hit,
    Lane::ReadDone,
    Lane::WriteDone,
    Lane::Admit,
];
/// Behind the lanes, the queue.
const RARE: usize = LANES.len();
/// Heads are compared in groups of this many.
const GROUP: usize = 4;
const GROUPS: usize = (RARE + 1).div_ceil(GROUP);
/// Bits that hold the place of a head.
const PLACE_BITS: u32 = 4;
/// The head of what is empty.
const EMPTY: u64 = u64::MAX;

/// An event that is rare, not sorted, or may be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rare<T> {
    /// A die finished its program or erase.
    JobDone(u32),
    /// A die has suspended its program or erase.
    Suspended(u32),
    /// A die goes on with its program or erase.
    Resumed(u32),
    /// Something of the owner.
    Owner(T),
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event<T> {
    Sorted(Lane, u32),
    Rare(Rare<T>),
}

/// All events ahead, where `T` is what the owner has of rare ones.
#[derive(Debug)]
pub(crate) struct Events<T> {
    /// The first event of each lane and of the queue: its instant, and below that the place of its
    /// head, so that one comparison orders by both. Instants stay below 2^60 ns, 36 years.
    heads: [u64; GROUP * GROUPS],
    /// The least head of each group, and of all: most questions need no more.
    least: [u64; GROUPS],
    first: u64,
    rings: [VecDeque<(u64, u32)>; LANES.len()],
    queue: EventQueue<Rare<T>>,
}

impl<T> Events<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            heads: [EMPTY; GROUP * GROUPS],
            least: [EMPTY; GROUPS],
            first: EMPTY,
            rings: core::array::from_fn(|_| VecDeque::with_capacity(capacity)),
            queue: EventQueue::with_capacity(capacity),
        }
    }

    /// Adds an event of `lane`, not earlier than the last one of that lane.
    pub fn push(&mut self, lane: Lane, at: u64, value: u32) {
        let ring = &mut self.rings[lane as usize];
        debug_assert!(
            ring.back().is_none_or(|last| last.0 <= at),
            "{lane:?} is not sorted"
        );
        let first = ring.is_empty();
        ring.push_back((at, value));
        if first {
            self.lead(lane as usize, at);
        }
    }

    /// Adds an event of the owner at any instant.
    pub fn push_rare(&mut self, at: u64, event: T) {
        self.push_own(at, Rare::Owner(event));
    }

    pub(super) fn push_own(&mut self, at: u64, event: Rare<T>) -> EventKey {
        let key = self.queue.push(Time::from_ns(at), event);
        if head(RARE, at) < self.heads[RARE] {
            self.lead(RARE, at);
        }
        key
    }

    pub(super) fn cancel(&mut self, key: EventKey) {
        self.queue.cancel(key);
        self.follow(RARE, self.queue.next_time().map(Time::as_ns));
    }

    /// The instant of the first event.
    pub fn next_time(&self) -> Option<u64> {
        (self.first != EMPTY).then_some(self.first >> PLACE_BITS)
    }

    /// The instant of the first event of `lane`.
    pub fn next_of(&self, lane: Lane) -> Option<u64> {
        self.rings[lane as usize].front().map(|next| next.0)
    }

    /// The instant of the first event that is rare.
    pub fn next_rare(&self) -> Option<u64> {
        self.queue.next_time().map(Time::as_ns)
    }

    /// Takes the first event not later than `now`.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<(u64, Event<T>)> {
        let at = self.first >> PLACE_BITS;
        if at > now || self.first == EMPTY {
            return None;
        }
        let first = (self.first & ((1 << PLACE_BITS) - 1)) as usize;
        let Some(&lane) = LANES.get(first) else {
            let (_, event) = self.queue.pop()?;
            self.follow(RARE, self.queue.next_time().map(Time::as_ns));
            return Some((at, Event::Rare(event)));
        };
        let ring = &mut self.rings[first];
        let (_, value) = ring.pop_front()?;
        let next = ring.front().map(|next| next.0);
        self.follow(first, next);
        Some((at, Event::Sorted(lane, value)))
    }

    /// Forgets everything ahead.
    pub(super) fn clear(&mut self) {
        self.heads.fill(EMPTY);
        self.least.fill(EMPTY);
        self.first = EMPTY;
        for ring in &mut self.rings {
            ring.clear();
        }
        self.queue.clear();
    }

    /// The head of `place` is now `at`, earlier than it was.
    fn lead(&mut self, place: usize, at: u64) {
        let head = head(place, at);
        self.heads[place] = head;
        let least = &mut self.least[place / GROUP];
        *least = head.min(*least);
        self.first = self.first.min(head);
    }

    /// The head of `place` is now `at`, later than it was.
    fn follow(&mut self, place: usize, at: Option<u64>) {
        self.heads[place] = at.map_or(EMPTY, |at| head(place, at));
        let group = place / GROUP;
        self.least[group] = least(&self.heads[GROUP * group..]);
        self.first = least(&self.least);
    }
}

fn head(place: usize, at: u64) -> u64 {
    at << PLACE_BITS | place as u64
}

/// The least of the first [`GROUP`], without a branch and without one comparison waiting for all
/// others.
fn least(heads: &[u64]) -> u64 {
    let four = &heads[..GROUP];
    (four[0].min(four[1])).min(four[2].min(four[3]))
}

impl Lane {
    /// The lane of the end of sensing a page of this type.
    pub(super) fn sense(page_type: u8) -> Self {
        [Self::SenseLower, Self::SenseMiddle, Self::SenseUpper][page_type as usize]
    }

    /// The lane of the end of moving `units` over a channel.
    pub(super) fn moving(units: u8) -> Self {
        [Self::Move1, Self::Move2, Self::Move3, Self::Move4][units as usize - 1]
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn events_come_by_time_then_lane_then_order() {
        let mut events = Events::new(4);
        let gone = events.push_own(1, Rare::Suspended(7));
        events.push_rare(5, 9);
        events.push(Lane::Hit, 5, 1);
        events.push(Lane::Arrive, 5, 2);
        events.push(Lane::Arrive, 5, 3);
        events.push(Lane::ReadDone, 4, 4);
        assert_eq!(events.next_time(), Some(1));
        events.cancel(gone);
        assert_eq!(events.next_time(), Some(4));
        assert!(events.pop_due(3).is_none());
        let order: Vec<_> = core::iter::from_fn(|| events.pop_due(5))
            .map(|(at, event)| match event {
                Event::Sorted(_, value) | Event::Rare(Rare::Owner(value)) => (at, value),
                Event::Rare(other) => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(order, [(4, 4), (5, 2), (5, 3), (5, 1), (5, 9)]);
        assert_eq!(events.next_time(), None);
    }

    #[test]
    fn nothing_is_ahead_once_cleared() {
        let mut events = Events::new(4);
        events.push_rare(5, 9);
        events.push(Lane::Hit, 5, 1);
        events.clear();
        assert_eq!(events.next_time(), None);
        assert!(events.pop_due(u64::MAX).is_none());
    }
}
