//! A seeded, counter-based generator: the n-th number of a stream is a function of seed, stream and
//! n alone.
//!
//! Nothing but the counter changes while numbers are drawn, so a stream can be split off, copied or
//! read at any place without disturbing another: what one component draws never shifts what its
//! neighbour sees. It is made for simulation and tests. It keeps no secrets.

use core::ops::Range;

use crate::Duration;

/// The golden ratio in 64 bits, odd: the step of a Weyl sequence that visits every value once.
const WEYL: u64 = 0x9E37_79B9_7F4A_7C15;

/// A stream of pseudo-random numbers, the same for the same seed on every machine.
///
/// ```
/// use flashyard_time::Rng;
///
/// let root = Rng::new(7);
/// let (mut disk, mut network) = (root.split(1), root.split(2));
/// assert_ne!(disk.next_u64(), network.next_u64());
/// assert_eq!(root.split(1).next_u64(), Rng::new(7).split(1).next_u64());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    key: [u64; 2],
    counter: u64,
}

impl Rng {
    /// The root stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self {
            key: derive([0, 0], seed),
            counter: 0,
        }
    }

    /// The stream `stream` below this one. It depends on this stream's seed and on `stream`, not on
    /// how many numbers were drawn already, and drawing from it leaves this one alone.
    pub const fn split(&self, stream: u64) -> Self {
        Self {
            key: derive(self.key, stream),
            counter: 0,
        }
    }

    /// The number that the `index`-th call of [`Rng::next_u64`] of this stream returns, counted
    /// from zero.
    pub const fn at(&self, index: u64) -> u64 {
        // Two keyed rounds: with one, all streams would be the same sequence entered at different
        // places.
        mix(mix(index.wrapping_mul(WEYL) ^ self.key[0]).wrapping_add(self.key[1]))
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let value = self.at(self.counter);
        self.counter = self.counter.wrapping_add(1);
        value
    }

    /// A number from `0..bound`, each equally likely.
    ///
    /// # Panics
    /// When `bound` is zero: there is no such number.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number lies below zero");
        // Lemire's multiplication: the low half tells whether this draw falls into the uneven
        // remainder.
        let mut product = u128::from(self.next_u64()) * u128::from(bound);
        if (product as u64) < bound {
            let uneven = bound.wrapping_neg() % bound;
            while (product as u64) < uneven {
                product = u128::from(self.next_u64()) * u128::from(bound);
            }
        }
        (product >> 64) as u64
    }

    /// A number from `range`, each equally likely.
    ///
    /// # Panics
    /// When `range` is empty.
    pub fn range(&mut self, range: Range<u64>) -> u64 {
        assert!(range.start < range.end, "no number lies in an empty range");
        range.start + self.below(range.end - range.start)
    }

    /// True with probability `numerator / denominator`; always when the fraction is one or more.
    ///
    /// # Panics
    /// When `denominator` is zero.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// An element of `items`, each equally likely; `None` when there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() {
            None
        } else {
            items.get(self.below(items.len() as u64) as usize)
        }
    }

    /// Puts `items` into an order, every order equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// Fills `bytes` with random bytes, the same on machines of either byte order.
    pub fn fill_bytes(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    /// A span drawn from the exponential distribution with this mean: the gap between arrivals that
    /// know nothing of each other. Integers only, so that it is the same on every machine; 44 means
    /// at most.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        /// ln 2 with 32 fractional bits.
        const LN_2: u128 = 2_977_044_472;
        let halvings = u128::from(negative_log2(self.next_u64() | 1));
        let means = (halvings * LN_2) >> 32;
        let ns = (u128::from(mean.as_ns()) * means) >> 32;
        Duration::from_ns(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

/// A key below `key` for `stream`: two words, each depending on every bit of both arguments.
const fn derive(key: [u64; 2], stream: u64) -> [u64; 2] {
    let low = mix(key[0] ^ mix(stream.wrapping_add(WEYL)));
    let high = mix(key[1] ^ mix(stream ^ low).wrapping_add(WEYL));
    [low, high]
}

/// Stafford's 13th variant of the 64-bit finalizer: every input bit moves every output bit.
const fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// `-log2(value / 2^64)` with 32 fractional bits, rounded up to the next 2^-32, for `value` above
/// zero.
fn negative_log2(value: u64) -> u64 {
    let zeros = value.leading_zeros();
    // The mantissa in 1..2 with 63 fractional bits. Squaring doubles its logarithm, whose integer
    // part is then the next binary digit.
    let mut mantissa = value << zeros;
    let mut fraction = 0_u64;
    for _ in 0..32 {
        let square = (u128::from(mantissa) * u128::from(mantissa)) >> 63;
        let digit = (square >> 64) as u64;
        mantissa = (square >> digit) as u64;
        fraction = fraction << 1 | digit;
    }
    (u64::from(zeros + 1) << 32) - fraction
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// Committed simulation seeds mean what they meant only while these stay.
    #[test]
    fn the_sequence_never_changes() {
        let mut rng = Rng::new(1);
        let first: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(
            first,
            [
                0xCEFF_7532_99AB_27B1,
                0xF78F_2F43_DB51_DF80,
                0xB954_8A67_8C62_C2DA
            ]
        );
        assert_eq!(Rng::new(1).split(2).next_u64(), 0x8163_CBD5_C971_1DF0);
    }

    #[test]
    fn numbers_are_a_function_of_seed_stream_and_index() {
        let mut rng = Rng::new(42);
        let fresh = rng.clone();
        for index in 0..100 {
            assert_eq!(rng.next_u64(), fresh.at(index));
        }
        assert_eq!(rng.split(9), fresh.split(9), "draws do not shift a split");
    }

    #[test]
    fn streams_and_seeds_share_nothing() {
        let mut seen = Vec::new();
        for seed in 0..8 {
            let root = Rng::new(seed);
            for stream in [
                root.split(0),
                root.split(1),
                root.split(0).split(1),
                root.clone(),
            ] {
                seen.extend((0..64).map(|index| stream.at(index)));
            }
        }
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all);
    }

    #[test]
    fn every_bit_is_fair() {
        let mut rng = Rng::new(3);
        let mut ones = [0_u32; 64];
        for _ in 0..20_000 {
            let value = rng.next_u64();
            for (bit, count) in ones.iter_mut().enumerate() {
                *count += (value >> bit & 1) as u32;
            }
        }
        // 10,000 expected; 5 standard deviations are 354.
        assert!(
            ones.iter().all(|&count| (9_646..=10_354).contains(&count)),
            "{ones:?}"
        );
    }

    #[test]
    fn below_is_unbiased_and_stays_below() {
        let mut rng = Rng::new(4);
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[rng.below(7) as usize] += 1;
        }
        assert!(
            counts
                .iter()
                .all(|&count| (9_500..=10_500).contains(&count)),
            "{counts:?}"
        );
        // Three quarters of 2^64: without the rejection a third of the numbers would come twice as
        // often.
        let bound = 3 << 62;
        let low = (0..30_000).filter(|_| rng.below(bound) < 1 << 62).count();
        assert!((9_500..=10_500).contains(&low), "{low}");
        assert_eq!(rng.below(1), 0);
    }

    #[test]
    fn range_and_chance_keep_their_bounds() {
        let mut rng = Rng::new(5);
        assert!((0..1_000).all(|_| (10..20).contains(&rng.range(10..20))));
        assert_eq!(rng.range(u64::MAX - 1..u64::MAX), u64::MAX - 1);
        assert!((0..100).all(|_| !rng.chance(0, 5) && rng.chance(5, 5) && rng.chance(9, 5)));
        let hits = (0..40_000).filter(|_| rng.chance(1, 4)).count();
        assert!((9_500..=10_500).contains(&hits), "{hits}");
    }

    #[test]
    fn shuffle_reaches_every_order_and_keeps_the_elements() {
        let mut rng = Rng::new(6);
        let mut counts = [0_u32; 27];
        for _ in 0..6_000 {
            let mut items = [0_usize, 1, 2];
            rng.shuffle(&mut items);
            assert_eq!(items.iter().sum::<usize>(), 3);
            counts[items[0] * 9 + items[1] * 3 + items[2]] += 1;
        }
        let reached: Vec<u32> = counts.into_iter().filter(|&count| count > 0).collect();
        assert_eq!(reached.len(), 6);
        assert!(
            reached.iter().all(|&count| (850..=1_150).contains(&count)),
            "{reached:?}"
        );
        assert_eq!(rng.pick::<u8>(&[]), None);
        assert_eq!(rng.pick(&[8]), Some(&8));
    }

    #[test]
    fn fill_bytes_fills_odd_lengths_with_the_stream() {
        let mut bytes = [0_u8; 19];
        Rng::new(8).fill_bytes(&mut bytes);
        let rng = Rng::new(8);
        assert_eq!(bytes[..8], rng.at(0).to_le_bytes());
        assert_eq!(bytes[16..], rng.at(2).to_le_bytes()[..3]);
    }

    #[test]
    fn negative_log2_is_the_logarithm() {
        assert_eq!(negative_log2(1 << 63), 1 << 32, "one half");
        assert_eq!(negative_log2(1), 64 << 32);
        // 3/4: log2(4/3) is 0.415037499
        assert!(negative_log2(3 << 62).abs_diff(1_782_572_486) <= 2);
    }

    #[test]
    fn exponential_has_its_mean_and_its_tail() {
        let mut rng = Rng::new(9);
        let mean = Duration::from_us(100);
        let spans: Vec<u64> = (0..40_000).map(|_| rng.exponential(mean).as_ns()).collect();
        let measured = spans.iter().sum::<u64>() / spans.len() as u64;
        assert!((97_500..=102_500).contains(&measured), "{measured}");
        // e^-3 of them exceed three means: 1,991 of 40,000.
        let beyond = spans.iter().filter(|&&ns| ns > 300_000).count();
        assert!((1_770..=2_210).contains(&beyond), "{beyond}");
        assert_eq!(rng.exponential(Duration::ZERO), Duration::ZERO);
        assert!(rng.exponential(Duration::MAX) > Duration::ZERO);
    }
}
