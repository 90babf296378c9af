//! What is counted of a tenant's I/Os, and which of them are looked at.

use flashyard_sched::Op;
use flashyard_time::Time;

use super::work::{BIN, Done};

/// How many of a tenant's I/Os in a bin are looked at: each up to the first number, then one in so
/// many. These are primes, so that an I/O is not looked at because of its place in a pattern.
const STEPS: [(u32, u32); 3] = [(8, 1), (64, 7), (u32::MAX, 31)];

#[derive(Default)]
pub(super) struct Tally {
    done: Done,
    /// When the present bin ends, and the I/Os in it so far.
    bin_end: Time,
    in_bin: u32,
    /// Which of them is looked at next, and for how many since the last one it stands.
    next: u32,
    stands_for: u32,
}

impl Tally {
    /// When the bin ends that I/Os are counted in.
    #[inline]
    pub(super) fn bin_end(&self) -> Time {
        self.bin_end
    }

    /// The work done so far.
    pub(super) fn done(&self) -> Done {
        self.done
    }

    /// Counts an I/O; whether it is to be looked at.
    #[inline]
    pub(super) fn count(&mut self, op: Op, price: u64) -> bool {
        self.done.add(op, price);
        self.in_bin += 1;
        self.in_bin >= self.next
    }

    /// Counts what was done because of its I/O.
    pub(super) fn count_upkeep(&mut self, price: u64) {
        self.done.upkeep += price;
    }

    /// Begins a new bin. What was not looked at in the last one is stood for by the first of the
    /// new one.
    pub(super) fn begin_bin(&mut self, bin: u64) {
        let step = self.next.saturating_sub(self.in_bin);
        self.stands_for = self.stands_for.saturating_sub(step) + 1;
        self.bin_end = Time::from_ns((bin + 1) * BIN.as_ns());
        self.in_bin = 0;
        self.next = 1;
    }

    /// Looks at the present I/O; gives how many it stands for.
    pub(super) fn look(&mut self) -> u32 {
        let step = STEPS.iter().find(|(most, _)| self.in_bin < *most);
        let (_, step) = step.copied().unwrap_or_default();
        self.next = self.in_bin.saturating_add(step);
        std::mem::replace(&mut self.stands_for, step)
    }

    /// The next I/O is looked at instead, and stands for the present one as well.
    pub(super) fn put_off(&mut self) {
        self.next = self.in_bin + 1;
        self.stands_for += 1;
    }
}
