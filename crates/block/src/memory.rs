//! A device in memory: sparse, so that it may be declared larger than the machine; gone with the
//! process.

use std::cell::{Cell, RefCell};

use flashyard_runtime::{Buf, Data};

use crate::open::{OpenError, geometry};
use crate::range::{locate, locate_blocks};
use crate::sparse::{EXTENT, Sparse};
use crate::{Device, Info, IoError, IoFuture, Limits, Tag};

/// Largest size of a memory device: bounds its tables (8 MiB then).
const MAX_MEMORY: u64 = 64 << 40;

/// See the module. Every operation is done when its call returns, so a compare-and-write needs no
/// gate, and a flush has nothing to do: there is no medium that keeps more than the memory does.
#[derive(Debug)]
pub struct MemoryDevice {
    block_size: u32,
    blocks: Cell<u64>,
    content: RefCell<Sparse>,
}

impl MemoryDevice {
    /// A memory device of `bytes` bytes, at most 64 TiB (rounded down to whole blocks of 512 or
    /// 4096). Memory is taken when blocks are first written, at most the size in all.
    pub fn new(block_size: u32, bytes: u64) -> Result<Self, OpenError> {
        let blocks = Cell::new(bounded_geometry(block_size, bytes)?);
        Ok(Self {
            block_size,
            blocks,
            content: RefCell::default(),
        })
    }

    /// Grows to `bytes` bytes.
    ///
    /// Refuses to shrink, and what [`MemoryDevice::new`] would.
    pub fn grow(&self, bytes: u64) -> Result<(), OpenError> {
        let blocks = bounded_geometry(self.block_size, bytes)?;
        if blocks < self.blocks.get() {
            return Err(OpenError::Config(
                "a memory device can only grow: give a larger size".into(),
            ));
        }
        self.blocks.set(blocks);
        Ok(())
    }

    /// Bytes of memory its content takes now.
    pub fn allocated(&self) -> u64 {
        self.content.borrow().allocated()
    }

    fn zero(&self, lba: u64, blocks: u64, free: bool) -> Result<(), IoError> {
        let (offset, len) = locate_blocks(&self.info(), lba, blocks)?;
        self.content.borrow_mut().zero(offset, len, free);
        Ok(())
    }
}

impl Device for MemoryDevice {
    fn info(&self) -> Info {
        Info {
            block_size: self.block_size,
            blocks: self.blocks.get(),
            volatile_cache: false,
            read_only: false,
            deallocate: true,
            limits: Limits {
                atomic_write: 1,
                deallocate_granularity: EXTENT as u32 / self.block_size,
                ..Limits::default()
            },
        }
    }

    fn read(&self, _: Tag, lba: u64, mut buf: Buf) -> IoFuture<Data> {
        IoFuture::ready(locate(&self.info(), lba, buf.len()).map(|offset| {
            let content = self.content.borrow();
            if content.is_unwritten(offset, buf.len()) {
                return Data::Zeroes(buf.len());
            }
            content.read(offset, &mut buf);
            Data::Buf(buf)
        }))
    }

    fn write(&self, _: Tag, lba: u64, buf: Buf, _: bool) -> IoFuture<()> {
        let write = |offset| self.content.borrow_mut().write(offset, &buf);
        IoFuture::ready(locate(&self.info(), lba, buf.len()).and_then(write))
    }

    fn is_blank(&self) -> bool {
        self.allocated() == 0
    }

    fn flush(&self, _: Tag) -> IoFuture<()> {
        IoFuture::ready(Ok(()))
    }

    fn write_zeroes(&self, _: Tag, lba: u64, blocks: u64, deallocate: bool) -> IoFuture<()> {
        IoFuture::ready(self.zero(lba, blocks, deallocate))
    }

    fn deallocate(&self, _: Tag, lba: u64, blocks: u64) -> IoFuture<()> {
        IoFuture::ready(self.zero(lba, blocks, true))
    }

    fn compare_and_write(
        &self,
        _: Tag,
        lba: u64,
        compare: Buf,
        write: Buf,
        _: bool,
    ) -> IoFuture<()> {
        assert_eq!(
            compare.len(),
            write.len(),
            "a caller checks both halves of a fused pair"
        );
        let exchange = |offset| {
            let mut content = self.content.borrow_mut();
            if !content.equals(offset, &compare) {
                return Err(IoError::Miscompare);
            }
            content.write(offset, &write)
        };
        IoFuture::ready(locate(&self.info(), lba, compare.len()).and_then(exchange))
    }
}

fn bounded_geometry(block_size: u32, bytes: u64) -> Result<u64, OpenError> {
    if bytes > MAX_MEMORY {
        return Err(OpenError::Config(format!(
            "size is {bytes} bytes: a memory device has at most {MAX_MEMORY}"
        )));
    }
    geometry(block_size, bytes)
}
