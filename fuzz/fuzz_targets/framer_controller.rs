//! Any bytes at the controller's end of a connection: `cargo +nightly fuzz run framer_controller`.
#![no_main]

#[path = "../../crates/nvme/tests/driver/mod.rs"]
mod driver;

use flashyard_nvme::tcp::Role;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| driver::two_ways(Role::Controller, bytes));
