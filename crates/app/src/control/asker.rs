//! Whoever has asked for something that takes long: they may go away, and want to know how far it
//! is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::events::EventView;
use super::metrics::MetricsText;

/// How far something is that takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// Parts that are done.
    pub done: u32,
    /// All parts.
    pub of: u32,
}

/// Whoever has asked for something, while it is done.
pub trait Asker {
    /// Whether no client waits for the answer any more.
    fn is_gone(&self) -> bool;
    /// Tells how far it is.
    fn tell(&self, progress: Progress);
    /// Gives an event to one that follows them, or only finds out whether they are there; false
    /// when they have gone, or have taken nothing for long.
    fn send(&self, event: Option<EventView>) -> bool;
}

/// One that waits for the answer and for nothing else.
impl Asker for () {
    fn is_gone(&self) -> bool {
        false
    }

    fn tell(&self, _: Progress) {}

    fn send(&self, _: Option<EventView>) -> bool {
        false
    }
}

/// What is answered: JSON, but for what other programs have a form of their own.
pub trait Shows: Serialize + 'static {
    /// Figures for Prometheus, instead of JSON.
    fn metrics(&self) -> Option<&MetricsText> {
        None
    }

    /// Whether it was made, and might have been there.
    fn is_made(&self) -> bool {
        false
    }

    /// If it is a part of a list with more behind it: what the next one is behind.
    fn next(&self) -> Option<&str> {
        None
    }
}
