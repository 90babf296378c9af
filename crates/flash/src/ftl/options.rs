//! What can be chosen about a host FTL, and why one cannot be built.

use core::fmt;

/// Which line garbage collection takes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The one with the fewest valid units.
    Greedy,
    /// The one that gains most for what it costs, weighted by its age: for loads with hot and cold
    /// data.
    CostBenefit,
}

/// How a host FTL behaves. Part of it is fixed when a partition is formatted: its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Flash that is kept beyond the capacity shown, in thousandths of that capacity; what the FTL
    /// needs for itself (open lines, checkpoints) is not counted. Used by a format only.
    pub over_provisioning: u32,
    /// Slots of the write buffer, one unit each; raised to what the medium needs to make writes
    /// durable, and beyond that no more than a chunk of every parallel unit.
    pub write_slots: u32,
    /// What garbage collection takes next.
    pub victim: Choice,
    /// Vectors that garbage collection reads at once.
    pub collector_reads: u32,
    /// Write vectors in flight at once in one chunk: 1 or 2.
    pub writes_per_chunk: u32,
    /// How many erases lines may differ before cold data are moved.
    pub wear_spread: u32,
    /// How often a read is tried again before its data count as lost.
    pub read_retries: u8,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            over_provisioning: 200,
            write_slots: 0,
            victim: Choice::Greedy,
            collector_reads: 4,
            writes_per_chunk: 2,
            wear_spread: 64,
            read_retries: 5,
        }
    }
}

/// Why an FTL cannot be built over these units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// No parallel unit, one that the device lacks, or one named twice.
    Units,
    /// More flash than addresses of 32 bits tell apart.
    TooLarge,
    /// Too few chunks for the FTL and any data besides.
    TooSmall {
        /// Chunks that each parallel unit has to have, all of them good.
        least_chunks: u32,
    },
    /// The device lets too few chunks of a parallel unit be open.
    OpenChunks {
        /// How many have to be.
        least: u32,
    },
    /// The device cannot reset chunks that are not full, which is needed after a power cut.
    ResetOpen,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Units => f.write_str("name parallel units of the device, each once"),
            Self::TooLarge => f.write_str("use fewer parallel units: 14 TiB is the most"),
            Self::TooSmall { least_chunks } => write!(
                f,
                "each parallel unit needs at least {least_chunks} good chunks: use a larger device or less over-provisioning"
            ),
            Self::OpenChunks { least } => {
                write!(
                    f,
                    "the device has to let {least} chunks of a parallel unit be open"
                )
            }
            Self::ResetOpen => f.write_str("the device has to let open chunks be reset"),
        }
    }
}

impl core::error::Error for BuildError {}
