//! Where an I/O goes: checks that a range of blocks is on a device, in arithmetic that cannot wrap.

use crate::{Info, Io, IoError};

/// Gives the byte offset of block `lba` when `len` bytes from there are whole blocks of the device.
///
/// [`IoError::OutOfRange`] otherwise, and for an empty range behind the end.
pub(crate) fn locate(info: &Info, lba: u64, len: usize) -> Result<u64, IoError> {
    let block_size = u64::from(info.block_size);
    let len = len as u64;
    if !len.is_multiple_of(block_size) {
        return Err(IoError::OutOfRange);
    }
    locate_blocks(info, lba, len / block_size).map(|(offset, _)| offset)
}

/// Gives byte offset and length of `blocks` blocks from `lba` when all of them are on the device.
pub(crate) fn locate_blocks(info: &Info, lba: u64, blocks: u64) -> Result<(u64, u64), IoError> {
    let inside = lba
        .checked_add(blocks)
        .is_some_and(|end| end <= info.blocks);
    if !inside {
        return Err(IoError::OutOfRange);
    }
    let block_size = u64::from(info.block_size);
    // A device's size in bytes fits 64 bits (checked when it is made), so neither product can wrap.
    Ok((lba * block_size, blocks * block_size))
}

/// Gives byte offset and length of an I/O when all its blocks are on the device.
pub fn locate_io(info: &Info, io: &Io) -> Result<(u64, u64), IoError> {
    locate_blocks(info, io.lba(), io.blocks(info.block_size)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    fn info(blocks: u64) -> Info {
        Info {
            block_size: 512,
            blocks,
            volatile_cache: false,
            read_only: false,
            deallocate: false,
            limits: Limits::default(),
        }
    }

    #[test]
    fn ranges_inside_are_located_and_all_others_refused() {
        let cases = [
            (0, 512, Ok(0)),
            (9, 512, Ok(9 * 512)),
            (0, 5120, Ok(0)),
            (10, 0, Ok(5120)),
            (10, 512, Err(IoError::OutOfRange)),
            (9, 1024, Err(IoError::OutOfRange)),
            (0, 100, Err(IoError::OutOfRange)),
            (u64::MAX, 512, Err(IoError::OutOfRange)),
            (u64::MAX, 0, Err(IoError::OutOfRange)),
        ];
        for (lba, len, expected) in cases {
            assert_eq!(locate(&info(10), lba, len), expected, "{lba} {len}");
        }
        assert_eq!(
            locate_blocks(&info(10), 1, u64::MAX),
            Err(IoError::OutOfRange)
        );
        assert_eq!(locate_blocks(&info(10), 2, 8), Ok((1024, 4096)));
    }
}
