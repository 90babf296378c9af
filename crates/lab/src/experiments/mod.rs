//! The experiments that there are, one per file.

mod columns;
mod compression;
mod drive;
mod fairness;
mod figures;
mod frontends;
mod functions_scale;
mod generalization;
mod gimbal_dynamic;
mod gimbal_fairness_clean;
mod gimbal_fairness_fragmented;
mod gimbal_latency;
mod gimbal_overhead;
mod gimbal_sizes;
mod gimbal_utilization;
mod guarantee;
mod interference;
mod isolation_active_units;
mod isolation_open_channel;
mod isolation_space;
mod isolation_vs_conventional;
mod latency_curve;
mod log_write_amplification;
mod mapped_fairness;
mod noisy_neighbour;
mod oracle;
mod outcome;
mod overhead;
mod priority_classes;
mod priority_mixed;
mod priority_window;
mod raid_degraded;
mod raid_safe_read;
mod redundancy;
mod reflex_curves;
mod sharing;
mod sybil;
mod trace_replay;
mod units;
mod validate;
mod volume_overhead;

use crate::experiment::{Experiment, Refused};

/// All experiments, in the order in which they are listed.
static ALL: [&dyn Experiment; 34] = [
    &validate::Validate,
    &latency_curve::LatencyCurve,
    &interference::Interference,
    &reflex_curves::ReflexCurves,
    &trace_replay::TraceReplay,
    &gimbal_utilization::GimbalUtilization,
    &gimbal_fairness_fragmented::GimbalFairnessFragmented,
    &gimbal_fairness_clean::GimbalFairnessClean,
    &gimbal_sizes::GimbalSizes,
    &gimbal_latency::GimbalLatency,
    &gimbal_dynamic::GimbalDynamic,
    &gimbal_overhead::GimbalOverhead,
    &generalization::Generalization,
    &oracle::Oracle,
    &fairness::Scenes,
    &fairness::Swarm,
    &noisy_neighbour::NoisyNeighbour,
    &priority_classes::PriorityClasses,
    &priority_mixed::PriorityMixed,
    &priority_window::PriorityWindow,
    &sybil::Sybil,
    &guarantee::Guarantee,
    &isolation_open_channel::IsolationOpenChannel,
    &isolation_vs_conventional::IsolationVsConventional,
    &isolation_active_units::IsolationActiveUnits,
    &isolation_space::IsolationSpace,
    &frontends::Frontends,
    &functions_scale::FunctionsScale,
    &log_write_amplification::LogWriteAmplification,
    &mapped_fairness::MappedFairness,
    &raid_safe_read::RaidSafeRead,
    &raid_degraded::RaidDegraded,
    &volume_overhead::VolumeOverhead,
    &compression::Compression,
];

/// All experiments.
pub fn experiments() -> &'static [&'static dyn Experiment] {
    &ALL
}

/// The experiment of this name.
pub fn find(name: &str) -> Result<&'static dyn Experiment, Refused> {
    let found = ALL.iter().find(|experiment| experiment.name() == name);
    found.copied().ok_or_else(|| Refused::UnknownExperiment {
        name: name.to_owned(),
        known: ALL.iter().map(|experiment| experiment.name()).collect(),
    })
}
