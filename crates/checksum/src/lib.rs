//! CRC32C (Castagnoli, RFC 3720 section 12.1): the digest of NVMe/TCP PDUs, and the checksum of all
//! that pools store.
//!
//! A processor with 256-bit carry-less multiplication and without AVX-512 has a way of our own
//! (`fused`), since no library uses both of its units at once: 4 KiB take 113 ns instead of 273
//! (docs/performance.md). Everywhere else it is `crc-fast`. The vector instructions are the only
//! `unsafe` here.

#[cfg(target_arch = "x86_64")]
mod fused;

use crc_fast::{CrcAlgorithm, Digest};

/// A CRC32C being computed over pieces.
///
/// ```
/// use flashyard_checksum::Crc32c;
///
/// let mut crc = Crc32c::new();
/// crc.update(b"1234");
/// crc.update(b"56789");
/// assert_eq!(crc.value(), 0xe306_9283);
/// assert_eq!(Crc32c::of(b"123456789"), crc.value());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crc32c(u32);

impl Crc32c {
    /// That of nothing yet.
    #[inline]
    pub const fn new() -> Self {
        Self(u32::MAX)
    }

    /// Adds bytes.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(state) = fused::update(self.0, bytes) {
            self.0 = state;
            return;
        }
        self.0 = by_library(self.0, bytes);
    }

    /// The value so far.
    #[inline]
    pub const fn value(self) -> u32 {
        !self.0
    }

    /// That of some bytes.
    #[inline]
    pub fn of(bytes: &[u8]) -> u32 {
        let mut crc = Self::new();
        crc.update(bytes);
        crc.value()
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

/// What the library makes of a state and more bytes.
fn by_library(state: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(state));
    digest.update(bytes);
    digest.get_state() as u32
}
