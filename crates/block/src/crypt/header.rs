//! The header of an encrypted device, in the frame of [`crate::superblock`], little-endian:
//!
//! | offset | bytes | holds |
//! | --- | --- | --- |
//! | 0 | 20 | the frame, with magic `FLSHCRPT` |
//! | 20 | 4 | block size in bytes |
//! | 24 | 8 | generation |
//! | 32 | 16 | UUID of the encrypted device |
//! | 48 | 8 | number of blocks of data when it was made |
//! | 56 | 4 | number of envelopes, 1 or 2 |
//! | 60 | 152 each | the key, in an envelope for each secret that opens it |
//!
//! What is done with secrets here takes a second where it is a passphrase: not on a core.

use std::fmt;

use flashyard_codec::cipher::Key;
use flashyard_keys::{KeyError, Secret, draw};

use super::{CryptError, DATA_START};
use crate::Info;
use crate::envelopes::Envelopes;
use crate::superblock::{Content, Reader, Writer};

/// What the key of an envelope belongs to, with the UUID.
const BELONGS_TO: &[u8] = b"flashyard crypt device ";

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    block_size: u32,
    generation: u64,
    uuid: [u8; 16],
    blocks: u64,
    envelopes: Envelopes,
}

/// What cannot be of one header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// Blocks of this many bytes cannot be encrypted.
    BlockSize(u32),
    /// It has no envelope.
    NoKey,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BlockSize(bytes) => write!(f, "it says that blocks have {bytes} bytes"),
            Self::NoKey => f.write_str("it has no key"),
        }
    }
}

impl Content for Header {
    type Contradiction = Contradiction;
    const MAGIC: [u8; 8] = *b"FLSHCRPT";
    const VERSION: u32 = 1;
    const MAX_BYTES: usize = 4096;

    fn generation(&self) -> u64 {
        self.generation
    }

    fn write(&self, fields: &mut Writer) {
        fields.u32(self.block_size);
        fields.u64(self.generation);
        fields.bytes(&self.uuid);
        fields.u64(self.blocks);
        self.envelopes.write(fields);
    }

    fn read(fields: &mut Reader<'_>) -> Option<Self> {
        let block_size = fields.u32()?;
        let generation = fields.u64()?;
        let uuid = fields.array()?;
        let blocks = fields.u64()?;
        let envelopes = Envelopes::read(fields)?;
        Some(Self {
            block_size,
            generation,
            uuid,
            blocks,
            envelopes,
        })
    }

    fn check(&self) -> Result<(), Contradiction> {
        if ![512, 4096].contains(&self.block_size) {
            return Err(Contradiction::BlockSize(self.block_size));
        }
        match self.envelopes.count() {
            0 => Err(Contradiction::NoKey),
            _ => Ok(()),
        }
    }
}

impl Header {
    /// Of a new encrypted device before a device with this `info`, with a key by chance that
    /// `secret` opens.
    pub fn make(info: &Info, uuid: [u8; 16], secret: &Secret) -> Result<(Self, Key), CryptError> {
        let bytes = info.blocks.saturating_mul(u64::from(info.block_size));
        if bytes <= DATA_START {
            return Err(CryptError::TooSmall(bytes));
        }
        let key = draw()?;
        let header = Self {
            block_size: info.block_size,
            generation: 1,
            uuid,
            blocks: info.blocks - DATA_START / u64::from(info.block_size),
            envelopes: Envelopes::seal(&key, secret, &belongs_to(uuid))?,
        };
        Ok((header, key))
    }

    /// Which device it is.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Grows with every change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How many secrets open it: two while the secret is changed.
    pub fn secrets(&self) -> usize {
        self.envelopes.count()
    }

    /// Bytes of data that it had when it was made.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block_size))
    }

    /// Refuses a device with other blocks, or fewer than it was made with.
    pub fn check_fits(&self, info: &Info) -> Result<(), CryptError> {
        if info.block_size != self.block_size {
            return Err(CryptError::Geometry(format!(
                "it was encrypted in blocks of {} bytes, and the device has blocks of {}",
                self.block_size, info.block_size
            )));
        }
        let before = DATA_START / u64::from(self.block_size);
        match info.blocks.checked_sub(before) {
            Some(blocks) if blocks >= self.blocks => Ok(()),
            blocks => Err(CryptError::Geometry(format!(
                "it had {} blocks when it was made, and the device has room for {}: it was cut short, or is another one",
                self.blocks,
                blocks.unwrap_or(0)
            ))),
        }
    }

    /// The key, and which of the envelopes the secret has opened.
    pub fn open(&self, secret: &Secret) -> Result<(Key, usize), KeyError> {
        self.envelopes.open(secret, &belongs_to(self.uuid))
    }

    /// The next header: `secret` opens it beside what opened this one at `place`.
    pub fn with_secret(
        &self,
        key: &Key,
        place: usize,
        secret: &Secret,
    ) -> Result<Self, CryptError> {
        let with = (secret, &belongs_to(self.uuid)[..]);
        let envelopes = self.envelopes.with_secret(key, place, with)?;
        Ok(self.next(envelopes))
    }

    /// The next header: only the secret of the envelope at `place` opens it.
    #[must_use]
    pub fn only(&self, place: usize) -> Self {
        self.next(self.envelopes.only(place))
    }

    fn next(&self, envelopes: Envelopes) -> Self {
        Self {
            generation: self.generation.saturating_add(1),
            envelopes,
            ..self.clone()
        }
    }

    /// The same, to be written after one with that generation.
    #[must_use]
    pub fn after(mut self, generation: u64) -> Self {
        self.generation = generation.saturating_add(1);
        self
    }
}

fn belongs_to(uuid: [u8; 16]) -> Vec<u8> {
    [BELONGS_TO, &uuid].concat()
}
