//! The footer of a closed segment: all batches and records of it, so that neither recovery nor
//! garbage collection has to read headers one after another.
//!
//! The last block of a segment is the trailer; the blocks before it hold items of 32 bytes: a
//! batch, its records, the next batch.
//!
//! ```text
//! 0   checksum, keyed, over 8..64     8   magic, version, lane     16  segment, generation
//! 24  incarnation, items              32  watermark                40  checksum of the items
//! 48  checksum of the batch before the first
//! ```

use alloc::vec;
use alloc::vec::Vec;

use super::batch::{Lane, Place, Record};
use super::fields::{get_bytes, get_u16, get_u32, get_u64, is_zero, put};
use super::{BLOCK, Block, FormatError, block_sum};
use crate::keyed::Secret;

const MAGIC: u32 = u32::from_le_bytes(*b"FYLF");
const VERSION: u8 = 1;
const BATCH: u8 = 0x80;
/// Items in a block.
const PER_BLOCK: usize = BLOCK / Record::BYTES;

/// Blocks of a footer of so many batches and records.
pub fn footer_blocks(items: usize) -> u32 {
    1 + items.div_ceil(PER_BLOCK) as u32
}

/// One batch of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Its first block in the segment.
    pub block: u32,
    /// Blocks with the header.
    pub blocks: u32,
    /// Records that follow.
    pub records: u32,
    /// Its sequence.
    pub sequence: u64,
    /// Its checksum.
    pub checksum: u64,
}

/// What a footer lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// A batch begins.
    Batch(Batch),
    /// A record of the batch before.
    Record(Record),
}

/// What the trailer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trailer {
    /// The lane.
    pub lane: Lane,
    /// Which opening of the pool wrote it.
    pub incarnation: u32,
    /// The sequence up to which the lane was known to be durable.
    pub watermark: u64,
    /// The checksum of the batch before the first in its lane.
    pub before: u64,
    /// Batches and records.
    pub items: u32,
    /// The checksum of the blocks with the items.
    sum: u32,
}

impl Item {
    /// As it is in a footer.
    pub fn encode(&self) -> [u8; Record::BYTES] {
        let batch = match self {
            Self::Record(record) => return record.encode(),
            Self::Batch(batch) => batch,
        };
        let mut bytes = [0; Record::BYTES];
        bytes[0] = BATCH;
        put(&mut bytes, 2, (batch.records as u16).to_le_bytes());
        put(&mut bytes, 4, batch.block.to_le_bytes());
        put(&mut bytes, 8, batch.sequence.to_le_bytes());
        put(&mut bytes, 16, batch.checksum.to_le_bytes());
        put(&mut bytes, 24, (batch.blocks as u16).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; Record::BYTES]) -> Result<Self, FormatError> {
        if bytes[0] != BATCH {
            return Record::decode(bytes).map(Self::Record);
        }
        if bytes[1] != 0 || !is_zero(&bytes[26..]) {
            return Err(FormatError::Field("batch"));
        }
        Ok(Self::Batch(Batch {
            block: get_u32(bytes, 4),
            blocks: u32::from(get_u16(bytes, 24)),
            records: u32::from(get_u16(bytes, 2)),
            sequence: get_u64(bytes, 8),
            checksum: get_u64(bytes, 16),
        }))
    }
}

impl Trailer {
    /// A trailer; what it says of the items is filled in when it is written.
    pub fn new(lane: Lane, incarnation: u32, watermark: u64, before: u64) -> Self {
        Self {
            lane,
            incarnation,
            watermark,
            before,
            items: 0,
            sum: 0,
        }
    }

    /// The blocks of a footer: encoded items, then the trailer. `place` is that of the trailer.
    pub fn encode(&self, secret: Secret, place: Place, items: &[u8]) -> Vec<u8> {
        let count = items.len() / Record::BYTES;
        let body = (footer_blocks(count) as usize - 1) * BLOCK;
        let mut bytes = vec![0; body + BLOCK];
        bytes[..items.len()].copy_from_slice(items);
        let sum = block_sum(&bytes[..body]);
        let trailer = &mut bytes[body..];
        put(trailer, 8, MAGIC.to_le_bytes());
        trailer[12] = VERSION;
        trailer[13] = self.lane as u8;
        put(trailer, 16, place.segment.to_le_bytes());
        put(trailer, 20, place.generation.to_le_bytes());
        put(trailer, 24, self.incarnation.to_le_bytes());
        put(trailer, 28, (count as u32).to_le_bytes());
        put(trailer, 32, self.watermark.to_le_bytes());
        put(trailer, 40, sum.to_le_bytes());
        put(trailer, 48, self.before.to_le_bytes());
        let checksum = secret.checksum(&trailer[8..64]);
        put(trailer, 0, checksum.to_le_bytes());
        bytes
    }

    /// Reads the trailer, which has to be at `place`.
    pub fn decode(secret: Secret, bytes: &Block, place: Place) -> Result<Self, FormatError> {
        if get_u32(bytes, 8) != MAGIC {
            return Err(FormatError::Absent);
        }
        if secret.checksum(&bytes[8..64]) != get_u64(bytes, 0) {
            return Err(FormatError::Checksum);
        }
        if bytes[12] != VERSION {
            return Err(FormatError::Newer(u32::from(bytes[12])));
        }
        if get_u32(bytes, 16) != place.segment || get_u32(bytes, 20) != place.generation {
            return Err(FormatError::Elsewhere);
        }
        let items = get_u32(bytes, 28);
        if footer_blocks(items as usize) > place.block + 1 {
            return Err(FormatError::Field("length"));
        }
        if bytes[14..16] != [0; 2] || !is_zero(&bytes[44..48]) || !is_zero(&bytes[56..]) {
            return Err(FormatError::Field("padding"));
        }
        Ok(Self {
            lane: Lane::from_number(bytes[13]).ok_or(FormatError::Field("lane"))?,
            incarnation: get_u32(bytes, 24),
            watermark: get_u64(bytes, 32),
            before: get_u64(bytes, 48),
            items,
            sum: get_u32(bytes, 40),
        })
    }

    /// Blocks with items, before the trailer.
    pub fn body_blocks(&self) -> u32 {
        footer_blocks(self.items as usize) - 1
    }

    /// Reads the items of the blocks before the trailer.
    pub fn items(&self, body: &[u8]) -> Result<Vec<Item>, FormatError> {
        if body.len() != self.body_blocks() as usize * BLOCK {
            return Err(FormatError::Field("length"));
        }
        if block_sum(body) != self.sum {
            return Err(FormatError::Checksum);
        }
        let (used, rest) = body.split_at(self.items as usize * Record::BYTES);
        if !is_zero(rest) {
            return Err(FormatError::Field("padding"));
        }
        let items = used.chunks_exact(Record::BYTES);
        let items: Vec<Item> = items
            .map(|bytes| Item::decode(&get_bytes(bytes, 0)))
            .collect::<Result<_, _>>()?;
        let mut left = 0;
        for item in &items {
            left = match (item, left) {
                (Item::Batch(batch), 0) => batch.records,
                (Item::Record(_), 1..) => left - 1,
                _ => return Err(FormatError::Field("number of records")),
            };
        }
        match left {
            0 => Ok(items),
            _ => Err(FormatError::Field("number of records")),
        }
    }
}
