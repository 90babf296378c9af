//! The rules of a queue pair: how many commands may be outstanding, which identifiers are in use,
//! and the head pointer that completions carry.

use std::cell::{Cell, RefCell};

use flashyard_nvme::tcp::Violation;

use crate::cid_set::CidSet;

/// SQHD in the answer to Connect when the host switched SQ flow control off.
pub(crate) const NO_FLOW_CONTROL: u16 = 0xffff;

/// One queue pair. A command is outstanding from its capsule until its answer lies in the outbox,
/// which is before the host can have it: so a host that reuses a place at once is always in time.
pub(crate) struct QueuePair {
    entries: u16,
    flow_control: bool,
    outstanding: Cell<u16>,
    head: Cell<u16>,
    identifiers: RefCell<CidSet>,
}

/// An identifier that is in use already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Duplicate;

impl QueuePair {
    /// An empty queue pair. The Connect that made it was its first command.
    pub(crate) fn new(entries: u16, flow_control: bool) -> Self {
        Self {
            entries,
            flow_control,
            outstanding: Cell::new(0),
            head: Cell::new(1 % entries),
            identifiers: RefCell::default(),
        }
    }

    /// Whether completions carry the head pointer.
    pub(crate) fn has_flow_control(&self) -> bool {
        self.flow_control
    }

    /// Commands in flight.
    #[inline]
    pub(crate) fn outstanding(&self) -> u16 {
        self.outstanding.get()
    }

    /// How many commands can be outstanding.
    pub(crate) fn places(&self) -> usize {
        usize::from(self.entries)
    }

    /// A command has come. One with an identifier that is in use still takes a place, until it is
    /// answered.
    #[inline]
    pub(crate) fn begin(&self, cid: u16) -> Result<Result<(), Duplicate>, Violation> {
        if self.outstanding.get() >= self.entries {
            return Err(Violation::sequence());
        }
        self.outstanding.set(self.outstanding.get() + 1);
        let fresh = self.identifiers.borrow_mut().insert(cid);
        Ok(if fresh { Ok(()) } else { Err(Duplicate) })
    }

    /// A command is being answered; gives SQHD.
    #[inline]
    pub(crate) fn end(&self, cid: u16) -> u16 {
        self.identifiers.borrow_mut().remove(cid);
        self.end_duplicate()
    }

    /// A command with an identifier in use is being refused: the identifier stays in use.
    #[inline]
    pub(crate) fn end_duplicate(&self) -> u16 {
        debug_assert!(self.outstanding.get() > 0, "every command is answered once");
        self.outstanding.set(self.outstanding.get() - 1);
        if !self.flow_control {
            return 0;
        }
        let head = self.head.get() + 1;
        self.head.set(if head >= self.entries { 0 } else { head });
        self.head.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_goes_round_and_the_depth_is_kept() {
        let queue = QueuePair::new(4, true);
        for cid in 0..4 {
            assert_eq!(queue.begin(cid), Ok(Ok(())));
        }
        assert_eq!(queue.begin(9), Err(Violation::sequence()));
        assert_eq!(queue.end(2), 2);
        assert_eq!(queue.begin(3), Ok(Err(Duplicate)));
        assert_eq!(queue.end_duplicate(), 3);
        assert_eq!(
            queue.begin(3),
            Ok(Err(Duplicate)),
            "refusing the other one has not freed it"
        );
        assert_eq!(queue.end_duplicate(), 0);
        assert_eq!(queue.end(3), 1);
        assert_eq!(queue.begin(3), Ok(Ok(())));
    }

    #[test]
    fn without_flow_control_the_head_says_nothing() {
        let queue = QueuePair::new(2, false);
        assert_eq!(queue.begin(1), Ok(Ok(())));
        assert_eq!(queue.end(1), 0);
    }
}
