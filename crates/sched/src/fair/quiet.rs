//! How much of the other I/O may be in flight while latency-sensitive I/O is about: one
//! bandwidth-delay product, or what keeps 99 of 100 under the latency that its tenant wants.
//!
//! Each latency-sensitive I/O that takes longer than its target takes an eighth of the window away,
//! each that does not gives a ninety-ninth of that back. The two are even when one in a hundred is
//! late, whatever the latency is like: nothing has to be known of the drive.

use super::GAIN;
use super::windows::ONE;

/// Parts of the window are counted finer than loads are, so that small steps add up.
const FINE: u32 = 16;
/// The least and the most that a target may ask for. Below the least one I/O of each kind goes in
/// any case.
const LEAST: u64 = (ONE / 8) << FINE;
const MOST: u64 = (GAIN * ONE) << FINE;
const USUAL: u64 = ONE << FINE;
/// Part of the window that is lost when a target is missed.
const LOSS: u64 = 8;

/// The window of the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quiet {
    fine: u64,
}

impl Quiet {
    /// Nothing is wanted.
    pub(super) fn new() -> Self {
        Self { fine: USUAL }
    }

    /// Most load in flight of each kind.
    #[inline]
    pub(super) fn window(self) -> u64 {
        self.fine >> FINE
    }

    /// A latency-sensitive I/O took `ns`; its tenant wants it to take no longer than `target`, if
    /// that is not zero. Those who say nothing have the usual window at most.
    #[inline]
    pub(super) fn record(&mut self, target: u64, ns: u64) {
        let most = if target == 0 { USUAL } else { MOST };
        self.fine = if target > 0 && ns > target {
            self.fine - self.fine / LOSS
        } else {
            self.fine + self.fine / (99 * LOSS)
        }
        .clamp(LEAST, most);
    }
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;

    #[test]
    fn without_a_target_the_window_is_the_usual_one() {
        let mut quiet = Quiet::new();
        assert_eq!(quiet.window(), ONE);
        (0..1000).for_each(|_| quiet.record(0, 1 << 40));
        assert_eq!(quiet.window(), ONE);
        // After a tenant with a hard target has gone it comes back.
        (0..1000).for_each(|_| quiet.record(1, 2));
        assert_eq!(quiet.window(), ONE / 8);
        (0..10_000).for_each(|_| quiet.record(0, 1));
        assert_eq!(quiet.window(), ONE);
        (0..10_000).for_each(|_| quiet.record(100, 100));
        assert_eq!(
            quiet.window(),
            GAIN * ONE,
            "a target that is met asks for no less"
        );
        quiet.record(0, 1);
        assert_eq!(quiet.window(), ONE);
    }

    /// A device whose latency grows with what is in flight, and varies by chance.
    #[test]
    fn one_in_a_hundred_is_late() {
        for (seed, target) in [(1, 200_000), (2, 400_000), (3, 700_000)] {
            let (mut quiet, mut rng) = (Quiet::new(), Rng::new(seed));
            let (mut late, mut sum) = (0, 0);
            for n in 0..200_000_u64 {
                let wait = quiet.window() * 100_000 / ONE;
                let ns = 50_000 + rng.below(wait.max(1) * 2);
                quiet.record(target, ns);
                if n >= 20_000 {
                    late += u64::from(ns > target);
                    sum += quiet.window();
                }
            }
            let part = late as f64 / 180_000.0;
            assert!((0.008..0.012).contains(&part), "{target}: {part}");
            // What just fits: 50 us and twice the wait make the target.
            let fits = (target - 50_000) * ONE / 200_000;
            let mean = sum / 180_000;
            assert!(
                mean > fits * 8 / 10 && mean < fits * 11 / 10,
                "{mean} of {fits}"
            );
        }
    }
}
