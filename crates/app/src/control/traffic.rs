//! What came to volumes and how long it took, as programs see it: sums since the target started,
//! from which whoever asks twice computes rates.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What came to all volumes since the target started.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TrafficView {
    /// Which start of the target it is: sums begin anew with each.
    pub starts: u64,
    /// For how long it runs.
    pub run_seconds: f64,
    /// What each bucket stays under; the last one has no bound.
    pub bounds_us: Vec<Option<f64>>,
    /// Each volume, and for each tenant and device those that have gone.
    pub volumes: Vec<TrafficRow>,
    /// Cores that do not answer: of their devices there is nothing.
    pub silent_cores: Vec<usize>,
    /// If there are more tenants, the one that the next part is behind.
    #[serde(skip)]
    pub next: Option<String>,
}

/// What came to a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrafficRow {
    pub tenant: String,
    pub device: String,
    /// Null for those that have gone.
    pub volume: Option<String>,
    /// I/Os that wait for their turn or are at the device.
    pub in_flight: usize,
    pub read: TimesView,
    pub write: TimesView,
}

/// I/Os of one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimesView {
    pub ios: u64,
    pub bytes: u64,
    /// For how long they waited for their turn, all together.
    pub waited_us: f64,
    /// For how long their device served them.
    pub served_us: f64,
    /// How many waited how long, by bucket, as far as there are any.
    pub waited: Vec<u64>,
    /// How many were served for how long.
    pub served: Vec<u64>,
    /// How many took how long, both together.
    pub took: Vec<u64>,
}
