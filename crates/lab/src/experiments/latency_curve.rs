//! Latency against offered load.

use flashyard_flash::Profile;
use flashyard_flash::ssd::Condition;
use flashyard_time::Duration;

use super::columns::{
    CONDITION, IOPS, KIND, LOST, MAX, MEAN, OFFERED, P50, P99, P999, PROFILE, column,
};
use super::drive;
use super::figures::{self, Figures};
use super::outcome::fold_digests;
use crate::bench::{Results, Setup};
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::load::{Pace, Pattern, Worker};
use crate::measure::{Tally, mean_us, percentile_us};
use crate::report::{
    Axis, Chart, ChartKind, Column, Got, Mark, MarkAt, Promise, Report, Scale, Series, Unit, Value,
};
use crate::{parallel, policies};

/// See [`Experiment::claim`].
pub(super) struct LatencyCurve;

const CLAIM: &str = "Latency stays flat until a drive is nearly full, and then rises. For reads the knee is \
wide: page senses queue at the dies, and the mean has doubled at three quarters of the rate that the drive reaches. \
For writes it is sharp: the buffer hides the flash up to the very rate of programming and collection, and a step \
beyond it a write takes a thousand times as long. For 4 KiB on a fragmented drive that rate is a tenth of that of \
reads. I/Os arrive at random (a Poisson process) whether or not others are done; the offered load is a part of what \
the drive reaches when 256 I/Os are always under way.";

const SETTINGS: [Setting; 5] = [
    Setting {
        key: "profile",
        default: "dct983",
        domain: Domain::Profiles,
        meaning: "the drives",
    },
    Setting {
        key: "condition",
        default: "clean,fragmented",
        domain: Domain::Conditions,
        meaning: "what was done to the drives before",
    },
    Setting {
        key: "kind",
        default: "read-4k,write-4k,read-128k,write-128k",
        domain: Domain::Words(&KINDS),
        meaning: "which I/O: of 4 KiB at random, of 128 KiB one after another",
    },
    Setting {
        key: "gib",
        default: "8",
        domain: Domain::Number(1, 1024),
        meaning: "capacity of the drives in GiB",
    },
    Setting {
        key: "ms",
        default: "1000",
        domain: Domain::Number(1, 3_600_000),
        meaning: "milliseconds that are measured of each point for reads; writes take four times as long",
    },
];

const KINDS: [&str; 4] = ["read-4k", "write-4k", "read-128k", "write-128k"];

const COLUMNS: [Column; 12] = [
    PROFILE,
    CONDITION,
    KIND,
    column("load_percent", "load", Unit::Percent),
    OFFERED,
    IOPS,
    LOST,
    MEAN,
    P50,
    P99,
    P999,
    MAX,
];

/// Offered load in percent of what the drive reaches.
const LOADS: [u64; 14] = [5, 10, 20, 30, 40, 50, 60, 70, 80, 85, 90, 95, 98, 102];
const QUICK_LOADS: [u64; 3] = [20, 80, 102];

/// A curve.
#[derive(Clone)]
struct Case {
    profile: Profile,
    condition: Condition,
    kind: &'static str,
}

/// A point of a curve under one seed.
struct Job {
    case: usize,
    /// I/Os per second.
    offered: u64,
    seed: u64,
}

const PROMISES: [Promise; 1] = [Promise {
    wanted: "The mean of 4 KiB reads of a fragmented `dct983` has at most doubled at 70 % of what it reaches",
    judge: |rows| {
        let reads = rows
            .with("profile", "dct983")
            .with("condition", "fragmented")
            .with("kind", "read-4k");
        let least = reads.numbers("mean_us").into_iter().reduce(f64::min)?;
        let at = reads.that(|row| row.number("load_percent") <= Some(70.0));
        Got::at_most(&at.each(|row| Some(row.number("mean_us")? / least)), 2.0)
    },
}];

impl Experiment for LatencyCurve {
    fn name(&self) -> &'static str {
        "ssd-latency-curve"
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
        let (cases, notes) = cases(context)?;
        let loads: &[u64] = if context.quick { &QUICK_LOADS } else { &LOADS };
        let parts = cases.len() * (1 + loads.len() * context.seed_count as usize);
        context.progress.begin(parts as u64);
        let ceilings = ceilings(context, &cases)?;
        let jobs = jobs(context, &ceilings, loads);
        let seeds = context.seed_count as usize;
        let results = parallel::first_groups(context.progress, &jobs, seeds, |job| {
            let case = &cases[job.case];
            let result = measure(context, case, Pace::poisson(job.offered), job.seed);
            context.progress.step(&format!(
                "{} at {} I/Os per second",
                case.label(),
                job.offered
            ));
            result
        })?;
        let digest = fold_digests(&results);
        let mut tallies = results
            .into_iter()
            .map(|mut results| results.workers.remove(0));
        let mut points = Vec::new();
        for (case, ceiling) in cases.iter().zip(&ceilings) {
            for load in loads {
                let tallies: Vec<_> = tallies.by_ref().take(seeds).collect();
                if tallies.is_empty() {
                    break;
                }
                points.push(Point {
                    case,
                    load: *load,
                    offered: ceiling * load / 100,
                    figures: Figures(tallies),
                });
            }
        }
        Ok(Report {
            rows: points.iter().map(Point::row).collect(),
            charts: charts(&cases, &points),
            notes,
            ..Report::of(self, context, digest, &COLUMNS)
        })
    }
}

/// A point of a curve under all seeds.
struct Point<'a> {
    case: &'a Case,
    load: u64,
    offered: u64,
    figures: Figures,
}

impl Case {
    fn label(&self) -> String {
        format!("{} {} {}", self.profile.name, self.condition, self.kind)
    }

    fn reads(&self) -> bool {
        self.kind.starts_with("read")
    }

    fn pattern(&self) -> Pattern {
        let reads = if self.reads() { 100 } else { 0 };
        if self.kind.ends_with("4k") {
            Pattern::random(reads, 4096)
        } else {
            Pattern::sequential(reads, 131_072)
        }
    }

    /// Whether the condition is still the same after a while of this I/O.
    fn keeps_its_condition(&self) -> bool {
        match self.kind {
            "write-4k" => self.condition == Condition::Fragmented(100),
            "write-128k" => self.condition == Condition::Clean,
            _ => true,
        }
    }
}

impl Point<'_> {
    fn row(&self) -> Vec<Value> {
        let [mean, p50, p99, p999, max] = self.figures.latencies();
        vec![
            Value::Text(self.case.profile.name.clone()),
            Value::Text(self.case.condition.to_string()),
            Value::Text(self.case.kind.into()),
            Value::Count(self.load),
            Value::Count(self.offered),
            self.figures.rate(Tally::iops),
            self.figures.rate(|tally| tally.lost as f64),
            mean,
            p50,
            p99,
            p999,
            max,
        ]
    }
}

/// All curves asked for that mean something, and a note where one does not.
fn cases(context: &Context) -> Result<(Vec<Case>, Vec<String>), Refused> {
    let (mut cases, mut notes) = (Vec::new(), Vec::new());
    for profile in drive::profiles(&context.words("profile"))? {
        for condition in drive::conditions(&context.words("condition")) {
            for kind in KINDS
                .into_iter()
                .filter(|kind| context.words("kind").contains(kind))
            {
                let case = Case {
                    profile: profile.clone(),
                    condition,
                    kind,
                };
                if case.keeps_its_condition() {
                    cases.push(case);
                } else {
                    notes.push(format!(
                        "{} is left out: such writes change the condition of the drive.",
                        case.label()
                    ));
                }
            }
        }
    }
    if cases.is_empty() {
        return Err(Refused::Conflict(format!(
            "nothing is left to measure. {}",
            notes.join(" ")
        )));
    }
    Ok((cases, notes))
}

/// I/Os per second that each case reaches.
fn ceilings(context: &Context, cases: &[Case]) -> Result<Vec<u64>, Refused> {
    let reached = parallel::map(context.progress, cases, |case| {
        let results = measure(context, case, Pace::Closed { depth: 256 }, context.seed);
        context
            .progress
            .step(&format!("{} at its limit", case.label()));
        results.map(|results| results.workers[0].iops() as u64)
    })?;
    reached.into_iter().collect()
}

fn jobs(context: &Context, ceilings: &[u64], loads: &[u64]) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (case, ceiling) in ceilings.iter().enumerate() {
        for load in loads {
            let offered = ceiling * load / 100;
            jobs.extend(context.seeds().map(|seed| Job {
                case,
                offered,
                seed,
            }));
        }
    }
    jobs
}

fn measure(context: &Context, case: &Case, pace: Pace, seed: u64) -> Result<Results, Refused> {
    let gib = if context.quick {
        1
    } else {
        context.number("gib")
    };
    let span = Duration::from_ms(if context.quick {
        20
    } else {
        context.number("ms")
    });
    let span = if case.reads() { span } else { span * 4 };
    let device = drive::build(&case.profile, gib, seed, case.condition)?;
    let worker = Worker::new(case.kind, 1, pace, case.pattern());
    let setup = Setup::new(device, policies::fifo(), vec![worker]);
    Ok(setup.measured(span.scale(1, 4), span).seeded(seed).run()?)
}

/// A chart for reads and one for writes.
fn charts(cases: &[Case], points: &[Point]) -> Vec<Chart> {
    let chart = |name, what: &str, claim: &str, reads| Chart {
        name,
        title: format!("Latency of {what} against offered load"),
        claim: claim.into(),
        kind: ChartKind::Lines,
        x: Axis {
            label: "offered load".into(),
            unit: Unit::Percent,
            scale: Scale::Linear,
        },
        y: Axis {
            label: "latency".into(),
            unit: Unit::Micros,
            scale: Scale::Log,
        },
        series: series(cases, points, reads),
        marks: vec![
            Mark {
                label: "Gimbal's lower threshold".into(),
                at: MarkAt::Y(250.0),
            },
            Mark {
                label: "Gimbal's upper threshold".into(),
                at: MarkAt::Y(1500.0),
            },
        ],
    };
    let reads = "Reads slow down gradually: the mean has doubled long before the drive is full.";
    let writes =
        "Writes are cheap up to the limit of flash or collection, and then at once very dear.";
    [
        chart("reads", "reads", reads, true),
        chart("writes", "writes", writes, false),
    ]
    .into_iter()
    .filter(|chart| !chart.series.is_empty())
    .collect()
}

/// Mean and p99 of every curve of this direction.
fn series(cases: &[Case], points: &[Point], reads: bool) -> Vec<Series> {
    let mut series = Vec::new();
    for case in cases.iter().filter(|case| case.reads() == reads) {
        let mine = || points.iter().filter(|point| std::ptr::eq(point.case, case));
        let line = |figure: &dyn Fn(&Tally) -> Option<f64>| {
            mine()
                .map(|point| (point.load as f64, point.figures.mean(figure)))
                .collect()
        };
        series.push(Series {
            label: format!("{}, mean", case.label()),
            points: line(&|tally| mean_us(&tally.total())),
        });
        series.push(Series {
            label: format!("{}, p99", case.label()),
            points: line(&|tally| percentile_us(&tally.total(), figures::P99)),
        });
    }
    series
}
