//! What is done with snapshots in a world, and what the counts have to say of them.

use std::collections::BTreeSet;

use flashyard_logstore::format::rows::LABEL;
use flashyard_logstore::{Lineage, Outcome};

use crate::world::World;

impl World {
    /// Asks for snapshots of these volumes.
    pub fn begin_snapshots(&mut self, volumes: &[Lineage]) -> Vec<Lineage> {
        let request = self.request();
        let wanted: Vec<_> = volumes.iter().map(|&one| (one, [3; LABEL])).collect();
        let made = self
            .store
            .snapshot(request, 77, &wanted)
            .expect("it can be");
        for (&volume, &snapshot) in volumes.iter().zip(&made) {
            self.inherit_form(volume, snapshot);
            self.model.begin_snapshot(volume, snapshot);
        }
        self.coming.insert(request, made.clone());
        made
    }

    /// Makes a snapshot; nothing when the power went.
    pub fn snapshot(&mut self, volume: Lineage) -> Option<Lineage> {
        let made = self.begin_snapshots(&[volume]);
        let there = self.settle().then_some(made[0])?;
        let mut all = self.store.volumes();
        let one = all.find(|one| one.lineage == there).expect("it was made");
        assert!(one.is_snapshot() && one.data == volume && one.made == 77);
        Some(there)
    }

    /// A volume that begins as a snapshot; nothing when the power went.
    pub fn clone_of(&mut self, snapshot: Lineage) -> Option<Lineage> {
        let request = self.request();
        let made = self.store.clone_snapshot(request, snapshot, [5; LABEL]);
        let made = made.expect("it can be");
        self.inherit_form(snapshot, made);
        self.model.clone_snapshot(snapshot, made);
        self.settle().then_some(made)
    }

    /// Back to the newest snapshot; false when the power went.
    pub fn restore(&mut self, volume: Lineage, snapshot: Lineage) -> bool {
        let request = self.request();
        let asked = self.store.restore(request, volume, snapshot);
        asked.expect("it is the newest");
        self.model.begin_restore(volume, snapshot);
        if !self.settle() {
            return false;
        }
        assert_eq!(self.done.remove(&request), Some(Outcome::Success));
        self.model.end_restore(volume, snapshot);
        true
    }

    /// What differs is what the model says, whatever is not in leaves yet.
    pub fn differences_are_exact(&mut self) {
        let all: Vec<Lineage> = self.model.volumes().iter().map(|one| one.0).collect();
        for &new in &all {
            let olds = self.model.snapshots_of(new).into_iter().map(Some);
            for old in olds.chain([None]) {
                let content = self.model.content(new);
                let mut before = old.map_or(Vec::new(), |old| self.model.content(old));
                before.resize(content.len(), 0);
                let changed = (0..content.len()).filter(|&at| content[at] != before[at]);
                let changed: Vec<u64> = changed.map(|at| at as u64).collect();
                let request = self.request();
                let asked = self.store.difference(request, old, new, 0);
                asked.expect("it is ready");
                assert!(self.settle());
                assert_eq!(self.done.remove(&request), Some(Outcome::Success));
                let found = self.store.take_difference().expect("it is done");
                assert_eq!(found.next, None);
                let found: Vec<u64> = found.changed.into_iter().flatten().collect();
                assert_eq!(found, changed, "{new:?} since {old:?}");
            }
        }
    }

    /// Sectors that deleting a snapshot would free.
    pub fn freed(&mut self, snapshot: Lineage) -> u64 {
        let (mut freed, mut from) = (0, Some(0));
        while let Some(at) = from {
            let request = self.request();
            let asked = self.store.freed(request, snapshot, at);
            asked.expect("it is there");
            assert!(self.settle());
            assert_eq!(self.done.remove(&request), Some(Outcome::Success));
            let found = self.store.take_difference().expect("it is done");
            assert!(found.changed.is_empty() && found.next.is_none_or(|next| next > at));
            (freed, from) = (freed + found.freed, found.next);
        }
        freed
    }

    /// Sectors that all volumes and snapshots store.
    pub fn stored_sectors(&self) -> u64 {
        self.store.volumes().map(|one| one.tally.sectors).sum()
    }

    /// Every chunk is stored once, whoever has it, and each volume says how many it has.
    pub fn counts_are_exact(&mut self) {
        let mut all = BTreeSet::new();
        for (volume, _) in self.model.volumes() {
            let content = self.model.content(volume);
            let mapped = content.iter().filter(|version| **version != 0).count() as u64;
            let one = self.store.volumes().find(|one| one.lineage == volume);
            let one = one.expect("it is there");
            assert_eq!(one.tally.chunks + one.shared, mapped, "{volume:?}");
            all.extend(content.into_iter().filter(|version| *version != 0));
        }
        let stored: u64 = self.store.volumes().map(|one| one.tally.chunks).sum();
        assert_eq!(stored, all.len() as u64, "chunks that are stored");
    }
}
