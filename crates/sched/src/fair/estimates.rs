//! What was done in the last ticks, and from it what I/O costs, roughly, before it is measured.
//!
//! Measuring takes I/O that waits for the device, and whether any waits depends on the very cost
//! that is not known: where everything is taken for cheap all of it is sent at once, and beside
//! latency-sensitive I/O only a little is. But a device that is busy for a part of the time takes
//! longer to answer by that part, and did in the busy part what came back. So its answers tell the
//! cost.
//!
//! [`Estimates::estimate`] divides that time among all that came back. Beside latency-sensitive I/O
//! [`Estimates::estimate_reads`] takes all of it for the class that most was of: a cost that is
//! somewhat too large favours such I/O. What both were tried against is in docs/scheduling.md.

use super::costs::{CLASSES, Class, Costs, Kind, PER_NS};
use super::windows::Bases;

/// Part of what was done that a tick forgets.
const FADE: u64 = 8;
/// I/Os that tell something of the mean.
const ENOUGH: u64 = 16;
/// Least mean number in flight: more than one who asks for one thing at a time.
const DEEP: u64 = 2;
/// No estimate is made of a device that was busy for less than this part; no kind is estimated to
/// have taken less of the busy time; and beside latency-sensitive I/O no device is taken to be busy
/// for less.
const LEAST_BUSY: u64 = 8;
/// All of the time, where parts of it are given in millionths.
const WHOLE: u128 = 1_000_000;

/// Sums over ticks, fading.
#[derive(Debug)]
pub(super) struct Estimates {
    classes: [Sums; CLASSES],
    ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    ios: u64,
    latency: u64,
}

impl Estimates {
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

    /// Several of the class were in flight all the time.
    pub(super) fn is_deep(&self, class: Class) -> bool {
        let sums = self.classes[usize::from(class.0)];
        sums.ios >= ENOUGH && sums.latency >= DEEP * self.ns
    }

    /// Estimates what kinds cost of which nothing was measured. The device was busy as long as the
    /// kind says that waited least: another may wait for reasons of its own. If nothing of either
    /// was measured, together they have taken that time. If nothing of one, it has taken between
    /// what the other leaves of it and all of it, as kinds may use different parts of the device:
    /// the geometric mean.
    pub(super) fn estimate(&self, costs: &mut Costs, bases: &Bases) {
        let kinds = [Kind::Read, Kind::Write];
        let busy = kinds.map(|kind| self.busy(kind, bases));
        let Some(part) = busy.into_iter().flatten().min() else {
            return;
        };
        let time = (u128::from(self.ns) * u128::from(part) * u128::from(PER_NS) / WHOLE) as u64;
        let charged = kinds.map(|kind| self.charged(kind, costs));
        if kinds.iter().all(|&kind| !costs.is_any_learnt(kind)) {
            let all = charged[0].saturating_add(charged[1]);
            for kind in kinds {
                costs.approach(kind, time, all);
            }
            return;
        }
        for (kind, other) in [(Kind::Read, Kind::Write), (Kind::Write, Kind::Read)] {
            if busy[kind as usize].is_some() {
                let rest = time.saturating_sub(charged[other as usize]);
                let least = rest.max(time / LEAST_BUSY);
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

    /// Estimates what reads cost beside latency-sensitive I/O, by the class that most were of.
    pub(super) fn estimate_reads(&self, costs: &mut Costs, bases: &Bases) {
        let deep = Class::all().filter(|&class| class.kind() == Kind::Read && self.is_deep(class));
        let main =
            deep.max_by_key(|&class| self.classes[usize::from(class.0)].ios * costs.at(class));
        if let Some(main) = main.filter(|_| bases.is_known(Kind::Read)) {
            let Sums { ios, latency } = self.classes[usize::from(main.0)];
            let waited = latency.saturating_sub(ios * bases.of(main));
            let busy = u128::from(self.ns) * u128::from(waited.max(latency / LEAST_BUSY))
                / u128::from(latency);
            costs.suppose(main, busy as u64 * PER_NS / ios);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK_NS: u64 = 5_000_000;
    /// What the device answers within while it is not busy.
    const BASE_NS: u64 = 100_000;

    fn read() -> Class {
        Class::new(Kind::Read, 4096)
    }

    fn write() -> Class {
        Class::new(Kind::Write, 131_072)
    }

    /// Bases of classes that take `ns` on a device that is not busy.
    fn bases(classes: &[Class], ns: u64) -> Bases {
        let mut bases = Bases::new();
        for &class in classes {
            (0..256).for_each(|_| _ = bases.record(class, ns));
        }
        bases
    }

    /// After some ticks of so many I/Os of a class with such a latency each.
    fn after(done: &[(Class, u64, u64)]) -> Estimates {
        let mut recent = Estimates::new();
        let served = |class: Class| {
            let same = done.iter().find(|(other, _, _)| *other == class);
            same.map_or((0, 0), |&(_, ios, latency)| (ios, ios * latency))
        };
        (0..20).for_each(|_| recent.remember(TICK_NS, Class::all().map(served)));
        recent
    }

    /// What each of them costs by estimates, in nanoseconds.
    fn estimated<const N: usize>(costs: &mut Costs, done: [(Class, u64, u64); N]) -> [u64; N] {
        let bases = bases(&done.map(|(class, _, _)| class), BASE_NS);
        let recent = after(&done);
        (0..40).for_each(|_| recent.estimate(costs, &bases));
        done.map(|(class, _, _)| costs.at(class) / PER_NS)
    }

    #[test]
    fn reads_cost_what_the_device_did_while_it_was_busy() {
        let class = Class::new(Kind::Read, 131_072);
        let bases = bases(&[class], 1_000_000);
        // Four tenths busy, and 20 in that time: 100 us each. Quantiles of the base are coarse.
        let recent = after(&[(class, 20, 1_000_000 * 10 / 6)]);
        let mut costs = Costs::new();
        (0..40).for_each(|_| recent.estimate_reads(&mut costs, &bases));
        let cost = costs.at(class) / PER_NS;
        assert!((85_000..115_000).contains(&cost), "{cost}");
        assert!(!costs.is_learnt(class), "an estimate is no measurement");
    }

    #[test]
    fn one_at_a_time_tells_nothing() {
        let recent = after(&[(read(), 5, 1_000_000)]);
        assert!(!recent.is_deep(read()));
        let mut costs = Costs::new();
        let before = costs.at(read());
        recent.estimate_reads(&mut costs, &bases(&[read()], BASE_NS));
        assert_eq!(costs.at(read()), before);
        assert_eq!(
            estimated(&mut costs, [(read(), 5, 1_000_000)]),
            [before / PER_NS]
        );
    }

    #[test]
    fn what_was_measured_is_not_estimated() {
        let mut costs = Costs::new();
        costs.set(read(), 3_000 * PER_NS);
        let bases = bases(&[read()], BASE_NS);
        after(&[(read(), 100, 1_000_000)]).estimate_reads(&mut costs, &bases);
        assert_eq!(costs.at(read()), 3_000 * PER_NS);
    }

    #[test]
    fn kinds_share_the_busy_time_until_one_is_known() {
        // Nine tenths busy: 4.5 ms for 100 reads and 20 writes.
        let done = [(read(), 100, 1_000_000), (write(), 20, 1_000_000)];
        let mut costs = Costs::new();
        let [reads, writes] = estimated(&mut costs, done);
        let sum = 100 * reads + 20 * writes;
        assert!((4_200_000..4_800_000).contains(&sum), "{reads}, {writes}");
        assert!(!costs.is_learnt(read()) && !costs.is_learnt(write()));

        // Reads are known to have taken 4 ms: writes 0.56 (an eighth) to 4.5, in the mean 1.6.
        costs.set(read(), 40_000 * PER_NS);
        let [reads, writes] = estimated(&mut costs, done);
        assert_eq!(reads, 40_000);
        assert!((70_000..90_000).contains(&writes), "{writes}");

        costs.set(write(), 7_000 * PER_NS);
        assert_eq!(estimated(&mut costs, done), [40_000, 7_000]);
    }

    #[test]
    fn a_kind_that_waits_for_reasons_of_its_own_does_not_make_the_device_busy() {
        // By the reads half of the time, 2.5 ms; by the writes nearly all of it.
        let done = [(read(), 100, 200_000), (write(), 20, 5_000_000)];
        let [reads, writes] = estimated(&mut Costs::new(), done);
        let sum = 100 * reads + 20 * writes;
        assert!((2_200_000..2_800_000).contains(&sum), "{reads}, {writes}");
    }

    #[test]
    fn many_at_a_time_as_fast_as_one_tell_nothing() {
        let mut costs = Costs::new();
        let before = costs.at(read()) / PER_NS;
        assert_eq!(estimated(&mut costs, [(read(), 400, BASE_NS)]), [before]);
    }
}
