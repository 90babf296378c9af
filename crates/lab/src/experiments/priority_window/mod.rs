//! How many completions to coalesce, and what that does to a latency-sensitive tenant.

mod device;
mod world;

use flashyard_nvme::feature::CompletionCoalescing;
use flashyard_time::Duration;

use self::world::{Measured, Scenario};
use super::columns::{IOPS, KIND, MEAN, P99, column};
use super::figures::{self, Figures};
use crate::bench::fold;
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::measure::{Estimate, Tally, mean_us, percentile_us};
use crate::parallel;
use crate::report::{
    Axis, Chart, ChartKind, Column, Got, Mark, MarkAt, Promise, Report, Rows, Scale, Series, Unit,
    Value,
};

/// See [`Experiment::claim`].
pub(super) struct PriorityWindow;

const CLAIM: &str = "An answer in a packet of its own costs both ends more than the I/O, unless the network is what holds everything up. One \
tenant has 128 I/Os of 4 KiB under way and wants many, another one has one and wants it soon; each has a host of its own, the target has one \
core, and the device takes 60 to 100 us for an I/O and any number of them. How many answers are told at once is the window; 1 is each by \
itself. This is the engine and the host library as they are, in the simulated world: a send costs its core 2 us, a receive 0.5 us and 1 us for \
each piece of up to 64 KiB that came, everything else 0.9 us for each I/O and end; packets have 1448 bytes and 90 more on the line, which all \
connections of a machine share in turn. At 25 Gbit/s cores are what holds everything up, at 5 Gbit/s the line is at every window, at 10 Gbit/s \
from a window of 2 on. Wanted: at the best window 35.9 % more than at a window of 1 where the line has room, the adaptive window within 3 % of \
the best and never below a window of 1, and the latency-sensitive tenant not slower than at a window of 1.";

const LINES: [&str; 4] = ["5g", "10g", "25g", "100g"];
const WINDOWS: [&str; 9] = ["1", "2", "4", "8", "16", "32", "64", "adaptive", "unasked"];

const SETTINGS: [Setting; 4] = [
    Setting {
        key: "network",
        default: "5g,10g,25g",
        domain: Domain::Words(&LINES),
        meaning: "bits per second of each machine's line",
    },
    Setting {
        key: "kind",
        default: "read,write",
        domain: Domain::Words(&["read", "write"]),
        meaning: "what both tenants do",
    },
    Setting {
        key: "window",
        default: "1,2,4,8,16,32,64,adaptive,unasked",
        domain: Domain::Words(&WINDOWS),
        meaning: "windows that the hosts ask for; adaptive leaves it to the target, unasked is a host that knows of no windows",
    },
    Setting {
        key: "ms",
        default: "200",
        domain: Domain::Number(1, 10_000),
        meaning: "milliseconds that are measured",
    },
];

const COLUMNS: [Column; 12] = [
    column("network", "network", Unit::None),
    KIND,
    column("window", "window", Unit::None),
    IOPS,
    column("gain_percent", "more than at window 1", Unit::Percent),
    column("of_best_percent", "of the best window", Unit::Percent),
    MEAN,
    P99,
    column("latency_mean_us", "mean, latency-sensitive", Unit::Micros),
    column("latency_p99_us", "p99, latency-sensitive", Unit::Micros),
    column(
        "latency_mean_ratio",
        "mean, latency-sensitive over window 1",
        Unit::Ratio,
    ),
    column("sends_per_io", "sends per I/O", Unit::Ratio),
];

/// Encounters that differ in their window only.
struct Row {
    line: String,
    kind: String,
    window: String,
    bulk: Figures,
    sensitive: Figures,
    sends: Vec<f64>,
    digest: u64,
}

const PROMISES: [Promise; 4] = [
    Promise {
        wanted: "Where the line has room (25 Gbit/s), the best window gives at least 35.9 % more than a window of 1",
        judge: |rows| {
            Got::at_least(
                &[greatest(
                    &rows.with("network", "25 Gbit/s").numbers("gain_percent"),
                )?],
                35.9,
            )
        },
    },
    Promise {
        wanted: "The adaptive window gives at least 97 % of the best",
        judge: |rows| Got::at_least(&adaptive(rows).numbers("of_best_percent"), 97.0),
    },
    Promise {
        wanted: "It is nowhere below a window of 1 (by half a percent at most)",
        judge: |rows| Got::at_least(&adaptive(rows).numbers("gain_percent"), -0.5),
    },
    Promise {
        wanted: "With it the latency-sensitive tenant is not slower than at a window of 1",
        judge: |rows| Got::at_most(&adaptive(rows).numbers("latency_mean_ratio"), 1.0),
    },
];

/// Rows in which the target chooses.
fn adaptive<'a>(rows: &Rows<'a>) -> Rows<'a> {
    rows.with("window", "adaptive")
}

fn greatest(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}

impl Experiment for PriorityWindow {
    fn name(&self) -> &'static str {
        "priority-window"
    }

    fn claim(&self) -> &'static str {
        CLAIM
    }

    fn settings(&self) -> &'static [Setting] {
        &SETTINGS
    }

    fn promises(&self) -> &'static [Promise] {
        &PROMISES
    }

    fn run(&self, context: &Context) -> Result<Report, Refused> {
        let rows = measure_all(context)?;
        Ok(Report {
            rows: rows.iter().map(|row| row.values(&rows)).collect(),
            charts: charts(&rows),
            ..Report::of(
                self,
                context,
                rows.iter().map(|row| row.digest).fold(0, fold),
                &COLUMNS,
            )
        })
    }
}

/// All combinations under each seed, or the first ones when the run is stopped.
fn measure_all(context: &Context) -> Result<Vec<Row>, Refused> {
    let mut cells = Vec::new();
    for line in context.words("network") {
        for kind in context.words("kind") {
            for window in context.words("window") {
                cells.push((line, kind, window));
            }
        }
    }
    let seeds: Vec<u64> = context.seeds().collect();
    let (warm_up, span) = if context.quick {
        (Duration::from_ms(1), Duration::from_ms(3))
    } else {
        (
            Duration::from_ms(20),
            Duration::from_ms(context.number("ms")),
        )
    };
    let scenario = |&(line, kind, window): &(&str, &str, &str), seed| Scenario {
        line: bits_per_second(line),
        write: kind == "write",
        asked: asked(window),
        seed,
        warm_up,
        span,
    };
    let jobs = cells
        .iter()
        .flat_map(|cell| seeds.iter().map(|&seed| scenario(cell, seed)));
    let jobs: Vec<Scenario> = jobs.collect();
    context.progress.begin(jobs.len() as u64);
    let met = parallel::first_groups(context.progress, &jobs, seeds.len(), |scenario| {
        let met = scenario.measure_all();
        context.progress.step(&format!("{scenario:?}"));
        Ok(met)
    })?;
    let measured = &cells[..met.len() / seeds.len()];
    let mut met = met.into_iter();
    let row = |&(line, kind, window): &(&str, &str, &str)| {
        let met: Vec<Measured> = met.by_ref().take(seeds.len()).collect();
        Row {
            line: line.into(),
            kind: kind.into(),
            window: window.into(),
            sends: met.iter().map(|met| met.sends).collect(),
            digest: met.iter().map(|met| met.digest).fold(0, fold),
            bulk: Figures(met.iter().map(|met| met.bulk.clone()).collect()),
            sensitive: Figures(met.into_iter().map(|met| met.sensitive).collect()),
        }
    };
    Ok(measured.iter().map(row).collect())
}

/// Bits per second of `10g`.
fn bits_per_second(line: &str) -> u64 {
    let giga = line.trim_end_matches('g').parse().unwrap_or(1);
    1_000_000_000_u64 * giga
}

/// What a host asks for; answers that are held are packed as well.
fn asked(window: &str) -> Option<CompletionCoalescing> {
    match window {
        "unasked" => None,
        "adaptive" => Some(CompletionCoalescing {
            window: 0,
            packed: true,
        }),
        number => {
            let window = number.parse().expect("settings are checked");
            Some(CompletionCoalescing {
                window,
                packed: window > 1,
            })
        }
    }
}

impl Row {
    /// The other rows of the same network and kind.
    fn like<'a>(&self, rows: &'a [Row]) -> impl Iterator<Item = &'a Row> {
        let (line, kind) = (self.line.clone(), self.kind.clone());
        rows.iter()
            .filter(move |row| row.line == line && row.kind == kind)
    }

    fn single<'a>(&self, rows: &'a [Row]) -> Option<&'a Row> {
        self.like(rows).find(|row| row.window == "1")
    }

    fn iops(&self) -> f64 {
        self.bulk.mean(|tally| Some(tally.iops()))
    }

    fn sensitive_mean(&self) -> f64 {
        self.sensitive.mean(|tally| mean_us(&tally.total()))
    }

    /// Percent of throughput more than at window 1.
    fn gain(&self, rows: &[Row]) -> Option<f64> {
        let single = self.single(rows)?.iops();
        (single > 0.0).then(|| 100.0 * (self.iops() / single - 1.0))
    }

    fn values(&self, rows: &[Row]) -> Vec<Value> {
        let real = |value: Option<f64>| {
            value
                .filter(|value| value.is_finite())
                .map_or(Value::Missing, Value::Real)
        };
        let best = self.like(rows).map(Row::iops).fold(0.0, f64::max);
        let ratio = self
            .single(rows)
            .map(|single| self.sensitive_mean() / single.sensitive_mean());
        let p99 =
            |figures: &Figures| figures.value(|tally| percentile_us(&tally.total(), figures::P99));
        let sends = Estimate::of(&self.sends).map_or(Value::Missing, figures::value_of);
        vec![
            Value::Text(format!("{} Gbit/s", self.line.trim_end_matches('g'))),
            Value::Text(format!("4 KiB {}", self.kind)),
            Value::Text(self.window.clone()),
            self.bulk.rate(Tally::iops),
            real(self.gain(rows)),
            real((best > 0.0).then(|| 100.0 * self.iops() / best)),
            self.bulk.value(|tally| mean_us(&tally.total())),
            p99(&self.bulk),
            self.sensitive.value(|tally| mean_us(&tally.total())),
            p99(&self.sensitive),
            real(ratio),
            sends,
        ]
    }
}

/// What a window gives one tenant and the other.
fn charts(rows: &[Row]) -> Vec<Chart> {
    let gain = chart(
        "gain",
        "Throughput by window",
        "Where the line has room, telling answers together gives more than half as much again; where it has none, nothing.",
        Axis {
            label: "more I/Os per second than at window 1".into(),
            unit: Unit::Percent,
            scale: Scale::Linear,
        },
        series(rows, &|row| row.gain(rows)),
        vec![Mark {
            label: "wanted".into(),
            at: MarkAt::Y(35.9),
        }],
    );
    let latency = chart(
        "latency",
        "The latency-sensitive tenant by window",
        "Its answers are never held: what it gains or loses is the time that sends of others take.",
        Axis {
            label: "mean latency".into(),
            unit: Unit::Micros,
            scale: Scale::Linear,
        },
        series(rows, &|row| Some(row.sensitive_mean())),
        Vec::new(),
    );
    vec![gain, latency]
}

fn chart(
    name: &'static str,
    title: &str,
    claim: &str,
    y: Axis,
    series: Vec<Series>,
    marks: Vec<Mark>,
) -> Chart {
    Chart {
        name,
        title: title.into(),
        claim: claim.into(),
        kind: ChartKind::Lines,
        x: Axis {
            label: "answers told at once".into(),
            unit: Unit::None,
            scale: Scale::Log,
        },
        y,
        series,
        marks,
    }
}

/// One for each network and kind, through the windows that are numbers.
fn series(rows: &[Row], figure: &dyn Fn(&Row) -> Option<f64>) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let (Ok(window), Some(value)) = (row.window.parse::<u32>(), figure(row)) else {
            continue;
        };
        let label = format!("{} Gbit/s, {}", row.line.trim_end_matches('g'), row.kind);
        let place = series.iter().position(|one| one.label == label);
        let place = place.unwrap_or_else(|| {
            series.push(Series {
                label,
                points: Vec::new(),
            });
            series.len() - 1
        });
        series[place].points.push((f64::from(window), value));
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Request, Silent};

    /// The bounds that the claim names, in a short run.
    #[test]
    fn windows_gain_where_the_line_has_room_and_the_adaptive_one_is_near_the_best_everywhere() {
        let request = Request {
            quick: true,
            ..Request::default()
        };
        let context = Context::new(&PriorityWindow, &request, &Silent).expect("defaults are sound");
        let rows = measure_all(&context).expect("it is not stopped");
        for row in &rows {
            let gain = row.gain(&rows).expect("window 1 is among them");
            let best = row.like(&rows).map(Row::iops).fold(0.0, f64::max);
            let what = format!("{}, {}, {}: {gain} %", row.line, row.kind, row.window);
            if row.window == "adaptive" || row.window == "unasked" {
                assert!(row.iops() >= 0.97 * best, "{what}");
                assert!(row.line != "25g" || gain >= 35.9, "{what}");
                // What quick runs move by chance, where the line decides.
                assert!(gain > -2.0, "{what}");
            }
            let single = row.single(&rows).expect("window 1 is among them");
            let slower = row.sensitive_mean() / single.sensitive_mean();
            let most = if row.line == "25g" { 1.25 } else { 1.05 };
            assert!(slower < most, "{what}, latency-sensitive {slower}");
        }
        assert_eq!(rows.len(), 3 * 2 * 9);
    }
}
