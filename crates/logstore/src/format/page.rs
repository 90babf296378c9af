//! Pages of the map: leaves, inner pages, and the heads that all pages of metadata have.
//!
//! A page names itself; its checksum stands where it is referred to, so data that never arrived, or
//! old data, do not verify.
//!
//! ```text
//! 0   magic   4  kind, level   8  lineage   12  birth   16  index   24  page number   32  zero
//! 64  leaf: 336 entries of 12 bytes; inner page: 500 page numbers of 8; others: rows
//! ```

use super::fields::{get_bytes, get_u32, get_u64, is_zero, put};
use super::{BLOCK, Block, FormatError};
use crate::entry::{Entry, LEAF_CHUNKS};

/// Page numbers of an inner page.
pub const FANOUT: usize = 500;
/// Bytes of a head.
pub const HEAD: usize = 64;

const MAGIC: u32 = u32::from_le_bytes(*b"FYPG");

/// What a page holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PageKind {
    /// Entries of chunks.
    Leaf = 1,
    /// Numbers of pages one level below.
    Inner = 2,
    /// Rows of the segment table.
    Segments = 3,
    /// Rows of the catalogue of volumes.
    Catalogue = 4,
    /// References to pages, by their number.
    Table = 5,
    /// References to pages of the page table.
    Directory = 6,
}

/// What a page says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// What it holds.
    pub kind: PageKind,
    /// Of an inner page: 1 above leaves.
    pub level: u8,
    /// Whose map; 0 for pages of the pool.
    pub lineage: u32,
    /// The epoch in which the page was made.
    pub birth: u32,
    /// Its place among pages of the same level.
    pub index: u64,
    /// Its number; 0 for those that have none.
    pub page: u64,
}

impl Head {
    /// The head of a page of the pool.
    pub fn of_pool(kind: PageKind, index: u64, page: u64) -> Self {
        Self {
            kind,
            level: 0,
            lineage: 0,
            birth: 0,
            index,
            page,
        }
    }

    /// Writes the head.
    pub fn encode(&self, bytes: &mut Block) {
        bytes[..HEAD].fill(0);
        put(bytes, 0, MAGIC.to_le_bytes());
        (bytes[4], bytes[5]) = (self.kind as u8, self.level);
        put(bytes, 8, self.lineage.to_le_bytes());
        put(bytes, 12, self.birth.to_le_bytes());
        put(bytes, 16, self.index.to_le_bytes());
        put(bytes, 24, self.page.to_le_bytes());
    }

    /// Whether the page is the one with this head.
    pub fn check(&self, bytes: &Block) -> Result<(), FormatError> {
        if get_u32(bytes, 0) != MAGIC {
            return Err(FormatError::Absent);
        }
        let mut expected = [0; BLOCK];
        self.encode(&mut expected);
        match bytes[..HEAD] == expected[..HEAD] {
            true => Ok(()),
            false => Err(FormatError::Elsewhere),
        }
    }
}

/// An entry of a leaf.
pub fn leaf_entry(bytes: &Block, place: usize) -> Entry {
    Entry::from_bytes(get_bytes(bytes, HEAD + place * Entry::BYTES))
}

/// Changes an entry of a leaf; gives what it was.
pub fn set_leaf_entry(bytes: &mut Block, place: usize, entry: Entry) -> Entry {
    let before = leaf_entry(bytes, place);
    put(bytes, HEAD + place * Entry::BYTES, entry.to_bytes());
    before
}

/// Whether all entries of a leaf are ones that this version writes.
pub fn check_leaf(bytes: &Block) -> Result<(), FormatError> {
    let good = (0..LEAF_CHUNKS as usize).all(|place| leaf_entry(bytes, place).is_valid());
    good.then_some(()).ok_or(FormatError::Field("entry"))
}

/// Writes the page numbers of an inner page; 0 for what is not mapped.
pub fn encode_inner(head: &Head, children: &[u32; FANOUT], bytes: &mut Block) {
    bytes.fill(0);
    head.encode(bytes);
    for (child, at) in children.iter().zip((HEAD..).step_by(8)) {
        put(bytes, at, u64::from(*child).to_le_bytes());
    }
}

/// The page numbers of an inner page, below `pages`.
pub fn decode_inner(
    head: &Head,
    bytes: &Block,
    pages: u32,
    children: &mut [u32; FANOUT],
) -> Result<(), FormatError> {
    head.check(bytes)?;
    for (child, at) in children.iter_mut().zip((HEAD..).step_by(8)) {
        let number = get_u64(bytes, at);
        let known = u32::try_from(number).ok().filter(|&number| number < pages);
        *child = known.ok_or(FormatError::Field("page number"))?;
    }
    match is_zero(&bytes[HEAD + FANOUT * 8..]) {
        true => Ok(()),
        false => Err(FormatError::Field("padding")),
    }
}
