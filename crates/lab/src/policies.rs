//! The policies that an experiment can put in front of a drive, by name.

use flashyard_sched::{Fifo, Policy, Window};

/// The names of all policies.
pub const NAMES: [&str; 1] = ["fifo"];

/// A policy by name; `None` when there is none.
pub fn named(name: &str) -> Option<Box<dyn Policy>> {
    match name {
        "fifo" => Some(Box::new(Fifo::new(Window::UNLIMITED))),
        _ => None,
    }
}
