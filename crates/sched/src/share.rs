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
    /// How much of what is left when all guarantees are met, in proportion to the weights of the
    /// others; at least 1.
    pub weight: u32,
    /// What it gets, as long as it asks for so much, whatever the others do.
    pub guarantee: Rates,
    /// What it never gets more of.
    pub limit: Rates,
    /// What the latency of its latency-sensitive I/O should stay under, 99 times of 100.
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
