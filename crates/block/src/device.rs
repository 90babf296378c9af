//! The device trait: takes block I/O and finishes it later. A device lives on one core (its home);
//! it is shared there by `Rc` and reached from other cores by message.

use std::rc::Rc;

use flashyard_runtime::{Buf, Data};
use flashyard_sched::{Class, TenantId};

use crate::IoFuture;

/// Travels down the stack with every I/O, so that whatever it causes is charged to the right
/// tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// The tenant that pays.
    pub tenant: TenantId,
    /// How its I/O is to be treated.
    pub class: Class,
}

/// What a device is. While it is in use `blocks` may grow, and writes may come to be refused; the
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
    /// Whether `deallocate` frees anything.
    pub deallocate: bool,
    /// Sizes worth knowing.
    pub limits: Limits,
}

/// Transfer sizes in blocks; 0 means that nothing is to be said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Writes of this size and alignment, and multiples, need nothing read to be written (NVMe
    /// NPWG, NPWA).
    pub write_granularity: u32,
    /// Writes of this size use all of the device (NVMe NOWS).
    pub optimal_write: u32,
    /// Writes up to this size survive a power cut whole or not at all (NVMe AWUPF; at least 1).
    pub atomic_write: u32,
    /// Deallocate granularity (NVMe NPDG).
    pub deallocate_granularity: u32,
}

/// How the medium of a device is, as far as that is known (SMART / Health Information).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Percent of the spare medium that is left (Available Spare).
    pub spare: u8,
    /// So much of the medium has failed that it takes no writes any more.
    pub worn_out: bool,
}

impl Default for Health {
    /// Of a medium of which nothing else is known.
    fn default() -> Self {
        Self {
            spare: 100,
            worn_out: false,
        }
    }
}

/// Why an I/O failed, in the terms an NVMe host understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoError {
    /// The range is not on the device (LBA Out of Range).
    OutOfRange,
    /// The medium could not give the data back (Unrecovered Read Error).
    Read,
    /// The medium could not take the data (Write Fault).
    Write,
    /// The data is there but is not what was written (End-to-end Guard Check Error).
    Integrity,
    /// No room behind a thin device (Capacity Exceeded).
    NoSpace,
    /// Writes are not allowed (Namespace is Write Protected).
    WriteProtected,
    /// Withdrawn by an abort, a reset or the end of the association (Command Aborted).
    Aborted,
    /// The data compared was different (Compare Failure).
    Miscompare,
    /// Not supported by this device (Invalid Command Opcode).
    Unsupported,
    /// The device is not there now and may come back (Namespace Not Ready, retry).
    NotReady,
    /// Memory or places have run out for the moment (Command Interrupted, retry later).
    Busy,
    /// Something inside failed; the request itself may be good (Internal Error, retry).
    Internal,
}

/// A block device. Buffers' lengths are multiples of the block size; a device checks ranges and
/// answers [`IoError::OutOfRange`] itself, whoever calls. All methods start the work when called or
/// when first polled, at the device's choice; dropping the future withdraws the I/O if it has not
/// been issued, and never frees a buffer in use.
pub trait Device {
    /// What the device is now.
    fn info(&self) -> Info;

    /// Reads `buf.len()` bytes from block `lba`. Gives the filled buffer, or [`Data::Zeroes`] and
    /// keeps the buffer.
    fn read(&self, tag: Tag, lba: u64, buf: Buf) -> IoFuture<Data>;

    /// Writes `buf` at block `lba`. `fua`: finished only when on the medium. The buffer goes back
    /// to its pool.
    fn write(&self, tag: Tag, lba: u64, buf: Buf, fua: bool) -> IoFuture<()>;

    /// Finishes when every write finished before the call is on the medium.
    fn flush(&self, tag: Tag) -> IoFuture<()>;

    /// Makes blocks read as zeroes; `deallocate` allows their space to be freed. On the medium
    /// after a flush, so forced unit access is this and a flush.
    fn write_zeroes(&self, tag: Tag, lba: u64, blocks: u64, deallocate: bool) -> IoFuture<()>;

    /// Tells that the content of blocks is not needed any more; they read as zeroes afterwards.
    fn deallocate(&self, tag: Tag, lba: u64, blocks: u64) -> IoFuture<()>;

    /// How its medium is.
    fn health(&self) -> Health {
        Health::default()
    }

    /// Bytes that it has moved on its own account since it was opened, such as for garbage
    /// collection; nothing if it does not tell.
    fn moved(&self) -> Option<u64> {
        None
    }

    /// Whether every block is known to read as zeroes: nothing was written since the device was
    /// made. A pool then need not zero what it gives away, which would have an emulated drive
    /// forget the condition it is in.
    fn is_blank(&self) -> bool {
        false
    }

    /// Compares blocks with `compare` and, only if equal, writes `write` over them (same length),
    /// with no other I/O to the range in between (NVMe fused Compare and Write).
    /// [`IoError::Miscompare`] when different.
    fn compare_and_write(
        &self,
        tag: Tag,
        lba: u64,
        compare: Buf,
        write: Buf,
        fua: bool,
    ) -> IoFuture<()>;
}

/// A device as it is held by those who use it.
pub type SharedDevice = Rc<dyn Device>;
