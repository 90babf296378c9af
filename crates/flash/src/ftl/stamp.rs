//! Metadata that are written beside and into units, so that recovery knows what they are.
//!
//! Beside every unit: logical unit, serial number of the line, sequence, kind and a checksum that
//! also covers the key of the partition and the number of the unit: a unit of another tenant, of
//! another place or of an earlier format does not pass. The data themselves are protected by the
//! device.

use crate::UNIT_BYTES;
use crate::channel::Metadata;

/// Bytes of a page of the FTL.
pub(super) const PAGE: usize = UNIT_BYTES as usize;
const HEADER: usize = 16;
/// Entries of the map in a page.
pub(super) const UNITS_PER_PAGE: u32 = ((PAGE - HEADER) / 4) as u32;
/// Lines in a page of the table of lines.
pub(super) const LINES_PER_PAGE: u32 = ((PAGE - HEADER) / 8) as u32;

const SEQUENCE_BITS: u32 = 44;
const SERIAL_BITS: u32 = 28;
const SUM_BITS: u32 = 20;
/// Sequences and serial numbers stay below.
pub(super) const MOST_SEQUENCE: u64 = (1 << SEQUENCE_BITS) - 1;
pub(super) const MOST_SERIAL: u32 = (1 << SERIAL_BITS) - 1;

/// Of the format of checkpoints.
pub(super) const VERSION: u32 = 2;
/// The half of a page's word that tells the writes in it, and the half of its checkpoint's number
/// that is in it.
pub(super) const LATER: u64 = 0xFFFF_FFFF;
/// In the table of lines: everything in the line had taken effect.
pub(super) const SETTLED: u32 = 1 << 31;

/// What a unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Data as the host wrote them.
    Data = 1,
    /// Data that were moved, with the sequence that they had.
    Moved = 2,
    /// Ranges that have no data any more.
    Tombstones = 3,
    /// A page of a checkpoint.
    Page = 4,
    /// The page that makes a checkpoint complete.
    Root = 5,
    /// Nothing, among what the host wrote.
    HostPadding = 6,
    /// Nothing, among what was moved.
    MovedPadding = 7,
    /// Nothing, among checkpoints.
    CheckpointPadding = 8,
}

impl Kind {
    fn from_bits(bits: u64) -> Option<Self> {
        Some(match bits {
            1 => Self::Data,
            2 => Self::Moved,
            3 => Self::Tombstones,
            4 => Self::Page,
            5 => Self::Root,
            6 => Self::HostPadding,
            7 => Self::MovedPadding,
            8 => Self::CheckpointPadding,
            _ => return None,
        })
    }

    /// Whether it is in a line of checkpoints.
    pub fn is_checkpoint(self) -> bool {
        matches!(self, Self::Page | Self::Root | Self::CheckpointPadding)
    }
}

/// What stands beside a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub kind: Kind,
    /// Logical unit; of a page its number, of tombstones how many.
    pub logical: u32,
    /// Of a page the generation of its checkpoint.
    pub sequence: u64,
    /// Of the line.
    pub serial: u32,
}

impl Stamp {
    /// What is stored beside `unit` in the partition with `key`.
    pub fn encode(&self, key: u64, unit: u32) -> Metadata {
        let low =
            u64::from(self.logical) << 32 | u64::from(self.serial) << 4 | (self.kind as u64 & 0xF);
        let sequence = self.sequence & MOST_SEQUENCE;
        [low, sequence << SUM_BITS | sum(key, unit, low, sequence)]
    }

    /// What stands beside `unit`; nothing when it is not of this partition and place.
    pub fn decode(key: u64, unit: u32, metadata: Metadata) -> Option<Self> {
        let [low, high] = metadata;
        let sequence = high >> SUM_BITS;
        let kind = Kind::from_bits(low & 0xF)?;
        let sound = high & ((1 << SUM_BITS) - 1) == sum(key, unit, low, sequence);
        sound.then_some(Self {
            kind,
            logical: (low >> 32) as u32,
            sequence,
            serial: (low >> 4) as u32 & MOST_SERIAL,
        })
    }
}

fn sum(key: u64, unit: u32, low: u64, sequence: u64) -> u64 {
    mix(mix(key ^ low).wrapping_add(sequence) ^ u64::from(unit)) >> (64 - SUM_BITS)
}

/// Every bit of the argument moves every bit of the result.
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// A page of the FTL, being written: words behind a header with a checksum.
pub(super) struct PageWriter<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> PageWriter<'a> {
    /// A page of zeros.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        bytes.fill(0);
        Self { bytes, at: HEADER }
    }

    pub fn put_u32(&mut self, value: u32) {
        self.bytes[self.at..self.at + 4].copy_from_slice(&value.to_le_bytes());
        self.at += 4;
    }

    pub fn put_u64(&mut self, value: u64) {
        self.bytes[self.at..self.at + 8].copy_from_slice(&value.to_le_bytes());
        self.at += 8;
    }

    /// Ends the page, which belongs to `key` and `number` and says `word` of itself.
    pub fn seal(self, key: u64, word: u64, number: u32) {
        self.bytes[8..16].copy_from_slice(&word.to_le_bytes());
        let sum = page_sum(self.bytes, key, number);
        self.bytes[..8].copy_from_slice(&sum.to_le_bytes());
    }
}

/// A page of the FTL, being read.
pub(super) struct PageReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> PageReader<'a> {
    /// A page that was sealed with the same arguments.
    pub fn open(bytes: &'a [u8], key: u64, word: u64, number: u32) -> Option<Self> {
        let (page, found) = Self::open_any(bytes, key, number)?;
        (found == word).then_some(page)
    }

    /// A page that was sealed with this key and number, and its word.
    pub fn open_any(bytes: &'a [u8], key: u64, number: u32) -> Option<(Self, u64)> {
        if bytes.len() != PAGE {
            return None;
        }
        let mut page = Self { bytes, at: 0 };
        let sound = page.take_u64()? == page_sum(bytes, key, number);
        let word = page.take_u64()?;
        sound.then_some((page, word))
    }

    /// The next word; nothing behind the end.
    pub fn take_u32(&mut self) -> Option<u32> {
        let word = self.bytes.get(self.at..self.at + 4)?;
        self.at += 4;
        Some(u32::from_le_bytes(word.try_into().ok()?))
    }

    /// The next double word; nothing behind the end.
    pub fn take_u64(&mut self) -> Option<u64> {
        let word = self.bytes.get(self.at..self.at + 8)?;
        self.at += 8;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    }
}

/// Over all of a page but the place of the checksum.
fn page_sum(bytes: &[u8], key: u64, number: u32) -> u64 {
    let mut sum = mix(key ^ u64::from(number).rotate_left(32));
    for word in bytes[8..].chunks_exact(8) {
        let word = u64::from_le_bytes(word.try_into().expect("chunks of eight"));
        sum = (sum ^ word)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(29);
    }
    mix(sum)
}

/// What recovery reads from a root.
#[derive(Clone, Copy, Debug)]
pub(super) struct Root {
    pub generation: u64,
    pub applied: u64,
    pub sequence: u64,
    pub serial: u32,
    pub logical: u32,
}

impl Root {
    /// The sequence up to which the writes of the host are in a page with this word; nothing when
    /// it belongs to another checkpoint.
    pub fn applied_in(&self, word: u64) -> Option<u64> {
        (word & LATER == self.generation & LATER).then(|| self.applied + (word >> 32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        kind: Kind::Moved,
        logical: 0xFEDC_BA98,
        sequence: MOST_SEQUENCE - 5,
        serial: MOST_SERIAL - 1,
    };

    #[test]
    fn a_stamp_belongs_to_its_partition_and_place() {
        let written = STAMP.encode(7, 1000);
        assert_eq!(Stamp::decode(7, 1000, written), Some(STAMP));
        assert_eq!(Stamp::decode(8, 1000, written), None);
        assert_eq!(Stamp::decode(7, 1001, written), None);
        assert_eq!(Stamp::decode(7, 1000, Metadata::default()), None);
        for bit in 0..128 {
            let mut torn = written;
            torn[bit / 64] ^= 1 << (bit % 64);
            assert_eq!(Stamp::decode(7, 1000, torn), None, "bit {bit}");
        }
    }

    #[test]
    fn a_page_is_sound_or_nothing() {
        let mut bytes = [0xAA; PAGE];
        let mut page = PageWriter::new(&mut bytes);
        page.put_u32(5);
        page.put_u64(u64::MAX);
        page.seal(1, 2, 3);
        let mut read = PageReader::open(&bytes, 1, 2, 3).expect("it was sealed so");
        assert_eq!(
            (read.take_u32(), read.take_u64()),
            (Some(5), Some(u64::MAX))
        );
        for (key, word, number) in [(0, 2, 3), (1, 1, 3), (1, 2, 4)] {
            assert!(PageReader::open(&bytes, key, word, number).is_none());
        }
        let any = PageReader::open_any(&bytes, 1, 3);
        assert_eq!(any.map(|(_, word)| word), Some(2));
        for at in [0, 9, 20, PAGE - 1] {
            bytes[at] ^= 0x10;
            assert!(PageReader::open(&bytes, 1, 2, 3).is_none(), "byte {at}");
            bytes[at] ^= 0x10;
        }
        assert!(PageReader::open(&bytes[1..], 1, 2, 3).is_none());
    }
}
