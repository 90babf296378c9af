//! Where the latency of a tenant comes from, as it is shown.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::promises::PromiseView;
use crate::spec::PolicyName;

/// Where the latency of a tenant comes from.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct WhyView {
    pub tenant: String,
    pub devices: Vec<WhyDevice>,
}

/// Where the latency of a tenant comes from on a device.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct WhyDevice {
    pub device: String,
    pub policy: PolicyName,
    /// What was sampled; nothing if the device has not met the tenant.
    #[serde(flatten)]
    pub sampled: Option<Sampled>,
    /// What the tenant is promised here, beside what it got in the last seconds; the worst first.
    #[serde(default)]
    pub promises: Vec<PromiseView>,
    /// What the policy tells of the device and the tenant, by name.
    #[serde(serialize_with = "as_map", skip_deserializing)]
    #[schemars(with = "BTreeMap<String, f64>")]
    pub gauges: Vec<(&'static str, f64)>,
}

/// The latency of sampled I/Os, in microseconds.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Sampled {
    pub ios: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    /// Of the mean: until the command and its data were received.
    pub receive_us: f64,
    /// Of the mean: until it was taken in.
    pub intake_us: f64,
    /// Of the mean: waiting for its turn.
    pub turn_us: f64,
    /// Of the mean: at the device.
    pub device_us: f64,
    /// Of the mean: until the answer was sent.
    pub send_us: f64,
    /// What was in the way, the most first.
    pub causes: Vec<CauseView>,
}

/// What was in the way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CauseView {
    /// What it was, in a word.
    pub kind: String,
    /// What it was, in a sentence.
    pub cause: String,
    /// The tenant that it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Its part of all causes.
    pub share: f64,
    /// Its part of the mean, in microseconds.
    pub us: f64,
}

fn as_map<S: Serializer>(gauges: &[(&'static str, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(gauges.iter().copied())
}
