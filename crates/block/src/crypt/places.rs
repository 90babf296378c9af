//! The two places of the header, in the first mebibyte of the device, half a mebibyte apart.

use flashyard_runtime::Buf;

use super::{CryptError, DATA_START, Header};
use crate::copies::read_long;
use crate::foreign::{LOOKED_AT, recognise};
use crate::superblock::{self, Content, Found, Places, Raw, Reads, WritablePlaces};
use crate::{Device, DeviceExt, IoError, Tag};

/// Bytes from one copy to the other.
const APART: u64 = DATA_START / 2;

/// The start of a device.
pub(super) struct Start<'a>(pub(super) &'a dyn Device);

fn failed(action: &'static str) -> impl Fn(IoError) -> CryptError {
    move |error| CryptError::Device { action, error }
}

impl Start<'_> {
    fn lba(&self, place: usize) -> u64 {
        place as u64 * APART / u64::from(self.0.info().block_size)
    }

    async fn bytes(&self, place: usize, len: usize) -> Result<Reads<Vec<u8>>, CryptError> {
        let read = read_long(self.0, self.lba(place), len).await;
        read.map_err(failed("reading the header"))
    }
}

impl Places for Start<'_> {
    type Error = CryptError;
    type Bytes = Vec<u8>;

    async fn read(&self, place: usize) -> Result<Reads<Vec<u8>>, CryptError> {
        self.bytes(place, Header::MAX_BYTES).await
    }
}

impl WritablePlaces for Start<'_> {
    type Laid = Buf;

    fn lay_out(&self, bytes: &[u8]) -> Result<Buf, CryptError> {
        // Whole, so that nothing of an envelope that was longer is left behind it.
        let buf = Buf::take_zeroed(Header::MAX_BYTES).ok_or(IoError::Busy);
        let mut buf = buf.map_err(failed("laying out the header"))?;
        buf[..bytes.len()].copy_from_slice(bytes);
        Ok(buf)
    }

    async fn write(&self, place: usize, laid: Buf) -> Result<(), CryptError> {
        let failed = failed("writing the header");
        let written = self.0.write(Tag::default(), self.lba(place), laid, false);
        written.await.map_err(&failed)?;
        self.0.flush(Tag::default()).await.map_err(&failed)
    }
}

/// The header of a device. What is not the same everywhere is put right, unless nothing can be
/// written: a change was cut off, or a member of a mirror keeps something else.
pub async fn find(device: &dyn Device) -> Result<Header, CryptError> {
    let start = Start(device);
    let newest = superblock::find::<Header, _>(&start).await?.newest()?;
    newest.content.check_fits(&device.info())?;
    if !device.info().read_only {
        superblock::repair(&start, &newest).await?;
    }
    Ok(newest.content)
}

/// Refuses a device that holds something that is known. What is left of a header is refused, too.
pub async fn look_for_room(device: &dyn Device) -> Result<(), CryptError> {
    for place in [0, 1] {
        for read in Start(device).bytes(place, LOOKED_AT).await? {
            if let Raw::Bytes(bytes) = read
                && let Some(what) = recognise(&bytes)
            {
                return Err(CryptError::Occupied(what));
            }
        }
    }
    Ok(())
}

/// Makes a header that of the device, durably. A cut at any write leaves the one before or this
/// one. Its generation becomes higher than any that is there.
pub async fn store(device: &dyn Device, header: Header) -> Result<Header, CryptError> {
    let start = Start(device);
    let found: Found<Header> = superblock::find(&start).await?;
    let (highest, place) = found.highest();
    let header = header.after(highest);
    let prepared = superblock::prepare(&start, &header)?;
    superblock::commit(&start, prepared, place).await?;
    Ok(header)
}

/// Forgets the key: both copies of the header are overwritten. What the device holds cannot be read
/// any more by anybody who has no copy of the header.
pub async fn erase(device: &dyn Device) -> Result<(), CryptError> {
    let start = Start(device);
    for place in [0, 1] {
        let zeroes = start.lay_out(&[])?;
        start.write(place, zeroes).await?;
    }
    Ok(())
}
