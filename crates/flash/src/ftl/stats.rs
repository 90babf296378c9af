//! Statistics of an FTL.

/// Counters since the FTL was built. Units are 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Units that the host wrote.
    pub host_units: u64,
    /// Units that the host read.
    pub read_units: u64,
    /// Units that the host deallocated.
    pub deallocated_units: u64,
    /// Units written to flash, everything below included.
    pub written_units: u64,
    /// Units that garbage collection and wear levelling moved.
    pub moved_units: u64,
    /// Units of checkpoints, with their padding.
    pub checkpoint_units: u64,
    /// Units of padding.
    pub padding_units: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Lines erased.
    pub erases: u64,
    /// Write vectors that failed and closed their chunk.
    pub failed_writes: u64,
    /// Chunks that could not be erased and left use.
    pub failed_erases: u64,
    /// Units of the host's reads that could not be read.
    pub unreadable_reads: u64,
    /// Units whose data the medium has lost, found when they were to be moved.
    pub lost_units: u64,
}

impl Stats {
    /// Units written for each that the host wrote, in thousandths; nothing before the host wrote.
    pub fn amplification(&self) -> Option<u64> {
        (self.written_units * 1000).checked_div(self.host_units)
    }
}

/// The space of a partition, in units of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Shown to the host.
    pub capacity: u64,
    /// In good chunks.
    pub good: u64,
    /// Beyond capacity and what the FTL needs for itself; at the least of it the partition is
    /// read-only.
    pub spare: u64,
    /// Least and most erases of a line.
    pub erases: (u32, u32),
    /// Bytes of memory for maps and tables.
    pub memory: u64,
}
