//! The places of a member's superblock: the first two mebibytes of its device, each for one copy.

use flashyard_runtime::{Buf, Data, Rt};

use super::assembly::NoRecord;
use super::error::ArrayError;
use super::record::{MEMBER_VERSION, Record, Uuid};
use super::types::NewMember;
use crate::superblock::{self, Found, Places, Raw, Reads, Unusable, WritablePlaces};
use crate::{Device, DeviceExt, IoError, Tag, pool};

/// Bytes that are read of a copy: no record is longer.
const COPY_BYTES: usize = 64 << 10;
/// Where the second copy is.
const SECOND: u64 = 1 << 20;
/// A copy is written in whole pieces of this size: no disk has larger sectors.
const PIECE: usize = 4096;

/// The start of a member.
pub(super) struct Start<'a>(pub(super) &'a dyn Device);

impl Places for Start<'_> {
    type Error = IoError;
    type Bytes = Buf;

    async fn read(&self, place: usize) -> Result<Reads<Buf>, IoError> {
        let buf = Buf::take(COPY_BYTES).ok_or(IoError::Busy)?;
        let read = match self.0.read(Tag::default(), self.lba(place), buf).await {
            Ok(Data::Zeroes(_)) | Err(IoError::OutOfRange) => Raw::Blank,
            Ok(Data::Buf(bytes)) => Raw::Bytes(bytes),
            Err(IoError::Read | IoError::Integrity) => Raw::Unreadable,
            Err(error) => return Err(error),
        };
        Ok(vec![read])
    }
}

impl WritablePlaces for Start<'_> {
    type Laid = Buf;

    fn lay_out(&self, bytes: &[u8]) -> Result<Buf, IoError> {
        let buf = Buf::take_zeroed(bytes.len().next_multiple_of(PIECE));
        let mut buf = buf.ok_or(IoError::Busy)?;
        buf[..bytes.len()].copy_from_slice(bytes);
        Ok(buf)
    }

    async fn write(&self, place: usize, laid: Buf) -> Result<(), IoError> {
        let tag = Tag::default();
        self.0.write(tag, self.lba(place), laid, false).await?;
        self.0.flush(tag).await
    }
}

impl Start<'_> {
    fn lba(&self, place: usize) -> u64 {
        place as u64 * SECOND / u64::from(self.0.info().block_size)
    }

    /// Removes both copies for good.
    pub(super) async fn erase(&self) -> Result<(), IoError> {
        let blocks = COPY_BYTES as u64 / u64::from(self.0.info().block_size);
        for place in [0, 1] {
            let tag = Tag::default();
            let lba = self.lba(place);
            self.0.write_zeroes(tag, lba, blocks, true).await?;
            self.0.flush(tag).await?;
        }
        Ok(())
    }
}

/// Reads what a device says of its array: the newest record and its place.
pub(super) async fn read(device: &dyn Device) -> Result<(Record, usize), NoRecord> {
    let found: Result<Found<Record>, IoError> = superblock::find(&Start(device)).await;
    let found = found.map_err(NoRecord::Unreadable)?;
    match found.newest() {
        Ok(newest) => Ok((newest.content, newest.place)),
        Err(Unusable::Absent) => Err(NoRecord::Absent),
        Err(Unusable::Unfinished(copies) | Unusable::Damaged(copies)) => {
            Err(NoRecord::Damaged(copies))
        }
        // The same place and magic as a pool, whose versions are lower.
        Err(Unusable::Newer(version)) if version < MEMBER_VERSION => Err(NoRecord::Pool),
        Err(Unusable::Newer(version)) => Err(NoRecord::Newer(version)),
    }
}

/// Writes a record over the copy at the other place than `newest`, then over that; gives the place
/// that counts now.
pub(super) async fn write(
    device: &dyn Device,
    record: &Record,
    newest: usize,
) -> Result<usize, IoError> {
    let start = Start(device);
    let prepared = superblock::prepare(&start, record)?;
    superblock::commit(&start, prepared, newest).await
}

/// Refuses a device that holds something.
pub(super) async fn occupied(new: &NewMember) -> Result<(), ArrayError> {
    let what = match read(&*new.device).await {
        Ok(_) => Some("a member of an array".to_owned()),
        Err(NoRecord::Absent) => None,
        Err(NoRecord::Unreadable(error)) => {
            let name = new.name.clone();
            return Err(ArrayError::Device(name, "reading the start of", error));
        }
        Err(why) => Some(match why {
            NoRecord::Pool => "a pool".to_owned(),
            why => format!("the remains of an array ({why})"),
        }),
    };
    let what = match what {
        Some(what) => Some(what),
        None => pool::occupant(&new.device)
            .await
            .map_err(|error| ArrayError::Device(new.name.clone(), "reading the start of", error))?,
    };
    match what {
        Some(what) => Err(ArrayError::Occupied(new.name.clone(), what)),
        None => Ok(()),
    }
}

/// An identity that no other has.
pub(super) fn new_id(rt: &Rt) -> Uuid {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&rt.random().to_le_bytes());
    id[8..].copy_from_slice(&rt.random().to_le_bytes());
    // A random UUID, RFC 9562 section 5.4.
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    id
}
