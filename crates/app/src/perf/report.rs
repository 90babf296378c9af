//! What a run of `perf` found, for people and for programs.

use flashyard_host::CreditReport;
use flashyard_time::Histogram;
use serde::Serialize;

use super::baseline::Limit;
use super::load::Outcome;
use super::{Pattern, PerfArgs};
use crate::units;

/// The result of a run. Serialised, its keys are a contract with users.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Reads and writes per second.
    pub iops: f64,
    /// Data moved per second.
    pub bytes_per_second: f64,
    /// Latency in microseconds.
    pub latency_us: Latency,
    /// Reads and writes that failed.
    pub errors: u64,
    /// How often the target interrupted one and wanted it again later, which was done.
    pub interrupted: u64,
    /// Reads and writes that counted.
    pub reads: u64,
    /// See `reads`.
    pub writes: u64,
    /// The time they were counted in.
    pub seconds: f64,
    /// Whether a signal has ended it early.
    pub stopped: bool,
    /// What the first failure was.
    pub first_error: Option<String>,
    /// With `--rate`: what could not be started in time.
    pub unsent: Option<u64>,
    /// With `--credits`, if the target tells any, and with `--parda`.
    pub credit: Option<Credit>,
    /// With `--verify`.
    pub verify: Option<Verified>,
    /// With `--baseline`: the same traffic over bare sockets.
    pub baseline: Option<Baseline>,
    /// With `--baseline`: this run's share of it.
    pub ratio: Option<f64>,
    #[serde(skip)]
    title: String,
}

/// Latency in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Greatest.
    pub max: f64,
}

/// What the target said that may be outstanding, and what waited here for it.
#[derive(Clone, Debug, Serialize)]
pub struct Credit {
    /// Bytes that all jobs together were last allowed to have outstanding; nothing if there is
    /// no bound.
    pub bytes: Option<u64>,
    /// Reads and writes that waited here, from the first on.
    pub waited: u64,
    /// How long they waited on average, in microseconds. The latency has it, too.
    pub mean_us: f64,
}

/// What checking the data found, in reads.
#[derive(Clone, Debug, Serialize)]
pub struct Verified {
    /// As it was written.
    pub good: u64,
    /// Zeroes where no write is known of.
    pub unwritten: u64,
    /// Not what was written.
    pub mismatches: u64,
}

/// What bare sockets reached.
#[derive(Clone, Debug, Serialize)]
pub struct Baseline {
    /// Requests answered per second.
    pub iops: f64,
    /// Data moved per second.
    pub bytes_per_second: f64,
}

impl Report {
    pub(super) fn new(args: &PerfArgs, outcomes: Vec<Outcome>, limits: &[Limit]) -> Self {
        let mut latency = Histogram::new();
        let measured = outcomes.iter().map(|outcome| outcome.measured).max();
        let seconds = measured.map_or(0.0, |span| span.as_ns() as f64 / 1e9);
        let mut report = Self {
            iops: 0.0,
            bytes_per_second: 0.0,
            latency_us: Latency::of(&latency),
            errors: 0,
            interrupted: 0,
            reads: 0,
            writes: 0,
            seconds,
            stopped: false,
            first_error: None,
            unsent: args.rate.map(|_| 0),
            credit: None,
            verify: args.verify.then_some(Verified {
                good: 0,
                unwritten: 0,
                mismatches: 0,
            }),
            baseline: None,
            ratio: None,
            title: title(args),
        };
        let credits: Vec<_> = outcomes
            .iter()
            .filter_map(|outcome| outcome.credit)
            .collect();
        report.credit = Credit::of(&credits);
        for outcome in outcomes {
            latency.merge(&outcome.latency);
            report.add(outcome);
        }
        let bytes = f64::from(args.bs);
        report.latency_us = Latency::of(&latency);
        if seconds > 0.0 {
            report.iops = (report.reads + report.writes) as f64 / seconds;
            report.bytes_per_second = report.iops * bytes;
        }
        if !limits.is_empty() {
            let rates = limits
                .iter()
                .map(|limit| limit.operations as f64 / limit.elapsed.as_secs_f64());
            let iops = rates.sum::<f64>() / limits.len() as f64;
            report.baseline = Some(Baseline {
                iops,
                bytes_per_second: iops * bytes,
            });
            report.ratio = Some(if iops > 0.0 { report.iops / iops } else { 0.0 });
        }
        report
    }

    fn add(&mut self, outcome: Outcome) {
        self.errors += outcome.errors;
        self.interrupted += outcome.interrupted;
        self.reads += outcome.reads;
        self.writes += outcome.writes;
        self.first_error = self.first_error.take().or(outcome.first_error);
        if let Some(unsent) = &mut self.unsent {
            *unsent += outcome.unsent;
        }
        if let Some(verify) = &mut self.verify {
            verify.good += outcome.verified;
            verify.unwritten += outcome.unwritten;
            verify.mismatches += outcome.mismatches;
        }
    }

    /// Whether something failed or was not what was written: the run is not a success.
    pub fn failed(&self) -> bool {
        self.errors > 0
            || self
                .verify
                .as_ref()
                .is_some_and(|verify| verify.mismatches > 0)
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let latency = &self.latency_us;
        writeln!(f, "{}", self.title)?;
        if self.stopped {
            let seconds = self.seconds;
            writeln!(
                f,
                "  stopped  by a signal; the figures are of {seconds:.1} s"
            )?;
        }
        writeln!(
            f,
            "  rate     {:>12} IOPS   {}",
            thousands(self.iops),
            units::bandwidth(self.bytes_per_second)
        )?;
        writeln!(
            f,
            "  latency  mean {}   p50 {}   p99 {}   p99.9 {}   max {}",
            span(latency.mean),
            span(latency.p50),
            span(latency.p99),
            span(latency.p999),
            span(latency.max)
        )?;
        if let Some(unsent) = self.unsent.filter(|unsent| *unsent > 0) {
            writeln!(
                f,
                "  behind   {} could not be started in time",
                thousands(unsent as f64)
            )?;
        }
        if let Some(credit) = &self.credit {
            writeln!(f, "  credit   {credit}")?;
        }
        if self.interrupted > 0 {
            let times = thousands(self.interrupted as f64);
            writeln!(
                f,
                "  overload {times} times the target wanted one again later"
            )?;
        }
        if let Some(verify) = &self.verify {
            writeln!(
                f,
                "  verify   {} good   {} never written   {} wrong",
                thousands(verify.good as f64),
                thousands(verify.unwritten as f64),
                thousands(verify.mismatches as f64)
            )?;
        }
        if let (Some(baseline), Some(ratio)) = (&self.baseline, self.ratio) {
            let (iops, rate) = (
                thousands(baseline.iops),
                units::bandwidth(baseline.bytes_per_second),
            );
            writeln!(f, "  limit    {iops:>12} IOPS   {rate}   (bare sockets)")?;
            writeln!(f, "  ratio    {ratio:.2}")?;
        }
        write!(f, "  errors   {}", thousands(self.errors as f64))?;
        match &self.first_error {
            Some(error) => write!(f, "; the first: {error}"),
            None => Ok(()),
        }
    }
}

impl Credit {
    /// What the associations of all jobs report.
    fn of(reports: &[CreditReport]) -> Option<Self> {
        let waited: u64 = reports.iter().map(|report| report.waits).sum();
        let ns: u64 = reports.iter().map(|report| report.waited.as_ns()).sum();
        (!reports.is_empty()).then(|| Self {
            bytes: reports.iter().map(|report| report.allowed).sum(),
            waited,
            mean_us: ns as f64 / 1e3 / waited.max(1) as f64,
        })
    }
}

impl std::fmt::Display for Credit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.bytes {
            Some(bytes) => write!(f, "{} outstanding at most", units::size(bytes))?,
            None => write!(f, "no bound")?,
        }
        let (waited, mean) = (thousands(self.waited as f64), span(self.mean_us));
        write!(f, "   {waited} waited here   mean {mean}")
    }
}

impl Latency {
    fn of(histogram: &Histogram) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        Self {
            mean: us(histogram.mean()),
            p50: us(histogram.percentile(500_000)),
            p99: us(histogram.percentile(990_000)),
            p999: us(histogram.percentile(999_000)),
            max: us(histogram.max()),
        }
    }
}

fn title(args: &PerfArgs) -> String {
    let pattern = match args.rw {
        Pattern::Randread => "random read".into(),
        Pattern::Randwrite => "random write".into(),
        Pattern::Randrw => format!("random read/write {}/{}", args.mix, 100 - args.mix),
        Pattern::Read => "sequential read".into(),
        Pattern::Write => "sequential write".to_string(),
    };
    let plural =
        |count: u16, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    format!(
        "{} {pattern}, {} in flight, {}, {}, {} s",
        units::size(u64::from(args.bs)),
        args.qd,
        plural(args.queues, "queue"),
        plural(args.jobs, "job"),
        args.seconds
    )
}

/// A span of time for people, from microseconds.
fn span(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.1} us"),
        us if us < 1e6 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// A whole number with its thousands apart: `1,234,567`.
pub(super) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let groups: Vec<_> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(String::from_utf8_lossy)
        .collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use flashyard_time::Duration;

    use super::*;

    #[test]
    fn thousands_are_apart() {
        for (value, shown) in [
            (0.0, "0"),
            (999.4, "999"),
            (1000.0, "1,000"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(thousands(value), shown);
        }
    }

    #[test]
    fn credits_of_jobs_are_added_up() {
        let report = |allowed, waits, us| CreditReport {
            allowed,
            outstanding: 0,
            waits,
            waited: Duration::from_us(us),
        };
        assert!(Credit::of(&[]).is_none());
        let two = Credit::of(&[
            report(Some(65_536), 10, 1_000),
            report(Some(131_072), 30, 3_000),
        ]);
        let shown = "192 KiB outstanding at most   40 waited here   mean 100.0 us";
        assert_eq!(two.expect("they were reported").to_string(), shown);
        let one_without = Credit::of(&[report(Some(4096), 0, 0), report(None, 0, 0)]);
        let shown = "no bound   0 waited here   mean 0.0 us";
        assert_eq!(one_without.expect("they were reported").to_string(), shown);
    }

    #[test]
    fn spans_have_their_unit() {
        for (us, shown) in [(9.12, "9.1 us"), (1_050.0, "1.05 ms"), (2.5e6, "2.50 s")] {
            assert_eq!(span(us), shown);
        }
    }
}
