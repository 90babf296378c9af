//! No device is left idle without a reason, and the books add up, whatever happens in whatever
//! order.

use alloc::vec;
use alloc::vec::Vec;

use flashyard_time::{Duration, Rng, Time};

use super::*;
use crate::{Class, Op, Outcome, Rates};

/// Ids that may be in use at a time, and tenants.
const IDS: u32 = 128;
const TENANTS: u32 = 6;
/// The most that an idle device is kept from I/O that no limit holds back: two classes tried out
/// that nobody asks for any more, and a slice with the drain before it.
const LONGEST: Duration = Duration::from_ms(300);
/// No limit that is drawn holds an I/O of those sizes longer.
const LONGEST_LIMIT: Duration = Duration::from_secs(50);

/// Hosts, a switch and a device that do anything at all. What is likely differs by seed.
struct World {
    seed: u64,
    fair: Fair,
    chance: Rng,
    now: Time,
    wake: Option<Time>,
    free: Vec<u32>,
    queued: Vec<Ask>,
    in_flight: Vec<(Ask, Time, Time)>,
    /// Since when I/O that no limit holds back has been waiting for an idle device.
    idle: Option<Time>,
    longest: Duration,
    /// Of ten I/Os, how many are latency-sensitive, and in the background.
    sensitive: u64,
    background: u64,
    /// Of ten I/Os, how many are reads.
    reads: u64,
    /// Shares are told, with limits too.
    shares: bool,
    limits: bool,
    /// What the device takes at least, and at most beyond that, in nanoseconds.
    latency: (u64, u64),
    /// Of a thousand I/Os, how many take up to a second more.
    stalls: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Rng::new(seed).split(77);
        let mut world = Self {
            seed,
            fair: Fair::new(),
            now: Time::ZERO,
            wake: None,
            free: (0..IDS).collect(),
            queued: vec![],
            in_flight: vec![],
            idle: None,
            longest: Duration::ZERO,
            sensitive: [0, 1, 5, 10][chance.below(4) as usize],
            background: [0, 1, 5, 10][chance.below(4) as usize],
            reads: [0, 5, 9, 10][chance.below(4) as usize],
            shares: chance.chance(2, 3),
            limits: chance.chance(1, 2),
            latency: [(1_000, 2_000), (20_000, 400_000), (5_000_000, 90_000_000)]
                [chance.below(3) as usize],
            stalls: [0, 1, 30][chance.below(3) as usize],
            chance,
        };
        if world.shares {
            (0..TENANTS).for_each(|tenant| world.share(TenantId(tenant)));
        }
        world
    }

    fn step(&mut self) {
        match self.chance.below(1_000) {
            0..550 => self.arrive(),
            550..590 => self.cancel(),
            590..592 if self.shares => {
                let tenant = TenantId(self.chance.below(TENANTS.into()) as u32);
                if self.chance.chance(1, 3) {
                    self.fair.forget(self.now, tenant);
                } else {
                    self.share(tenant);
                }
            }
            592..594 => self.pass_time(Duration::from_ms(200)),
            594..600 => self.pass_time(Duration::from_ms(20)),
            _ => self.pass_time(Duration::from_us(50)),
        }
        self.pump();
    }

    fn arrive(&mut self) {
        let at = self.chance.below(self.free.len().max(1) as u64) as usize;
        if at >= self.free.len() {
            return self.pass_time(Duration::from_ms(1));
        }
        let id = self.free.swap_remove(at);
        let op = match self.chance.below(10) {
            n if n < self.reads => Op::Read,
            _ => [
                Op::Write,
                Op::Write,
                Op::Write,
                Op::Flush,
                Op::CompareAndWrite,
            ][self.chance.below(5) as usize],
        };
        let class = match self.chance.below(10) {
            n if n < self.sensitive => Class::Latency,
            n if n < self.sensitive + self.background => Class::Background,
            _ => Class::Throughput,
        };
        let io = Ask {
            id: IoId(id),
            tenant: TenantId(self.chance.below(TENANTS.into()) as u32),
            class,
            op,
            bytes: [4096, 4096, 4096, 16_384, 131_072, 2 << 20][self.chance.below(6) as usize],
            lba: 0,
        };
        if self.fair.pass(self.now, &io) {
            self.start(io);
        } else {
            self.fair.arrive(self.now, io);
            self.queued.push(io);
        }
    }

    fn cancel(&mut self) {
        let at = self.chance.below(self.queued.len().max(1) as u64) as usize;
        if at < self.queued.len() {
            let io = self.queued.swap_remove(at);
            self.fair.cancel(self.now, io.id);
            self.free.push(io.id.0);
        }
    }

    fn share(&mut self, tenant: TenantId) {
        let limits = self.limits;
        let chance = &mut self.chance;
        let mut rate = |least: u64, most: u64, wanted: bool| {
            (wanted && chance.chance(1, 4)).then(|| least + chance.below(most))
        };
        let share = Share {
            guarantee: Rates {
                read_ios: rate(1, 50_000, true),
                bytes: rate(1, 1 << 30, true),
                ..Rates::NONE
            },
            limit: Rates {
                ios: rate(10, 50_000, limits),
                write_bytes: rate(100_000, 1 << 30, limits),
                ..Rates::NONE
            },
            latency_target: rate(1_000, 1_000_000, true).map(Duration::from_ns),
            weight: rate(1, 1_000, true).unwrap_or(1) as u32,
        };
        self.fair.set_share(self.now, tenant, &share);
    }

    fn pass_time(&mut self, span: Duration) {
        let until = self.now + Duration::from_ns(self.chance.below(span.as_ns()));
        loop {
            let ends = self.in_flight.iter().map(|&(_, _, end)| end);
            let due = ends.chain(self.wake).min().filter(|&due| due <= until);
            let Some(due) = due else { break };
            self.happen(due);
        }
        self.now = until;
    }

    fn happen(&mut self, due: Time) {
        self.now = self.now.max(due);
        if let Some(at) = self.in_flight.iter().position(|&(_, _, end)| end <= due) {
            let (io, begin, end) = self.in_flight.swap_remove(at);
            let outcome = Outcome {
                latency: end.since(begin),
                ok: !self.chance.chance(1, 50),
            };
            self.fair.complete(self.now, &io, outcome);
            self.free.push(io.id.0);
        }
        self.pump();
    }

    fn start(&mut self, io: Ask) {
        let (least, more) = self.latency;
        let stall = if self.chance.chance(self.stalls, 1_000) {
            self.chance.below(1_000_000_000)
        } else {
            0
        };
        let span = Duration::from_ns(least + self.chance.below(more) + stall);
        self.in_flight.push((io, self.now, self.now + span));
    }

    fn pump(&mut self) {
        let next = loop {
            match self.fair.next(self.now) {
                Next::Dispatch(id) => {
                    let at = self.queued.iter().position(|io| io.id == id);
                    let io = self
                        .queued
                        .swap_remove(at.expect("only what is queued goes"));
                    self.start(io);
                }
                next => break next,
            }
        };
        self.wake = match next {
            Next::WaitUntil(at) => Some(at),
            _ => None,
        };
        self.check_books();
        if !self.in_flight.is_empty() || self.queued.is_empty() {
            self.idle = None;
            return;
        }
        self.check_reason(next);
    }

    /// Something is queued and the device is idle: there is an end to that, and a reason for it.
    fn check_reason(&mut self, next: Next) {
        let (seed, now, fair) = (self.seed, self.now, &self.fair);
        let Next::WaitUntil(at) = next else {
            panic!("nobody will look again at what is queued (seed {seed}, {now:?})");
        };
        assert!(
            at > now && at <= now + LONGEST_LIMIT,
            "{seed} {at:?} at {now:?}"
        );
        if fair.ready.iter().all(Heap::is_empty) && fair.parked.is_empty() {
            self.idle = None;
            return;
        }
        let tried = fair.learner.phase() != Phase::Open;
        let quiet = fair.is_quiet(now);
        assert!(
            tried || quiet && (fair.slices.is_on() || fair.background_due > now.as_ns()),
            "idle for no reason (seed {seed}, {now:?})"
        );
        let idle = now.since(*self.idle.get_or_insert(now));
        assert!(idle <= LONGEST, "idle for {idle:?} (seed {seed}, {now:?})");
        self.longest = self.longest.max(idle);
    }

    /// What is counted is what is there.
    fn check_books(&self) {
        let (seed, fair) = (self.seed, &self.fair);
        assert_eq!(fair.queued as usize, self.queued.len(), "{seed}");
        let in_flight: u32 = fair.in_flight.iter().sum();
        assert_eq!(in_flight as usize, self.in_flight.len(), "{seed}");
        let mut weights = 0;
        let mut loads = [0; 2];
        for number in fair.tenants.numbers() {
            let tenant = &fair.tenants[number];
            weights += if tenant.is_active() { tenant.weight } else { 0 };
            for kind in [0, 1] {
                loads[kind] += tenant.load[kind];
                assert!(tenant.load[kind] > 0 || !tenant.claims[kind], "{seed}");
            }
            for lane in LANES {
                let ready = fair.ready[lane as usize].key_of(number);
                let parked = fair.parked.key_of(number * 4 + lane as u32);
                assert!(parked.is_none() || ready.is_none(), "in two lists ({seed})");
                assert!(parked.is_none() || tenant.head(lane) != NONE, "{seed}");
            }
        }
        assert_eq!(fair.active_weight, weights, "{seed}");
        // The device's load is all that is in flight, and tenants' what they have a share for.
        let (mut all, mut shared) = ([0; 2], [0; 2]);
        let dispatched = fair
            .places
            .iter()
            .filter(|it| it.state == State::Dispatched);
        for place in dispatched {
            let load = u64::from(place.load);
            all[place.kind as usize] += load;
            if place.lane != Lane::Background {
                shared[place.kind as usize] += load;
            }
        }
        assert_eq!((fair.load, loads), (all, shared), "{seed}");
    }

    /// No more comes: all that is here ends.
    fn drain(&mut self) {
        let patience = self.now + Duration::from_secs(6_000);
        while !self.queued.is_empty() || !self.in_flight.is_empty() {
            let ends = self.in_flight.iter().map(|&(_, _, end)| end);
            match ends.chain(self.wake).min() {
                Some(due) if due < patience => self.happen(due),
                _ => panic!("waits forever (seed {})", self.seed),
            }
        }
        assert_eq!(self.fair.load, [0; 2]);
        assert_eq!(self.fair.of_lane, [0; 4]);
        assert_eq!(self.fair.active_weight, 0);
        assert!(self.fair.claims.iter().all(Heap::is_empty));
        assert!(self.fair.ready.iter().all(Heap::is_empty));
        assert!(self.fair.gated.is_empty() && self.fair.reserved.is_empty());
    }
}

#[test]
fn an_idle_device_is_given_what_is_queued_or_there_is_a_reason_that_ends() {
    let seeds = if cfg!(debug_assertions) { 60 } else { 2_000 };
    let mut longest = Duration::ZERO;
    for seed in 0..seeds {
        let mut world = World::new(seed);
        (0..4_000).for_each(|_| world.step());
        world.drain();
        longest = longest.max(world.longest);
    }
    // The reasons do happen.
    assert!(longest > Duration::from_ms(5), "{longest:?}");
}
