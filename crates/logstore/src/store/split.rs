//! Layers of volumes that end: with the next cut, or with the one that is being written.

use alloc::vec::Vec;

use super::io::Request;
use crate::entry::Lineage;
use crate::format::rows::LABEL;

/// A layer that is to end with the next cut.
#[derive(Debug)]
pub(super) struct Split {
    pub volume: Lineage,
    /// The number of the layer that ends.
    pub layer: Lineage,
    pub label: [u8; LABEL],
    pub made: u64,
    /// The snapshot that the volume goes back to, if the layer is not to stay.
    pub back_to: Option<Lineage>,
}

/// Layers that end with the same cut.
#[derive(Debug)]
pub(super) struct Splits {
    pub request: Request,
    pub all: Vec<Split>,
}

/// A layer that has ended with the cut that is being written: its last records are in the frozen
/// table, under the number of the volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fresh {
    pub volume: Lineage,
    pub layer: Lineage,
    /// The volume goes on above this layer; not when it went back to an earlier one.
    pub below: bool,
}
