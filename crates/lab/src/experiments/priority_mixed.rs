//! Latency-sensitive tenants beside throughput-critical ones, in growing numbers.

use flashyard_flash::ssd::Condition;
use flashyard_sched::Class;

use super::drive;
use super::sharing::{
    COLUMNS, GIB, Group, Kind, PROFILE, READER_BEATS_FIFO, SHORT, Workload, contenders,
    is_latency_reader, latency_chart, measure_all, of_fifo,
};
use crate::experiment::{Context, Experiment, Refused, Setting};
use crate::report::{Got, Promise, Report, Row};

/// See [`Experiment::claim`].
pub(super) struct PriorityMixed;

const CLAIM: &str = "Tenants of both kinds meet on one drive: those that read 4 KiB one at a time and want an answer soon, and those that keep \
128 reads under way and want many. One of the first beside one to eight of the others, then as many of each. The NVMe-oF \
priority study asks of its scheme that the latency of the first does not grow with the number of the others, and that the \
others lose little. Here it is the switch before the drive that is compared; coalescing of completions has an experiment of \
its own.";

const SETTINGS: [Setting; 3] = [PROFILE, GIB, SHORT];

const PROMISES: [Promise; 3] = [
    READER_BEATS_FIFO,
    Promise {
        wanted: "Under `fair` the latency-sensitive readers' mean does not grow with the number of the others (by a twentieth at most)",
        judge: |rows| {
            let means = rows
                .with("policy", "fair")
                .that(is_latency_reader)
                .numbers("mean_us");
            let first = means.first().copied()?;
            let grown: Vec<f64> = means.iter().map(|mean| mean / first).collect();
            Got::at_most(&grown, 1.05)
        },
    },
    Promise {
        wanted: "Under `fair` the others lose at most a tenth of what they have under `fifo`",
        judge: |rows| {
            let others = |row: &Row| !is_latency_reader(row);
            Got::at_least(&of_fifo(rows, "bytes_per_second", others), 0.9)
        },
    },
];

impl Experiment for PriorityMixed {
    fn name(&self) -> &'static str {
        "priority-mixed"
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
            charts: vec![latency_chart(
                &found,
                &profiles,
                workloads.last().expect("there is a cast"),
                0,
                "latency",
                "Who is served first does not notice the others but by what the drive itself is busy with.",
            )],
            ..Report::of(self, context, found.digest, &COLUMNS)
        })
    }
}

/// One latency-sensitive tenant beside one to eight others, then as many of each.
fn workloads(quick: bool, profiles: usize) -> Vec<Workload> {
    let groups = |(latency, bulk)| {
        let one = Kind::new(true, 4096, 1);
        [
            Group::of(latency, one).of_class(Class::Latency),
            Group::of(bulk, Kind::new(true, 4096, 128)),
        ]
    };
    let counts = [(1, 1), (1, 2), (1, 4), (1, 8), (2, 2), (4, 4), (8, 8)];
    let counts = &counts[..if quick { 1 } else { counts.len() }];
    let workload = |profile| {
        let workload = move |&counts| Workload::new(profile, Condition::Clean, groups(counts));
        counts.iter().map(workload)
    };
    (0..profiles).flat_map(workload).collect()
}
