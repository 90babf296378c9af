//! The header of a batch: what makes its writes atomic, and the journal of the store.
//!
//! ```text
//! 0    checksum, keyed, over all that follows up to the last record
//! 8    magic, version, lane, records        16  sequence           24  incarnation
//! 28   segment, generation of the segment   36  blocks             38  blocks of a row, 0
//! 40   checksum of the batch before in its lane    48  watermark   56  block in the segment
//! 64   zero
//! 256  records of 32 bytes, at most 120
//! ```

use alloc::vec::Vec;

use super::fields::{get_u16, get_u32, get_u64, is_zero, put};
use super::{BLOCK, BLOCK_SECTORS, Block, FormatError};
use crate::chunk::{MOST_CODEC, begin};
use crate::entry::{CHUNK_BITS, Entry, Lineage};
use crate::keyed::Secret;

/// Records of a batch at most.
pub const MOST_BATCH_RECORDS: usize = 120;
/// Blocks of payload of a batch at most, where writes need not be of whole rows.
pub const MOST_BATCH_BLOCKS: u32 = 64;
/// Blocks of a row at most.
pub const MOST_ROW: u32 = 32;

const MAGIC: u32 = u32::from_le_bytes(*b"FYLB");
const VERSION: u8 = 1;
const RECORDS_AT: usize = 256;

/// Whose writes share segments and are answered and recovered in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Volumes whose tenant is latency-sensitive.
    Latency,
    /// Other volumes.
    User,
    /// What garbage collection moves.
    Collector,
}

impl Lane {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Latency, Self::User, Self::Collector];

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}

/// What a record says of its chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RecordKind {
    /// Written by a host.
    Write = 1,
    /// Moved by garbage collection.
    Move = 2,
    /// A range of chunks is not mapped any more.
    Trim = 3,
    /// The medium has lost the chunk.
    Lost = 4,
    /// A move that was superseded before it was issued: says nothing.
    Void = 5,
}

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// What it says.
    pub kind: RecordKind,
    /// Whose chunk.
    pub lineage: Lineage,
    /// The epoch in which the data were written; a move keeps it.
    pub epoch: u32,
    /// The chunk, or the first of a range.
    pub chunk: u64,
    /// Chunks of a range; 1 for all others.
    pub count: u64,
    /// Where the data are, in sectors; 0 without data.
    pub address: u64,
    /// Sectors of data.
    pub sectors: u32,
    /// How the data are compressed; 0 when they are not.
    pub codec: u8,
    /// The checksum of the data.
    pub crc: u32,
}

impl Record {
    /// Bytes of a record.
    pub const BYTES: usize = 32;

    /// The entry of its data, in a segment of this generation.
    pub(crate) fn entry(&self, generation: u32) -> Entry {
        Entry::stored(self.address, self.sectors, generation, self.crc).with_codec(self.codec)
    }

    /// As it is in a header or a footer.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        (bytes[0], bytes[1]) = (self.kind as u8, self.codec);
        put(&mut bytes, 2, (self.sectors as u16).to_le_bytes());
        put(&mut bytes, 4, self.lineage.0.to_le_bytes());
        put(&mut bytes, 8, self.epoch.to_le_bytes());
        put(&mut bytes, 12, self.crc.to_le_bytes());
        put(&mut bytes, 16, self.chunk.to_le_bytes());
        let last = match self.kind {
            RecordKind::Trim => self.count,
            _ => self.address,
        };
        put(&mut bytes, 24, last.to_le_bytes());
        bytes
    }

    /// Of the bytes in a header or a footer.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self, FormatError> {
        let kind = match bytes[0] {
            1 => RecordKind::Write,
            2 => RecordKind::Move,
            3 => RecordKind::Trim,
            4 => RecordKind::Lost,
            5 => RecordKind::Void,
            _ => return Err(FormatError::Field("kind of record")),
        };
        let last = get_u64(bytes, 24);
        let (count, address) = match kind {
            RecordKind::Trim => (last, 0),
            _ => (1, last),
        };
        let record = Self {
            kind,
            lineage: Lineage(get_u32(bytes, 4)),
            epoch: get_u32(bytes, 8),
            chunk: get_u64(bytes, 16),
            count,
            address,
            sectors: u32::from(get_u16(bytes, 2)),
            codec: bytes[1],
            crc: get_u32(bytes, 12),
        };
        record.check()?;
        Ok(record)
    }

    fn check(&self) -> Result<(), FormatError> {
        let end = self.chunk.checked_add(self.count);
        let in_range = end.is_some_and(|end| end <= 1 << CHUNK_BITS) && self.count > 0;
        let has_data = matches!(
            self.kind,
            RecordKind::Write | RecordKind::Move | RecordKind::Void
        );
        let place = match has_data {
            true => (1..64).contains(&self.sectors) && self.address >> 40 == 0,
            false => self.sectors == 0 && self.address == 0,
        };
        let codec = self.codec == 0 || has_data && self.codec <= MOST_CODEC;
        if self.lineage > Lineage::LAST {
            Err(FormatError::Field("volume"))
        } else if !in_range {
            Err(FormatError::Field("chunk"))
        } else if !place {
            Err(FormatError::Field("address"))
        } else if !codec {
            Err(FormatError::Field("codec"))
        } else {
            Ok(())
        }
    }
}

/// Where a header has to say it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The segment.
    pub segment: u32,
    /// Which use of it.
    pub generation: u32,
    /// The block in it.
    pub block: u32,
}

/// What a header says beside its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The lane.
    pub lane: Lane,
    /// Which opening of the pool wrote it.
    pub incarnation: u32,
    /// Its order among all batches of the incarnation, whatever their lanes.
    pub sequence: u64,
    /// Where it is.
    pub place: Place,
    /// Blocks with the header, whole rows.
    pub blocks: u32,
    /// Blocks of a row.
    pub row: u32,
    /// The checksum of the batch before in the lane; 0 for the first of an incarnation.
    pub before: u64,
    /// The sequence up to which the lane was known to be durable.
    pub watermark: u64,
}

impl Header {
    /// Writes the header and its records; gives its checksum.
    pub fn encode(&self, secret: Secret, records: &[Record], bytes: &mut Block) -> u64 {
        bytes.fill(0);
        put(bytes, 8, MAGIC.to_le_bytes());
        bytes[12] = VERSION;
        bytes[13] = self.lane as u8;
        put(bytes, 14, (records.len() as u16).to_le_bytes());
        put(bytes, 16, self.sequence.to_le_bytes());
        put(bytes, 24, self.incarnation.to_le_bytes());
        put(bytes, 28, self.place.segment.to_le_bytes());
        put(bytes, 32, self.place.generation.to_le_bytes());
        put(bytes, 36, (self.blocks as u16).to_le_bytes());
        bytes[38] = self.row as u8;
        put(bytes, 40, self.before.to_le_bytes());
        put(bytes, 48, self.watermark.to_le_bytes());
        put(bytes, 56, self.place.block.to_le_bytes());
        for (record, at) in records.iter().zip((RECORDS_AT..).step_by(Record::BYTES)) {
            put(bytes, at, record.encode());
        }
        let checksum = secret.checksum(&bytes[8..end_of(records.len())]);
        put(bytes, 0, checksum.to_le_bytes());
        checksum
    }

    /// Reads a header that has to be at `place`; `first` is the first sector of its segment. Gives
    /// its checksum, and adds its records.
    pub fn decode(
        secret: Secret,
        bytes: &Block,
        place: Place,
        first: u64,
        records: &mut Vec<Record>,
    ) -> Result<(Self, u64), FormatError> {
        if get_u32(bytes, 8) != MAGIC {
            return Err(FormatError::Absent);
        }
        let count = usize::from(get_u16(bytes, 14));
        if count > MOST_BATCH_RECORDS {
            return Err(FormatError::Checksum);
        }
        let checksum = secret.checksum(&bytes[8..end_of(count)]);
        if checksum != get_u64(bytes, 0) {
            return Err(FormatError::Checksum);
        }
        if bytes[12] != VERSION {
            return Err(FormatError::Newer(u32::from(bytes[12])));
        }
        let header = Self {
            lane: Lane::from_number(bytes[13]).ok_or(FormatError::Field("lane"))?,
            incarnation: get_u32(bytes, 24),
            sequence: get_u64(bytes, 16),
            place: Place {
                segment: get_u32(bytes, 28),
                generation: get_u32(bytes, 32),
                block: get_u32(bytes, 56),
            },
            blocks: u32::from(get_u16(bytes, 36)),
            row: u32::from(bytes[38]),
            before: get_u64(bytes, 40),
            watermark: get_u64(bytes, 48),
        };
        if header.place != place {
            return Err(FormatError::Elsewhere);
        }
        let rest = is_zero(&bytes[60..RECORDS_AT]) && is_zero(&bytes[end_of(count)..]);
        if !rest || !(1..=MOST_ROW).contains(&header.row) || bytes[39] != 0 {
            return Err(FormatError::Field("shape"));
        }
        let from = records.len();
        for at in (RECORDS_AT..end_of(count)).step_by(Record::BYTES) {
            records.push(Record::decode(&super::fields::get_bytes(bytes, at))?);
        }
        let length = (header.blocks, header.row);
        check_payload(first, place.block, length, &records[from..])?;
        Ok((header, checksum))
    }
}

/// The data of the records of a batch lie one after another behind its header, and fill it but for
/// a part of its last row: those that are compressed without a gap, others each from a whole block
/// on. `first` is the first sector of the segment.
pub(crate) fn check_payload(
    first: u64,
    block: u32,
    (blocks, row): (u32, u32),
    records: &[Record],
) -> Result<(), FormatError> {
    let mut next = first + (u64::from(block) + 1) * BLOCK_SECTORS;
    let end = next + u64::from(blocks.saturating_sub(1)) * BLOCK_SECTORS;
    for record in records.iter().filter(|record| record.sectors > 0) {
        let begin = begin(next, record.codec);
        if record.address != begin {
            return Err(FormatError::Field("address"));
        }
        next = begin + u64::from(record.sectors);
    }
    let rest = end.checked_sub(next);
    let fits = rest.is_some_and(|rest| rest < u64::from(row) * BLOCK_SECTORS);
    let whole = blocks > 0 && blocks.is_multiple_of(row);
    let most = MOST_BATCH_BLOCKS.max(MOST_BATCH_RECORDS as u32) + 1;
    match fits && whole && blocks <= most {
        true => Ok(()),
        false => Err(FormatError::Field("length")),
    }
}

/// Where the last of so many records ends.
fn end_of(records: usize) -> usize {
    (RECORDS_AT + records * Record::BYTES).min(BLOCK)
}
