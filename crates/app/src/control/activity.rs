//! What goes on in a target at this moment, as programs see it: all tenants with what they are
//! promised and what was in their way, cores and connections, in one answer. Sums are since the
//! target started; whoever asks twice computes rates.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::health::HealthState;
use super::promises::{PromiseState, PromiseView};
use super::why::CauseView;
use crate::spec::{ClassName, PolicyName, RatesSpec, Span};

/// What goes on.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ActivityView {
    /// Which start of the target it is: sums begin anew with each.
    pub starts: u64,
    /// For how long it runs.
    pub run_seconds: f64,
    /// The worst of what is wrong and not muted.
    pub health: HealthState,
    /// In how many ways something is wrong that is not muted.
    pub problems: usize,
    pub tenants: Vec<TenantActivity>,
    /// Devices that tenants have volumes on.
    pub devices: Vec<DeviceActivity>,
    pub cores: Vec<CoreActivity>,
    /// Controllers that hosts and guests have.
    pub connections: Vec<ConnectionActivity>,
    /// Cores that do not answer: of their devices there is nothing.
    pub silent_cores: Vec<usize>,
    /// If there are more tenants, the one that the next part is behind.
    #[serde(skip)]
    pub next: Option<String>,
}

/// A tenant: what it is promised, and what was in its way.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TenantActivity {
    pub tenant: String,
    pub class: ClassName,
    pub weight: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<RatesSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<RatesSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_target: Option<Span>,
    /// I/O commands that ended with an error, since the tenant was made.
    pub errors: u64,
    /// The worst of its promises, as kept in the last seconds.
    pub promise_state: Option<PromiseState>,
    /// Each promise beside what it got.
    pub promises: Vec<PromiseView>,
    /// What happened on each device that it has volumes on.
    pub devices: Vec<TenantOnDevice>,
}

/// What happened to a tenant on a device in the last seconds, which are five at most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TenantOnDevice {
    pub device: String,
    /// I/Os that wait for their turn now.
    pub queued: usize,
    /// How long these seconds were; 0 if nothing ended in them.
    pub seconds: f64,
    /// For how much of them it had I/O waiting for its turn or at the device, from 0 to 1.
    pub busy_part: f64,
    /// I/Os that ended.
    pub ios: u64,
    /// What was more than the least that such I/O takes, of the mean of these I/Os.
    pub excess_us: f64,
    /// What that comes from, the most first; a few of these.
    pub causes: Vec<CauseView>,
}

/// A device that tenants have volumes on.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct DeviceActivity {
    pub device: String,
    pub policy: PolicyName,
    /// Its home core; nothing while it is not open.
    pub core: Option<usize>,
    /// Tenants that have volumes on it.
    pub tenants: usize,
}

/// A core.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CoreActivity {
    pub core: usize,
    /// Connections that it serves.
    pub connections: usize,
    /// Processor time that its thread has taken, polling for what comes next included; nothing if
    /// it does not answer.
    pub processor_seconds: Option<f64>,
}

/// A controller that a host or guest has, and what was done over it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionActivity {
    /// Controller identifier.
    pub controller: u16,
    /// Null for discovery.
    pub tenant: Option<String>,
    pub hostnqn: String,
    /// The host's end of its Admin connection; null for a guest.
    pub peer: Option<SocketAddr>,
    pub io_queues: usize,
    /// The cores that serve these.
    pub cores: Vec<usize>,
    pub reads: u64,
    pub writes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub errors: u64,
}
