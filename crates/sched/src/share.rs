//! What a tenant is entitled to: weight, guarantee, limit and latency target.

use flashyard_time::Duration;

/// Rates of I/O. What is not given is not bounded, or not guaranteed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// I/Os per second, of any kind.
    pub ios: Option<u64>,
    /// Reads per second.
    pub read_ios: Option<u64>,
    /// Writes per second.
    pub write_ios: Option<u64>,
    /// Bytes per second, both ways.
    pub bytes: Option<u64>,
    /// Bytes read per second.
    pub read_bytes: Option<u64>,
    /// Bytes written per second.
    pub write_bytes: Option<u64>,
}

/// The share of one tenant in a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Weight: its part of what is left when all guarantees are met, relative to the weights of the
    /// others; at least 1.
    pub weight: u32,
    /// Guarantee: the least rate it gets while it asks for it.
    pub guarantee: Rates,
    /// Limit: the highest rate it gets.
    pub limit: Rates,
    /// Latency target: p99 of its latency-sensitive I/O.
    pub latency_target: Option<Duration>,
}

impl Rates {
    /// No rate at all.
    pub const NONE: Self = Self {
        ios: None,
        read_ios: None,
        write_ios: None,
        bytes: None,
        read_bytes: None,
        write_bytes: None,
    };

    /// Whether any rate is given.
    pub fn any(&self) -> bool {
        *self != Self::NONE
    }
}

impl Default for Share {
    fn default() -> Self {
        Self {
            weight: 1,
            guarantee: Rates::NONE,
            limit: Rates::NONE,
            latency_target: None,
        }
    }
}
