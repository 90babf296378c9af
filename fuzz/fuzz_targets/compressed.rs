//! Any bytes as a compressed chunk:
//! `cargo +nightly fuzz run compressed crates/corpus/inputs/compressed`.
#![no_main]

#[path = "../../crates/codec/tests/parsers/mod.rs"]
mod parsers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| parsers::compressed(bytes));
