//! Whether a switch in front of a conventional SSD isolates as well as dedicated units.

use flashyard_flash::Profile;
use flashyard_flash::channel::load::Tally as UnitTally;
use flashyard_flash::ssd::Condition;
use flashyard_sched::Class;

use super::sharing::{
    COLUMNS, Findings, GIB, Group, Kind, MS, Measured, PROFILE, Workload, contenders,
    latency_chart, measure_all,
};
use super::units::{Extent, Observed, Order, Placement, Scenario, measure_on};
use super::{drive, figures};
use crate::bench::fold;
use crate::experiment::{Context, Experiment, Refused, Setting};
use crate::measure::percentile_us;
use crate::report::{Got, Promise, Report, Value};

/// See [`Experiment::claim`].
pub(super) struct IsolationVsConventional;

const CLAIM: &str = "What writers do to a reader is decided inside the drive: a switch before it divides bandwidth and cannot shorten a program, as writes \
are answered from the drive's buffer and programmed when the drive likes. Own units can. One tenant reads 4 KiB at random, one at a time, in the class for latency; one, three or seven others write, 4 KiB at random with \
32 under way each on a fragmented drive, or 128 KiB in order with four on a clean one. The drives write equally fast; the second does not suspend. Beside them \
the same flash as an open-channel device with whole channels for each tenant (`own channels`), whose writers program without pause: raw bandwidth, before any garbage \
collection of their own.";

const SETTINGS: [Setting; 3] = [
    Setting {
        default: "dct983,dct983-a0",
        ..PROFILE
    },
    GIB,
    MS,
];

const WRITERS: [u32; 3] = [1, 3, 7];
const READER: Group = Group::of(1, Kind::new(true, 4096, 1)).of_class(Class::Latency);
const KINDS: [(Condition, Kind); 2] = [
    (Condition::Fragmented(100), Kind::WRITE_4K),
    (Condition::Clean, Kind::WRITE_128K),
];

const PROMISES: [Promise; 1] = [Promise {
    wanted: "On channels of its own the reader's p99 is at most 1.2 times that alone",
    judge: |rows| {
        let own = rows.with("policy", "own channels");
        let p99 = own
            .that(|row| row.word("worker").contains("latency reader"))
            .numbers("p99_us");
        let alone = p99.first().copied()?;
        let parts: Vec<f64> = p99.iter().map(|p99| p99 / alone).collect();
        Got::at_most(&parts, 1.2)
    },
}];

impl Experiment for IsolationVsConventional {
    fn name(&self) -> &'static str {
        "isolation-vs-conventional"
    }

    fn claim(&self) -> &'static str {
        CLAIM
    }

    fn settings(&self) -> &'static [Setting] {
        &SETTINGS
    }

    fn policies(&self) -> &'static [&'static str] {
        &["fifo", "fair"]
    }

    fn promises(&self) -> &'static [Promise] {
        &PROMISES
    }

    fn run(&self, context: &Context) -> Result<Report, Refused> {
        let mut profiles = drive::profiles(&context.words("profile"))?;
        profiles.truncate(if context.quick { 1 } else { profiles.len() });
        let workloads = workloads(context.quick, profiles.len());
        let found = measure_all(context, &profiles, &workloads, &contenders(context), false)?;
        let scenarios = own_channels(&profiles);
        let (own, digest) = measure_on(context, Extent::of(context), &scenarios)?;
        let mut rows = found.rows(&profiles);
        rows.extend(own.iter().flat_map(rows_of_own));
        Ok(Report {
            rows,
            charts: charts(&found, &profiles, &workloads),
            notes: notes(&found, &profiles, &own),
            ..Report::of(self, context, fold(found.digest, digest), &COLUMNS)
        })
    }
}

/// The reader alone, then beside writers, on every drive in each condition.
fn workloads(quick: bool, profiles: usize) -> Vec<Workload> {
    let mut workloads = Vec::new();
    for profile in 0..profiles {
        for (condition, kind) in KINDS {
            workloads.push(Workload::new(profile, condition, [READER]));
            let beside =
                |count| Workload::new(profile, condition, [READER, Group::of(count, kind)]);
            workloads.extend(WRITERS.map(beside));
        }
    }
    workloads.truncate(if quick { 2 } else { workloads.len() });
    workloads
}

/// The same flash, with whole channels for each tenant. What the profile does with programs then
/// makes no difference, so one profile of the same flash is enough.
fn own_channels(profiles: &[Profile]) -> Vec<Scenario> {
    let scenario = |writers: u32| {
        Scenario::encounter(&profiles[0], Placement::Channels, Order::Fifo, writers + 1)
    };
    [0].iter()
        .chain(&WRITERS)
        .map(|&writers| scenario(writers))
        .collect()
}

/// The reader, and the writers together.
fn rows_of_own(played: &Observed) -> Vec<Vec<Value>> {
    let writers = played.scenario.tenants - 1;
    let [mean, p50, p99, p999, max] = played.latencies();
    let tenants = match writers {
        0 => READER.label(),
        _ => format!(
            "{} + {}",
            READER.label(),
            Group::of(writers, Kind::WRITE_4K).label()
        ),
    };
    let row = |worker: String, kind: &str, [bandwidth, iops]: [Value; 2], latencies: [Value; 5]| {
        let named = [
            played.scenario.profile.name.clone(),
            "open channels".into(),
            tenants.clone(),
            "own channels".into(),
            worker,
            kind.into(),
        ];
        let mut row: Vec<Value> = named.map(Value::Text).into();
        row.extend([bandwidth, iops]);
        row.extend([const { Value::Missing }; 5]);
        row.extend(latencies);
        row
    };
    let bandwidth = |tallies: &[UnitTally]| tallies[0].bytes_per_second() as f64;
    let rates = [
        played.value(bandwidth),
        played.value(|tallies| bandwidth(tallies) / 4096.0),
    ];
    let reader = row(
        READER.label(),
        &READER.kind.label(),
        rates,
        [mean, p50, p99, p999, max],
    );
    let others = (writers > 0).then(|| {
        let label = Group::of(writers, Kind::WRITE_4K).label();
        let rates = [played.others(), Value::Missing];
        row(label, "programs", rates, [const { Value::Missing }; 5])
    });
    [reader].into_iter().chain(others).collect()
}

/// The reader's latency under each policy beside seven writers.
fn charts(
    found: &Findings,
    profiles: &[Profile],
    workloads: &[Workload],
) -> Vec<crate::report::Chart> {
    let crowds = workloads
        .iter()
        .filter(|workload| workload.profile < 2 && workload.tenants() == WRITERS[2] + 1);
    let names = [
        "first-fragmented",
        "first-clean",
        "second-fragmented",
        "second-clean",
    ];
    let chart = |(workload, name)| latency_chart(found, profiles, workload, 0, name, SUSPENDS);
    crowds.zip(names).map(chart).collect()
}

const SUSPENDS: &str = "What is under way in the drive cannot be overtaken by any switch: only the drive can suspend it.";

/// How many times its p99 alone the reader has, under each policy, and on channels of its own.
fn notes(found: &Findings, profiles: &[Profile], own: &[Observed]) -> Vec<String> {
    let mut notes = Vec::new();
    for (number, profile) in profiles.iter().enumerate() {
        for (condition, kind) in KINDS {
            let of = |measured: &&Measured| {
                measured.workload.profile == number && measured.workload.condition == condition
            };
            let measured: Vec<&Measured> = found.measured.iter().filter(of).collect();
            notes.extend(note(
                &measured,
                &format!("{}, {condition}, {}", profile.name, kind.label()),
            ));
        }
    }
    let p99 = |one: &Observed| one.percentile_us(figures::P99);
    if let [alone, beside @ ..] = own {
        let alone = p99(alone);
        let times: Vec<_> = beside
            .iter()
            .map(|one| format!("{:.2}", p99(one) / alone))
            .collect();
        notes.push(format!(
            "Own channels: p99 of the reader beside 1, 3 and 7 writers is {} times that alone ({alone:.0} us).",
            times.join(", ")
        ));
    }
    notes
}

fn note(measured: &[&Measured], what: &str) -> Option<String> {
    let p99 = |measured: &Measured| {
        measured
            .together(0)
            .mean(|tally| percentile_us(&tally.total(), figures::P99))
    };
    let alone = measured
        .iter()
        .find(|measured| measured.workload.tenants() == 1)?;
    let mut policies = Vec::new();
    let contenders = measured
        .iter()
        .filter(|measured| measured.workload.tenants() == 1);
    for contender in contenders.map(|measured| measured.contender) {
        let beside = measured
            .iter()
            .filter(|measured| measured.contender == contender && measured.workload.tenants() > 1);
        let times: Vec<_> = beside
            .map(|measured| format!("{:.2}", p99(measured) / p99(alone)))
            .collect();
        policies.push(format!("{} under {}", times.join(", "), contender.label()));
    }
    Some(format!(
        "{what}: p99 of the reader beside more and more writers is {} times that alone ({:.0} us).",
        policies.join("; "),
        p99(alone)
    ))
}
