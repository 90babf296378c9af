//! Room for what is written: how much a write adds, whether its volume may have that, and what
//! waits for space.

use alloc::vec::Vec;
use core::ops::Range;

use super::accounts::{Family, Margin, Owned, Wall};
use super::host::Admit;
use super::io::{Outcome, Refused, Request};
use super::lane::Parked;
use super::map::LEVELS;
use super::reads::Found;
use super::state::{Store, Volume};
use crate::chunk::Stored;
use crate::entry::{LEAF_CHUNKS, Lineage};
use crate::format::batch::Lane;
use crate::format::{BLOCK, BLOCK_SECTORS};

/// Pages that a leaf adds at most: itself, and those above it.
const NEW_LEAF: u64 = 1 + LEVELS as u64;

/// Blocks of the unit in which space is reserved, 1 MiB.
pub const RESERVED_UNIT: u64 = (1 << 20) / BLOCK as u64;

/// What a write changes of what its volume takes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Added {
    /// Blocks more, at most.
    pub blocks: u64,
    /// Some of it takes less than before.
    pub frees: bool,
}

/// The sectors that a chunk is charged.
fn cost(stored: Stored) -> u64 {
    match stored.sectors {
        0 => 0,
        sectors => u64::from(sectors) + u64::from(stored.codec != 0),
    }
}

impl Store {
    /// Keeps so many MiB of the pool for a volume and its snapshots, what they take already
    /// included; done when that is durable. Refused with what is free.
    pub fn reserve(
        &mut self,
        request: Request,
        lineage: Lineage,
        units: u32,
    ) -> Result<(), Refused> {
        self.may_change()?;
        let rest = self.rest();
        let volume = self.volumes.get_mut(&lineage);
        let volume = volume.filter(|volume| !volume.deleting && !volume.is_snapshot());
        let volume = volume.ok_or(Refused::NoVolume)?;
        let blocks = u64::from(units) * RESERVED_UNIT;
        let reserved = self.accounts.reserve(lineage, blocks, rest);
        reserved.map_err(Refused::Space)?;
        volume.reserved = units;
        self.checkpoint.wait(request);
        self.unpark(|_| true);
        Ok(())
    }

    /// Says whose a volume is, by a number of the driver's choice. That is not stored.
    pub fn set_owner(&mut self, lineage: Lineage, owner: Option<u32>) {
        let is_volume = |volume: &Volume| !volume.is_snapshot();
        if self.volumes.get(&lineage).is_some_and(is_volume) {
            self.accounts.change(lineage, |family| family.owner = owner);
            self.unpark(|_| true);
        }
    }

    /// Blocks that the volumes of an owner and their snapshots may take, with what is reserved for
    /// them. That is not stored.
    pub fn set_quota(&mut self, owner: u32, quota: Option<u64>) {
        self.accounts.set_quota(owner, quota);
        self.unpark(|_| true);
    }

    /// What an owner has.
    pub fn owned(&self, owner: u32) -> Owned {
        self.accounts.owned(owner)
    }

    /// Blocks that a volume and its snapshots take, or what is reserved for them if that is more.
    pub fn claimed(&self, lineage: Lineage) -> u64 {
        self.accounts.family(lineage).claim()
    }

    /// Blocks that could be reserved for a volume, what it takes already included.
    pub fn reservable(&self, lineage: Lineage) -> u64 {
        self.accounts.reservable(lineage, self.rest())
    }

    /// What volumes take, and what records of the log may add.
    pub(super) fn open_accounts(&mut self) {
        for volume in self.volumes.values_mut() {
            volume.tree.count_pages();
            let (cost, pages) = (volume.tally.cost(), volume.tree.pages());
            let reserved = u64::from(volume.reserved) * RESERVED_UNIT;
            self.accounts.change(volume.data, |family| {
                family.cost += cost;
                family.pages += pages;
                family.reserved += reserved;
            });
        }
        for number in 0..self.frozen.leaves() {
            let Some((layer, _)) = self.frozen.leaf(number) else {
                continue;
            };
            let mut sectors = 0;
            self.frozen
                .changes(number, |_, entry| sectors += entry.cost());
            let added = sectors.div_ceil(BLOCK_SECTORS) + 2 * NEW_LEAF;
            if let Some(volume) = self.volumes.get(&layer) {
                let pending = |family: &mut Family| family.pending[1] += added;
                self.accounts.change(volume.data, pending);
            }
        }
    }

    /// What has waited for space is looked at again.
    pub(super) fn unpark(&mut self, which: impl Fn(&Parked) -> bool) {
        let wanted = self.parked.iter().filter(|parked| which(parked));
        let wanted: Vec<Lineage> = wanted.map(Parked::lineage).collect();
        self.progress |= !wanted.is_empty();
        // All of a volume, and before what came later: what overlaps stays in order.
        let parked = core::mem::take(&mut self.parked).into_iter();
        let again: Vec<Parked>;
        (again, self.parked) = parked.partition(|parked| wanted.contains(&parked.lineage()));
        for Parked { waiting, .. } in again.into_iter().rev() {
            let volume = self.volumes.get(&waiting.waiter.lineage);
            let lane = volume.map_or(Lane::User, |volume| volume.lane);
            self.lanes[lane as usize].waiting.push_front(waiting);
        }
    }

    /// Whether something that overlaps these chunks waits for space: what comes later waits too.
    pub(super) fn is_behind(&self, lineage: Lineage, chunks: &Range<u64>) -> bool {
        let mut of_volume = self.parked.iter().filter(|one| one.lineage() == lineage);
        of_volume.any(|one| {
            let other = one.waiting.chunks();
            other.start < chunks.end && chunks.start < other.end
        })
    }

    /// What a write may add; or that it has to wait, or that there is no space. Far from
    /// a limit the most it can be is good enough.
    pub(super) fn added(
        &mut self,
        lineage: Lineage,
        chunk: u64,
        stored: &[Stored],
    ) -> Result<Added, Admit> {
        let costs = stored.iter().copied().map(cost);
        let chunks = chunk..chunk + stored.len() as u64;
        let leaves = chunks.start / LEAF_CHUNKS..=(chunks.end - 1) / LEAF_CHUNKS;
        let pages: u64 = leaves.map(|leaf| self.new_pages(lineage, leaf)).sum();
        let most = costs.sum::<u64>().div_ceil(BLOCK_SECTORS) + 2 * pages;
        let rest = self.rest();
        let near = self.accounts.wall(lineage, most, rest, Margin::Eighth);
        if near.is_none() {
            return Ok(Added {
                blocks: most,
                frees: false,
            });
        }
        let (added, unknown) = self.really_added(lineage, chunk, stored);
        match self
            .accounts
            .wall(lineage, added.blocks, rest, Margin::None)
        {
            None => Ok(added),
            Some(wall) if self.may_settle(lineage, wall) => {
                self.checkpoint.wanted = true;
                Err(Admit::Parked(None))
            }
            Some(_) => match unknown {
                Some(page) => {
                    self.load_for_host(page, lineage);
                    Err(Admit::Parked(Some(page)))
                }
                None => Err(Admit::Never(Outcome::NoSpace)),
            },
        }
    }

    /// Pages that data in a leaf may add to the map.
    fn new_pages(&self, lineage: Lineage, leaf: u64) -> u64 {
        // Records that make room may take a leaf away that is there.
        if self.accounts.family(lineage).freed != [false; 2] {
            return NEW_LEAF;
        }
        // What came before has paid for it.
        let comes = self.active.has_leaf(lineage, leaf)
            || self.fresh(lineage).is_none() && self.frozen.has_leaf(lineage, leaf);
        if comes {
            return 0;
        }
        let volume = self.volumes.get(&lineage);
        volume.map_or(NEW_LEAF, |volume| volume.tree.missing(leaf))
    }

    /// What a write adds to what its volume itself stores, at most; and a leaf that would say more.
    fn really_added(
        &mut self,
        lineage: Lineage,
        chunk: u64,
        stored: &[Stored],
    ) -> (Added, Option<u32>) {
        let (mut sectors, mut pages, mut unknown) = (0, 0, None);
        let mut last = None;
        let mut frees = stored.iter().any(|stored| stored.sectors == 0);
        let with_data = (chunk..).zip(stored);
        for (chunk, stored) in with_data.filter(|(_, stored)| stored.sectors > 0) {
            // What a snapshot has stays where it is.
            match self.find_own(lineage, chunk) {
                Found::At(entry, _) if entry.is_stored() => {
                    sectors += cost(*stored).saturating_sub(entry.cost());
                    frees |= cost(*stored) < entry.cost();
                }
                found => {
                    sectors += cost(*stored);
                    if let Found::In(page) = found {
                        unknown = Some(page);
                    }
                    let leaf = chunk / LEAF_CHUNKS;
                    if last.replace(leaf) != Some(leaf) {
                        pages += self.new_pages(lineage, leaf);
                    }
                }
            }
        }
        let blocks = sectors.div_ceil(BLOCK_SECTORS) + 2 * pages;
        (Added { blocks, frees }, unknown)
    }

    /// Whether a cut may find room at a wall: for all of the pool, or for the owner of a volume,
    /// whose refused writes are not to cost others a cut each.
    fn may_settle(&self, lineage: Lineage, wall: Wall) -> bool {
        let mut deleted = self.volumes.values().filter(|volume| volume.deleting);
        match wall {
            Wall::Pool => {
                let trims = self.active.has_trims();
                let busy = self.checkpoint.is_busy();
                self.accounts.is_pending() || busy || trims || deleted.next().is_some()
            }
            Wall::Quota => {
                let mut of_owner =
                    deleted.filter(|volume| self.accounts.share_owner(volume.data, lineage));
                self.accounts.is_settling(lineage) || of_owner.next().is_some()
            }
        }
    }
}
