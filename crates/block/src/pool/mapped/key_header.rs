//! The header with the key of an encrypted pool, which wraps the keys of its volumes; in the frame
//! of [`crate::superblock`], at two places of its device:
//!
//! | offset | bytes | holds |
//! | --- | --- | --- |
//! | 0 | 20 | the frame, with magic `FLSHPKEY` |
//! | 20 | 8 | generation |
//! | 28 | 16 | UUID of the pool |
//! | 44 | 4 | number of envelopes, 1 or 2 |
//! | 48 | 152 each | the key, in an envelope for each secret that opens it |
//!
//! What is done with secrets here takes a second where it is a passphrase: not on a core.

use std::fmt;

use flashyard_codec::cipher::Key;
use flashyard_keys::{KeyError, Secret, draw};
use flashyard_logstore::format::BLOCK;
use flashyard_runtime::Buf;

use super::layout::{KEY_HEADERS, Signpost};
use crate::copies::read_long;
use crate::envelopes::Envelopes;
use crate::pool::copies::Start;
use crate::pool::error::{PoolError, device_error};
use crate::superblock::{
    self, Content, Found, Newest, Places, Reader, Reads, Unusable, WritablePlaces, Writer,
};
use crate::{Device, DeviceExt, IoError, Tag};

/// What the key of an envelope belongs to, with the UUID.
const BELONGS_TO: &[u8] = b"flashyard pool ";

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHeader {
    generation: u64,
    uuid: [u8; 16],
    envelopes: Envelopes,
}

/// A header has no key.
#[derive(Debug, PartialEq, Eq)]
pub struct NoKey;

impl fmt::Display for NoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it has no key")
    }
}

impl Content for KeyHeader {
    type Contradiction = NoKey;
    const MAGIC: [u8; 8] = *b"FLSHPKEY";
    const VERSION: u32 = 1;
    const MAX_BYTES: usize = BLOCK;

    fn generation(&self) -> u64 {
        self.generation
    }

    fn write(&self, fields: &mut Writer) {
        fields.u64(self.generation);
        fields.bytes(&self.uuid);
        self.envelopes.write(fields);
    }

    fn read(fields: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            generation: fields.u64()?,
            uuid: fields.array()?,
            envelopes: Envelopes::read(fields)?,
        })
    }

    fn check(&self) -> Result<(), NoKey> {
        match self.envelopes.count() {
            0 => Err(NoKey),
            _ => Ok(()),
        }
    }
}

impl KeyHeader {
    /// Of a new pool, with a key by chance that `secret` opens.
    pub fn make(uuid: [u8; 16], secret: &Secret) -> Result<(Self, Key), KeyError> {
        let key = draw()?;
        let header = Self {
            generation: 1,
            uuid,
            envelopes: Envelopes::seal(&key, secret, &belongs_to(uuid))?,
        };
        Ok((header, key))
    }

    /// The header of the pool on a device; nothing if that is not encrypted. Writes nothing.
    pub async fn find(device: &dyn Device) -> Result<Option<Self>, PoolError> {
        let start = Start(device);
        let signposts: Found<Signpost> = superblock::find(&start).await?;
        let Ok(signpost) = signposts.newest() else {
            return Ok(None);
        };
        let found = find_newest(device, signpost.content.uuid).await?;
        Ok(found.map(|newest| newest.content))
    }

    /// Makes this the header of the pool on a device, durably. A cut at any write leaves the one
    /// before or this one. Its generation becomes higher than any that is there.
    pub async fn store(mut self, device: &dyn Device) -> Result<Self, PoolError> {
        let places = Header(device);
        let found: Found<Self> = superblock::find(&places).await?;
        let (highest, place) = found.highest();
        self.generation = highest.saturating_add(1);
        let prepared = superblock::prepare(&places, &self)?;
        superblock::commit(&places, prepared, place).await?;
        Ok(self)
    }

    /// The identity of its pool.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// How many secrets open it: two while the secret is changed.
    pub fn secrets(&self) -> usize {
        self.envelopes.count()
    }

    /// The key, and which of the envelopes the secret has opened.
    pub fn open(&self, secret: &Secret) -> Result<(Key, usize), KeyError> {
        self.envelopes.open(secret, &belongs_to(self.uuid))
    }

    /// The next header: `secret` opens it beside what opened this one at `place`.
    pub fn with_secret(&self, key: &Key, place: usize, secret: &Secret) -> Result<Self, KeyError> {
        let with = (secret, &belongs_to(self.uuid)[..]);
        let envelopes = self.envelopes.with_secret(key, place, with)?;
        Ok(Self {
            envelopes,
            ..self.clone()
        })
    }

    /// The next header: only the secret of the envelope at `place` opens it.
    #[must_use]
    pub fn only(&self, place: usize) -> Self {
        Self {
            envelopes: self.envelopes.only(place),
            ..self.clone()
        }
    }
}

fn belongs_to(uuid: [u8; 16]) -> Vec<u8> {
    [BELONGS_TO, &uuid].concat()
}

/// The two places of the header.
pub(super) struct Header<'a>(pub &'a dyn Device);

impl Places for Header<'_> {
    type Error = PoolError;
    type Bytes = Vec<u8>;

    async fn read(&self, place: usize) -> Result<Reads<Vec<u8>>, PoolError> {
        read_blocks(self.0, KEY_HEADERS[place], 1).await
    }
}

impl WritablePlaces for Header<'_> {
    type Laid = Buf;

    fn lay_out(&self, bytes: &[u8]) -> Result<Buf, PoolError> {
        // Whole, so that nothing of an envelope that was longer is left behind it.
        let buf = Buf::take_zeroed(BLOCK).ok_or(IoError::Busy);
        let mut buf = buf.map_err(device_error("laying out the header with the key"))?;
        buf[..bytes.len()].copy_from_slice(bytes);
        Ok(buf)
    }

    async fn write(&self, place: usize, laid: Buf) -> Result<(), PoolError> {
        write_blocks(self.0, KEY_HEADERS[place], laid).await?;
        flush(self.0).await
    }
}

/// What is at the two places of the header of the pool with this UUID; nothing if that is not
/// encrypted.
pub(super) async fn find_newest(
    device: &dyn Device,
    uuid: [u8; 16],
) -> Result<Option<Newest<KeyHeader>>, PoolError> {
    let found: Found<KeyHeader> = superblock::find(&Header(device)).await?;
    match found.newest() {
        // One of a pool that was here before.
        Ok(newest) if newest.content.uuid != uuid => Ok(None),
        Ok(newest) => Ok(Some(newest)),
        Err(Unusable::Absent) => Ok(None),
        Err(Unusable::Newer(version)) => Err(PoolError::Key(KeyError::Newer(version as u16))),
        Err(Unusable::Unfinished(copies) | Unusable::Damaged(copies)) => {
            Err(PoolError::KeysDamaged(copies))
        }
    }
}

/// Reads blocks of 4 KiB, from each device that keeps them.
pub(super) async fn read_blocks(
    device: &dyn Device,
    first: u64,
    blocks: usize,
) -> Result<Reads<Vec<u8>>, PoolError> {
    let read = read_long(device, lba(device, first), blocks * BLOCK).await;
    read.map_err(device_error("reading the pool's keys"))
}

/// Writes blocks of 4 KiB.
pub(super) async fn write_blocks(
    device: &dyn Device,
    first: u64,
    data: Buf,
) -> Result<(), PoolError> {
    let lba = lba(device, first);
    let written = device.write(Tag::default(), lba, data, false).await;
    written.map_err(device_error("writing the pool's keys"))
}

/// Makes what was written durable.
pub(super) async fn flush(device: &dyn Device) -> Result<(), PoolError> {
    let flushed = device.flush(Tag::default()).await;
    flushed.map_err(device_error("writing the pool's keys"))
}

fn lba(device: &dyn Device, block: u64) -> u64 {
    block * (BLOCK as u64 / u64::from(device.info().block_size))
}
