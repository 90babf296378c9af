//! The same constants on other drives: experiment E8 of the Gimbal study.

use flashyard_flash::ssd::Condition;

use super::drive;
use super::sharing::{
    COLUMNS, EQUAL, GIB, Group, Kind, NEAR_THE_ORACLE, SHORT, Workload, contenders, f_util_chart,
    measure_all,
};
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::report::{Promise, Report};

/// See [`Experiment::claim`].
pub(super) struct Generalization;

const CLAIM: &str = "A policy whose constants were found on one drive may be wrong for the next. The scenes of `gimbal-fairness-fragmented`, \
`gimbal-fairness-clean` and `gimbal-sizes` on drives that write alike but treat a program in progress differently \
(variants A0, B and D of the DCT 983), and on a consumer drive (970 PRO). Gimbal keeps the thresholds, the worst write cost \
of nine and the eight slots that its authors give for the DCT 983; ReFlex and FlashFQ are calibrated anew for each drive, \
fragmented; `fair` has no constant for a drive.";

const SETTINGS: [Setting; 3] = [DRIVES, GIB, SHORT];

const PROMISES: [Promise; 2] = [EQUAL, NEAR_THE_ORACLE];

impl Experiment for Generalization {
    fn name(&self) -> &'static str {
        "generalization"
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
        let found = measure_all(context, &profiles, &workloads, &contenders(context), true)?;
        Ok(Report {
            rows: found.rows(&profiles),
            charts: workloads
                .iter()
                .filter(|workload| workload.groups[1].kind == Kind::WRITE_4K)
                .zip(CHARTS)
                .map(|(workload, name)| f_util_chart(&found, &profiles, workload, name, SAME))
                .collect(),
            ..Report::of(self, context, found.digest, &COLUMNS)
        })
    }
}

/// All scenarios on each drive.
fn workloads(quick: bool, profiles: usize) -> Vec<Workload> {
    const FRAGMENTED: Condition = Condition::Fragmented(100);
    let mixed = |read, write| [Group::of(16, read), Group::of(16, write)];
    let sizes = [Group::of(16, Kind::READ_4K), Group::of(4, Kind::READ_128K)];
    let scenarios = [
        (FRAGMENTED, mixed(Kind::READ_4K, Kind::WRITE_4K)),
        (Condition::Clean, mixed(Kind::READ_128K, Kind::WRITE_128K)),
        (Condition::Clean, sizes),
        (FRAGMENTED, sizes),
    ];
    let scenarios = &scenarios[..if quick { 1 } else { scenarios.len() }];
    let workload = |profile| {
        let workload = move |&(condition, groups)| Workload::new(profile, condition, groups);
        scenarios.iter().map(workload)
    };
    let profiles = if quick { 1 } else { profiles };
    (0..profiles).flat_map(workload).collect()
}

const SAME: &str = "The same constants give another picture on each drive.";
/// The names of the charts, one for each drive as far as they go.
const CHARTS: [&str; 5] = ["f-util-1", "f-util-2", "f-util-3", "f-util-4", "f-util-5"];

const DRIVES: Setting = Setting {
    key: "profile",
    default: "dct983,dct983-a0,dct983-b,dct983-d,970pro",
    domain: Domain::Profiles,
    meaning: "the drives",
};
