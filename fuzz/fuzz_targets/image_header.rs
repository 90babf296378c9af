//! Any bytes as the header of such a file:
//! `cargo +nightly fuzz run image_header crates/corpus/inputs/image_header`.
#![no_main]

#[allow(dead_code, reason = "each target uses a part")]
#[path = "../../crates/drives/tests/parsers/mod.rs"]
mod parsers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| parsers::header(bytes));
