//! Changes of a file that holds an open-channel device:
//! `cargo +nightly fuzz run image crates/corpus/inputs/image`.
#![no_main]

#[allow(dead_code, reason = "each target uses a part")]
#[path = "../../crates/drives/tests/parsers/mod.rs"]
mod parsers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| parsers::image(bytes));
