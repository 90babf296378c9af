//! The policies that an experiment can put in front of a drive, by name.

use flashyard_sched::{Fifo, Policy, Window};

/// The names of all policies.
pub const NAMES: [&str; 1] = ["fifo"];

/// A policy by name; `None` when there is none.
pub fn named(name: &str) -> Option<Box<dyn Policy>> {
    match name {
        "fifo" => Some(fifo()),
        _ => None,
    }
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
