//! Chunks: how long those of a volume are, and the form in which one is stored.

use crate::format::BLOCK_SECTORS;

/// Codecs have numbers up to this; 0 is none.
pub const MOST_CODEC: u8 = 2;
/// Log2 of the bytes of a chunk: the shortest, and the longest.
pub const CHUNK_SHIFTS: [u8; 2] = [12, 14];

/// How a volume keeps its chunks. The store keeps this and does not compress: the driver does, and
/// gives the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// Log2 of the bytes of a chunk, 12 or 14; never changes.
    pub chunk_shift: u8,
    /// How chunks are compressed where that saves enough: 1 LZ4, 2 Zstandard, 0 not at all.
    pub codec: u8,
}

impl Default for Form {
    fn default() -> Self {
        Self {
            chunk_shift: CHUNK_SHIFTS[0],
            codec: 0,
        }
    }
}

impl Form {
    /// Whether there is such a form.
    pub fn is_valid(self) -> bool {
        CHUNK_SHIFTS.contains(&self.chunk_shift) && self.codec <= MOST_CODEC
    }

    /// Blocks of 4 KiB in a chunk.
    pub fn chunk_blocks(self) -> u32 {
        1 << (self.chunk_shift - CHUNK_SHIFTS[0])
    }

    /// Sectors of a chunk that is stored as it is.
    pub fn chunk_sectors(self) -> u32 {
        self.chunk_blocks() * BLOCK_SECTORS as u32
    }

    /// Chunks of a write or a read at most: 128 KiB, wherever they begin.
    pub fn most_chunks(self) -> u32 {
        let blocks = self.chunk_blocks();
        super::MOST_BLOCKS / blocks + u32::from(blocks > 1)
    }

    /// Whether a chunk of the volume can be stored so.
    pub(crate) fn takes(self, sectors: u32, codec: u8) -> bool {
        match codec {
            0 => sectors == self.chunk_sectors(),
            _ => (1..self.chunk_sectors()).contains(&sectors) && codec <= MOST_CODEC,
        }
    }
}

/// A chunk as it is to be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    /// Sectors of 512 bytes that it takes; 0 when all of it is zeroes, which takes none.
    pub sectors: u8,
    /// How it is compressed; 0 where it is stored as it is.
    pub codec: u8,
    /// The [checksum](crate::format::chunk_sum) of what is stored.
    pub crc: u32,
}

impl Stored {
    /// All zeroes.
    pub const ZERO: Self = Self {
        sectors: 0,
        codec: 0,
        crc: 0,
    };

    /// A block of 4 KiB that is stored as it is.
    pub fn block(crc: u32) -> Self {
        Self {
            sectors: BLOCK_SECTORS as u8,
            codec: 0,
            crc,
        }
    }
}

/// Where data begin that could begin at sector `at`: what is not compressed begins at a whole
/// block, so that it can be read to where it is wanted; the rest is packed.
pub(crate) fn begin(at: u64, codec: u8) -> u64 {
    match codec {
        0 => at.next_multiple_of(BLOCK_SECTORS),
        _ => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_takes_less_than_its_chunk_and_the_rest_all_of_it() {
        for [shift, sectors, most] in [[12, 8, 32], [14, 32, 9]] {
            let form = Form {
                chunk_shift: shift,
                ..Form::default()
            };
            let (sectors, shift) = (u32::from(sectors), u32::from(shift));
            assert_eq!(
                (form.chunk_sectors(), form.most_chunks()),
                (sectors, most.into())
            );
            assert_eq!(1 << shift, sectors * 512);
            assert!(form.takes(sectors, 0) && !form.takes(sectors - 1, 0));
            assert!(form.takes(sectors - 1, 1) && form.takes(1, 2));
            assert!(!form.takes(sectors, 1) && !form.takes(0, 1) && !form.takes(1, 3));
        }
    }

    #[test]
    fn only_what_is_not_compressed_begins_at_a_block() {
        assert_eq!(
            [begin(9, 0), begin(8, 0), begin(9, 1), begin(0, 2)],
            [16, 8, 9, 0]
        );
    }
}
