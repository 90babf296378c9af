//! What has happened at a target, as programs see it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// What it happened to.
    pub what: String,
    /// What exactly, in words.
    pub detail: String,
    /// Of `missed`: how many are not kept any more, where that is known.
    pub missed: Option<u64>,
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
            Self::Missed => "missed",
        }
    }
}
