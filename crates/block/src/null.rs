//! A device that keeps nothing: reads give zeroes, writes are dropped. Measures everything but the
//! medium.

use flashyard_runtime::Data;

use crate::open::{OpenError, geometry};
use crate::range::{locate, locate_io};
use crate::{Device, Done, Info, Io, IoError, IoFuture, LentIo, Limits, Tag, Way};

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
}

impl Device for NullDevice {
    fn info(&self) -> Info {
        self.info
    }

    fn submit(&self, _: Tag, io: Io) -> IoFuture {
        let there = locate_io(&self.info, &io);
        IoFuture::ready(there.and_then(|_| match io {
            Io::Read { into, .. } => Ok(Data::Zeroes(into.len()).into()),
            Io::CompareAndWrite(pair) => {
                pair.check(&Data::Zeroes(pair.len()))?;
                Ok(Done::EMPTY)
            }
            Io::Write { .. } | Io::Zero { .. } | Io::Flush => Ok(Done::EMPTY),
        }))
    }

    fn takes_lent(&self) -> Option<u32> {
        Some(1)
    }

    fn submit_lent(&self, _: Tag, io: LentIo) -> IoFuture {
        let there = locate(&self.info, io.lba, io.memory.len());
        IoFuture::ended(there.and_then(|_| match io.way {
            Way::Write { .. } => Ok(()),
            Way::Read => {
                let zeroed = io.memory.zero(0, io.memory.len());
                zeroed.then_some(()).ok_or(IoError::Internal)
            }
        }))
    }

    fn is_blank(&self) -> bool {
        true
    }
}
