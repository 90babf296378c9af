//! Any bytes as the keys of an encrypted pool:
//! `cargo +nightly fuzz run pool_keys crates/corpus/inputs/pool_keys`.
#![no_main]

#[path = "../../crates/block/tests/parsers/mod.rs"]
mod parsers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| parsers::pool_keys(bytes));
