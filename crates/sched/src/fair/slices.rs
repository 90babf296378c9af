//! Reads and writes by turns, while latency-sensitive I/O is about.
//!
//! A drive can let a read interrupt a programme a few times; where many reads for throughput use that up, one in a hurry
//! waits for the programme's end. So the two are kept apart: for a slice of time only one kind goes to the device, then
//! that whose tenants are behind. Before reads the drive is given time to programme what it had taken.

use super::costs::Kind;

/// Length of a slice: long against what is in flight, short against what those wait who are not in a hurry.
const SLICE_NS: u64 = 10_000_000;
/// Time between the last write and the first read: some programmes.
const DRAIN_NS: u64 = 5_000_000;
/// A kind is about for so long after I/O of it last waited.
const ABOUT_NS: u64 = 20_000_000;

/// Whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slices {
    kind: Kind,
    /// When the slice begins and ends, in nanoseconds; the past when there are none.
    begins: u64,
    ends: u64,
    /// Until when I/O of each kind is taken to be about.
    about: [u64; 2],
}

impl Slices {
    pub(super) fn new() -> Self {
        Self {
            kind: Kind::Read,
            begins: 0,
            ends: 0,
            about: [0; 2],
        }
    }

    /// Looks at who waits: the least tags of reads and of writes, beyond all others when there are none.
    #[inline]
    pub(super) fn turn(&mut self, now: u64, least: [u64; 2]) {
        for (about, least) in self.about.iter_mut().zip(least) {
            if least < u64::MAX {
                *about = now + ABOUT_NS;
            }
        }
        if self.about.iter().any(|&until| until <= now) {
            self.ends = 0;
        } else if now >= self.ends {
            let next = if least[1] < least[0] {
                Kind::Write
            } else {
                Kind::Read
            };
            let drains = self.kind == Kind::Write && next == Kind::Read;
            self.begins = if drains { now + DRAIN_NS } else { now };
            self.kind = next;
            self.ends = self.begins + SLICE_NS;
        }
    }

    /// There are no slices.
    pub(super) fn stop(&mut self) {
        self.ends = 0;
    }

    /// Whether there are slices.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.ends > 0
    }

    /// Whether I/O of `kind` may go.
    #[inline]
    pub(super) fn admit(&self, now: u64, kind: Kind) -> bool {
        self.ends == 0 || self.kind == kind && now >= self.begins
    }

    /// When that changes.
    pub(super) fn changes(&self, now: u64) -> u64 {
        match self.ends {
            0 => u64::MAX,
            _ if now < self.begins => self.begins,
            ends => ends,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: u64 = u64::MAX;

    #[test]
    fn there_are_slices_only_while_both_kinds_wait() {
        let mut slices = Slices::new();
        slices.turn(1, [5, NOBODY]);
        assert!(!slices.is_on() && slices.admit(1, Kind::Read) && slices.admit(1, Kind::Write));
        assert_eq!(slices.changes(1), u64::MAX);
        slices.turn(2, [5, 6]);
        assert!(slices.is_on() && slices.admit(2, Kind::Read) && !slices.admit(2, Kind::Write));
        assert_eq!(slices.changes(2), 2 + SLICE_NS);
        // All writes are in flight for a moment; later there are none any more.
        slices.turn(3, [5, NOBODY]);
        assert!(slices.is_on());
        slices.turn(2 + ABOUT_NS, [5, NOBODY]);
        assert!(!slices.is_on() && slices.admit(2 + ABOUT_NS, Kind::Read));
    }

    #[test]
    fn who_is_behind_has_the_next_slice_and_reads_wait_for_programmes() {
        let mut slices = Slices::new();
        let mut now = 1;
        slices.turn(now, [9, 8]);
        assert!(slices.admit(now, Kind::Write) && !slices.admit(now, Kind::Read));
        // Within a slice nothing changes.
        slices.turn(now + 1, [8, 9]);
        assert!(slices.admit(now + 1, Kind::Write));
        now += SLICE_NS;
        slices.turn(now, [8, 9]);
        let both = [Kind::Read, Kind::Write];
        assert!(both.iter().all(|&kind| !slices.admit(now, kind)));
        assert_eq!(slices.changes(now), now + DRAIN_NS);
        now += DRAIN_NS;
        assert!(slices.admit(now, Kind::Read) && !slices.admit(now, Kind::Write));
        now += SLICE_NS;
        slices.turn(now, [8, 9]);
        assert!(slices.admit(now, Kind::Read), "still behind");
        now += SLICE_NS;
        slices.turn(now, [9, 8]);
        assert!(slices.admit(now, Kind::Write), "writes need not wait");
        slices.stop();
        assert!(slices.admit(now, Kind::Read));
    }
}
