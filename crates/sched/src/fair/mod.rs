//! `fair`: every tenant its part of the device's time, whatever the others do; latency-sensitive I/O first.
//!
//! Start-time fair queueing over costs that are learnt ([`costs`], [`learn`]), with windows for reads and for writes
//! that are the same number for every device ([`windows`]), guarantees and limits by theoretical times ([`rates`]) and a
//! bounded bypass for what is urgent. What was tried, why each number is what it is, and what it gives:
//! `docs/scheduling.md`.

mod costs;
mod heap;
mod learn;
mod rates;
mod tenants;
mod windows;

use alloc::vec::Vec;

use flashyard_time::Time;

use crate::{Class as Urgency, Credit, Gauge, Io, IoId, Next, Outcome, Policy, Share, TenantId};
use costs::{Class, Costs, Kind, PER_NS, weigh};
use heap::Heap;
use learn::{Learner, Phase};
use tenants::{ABSENT, LANES, Lane, NONE, Place, State, Tenants, WEIGHT_UNIT};
use windows::{Bases, ONE};

/// How many times what keeps it busy the device may hold of reads, and of writes.
const GAIN: u64 = 10;
/// The same while latency-sensitive I/O is about.
const QUIET: [u64; 2] = [ONE, ONE];
/// For how long after the last latency-sensitive I/O.
const QUIET_NS: u64 = 20_000_000;
/// So many I/Os of a kind may be in flight whatever they count.
const FLOOR: u32 = 4;
/// How far all who do one kind of I/O may be ahead of those who wait for the window of the other kind, in device time:
/// drives take writes in bursts, and hold them back in bursts.
const LEAD_NS: u64 = 20_000_000;
/// Urgent I/O goes first as long as its tenants take no more than their share, or all of it together no more than this
/// part of the device's time.
const URGENT_PART: u64 = 8;
/// What may be taken of that part at once, in device time.
const URGENT_BURST_NS: u64 = 4_000_000;
/// A tenant with nothing queued counts as waiting when what it has in flight would give it its share at so many times
/// the base latency. One with less gets less than its share by its own choice, and nobody waits for it.
const CLAIM: u64 = 5;
/// Background I/O beside other I/O counts so many times.
const BACKGROUND_FACTOR: u64 = 64;
/// Virtual time goes back to nothing before it overflows.
const MOST_VIRTUAL: u64 = 1 << 60;

/// Out of what an I/O is paid.
#[derive(Clone, Copy, Debug)]
enum Payer {
    /// Its tenant's share.
    Share,
    /// What is kept for urgent I/O.
    Urgency,
    /// Nobody: it was in nobody's way.
    Nobody,
}

/// The head of a tenant's lane, to go to the device.
type Choice = (u32, Lane, Payer);

/// See the module.
#[derive(Debug)]
pub struct Fair {
    tenants: Tenants,
    places: Vec<Place>,
    /// Tenants with something in the lane that may go, by tag.
    ready: [Heap; 4],
    /// Lanes of tenants with a guarantee, by when they are owed the next I/O; an item is `4 * tenant + lane`.
    reserved: Heap,
    /// Lanes that wait for their limit, by when it opens.
    gated: Heap,
    /// Lanes taken out of `ready` while another class is tried out.
    parked: Vec<u32>,
    costs: Costs,
    bases: Bases,
    learner: Learner,
    /// Most load that may be in flight, by kind.
    windows: [u64; 2],
    /// Tenants with nothing queued that are owed more of a kind than they get, by tag.
    claims: [Heap; 2],
    /// Load and number of I/Os in flight, by kind.
    load: [u64; 2],
    in_flight: [u32; 2],
    queued: u32,
    /// Sum of the weights of those who have something queued or in flight.
    active_weight: u64,
    /// Device time that urgent I/O may take beyond its tenants' shares, in costs, and when that was so.
    urgent_budget: u64,
    budgeted: u64,
    /// Virtual time: the least tag of those who wait.
    virtual_now: u64,
    quiet_until: u64,
}

impl Default for Fair {
    fn default() -> Self {
        Self::new()
    }
}

impl Fair {
    /// In front of an idle device of which nothing is known.
    pub fn new() -> Self {
        Self {
            tenants: Tenants::default(),
            places: Vec::new(),
            ready: Default::default(),
            reserved: Heap::default(),
            gated: Heap::default(),
            parked: Vec::new(),
            costs: Costs::new(),
            bases: Bases::new(),
            learner: Learner::new(),
            windows: [GAIN * ONE; 2],
            claims: Default::default(),
            load: [0; 2],
            in_flight: [0; 2],
            queued: 0,
            active_weight: 0,
            urgent_budget: URGENT_BURST_NS * PER_NS,
            budgeted: 0,
            virtual_now: 0,
            quiet_until: 0,
        }
    }

    fn is_quiet(&self, now: Time) -> bool {
        now.as_ns() < self.quiet_until
    }

    fn has_room(&self, now: Time, kind: Kind) -> bool {
        let kind = kind as usize;
        let window = match self.learner.phase() {
            Phase::Settling(_) => 0,
            Phase::Alone(_) => GAIN * ONE,
            Phase::Open if self.is_quiet(now) => self.windows[kind].min(QUIET[kind]),
            Phase::Open => self.windows[kind],
        };
        self.in_flight[kind] < FLOOR || self.load[kind] < window
    }

    /// The place of an I/O that has come.
    fn place(&mut self, io: &Io) -> Place {
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

    fn keep(&mut self, id: IoId, place: Place) {
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
    fn wake(&mut self, number: u32, lane: Lane) {
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

    fn enqueue(&mut self, now: Time, index: u32) {
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

    fn unlink(&mut self, index: u32) {
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
    fn settle(&mut self, number: u32) {
        self.claim(number);
        let tenant = &self.tenants[number];
        if !tenant.is_active() {
            self.active_weight -= tenant.weight;
            self.tenants.release(number);
        }
    }

    /// Puts the head of a lane where it waits for its turn, its limit, or nothing.
    fn offer(&mut self, now: Time, number: u32, lane: Lane) {
        let tenant = &self.tenants[number];
        let item = number * 4 + lane as u32;
        let head = tenant.head(lane);
        let ready = &mut self.ready[lane as usize];
        if head == NONE {
            ready.remove(number);
            self.reserved.remove(item);
            self.gated.remove(item);
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
        let tag = match lane {
            Lane::Background => tenant.background_tag,
            _ => tenant.tag,
        };
        ready.set(number, tag);
        if let Some(guarantee) = &tenant.guarantee {
            self.reserved.set(item, guarantee.opens(kind).as_ns());
        }
    }

    /// Takes the cost of an I/O that goes to the device from its tenant, and counts it in flight.
    fn charge(&mut self, now: Time, place: &mut Place, payer: Payer) {
        let kind = place.kind;
        place.cost = self.costs.of(kind, place.bytes);
        place.load = self.bases.load(place.class, place.cost);
        place.state = State::Dispatched;
        let tenant = &mut self.tenants[place.tenant];
        let stride = tenant.stride(place.cost);
        match payer {
            Payer::Share if place.lane == Lane::Background => {
                tenant.background_tag += stride * BACKGROUND_FACTOR;
            }
            Payer::Share => tenant.tag += stride,
            Payer::Urgency => self.urgent_budget = self.urgent_budget.saturating_sub(place.cost),
            Payer::Nobody => {}
        }
        if let Some(limit) = &mut tenant.limit {
            limit.charge(now, kind, place.bytes);
        }
        if let Some(guarantee) = &mut tenant.guarantee {
            guarantee.charge(now, kind, place.bytes);
        }
        tenant.in_flight += 1;
        tenant.load[kind as usize] += u64::from(place.load);
        self.load[kind as usize] += u64::from(place.load);
        self.in_flight[kind as usize] += 1;
    }

    /// Sends the head of a lane to the device.
    fn dispatch(&mut self, now: Time, (number, lane, payer): Choice) -> Next {
        let index = self.tenants[number].head(lane);
        self.unlink(index);
        let mut place = self.places[index as usize];
        self.charge(now, &mut place, payer);
        self.places[index as usize] = place;
        for other in LANES {
            if other == lane || self.tenants[number].head(other) != NONE {
                self.offer(now, number, other);
            }
        }
        self.claim(number);
        Next::Dispatch(IoId(index))
    }

    /// Says whether a tenant with nothing queued counts as waiting.
    fn claim(&mut self, number: u32) {
        let tenant = &self.tenants[number];
        for kind in 0..2 {
            let claims = tenant.queued == 0
                && tenant.load[kind] * self.active_weight >= CLAIM * ONE * tenant.weight;
            if claims {
                self.claims[kind].set(number, tenant.tag);
            } else {
                self.claims[kind].remove(number);
            }
        }
    }

    /// The least tag of those who wait for I/O of a kind.
    fn least_tag(&self, kind: Kind) -> Option<u64> {
        let lane = [Lane::Read, Lane::Write][kind as usize];
        let ready = self.ready[lane as usize].first();
        let claim = self.claims[kind as usize].first();
        [ready, claim].into_iter().flatten().map(|(_, tag)| tag).min()
    }

    /// The waiting tag that is least, but never less than before.
    fn advance_virtual_time(&mut self) {
        let urgent = self.ready[Lane::Urgent as usize].first().map(|(_, tag)| tag);
        let least = [urgent, self.least_tag(Kind::Read), self.least_tag(Kind::Write)];
        let least = least.into_iter().flatten().min();
        self.virtual_now = self.virtual_now.max(least.unwrap_or(0));
    }

    fn open_gates(&mut self, now: Time) {
        while let Some((item, opens)) = self.gated.first()
            && opens <= now.as_ns()
        {
            self.gated.remove(item);
            self.offer(now, item / 4, LANES[item as usize % 4]);
        }
    }

    /// What is urgent: out of its tenant's share, else out of the part of the device that is kept for it.
    fn next_urgent(&mut self, now: Time) -> Option<Choice> {
        let (number, tag) = self.ready[Lane::Urgent as usize].first()?;
        if tag <= self.virtual_now + self.lead() {
            return Some((number, Lane::Urgent, Payer::Share));
        }
        let earned = now.as_ns().saturating_sub(self.budgeted).min(URGENT_BURST_NS * URGENT_PART);
        self.budgeted = now.as_ns();
        self.urgent_budget = (self.urgent_budget + earned * PER_NS / URGENT_PART)
            .min(URGENT_BURST_NS * PER_NS);
        (self.urgent_budget > 0).then_some((number, Lane::Urgent, Payer::Urgency))
    }

    /// What is owed to a guarantee.
    fn next_reserved(&self, now: Time) -> Option<Choice> {
        let (item, due) = self.reserved.first()?;
        let lane = LANES[item as usize % 4];
        (due <= now.as_ns()).then_some((item / 4, lane, Payer::Share))
    }

    /// How far ahead a tenant may be, in virtual time.
    fn lead(&self) -> u64 {
        LEAD_NS * PER_NS * WEIGHT_UNIT / self.active_weight.max(1)
    }

    /// The head that comes next in virtual time, if the device has room for it; else the first of the other kind; and
    /// neither if it is too far ahead of those who wait for the other.
    fn next_shared(&mut self, now: Time) -> Option<Choice> {
        if let Phase::Alone(class) | Phase::Settling(class) = self.learner.phase() {
            return self.next_of_class(now, class);
        }
        let read = self.ready[Lane::Read as usize].first();
        let write = self.ready[Lane::Write as usize].first();
        let writes_first = match (read, write) {
            (Some((_, read)), Some((_, write))) => write < read,
            (read, _) => read.is_none(),
        };
        let reads = read.map(|first| (first, Lane::Read, Kind::Read, Kind::Write));
        let writes = write.map(|first| (first, Lane::Write, Kind::Write, Kind::Read));
        let order = if writes_first {
            [writes, reads]
        } else {
            [reads, writes]
        };
        order.into_iter().flatten().find_map(|((number, tag), lane, kind, other)| {
            if !self.has_room(now, kind) {
                return None;
            }
            let rival = self.least_tag(other).unwrap_or(tag);
            if tag > rival {
                let tenant = &self.tenants[number];
                let bytes = self.places[tenant.head(lane) as usize].bytes;
                let stride = tenant.stride(self.costs.of(kind, bytes));
                if tag > rival + self.lead() + stride {
                    return None;
                }
            }
            Some((number, lane, Payer::Share))
        })
    }

    /// The next I/O of the class that is tried out; all others are put aside.
    fn next_of_class(&mut self, now: Time, class: Class) -> Option<Choice> {
        let lane = match class.kind() {
            Kind::Read => Lane::Read,
            Kind::Write => Lane::Write,
        };
        while self.has_room(now, class.kind()) {
            let (number, _) = self.ready[lane as usize].first()?;
            let head = self.tenants[number].head(lane);
            if self.places[head as usize].class == class {
                return Some((number, lane, Payer::Share));
            }
            self.ready[lane as usize].remove(number);
            self.parked.push(number * 4 + lane as u32);
        }
        None
    }

    fn next_background(&mut self, now: Time) -> Option<Choice> {
        if self.learner.phase() != Phase::Open {
            return None;
        }
        let (number, tag) = self.ready[Lane::Background as usize].first()?;
        let head = self.tenants[number].head(Lane::Background);
        let idle = self.ready[..3].iter().all(Heap::is_empty);
        let room = self.has_room(now, self.places[head as usize].kind);
        let payer = if idle { Payer::Nobody } else { Payer::Share };
        (room && (idle || tag <= self.virtual_now)).then_some((number, Lane::Background, payer))
    }

    /// When to look again though nothing happened.
    fn wake_up(&self, now: Time) -> Next {
        let gate = self.gated.first().map(|(_, opens)| opens);
        let owed = self.reserved.first().map(|(_, due)| due);
        let tick = (self.learner.phase() != Phase::Open).then(|| self.learner.tick_ends());
        match [gate, owed, tick].into_iter().flatten().min() {
            Some(at) if at < u64::MAX => Next::WaitUntil(Time::from_ns(at.max(now.as_ns() + 1))),
            _ => Next::WaitForEvent,
        }
    }

    fn tick(&mut self, now: Time) {
        let before = self.learner.phase();
        let ended = self
            .learner
            .tick(now.as_ns(), GAIN, &mut self.costs, &mut self.bases);
        if self.learner.phase() != before || ended {
            while let Some(item) = self.parked.pop() {
                self.offer(now, item / 4, LANES[item as usize % 4]);
            }
        }
        self.adjust_windows();
        if ended || self.virtual_now > MOST_VIRTUAL {
            self.level(now);
        }
    }

    /// The kind that is behind gets a larger window, the one that is ahead needs less: held to the pace of the other, it
    /// would go in bursts.
    fn adjust_windows(&mut self) {
        let (read, write) = (self.least_tag(Kind::Read), self.least_tag(Kind::Write));
        let margin = self.lead() / 8;
        let grows = match (read, write) {
            _ if self.learner.phase() != Phase::Open => [true, true],
            (Some(read), Some(write)) => [
                read <= write + margin,
                write <= read + margin,
            ],
            _ => [true, true],
        };
        for (window, grows) in self.windows.iter_mut().zip(grows) {
            let changed = if grows {
                *window + *window / 4
            } else {
                *window - *window / 8
            };
            *window = changed.clamp(ONE, GAIN * ONE);
        }
    }

    /// Lets all who wait start level again: what they had while costs were measured is not held against them.
    fn level(&mut self, now: Time) {
        self.virtual_now = 0;
        let numbers: Vec<u32> = self.tenants.numbers().collect();
        for number in numbers {
            self.tenants[number].tag = 0;
            self.tenants[number].background_tag = 0;
            for lane in LANES {
                self.offer(now, number, lane);
            }
            self.claim(number);
        }
    }
}

impl Policy for Fair {
    fn arrive(&mut self, now: Time, io: Io) {
        let place = self.place(&io);
        self.wake(place.tenant, place.lane);
        if place.lane == Lane::Urgent {
            self.quiet_until = now.as_ns() + QUIET_NS;
        }
        self.keep(io.id, place);
        self.enqueue(now, io.id.0);
    }

    fn next(&mut self, now: Time) -> Next {
        if now.as_ns() >= self.learner.tick_ends() {
            self.tick(now);
        }
        if self.queued == 0 {
            return Next::WaitForEvent;
        }
        self.open_gates(now);
        self.advance_virtual_time();
        let chosen = self
            .next_urgent(now)
            .or_else(|| self.next_reserved(now))
            .or_else(|| self.next_shared(now))
            .or_else(|| self.next_background(now));
        match chosen {
            Some(choice) => self.dispatch(now, choice),
            None => self.wake_up(now),
        }
    }

    fn complete(&mut self, _: Time, io: &Io, outcome: Outcome) {
        let place = self.places[io.id.0 as usize];
        assert!(
            place.state == State::Dispatched,
            "only a dispatched I/O completes"
        );
        self.places[io.id.0 as usize].state = State::Absent;
        let kind = place.kind as usize;
        self.load[kind] -= u64::from(place.load);
        self.in_flight[kind] -= 1;
        let tenant = &mut self.tenants[place.tenant];
        tenant.in_flight -= 1;
        tenant.load[kind] -= u64::from(place.load);
        if outcome.ok && place.bytes > 0 {
            let latency = outcome.latency.as_ns();
            let lane = [Lane::Read, Lane::Write][kind];
            let pressed = !self.ready[lane as usize].is_empty();
            self.bases.record(place.class, latency);
            self.learner
                .record(place.class, place.cost, latency, pressed);
        }
        self.tenants.release(place.tenant);
    }

    fn cancel(&mut self, now: Time, id: IoId) {
        let Some(place) = self.places.get(id.0 as usize).copied() else {
            return;
        };
        if place.state == State::Queued {
            self.unlink(id.0);
            self.places[id.0 as usize].state = State::Absent;
            self.offer(now, place.tenant, place.lane);
            self.settle(place.tenant);
        }
    }

    fn set_share(&mut self, now: Time, tenant: TenantId, share: &Share) {
        let number = self.tenants.number(tenant);
        let owner = &mut self.tenants[number];
        let before = owner.weight;
        owner.owe(share);
        if owner.is_active() {
            self.active_weight = self.active_weight - before + owner.weight;
        }
        self.tenants[number].forgotten = false;
        for lane in LANES {
            self.gated.remove(number * 4 + lane as u32);
            self.reserved.remove(number * 4 + lane as u32);
            self.offer(now, number, lane);
        }
    }

    fn forget(&mut self, now: Time, tenant: TenantId) {
        if let Some(number) = self.tenants.find(tenant) {
            self.set_share(now, tenant, &Share::default());
            self.tenants[number].forgotten = true;
            self.tenants.release(number);
        }
    }

    fn watch(&self, now: Time, tell: &mut dyn FnMut(Gauge)) {
        let mut gauge = |name, value| {
            tell(Gauge {
                name,
                tenant: None,
                value,
            });
        };
        gauge("quiet", f64::from(u8::from(self.is_quiet(now))));
        gauge("read_window", self.windows[0] as f64 / ONE as f64);
        gauge("write_window", self.windows[1] as f64 / ONE as f64);
        gauge("read_load", self.load[0] as f64 / ONE as f64);
        gauge("write_load", self.load[1] as f64 / ONE as f64);
        gauge("reads_in_flight", f64::from(self.in_flight[0]));
        gauge("writes_in_flight", f64::from(self.in_flight[1]));
        let (phase, class) = match self.learner.phase() {
            Phase::Open => (0, 0),
            Phase::Settling(class) => (1, class.0),
            Phase::Alone(class) => (2, class.0),
        };
        gauge("phase", f64::from(phase));
        gauge("class_measured", f64::from(class));
        gauge("trials", self.learner.trials as f64);
        for (name, kind, bytes) in [
            ("read_4k_cost_us", Kind::Read, 4096),
            ("read_128k_cost_us", Kind::Read, 131_072),
            ("write_4k_cost_us", Kind::Write, 4096),
            ("write_128k_cost_us", Kind::Write, 131_072),
        ] {
            gauge(
                name,
                self.costs.of(kind, bytes) as f64 / (1e3 * PER_NS as f64),
            );
        }
        for (name, kind, bytes) in [
            ("read_4k_base_us", Kind::Read, 4096),
            ("read_128k_base_us", Kind::Read, 131_072),
            ("write_4k_base_us", Kind::Write, 4096),
            ("write_128k_base_us", Kind::Write, 131_072),
        ] {
            gauge(name, self.bases.of(Class::new(kind, bytes)) as f64 / 1e3);
        }
    }

    fn credit(&self, _: TenantId) -> Option<Credit> {
        None
    }
}
