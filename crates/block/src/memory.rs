//! A device in memory: sparse, so that it may be declared larger than the machine; gone with the
//! process.

use std::cell::{Cell, RefCell};

use flashyard_runtime::{Buf, Data};

use crate::open::{OpenError, geometry};
use crate::range::{locate, locate_io};
use crate::sparse::{EXTENT, Sparse};
use crate::{Device, Done, Info, Io, IoError, IoFuture, LentIo, Limits, Tag, Way};

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

    fn act(&self, io: Io) -> Result<Done, IoError> {
        let (offset, len) = locate_io(&self.info(), &io)?;
        match io {
            Io::Read { into, .. } => return Ok(self.load(offset, into).into()),
            Io::Write { data, .. } => self.content.borrow_mut().write(offset, &data)?,
            Io::Zero { how, .. } => {
                self.content.borrow_mut().zero(offset, len, how.frees());
            }
            Io::Flush => {}
            Io::CompareAndWrite(pair) => {
                let mut content = self.content.borrow_mut();
                if !content.equals(offset, pair.compare()) {
                    return Err(IoError::Miscompare);
                }
                content.write(offset, pair.write())?;
            }
        }
        Ok(Done::EMPTY)
    }

    /// One copy, between the content and the memory that is lent.
    fn act_lent(&self, io: &LentIo) -> Result<Done, IoError> {
        let (memory, mut at) = (&io.memory, 0);
        let offset = locate(&self.info(), io.lba, memory.len())?;
        let mut content = self.content.borrow_mut();
        let moved = match io.way {
            Way::Read => content.each(offset, memory.len(), |piece, len| {
                let done = match piece {
                    Some(bytes) => memory.write(at, bytes),
                    None => memory.zero(at, len),
                };
                at += len;
                done
            }),
            Way::Write { .. } => content.each_for_write(offset, memory.len(), |bytes| {
                let done = memory.read(at, bytes);
                at += bytes.len();
                done
            })?,
        };
        // Memory that is lent for this is as long as it was, and is writable if it has to be.
        moved.then_some(Done::EMPTY).ok_or(IoError::Internal)
    }

    fn load(&self, offset: u64, mut into: Buf) -> Data {
        let content = self.content.borrow();
        if content.is_unwritten(offset, into.len()) {
            return Data::Zeroes(into.len());
        }
        content.read(offset, &mut into);
        Data::Buf(into)
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

    fn submit(&self, _: Tag, io: Io) -> IoFuture {
        IoFuture::ready(self.act(io))
    }

    fn takes_lent(&self) -> Option<u32> {
        Some(1)
    }

    fn submit_lent(&self, _: Tag, io: LentIo) -> IoFuture {
        IoFuture::ready(self.act_lent(&io))
    }

    fn is_blank(&self) -> bool {
        self.allocated() == 0
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
