//! Where a chunk is: the memory table, the frozen one, or a leaf, which may have to be read.

use alloc::boxed::Box;

use super::io::{Action, IoError, IoOp, Purpose, Tag};
use super::reads::Found;
use super::state::Store;
use crate::entry::{Entry, LEAF_CHUNKS, Lineage};
use crate::format::fields::{get_u32, get_u64};
use crate::format::page::{self, PageKind};
use crate::format::{Block, block_sum};

/// Reads of leaves that failed before a leaf counts as lost.
const LEAF_TRIES: u8 = 2;

impl Store {
    pub(super) fn find(&mut self, lineage: Lineage, chunk: u64) -> Found {
        let known = self.active.get(lineage, chunk);
        let known = known.or_else(|| self.frozen.get(lineage, chunk));
        if let Some(known) = known {
            return Found::At(known.entry);
        }
        let volume = self.volumes.get(&lineage);
        let page = volume.map_or(0, |volume| volume.tree.leaf(chunk / LEAF_CHUNKS));
        if page == 0 {
            return Found::At(Entry::UNMAPPED);
        }
        match self.cache.get(page) {
            Some(leaf) => Found::At(page::leaf_entry(leaf, (chunk % LEAF_CHUNKS) as usize)),
            None if self.lost.contains(&page) => Found::At(Entry::LOST),
            None => Found::In(page),
        }
    }

    /// Reads a leaf, if that is not done already.
    pub(super) fn load(&mut self, page: u32) {
        if self.cache.has(page) || self.lost.contains(&page) || !self.loading.insert(page) {
            return;
        }
        let block = self.pages.get(page).block;
        let tag = self.ios.begin(IoOp::Read, block, 1, Purpose::Leaf(page));
        self.out.push_back(Action::Submit(tag));
    }

    /// A leaf was read, or could not be.
    pub(super) fn leaf_read(&mut self, tag: Tag, page: u32, result: Result<&[u8], IoError>) {
        let good = |bytes: &Block| {
            block_sum(bytes) == self.pages.get(page).crc
                && bytes[4] == PageKind::Leaf as u8
                && get_u64(bytes, 24) == u64::from(page)
                && get_u32(bytes, 0) != 0
                && page::check_leaf(bytes).is_ok()
        };
        let bytes = result.ok().and_then(|bytes| <&Block>::try_from(bytes).ok());
        if let Some(bytes) = bytes.filter(|bytes| good(bytes)) {
            self.cache.insert(page, Box::new(*bytes));
        } else if self.ios.get(tag).tries + 1 < LEAF_TRIES {
            self.ios.again(tag);
            self.out.push_back(Action::Submit(tag));
            return;
        } else {
            self.stats.bad_pages += 1;
            self.lost.insert(page);
        }
        self.loading.remove(&page);
        self.ios.release(tag);
        self.reads.poke = true;
    }
}
