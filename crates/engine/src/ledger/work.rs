//! How much work was done when: priced, and remembered by the millisecond.

use flashyard_sched::{Ask, Cost, Op};
use flashyard_time::{Duration, Time};

/// How exactly the past is remembered, and for how long.
pub(super) const BIN: Duration = Duration::from_ms(1);
const BINS: usize = 256;
/// Between what a written byte costs a drive that was written in order (about 3) and one that is
/// full of holes (about 9).
const WRITE: u64 = 5;

/// Work done so far: reads and writes, priced.
#[derive(Clone, Copy, Default)]
pub(super) struct Done {
    pub(super) reads: u64,
    pub(super) writes: u64,
    /// What a pool has done because of it: garbage collection, metadata.
    pub(super) upkeep: u64,
}

/// How much work was done at the end of each of the last bins.
pub(super) struct History {
    bin: u64,
    ends: Box<[Done; BINS]>,
}

impl Done {
    #[inline]
    pub(super) fn add(&mut self, op: Op, price: u64) {
        match op {
            Op::Read => self.reads += price,
            _ => self.writes += price,
        }
    }
}

impl Default for History {
    fn default() -> Self {
        Self {
            bin: 0,
            ends: Box::new([Done::default(); BINS]),
        }
    }
}

impl History {
    /// Notes that it was `done` at the end of every bin before `to` of which nothing is known yet.
    pub(super) fn fill(&mut self, to: u64, done: Done) {
        let from = self.bin.max(to.saturating_sub(BINS as u64));
        for bin in from..to {
            self.ends[bin as usize % BINS] = done;
        }
        self.bin = self.bin.max(to);
    }

    /// What was done between two instants, to the exactness of a bin, if it is `done` now.
    pub(super) fn within(&self, (from, to): (Time, Time), done: Done) -> Done {
        let (before, after) = (self.before(bin(from), done), self.before(bin(to) + 1, done));
        Done {
            reads: after.reads - before.reads,
            writes: after.writes - before.writes,
            upkeep: after.upkeep - before.upkeep,
        }
    }

    /// The count at the beginning of a bin.
    fn before(&self, bin: u64, done: Done) -> Done {
        if bin > self.bin {
            return done;
        }
        let oldest = self.bin.saturating_sub(BINS as u64);
        match bin.checked_sub(1) {
            None => Done::default(),
            Some(last) => self.ends[last.max(oldest) as usize % BINS],
        }
    }
}

/// What upkeep is worth: about as much is read as is written.
pub(super) fn price_upkeep(cost: &Cost) -> u64 {
    cost.upkeep / 2 * (1 + WRITE)
}

/// The bin that an instant is in.
pub(super) fn bin(now: Time) -> u64 {
    now.as_ns() / BIN.as_ns()
}

/// What an I/O is worth beside others: its bytes with a floor for small ones, a write as much as
/// [`WRITE`] reads.
#[inline]
pub(super) fn price(io: &Ask) -> u64 {
    match io.op {
        Op::Read => io.bytes.max(4096),
        Op::Write | Op::CompareAndWrite => io.bytes.max(4096) * WRITE,
        Op::Flush | Op::WriteZeroes | Op::Deallocate => 4096,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Differences of the remembered counts are what was really done.
    #[test]
    fn work_within_a_span_is_what_was_done_in_its_bins() {
        let (mut history, mut done) = (History::default(), Done::default());
        let mut rng = flashyard_time::Rng::new(1);
        let (mut at, mut all) = (0, Vec::new());
        for _ in 0..5_000 {
            at += rng.below(400_000);
            history.fill(bin(Time::from_ns(at)), done);
            done.add(Op::Read, 1);
            all.push(at / 1_000_000);
        }
        for _ in 0..1_000 {
            let to = at - rng.below(100_000_000);
            let from = to - rng.below(100_000_000);
            let span = (Time::from_ns(from), Time::from_ns(to));
            let bins = from / 1_000_000..=to / 1_000_000;
            let real = all.iter().filter(|bin| bins.contains(bin)).count() as u64;
            assert_eq!(history.within(span, done).reads, real);
        }
    }
}
