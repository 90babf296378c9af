//! What a tenant is promised, beside what it got.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A promise beside what the tenant got of it in the last seconds.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PromiseView {
    pub tenant: String,
    /// Guarantees hold for each device by itself.
    pub device: String,
    /// The key of the promise: a rate of the guarantee, or `latency_target`.
    pub promise: Cow<'static, str>,
    /// What both figures are in: `per_second`, `bytes_per_second` or `us`.
    pub unit: Cow<'static, str>,
    pub promised: u64,
    /// Of latency, what 99 of 100 latency-sensitive I/Os stayed under; nothing without any.
    pub got: Option<u64>,
    /// Nothing while the device is not open, or its core does not answer.
    pub state: Option<PromiseState>,
    /// What keeps the tenant from more; nothing where nothing is known to.
    pub limited_by: Option<LimitedBy>,
    /// The tenant that it waited for the most.
    pub neighbour: Option<String>,
    /// The same in words.
    pub reason: Option<String>,
}

/// Whether a promise was kept in the last seconds, the worst last.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum PromiseState {
    /// The tenant did not ask for so much.
    NotAskedFor,
    Kept,
    Missed,
}

/// What keeps a tenant from getting more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LimitedBy {
    /// What its hosts ask for, and how much of it at a time.
    OwnDemand,
    /// Its own limit.
    OwnLimit,
    /// What the device takes for its I/O without that of others.
    Device,
    /// Other tenants.
    Neighbour,
    /// What the device does on its own account: a rebuild, a scrub, a volume that moves.
    SystemWork,
    /// Hosts that take or send data slowly, or the network to them.
    NetworkOrHost,
}
