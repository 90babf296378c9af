//! Where a mapped pool keeps what, in blocks of 4 KiB:
//!
//! ```text
//! 0    first signpost     16   superblock A    20   header with the key    21   keys of volumes
//! 256  second signpost    272  superblock B    276  the same               277  the same
//! 512  segments, of equal length
//! end  superblocks C and D, at places that the signposts say: a file that grows does not move them
//! ```
//!
//! A signpost has the frame of a raw pool's metadata and a higher version, at the same places: a
//! program that knows raw pools only refuses the device, and does not offer to make a pool of it.

use std::fmt;

use flashyard_logstore::format::BLOCK;
use flashyard_logstore::{COPIES, Geometry, SUPERBLOCK};

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
    /// Of a pool on a device of so many blocks.
    pub fn new(uuid: [u8; 16], blocks: u64) -> Self {
        let superblocks = [16, 272, blocks - 2 * SUPER_BLOCKS, blocks - SUPER_BLOCKS];
        Self { uuid, superblocks }
    }

    /// The segments before the superblocks at the end.
    pub fn segments(&self) -> Geometry {
        let end = self.superblocks[2];
        let bytes = end * BLOCK as u64;
        let fits = SEGMENTS.iter().find(|(from, _)| bytes >= *from);
        let segment_blocks = fits.map_or(64, |(_, segment)| segment / BLOCK as u64);
        Geometry {
            segments: (end.saturating_sub(FIRST_BLOCK) / segment_blocks) as u32,
            segment_blocks: segment_blocks as u32,
            first_block: FIRST_BLOCK,
            row: 1,
        }
    }
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
