//! Any bytes as the layout of partitions:
//! `cargo +nightly fuzz run layout crates/corpus/inputs/layout`.
#![no_main]

#[allow(dead_code, reason = "each target uses a part")]
#[path = "../../crates/drives/tests/parsers/mod.rs"]
mod parsers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| parsers::layout(bytes));
