//! Any bytes as what a mapped pool has on its device:
//! `cargo +nightly fuzz run logstore crates/corpus/inputs/logstore`.
#![no_main]

#[path = "../../crates/logstore/tests/parsers/mod.rs"]
mod parsers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| parsers::logstore(bytes));
