//! What has happened at a target, as programs see it.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units;

/// Which events are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventsAsk {
    /// Those after the one with this identifier.
    pub after: Option<String>,
    /// Also those that are still to come, as they come.
    pub follow: bool,
}

/// What is kept of what has happened.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EventsView {
    /// The oldest first.
    pub events: Vec<EventView>,
}

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventView {
    /// Which start of the target it was in, and its number there, such as `3-17`.
    pub id: String,
    /// When, in UTC.
    pub at: String,
    pub kind: EventKind,
    pub level: Level,
    /// What it happened to.
    pub what: String,
    /// What exactly, in words.
    pub detail: String,
    /// Of `missed`: how many are not kept any more, where that is known.
    pub missed: Option<u64>,
    /// Of `slow-io`: the slowest I/O.
    pub slow: Option<SlowIoView>,
}

/// Who should know of it, the most urgent first.
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
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Something is not served, or takes no writes
    Error,
    /// Also what needs care, and hosts that were refused or cut off
    Warning,
    /// Also what happens as it should
    Info,
}

/// A sampled I/O that took long. Times are in microseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlowIoView {
    pub tenant: String,
    pub device: String,
    pub op: SlowOp,
    pub bytes: u64,
    /// From the first byte of its command to the last of its answer.
    pub took_us: u64,
    /// From how much on it is slow.
    pub slow_after_us: u64,
    /// About how many I/Os of the tenant were slow there since the last such event.
    pub ios: u64,
    /// Of all that it took: until the command and its data were received.
    pub receive_us: u64,
    /// Until it was taken in.
    pub intake_us: u64,
    /// Waiting for its turn.
    pub turn_us: u64,
    /// At the device.
    pub device_us: u64,
    /// Until the answer was sent.
    pub send_us: u64,
}

/// What a slow I/O was to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SlowOp {
    Read,
    Write,
    CompareAndWrite,
    Flush,
    WriteZeroes,
    Deallocate,
}

/// What kind of thing has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// The target has started.
    Started,
    /// A host or guest has a controller.
    Connected,
    /// Its controller has gone.
    Disconnected,
    /// A host may not connect.
    Refused,
    /// The target has ended a connection because of its host.
    ConnectionEnded,
    /// Somebody has changed something.
    Changed,
    /// Something is wrong, by its code.
    Problem,
    /// It is not any more.
    ProblemOver,
    /// An array has begun to make a member the same as the others.
    Rebuild,
    /// It does not any more.
    RebuildOver,
    /// Sampled I/Os of a tenant took long.
    SlowIo,
    /// Events that are asked for are not kept any more.
    Missed,
}

impl EventKind {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
            Self::Refused => "refused",
            Self::ConnectionEnded => "connection-ended",
            Self::Changed => "changed",
            Self::Problem => "problem",
            Self::ProblemOver => "problem-over",
            Self::Rebuild => "rebuild",
            Self::RebuildOver => "rebuild-over",
            Self::SlowIo => "slow-io",
            Self::Missed => "missed",
        }
    }

    /// Who should know of such a thing, if it does not say that itself.
    pub fn level(self) -> Level {
        match self {
            Self::Refused | Self::ConnectionEnded | Self::Problem | Self::SlowIo | Self::Missed => {
                Level::Warning
            }
            Self::Started
            | Self::Connected
            | Self::Disconnected
            | Self::Changed
            | Self::ProblemOver
            | Self::Rebuild
            | Self::RebuildOver => Level::Info,
        }
    }
}

impl Level {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

impl SlowOp {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::CompareAndWrite => "compare and write",
            Self::Flush => "flush",
            Self::WriteZeroes => "write zeroes",
            Self::Deallocate => "deallocate",
        }
    }
}

impl SlowIoView {
    /// In words; stages that took nothing are left out.
    pub fn text(&self) -> String {
        let us = |us: u64| units::microseconds(us as f64);
        let stages = [
            (self.receive_us, "receive"),
            (self.intake_us, "to be taken in"),
            (self.turn_us, "waiting for a turn"),
            (self.device_us, "at the device"),
            (self.send_us, "send"),
        ];
        let stages = stages.iter().filter(|(took, _)| *took > 0);
        let stages: Vec<_> = stages
            .map(|(took, what)| format!("{} {what}", us(*took)))
            .collect();
        format!(
            "a {} of {} on device {} took {} ({}); about {} I/Os took more than {}",
            self.op.name(),
            units::size(self.bytes),
            self.device,
            us(self.took_us),
            stages.join(", "),
            self.ios,
            us(self.slow_after_us),
        )
    }
}
