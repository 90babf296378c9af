//! Blocks that the layer keeps in its memory, up to a bound.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

/// Content of blocks by their number, each with the bytes of one block.
#[derive(Debug)]
pub(super) struct Kept {
    block_size: usize,
    most: usize,
    blocks: BTreeMap<u64, Rc<[u8]>>,
    /// In the order in which they came; needed only where the oldest makes room.
    order: VecDeque<u64>,
}

impl Kept {
    /// Nothing yet, and never more than `most` bytes of content.
    pub fn new(block_size: u32, most: usize) -> Self {
        Self {
            block_size: block_size as usize,
            most: most / block_size as usize,
            blocks: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Bytes of content.
    pub fn bytes(&self) -> u64 {
        (self.blocks.len() * self.block_size) as u64
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub fn clear(&mut self) {
        self.blocks.clear();
        self.order.clear();
    }

    /// What is kept of a range.
    pub fn range(&self, blocks: Range<u64>) -> Vec<(u64, Rc<[u8]>)> {
        let found = self.blocks.range(blocks);
        found.map(|(lba, block)| (*lba, Rc::clone(block))).collect()
    }

    /// Keeps `bytes` from block `lba` on, all of them or, when there is no room, none; tells which.
    pub fn try_put(&mut self, lba: u64, bytes: &[u8]) -> bool {
        let new = (lba..).zip(bytes.chunks_exact(self.block_size));
        let blocks = (bytes.len() / self.block_size) as u64;
        let known = self.blocks.range(lba..lba + blocks).count();
        if self.blocks.len() - known + blocks as usize > self.most {
            return false;
        }
        self.blocks
            .extend(new.map(|(lba, block)| (lba, Rc::from(block))));
        true
    }

    /// Keeps a block; the oldest makes room.
    pub fn put_newest(&mut self, lba: u64, block: &[u8]) {
        if self.blocks.insert(lba, Rc::from(block)).is_some() {
            return;
        }
        self.order.push_back(lba);
        while self.blocks.len() > self.most {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            self.blocks.remove(&oldest);
        }
    }

    /// Forgets these, unless something else is kept in their place.
    pub fn forget(&mut self, these: &[(u64, Rc<[u8]>)]) {
        for (lba, block) in these {
            let same = |kept: &Rc<[u8]>| Rc::ptr_eq(kept, block);
            if self.blocks.get(lba).is_some_and(same) {
                self.blocks.remove(lba);
            }
        }
    }
}
