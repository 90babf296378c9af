//! What is on the device, byte by byte. All numbers are little-endian; what has no meaning yet is
//! zero and is checked to be. Decoding takes any bytes and gives a typed error.

pub mod batch;
pub mod fields;
pub mod footer;
pub mod page;
pub mod rows;
pub mod superblock;

use core::fmt;

use flashyard_checksum::Crc32c;

/// Bytes of a block: what places are counted in.
pub const BLOCK: usize = 4096;
/// A block of metadata.
pub type Block = [u8; BLOCK];
/// Bytes of a sector: what addresses of data are counted in.
pub const SECTOR: usize = 512;
/// Sectors in a block.
pub const BLOCK_SECTORS: u64 = 8;

/// Why bytes are not what they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FormatError {
    /// Nothing of this kind was written here.
    Absent,
    /// Bytes have changed, or were written by a stranger.
    Checksum,
    /// A later version of the layout.
    Newer(u32),
    /// Features that this program does not know, a bit for each.
    Features(u32),
    /// A good one, of another place.
    Elsewhere,
    /// This field has a value that no program writes.
    Field(&'static str),
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("nothing of this kind was written here"),
            Self::Checksum => f.write_str("its checksum is wrong"),
            Self::Newer(version) => {
                write!(
                    f,
                    "a later program wrote it, with version {version} of the layout"
                )
            }
            Self::Features(features) => {
                write!(f, "a later program wrote it, with features {features:#x}")
            }
            Self::Elsewhere => f.write_str("it belongs to another place"),
            Self::Field(name) => write!(f, "its {name} is impossible"),
        }
    }
}

impl core::error::Error for FormatError {}

/// The checksum of a chunk's stored bytes. It depends on whose they are, so a good block at a wrong
/// place does not verify.
pub fn chunk_sum(lineage: crate::Lineage, chunk: u64, bytes: &[u8]) -> u32 {
    let mut digest = Crc32c::new();
    digest.update(&lineage.0.to_le_bytes());
    digest.update(&chunk.to_le_bytes());
    digest.update(bytes);
    digest.value()
}

/// The checksum of a block that something else refers to.
pub fn block_sum(bytes: &[u8]) -> u32 {
    Crc32c::of(bytes)
}
