//! How fast CRC32C is beside the library, in turns, the best of some passes each.
//! `cargo bench -p flashyard-checksum` prints the table of docs/performance.md.

use std::hint::black_box;
use std::time::Instant;

use crc_fast::{CrcAlgorithm, checksum};
use flashyard_checksum::Crc32c;

const PASSES: usize = 15;
/// Bytes of one pass.
const PASS: usize = 64 << 20;

/// Nanoseconds that one takes.
fn timed(bytes: &[u8], sum: impl Fn(&[u8]) -> u32) -> f64 {
    let times = PASS / bytes.len();
    let begun = Instant::now();
    for _ in 0..times {
        black_box(sum(black_box(bytes)));
    }
    begun.elapsed().as_nanos() as f64 / times as f64
}

fn main() {
    let bytes: Vec<u8> = (0..128 << 10).map(|at| (at * 7 + at / 256) as u8).collect();
    for len in [64, 512, 4096, 16 << 10, 128 << 10] {
        let bytes = &bytes[..len];
        let mut best = [f64::MAX; 2];
        for _ in 0..PASSES {
            let ours = timed(bytes, Crc32c::of);
            let library = timed(bytes, |it| checksum(CrcAlgorithm::Crc32Iscsi, it) as u32);
            best = [best[0].min(ours), best[1].min(library)];
        }
        let [ours, library] = best;
        println!(
            "{len} bytes: {ours:.0} ns, {:.1} GB/s; the library {library:.0} ns; {:.2} of it",
            len as f64 / ours,
            ours / library
        );
    }
}
