//! Where a chunk is stored, as leaves and the memory table keep it: 12 bytes.

use crate::chunk::MOST_CODEC;

/// Chunks of a leaf.
pub const LEAF_CHUNKS: u64 = 336;

/// Bits of a chunk's number, so that it fits into one key with the number of its volume.
pub const CHUNK_BITS: u32 = 40;

/// The flag of an entry that an earlier layer has.
const INHERITED: u64 = 1 << 50;

/// The number of a volume's data: new for each volume and never used again in a pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lineage(pub u32);

impl Lineage {
    /// The highest number of all.
    pub const LAST: Self = Self((1 << 24) - 1);
}

/// Where a chunk is stored. All zero: it is not mapped.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Entry {
    /// From the lowest bit: address in sectors of 512 bytes 40, sectors 6, codec 3, flags 3,
    /// generation of the segment 12.
    pub(crate) place: u64,
    /// CRC32C of the stored bytes, seeded with lineage and chunk.
    pub crc: u32,
}

impl Entry {
    /// Bytes of an entry in a leaf.
    pub const BYTES: usize = 12;
    /// Not mapped: reads as zeroes.
    pub const UNMAPPED: Self = Self { place: 0, crc: 0 };
    /// The medium has lost the data: a read fails, until the chunk is written or trimmed.
    pub const LOST: Self = Self {
        place: 1 << 49,
        crc: 0,
    };

    /// The chunk is as it was when an earlier layer of a volume ended: that of volume `data` that
    /// ended with `epoch`, or the one that has taken over what that held.
    pub fn inherited(data: Lineage, epoch: u32) -> Self {
        Self {
            place: INHERITED | u64::from(data.0),
            crc: epoch,
        }
    }

    /// Data of so many `sectors` at `address`, in a segment of this generation.
    pub fn stored(address: u64, sectors: u32, generation: u32, crc: u32) -> Self {
        let place = address & ((1 << 40) - 1)
            | u64::from(sectors & 63) << 40
            | u64::from(generation & 0xfff) << 52;
        Self { place, crc }
    }

    /// The same, compressed with the codec of this number.
    #[must_use]
    pub fn with_codec(self, codec: u8) -> Self {
        let place = self.place | u64::from(codec & 7) << 46;
        Self { place, ..self }
    }

    /// The first sector.
    pub fn address(self) -> u64 {
        self.place & ((1 << 40) - 1)
    }

    /// Sectors that are stored; none if there are no data.
    pub fn sectors(self) -> u32 {
        (self.place >> 40 & 63) as u32
    }

    /// How the data are compressed; 0 when they are not.
    pub fn codec(self) -> u8 {
        (self.place >> 46 & 7) as u8
    }

    /// What it is charged for, in sectors: what is compressed has more records for its data.
    pub(crate) fn cost(self) -> u64 {
        u64::from(self.sectors()) + u64::from(self.codec() != 0)
    }

    /// The sector behind the data.
    pub(crate) fn end(self) -> u64 {
        self.address() + u64::from(self.sectors())
    }

    /// The lower bits of the generation of the segment that it lies in.
    pub fn generation(self) -> u16 {
        (self.place >> 52) as u16
    }

    /// Whether there are data.
    pub fn is_stored(self) -> bool {
        self.sectors() > 0
    }

    /// Whether the medium has lost the data.
    pub fn is_lost(self) -> bool {
        self.place >> 49 & 1 == 1
    }

    /// Whether an earlier layer has the chunk.
    pub fn is_inherited(self) -> bool {
        self.origin().is_some()
    }

    /// Whose layer has the chunk, and the epoch that ended it; a later one may have taken it over.
    pub fn origin(self) -> Option<(Lineage, u32)> {
        let inherited = self.place >> 40 == INHERITED >> 40;
        inherited.then(|| (Lineage(self.address() as u32), self.crc))
    }

    /// As it is in a leaf.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.place.to_le_bytes());
        bytes[8..].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    /// Of the bytes in a leaf. Whether they make sense is for [`is_valid`](Self::is_valid).
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let (mut place, mut crc) = ([0; 8], [0; 4]);
        place.copy_from_slice(&bytes[..8]);
        crc.copy_from_slice(&bytes[8..]);
        Self {
            place: u64::from_le_bytes(place),
            crc: u32::from_le_bytes(crc),
        }
    }

    /// Whether it is one that this version writes: not mapped, lost, inherited, or data.
    pub fn is_valid(self) -> bool {
        let flags = self.place >> 49 & 7;
        let known = self.address() <= u64::from(Lineage::LAST.0) && self.address() > 0;
        self == Self::UNMAPPED
            || self == Self::LOST
            || self.is_inherited() && known
            || self.is_stored() && flags == 0 && self.codec() <= MOST_CODEC
    }
}

/// Volume and chunk in one number.
pub(crate) fn key(lineage: Lineage, chunk: u64) -> u64 {
    debug_assert!(chunk >> CHUNK_BITS == 0 && lineage <= Lineage::LAST);
    u64::from(lineage.0) << CHUNK_BITS | chunk
}
