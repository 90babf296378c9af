//! What a checkpoint does to the map: leaves take frozen records.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::accounts::Family;
use super::checkpoint::Phase;
use super::io::{AnyPage, Payer};
use super::segments::Use;
use super::state::{Store, Tally};
use crate::entry::{Entry, LEAF_CHUNKS, Lineage};
use crate::format::page::{self, Head, PageKind};
use crate::format::rows::{PageRef, Row};
use crate::format::{BLOCK, Block};
use crate::table::Table;

/// Leaves that are read ahead.
const AHEAD: usize = 16;
/// Runs of pages in flight at most.
pub(super) const MOST_RUNS: u32 = 8;

impl Store {
    /// Changes and writes each touched leaf once, in the order of the frozen table.
    pub(super) fn apply_leaves(&mut self) {
        while self.checkpoint.writes < MOST_RUNS {
            let next = self.checkpoint.next;
            let Some((lineage, leaf)) = self.frozen.leaf(next) else {
                break;
            };
            for ahead in next..next + AHEAD {
                if let Some((lineage, leaf)) = self.frozen.leaf(ahead) {
                    self.load_of(lineage, leaf);
                }
            }
            let (page, _) = self.source(self.target(lineage), leaf);
            if self.loading.contains(&page) {
                return;
            }
            self.apply_leaf(next, lineage, leaf);
            self.checkpoint.next += 1;
        }
        if self.checkpoint.next < self.frozen.leaves() || !self.move_pages() {
            return;
        }
        self.checkpoint.most_merged = self.most_merged(self.frozen.leaves());
        self.checkpoint.fresh.clear();
        self.frozen.clear();
        if self.frozen.capacity() != self.limits.records {
            self.frozen = Table::new(self.limits.records, self.options.seed);
        }
        self.accounts.applied();
        self.checkpoint.next = 0;
        self.checkpoint.phase = Phase::Deletes;
    }

    pub(super) fn page_of(&self, lineage: Lineage, leaf: u64) -> u32 {
        let volume = self.volumes.get(&lineage);
        volume.map_or(0, |volume| volume.tree.leaf(leaf))
    }

    fn load_of(&mut self, lineage: Lineage, leaf: u64) {
        let (page, _) = self.source(self.target(lineage), leaf);
        if page != 0 {
            self.load_for(page, Payer::Map);
        }
    }

    fn apply_leaf(&mut self, number: usize, lineage: Lineage, leaf: u64) {
        // Also of what is being deleted: what was moved has left a segment that is freed.
        let layer = self.target(lineage);
        let Some(volume) = self.volumes.get(&layer) else {
            return;
        };
        let (page, epoch) = (volume.tree.leaf(leaf), volume.epoch);
        let mut bytes = self.layer_bytes(layer, leaf);
        let segments = &mut self.segments;
        let (mut gone, mut come) = (Tally::default(), Tally::default());
        let (mut shared, mut poisoned) = (0, 0);
        let (mut changed, mut by_host) = (false, false);
        self.frozen.changes(number, |place, entry| {
            let before = page::set_leaf_entry(&mut bytes, place, entry);
            changed |= before != entry;
            by_host |= !segments.is_moved(entry);
            for (entry, sign) in [(before, -1), (entry, 1)] {
                if let Some(segment) = segments.geometry.segment_of(entry.address())
                    && entry.is_stored()
                {
                    segments.add_live(segment, sign * i64::from(entry.sectors()));
                }
            }
            shared -= i64::from(before.is_inherited());
            poisoned += i64::from(before.is_stored() && entry.is_lost());
            gone.add(before);
            come.add(entry);
        });
        self.count(layer, gone, come, shared);
        let mapped = come.chunks.cast_signed() - gone.chunks.cast_signed();
        self.count_above(layer, leaf, mapped + shared, poisoned);
        let place = |place| page::leaf_entry(&bytes, place) != Entry::UNMAPPED;
        if self.has_below(layer, leaf) || (0..LEAF_CHUNKS as usize).any(place) {
            if changed || self.lost.contains(&page) {
                let data = self.volumes.get(&layer).map(|volume| volume.data);
                self.payers.leaf(data.unwrap_or(layer), by_host);
                self.put_leaf(layer, leaf, page, epoch, bytes);
            }
        } else if page != 0 {
            self.set_leaf(layer, leaf, 0);
            self.drop_page(page);
        }
    }

    /// Whether a layer below this one has the leaf: then one without entries says something.
    fn has_below(&self, layer: Lineage, leaf: u64) -> bool {
        let parent = self.volumes.get(&layer).and_then(|volume| volume.parent);
        parent.is_some_and(|parent| self.source(parent, leaf).0 != 0)
    }

    /// A leaf of a layer: its own, or what it inherits.
    fn layer_bytes(&mut self, layer: Lineage, leaf: u64) -> Box<Block> {
        let (page, from) = self.source(layer, leaf);
        let mut bytes = self.leaf_bytes(page);
        let below = self.volumes.get(&from).filter(|_| from != layer);
        let Some((data, epoch)) = below.map(|below| (below.data, below.epoch)) else {
            return bytes;
        };
        for place in 0..LEAF_CHUNKS as usize {
            if page::leaf_entry(&bytes, place).is_stored() {
                page::set_leaf_entry(&mut bytes, place, Entry::inherited(data, epoch));
            }
        }
        bytes
    }

    /// A leaf as it is; what a lost one had is lost.
    pub(super) fn leaf_bytes(&mut self, page: u32) -> Box<Block> {
        if let Some(bytes) = self.cache.get(page).filter(|_| page != 0) {
            return Box::new(*bytes);
        }
        let mut bytes = Box::new([0; BLOCK]);
        if page != 0 {
            for place in 0..LEAF_CHUNKS as usize {
                page::set_leaf_entry(&mut bytes, place, Entry::LOST);
            }
        }
        bytes
    }

    pub(super) fn put_leaf(
        &mut self,
        lineage: Lineage,
        leaf: u64,
        page: u32,
        epoch: u32,
        mut bytes: Box<Block>,
    ) {
        let page = match page {
            0 => {
                let page = self.pages.add();
                self.pages.get_mut(page).birth = epoch;
                self.set_leaf(lineage, leaf, page);
                page
            }
            page => page,
        };
        let data = self
            .volumes
            .get(&lineage)
            .map_or(lineage, |volume| volume.data);
        let head = Head {
            kind: PageKind::Leaf,
            level: 0,
            lineage: data.0,
            birth: self.pages.get(page).birth,
            index: leaf,
            page: u64::from(page),
        };
        head.encode(&mut bytes);
        self.lost.remove(&page);
        self.cache.insert(page, bytes.clone());
        if let Some(cached) = self.cache.get_mut(page) {
            cached.copy_from_slice(&bytes[..]);
        }
        self.cache.pin(page);
        self.put_page(AnyPage::Numbered(page), &bytes, false);
    }

    pub(super) fn set_leaf(&mut self, lineage: Lineage, leaf: u64, page: u32) {
        let mut gone = Vec::new();
        if let Some(volume) = self.volumes.get_mut(&lineage) {
            let before = volume.tree.pages();
            volume.tree.set_leaf(leaf, page, &mut self.pages, &mut gone);
            let now = volume.tree.pages();
            let change = |family: &mut Family| family.pages = family.pages + now - before;
            self.accounts.change(volume.data, change);
        }
        for page in gone {
            self.drop_page(page);
        }
    }

    /// Entries of a layer have gone and others have come, and it inherits so many more or fewer.
    pub(super) fn count(&mut self, layer: Lineage, gone: Tally, come: Tally, shared: i64) {
        if let Some(volume) = self.volumes.get_mut(&layer) {
            let before = volume.tally.cost();
            volume.tally.change(gone, come);
            let now = volume.tally.cost();
            let change = |family: &mut Family| family.cost = family.cost + now - before;
            self.accounts.change(volume.data, change);
            volume.shared = volume.shared.saturating_add_signed(shared);
        }
    }

    /// A layer inherits so many chunks more or fewer.
    pub(super) fn count_shared(&mut self, layer: Lineage, shared: i64) {
        self.count(layer, Tally::default(), Tally::default(), shared);
    }

    /// What is above a layer inherits what it takes now if it has just ended, and loses what the
    /// medium has lost.
    fn count_above(&mut self, layer: Lineage, leaf: u64, more: i64, poisoned: i64) {
        let fresh = self.checkpoint.fresh.iter();
        let mut fresh = fresh.filter(|fresh| fresh.layer == layer);
        if let Some(fresh) = fresh.next().copied() {
            if fresh.below {
                self.count_shared(fresh.volume, more);
            }
            return;
        }
        if poisoned == 0 {
            return;
        }
        let others = self.volumes.keys().copied();
        let others: Vec<Lineage> = others.filter(|&other| other != layer).collect();
        for other in others {
            if self.source(other, leaf).1 == layer {
                self.count_shared(other, -poisoned);
            }
        }
    }

    /// A page is not needed any more.
    pub(super) fn drop_page(&mut self, page: u32) {
        let was = self.pages.get(page);
        self.release_place(was.block);
        self.release_place(was.copy);
        self.pages.remove(page);
        self.cache.remove(page);
        self.lost.remove(&page);
    }

    /// Which pages have to leave map segments that are nearly empty, when there are many of these.
    pub(super) fn choose_moving(&mut self) {
        let blocks = self.segments.geometry.segment_blocks;
        let open = [self.writers[0].segment, self.writers[1].segment];
        let maps = || {
            let all = self.segments.iter();
            all.filter(|(_, segment)| segment.used == Use::Map)
        };
        let (count, live) = maps().fold((0, 0), |(count, live), (_, segment)| {
            (count + 1, live + segment.live)
        });
        let wanted = 2 * live.div_ceil(blocks) + 4;
        if count <= wanted {
            return;
        }
        let mut sparse: Vec<(u32, u32)> = maps()
            .filter(|(number, segment)| {
                segment.live > 0 && segment.live <= blocks / 2 && !open.contains(&Some(*number))
            })
            .map(|(number, segment)| (segment.live, number))
            .collect();
        sparse.sort_unstable();
        sparse.truncate((count - wanted) as usize);
        // Their pages are fewer than those that the checkpoint may write anyway.
        let mut budget = self.limits.records as u32 / 2;
        sparse.retain(|&(live, _)| {
            let fits = live <= budget;
            budget -= if fits { live } else { 0 };
            fits
        });
        let geometry = self.segments.geometry;
        let within = |block: u64| {
            let found = geometry.locate(block);
            found.is_some_and(|(number, _)| sparse.iter().any(|&(_, sparse)| sparse == number))
        };
        self.checkpoint.moving.clear();
        for table in 0..self.pages.table.len() {
            let place = self.pages.table[table];
            let directory = self.pages.directory[table / PageRef::PER_PAGE];
            if [place.block, place.copy, directory.block, directory.copy]
                .into_iter()
                .any(within)
            {
                self.pages.set_dirty(table as u32);
            }
        }
        let pages = self.pages.iter();
        let moving = pages.filter(|(_, place)| within(place.block) || within(place.copy));
        let moving: Vec<u32> = moving.map(|(page, _)| page).collect();
        self.checkpoint.moving = moving;
    }

    /// Writes pages that have to leave their segment; false while leaves are being read.
    fn move_pages(&mut self) -> bool {
        while let Some(&page) = self.checkpoint.moving.last() {
            let place = self.pages.get(page);
            if place.copy != 0 || self.pages.system.has(page) {
                self.touch_page(page);
            } else if place.is_used() && !self.lost.contains(&page) {
                let last = self.checkpoint.moving.len();
                for at in last.saturating_sub(AHEAD)..last {
                    let ahead = self.checkpoint.moving[at];
                    if self.pages.get(ahead).copy == 0 && self.pages.get(ahead).is_used() {
                        self.load_for(ahead, Payer::Map);
                    }
                }
                if self.loading.contains(&page) || self.checkpoint.writes >= MOST_RUNS {
                    return false;
                }
                let bytes = self.leaf_bytes(page);
                if !self.lost.contains(&page) {
                    self.cache.pin(page);
                    self.put_page(AnyPage::Numbered(page), &bytes, false);
                }
            }
            self.checkpoint.moving.pop();
        }
        true
    }

    /// A page that is written as it is in memory is to be written.
    fn touch_page(&mut self, page: u32) {
        let first = self.segments.pages() + 1;
        if page < first {
            return self.segments.set_dirty(page - 1);
        }
        // The catalogue is always written.
        for volume in self.volumes.values_mut() {
            let mut inner = volume.tree.inner_mut();
            if let Some((_, _, inner)) = inner.find(|(_, _, inner)| inner.page == page) {
                inner.dirty = true;
                return;
            }
        }
    }
}
