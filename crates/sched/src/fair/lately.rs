//! What was done lately: what I/O costs, roughly, before it is measured.
//!
//! Measuring takes I/O that waits for the device, and whether any waits depends on the very cost
//! that is not known: where everything is taken for cheap all of it is sent at once, and beside
//! latency-sensitive I/O only a little is. But a device that is busy for a part of the time takes
//! longer to answer by that part, and did in the busy part what came back. So its answers tell the
//! cost.

use super::costs::{CLASSES, Class, Costs, Kind, PER_NS};
use super::windows::Bases;

/// Part of what was done that a tick forgets.
const FADE: u64 = 8;
/// I/Os that tell something of the mean.
const ENOUGH: u64 = 16;
/// Least mean number under way: more than one who asks for one thing at a time.
const DEEP: u64 = 2;
/// One that was busy for less than this part says nothing of costs, and no kind is taken to have
/// needed less of the busy time.
const LEAST_BUSY: u64 = 8;
/// All of the time, where parts of it are given in millionths.
const WHOLE: u128 = 1_000_000;

/// Sums over ticks, fading.
#[derive(Debug)]
pub(super) struct Lately {
    classes: [Sums; CLASSES],
    ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    ios: u64,
    latency: u64,
}

impl Lately {
    pub(super) fn new() -> Self {
        Self {
            classes: [Sums::default(); CLASSES],
            ns: 0,
        }
    }

    /// A tick of `span` nanoseconds has ended; I/Os that came back and the sum of their latencies
    /// in it, by class.
    pub(super) fn remember(&mut self, span: u64, served: impl Iterator<Item = (u64, u64)>) {
        let fade = |sum: &mut u64, new: u64| *sum = *sum - *sum / FADE + new;
        for (sums, (ios, latency)) in self.classes.iter_mut().zip(served) {
            fade(&mut sums.ios, ios);
            fade(&mut sums.latency, latency);
        }
        fade(&mut self.ns, span);
    }

    /// Several of the class were under way all the time.
    pub(super) fn is_deep(&self, class: Class) -> bool {
        let sums = self.classes[usize::from(class.0)];
        sums.ios >= ENOUGH && sums.latency >= DEEP * self.ns
    }

    /// Estimates what kinds cost of which nothing was measured. If both, together they have taken
    /// the time for which the device was busy. If one, it has taken between what the other leaves
    /// of that time and all of it, as kinds may use different parts of the device: the geometric
    /// mean. Beside latency-sensitive I/O (`sensitive`) each has taken all of it: what is somewhat
    /// too much favours that.
    pub(super) fn estimate(&self, costs: &mut Costs, bases: &Bases, sensitive: bool) {
        let kinds = [Kind::Read, Kind::Write];
        let busy = kinds.map(|kind| self.busy(kind, bases));
        let Some(part) = busy.into_iter().flatten().max() else {
            return;
        };
        let time = (u128::from(self.ns) * u128::from(part) * u128::from(PER_NS) / WHOLE) as u64;
        let charged = kinds.map(|kind| self.charged(kind, costs));
        let known = kinds.map(|kind| costs.is_any_learnt(kind));
        if known == [false; 2] && !sensitive {
            let all = charged[0].saturating_add(charged[1]);
            for kind in kinds {
                costs.approach(kind, time, all);
            }
            return;
        }
        for (kind, other) in [(Kind::Read, Kind::Write), (Kind::Write, Kind::Read)] {
            if busy[kind as usize].is_some() {
                let least = match sensitive {
                    true => time,
                    false => time
                        .saturating_sub(charged[other as usize])
                        .max(time / LEAST_BUSY),
                };
                let mean = (u128::from(least) * u128::from(time)).isqrt() as u64;
                costs.approach(kind, mean, charged[kind as usize]);
            }
        }
    }

    /// What was done of a kind as it is charged now.
    fn charged(&self, kind: Kind, costs: &Costs) -> u64 {
        let of_kind = Class::all().filter(|class| class.kind() == kind);
        let of = |class: Class| self.classes[usize::from(class.0)].ios;
        let each = of_kind.map(|class| of(class).saturating_mul(costs.at(class)));
        each.fold(0, u64::saturating_add)
    }

    /// For what part of the time the device was busy by its answers to one kind, in millionths, if
    /// several of the kind were in flight all the time and waited for each other. While a base
    /// latency is that of a device that was full from the beginning, none seems to have waited.
    fn busy(&self, kind: Kind, bases: &Bases) -> Option<u64> {
        let (mut ios, mut latency, mut based) = (0, 0, 0);
        for class in Class::all().filter(|class| class.kind() == kind) {
            let sums = self.classes[usize::from(class.0)];
            ios += sums.ios;
            latency += sums.latency;
            based += sums.ios * bases.of(class);
        }
        if !bases.is_known(kind) || ios < ENOUGH || latency < DEEP * self.ns {
            return None;
        }
        let waited = latency.saturating_sub(based);
        (waited >= latency / LEAST_BUSY)
            .then(|| (u128::from(waited) * WHOLE / u128::from(latency.max(1))) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fair::costs::SIZES;

    const TICK_NS: u64 = 5_000_000;
    const READ: Class = Class(0);
    const LARGE_READ: Class = Class(5);
    const LARGE_WRITE: Class = Class(SIZES as u8 + 5);

    /// After some ticks of so many I/Os of a class with such a latency each.
    fn after(done: &[(Class, u64, u64)]) -> Lately {
        let mut lately = Lately::new();
        let served = |class: Class| {
            let same = done.iter().find(|(other, _, _)| *other == class);
            same.map_or((0, 0), |&(_, ios, latency)| (ios, ios * latency))
        };
        (0..20).for_each(|_| lately.remember(TICK_NS, Class::all().map(served)));
        lately
    }

    /// What each of them costs by estimates on a device that answers within 100 us while it is not
    /// busy, in nanoseconds.
    fn estimated<const N: usize>(costs: &mut Costs, done: [(Class, u64, u64); N]) -> [u64; N] {
        let mut bases = Bases::new();
        for (class, _, _) in done {
            (0..256).for_each(|_| _ = bases.record(class, 100_000));
        }
        let lately = after(&done);
        (0..40).for_each(|_| lately.estimate(costs, &bases, false));
        done.map(|(class, _, _)| costs.at(class) / PER_NS)
    }

    #[test]
    fn what_came_back_has_taken_the_time_in_which_the_device_was_busy() {
        let mut costs = Costs::new();
        // Four tenths busy, and 100 in that time: 20 us each. Quantiles of the base are coarse.
        let [cost] = estimated(&mut costs, [(LARGE_READ, 100, 166_667)]);
        assert!((17_000..23_000).contains(&cost), "{cost}");
        assert!(!costs.is_learnt(LARGE_READ), "it is no measurement");
    }

    #[test]
    fn kinds_share_that_time_until_one_is_known() {
        // Nine tenths busy: 4.5 ms for 100 reads and 20 writes.
        let done = [(READ, 100, 1_000_000), (LARGE_WRITE, 20, 1_000_000)];
        let mut costs = Costs::new();
        let [reads, writes] = estimated(&mut costs, done);
        let sum = 100 * reads + 20 * writes;
        assert!((4_200_000..4_800_000).contains(&sum), "{reads}, {writes}");

        // Reads are known to have taken 4 ms: writes 0.56 (an eighth) to 4.5, in the mean 1.6.
        costs.set(READ, 40_000 * PER_NS);
        let [reads, writes] = estimated(&mut costs, done);
        assert_eq!(reads, 40_000);
        assert!((70_000..90_000).contains(&writes), "{writes}");

        costs.set(LARGE_WRITE, 7_000 * PER_NS);
        assert_eq!(estimated(&mut costs, done), [40_000, 7_000]);
    }

    #[test]
    fn beside_latency_sensitive_io_each_kind_has_taken_all_of_it() {
        let mut bases = Bases::new();
        for class in [READ, LARGE_WRITE] {
            (0..256).for_each(|_| _ = bases.record(class, 100_000));
        }
        let lately = after(&[(READ, 100, 1_000_000), (LARGE_WRITE, 20, 1_000_000)]);
        let mut costs = Costs::new();
        (0..40).for_each(|_| lately.estimate(&mut costs, &bases, true));
        let [read, write] = [READ, LARGE_WRITE].map(|class| costs.at(class) / PER_NS);
        assert!((42_000..48_000).contains(&read), "{read}");
        assert!((210_000..240_000).contains(&write), "{write}");
    }

    #[test]
    fn who_does_not_wait_tells_nothing() {
        let mut costs = Costs::new();
        let before = costs.at(READ) / PER_NS;
        // One at a time, and many at a time as fast as one.
        for done in [(READ, 5, 1_000_000), (READ, 400, 100_000)] {
            assert_eq!(estimated(&mut costs, [done]), [before], "{done:?}");
        }
        assert!(!after(&[(READ, 5, 1_000_000)]).is_deep(READ));
    }
}
