//! Test 19: the tail of reads against load in tokens, as ReFlex describes drives.
//!
//! A read costs one token, a write as many as its cost is reads. ReFlex' files for two drives say
//! up to which load, in percent of the tokens of its best, the 95th percentile of reads stays below
//! half a millisecond and so on. ReFlex claims that one such table is right for all mixes. The two
//! are other drives than ours, so only the shape is compared: our curve has to lie between the two,
//! give or take a step of the loads that were tried.

use flashyard_time::Histogram;

use super::bench::{Bench, FRAGMENTED};
use super::row::Row;
use flashyard_flash::workload::{Source, open_loop};

/// Tokens per second of the drive at its best: its reads.
const TOKENS: u64 = 400_000;
/// Tokens of a write.
const WRITE_COST: u64 = 9;
/// The loads tried: from the first in steps of this, in percent of the tokens.
const STEP: u64 = 8;
const FIRST: u64 = 4;

/// The 95th percentile in microseconds, and the loads up to which `sample.devmodel` and
/// `sample-aws-ec2.devmodel` have it, in percent.
const REFLEX: [(u64, u64, u64); 6] = [
    (500, 36, 60),
    (1000, 50, 82),
    (1500, 52, 87),
    (2000, 57, 92),
    (2500, 75, 97),
    (3000, 80, 100),
];
/// The same for reads alone.
const REFLEX_READS: [(u64, u64, u64); 3] = [(500, 85, 95), (1000, 95, 97), (1500, 98, 100)];

const DEARER: &str = "between a suspended program and a whole one: programs of 2.5 ms, suspended three times, \
    then hold reads up to their end; with 8 suspends the load is within";
const CHEAPER: &str = "one write cost does not do for all mixes here: of the same tokens so few are reads that they \
    take a tenth of the dies' time; they wait for programs, but hardly for each other";

/// Test 19.
pub(super) fn tails(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    let mixes: &[u64] = if bench.full {
        &[100, 99, 95, 90, 75, 50]
    } else {
        &[95]
    };
    for &reads in mixes {
        let curve = Curve::measure(bench, reads);
        let published = if reads == 100 {
            &REFLEX_READS[..]
        } else {
            &REFLEX[..]
        };
        rows.extend(published.iter().map(|&(us, lower, upper)| {
            let test = format!("{reads} % reads: load with a p95 below {us} us, %");
            let (oracle, step) = (lower as f64, STEP as f64);
            let tolerance = (step / oracle, (upper as f64 + step) / oracle - 1.0);
            Row::within(test, oracle, curve.load_within(us), tolerance)
                .note("from a step below ReFlex' device 1 to a step above its AWS drive")
                .unless_within(if reads > 50 { DEARER } else { CHEAPER })
        }));
    }
    if bench.full {
        rows.extend(super::variants::compared(bench));
    }
    rows
}

/// The 95th percentile of reads for each load tried, in nanoseconds.
struct Curve(Vec<(u64, u64)>);

impl Curve {
    fn measure(bench: &Bench, reads: u64) -> Self {
        let bench = bench.with_capacity(bench.capacity.max(2 << 30));
        let loads = (FIRST..=100).step_by(STEP as usize);
        let p95 = |load| {
            let tokens = TOKENS * load / 100;
            // Tokens of a hundred commands.
            let spent = reads + (100 - reads) * WRITE_COST;
            let warm_up = bench.short.scale(1, 4);
            let end = warm_up + bench.short.scale(2, 1);
            let mut sources = vec![Source::reads(tokens * reads / spent, end)];
            if reads < 100 {
                sources.push(Source::writes(tokens * (100 - reads) / spent, end));
            }
            let mut device = bench.device(&bench.profile, FRAGMENTED);
            let mut latencies = Histogram::new();
            open_loop(&mut device, &sources, 3, |answer| {
                if answer.source == 0 && answer.arrived > warm_up {
                    latencies.record(answer.latency.as_ns());
                }
            });
            (load, latencies.percentile(950_000))
        };
        Self(loads.map(p95).collect())
    }

    /// The load at which the percentile exceeds `us`, on the straight line between two loads tried;
    /// the highest load tried when it never does.
    fn load_within(&self, us: u64) -> f64 {
        let limit = us * 1000;
        let mut before = (0, 0);
        for &(load, p95) in &self.0 {
            if p95 > limit {
                let share = (limit.saturating_sub(before.1)) as f64 / (p95 - before.1) as f64;
                return before.0 as f64 + share * (load - before.0) as f64;
            }
            before = (load, p95);
        }
        before.0 as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_lies_where_the_percentile_crosses_the_limit() {
        let curve = Curve(vec![(4, 100_000), (12, 400_000), (20, 600_000)]);
        for (us, load) in [
            (50, 2.0),
            (100, 4.0),
            (500, 16.0),
            (600, 20.0),
            (1000, 20.0),
        ] {
            let found = curve.load_within(us);
            assert!((found - load).abs() < 1e-9, "{us}: {found}");
        }
    }
}
