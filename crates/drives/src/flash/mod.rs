//! An emulated drive: the model of [`flashyard_flash::ssd`] says when, a store says what.
//!
//! The two are apart. A write into memory is visible to reads from the moment it is accepted, and a
//! read takes its data when it is accepted; each completes when the model says so. Both moments lie
//! between call and completion, and accepted I/Os happen one after another. So what users see is a
//! register per block, even for overlapping I/O. With a file as the store, an I/O is done when both
//! the file and the model are, and the order of overlapping I/O in flight is as undefined as it is
//! on a disk.
//!
//! Nothing of the model is kept when the program ends. A file keeps the content, and the drive is
//! preconditioned again at every start.

mod content;
mod drive;
pub mod pattern;
mod plan;
mod stats;

use std::cell::RefCell;
use std::rc::Rc;

use flashyard_block::{
    Device, Done, FileDevice, Info, Io, IoError, IoFuture, Limits, OpenError, Pair, Tag, geometry,
    locate_io,
};
use flashyard_flash::UNIT_BYTES;
use flashyard_flash::ssd;
use flashyard_runtime::Rt;

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

/// Options of an emulated drive.
pub struct FlashOptions {
    /// 512 or 4096. With 512, writing a part of a unit of 4 KiB has the drive read that unit first.
    pub block_size: u32,
    /// Where its content is.
    pub store: Store,
    /// Factor by which it is slower than its model; 0 counts as 1.
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
    /// Runs `model` from now on. Preconditioning one may take seconds, so it is made elsewhere, on
    /// any thread.
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
        // What was not flushed to a file may be gone with the machine, whatever the drive would
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

    /// Clears the histograms of lateness and latency, to measure anew.
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

    /// An I/O whose effect is there at once, and which ends when the drive says so.
    fn at_once(&self, plan: Plan, act: impl FnOnce() -> Result<Done, IoError>) -> IoFuture {
        match self.drive.begin(plan) {
            Ok(end) => IoFuture::timed(end, act()),
            Err(error) => IoFuture::ready(Err(error)),
        }
    }

    /// An I/O that ends when both the drive and the file say so. What is to `follow` at the drive
    /// does so if that has succeeded.
    fn with_file(
        &self,
        plan: Plan,
        follow: Option<Plan>,
        act: impl FnOnce() -> IoFuture,
    ) -> IoFuture {
        let end = match self.drive.begin(plan) {
            Ok(end) => end,
            Err(error) => return IoFuture::ready(Err(error)),
        };
        let (io, drive) = (act(), Rc::clone(&self.drive));
        IoFuture::boxed(async move {
            let outcome = io.await;
            end.await;
            // When the drive has no room by now, it was done all the same.
            if outcome.is_ok()
                && let Some(Ok(end)) = follow.map(|plan| drive.begin(plan))
            {
                end.await;
            }
            outcome
        })
    }
}

/// What the drive does for an I/O on `len` bytes from `offset` on. With the permission to
/// deallocate it forgets a range; without, it writes zeroes, as drives do that keep the space.
/// `equal`: whether the compared data are there.
fn plan(io: &Io, offset: u64, len: u64, equal: impl FnOnce(&Pair) -> bool) -> Plan {
    match io {
        Io::Read { .. } => Plan::read(offset, len),
        Io::Write { fua, .. } => Plan::write(offset, len, *fua),
        Io::Zero { how, .. } if how.frees() => Plan::deallocate(offset, len),
        Io::Zero { .. } => Plan::write(offset, len, false),
        Io::Flush => Plan::flush(),
        Io::CompareAndWrite(pair) => {
            let writes = equal(pair).then_some(Through(pair.fua()));
            Plan::compare(offset, len, writes)
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

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        let (offset, len) = match locate_io(&self.info(), &io) {
            Ok((_, 0)) if !matches!(io, Io::Flush) => return IoFuture::ended(Ok(())),
            Ok(place) => place,
            Err(error) => return IoFuture::ready(Err(error)),
        };
        match &self.place {
            Place::Memory(content) => {
                let equal = |pair: &Pair| content.borrow().equals(offset, pair.compare());
                let plan = plan(&io, offset, len, equal);
                self.at_once(plan, || content.borrow_mut().act(io, offset, len))
            }
            Place::File(file) => {
                // Whether a pair is written shows only when the file has compared it.
                let plan = plan(&io, offset, len, |_| false);
                let follow = match &io {
                    Io::CompareAndWrite(pair) => Some(Plan::write(offset, len, pair.fua())),
                    _ => None,
                };
                self.with_file(plan, follow, || file.submit(tag, io))
            }
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
