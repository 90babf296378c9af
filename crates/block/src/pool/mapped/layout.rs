//! Where a mapped pool keeps what, in blocks of 4 KiB:
//!
//! ```text
//! 0    first signpost     16   superblock A    20   header with the key    21   keys of volumes
//! 256  second signpost    272  superblock B    276  the same               277  the same
//! 512  segments, of equal length
//! end  superblocks C and D, at places that the signposts say: a file that grows does not move them
//! ```
//!
//! On a device that takes whole rows only, superblocks C and D are at 528 and 784, before the rows,
//! and segments begin with the first row.
//!
//! A signpost has the frame of a raw pool's metadata and a higher version, at the same places: a
//! program that knows raw pools only refuses the device, and does not offer to make a pool of it.

use std::fmt;

use flashyard_logstore::format::BLOCK;
use flashyard_logstore::format::batch::MOST_ROW;
use flashyard_logstore::{COPIES, Geometry, SUPERBLOCK};

use crate::WholeRows;
use crate::superblock::{Content, Reader, Writer};

/// The version of the layout of a pool that is mapped.
pub const VERSION: u32 = 2;
/// Bytes of a device at least.
pub const LEAST_BYTES: u64 = 32 << 20;

/// Blocks of a superblock.
pub(super) const SUPER_BLOCKS: u64 = (SUPERBLOCK / BLOCK) as u64;
/// Where the two copies of the header with the key of an encrypted pool are.
pub(super) const KEY_HEADERS: [u64; 2] = [20, 276];
/// Where the two copies of the keys of its volumes begin.
pub(super) const KEYS: [u64; 2] = [21, 277];
/// Blocks of each copy of these.
pub(super) const KEY_BLOCKS: usize = 120;
/// Where segments begin.
const FIRST_BLOCK: u64 = 512;
/// Where superblocks C and D are before rows, and where rows begin at least.
const BEFORE_ROWS: [u64; 2] = [528, 784];
const LEAST_BEFORE: u64 = 1024;
/// Rows of a segment at least: its footer takes one.
const LEAST_ROWS: u64 = 16;
/// Segments of a device at least.
const LEAST_SEGMENTS: u64 = 128;
/// Bytes of a segment, for pools from so many bytes on.
const SEGMENTS: [(u64, u64); 3] = [(64 << 30, 16 << 20), (1 << 30, 1 << 20), (0, 256 << 10)];

/// What says where a mapped pool's superblocks are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signpost {
    /// Which pool this is: superblocks of others do not count.
    pub uuid: [u8; 16],
    /// The first block of each superblock.
    pub superblocks: [u64; COPIES],
}

impl Signpost {
    /// Of a pool on a device of so many blocks, or with such rows.
    pub fn new(uuid: [u8; 16], blocks: u64, rows: Option<WholeRows>) -> Self {
        let [third, last] = match rows {
            Some(_) => BEFORE_ROWS,
            None => [blocks - 2 * SUPER_BLOCKS, blocks - SUPER_BLOCKS],
        };
        let superblocks = [16, 272, third, last];
        Self { uuid, superblocks }
    }
}

/// Segments on a device of so many blocks: between its superblocks, or where it has rows.
pub(super) fn segments(blocks: u64, rows: Option<WholeRows>) -> Geometry {
    let (first, end, row) = match rows {
        Some(rows) => {
            let (first, row) = in_blocks(rows);
            (first, blocks, row)
        }
        None => (FIRST_BLOCK, blocks - 2 * SUPER_BLOCKS, 1),
    };
    let bytes = end * BLOCK as u64;
    let fits = SEGMENTS.iter().find(|(from, _)| bytes >= *from);
    let segment = fits.map_or(64, |(_, segment)| segment / BLOCK as u64);
    let least = if row > 1 { LEAST_ROWS * row } else { 0 };
    let segment = segment.max(least).next_multiple_of(row);
    Geometry {
        segments: (end.saturating_sub(first) / segment) as u32,
        segment_blocks: segment as u32,
        first_block: first,
        row: row as u32,
    }
}

/// Bytes of a device at least.
pub(super) fn least_bytes(rows: Option<WholeRows>) -> u64 {
    match rows {
        None => LEAST_BYTES,
        Some(rows) => {
            let (first, row) = in_blocks(rows);
            let segment = 64.max(LEAST_ROWS * row).next_multiple_of(row);
            (first + LEAST_SEGMENTS * segment) * BLOCK as u64
        }
    }
}

/// Whether a pool can be on rows.
pub(super) fn takes(rows: WholeRows) -> bool {
    let blocks = BLOCK as u64;
    rows.bytes.is_multiple_of(blocks)
        && (2..=u64::from(MOST_ROW)).contains(&(rows.bytes / blocks))
        && rows.from.is_multiple_of(blocks)
        && rows.from >= LEAST_BEFORE * blocks
}

/// Whether segments are whole rows of a device, or lie anywhere on one that has none.
pub(super) fn fits(row: u32, first_block: u64, rows: Option<WholeRows>) -> bool {
    let Some((first, blocks)) = rows.map(in_blocks) else {
        return row == 1;
    };
    let from = first_block.checked_sub(first);
    u64::from(row) == blocks && from.is_some_and(|from| from.is_multiple_of(blocks))
}

/// The first block of rows, and the blocks of each.
fn in_blocks(rows: WholeRows) -> (u64, u64) {
    (rows.from / BLOCK as u64, rows.bytes / BLOCK as u64)
}

/// Why a signpost cannot be one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overlapping;

impl fmt::Display for Overlapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the places of its superblocks overlap")
    }
}

impl Content for Signpost {
    type Contradiction = Overlapping;
    const MAGIC: [u8; 8] = *b"FLSHPOOL";
    const VERSION: u32 = VERSION;
    const MAX_BYTES: usize = BLOCK;

    fn generation(&self) -> u64 {
        1
    }

    fn write(&self, fields: &mut Writer) {
        fields.bytes(&self.uuid);
        for place in self.superblocks {
            fields.u64(place);
        }
    }

    fn read(fields: &mut Reader<'_>) -> Option<Self> {
        let uuid = fields.array()?;
        let mut superblocks = [0; COPIES];
        for place in &mut superblocks {
            *place = fields.u64()?;
        }
        Some(Self { uuid, superblocks })
    }

    fn check(&self) -> Result<(), Overlapping> {
        let sorted = self.superblocks.windows(2).all(|pair| {
            let end = pair[0].checked_add(SUPER_BLOCKS);
            end.is_some_and(|end| end <= pair[1])
        });
        let last = self.superblocks[COPIES - 1];
        match sorted && self.superblocks[0] > 0 && last < crate::MAX_BYTES / BLOCK as u64 {
            true => Ok(()),
            false => Err(Overlapping),
        }
    }
}

#[cfg(test)]
mod tests {
    use flashyard_logstore::{Options, Secret, Store};

    use super::*;

    fn rows(blocks: u64) -> WholeRows {
        WholeRows {
            from: 4 << 20,
            bytes: blocks * BLOCK as u64,
        }
    }

    #[test]
    fn the_smallest_device_of_any_rows_and_any_size_of_it_is_a_pool() {
        for blocks in 2..=15 {
            let rows = rows(blocks);
            assert!(takes(rows));
            let least = least_bytes(Some(rows)) / BLOCK as u64;
            for size in [least, least + 77, 1 << 18, 1 << 24] {
                let geometry = segments(size.max(least), Some(rows));
                let end = u64::from(geometry.segments) * u64::from(geometry.segment_blocks);
                assert!(geometry.first_block + end <= size.max(least));
                assert!(fits(geometry.row, geometry.first_block, Some(rows)));
                let made = Store::create(geometry, [1; 16], Secret([1; 16]), Options::default());
                assert!(made.is_ok(), "{blocks} blocks in a row, {size}");
            }
            let other = super::tests::rows(blocks + 1);
            assert!(!fits(blocks as u32, 1024, Some(other)));
            assert!(!fits(blocks as u32, 1025, Some(rows)));
            assert!(!fits(blocks as u32, 1024, None) && !fits(1, 512, Some(rows)));
        }
    }

    #[test]
    fn pools_without_rows_lie_as_they_always_did() {
        let blocks = (64 << 20) / BLOCK as u64;
        let signpost = Signpost::new([1; 16], blocks, None);
        assert_eq!(signpost.superblocks, [16, 272, 16376, 16380]);
        let expected = Geometry {
            segments: 247,
            segment_blocks: 64,
            first_block: 512,
            row: 1,
        };
        assert_eq!(segments(blocks, None), expected);
    }
}
