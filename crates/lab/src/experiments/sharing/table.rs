//! The table and the charts that all experiments on sharing have.

use flashyard_flash::Profile;

use super::{Cast, Findings, Play};
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
    /// A row for each group of each play.
    pub(in crate::experiments) fn rows(&self, profiles: &[Profile]) -> Vec<Vec<Value>> {
        let rows = |play| self.rows_of(profiles, play);
        self.plays.iter().flat_map(rows).collect()
    }

    fn rows_of(&self, profiles: &[Profile], play: &Play) -> Vec<Vec<Value>> {
        let Play { cast, entrant, .. } = play;
        let groups = 0..cast.groups.len();
        let row = |group: usize| {
            let together = play.together(group);
            let [mean, p50, p99, p999, max] = together.latencies();
            vec![
                Value::Text(profiles[cast.profile].name.clone()),
                Value::Text(cast.condition.to_string()),
                Value::Text(cast.tenants_label()),
                Value::Text(entrant.label()),
                Value::Text(cast.groups[group].label()),
                Value::Text(cast.groups[group].kind.label()),
                together.rate(Tally::bytes_per_second),
                together.rate(Tally::iops),
                self.f_util(play, group, mean_of),
                self.f_util(play, group, least),
                self.f_util(play, group, greatest),
                self.bound(cast).map_or(Value::Missing, Value::Real),
                play.value(|results| self.utilization(cast, results)),
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
    pub(in crate::experiments) fn bound(&self, cast: &Cast) -> Option<f64> {
        let known = self.bounds.iter().find(|(known, _)| *known == cast);
        known.map(|(_, bound)| *bound)
    }

    /// What all tenants together use of the drive: the sum of what each has of its work's bandwidth
    /// alone.
    pub(in crate::experiments) fn utilization(&self, cast: &Cast, results: &Results) -> f64 {
        let groups = 0..cast.groups.len();
        let all = groups.flat_map(|group| self.alone.f_utils(cast, group, results));
        all.sum::<f64>() / f64::from(cast.tenants())
    }

    /// The mean over seeds of a figure of the f-Utils of a group.
    pub(in crate::experiments) fn f_util_of(
        &self,
        play: &Play,
        group: usize,
        figure: fn(&[f64]) -> f64,
    ) -> Option<Estimate> {
        let of = |results| figure(&self.alone.f_utils(play.cast, group, results));
        let values: Vec<f64> = play.results.iter().map(of).collect();
        Estimate::of(&values)
    }

    fn f_util(&self, play: &Play, group: usize, figure: fn(&[f64]) -> f64) -> Value {
        let estimate = self.f_util_of(play, group, figure);
        estimate.map_or(Value::Missing, value_of)
    }
}

impl Play<'_> {
    /// The mean over seeds of a figure of a run.
    fn value(&self, figure: impl Fn(&Results) -> f64) -> Value {
        let values: Vec<f64> = self.results.iter().map(figure).collect();
        Estimate::of(&values).map_or(Value::Missing, value_of)
    }

    /// What the workers of a group got together, under each seed.
    pub(in crate::experiments) fn together(&self, group: usize) -> Figures {
        let range = self.cast.range(group);
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

/// The f-Util of each group under each policy on the drive of one cast, beside the bound.
pub(in crate::experiments) fn f_util_chart(
    findings: &Findings,
    profiles: &[Profile],
    cast: &Cast,
    name: &'static str,
    claim: &str,
) -> Chart {
    let plays = || findings.plays.iter().filter(|play| play.cast == cast);
    let series = |group: usize| Series {
        label: cast.groups[group].label_with_kind(),
        points: bars(plays(), |play| {
            findings
                .f_util_of(play, group, mean_of)
                .map(|estimate| estimate.mean)
        }),
    };
    let bound = findings.bound(cast).map(|bound| Mark {
        label: "best fixed rates".into(),
        at: MarkAt::Y(bound),
    });
    Chart {
        name,
        title: format!("f-Util: {}", cast.label(profiles)),
        claim: claim.into(),
        kind: categories(plays()),
        x: axis("policy", Unit::None, Scale::Linear),
        y: axis("f-Util, mean of a group", Unit::Ratio, Scale::Linear),
        series: (0..cast.groups.len()).map(series).collect(),
        marks: bound.into_iter().collect(),
    }
}

/// What all tenants use together under each policy, for each cast.
pub(in crate::experiments) fn utilization_chart(
    findings: &Findings,
    profiles: &[Profile],
    casts: &[Cast],
    claim: &str,
) -> Chart {
    let series = |cast: &Cast| Series {
        label: cast.label(profiles),
        points: bars(
            findings.plays.iter().filter(|play| play.cast == cast),
            |play| {
                let each = play
                    .results
                    .iter()
                    .map(|results| findings.utilization(cast, results));
                Some(each.sum::<f64>() / play.results.len() as f64)
            },
        ),
    };
    let first = findings.plays.iter().filter(|play| play.cast == &casts[0]);
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
        series: casts.iter().map(series).collect(),
        marks: Vec::new(),
    }
}

/// Percentiles of the latency of one group under each policy.
pub(in crate::experiments) fn latency_chart(
    findings: &Findings,
    profiles: &[Profile],
    cast: &Cast,
    group: usize,
    name: &'static str,
    claim: &str,
) -> Chart {
    let plays = || findings.plays.iter().filter(|play| play.cast == cast);
    let series = |(label, part): (&str, u32)| Series {
        label: label.into(),
        points: bars(plays(), |play| {
            let figures = play.together(group);
            Some(figures.mean(|tally| percentile_us(&tally.total(), part)))
        }),
    };
    let parts = [
        ("p50", figures::P50),
        ("p99", figures::P99),
        ("p99.9", figures::P999),
    ];
    let who = cast.groups[group].label();
    Chart {
        name,
        title: format!("Latency of {who}: {}", cast.label(profiles)),
        claim: claim.into(),
        kind: categories(plays()),
        x: axis("policy", Unit::None, Scale::Linear),
        y: axis("latency", Unit::Micros, Scale::Linear),
        series: parts.into_iter().map(series).collect(),
        marks: Vec::new(),
    }
}

fn categories<'a>(plays: impl Iterator<Item = &'a Play<'a>>) -> ChartKind {
    ChartKind::Bars {
        categories: plays.map(|play| play.entrant.label()).collect(),
    }
}

fn bars<'a>(
    plays: impl Iterator<Item = &'a Play<'a>>,
    height: impl Fn(&Play) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let bar = |(place, play): (usize, &Play)| Some((place as f64, height(play)?));
    plays.enumerate().filter_map(bar).collect()
}

fn axis(label: &str, unit: Unit, scale: Scale) -> Axis {
    Axis {
        label: label.into(),
        unit,
        scale,
    }
}
