//! What a device was measured to do, for policies that do not find it out themselves.

use alloc::vec::Vec;

use flashyard_time::Duration;

/// What a read of 4 KiB counts in [`Point::tokens`].
pub const READ_TOKENS: u64 = 100;
/// I/Os in flight that keep a device busy of which only rates are known.
const DEPTH: u32 = 64;

/// How much load keeps the 95th percentile of read latency at this level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The latency.
    pub latency: Duration,
    /// Load of the device per second, in hundredths of a read of 4 KiB.
    pub tokens: u64,
}

/// Rates of a device of which none is zero, and how it answers under load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    reads: [u64; 2],
    writes: [u64; 2],
    depth: u32,
    curve: Vec<Point>,
}

impl Figures {
    /// A device that does so many reads and writes per second, each kind alone: of 4 KiB, and of
    /// 128 KiB. Nothing when it does none of a kind.
    pub fn new(reads: [u64; 2], writes: [u64; 2]) -> Option<Self> {
        // Large I/O is not quicker than small I/O, whatever was measured or said.
        let rates = |[small, large]: [u64; 2]| {
            let large = large.min(small);
            (large > 0).then_some([small, large])
        };
        Some(Self {
            reads: rates(reads)?,
            writes: rates(writes)?,
            depth: DEPTH,
            curve: Vec::new(),
        })
    }

    /// So many I/Os in flight keep it busy; at least one.
    pub fn with_depth(mut self, depth: u32) -> Self {
        self.depth = depth.max(1);
        self
    }

    /// How its latency grows with load, in order of latency.
    pub fn with_curve(mut self, curve: Vec<Point>) -> Self {
        self.curve = curve;
        self
    }

    /// Reads per second of 4 KiB and of 128 KiB.
    pub fn reads(&self) -> [u64; 2] {
        self.reads
    }

    /// Writes per second of 4 KiB and of 128 KiB.
    pub fn writes(&self) -> [u64; 2] {
        self.writes
    }

    /// I/Os in flight that keep it busy.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// How its latency grows with load, as far as that is known.
    pub fn curve(&self) -> &[Point] {
        &self.curve
    }
}
