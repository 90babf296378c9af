//! The places of a pool's metadata: the first two mebibytes of its device, each for one copy. They
//! are the same for every kind of pool, so that a program that does not know a kind refuses it.

use flashyard_runtime::Buf;

use super::error::{PoolError, device_error};
use crate::copies::read_long;
use crate::foreign::{LOOKED_AT, recognise};
use crate::superblock::{Content, Decoded, Found, Places, Raw, Reads, Unusable, WritablePlaces};
use crate::{Device, DeviceExt, IoError, Tag};

/// Bytes reserved for each of the two copies of the metadata.
pub(super) const COPY_BYTES: u64 = 1 << 20;
/// Metadata is written in whole pieces of this size, in bytes: no disk has larger sectors.
const PIECE: usize = 4096;

/// The start of a device.
pub(super) struct Start<'a>(pub(super) &'a dyn Device);

impl Places for Start<'_> {
    type Error = PoolError;
    type Bytes = Vec<u8>;

    async fn read(&self, place: usize) -> Result<Reads<Vec<u8>>, PoolError> {
        let read = read_long(self.0, self.lba(place), COPY_BYTES as usize).await;
        read.map_err(device_error("reading the pool's metadata"))
    }
}

impl WritablePlaces for Start<'_> {
    type Laid = Buf;

    fn lay_out(&self, bytes: &[u8]) -> Result<Buf, PoolError> {
        let buf = Buf::take_zeroed(bytes.len().next_multiple_of(PIECE)).ok_or(IoError::Busy);
        let mut buf = buf.map_err(device_error("laying out the pool's metadata"))?;
        buf[..bytes.len()].copy_from_slice(bytes);
        Ok(buf)
    }

    async fn write(&self, place: usize, laid: Buf) -> Result<(), PoolError> {
        let failed = device_error("writing the pool's metadata");
        let written = self.0.write(Tag::default(), self.lba(place), laid, false);
        written.await.map_err(&failed)?;
        self.0.flush(Tag::default()).await.map_err(&failed)
    }
}

impl Start<'_> {
    /// Refuses what a new pool would destroy, where `found` is.
    pub(super) async fn check_free<C: Content>(&self, found: &Found<C>) -> Result<(), PoolError> {
        if found.copies.iter().any(|copy| *copy != Decoded::Absent) {
            return Err(PoolError::HoldsPool);
        }
        let occupant = |read: &Raw<Vec<u8>>| match read {
            Raw::Bytes(bytes) => recognise(&bytes[..LOOKED_AT]),
            Raw::Blank | Raw::Unreadable => None,
        };
        match self.read(0).await?.iter().find_map(occupant) {
            Some(occupant) => Err(PoolError::Occupied(occupant.to_owned())),
            None => Ok(()),
        }
    }

    /// Removes both copies for good.
    pub(super) async fn erase(&self) -> Result<(), PoolError> {
        let failed = device_error("erasing the metadata");
        let blocks = COPY_BYTES / u64::from(self.0.info().block_size);
        for place in [0, 1] {
            let lba = self.lba(place);
            let erased = self.0.write_zeroes(Tag::default(), lba, blocks, true).await;
            erased.map_err(&failed)?;
            self.0.flush(Tag::default()).await.map_err(&failed)?;
        }
        Ok(())
    }

    fn lba(&self, place: usize) -> u64 {
        place as u64 * COPY_BYTES / u64::from(self.0.info().block_size)
    }
}

/// The generation after `generation`.
pub(super) fn after(generation: u64) -> Result<u64, PoolError> {
    let exhausted = || {
        PoolError::Geometry("the pool's generation cannot grow any more: make a new pool".into())
    };
    generation.checked_add(1).ok_or_else(exhausted)
}

impl From<Unusable> for PoolError {
    fn from(why: Unusable) -> Self {
        match why {
            Unusable::Absent => Self::NotAPool,
            Unusable::Unfinished(copies) | Unusable::Damaged(copies) => Self::Damaged(copies),
            Unusable::Newer(version) => Self::Newer { version },
        }
    }
}

const _: () = assert!(LOOKED_AT < COPY_BYTES as usize);
