//! Fairness between readers and writers of a clean drive: experiment E3 of the Gimbal study.

use flashyard_flash::ssd::Condition;

use super::drive;
use super::sharing::{
    COLUMNS, EQUAL, GIB, GIMBAL_IS_FAIREST, Group, Kind, MS, NEAR_THE_ORACLE, POLICIES, PROFILE,
    Workload, contenders, f_util_chart, measure_all, utilization_chart,
};
use crate::experiment::{Context, Experiment, Refused, Setting};
use crate::report::{Promise, Report};

/// See [`Experiment::claim`].
pub(super) struct GimbalFairnessClean;

const CLAIM: &str = "A clean drive writes much faster than a fragmented one, so a policy that was calibrated for the one is wrong for the \
other. Sixteen tenants read 128 KiB at random and sixteen write 128 KiB one after another, four under way each, on a drive \
that was filled in order. Nothing is calibrated again: ReFlex, FlashFQ, Parda and caps go by what they measured on the \
fragmented drive. f-Util is as in `gimbal-fairness-fragmented`. Gimbal's authors report the best fairness of all at high \
utilisation, because its write cost follows what the drive does.";

const SETTINGS: [Setting; 3] = [PROFILE, GIB, MS];

const PROMISES: [Promise; 3] = [EQUAL, NEAR_THE_ORACLE, GIMBAL_IS_FAIREST];

impl Experiment for GimbalFairnessClean {
    fn name(&self) -> &'static str {
        "gimbal-fairness-clean"
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
                    "What is calibrated for the fragmented drive leaves much of the clean one unused.",
                ),
            ],
            ..Report::of(self, context, found.digest, &COLUMNS)
        })
    }
}

/// Sixteen readers and sixteen writers on each drive.
fn workloads(_quick: bool, profiles: usize) -> Vec<Workload> {
    let groups = [
        Group::of(16, Kind::READ_128K),
        Group::of(16, Kind::WRITE_128K),
    ];
    let workload = |profile| Workload::new(profile, Condition::Clean, groups);
    (0..profiles).map(workload).collect()
}
