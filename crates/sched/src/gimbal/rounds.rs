//! The scheduler: deficit round robin over tenants, each with as many virtual slots as its share of
//! eight.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::queues::Queues;
use crate::roster::Roster;
use crate::{Ask, IoId, TenantId};

use super::Tuning;
use super::slots::Slots;

/// Where I/Os are that have had their turn and wait for tokens: the first two lists; tenants have
/// those behind.
pub(super) const PARKED: [u32; 2] = [0, 1];

/// Which tenant is next, and what every tenant has in flight.
#[derive(Debug)]
pub(super) struct Rounds {
    tenants: Roster<Tenant>,
    queues: Queues,
    /// Tenants with a backlog and a free slot, the next one first.
    active: VecDeque<u32>,
    /// Tenants with anything queued or in flight.
    occupied: u32,
    /// By id, of each I/O that has had its turn: tenant and slot.
    members: Vec<(u32, u32)>,
    quantum: u64,
    slots: u32,
    slot_bytes: u64,
}

#[derive(Debug)]
struct Tenant {
    activity: Activity,
    /// Of an active one.
    deficit: u64,
    slots: Slots,
    /// Parked or at the device.
    in_flight: u32,
    gone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    /// Nothing is queued.
    Idle,
    Active,
    /// It has a backlog, and no free slot.
    Deferred,
}

impl Rounds {
    pub(super) fn new(tuning: &Tuning) -> Self {
        Self {
            tenants: Roster::default(),
            queues: Queues::default(),
            active: VecDeque::new(),
            occupied: 0,
            members: Vec::new(),
            quantum: tuning.quantum_bytes.max(1),
            slots: tuning.slots.max(1),
            slot_bytes: tuning.slot_bytes,
        }
    }

    /// Queues an I/O of a tenant.
    pub(super) fn arrive(&mut self, io: Ask) {
        let number = self.number(io.tenant);
        if self.is_vacant(number) {
            self.occupied += 1;
        }
        self.queues.push(list(number), io);
        if self.tenants[number].activity == Activity::Idle {
            self.activate(number);
        }
    }

    /// Takes the next I/O into its tenant's slot; `cost` says what an I/O costs in
    /// bytes.
    pub(super) fn dequeue(&mut self, cost: impl Fn(&Ask) -> u64) -> Option<Ask> {
        let mut passes = 0;
        while let Some(&number) = self.active.front() {
            let Some(io) = self.queues.front(list(number)) else {
                self.rest(number);
                continue;
            };
            let cost_of_head = cost(io);
            let tenant = &mut self.tenants[number];
            if tenant.deficit >= cost_of_head {
                return self.take(number, cost_of_head);
            }
            tenant.deficit += self.quantum;
            self.active.rotate_left(1);
            passes += 1;
            if passes > self.active.len() {
                self.skip_rounds(&cost);
                passes = 0;
            }
        }
        None
    }

    /// Holds an I/O that has had its turn in a list of [`PARKED`].
    pub(super) fn park(&mut self, lane: u32, io: Ask) {
        self.queues.push(lane, io);
    }

    /// The oldest I/O that is held in a list of [`PARKED`].
    pub(super) fn parked(&self, lane: u32) -> Option<&Ask> {
        self.queues.front(lane)
    }

    /// Lets the oldest of a list of [`PARKED`] go.
    pub(super) fn unpark(&mut self, lane: u32) -> Option<Ask> {
        self.queues.pop(lane)
    }

    /// An I/O that has had its turn has ended.
    pub(super) fn end(&mut self, id: IoId) {
        let (number, slot) = self.members[id.0 as usize];
        let tenant = &mut self.tenants[number];
        tenant.in_flight -= 1;
        let room =
            tenant.slots.end(slot) && tenant.slots.closed() < allowed(self.slots, self.occupied);
        if room && tenant.activity == Activity::Deferred {
            self.activate(number);
        }
        self.leave(number);
    }

    /// Forgets an I/O that is queued or parked, if it is.
    pub(super) fn cancel(&mut self, id: IoId) {
        match self.queues.remove(id) {
            Some((lane, _)) if PARKED.contains(&lane) => self.end(id),
            Some((lane, _)) => {
                let number = lane - PARKED.len() as u32;
                // An active one is found without a backlog when its turn comes.
                if self.tenants[number].activity == Activity::Deferred && self.queues.is_empty(lane)
                {
                    self.tenants[number].activity = Activity::Idle;
                }
                self.leave(number);
            }
            None => {}
        }
    }

    /// Forgets a tenant as soon as nothing of it is here.
    pub(super) fn forget(&mut self, id: TenantId) {
        if let Some(number) = self.tenants.find(id) {
            self.tenants[number].gone = true;
            self.release(number);
        }
    }

    /// I/Os that a tenant may have in flight: the worth of its slots. `None` of one that is not
    /// known.
    pub(super) fn credit(&self, id: TenantId) -> Option<u32> {
        let slots = &self.tenants[self.tenants.find(id)?].slots;
        Some(allowed(self.slots, self.occupied).saturating_mul(slots.members()))
    }

    /// Each tenant with the number of its slots that are full.
    pub(super) fn slots(&self) -> impl Iterator<Item = (TenantId, u32)> {
        self.tenants
            .iter()
            .map(|(id, _, tenant)| (id, tenant.slots.closed()))
    }

    /// Tenants with anything queued or in flight.
    pub(super) fn occupied(&self) -> u32 {
        self.occupied
    }

    fn number(&mut self, id: TenantId) -> u32 {
        let (slots, bytes) = (self.slots, self.slot_bytes);
        let number = self.tenants.number(id, || Tenant {
            activity: Activity::Idle,
            deficit: 0,
            slots: Slots::new(slots, bytes),
            in_flight: 0,
            gone: false,
        });
        self.tenants[number].gone = false;
        number
    }

    fn take(&mut self, number: u32, cost: u64) -> Option<Ask> {
        let io = self.queues.pop(list(number))?;
        let tenant = &mut self.tenants[number];
        tenant.deficit -= cost;
        tenant.in_flight += 1;
        let slot = tenant.slots.add(cost);
        let index = io.id.0 as usize;
        if index >= self.members.len() {
            self.members.resize(index + 1, (0, 0));
        }
        self.members[index] = (number, slot);
        if tenant.slots.closed() >= allowed(self.slots, self.occupied) {
            tenant.activity = Activity::Deferred;
            self.active.pop_front();
        }
        if self.queues.is_empty(list(number)) {
            self.rest(number);
        }
        Some(io)
    }

    /// A tenant with a backlog may have its turn, if it has a free slot.
    fn activate(&mut self, number: u32) {
        let backlog = !self.queues.is_empty(list(number));
        let most = allowed(self.slots, self.occupied);
        let tenant = &mut self.tenants[number];
        tenant.activity = match backlog {
            false => Activity::Idle,
            true if tenant.slots.closed() >= most => Activity::Deferred,
            true => Activity::Active,
        };
        if tenant.activity == Activity::Active {
            tenant.deficit = if tenant.in_flight == 0 {
                self.quantum
            } else {
                0
            };
            self.active.push_back(number);
        }
    }

    /// The tenant at the head, or one that is deferred, has no backlog any more.
    fn rest(&mut self, number: u32) {
        let tenant = &mut self.tenants[number];
        if tenant.activity == Activity::Active {
            self.active.pop_front();
        }
        tenant.activity = Activity::Idle;
        self.release(number);
    }

    /// No tenant could pay after a whole round: gives the quanta of all rounds in which none could,
    /// at once.
    fn skip_rounds(&mut self, cost: &impl Fn(&Ask) -> u64) {
        let rounds = |&number: &u32| {
            let io = self.queues.front(list(number))?;
            let lacking = cost(io).saturating_sub(self.tenants[number].deficit);
            Some(lacking.div_ceil(self.quantum))
        };
        let skipped = self.active.iter().filter_map(rounds).min().unwrap_or(0);
        for &number in &self.active {
            self.tenants[number].deficit += skipped.saturating_sub(1) * self.quantum;
        }
    }

    fn leave(&mut self, number: u32) {
        if self.is_vacant(number) {
            self.occupied -= 1;
            self.release(number);
        }
    }

    fn release(&mut self, number: u32) {
        let tenant = &self.tenants[number];
        if tenant.gone && tenant.activity == Activity::Idle && self.is_vacant(number) {
            self.tenants.release(number);
        }
    }

    fn is_vacant(&self, number: u32) -> bool {
        self.tenants[number].in_flight == 0 && self.queues.is_empty(list(number))
    }
}

/// Slots of each tenant while so many have anything here.
fn allowed(slots: u32, occupied: u32) -> u32 {
    (slots / occupied.max(1)).max(1)
}

fn list(number: u32) -> u32 {
    number + PARKED.len() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Op};

    fn io(id: u32, tenant: u32, kib: u64) -> Ask {
        Ask {
            id: IoId(id),
            tenant: TenantId(tenant),
            class: Class::Throughput,
            op: Op::Read,
            bytes: kib << 10,
            lba: 0,
        }
    }

    /// Rounds with `count` I/Os of each tenant queued, by tenant and size in KiB.
    fn backlog(tenants: &[(u32, u64)], count: u32) -> Rounds {
        let mut rounds = Rounds::new(&Tuning::default());
        let mut ids = 0..;
        for _ in 0..count {
            for &(tenant, kib) in tenants {
                let id = ids.next().expect("there is always a next number");
                rounds.arrive(io(id, tenant, kib));
            }
        }
        rounds
    }

    fn drain(rounds: &mut Rounds, write_cost: u64) -> Vec<Ask> {
        core::iter::from_fn(|| rounds.dequeue(|io| io.bytes * write_cost)).collect()
    }

    #[test]
    fn as_much_goes_as_the_slots_hold() {
        for (tenants, kib, cost, each) in [
            (1, 4, 1, 256),
            (8, 4, 1, 32),
            (1, 128, 1, 8),
            (1, 4, 9, 32),
            (2, 128, 9, 4),
            (16, 4, 9, 4),
        ] {
            let them: Vec<_> = (1..=tenants).map(|tenant| (tenant, kib)).collect();
            let mut rounds = backlog(&them, 300);
            let gone = drain(&mut rounds, cost);
            for tenant in 1..=tenants {
                let count = gone.iter().filter(|io| io.tenant.0 == tenant).count();
                assert_eq!(count, each, "{tenants} tenants, {kib} KiB at {cost}");
            }
        }
    }

    #[test]
    fn tenants_share_bytes_whatever_their_sizes() {
        let mut rounds = backlog(&[(1, 4), (2, 128)], 4000);
        let mut bytes = [0; 3];
        for _ in 0..4000 {
            let Some(io) = rounds.dequeue(|io| io.bytes) else {
                panic!("a slot is free");
            };
            bytes[io.tenant.0 as usize] += io.bytes;
            rounds.end(io.id);
        }
        assert!(u64::abs_diff(bytes[1], bytes[2]) <= 256 << 10, "{bytes:?}");
    }

    #[test]
    fn a_lone_tenant_with_a_huge_io_is_served_at_once() {
        let mut rounds = backlog(&[(1, 1 << 30), (2, 1 << 31)], 1);
        let gone = drain(&mut rounds, 9);
        assert_eq!(
            gone.iter().map(|io| io.tenant.0).collect::<Vec<_>>(),
            [1, 2]
        );
    }

    #[test]
    fn a_deferred_tenant_goes_on_when_a_slot_is_done_and_credit_follows() {
        let mut rounds = backlog(&[(1, 4)], 300);
        let gone = drain(&mut rounds, 9);
        assert_eq!(gone.len(), 32);
        assert_eq!(rounds.credit(TenantId(1)), Some(8 * 32));
        gone[..3].iter().for_each(|io| rounds.end(io.id));
        assert!(drain(&mut rounds, 9).is_empty());
        rounds.end(gone[3].id);
        assert_eq!(drain(&mut rounds, 9).len(), 4);
        assert_eq!(rounds.credit(TenantId(1)), Some(8 * 4));
    }

    #[test]
    fn a_tenant_that_is_forgotten_goes_with_its_last_io() {
        let mut rounds = backlog(&[(1, 4)], 2);
        let gone = drain(&mut rounds, 1);
        rounds.arrive(io(9, 1, 4));
        rounds.forget(TenantId(1));
        rounds.cancel(IoId(9));
        for io in gone {
            rounds.end(io.id);
        }
        assert_eq!(
            (rounds.occupied(), rounds.credit(TenantId(1))),
            (0, Some(256))
        );
        assert!(drain(&mut rounds, 1).is_empty());
        assert_eq!(rounds.credit(TenantId(1)), None);
    }
}
