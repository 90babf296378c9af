//! Any bytes as any structure: `cargo +nightly fuzz run decoders`.
#![no_main]

#[path = "../../crates/nvme/tests/decode/mod.rs"]
mod decode;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| decode::everything(bytes));
