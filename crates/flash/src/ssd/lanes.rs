//! The events of a drive in the order of their time.
//!
//! Nearly every event lies a constant span ahead, so events of one kind come sorted: a first-in first-out lane per
//! kind, of which the earliest head is next. The rest, rare, goes through a queue that can also cancel.

use alloc::collections::VecDeque;

use flashyard_time::{EventKey, EventQueue, Time};

/// Lanes of sorted events. Those of one instant happen in the order of their lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
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
}

const LANES: [Lane; 11] = [
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
];
/// Behind the lanes, the queue.
const RARE: usize = LANES.len();

/// An event that is rare, not sorted, or may be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rare {
    /// A die finished its programme or erase.
    JobDone(u32),
    /// A die has suspended its programme or erase.
    Suspended(u32),
    /// A die goes on with its programme or erase.
    Resumed(u32),
    /// The pace lets the next write in.
    Admit,
    /// A command without data is complete.
    Done(u32),
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Sorted(Lane, u32),
    Rare(Rare),
}

/// All events ahead.
#[derive(Debug)]
pub(super) struct Lanes {
    /// The instant of the first event of each lane and of the queue; `u64::MAX` when there is none.
    heads: [u64; LANES.len() + 1],
    rings: [VecDeque<(u64, u32)>; LANES.len()],
    queue: EventQueue<Rare>,
}

impl Lanes {
    pub fn new(capacity: usize) -> Self {
        Self {
            heads: [u64::MAX; LANES.len() + 1],
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
        if ring.is_empty() {
            self.heads[lane as usize] = at;
        }
        ring.push_back((at, value));
    }

    /// Adds an event at any instant.
    pub fn push_rare(&mut self, at: u64, event: Rare) -> EventKey {
        let key = self.queue.push(Time::from_ns(at), event);
        self.heads[RARE] = self.heads[RARE].min(at);
        key
    }

    pub fn cancel(&mut self, key: EventKey) {
        self.queue.cancel(key);
        self.renew_rare_head();
    }

    /// The instant of the first event.
    pub fn next_time(&self) -> Option<u64> {
        let first = self.heads.iter().copied().min().unwrap_or(u64::MAX);
        (first != u64::MAX).then_some(first)
    }

    /// Takes the first event not later than `now`.
    pub fn pop_due(&mut self, now: u64) -> Option<(u64, Event)> {
        let at = self.heads.iter().copied().fold(u64::MAX, u64::min);
        if at > now || at == u64::MAX {
            return None;
        }
        let first = self.heads.iter().position(|head| *head == at)?;
        let Some(&lane) = LANES.get(first) else {
            let (_, event) = self.queue.pop()?;
            self.renew_rare_head();
            return Some((at, Event::Rare(event)));
        };
        let ring = &mut self.rings[first];
        let (_, value) = ring.pop_front()?;
        self.heads[first] = ring.front().map_or(u64::MAX, |next| next.0);
        Some((at, Event::Sorted(lane, value)))
    }

    fn renew_rare_head(&mut self) {
        self.heads[RARE] = self.queue.next_time().map_or(u64::MAX, Time::as_ns);
    }
}

impl Lane {
    /// The lane of the end of sensing a page of this type.
    pub fn sense(page_type: u8) -> Self {
        [Self::SenseLower, Self::SenseMiddle, Self::SenseUpper][page_type as usize]
    }

    /// The lane of the end of moving `units` over a channel.
    pub fn moving(units: u8) -> Self {
        [Self::Move1, Self::Move2, Self::Move3, Self::Move4][units as usize - 1]
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn events_come_by_time_then_lane_then_order() {
        let mut lanes = Lanes::new(4);
        let gone = lanes.push_rare(1, Rare::Admit);
        lanes.push_rare(5, Rare::Done(9));
        lanes.push(Lane::Hit, 5, 1);
        lanes.push(Lane::Arrive, 5, 2);
        lanes.push(Lane::Arrive, 5, 3);
        lanes.push(Lane::ReadDone, 4, 4);
        assert_eq!(lanes.next_time(), Some(1));
        lanes.cancel(gone);
        assert_eq!(lanes.next_time(), Some(4));
        assert!(lanes.pop_due(3).is_none());
        let order: Vec<_> = core::iter::from_fn(|| lanes.pop_due(5))
            .map(|(at, event)| match event {
                Event::Sorted(_, value) | Event::Rare(Rare::Done(value)) => (at, value),
                Event::Rare(other) => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(order, [(4, 4), (5, 2), (5, 3), (5, 1), (5, 9)]);
        assert_eq!(lanes.next_time(), None);
    }
}
