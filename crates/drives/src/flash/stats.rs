//! Statistics of an emulated drive.

use flashyard_flash::ssd;
use flashyard_time::{Duration, Histogram};

/// What a drive has done, and how well it kept the time of its model.
#[derive(Clone, Debug)]
pub struct FlashStats {
    /// What the model counted since it was built.
    pub drive: ssd::Stats,
    /// How much later than due completions were reported, in nanoseconds of the machine's clock.
    /// Since the start, or since [`crate::FlashDevice::clear_timing`].
    pub lateness: Histogram,
    /// From the beginning of each I/O until it was due, in nanoseconds of the machine's clock; over
    /// the same span.
    pub latency: Histogram,
    /// I/Os with the drive now.
    pub in_flight: usize,
    /// By how much the drive is slower than its model.
    pub dilation: u32,
}

impl FlashStats {
    /// Whether a measurement with this mean latency says nothing of the drive: its completions came
    /// so late (99th percentile) that a tenth of the latency or more is the machine's.
    pub fn is_void(&self, mean_latency: Duration) -> bool {
        self.lateness.percentile(990_000) > mean_latency.as_ns() / 10
    }
}
