//! Time, chance and order for the pure crates: nanosecond instants, a seeded generator, a stable
//! event queue and a latency histogram. Nothing here reads a clock.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod event_queue;
mod histogram;
mod instant;
mod rng;

pub use event_queue::{EventKey, EventQueue};
pub use histogram::Histogram;
pub use instant::{Duration, Time};
pub use rng::Rng;
