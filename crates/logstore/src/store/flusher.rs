//! Flushes of the device, one at a time for all who wait, and who they are.

use alloc::vec::Vec;

use super::io::Request;

/// A host that waits for batches to be durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlushWait {
    pub request: Request,
    /// The last batch of each lane.
    pub numbers: [u64; 3],
}

#[derive(Debug, Default)]
pub(super) struct Flusher {
    pub begun: u64,
    pub finished: u64,
    pub wanted: u64,
    /// What each lane has complete when the flush in flight began: number and sequence.
    pub covers: [(u64, u64); 3],
    pub waiting: Vec<FlushWait>,
    /// Blocks written since the last flush began.
    pub unproved: u64,
}

impl Flusher {
    pub fn in_flight(&self) -> bool {
        self.begun > self.finished
    }

    /// A flush that begins from now on; what number it has.
    pub fn want(&mut self) -> u64 {
        self.wanted = self.begun + 1;
        self.wanted
    }
}
