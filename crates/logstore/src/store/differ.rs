//! A comparison of two versions of a volume at work.

use alloc::vec::Vec;
use core::ops::Range;

use super::io::Request;
use crate::entry::Lineage;

/// Ranges of a part of a difference at most.
pub const MOST_RANGES: usize = 4096;

/// A part of a difference.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Difference {
    /// Chunks that are not the same, in order; not two ranges side by side.
    pub changed: Vec<Range<u64>>,
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
    pub found: Difference,
}

impl Differ {
    /// The chunk at which it is has changed.
    pub fn add(&mut self) {
        match self.found.changed.last_mut() {
            Some(last) if last.end == self.at => last.end += 1,
            _ => self.found.changed.push(self.at..self.at + 1),
        }
    }
}
