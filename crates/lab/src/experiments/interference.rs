//! How reads and writes slow each other down.

use flashyard_flash::Profile;
use flashyard_flash::ssd::Condition;
use flashyard_time::Duration;

use super::columns::{
    BANDWIDTH, CONDITION, F_UTIL, IOPS, KIND, MAX, MEAN, P50, P99, P999, POLICY, PROFILE, READS,
    WORKER, column,
};
use super::drive;
use super::figures::{self, Figures};
use super::outcome::fold_digests;
use crate::bench::{Results, Setup};
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::load::{Pace, Pattern, Worker};
use crate::measure::{Tally, f_util, mean_us, percentile_us};
use crate::report::{
    Axis, Chart, ChartKind, Column, Got, Promise, Report, Scale, Series, Unit, Value,
};
use crate::{parallel, policies};

/// See [`Experiment::claim`].
pub(super) struct Interference;

const CLAIM: &str = "Writes hurt reads far more than their number says, because a program or an erase occupies a \
die for as long as dozens of reads. Mixing 30 % of writes into random reads on a fragmented drive leaves less than a \
third of the I/Os. How long a single read waits beside a writer depends on what the drive does with a program in \
progress: drives that write equally fast (the variants of the profile) differ by a factor of seven in p99. Without a \
policy other than first in, first out, this is what tenants do to each other.";

const SETTINGS: [Setting; 3] = [
    Setting {
        key: "profile",
        default: "dct983,dct983-a0,dct983-b,dct983-c,dct983-d",
        domain: Domain::Profiles,
        meaning: "the drives; the mixes are measured on the first",
    },
    Setting {
        key: "gib",
        default: "8",
        domain: Domain::Number(1, 1024),
        meaning: "capacity of the drives in GiB",
    },
    Setting {
        key: "ms",
        default: "3000",
        domain: Domain::Number(1, 3_600_000),
        meaning: "milliseconds that are measured of each scene, after half as long",
    },
];

const COLUMNS: [Column; 15] = [
    POLICY,
    column("scene", "scene", Unit::None),
    PROFILE,
    CONDITION,
    WORKER,
    KIND,
    READS,
    BANDWIDTH,
    IOPS,
    F_UTIL,
    MEAN,
    P50,
    P99,
    P999,
    MAX,
];

/// Percent of reads in the mixes.
const MIXES: [u32; 7] = [100, 90, 70, 50, 30, 10, 0];
const QUICK_MIXES: [u32; 2] = [100, 70];
/// Readers and as many writers of the crowd.
const CROWD: u32 = 8;

/// What is on the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workload {
    /// One worker that mixes so many percent of reads into its writes, 128 in flight.
    Mix(u32),
    /// One reader, one at a time.
    Reader,
    /// The same, beside a writer with 32 in flight.
    ReaderAndWriter,
    /// A reader with 32 in flight, as it is in the crowd.
    ReaderOfCrowd,
    /// A writer with 32 in flight, as it is in the crowd.
    WriterOfCrowd,
    /// Eight readers and eight writers with 32 in flight each.
    Crowd,
}

/// A workload on a drive.
struct Scenario {
    policy: &'static str,
    workload: Workload,
    profile: Profile,
    condition: Condition,
    /// 4 KiB at random, or 128 KiB one after another.
    large: bool,
}

const PROMISES: [Promise; 1] = [Promise {
    wanted: "30 % of writes leave less than a third of the I/Os of a fragmented `dct983`",
    judge: |rows| {
        let scene = rows
            .with("scene", "mix")
            .with("profile", "dct983")
            .with("condition", "fragmented");
        let iops = |reads: f64| -> f64 {
            let mix = scene.with("kind", "4k");
            let mix = mix.that(|row| row.number("reads_percent") == Some(reads));
            mix.numbers("iops").iter().sum()
        };
        let all = iops(100.0);
        Got::at_most(&[(all > 0.0).then(|| iops(70.0) / all)?], 0.333)
    },
}];

impl Experiment for Interference {
    fn name(&self) -> &'static str {
        "ssd-interference"
    }

    fn claim(&self) -> &'static str {
        CLAIM
    }

    fn settings(&self) -> &'static [Setting] {
        &SETTINGS
    }

    fn policies(&self) -> &'static [&'static str] {
        &["fifo"]
    }

    fn promises(&self) -> &'static [Promise] {
        &PROMISES
    }

    fn run(&self, context: &Context) -> Result<Report, Refused> {
        let scenarios = scenarios(context)?;
        let jobs: Vec<_> = scenarios
            .iter()
            .flat_map(|scenario| context.seeds().map(move |seed| (scenario, seed)))
            .collect();
        context.progress.begin(jobs.len() as u64);
        let seeds = context.seed_count as usize;
        let results =
            parallel::first_groups(context.progress, &jobs, seeds, |(scenario, seed)| {
                let results = measure_all(context, scenario, *seed);
                context.progress.step(&scenario.label());
                results
            })?;
        let digest = fold_digests(&results);
        let played: Vec<_> = scenarios.iter().zip(results.chunks(seeds)).collect();
        Ok(Report {
            rows: played
                .iter()
                .flat_map(|(scenario, results)| scenario.rows(results, &played))
                .collect(),
            charts: vec![mix_chart(&played), tail_chart(&played)],
            ..Report::of(self, context, digest, &COLUMNS)
        })
    }
}

/// A scenario and what came of it under each seed.
type Observed<'a> = (&'a Scenario, &'a [Results]);

impl Scenario {
    fn label(&self) -> String {
        format!(
            "{}: {} {}",
            self.scenario(),
            self.profile.name,
            self.condition
        )
    }

    fn scenario(&self) -> &'static str {
        match self.workload {
            Workload::Mix(_) => "mix",
            Workload::Reader | Workload::ReaderOfCrowd | Workload::WriterOfCrowd => "alone",
            Workload::ReaderAndWriter => "one reader, one writer",
            Workload::Crowd => "8 readers, 8 writers",
        }
    }

    fn kind(&self) -> &'static str {
        if self.large { "128k" } else { "4k" }
    }

    fn workers(&self) -> Vec<Worker> {
        let worker = |label: &str, tenant, depth, reads| {
            let pattern = if self.large {
                Pattern::sequential(reads, 131_072)
            } else {
                Pattern::random(reads, 4096)
            };
            Worker::new(label, tenant, Pace::Closed { depth }, pattern)
        };
        match self.workload {
            Workload::Mix(reads) => vec![worker("mixed", 1, 128, reads)],
            Workload::Reader => vec![worker("reader, QD 1", 1, 1, 100)],
            Workload::ReaderAndWriter => {
                vec![
                    worker("reader, QD 1", 1, 1, 100),
                    worker("writer, QD 32", 2, 32, 0),
                ]
            }
            Workload::ReaderOfCrowd => vec![worker("reader, QD 32", 1, 32, 100)],
            Workload::WriterOfCrowd => vec![worker("writer, QD 32", 1, 32, 0)],
            Workload::Crowd => crowd(),
        }
    }

    /// A row for each worker, or for the reads and the writes of one that mixes them.
    fn rows(&self, results: &[Results], played: &[Observed]) -> Vec<Vec<Value>> {
        let row = |label: &str, reads, workers| self.row(label, reads, &of(results, workers), None);
        match self.workload {
            Workload::Mix(share) => self.rows_of_mix(share, &of(results, 0..1)),
            Workload::Reader => vec![row("reader, QD 1", 100, 0..1)],
            Workload::ReaderOfCrowd => vec![row("reader, QD 32", 100, 0..1)],
            Workload::WriterOfCrowd => vec![row("writer, QD 32", 0, 0..1)],
            Workload::ReaderAndWriter => {
                vec![
                    row("reader, QD 1", 100, 0..1),
                    row("writer, QD 32", 0, 1..2),
                ]
            }
            Workload::Crowd => self.rows_of_crowd(results, played),
        }
    }

    fn rows_of_mix(&self, share: u32, all: &Figures) -> Vec<Vec<Value>> {
        let (reads, writes) = all.sides();
        let mut rows = Vec::new();
        if share > 0 {
            rows.push(self.row("reads of QD 128", share, &reads, None));
        }
        if share < 100 {
            rows.push(self.row("writes of QD 128", share, &writes, None));
        }
        rows
    }

    fn rows_of_crowd(&self, results: &[Results], played: &[Observed]) -> Vec<Vec<Value>> {
        let workers = 2 * CROWD as usize;
        let row = |label: &str, reads, range, alone| {
            let all = of(results, range);
            let alone = self.of_the_same_drive(alone, played).bandwidth();
            let share = f_util(all.bandwidth() / f64::from(CROWD), alone, workers);
            self.row(label, reads, &all, Some(share))
        };
        vec![
            row(
                "8 readers, QD 32",
                100,
                0..workers / 2,
                Workload::ReaderOfCrowd,
            ),
            row(
                "8 writers, QD 32",
                0,
                workers / 2..workers,
                Workload::WriterOfCrowd,
            ),
        ]
    }

    /// What a workload of one worker got on the drive of this scenario.
    fn of_the_same_drive(&self, workload: Workload, played: &[Observed]) -> Figures {
        let same = |(scenario, _): &&Observed| {
            scenario.workload == workload
                && scenario.policy == self.policy
                && scenario.profile == self.profile
                && scenario.condition == self.condition
        };
        let found = played.iter().find(same);
        of(
            found.expect("every crowd comes with its workers alone").1,
            0..1,
        )
    }

    fn row(&self, worker: &str, reads: u32, figures: &Figures, f_util: Option<f64>) -> Vec<Value> {
        let [mean, p50, p99, p999, max] = figures.latencies();
        vec![
            Value::Text(self.policy.into()),
            Value::Text(self.scenario().into()),
            Value::Text(self.profile.name.clone()),
            Value::Text(self.condition.to_string()),
            Value::Text(worker.into()),
            Value::Text(self.kind().into()),
            Value::Count(u64::from(reads)),
            figures.rate(Tally::bytes_per_second),
            figures.rate(Tally::iops),
            f_util.map_or(Value::Missing, Value::Real),
            mean,
            p50,
            p99,
            p999,
            max,
        ]
    }
}

fn crowd() -> Vec<Worker> {
    let pace = Pace::Closed { depth: 32 };
    let reader = |tenant| Worker::new("reader", tenant, pace, Pattern::random(100, 4096));
    let writer = |tenant| Worker::new("writer", tenant, pace, Pattern::random(0, 4096));
    let readers = (1..=CROWD).map(reader);
    readers.chain((CROWD + 1..=2 * CROWD).map(writer)).collect()
}

/// All scenarios of all policies: mixes on the first drive, in both conditions; then each drive
/// with readers and writers.
fn scenarios(context: &Context) -> Result<Vec<Scenario>, Refused> {
    let mut profiles = drive::profiles(&context.words("profile"))?;
    if context.quick {
        profiles.truncate(1);
    }
    let mut scenarios = Vec::new();
    for policy in &context.policies {
        mixes(context, policy, &profiles[0], &mut scenarios);
        for profile in &profiles {
            encounters(policy, profile, &mut scenarios);
        }
    }
    Ok(scenarios)
}

fn mixes(
    context: &Context,
    policy: &'static str,
    profile: &Profile,
    scenarios: &mut Vec<Scenario>,
) {
    let shares: &[u32] = if context.quick { &QUICK_MIXES } else { &MIXES };
    for (condition, large) in [(FRAGMENTED, false), (Condition::Clean, true)] {
        let profile = || profile.clone();
        let scenario = |&reads: &u32| Scenario {
            policy,
            workload: Workload::Mix(reads),
            profile: profile(),
            condition,
            large,
        };
        scenarios.extend(shares.iter().map(scenario));
    }
}

fn encounters(policy: &'static str, profile: &Profile, scenarios: &mut Vec<Scenario>) {
    let workloads = [
        Workload::Reader,
        Workload::ReaderAndWriter,
        Workload::ReaderOfCrowd,
        Workload::WriterOfCrowd,
        Workload::Crowd,
    ];
    let scenario = |workload| Scenario {
        policy,
        workload,
        profile: profile.clone(),
        condition: FRAGMENTED,
        large: false,
    };
    scenarios.extend(workloads.map(scenario));
}

const FRAGMENTED: Condition = Condition::Fragmented(100);

fn measure_all(context: &Context, scenario: &Scenario, seed: u64) -> Result<Results, Refused> {
    let gib = if context.quick {
        1
    } else {
        context.number("gib")
    };
    let span = Duration::from_ms(if context.quick {
        40
    } else {
        context.number("ms")
    });
    let device = drive::build(&scenario.profile, gib, seed, scenario.condition)?;
    let policy = policies::named(scenario.policy).ok_or_else(|| {
        Refused::Conflict(format!(
            "`{}` has to be calibrated for its drive, which this experiment does not do",
            scenario.policy
        ))
    })?;
    let setup = Setup::new(device, policy, scenario.workers());
    Ok(setup.measured(span / 2, span).seeded(seed).run()?)
}

/// What some workers got together, under each seed.
fn of(results: &[Results], workers: std::ops::Range<usize>) -> Figures {
    let together = |results: &Results| {
        let mut tallies = results.workers[workers.clone()].iter().cloned();
        let mut sum = tallies.next().expect("a scene has workers");
        tallies.for_each(|tally| sum.merge(&tally));
        sum
    };
    Figures(results.iter().map(together).collect())
}

/// Bandwidth against the share of reads, for both conditions.
fn mix_chart(played: &[Observed]) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    for (scenario, results) in played {
        let Workload::Mix(reads) = scenario.workload else {
            continue;
        };
        let label = format!(
            "{}, {} {}",
            scenario.policy,
            scenario.condition,
            scenario.kind()
        );
        let point = (f64::from(reads), of(results, 0..1).bandwidth());
        match series.iter_mut().find(|known| known.label == label) {
            Some(known) => known.points.insert(0, point),
            None => series.push(Series {
                label,
                points: vec![point],
            }),
        }
    }
    Chart {
        name: "mix",
        title: "Bandwidth against the share of reads".into(),
        claim: "A few writes take most of what a drive gives to reads, most of all where it is fragmented.".into(),
        kind: ChartKind::Lines,
        x: Axis { label: "reads".into(), unit: Unit::Percent, scale: Scale::Linear },
        y: Axis { label: "bandwidth, both ways".into(), unit: Unit::BytesPerSecond, scale: Scale::Linear },
        series,
        marks: Vec::new(),
    }
}

/// A read at a time, alone and beside a writer, on every drive.
fn tail_chart(played: &[Observed]) -> Chart {
    let mut categories = Vec::new();
    let of_cast = |workload| {
        played
            .iter()
            .filter(move |(scenario, _)| scenario.workload == workload)
    };
    for (scenario, _) in of_cast(Workload::Reader) {
        categories.push(format!("{}, {}", scenario.profile.name, scenario.policy));
    }
    let bars = |label: &str, workload, figure: &dyn Fn(&Tally) -> Option<f64>| Series {
        label: label.into(),
        points: of_cast(workload)
            .enumerate()
            .map(|(place, (_, results))| (place as f64, of(results, 0..1).mean(figure)))
            .collect(),
    };
    let mean = |tally: &Tally| mean_us(&tally.total());
    let p99 = |tally: &Tally| percentile_us(&tally.total(), figures::P99);
    Chart {
        name: "tail",
        title: "One read at a time, alone and beside a writer".into(),
        claim: "The same writer costs a read a little or a lot, as the drive treats a program in progress.".into(),
        kind: ChartKind::Bars { categories },
        x: Axis { label: "profile".into(), unit: Unit::None, scale: Scale::Linear },
        y: Axis { label: "latency of the reads".into(), unit: Unit::Micros, scale: Scale::Linear },
        series: vec![
            bars("alone, mean", Workload::Reader, &mean),
            bars("beside a writer, mean", Workload::ReaderAndWriter, &mean),
            bars("alone, p99", Workload::Reader, &p99),
            bars("beside a writer, p99", Workload::ReaderAndWriter, &p99),
        ],
        marks: Vec::new(),
    }
}
