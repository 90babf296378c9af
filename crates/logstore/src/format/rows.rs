//! Rows of the tables that pages hold: where pages are, what segments hold, which volumes there
//! are.

use super::fields::{get_bytes, get_u32, get_u64, is_zero, put};
use super::page::HEAD;
use super::{BLOCK, Block, FormatError};
use crate::chunk::Form;
use crate::entry::{CHUNK_BITS, Lineage};

/// A row of a page.
pub trait Row: Sized {
    /// Bytes of a row.
    const BYTES: usize;
    /// Rows of a page.
    const PER_PAGE: usize = (BLOCK - HEAD) / Self::BYTES;

    /// Writes the row over zeroes.
    fn encode(&self, bytes: &mut [u8]);
    /// Reads a row of so many bytes.
    fn decode(bytes: &[u8]) -> Result<Self, FormatError>;

    /// Writes a row of a page.
    fn put(&self, page: &mut Block, place: usize) {
        let at = HEAD + place * Self::BYTES;
        self.encode(&mut page[at..at + Self::BYTES]);
    }

    /// Reads a row of a page.
    fn get(page: &Block, place: usize) -> Result<Self, FormatError> {
        let at = HEAD + place * Self::BYTES;
        Self::decode(&page[at..at + Self::BYTES])
    }
}

/// Where a page is: two places in blocks of the device, 0 for none, and its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PageRef {
    /// Where it is.
    pub block: u64,
    /// Where its second copy is, in another segment; leaves have none.
    pub copy: u64,
    /// The checksum of the page.
    pub crc: u32,
    /// The epoch in which the page was made.
    pub birth: u32,
}

impl PageRef {
    /// Bits of a place.
    pub const PLACE_BITS: u32 = 36;

    /// Whether there is such a page.
    pub fn is_used(&self) -> bool {
        self.block != 0
    }
}

impl Row for PageRef {
    const BYTES: usize = 16;

    fn encode(&self, bytes: &mut [u8]) {
        let packed = u128::from(self.block)
            | u128::from(self.copy) << 36
            | u128::from(self.crc) << 72
            | u128::from(self.birth & 0xff_ffff) << 104;
        put(bytes, 0, packed.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let packed = u128::from_le_bytes(get_bytes(bytes, 0));
        let place = (1 << Self::PLACE_BITS) - 1;
        let page = Self {
            block: packed as u64 & place,
            copy: (packed >> 36) as u64 & place,
            crc: (packed >> 72) as u32,
            birth: (packed >> 104) as u32,
        };
        match page.is_used() || packed == 0 {
            true => Ok(page),
            false => Err(FormatError::Field("place of a page")),
        }
    }
}

/// A segment as it is at a cut.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SegmentRow {
    /// How often it was given to a lane.
    pub generation: u32,
    /// It holds data.
    pub used: bool,
    /// Its last use ended in a crash: it is to be emptied first.
    pub suspect: bool,
    /// Sectors of data that leaves refer to.
    pub live: u32,
    /// Blocks with batches.
    pub end: u32,
    /// The sequence at which it was closed.
    pub age: u64,
}

impl Row for SegmentRow {
    const BYTES: usize = 32;

    fn encode(&self, bytes: &mut [u8]) {
        put(bytes, 0, self.generation.to_le_bytes());
        bytes[4] = u8::from(self.used) | u8::from(self.suspect) << 1;
        put(bytes, 8, self.live.to_le_bytes());
        put(bytes, 12, self.end.to_le_bytes());
        put(bytes, 16, self.age.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        if bytes[4] > 3 || !is_zero(&bytes[5..8]) {
            return Err(FormatError::Field("state of a segment"));
        }
        if !is_zero(&bytes[24..Self::BYTES]) {
            return Err(FormatError::Field("members of a segment"));
        }
        Ok(Self {
            generation: get_u32(bytes, 0),
            used: bytes[4] & 1 == 1,
            suspect: bytes[4] & 2 == 2,
            live: get_u32(bytes, 8),
            end: get_u32(bytes, 12),
            age: get_u64(bytes, 16),
        })
    }
}

/// Bytes of a volume that the store keeps and does not look at.
pub const LABEL: usize = 176;

/// A volume as it is at a cut.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeRow {
    /// Its number.
    pub lineage: Lineage,
    /// It is being deleted.
    pub deleting: bool,
    /// The present epoch; of a snapshot the one that it ended.
    pub epoch: u32,
    /// Whose data it holds: its own number, or for a snapshot that of its volume.
    pub data: Lineage,
    /// The layer below, which has what this one inherits: the snapshot before it, or the one that
    /// it is a clone of.
    pub parent: Option<Lineage>,
    /// Its size, in chunks.
    pub chunks: u64,
    /// The highest inner page of its map; 0 when nothing is mapped.
    pub root: u32,
    /// Chunks that are stored in this layer.
    pub mapped: u64,
    /// Chunks that layers below have.
    pub shared: u64,
    /// When it was made, as whoever places the store counts; 0 if that is not known.
    pub made: u64,
    /// MiB that are kept for it.
    pub reserved: u32,
    /// Sectors that these take.
    pub sectors: u64,
    /// How many of them are compressed.
    pub packed: u64,
    /// How it keeps its chunks.
    pub form: Form,
    /// Name, identity and tenant, as whoever places the store wants them.
    pub label: [u8; LABEL],
}

impl Row for VolumeRow {
    const BYTES: usize = 256;

    fn encode(&self, bytes: &mut [u8]) {
        put(bytes, 0, self.lineage.0.to_le_bytes());
        (bytes[4], bytes[5]) = (1, u8::from(self.deleting));
        bytes[6] = self.form.chunk_shift;
        bytes[7] = self.form.codec;
        put(bytes, 8, self.epoch.to_le_bytes());
        put(bytes, 12, self.reserved.to_le_bytes());
        put(bytes, 16, self.chunks.to_le_bytes());
        put(bytes, 24, u64::from(self.root).to_le_bytes());
        put(bytes, 32, self.mapped.to_le_bytes());
        let data = if self.data == self.lineage {
            0
        } else {
            self.data.0
        };
        put(bytes, 40, self.shared.to_le_bytes());
        put(bytes, 48, data.to_le_bytes());
        put(
            bytes,
            52,
            self.parent.map_or(0, |parent| parent.0).to_le_bytes(),
        );
        put(bytes, 56, self.made.to_le_bytes());
        // Where nothing is compressed these follow from the number of chunks.
        if self.packed > 0 {
            put(bytes, 64, self.sectors.to_le_bytes());
            put(bytes, 72, self.packed.to_le_bytes());
        }
        put(bytes, 80, self.label);
    }

    fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let form = Form {
            chunk_shift: bytes[6],
            codec: bytes[7],
        };
        if bytes[4] != 1 || bytes[5] > 1 || !form.is_valid() {
            return Err(FormatError::Field("kind of volume"));
        }
        let packed = get_u64(bytes, 72);
        if packed == 0 && !is_zero(&bytes[64..72]) {
            return Err(FormatError::Field("origin of a volume"));
        }
        let chunks = get_u64(bytes, 16);
        let root = u32::try_from(get_u64(bytes, 24)).ok();
        let lineage = Lineage(get_u32(bytes, 0));
        let (data, parent) = (Lineage(get_u32(bytes, 48)), Lineage(get_u32(bytes, 52)));
        if lineage > Lineage::LAST || lineage.0 == 0 {
            return Err(FormatError::Field("volume"));
        }
        if data.max(parent) > Lineage::LAST || data == lineage || parent == lineage {
            return Err(FormatError::Field("origin of a volume"));
        }
        if chunks > 1 << CHUNK_BITS {
            return Err(FormatError::Field("size of a volume"));
        }
        let mapped = get_u64(bytes, 32);
        let sectors = match packed {
            0 => mapped.saturating_mul(form.chunk_sectors().into()),
            _ => get_u64(bytes, 64),
        };
        Ok(Self {
            lineage,
            deleting: bytes[5] == 1,
            epoch: get_u32(bytes, 8),
            data: if data.0 == 0 { lineage } else { data },
            parent: (parent.0 != 0).then_some(parent),
            chunks,
            root: root.ok_or(FormatError::Field("page number"))?,
            mapped,
            shared: get_u64(bytes, 40),
            made: get_u64(bytes, 56),
            reserved: get_u32(bytes, 12),
            sectors,
            packed,
            form,
            label: get_bytes(bytes, 80),
        })
    }
}
