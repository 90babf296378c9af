//! No bytes make a decoder panic, and what is written again is read the same.

mod decode;

use flashyard_time::Rng;

#[test]
fn noise_as_everything() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut bytes = vec![0; rng.below(4097) as usize];
        rng.fill_bytes(&mut bytes);
        // Some pages are sparse, with small numbers: nearer to what is right.
        if rng.chance(1, 2) {
            for byte in &mut bytes {
                *byte = if rng.chance(1, 4) { *byte & 0x1f } else { 0 };
            }
        }
        decode::everything(&bytes);
    }
    decode::everything(&[0xff; 4096]);
    decode::everything(&[]);
}
