//! The frame of a copy, little-endian:
//!
//! | offset | bytes | holds |
//! | --- | --- | --- |
//! | 0 | 8 | magic: what this is |
//! | 8 | 4 | version of the layout of the content |
//! | 12 | 4 | length of all of it |
//! | 16 | 4 | CRC32C of all of it, these four bytes taken as zero |
//! | 20 | | the content, at least 44 bytes |
//!
//! It is the same in every version of every content.

use std::fmt;
use std::ops::Range;

use flashyard_checksum::Crc32c;

use super::fields::{Reader, Writer};

const LENGTH: Range<usize> = 12..16;
const CHECKSUM: Range<usize> = 16..20;
/// Bytes of a copy at least.
const LEAST: usize = 64;

/// What is kept twice. Its encoding is at least 44 bytes long.
pub trait Content: Clone + PartialEq {
    /// Why fields cannot belong together.
    type Contradiction: fmt::Display;
    /// How a copy begins.
    const MAGIC: [u8; 8];
    /// The version that is written where nothing needs a later one, and the first that is read.
    const VERSION: u32;
    /// The last version that is read.
    const NEWEST: u32 = Self::VERSION;
    /// Bytes of a copy at most, with the frame.
    const MAX_BYTES: usize;

    /// Grows with every change.
    fn generation(&self) -> u64;

    /// The version that this is written with.
    fn version(&self) -> u32 {
        Self::VERSION
    }

    /// Writes the fields behind the frame.
    fn write(&self, fields: &mut Writer);

    /// Reads the fields; nothing when their bounds or lengths are impossible.
    fn read(fields: &mut Reader<'_>) -> Option<Self>;

    /// Whether the fields agree with each other; or what does not.
    fn check(&self) -> Result<(), Self::Contradiction>;
}

/// What the bytes at the place of a copy turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded<C> {
    /// There never was a copy.
    Absent,
    /// There was one, and it is not what was written: why.
    Damaged(String),
    /// Whole, but of a later version of its layout.
    Newer(u32),
    /// Whole and consistent.
    Valid(C),
}

impl<C: Content> Decoded<C> {
    /// The generation of a valid copy.
    pub fn generation(&self) -> Option<u64> {
        match self {
            Self::Valid(content) => Some(content.generation()),
            _ => None,
        }
    }
}

impl<C: Content> fmt::Display for Decoded<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("there is none"),
            Self::Damaged(why) => f.write_str(why),
            Self::Newer(version) => write!(f, "written by a later program, version {version}"),
            Self::Valid(content) => write!(f, "whole, generation {}", content.generation()),
        }
    }
}

/// The bytes of a copy, at most [`Content::MAX_BYTES`].
pub fn encode<C: Content>(content: &C) -> Vec<u8> {
    let mut frame = Vec::with_capacity(LEAST);
    frame.extend_from_slice(&C::MAGIC);
    frame.extend_from_slice(&content.version().to_le_bytes());
    frame.resize(CHECKSUM.end, 0);
    let mut fields = Writer::after(frame);
    content.write(&mut fields);
    let mut bytes = fields.finish();
    assert!(
        (LEAST..=C::MAX_BYTES).contains(&bytes.len()),
        "the bounds on lists keep a copy within its place"
    );
    let length = bytes.len() as u32;
    bytes[LENGTH].copy_from_slice(&length.to_le_bytes());
    seal(&mut bytes);
    bytes
}

/// Gives the bytes of a copy the checksum that is right for them, whatever they are.
///
/// # Panics
/// When there is no room for a checksum.
pub fn seal(bytes: &mut [u8]) {
    let checksum = checksum(bytes);
    bytes[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
}

/// What the bytes at the place of a copy are. Behind the copy there may be anything.
pub fn decode<C: Content>(bytes: &[u8]) -> Decoded<C> {
    let damaged = |what: &str| Decoded::Damaged(what.into());
    let Some(frame) = bytes.strip_prefix(&C::MAGIC) else {
        return Decoded::Absent;
    };
    let mut frame = Reader::new(frame);
    let (Some(version), Some(length), Some(expected)) = (frame.u32(), frame.u32(), frame.u32())
    else {
        return damaged("it is cut short");
    };
    let whole = bytes.get(..length as usize);
    let Some(bytes) = whole.filter(|bytes| bytes.len() >= LEAST) else {
        return damaged("its length is impossible");
    };
    if checksum(bytes) != expected {
        return damaged("its checksum is wrong");
    }
    if !(C::VERSION..=C::NEWEST).contains(&version) {
        return Decoded::Newer(version);
    }
    let mut fields = Reader::new(&bytes[CHECKSUM.end..]);
    let content = C::read(&mut fields).filter(|_| fields.is_at_end());
    let Some(content) = content else {
        return damaged("its lists do not fit its length");
    };
    if content.version() != version {
        return damaged("it is of another version than it says");
    }
    match content.check() {
        Ok(()) => Decoded::Valid(content),
        Err(why) => Decoded::Damaged(why.to_string()),
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut digest = Crc32c::new();
    digest.update(&bytes[..CHECKSUM.start]);
    digest.update(&[0; 4]);
    digest.update(&bytes[CHECKSUM.end..]);
    digest.value()
}
