//! Any bytes as an encrypted key:
//! `cargo +nightly fuzz run envelope crates/corpus/inputs/envelope`.
#![no_main]

#[path = "../../crates/keys/tests/parsers/mod.rs"]
mod parsers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| parsers::envelope(bytes));
