//! What costs can be at least and at most, seen without a probe: between two of them a drive may
//! come to take writes far more slowly, as one does that began clean.
//!
//! While both kinds wait and the device is kept full it does as much as it can, so what it does
//! costs all of its time at least; when that is less, writes have become dearer. And nothing costs
//! more than the time in which it is done.

use super::costs::{Costs, Kind, PER_NS};

/// Ticks over which is looked: longer than the rhythm of programs and erases.
const TICKS: u32 = 40;
/// What a device does that is kept full costs this part of its time at least, in tenths: a window
/// of ten gives ten elevenths of its most.
const LEAST: u64 = 9;
/// Costs are moved when they are out of bounds by this part.
const MARGIN: u64 = 16;

/// What was done in such ticks.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    ticks: u32,
    span: u64,
    charged: [u64; 2],
}

impl Bounds {
    /// In a tick of `span` nanoseconds both kinds waited and the device was full; so much was
    /// `charged` for what came back of each.
    pub(super) fn tick(&mut self, span: u64, charged: [u64; 2], costs: &mut Costs) {
        self.ticks += 1;
        self.span += span;
        for (sum, charged) in self.charged.iter_mut().zip(charged) {
            *sum += charged / PER_NS;
        }
        if self.ticks < TICKS {
            return;
        }
        let Self { span, charged, .. } = core::mem::take(self);
        let [reads, writes] = charged;
        let least = span / 10 * LEAST;
        if writes > 0 && reads + writes < least - least / MARGIN {
            costs.scale(Kind::Write, least - reads, writes);
        }
        for (kind, charged) in [(Kind::Read, reads), (Kind::Write, writes)] {
            if charged > span + span / MARGIN {
                costs.scale(kind, span, charged);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: u64 = 5_000_000;

    /// By how much the costs of reads and of writes have changed after some ticks in which so many
    /// percent of the time were charged for each.
    fn after(percent: [u64; 2], ticks: u32) -> [f64; 2] {
        let (mut bounds, mut costs) = (Bounds::default(), Costs::new());
        let before = [Kind::Read, Kind::Write].map(|kind| costs.of(kind, 4096));
        let charged = percent.map(|percent| SPAN * PER_NS * percent / 100);
        (0..ticks).for_each(|_| bounds.tick(SPAN, charged, &mut costs));
        [Kind::Read, Kind::Write]
            .map(|kind| costs.of(kind, 4096) as f64 / before[kind as usize] as f64)
    }

    #[test]
    fn what_is_out_of_bounds_is_moved_to_them_by_twice_at_most() {
        for (percent, moved) in [
            ([45, 30], [1.0, 1.5]),
            ([20, 20], [1.0, 2.0]),
            ([50, 38], [1.0, 1.0]),
            ([100, 100], [1.0, 1.0]),
            ([160, 50], [0.625, 1.0]),
            ([30, 125], [1.0, 0.8]),
            ([300, 0], [0.5, 1.0]),
        ] {
            let found = after(percent, TICKS);
            let is_near = |(found, moved): (f64, f64)| (found / moved - 1.0).abs() < 0.01;
            assert!(
                found.into_iter().zip(moved).all(is_near),
                "{found:?} {percent:?}"
            );
            assert_eq!(
                after(percent, TICKS - 1).map(f64::to_bits),
                [1.0_f64.to_bits(); 2]
            );
        }
    }
}
