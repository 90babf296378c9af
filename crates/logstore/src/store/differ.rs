//! A comparison of two versions of a volume at work.

use alloc::vec::Vec;
use core::ops::Range;

use super::io::Request;
use crate::entry::{LEAF_CHUNKS, Lineage};

/// Ranges of a part of a difference at most.
pub const MOST_RANGES: usize = 4096;
/// Leaves that a part looks at, at most: no turn takes long.
const MOST_LEAVES: u64 = 1 << 14;
/// And of which it looks at each chunk, where it says nothing of them but a sum.
const MOST_COUNTED: u64 = 16;

/// A part of a difference.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Difference {
    /// Chunks that are not the same, in order; not two ranges side by side.
    pub changed: Vec<Range<u64>>,
    /// Sectors that deleting the older version would free, where that was asked for instead.
    pub freed: u64,
    /// Where the next part begins; nothing at the end.
    pub next: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Differ {
    pub request: Request,
    pub old: Option<Lineage>,
    pub new: Lineage,
    pub at: u64,
    pub end: u64,
    pub leaves: u64,
    /// Leaves of these that are not the same in both.
    pub unlike: u64,
    /// What is freed is wanted, and not what differs.
    pub frees: bool,
    pub found: Difference,
}

impl Differ {
    /// Whether the part ends at the chunk at which it is.
    pub fn is_enough(&self) -> bool {
        let at_a_leaf = self.at.is_multiple_of(LEAF_CHUNKS);
        self.found.changed.len() == MOST_RANGES
            || at_a_leaf && self.leaves >= MOST_LEAVES
            || at_a_leaf && self.frees && self.unlike >= MOST_COUNTED
    }

    /// The chunk at which it is has changed.
    pub fn add(&mut self) {
        match self.found.changed.last_mut() {
            Some(last) if last.end == self.at => last.end += 1,
            _ => self.found.changed.push(self.at..self.at + 1),
        }
    }
}
