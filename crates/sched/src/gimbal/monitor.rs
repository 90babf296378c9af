//! The latency monitor: whether the device is congested, from a moving average and a threshold that
//! follows it.

use flashyard_time::Duration;

use super::Tuning;

/// How loaded the device is, by the latency of one kind of I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    Underused,
    /// Above the lower bound, and not rising past the threshold.
    Avoiding,
    Congested,
    Overloaded,
}

/// Follows the latency of reads or of writes.
///
/// Between signals the threshold sinks towards the average, so that a rise crosses it; a signal
/// lifts it half-way to the upper bound. The nearer the average is to that bound, the sooner comes
/// the next signal.
#[derive(Clone, Debug)]
pub(super) struct Monitor {
    /// `None` before the first sample.
    average: Option<u64>,
    threshold: u64,
    lower: u64,
    upper: u64,
    average_shift: u32,
    decay_shift: u32,
    /// The released code: the average begins at zero, and the threshold may sink below the lower
    /// bound, where a hardly used device seems congested.
    raw: bool,
}

impl Monitor {
    pub(super) fn new(tuning: &Tuning, raw: bool) -> Self {
        Self {
            average: raw.then_some(0),
            threshold: tuning.latency_high.as_ns(),
            lower: tuning.latency_low.as_ns(),
            upper: tuning.latency_high.as_ns(),
            average_shift: tuning.average_shift,
            decay_shift: tuning.decay_shift,
            raw,
        }
    }

    /// Takes the latency of a completion, and says what it tells.
    pub(super) fn sample(&mut self, latency: Duration) -> Load {
        let latency = latency.as_ns();
        let average = match self.average {
            Some(old) => old - (old >> self.average_shift) + (latency >> self.average_shift),
            None => latency,
        };
        self.average = Some(average);
        if average > self.threshold {
            self.threshold = u64::midpoint(self.threshold.min(self.upper), self.upper);
            return if average > self.upper {
                Load::Overloaded
            } else {
                Load::Congested
            };
        }
        self.threshold -= (self.threshold - average) >> self.decay_shift;
        if !self.raw {
            self.threshold = self.threshold.max(self.lower);
        }
        if average > self.lower {
            Load::Avoiding
        } else {
            Load::Underused
        }
    }

    /// The moving average; zero before the first sample.
    pub(super) fn average(&self) -> Duration {
        Duration::from_ns(self.average.unwrap_or(0))
    }

    /// What it must not cross.
    pub(super) fn threshold(&self) -> Duration {
        Duration::from_ns(self.threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(raw: bool, latencies_us: &[u64]) -> (Monitor, Load) {
        let mut monitor = Monitor::new(&Tuning::default(), raw);
        let mut load = Load::Underused;
        for &latency in latencies_us {
            load = monitor.sample(Duration::from_us(latency));
        }
        (monitor, load)
    }

    #[test]
    fn states_follow_average_and_threshold() {
        for (latencies, load, average_us, threshold_us) in [
            // T = 1500 - (1500 - 100) / 16
            (&[100][..], Load::Underused, 100, 1412),
            (&[300], Load::Avoiding, 300, 1425),
            (&[1600], Load::Overloaded, 1600, 1500),
            // E = 300 -> 1450; T = 1425 -> midpoint(1425, 1500)
            (&[300, 2600], Load::Congested, 1450, 1462),
        ] {
            let (monitor, found) = feed(false, latencies);
            assert_eq!(found, load, "{latencies:?}");
            assert_eq!(monitor.average().as_us(), average_us);
            assert_eq!(monitor.threshold().as_us(), threshold_us);
        }
    }

    #[test]
    fn the_threshold_sinks_to_the_lower_bound_and_only_the_released_one_below() {
        let quiet = [80; 200];
        assert_eq!(feed(false, &quiet).0.threshold().as_us(), 250);
        assert!(feed(true, &quiet).0.threshold().as_us() < 82);
        let jump = [&quiet[..], &[300]].concat();
        assert_eq!(feed(false, &jump).1, Load::Underused);
        assert_eq!(feed(true, &jump).1, Load::Congested);
    }

    #[test]
    fn a_jump_of_latency_is_a_signal_at_once() {
        let (_, load) = feed(false, &[&[300; 200][..], &[600]].concat());
        assert_eq!(load, Load::Congested);
    }
}
