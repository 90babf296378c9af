//! Shadow doorbells: the guest writes its tails and heads to a page of its memory, and rings the
//! real doorbell only when it passes the event index that the function has put beside it (Base
//! Specification, Doorbell Buffer Config; Linux `nvme_dbbuf_need_event`).
//!
//! The hand-over between a function that polls and one that sleeps:
//!
//! | guest moves its tail | function goes to sleep |
//! | --- | --- |
//! | 1. writes the shadow doorbell | 1. writes the event index: the tail that it has seen |
//! | 2. full fence | 2. full fence |
//! | 3. reads the event index, and rings if it has passed it | 3. reads the shadow doorbell, and stays awake if it has moved |
//!
//! Whichever of the two fences comes first, the other side's load behind its own sees the store
//! before it: the guest rings, or the function stays awake. The tests go through all orders.
//! Awake, the function leaves an event index that the guest does not pass ([`EventIndex::awake`]).

use super::queues::Doorbell;

/// Where a doorbell's value and its event index are in their pages, bytes.
pub fn offset(doorbell: Doorbell) -> u64 {
    u64::from(doorbell.index()) * 4
}

/// Whether a guest that moves a doorbell from `old` to `new` rings the real one.
pub fn rings(event_index: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event_index).wrapping_sub(1) < new.wrapping_sub(old)
}

/// The event index of one doorbell, as it was written last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventIndex {
    written: u16,
}

impl EventIndex {
    /// What to write, if anything, so that a guest whose doorbell has moved from `from` to `seen`
    /// does not ring while the function is awake. The index has to be behind the guest; one that is
    /// so far behind that the guest could pass it with a move eight times as long, going round,
    /// is moved. Where it passes it all the same, it rings in vain.
    pub fn awake(&mut self, (from, seen): (u16, u16), entries: u16) -> Option<u32> {
        let distance = |to: u16, from: u16| u32::from((entries + to).wrapping_sub(from) % entries);
        let (behind, step) = (distance(seen, self.written), distance(seen, from));
        if behind != 0 && behind + (8 * step).max(u32::from(entries) / 2) <= u32::from(entries) {
            return None;
        }
        Some(self.behind(seen, entries))
    }

    /// The index behind a guest whose doorbell is at `seen`.
    pub fn behind(&mut self, seen: u16, entries: u16) -> u32 {
        self.written = if seen == 0 { entries - 1 } else { seen - 1 };
        self.written.into()
    }

    /// What to write before the function sleeps: the guest rings at its next move from `seen`.
    pub fn asleep(&mut self, seen: u16) -> u32 {
        self.written = seen;
        seen.into()
    }
}
