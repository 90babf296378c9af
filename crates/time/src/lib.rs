//! Time, chance and order for the pure crates: nanosecond instants, a seeded generator, a stable event
//! queue and a latency histogram. Nothing here reads a clock.
#![no_std]
#![forbid(unsafe_code)]

mod instant;

pub use instant::{Duration, Time};
