//! Recorded I/O, repeated on an emulated drive.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use flashyard_flash::Profile;
use flashyard_flash::ssd::Condition;
use flashyard_sched::Op;
use flashyard_time::{Duration, Rng};

use super::columns::{
    CONDITION, KIND, LOST, MAX, MEAN, P50, P99, P999, POLICY, PROFILE, WORKER, column,
};
use super::drive;
use super::figures::Figures;
use super::outcome::fold_digests;
use crate::bench::{Results, Setup};
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::load::{Record, ReplayPace, Trace, Worker, blktrace};
use crate::report::{Column, Report, Unit, Value};
use crate::{parallel, policies};

/// See [`Experiment::claim`].
pub(super) struct TraceReplay;

const CLAIM: &str = "How the I/O that was recorded on one machine fares on an emulated drive. Every I/O is issued at its \
recorded instant, whether or not others are done; each tenant of a CSV file, and each device of a binary trace of \
blktrace, is a worker of its own. Addresses beyond the drive are folded onto it. Without a file it repeats a trace \
that is made up: a database reads 8 KiB at random and forces its log out every millisecond, while another tenant \
writes a large file in bursts.";

const SETTINGS: [Setting; 5] = [
    Setting {
        key: "file",
        default: "",
        domain: Domain::File,
        meaning: "the trace: `*.csv` with time in us, operation, offset, bytes and perhaps tenant; or of blktrace",
    },
    Setting {
        key: "speed",
        default: "100",
        domain: Domain::Number(1, 100_000),
        meaning: "percent of the recorded speed",
    },
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
        key: "gib",
        default: "8",
        domain: Domain::Number(1, 1024),
        meaning: "capacity of the drives in GiB",
    },
];

const COLUMNS: [Column; 12] = [
    POLICY,
    PROFILE,
    CONDITION,
    WORKER,
    KIND,
    column("ios", "I/Os", Unit::None),
    LOST,
    MEAN,
    P50,
    P99,
    P999,
    MAX,
];

/// I/Os of a tenant that may be in flight; what comes beyond is lost.
const MOST_IN_FLIGHT: u32 = 4096;
/// The most tenants: each may have [`MOST_IN_FLIGHT`].
const MOST_TENANTS: usize = 16;
/// How long answers are waited for after the last I/O.
const PATIENCE: Duration = Duration::from_secs(60);

/// A drive under the trace.
struct Scenario {
    policy: &'static str,
    profile: Profile,
    condition: Condition,
}

impl Experiment for TraceReplay {
    fn name(&self) -> &'static str {
        "trace-replay"
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

    fn run(&self, context: &Context) -> Result<Report, Refused> {
        let gib = if context.quick {
            1
        } else {
            context.number("gib")
        };
        let tenants = tenants(context, gib << 30)?;
        let scenarios = scenarios(context)?;
        context.progress.begin(scenarios.len() as u64);
        let results = parallel::first(context.progress, &scenarios, |scenario| {
            let results = replay(context, scenario, gib, &tenants);
            context
                .progress
                .step(&format!("{} {}", scenario.profile.name, scenario.condition));
            results
        });
        let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
        let rows = scenarios
            .iter()
            .zip(&results)
            .flat_map(|(scenario, results)| rows(scenario, results, &tenants));
        Ok(Report {
            rows: rows.collect(),
            ..Report::of(self, context, fold_digests(&results), &COLUMNS)
        })
    }
}

/// A tenant's number and what it did.
type Tenant = (u32, Arc<Trace>);

fn tenants(context: &Context, capacity: u64) -> Result<Vec<Tenant>, Refused> {
    let file = context.word("file");
    let trace = if file.is_empty() {
        made_up(context)
    } else {
        read(Path::new(file))?
    };
    let trace = trace.folded(capacity);
    let numbers = trace.tenants();
    if numbers.len() > MOST_TENANTS {
        return Err(Refused::Conflict(format!(
            "the trace has {} tenants; take those of at most {MOST_TENANTS}",
            numbers.len()
        )));
    }
    Ok(numbers
        .into_iter()
        .map(|tenant| (tenant, trace.of_tenant(tenant).into()))
        .collect())
}

fn read(path: &Path) -> Result<Trace, Refused> {
    let refused = |why: String| Refused::Conflict(format!("{}: {why}", path.display()));
    let file = File::open(path).map_err(|error| refused(error.to_string()))?;
    let input = BufReader::new(file);
    let trace = if path.extension().is_some_and(|extension| extension == "csv") {
        Trace::from_csv(input)
    } else {
        blktrace::read(input)
    };
    trace.map_err(|error| refused(error.to_string()))
}

/// A database (tenant 1) and a copy of a large file (tenant 2), for two seconds.
fn made_up(context: &Context) -> Trace {
    const GIB: u64 = 1 << 30;
    let length = Duration::from_ms(if context.quick { 100 } else { 2000 });
    let mut chance = Rng::new(context.seed);
    let mut records = Vec::new();
    let mut add = |at, op, offset, bytes, tenant| {
        records.push(Record {
            at,
            offset,
            bytes,
            tenant,
            op,
        });
    };
    let mut at = Duration::ZERO;
    while at < length {
        add(at, Op::Read, chance.below(GIB / 2 / 8192) * 8192, 8192, 1);
        at += chance.exponential(Duration::from_us(100));
    }
    for commit in 0..length.as_ms() {
        let at = Duration::from_ms(commit);
        add(at, Op::Write, GIB / 2 + commit * 16_384, 16_384, 1);
        add(at, Op::Flush, 0, 0, 1);
    }
    // Bursts of 40 ms in every 100 ms, at 1.3 GB/s.
    for chunk in (0..length.as_us() / 200).filter(|chunk| (100..300).contains(&(chunk % 500))) {
        let at = Duration::from_us(chunk * 200);
        add(
            at,
            Op::Write,
            GIB * 5 / 8 + chunk % 1024 * 262_144,
            262_144,
            2,
        );
    }
    Trace::new(records).expect("there is I/O in it")
}

fn scenarios(context: &Context) -> Result<Vec<Scenario>, Refused> {
    let mut scenarios = Vec::new();
    for profile in drive::profiles(&context.words("profile"))? {
        for condition in drive::conditions(&context.words("condition")) {
            let scenario = |policy: &&'static str| Scenario {
                policy,
                profile: profile.clone(),
                condition,
            };
            scenarios.extend(context.policies.iter().map(scenario));
        }
    }
    Ok(scenarios)
}

fn replay(
    context: &Context,
    scenario: &Scenario,
    gib: u64,
    tenants: &[Tenant],
) -> Result<Results, Refused> {
    let speed_percent = context.number("speed") as u32;
    let device = drive::build(&scenario.profile, gib, context.seed, scenario.condition)?;
    let pace = ReplayPace::Recorded {
        speed_percent,
        most: MOST_IN_FLIGHT,
    };
    let worker = |(tenant, trace): &Tenant| {
        Worker::replaying(format!("tenant {tenant}"), *tenant, trace.clone(), pace)
    };
    let lasts = tenants
        .iter()
        .filter_map(|(_, trace)| trace.records().last());
    let length = lasts
        .map(|record| record.at)
        .max()
        .unwrap_or(Duration::ZERO);
    let span = length.scale(100, u64::from(speed_percent)) + PATIENCE;
    let policy = policies::named(scenario.policy).expect("a context has policies that there are");
    let setup = Setup::new(device, policy, tenants.iter().map(worker).collect());
    Ok(setup
        .measured(Duration::ZERO, span)
        .seeded(context.seed)
        .run()?)
}

/// Reads and the rest of each tenant.
fn rows(scenario: &Scenario, results: &Results, tenants: &[Tenant]) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for ((tenant, _), tally) in tenants.iter().zip(&results.workers) {
        let (reads, writes) = Figures(vec![tally.clone()]).sides();
        for (kind, side) in [("reads", reads), ("writes and flushes", writes)] {
            let count = side.0[0].total().count();
            if count == 0 {
                continue;
            }
            let mut row = vec![
                Value::Text(scenario.policy.into()),
                Value::Text(scenario.profile.name.clone()),
                Value::Text(scenario.condition.to_string()),
                Value::Text(format!("tenant {tenant}")),
                Value::Text(kind.into()),
                Value::Count(count),
                Value::Count(tally.lost),
            ];
            row.extend(side.latencies());
            rows.push(row);
        }
    }
    rows
}
