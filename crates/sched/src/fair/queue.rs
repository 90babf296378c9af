//! Where an I/O is: it comes, waits in a lane of its tenant, goes to the device, ends.

use flashyard_time::Time;

use super::costs::{Class, Kind, PER_NS, weigh};
use super::tenants::{ABSENT, LANES, Lane, NONE, Place, State};
use super::turn::{Choice, Payer};
use super::windows::ONE;
use super::{Fair, GAIN};
use crate::{Class as Urgency, Credit, Io, IoId, Next, Share, TenantId};

/// Background I/O beside other I/O counts so many times.
const BACKGROUND_FACTOR: u64 = 64;
/// While latency-sensitive I/O is about and nobody waits, background I/O takes this part of the device's time.
const BACKGROUND_PART: u64 = 16;
/// What of that it may take at once, in time of which it has that part.
const BACKGROUND_BURST_NS: u64 = 1_000_000;
/// A tenant with nothing queued counts as waiting when what it has in flight would give it its share at so many times
/// the base latency. One with less gets less than its share by its own choice, and nobody waits for it.
const CLAIM: u64 = 5;

/// More I/Os than any queue holds.
const MOST_CREDIT: u64 = 65_535;

impl Fair {
    /// The place of an I/O that has come.
    #[inline]
    pub(super) fn place(&mut self, io: &Io) -> Place {
        let (kind, bytes) = weigh(io);
        let lane = match (io.class, kind) {
            (Urgency::Latency, _) => Lane::Urgent,
            (Urgency::Background, _) => Lane::Background,
            (Urgency::Throughput, Kind::Read) => Lane::Read,
            (Urgency::Throughput, Kind::Write) => Lane::Write,
        };
        Place {
            state: State::Queued,
            lane,
            kind,
            class: Class::new(kind, bytes),
            tenant: self.tenants.number(io.tenant),
            bytes,
            ..ABSENT
        }
    }

    /// Lets an I/O wait for its turn.
    #[inline]
    pub(super) fn take_in(&mut self, now: Time, id: IoId, place: Place) {
        self.wake(place.tenant, place.lane);
        self.keep(id, place);
        self.enqueue(now, id.0);
        if place.lane == Lane::Urgent {
            self.keep_quiet(now);
        }
    }

    #[inline]
    pub(super) fn keep(&mut self, id: IoId, place: Place) {
        let IoId(index) = id;
        assert!(index != NONE, "ids are small numbers");
        if index as usize >= self.places.len() {
            self.places.resize(index as usize + 1, ABSENT);
        }
        assert!(
            self.places[index as usize].state == State::Absent,
            "an id arrives once"
        );
        self.places[index as usize] = place;
    }

    /// A tenant that asks for something after a pause starts with the others: what it did not use is not kept.
    #[inline]
    pub(super) fn wake(&mut self, number: u32, lane: Lane) {
        let virtual_now = self.virtual_now;
        let tenant = &mut self.tenants[number];
        if !tenant.is_active() {
            self.active_weight += tenant.weight;
        }
        if lane == Lane::Background {
            tenant.background_tag = tenant.background_tag.max(virtual_now);
        } else if tenant.queued == 0 {
            tenant.tag = tenant.tag.max(virtual_now);
        }
    }

    pub(super) fn enqueue(&mut self, now: Time, index: u32) {
        let Place { tenant, lane, .. } = self.places[index as usize];
        let queue = &mut self.tenants[tenant].lanes[lane as usize];
        let tail = core::mem::replace(&mut queue.tail, index);
        let alone = tail == NONE;
        if alone {
            queue.head = index;
        } else {
            self.places[tail as usize].behind = index;
        }
        self.places[index as usize].before = tail;
        self.tenants[tenant].queued += 1;
        self.queued += 1;
        if alone {
            self.offer(now, tenant, lane);
            self.claim(tenant);
        }
    }

    pub(super) fn unlink(&mut self, index: u32) {
        let Place {
            tenant,
            lane,
            before,
            behind,
            ..
        } = self.places[index as usize];
        let queue = &mut self.tenants[tenant].lanes[lane as usize];
        if before == NONE {
            queue.head = behind;
        }
        if behind == NONE {
            queue.tail = before;
        }
        if let Some(place) = self.places.get_mut(before as usize) {
            place.behind = behind;
        }
        if let Some(place) = self.places.get_mut(behind as usize) {
            place.before = before;
        }
        self.tenants[tenant].queued -= 1;
        self.queued -= 1;
    }

    /// Something of a tenant has ended.
    #[inline]
    pub(super) fn settle(&mut self, number: u32) {
        self.claim(number);
        let tenant = &self.tenants[number];
        if !tenant.is_active() {
            self.active_weight -= tenant.weight;
            if tenant.forgotten {
                self.tenants.release(number);
            }
        }
    }

    /// Puts the head of a lane where it waits for its turn, its limit, or nothing.
    #[inline]
    pub(super) fn offer(&mut self, now: Time, number: u32, lane: Lane) {
        self.stuck = false;
        let tenant = &self.tenants[number];
        if tenant.head(lane) == NONE || tenant.limit.is_some() || tenant.guarantee.is_some() {
            self.offer_by_rates(now, number, lane);
        } else {
            self.ready[lane as usize].set(number, tenant.tag_of(lane));
        }
    }

    /// The same where there are rates to be looked at, or were, before the lane was empty.
    #[inline(never)]
    fn offer_by_rates(&mut self, now: Time, number: u32, lane: Lane) {
        let tenant = &self.tenants[number];
        let item = number * 4 + lane as u32;
        let head = tenant.head(lane);
        let ready = &mut self.ready[lane as usize];
        if head == NONE {
            ready.remove(number);
            if !self.reserved.is_empty() || !self.gated.is_empty() {
                self.reserved.remove(item);
                self.gated.remove(item);
            }
            return;
        }
        let kind = self.places[head as usize].kind;
        if let Some(limit) = &tenant.limit {
            let opens = limit.opens(kind);
            if opens > now {
                ready.remove(number);
                self.reserved.remove(item);
                self.gated.set(item, opens.as_ns());
                return;
            }
            self.gated.remove(item);
        }
        ready.set(number, tenant.tag_of(lane));
        if let Some(guarantee) = &tenant.guarantee {
            self.reserved.set(item, guarantee.opens(kind).as_ns());
        }
    }

    /// Takes the cost of an I/O that goes to the device from its tenant, unless it was paid before, and counts it in
    /// flight.
    #[inline]
    pub(super) fn charge(&mut self, now: Time, index: u32, payer: Payer) {
        let place = &mut self.places[index as usize];
        let cost = self.costs.of(place.kind, place.bytes);
        let load = self.bases.load(place.class, cost);
        place.cost = cost;
        place.load = load;
        place.state = State::Dispatched;
        if !place.paid {
            self.pay(now, index, payer);
        }
        let place = &self.places[index as usize];
        let (kind, load) = (place.kind as usize, u64::from(load));
        let tenant = &mut self.tenants[place.tenant];
        tenant.usual_load += load;
        tenant.usual_load -= tenant.usual_load >> 4;
        tenant.usual_bytes += place.bytes.min(1 << 40);
        tenant.usual_bytes -= tenant.usual_bytes >> 4;
        tenant.in_flight += 1;
        tenant.load[kind] += load;
        self.load[kind] += load;
        self.in_flight[kind] += 1;
    }

    #[inline]
    fn pay(&mut self, now: Time, index: u32, payer: Payer) {
        let place = &self.places[index as usize];
        let (kind, cost) = (place.kind, place.cost);
        let tenant = &mut self.tenants[place.tenant];
        let stride = tenant.stride(cost);
        match payer {
            Payer::Share if place.lane == Lane::Background => {
                tenant.background_tag = tenant
                    .background_tag
                    .saturating_add(stride.saturating_mul(BACKGROUND_FACTOR));
            }
            Payer::Share => tenant.tag = tenant.tag.saturating_add(stride),
            Payer::Urgency => self.urgent_budget = self.urgent_budget.saturating_sub(cost),
            // What is taken while nobody is in a hurry is in nobody's way later, either.
            Payer::Nobody if now.as_ns() >= self.quiet_until => {}
            Payer::Nobody => {
                let earliest = now.as_ns().saturating_sub(BACKGROUND_BURST_NS);
                let span = (cost / PER_NS).saturating_mul(BACKGROUND_PART);
                self.background_due = self.background_due.max(earliest).saturating_add(span);
            }
        }
        if let Some(limit) = &mut tenant.limit {
            limit.charge(now, kind, place.bytes);
        }
        if let Some(guarantee) = &mut tenant.guarantee {
            guarantee.charge(now, kind, place.bytes);
        }
    }

    /// Sends the head of a lane to the device.
    pub(super) fn dispatch(&mut self, now: Time, (number, lane, payer): Choice) -> Next {
        let index = self.tenants[number].head(lane);
        self.unlink(index);
        self.charge(now, index, payer);
        for other in LANES {
            if other == lane || self.tenants[number].head(other) != NONE {
                self.offer(now, number, other);
            }
        }
        self.claim(number);
        Next::Dispatch(IoId(index))
    }

    /// Says whether a tenant with nothing queued counts as waiting.
    #[inline]
    pub(super) fn claim(&mut self, number: u32) {
        let tenant = &self.tenants[number];
        let least = CLAIM * ONE * tenant.weight;
        let claims = if tenant.queued == 0 {
            tenant.load.map(|load| load * self.active_weight >= least)
        } else {
            [false; 2]
        };
        if claims != [false; 2] || tenant.claims != [false; 2] {
            self.put_claims(number, claims);
        }
    }

    fn put_claims(&mut self, number: u32, claims: [bool; 2]) {
        let tenant = &mut self.tenants[number];
        tenant.claims = claims;
        for (heap, claims) in self.claims.iter_mut().zip(claims) {
            if claims {
                heap.set(number, tenant.tag);
            } else {
                heap.remove(number);
            }
        }
    }

    #[inline]
    pub(super) fn open_gates(&mut self, now: Time) {
        while let Some((item, opens)) = self.gated.first()
            && opens <= now.as_ns()
        {
            self.gated.remove(item);
            self.offer(now, item / 4, LANES[item as usize % 4]);
        }
    }

    /// Says what a tenant is owed.
    pub(super) fn owe(&mut self, now: Time, tenant: TenantId, share: &Share) -> u32 {
        let number = self.tenants.number(tenant);
        let owner = &mut self.tenants[number];
        let before = owner.weight;
        owner.owe(share);
        owner.forgotten = false;
        if owner.is_active() {
            self.active_weight = self.active_weight - before + owner.weight;
        }
        for lane in LANES {
            self.gated.remove(number * 4 + lane as u32);
            self.reserved.remove(number * 4 + lane as u32);
            self.offer(now, number, lane);
        }
        number
    }

    /// What a tenant may have outstanding: what its share of the windows holds of I/O like its latest, twice, so that the
    /// next is here when one ends.
    pub(super) fn credit_of(&self, id: TenantId) -> Credit {
        let tenant = self.tenants.get(id);
        let (weight, load, bytes) = tenant.map_or((1, ONE, 4096), |tenant| {
            (
                tenant.weight,
                tenant.usual_load >> 4,
                tenant.usual_bytes >> 4,
            )
        });
        let others = self.active_weight - tenant.filter(|t| t.is_active()).map_or(0, |t| t.weight);
        let part = 2 * GAIN * ONE * weight / (others + weight);
        let ios = (part / load.max(1)).clamp(1, MOST_CREDIT);
        Credit {
            ios: ios as u32,
            bytes: bytes.max(1).saturating_mul(ios),
        }
    }
}
