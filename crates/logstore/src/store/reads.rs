//! Reads of hosts that are in flight or wait for a leaf or a write.

use alloc::vec::Vec;

use super::io::Request;
use crate::entry::{Entry, Lineage};

/// A read that could not begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stalled {
    pub request: Request,
    pub lineage: Lineage,
    pub chunk: u64,
    pub count: u32,
}

/// A read of which parts are in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub request: Request,
    pub parts: u32,
    pub failed: bool,
}

#[derive(Debug, Default)]
pub(super) struct Reads {
    pub begun: Vec<Begun>,
    pub free: Vec<u32>,
    pub stalled: Vec<Stalled>,
    /// Something came that a stalled read may wait for.
    pub poke: bool,
    pub scratch: Vec<(Entry, Lineage)>,
}

impl Reads {
    pub fn begin(&mut self, request: Request) -> u32 {
        let read = Begun {
            request,
            parts: 0,
            failed: false,
        };
        match self.free.pop() {
            Some(slot) => {
                self.begun[slot as usize] = read;
                slot
            }
            None => {
                self.begun.push(read);
                self.begun.len() as u32 - 1
            }
        }
    }
}

/// Where a chunk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// And whose data it is; of one layer, which layer that is.
    At(Entry, Lineage),
    /// In this leaf, which is not in memory.
    In(u32),
}
