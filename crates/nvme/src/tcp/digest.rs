//! CRC32C, the digest of headers and of data, as it is on the wire.

/// A digest being computed over pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Crc32c(flashyard_checksum::Crc32c);

impl Crc32c {
    /// Bytes of a digest on the wire.
    pub const LEN: usize = 4;

    /// The digest of nothing yet.
    #[inline]
    pub const fn new() -> Self {
        Self(flashyard_checksum::Crc32c::new())
    }

    /// Adds bytes.
    #[inline]
    pub fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    /// The value so far.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0.value()
    }

    /// The digest as sent.
    #[inline]
    pub const fn to_wire(self) -> [u8; Self::LEN] {
        self.value().to_le_bytes()
    }

    /// The digest of `data`, as sent.
    #[inline]
    pub fn of(data: &[u8]) -> [u8; Self::LEN] {
        flashyard_checksum::Crc32c::of(data).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn known_answers() {
        // RFC 3720, appendix B.4, and the check value of the CRC catalogue.
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        for (data, value) in [
            (&[0u8; 32][..], 0x8a91_36aa_u32),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
            (&descending, 0x113f_db5c),
            (b"123456789", 0xe306_9283),
            (b"", 0),
        ] {
            assert_eq!(Crc32c::of(data), value.to_le_bytes());
        }
    }

    #[test]
    fn pieces_give_the_same_as_the_whole() {
        let data: Vec<u8> = (0..1500u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for cut in [0, 1, 3, 16, 255, 256, 700, 1499, 1500] {
            let mut crc = Crc32c::new();
            crc.update(&data[..cut]);
            crc.update(&data[cut..]);
            assert_eq!(crc.to_wire(), Crc32c::of(&data), "cut at {cut}");
        }
    }
}
