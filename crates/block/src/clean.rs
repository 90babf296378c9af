//! Making blocks clean: data that were there before cannot be read any more, even after a power
//! cut. Pools and whole devices do this before they give space to a new owner.

use std::ops::Range;

use crate::{Device, DeviceExt, IoError, Tag};

/// Zeroes are asked for in pieces of this many bytes, so that a single command takes a bounded
/// time.
const PIECE_BYTES: u64 = 1 << 30;

/// Makes `ranges` of blocks read as zeroes for good: when this has succeeded, no power cut brings
/// back what was there. Space is freed where the device can. After a failure any part may be as it
/// was.
pub async fn make_clean(
    device: &dyn Device,
    ranges: impl IntoIterator<Item = Range<u64>>,
) -> Result<(), IoError> {
    let piece = PIECE_BYTES / u64::from(device.info().block_size);
    for range in ranges {
        let mut lba = range.start;
        while lba < range.end {
            let blocks = piece.min(range.end - lba);
            device
                .write_zeroes(Tag::default(), lba, blocks, true)
                .await?;
            lba += blocks;
        }
    }
    device.flush(Tag::default()).await
}
