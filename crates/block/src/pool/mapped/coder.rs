//! What becomes of the chunks of a volume before they are stored, and back: compressed where that
//! saves enough, then encrypted, then summed. On the core of the pool.
//!
//! A chunk is compressed by itself, and stored as it is where less than an eighth is saved. Where a
//! volume is compressed, a chunk of zeroes takes no space.
//!
//! What is stored of a chunk is encrypted in units of 4 KiB, numbered as hosts number the blocks of
//! the volume; the last unit of a compressed chunk is shorter. So what is encrypted does not depend
//! on where it lies: garbage collection moves it as it is. Each volume has a key of its own, which
//! its snapshots share. A clone reads what it inherits with the key of the volume that has written
//! it, for the store says of each chunk whose data it is.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use flashyard_codec::cipher::{Cipher, CipherError};
use flashyard_codec::compress::{Codec, Compressor, Decompressor, is_zero};
use flashyard_logstore::format::{SECTOR, chunk_sum};
use flashyard_logstore::{Form, Lineage, Read, Stored};
use flashyard_runtime::{Buf, Shared};

use crate::IoError;

/// Memory that compression needs; a pool has one.
#[derive(Default)]
pub(super) struct Tools {
    compressor: RefCell<Compressor>,
    decompressor: RefCell<Decompressor>,
}

/// How what is stored of a volume is protected.
pub(super) enum Guard {
    /// Not at all.
    Open,
    /// By this.
    Cipher(Box<RefCell<Cipher>>),
    /// By a key that is not here.
    Missing,
}

impl Guard {
    /// By this cipher, if it is here.
    pub fn of(cipher: Option<Cipher>) -> Self {
        match cipher {
            Some(cipher) => Self::Cipher(Box::new(RefCell::new(cipher))),
            None => Self::Missing,
        }
    }
}

/// See the module.
pub(super) struct Coder {
    form: Form,
    codec: Option<Codec>,
    guard: Guard,
    tools: Rc<Tools>,
}

impl Coder {
    /// Of a volume of this form.
    pub fn new(form: Form, guard: Guard, tools: Rc<Tools>) -> Self {
        Self {
            form,
            codec: Codec::from_number(form.codec),
            guard,
            tools,
        }
    }

    /// How the volume keeps its chunks.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Whether data are stored as hosts see them.
    pub fn is_plain(&self) -> bool {
        self.codec.is_none() && !self.is_encrypted()
    }

    /// Whether what is stored is encrypted.
    pub fn is_encrypted(&self) -> bool {
        !matches!(self.guard, Guard::Open)
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> usize {
        1 << self.form.chunk_shift
    }

    /// Encodes whole chunks from `first` on. Gives their stored bytes, one after another, and fills
    /// in `stored` what each takes.
    pub fn encode(
        &self,
        lineage: Lineage,
        first: u64,
        data: Shared,
        stored: &mut Vec<Stored>,
    ) -> Result<Shared, IoError> {
        stored.clear();
        if self.is_plain() {
            let chunks = data.chunks_exact(self.chunk_bytes());
            let whole = |(chunk, bytes)| self.whole(lineage, chunk, bytes);
            stored.extend((first..).zip(chunks).map(whole));
            return Ok(data);
        }
        if self.codec.is_none() {
            return self.encrypt_whole(lineage, first, data, stored);
        }
        let mut all = Buf::take(data.len()).ok_or(IoError::Busy)?;
        let mut at = 0;
        for (chunk, bytes) in (first..).zip(data.chunks_exact(self.chunk_bytes())) {
            let one = self.encode_one(lineage, chunk, bytes, &mut all[at..])?;
            at += usize::from(one.sectors) * SECTOR;
            stored.push(one);
        }
        Ok(all.into())
    }

    /// A chunk that is not compressed, of these stored bytes.
    fn whole(&self, lineage: Lineage, chunk: u64, bytes: &[u8]) -> Stored {
        Stored {
            sectors: self.form.chunk_sectors() as u8,
            codec: 0,
            crc: chunk_sum(lineage, chunk, bytes),
        }
    }

    /// Encrypts chunks that are not compressed: where they are if no one else holds them, else on
    /// the way to another buffer.
    fn encrypt_whole(
        &self,
        lineage: Lineage,
        first: u64,
        data: Shared,
        stored: &mut Vec<Stored>,
    ) -> Result<Shared, IoError> {
        let (mut all, plain) = match data.try_into_buf() {
            Ok(all) => (all, None),
            Err(data) => (Buf::take(data.len()).ok_or(IoError::Busy)?, Some(data)),
        };
        let chunks = all.chunks_exact_mut(self.chunk_bytes());
        for ((number, chunk), place) in (0..).zip(first..).zip(chunks) {
            let plain = plain.as_ref().map(|plain| {
                let at: usize = number * self.chunk_bytes();
                &plain[at..at + self.chunk_bytes()]
            });
            self.encrypt(chunk, plain, place)?;
            stored.push(self.whole(lineage, chunk, place));
        }
        Ok(all.into())
    }

    fn encode_one(
        &self,
        lineage: Lineage,
        chunk: u64,
        plain: &[u8],
        into: &mut [u8],
    ) -> Result<Stored, IoError> {
        let mut compressor = self.tools.compressor.borrow_mut();
        let packed = match self.codec {
            Some(_) if is_zero(plain) => return Ok(Stored::ZERO),
            Some(codec) => compressor.compress(codec, plain),
            None => None,
        };
        let codec = if packed.is_some() { self.form.codec } else { 0 };
        let from = packed.unwrap_or(plain);
        let into = into.get_mut(..from.len()).ok_or(IoError::Internal)?;
        match self.is_encrypted() {
            true => self.encrypt(chunk, Some(from), into)?,
            false => into.copy_from_slice(from),
        }
        Ok(Stored {
            sectors: (from.len() / SECTOR) as u8,
            codec,
            crc: chunk_sum(lineage, chunk, into),
        })
    }

    /// Decodes one chunk of what was `read`, into memory for a whole chunk. Bears any bytes.
    pub fn decode(&self, chunk: &Read, read: &mut [u8], into: &mut [u8]) -> Result<(), IoError> {
        self.decrypt(chunk, read)?;
        let stored = chunk.of(read).ok_or(IoError::Internal)?;
        match Codec::from_number(chunk.codec) {
            Some(codec) => {
                let mut decompressor = self.tools.decompressor.borrow_mut();
                let done = decompressor.decompress(codec, stored, into);
                done.map_err(|_| IoError::Read)
            }
            None if stored.len() == into.len() => {
                into.copy_from_slice(stored);
                Ok(())
            }
            None => Err(IoError::Read),
        }
    }

    /// Decrypts one chunk of what was `read`, where it is.
    pub fn decrypt(&self, chunk: &Read, read: &mut [u8]) -> Result<(), IoError> {
        match &self.guard {
            Guard::Open => Ok(()),
            Guard::Missing => Err(IoError::Read),
            Guard::Cipher(cipher) => {
                let stored = read.get_mut(bytes_of(chunk)).ok_or(IoError::Internal)?;
                let done = cipher
                    .borrow_mut()
                    .decrypt(self.first_unit(chunk.chunk), stored);
                done.map_err(|_| IoError::Internal)
            }
        }
    }

    /// Encrypts what is stored of a chunk: where it is, or `from` somewhere else.
    fn encrypt(&self, chunk: u64, from: Option<&[u8]>, into: &mut [u8]) -> Result<(), IoError> {
        let Guard::Cipher(cipher) = &self.guard else {
            return Err(IoError::Write);
        };
        let (mut cipher, first) = (cipher.borrow_mut(), self.first_unit(chunk));
        let done: Result<(), CipherError> = match from {
            Some(plain) => cipher.encrypt_into(first, plain, into),
            None => cipher.encrypt(first, into),
        };
        done.map_err(|_| IoError::Internal)
    }

    /// The number of the first unit of a chunk: that of its first block.
    fn first_unit(&self, chunk: u64) -> u128 {
        u128::from(chunk) * u128::from(self.form.chunk_blocks())
    }
}

/// Where a chunk is in what was read.
fn bytes_of(chunk: &Read) -> Range<usize> {
    let from = chunk.first as usize * SECTOR;
    from..from + chunk.sectors as usize * SECTOR
}
