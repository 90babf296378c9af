//! Tenants that share one drive under several policies: what the experiments of the Gimbal study
//! have in common.
//!
//! A [`Cast`] says who works on which drive. [`play`] measures what each kind of worker reaches
//! alone, finds the best fixed rates where an experiment asks for that bound, and runs every cast
//! under every [`Entrant`].

mod alone;
mod cast;
mod table;

use flashyard_flash::Profile;
use flashyard_time::{Duration, Time};

use super::drive;
use super::outcome::fold_digests;
use crate::bench::{Results, Setup};
use crate::experiment::{Context, Domain, Refused, Setting};
use crate::parallel;
use crate::policies::{self, Calibration, CreditHosts};

pub(super) use alone::Alone;
pub(super) use cast::{Cast, Group, Kind};
pub(super) use table::{COLUMNS, f_util_chart, latency_chart, utilization_chart};

/// A policy, with hosts that do what it asks of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entrant {
    pub(super) policy: &'static str,
    /// Hosts heed the credit that the switch tells them.
    pub(super) credit: bool,
}

/// A cast under an entrant, and what came of it under each seed.
pub(super) struct Play<'a> {
    pub(super) cast: &'a Cast,
    pub(super) entrant: Entrant,
    pub(super) results: Vec<Results>,
}

/// Everything that was found out.
pub(super) struct Findings<'a> {
    pub(super) plays: Vec<Play<'a>>,
    pub(super) alone: Alone,
    /// The least f-Util under the best fixed rates, of each cast that it was sought for.
    pub(super) bounds: Vec<(&'a Cast, f64)>,
    pub(super) digest: u64,
}

/// How long and how large everything is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    gib: u64,
    warm_up: Duration,
    span: Duration,
    quick: bool,
}

/// The policies that are compared unless a user names others.
pub(super) const POLICIES: [&str; 8] = policies::NAMES;

pub(super) const GIB: Setting = Setting {
    key: "gib",
    default: "8",
    domain: Domain::Number(1, 1024),
    meaning: "capacity of the drives in GiB",
};

pub(super) const MS: Setting = Setting {
    key: "ms",
    default: "3000",
    domain: Domain::Number(1, 3_600_000),
    meaning: "milliseconds that are measured, after two thirds as long",
};

/// The same, where there are many scenes or few surprises.
pub(super) const SHORT: Setting = Setting {
    default: "1500",
    ..MS
};

pub(super) const PROFILE: Setting = Setting {
    key: "profile",
    default: "dct983",
    domain: Domain::Profiles,
    meaning: "the drives",
};

impl Entrant {
    /// A policy whose hosts do nothing special, unless it consists of that.
    pub(super) fn plain(policy: &'static str) -> Self {
        Self {
            policy,
            credit: false,
        }
    }

    pub(super) fn label(&self) -> String {
        if self.credit {
            format!("{} with credit", self.policy)
        } else {
            self.policy.into()
        }
    }
}

/// The policies of a context, one entrant each.
pub(super) fn entrants(context: &Context) -> Vec<Entrant> {
    context
        .policies
        .iter()
        .copied()
        .map(Entrant::plain)
        .collect()
}

impl Scale {
    /// What the user set, or next to nothing in quick mode.
    pub(super) fn of(context: &Context) -> Self {
        let span = Duration::from_ms(if context.quick {
            20
        } else {
            context.number("ms")
        });
        Self {
            gib: if context.quick {
                1
            } else {
                context.number("gib")
            },
            warm_up: span.scale(2, 3),
            span,
            quick: context.quick,
        }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.gib << 30
    }
}

/// Measures every drive for the policies that have to be told, in the order of the profiles;
/// nothing when none has to.
pub(super) fn calibrate(
    context: &Context,
    scale: Scale,
    profiles: &[Profile],
) -> Result<Vec<Calibration>, Refused> {
    let measured = parallel::map(profiles, |profile| {
        let measured = Calibration::measure(profile, scale.capacity(), context.seed, scale.quick);
        context
            .progress
            .step(&format!("{} is calibrated", profile.name));
        measured
    });
    measured.into_iter().collect()
}

/// What the work of some casts reaches alone.
pub(super) fn measure_alone(
    context: &Context,
    scale: Scale,
    profiles: &[Profile],
    casts: &[Cast],
) -> Result<Alone, Refused> {
    Alone::measure(context, scale, profiles, &alone::kinds(casts))
}

/// Runs every cast under every entrant, in that order; `bounded` when the best fixed rates are
/// sought as well.
pub(super) fn play<'a>(
    context: &Context,
    profiles: &[Profile],
    casts: &'a [Cast],
    entrants: &[Entrant],
    bounded: bool,
) -> Result<Findings<'a>, Refused> {
    let scale = Scale::of(context);
    let seeds: Vec<u64> = context.seeds().collect();
    let kinds = alone::kinds(casts);
    let sought = if bounded { casts.len() } else { 0 };
    let runs = casts.len() * entrants.len() * seeds.len();
    let used = casts.iter().map(|cast| cast.profile + 1).max().unwrap_or(0);
    let profiles = &profiles[..used];
    let total = used + kinds.len() + sought + runs;
    context.progress.begin(total as u64);
    let calibrations = calibrate(context, scale, profiles)?;
    let alone = Alone::measure(context, scale, profiles, &kinds)?;
    let bounds = if bounded {
        alone::bounds(context, scale, profiles, casts, &alone)?
    } else {
        Vec::new()
    };
    let mut jobs = Vec::with_capacity(runs);
    for cast in casts {
        for &entrant in entrants {
            jobs.extend(seeds.iter().map(|&seed| (cast, entrant, seed)));
        }
    }
    let results = parallel::map(&jobs, |&(cast, entrant, seed)| {
        let setup = set_up(scale, profiles, cast, entrant, &calibrations, seed)?;
        let results = setup.measured(scale.warm_up, scale.span).run();
        let what = format!("{}: {}", entrant.label(), cast.label(profiles));
        context.progress.step(&what);
        Ok::<_, Refused>(results?)
    });
    let mut results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let digest = fold_digests(&results);
    let plays = jobs
        .iter()
        .step_by(seeds.len())
        .map(|&(cast, entrant, _)| Play {
            cast,
            entrant,
            results: results.drain(..seeds.len()).collect(),
        });
    Ok(Findings {
        plays: plays.collect(),
        alone,
        bounds,
        digest,
    })
}

/// A cast before its drive under an entrant.
pub(super) fn set_up(
    scale: Scale,
    profiles: &[Profile],
    cast: &Cast,
    entrant: Entrant,
    calibrations: &[Calibration],
    seed: u64,
) -> Result<Setup, Refused> {
    let device = drive::build(&profiles[cast.profile], scale.gib, seed, cast.condition)?;
    let calibration = &calibrations[cast.profile];
    let mut switch = policies::calibrated(entrant.policy, calibration)
        .expect("a context has policies that there are");
    for (tenant, share) in cast.shares(entrant.policy, calibration) {
        switch.policy.set_share(Time::ZERO, tenant, &share);
    }
    let workers = cast.workers(entrant.policy, scale.capacity());
    let mut setup = Setup::new(device, switch.policy, workers).seeded(seed);
    setup.host = switch.host;
    if entrant.credit {
        setup.host = Some(Box::new(CreditHosts::default()));
    }
    Ok(setup)
}
