//! Fairness between short and long reads: experiment E4 of the Gimbal study.

use flashyard_flash::ssd::Condition;

use super::drive;
use super::sharing::{
    COLUMNS, EQUAL, GIB, Group, Kind, NEAR_THE_ORACLE, POLICIES, PROFILE, SHORT, Workload,
    contenders, f_util_chart, measure_all, utilization_chart,
};
use crate::experiment::{Context, Experiment, Refused, Setting};
use crate::report::{Promise, Report};

/// See [`Experiment::claim`].
pub(super) struct GimbalSizes;

const CLAIM: &str = "Bytes are no fair measure between tenants that read 4 KiB and tenants that read 128 KiB, as a drive reaches different \
bandwidths with them; nor are I/Os. Sixteen tenants read 4 KiB with 32 under way and four read 128 KiB with four, on a \
clean and on a fragmented drive. f-Util is as in `gimbal-fairness-fragmented`. On the fragmented drive, one long read is \
32 short ones that end together; on the clean one it comes from a few dies in long strides and costs far less.";

const SETTINGS: [Setting; 3] = [PROFILE, GIB, SHORT];

const PROMISES: [Promise; 2] = [EQUAL, NEAR_THE_ORACLE];

impl Experiment for GimbalSizes {
    fn name(&self) -> &'static str {
        "gimbal-sizes"
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
                    "Who counts bytes gives long reads too much, who counts I/Os gives short ones too much.",
                ),
                f_util_chart(
                    &found,
                    &profiles,
                    workloads.last().expect("there is a cast"),
                    "f-util-fragmented",
                    "On the fragmented drive both kinds compete for the same dies.",
                ),
                utilization_chart(
                    &found,
                    &profiles,
                    &workloads,
                    "A policy that is fair by doing little would show here.",
                ),
            ],
            ..Report::of(self, context, found.digest, &COLUMNS)
        })
    }
}

/// Sixteen short readers and four long ones on each drive, in both conditions.
fn workloads(quick: bool, profiles: usize) -> Vec<Workload> {
    let groups = [Group::of(16, Kind::READ_4K), Group::of(4, Kind::READ_128K)];
    let conditions = [Condition::Clean, Condition::Fragmented(100)];
    let conditions = &conditions[usize::from(quick)..];
    let workload = |profile| {
        let workload = move |&condition| Workload::new(profile, condition, groups);
        conditions.iter().map(workload)
    };
    (0..profiles).flat_map(workload).collect()
}
