//! A device that keeps nothing: reads give zeroes, writes are dropped. Measures everything but the
//! medium.

use flashyard_runtime::{Buf, Data};

use crate::open::{OpenError, geometry};
use crate::range::{locate, locate_blocks};
use crate::{Device, Info, IoError, IoFuture, Limits, Tag};

/// See the module.
#[derive(Debug)]
pub struct NullDevice {
    info: Info,
}

impl NullDevice {
    /// A null device of `bytes` bytes (rounded down to whole blocks of 512 or 4096).
    pub fn new(block_size: u32, bytes: u64) -> Result<Self, OpenError> {
        let blocks = geometry(block_size, bytes)?;
        let limits = Limits {
            atomic_write: 1,
            ..Limits::default()
        };
        let info = Info {
            block_size,
            blocks,
            volatile_cache: false,
            read_only: false,
            deallocate: false,
            limits,
        };
        Ok(Self { info })
    }

    fn range(&self, lba: u64, blocks: u64) -> IoFuture<()> {
        IoFuture::ready(locate_blocks(&self.info, lba, blocks).map(drop))
    }
}

impl Device for NullDevice {
    fn info(&self) -> Info {
        self.info
    }

    fn read(&self, _: Tag, lba: u64, buf: Buf) -> IoFuture<Data> {
        IoFuture::ready(locate(&self.info, lba, buf.len()).map(|_| Data::Zeroes(buf.len())))
    }

    fn write(&self, _: Tag, lba: u64, buf: Buf, _: bool) -> IoFuture<()> {
        IoFuture::ready(locate(&self.info, lba, buf.len()).map(drop))
    }

    fn is_blank(&self) -> bool {
        true
    }

    fn flush(&self, _: Tag) -> IoFuture<()> {
        IoFuture::ready(Ok(()))
    }

    fn write_zeroes(&self, _: Tag, lba: u64, blocks: u64, _: bool) -> IoFuture<()> {
        self.range(lba, blocks)
    }

    fn deallocate(&self, _: Tag, lba: u64, blocks: u64) -> IoFuture<()> {
        self.range(lba, blocks)
    }

    fn compare_and_write(&self, _: Tag, lba: u64, compare: Buf, _: Buf, _: bool) -> IoFuture<()> {
        IoFuture::ready(locate(&self.info, lba, compare.len()).and_then(|_| {
            if compare.iter().all(|&byte| byte == 0) {
                Ok(())
            } else {
                Err(IoError::Miscompare)
            }
        }))
    }
}
