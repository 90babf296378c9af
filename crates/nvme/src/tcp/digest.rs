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

    /// The digest as sent.
    #[inline]
    pub const fn to_wire(self) -> [u8; Self::LEN] {
        self.0.value().to_le_bytes()
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

    /// What the digest is of bytes is tested where it is computed.
    #[test]
    fn the_least_byte_is_sent_first() {
        // RFC 3720, appendix B.4: 32 bytes of zeroes.
        assert_eq!(Crc32c::of(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(Crc32c::new().to_wire(), [0; Crc32c::LEN]);
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
