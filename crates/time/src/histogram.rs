//! A log-linear histogram: fixed memory, any span up to hours, no percentile off by more than 1 %.
//!
//! Values below 128 have a bucket each. Above, every doubling is divided into 64 equal buckets, so
//! a bucket is at most 1/64 of its values wide, and its middle at most 1/128 off.

use alloc::boxed::Box;
use alloc::vec;
use core::fmt;

/// Buckets per doubling, as a power of two.
const PRECISION_BITS: u32 = 6;
const PER_DOUBLING: usize = 1 << PRECISION_BITS;
/// Values from 2^45 ns on (9.7 hours) share the last bucket.
const VALUE_BITS: u32 = 45;
const BUCKETS: usize = (VALUE_BITS - PRECISION_BITS + 1) as usize * PER_DOUBLING;

/// How often which value was recorded. Values are nanoseconds by convention, but any `u64` will do.
///
/// ```
/// use flashyard_time::Histogram;
///
/// let mut latency = Histogram::new();
/// (1..=1_000).for_each(|us| latency.record(us * 1_000));
/// let p99 = latency.percentile(990_000);
/// assert!((980_100..=999_900).contains(&p99));
/// assert_eq!((latency.min(), latency.max(), latency.count()), (1_000, 1_000_000, 1_000));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Histogram {
    /// A histogram without values: 20 KiB, all that it will ever take.
    pub fn new() -> Self {
        Self {
            counts: vec![0; BUCKETS].into_boxed_slice(),
            count: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }

    /// Counts `value` once.
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts `value` `times` times.
    pub fn record_n(&mut self, value: u64, times: u64) {
        if times == 0 {
            return;
        }
        self.counts[bucket_of(value)] += times;
        self.count += times;
        self.sum += u128::from(value) * u128::from(times);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds everything that `other` counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Forgets everything, and keeps the memory.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.count, self.sum, self.min, self.max) = (0, 0, u64::MAX, 0);
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The least value, exact; 0 when there is none.
    pub fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The greatest value, exact; 0 when there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The sum of all values, exact.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The mean, exact and rounded down; 0 when there is no value.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(u128::from(self.count)).unwrap_or(0) as u64
    }

    /// The value that `parts_per_million` of all values do not exceed: 500,000 is the median,
    /// 999,000 the 99.9th percentile, from 1,000,000 on it is the greatest. At most 1 % off below
    /// 9.7 hours; 0 when there is no value.
    pub fn percentile(&self, parts_per_million: u32) -> u64 {
        let wanted = (u128::from(self.count) * u128::from(parts_per_million)).div_ceil(1_000_000);
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX).max(1);
        if wanted >= self.count {
            return self.max;
        }
        let mut passed = 0;
        for (bucket, times) in self.counts.iter().enumerate() {
            passed += times;
            if passed >= wanted {
                return middle_of(bucket).clamp(self.min, self.max);
            }
        }
        self.max
    }

    /// The buckets that are not empty, least first: the least value of each and how many it
    /// counted.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let filled = self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, times)| **times > 0);
        filled.map(|(bucket, times)| (floor_of(bucket), *times))
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("mean", &self.mean())
            .field("p50", &self.percentile(500_000))
            .field("p99", &self.percentile(990_000))
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

fn bucket_of(value: u64) -> usize {
    if value >> VALUE_BITS != 0 {
        return BUCKETS - 1;
    }
    // How far the value must be shifted so that 7 significant bits are left: 0 for the values below
    // 128.
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(PRECISION_BITS + 1);
    shift as usize * PER_DOUBLING + (value >> shift) as usize
}

/// The least value of a bucket.
fn floor_of(bucket: usize) -> u64 {
    let shift = shift_of(bucket);
    ((bucket - shift as usize * PER_DOUBLING) as u64) << shift
}

fn middle_of(bucket: usize) -> u64 {
    floor_of(bucket) + (1_u64 << shift_of(bucket)) / 2
}

/// A bucket is `1 << shift_of(bucket)` wide.
fn shift_of(bucket: usize) -> u32 {
    (bucket / PER_DOUBLING).saturating_sub(1) as u32
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::Rng;

    #[test]
    fn buckets_tile_the_values() {
        assert_eq!(floor_of(0), 0);
        for bucket in 0..BUCKETS {
            let (floor, width) = (floor_of(bucket), 1 << shift_of(bucket));
            assert_eq!(bucket_of(floor), bucket);
            assert_eq!(bucket_of(floor + width - 1), bucket);
            if bucket + 1 < BUCKETS {
                assert_eq!(floor_of(bucket + 1), floor + width);
            }
            assert!(
                width == 1 || width * 64 <= floor,
                "bucket {bucket} is too wide"
            );
        }
        assert_eq!(bucket_of((1 << VALUE_BITS) - 1), BUCKETS - 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_agree_with_a_sorted_list() {
        for seed in 0..60 {
            let mut rng = Rng::new(seed);
            let scale = rng.below(u64::from(VALUE_BITS)) + 1;
            let mut values: Vec<u64> = (0..=rng.below(2_000))
                .map(|_| rng.below(1 << scale))
                .collect();
            let mut histogram = Histogram::new();
            for &value in &values {
                histogram.record(value);
            }
            values.sort_unstable();
            for ppm in [
                0, 1, 10_000, 250_000, 500_000, 900_000, 990_000, 999_000, 999_999, 1_000_000,
            ] {
                let rank = (values.len() as u64 * u64::from(ppm))
                    .div_ceil(1_000_000)
                    .max(1);
                let exact = values[rank as usize - 1];
                let answer = histogram.percentile(ppm);
                assert!(
                    answer.abs_diff(exact) * 100 <= exact,
                    "seed {seed} ppm {ppm}: {answer} for {exact}"
                );
            }
            assert_eq!(histogram.min(), values[0]);
            assert_eq!(histogram.max(), values[values.len() - 1]);
            assert_eq!(
                histogram.mean(),
                values.iter().sum::<u64>() / values.len() as u64
            );
        }
    }

    #[test]
    fn merging_is_recording_both() {
        let mut rng = Rng::new(1);
        let (mut left, mut right, mut both) =
            (Histogram::new(), Histogram::new(), Histogram::new());
        for _ in 0..5_000 {
            let (value, times) = (rng.below(1 << 40), rng.below(4));
            if rng.chance(1, 2) {
                &mut left
            } else {
                &mut right
            }
            .record_n(value, times);
            (0..times).for_each(|_| both.record(value));
        }
        left.merge(&right);
        assert_eq!(left, both);
        left.merge(&Histogram::new());
        assert_eq!(left, both);
        assert_eq!(
            both.buckets().map(|(_, times)| times).sum::<u64>(),
            both.count()
        );
    }

    #[test]
    fn nothing_recorded_is_all_zero() {
        let mut histogram = Histogram::new();
        histogram.record_n(5, 0);
        assert_eq!(
            (
                histogram.count(),
                histogram.min(),
                histogram.max(),
                histogram.mean()
            ),
            (0, 0, 0, 0)
        );
        assert_eq!(histogram.percentile(990_000), 0);
        histogram.record(5);
        histogram.clear();
        assert_eq!(histogram, Histogram::new());
    }

    #[test]
    fn values_beyond_hours_are_counted() {
        let mut histogram = Histogram::new();
        histogram.record_n(u64::MAX, 3);
        histogram.record(1);
        assert_eq!(histogram.max(), u64::MAX);
        assert_eq!(histogram.percentile(1_000_000), u64::MAX);
        assert!(histogram.percentile(500_000) >= 1 << 44);
    }
}
