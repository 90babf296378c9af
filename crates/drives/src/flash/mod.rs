//! An emulated drive: the model of [`flashyard_flash::ssd`] says when, a store says what.
//!
//! The two are apart. A write into memory is visible to reads from the moment it is accepted, and a
//! read takes its data when it is accepted; each is told to be done when the model says so. Both
//! moments lie between call and completion, and things accepted happen one after another, so what
//! users see is a register per block, even for overlapping I/O. With a file as the store the file
//! does its work at the same time, an I/O is done when both are, and overlapping I/O in flight is
//! as undecided as it is on a disk.
//!
//! Nothing of the model is kept when the program ends; a file keeps the content, and the condition
//! is made anew.

mod content;
mod drive;
pub mod pattern;
mod plan;
mod stats;

use std::cell::RefCell;
use std::rc::Rc;

use flashyard_block::{
    Device, FileDevice, Info, IoError, IoFuture, Limits, OpenError, Tag, geometry, locate,
    locate_blocks,
};
use flashyard_flash::UNIT_BYTES;
use flashyard_flash::ssd;
use flashyard_runtime::{Buf, Data, Rt};

pub use stats::FlashStats;

use content::Content;
use drive::Drive;
use plan::{Plan, Through};

/// Where the content of an emulated drive is.
pub enum Store {
    /// In memory that is taken when blocks are first written, at most the capacity in all.
    Memory,
    /// In a file of the same block size, at least as large as the drive.
    File(FileDevice),
    /// Nowhere: writes are counted, and reads give what [`pattern`] says. 8 bytes of memory for
    /// each block written.
    Pattern,
}

/// How a drive is made a device.
pub struct FlashOptions {
    /// 512 or 4096. With 512, writing a part of a unit of 4 KiB has the drive read that unit first.
    pub block_size: u32,
    /// Where its content is.
    pub store: Store,
    /// How many times slower than its model it is to be; 0 counts as 1.
    pub dilation: u32,
}

/// See the module.
pub struct FlashDevice {
    block_size: u32,
    blocks: u64,
    volatile_cache: bool,
    drive: Rc<Drive>,
    place: Place,
}

enum Place {
    Memory(RefCell<Content>),
    File(FileDevice),
}

impl FlashDevice {
    /// Runs `model` from now on. Making one in a condition may take seconds, so it is made
    /// elsewhere, on any thread.
    pub fn new(rt: &Rt, model: ssd::Device, options: FlashOptions) -> Result<Self, OpenError> {
        let block_size = options.block_size;
        let blocks = geometry(block_size, model.capacity())?;
        let place = match options.store {
            Store::Memory => Place::Memory(RefCell::new(Content::memory())),
            Store::Pattern => Place::Memory(RefCell::new(Content::pattern(block_size))),
            Store::File(file) => {
                suits(&file.info(), block_size, blocks)?;
                Place::File(file)
            }
        };
        // What a file was not told to flush may be gone with the machine, whatever the drive would
        // have kept.
        let in_file = matches!(place, Place::File(_));
        Ok(Self {
            block_size,
            blocks,
            volatile_cache: in_file || model.profile().buffer_protected == 0,
            drive: Drive::start(rt, model, options.dilation),
            place,
        })
    }

    /// What the drive has done until now.
    pub fn stats(&self) -> FlashStats {
        self.drive.stats()
    }

    /// Forgets the lateness and latency of what has ended, to measure anew.
    pub fn clear_timing(&self) {
        self.drive.clear_timing();
    }

    /// Bytes of memory its content takes now, without the model.
    pub fn allocated(&self) -> u64 {
        match &self.place {
            Place::Memory(content) => content.borrow().allocated(),
            Place::File(_) => 0,
        }
    }

    /// Makes a range zero: as a write of zeroes, or by forgetting it.
    fn zero(&self, tag: Tag, lba: u64, blocks: u64, deallocate: bool) -> IoFuture<()> {
        let (offset, len) = match locate_blocks(&self.info(), lba, blocks) {
            Ok((_, 0)) => return IoFuture::ready(Ok(())),
            Ok(range) => range,
            Err(error) => return IoFuture::ready(Err(error)),
        };
        let plan = if deallocate {
            Plan::deallocate(offset, len)
        } else {
            Plan::write(offset, len, false)
        };
        match &self.place {
            Place::Memory(content) => self.at_once(plan, || {
                content.borrow_mut().zero(offset, len, deallocate);
                Ok(())
            }),
            Place::File(file) => {
                self.with_file(plan, || file.write_zeroes(tag, lba, blocks, deallocate))
            }
        }
    }

    /// An I/O whose effect is there at once, and which ends when the drive says so.
    fn at_once<T>(&self, plan: Plan, act: impl FnOnce() -> Result<T, IoError>) -> IoFuture<T> {
        match self.drive.begin(plan) {
            Ok(wait) => IoFuture::timed(wait, act()),
            Err(error) => IoFuture::ready(Err(error)),
        }
    }

    /// An I/O that ends when both the drive and the file say so.
    fn with_file<T>(&self, plan: Plan, act: impl FnOnce() -> IoFuture<T>) -> IoFuture<T> {
        match self.drive.begin(plan) {
            Ok(wait) => {
                let io = act();
                IoFuture::boxed(async move {
                    let result = io.await;
                    wait.await;
                    result
                })
            }
            Err(error) => IoFuture::ready(Err(error)),
        }
    }
}

impl Device for FlashDevice {
    fn info(&self) -> Info {
        let unit = UNIT_BYTES as u32 / self.block_size;
        Info {
            block_size: self.block_size,
            blocks: self.blocks,
            volatile_cache: self.volatile_cache,
            read_only: false,
            deallocate: true,
            limits: Limits {
                write_granularity: unit,
                optimal_write: unit,
                atomic_write: 1,
                deallocate_granularity: unit,
            },
        }
    }

    fn read(&self, tag: Tag, lba: u64, mut buf: Buf) -> IoFuture<Data> {
        let len = buf.len();
        let plan = match locate(&self.info(), lba, len) {
            Ok(_) if len == 0 => return IoFuture::ready(Ok(Data::Zeroes(0))),
            Ok(offset) => Plan::read(offset, len as u64),
            Err(error) => return IoFuture::ready(Err(error)),
        };
        match &self.place {
            Place::Memory(content) => self.at_once(plan, || {
                let offset = lba * u64::from(self.block_size);
                Ok(if content.borrow().read(offset, &mut buf) {
                    Data::Buf(buf)
                } else {
                    Data::Zeroes(len)
                })
            }),
            Place::File(file) => self.with_file(plan, || file.read(tag, lba, buf)),
        }
    }

    fn write(&self, tag: Tag, lba: u64, buf: Buf, fua: bool) -> IoFuture<()> {
        let offset = match locate(&self.info(), lba, buf.len()) {
            Ok(_) if buf.is_empty() => return IoFuture::ready(Ok(())),
            Ok(offset) => offset,
            Err(error) => return IoFuture::ready(Err(error)),
        };
        let plan = Plan::write(offset, buf.len() as u64, fua);
        match &self.place {
            Place::Memory(content) => {
                self.at_once(plan, || content.borrow_mut().write(offset, &buf))
            }
            Place::File(file) => self.with_file(plan, || file.write(tag, lba, buf, fua)),
        }
    }

    fn is_blank(&self) -> bool {
        match &self.place {
            Place::Memory(_) => self.allocated() == 0,
            Place::File(file) => file.is_blank(),
        }
    }

    fn moved(&self) -> Option<u64> {
        Some(self.drive.moved_units() * UNIT_BYTES)
    }

    fn flush(&self, tag: Tag) -> IoFuture<()> {
        match &self.place {
            Place::Memory(_) => self.at_once(Plan::flush(), || Ok(())),
            Place::File(file) => self.with_file(Plan::flush(), || file.flush(tag)),
        }
    }

    /// With `deallocate` the drive forgets the range; without, it writes zeroes, as drives do that
    /// keep the space.
    fn write_zeroes(&self, tag: Tag, lba: u64, blocks: u64, deallocate: bool) -> IoFuture<()> {
        self.zero(tag, lba, blocks, deallocate)
    }

    fn deallocate(&self, tag: Tag, lba: u64, blocks: u64) -> IoFuture<()> {
        self.zero(tag, lba, blocks, true)
    }

    /// The drive reads the range and, when it is equal, writes it.
    fn compare_and_write(
        &self,
        tag: Tag,
        lba: u64,
        compare: Buf,
        write: Buf,
        fua: bool,
    ) -> IoFuture<()> {
        assert_eq!(
            compare.len(),
            write.len(),
            "a caller checks both halves of a fused pair"
        );
        let len = compare.len() as u64;
        let offset = match locate(&self.info(), lba, compare.len()) {
            Ok(_) if len == 0 => return IoFuture::ready(Ok(())),
            Ok(offset) => offset,
            Err(error) => return IoFuture::ready(Err(error)),
        };
        match &self.place {
            Place::Memory(content) => {
                let equal = content.borrow().equals(offset, &compare);
                let plan = Plan::compare(offset, len, equal.then_some(Through(fua)));
                self.at_once(plan, || match equal {
                    true => content.borrow_mut().write(offset, &write),
                    false => Err(IoError::Miscompare),
                })
            }
            Place::File(file) => {
                let read = match self.drive.begin(Plan::compare(offset, len, None)) {
                    Ok(read) => read,
                    Err(error) => return IoFuture::ready(Err(error)),
                };
                let exchange = file.compare_and_write(tag, lba, compare, write, fua);
                let drive = Rc::clone(&self.drive);
                IoFuture::boxed(async move {
                    let outcome = exchange.await;
                    read.await;
                    outcome?;
                    // When the drive has no room by now, it was written all the same.
                    if let Ok(write) = drive.begin(Plan::write(offset, len, fua)) {
                        write.await;
                    }
                    Ok(())
                })
            }
        }
    }
}

/// Whether a file can hold the content of a drive.
fn suits(file: &Info, block_size: u32, blocks: u64) -> Result<(), OpenError> {
    if file.block_size == block_size && file.blocks >= blocks && !file.read_only {
        return Ok(());
    }
    Err(OpenError::Config(format!(
        "the file has {} blocks of {} bytes: it must be writable and have {blocks} of {block_size}",
        file.blocks, file.block_size
    )))
}
