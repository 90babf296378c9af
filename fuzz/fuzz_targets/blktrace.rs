//! Any bytes as a binary trace:
//! `cargo +nightly fuzz run blktrace crates/corpus/inputs/blktrace`.
#![no_main]

#[allow(dead_code, reason = "each target uses a part")]
#[path = "../../crates/lab/tests/parsers/mod.rs"]
mod parsers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| parsers::binary(bytes));
