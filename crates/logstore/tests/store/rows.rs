//! Pools whose writes are of whole rows: what those have to keep to.

use std::collections::{BTreeMap, BTreeSet};

use flashyard_logstore::Geometry;
use flashyard_logstore::format::fields::get_u32;

use crate::device::BLOCK;
use crate::world::small;

/// A pool whose writes are of whole rows of so many blocks.
pub fn of_rows(row: u32) -> Geometry {
    Geometry {
        segment_blocks: 60_u32.next_multiple_of(row),
        row,
        ..small()
    }
}

/// Rows of parity over 3 to 16 members.
pub const ROWS: [u32; 5] = [2, 3, 4, 8, 15];

/// The rows that were written.
pub struct UsedRows {
    geometry: Geometry,
    /// Blocks of segments that were written in their present use.
    used: BTreeSet<u64>,
    /// The generation of that use.
    uses: BTreeMap<u64, Option<u32>>,
}

impl UsedRows {
    pub fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            used: BTreeSet::new(),
            uses: BTreeMap::new(),
        }
    }

    /// A write to a segment is of whole rows, and each is written once in each use of the segment.
    /// A use begins with the first block, or with a generation that was not seen before.
    pub fn take(&mut self, block: u64, bytes: &[u8]) {
        let Geometry {
            segment_blocks,
            first_block,
            row,
            ..
        } = self.geometry;
        let (within, blocks) = (block - first_block, (bytes.len() / BLOCK) as u64);
        assert_eq!(within % u64::from(row), 0, "it begins with a row");
        assert_eq!(blocks % u64::from(row), 0, "it is of whole rows");
        let segment = within / u64::from(segment_blocks) * u64::from(segment_blocks);
        let trailer = &bytes[bytes.len() - BLOCK..];
        let generation = match (&bytes[8..12], &trailer[8..12]) {
            (b"FYLB", _) => Some(get_u32(bytes, 32)),
            (_, b"FYLF") => Some(get_u32(trailer, 20)),
            _ => None,
        };
        let before = self.uses.insert(segment, generation);
        if within == segment || before != Some(generation) {
            let all = segment..segment + u64::from(segment_blocks);
            self.used.retain(|block| !all.contains(block));
        }
        for block in within..within + blocks {
            assert!(self.used.insert(block), "block {block} is written twice");
        }
    }
}
