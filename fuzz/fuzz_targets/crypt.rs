//! Any bytes as the header of an encrypted device:
//! `cargo +nightly fuzz run crypt crates/corpus/inputs/crypt`.
#![no_main]

#[path = "../../crates/block/tests/parsers/mod.rs"]
mod parsers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| parsers::crypt(bytes));
