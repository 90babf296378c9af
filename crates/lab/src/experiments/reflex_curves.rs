//! Tail latency of reads against load in tokens, as ReFlex calibrates a drive.

use flashyard_flash::Profile;
use flashyard_flash::ssd::Condition;
use flashyard_time::Duration;

use super::columns::{PROFILE, READS, column};
use super::drive;
use super::figures::{self, Figures};
use super::outcome::fold_digests;
use crate::bench::{Results, Setup};
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::load::{Pace, Pattern, Worker};
use crate::measure::{Tally, percentile_us};
use crate::report::{
    Axis, Chart, ChartKind, Column, Mark, MarkAt, Report, Scale, Series, Unit, Value,
};
use crate::{parallel, policies};

/// See [`Experiment::claim`].
pub(super) struct ReflexCurves;

const CLAIM: &str = "ReFlex promises latency by handing out tokens, and assumes that with a write counted as several \
reads the tail latency of reads depends on the weighted load alone. The table holds that against a drive: for each \
share of reads it says up to which load the p95 of reads stays under a limit, beside the two drives that ReFlex was \
calibrated for (its files sample.devmodel and sample-aws-ec2.devmodel). Those are other drives than the ones modelled \
here: the shape compares, the values need not. Load is in percent of the tokens that reads alone use at the drive's \
limit; I/Os of 4 KiB arrive at random.";

const SETTINGS: [Setting; 4] = [
    Setting {
        key: "profile",
        default: "dct983",
        domain: Domain::Profiles,
        meaning: "the drives, all of them fragmented",
    },
    Setting {
        key: "write_cost",
        default: "9",
        domain: Domain::Number(1, 100),
        meaning: "tokens of a write, where a read costs one",
    },
    Setting {
        key: "gib",
        default: "8",
        domain: Domain::Number(1, 1024),
        meaning: "capacity of the drives in GiB",
    },
    Setting {
        key: "ms",
        default: "1500",
        domain: Domain::Number(1, 3_600_000),
        meaning: "milliseconds that are measured of each point, after a third as long",
    },
];

/// A limit of the p95 of reads, and the load in percent at which ReFlex's two drives (the first,
/// and the one of AWS) meet it.
struct Limit {
    us: u64,
    /// With writes among the I/Os.
    mixed: [Option<u64>; 2],
    /// With reads only; `None` where the file has no entry.
    reads_only: [Option<u64>; 2],
}

/// From stanford-mast/reflex, `sample.devmodel` and `sample-aws-ec2.devmodel`.
const LIMITS: [Limit; 6] = [
    limit(500, [Some(36), Some(60)], [Some(85), Some(95)]),
    limit(1000, [Some(50), Some(82)], [Some(95), Some(97)]),
    limit(1500, [Some(52), Some(87)], [Some(98), Some(100)]),
    limit(2000, [Some(57), Some(92)], [Some(100), None]),
    limit(2500, [Some(75), Some(97)], [None, None]),
    limit(3000, [Some(80), Some(100)], [None, None]),
];

const fn limit(us: u64, mixed: [Option<u64>; 2], reads_only: [Option<u64>; 2]) -> Limit {
    Limit {
        us,
        mixed,
        reads_only,
    }
}

const COLUMNS: [Column; 6] = [
    PROFILE,
    READS,
    column("p95_limit_us", "p95 of reads up to", Unit::Micros),
    column("load_percent", "load", Unit::Percent),
    column("reflex_1_percent", "ReFlex's drive", Unit::Percent),
    column("reflex_aws_percent", "ReFlex's AWS drive", Unit::Percent),
];

/// Percent of reads of the curves.
const SHARES: [u32; 6] = [100, 99, 95, 90, 75, 50];
const QUICK_SHARES: [u32; 2] = [100, 90];
/// The distance between two points of a curve, in percent of the tokens.
const STEP: u64 = 4;
const QUICK_STEP: u64 = 32;

/// A point of a curve under one seed.
struct Job<'a> {
    profile: &'a Profile,
    reads: u32,
    load: u64,
    /// I/Os per second.
    offered: u64,
    seed: u64,
}

/// A curve: load and figures of the reads.
struct Curve<'a> {
    profile: &'a Profile,
    reads: u32,
    points: Vec<(u64, Figures)>,
}

impl Experiment for ReflexCurves {
    fn name(&self) -> &'static str {
        "ssd-reflex-curves"
    }

    fn claim(&self) -> &'static str {
        CLAIM
    }

    fn settings(&self) -> &'static [Setting] {
        &SETTINGS
    }

    fn run(&self, context: &Context) -> Result<Report, Refused> {
        let profiles = drive::profiles(&context.words("profile"))?;
        let shares: &[u32] = if context.quick {
            &QUICK_SHARES
        } else {
            &SHARES
        };
        let loads: Vec<u64> = loads(context).collect();
        let per_drive = shares.len() * loads.len() * context.seed_count as usize;
        context
            .progress
            .begin((profiles.len() * (1 + per_drive)) as u64);
        let limits = parallel::map(context.progress, &profiles, |profile| {
            let limit = read_limit(context, profile);
            context
                .progress
                .step(&format!("{} at its limit", profile.name));
            limit
        })?;
        let limits = limits.into_iter().collect::<Result<Vec<_>, _>>()?;
        let jobs = jobs(context, &profiles, &limits, shares);
        let seeds = context.seed_count as usize;
        let results = parallel::first_groups(context.progress, &jobs, seeds, |job| {
            let pace = Pace::poisson(job.offered);
            let results = measure(context, job.profile, job.reads, pace, job.seed);
            context.progress.step(&format!(
                "{} with {} % of reads at {} % of the tokens",
                job.profile.name, job.reads, job.load
            ));
            results
        })?;
        let digest = fold_digests(&results);
        let curves = curves(context, &jobs, results);
        let note = |(profile, limit): (&Profile, &u64)| {
            format!(
                "{}: 100 % of the tokens are {limit} reads per second.",
                profile.name
            )
        };
        Ok(Report {
            rows: curves.iter().flat_map(Curve::rows).collect(),
            charts: vec![chart(&curves, profiles.len() > 1)],
            notes: profiles.iter().zip(&limits).map(note).collect(),
            ..Report::of(self, context, digest, &COLUMNS)
        })
    }
}

impl Curve<'_> {
    /// A row for each limit of latency.
    fn rows(&self) -> Vec<Vec<Value>> {
        let percent = |value: Option<u64>| value.map_or(Value::Missing, Value::Count);
        let row = |limit: &Limit| {
            let [first, aws] = if self.reads == 100 {
                limit.reads_only
            } else {
                limit.mixed
            };
            vec![
                Value::Text(self.profile.name.clone()),
                Value::Count(u64::from(self.reads)),
                Value::Count(limit.us),
                percent(self.load_within(limit.us)),
                percent(first),
                percent(aws),
            ]
        };
        LIMITS.iter().map(row).collect()
    }

    /// The greatest load below the first one whose p95 exceeds a limit; nothing when the least does
    /// already.
    fn load_within(&self, limit_us: u64) -> Option<u64> {
        let within = |(_, figures): &&(u64, Figures)| figures.mean(p95_of_reads) <= limit_us as f64;
        self.points
            .iter()
            .take_while(within)
            .last()
            .map(|(load, _)| *load)
    }
}

fn p95_of_reads(tally: &Tally) -> Option<f64> {
    percentile_us(&tally.reads.total, figures::P95)
}

fn loads(context: &Context) -> impl Iterator<Item = u64> + use<> {
    let step = if context.quick { QUICK_STEP } else { STEP };
    (1..)
        .map(move |place| place * step)
        .take_while(|load| *load <= 100)
}

fn jobs<'a>(
    context: &Context,
    profiles: &'a [Profile],
    limits: &[u64],
    shares: &[u32],
) -> Vec<Job<'a>> {
    let write_cost = context.number("write_cost");
    let mut jobs = Vec::new();
    for (profile, limit) in profiles.iter().zip(limits) {
        for &reads in shares {
            // Tokens of a hundred I/Os.
            let tokens = u64::from(reads) + u64::from(100 - reads) * write_cost;
            for load in loads(context) {
                let offered = limit * load / tokens;
                jobs.extend(context.seeds().map(|seed| Job {
                    profile,
                    reads,
                    load,
                    offered,
                    seed,
                }));
            }
        }
    }
    jobs
}

/// The results of the first jobs, in their order, as curves.
fn curves<'a>(context: &Context, jobs: &[Job<'a>], results: Vec<Results>) -> Vec<Curve<'a>> {
    let mut curves: Vec<Curve> = Vec::new();
    let seeds = context.seed_count as usize;
    let measured = &jobs[..results.len()];
    let mut tallies = results
        .into_iter()
        .map(|mut results| results.workers.remove(0));
    for job in measured.iter().step_by(seeds) {
        let point = (job.load, Figures(tallies.by_ref().take(seeds).collect()));
        match curves.last_mut() {
            Some(curve) if curve.profile == job.profile && curve.reads == job.reads => {
                curve.points.push(point);
            }
            _ => curves.push(Curve {
                profile: job.profile,
                reads: job.reads,
                points: vec![point],
            }),
        }
    }
    curves
}

/// Reads per second of the drive when 128 are always in flight: all of its tokens.
fn read_limit(context: &Context, profile: &Profile) -> Result<u64, Refused> {
    let pace = Pace::Closed { depth: 128 };
    let results = measure(context, profile, 100, pace, context.seed)?;
    Ok(results.workers[0].iops() as u64)
}

fn measure(
    context: &Context,
    profile: &Profile,
    reads: u32,
    pace: Pace,
    seed: u64,
) -> Result<Results, Refused> {
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
    let device = drive::build(profile, gib, seed, Condition::Fragmented(100))?;
    let worker = Worker::new("mixed", 1, pace, Pattern::random(reads, 4096));
    let setup = Setup::new(device, policies::fifo(), vec![worker]);
    Ok(setup.measured(span / 3, span).seeded(seed).run()?)
}

/// All curves; `named` when they are of several drives.
fn chart(curves: &[Curve], named: bool) -> Chart {
    let line = |curve: &Curve| {
        let drive = if named {
            format!("{}, ", curve.profile.name)
        } else {
            String::new()
        };
        let point = |(load, figures): &(u64, Figures)| (*load as f64, figures.mean(p95_of_reads));
        Series {
            label: format!("{drive}{} % reads", curve.reads),
            points: curve.points.iter().map(point).collect(),
        }
    };
    Chart {
        name: "p95",
        title: "p95 of reads against load in tokens".into(),
        claim: "A few writes move the curve far to the left of the one for reads alone; the more writes carry the load, the less of it are reads that can be hurt.".into(),
        kind: ChartKind::Lines,
        x: Axis { label: "load in tokens".into(), unit: Unit::Percent, scale: Scale::Linear },
        y: Axis { label: "p95 of reads".into(), unit: Unit::Micros, scale: Scale::Log },
        series: curves.iter().map(line).collect(),
        marks: vec![Mark { label: "a limit of 1 ms".into(), at: MarkAt::Y(1000.0) }],
    }
}
