//! Whether a switch before a mapped pool gives tenants equal parts of it while garbage collection
//! runs, which some of them cause and others do not.

mod noting;
mod site;

use flashyard_time::Duration;

use super::columns::{BANDWIDTH, CONDITION, F_UTIL, POLICY, PROFILE, WORKER, column};
use super::drive::conditions;
use super::redundancy::{Drives, Stack};
use crate::bench::fold;
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::measure::f_util;
use crate::parallel;
use crate::report::{Column, Got, Promise, Report, Unit, Value};
use site::{Phase, Site, WORKERS};

/// See [`Experiment::claim`].
pub(super) struct MappedFairness;

const CLAIM: &str = "Told what a mapped pool has done for each tenant, `fair` charges garbage collection to whose writes cause it. Three \
tenants have a volume each, of the same size, which together fill most of the pool: one overwrites blocks of 4 KiB by chance, one overwrites them \
in order, and one reads them by chance, each 32 at a time. Alone is what each has while the others only keep their data. \
Everything is measured when so much was written that garbage collection has come to a steady state. What drives moved is what they \
wrote for writers and read for the reader. Beside each other the writers leave less to be moved than alone, so a part of what one has alone is \
no exact measure here. On four drives so many I/Os do not suffice to make anybody wait: no policy matters there.";

const SETTINGS: [Setting; 5] = [
    Setting {
        key: "mib",
        default: "512",
        domain: Domain::Number(64, 16_384),
        meaning: "size of the pool in MiB",
    },
    Setting {
        key: "fill",
        default: "75",
        domain: Domain::Number(30, 95),
        meaning: "how much of the pool is used, in percent",
    },
    Setting {
        key: "ms",
        default: "2000",
        domain: Domain::Number(10, 60_000),
        meaning: "how long each phase is measured in milliseconds",
    },
    Setting {
        key: "profile",
        default: "dct983",
        domain: Domain::Profiles,
        meaning: "the drives",
    },
    Setting {
        key: "condition",
        default: "fragmented",
        domain: Domain::Conditions,
        meaning: "how the drives begin",
    },
];

const COLUMNS: [Column; 12] = [
    PROFILE,
    CONDITION,
    column("stack", "pool on", Unit::None),
    POLICY,
    WORKER,
    column("alone_bytes_per_second", "alone", Unit::BytesPerSecond),
    BANDWIDTH,
    F_UTIL,
    column("of_mean", "of the mean", Unit::Ratio),
    column("work", "drives moved per byte", Unit::Ratio),
    column("work_of_mean", "part of the work, of the mean", Unit::Ratio),
    column("written", "written per write", Unit::Ratio),
];

const POLICIES: [&str; 2] = ["fifo", "fair"];

/// `fair`, when it is not told what I/O has cost.
const ASKED: &str = "fair, by what is asked";

const STACKS: [Stack; 2] = [
    Stack::mapped("one drive", 1, 0),
    Stack::mapped("four with parity", 4, 1),
];

/// How much is written, and for how long it is measured.
#[derive(Clone, Copy)]
struct Size {
    mib: u64,
    fill: u64,
    span: Duration,
}

const PROMISES: [Promise; 1] = [Promise {
    wanted: "On one drive everybody is nearer to the mean of all under `fair` than when it goes by what is asked (furthest off)",
    judge: |rows| {
        let off = |policy: &str| {
            let rows = rows.with("stack", "one drive").with("policy", policy);
            rows.each(|row| Some((row.number("of_mean")? - 1.0).abs()))
                .into_iter()
                .reduce(f64::max)
        };
        let (told, asked) = (off("fair")?, off("fair, by what is asked")?);
        Some(Got {
            kept: told < asked,
            text: format!("{told:.3} and {asked:.3}"),
        })
    },
}];

impl Experiment for MappedFairness {
    fn name(&self) -> &'static str {
        "mapped-fairness"
    }

    fn claim(&self) -> &'static str {
        CLAIM
    }

    fn settings(&self) -> &'static [Setting] {
        &SETTINGS
    }

    fn policies(&self) -> &'static [&'static str] {
        &POLICIES
    }

    fn promises(&self) -> &'static [Promise] {
        &PROMISES
    }

    fn run(&self, context: &Context) -> Result<Report, Refused> {
        let (mib, ms) = match context.quick {
            true => (64, 20),
            false => (context.number("mib"), context.number("ms")),
        };
        let size = Size {
            mib,
            fill: context.number("fill"),
            span: Duration::from_ms(ms),
        };
        let policies = &context.policies;
        let mut jobs = Vec::new();
        for condition in conditions(&context.words("condition")) {
            for drives in Drives::of(&context.words("profile"), condition, (1, context.seed))? {
                jobs.extend(STACKS.map(|stack| (drives.clone(), stack)));
            }
        }
        context.progress.begin(jobs.len() as u64);
        let found = parallel::first(context.progress, &jobs, |(drives, stack)| {
            let (its, stack, policies) = (drives.clone(), *stack, policies.clone());
            let found = drives.in_world(move |rt| async move {
                let site = Site::new(&rt, (stack, &its), size).await;
                site.measure(&policies, size).await
            });
            let label = drives.label();
            context.progress.step(&format!("{}: {label}", stack.name));
            found
        });
        if found.is_empty() {
            return Err(Refused::Stopped);
        }
        let digest = found.iter().map(|(_, history)| *history).fold(0, fold);
        let rows = jobs
            .iter()
            .zip(&found)
            .flat_map(|((drives, stack), (found, _))| {
                let (alone, together) = found.split_at(WORKERS.len());
                let together = policies.iter().copied().chain([ASKED]).zip(together);
                together.flat_map(|(policy, phase)| rows(drives, stack, policy, alone, phase))
            });
        Ok(Report {
            rows: rows.collect(),
            ..Report::of(self, context, digest, &COLUMNS)
        })
    }
}

/// A row for each tenant, of one policy.
fn rows(
    drives: &Drives,
    stack: &Stack,
    policy: &str,
    alone: &[Phase],
    together: &Phase,
) -> Vec<Vec<Value>> {
    let count = WORKERS.len();
    let parts = |of: fn(&Phase) -> &[f64; 3]| {
        let parts = (0..count).map(|worker| {
            let alone = of(&alone[worker])[worker];
            f_util(of(together)[worker], alone, count)
        });
        let parts: Vec<f64> = parts.collect();
        let mean = parts.iter().sum::<f64>() / count as f64;
        (parts, mean)
    };
    let (parts_of_rate, mean_rate) = parts(|phase| &phase.rates);
    let (parts_of_work, mean_work) = parts(|phase| &phase.work);
    let rows = WORKERS.iter().enumerate().map(|(number, worker)| {
        vec![
            Value::Text(drives.profile.name.clone()),
            Value::Text(drives.condition.to_string()),
            Value::Text(stack.name.into()),
            Value::Text(policy.into()),
            Value::Text(worker.label().into()),
            Value::Real(alone[number].rates[number]),
            Value::Real(together.rates[number]),
            Value::Real(parts_of_rate[number]),
            Value::Real(parts_of_rate[number] / mean_rate),
            match together.rates[number] > 0.0 {
                true => Value::Real(together.work[number] / together.rates[number]),
                false => Value::Missing,
            },
            Value::Real(parts_of_work[number] / mean_work),
            Value::Real(together.amplification),
        ]
    });
    rows.collect()
}
