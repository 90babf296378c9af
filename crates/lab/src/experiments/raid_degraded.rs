//! What a volume gives while a drive is missing, and while its successor is being filled.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::rc::Rc;

use flashyard_block::array::Array;
use flashyard_block::fault::{FaultKind, FaultOn, FaultRule};
use flashyard_engine::Core;
use flashyard_runtime::Rt;
use flashyard_time::{Duration, Histogram, Time};

use super::columns::{CONDITION, IOPS, POLICY, PROFILE, column};
use super::drive::conditions;
use super::redundancy::{Drives, Mix, Site, Stack, Tally, fill, member, run, target};
use crate::bench::fold;
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::report::{Column, Got, Promise, Report, Unit, Value};
use crate::{parallel, policies};

/// See [`Experiment::claim`].
pub(super) struct RaidDegraded;

const CLAIM: &str = "A volume that has lost a drive goes on, with the rate of the drives that are left, and while a new drive is filled \
its hosts keep most of that. The filling takes turns with them, as the policy says. Blocks of 4 KiB of a full volume are read and written by chance, 32 at a time: with all drives, \
after one has vanished, from when another one takes its place, then with a limit on the filling, and at last it is filled to its end without hosts. Nothing may be wrong or fail \
at any time.";

const SETTINGS: [Setting; 7] = [
    Setting {
        key: "gib",
        default: "2",
        domain: Domain::Number(1, 64),
        meaning: "size of each drive in GiB",
    },
    Setting {
        key: "mib",
        default: "512",
        domain: Domain::Number(1, 16_384),
        meaning: "size of the volume in MiB",
    },
    Setting {
        key: "ms",
        default: "500",
        domain: Domain::Number(10, 60_000),
        meaning: "how long each state is measured in milliseconds",
    },
    Setting {
        key: "reads",
        default: "70",
        domain: Domain::Number(0, 100),
        meaning: "reads of a hundred I/Os",
    },
    Setting {
        key: "limit",
        default: "25",
        domain: Domain::Number(1, 10_000),
        meaning: "MB/s that the new drive gets at most in the last state",
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

const COLUMNS: [Column; 13] = [
    PROFILE,
    CONDITION,
    POLICY,
    column("stack", "volume on", Unit::None),
    column("state", "state", Unit::None),
    IOPS,
    column("of_healthy", "of healthy", Unit::Ratio),
    column("read_p50_us", "reads p50", Unit::Micros),
    column("read_p99_us", "reads p99", Unit::Micros),
    column("write_p99_us", "writes p99", Unit::Micros),
    column("bad", "wrong or failed", Unit::None),
    column(
        "rebuild_bytes_per_second",
        "copied beside hosts",
        Unit::BytesPerSecond,
    ),
    column(
        "rebuild_alone_bytes_per_second",
        "copied alone",
        Unit::BytesPerSecond,
    ),
];

const STACKS: [Stack; 5] = [
    Stack::raw("a mirror of two", 2, false),
    Stack::raw("a mirror of two, safe read", 2, true),
    Stack::raw("a mirror of three", 3, false),
    Stack::mapped("a mirror of two, mapped", 2, 0),
    Stack::mapped("five with parity, mapped", 5, 1),
];

/// Of the switch before it.
const POLICIES: [&str; 2] = ["fifo", "fair"];

/// What is measured of each volume, in this order.
const STATES: [&str; 4] = ["healthy", "degraded", "rebuilding", "rebuilding, limited"];

const PROMISES: [Promise; 3] = [
    Promise {
        wanted: "Nothing is wrong or fails at any time",
        judge: |rows| Got::none(&rows.numbers("bad")),
    },
    Promise {
        wanted: "While a new drive is filled hosts keep at least half of their rate (without a policy that learns first)",
        judge: |rows| {
            Got::at_least(
                &rows
                    .with("policy", "fifo")
                    .with("state", "rebuilding")
                    .numbers("of_healthy"),
                0.5,
            )
        },
    },
    Promise {
        wanted: "With a limit on the filling they keep at least nine tenths of what they have with a drive missing",
        judge: |rows| {
            let of = |state| rows.with("state", state).numbers("iops");
            let (limited, degraded) = (of("rebuilding, limited"), of("degraded"));
            let kept = limited.iter().zip(&degraded).map(|(a, b)| a / b);
            Got::at_least(&kept.collect::<Vec<f64>>(), 0.9)
        },
    },
];

impl Experiment for RaidDegraded {
    fn name(&self) -> &'static str {
        "raid-degraded"
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
        let (gib, mib, ms) = match context.quick {
            true => (1, 16, 20),
            false => (
                context.number("gib"),
                context.number("mib"),
                context.number("ms"),
            ),
        };
        let span = Duration::from_ms(ms);
        let (profiles, reads) = (context.words("profile"), context.number("reads"));
        let limit = context.number("limit") * 1_000_000;
        let mut jobs = Vec::new();
        for condition in conditions(&context.words("condition")) {
            for drives in Drives::of(&profiles, condition, (gib, context.seed))? {
                for stack in STACKS {
                    jobs.extend(POLICIES.map(|policy| (drives.clone(), stack, policy)));
                }
            }
        }
        context.progress.begin(jobs.len() as u64);
        let found = parallel::first(context.progress, &jobs, |(drives, stack, policy)| {
            let (its, stack, policy) = (drives.clone(), *stack, *policy);
            let found = drives.in_world(move |rt| async move {
                measure(&rt, (stack, &its), (mib, policy), (reads, span, limit)).await
            });
            let label = drives.label();
            context
                .progress
                .step(&format!("{}, {policy}: {label}", stack.name));
            found
        });
        if found.is_empty() {
            return Err(Refused::Stopped);
        }
        let histories = found.iter().map(|(_, history)| *history);
        let digest = histories.fold(0, fold);
        let rows = jobs.iter().zip(&found);
        let rows = rows
            .flat_map(|((drives, stack, policy), (found, _))| found.rows(drives, stack, policy));
        Ok(Report {
            rows: rows.collect(),
            ..Report::of(self, context, digest, &COLUMNS)
        })
    }
}

/// What came of one volume.
struct Found {
    /// By [`STATES`].
    tallies: [Tally; 4],
    /// Bytes per second that the new drive was given, beside hosts without a limit and with one,
    /// and without hosts.
    copied: [f64; 3],
}

async fn measure(
    rt: &Rt,
    (stack, drives): (Stack, &Drives),
    (mib, policy): (u64, &str),
    (reads, span, limit): (u64, Duration, u64),
) -> Found {
    let site = Site::new(rt, (stack, drives), mib).await;
    fill(&site.volume).await;
    let core = Core::start(rt.clone(), target(), 0);
    let policy = policies::named(policy).unwrap_or_else(policies::fifo);
    let handle = core.add_device(site.volume.clone(), &core.add_switch(policy));
    let volume = core.way_to(&handle);
    let array = site.array.clone().expect("all of these have copies");
    let mix = |seed| Mix { reads, seed };
    let healthy = run(rt, &volume, mix(1), within(rt, span)).await;
    site.drives[0].set(vec![
        FaultRule::new(FaultKind::Gone).on(FaultOn::All).always(),
    ]);
    // What notices it is measured by nobody.
    let _ = run(rt, &volume, mix(2), within(rt, Duration::from_ms(5))).await;
    assert!(array.status().is_degraded(), "a drive has vanished");
    let degraded = run(rt, &volume, mix(3), within(rt, span)).await;
    let new = member(stack.drives, &drives.another(rt, stack.drives as u64));
    let replaced = array.replace("ssd0", new, false).await;
    replaced.expect("the new drive works");
    let whole = Rc::new(Cell::new(false));
    let watch = rt.spawn(watch(rt.clone(), array.clone(), whole.clone()));
    let over = || {
        let (over, whole) = (within(rt, span), whole.clone());
        move |now| whole.get() || over(now)
    };
    let rebuilding = run(rt, &volume, mix(4), over()).await;
    let beside = copied(&array);
    array.set_rebuild_limit(NonZeroU64::new(limit));
    let limited = run(rt, &volume, mix(5), over()).await;
    let slowly = copied(&array) - beside;
    array.set_rebuild_limit(None);
    let beside_all = copied(&array);
    let begun = rt.now();
    watch.await;
    let alone = (copied(&array) - beside_all) as f64 / rt.now().since(begun).as_secs_f64();
    drop(array);
    core.remove_device(&handle).await;
    site.close().await;
    Found {
        copied: [
            beside as f64 / rebuilding.seconds,
            slowly as f64 / limited.seconds,
            alone,
        ],
        tallies: [healthy, degraded, rebuilding, limited],
    }
}

/// Bytes that were copied to members.
fn copied(array: &Array) -> u64 {
    let members = array.status().members.into_iter();
    members.map(|member| member.counts.copied_bytes).sum()
}

fn within(rt: &Rt, span: Duration) -> impl Fn(Time) -> bool + 'static {
    let until = rt.now() + span;
    move |now| now >= until
}

/// Says when all copies are there again.
async fn watch(rt: Rt, array: Rc<Array>, whole: Rc<Cell<bool>>) {
    while array.status().is_degraded() || array.status().rebuild.is_some() {
        rt.sleep(Duration::from_us(100)).await;
    }
    whole.set(true);
}

impl Found {
    fn rows(&self, drives: &Drives, stack: &Stack, policy: &str) -> Vec<Vec<Value>> {
        let alone = self.tallies[0].rate();
        let [beside, slowly, alone_after] = self.copied.map(Value::Real);
        let none = || [Value::Missing, Value::Missing];
        let copied = [
            none(),
            none(),
            [beside, Value::Missing],
            [slowly, alone_after],
        ];
        let rows = STATES.iter().zip(&self.tallies).zip(copied);
        let rows = rows.map(|((state, tally), [beside, after])| {
            let us = |latency: &Histogram, part| match latency.count() {
                0 => Value::Missing,
                _ => Value::Real(latency.percentile(part) as f64 / 1e3),
            };
            vec![
                Value::Text(drives.profile.name.clone()),
                Value::Text(drives.condition.to_string()),
                Value::Text(policy.into()),
                Value::Text(stack.name.into()),
                Value::Text((*state).into()),
                Value::Real(tally.rate()),
                Value::Real(tally.rate() / alone),
                us(&tally.read_latency, 500_000),
                us(&tally.read_latency, 990_000),
                us(&tally.write_latency, 990_000),
                Value::Count(tally.wrong + tally.failed),
                beside,
                after,
            ]
        });
        rows.collect()
    }
}
