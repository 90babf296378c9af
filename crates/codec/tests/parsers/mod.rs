//! What every stored chunk has to keep to, for tests and for libFuzzer.

use flashyard_codec::compress::{Codec, Compressor, Decompressor};

/// The first byte says which codec, the second how long the chunk is; the rest is what is stored.
/// Nothing may panic, and what can be taken apart can be compressed and taken apart again.
pub fn compressed(bytes: &[u8]) {
    let [codec, pages, stored @ ..] = bytes else {
        return;
    };
    let codec = Codec::ALL[usize::from(codec & 1)];
    let mut plain = vec![0; 4096 * usize::from(pages & 31) + 512];
    let mut decompressor = Decompressor::new();
    if decompressor.decompress(codec, stored, &mut plain).is_err() {
        return;
    }
    if let Some(stored) = Compressor::new().compress(codec, &plain) {
        let mut again = vec![0; plain.len()];
        decompressor
            .decompress(codec, stored, &mut again)
            .expect("it was compressed just now");
        assert!(again == plain, "it comes back as it was");
    }
}
