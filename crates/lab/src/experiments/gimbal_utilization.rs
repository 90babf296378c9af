//! How much of a drive a policy leaves unused: experiment E1 of the Gimbal study.

use flashyard_flash::ssd::Condition;

use super::drive;
use super::sharing::{
    COLUMNS, GIB, Group, Kind, POLICIES, PROFILE, SHORT, Workload, contenders, measure_all,
    utilization_chart,
};
use crate::experiment::{Context, Experiment, Refused, Setting};
use crate::report::{Got, Promise, Report, Row};

/// See [`Experiment::claim`].
pub(super) struct GimbalUtilization;

const CLAIM: &str = "Sixteen tenants that all do the same need no arbiter; what a policy takes from them is its price. They read or write, \
128 KiB on a clean drive and 4 KiB on a fragmented one. Gimbal's authors report up to 6.6 times the utilisation of the \
others; the greatest gap they can have had is a ceiling on writes that was calibrated for the fragmented drive and kept on \
a clean one. Utilisation is relative to what the same sixteen reach without any switch.";

const SETTINGS: [Setting; 3] = [PROFILE, GIB, SHORT];

const PROMISES: [Promise; 2] = [
    Promise {
        wanted: "`fair` leaves at least 0.95 of what the same tenants use without a switch",
        judge: |rows| Got::at_least(&rows.with("policy", "fair").numbers("utilization"), 0.95),
    },
    Promise {
        wanted: "Its authors report that Gimbal uses up to 6.6 times as much as others (within a tenth)",
        judge: |rows| {
            let most = |row: &Row| {
                let alike = rows.like(row, &["profile", "condition", "tenants"]);
                let others =
                    alike.that(|row| ["reflex", "flashfq", "parda"].contains(&row.word("policy")));
                let least = others.numbers("utilization").into_iter().reduce(f64::min)?;
                Some(row.number("utilization")? / least)
            };
            let times = rows.with("policy", "gimbal").each(most);
            let most = times.into_iter().reduce(f64::max)?;
            Got::within(&[most], 5.94, 7.26)
        },
    },
];

impl Experiment for GimbalUtilization {
    fn name(&self) -> &'static str {
        "gimbal-utilization"
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
            charts: vec![utilization_chart(
                &found,
                &profiles,
                &workloads,
                "Writes on a clean drive show what an old calibration costs.",
            )],
            ..Report::of(self, context, found.digest, &COLUMNS)
        })
    }
}

/// Sixteen readers or sixteen writers on each drive: long I/O where it is clean, short where it is
/// fragmented.
fn workloads(quick: bool, profiles: usize) -> Vec<Workload> {
    const FRAGMENTED: Condition = Condition::Fragmented(100);
    let kinds = [
        (Condition::Clean, Kind::READ_128K),
        (Condition::Clean, Kind::WRITE_128K),
        (FRAGMENTED, Kind::READ_4K),
        (FRAGMENTED, Kind::WRITE_4K),
    ];
    let kinds = &kinds[if quick { 3 } else { 0 }..];
    let workload = |profile| {
        let workload =
            move |&(condition, kind)| Workload::new(profile, condition, [Group::of(16, kind)]);
        kinds.iter().map(workload)
    };
    (0..profiles).flat_map(workload).collect()
}
