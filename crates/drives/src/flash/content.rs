//! The data on an emulated drive, apart from its timing.

use flashyard_block::{Done, Io, IoError, Sparse};
use flashyard_flash::UNIT_BYTES;
use flashyard_runtime::Data;

use super::pattern;

/// Bytes of the number of a block's last write.
const NUMBER: usize = 8;

/// Content that is there as soon as it is written. Offsets and lengths are whole blocks inside the
/// drive.
#[derive(Debug)]
pub(super) enum Content {
    /// What was written.
    Memory(Sparse),
    /// Which write each block is of.
    Pattern {
        block_size: u32,
        writes: u64,
        /// The number of the last write of each block; a table of numbers, by block.
        last: Sparse,
    },
}

impl Content {
    /// Nothing written, kept in memory.
    pub(super) fn memory() -> Self {
        // Random writes of single units would take sixteen times their size in larger pieces, and
        // the time to zero it.
        Self::Memory(Sparse::with_extents(UNIT_BYTES as usize))
    }

    /// Nothing written, content discarded.
    pub(super) fn pattern(block_size: u32) -> Self {
        Self::Pattern {
            block_size,
            writes: 0,
            last: Sparse::default(),
        }
    }

    /// Does an I/O on `len` bytes from `offset` on.
    pub(super) fn act(&mut self, io: Io, offset: u64, len: u64) -> Result<Done, IoError> {
        match io {
            Io::Read { mut into, .. } => {
                let data = match self.read(offset, &mut into) {
                    true => Data::Buf(into),
                    false => Data::Zeroes(into.len()),
                };
                return Ok(data.into());
            }
            Io::Write { data, .. } => self.write(offset, &data)?,
            Io::Zero { how, .. } => self.zero(offset, len, how.frees()),
            Io::Flush => {}
            Io::CompareAndWrite(pair) if !self.equals(offset, pair.compare()) => {
                return Err(IoError::Miscompare);
            }
            Io::CompareAndWrite(pair) => self.write(offset, pair.write())?,
        }
        Ok(Done::EMPTY)
    }

    /// Bytes of memory it takes.
    pub(super) fn allocated(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.allocated(),
            Self::Pattern { last, .. } => last.allocated(),
        }
    }

    /// Fills `target`; false when it would be filled with zeroes, as far as that is known without
    /// looking at each byte.
    pub(super) fn read(&self, offset: u64, target: &mut [u8]) -> bool {
        let len = target.len();
        match self {
            Self::Memory(bytes) => {
                let written = !bytes.is_unwritten(offset, len);
                if written {
                    bytes.read(offset, target);
                }
                written
            }
            Self::Pattern {
                block_size, last, ..
            } => {
                let block_size = *block_size as usize;
                let first = offset / block_size as u64;
                if last.is_unwritten(first * NUMBER as u64, len / block_size * NUMBER) {
                    return false;
                }
                for (lba, block) in (first..).zip(target.chunks_mut(block_size)) {
                    match last_write(last, lba) {
                        0 => block.fill(0),
                        write => pattern::fill(lba, write, block),
                    }
                }
                true
            }
        }
    }

    /// Whether `expected` is there.
    pub(super) fn equals(&self, offset: u64, expected: &[u8]) -> bool {
        match self {
            Self::Memory(bytes) => bytes.equals(offset, expected),
            Self::Pattern {
                block_size, last, ..
            } => {
                let block_size = *block_size as usize;
                let first = offset / block_size as u64;
                (first..)
                    .zip(expected.chunks(block_size))
                    .all(|(lba, block)| pattern::matches(lba, last_write(last, lba), block))
            }
        }
    }

    /// Stores `source`. [`IoError::NoSpace`] when memory has run out; a part may be stored then.
    pub(super) fn write(&mut self, offset: u64, source: &[u8]) -> Result<(), IoError> {
        match self {
            Self::Memory(bytes) => bytes.write(offset, source),
            Self::Pattern {
                block_size,
                writes,
                last,
            } => {
                *writes += 1;
                let first = offset / u64::from(*block_size);
                let end = first + source.len() as u64 / u64::from(*block_size);
                (first..end)
                    .try_for_each(|lba| last.write(lba * NUMBER as u64, &writes.to_le_bytes()))
            }
        }
    }

    /// Makes a range zero; `free` gives memory back.
    pub(super) fn zero(&mut self, offset: u64, len: u64, free: bool) {
        match self {
            Self::Memory(bytes) => bytes.zero(offset, len, free),
            Self::Pattern {
                block_size, last, ..
            } => {
                let block_size = u64::from(*block_size);
                let number = NUMBER as u64;
                last.zero(
                    offset / block_size * number,
                    len / block_size * number,
                    free,
                );
            }
        }
    }
}

fn last_write(last: &Sparse, lba: u64) -> u64 {
    let mut number = [0; NUMBER];
    last.read(lba * NUMBER as u64, &mut number);
    u64::from_le_bytes(number)
}
