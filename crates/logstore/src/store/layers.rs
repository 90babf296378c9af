//! Layers of volumes. A volume that has no snapshot is one layer: its tree has all of its map. A
//! snapshot ends a layer, which keeps its tree from then on, and begins a new one above it with an
//! empty tree: the volume's. What a leaf of a layer does not say, the layer below says; the first
//! record for a leaf copies it, with entries that name the layer that has the data. So a read looks
//! at one leaf, or at two.
//!
//! Each layer has a number of its own, under which memory tables know it. Records on the device
//! name the volume whose data they are and the epoch they were written in: the layer that ended
//! with this epoch, or the first one after it that is still there, has the chunk.

use super::reads::Found;
use super::split::Fresh;
use super::state::{Store, Volume};
use crate::entry::{Entry, LEAF_CHUNKS, Lineage};
use crate::format::page;
use crate::table::Known;

impl Store {
    /// The layer that has just ended whose last records stand under this number.
    pub(super) fn fresh(&self, volume: Lineage) -> Option<Fresh> {
        let mut all = self.checkpoint.fresh.iter().copied();
        all.find(|fresh| fresh.volume == volume)
    }

    pub(super) fn is_fresh(&self, layer: Lineage) -> bool {
        let mut all = self.checkpoint.fresh.iter();
        all.any(|fresh| fresh.layer == layer)
    }

    /// The layer that has what was written to a volume in an epoch, if it is needed at all.
    pub(super) fn holder(&self, data: Lineage, epoch: u32, leaf: u64) -> Lineage {
        let layers = self.snapshots.range((data, epoch)..=(data, u32::MAX));
        let mut layers = layers.map(|(_, &layer)| layer);
        // A layer that is being deleted has given this leaf away when it has none.
        let has_it = |layer: &Lineage| {
            let volume = self.volumes.get(layer);
            let there = |volume: &Volume| !volume.deleting || volume.tree.leaf(leaf) != 0;
            volume.is_some_and(there) || self.is_fresh(*layer)
        };
        layers.find(has_it).unwrap_or(data)
    }

    /// What memory tables know of a chunk of a layer.
    pub(super) fn known(&self, layer: Lineage, chunk: u64) -> Option<Known> {
        self.active.get(layer, chunk).or_else(|| {
            let mut under = Some(layer);
            for fresh in &self.checkpoint.fresh {
                if fresh.volume == layer {
                    under = None;
                } else if fresh.layer == layer {
                    under = Some(fresh.volume);
                }
            }
            self.frozen.get(under?, chunk)
        })
    }

    /// An entry of a leaf in memory, or that the leaf has to be read.
    pub(super) fn entry_of(&mut self, page: u32, chunk: u64) -> Result<Entry, u32> {
        match self.cache.get(page) {
            Some(leaf) => Ok(page::leaf_entry(leaf, (chunk % LEAF_CHUNKS) as usize)),
            None if self.lost.contains(&page) => Ok(Entry::LOST),
            None => Err(page),
        }
    }

    /// What a layer itself says of a chunk.
    pub(super) fn find_own(&mut self, layer: Lineage, chunk: u64) -> Found {
        if let Some(known) = self.known(layer, chunk) {
            return Found::At(known.entry, layer);
        }
        let volume = self.volumes.get(&layer);
        let page = volume.map_or(0, |volume| volume.tree.leaf(chunk / LEAF_CHUNKS));
        match page {
            0 => Found::At(Entry::UNMAPPED, layer),
            page => match self.entry_of(page, chunk) {
                Ok(entry) => Found::At(entry, layer),
                Err(page) => Found::In(page),
            },
        }
    }

    /// Where a chunk of a volume or snapshot is, and whose data it is: as memory tables know it, or
    /// a leaf, which may have to be read.
    pub(super) fn find(&mut self, volume: Lineage, chunk: u64) -> Found {
        let leaf = chunk / LEAF_CHUNKS;
        let mut at = volume;
        loop {
            let known = self.known(at, chunk);
            let Some(layer) = self.volumes.get(&at) else {
                return Found::At(Entry::UNMAPPED, at);
            };
            let data = layer.data;
            if let Some(known) = known {
                return Found::At(known.entry, data);
            }
            let page = layer.tree.leaf(leaf);
            if page == 0 {
                match layer.parent {
                    Some(parent) => at = parent,
                    None => return Found::At(Entry::UNMAPPED, data),
                }
                continue;
            }
            return match self.entry_of(page, chunk) {
                Err(page) => Found::In(page),
                Ok(entry) => match entry.origin() {
                    None => Found::At(entry, data),
                    Some((data, epoch)) => self.find_origin(data, epoch, chunk),
                },
            };
        }
    }

    /// What an inherited entry stands for.
    fn find_origin(&mut self, data: Lineage, epoch: u32, chunk: u64) -> Found {
        let layer = self.holder(data, epoch, chunk / LEAF_CHUNKS);
        match self.find_own(layer, chunk) {
            // A layer is named only if it stores the chunk itself.
            Found::At(entry, _) if !entry.is_stored() => Found::At(Entry::LOST, data),
            Found::At(entry, _) => Found::At(entry, data),
            found @ Found::In(_) => found,
        }
    }

    /// The page that says what a leaf of a layer is, and the layer it belongs to; page 0 when
    /// nothing is mapped.
    pub(super) fn source(&self, layer: Lineage, leaf: u64) -> (u32, Lineage) {
        let mut at = layer;
        while let Some(volume) = self.volumes.get(&at) {
            let page = volume.tree.leaf(leaf);
            match volume.parent {
                Some(parent) if page == 0 => at = parent,
                _ => return (page, at),
            }
        }
        (0, at)
    }

    /// Which layer takes what the frozen table has under a number.
    pub(super) fn target(&self, lineage: Lineage) -> Lineage {
        self.fresh(lineage).map_or(lineage, |fresh| fresh.layer)
    }
}
