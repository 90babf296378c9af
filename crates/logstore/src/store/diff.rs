//! What differs between two versions of a volume: a walk over both maps that skips what they share.

use super::differ::{Differ, Difference};
use super::io::{Outcome, Refused, Request};
use super::reads::Found;
use super::state::{State, Store};
use crate::entry::{Entry, LEAF_CHUNKS, Lineage};

impl Store {
    /// Compares a volume or snapshot with an older snapshot, or with nothing, from a chunk on. When
    /// the request is done, [`take_difference`](Self::take_difference) has the result. What is
    /// written to a volume meanwhile may be in it or not.
    pub fn difference(
        &mut self,
        request: Request,
        old: Option<Lineage>,
        new: Lineage,
        from: u64,
    ) -> Result<(), Refused> {
        if self.state != State::Ready {
            return Err(Refused::NotReady);
        }
        if self.differ.is_some() {
            return Err(Refused::Busy);
        }
        for one in old.into_iter().chain([new]) {
            let there = self.volumes.get(&one).is_some_and(|one| !one.deleting);
            there.then_some(()).ok_or(Refused::NoVolume)?;
        }
        let end = self.volumes.get(&new).map_or(0, |volume| volume.chunks);
        self.differ = Some(Differ {
            request,
            old,
            new,
            at: from,
            end,
            leaves: 0,
            unlike: 0,
            frees: false,
            found: Difference::default(),
        });
        Ok(())
    }

    /// Adds up what deleting a snapshot would free, from a chunk on: what it stores that the next
    /// version has not got. When the request is done, [`take_difference`](Self::take_difference)
    /// has the sum of this part. Clones are not looked at: while there are some it cannot be
    /// deleted.
    pub fn freed(&mut self, request: Request, snapshot: Lineage, from: u64) -> Result<(), Refused> {
        let mut next = self.heir(snapshot).ok_or(Refused::NoVolume)?;
        // One that goes leaves what it inherits to the one after it.
        while self.volumes.get(&next).is_some_and(|next| next.deleting) {
            next = self.heir(next).ok_or(Refused::NoVolume)?;
        }
        self.difference(request, Some(snapshot), next, from)?;
        let end = self
            .volumes
            .get(&snapshot)
            .map_or(0, |volume| volume.chunks);
        if let Some(differ) = &mut self.differ {
            differ.frees = true;
            differ.end = end;
        }
        Ok(())
    }

    /// What the last comparison found, once.
    pub fn take_difference(&mut self) -> Option<Difference> {
        self.difference.take()
    }

    pub(super) fn step_difference(&mut self) {
        let Some(mut differ) = self.differ.take() else {
            return;
        };
        while differ.at < differ.end {
            if differ.is_enough() {
                differ.found.next = Some(differ.at);
                break;
            }
            if differ.at.is_multiple_of(LEAF_CHUNKS) {
                differ.leaves += 1;
                if self.is_same_leaf(&differ) {
                    differ.at += LEAF_CHUNKS;
                    continue;
                }
                differ.unlike += 1;
            }
            let new = self.stored_in(Some(differ.new), differ.at);
            let old = self.stored_in(differ.old, differ.at);
            let (Ok(new), Ok(old)) = (new, old) else {
                for page in [new, old].into_iter().filter_map(Result::err) {
                    self.load(page);
                }
                self.differ = Some(differ);
                return;
            };
            match new != old {
                true if differ.frees => match self.freed_at(&differ, old) {
                    Ok(sectors) => differ.found.freed += sectors,
                    Err(page) => {
                        self.load(page);
                        self.differ = Some(differ);
                        return;
                    }
                },
                true => differ.add(),
                false => {}
            }
            differ.at += 1;
        }
        self.answer(differ.request, Outcome::Success);
        self.difference = Some(differ.found);
        self.progress = true;
    }

    /// Sectors of a chunk that nobody needs without the older version, which has it from `layer`:
    /// it is stored there, or in one before it that goes and leaves it behind.
    fn freed_at(&mut self, differ: &Differ, layer: Option<Lineage>) -> Result<u64, u32> {
        let Some(layer) = layer else {
            return Ok(0);
        };
        let goes = self.volumes.get(&layer).is_some_and(|it| it.deleting);
        if differ.old != Some(layer) && !goes {
            return Ok(0);
        }
        match self.find_own(layer, differ.at) {
            Found::At(entry, _) => Ok(entry.sectors().into()),
            Found::In(page) => Err(page),
        }
    }

    /// Whether both versions have the same leaf, and nothing was written to it since.
    fn is_same_leaf(&self, differ: &Differ) -> bool {
        let leaf = differ.at / LEAF_CHUNKS;
        let changes = self.active.has_leaf(differ.new, leaf)
            || self.frozen.has_leaf(differ.new, leaf)
            || !self.checkpoint.fresh.is_empty();
        let (page, _) = self.source(differ.new, leaf);
        let old = differ.old.map_or(0, |old| self.source(old, leaf).0);
        page == old && !changes
    }

    /// The layer that stores a chunk of a version; nothing where it is not mapped. A chunk of a
    /// layer never changes, so two versions that have it from one layer have the same data.
    fn stored_in(&mut self, version: Option<Lineage>, chunk: u64) -> Result<Option<Lineage>, u32> {
        let leaf = chunk / LEAF_CHUNKS;
        let mut at = version;
        while let Some(layer) = at {
            let known = self.known(layer, chunk).map(|known| known.entry);
            let Some(volume) = self.volumes.get(&layer) else {
                return Ok(None);
            };
            let (page, parent) = (volume.tree.leaf(leaf), volume.parent);
            let entry = match known {
                Some(entry) => entry,
                None if page == 0 => {
                    at = parent;
                    continue;
                }
                None => self.entry_of(page, chunk)?,
            };
            return Ok(match entry.origin() {
                Some((data, epoch)) => Some(self.holder(data, epoch, leaf)),
                None => (entry != Entry::UNMAPPED).then_some(layer),
            });
        }
        Ok(None)
    }
}
