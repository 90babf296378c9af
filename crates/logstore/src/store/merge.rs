//! What is deleted gives its leaves away, some in each checkpoint: the next layer takes what it
//! inherits, the rest is free. What is left of the layer is the cursor.
//!
//! While a checkpoint does this garbage collection moves nothing, so that no record of a move is
//! about a layer whose leaves go elsewhere; the two take turns.

use super::checkpoint::Phase;
use super::state::{Store, Tally, Volume};
use crate::entry::{Entry, LEAF_CHUNKS, Lineage};
use crate::format::Block;
use crate::format::page;

/// Leaves of deleted volumes and snapshots that one checkpoint takes.
const MOST_LEAVES: usize = 512;
/// And that it takes however many others it writes.
const LEAST_LEAVES: usize = 8;
/// Leaves that are read ahead.
const AHEAD: usize = 16;

impl Store {
    pub(super) fn is_deleting(&self) -> bool {
        self.volumes.values().any(|volume| volume.deleting)
    }

    /// How many leaves this checkpoint may take, when it has written so many.
    pub(super) fn most_merged(&self, written: usize) -> usize {
        let room = self.limits.records.saturating_sub(written);
        room.clamp(LEAST_LEAVES, MOST_LEAVES)
    }

    /// Takes leaves of deleted volumes and snapshots out of the map.
    pub(super) fn apply_deletes(&mut self) {
        while self.checkpoint.next < self.checkpoint.most_merged && self.checkpoint.deletes {
            let Some(layer) = self.next_deleted() else {
                break;
            };
            let heir = self.heir(layer);
            let mut next = None;
            let mut from = 0;
            for _ in 0..AHEAD {
                let volume = self.volumes.get(&layer);
                let Some((leaf, page)) = volume.and_then(|volume| volume.tree.next_leaf(from))
                else {
                    break;
                };
                let of_heir = heir.map_or(0, |heir| self.page_of(heir, leaf));
                for page in [page, of_heir].into_iter().filter(|&page| page != 0) {
                    self.load(page);
                }
                next = next.or(Some((leaf, page, of_heir)));
                from = leaf + 1;
            }
            let Some((leaf, page, of_heir)) = next else {
                self.remove_layer(layer);
                continue;
            };
            let busy = self.loading.contains(&page) || self.loading.contains(&of_heir);
            if busy || self.checkpoint.writes >= super::apply::MOST_RUNS {
                return;
            }
            match heir {
                Some(heir) if of_heir == 0 => self.hand_over(layer, heir, leaf, page),
                Some(heir) => self.merge_leaf(layer, heir, leaf),
                None => self.delete_leaf(layer, leaf, page),
            }
            self.checkpoint.next += 1;
        }
        self.checkpoint.phase = Phase::System;
    }

    /// Volumes first, then the newest layers: so the next layer of each is one that stays.
    fn next_deleted(&self) -> Option<Lineage> {
        let deleted = self.volumes.values().filter(|volume| volume.deleting);
        let next = deleted.max_by_key(|volume| (!volume.is_snapshot(), volume.epoch));
        next.map(|volume| volume.lineage)
    }

    /// The next layer, which inherits from this one.
    pub(super) fn heir(&self, layer: Lineage) -> Option<Lineage> {
        let data = self.volumes.get(&layer)?.data;
        let next = |volume: &&Volume| volume.parent == Some(layer) && volume.data == data;
        self.volumes
            .values()
            .find(next)
            .map(|volume| volume.lineage)
    }

    /// The next layer has nothing of its own in this leaf: it takes the page.
    fn hand_over(&mut self, layer: Lineage, heir: Lineage, leaf: u64, page: u32) {
        let bytes = self.leaf_bytes(page);
        let mut stored = Tally::default();
        for place in 0..LEAF_CHUNKS as usize {
            stored.add(page::leaf_entry(&bytes, place));
        }
        self.set_leaf(layer, leaf, 0);
        self.set_leaf(heir, leaf, page);
        self.count(layer, stored, Tally::default(), 0);
        self.count(heir, Tally::default(), stored, -stored.chunks.cast_signed());
    }

    /// The next layer takes what it inherits from this one.
    fn merge_leaf(&mut self, layer: Lineage, heir: Lineage, leaf: u64) {
        let (page, of_heir) = (self.page_of(layer, leaf), self.page_of(heir, leaf));
        let below = self.leaf_bytes(page);
        let mut bytes = self.leaf_bytes(of_heir);
        let (mut moved, mut gone, mut lost) = (Tally::default(), Tally::default(), 0);
        let inherits = self.inherits_from(layer);
        for place in 0..LEAF_CHUNKS as usize {
            let entry = page::leaf_entry(&below, place);
            gone.add(entry);
            let above = page::leaf_entry(&bytes, place).origin();
            if above.is_some_and(&inherits) && (entry.is_stored() || entry.is_lost()) {
                page::set_leaf_entry(&mut bytes, place, entry);
                moved.add(entry);
                lost += i64::from(entry.is_lost());
            } else if entry.is_stored() {
                self.free_entry(entry);
            }
        }
        self.count(layer, gone, Tally::default(), 0);
        let inherited = moved.chunks.cast_signed() + lost;
        self.count(heir, Tally::default(), moved, -inherited);
        self.set_leaf(layer, leaf, 0);
        self.drop_page(page);
        if inherited > 0 {
            let epoch = self.volumes.get(&heir).map_or(0, |heir| heir.epoch);
            self.put_leaf(heir, leaf, of_heir, epoch, bytes);
        }
    }

    /// Which inherited entries stand for what this layer has.
    fn inherits_from(&self, layer: Lineage) -> impl Fn((Lineage, u32)) -> bool + use<> {
        let volume = self.volumes.get(&layer);
        let (data, last) = volume.map_or((layer, 0), |volume| (volume.data, volume.epoch));
        let mut before = self.snapshots.range((data, 0)..(data, last));
        let before = before.next_back().map_or(0, |((_, epoch), _)| *epoch);
        move |(origin, epoch)| origin == data && epoch > before && epoch <= last
    }

    fn delete_leaf(&mut self, layer: Lineage, leaf: u64, page: u32) {
        let bytes: alloc::boxed::Box<Block> = self.leaf_bytes(page);
        let mut freed = Tally::default();
        for place in 0..LEAF_CHUNKS as usize {
            let entry = page::leaf_entry(&bytes, place);
            if entry.is_stored() {
                self.free_entry(entry);
                freed.add(entry);
            }
        }
        self.count(layer, freed, Tally::default(), 0);
        self.set_leaf(layer, leaf, 0);
        self.drop_page(page);
    }

    fn free_entry(&mut self, entry: Entry) {
        if let Some(segment) = self.segments.geometry.segment_of(entry.address()) {
            let sectors = i64::from(entry.sectors());
            self.segments.add_live(segment, -sectors);
        }
    }

    /// Nothing is left of a layer: those above it stand on the one below.
    fn remove_layer(&mut self, layer: Lineage) {
        self.payers.forget(layer);
        let Some(gone) = self.volumes.remove(&layer) else {
            return;
        };
        if gone.is_snapshot() {
            self.snapshots.remove(&(gone.data, gone.epoch));
        }
        for volume in self.volumes.values_mut() {
            if volume.parent == Some(layer) {
                volume.parent = gone.parent;
            }
        }
        let (cost, pages) = (gone.tally.cost(), gone.tree.pages());
        match self.volumes.values().any(|volume| volume.data == gone.data) {
            false => self.accounts.remove(gone.data),
            true => self.accounts.change(gone.data, |family| {
                family.cost -= cost;
                family.pages -= pages;
            }),
        }
    }
}
