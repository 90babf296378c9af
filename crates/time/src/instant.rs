//! Instants and spans in whole nanoseconds. Sums stop at the greatest value, differences at zero.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, Sub};

/// An instant: nanoseconds since an origin that only the clock's owner knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Time {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);
    /// An instant that never comes.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant `ns` nanoseconds after the origin.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the origin.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// The span since `earlier`, zero when `earlier` lies ahead.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Longer than any run.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of `ns` nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// A span of `us` microseconds.
    pub const fn from_us(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// A span of `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// A span of `s` seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }

    /// The span in nanoseconds.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// The span in whole microseconds, rounded down.
    pub const fn as_us(self) -> u64 {
        self.0 / 1_000
    }

    /// The span in whole milliseconds, rounded down.
    pub const fn as_ms(self) -> u64 {
        self.0 / 1_000_000
    }

    /// The span in whole seconds, rounded down.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// The span times `numerator / denominator`, rounded down, without overflow on the way.
    ///
    /// # Panics
    /// When `denominator` is zero.
    pub fn scale(self, numerator: u64, denominator: u64) -> Self {
        let scaled = u128::from(self.0) * u128::from(numerator) / u128::from(denominator);
        Self(u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    /// The span in seconds, for people and rates, never for decisions.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub for Time {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl Sub<Duration> for Time {
    type Output = Self;
    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Duration {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Duration {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl Div<u64> for Duration {
    type Output = Self;
    fn div(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

impl Sum for Duration {
    fn sum<I: Iterator<Item = Self>>(spans: I) -> Self {
        spans.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns < 1_000 => write!(f, "{ns} ns"),
            ns if ns < 1_000_000 => write!(f, "{}.{} us", ns / 1_000, ns % 1_000 / 100),
            ns if ns < 1_000_000_000 => {
                write!(f, "{}.{} ms", ns / 1_000_000, ns % 1_000_000 / 100_000)
            }
            ns => write!(
                f,
                "{}.{:02} s",
                ns / 1_000_000_000,
                ns % 1_000_000_000 / 10_000_000
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn arithmetic_stops_at_the_ends() {
        assert_eq!(Time::MAX + Duration::from_ns(1), Time::MAX);
        assert_eq!(Time::from_ns(3) - Duration::from_ns(5), Time::ZERO);
        assert_eq!(Time::from_ns(3) - Time::from_ns(5), Duration::ZERO);
        assert_eq!(
            Time::from_ns(5).since(Time::from_ns(3)),
            Duration::from_ns(2)
        );
        assert_eq!(Duration::from_secs(u64::MAX), Duration::MAX);
        assert_eq!(Duration::from_secs(2) * u64::MAX, Duration::MAX);
        assert_eq!(
            [Duration::MAX, Duration::from_us(1)]
                .into_iter()
                .sum::<Duration>(),
            Duration::MAX
        );
    }

    #[test]
    fn units_and_scale() {
        assert_eq!(Duration::from_ms(1_500).as_secs(), 1);
        assert_eq!(Duration::from_secs(1).as_us(), 1_000_000);
        assert_eq!(
            Duration::from_ns(u64::MAX / 2).scale(3, 3),
            Duration::from_ns(u64::MAX / 2)
        );
        assert_eq!(Duration::from_ns(10).scale(2, 3), Duration::from_ns(6));
        assert_eq!(Duration::MAX.scale(2, 1), Duration::MAX);
    }

    #[test]
    fn spans_are_shown_in_the_unit_that_fits() {
        for (ns, shown) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (12_340, "12.3 us"),
            (1_050_000, "1.0 ms"),
            (61_070_000_000, "61.07 s"),
        ] {
            assert_eq!(Duration::from_ns(ns).to_string(), shown);
        }
    }
}
