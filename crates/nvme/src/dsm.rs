//! Dataset Management (NVM Command Set, section 3.2.3): up to 256 ranges of 16 bytes.

use crate::bytes::Field;
use crate::command::SubmissionQueueEntry;

/// One range of a Dataset Management command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DsmRange {
    /// Context Attributes; hints, ignored here.
    pub attributes: u32,
    /// Length in logical blocks; 0 is a range of nothing.
    pub blocks: u32,
    /// Starting LBA.
    pub slba: u64,
}

impl DsmRange {
    /// Length in bytes.
    pub const LEN: usize = 16;
    /// The most ranges of one command.
    pub const MAX_RANGES: usize = 256;

    /// Reads one range.
    pub fn decode(data: &[u8; Self::LEN]) -> Self {
        Self {
            attributes: Field::get(data, 0),
            blocks: Field::get(data, 4),
            slba: Field::get(data, 8),
        }
    }

    /// Writes one range.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut data = [0; Self::LEN];
        self.attributes.put(&mut data, 0);
        self.blocks.put(&mut data, 4);
        self.slba.put(&mut data, 8);
        data
    }

    /// The ranges in a command's data; bytes after the last whole range are ignored.
    pub fn all(data: &[u8]) -> impl ExactSizeIterator<Item = Self> + '_ {
        data.as_chunks().0.iter().map(Self::decode)
    }

    /// Whether the range ends within a namespace of `size` blocks; cannot wrap.
    pub fn is_within(&self, size: u64) -> bool {
        self.slba <= size && u64::from(self.blocks) <= size - self.slba
    }
}

/// Dataset Management.
impl SubmissionQueueEntry {
    /// Number of Ranges, 1 to 256 (CDW10 bits 7:0, zero-based).
    pub fn dsm_ranges(&self) -> usize {
        (self.cdw10() & 0xff) as usize + 1
    }

    /// Attribute - Deallocate (CDW11 bit 2).
    pub fn dsm_deallocate(&self) -> bool {
        self.cdw11() & 1 << 2 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Sgl;

    #[test]
    fn bytes_both_ways() {
        let range = DsmRange {
            attributes: 0x11,
            blocks: 0x0203,
            slba: 0x0102_0304_0506_0708,
        };
        let bytes = [0x11, 0, 0, 0, 3, 2, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1];
        assert_eq!(range.encode(), bytes);
        assert_eq!(DsmRange::decode(&bytes), range);
        let three = [bytes, bytes, bytes].concat();
        assert_eq!(DsmRange::all(&three[..40]).len(), 2);
    }

    #[test]
    fn ranges_cannot_wrap() {
        let range = |slba, blocks| DsmRange {
            attributes: 0,
            blocks,
            slba,
        };
        assert!(range(0, 100).is_within(100));
        assert!(range(100, 0).is_within(100));
        assert!(!range(1, 100).is_within(100));
        assert!(!range(u64::MAX, 1).is_within(100));
        assert!(!range(u64::MAX, u32::MAX).is_within(u64::MAX));
    }

    #[test]
    fn command() {
        let sgl = Sgl::InCapsule {
            offset: 0,
            length: 4096,
        };
        let entry = SubmissionQueueEntry::deallocate(1, 256, sgl);
        assert_eq!((entry.dsm_ranges(), entry.dsm_deallocate()), (256, true));
        assert_eq!((entry.cdw10(), entry.cdw11()), (255, 4));
    }
}
