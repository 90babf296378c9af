//! What each volume takes of the pool, what is kept for it, and whose it is.
//!
//! A volume and its snapshots are one *family*. It claims what it takes or what is reserved for it,
//! whichever is more. All claims together are never more than the pool has, so a family can always
//! write up to its reservation; and those of an owner are never more than the owner's quota, but
//! for what a reservation has promised.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;

use crate::entry::Lineage;
use crate::format::BLOCK_SECTORS;

/// What a volume takes with its snapshots.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Family {
    pub owner: Option<u32>,
    /// Blocks that are kept for it, what it takes included.
    pub reserved: u64,
    /// Sectors that its data are charged, at the last cut.
    pub cost: u64,
    /// Pages of its map, each of which is two blocks.
    pub pages: u64,
    /// Blocks that records may add: those since the last cut, and those that are being applied.
    pub pending: [u64; 2],
    /// Some of these records make room.
    pub freed: [bool; 2],
}

impl Family {
    fn pending(&self) -> u64 {
        self.pending[0] + self.pending[1]
    }

    /// Blocks that it takes, at most.
    pub fn taken(&self) -> u64 {
        self.cost.div_ceil(BLOCK_SECTORS) + 2 * self.pages + self.pending()
    }

    pub fn claim(&self) -> u64 {
        self.taken().max(self.reserved)
    }

    /// Whether the next cut may find that it takes less.
    fn is_settling(&self) -> bool {
        self.pending() > 0 || self.freed != [false; 2]
    }
}

/// What an owner has in a pool, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Owned {
    /// What its volumes and their snapshots take, at most.
    pub taken: u64,
    /// What is kept for them beside that.
    pub reserved: u64,
    /// What both may be together.
    pub quota: Option<u64>,
}

impl Owned {
    fn claimed(&self) -> u64 {
        self.taken + self.reserved
    }
}

/// What a write meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wall {
    /// All of the pool is used or kept for others.
    Pool,
    /// The owner has as much as it may have.
    Quota,
}

/// How near to a wall a write may come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Margin {
    None,
    Eighth,
}

impl Margin {
    fn of(self, limit: u64) -> u64 {
        match self {
            Self::None => limit,
            Self::Eighth => limit - limit / 8,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    families: BTreeMap<Lineage, Family>,
    owners: BTreeMap<u32, Owned>,
    /// Of all families.
    total: Owned,
    pages: u64,
    pending: u64,
}

impl Accounts {
    /// Blocks that all families take.
    pub fn taken(&self) -> u64 {
        self.total.taken
    }

    /// Blocks that are kept for families beside what they take.
    pub fn reserved(&self) -> u64 {
        self.total.reserved
    }

    /// Pages of all their maps.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Whether records are there that may add blocks.
    pub fn is_pending(&self) -> bool {
        self.pending > 0
    }

    pub fn family(&self, data: Lineage) -> Family {
        self.families.get(&data).copied().unwrap_or_default()
    }

    pub fn owned(&self, owner: u32) -> Owned {
        self.owners.get(&owner).copied().unwrap_or_default()
    }

    pub fn set_quota(&mut self, owner: u32, quota: Option<u64>) {
        self.owners.entry(owner).or_default().quota = quota;
    }

    /// Changes what is known of a family.
    pub fn change(&mut self, data: Lineage, change: impl FnOnce(&mut Family)) {
        let family = self.families.entry(data).or_default();
        let before = *family;
        change(family);
        let now = *family;
        self.pages = self.pages + now.pages - before.pages;
        self.pending = self.pending + now.pending() - before.pending();
        let mut book = |family: Family, sign: fn(u64, u64) -> u64| {
            let owner = family.owner.map(|owner| self.owners.entry(owner));
            let owner = owner.map(Entry::or_default);
            for all in owner.into_iter().chain([&mut self.total]) {
                all.taken = sign(all.taken, family.taken());
                all.reserved = sign(all.reserved, family.claim() - family.taken());
            }
        };
        book(before, |all, one| all - one);
        book(now, |all, one| all + one);
    }

    /// Nothing is left of a family.
    pub fn remove(&mut self, data: Lineage) {
        self.change(data, |family| *family = Family::default());
        self.families.remove(&data);
    }

    /// What a family meets that is to take so many blocks more, when families may claim `rest` in
    /// all. What it has reserved is there, whatever the quota of its owner.
    pub fn wall(&self, data: Lineage, added: u64, rest: u64, margin: Margin) -> Option<Wall> {
        let family = self.family(data);
        let more = (family.taken() + added).saturating_sub(family.claim());
        if more == 0 {
            return None;
        }
        if self.total.claimed() + more > margin.of(rest) {
            return Some(Wall::Pool);
        }
        let owned = self.owned(family.owner?);
        let over = |quota| owned.claimed() + more > margin.of(quota);
        owned.quota.is_some_and(over).then_some(Wall::Quota)
    }

    /// Blocks that could be reserved for a family at most.
    pub fn reservable(&self, data: Lineage, rest: u64) -> u64 {
        let family = self.family(data);
        let free = |all: Owned, limit: u64| limit.saturating_sub(all.claimed() - family.claim());
        let of_owner = family.owner.map(|owner| self.owned(owner));
        let of_owner = of_owner.and_then(|owned| Some(free(owned, owned.quota?)));
        let most = free(self.total, rest).min(of_owner.unwrap_or(u64::MAX));
        most.max(family.taken())
    }

    /// Keeps so many blocks for a family, or says how many there are.
    pub fn reserve(&mut self, data: Lineage, blocks: u64, rest: u64) -> Result<(), u64> {
        let most = self.reservable(data, rest);
        if blocks > most.max(self.family(data).reserved) {
            return Err(most);
        }
        self.change(data, |family| family.reserved = blocks);
        Ok(())
    }

    /// Whether the next cut may find that the owner of a family has less.
    pub fn is_settling(&self, data: Lineage) -> bool {
        let Some(owner) = self.family(data).owner else {
            return false;
        };
        let mut all = self.families.values();
        all.any(|family| family.owner == Some(owner) && family.is_settling())
    }

    /// Whether two families have the same owner.
    pub fn share_owner(&self, data: Lineage, other: Lineage) -> bool {
        self.family(data).owner == self.family(other).owner
    }

    /// A cut: what comes now belongs to the next one.
    pub fn cut(&mut self) {
        for family in self.families.values_mut() {
            family.pending = [0, family.pending()];
            family.freed = [false, family.freed != [false; 2]];
        }
    }

    /// What was cut is in the map, and counted there.
    pub fn applied(&mut self) {
        let all = self.families.keys().copied();
        for data in all.collect::<alloc::vec::Vec<_>>() {
            self.change(data, |family| {
                (family.pending[1], family.freed[1]) = (0, false)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;

    const REST: u64 = 1000;

    /// Sums, made anew of what families say.
    fn sums(accounts: &Accounts, of: impl Fn(&Family) -> bool) -> (u64, u64) {
        let all = accounts.families.values().filter(|family| of(family));
        all.fold((0, 0), |(taken, claimed), family| {
            let claim = family.taken().max(family.reserved);
            (taken + family.taken(), claimed + claim)
        })
    }

    fn one(accounts: &mut Accounts, chance: &mut Rng) {
        let data = Lineage(1 + chance.below(6) as u32);
        let amount = chance.below(300);
        match chance.below(12) {
            0..=5 => {
                if accounts.wall(data, amount, REST, Margin::None).is_none() {
                    accounts.change(data, |family| family.pending[0] += amount);
                }
            }
            6 => drop(accounts.reserve(data, amount, REST)),
            7 => {
                let quota = (chance.below(3) > 0).then(|| chance.below(REST));
                accounts.set_quota(chance.below(3) as u32, quota);
            }
            8 => accounts.change(data, |family| family.owner = Some(chance.below(3) as u32)),
            9 => accounts.cut(),
            10 => {
                // What is in the map is at most what was expected of it.
                for data in (1..=6).map(Lineage) {
                    accounts.change(data, |family| {
                        let most = family.pending[1];
                        family.pages += chance.below(most / 4 + 1);
                        family.cost += chance.below(most / 2 + 1) * BLOCK_SECTORS;
                    });
                }
                accounts.applied();
            }
            _ => accounts.change(data, |family| {
                family.cost -= chance.below(family.cost + 1);
                family.pages -= chance.below(family.pages + 1);
                family.freed[0] = true;
            }),
        }
    }

    #[test]
    fn sums_are_those_of_families_and_what_is_reserved_can_always_be_written() {
        let mut refused = [0; 2];
        for seed in 0..200 {
            let (mut accounts, mut chance) = (Accounts::default(), Rng::new(seed));
            for _ in 0..300 {
                one(&mut accounts, &mut chance);
                let (taken, claimed) = sums(&accounts, |_| true);
                assert_eq!(
                    (accounts.taken(), accounts.reserved()),
                    (taken, claimed - taken)
                );
                assert!(claimed <= REST, "reservations are oversold");
                let pages = accounts.families.values().map(|family| family.pages).sum();
                assert_eq!(accounts.pages(), pages);
                for owner in 0..3 {
                    let (taken, claimed) = sums(&accounts, |one| one.owner == Some(owner));
                    let owned = accounts.owned(owner);
                    assert_eq!((owned.taken, owned.claimed()), (taken, claimed));
                }
                for (&data, family) in &accounts.families {
                    let left = family.claim() - family.taken();
                    assert_eq!(accounts.wall(data, left, REST, Margin::None), None);
                    let wall = accounts.wall(data, left + 1, REST, Margin::None);
                    let owned = family.owner.map(|owner| accounts.owned(owner));
                    let quota = owned.and_then(|owned| Some((owned.quota?, owned.claimed())));
                    let over = quota.is_some_and(|(quota, claimed)| claimed + 1 > quota);
                    match wall {
                        Some(Wall::Pool) => assert_eq!(claimed, REST),
                        Some(Wall::Quota) => assert!(over && claimed < REST),
                        None => assert!(!over && claimed < REST),
                    }
                    refused[0] += u32::from(wall == Some(Wall::Pool));
                    refused[1] += u32::from(wall == Some(Wall::Quota));
                }
            }
        }
        assert!(refused.iter().all(|&count| count > 100), "{refused:?}");
    }

    #[test]
    fn what_can_be_reserved_is_what_is_free_and_fits_the_quota() {
        let mut accounts = Accounts::default();
        let (first, second) = (Lineage(1), Lineage(2));
        accounts.change(first, |family| {
            (family.owner, family.cost) = (Some(7), 100 * 8)
        });
        assert_eq!(accounts.reserve(first, 300, REST), Ok(()));
        assert_eq!(accounts.reserve(second, 701, REST), Err(700));
        assert_eq!(accounts.reserve(second, 700, REST), Ok(()));
        // Less is always possible, and what it takes as well.
        assert_eq!(accounts.reserve(first, 20, REST), Ok(()));
        assert_eq!(accounts.reservable(first, REST), 300);
        accounts.set_quota(7, Some(150));
        assert_eq!(accounts.reserve(first, 151, REST), Err(150));
        assert_eq!(accounts.wall(first, 50, REST, Margin::None), None);
        assert_eq!(
            accounts.wall(first, 51, REST, Margin::None),
            Some(Wall::Quota)
        );
        accounts.set_quota(7, Some(90));
        assert_eq!(accounts.wall(first, 0, REST, Margin::None), None);
        assert_eq!(
            accounts.reserve(first, 100, REST),
            Ok(()),
            "it takes that already"
        );
    }

    #[test]
    fn an_owner_settles_while_its_own_records_may_make_room() {
        let mut accounts = Accounts::default();
        let (first, second, other) = (Lineage(1), Lineage(2), Lineage(3));
        for (data, owner) in [(first, 1), (second, 1), (other, 2)] {
            accounts.change(data, |family| family.owner = Some(owner));
        }
        accounts.change(second, |family| family.freed[0] = true);
        assert!(accounts.is_settling(first) && !accounts.is_settling(other));
        accounts.cut();
        assert!(accounts.is_settling(first));
        accounts.change(other, |family| family.pending[0] = 3);
        accounts.applied();
        assert!(!accounts.is_settling(first) && accounts.is_settling(other));
    }
}
