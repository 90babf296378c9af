//! What becomes of the chunks of a volume before they are stored, and back: compressed where that
//! saves enough, and summed. On the core of the pool.
//!
//! A chunk is compressed by itself, and stored as it is where less than an eighth is saved. Where a
//! volume is compressed, a chunk of zeroes takes no space.

use std::cell::RefCell;
use std::rc::Rc;

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

/// See the module.
pub(super) struct Coder {
    form: Form,
    codec: Option<Codec>,
    tools: Rc<Tools>,
}

impl Coder {
    /// Of a volume of this form.
    pub fn new(form: Form, tools: Rc<Tools>) -> Self {
        Self {
            form,
            codec: Codec::from_number(form.codec),
            tools,
        }
    }

    /// How the volume keeps its chunks.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Whether data are stored as hosts see them.
    pub fn is_plain(&self) -> bool {
        self.codec.is_none()
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
        let chunks = data.chunks_exact(self.chunk_bytes());
        if self.is_plain() {
            let sectors = self.form.chunk_sectors() as u8;
            stored.extend((first..).zip(chunks).map(|(chunk, bytes)| Stored {
                sectors,
                codec: 0,
                crc: chunk_sum(lineage, chunk, bytes),
            }));
            return Ok(data);
        }
        let mut all = Buf::take(data.len()).ok_or(IoError::Busy)?;
        let mut at = 0;
        for (chunk, bytes) in (first..).zip(chunks) {
            let one = self.encode_one(lineage, chunk, bytes, &mut all[at..])?;
            at += usize::from(one.sectors) * SECTOR;
            stored.push(one);
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
        into.copy_from_slice(from);
        Ok(Stored {
            sectors: (from.len() / SECTOR) as u8,
            codec,
            crc: chunk_sum(lineage, chunk, into),
        })
    }

    /// Decodes one chunk of what was `read`, into memory for a whole chunk. Bears any bytes.
    pub fn decode(&self, chunk: &Read, read: &[u8], into: &mut [u8]) -> Result<(), IoError> {
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
}
