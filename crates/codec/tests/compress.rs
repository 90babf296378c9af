//! Stored chunks come back as they were, take whole sectors, and only where that saves enough. What
//! is no stored chunk gives an error.

mod parsers;

use flashyard_codec::compress::{
    Codec, Compressor, Corrupt, Decompressor, MOST_CHUNK, SECTOR, is_zero,
};
use flashyard_time::Rng;

const SIZES: [usize; 8] = [1024, 4096, 8192, 16384, 65536, 131_072, 5000, MOST_CHUNK];

fn random(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.below(256) as u8).collect()
}

/// Words by chance, of which text is made.
fn text(rng: &mut Rng, len: usize) -> Vec<u8> {
    let words = ["volume", "pool", "a", "tenant", "device", "of", "the", "is"];
    let mut text = String::new();
    while text.len() < len {
        text += words[rng.below(8) as usize];
        text.push([' ', '\n'][(rng.below(9) / 8) as usize]);
    }
    text.into_bytes()[..len].to_vec()
}

#[test]
fn what_was_compressed_comes_back() {
    let mut rng = Rng::new(1);
    let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new());
    for len in SIZES {
        for codec in Codec::ALL {
            for plain in [vec![0; len], vec![9; len], text(&mut rng, len)] {
                let stored = compressor.compress(codec, &plain);
                let stored = stored.unwrap_or_else(|| panic!("{codec}, {len}: it is compressible"));
                assert!(stored.len().is_multiple_of(SECTOR));
                assert!(stored.len() <= len - (len / 8).max(SECTOR));
                let mut back = vec![1; len];
                assert_eq!(decompressor.decompress(codec, stored, &mut back), Ok(()));
                assert!(back == plain, "{codec}, {len}");
            }
        }
    }
}

#[test]
fn what_saves_too_little_is_not_compressed() {
    let mut rng = Rng::new(2);
    let mut compressor = Compressor::new();
    for codec in Codec::ALL {
        for len in SIZES {
            assert_eq!(
                compressor.compress(codec, &random(&mut rng, len)),
                None,
                "{codec}, {len}"
            );
        }
        for len in [0, 1, 511, 512, 1023, MOST_CHUNK + 1] {
            assert_eq!(
                compressor.compress(codec, &vec![0; len]),
                None,
                "{codec}, {len}"
            );
        }
        // A tenth is zeroes, an eighth is wanted; then a fifth is.
        let mut plain = random(&mut rng, 16384);
        plain[..1638].fill(0);
        assert_eq!(compressor.compress(codec, &plain), None);
        plain[..3277].fill(0);
        assert!(compressor.compress(codec, &plain).is_some());
    }
}

#[test]
fn what_only_zstd_can_compress_is_not_refused_by_the_look_at_parts() {
    let mut rng = Rng::new(3);
    let hex: Vec<u8> = (0..65536)
        .map(|_| b"0123456789abcdef"[rng.below(16) as usize])
        .collect();
    let mut compressor = Compressor::new();
    assert_eq!(compressor.compress(Codec::Lz4, &hex), None);
    let stored = compressor.compress(Codec::Zstd, &hex).map(<[u8]>::len);
    assert!(stored.is_some_and(|len| len < 34000), "{stored:?}");
}

#[test]
fn a_mixed_chunk_is_compressed() {
    let mut rng = Rng::new(4);
    let mut compressor = Compressor::new();
    for len in [8192, 16384, 131_072] {
        for quarter in 0..4 {
            let mut plain = random(&mut rng, len);
            plain[quarter * len / 4..(quarter + 1) * len / 4].fill(1);
            for codec in Codec::ALL {
                assert!(
                    compressor.compress(codec, &plain).is_some(),
                    "{codec}, {len}, {quarter}"
                );
            }
        }
    }
}

#[test]
fn zeroes_are_known() {
    for len in [0, 1, 511, 512, 513, 4096, 4099] {
        let mut bytes = vec![0; len];
        assert!(is_zero(&bytes));
        for at in [0, len / 2, len.wrapping_sub(1)] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = 0x10;
                assert!(!is_zero(&bytes), "{at} of {len}");
                bytes[at] = 0;
            }
        }
    }
}

#[test]
fn damage_gives_an_error_or_something_else_and_never_more() {
    let mut rng = Rng::new(5);
    let plain = text(&mut rng, 4096);
    let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new());
    let mut refused = 0;
    for codec in Codec::ALL {
        let stored = compressor
            .compress(codec, &plain)
            .expect("it is text")
            .to_vec();
        for len in 0..stored.len() {
            let mut back = vec![0; plain.len()];
            let result = decompressor.decompress(codec, &stored[..len], &mut back);
            assert!(
                result == Err(Corrupt) || back == plain,
                "{codec}, cut at {len}"
            );
        }
        for bit in 0..8 * stored.len() {
            let mut stored = stored.clone();
            stored[bit / 8] ^= 1 << (bit % 8);
            let mut back = vec![0; plain.len()];
            refused += u32::from(decompressor.decompress(codec, &stored, &mut back).is_err());
        }
        // It is not as long as expected.
        for len in [0, 1, 4095, 4097] {
            let mut back = vec![0; len];
            assert_eq!(
                decompressor.decompress(codec, &stored, &mut back),
                Err(Corrupt)
            );
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn codecs_have_numbers_and_names() {
    let all = Codec::ALL.map(|codec| (codec.number(), codec.name()));
    assert_eq!(all, [(1, "lz4"), (2, "zstd")]);
    let back = |number| Codec::from_number(number);
    assert_eq!(
        [0, 1, 2, 3].map(back),
        [None, Some(Codec::Lz4), Some(Codec::Zstd), None]
    );
    assert_eq!(Codec::default(), Codec::Lz4);
}

#[test]
fn any_bytes_are_borne() {
    flashyard_corpus::try_all("compressed", 3000, parsers::compressed);
}
