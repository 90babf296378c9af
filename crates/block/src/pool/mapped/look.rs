//! What a mapped pool says of itself and its volumes.

use std::collections::BTreeMap;

use flashyard_codec::compress::Codec;
use flashyard_logstore::format::{BLOCK, SECTOR};
use flashyard_logstore::{Form, ReadOnly as StoreReadOnly, State, Stats, Tally, Volume as Facts};

use super::{Entry, MappedPool, UNIT, volume};
use crate::pool::facts::{Kind, PoolInfo, ReadOnly, VolumeForm, VolumeInfo};
use crate::{Device, SharedDevice};

impl MappedPool {
    /// See [`Pool::list`](crate::pool::Pool::list).
    pub fn list(&self) -> Vec<VolumeInfo> {
        let store = self.inner.engine.store.borrow();
        let facts: BTreeMap<_, _> = store.volumes().map(|one| (one.lineage, one)).collect();
        let volumes = self.inner.volumes.borrow();
        let info = |entry: &Entry| {
            let facts = facts.get(&entry.device.lineage());
            let tally = facts.map_or_else(Tally::default, |facts| facts.tally);
            let shared = facts.map_or(0, |facts| facts.shared);
            let form = entry.device.form();
            VolumeInfo {
                name: entry.label.name.clone(),
                uuid: entry.label.uuid,
                bytes: entry.device.info().blocks * BLOCK as u64,
                allocated: tally.sectors * SECTOR as u64,
                shared: shared << form.chunk_shift,
                written: tally.chunks << form.chunk_shift,
                reserved: facts.map_or(0, |facts| u64::from(facts.reserved) * UNIT),
                form: shown(form),
                owner: entry.label.owner.clone(),
            }
        };
        volumes.values().map(info).collect()
    }

    /// See [`Pool::volume`](crate::pool::Pool::volume).
    pub fn volume(&self, name: &str) -> Option<SharedDevice> {
        let volumes = self.inner.volumes.borrow();
        Some(volumes.get(name)?.device.clone())
    }

    /// See [`Pool::find`](crate::pool::Pool::find).
    pub fn find(&self, uuid: [u8; 16]) -> Option<(String, SharedDevice)> {
        let (volumes, snapshots) = (self.inner.volumes.borrow(), self.inner.snapshots.borrow());
        let mut all = volumes.values().chain(snapshots.values());
        let entry = all.find(|entry| entry.label.uuid == uuid)?;
        Some((entry.label.name.clone(), entry.device.clone()))
    }

    /// See [`Pool::info`](crate::pool::Pool::info).
    pub fn info(&self) -> PoolInfo {
        let store = self.inner.engine.store.borrow();
        let space = store.space();
        let sum = |of: fn(&Facts) -> u64| {
            let all = store.volumes().filter(|volume| !volume.deleting);
            all.map(of).sum::<u64>()
        };
        let logical = |one: &Facts| match one.is_snapshot() {
            true => 0,
            false => one.chunks << one.form.chunk_shift,
        };
        let snapshots = |one: &Facts| match one.is_snapshot() {
            true => one.tally.sectors * SECTOR as u64,
            false => 0,
        };
        PoolInfo {
            kind: Kind::Mapped,
            uuid: self.inner.uuid,
            block_size: volume::BLOCK,
            encrypted: self.inner.keys.is_some(),
            bytes: space.capacity * BLOCK as u64,
            free: space.capacity.saturating_sub(space.used) * BLOCK as u64,
            reserved: space.reserved * BLOCK as u64,
            logical: sum(logical),
            snapshots: sum(snapshots),
            written: sum(|one| one.tally.chunks << one.form.chunk_shift),
            stored: sum(|one| one.tally.sectors * SECTOR as u64),
            generation: store.superblock().generation,
            scrub: self.scrubbed(),
            read_only: match store.state() {
                State::ReadOnly(StoreReadOnly::Device) => Some(ReadOnly::Device),
                State::ReadOnly(StoreReadOnly::Log) => Some(ReadOnly::Log),
                _ => None,
            },
        }
    }

    /// Bytes of the log: all of the device that can hold data, headers or pages of the map.
    pub fn log_bytes(&self) -> u64 {
        let store = self.inner.engine.store.borrow();
        let superblock = store.superblock();
        u64::from(superblock.segments) * u64::from(superblock.segment_blocks) * BLOCK as u64
    }

    /// What the store has done since it was opened.
    pub fn stats(&self) -> Stats {
        self.inner.engine.store.borrow().stats()
    }
}

/// A form as users see it.
pub(super) fn shown(form: Form) -> VolumeForm {
    VolumeForm {
        chunk: 1 << form.chunk_shift,
        compression: Codec::from_number(form.codec),
    }
}
