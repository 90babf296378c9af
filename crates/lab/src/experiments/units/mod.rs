//! What the experiments on isolation share: tenants on parallel units of an open-channel device.

mod scenario;

use flashyard_flash::channel::load::Tally;
use flashyard_time::{Duration, Histogram};

use super::figures;
use crate::bench::fold;
use crate::experiment::{Context, Domain, Refused, Setting};
use crate::measure::Estimate;
use crate::parallel;
use crate::report::Value;

pub(super) use scenario::{Order, Placement, Scenario};

/// The open-channel drives that experiments are about unless a user names another.
pub(super) const DRIVE: &str = "cnex";

pub(super) const PROFILE: Setting = Setting {
    key: "profile",
    default: DRIVE,
    domain: Domain::Profiles,
    meaning: "the flash behind the open channels; what is expected is known of `cnex` only",
};

pub(super) const GIB: Setting = Setting {
    key: "gib",
    default: "32",
    domain: Domain::Number(1, 1024),
    meaning: "capacity of the flash in GiB",
};

pub(super) const MS: Setting = Setting {
    key: "ms",
    default: "20000",
    domain: Domain::Number(1, 3_600_000),
    meaning: "milliseconds that are measured, after 200 or as long, whichever is less",
};

/// How long and how large everything is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) capacity: u64,
    pub(super) warm_up: Duration,
    pub(super) span: Duration,
}

impl Extent {
    /// What the user set, or next to nothing in quick mode.
    pub(super) fn of(context: &Context) -> Self {
        let (gib, ms) = if context.quick {
            (1, 20)
        } else {
            (context.number("gib"), context.number("ms"))
        };
        Self {
            capacity: gib << 30,
            warm_up: Duration::from_ms(ms.min(200)),
            span: Duration::from_ms(ms),
        }
    }
}

/// What a scenario came to, under each seed.
pub(super) struct Observed<'a> {
    pub(super) scenario: &'a Scenario,
    runs: Vec<Run>,
}

/// What each tenant got, in their order.
struct Run {
    tallies: Vec<Tally>,
    digest: u64,
}

/// Runs every scenario under every seed, or the first ones when the run is stopped. The digest
/// covers all completions of all of them.
pub(super) fn measure_all<'a>(
    context: &Context,
    extent: Extent,
    scenarios: &'a [Scenario],
) -> Result<(Vec<Observed<'a>>, u64), Refused> {
    let parts = scenarios.len() * context.seed_count as usize;
    context.progress.begin(parts as u64);
    measure_on(context, extent, scenarios)
}

/// The same as a part of a larger run, which has counted its parts.
pub(super) fn measure_on<'a>(
    context: &Context,
    extent: Extent,
    scenarios: &'a [Scenario],
) -> Result<(Vec<Observed<'a>>, u64), Refused> {
    let seeds: Vec<u64> = context.seeds().collect();
    let mut jobs = Vec::with_capacity(scenarios.len() * seeds.len());
    for scenario in scenarios {
        jobs.extend(seeds.iter().map(|&seed| (scenario, seed)));
    }
    let run = |&(scenario, seed): &(&Scenario, u64)| {
        let (tallies, digest) = scenario.run(extent, seed)?;
        context.progress.step(&scenario.label());
        Ok(Run { tallies, digest })
    };
    let mut runs = parallel::first_groups(context.progress, &jobs, seeds.len(), run)?;
    let digest = runs.iter().map(|run| run.digest).fold(0, fold);
    let played = scenarios[..runs.len() / seeds.len()].iter();
    let played = played.map(|scenario| Observed {
        scenario,
        runs: runs.drain(..seeds.len()).collect(),
    });
    Ok((played.collect(), digest))
}

impl Observed<'_> {
    /// Mean, p50, p99, p99.9 and greatest latency of the first tenant, as values of a table.
    pub(super) fn latencies(&self) -> [Value; 5] {
        let percentile = |part| self.value(move |run| percentile_us(run, part));
        [
            self.value(mean_us),
            percentile(figures::P50),
            percentile(figures::P99),
            percentile(figures::P999),
            percentile(figures::MAX),
        ]
    }

    /// The mean latency of the first tenant in microseconds.
    pub(super) fn mean_us(&self) -> f64 {
        self.mean(mean_us)
    }

    /// A percentile of the latency of the first tenant in microseconds.
    pub(super) fn percentile_us(&self, part: u32) -> f64 {
        self.mean(|run| percentile_us(run, part))
    }

    /// Bytes per second of the first tenant.
    pub(super) fn first_bytes_per_second(&self) -> f64 {
        self.mean(|run| run[0].bytes_per_second() as f64)
    }

    /// Bytes per second of all but the first tenant.
    pub(super) fn others_bytes_per_second(&self) -> f64 {
        self.mean(others)
    }

    /// The same, as a value of a table; none when there are no others.
    pub(super) fn others(&self) -> Value {
        if self.runs[0].tallies.len() < 2 {
            return Value::Missing;
        }
        self.value(others)
    }

    /// A figure of each run, as a value of a table.
    pub(super) fn value(&self, figure: impl Fn(&[Tally]) -> f64) -> Value {
        self.estimate(figure)
            .map_or(Value::Missing, figures::value_of)
    }

    fn mean(&self, figure: impl Fn(&[Tally]) -> f64) -> f64 {
        self.estimate(figure)
            .map_or(f64::NAN, |estimate| estimate.mean)
    }

    /// None when nothing was completed within the span, as in a quick run of something slow.
    fn estimate(&self, figure: impl Fn(&[Tally]) -> f64) -> Option<Estimate> {
        let counted = self
            .runs
            .iter()
            .filter(|run| latencies(&run.tallies).count() > 0);
        let values: Vec<f64> = counted.map(|run| figure(&run.tallies)).collect();
        Estimate::of(&values)
    }
}

fn latencies(run: &[Tally]) -> &Histogram {
    &run[0].latencies
}

fn mean_us(run: &[Tally]) -> f64 {
    latencies(run).mean() as f64 / 1e3
}

fn percentile_us(run: &[Tally], part: u32) -> f64 {
    latencies(run).percentile(part) as f64 / 1e3
}

fn others(run: &[Tally]) -> f64 {
    run[1..]
        .iter()
        .map(|tally| tally.bytes_per_second() as f64)
        .sum()
}
