//! Any bytes as the record of a member of an array:
//! `cargo +nightly fuzz run array crates/corpus/inputs/array`.
#![no_main]

#[path = "../../crates/block/tests/parsers/mod.rs"]
mod parsers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| parsers::array(bytes));
