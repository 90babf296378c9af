//! What was measured of a device: the price of writes, and how many tokens per second meet a
//! latency.

use alloc::vec::Vec;

use flashyard_time::Duration;

use crate::figures::{Figures, Point, READ_TOKENS};

/// I/Os are priced by pages of so many bytes.
const PAGE_BYTES: u64 = 4096;

/// A device as measured in advance. It is not adapted to what the device does later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calibration {
    write_tokens: u64,
    /// Ordered by latency.
    points: Vec<Point>,
}

impl Calibration {
    /// A device on which writing 4 KiB is worth `write_tokens` (at least those of a read), with
    /// some points of its curve of load against latency, the last of which is its saturation.
    ///
    /// # Panics
    /// Without any point: nothing would ever be let go.
    pub fn new(write_tokens: u64, mut points: Vec<Point>) -> Self {
        assert!(!points.is_empty(), "a calibration has at least one point");
        points.sort_by_key(|point| point.latency);
        Self {
            write_tokens: write_tokens.max(READ_TOKENS),
            points,
        }
    }

    /// Tokens of a write of 4 KiB.
    pub fn write_tokens(&self) -> u64 {
        self.write_tokens
    }

    /// Tokens per second that keep latency under `target`, between points by a straight line;
    /// without a target, as many as the device can do. A target below the first point gets what
    /// that allows.
    pub fn rate(&self, target: Option<Duration>) -> u64 {
        let last = self.points[self.points.len() - 1];
        let Some(target) = target.filter(|target| *target < last.latency) else {
            return last.tokens;
        };
        let above = self.points.partition_point(|point| point.latency <= target);
        let right = self.points[above];
        let Some(left) = above.checked_sub(1).map(|place| self.points[place]) else {
            return right.tokens;
        };
        let part = |tokens: u64, span: Duration| {
            let whole = (right.latency - left.latency).as_ns().max(1);
            u128::from(tokens) * u128::from(span.as_ns()) / u128::from(whole)
        };
        let sum =
            part(left.tokens, right.latency - target) + part(right.tokens, target - left.latency);
        u64::try_from(sum).unwrap_or(u64::MAX)
    }

    /// Tokens of so many bytes read or written.
    pub(super) fn price(&self, bytes: u64, write: bool) -> u64 {
        let each = if write {
            self.write_tokens
        } else {
            READ_TOKENS
        };
        bytes.div_ceil(PAGE_BYTES).max(1).saturating_mul(each)
    }
}

/// A write is worth as many reads as it is slower. The last point is what reads alone reach: the
/// mix is taken not to matter when it is counted in tokens.
impl From<&Figures> for Calibration {
    fn from(figures: &Figures) -> Self {
        let [reads, writes] = [figures.reads()[0], figures.writes()[0]];
        let saturated = Point {
            latency: Duration::MAX,
            tokens: reads.saturating_mul(READ_TOKENS),
        };
        let points = figures.curve().iter().copied().chain([saturated]);
        Self::new(reads.saturating_mul(READ_TOKENS) / writes, points.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sample device of the released code.
    fn sample() -> Calibration {
        let points = [(500, 36), (1000, 50), (2000, 57), (3000, 80)];
        let point = |(us, millions): (u64, u64)| Point {
            latency: Duration::from_us(us),
            tokens: millions * 1_000_000,
        };
        Calibration::new(1000, points.map(point).to_vec())
    }

    #[test]
    fn rates_lie_on_the_line_between_points() {
        for (target_us, tokens) in [
            (Some(100), 36_000_000),
            (Some(500), 36_000_000),
            (Some(750), 43_000_000),
            (Some(1000), 50_000_000),
            (Some(2500), 68_500_000),
            (Some(9000), 80_000_000),
            (None, 80_000_000),
        ] {
            assert_eq!(sample().rate(target_us.map(Duration::from_us)), tokens);
        }
    }

    #[test]
    fn prices_are_by_the_page() {
        for (bytes, write, tokens) in [
            (0, false, 100),
            (512, false, 100),
            (4096, true, 1000),
            (4097, false, 200),
            (128 << 10, false, 3200),
            (128 << 10, true, 32_000),
        ] {
            assert_eq!(sample().price(bytes, write), tokens);
        }
    }
}
