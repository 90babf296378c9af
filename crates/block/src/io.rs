//! An I/O with its data, as a value: it goes down a stack of devices, and from core to core.

use flashyard_runtime::{Buf, Data, Lent, Shared};
use flashyard_sched::Op;

use crate::IoError;

/// An I/O of a device. Lengths of buffers are multiples of the block size.
#[derive(Debug)]
pub enum Io {
    /// Read `into.len()` bytes from block `lba` on. Ends with the filled buffer, or with
    /// [`Data::Zeroes`] and without the buffer.
    Read {
        /// First block.
        lba: u64,
        /// Where the data go.
        into: Buf,
    },
    /// Write `data` from block `lba` on.
    Write {
        /// First block.
        lba: u64,
        /// The data, shared read-only.
        data: Shared,
        /// Finished only when they are on the medium (forced unit access).
        fua: bool,
    },
    /// Make blocks read as zeroes.
    Zero {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u64,
        /// In which way.
        how: Zero,
    },
    /// Finish when every write finished before this is on the medium.
    Flush,
    /// Compare, and only if equal, write. Boxed: it is rare, and the others stay small.
    CompareAndWrite(Box<Pair>),
}

/// A read or a write whose data stay in memory that others change meanwhile, without a copy. Only
/// for devices that neither look at data nor need them twice: see [`crate::Device::takes_lent`].
#[derive(Debug)]
pub struct LentIo {
    /// First block.
    pub lba: u64,
    /// Where the data go, or come from; a multiple of the block size.
    pub memory: Lent,
    /// Which way they go.
    pub way: Way,
}

/// Which way lent data go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the device.
    Read,
    /// To the device.
    Write {
        /// Finished only when they are on the medium (forced unit access).
        fua: bool,
    },
}

/// In which way blocks become zero. They are so on the medium after a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    /// As if zeroes were written; `deallocate` allows their space to be freed (NVMe Write Zeroes).
    Write {
        /// Whether space may be freed.
        deallocate: bool,
    },
    /// The content is not needed any more (NVMe Dataset Management).
    Deallocate,
}

impl Zero {
    /// Whether space may be freed.
    pub fn frees(self) -> bool {
        matches!(self, Self::Deallocate | Self::Write { deallocate: true })
    }
}

/// Blocks to be compared, and what is written over them when they are equal, with no other I/O to
/// the range in between (NVMe fused Compare and Write). [`IoError::Miscompare`] when different.
#[derive(Debug)]
pub struct Pair {
    lba: u64,
    compare: Shared,
    write: Shared,
    fua: bool,
}

impl Pair {
    /// A pair for the blocks from `lba` on, `fua` as for a write.
    ///
    /// [`IoError::OutOfRange`] when the halves are not of the same length.
    pub fn new(
        lba: u64,
        compare: impl Into<Shared>,
        write: impl Into<Shared>,
        fua: bool,
    ) -> Result<Box<Self>, IoError> {
        let (compare, write) = (compare.into(), write.into());
        if compare.len() != write.len() {
            return Err(IoError::OutOfRange);
        }
        Ok(Box::new(Self {
            lba,
            compare,
            write,
            fua,
        }))
    }

    /// First block.
    pub fn lba(&self) -> u64 {
        self.lba
    }

    /// Bytes that are compared, which are as many as are written.
    pub fn len(&self) -> usize {
        self.compare.len()
    }

    /// Whether there is nothing to compare.
    pub fn is_empty(&self) -> bool {
        self.compare.is_empty()
    }

    /// What should be there.
    pub fn compare(&self) -> &[u8] {
        &self.compare
    }

    /// What takes its place.
    pub fn write(&self) -> &[u8] {
        &self.write
    }

    /// The same, to be kept.
    pub fn data(&self) -> &Shared {
        &self.write
    }

    /// Whether it is finished only when it is on the medium.
    pub fn fua(&self) -> bool {
        self.fua
    }

    /// Whether what was read is what should be there; [`IoError::Miscompare`] if not.
    pub fn check(&self, present: &Data) -> Result<(), IoError> {
        let equal = match present {
            Data::Buf(present) => **present == *self.compare,
            Data::Zeroes(len) => {
                *len == self.compare.len() && self.compare.iter().all(|&byte| byte == 0)
            }
        };
        if equal {
            Ok(())
        } else {
            Err(IoError::Miscompare)
        }
    }

    /// What is compared, and what is written.
    pub fn into_halves(self) -> (Shared, Shared) {
        (self.compare, self.write)
    }
}

/// The end of an I/O that succeeded.
#[derive(Debug)]
pub struct Done {
    /// What was read; no bytes for any other I/O.
    pub data: Data,
}

impl Done {
    /// Of an I/O that reads nothing.
    pub const EMPTY: Self = Self {
        data: Data::Zeroes(0),
    };
}

impl From<Data> for Done {
    #[inline]
    fn from(data: Data) -> Self {
        Self { data }
    }
}

impl Io {
    /// The operation, as schedulers name it.
    pub fn op(&self) -> Op {
        match self {
            Self::Read { .. } => Op::Read,
            Self::Write { .. } => Op::Write,
            Self::Zero {
                how: Zero::Write { .. },
                ..
            } => Op::WriteZeroes,
            Self::Zero { .. } => Op::Deallocate,
            Self::Flush => Op::Flush,
            Self::CompareAndWrite(_) => Op::CompareAndWrite,
        }
    }

    /// Its first block; 0 for a flush.
    pub fn lba(&self) -> u64 {
        match self {
            Self::Read { lba, .. } | Self::Write { lba, .. } | Self::Zero { lba, .. } => *lba,
            Self::Flush => 0,
            Self::CompareAndWrite(pair) => pair.lba,
        }
    }

    /// The same elsewhere; a flush is everywhere.
    #[must_use]
    pub fn at(mut self, place: u64) -> Self {
        match &mut self {
            Self::Read { lba, .. } | Self::Write { lba, .. } | Self::Zero { lba, .. } => {
                *lba = place;
            }
            Self::Flush => {}
            Self::CompareAndWrite(pair) => pair.lba = place,
        }
        self
    }

    /// Bytes of data that it moves: both halves of a pair, none to make blocks zero.
    pub fn transfers(&self) -> usize {
        match self {
            Self::Read { into, .. } => into.len(),
            Self::Write { data, .. } => data.len(),
            Self::Zero { .. } | Self::Flush => 0,
            Self::CompareAndWrite(pair) => 2 * pair.len(),
        }
    }

    /// How many blocks of `block_size` bytes it is for; 0 for a flush.
    ///
    /// [`IoError::OutOfRange`] when these are not whole blocks.
    pub fn blocks(&self, block_size: u32) -> Result<u64, IoError> {
        let bytes = match self {
            Self::Read { into, .. } => into.len(),
            Self::Write { data, .. } => data.len(),
            Self::Zero { blocks, .. } => return Ok(*blocks),
            Self::Flush => 0,
            Self::CompareAndWrite(pair) => pair.len(),
        };
        let block_size = block_size as usize;
        if bytes.is_multiple_of(block_size) {
            Ok((bytes / block_size) as u64)
        } else {
            Err(IoError::OutOfRange)
        }
    }
}
