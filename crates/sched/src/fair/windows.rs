//! How much the device holds at a time, and what it takes to answer when it is not busy.
//!
//! An I/O in flight counts as its cost divided by its base latency: one is what keeps a device with
//! no queue just busy (the product of bandwidth and delay). Counted so, windows for small and large
//! I/O, for reads and writes, and for fast and slow drives are the same number. A drive of `n`
//! parts that are hit at random and hold `w` times that much gives `w / (w + 1)` of its most: ten
//! gives nine tenths, and nothing in that depends on the drive.

use super::costs::{CLASSES, Class, Kind, PER_NS, SIZES};

/// One bandwidth-delay product.
pub(super) const ONE: u64 = 1024;

/// Four places to the octave, from 256 ns to about a thousand seconds.
const PLACES: usize = 128;
/// Samples before a quantile is looked at.
const ENOUGH: u32 = 64;
/// What of a hundred samples lies below the base latency: reads that the drive answers from its
/// buffer are faster than any read of the flash, and rare.
const QUICK_PERCENT: u32 = 3;

/// Base latency while nothing is known.
const UNKNOWN_NS: u64 = 50_000;

/// A drive that answers reads of 4 KiB within so much, and so much more for each further 4 KiB, is
/// not a slow one.
const SWIFT_NS: (u64, u64) = (100_000, 8_000);
/// No drive is taken to be more times slower than that.
const SLOWEST: u64 = 16;

/// Base latencies of all classes.
#[derive(Debug)]
pub(super) struct Bases {
    classes: [Base; CLASSES],
    /// In-flight load of a unit of cost, times 2^40; by class.
    pub(super) loads: [u64; CLASSES],
}

#[derive(Clone, Copy, Debug)]
struct Base {
    samples: [u32; PLACES],
    count: u32,
    /// Least quantile of this epoch and of the one before, in nanoseconds.
    least: u64,
    least_before: u64,
}

impl Bases {
    pub(super) fn new() -> Self {
        let base = Base {
            samples: [0; PLACES],
            count: 0,
            least: u64::MAX,
            least_before: u64::MAX,
        };
        let mut bases = Self {
            classes: [base; CLASSES],
            loads: [0; CLASSES],
        };
        bases.settle(Kind::Read);
        bases.settle(Kind::Write);
        bases
    }

    /// An I/O took `ns` in the device. Says whether what I/Os count in flight may be another from
    /// now on.
    #[inline]
    pub(super) fn record(&mut self, class: Class, ns: u64) -> bool {
        let base = &mut self.classes[usize::from(class.0)];
        base.samples[place(ns)] += 1;
        base.count += 1;
        let enough = base.count >= 4 * ENOUGH;
        if enough {
            self.look(class);
        }
        enough
    }

    /// Base latency in nanoseconds; of a size that was not seen, that of the nearest one that was.
    pub(super) fn of(&self, class: Class) -> u64 {
        let sizes = &self.classes[class.kind() as usize * SIZES..][..SIZES];
        let own = usize::from(class.0) % SIZES;
        let near = |distance: usize| {
            let below = own
                .checked_sub(distance)
                .and_then(|size| sizes[size].known());
            below.or_else(|| sizes.get(own + distance).and_then(Base::known))
        };
        (0..SIZES).find_map(near).unwrap_or(UNKNOWN_NS)
    }

    /// How many times slower than drives of flash usually are this one is, by its answers to reads;
    /// at least 1.
    pub(super) fn slowness(&self) -> u64 {
        let reads = self.classes[..SIZES].iter().enumerate();
        let times = |(size, base): (usize, &Base)| {
            let swift = SWIFT_NS.0 + (SWIFT_NS.1 << size);
            base.known().map(|least| least / swift)
        };
        reads
            .filter_map(times)
            .min()
            .map_or(1, |least| least.clamp(1, SLOWEST))
    }

    /// Whether anything is known of a kind.
    pub(super) fn is_known(&self, kind: Kind) -> bool {
        let sizes = &self.classes[kind as usize * SIZES..][..SIZES];
        sizes.iter().any(|base| base.known().is_some())
    }

    /// Looks at what has gathered, if it is enough.
    pub(super) fn look(&mut self, class: Class) {
        let base = &mut self.classes[usize::from(class.0)];
        if base.count < ENOUGH {
            return;
        }
        let rank = base.count * QUICK_PERCENT / 100;
        let mut passed = 0;
        let quantile = base.samples.iter().position(|&samples| {
            passed += samples;
            passed > rank
        });
        base.least = base.least.min(middle(
            quantile.expect("the counts add up to more than the rank"),
        ));
        base.samples = [0; PLACES];
        base.count = 0;
        self.settle(class.kind());
    }

    /// I/O of `kind` is about to meet a device at rest: what was measured before the last time it
    /// did is forgotten.
    pub(super) fn begin_epoch(&mut self, kind: Kind) {
        for class in Class::all().filter(|class| class.kind() == kind) {
            let base = &mut self.classes[usize::from(class.0)];
            if base.least < u64::MAX {
                base.least_before = base.least;
                base.least = u64::MAX;
            }
            base.samples = [0; PLACES];
            base.count = 0;
        }
        self.settle(kind);
    }

    fn settle(&mut self, kind: Kind) {
        for class in Class::all().filter(|class| class.kind() == kind) {
            self.loads[usize::from(class.0)] = (ONE << 40) / (self.of(class) * PER_NS);
        }
    }

    /// What an I/O of this cost in flight counts, in parts of [`ONE`]; at least 1.
    #[inline]
    pub(super) fn load(&self, class: Class, cost: u64) -> u32 {
        let load = (u128::from(cost) * u128::from(self.loads[usize::from(class.0)])) >> 40;
        load.clamp(1, 1 << 24) as u32
    }
}

impl Base {
    fn known(&self) -> Option<u64> {
        let least = self.least.min(self.least_before);
        (least < u64::MAX).then_some(least)
    }
}

fn place(ns: u64) -> usize {
    let ns = ns.max(256);
    let octave = ns.ilog2();
    let quarter = (ns >> (octave - 2)) & 3;
    ((octave as usize - 8) * 4 + quarter as usize).min(PLACES - 1)
}

/// The middle of what is counted at a place.
fn middle(place: usize) -> u64 {
    let octave = place / 4 + 8;
    let quarter = place as u64 % 4;
    ((9 + 2 * quarter) << octave) >> 3
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is known after reads of so many bytes took so many microseconds.
    fn seen(reads: &[(u64, u64)]) -> Bases {
        let mut bases = Bases::new();
        for &(bytes, us) in reads {
            let class = Class::new(Kind::Read, bytes);
            (0..256).for_each(|_| _ = bases.record(class, us * 1000));
        }
        bases
    }

    #[test]
    fn a_drive_is_slow_when_even_its_best_answers_are() {
        assert_eq!(Bases::new().slowness(), 1, "nothing is known");
        for (reads, slowness) in [
            (&[(4096, 80)][..], 1),
            (&[(4096, 200)], 1),
            (&[(4096, 900)], 8),
            (&[(131_072, 340)], 1),
            (&[(131_072, 3_000)], 8),
            (&[(4096, 80), (131_072, 3_000)], 1),
            (&[(4096, 9_000)], SLOWEST),
        ] {
            let found = seen(reads).slowness();
            assert!(found.abs_diff(slowness) <= 1, "{reads:?}: {found}");
        }
    }
}
