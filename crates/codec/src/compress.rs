//! Compression of chunks, and the form in which they are stored: whole sectors of 512 bytes, of
//! which the first two bytes say how many at the end are padding.
//!
//! A chunk is stored compressed only where that saves an eighth of it, and a sector at least:
//! otherwise [`Compressor::compress`] gives nothing, and the caller stores it as it is. That chunks
//! of zeroes need no storage at all is the caller's to find out before, with [`is_zero`].

use std::error::Error;
use std::fmt;

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

/// What stored chunks are a multiple of, in bytes.
pub const SECTOR: usize = 512;
/// Bytes of a chunk at most.
pub const MOST_CHUNK: usize = 1 << 20;
/// Bytes of the head of a stored chunk.
const HEAD: usize = 2;
/// Chunks shorter than this are compressed without a look at parts of them.
const LEAST_PROBED: usize = 8 << 10;
/// So many parts of a chunk are looked at, each so long.
const PROBES: usize = 4;
const PROBE: usize = 512;
/// Of 2 KiB of chance 256 values of bytes are seen, of text 100, of base64 64.
const FEW_VALUES: u32 = 192;
/// Levels above 1 gain 5 % and cost half of the speed (docs/performance.md).
const ZSTD_LEVEL: i32 = 1;

/// How a chunk is compressed. The numbers are those on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Codec {
    /// LZ4 in the block format: fast in both directions.
    #[default]
    Lz4,
    /// Zstandard, level 1: half as fast, and a third smaller.
    Zstd,
}

impl Codec {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::Lz4, Self::Zstd];

    /// Its number on disk; 0 is none of them.
    pub fn number(self) -> u8 {
        match self {
            Self::Lz4 => 1,
            Self::Zstd => 2,
        }
    }

    /// The codec with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.number() == number)
    }

    /// Its name in files and commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A stored chunk is not what was compressed with this codec, or not as long as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the compressed data are damaged")
    }
}

impl Error for Corrupt {}

/// Whether all bytes are zero.
pub fn is_zero(bytes: &[u8]) -> bool {
    let mut blocks = bytes.chunks_exact(SECTOR);
    let zero = |block: &[u8]| block.iter().fold(0, |all, byte| all | byte) == 0;
    blocks.all(zero) && zero(bytes.chunks_exact(SECTOR).remainder())
}

/// Compresses; has memory that is used again, so a core keeps one.
pub struct Compressor {
    table: CompressTable,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    stored: Vec<u8>,
}

impl Default for Compressor {
    fn default() -> Self {
        Self::new()
    }
}

impl Compressor {
    /// One that has not allocated yet what depends on the codec and the size of chunks.
    pub fn new() -> Self {
        Self {
            table: CompressTable::small(),
            zstd: None,
            stored: Vec::new(),
        }
    }

    /// The stored form of `plain`, whole sectors, until the next call. Nothing where less than an
    /// eighth is saved, and for chunks longer than [`MOST_CHUNK`].
    pub fn compress(&mut self, codec: Codec, plain: &[u8]) -> Option<&[u8]> {
        let most = most_stored(plain.len())?;
        if plain.len() >= LEAST_PROBED && !self.is_worth_it(codec, plain) {
            return None;
        }
        let used = match codec {
            Codec::Lz4 => self.lz4(plain)?,
            Codec::Zstd => self.zstd(plain, most)?,
        };
        let len = used.next_multiple_of(SECTOR);
        if len > most {
            return None;
        }
        let stored = self.stored.get_mut(..len)?;
        let padding = (len - used) as u16;
        stored[..HEAD].copy_from_slice(&padding.to_le_bytes());
        stored[used..].fill(0);
        Some(stored)
    }

    /// Whether one of some short parts of a chunk can be compressed. To find out that nothing can
    /// takes less than half as long then, and a tenth or less for long chunks.
    fn is_worth_it(&mut self, codec: Codec, plain: &[u8]) -> bool {
        let parts = plain
            .chunks(plain.len() / PROBES)
            .map(|part| &part[..PROBE.min(part.len())]);
        let few_values = codec == Codec::Zstd && values(parts.clone()) < FEW_VALUES;
        few_values
            || parts.into_iter().any(|part| {
                let used = self.lz4(part);
                used.is_some_and(|used| used < part.len() * 15 / 16)
            })
    }

    /// Bytes used, with the head.
    fn lz4(&mut self, plain: &[u8]) -> Option<usize> {
        let room = self.room(HEAD + get_maximum_output_size(plain.len()));
        // Only too little room can fail.
        let len = compress_into_with_table(plain, &mut self.stored[HEAD..room], &mut self.table);
        Some(HEAD + len.ok()?)
    }

    /// Bytes used, with the head.
    fn zstd(&mut self, plain: &[u8], most: usize) -> Option<usize> {
        self.room(most);
        if self.zstd.is_none() {
            self.zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
        }
        let zstd = self.zstd.as_mut()?;
        // It fails where the result has no room, which is where it saves too little.
        let len = zstd.compress_to_buffer(plain, &mut self.stored[HEAD..most]);
        Some(HEAD + len.ok()?)
    }

    /// Has so much memory for the result.
    fn room(&mut self, len: usize) -> usize {
        if self.stored.len() < len {
            self.stored.resize(len, 0);
        }
        len
    }
}

/// Bytes that a chunk of `len` bytes may take to be worth it; nothing when that is no sector.
fn most_stored(len: usize) -> Option<usize> {
    let most = len.checked_sub((len / 8).max(SECTOR))? / SECTOR * SECTOR;
    (most > 0 && len <= MOST_CHUNK).then_some(most)
}

/// How many values the bytes of these parts have: few can be coded in less than eight bits each.
fn values<'a>(parts: impl Iterator<Item = &'a [u8]>) -> u32 {
    let mut seen = [0_u64; 4];
    for byte in parts.flatten() {
        seen[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }
    seen.iter().map(|word| word.count_ones()).sum()
}

/// Takes stored chunks apart; has memory that is used again, so a core keeps one.
#[derive(Default)]
pub struct Decompressor {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Decompressor {
    /// One that has not allocated yet what depends on the codec.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fills `plain`, all of it, with what `stored` was made of. Bears any bytes; after an error
    /// the content of `plain` is not defined.
    pub fn decompress(
        &mut self,
        codec: Codec,
        stored: &[u8],
        plain: &mut [u8],
    ) -> Result<(), Corrupt> {
        let (head, rest) = stored.split_first_chunk::<HEAD>().ok_or(Corrupt)?;
        let padding = usize::from(u16::from_le_bytes(*head));
        let used = rest.len().checked_sub(padding).ok_or(Corrupt)?;
        if padding >= SECTOR {
            return Err(Corrupt);
        }
        let (used, len) = (&rest[..used], plain.len());
        let filled = match codec {
            Codec::Lz4 => lz4_flex::block::decompress_into(used, plain).map_err(|_| Corrupt)?,
            Codec::Zstd => {
                if self.zstd.is_none() {
                    self.zstd = zstd::bulk::Decompressor::new().ok();
                }
                let zstd = self.zstd.as_mut().ok_or(Corrupt)?;
                let filled = zstd.decompress_to_buffer(used, plain);
                filled.map_err(|_| Corrupt)?
            }
        };
        match filled == len {
            true => Ok(()),
            false => Err(Corrupt),
        }
    }
}
