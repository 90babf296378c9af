//! Any bytes as the metadata of a pool:
//! `cargo +nightly fuzz run pool crates/corpus/inputs/pool`.
#![no_main]

#[path = "../../crates/block/tests/parsers/mod.rs"]
mod parsers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| parsers::pool(bytes));
