//! The device trait: takes block I/O and finishes it later. A device lives on one core (its home);
//! it is shared there by `Rc` and reached from other cores by message.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use flashyard_runtime::{Buf, Data, Shared};
use flashyard_sched::{Class, Cost, TenantId};

use crate::io::{Done, Io, LentIo, Pair, Zero};
use crate::{Copies, IoError, IoFuture, Turns};

/// Travels down the stack with every I/O, so that all work for it is charged to the right tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// The tenant that is charged.
    pub tenant: TenantId,
    /// How its I/O is to be treated.
    pub class: Class,
}

/// What a device is. While it is in use, `blocks` may grow and `read_only` may become true; the
/// rest stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Bytes per block: 512 or 4096.
    pub block_size: u32,
    /// Number of blocks.
    pub blocks: u64,
    /// Whether completed writes may be lost by a power cut until a flush (NVMe VWC).
    pub volatile_cache: bool,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether deallocating frees anything.
    pub deallocate: bool,
    /// Optimal sizes.
    pub limits: Limits,
}

/// Transfer sizes in blocks; 0 means not reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Writes of this size and alignment, and multiples, need no read before the write (NVMe NPWG,
    /// NPWA).
    pub write_granularity: u32,
    /// Writes of this size use all of the device (NVMe NOWS).
    pub optimal_write: u32,
    /// Writes up to this size survive a power cut whole or not at all (NVMe AWUPF; at least 1).
    pub atomic_write: u32,
    /// Deallocate granularity (NVMe NPDG).
    pub deallocate_granularity: u32,
}

/// The health of a device's medium, as far as it is known (SMART / Health Information).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Percent of the spare medium that is left (Available Spare).
    pub spare: u8,
    /// So much of the medium has failed that it takes no writes any more.
    pub worn_out: bool,
}

impl Default for Health {
    /// The health of a medium that reports none.
    fn default() -> Self {
        Self {
            spare: 100,
            worn_out: false,
        }
    }
}

/// The part of a device that takes whole rows only; a write of anything else there gets
/// [`IoError::Unsupported`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeRows {
    /// The byte at which it begins. It goes on to the end.
    pub from: u64,
    /// Bytes of a row.
    pub bytes: u64,
}

/// A block device. A device checks ranges and answers [`IoError::OutOfRange`] itself, for every
/// caller.
pub trait Device {
    /// What the device is now.
    fn info(&self) -> Info;

    /// Takes an I/O. The work starts when this is called or when the future is first polled, at the
    /// device's choice; dropping the future withdraws the I/O if it has not been issued, and never
    /// frees a buffer in use.
    fn submit(&self, tag: Tag, io: Io) -> IoFuture;

    /// Whether it moves data straight between the medium and memory that others change meanwhile
    /// ([`Self::submit_lent`]), and of how many bytes the pieces of that then have to be multiples.
    /// `None` for a device that looks at data, changes them, or needs them more than once: they
    /// have to be copied for it.
    fn takes_lent(&self) -> Option<u32> {
        None
    }

    /// Takes such an I/O, as [`Self::submit`] does others. Nothing is read as far as the answer
    /// shows: the data are where they were wanted.
    fn submit_lent(&self, tag: Tag, io: LentIo) -> IoFuture {
        let _ = (tag, io);
        IoFuture::ready(Err(IoError::Internal))
    }

    /// The health of its medium.
    fn health(&self) -> Health {
        Health::default()
    }

    /// Takes up what its medium has grown by since it was opened. A device whose size is that of
    /// another one passes it on. What is on the new part is not known: nobody asks for it but who
    /// cleans space before giving it away.
    fn take_growth(&self) -> Result<(), IoError> {
        Ok(())
    }

    /// Bytes that it has moved by itself since it was opened, such as for garbage collection;
    /// nothing if it does not report that.
    fn moved(&self) -> Option<u64> {
        None
    }

    /// What it has done below itself for a tenant since it was asked last. Nothing if it does
    /// not count that: then it does what it is asked, and no more.
    fn take_cost(&self, tenant: TenantId) -> Option<Cost> {
        let _ = tenant;
        None
    }

    /// From now on what it does on its own account takes its turns there. Layers pass it on, and
    /// so does a part of a device; who has no work of its own has no use for it.
    fn take_turns(&self, turns: &Rc<dyn Turns>) {
        let _ = turns;
    }

    /// Bytes that its members read when so many bytes from byte `at` on are read.
    fn read_for(&self, at: u64, bytes: u64) -> u64 {
        let _ = at;
        bytes
    }

    /// Bytes that its members write when so many bytes from byte `at` on are written, parity and
    /// copies included.
    fn written_for(&self, at: u64, bytes: u64) -> u64 {
        let _ = at;
        bytes
    }

    /// Whether every block is known to read as zeroes: nothing was written since the device was
    /// made. A pool then need not zero what it gives away. Zeroing would undo the preconditioning
    /// of an emulated drive.
    fn is_blank(&self) -> bool {
        false
    }

    /// Its copies, if it keeps several of each block.
    fn copies(&self) -> Option<&dyn Copies> {
        None
    }

    /// Where it takes whole rows only, each written once between two times that it is not needed.
    fn rows(&self) -> Option<WholeRows> {
        None
    }

    /// Whether the kernel's page cache answers: what is measured then is memory, and not the
    /// device.
    fn is_page_cached(&self) -> bool {
        false
    }
}

/// A device as it is held by those who use it.
pub type SharedDevice = Rc<dyn Device>;

/// The kinds of I/O by name, each with an answer of its own type: for code that makes its own I/O
/// and does not pass one on.
pub trait DeviceExt: Device {
    /// Reads `into.len()` bytes from block `lba` on.
    fn read(&self, tag: Tag, lba: u64, into: Buf) -> Answer<Data> {
        Answer::new(self.submit(tag, Io::Read { lba, into }), |done| done.data)
    }

    /// Writes `data` from block `lba` on.
    fn write(&self, tag: Tag, lba: u64, data: impl Into<Shared>, fua: bool) -> Answer<()> {
        let data = data.into();
        Answer::new(self.submit(tag, Io::Write { lba, data, fua }), drop)
    }

    /// Finishes when every write finished before the call is on the medium.
    fn flush(&self, tag: Tag) -> Answer<()> {
        Answer::new(self.submit(tag, Io::Flush), drop)
    }

    /// Makes blocks read as zeroes; `deallocate` allows their space to be freed.
    fn write_zeroes(&self, tag: Tag, lba: u64, blocks: u64, deallocate: bool) -> Answer<()> {
        let how = Zero::Write { deallocate };
        Answer::new(self.submit(tag, Io::Zero { lba, blocks, how }), drop)
    }

    /// Says that the content of blocks is not needed any more.
    fn deallocate(&self, tag: Tag, lba: u64, blocks: u64) -> Answer<()> {
        let how = Zero::Deallocate;
        Answer::new(self.submit(tag, Io::Zero { lba, blocks, how }), drop)
    }

    /// Compares, and writes if equal; the halves are of the same length.
    fn compare_and_write(
        &self,
        tag: Tag,
        lba: u64,
        compare: impl Into<Shared>,
        write: impl Into<Shared>,
        fua: bool,
    ) -> Answer<()> {
        let io = match Pair::new(lba, compare, write, fua) {
            Ok(pair) => self.submit(tag, Io::CompareAndWrite(pair)),
            Err(error) => IoFuture::ready(Err(error)),
        };
        Answer::new(io, drop)
    }
}

impl<D: Device + ?Sized> DeviceExt for D {}

/// An I/O in flight, whose result has the type of its kind.
#[must_use = "an I/O does nothing unless awaited"]
pub struct Answer<T> {
    io: IoFuture,
    of: fn(Done) -> T,
}

impl<T> Answer<T> {
    fn new(io: IoFuture, of: fn(Done) -> T) -> Self {
        Self { io, of }
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T, IoError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let done = ready!(Pin::new(&mut self.io).poll(context));
        Poll::Ready(done.map(self.of))
    }
}
