//! The write cost estimator: how many read bytes a written byte is worth, from the latency of
//! writes.

use flashyard_time::{Duration, Time};

use super::Tuning;

/// A cost of one: a written byte is worth a read one.
pub(super) const ONE: u64 = 1024;

/// Falls by steps while the device's buffer absorbs writes, and half-way to the worst when it no
/// longer does (ADMI).
#[derive(Clone, Debug)]
pub(super) struct WriteCost {
    value: u64,
    worst: u64,
    step: u64,
    period: Duration,
    latency_low: Duration,
    latency_high: Duration,
    /// When the period in flight ends; `None` before the first I/O.
    ends: Option<Time>,
    reads: u64,
    writes: u64,
    write_latency: Duration,
    /// The released code: divides the number of writes by itself, so that the mean latency is
    /// always one tick.
    inert: bool,
}

impl WriteCost {
    pub(super) fn new(tuning: &Tuning, inert: bool) -> Self {
        let worst = tuning.worst_write_cost.max(ONE);
        Self {
            value: worst,
            worst,
            step: tuning.write_cost_step,
            period: tuning.write_cost_period,
            latency_low: tuning.latency_low,
            latency_high: tuning.latency_high,
            ends: None,
            reads: 0,
            writes: 0,
            write_latency: Duration::ZERO,
            inert,
        }
    }

    /// The cost in parts of [`ONE`].
    pub(super) fn value(&self) -> u64 {
        self.value
    }

    /// Counts a read that has ended.
    pub(super) fn read(&mut self) {
        self.reads += 1;
    }

    /// Counts a write that has ended.
    pub(super) fn wrote(&mut self, latency: Duration) {
        self.writes += 1;
        self.write_latency += latency;
    }

    /// Closes every period that has ended.
    pub(super) fn tick(&mut self, now: Time) {
        let Some(ends) = self.ends else {
            self.ends = Some(now + self.period);
            return;
        };
        if now < ends {
            return;
        }
        self.close();
        // Nothing ended in those that follow.
        let idle = now.since(ends).as_ns() / self.period.as_ns().max(1);
        self.value = self
            .value
            .saturating_sub(self.step.saturating_mul(idle))
            .max(ONE);
        self.ends = Some(ends + self.period * (idle + 1));
    }

    fn close(&mut self) {
        let mean = if self.writes == 0 || self.inert {
            Duration::ZERO
        } else {
            self.write_latency / self.writes
        };
        let full = self.reads > 0 && mean > self.latency_low || mean > self.latency_high;
        self.value = if full {
            u64::midpoint(self.value, self.worst)
        } else {
            self.value.saturating_sub(self.step).max(ONE)
        };
        (self.reads, self.writes) = (0, 0);
        self.write_latency = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cost after each of some periods with this mean latency of writes.
    fn course(inert: bool, reads: u64, latency_us: u64, periods: u64) -> WriteCost {
        let mut cost = WriteCost::new(&Tuning::default(), inert);
        cost.tick(Time::ZERO);
        for period in 1..=periods {
            (0..reads).for_each(|_| cost.read());
            cost.wrote(Duration::from_us(latency_us));
            cost.tick(Time::ZERO + Duration::from_ms(100) * period);
        }
        cost
    }

    #[test]
    fn cost_falls_while_the_buffer_absorbs_and_rises_when_it_is_full() {
        for (inert, reads, latency_us, periods, hundredths) in [
            (false, 1, 50, 4, 700),
            (false, 1, 50, 16, 100),
            (false, 1, 50, 99, 100),
            (false, 1, 300, 5, 900),
            // Beside no read, only the upper bound counts.
            (false, 0, 300, 2, 800),
            (false, 0, 1600, 2, 900),
            (true, 1, 9999, 16, 100),
        ] {
            let cost = course(inert, reads, latency_us, periods);
            assert_eq!(cost.value() * 100 / ONE, hundredths, "{latency_us} us");
        }
    }

    #[test]
    fn it_is_at_eight_of_nine_after_three_bad_periods() {
        let mut cost = course(false, 1, 50, 16);
        for (period, hundredths) in [(17, 500), (18, 700), (19, 800)] {
            cost.read();
            cost.wrote(Duration::from_ms(1));
            cost.tick(Time::ZERO + Duration::from_ms(100) * period);
            assert_eq!(cost.value() * 100 / ONE, hundredths);
        }
    }

    #[test]
    fn periods_in_which_nothing_ended_count_all_the_same() {
        let mut cost = course(false, 1, 50, 1);
        cost.tick(Time::ZERO + Duration::from_ms(350));
        assert_eq!(cost.value() * 10 / ONE, 75);
        cost.tick(Time::MAX);
        assert_eq!(cost.value(), ONE);
    }
}
