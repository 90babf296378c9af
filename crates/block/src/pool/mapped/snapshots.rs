//! Snapshots of mapped volumes, and clones of them.

use std::collections::BTreeMap;
use std::rc::Rc;

use flashyard_logstore::format::rows::LABEL;
use flashyard_logstore::format::{BLOCK, SECTOR};
use flashyard_logstore::{Difference, Form, Lineage, MOST_SNAPSHOTS, MOST_VOLUMES, Store};

use super::engine::Asked;
use super::label::Label;
use super::{Entry, Inner, MappedPool, failed};
use crate::pool::error::PoolError;
use crate::pool::facts::{Changes, NewSnapshot, NewVolume, SnapshotInfo};
use crate::pool::names::check_name;
use crate::{Device, SharedDevice};

impl MappedPool {
    /// See [`Pool::snapshot`](crate::pool::Pool::snapshot).
    pub async fn snapshot(&self, wanted: Vec<NewSnapshot>, made: u64) -> Result<(), PoolError> {
        self.change(async move |inner| inner.snapshot(&wanted, made).await)
            .await
    }

    /// See [`Pool::delete_snapshot`](crate::pool::Pool::delete_snapshot).
    pub async fn delete_snapshot(&self, volume: &str, name: &str) -> Result<(), PoolError> {
        let (volume, name) = (volume.to_owned(), name.to_owned());
        self.change(async move |inner| inner.delete_snapshot(&volume, &name).await)
            .await
    }

    /// See [`Pool::restore`](crate::pool::Pool::restore).
    pub async fn restore(&self, volume: &str, name: &str) -> Result<(), PoolError> {
        let (volume, name) = (volume.to_owned(), name.to_owned());
        self.change(async move |inner| inner.restore(&volume, &name).await)
            .await
    }

    /// See [`Pool::clone_snapshot`](crate::pool::Pool::clone_snapshot).
    pub async fn clone_snapshot(
        &self,
        volume: &str,
        name: &str,
        clone: NewVolume,
    ) -> Result<SharedDevice, PoolError> {
        let (volume, name) = (volume.to_owned(), name.to_owned());
        self.change(async move |inner| inner.clone_snapshot(&volume, &name, clone).await)
            .await
    }

    /// See [`Pool::snapshots`](crate::pool::Pool::snapshots).
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        let inner = &self.inner;
        let store = inner.engine.store.borrow();
        let facts: BTreeMap<_, _> = store.volumes().map(|one| (one.lineage, one)).collect();
        let snapshots = inner.snapshots.borrow();
        let entries: BTreeMap<_, _> = snapshots
            .values()
            .map(|entry| (entry.device.lineage(), entry))
            .collect();
        let mut all = Vec::new();
        for volume in inner.volumes.borrow().values() {
            for layer in store.snapshots_of(volume.device.lineage()) {
                if let (Some(facts), Some(entry)) = (facts.get(&layer), entries.get(&layer)) {
                    all.push(SnapshotInfo {
                        volume: volume.label.name.clone(),
                        name: entry.label.name.clone(),
                        uuid: entry.label.uuid,
                        bytes: facts.chunks << facts.form.chunk_shift,
                        allocated: facts.tally.sectors * SECTOR as u64,
                        shared: facts.shared << facts.form.chunk_shift,
                        made: facts.made,
                        clones: inner.clones_of(&store, layer),
                    });
                }
            }
        }
        all
    }

    /// See [`Pool::changes`](crate::pool::Pool::changes).
    pub async fn changes(
        &self,
        volume: &str,
        since: Option<&str>,
        until: Option<&str>,
        from: u64,
    ) -> Result<Changes, PoolError> {
        let inner = self.inner.clone();
        let data = inner.data_of(volume)?;
        let layer = |name: &str| inner.layer_of(volume, data, name);
        let old = since.map(layer).transpose()?;
        let new = until.map_or(Ok(data), layer)?;
        let shift = inner.form_of(volume)?.chunk_shift;
        let from = from >> shift;
        self.change(async move |inner| {
            let compared = inner
                .engine
                .ask(|store, request| store.difference(request, old, new, from));
            compared
                .await
                .map_err(|why| failed("comparing snapshots", why))?;
            let found = inner.engine.store.borrow_mut().take_difference();
            let Difference { changed, next, .. } = found.unwrap_or_default();
            let bytes = |chunk: u64| chunk << shift;
            Ok(Changes {
                ranges: changed
                    .into_iter()
                    .map(|it| bytes(it.start)..bytes(it.end))
                    .collect(),
                next: next.map(bytes),
            })
        })
        .await
    }

    /// See [`Pool::freed_by`](crate::pool::Pool::freed_by).
    pub async fn freed_by(&self, volume: &str, snapshot: &str) -> Result<u64, PoolError> {
        let data = self.inner.data_of(volume)?;
        let layer = self.inner.layer_of(volume, data, snapshot)?;
        let (mut sectors, mut from) = (0, Some(0));
        while let Some(at) = from {
            // Other changes of the pool have their turn in between.
            let part = self.change(async move |inner| {
                let counted = inner
                    .engine
                    .ask(|store, request| store.freed(request, layer, at));
                let why = |why| failed("adding up what a snapshot has alone", why);
                counted.await.map_err(why)?;
                let found = inner.engine.store.borrow_mut().take_difference();
                Ok(found.unwrap_or_default())
            });
            let part = part.await?;
            sectors += part.freed;
            from = part.next;
        }
        Ok(sectors * SECTOR as u64)
    }
}

impl Inner {
    /// The number of a volume's data.
    fn data_of(&self, volume: &str) -> Result<Lineage, PoolError> {
        let volumes = self.volumes.borrow();
        let entry = volumes.get(volume);
        let entry = entry.ok_or_else(|| PoolError::NotFound(volume.to_owned()))?;
        Ok(entry.device.lineage())
    }

    /// How a volume keeps its chunks.
    fn form_of(&self, volume: &str) -> Result<Form, PoolError> {
        let volumes = self.volumes.borrow();
        let entry = volumes.get(volume);
        let entry = entry.ok_or_else(|| PoolError::NotFound(volume.to_owned()))?;
        Ok(entry.device.form())
    }

    /// The number of a snapshot.
    fn layer_of(&self, volume: &str, data: Lineage, name: &str) -> Result<Lineage, PoolError> {
        let snapshots = self.snapshots.borrow();
        let entry = snapshots.get(&(data, name.to_owned()));
        let entry = entry.ok_or_else(|| PoolError::NoSnapshot {
            volume: volume.to_owned(),
            name: name.to_owned(),
        })?;
        Ok(entry.device.lineage())
    }

    async fn snapshot(&self, wanted: &[NewSnapshot], made: u64) -> Result<(), PoolError> {
        let labels = self.check_new_snapshots(wanted)?;
        let asked: Vec<(Lineage, [u8; LABEL])> = labels
            .iter()
            .map(|(data, label)| (*data, label.encode()))
            .collect();
        let layers = self
            .engine
            .ask(|store, request| store.snapshot(request, made, &asked));
        let layers = layers
            .await
            .map_err(|why| failed("making a snapshot", why))?;
        for ((data, label), layer) in labels.into_iter().zip(layers) {
            let device = self.open_volume(layer)?;
            let name = label.name.clone();
            let entry = Entry { label, device };
            self.snapshots.borrow_mut().insert((data, name), entry);
        }
        Ok(())
    }

    /// What is kept of new snapshots, if all of them can be made.
    fn check_new_snapshots(
        &self,
        wanted: &[NewSnapshot],
    ) -> Result<Vec<(Lineage, Label)>, PoolError> {
        let store = self.engine.store.borrow();
        if store.volumes().count() + wanted.len() > MOST_VOLUMES {
            return Err(PoolError::TooManyVolumes);
        }
        let mut labels: Vec<(Lineage, Label)> = Vec::new();
        for NewSnapshot { volume, name, uuid } in wanted {
            check_name(name)?;
            let data = self.data_of(volume)?;
            let taken = self.snapshots.borrow().contains_key(&(data, name.clone()));
            if taken || labels.iter().any(|(other, _)| *other == data) {
                return Err(PoolError::SnapshotExists {
                    volume: volume.clone(),
                    name: name.clone(),
                });
            }
            if store.snapshots_of(data).count() >= MOST_SNAPSHOTS {
                return Err(PoolError::TooManySnapshots(volume.clone()));
            }
            if *uuid == [0; 16] || self.has_uuid(*uuid) {
                return Err(PoolError::UuidTaken);
            }
            let label = Label {
                name: name.clone(),
                uuid: *uuid,
                owner: None,
            };
            labels.push((data, label));
        }
        Ok(labels)
    }

    /// Whether a volume or snapshot has this UUID.
    pub(super) fn has_uuid(&self, uuid: [u8; 16]) -> bool {
        let (volumes, snapshots) = (self.volumes.borrow(), self.snapshots.borrow());
        let mut all = volumes.values().chain(snapshots.values());
        all.any(|entry| entry.label.uuid == uuid)
    }

    /// Volumes that began as a snapshot.
    fn clones_of(&self, store: &Store, layer: Lineage) -> Vec<String> {
        let clones = store.clones_of(layer);
        let named = clones.filter_map(|clone| {
            let volumes = self.volumes.borrow();
            let mut volumes = volumes.values();
            let found = volumes.find(|entry| entry.device.lineage() == clone);
            found.map(|entry| entry.label.name.clone())
        });
        named.collect()
    }

    /// Refuses while a snapshot has clones.
    fn check_no_clones(&self, full: &str, layer: Lineage) -> Result<(), PoolError> {
        let store = self.engine.store.borrow();
        match self.clones_of(&store, layer).pop() {
            None => Ok(()),
            Some(clone) => Err(PoolError::HasClones {
                snapshot: full.to_owned(),
                clone,
            }),
        }
    }

    /// Refuses while a volume has snapshots.
    pub(super) fn check_no_snapshots(&self, volume: &str) -> Result<(), PoolError> {
        let data = self.data_of(volume)?;
        let snapshots = self.snapshots.borrow();
        let mut of_it = snapshots.keys().filter(|(of, _)| *of == data);
        match of_it.next() {
            None => Ok(()),
            Some((_, name)) => Err(PoolError::HasSnapshots {
                volume: volume.to_owned(),
                name: name.clone(),
            }),
        }
    }

    async fn delete_snapshot(&self, volume: &str, name: &str) -> Result<(), PoolError> {
        let data = self.data_of(volume)?;
        let layer = self.layer_of(volume, data, name)?;
        self.check_no_clones(&format!("{volume}@{name}"), layer)?;
        let entry = self.snapshots.borrow_mut().remove(&(data, name.to_owned()));
        if let Some(entry) = entry {
            entry.device.close().await;
        }
        let deleted = self
            .engine
            .ask(|store, request| store.delete_volume(request, layer));
        deleted
            .await
            .map_err(|why| failed("deleting a snapshot", why))
    }

    async fn restore(&self, volume: &str, name: &str) -> Result<(), PoolError> {
        let data = self.data_of(volume)?;
        let layer = self.layer_of(volume, data, name)?;
        let newest = self.engine.store.borrow().snapshots_of(data).last();
        if newest != Some(layer) {
            let snapshots = self.snapshots.borrow();
            let newer = snapshots
                .values()
                .find(|it| Some(it.device.lineage()) == newest);
            return Err(PoolError::NotNewest {
                snapshot: format!("{volume}@{name}"),
                newer: newer.map_or_else(String::new, |it| it.label.name.clone()),
            });
        }
        let device = self
            .volumes
            .borrow()
            .get(volume)
            .map(|it| it.device.clone());
        let device = device.ok_or_else(|| PoolError::NotFound(volume.to_owned()))?;
        let restoring = |why| failed("restoring a volume", why);
        // What has read and not written yet, such as a write of a part of a chunk, would bring back
        // what it has read.
        let all = device.exclude_all().await;
        let _all = all.map_err(|error| restoring(Asked::Ended(error)))?;
        let restored = self
            .engine
            .ask(|store, request| store.restore(request, data, layer));
        restored.await.map_err(restoring)
    }

    async fn clone_snapshot(
        &self,
        volume: &str,
        name: &str,
        clone: NewVolume,
    ) -> Result<SharedDevice, PoolError> {
        let data = self.data_of(volume)?;
        let layer = self.layer_of(volume, data, name)?;
        let blocks = {
            let snapshots = self.snapshots.borrow();
            let entry = snapshots.get(&(data, name.to_owned()));
            entry.map_or(0, |entry| entry.device.info().blocks)
        };
        let clone = NewVolume {
            bytes: blocks * BLOCK as u64,
            form: super::look::shown(self.form_of(volume)?),
            ..clone
        };
        self.check_new(std::slice::from_ref(&clone))?;
        self.add_keys(1).await?;
        let label = Label::from(&clone);
        let bytes = label.encode();
        let made = self
            .engine
            .ask(|store, request| store.clone_snapshot(request, layer, bytes));
        let lineage = made.await.map_err(|why| failed("making a clone", why))?;
        let device = self.open_volume(lineage)?;
        self.own(lineage, label.owner.as_ref());
        let entry = Entry {
            label,
            device: Rc::clone(&device),
        };
        self.volumes.borrow_mut().insert(clone.name, entry);
        Ok(device)
    }
}
