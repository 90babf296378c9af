//! Any bytes as the profile of a drive:
//! `cargo +nightly fuzz run profile crates/corpus/inputs/profile`.
#![no_main]

#[path = "../../crates/flash/tests/parsers/mod.rs"]
mod parsers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| parsers::profile(bytes));
