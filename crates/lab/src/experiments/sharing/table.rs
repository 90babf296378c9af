//! The table and the charts that all experiments on sharing have.

use flashyard_flash::Profile;

use super::{Findings, Measured, Workload};
use crate::bench::Results;
use crate::experiments::columns::{
    BANDWIDTH, CONDITION, F_UTIL, IOPS, KIND, MAX, MEAN, P50, P99, P999, POLICY, PROFILE, WORKER,
    column,
};
use crate::experiments::figures::{self, Figures, value_of};
use crate::measure::{Estimate, Tally, percentile_us};
use crate::report::{Axis, Chart, ChartKind, Column, Mark, MarkAt, Scale, Series, Unit, Value};

pub(in crate::experiments) const COLUMNS: [Column; 18] = [
    PROFILE,
    CONDITION,
    column("tenants", "tenants", Unit::None),
    POLICY,
    WORKER,
    KIND,
    BANDWIDTH,
    IOPS,
    F_UTIL,
    column("f_util_min", "least f-Util", Unit::Ratio),
    column("f_util_max", "greatest f-Util", Unit::Ratio),
    column("oracle_f_util", "oracle's least f-Util", Unit::Ratio),
    column("utilization", "utilisation", Unit::Ratio),
    MEAN,
    P50,
    P99,
    P999,
    MAX,
];

impl Findings<'_> {
    /// A row for each group of each measured.
    pub(in crate::experiments) fn rows(&self, profiles: &[Profile]) -> Vec<Vec<Value>> {
        let rows = |measured| self.rows_of(profiles, measured);
        self.measured.iter().flat_map(rows).collect()
    }

    fn rows_of(&self, profiles: &[Profile], measured: &Measured) -> Vec<Vec<Value>> {
        let Measured {
            workload,
            contender,
            ..
        } = measured;
        let groups = 0..workload.groups.len();
        let row = |group: usize| {
            let together = measured.together(group);
            let [mean, p50, p99, p999, max] = together.latencies();
            vec![
                Value::Text(profiles[workload.profile].name.clone()),
                Value::Text(workload.condition.to_string()),
                Value::Text(workload.tenants_label()),
                Value::Text(contender.label()),
                Value::Text(workload.groups[group].label()),
                Value::Text(workload.groups[group].kind.label()),
                together.rate(Tally::bytes_per_second),
                together.rate(Tally::iops),
                self.f_util(measured, group, mean_of),
                self.f_util(measured, group, least),
                self.f_util(measured, group, greatest),
                self.bound(workload).map_or(Value::Missing, Value::Real),
                measured.value(|results| self.utilization(workload, results)),
                mean,
                p50,
                p99,
                p999,
                max,
            ]
        };
        groups.map(row).collect()
    }

    /// The least f-Util under the best fixed rates, where it was sought.
    pub(in crate::experiments) fn bound(&self, workload: &Workload) -> Option<f64> {
        let known = self.bounds.iter().find(|(known, _)| *known == workload);
        known.map(|(_, bound)| *bound)
    }

    /// What all tenants together use of the drive: the sum of what each has of its work's bandwidth
    /// alone.
    pub(in crate::experiments) fn utilization(
        &self,
        workload: &Workload,
        results: &Results,
    ) -> f64 {
        let groups = 0..workload.groups.len();
        let all = groups.flat_map(|group| self.alone.f_utils(workload, group, results));
        all.sum::<f64>() / f64::from(workload.tenants())
    }

    /// The mean over seeds of a figure of the f-Utils of a group.
    pub(in crate::experiments) fn f_util_of(
        &self,
        measured: &Measured,
        group: usize,
        figure: fn(&[f64]) -> f64,
    ) -> Option<Estimate> {
        let of = |results| figure(&self.alone.f_utils(measured.workload, group, results));
        let values: Vec<f64> = measured.results.iter().map(of).collect();
        Estimate::of(&values)
    }

    fn f_util(&self, measured: &Measured, group: usize, figure: fn(&[f64]) -> f64) -> Value {
        let estimate = self.f_util_of(measured, group, figure);
        estimate.map_or(Value::Missing, value_of)
    }
}

impl Measured<'_> {
    /// The mean over seeds of a figure of a run.
    fn value(&self, figure: impl Fn(&Results) -> f64) -> Value {
        let values: Vec<f64> = self.results.iter().map(figure).collect();
        Estimate::of(&values).map_or(Value::Missing, value_of)
    }

    /// What the workers of a group got together, under each seed.
    pub(in crate::experiments) fn together(&self, group: usize) -> Figures {
        let range = self.workload.range(group);
        let sum = |results: &Results| {
            let mut tallies = results.workers[range.clone()].iter().cloned();
            let mut sum = tallies.next().expect("a group has workers");
            tallies.for_each(|tally| sum.merge(&tally));
            sum
        };
        Figures(self.results.iter().map(sum).collect())
    }
}

fn mean_of(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn greatest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// The f-Util of each group under each policy on the drive of one workload, beside the bound.
pub(in crate::experiments) fn f_util_chart(
    findings: &Findings,
    profiles: &[Profile],
    workload: &Workload,
    name: &'static str,
    claim: &str,
) -> Chart {
    let measured = || {
        findings
            .measured
            .iter()
            .filter(|measured| measured.workload == workload)
    };
    let series = |group: usize| Series {
        label: workload.groups[group].label_with_kind(),
        points: bars(measured(), |measured| {
            findings
                .f_util_of(measured, group, mean_of)
                .map(|estimate| estimate.mean)
        }),
    };
    let bound = findings.bound(workload).map(|bound| Mark {
        label: "best fixed rates".into(),
        at: MarkAt::Y(bound),
    });
    Chart {
        name,
        title: format!("f-Util: {}", workload.label(profiles)),
        claim: claim.into(),
        kind: categories(measured()),
        x: axis("policy", Unit::None, Scale::Linear),
        y: axis("f-Util, mean of a group", Unit::Ratio, Scale::Linear),
        series: (0..workload.groups.len()).map(series).collect(),
        marks: bound.into_iter().collect(),
    }
}

/// What all tenants use together under each policy, for each workload.
pub(in crate::experiments) fn utilization_chart(
    findings: &Findings,
    profiles: &[Profile],
    workloads: &[Workload],
    claim: &str,
) -> Chart {
    let series = |workload: &Workload| Series {
        label: workload.label(profiles),
        points: bars(
            findings
                .measured
                .iter()
                .filter(|measured| measured.workload == workload),
            |measured| {
                let each = measured
                    .results
                    .iter()
                    .map(|results| findings.utilization(workload, results));
                Some(each.sum::<f64>() / measured.results.len() as f64)
            },
        ),
    };
    let first = findings
        .measured
        .iter()
        .filter(|measured| measured.workload == &workloads[0]);
    Chart {
        name: "utilization",
        title: "What all tenants use of the drive together".into(),
        claim: claim.into(),
        kind: categories(first),
        x: axis("policy", Unit::None, Scale::Linear),
        y: axis(
            "sum of parts of the bandwidth alone",
            Unit::Ratio,
            Scale::Linear,
        ),
        series: workloads.iter().map(series).collect(),
        marks: Vec::new(),
    }
}

/// Percentiles of the latency of one group under each policy.
pub(in crate::experiments) fn latency_chart(
    findings: &Findings,
    profiles: &[Profile],
    workload: &Workload,
    group: usize,
    name: &'static str,
    claim: &str,
) -> Chart {
    let measured = || {
        findings
            .measured
            .iter()
            .filter(|measured| measured.workload == workload)
    };
    let series = |(label, part): (&str, u32)| Series {
        label: label.into(),
        points: bars(measured(), |measured| {
            let figures = measured.together(group);
            Some(figures.mean(|tally| percentile_us(&tally.total(), part)))
        }),
    };
    let parts = [
        ("p50", figures::P50),
        ("p99", figures::P99),
        ("p99.9", figures::P999),
    ];
    let who = workload.groups[group].label();
    Chart {
        name,
        title: format!("Latency of {who}: {}", workload.label(profiles)),
        claim: claim.into(),
        kind: categories(measured()),
        x: axis("policy", Unit::None, Scale::Linear),
        y: axis("latency", Unit::Micros, Scale::Linear),
        series: parts.into_iter().map(series).collect(),
        marks: Vec::new(),
    }
}

fn categories<'a>(measured: impl Iterator<Item = &'a Measured<'a>>) -> ChartKind {
    ChartKind::Bars {
        categories: measured
            .map(|measured| measured.contender.label())
            .collect(),
    }
}

fn bars<'a>(
    measured: impl Iterator<Item = &'a Measured<'a>>,
    height: impl Fn(&Measured) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let bar = |(place, measured): (usize, &Measured)| Some((place as f64, height(measured)?));
    measured.enumerate().filter_map(bar).collect()
}

fn axis(label: &str, unit: Unit, scale: Scale) -> Axis {
    Axis {
        label: label.into(),
        unit,
        scale,
    }
}
