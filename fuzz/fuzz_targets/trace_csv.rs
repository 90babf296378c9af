//! Any bytes as a trace in CSV:
//! `cargo +nightly fuzz run trace_csv crates/corpus/inputs/trace_csv`.
#![no_main]

#[allow(dead_code, reason = "each target uses a part")]
#[path = "../../crates/lab/tests/parsers/mod.rs"]
mod parsers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| parsers::csv(bytes));
