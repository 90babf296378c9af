//! The policies that an experiment can put in front of a drive, by name.
//!
//! Most know nothing of the drive; those that need figures get a [`Calibration`], which measures
//! it. Two need the help of hosts: Parda works only in the hosts, and Gimbal reports credits to
//! hosts that apply them.

mod calibration;
mod credit;
mod paced;
mod parda;

use flashyard_sched::{Fifo, Known, POLICY_NAMES, Policy, PolicyKind, Window};

use crate::bench::HostPolicy;

pub use calibration::Calibration;
pub use credit::CreditHosts;
pub use paced::Paced;
pub use parda::PardaHosts;

/// The one that works in hosts alone, before a switch that does nothing.
const PARDA: &str = "parda";

/// The names of all policies: those of switches, and the one of hosts.
pub fn names() -> impl Iterator<Item = &'static str> {
    POLICY_NAMES.iter().copied().chain([PARDA])
}

/// A switch, and what hosts do that know it.
pub struct Switch {
    /// What stands in front of the drive.
    pub policy: Box<dyn Policy>,
    /// What each host does before; nothing when any host will do.
    pub host: Option<Box<dyn HostPolicy>>,
}

/// A policy that knows nothing of the drive and needs no help, by name; `None` when there is none,
/// or it does.
pub fn named(name: &str) -> Option<Box<dyn Policy>> {
    PolicyKind::named(name)?.make(&Known::NOTHING)
}

/// A policy by name that an experiment has checked, for a drive that was measured if it needs that.
pub(crate) fn switch(name: &str, drive: Option<&Calibration>) -> Switch {
    let found = match drive {
        Some(drive) => calibrated(name, drive),
        None => named(name).map(|policy| Switch { policy, host: None }),
    };
    found.expect("a context has policies that there are, and drives are measured for them")
}

/// Any policy by name, for a drive that was measured, with unmodified hosts if it can do with them;
/// `None` when there is none.
pub fn calibrated(name: &str, drive: &Calibration) -> Option<Switch> {
    if name == PARDA {
        return Some(Switch {
            policy: fifo(),
            host: Some(Box::new(PardaHosts::new(drive.knee()))),
        });
    }
    let known = Known {
        figures: drive.figures(),
        ..Known::NOTHING
    };
    let policy = PolicyKind::named(name)?.make(&known)?;
    Some(Switch { policy, host: None })
}

/// No switch at all: everything goes to the drive as it comes.
pub fn fifo() -> Box<dyn Policy> {
    Box::new(Fifo::new(Window::UNLIMITED))
}

#[cfg(test)]
mod tests {
    use flashyard_flash::Profile;

    use super::*;

    #[test]
    fn every_name_has_its_policy() {
        let profile = Profile::named("dct983").expect("it ships");
        let drive = Calibration::measure(&profile, 1 << 30, 1, true).expect("it fits");
        assert!(names().all(|name| calibrated(name, &drive).is_some()));
        assert!(named("none").is_none() && calibrated("none", &drive).is_none());
    }
}
