//! What reads cost that are checked against redundancy, and what they find of what a drive has
//! written wrong.

use flashyard_block::fault::{FaultKind, FaultOn, FaultRule};
use flashyard_flash::ssd::Condition;
use flashyard_runtime::Rt;

use super::columns::{CONDITION, P50, P99, PROFILE, column};
use super::redundancy::{Drives, Site, Stack, Tally, fill, once_each};
use crate::bench::fold;
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::parallel;
use crate::report::{Column, Got, Promise, Report, Unit, Value};

/// See [`Experiment::claim`].
pub(super) struct RaidSafeRead;

const CLAIM: &str = "A mirror alone gives its readers what a bad drive has written wrong; a safe read of two copies notices it, of three \
also knows which copy is right, and checksums know it with one copy. The first drive flips one bit of a block in a thousand when it \
is written (the rate of the FlexBSO study). A volume is filled and each of its blocks is read, in an order without a \
pattern, 32 at a time; then once more. Wrong are data that are given without an error and are not what was written; failed are \
reads that are answered with an error. The rate is that of the first reading with drives that are in order.";

const SETTINGS: [Setting; 3] = [
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
        key: "profile",
        default: "dct983",
        domain: Domain::Profiles,
        meaning: "the drives",
    },
];

const COLUMNS: [Column; 12] = [
    PROFILE,
    CONDITION,
    column("stack", "volume on", Unit::None),
    column("read_iops", "reads", Unit::Iops),
    column("of_one_drive", "of one drive's", Unit::Ratio),
    P50,
    P99,
    column("injected", "bits flipped", Unit::None),
    column("wrong", "wrong", Unit::None),
    column("failed", "failed", Unit::None),
    column("repaired", "repaired", Unit::None),
    column("wrong_again", "wrong or failed when read again", Unit::None),
];

const STACKS: [Stack; 7] = [
    Stack::raw("one drive", 1, false),
    Stack::raw("a mirror of two", 2, false),
    Stack::raw("a mirror of two, safe read", 2, true),
    Stack::raw("a mirror of three, safe read", 3, true),
    Stack::mapped("one drive, mapped", 1, 0),
    Stack::mapped("a mirror of two, mapped", 2, 0),
    Stack::mapped("five with parity, mapped", 5, 1),
];

const PROMISES: [Promise; 3] = [
    Promise {
        wanted: "Nothing is wrong where copies are compared, or have checksums",
        judge: |rows| {
            Got::none(
                &rows
                    .that(|row| {
                        ["safe", "mapped"]
                            .iter()
                            .any(|it| row.word("stack").contains(it))
                    })
                    .numbers("wrong"),
            )
        },
    },
    Promise {
        wanted: "And nothing fails where there are three copies, or a checksum and redundancy",
        judge: |rows| {
            Got::none(
                &rows
                    .that(|row| {
                        ["three", "of two, mapped", "parity"]
                            .iter()
                            .any(|it| row.word("stack").contains(it))
                    })
                    .numbers("failed"),
            )
        },
    },
    Promise {
        wanted: "What was repaired there is right when it is read again",
        judge: |rows| {
            Got::none(
                &rows
                    .that(|row| {
                        ["three", "of two, mapped", "parity"]
                            .iter()
                            .any(|it| row.word("stack").contains(it))
                    })
                    .numbers("wrong_again"),
            )
        },
    },
];

impl Experiment for RaidSafeRead {
    fn name(&self) -> &'static str {
        "raid-safe-read"
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
        let (gib, mib) = match context.quick {
            true => (1, 16),
            false => (context.number("gib"), context.number("mib")),
        };
        let profiles = context.words("profile");
        let drives = Drives::of(&profiles, Condition::Clean, (gib, context.seed))?;
        let stacks = || STACKS.iter().flat_map(|it| [(*it, false), (*it, true)]);
        let jobs = drives
            .iter()
            .flat_map(|drives| stacks().map(move |(stack, bad)| (drives, stack, bad)));
        let jobs: Vec<_> = jobs.collect();
        context.progress.begin(jobs.len() as u64);
        let found = parallel::first(context.progress, &jobs, |&(drives, stack, bad)| {
            let its = drives.clone();
            let found = drives
                .in_world(move |rt| async move { measure(&rt, (stack, &its), mib, bad).await });
            let state = if bad { "one drive is bad" } else { "in order" };
            context.progress.step(&format!("{}: {state}", stack.name));
            found
        });
        // A pair is drives in order and the same with a bad one.
        if found.len() < 2 {
            return Err(Refused::Stopped);
        }
        let histories = found.iter().map(|(_, history)| *history);
        let digest = histories.fold(0, fold);
        let mut rows = Vec::new();
        for (drives, found) in drives.iter().zip(found.chunks(2 * STACKS.len())) {
            let alone = found[0].0.first.rate();
            let pairs = STACKS.iter().zip(found.chunks_exact(2));
            rows.extend(
                pairs.map(|(stack, pair)| row((drives, stack), (&pair[0].0, &pair[1].0), alone)),
            );
        }
        Ok(Report {
            rows,
            ..Report::of(self, context, digest, &COLUMNS)
        })
    }
}

/// What came of one volume.
struct Found {
    first: Tally,
    second: Tally,
    injected: u64,
    repaired: u64,
}

async fn measure(rt: &Rt, stands: (Stack, &Drives), mib: u64, bad: bool) -> Found {
    let site = Site::new(rt, stands, mib).await;
    if bad {
        let poison = FaultRule::new(FaultKind::Poison).on(FaultOn::Writes);
        site.drives[0].set(vec![poison]);
    }
    fill(&site.volume).await;
    let counts = site.drives[0].counts();
    let injected = counts.iter().map(|(_, counts)| counts.injected).sum();
    // What is repaired stays so.
    site.drives[0].set(Vec::new());
    let first = once_each(rt, &site.volume, 1).await;
    let second = once_each(rt, &site.volume, 2).await;
    let members = site.array.as_ref().map(|array| array.status().members);
    let healed = members.iter().flatten().map(|member| member.counts.healed);
    let repaired = healed.sum();
    site.close().await;
    Found {
        first,
        second,
        injected,
        repaired,
    }
}

fn row(
    (drives, stack): (&Drives, &Stack),
    (healthy, bad): (&Found, &Found),
    alone: f64,
) -> Vec<Value> {
    let us = |part| Value::Real(healthy.first.read_latency.percentile(part) as f64 / 1e3);
    vec![
        Value::Text(drives.profile.name.clone()),
        Value::Text(drives.condition.to_string()),
        Value::Text(stack.name.into()),
        Value::Real(healthy.first.rate()),
        Value::Real(healthy.first.rate() / alone),
        us(500_000),
        us(990_000),
        Value::Count(bad.injected),
        Value::Count(bad.first.wrong),
        Value::Count(bad.first.failed),
        Value::Count(bad.repaired),
        Value::Count(bad.second.wrong + bad.second.failed),
    ]
}
