//! What whoever runs a drive by a real clock has to know: when to look again.

use flashyard_time::Time;

use super::Device;
use crate::Profile;

impl Device {
    /// What the drive is made of.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// No command is complete before this instant, unless one is submitted before; nothing when none is under way,
    /// whatever the drive does for itself. To look at the drive then, and not at every event, changes nothing.
    pub fn next_completion(&self) -> Option<Time> {
        if self.outstanding() == 0 && self.done.is_empty() {
            return None;
        }
        self.next_event()
    }
}
