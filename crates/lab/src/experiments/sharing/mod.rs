//! Tenants that share one drive under several policies: what the experiments of the Gimbal study
//! have in common.
//!
//! A [`Workload`] says which workers use which drive. [`measure_all`] measures what each kind of
//! worker reaches alone, finds the best fixed rates where an experiment asks for that bound, and
//! runs every workload under every [`Contender`].

mod alone;
mod table;
mod wanted;
mod workload;

use flashyard_flash::Profile;
use flashyard_time::{Duration, Time};

use super::drive;
use super::outcome::fold_digests;
use crate::bench::{Results, Setup};
use crate::experiment::{Context, Domain, Refused, Setting};
use crate::parallel;
use crate::policies::{self, Calibration, CreditHosts};

pub(super) use alone::Alone;
pub(super) use table::{COLUMNS, f_util_chart, latency_chart, utilization_chart};
pub(super) use wanted::{
    EQUAL, GIMBAL_IS_FAIREST, NEAR_THE_ORACLE, READER_BEATS_FIFO, is_latency_reader, of_fifo,
};
pub(super) use workload::{Group, Kind, Workload};

/// A policy, with hosts that do what it asks of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contender {
    pub(super) policy: &'static str,
    /// Hosts apply the credit that the switch tells them.
    pub(super) credit: bool,
}

/// A workload under an contender, and what came of it under each seed.
pub(super) struct Measured<'a> {
    pub(super) workload: &'a Workload,
    pub(super) contender: Contender,
    pub(super) results: Vec<Results>,
}

/// Everything that was found out.
pub(super) struct Findings<'a> {
    pub(super) measured: Vec<Measured<'a>>,
    pub(super) alone: Alone,
    /// The least f-Util under the best fixed rates, of each workload that it was sought for.
    pub(super) bounds: Vec<(&'a Workload, f64)>,
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
pub(super) const POLICIES: [&str; 8] = [
    "fifo",
    "caps",
    "parda",
    "flashfq",
    "reflex",
    "gimbal",
    "gimbal-released",
    "fair",
];

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

/// The same, where there are many scenarios or few surprises.
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

impl Contender {
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

/// The policies of a context, one contender each.
pub(super) fn contenders(context: &Context) -> Vec<Contender> {
    context
        .policies
        .iter()
        .copied()
        .map(Contender::plain)
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

/// Measures every drive for the policies that need a calibration, in the order of the profiles;
/// nothing when none does.
pub(super) fn calibrate(
    context: &Context,
    scale: Scale,
    profiles: &[Profile],
) -> Result<Vec<Calibration>, Refused> {
    let measured = parallel::map(context.progress, profiles, |profile| {
        let measured = Calibration::measure(profile, scale.capacity(), context.seed, scale.quick);
        context
            .progress
            .step(&format!("{} is calibrated", profile.name));
        measured
    })?;
    measured.into_iter().collect()
}

/// What the work of some workloads reaches alone.
pub(super) fn measure_alone(
    context: &Context,
    scale: Scale,
    profiles: &[Profile],
    workloads: &[Workload],
) -> Result<Alone, Refused> {
    Alone::measure(context, scale, profiles, &alone::kinds(workloads))
}

/// Runs every workload under every contender, in that order; `bounded` when the best fixed rates
/// are sought as well.
pub(super) fn measure_all<'a>(
    context: &Context,
    profiles: &[Profile],
    workloads: &'a [Workload],
    contenders: &[Contender],
    bounded: bool,
) -> Result<Findings<'a>, Refused> {
    let scale = Scale::of(context);
    let seeds: Vec<u64> = context.seeds().collect();
    let kinds = alone::kinds(workloads);
    let sought = if bounded { workloads.len() } else { 0 };
    let runs = workloads.len() * contenders.len() * seeds.len();
    let used = workloads
        .iter()
        .map(|workload| workload.profile + 1)
        .max()
        .unwrap_or(0);
    let profiles = &profiles[..used];
    let total = used + kinds.len() + sought + runs;
    context.progress.begin(total as u64);
    let calibrations = calibrate(context, scale, profiles)?;
    let alone = Alone::measure(context, scale, profiles, &kinds)?;
    let bounds = if bounded {
        alone::bounds(context, scale, profiles, workloads, &alone)?
    } else {
        Vec::new()
    };
    let mut jobs = Vec::with_capacity(runs);
    for workload in workloads {
        for &contender in contenders {
            jobs.extend(seeds.iter().map(|&seed| (workload, contender, seed)));
        }
    }
    let run = |&(workload, contender, seed): &(&'a Workload, Contender, u64)| {
        let setup = set_up(scale, profiles, workload, contender, &calibrations, seed)?;
        let results = setup.measured(scale.warm_up, scale.span).run();
        let what = format!("{}: {}", contender.label(), workload.label(profiles));
        context.progress.step(&what);
        Ok(results?)
    };
    let mut results = parallel::first_groups(context.progress, &jobs, seeds.len(), run)?;
    let digest = fold_digests(&results);
    let measured =
        jobs[..results.len()]
            .iter()
            .step_by(seeds.len())
            .map(|&(workload, contender, _)| Measured {
                workload,
                contender,
                results: results.drain(..seeds.len()).collect(),
            });
    Ok(Findings {
        measured: measured.collect(),
        alone,
        bounds,
        digest,
    })
}

/// A workload before its drive under an contender.
pub(super) fn set_up(
    scale: Scale,
    profiles: &[Profile],
    workload: &Workload,
    contender: Contender,
    calibrations: &[Calibration],
    seed: u64,
) -> Result<Setup, Refused> {
    let device = drive::build(
        &profiles[workload.profile],
        scale.gib,
        seed,
        workload.condition,
    )?;
    let calibration = &calibrations[workload.profile];
    let mut switch = policies::calibrated(contender.policy, calibration)
        .expect("a context has policies that there are");
    for (tenant, share) in workload.shares(contender.policy, calibration) {
        switch.policy.set_share(Time::ZERO, tenant, &share);
    }
    let workers = workload.workers(contender.policy, scale.capacity());
    let mut setup = Setup::new(device, switch.policy, workers).seeded(seed);
    setup.host = switch.host;
    if contender.credit {
        setup.host = Some(Box::new(CreditHosts::default()));
    }
    Ok(setup)
}
