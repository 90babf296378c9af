//! Snapshots: made at a cut, deleted, gone back to, and cloned.
//!
//! A snapshot is made when a checkpoint freezes the memory table: what is frozen belongs to it,
//! what comes later to the volume above it. So it has every write that was answered before it was
//! asked for, and none that was issued after it was answered; no write waits for it.

use alloc::vec::Vec;

use super::io::{Refused, Request};
use super::split::{Fresh, Split, Splits};
use super::state::{MOST_SNAPSHOTS, MOST_VOLUMES, Store, Tally, Volume};
use crate::entry::Lineage;
use crate::format::rows::LABEL;

/// Epochs of a volume at most: pages have as many bits for them.
const MOST_EPOCHS: u32 = (1 << 24) - 2;

impl Store {
    /// Makes a snapshot of each of these volumes, all at the same moment; done when they are
    /// durable. Gives their numbers, which [`volumes`](Self::volumes) has from then on. `made` is
    /// when that is, as the driver counts.
    pub fn snapshot(
        &mut self,
        request: Request,
        made: u64,
        volumes: &[(Lineage, [u8; LABEL])],
    ) -> Result<Vec<Lineage>, Refused> {
        self.may_change()?;
        self.may_add(volumes.len())?;
        for (place, (volume, _)) in volumes.iter().enumerate() {
            self.may_split(*volume)?;
            if volumes[..place].iter().any(|(other, _)| other == volume) {
                return Err(Refused::Changing);
            }
            if self.snapshots_of(*volume).count() >= MOST_SNAPSHOTS {
                return Err(Refused::TooManySnapshots);
            }
        }
        let all: Vec<Split> = volumes
            .iter()
            .map(|&(volume, label)| Split {
                volume,
                layer: self.next_number(),
                label,
                made,
                back_to: None,
            })
            .collect();
        let layers = all.iter().map(|split| split.layer).collect();
        self.checkpoint.split(Splits { request, all });
        Ok(layers)
    }

    /// Makes a volume what its newest snapshot is; done when that is durable. What was written
    /// since is gone, and so is what is in flight.
    pub fn restore(
        &mut self,
        request: Request,
        volume: Lineage,
        snapshot: Lineage,
    ) -> Result<(), Refused> {
        self.may_change()?;
        self.may_split(volume)?;
        // What is given up is a layer until its leaves are.
        self.may_add(1)?;
        let newest = self.snapshots_of(volume).last();
        match self.snapshots_of(volume).find(|one| *one == snapshot) {
            None => return Err(Refused::NoVolume),
            found if found != newest => return Err(Refused::NotNewest),
            Some(_) => {}
        }
        let split = Split {
            volume,
            layer: self.next_number(),
            label: [0; LABEL],
            made: 0,
            back_to: Some(snapshot),
        };
        let all = alloc::vec![split];
        self.checkpoint.split(Splits { request, all });
        Ok(())
    }

    /// Makes a volume that begins as a snapshot; done when it is durable. It takes requests at
    /// once.
    pub fn clone_snapshot(
        &mut self,
        request: Request,
        snapshot: Lineage,
        label: [u8; LABEL],
    ) -> Result<Lineage, Refused> {
        self.may_change()?;
        self.may_add(1)?;
        let origin = self.volumes.get(&snapshot);
        let origin = origin.filter(|origin| origin.is_snapshot() && !origin.deleting);
        let origin = origin.ok_or(Refused::NoVolume)?;
        if self.is_fresh(snapshot) {
            return Err(Refused::Changing);
        }
        let (chunks, form) = (origin.chunks, origin.form);
        let shared = origin.tally.chunks + origin.shared;
        let lineage = self.next_number();
        let volume = Volume {
            parent: Some(snapshot),
            form,
            shared,
            ..Volume::new(lineage, chunks, label)
        };
        self.volumes.insert(lineage, volume);
        self.checkpoint.wait(request);
        Ok(lineage)
    }

    /// The snapshots of a volume, the oldest first.
    pub fn snapshots_of(&self, volume: Lineage) -> impl Iterator<Item = Lineage> {
        let all = self.snapshots.range((volume, 0)..=(volume, u32::MAX));
        let all = all.map(|(_, &layer)| layer);
        all.filter(|layer| self.volumes.get(layer).is_some_and(|one| !one.deleting))
    }

    /// Volumes that began as a snapshot, and snapshots of these that stand on it. A layer between
    /// them that is being deleted has not given its leaves away yet, so they still stand on it.
    pub fn clones_of(&self, snapshot: Lineage) -> impl Iterator<Item = Lineage> {
        let data = self.volumes.get(&snapshot).map(|one| one.data);
        let above = self.volumes.values().filter(move |one| {
            Some(one.data) != data && !one.deleting && self.stands_on(one, snapshot)
        });
        above.map(|one| one.data)
    }

    /// Whether a layer is the first above a snapshot that stays.
    fn stands_on(&self, layer: &Volume, snapshot: Lineage) -> bool {
        let mut below = layer.parent;
        while let Some(parent) = below {
            if parent == snapshot {
                return true;
            }
            let parent = self.volumes.get(&parent).filter(|one| one.deleting);
            below = parent.and_then(|one| one.parent);
        }
        false
    }

    /// Whether there is a place for so many more volumes and snapshots.
    pub(super) fn may_add(&self, more: usize) -> Result<(), Refused> {
        let waiting = self.checkpoint.splits.iter().map(|splits| splits.all.len());
        let count = self.volumes.len() + waiting.sum::<usize>() + more;
        let last = self.next_lineage as usize + more > Lineage::LAST.0 as usize;
        match count > MOST_VOLUMES || last {
            true => Err(Refused::TooManyVolumes),
            false => Ok(()),
        }
    }

    pub(super) fn next_number(&mut self) -> Lineage {
        self.next_lineage += 1;
        Lineage(self.next_lineage - 1)
    }

    fn is_splitting(&self, lineage: Lineage) -> bool {
        let mut all = self.checkpoint.splits.iter().flat_map(|splits| &splits.all);
        all.any(|split| split.volume == lineage || split.back_to == Some(lineage))
    }

    /// Whether a layer of a volume can end.
    fn may_split(&self, lineage: Lineage) -> Result<(), Refused> {
        let volume = self.volumes.get(&lineage);
        let volume = volume.filter(|volume| !volume.deleting);
        let volume = volume.ok_or(Refused::NoVolume)?;
        match volume {
            volume if volume.is_snapshot() => Err(Refused::Snapshot),
            volume if volume.epoch >= MOST_EPOCHS => Err(Refused::TooManySnapshots),
            _ if self.is_splitting(lineage) => Err(Refused::Changing),
            _ => Ok(()),
        }
    }

    /// Whether a volume or snapshot can be deleted.
    pub(super) fn may_delete(&self, lineage: Lineage) -> Result<(), Refused> {
        let volume = self.volumes.get(&lineage);
        let volume = volume.filter(|volume| !volume.deleting);
        volume.ok_or(Refused::NoVolume)?;
        if self.is_splitting(lineage) {
            return Err(Refused::Changing);
        }
        if self.snapshots_of(lineage).next().is_some() {
            return Err(Refused::HasSnapshots);
        }
        match self.clones_of(lineage).next() {
            Some(_) => Err(Refused::HasClones),
            None => Ok(()),
        }
    }

    /// At the cut: layers end that were asked to.
    pub(super) fn split_layers(&mut self) {
        for splits in core::mem::take(&mut self.checkpoint.splits) {
            for split in splits.all {
                self.split(split);
            }
            self.checkpoint.serving.push(splits.request);
        }
    }

    fn split(&mut self, split: Split) {
        let below = split.back_to.and_then(|layer| self.volumes.get(&layer));
        let inherited = below.map(|below| below.tally.chunks + below.shared);
        let Some(volume) = self.volumes.get_mut(&split.volume) else {
            return;
        };
        let layer = Volume {
            data: volume.data,
            parent: volume.parent,
            tally: volume.tally,
            form: volume.form,
            shared: volume.shared,
            deleting: split.back_to.is_some(),
            epoch: volume.epoch,
            made: split.made,
            tree: core::mem::take(&mut volume.tree),
            ..Volume::new(split.layer, volume.chunks, split.label)
        };
        self.snapshots
            .insert((layer.data, layer.epoch), split.layer);
        volume.shared = inherited.unwrap_or(volume.tally.chunks + volume.shared);
        volume.tally = Tally::default();
        volume.epoch += 1;
        volume.parent = Some(split.back_to.unwrap_or(split.layer));
        self.volumes.insert(split.layer, layer);
        self.checkpoint.fresh.push(Fresh {
            volume: split.volume,
            layer: split.layer,
            below: split.back_to.is_none(),
        });
    }
}
