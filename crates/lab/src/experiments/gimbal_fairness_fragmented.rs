//! Fairness between readers and writers of a fragmented drive: experiment E2 of the Gimbal study.

use flashyard_flash::ssd::Condition;

use super::drive;
use super::sharing::{
    COLUMNS, EQUAL, GIB, GIMBAL_IS_FAIREST, Group, Kind, MS, NEAR_THE_ORACLE, POLICIES, PROFILE,
    Workload, contenders, f_util_chart, latency_chart, measure_all, utilization_chart,
};
use crate::experiment::{Context, Experiment, Refused, Setting};
use crate::report::{Promise, Report};

/// See [`Experiment::claim`].
pub(super) struct GimbalFairnessFragmented;

const CLAIM: &str = "On a fragmented drive a small write costs about nine small reads, and a switch that does not know that lets writers take \
the drive. Sixteen tenants read and sixteen write 4 KiB at random, 32 under way each. f-Util is a tenant's bandwidth over \
the part of the drive that would be its own: what its work reaches alone, divided by the number of tenants; 1.0 for all is \
exactly fair. Gimbal's authors report that theirs comes nearest among ReFlex, FlashFQ and Parda, in f-Util and in \
utilisation. Gimbal here is as published, with its released code's faults mended; `gimbal-released` has them. The oracle \
is the greatest f-Util that the worst-off tenant could have under any fixed rates, found by search on the same drive.";

const SETTINGS: [Setting; 3] = [PROFILE, GIB, MS];

const PROMISES: [Promise; 3] = [EQUAL, NEAR_THE_ORACLE, GIMBAL_IS_FAIREST];

impl Experiment for GimbalFairnessFragmented {
    fn name(&self) -> &'static str {
        "gimbal-fairness-fragmented"
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
        let profiles = drive::profiles(&context.words("profile"))?;
        let workloads = workloads(context.quick, profiles.len());
        let found = measure_all(context, &profiles, &workloads, &contenders(context), true)?;
        Ok(Report {
            rows: found.rows(&profiles),
            charts: vec![
                f_util_chart(
                    &found,
                    &profiles,
                    &workloads[0],
                    "f-util",
                    "The nearer both bars are to each other, and to the line, the fairer.",
                ),
                utilization_chart(
                    &found,
                    &profiles,
                    &workloads,
                    "A policy that is fair by doing little would show here.",
                ),
                latency_chart(
                    &found,
                    &profiles,
                    &workloads[0],
                    0,
                    "read-latency",
                    "With a fixed number of I/Os under way, the mean follows from the rate; the tail does not.",
                ),
            ],
            ..Report::of(self, context, found.digest, &COLUMNS)
        })
    }
}

/// Sixteen readers and sixteen writers on each drive.
fn workloads(_quick: bool, profiles: usize) -> Vec<Workload> {
    let groups = [Group::of(16, Kind::READ_4K), Group::of(16, Kind::WRITE_4K)];
    let workload = |profile| Workload::new(profile, Condition::Fragmented(100), groups);
    (0..profiles).map(workload).collect()
}
