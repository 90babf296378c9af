//! What an I/O costs: the time in which the device could do nothing else, were it given only I/O of
//! this kind and size.
//!
//! The cost of a class of I/O is one divided by the most of it that the device does per second; so
//! the service of two tenants is equal when each gets the same part of what it would get alone. The
//! curve of a kind is given at sizes that double, straight lines between them. A place on it is
//! learnt from spans in which the device did, as fast as it could, nothing else; [`super::learn`]
//! makes such spans when they do not come by themselves.

use crate::{Ask, Op};

/// What an I/O does, as far as a device's time is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Reads the flash.
    Read,
    /// Writes into the drive's buffer, which is emptied at the drive's own pace.
    Write,
}

/// Sizes at which the curve is given: 4 KiB and its doubles.
pub(super) const SIZES: usize = 10;
/// Number of classes: two kinds of every size.
pub(super) const CLASSES: usize = 2 * SIZES;
const LEAST_SIZE: u64 = 4096;
const LEAST_SHIFT: u32 = LEAST_SIZE.trailing_zeros();

/// Costs are counted in parts of a nanosecond: a fast device does an I/O in a few hundred of them.
pub(super) const PER_NS: u64 = 256;
/// No I/O is believed to cost more: ten seconds.
const MOST: u64 = 10_000_000_000 * PER_NS;
/// None is believed to cost less: ten nanoseconds.
const LEAST: u64 = 10 * PER_NS;

/// Kind and size of an I/O, rounded to the nearest size of the curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class(pub(super) u8);

impl Class {
    pub(super) fn new(kind: Kind, bytes: u64) -> Self {
        let up = bytes.saturating_add(bytes / 3).max(LEAST_SIZE);
        let size = (up >> LEAST_SHIFT).ilog2().min(SIZES as u32 - 1);
        Self((kind as u32 * SIZES as u32 + size) as u8)
    }

    pub(super) fn kind(self) -> Kind {
        if usize::from(self.0) < SIZES {
            Kind::Read
        } else {
            Kind::Write
        }
    }

    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..CLASSES as u8).map(Self)
    }
}

/// What the latest I/O of a kind costs and counts in flight: the next one is of the same size more
/// often than not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Price {
    pub(super) bytes: u64,
    pub(super) class: Class,
    pub(super) cost: u64,
    /// At least 1; nothing is known while it is 0.
    pub(super) load: u32,
}

impl Price {
    pub(super) const UNKNOWN: Self = Self {
        bytes: 0,
        class: Class(0),
        cost: 0,
        load: 0,
    };

    /// It is known, and that of an I/O of this size.
    #[inline]
    pub(super) fn is_of(&self, bytes: u64) -> bool {
        self.bytes == bytes && self.load > 0
    }

    #[inline]
    pub(super) fn class_of(&self, kind: Kind, bytes: u64) -> Class {
        if self.is_of(bytes) {
            self.class
        } else {
            Class::new(kind, bytes)
        }
    }
}

/// Kind of an I/O and the bytes that make its cost. What transfers nothing is charged as the least
/// write.
#[inline]
pub(super) fn weigh(io: &Ask) -> (Kind, u64) {
    match io.op {
        Op::Read => (Kind::Read, io.bytes),
        Op::Write => (Kind::Write, io.bytes),
        _ => (Kind::Write, weigh_rare(io)),
    }
}

/// Out of the way, so that the two that come all the time are told apart by comparing.
#[cold]
fn weigh_rare(io: &Ask) -> u64 {
    match io.op {
        Op::Read | Op::Write => io.bytes,
        Op::CompareAndWrite => io.bytes.saturating_mul(2),
        Op::Flush | Op::WriteZeroes | Op::Deallocate => 0,
    }
}

/// The costs of all classes. A class of which nothing is known is taken to lie on a line through
/// its neighbour.
#[derive(Debug)]
pub(super) struct Costs {
    curve: [u64; CLASSES],
    learnt: [bool; CLASSES],
}

/// Before anything is known: 400,000 reads of 4 KiB a second or 3 GB/s, a sixth as many writes and
/// a quarter as many bytes written. Wrong for every drive; but writes in the background may never
/// come to be measured, and are not to be taken for cheap because the drive's buffer takes them.
/// What stays of it is the shape.
const PRIOR: [(u64, u64); 2] = [(1_250, 1_250), (10_000, 5_000)];

impl Costs {
    pub(super) fn new() -> Self {
        let mut curve = [0; CLASSES];
        for (place, cost) in curve.iter_mut().enumerate() {
            let (fixed, unit) = PRIOR[place / SIZES];
            *cost = (fixed + (unit << (place % SIZES))) * PER_NS;
        }
        Self {
            curve,
            learnt: [false; CLASSES],
        }
    }

    /// Cost of an I/O, at least 1.
    #[inline]
    pub(super) fn of(&self, kind: Kind, bytes: u64) -> u64 {
        let curve = &self.curve[kind as usize * SIZES..][..SIZES];
        if bytes <= LEAST_SIZE {
            return curve[0];
        }
        let size = (bytes >> LEAST_SHIFT).ilog2() as usize;
        if size >= SIZES - 1 {
            let units = u128::from(bytes >> LEAST_SHIFT) >> (SIZES - 1);
            return u64::try_from(u128::from(curve[SIZES - 1]) * units)
                .map_or(MOST, |c| c.min(MOST));
        }
        let beyond = bytes - (LEAST_SIZE << size);
        let slope = curve[size + 1].saturating_sub(curve[size]);
        curve[size] + ((slope * (beyond >> 9)) >> (LEAST_SHIFT - 9 + size as u32))
    }

    /// Cost at the class's own size.
    pub(super) fn at(&self, class: Class) -> u64 {
        self.curve[usize::from(class.0)]
    }

    /// Whether the class was ever measured.
    pub(super) fn is_learnt(&self, class: Class) -> bool {
        self.learnt[usize::from(class.0)]
    }

    /// The class was alone on the device, and what was served in `span` nanoseconds would, as it is
    /// charged, have taken `charged`. Moves the cost by `part / 4` of the difference.
    pub(super) fn correct(&mut self, class: Class, charged: u64, span: u64, part: u64) {
        let span = u128::from(span) * u128::from(PER_NS);
        self.set(class, self.moved(class, charged, span, part));
    }

    /// What a class costs of which was charged so much where `real` would have been right, after
    /// `part / 4` of the difference.
    fn moved(&self, class: Class, charged: u64, real: u128, part: u64) -> u64 {
        let believed = self.at(class);
        let real = u128::from(believed) * real / u128::from(charged.max(1));
        let real = u64::try_from(real).unwrap_or(MOST).clamp(LEAST, MOST);
        if real > believed {
            believed + (real - believed) / 4 * part.min(4)
        } else {
            believed - (believed - real) / 4 * part.min(4)
        }
    }

    /// A class and others of its kind, of which so much was `charged` by size, had the device
    /// for a time of which they were charged `ratio` millionths. Moves by `part / 4` of the
    /// difference what the class costs, and those that were never measured; all, when that is less
    /// than half. Says whether none was new but the class: sizes that were measured together are
    /// to be told apart.
    pub(super) fn correct_mix(
        &mut self,
        class: Class,
        charged: &[u64; SIZES],
        ratio: u64,
        part: u64,
    ) -> bool {
        let first = class.kind() as usize * SIZES;
        let total = charged.iter().sum::<u64>().max(1);
        let own = usize::from(class.0) - first;
        let sum = |free: &[bool; SIZES]| {
            let each = charged.iter().zip(free).filter(|(_, free)| **free);
            each.map(|(charged, _)| charged).sum::<u64>()
        };
        let mut free = [false; SIZES];
        for (size, free) in free.iter_mut().enumerate() {
            let new = !self.learnt[first + size] && charged[size] >= total / 8;
            *free = size == own || new;
        }
        let alone = free.iter().filter(|&&free| free).count() == 1;
        if sum(&free) < total / 2 {
            for (size, free) in free.iter_mut().enumerate() {
                *free = size == own || charged[size] >= total / 8;
            }
        }
        // In millionths of all: what was charged for these, and the time that there was for them.
        let believed = (u128::from(sum(&free)) * 1_000_000 / u128::from(total)) as u64;
        let real = (1_000_000_000_000 / ratio.max(1)).saturating_sub(1_000_000 - believed);
        let real = u128::from(real.max(believed / 4));
        let class = |size: usize| Class((first + size) as u8);
        let mut moved = [0; SIZES];
        for (size, moved) in moved.iter_mut().enumerate() {
            *moved = self.moved(class(size), believed, real, part);
        }
        for size in (0..SIZES).filter(|&size| free[size]) {
            self.set(class(size), moved[size]);
        }
        alone
    }

    /// All of a kind costs `real` where it was charged `charged`: at most twice, and at least half
    /// of what was believed.
    pub(super) fn scale(&mut self, kind: Kind, real: u64, charged: u64) {
        let real = real.clamp(charged / 2, charged.saturating_mul(2));
        for place in &mut self.curve[kind as usize * SIZES..][..SIZES] {
            let scaled = u128::from(*place) * u128::from(real) / u128::from(charged.max(1));
            *place = u64::try_from(scaled).unwrap_or(MOST).clamp(LEAST, MOST);
        }
    }

    /// While no reads were measured: moves all their costs a quarter of the way to where `class`
    /// costs `cost`.
    pub(super) fn suppose(&mut self, class: Class, cost: u64) {
        self.approach(Kind::Read, cost.clamp(LEAST, MOST), self.at(class));
        if !self.is_any_learnt(Kind::Read) {
            self.complete_curve(Kind::Write);
        }
    }

    /// While nothing of a kind was measured: moves all its costs a quarter of the way to where what
    /// was charged `charged` costs `real`.
    pub(super) fn approach(&mut self, kind: Kind, real: u64, charged: u64) {
        if self.is_any_learnt(kind) || charged == 0 {
            return;
        }
        let (real, charged) = (u128::from(real), u128::from(charged));
        for place in &mut self.curve[kind as usize * SIZES..][..SIZES] {
            let scaled = u128::from(*place) * (3 * charged + real) / (4 * charged);
            *place = u64::try_from(scaled).unwrap_or(MOST).clamp(LEAST, MOST);
        }
    }

    pub(super) fn is_any_learnt(&self, kind: Kind) -> bool {
        self.learnt[kind as usize * SIZES..][..SIZES].contains(&true)
    }

    /// Says that `class` costs `cost`.
    pub(super) fn set(&mut self, class: Class, cost: u64) {
        self.curve[usize::from(class.0)] = cost.clamp(LEAST, MOST);
        self.learnt[usize::from(class.0)] = true;
        self.complete_curve(class.kind());
    }

    /// Sets the sizes that were never measured by those that were: on the line between two, else in
    /// proportion to the prior. While no writes were, they are to reads as in the prior.
    fn complete_curve(&mut self, kind: Kind) {
        let first = kind as usize * SIZES;
        let (fixed, unit) = PRIOR[kind as usize];
        let prior = |size: usize| fixed + (unit << size);
        let known = |size: &usize| self.learnt[first + size];
        let mut guessed = [0; SIZES];
        for (size, guess) in guessed.iter_mut().enumerate() {
            let below = (0..=size).rev().find(known);
            let above = (size..SIZES).find(known);
            *guess = match (below, above) {
                (Some(below), Some(above)) if below < above => {
                    let (low, high) = (self.curve[first + below], self.curve[first + above]);
                    let rise = u128::from(high.saturating_sub(low));
                    let part = (1u128 << size) - (1 << below);
                    low + (rise * part / ((1 << above) - (1 << below))) as u64
                }
                (Some(near), _) | (_, Some(near)) => {
                    let scaled = u128::from(self.curve[first + near]) * u128::from(prior(size))
                        / u128::from(prior(near));
                    u64::try_from(scaled).unwrap_or(MOST).clamp(LEAST, MOST)
                }
                (None, None) => {
                    let reads = PRIOR[0].0 + PRIOR[0].1;
                    let scaled =
                        u128::from(prior(size)) * u128::from(self.curve[0]) / u128::from(reads);
                    u64::try_from(scaled).unwrap_or(MOST).clamp(LEAST, MOST)
                }
            };
        }
        self.curve[first..first + SIZES].copy_from_slice(&guessed);
        if kind == Kind::Read && !self.is_any_learnt(Kind::Write) {
            self.complete_curve(Kind::Write);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What reads of 16 and 64 KiB cost, and whether one was alone, after a probe of the larger in
    /// which both were charged so much, in millionths of the time that it took.
    fn after(costs: &mut Costs, charged: [u64; 2]) -> ([u64; 2], bool) {
        let mut sizes = [0; SIZES];
        (sizes[2], sizes[4]) = (charged[0], charged[1]);
        let classes = [16 << 10, 64 << 10].map(|bytes| Class::new(Kind::Read, bytes));
        let alone = costs.correct_mix(classes[1], &sizes, charged[0] + charged[1], 4);
        (classes.map(|class| costs.at(class) / PER_NS), alone)
    }

    #[test]
    fn sizes_that_are_measured_together_are_moved_together_until_one_is_known() {
        let mut costs = Costs::new();
        // 6,250 and 21,250 ns are believed.
        let (found, alone) = after(&mut costs, [300_000, 200_000]);
        assert!(!alone);
        assert!(
            found[0].abs_diff(12_500) < 20 && found[1].abs_diff(42_500) < 50,
            "{found:?}"
        );
        // Now both are known: what is left is that of the size that is measured.
        let (found, alone) = after(&mut costs, [400_000, 400_000]);
        assert!(alone);
        assert!(
            found[0].abs_diff(12_500) < 20 && found[1].abs_diff(63_750) < 80,
            "{found:?}"
        );
        // Unless it is less than half of all.
        let (found, alone) = after(&mut costs, [1_500_000, 500_000]);
        assert!(alone);
        assert!(
            found[0].abs_diff(6_250) < 20 && found[1].abs_diff(31_875) < 80,
            "{found:?}"
        );
    }

    /// Else it would never be known, and be tried again and again.
    #[test]
    fn a_size_that_was_tried_is_known_however_little_of_all_it_is() {
        let mut costs = Costs::new();
        let [small, large] = [4096, 65_536].map(|bytes| Class::new(Kind::Read, bytes));
        costs.set(large, costs.at(large));
        let mut charged = [0; SIZES];
        (charged[0], charged[4]) = (50_000, 950_000);
        costs.correct_mix(small, &charged, 1_000_000, 4);
        assert!(costs.is_learnt(small));
    }

    #[test]
    fn a_size_alone_costs_the_time_it_took() {
        let mut costs = Costs::new();
        let (found, alone) = after(&mut costs, [0, 250_000]);
        assert!(alone && found[1].abs_diff(85_000) < 50, "{found:?}");
        costs.scale(Kind::Read, 1, 2);
        let halved = costs.of(Kind::Read, 64 << 10) / PER_NS;
        assert!(halved.abs_diff(42_500) < 50, "{halved}");
    }
}
