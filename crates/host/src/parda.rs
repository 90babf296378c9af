//! Parda: the host has a window that follows the latency it measures; the target does nothing.
//! Pure: the caller gives the time.
//!
//! After Gulati, Ahmad and Waldspurger, "PARDA: Proportional Allocation of Resources for
//! Distributed Storage Access", FAST 2009: `w <- (1 - g) w + g (threshold / L * w + b)`, with `L`
//! an average of latencies. The constants for a disk array (every 2 s, 25 to 40 ms) are of no use
//! for flash; the period here is 5 ms, and the threshold is what the drive was measured to need.
//! Sizes are not distinguished, nor reads from writes.

use flashyard_time::{Duration, Time};

/// From one change of the window to the next.
const PERIOD: Duration = Duration::from_ms(5);
/// How much of a window is new at each change.
const GAIN: f64 = 0.8;
/// What the window grows by at the threshold: the host's share.
const SHARE: f64 = 1.0;
/// How much a sample counts in the average.
const SAMPLE: f64 = 1.0 / 8.0;
const FIRST: f64 = 32.0;
const LEAST: f64 = 1.0;
const MOST: f64 = 128.0;

/// The window of one host.
#[derive(Clone, Debug)]
pub struct Parda {
    threshold_ns: f64,
    window: f64,
    /// Average latency in nanoseconds; zero before the first.
    latency: f64,
    updated: Time,
}

impl Parda {
    /// Of a host that steers for this latency.
    pub fn new(threshold: Duration) -> Self {
        Self {
            threshold_ns: threshold.as_ns().max(1) as f64,
            window: FIRST,
            latency: 0.0,
            updated: Time::ZERO,
        }
    }

    /// Commands that may be outstanding, 1 to 128.
    pub fn window(&self) -> u32 {
        self.window as u32
    }

    /// A command took `latency`.
    pub fn observe(&mut self, now: Time, latency: Duration) {
        let latency = latency.as_ns() as f64;
        self.latency = if self.latency > 0.0 {
            self.latency + (latency - self.latency) * SAMPLE
        } else {
            latency
        };
        if now.since(self.updated) >= PERIOD {
            self.updated = now;
            let goal = self.threshold_ns / self.latency.max(1.0) * self.window + SHARE;
            let window = (1.0 - GAIN) * self.window + GAIN * goal;
            self.window = window.clamp(LEAST, MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The window after a second at this latency.
    fn window(latency_us: u64) -> u32 {
        let mut parda = Parda::new(Duration::from_ms(1));
        for ms in 1..=1000 {
            let now = Time::ZERO + Duration::from_ms(ms);
            parda.observe(now, Duration::from_us(latency_us));
        }
        parda.window()
    }

    #[test]
    fn windows_follow_latency_between_their_bounds() {
        assert_eq!(Parda::new(Duration::ZERO).window(), 32);
        assert_eq!(window(500), 128);
        assert_eq!(window(1_000), 128);
        // At rest, w = threshold / L * w + b.
        assert_eq!(window(1_250), 5);
        assert_eq!(window(9_000), 1);
        assert_eq!(window(0), 128);
    }
}
