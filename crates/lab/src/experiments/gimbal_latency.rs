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
    Cast, Entrant, GIB, Group, Kind, POLICIES, PROFILE, Play, SHORT, entrants, play,
};
use crate::experiment::{Context, Experiment, Refused, Setting};
use crate::measure::{Tally, mean_us, percentile_us};
use crate::report::{Axis, Chart, ChartKind, Column, Report, Scale, Series, Unit, Value};

/// See [`Experiment::claim`].
pub(super) struct GimbalLatency;

const CLAIM: &str = "An I/O that waits in the target's queue is late and can no longer be sent elsewhere; one that its host \
holds back can. Gimbal tells each host how much it may have under way, and its authors report 62.6 % less tail latency than \
other schemes. Sixteen tenants read and sixteen write, with 4 KiB on a fragmented drive and 128 KiB on a clean one. Latency \
is counted from where the host sends an I/O, so what credit or Parda's windows hold back is not in it; the columns with the \
host's queue count from where the application issues it. With a fixed number under way for each application, the mean of \
those follows from the rate, whatever a switch does: what credit takes from the one queue waits in the other.";

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

    fn run(&self, context: &Context) -> Result<Report, Refused> {
        let profiles = drive::profiles(&context.words("profile"))?;
        let casts = casts(context.quick, profiles.len());
        let entrants = with_credit(entrants(context));
        let found = play(context, &profiles, &casts, &entrants, false)?;
        Ok(Report {
            rows: found
                .plays
                .iter()
                .flat_map(|play| rows(&profiles, play))
                .collect(),
            charts: charts(&found.plays, &profiles, &casts),
            ..Report::of(self, context, found.digest, &COLUMNS)
        })
    }
}

/// Each policy, and those that tell credit a second time with hosts that heed it.
fn with_credit(plain: Vec<Entrant>) -> Vec<Entrant> {
    let both = |entrant: Entrant| {
        let tells = matches!(entrant.policy, "gimbal" | "fair");
        let heeded = Entrant {
            credit: true,
            ..entrant
        };
        [Some(entrant), tells.then_some(heeded)]
    };
    plain.into_iter().flat_map(both).flatten().collect()
}

/// Sixteen readers and sixteen writers on each drive, in both conditions.
fn casts(quick: bool, profiles: usize) -> Vec<Cast> {
    let scenes = [
        (Condition::Fragmented(100), [Kind::READ_4K, Kind::WRITE_4K]),
        (Condition::Clean, [Kind::READ_128K, Kind::WRITE_128K]),
    ];
    let scenes = &scenes[..if quick { 1 } else { scenes.len() }];
    let cast = |profile| {
        let cast = move |&(condition, kinds): &(Condition, [Kind; 2])| {
            Cast::new(profile, condition, kinds.map(|kind| Group::of(16, kind)))
        };
        scenes.iter().map(cast)
    };
    (0..profiles).flat_map(cast).collect()
}

/// A row for each group.
fn rows(profiles: &[Profile], play: &Play) -> Vec<Vec<Value>> {
    let row = |group: usize| {
        let figures = play.together(group);
        let flight = |part| figures.value(|tally| percentile_us(&tally.flight(), part));
        vec![
            Value::Text(profiles[play.cast.profile].name.clone()),
            Value::Text(play.cast.condition.to_string()),
            Value::Text(play.entrant.policy.into()),
            Value::Flag(play.entrant.credit),
            Value::Text(play.cast.groups[group].label()),
            Value::Text(play.cast.groups[group].kind.label()),
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
    (0..play.cast.groups.len()).map(row).collect()
}

fn device_mean_us(tally: &Tally) -> Option<f64> {
    let mut device = tally.reads.device.clone();
    device.merge(&tally.writes.device);
    mean_us(&device)
}

/// The p99.9 of readers and of writers on the first drive, in each condition.
fn charts(plays: &[Play], profiles: &[Profile], casts: &[Cast]) -> Vec<Chart> {
    let first = casts.iter().filter(|cast| cast.profile == 0);
    let names = ["fragmented", "clean"];
    first
        .zip(names)
        .map(|(cast, name)| chart(plays, profiles, cast, name))
        .collect()
}

fn chart(plays: &[Play], profiles: &[Profile], cast: &Cast, name: &'static str) -> Chart {
    let plays: Vec<_> = plays.iter().filter(|play| play.cast == cast).collect();
    let p999 =
        |figures: &Figures| figures.mean(|tally| percentile_us(&tally.flight(), figures::P999));
    let series = |group: usize| Series {
        label: cast.groups[group].label(),
        points: (0..)
            .map(f64::from)
            .zip(plays.iter().map(|play| p999(&play.together(group))))
            .collect(),
    };
    Chart {
        name,
        title: format!("p99.9 from the host's sending: {}", cast.label(profiles)),
        claim: "Where hosts hold I/O back, what they do send comes back sooner.".into(),
        kind: ChartKind::Bars {
            categories: plays.iter().map(|play| play.entrant.label()).collect(),
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
        series: (0..cast.groups.len()).map(series).collect(),
        marks: Vec::new(),
    }
}
