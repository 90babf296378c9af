//! Leaves of the map that have to be read.

use alloc::boxed::Box;

use super::io::{Action, IoError, IoOp, Payer, Purpose, Tag};
use super::state::Store;
use crate::entry::Lineage;
use crate::format::Block;

/// Reads of leaves that failed before a leaf counts as lost.
const LEAF_TRIES: u8 = 2;

impl Store {
    /// Reads a leaf, if that is not done already.
    pub(super) fn load(&mut self, page: u32) {
        self.load_for(page, Payer::Pool);
    }

    /// The same for a request of a volume.
    pub(super) fn load_for_host(&mut self, page: u32, lineage: Lineage) {
        if let Some(tag) = self.load_for(page, Payer::Listed) {
            self.ios.get_mut(tag).payers.push((lineage, 1));
        }
    }

    /// The same, which somebody has caused.
    pub(super) fn load_for(&mut self, page: u32, payer: Payer) -> Option<Tag> {
        if self.cache.has(page) || self.lost.contains(&page) || !self.loading.insert(page) {
            return None;
        }
        let block = self.pages.get(page).block;
        let tag = self.ios.begin(IoOp::Read, block, 1, Purpose::Leaf(page));
        self.ios.get_mut(tag).payer = payer;
        self.out.push_back(Action::Submit(tag));
        Some(tag)
    }

    /// Has something read once more.
    pub(super) fn ask_again(&mut self, tag: Tag) {
        self.ios.again(tag);
        self.out.push_back(Action::Submit(tag));
    }

    /// A leaf was read, or could not be.
    pub(super) fn leaf_read(&mut self, tag: Tag, page: u32, result: Result<&[u8], IoError>) {
        let bytes = result.ok().filter(|bytes| self.is_leaf(page, bytes));
        let bytes = bytes.and_then(|bytes| <&Block>::try_from(bytes).ok());
        if let Some(bytes) = bytes {
            self.cache.insert(page, Box::new(*bytes));
        } else if self.ios.get(tag).tries + 1 < LEAF_TRIES {
            self.ask_again(tag);
            return;
        } else {
            self.stats.bad_pages += 1;
            self.lost.insert(page);
        }
        self.loading.remove(&page);
        self.ios.release(tag);
        self.reads.poke = true;
        self.unpark(|parked| parked.page == Some(page));
    }
}
