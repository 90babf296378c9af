//! How neighbours affect the latency of a tenant at queue depth 1.

use flashyard_flash::Profile;
use flashyard_flash::ssd::Condition;
use flashyard_sched::Class;

use super::drive;
use super::sharing::{
    COLUMNS, Findings, GIB, Group, Kind, PROFILE, READER_BEATS_FIFO, SHORT, Workload, contenders,
    is_latency_reader, latency_chart, measure_all,
};
use crate::experiment::{Context, Experiment, Refused, Setting};
use crate::report::{Chart, Got, Promise, Report};

/// See [`Experiment::claim`].
pub(super) struct NoisyNeighbour;

const CLAIM: &str = "A tenant that reads 4 KiB, one at a time, should not notice who else is there. It is in the class for latency; beside \
it are one bulk reader, one bulk writer, or sixteen of each, with 4 KiB at random and 32 under way on a fragmented drive, or \
128 KiB and four under way on a clean one. Hosts are unmodified: nothing but the switch can help, so Parda cannot take part. \
For ReFlex, which knows no classes, the tenant has reserved 12,000 reads a second at a p95 of 1 ms.";

const SETTINGS: [Setting; 3] = [PROFILE, GIB, SHORT];

const PROMISES: [Promise; 2] = [
    READER_BEATS_FIFO,
    Promise {
        wanted: "Under `fair` the mean is at most twice the 85 us that a `dct983` gives the reader alone",
        judge: |rows| {
            let reader = rows
                .with("policy", "fair")
                .with("profile", "dct983")
                .that(is_latency_reader);
            Got::at_most(&reader.numbers("mean_us"), 170.4)
        },
    },
];

impl Experiment for NoisyNeighbour {
    fn name(&self) -> &'static str {
        "noisy-neighbour"
    }

    fn claim(&self) -> &'static str {
        CLAIM
    }

    fn settings(&self) -> &'static [Setting] {
        &SETTINGS
    }

    fn policies(&self) -> &'static [&'static str] {
        &[
            "fifo",
            "caps",
            "flashfq",
            "reflex",
            "gimbal",
            "gimbal-released",
            "fair",
        ]
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

/// A latency-sensitive reader beside one reader, one writer, or sixteen of each.
fn workloads(quick: bool, profiles: usize) -> Vec<Workload> {
    const SMALL: [Kind; 2] = [Kind::READ_4K, Kind::WRITE_4K];
    const LARGE: [Kind; 2] = [Kind::READ_128K, Kind::WRITE_128K];
    let single = Group::of(1, Kind::new(true, 4096, 1)).of_class(Class::Latency);
    let drives = [
        (Condition::Fragmented(100), SMALL),
        (Condition::Clean, LARGE),
    ];
    let mut workloads = Vec::new();
    for profile in 0..profiles {
        for (condition, [read, write]) in drives {
            let neighbours = [
                vec![Group::of(1, read)],
                vec![Group::of(1, write)],
                vec![Group::of(16, read), Group::of(16, write)],
            ];
            for neighbours in neighbours {
                let groups = [vec![single], neighbours].concat();
                workloads.push(Workload::new(profile, condition, groups));
            }
        }
    }
    workloads.truncate(if quick { 1 } else { workloads.len() });
    workloads
}

/// The latency of the one beside sixteen readers and writers, in both conditions.
fn charts(found: &Findings, profiles: &[Profile], workloads: &[Workload]) -> Vec<Chart> {
    let crowds = workloads
        .iter()
        .filter(|workload| workload.groups.len() == 3);
    let names = ["latency-fragmented", "latency-clean"];
    let chart = |(workload, name)| latency_chart(found, profiles, workload, 0, name, UNNOTICED);
    crowds.zip(names).map(chart).collect()
}

const UNNOTICED: &str =
    "Who is served first does not notice the others but by what the drive itself is busy with.";
