//! Any bytes as a message of vfio-user: `cargo +nightly fuzz run vfio_user`, with
//! `crates/corpus/inputs/vfio_user` as its corpus.
#![no_main]

#[path = "../../crates/nvme/tests/vfio_user_bytes/mod.rs"]
mod bytes;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| bytes::both_ways(input));
