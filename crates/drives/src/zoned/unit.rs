//! The bytes of a write unit: sectors, and behind them a block that says what they are.
//!
//! A zone has no place beside its data, so what an FTL stores beside its sectors stands in the last
//! block of each unit. A zone is written in order: where that block is, the unit is whole. Of 64
//! KiB 60 are data.
//!
//! The block, little-endian: magic `FLSHZONE`, version (4), CRC32C of all that follows up to the
//! last entry (4), start of the zone in bytes (8), number of the unit in it (4), sectors (4), and
//! of each sector its metadata (16) and the CRC32C of its data (4).

use flashyard_checksum::Crc32c;
use flashyard_flash::UNIT_BYTES;
use flashyard_flash::channel::Metadata;

/// Bytes of a sector.
pub(super) const SECTOR: usize = UNIT_BYTES as usize;
/// Sectors of a write unit that hold data.
pub(super) const SECTORS: usize = 15;
/// Bytes of a write unit.
pub(super) const BYTES: usize = (SECTORS + 1) * SECTOR;

const MAGIC: &[u8; 8] = b"FLSHZONE";
const VERSION: u32 = 1;
const SUM: std::ops::Range<usize> = 12..16;
const HEAD: usize = 32;
const ENTRY: usize = 20;
const END: usize = HEAD + SECTORS * ENTRY;

/// What the last block of a unit says of the sectors before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trailer {
    metadata: [Metadata; SECTORS],
    sums: [u32; SECTORS],
}

impl Trailer {
    /// Of the sectors in `data`, with what is stored beside them; zeros beside those that have
    /// nothing.
    pub fn new(metadata: &[Metadata], data: &[u8]) -> Self {
        let mut trailer = Self {
            metadata: [Metadata::default(); SECTORS],
            sums: [0; SECTORS],
        };
        for (kept, given) in trailer.metadata.iter_mut().zip(metadata) {
            *kept = *given;
        }
        for (kept, sector) in trailer.sums.iter_mut().zip(data.chunks_exact(SECTOR)) {
            *kept = sum(sector);
        }
        trailer
    }

    /// Writes the block of unit `number` in the zone that begins at `zone`.
    pub fn encode(&self, zone: u64, number: u32, block: &mut [u8]) {
        block.fill(0);
        block[..8].copy_from_slice(MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[16..24].copy_from_slice(&zone.to_le_bytes());
        block[24..28].copy_from_slice(&number.to_le_bytes());
        block[28..32].copy_from_slice(&(SECTORS as u32).to_le_bytes());
        let entries = block[HEAD..END].chunks_exact_mut(ENTRY);
        for ((entry, metadata), sum) in entries.zip(&self.metadata).zip(&self.sums) {
            entry[..8].copy_from_slice(&metadata[0].to_le_bytes());
            entry[8..16].copy_from_slice(&metadata[1].to_le_bytes());
            entry[16..].copy_from_slice(&sum.to_le_bytes());
        }
        let sum = sum(&block[SUM.end..END]);
        block[SUM].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads the block of that unit; nothing when it is none, or another one's.
    pub fn decode(zone: u64, number: u32, block: &[u8]) -> Option<Self> {
        let mut expected = [0; HEAD];
        expected[..8].copy_from_slice(MAGIC);
        expected[8..12].copy_from_slice(&VERSION.to_le_bytes());
        expected[SUM].copy_from_slice(&sum(block.get(SUM.end..END)?).to_le_bytes());
        expected[16..24].copy_from_slice(&zone.to_le_bytes());
        expected[24..28].copy_from_slice(&number.to_le_bytes());
        expected[28..32].copy_from_slice(&(SECTORS as u32).to_le_bytes());
        if block[..HEAD] != expected {
            return None;
        }
        let mut trailer = Self {
            metadata: [Metadata::default(); SECTORS],
            sums: [0; SECTORS],
        };
        let kept = trailer.metadata.iter_mut().zip(&mut trailer.sums);
        for ((metadata, sum), entry) in kept.zip(block[HEAD..END].chunks_exact(ENTRY)) {
            *metadata = [word(&entry[..8]), word(&entry[8..16])];
            *sum = word(&entry[16..]) as u32;
        }
        Some(trailer)
    }

    /// What is stored beside a sector.
    pub fn metadata(&self, sector: usize) -> Metadata {
        self.metadata[sector]
    }

    /// Whether these are the data of a sector.
    pub fn matches(&self, sector: usize, data: &[u8]) -> bool {
        self.sums[sector] == sum(data)
    }
}

fn sum(bytes: &[u8]) -> u32 {
    Crc32c::of(bytes)
}

/// A little-endian number of up to eight bytes.
fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_belongs_to_its_place_and_its_sectors() {
        let mut unit = vec![0; BYTES];
        let (data, block) = unit.split_at_mut(SECTORS * SECTOR);
        for (number, sector) in data.chunks_exact_mut(SECTOR).enumerate() {
            sector.fill(number as u8);
        }
        let metadata: Vec<Metadata> = (0..10).map(|number| [number, u64::MAX - number]).collect();
        let trailer = Trailer::new(&metadata, data);
        trailer.encode(1 << 40, 77, block);
        assert_eq!(Trailer::decode(1 << 40, 77, block).as_ref(), Some(&trailer));
        for (zone, number) in [(0, 77), (1 << 40, 76)] {
            assert_eq!(Trailer::decode(zone, number, block), None);
        }
        assert_eq!(trailer.metadata(9), [9, u64::MAX - 9]);
        assert_eq!(trailer.metadata(10), [0, 0]);
        for sector in 0..SECTORS {
            let bytes = &mut data[sector * SECTOR..(sector + 1) * SECTOR];
            assert!(trailer.matches(sector, bytes));
            bytes[4095] ^= 1;
            assert!(!trailer.matches(sector, bytes));
        }
    }

    #[test]
    fn whatever_is_changed_is_noticed() {
        let mut block = vec![0; SECTOR];
        Trailer::new(&[[1, 2]], &[5; SECTOR]).encode(0, 0, &mut block);
        assert!(Trailer::decode(0, 0, &block).is_some());
        for at in 0..END {
            block[at] ^= 0x40;
            assert_eq!(Trailer::decode(0, 0, &block), None, "byte {at}");
            block[at] ^= 0x40;
        }
        assert_eq!(Trailer::decode(0, 0, &[0; SECTOR]), None);
        assert_eq!(Trailer::decode(0, 0, &block[..100]), None);
    }
}
