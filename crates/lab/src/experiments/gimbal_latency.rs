//! Latency, and what credit does for it: experiment E5 of the Gimbal study.

use flashyard_flash::Profile;
use flashyard_flash::ssd::Condition;

use super::columns::{
    BANDWIDTH, CONDITION, KIND, MAX, MEAN, P50, P99, P999, POLICY, PROFILE as PROFILE_COLUMN,
    WORKER, column,
};
use super::drive;
use super::figures::{self, Figures};
use super::sharing::{
    Contender, GIB, Group, Kind, Measured, POLICIES, PROFILE, SHORT, Workload, contenders,
    measure_all,
};
use crate::experiment::{Context, Experiment, Refused, Setting};
use crate::measure::{Tally, mean_us, percentile_us};
use crate::report::{
    Axis, Chart, ChartKind, Column, Got, Promise, Report, Row, Scale, Series, Unit, Value,
};

/// See [`Experiment::claim`].
pub(super) struct GimbalLatency;

const CLAIM: &str = "An I/O that waits in the target's queue is late and can no longer be sent elsewhere; one that its host holds back can. \
Gimbal tells each host how much it may have under way, and its authors report 62.6 % less tail latency than other schemes. That compares \
schemes with each other; here each is beside itself without credit, so the two figures are not of one quantity. Sixteen tenants read and \
sixteen write, with 4 KiB on a fragmented drive and 128 KiB on a clean one. Latency is counted from where the host sends an I/O, so what \
credit or Parda's windows hold back is not in it; the columns with the host's queue count from where the application issues it. With a fixed \
number under way for each application, the mean of those follows from the rate, whatever a switch does: what credit takes from the one queue \
waits in the other.";

const SETTINGS: [Setting; 3] = [PROFILE, GIB, SHORT];

const COLUMNS: [Column; 15] = [
    PROFILE_COLUMN,
    CONDITION,
    POLICY,
    column("credit", "credit", Unit::None),
    WORKER,
    KIND,
    BANDWIDTH,
    MEAN,
    P50,
    P99,
    P999,
    MAX,
    column("device_mean_us", "mean in the drive", Unit::Micros),
    column("issue_mean_us", "mean with host's queue", Unit::Micros),
    column("issue_p999_us", "p99.9 with host's queue", Unit::Micros),
];

const PROMISES: [Promise; 1] = [Promise {
    wanted: "Under `fair` the p99.9 is nowhere above Gimbal's, with and without credit",
    judge: |rows| {
        let part = |row: &Row| {
            let alike = rows.like(row, &["profile", "condition", "credit", "worker"]);
            let gimbal = alike.with("policy", "gimbal").first()?;
            Some(row.number("p999_us")? / gimbal.number("p999_us")?)
        };
        Got::at_most(&rows.with("policy", "fair").each(part), 1.0)
    },
}];

impl Experiment for GimbalLatency {
    fn name(&self) -> &'static str {
        "gimbal-latency"
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
        let contenders = with_credit(contenders(context));
        let found = measure_all(context, &profiles, &workloads, &contenders, false)?;
        Ok(Report {
            rows: found
                .measured
                .iter()
                .flat_map(|measured| rows(&profiles, measured))
                .collect(),
            charts: charts(&found.measured, &profiles, &workloads),
            ..Report::of(self, context, found.digest, &COLUMNS)
        })
    }
}

/// Each policy, and those that tell credit a second time with hosts that apply it.
fn with_credit(plain: Vec<Contender>) -> Vec<Contender> {
    let both = |contender: Contender| {
        let tells = matches!(contender.policy, "gimbal" | "fair");
        let applied = Contender {
            credit: true,
            ..contender
        };
        [Some(contender), tells.then_some(applied)]
    };
    plain.into_iter().flat_map(both).flatten().collect()
}

/// Sixteen readers and sixteen writers on each drive, in both conditions.
fn workloads(quick: bool, profiles: usize) -> Vec<Workload> {
    let scenarios = [
        (Condition::Fragmented(100), [Kind::READ_4K, Kind::WRITE_4K]),
        (Condition::Clean, [Kind::READ_128K, Kind::WRITE_128K]),
    ];
    let scenarios = &scenarios[..if quick { 1 } else { scenarios.len() }];
    let workload = |profile| {
        let workload = move |&(condition, kinds): &(Condition, [Kind; 2])| {
            Workload::new(profile, condition, kinds.map(|kind| Group::of(16, kind)))
        };
        scenarios.iter().map(workload)
    };
    (0..profiles).flat_map(workload).collect()
}

/// A row for each group.
fn rows(profiles: &[Profile], measured: &Measured) -> Vec<Vec<Value>> {
    let row = |group: usize| {
        let figures = measured.together(group);
        let flight = |part| figures.value(|tally| percentile_us(&tally.flight(), part));
        vec![
            Value::Text(profiles[measured.workload.profile].name.clone()),
            Value::Text(measured.workload.condition.to_string()),
            Value::Text(measured.contender.policy.into()),
            Value::Flag(measured.contender.credit),
            Value::Text(measured.workload.groups[group].label()),
            Value::Text(measured.workload.groups[group].kind.label()),
            figures.rate(Tally::bytes_per_second),
            figures.value(|tally| mean_us(&tally.flight())),
            flight(figures::P50),
            flight(figures::P99),
            flight(figures::P999),
            flight(figures::MAX),
            figures.value(device_mean_us),
            figures.value(|tally| mean_us(&tally.total())),
            figures.percentile(figures::P999),
        ]
    };
    (0..measured.workload.groups.len()).map(row).collect()
}

fn device_mean_us(tally: &Tally) -> Option<f64> {
    let mut device = tally.reads.device.clone();
    device.merge(&tally.writes.device);
    mean_us(&device)
}

/// The p99.9 of readers and of writers on the first drive, in each condition.
fn charts(measured: &[Measured], profiles: &[Profile], workloads: &[Workload]) -> Vec<Chart> {
    let first = workloads.iter().filter(|workload| workload.profile == 0);
    let names = ["fragmented", "clean"];
    first
        .zip(names)
        .map(|(workload, name)| chart(measured, profiles, workload, name))
        .collect()
}

fn chart(
    measured: &[Measured],
    profiles: &[Profile],
    workload: &Workload,
    name: &'static str,
) -> Chart {
    let measured: Vec<_> = measured
        .iter()
        .filter(|measured| measured.workload == workload)
        .collect();
    let p999 =
        |figures: &Figures| figures.mean(|tally| percentile_us(&tally.flight(), figures::P999));
    let series = |group: usize| Series {
        label: workload.groups[group].label(),
        points: (0..)
            .map(f64::from)
            .zip(
                measured
                    .iter()
                    .map(|measured| p999(&measured.together(group))),
            )
            .collect(),
    };
    Chart {
        name,
        title: format!(
            "p99.9 from the host's sending: {}",
            workload.label(profiles)
        ),
        claim: "Where hosts hold I/O back, what they do send comes back sooner.".into(),
        kind: ChartKind::Bars {
            categories: measured
                .iter()
                .map(|measured| measured.contender.label())
                .collect(),
        },
        x: Axis {
            label: "policy".into(),
            unit: Unit::None,
            scale: Scale::Linear,
        },
        y: Axis {
            label: "p99.9".into(),
            unit: Unit::Micros,
            scale: Scale::Linear,
        },
        series: (0..workload.groups.len()).map(series).collect(),
        marks: Vec::new(),
    }
}
