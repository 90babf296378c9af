//! One tenant of each class on a drive: latency-sensitive, for throughput, in the background.

use flashyard_flash::Profile;
use flashyard_flash::ssd::Condition;
use flashyard_sched::Class;

use super::drive;
use super::sharing::{
    COLUMNS, Findings, GIB, Group, Kind, READER_BEATS_FIFO, SHORT, Workload, contenders,
    latency_chart, measure_all, of_fifo,
};
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::report::{Chart, Got, Promise, Report, Row};

/// See [`Experiment::claim`].
pub(super) struct PriorityClasses;

const CLAIM: &str = "A database reads 4 KiB, one at a time, and is latency-sensitive. Analytics reads 128 KiB, eight at a time, for throughput. A backup \
writes 4 KiB, 32 at a time, once as one for throughput and once in the background: then it should hardly be noticed, and yet get \
on. It is the scene of `flashyard demo`, on four fragmented drives. For ReFlex, which knows no classes, the database has reserved \
12,000 reads a second at a p95 of 1 ms. f-Util is a tenant's rate over a third of what sixteen workers of its kind do alone, so \
one who asks for one thing at a time cannot reach much.";

const SETTINGS: [Setting; 3] = [DRIVES, GIB, SHORT];

const DRIVES: Setting = Setting {
    key: "profile",
    default: "dct983,dct983-a0,dct983-b,970pro",
    domain: Domain::Profiles,
    meaning: "the drives",
};

const PROMISES: [Promise; 2] = [
    READER_BEATS_FIFO,
    Promise {
        wanted: "Under `fair` a backup in the background gets on: it writes, though less than half of what it does under `fifo`",
        judge: |rows| {
            let backup = |row: &Row| row.word("worker").contains("background writer");
            Got::within(&of_fifo(rows, "iops", backup), 0.001, 0.5)
        },
    },
];

impl Experiment for PriorityClasses {
    fn name(&self) -> &'static str {
        "priority-classes"
    }

    fn claim(&self) -> &'static str {
        CLAIM
    }

    fn settings(&self) -> &'static [Setting] {
        &SETTINGS
    }

    fn policies(&self) -> &'static [&'static str] {
        &["fifo", "flashfq", "reflex", "gimbal", "fair"]
    }

    fn promises(&self) -> &'static [Promise] {
        &PROMISES
    }

    fn run(&self, context: &Context) -> Result<Report, Refused> {
        let profiles = drive::profiles(&context.words("profile"))?;
        let workloads = workloads(context.quick, profiles.len());
        let found = measure_all(context, &profiles, &workloads, &contenders(context), false)?;
        Ok(Report {
            rows: found.rows(&profiles),
            charts: charts(&found, &profiles, &workloads),
            ..Report::of(self, context, found.digest, &COLUMNS)
        })
    }
}

/// The backup for throughput, and in the background; on each drive.
fn workloads(quick: bool, profiles: usize) -> Vec<Workload> {
    let classes = [Class::Throughput, Class::Background];
    let workload = |profile, class| {
        let groups = [
            Group::of(1, Kind::new(true, 4096, 1)).of_class(Class::Latency),
            Group::of(1, Kind::new(true, 128 << 10, 8)),
            Group::of(1, Kind::WRITE_4K).of_class(class),
        ];
        Workload::new(profile, Condition::Fragmented(100), groups)
    };
    let all = (0..profiles).flat_map(|profile| classes.map(|class| workload(profile, class)));
    all.skip(usize::from(quick))
        .take(if quick { 1 } else { usize::MAX })
        .collect()
}

/// The latency of the one latency-sensitive, with the backup in the background.
fn charts(found: &Findings, profiles: &[Profile], workloads: &[Workload]) -> Vec<Chart> {
    let in_background = |workload: &&Workload| workload.groups[2].class == Class::Background;
    let chart = |(workload, name)| {
        latency_chart(
            found,
            profiles,
            workload,
            0,
            name,
            "Who is latency-sensitive waits for the drive, and not for others.",
        )
    };
    workloads
        .iter()
        .filter(in_background)
        .zip(CHARTS)
        .map(chart)
        .collect()
}

/// The names of the charts, one for each drive as far as they go.
const CHARTS: [&str; 4] = ["latency-1", "latency-2", "latency-3", "latency-4"];
