//! Shadow doorbells: the guest writes its tails and heads to a page of its memory, and rings the
//! real doorbell only when it passes the event index that the function has put beside it (Base
//! Specification, Doorbell Buffer Config; Linux `nvme_dbbuf_need_event`).

use super::queues::Doorbell;

/// Where a doorbell's value and its event index are in their pages, bytes.
pub fn offset(doorbell: Doorbell) -> u64 {
    u64::from(doorbell.index()) * 4
}

/// Whether a guest that moves a doorbell from `old` to `new` rings the real one.
pub fn rings(event_index: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event_index).wrapping_sub(1) < new.wrapping_sub(old)
}

/// The event index by which a guest rings at its next move from `seen`.
pub fn wake_after(seen: u16) -> u32 {
    seen.into()
}

/// The event index by which a guest whose doorbell was at `seen` does not ring, as long as it does
/// not go round its queue.
pub fn let_sleep(seen: u16) -> u32 {
    seen.wrapping_sub(1).into()
}
