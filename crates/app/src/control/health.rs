//! What somebody should know of the target, by codes that stay the same.

use std::fmt;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the target is, the best first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum HealthState {
    /// Nothing is known to be wrong, or all of it is muted.
    Healthy,
    /// Everything is served; something needs care.
    Degraded,
    /// Something is not served, or takes no writes.
    Failed,
}

impl fmt::Display for HealthState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
        })
    }
}

/// What can be asked about what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthAsk {
    /// All of it.
    Show,
    /// What is wrong in this way does not count for so many seconds.
    Mute(HealthCode, u64),
    /// It counts again.
    Unmute(HealthCode),
}

/// What can be wrong.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    ValueEnum,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum HealthCode {
    /// A device, pool, tenant, volume or function cannot be used.
    Unavailable,
    /// A pool or partition can only be read.
    ReadOnly,
    /// The file of a device for partitions has no space left.
    DeviceFull,
    /// A mapped pool has less than a twentieth of its space left.
    PoolFull,
    /// New connections have to wait.
    ConnectionsRefused,
    /// A core does not answer.
    CoreSilent,
    /// Something of the target's own state cannot be written.
    StateNotKept,
    /// Records of who has changed something cannot be written.
    AuditNotWritten,
    /// The configuration file of the start could not be applied.
    ConfigurationNotApplied,
    /// An array has fewer copies, or less parity, than it is to have.
    RedundancyLost,
    /// Copies disagree and nothing says which is right.
    CopiesDisagree,
    /// A device takes many times as long as usual for no more I/O, or ends nothing.
    DeviceSlow,
    /// A mapped pool has less than a quarter of its space left.
    PoolNearlyFull,
    /// A tenant has less than a quarter of its quota in a pool left.
    QuotaNearlyUsed,
    /// Devices give less than what is guaranteed.
    GuaranteeOversold,
    /// What devices can give was not measured.
    GuaranteeUnverified,
    /// The policy of a device keeps no guarantees.
    GuaranteeIgnored,
    /// A tenant asked for what it is guaranteed, and did not get it in the last seconds.
    GuaranteeMissed,
    /// More than one of a hundred latency-sensitive I/Os took longer than the target.
    LatencyTargetMissed,
    /// This machine is too slow for the time of an emulated drive.
    EmulationLate,
    /// A device injects faults on purpose.
    FaultsInjected,
}

impl HealthCode {
    /// What it makes of the target.
    pub fn severity(self) -> HealthState {
        match self {
            Self::Unavailable
            | Self::ReadOnly
            | Self::DeviceFull
            | Self::PoolFull
            | Self::ConnectionsRefused
            | Self::CoreSilent => HealthState::Failed,
            _ => HealthState::Degraded,
        }
    }

    /// What to do where the problem itself does not say it.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Unavailable => "see to what it stands on, then start the target again",
            Self::ReadOnly => "`flashyard status` says why and what to do",
            Self::DeviceFull => "make space where the file of the device is",
            Self::PoolFull | Self::PoolNearlyFull => {
                "delete volumes or snapshots, or have hosts discard what they do not need"
            }
            Self::QuotaNearlyUsed => "raise it with `flashyard tenant set`, or delete something",
            Self::ConnectionsRefused => "raise the limit of open files of the target",
            Self::CoreSilent => "see to the devices of that core, or start the target again",
            Self::StateNotKept => "make space in the state directory, or see to its disk",
            Self::AuditNotWritten => {
                "make space in the state directory, or see to its disk; the log has the records"
            }
            Self::ConfigurationNotApplied => "mend the file, then `flashyard apply` it",
            Self::RedundancyLost => "`flashyard pool replace` or `pool add --spare`",
            Self::CopiesDisagree => "write the blocks again, or restore them from a backup",
            Self::DeviceSlow => {
                "see to the drive, its cable or the network to it, and to what writes to it \
                 (`flashyard why TENANT`)"
            }
            Self::GuaranteeOversold => "lower guarantees with `flashyard tenant set`",
            Self::GuaranteeUnverified => "measure the device with `flashyard device calibrate`",
            Self::GuaranteeIgnored => "`flashyard device set DEVICE --policy fair`",
            Self::GuaranteeMissed | Self::LatencyTargetMissed => {
                "`flashyard why TENANT` shows what is in the way"
            }
            Self::EmulationLate => "use a larger dilation, or a faster machine",
            Self::FaultsInjected => "delete the `fault` device when the test is over",
        }
    }
}

impl fmt::Display for HealthCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no code is skipped");
        f.write_str(value.get_name())
    }
}

/// How the target is.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HealthView {
    /// The worst of what is not muted.
    pub health: HealthState,
    /// What is wrong, the worst first.
    pub problems: Vec<ProblemRow>,
}

/// Everything that is wrong in one way.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProblemRow {
    pub code: HealthCode,
    /// What it makes of the target while it is not muted.
    pub severity: HealthState,
    /// Things that it is wrong with.
    pub count: usize,
    /// The first of these.
    pub what: Vec<String>,
    /// What is wrong with the first.
    pub detail: String,
    pub remedy: String,
    /// Until when it does not count.
    pub muted_until: Option<String>,
}
