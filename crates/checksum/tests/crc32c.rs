//! CRC32C against known answers, against the definition bit by bit, and against the library.

use flashyard_checksum::Crc32c;
use flashyard_time::Rng;

/// As the specification has it: one bit after the other.
fn defined(bytes: &[u8]) -> u32 {
    let mut state = u32::MAX;
    for byte in bytes {
        state ^= u32::from(*byte);
        for _ in 0..8 {
            state = (state >> 1) ^ (0x82f6_3b78 * (state & 1));
        }
    }
    !state
}

#[test]
fn known_answers() {
    // RFC 3720, appendix B.4, and the check value of the CRC catalogue.
    let ascending: Vec<u8> = (0..32).collect();
    let descending: Vec<u8> = (0..32).rev().collect();
    for (bytes, value) in [
        (&[0u8; 32][..], 0x8a91_36aa_u32),
        (&[0xff; 32], 0x62a8_ab43),
        (&ascending, 0x46dd_794e),
        (&descending, 0x113f_db5c),
        (b"123456789", 0xe306_9283),
        (b"", 0),
    ] {
        assert_eq!(Crc32c::of(bytes), value);
    }
}

#[test]
fn all_lengths_are_as_defined() {
    let mut bytes = vec![0; 4500];
    Rng::new(1).fill_bytes(&mut bytes);
    let short = 0..600;
    let around = [1087, 1088, 4079, 4080, 4081, 4095, 4096, 4103, 4352, 4500];
    for len in short.chain(around) {
        assert_eq!(Crc32c::of(&bytes[..len]), defined(&bytes[..len]), "{len}");
    }
}

#[test]
fn all_is_as_the_library_has_it_wherever_it_is_cut_and_begins() {
    let mut rng = Rng::new(2);
    let mut bytes = vec![0; 300_000];
    rng.fill_bytes(&mut bytes);
    for _ in 0..2_000 {
        let start = rng.below(70) as usize;
        let longest = 1 << (1 + rng.below(18));
        let len = rng.below(longest) as usize;
        let bytes = &bytes[start..start + len];
        let cut = rng.below(len as u64 + 1) as usize;
        let mut crc = Crc32c::new();
        crc.update(&bytes[..cut]);
        crc.update(&bytes[cut..]);
        let library = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32;
        assert_eq!(crc.value(), library, "{start}, {len} bytes cut at {cut}");
    }
}
