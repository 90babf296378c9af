//! Whether opening more queues gains a tenant anything.

use flashyard_flash::ssd::Condition;

use super::drive;
use super::sharing::{
    COLUMNS, GIB, Group, Kind, POLICIES, PROFILE, SHORT, Workload, contenders, f_util_chart,
    measure_all,
};
use crate::experiment::{Context, Experiment, Refused, Setting};
use crate::report::{Got, Promise, Report};

/// See [`Experiment::claim`].
pub(super) struct Sybil;

const CLAIM: &str = "A switch that takes a connection for a tenant gives more to whoever opens more of them. One tenant works through sixteen \
queues, fifteen others through one each; all read, or all write, 4 KiB at random on a fragmented drive with 32 under way in \
each queue. Fair is a sixteenth of the drive each: f-Util 1.0. The released code of Gimbal takes every queue for a tenant, \
and Parda has a window for every host; all others are told who the tenant is.";

const SETTINGS: [Setting; 3] = [PROFILE, GIB, SHORT];

const PROMISES: [Promise; 1] = [Promise {
    wanted: "Under `fair` queues gain nothing: every tenant's f-Util is 0.95 to 1.05",
    judge: |rows| {
        let rows = rows.with("policy", "fair");
        let ends = [rows.numbers("f_util_min"), rows.numbers("f_util_max")].concat();
        Got::within(&ends, 0.95, 1.05)
    },
}];

impl Experiment for Sybil {
    fn name(&self) -> &'static str {
        "sybil"
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
        let found = measure_all(context, &profiles, &workloads, &contenders(context), false)?;
        Ok(Report {
            rows: found.rows(&profiles),
            charts: vec![f_util_chart(
                &found,
                &profiles,
                workloads.last().expect("there is a cast"),
                "f-util",
                "Where the first bar is the higher one, opening queues pays.",
            )],
            ..Report::of(self, context, found.digest, &COLUMNS)
        })
    }
}

/// One tenant with sixteen queues and fifteen with one, all readers or all writers.
fn workloads(quick: bool, profiles: usize) -> Vec<Workload> {
    let kinds = [Kind::WRITE_4K, Kind::READ_4K];
    let kinds = &kinds[..if quick { 1 } else { 2 }];
    let workload = |profile| {
        let workload = move |&kind| {
            let groups = [Group::of_one_tenant(16, kind), Group::of(15, kind)];
            Workload::new(profile, Condition::Fragmented(100), groups)
        };
        kinds.iter().map(workload)
    };
    (0..profiles).flat_map(workload).collect()
}
