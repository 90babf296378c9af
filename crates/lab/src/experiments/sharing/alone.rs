//! The rate of a kind of worker alone, and the best allocation by fixed rates for all.

use flashyard_flash::Profile;
use flashyard_flash::ssd::Condition;
use flashyard_sched::{Policy, TenantId};
use flashyard_time::Duration;

use super::{Group, Kind, Scale, Workload};
use crate::bench::{Results, Setup};
use crate::experiment::{Context, Refused};
use crate::experiments::drive;
use crate::measure::{Tally, f_util};
use crate::parallel;
use crate::policies::{self, Paced};

/// Bytes per second of each kind of work alone, by drive and condition.
pub(in crate::experiments) struct Alone(Vec<(Place, f64)>);

/// A kind of work on a drive.
type Place = (usize, Condition, Kind);

/// So many workers of a kind reach what the kind can reach.
const WORKERS: u32 = 16;

/// Every kind of work in some workloads, once for each drive.
pub(super) fn kinds(workloads: &[Workload]) -> Vec<Place> {
    let mut kinds = Vec::new();
    for workload in workloads {
        for group in &workload.groups {
            // The most of a kind does not depend on how much of it one worker has in flight.
            let place = (workload.profile, workload.condition, saturating(group.kind));
            if !kinds.contains(&place) {
                kinds.push(place);
            }
        }
    }
    kinds
}

fn saturating(kind: Kind) -> Kind {
    let depth = if kind.bytes < 128 << 10 { 32 } else { 4 };
    Kind { depth, ..kind }
}

impl Alone {
    pub(super) fn measure(
        context: &Context,
        scale: Scale,
        profiles: &[Profile],
        places: &[Place],
    ) -> Result<Self, Refused> {
        let measured = parallel::map(context.progress, places, |&(profile, condition, kind)| {
            let workload = Workload::new(profile, condition, [Group::of(WORKERS, kind)]);
            let results = run(
                scale,
                profiles,
                &workload,
                policies::fifo(),
                context.seed,
                1,
            )?;
            let name = &profiles[profile].name;
            context
                .progress
                .step(&format!("{} alone on {name}, {condition}", kind.label()));
            let sum = results.workers.iter().map(Tally::bytes_per_second).sum();
            Ok::<_, Refused>(((profile, condition, kind), sum))
        })?;
        Ok(Self(measured.into_iter().collect::<Result<_, _>>()?))
    }

    /// Bytes per second of a kind of work on the drive of a workload.
    pub(in crate::experiments) fn of(&self, workload: &Workload, kind: Kind) -> f64 {
        let place = (workload.profile, workload.condition, saturating(kind));
        let found = self.0.iter().find(|(known, _)| *known == place);
        found.expect("every kind of every cast is measured").1
    }

    /// The f-Util of every tenant of a group.
    pub(in crate::experiments) fn f_utils(
        &self,
        workload: &Workload,
        group: usize,
        results: &Results,
    ) -> Vec<f64> {
        let Group {
            kind, one_tenant, ..
        } = workload.groups[group];
        let alone = self.of(workload, kind);
        let tenants = workload.tenants() as usize;
        let bandwidths = results.workers[workload.range(group)]
            .iter()
            .map(Tally::bytes_per_second);
        if one_tenant {
            return vec![f_util(bandwidths.sum(), alone, tenants)];
        }
        bandwidths
            .map(|bandwidth| f_util(bandwidth, alone, tenants))
            .collect()
    }

    /// The least f-Util of all tenants.
    pub(super) fn least(&self, workload: &Workload, results: &Results) -> f64 {
        let groups = 0..workload.groups.len();
        let all = groups.flat_map(|group| self.f_utils(workload, group, results));
        all.fold(f64::INFINITY, f64::min)
    }
}

/// f-Utils that are tried first as the rate of every worker, in hundredths, and how often the best
/// is refined then.
const RATES: [u32; 9] = [20, 30, 45, 60, 80, 100, 130, 165, 200];
const QUICK_RATES: [u32; 1] = [60];
const REFINEMENTS: usize = 5;

/// The greatest least f-Util under any fixed rates, of each workload.
///
/// All tenants have the same rate as an f-Util, as the one that has the least decides: what others
/// get beyond it does not raise it.
pub(super) fn bounds<'a>(
    context: &Context,
    scale: Scale,
    profiles: &[Profile],
    workloads: &'a [Workload],
    alone: &Alone,
) -> Result<Vec<(&'a Workload, f64)>, Refused> {
    let found = parallel::map(context.progress, workloads, |workload| {
        let least = |rate: f64| {
            let policy = Box::new(Paced::new(rates(workload, alone, rate)));
            let results = run(scale, profiles, workload, policy, context.seed, 2)?;
            Ok::<_, Refused>(alone.least(workload, &results))
        };
        let best = search(scale.quick, least)?;
        let what = format!("best rates: {}", workload.label(profiles));
        context.progress.step(&what);
        Ok::<_, Refused>(best)
    })?;
    let found = found.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(workloads.iter().zip(found).collect())
}

/// The greatest value of `least` that a grid and some halvings of its step around the best point
/// find.
fn search(quick: bool, least: impl Fn(f64) -> Result<f64, Refused>) -> Result<f64, Refused> {
    let grid: &[u32] = if quick { &QUICK_RATES } else { &RATES };
    let mut best = (0.0, 0.0);
    for &rate in grid {
        let rate = f64::from(rate) / 100.0;
        let value = least(rate)?;
        if value > best.1 {
            best = (rate, value);
        }
        // No worker can have less than half of a rate that is met, and more at a higher one.
        if value < rate / 2.0 && best.1 > value {
            break;
        }
    }
    let mut step = 1.15;
    for _ in 0..if quick { 0 } else { REFINEMENTS } {
        let (middle, _) = best;
        for rate in [middle / step, middle * step] {
            let value = least(rate)?;
            if value > best.1 {
                best = (rate, value);
            }
        }
        step = f64::sqrt(step);
    }
    Ok(best.1)
}

/// Bytes per second of each tenant at this f-Util.
fn rates(workload: &Workload, alone: &Alone, f_util: f64) -> Vec<(TenantId, u64)> {
    let groups = workload.groups.iter().flat_map(|group| {
        let share = alone.of(workload, group.kind) / f64::from(workload.tenants());
        (0..group.tenants()).map(move |_| (share * f_util) as u64)
    });
    (1..).map(TenantId).zip(groups).collect()
}

/// A workload under a policy, for a part of the usual time.
fn run(
    scale: Scale,
    profiles: &[Profile],
    workload: &Workload,
    policy: Box<dyn Policy>,
    seed: u64,
    part: u64,
) -> Result<Results, Refused> {
    let device = drive::build(
        &profiles[workload.profile],
        scale.gib,
        seed,
        workload.condition,
    )?;
    let setup = Setup::new(device, policy, workload.workers("", scale.capacity()));
    let span = |span: Duration| span / part;
    Ok(setup
        .measured(span(scale.warm_up), span(scale.span))
        .seeded(seed)
        .run()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_finds_the_peak_of_what_falls_on_both_sides() {
        for peak in [0.2, 0.37, 1.0, 1.34, 2.0] {
            // Every worker has the rate until the drive is full, and less beyond.
            let least = |rate: f64| Ok(rate.min(peak - (rate - peak) / 3.0).max(0.0));
            let found = search(false, least).expect("nothing is refused");
            assert!((found / peak - 1.0).abs() < 0.02, "{found} for {peak}");
        }
    }
}
