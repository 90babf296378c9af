//! Lists what a segment holds: by its footer, or header by header; and looks for headers behind one
//! that is not there.

use alloc::vec::Vec;
use core::ops::Range;

use super::io::IoError;
use super::segments::Geometry;
use crate::format::batch::{Header, Lane, Place, Record, check_payload};
use crate::format::footer::{Item, Trailer};
use crate::format::{BLOCK, BLOCK_SECTORS, Block};
use crate::keyed::Secret;

/// Blocks that are looked through in one read.
const LOOK: u32 = 32;

/// A batch that was found.
#[derive(Clone, Debug)]
pub(super) struct FoundBatch {
    pub lane: Lane,
    pub incarnation: u32,
    pub segment: u32,
    pub block: u32,
    pub blocks: u32,
    pub sequence: u64,
    pub checksum: u64,
    /// The checksum of the batch before it in its lane.
    pub before: u64,
    pub records: Vec<Record>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Trailer,
    Items(Trailer),
    Header(u32),
    /// Looks for a header in so many blocks from `block` on, and in others up to `until`.
    Beyond {
        block: u32,
        until: u32,
        count: u32,
    },
    End,
}

/// A segment being listed.
#[derive(Debug)]
pub(super) struct Scan {
    pub segment: u32,
    generation: u32,
    /// The first block that is of interest, and where to stop.
    from: u32,
    end: u32,
    /// Footers and headers of other incarnations do not count.
    incarnation: Option<u32>,
    first_block: u64,
    blocks: u32,
    row: u32,
    /// Blocks of a batch at most: so far behind a header that cannot be read is the next one.
    reach: u32,
    stage: Stage,
    pub batches: Vec<FoundBatch>,
    /// The footer was good: nothing is missing.
    pub by_footer: bool,
    /// The highest watermark of each lane, of batches that are listed or lie beyond.
    pub known: [u64; 3],
}

impl Scan {
    /// All batches of a segment.
    pub fn new(segment: u32, generation: u32, geometry: Geometry) -> Self {
        let blocks = geometry.segment_blocks;
        Self {
            segment,
            generation,
            from: 0,
            end: blocks,
            incarnation: None,
            first_block: geometry.block(segment),
            blocks,
            row: geometry.row,
            reach: geometry.most_batch() + 1,
            stage: Stage::Trailer,
            batches: Vec::new(),
            by_footer: false,
            known: [0; 3],
        }
    }

    /// Only those of this incarnation, from a block on up to another.
    pub fn within(mut self, incarnation: u32, from: u32, end: Option<u32>) -> Self {
        self.incarnation = Some(incarnation);
        self.from = from;
        self.end = end.unwrap_or(self.blocks);
        self
    }

    /// Only those before a block.
    pub fn up_to(mut self, end: u32) -> Self {
        self.end = end;
        self
    }

    /// What to read next: the first block of the device, and how many. Nothing at the end.
    pub fn next(&self) -> Option<(u64, u32)> {
        let (block, count) = match &self.stage {
            Stage::Trailer => (self.blocks - 1, 1),
            Stage::Items(trailer) => {
                let count = trailer.body_blocks();
                (self.blocks - 1 - count, count)
            }
            Stage::Header(block) => (*block, 1),
            Stage::Beyond { block, count, .. } => (*block, *count),
            Stage::End => return None,
        };
        Some((self.first_block + u64::from(block), count))
    }

    /// Whether bytes are what is to be read next. Where the list ends there is no such thing.
    pub fn is_good(&self, secret: Secret, bytes: &[u8]) -> bool {
        match &self.stage {
            Stage::Trailer => self.trailer(secret, bytes).is_some(),
            Stage::Items(trailer) => self.items(trailer, bytes).is_some(),
            Stage::Header(block) => self
                .header(secret, *block, bytes, &mut Vec::new())
                .is_some(),
            Stage::Beyond { .. } | Stage::End => true,
        }
    }

    /// Takes what was read.
    pub fn take(&mut self, secret: Secret, result: Result<&[u8], IoError>) {
        let stage = core::mem::replace(&mut self.stage, Stage::End);
        match stage {
            Stage::Trailer => self.take_trailer(secret, result),
            Stage::Items(trailer) => {
                let found = result.ok().and_then(|body| self.items(&trailer, body));
                match found {
                    Some(found) => self.take_items(found),
                    None => self.stage = self.header_at(self.from),
                }
            }
            Stage::Header(block) => {
                // What is no header ends the list.
                let _ = self.take_header(secret, block, result);
            }
            Stage::Beyond {
                block,
                until,
                count,
            } => self.take_beyond(secret, block..until, count, result),
            Stage::End => {}
        }
    }

    /// Where the log ends header by header it may go on: the medium may have changed a header. What
    /// lies beyond is not listed, since it cannot be replayed; but it says how far the lane was
    /// durable.
    pub fn look_beyond(&mut self) {
        if !self.by_footer {
            let block = self.end() + 1;
            self.stage = self.beyond_at(block, block + self.reach, LOOK);
        }
    }

    /// Whether anything shows that the segment was written to.
    pub fn is_used(&self) -> bool {
        self.by_footer || self.from > 0 || !self.batches.is_empty()
    }

    /// Where the last batch that was found ends.
    pub fn end(&self) -> u32 {
        let last = self.batches.last();
        last.map_or(self.from, |batch| batch.block + batch.blocks)
    }

    fn header_at(&self, block: u32) -> Stage {
        match block < self.end.min(self.blocks - 1) {
            true => Stage::Header(block),
            false => Stage::End,
        }
    }

    fn beyond_at(&self, block: u32, until: u32, count: u32) -> Stage {
        let until = until.min(self.blocks - 1);
        match block < until {
            true => Stage::Beyond {
                block,
                until,
                count: count.min(until - block),
            },
            false => Stage::End,
        }
    }

    fn know(&mut self, lane: Lane, watermark: u64) {
        let known = &mut self.known[lane as usize];
        *known = watermark.max(*known);
    }

    fn take_beyond(
        &mut self,
        secret: Secret,
        within: Range<u32>,
        count: u32,
        result: Result<&[u8], IoError>,
    ) {
        let block = within.start;
        let Ok(bytes) = result else {
            // The others can perhaps be read.
            let next = if count > 1 { block } else { block + 1 };
            let count = if count > 1 { 1 } else { LOOK };
            self.stage = self.beyond_at(next, within.end, count);
            return;
        };
        let blocks = (block..).zip(bytes.chunks(BLOCK));
        let mut headers = blocks.filter_map(|(block, bytes)| {
            let found = self.header(secret, block, bytes, &mut Vec::new());
            found.map(|(header, _)| (block, header))
        });
        self.stage = match headers.next() {
            Some((block, header)) => {
                drop(headers);
                self.know(header.lane, header.watermark);
                // Mostly the next one follows.
                let next = block + header.blocks;
                self.beyond_at(next, next + self.reach + 1, 1)
            }
            None => self.beyond_at(block + count, within.end, LOOK),
        };
    }

    fn place(&self, block: u32) -> Place {
        Place {
            segment: self.segment,
            generation: self.generation,
            block,
        }
    }

    /// The end of a footer, if these bytes are that of this segment.
    fn trailer(&self, secret: Secret, bytes: &[u8]) -> Option<Trailer> {
        let bytes = <&Block>::try_from(bytes).ok()?;
        let trailer = Trailer::decode(secret, bytes, self.place(self.blocks - 1)).ok()?;
        let known = self.incarnation;
        let counts = known.is_none_or(|incarnation| incarnation == trailer.incarnation);
        counts.then_some(trailer)
    }

    /// The header at a block, if these bytes are one that counts, and its checksum.
    fn header(
        &self,
        secret: Secret,
        block: u32,
        bytes: &[u8],
        records: &mut Vec<Record>,
    ) -> Option<(Header, u64)> {
        let bytes = <&Block>::try_from(bytes).ok()?;
        let first = self.first_block * BLOCK_SECTORS;
        let decoded = Header::decode(secret, bytes, self.place(block), first, records);
        let (header, checksum) = decoded.ok()?;
        let known = self.incarnation;
        let counts = known.is_none_or(|known| known == header.incarnation);
        let counts = counts && header.row == self.row;
        (counts && block + header.blocks <= self.blocks).then_some((header, checksum))
    }

    fn take_trailer(&mut self, secret: Secret, result: Result<&[u8], IoError>) {
        let trailer = result.ok().and_then(|bytes| self.trailer(secret, bytes));
        if let Some(trailer) = &trailer {
            self.know(trailer.lane, trailer.watermark);
        }
        self.stage = match trailer {
            Some(trailer) if trailer.items == 0 => {
                self.by_footer = true;
                Stage::End
            }
            Some(trailer) => Stage::Items(trailer),
            None => self.header_at(self.from),
        };
    }

    /// The batches that a footer lists, if there can be such: they fill the segment from its first
    /// block on, each with its data.
    fn items(&self, trailer: &Trailer, body: &[u8]) -> Option<Vec<FoundBatch>> {
        let found = self.batches_of(trailer, &trailer.items(body).ok()?);
        let (first, end) = (self.first_block * BLOCK_SECTORS, self.blocks - 1);
        let mut next = 0;
        for batch in &found {
            if batch.block != next || batch.blocks > end - next {
                return None;
            }
            let length = (batch.blocks, self.row);
            check_payload(first, batch.block, length, &batch.records).ok()?;
            next += batch.blocks;
        }
        Some(found)
    }

    fn batches_of(&self, trailer: &Trailer, items: &[Item]) -> Vec<FoundBatch> {
        let (mut found, mut before) = (Vec::<FoundBatch>::new(), trailer.before);
        for item in items {
            match item {
                Item::Batch(batch) => found.push(FoundBatch {
                    lane: trailer.lane,
                    incarnation: trailer.incarnation,
                    segment: self.segment,
                    block: batch.block,
                    blocks: batch.blocks,
                    sequence: batch.sequence,
                    checksum: batch.checksum,
                    before: core::mem::replace(&mut before, batch.checksum),
                    records: Vec::with_capacity(batch.records as usize),
                }),
                Item::Record(record) => {
                    if let Some(batch) = found.last_mut() {
                        batch.records.push(*record);
                    }
                }
            }
        }
        found
    }

    fn take_items(&mut self, found: Vec<FoundBatch>) {
        self.by_footer = true;
        self.batches = found;
        let wanted = self.from..self.end;
        self.batches.retain(|batch| wanted.contains(&batch.block));
    }

    fn take_header(
        &mut self,
        secret: Secret,
        block: u32,
        result: Result<&[u8], IoError>,
    ) -> Option<()> {
        let mut records = Vec::new();
        let (header, checksum) = self.header(secret, block, result.ok()?, &mut records)?;
        self.know(header.lane, header.watermark);
        self.batches.push(FoundBatch {
            lane: header.lane,
            incarnation: header.incarnation,
            segment: self.segment,
            block,
            blocks: header.blocks,
            sequence: header.sequence,
            checksum,
            before: header.before,
            records,
        });
        self.stage = self.header_at(block + header.blocks);
        Some(())
    }
}
