//! The policies that an experiment can put in front of a drive, by name.

use flashyard_sched::gimbal::{Flaws, Tuning};
use flashyard_sched::{Fair, Fifo, Gimbal, Policy, Window};

/// The names of all policies.
pub const NAMES: [&str; 4] = ["fifo", "fair", "gimbal", "gimbal-released"];

/// A policy by name; `None` when there is none.
pub fn named(name: &str) -> Option<Box<dyn Policy>> {
    let policy: Box<dyn Policy> = match name {
        "fifo" => fifo(),
        "fair" => Box::new(Fair::new()),
        "gimbal" => Box::new(Gimbal::new(Tuning::default(), Flaws::default())),
        "gimbal-released" => Box::new(Gimbal::new(Tuning::default(), Flaws::RELEASED)),
        _ => return None,
    };
    Some(policy)
}

/// No switch at all: everything goes to the drive as it comes.
pub fn fifo() -> Box<dyn Policy> {
    Box::new(Fifo::new(Window::UNLIMITED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_policy() {
        assert!(NAMES.iter().all(|name| named(name).is_some()));
        assert!(named("none").is_none());
    }
}
