//! The stages before and after the flash: the firmware, and the link to the host.

use crate::Profile;
use crate::die::moving;

/// The times of a profile outside of dies and channels. Nanoseconds.
#[derive(Debug)]
pub(crate) struct Front {
    command: u64,
    unit: u64,
    pub entry: u64,
    pub read_exit: u64,
    pub write_exit: u64,
    pub buffer_hit: u64,
    pub flush: u64,
    pub link_unit: u64,
}

impl Front {
    pub fn new(profile: &Profile) -> Self {
        Self {
            command: profile.command_ns,
            unit: profile.unit_ns,
            entry: profile.entry_ns,
            read_exit: profile.read_exit_ns,
            write_exit: profile.write_exit_ns,
            buffer_hit: profile.buffer_hit_ns,
            flush: profile.flush_ns,
            link_unit: moving(1, profile.link_bytes_per_second),
        }
    }

    /// Firmware time of a command of `units`.
    pub fn firmware(&self, units: u32) -> u64 {
        self.command + u64::from(units - 1) * self.unit
    }
}
