//! `fair`: every tenant its part of the device's time, whatever the others do; latency-sensitive
//! I/O first.
//!
//! Start-time fair queueing over costs that are learnt ([`costs`], [`learn`]), with windows for
//! reads and for writes that are the same number for every device ([`windows`]), guarantees and
//! limits by theoretical times ([`rates`]) and a bounded bypass for latency-sensitive I/O. What was
//! tried, why each number is what it is, and what it gives: `docs/scheduling.md`.

mod bounds;
mod costs;
mod estimates;
mod heap;
mod learn;
mod probe;
mod queue;
mod quiet;
mod rates;
mod real;
mod silent;
mod slices;
mod tenants;
#[cfg(test)]
mod tests;
mod turn;
mod windows;

use alloc::vec::Vec;

use flashyard_time::Time;

use crate::{Ask, Cost, Credit, Gauge, IoId, Next, Outcome, Policy, Share, TenantId};
use costs::{Class, Costs, Kind, PER_NS, Price};
use heap::Heap;
use learn::{Learner, Phase, Scene};
use quiet::Quiet;
use real::Real;
use silent::Silent;
use slices::Slices;
use tenants::{LANES, Lane, NONE, Place, State, Tenants};
use windows::{Bases, ONE};

/// How many times what keeps it busy the device may hold of reads, and of writes.
const GAIN: u64 = 10;
/// A guarantee is missed when its next I/O is late by this.
const LATE_NS: u64 = 2_000_000;
/// Virtual time goes back to nothing before it overflows.
const MOST_VIRTUAL: u64 = 1 << 60;

/// See the module.
#[derive(Debug)]
pub struct Fair {
    tenants: Tenants,
    places: Vec<Place>,
    /// Tenants with something in the lane that may go, by tag.
    ready: [Heap; 4],
    /// Lanes of tenants with a guarantee, by when they are owed the next I/O; an item is `4 *
    /// tenant + lane`.
    reserved: Heap,
    /// Lanes that wait for their limit, by when it opens.
    gated: Heap,
    /// Lanes taken out of `ready` while another class of their kind is tried out, by tag; an item
    /// is `4 * tenant + lane`.
    parked: Heap,
    costs: Costs,
    bases: Bases,
    /// What follows from these for the latest I/O, by kind.
    prices: [Price; 2],
    learner: Learner,
    /// Most load that may be in flight, by kind.
    windows: [u64; 2],
    /// The same while there are guarantees; less while one is missed because the device is too slow
    /// with it.
    squeeze: u64,
    /// Tenants with nothing queued that are owed more of a kind than they get, by tag.
    claims: [Heap; 2],
    /// Load and number of I/Os in flight, by kind.
    load: [u64; 2],
    in_flight: [u32; 2],
    /// The same by the lane that they came from.
    of_lane: [u32; 4],
    queued: u32,
    /// Sum of the weights of those who have something queued or in flight.
    active_weight: u64,
    /// Device time that latency-sensitive I/O may take beyond its tenants' shares, in costs, and
    /// when that was so.
    latency_budget: u64,
    budgeted: u64,
    /// Virtual time: the least tag of those who wait.
    virtual_now: u64,
    quiet_until: u64,
    /// What background I/O has had out of shares, as the tag of a tenant; and the virtual time of
    /// those who do it, among themselves.
    background_tag: u64,
    background_now: u64,
    /// When background I/O may go next until then though nobody waits, in nanoseconds.
    background_due: u64,
    /// What the others may have in flight until then.
    quiet: Quiet,
    /// Whether reads or writes are to go until then.
    slices: Slices,
    /// Of which kinds the device gives nothing back.
    silent: Silent,
    /// What writes have really cost.
    real: Real,
    /// Nothing may go, and no time before `stuck_until` will change that: not before an event that
    /// may.
    stuck: bool,
    stuck_until: u64,
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
            parked: Heap::default(),
            costs: Costs::new(),
            bases: Bases::new(),
            prices: [Price::UNKNOWN; 2],
            learner: Learner::new(),
            windows: [0; 2],
            squeeze: GAIN * ONE,
            claims: Default::default(),
            load: [0; 2],
            in_flight: [0; 2],
            of_lane: [0; 4],
            queued: 0,
            active_weight: 0,
            latency_budget: 0,
            budgeted: 0,
            virtual_now: 0,
            quiet_until: 0,
            background_tag: 0,
            background_now: 0,
            background_due: 0,
            quiet: Quiet::new(),
            slices: Slices::new(),
            silent: Silent::default(),
            real: Real::default(),
            stuck: false,
            stuck_until: u64::MAX,
        }
    }

    #[inline(never)]
    fn tick(&mut self, now: Time) {
        let back = self.silent.tick(
            now.as_ns(),
            self.learner.tick_length(),
            self.in_flight,
            self.learner.answers(),
        );
        for kind in [Kind::Read, Kind::Write] {
            if back[kind as usize] {
                self.rejoin(now, kind);
            }
        }
        let before = self.learner.phase();
        let quiet = self.is_quiet(now);
        let plain = !quiet && self.squeeze == GAIN * ONE;
        let full = self.windows.map(|window| plain && window == GAIN * ONE);
        let scene = Scene {
            full,
            latency_sensitive: quiet,
            sliced: self.slices.is_on(),
            idle: self
                .in_flight
                .map(|ios| ios == 0 && self.ready[Lane::Latency as usize].is_empty()),
        };
        let ended = self
            .learner
            .tick(now.as_ns(), scene, &mut self.costs, &mut self.bases);
        self.prices = [Price::UNKNOWN; 2];
        if self.learner.phase() != before || ended {
            while let Some((item, _)) = self.parked.first() {
                self.offer(now, item / 4, LANES[item as usize % 4]);
            }
        }
        self.stuck = false;
        let slowness = self.bases.slowness();
        self.slices.stretch(slowness);
        self.learner.stretch(slowness);
        self.adjust_windows();
        self.keep_guarantees(now);
        if ended || self.virtual_now.max(self.background_now) > MOST_VIRTUAL {
            self.level(now);
        }
    }

    /// The kind that is behind gets a larger window, the one that is ahead needs less: held to the
    /// pace of the other, it would go in bursts.
    fn adjust_windows(&mut self) {
        let (read, write) = (self.least_tag(Kind::Read), self.least_tag(Kind::Write));
        let margin = self.lead() / 8;
        let both = read < u64::MAX && write < u64::MAX && self.learner.phase() == Phase::Open;
        let grows = [
            !both || read <= write + margin,
            !both || write <= read + margin,
        ];
        for (kind, grows) in [Kind::Read, Kind::Write].into_iter().zip(grows) {
            if !self.bases.is_known(kind) {
                continue;
            }
            let window = &mut self.windows[kind as usize];
            let changed = if grows {
                *window + *window / 4
            } else {
                *window - *window / 8
            };
            *window = changed.clamp(ONE, GAIN * ONE);
        }
    }

    /// A guaranteed tenant that is behind and has nothing queued waits for the device: there has to
    /// be less in it.
    fn keep_guarantees(&mut self, now: Time) {
        let late = now.as_ns().saturating_sub(LATE_NS);
        let missed = self.tenants.iter().any(|tenant| {
            let bytes = tenant.usual_bytes >> 4;
            let base = self.bases.of(Class::new(Kind::Read, bytes));
            let ios = u64::from(tenant.in_flight) * 1_000_000_000 / base;
            tenant.queued == 0
                && tenant
                    .guarantee
                    .as_ref()
                    .is_some_and(|rates| rates.is_behind(late, ios, bytes))
        });
        let promised = self
            .tenants
            .iter()
            .any(|tenant| tenant.is_active() && tenant.guarantee.is_some());
        let most = if promised { GAIN / 2 * ONE } else { GAIN * ONE };
        let changed = if missed {
            (self.squeeze / 2).min(2 * ONE)
        } else {
            self.squeeze + self.squeeze / 16
        };
        self.squeeze = changed.clamp(ONE / 2, most);
    }

    /// The device serves a kind again: who waits for it starts where the others are.
    fn rejoin(&mut self, now: Time, kind: Kind) {
        for number in 0..self.tenants.most() {
            let tenant = &mut self.tenants[number];
            if tenant.head(kind.lane()) != NONE && tenant.tag < self.virtual_now {
                tenant.tag = self.virtual_now;
                for lane in LANES {
                    self.offer(now, number, lane);
                }
            }
        }
    }

    /// Lets all who wait start level again: what they had while costs were measured is not held
    /// against them.
    fn level(&mut self, now: Time) {
        self.virtual_now = 0;
        self.background_tag = 0;
        self.background_now = 0;
        for number in 0..self.tenants.most() {
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
    fn arrive(&mut self, now: Time, io: Ask) {
        let place = self.place(&io);
        self.take_in(now, io.id, place);
    }

    fn arrive_again(&mut self, now: Time, io: Ask) {
        let place = self.place(&io);
        self.take_in(
            now,
            io.id,
            Place {
                paid: true,
                ..place
            },
        );
    }

    fn pass(&mut self, now: Time, io: &Ask) -> bool {
        if self.queued > 0 || now.as_ns() >= self.learner.tick_ends() {
            return false;
        }
        let mut place = self.place(io);
        let (number, kind) = (place.tenant, place.kind);
        if !self.may_pass(now, &place) || self.tenants[number].limit.is_some() {
            return false;
        }
        let (cost, load) = self.price(place.class, kind, place.bytes);
        (place.state, place.cost, place.load) = (State::Dispatched, cost, load);
        self.keep(io.id, place);
        self.count_in(kind, place.lane, u64::from(load));
        let tenant = &mut self.tenants[number];
        if tenant.in_flight == 0 {
            self.active_weight += tenant.weight;
        }
        // Nothing waits: it starts where the others are, or they are where it starts.
        self.virtual_now = self.virtual_now.max(tenant.tag);
        tenant.tag = self.virtual_now.saturating_add(tenant.stride(cost));
        if let Some(guarantee) = &mut tenant.guarantee {
            guarantee.charge(now, kind, place.bytes);
        }
        tenant.send(place.lane, kind, place.bytes, u64::from(load));
        if tenant.is_claiming(self.active_weight) {
            self.put_claims(number);
        }
        true
    }

    fn next(&mut self, now: Time) -> Next {
        if now.as_ns() >= self.learner.tick_ends() {
            self.tick(now);
        }
        if self.queued == 0 {
            return Next::WaitForEvent;
        }
        if self.stuck {
            return Self::wait(now, self.stuck_until);
        }
        self.look(now)
    }

    fn settle(&mut self, now: Time, io: &Ask, cost: Cost) {
        let number = self.correct(io, cost);
        for lane in LANES {
            if self.tenants[number].head(lane) != NONE {
                self.offer(now, number, lane);
            }
        }
    }

    fn complete(&mut self, now: Time, io: &Ask, outcome: Outcome) {
        let place = &mut self.places[io.id.0 as usize];
        assert!(
            place.state == State::Dispatched,
            "only a dispatched I/O completes"
        );
        place.state = State::Absent;
        self.stuck = false;
        let (number, kind) = (place.tenant, place.kind as usize);
        let load = u64::from(place.load);
        self.load[kind] -= load;
        self.in_flight[kind] -= 1;
        self.of_lane[place.lane as usize] -= 1;
        let tenant = &mut self.tenants[number];
        tenant.receive(place.lane, place.kind, load);
        if outcome.ok && place.bytes > 0 {
            let latency = outcome.latency.as_ns();
            let lane = [Lane::Read, Lane::Write][kind];
            // Of those who are put aside only some may fill what a probe leaves. That the others
            // wait does not make the device full: a limit may let no more of the class through.
            let pressed = !self.ready[lane as usize].is_empty() || self.parked.least() < u64::MAX;
            if self.bases.record(place.class, latency) {
                self.prices = [Price::UNKNOWN; 2];
            }
            if place.lane == Lane::Latency {
                self.quiet.record(tenant.target, latency);
                // Its host sends the next one soon, by the measure of how long things take here.
                let soon = now.as_ns().saturating_add(latency / 2);
                self.quiet_until = self.quiet_until.max(soon);
            }
            self.learner
                .record(place.class, place.cost, latency, pressed);
        }
        self.settle(number);
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
        self.owe(now, tenant, share);
    }

    fn forget(&mut self, now: Time, tenant: TenantId) {
        if self.tenants.is_known(tenant) {
            let number = self.owe(now, tenant, &Share::default());
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
        gauge("quiet_window", self.quiet.window() as f64 / ONE as f64);
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
        gauge("probes", self.learner.probes as f64);
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

    fn credit(&self, tenant: TenantId) -> Option<Credit> {
        Some(self.credit_of(tenant))
    }
}
