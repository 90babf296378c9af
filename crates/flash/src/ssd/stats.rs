//! Counters of a drive.

use crate::die::DieTime;

/// Counters of a drive, and how full it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Commands completed.
    pub completions: u64,
    /// Units read by the host.
    pub read_units: u64,
    /// Of these, units that came from the buffer or were never written.
    pub buffer_hits: u64,
    /// Units written by the host.
    pub written_units: u64,
    /// Units moved by garbage collection.
    pub moved_units: u64,
    /// Units of padding, written to force out what was before them.
    pub padded_units: u64,
    /// Units deallocated.
    pub deallocated_units: u64,
    /// Programs ended.
    pub programs: u64,
    /// Erases of a block that took their time; in a drive scaled down most take none.
    pub erases: u64,
    /// Superblocks collected.
    pub collected: u64,
    /// Programs and erases suspended.
    pub suspends: u64,
    /// Where the time of the dies went.
    pub die_time: DieTime,
    /// Units in the write buffer now.
    pub buffered_units: u32,
    /// Writes that wait to be let into the buffer now.
    pub waiting_writes: u32,
    /// Superblocks free now.
    pub free_superblocks: u32,
}

impl Stats {
    /// Units programmed for every unit that the host wrote, in thousandths; 1000 when nothing was
    /// written.
    pub fn write_amplification(&self) -> u64 {
        let all = self.written_units + self.moved_units + self.padded_units;
        (all * 1000).checked_div(self.written_units).unwrap_or(1000)
    }

    /// The counts since `earlier`; gauges keep their present value.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            completions: self.completions - earlier.completions,
            read_units: self.read_units - earlier.read_units,
            buffer_hits: self.buffer_hits - earlier.buffer_hits,
            written_units: self.written_units - earlier.written_units,
            moved_units: self.moved_units - earlier.moved_units,
            padded_units: self.padded_units - earlier.padded_units,
            deallocated_units: self.deallocated_units - earlier.deallocated_units,
            programs: self.programs - earlier.programs,
            erases: self.erases - earlier.erases,
            collected: self.collected - earlier.collected,
            suspends: self.suspends - earlier.suspends,
            die_time: self.die_time.since(&earlier.die_time),
            ..*self
        }
    }
}
