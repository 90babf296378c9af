//! Figures of one run under several seeds, as values of a table and points of a chart.

use crate::measure::{Estimate, Tally, mean_us, percentile_us};
use crate::report::Value;

/// What one worker got, once for each seed.
pub(super) struct Figures(pub(super) Vec<Tally>);

/// Parts of a million that a percentile stands for.
pub(super) const P50: u32 = 500_000;
pub(super) const P95: u32 = 950_000;
pub(super) const P99: u32 = 990_000;
pub(super) const P999: u32 = 999_000;
pub(super) const MAX: u32 = 1_000_000;

impl Figures {
    /// A figure that every tally has, or none where nothing was counted.
    pub(super) fn estimate(&self, figure: impl Fn(&Tally) -> Option<f64>) -> Option<Estimate> {
        let values: Vec<f64> = self.0.iter().filter_map(figure).collect();
        Estimate::of(&values)
    }

    /// A figure as a value of the table.
    pub(super) fn value(&self, figure: impl Fn(&Tally) -> Option<f64>) -> Value {
        self.estimate(figure).map_or(Value::Missing, value_of)
    }

    /// A figure that is always there, as a value of the table.
    pub(super) fn rate(&self, figure: impl Fn(&Tally) -> f64) -> Value {
        self.value(|tally| Some(figure(tally)))
    }

    /// The mean of a figure over the seeds, for a chart; not a number when there is none.
    pub(super) fn mean(&self, figure: impl Fn(&Tally) -> Option<f64>) -> f64 {
        self.estimate(figure)
            .map_or(f64::NAN, |estimate| estimate.mean)
    }

    /// Bandwidth in bytes per second.
    pub(super) fn bandwidth(&self) -> f64 {
        self.mean(|tally| Some(tally.bytes_per_second()))
    }

    /// Reads and writes apart.
    pub(super) fn sides(&self) -> (Self, Self) {
        let halves = self.0.iter().map(Tally::sides);
        let (reads, writes) = halves.unzip();
        (Self(reads), Self(writes))
    }

    /// Mean, p50, p99, p99.9 and greatest latency.
    pub(super) fn latencies(&self) -> [Value; 5] {
        [
            self.value(|tally| mean_us(&tally.total())),
            self.percentile(P50),
            self.percentile(P99),
            self.percentile(P999),
            self.percentile(MAX),
        ]
    }

    /// A percentile of all latencies.
    pub(super) fn percentile(&self, parts_per_million: u32) -> Value {
        self.value(|tally| percentile_us(&tally.total(), parts_per_million))
    }
}

/// An estimate as a value: an interval when there were several seeds.
pub(super) fn value_of(estimate: Estimate) -> Value {
    match estimate.half {
        Some(half) => Value::Interval {
            mean: estimate.mean,
            half,
        },
        None => Value::Real(estimate.mean),
    }
}
