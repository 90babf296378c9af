//! Tenants: what they are owed, what they have had, and what of theirs is queued.

use alloc::boxed::Box;
use alloc::vec::Vec;

use flashyard_time::Duration;

use super::costs::{Class, Kind};
use super::rates::Paces;
use super::windows::ONE;
use crate::{Share, TenantId};

/// The end of a list.
pub(super) const NONE: u32 = u32::MAX;

/// The queues of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Latency-sensitive I/O of either kind.
    Latency,
    /// Reads for throughput.
    Read,
    /// Writes for throughput.
    Write,
    /// What is done when nobody else wants the device.
    Background,
}

impl Kind {
    /// Where I/O for throughput waits.
    #[inline]
    pub(super) fn lane(self) -> Lane {
        match self {
            Self::Read => Lane::Read,
            Self::Write => Lane::Write,
        }
    }
}

pub(super) const LANES: [Lane; 4] = [Lane::Latency, Lane::Read, Lane::Write, Lane::Background];

/// Ids below this are found at once: tenants are numbered from one on.
const NEAR: u32 = 4096;

/// A tenant with nothing queued counts as waiting when what it has in flight would give it its
/// share at so many times the base latency. One with less gets less than its share by its own
/// choice, and nobody waits for it.
const CLAIM: u64 = 5;

/// Virtual time is service in costs, divided by the weight, times this.
pub(super) const WEIGHT_UNIT: u64 = 16;

/// A tenant that is known: something was said of it, or something of it is here.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) id: TenantId,
    pub(super) weight: u64,
    pub(super) guarantee: Option<Box<Paces>>,
    pub(super) limit: Option<Box<Paces>>,
    /// What its latency-sensitive I/O should stay under, in nanoseconds; 0 if it does not say.
    pub(super) target: u64,
    /// The virtual time at which its next I/O starts.
    pub(super) tag: u64,
    /// The same for its background I/O, among those who do any.
    pub(super) background_tag: u64,
    pub(super) lanes: [Queue; 4],
    pub(super) queued: u32,
    pub(super) in_flight: u32,
    /// Load in flight, by kind, that it has a share for: all but what is done in the background.
    pub(super) load: [u64; 2],
    /// Whether it counts as waiting with nothing queued, by kind.
    pub(super) claims: [bool; 2],
    /// Sixteen times what its latest I/Os counted and transferred in the mean.
    pub(super) usual_load: u64,
    pub(super) usual_bytes: u64,
    /// Classes that it has sent, one bit for each.
    pub(super) classes: u32,
    /// Nothing more is known of it than what is here.
    pub(super) forgotten: bool,
}

/// A list of places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub(super) head: u32,
    pub(super) tail: u32,
}

/// An I/O that is here; the table is indexed by its id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) state: State,
    pub(super) lane: Lane,
    pub(super) kind: Kind,
    pub(super) class: Class,
    pub(super) tenant: u32,
    pub(super) before: u32,
    pub(super) behind: u32,
    pub(super) bytes: u64,
    /// What it was charged, and counts in flight.
    pub(super) cost: u64,
    pub(super) load: u32,
    /// It was charged when it had its turn before.
    pub(super) paid: bool,
}

/// Where an I/O is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Absent,
    Queued,
    Dispatched,
}

pub(super) const ABSENT: Place = Place {
    state: State::Absent,
    lane: Lane::Read,
    kind: Kind::Read,
    class: Class(0),
    tenant: NONE,
    before: NONE,
    behind: NONE,
    bytes: 0,
    cost: 0,
    load: 0,
    paid: false,
};

impl Tenant {
    fn new(id: TenantId) -> Self {
        let empty = Queue {
            head: NONE,
            tail: NONE,
        };
        let mut tenant = Self {
            id,
            weight: 1,
            guarantee: None,
            limit: None,
            target: 0,
            tag: 0,
            background_tag: 0,
            lanes: [empty; 4],
            queued: 0,
            in_flight: 0,
            load: [0; 2],
            claims: [false; 2],
            usual_load: 0,
            usual_bytes: 0,
            classes: 0,
            forgotten: false,
        };
        tenant.owe(&Share::default());
        tenant
    }

    /// A weight of nothing counts as one.
    pub(super) fn owe(&mut self, share: &Share) {
        self.weight = u64::from(share.weight.max(1));
        self.guarantee = Paces::guarantees(&share.guarantee).map(Box::new);
        self.limit = Paces::limits(&share.limit).map(Box::new);
        self.target = share.latency_target.map_or(0, Duration::as_ns);
    }

    /// How far an I/O of this cost moves the tenant in virtual time.
    #[inline]
    pub(super) fn stride(&self, cost: u64) -> u64 {
        let scaled = cost * WEIGHT_UNIT;
        if self.weight == 1 {
            scaled
        } else {
            (scaled / self.weight).max(1)
        }
    }

    /// An I/O of it has come. After a pause it starts with the others: what it did not use is not
    /// kept. Gives what that adds to the weight of those who are here.
    #[inline]
    pub(super) fn wake(&mut self, lane: Lane, virtual_now: u64) -> u64 {
        let more = if self.is_active() { 0 } else { self.weight };
        if lane == Lane::Background {
            self.background_tag = self.background_tag.max(virtual_now);
        } else if self.queued == 0 {
            self.tag = self.tag.max(virtual_now);
        }
        more
    }

    /// An I/O of it goes to the device.
    #[inline]
    pub(super) fn send(&mut self, lane: Lane, kind: Kind, bytes: u64, load: u64) {
        self.usual_load += load;
        self.usual_load -= self.usual_load >> 4;
        self.usual_bytes += bytes.min(1 << 40);
        self.usual_bytes -= self.usual_bytes >> 4;
        self.in_flight += 1;
        if lane != Lane::Background {
            self.load[kind as usize] += load;
        }
    }

    /// An I/O of it has ended.
    #[inline]
    pub(super) fn receive(&mut self, lane: Lane, kind: Kind, load: u64) {
        self.in_flight -= 1;
        if lane != Lane::Background {
            self.load[kind as usize] -= load;
        }
    }

    /// Whether it counts as waiting with nothing queued, by kind, beside others of so much weight
    /// in all.
    pub(super) fn waits(&self, active_weight: u64) -> [bool; 2] {
        let least = CLAIM * ONE * self.weight;
        self.load
            .map(|load| self.queued == 0 && load * active_weight >= least)
    }

    /// Whether it does with any kind, or did when it was looked at last. Of most tenants neither is
    /// so.
    #[inline]
    pub(super) fn is_claiming(&self, active_weight: u64) -> bool {
        let most = self.load[0].max(self.load[1]);
        let waits = self.queued == 0 && most * active_weight >= CLAIM * ONE * self.weight;
        waits || self.claims != [false; 2]
    }

    /// The virtual time at which the next I/O of a lane starts.
    #[inline]
    pub(super) fn tag_of(&self, lane: Lane) -> u64 {
        match lane {
            Lane::Background => self.background_tag,
            _ => self.tag,
        }
    }

    /// Something of it is queued or in flight.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.queued > 0 || self.in_flight > 0
    }

    #[inline]
    pub(super) fn head(&self, lane: Lane) -> u32 {
        self.lanes[lane as usize].head
    }
}

/// All tenants, by small numbers of their own that are used again.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    /// Number of each id, ordered by id.
    known: Vec<(TenantId, u32)>,
    /// The same for ids below [`NEAR`], at the place of each: what every I/O asks for is found
    /// without a search.
    near: Vec<u32>,
    table: Vec<Tenant>,
    free: Vec<u32>,
}

impl Tenants {
    /// The number of `id`, which is made known.
    #[inline]
    pub(super) fn number(&mut self, id: TenantId) -> u32 {
        match self.near.get(id.0 as usize) {
            Some(&number) if number != NONE => number,
            _ => self.search(id),
        }
    }

    #[inline(never)]
    fn search(&mut self, id: TenantId) -> u32 {
        match self.known.binary_search_by_key(&id, |known| known.0) {
            Ok(at) => self.known[at].1,
            Err(at) => self.admit(id, at),
        }
    }

    pub(super) fn get(&self, id: TenantId) -> Option<&Tenant> {
        let at = self.known.binary_search_by_key(&id, |known| known.0);
        at.ok().map(|at| &self.table[self.known[at].1 as usize])
    }

    pub(super) fn is_known(&self, id: TenantId) -> bool {
        self.known
            .binary_search_by_key(&id, |known| known.0)
            .is_ok()
    }

    fn admit(&mut self, id: TenantId, at: usize) -> u32 {
        let number = if let Some(number) = self.free.pop() {
            self.table[number as usize] = Tenant::new(id);
            number
        } else {
            self.table.push(Tenant::new(id));
            self.table.len() as u32 - 1
        };
        self.known.insert(at, (id, number));
        if id.0 < NEAR {
            let length = self.near.len().max(id.0 as usize + 1);
            self.near.resize(length, NONE);
            self.near[id.0 as usize] = number;
        }
        number
    }

    /// Lets go of a tenant of which nothing was said and nothing is here.
    pub(super) fn release(&mut self, number: u32) {
        let tenant = &self[number];
        if tenant.forgotten && !tenant.is_active() {
            let id = tenant.id;
            if let Ok(at) = self.known.binary_search_by_key(&id, |known| known.0) {
                self.known.remove(at);
                self.free.push(number);
                if let Some(near) = self.near.get_mut(id.0 as usize) {
                    *near = NONE;
                }
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Tenant> {
        self.known
            .iter()
            .map(|&(_, number)| &self.table[number as usize])
    }

    /// All numbers are below this.
    pub(super) fn most(&self) -> u32 {
        self.table.len() as u32
    }

    #[cfg(test)]
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.known.iter().map(|&(_, number)| number)
    }
}

impl core::ops::Index<u32> for Tenants {
    type Output = Tenant;
    #[inline]
    fn index(&self, number: u32) -> &Tenant {
        &self.table[number as usize]
    }
}

impl core::ops::IndexMut<u32> for Tenants {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut Tenant {
        &mut self.table[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_ids_and_large_ones_are_found_until_they_are_let_go() {
        let mut tenants = Tenants::default();
        let ids = [0, 1, NEAR - 1, NEAR, u32::MAX].map(TenantId);
        let numbers = ids.map(|id| tenants.number(id));
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        assert!(tenants.near.len() <= NEAR as usize);
        for (id, number) in ids.into_iter().zip(numbers) {
            assert_eq!(tenants.number(id), number);
            assert_eq!(tenants[number].id, id);
            tenants.release(number);
            assert!(tenants.is_known(id), "something was said of it");
        }
        for id in ids.into_iter().rev() {
            let number = tenants.number(id);
            tenants[number].forgotten = true;
            tenants.release(number);
            assert!(!tenants.is_known(id));
        }
        // What was its number is another's now.
        assert_eq!(tenants.number(TenantId(7)), 0);
        assert_eq!(tenants.number(TenantId(0)), 1);
        assert_eq!(tenants[1].id, TenantId(0));
        assert_eq!(tenants.iter().count(), 2);
    }
}
