//! The best allocation by fixed rates: the bound that policies are compared with.

use flashyard_flash::ssd::Condition;

use super::drive;
use super::sharing::{
    COLUMNS, GIB, Group, Kind, PROFILE, SHORT, Workload, contenders, f_util_chart, measure_all,
};
use crate::experiment::{Context, Experiment, Refused, Setting};
use crate::report::Report;

/// See [`Experiment::claim`].
pub(super) struct Oracle;

const CLAIM: &str = "No policy can give the worst-off tenant more than the best fixed rates would, found by somebody who tries them all on \
the very drive. In each scene of `gimbal-fairness-fragmented`, `gimbal-fairness-clean` and `gimbal-sizes`, every tenant's \
I/O leaves evenly spaced at the same f-Util, and a search finds the one at which the least f-Util that comes of it is \
greatest. Beside it stand the same scenes without a switch. Conflicts between reads and writes at the dies make the bound \
less than one; kinds that use different parts of the drive make it more.";

const SETTINGS: [Setting; 3] = [PROFILE, GIB, SHORT];

impl Experiment for Oracle {
    fn name(&self) -> &'static str {
        "oracle"
    }

    fn claim(&self) -> &'static str {
        CLAIM
    }

    fn settings(&self) -> &'static [Setting] {
        &SETTINGS
    }

    fn policies(&self) -> &'static [&'static str] {
        &["fifo"]
    }

    fn run(&self, context: &Context) -> Result<Report, Refused> {
        let profiles = drive::profiles(&context.words("profile"))?;
        let workloads = workloads(context.quick, profiles.len());
        let found = measure_all(context, &profiles, &workloads, &contenders(context), true)?;
        Ok(Report {
            rows: found.rows(&profiles),
            charts: vec![f_util_chart(
                &found,
                &profiles,
                &workloads[0],
                "f-util",
                "Without a switch, one side has what the other lacks; the line is what both could have.",
            )],
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
    (0..profiles).flat_map(workload).collect()
}
