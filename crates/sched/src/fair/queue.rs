//! Where an I/O is: it comes, waits in a lane of its tenant, goes to the device, ends.

use flashyard_time::Time;

use super::costs::{Class, Kind, PER_NS, Price, weigh};
use super::tenants::{ABSENT, LANES, Lane, NONE, Place, State};
use super::turn::{Choice, Payer};
use super::windows::ONE;
use super::{Fair, GAIN};
use crate::{Ask, Class as IoClass, Credit, IoId, Next, Share, TenantId};

/// Background I/O beside other I/O counts so many times. Its writes are seldom measured, and taken
/// for dear until they are; with a part of a 64th a rebuild hardly went on.
const BACKGROUND_FACTOR: u64 = 32;
/// While latency-sensitive I/O is about and nobody waits, background I/O takes this part of the
/// device's time.
const BACKGROUND_PART: u64 = 16;
/// What of that it may take at once, in time of which it has that part.
const BACKGROUND_BURST_NS: u64 = 1_000_000;
/// More I/Os than any queue holds.
const MOST_CREDIT: u64 = 65_535;

impl Fair {
    /// The place of an I/O that has come.
    #[inline]
    pub(super) fn place(&mut self, io: &Ask) -> Place {
        let (kind, bytes) = weigh(io);
        let lane = match io.class {
            IoClass::Throughput => kind.lane(),
            IoClass::Latency => Lane::Latency,
            IoClass::Background => Lane::Background,
        };
        Place {
            state: State::Queued,
            lane,
            kind,
            class: self.prices[kind as usize].class_of(kind, bytes),
            tenant: self.tenants.number(io.tenant),
            bytes,
            ..ABSENT
        }
    }

    /// What an I/O costs and counts in flight.
    #[inline]
    pub(super) fn price(&mut self, class: Class, kind: Kind, bytes: u64) -> (u64, u32) {
        let known = &self.prices[kind as usize];
        if known.is_of(bytes) {
            debug_assert_eq!(*known, self.price_anew(class, kind, bytes));
            return (known.cost, known.load);
        }
        self.learn_price(class, kind, bytes)
    }

    #[inline(never)]
    fn learn_price(&mut self, class: Class, kind: Kind, bytes: u64) -> (u64, u32) {
        let price = self.price_anew(class, kind, bytes);
        self.prices[kind as usize] = price;
        (price.cost, price.load)
    }

    fn price_anew(&self, class: Class, kind: Kind, bytes: u64) -> Price {
        let cost = self.costs.of(kind, bytes);
        Price {
            bytes,
            class,
            cost,
            load: self.bases.load(class, cost),
        }
    }

    /// Lets an I/O wait for its turn.
    #[inline]
    pub(super) fn take_in(&mut self, now: Time, id: IoId, place: Place) {
        let tenant = &mut self.tenants[place.tenant];
        let virtual_now = match place.lane {
            Lane::Background => self.background_now,
            _ => self.virtual_now,
        };
        self.active_weight += tenant.wake(place.lane, virtual_now);
        self.keep(id, place);
        self.enqueue(now, id.0);
        match place.lane {
            Lane::Latency => self.keep_quiet(now),
            Lane::Background => self.background_tag = self.background_tag.max(self.virtual_now),
            Lane::Read | Lane::Write => {}
        }
    }

    #[inline]
    pub(super) fn keep(&mut self, id: IoId, place: Place) {
        let IoId(index) = id;
        assert!(index != NONE, "ids are small numbers");
        if index as usize >= self.places.len() {
            self.grow(index);
        }
        assert!(
            self.places[index as usize].state == State::Absent,
            "an id arrives once"
        );
        self.places[index as usize] = place;
    }

    #[cold]
    fn grow(&mut self, index: u32) {
        self.places.resize(index as usize + 1, ABSENT);
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

    /// Takes the head of a lane out of it.
    #[inline]
    fn pop(&mut self, number: u32, lane: Lane) -> u32 {
        let tenant = &mut self.tenants[number];
        let queue = &mut tenant.lanes[lane as usize];
        let index = queue.head;
        queue.head = self.places[index as usize].behind;
        if let Some(next) = self.places.get_mut(queue.head as usize) {
            next.before = NONE;
        } else {
            queue.tail = NONE;
        }
        tenant.queued -= 1;
        self.queued -= 1;
        index
    }

    /// Takes an I/O out of its lane, wherever it is.
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
        if !self.parked.is_empty() {
            self.parked.remove(number * 4 + lane as u32);
        }
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

    /// Takes the cost of an I/O that goes to the device from its tenant, unless it was paid before,
    /// and counts it in flight.
    #[inline]
    fn charge(&mut self, now: Time, index: u32, payer: Payer) {
        let Place {
            class,
            kind,
            lane,
            bytes,
            ..
        } = self.places[index as usize];
        let (cost, load) = self.price(class, kind, bytes);
        self.count_in(kind, lane, u64::from(load));
        let place = &mut self.places[index as usize];
        place.cost = cost;
        place.load = load;
        place.state = State::Dispatched;
        let tenant = &mut self.tenants[place.tenant];
        tenant.send(lane, kind, bytes, u64::from(load));
        tenant.classes |= 1 << class.0;
        if place.paid {
            return;
        }
        if let Some(limit) = &mut tenant.limit {
            limit.charge(now, kind, bytes);
        }
        if let Some(guarantee) = &mut tenant.guarantee {
            guarantee.charge(now, kind, bytes);
        }
        if let (Payer::Share, Lane::Read | Lane::Write) = (payer, lane) {
            tenant.tag = tenant.tag.saturating_add(tenant.stride(cost));
        } else {
            self.pay_otherwise(now, index, payer);
        }
    }

    /// One more is in flight.
    #[inline]
    pub(super) fn count_in(&mut self, kind: Kind, lane: Lane, load: u64) {
        self.load[kind as usize] += load;
        self.in_flight[kind as usize] += 1;
        self.of_lane[lane as usize] += 1;
    }

    /// Takes the cost of what is not for throughput, or not out of a share.
    #[inline(never)]
    fn pay_otherwise(&mut self, now: Time, index: u32, payer: Payer) {
        let quiet = self.is_quiet(now);
        let place = &self.places[index as usize];
        let cost = place.cost;
        let tenant = &mut self.tenants[place.tenant];
        let stride = tenant.stride(cost);
        if place.lane == Lane::Background {
            self.background_now = self.background_now.max(tenant.background_tag);
            tenant.background_tag = tenant.background_tag.saturating_add(stride);
        }
        match payer {
            Payer::Share if place.lane == Lane::Background => {
                let stride = stride.saturating_mul(BACKGROUND_FACTOR);
                self.background_tag = self.background_tag.saturating_add(stride);
            }
            Payer::Share => tenant.tag = tenant.tag.saturating_add(stride),
            Payer::LatencyPart => self.latency_budget = self.latency_budget.saturating_sub(cost),
            // What is taken without latency-sensitive I/O beside it is in nobody's way later,
            // either; slices are an account of their own.
            Payer::Nobody if !quiet || self.slices.is_on() => {}
            Payer::Nobody => {
                let earliest = now.as_ns().saturating_sub(BACKGROUND_BURST_NS);
                // What was never measured is supposed to be slow where all answers are.
                let slowness = match self.costs.is_learnt(place.class) {
                    true => 1,
                    false => self.bases.slowness(),
                };
                let span = (cost / PER_NS).saturating_mul(BACKGROUND_PART * slowness);
                self.background_due = self.background_due.max(earliest).saturating_add(span);
            }
        }
    }

    /// Sends the head of a lane to the device.
    #[inline]
    pub(super) fn dispatch(&mut self, now: Time, (number, lane, payer): Choice) -> Next {
        let index = self.pop(number, lane);
        self.charge(now, index, payer);
        self.offer(now, number, lane);
        let tenant = &self.tenants[number];
        if LANES
            .into_iter()
            .any(|other| other != lane && tenant.head(other) != NONE)
        {
            self.offer_others(now, number, lane);
        }
        self.claim(number);
        Next::Dispatch(IoId(index))
    }

    #[inline(never)]
    fn offer_others(&mut self, now: Time, number: u32, lane: Lane) {
        for other in LANES {
            if other != lane && self.tenants[number].head(other) != NONE {
                self.offer(now, number, other);
            }
        }
    }

    /// Says whether a tenant with nothing queued counts as waiting.
    #[inline]
    pub(super) fn claim(&mut self, number: u32) {
        if self.tenants[number].is_claiming(self.active_weight) {
            self.put_claims(number);
        }
    }

    #[inline(never)]
    pub(super) fn put_claims(&mut self, number: u32) {
        let tenant = &mut self.tenants[number];
        tenant.claims = tenant.waits(self.active_weight);
        for (heap, claims) in self.claims.iter_mut().zip(tenant.claims) {
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

    /// What a tenant may have outstanding: what its share of the windows holds of I/O like its
    /// latest, twice, so that the next is here when one ends.
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
