//! FlashFQ: start-time fair queueing with a bounded depth, throttled dispatch and anticipation.
//!
//! After Shen and Park, "FlashFQ: A Fair Queueing I/O Scheduler for Flash-Based SSDs", USENIX ATC
//! 2013. Each I/O costs the device time that a linear model gives it; tenants advance in virtual
//! time by cost over weight, and the one least advanced goes first. A tenant too far ahead of the
//! slowest I/O in flight waits (throttled dispatch), and one whose last I/O has just ended is
//! waited for, as if it were still there (anticipation against deceptive idleness). Guarantees,
//! limits and classes are not part of the design.
//!
//! The paper was not at hand, only digests of it. How far ahead is too far (one large write, and of
//! the slowest in flight), and for how long is waited (100 us), are ours; so is the model, a line
//! through two rates. What follows from these need not be what its authors would have found.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use flashyard_time::{Duration, Time};

use crate::figures::Figures;
use crate::queues::Queues;
use crate::roster::Roster;
use crate::{Ask, Gauge, IoId, Next, Op, Outcome, Policy, Share, TenantId};

/// What the device takes for I/Os of one kind: a part for each I/O and a part for each byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Of any I/O.
    pub fixed: Duration,
    /// Of each 4 KiB.
    pub page: Duration,
}

/// What is known of a device in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// I/Os at the device at most, at least 1.
    pub depth: u32,
    /// What a read takes.
    pub read: Line,
    /// What a write takes.
    pub write: Line,
    /// How far an I/O may be ahead in virtual time of the slowest one in flight.
    pub lead: Duration,
    /// How long a tenant without I/O is waited for.
    pub anticipation: Duration,
}

/// See the module. Every call takes time logarithmic in the depth and the number of tenants.
#[derive(Debug)]
pub struct FlashFq {
    model: Model,
    tenants: Roster<Tenant>,
    queues: Queues,
    /// Tenants with a backlog by the start tag of their oldest I/O.
    ready: BTreeSet<(u64, u32)>,
    /// I/Os at the device by start tag.
    in_flight: BTreeSet<(u64, u32)>,
    /// By id, the start tag of each of them.
    tags: Vec<u64>,
    /// Tenants that are waited for, by the start tag of the I/O they may yet send, and in order of
    /// when that ends.
    awaited: BTreeSet<(u64, u32)>,
    ends: VecDeque<(Time, u32)>,
    virtual_time: u64,
}

#[derive(Debug)]
struct Tenant {
    weight: u64,
    /// Start tag of its oldest queued I/O.
    start: u64,
    /// Finish tag of its last one that was dispatched.
    finish: u64,
    in_flight: u32,
    /// Until when it is waited for.
    awaited: Option<Time>,
    gone: bool,
}

/// I/Os with data are priced by pages of so many bytes.
const PAGE_BYTES: u64 = 4096;
/// The longest range without transfer that is priced in full.
const MOST_RANGE_BYTES: u64 = 128 << 10;
/// Virtual time has this many units to the nanosecond, so that weights divide without much loss.
const UNITS: u64 = 256;

/// For how long a tenant that has nothing queued is waited for.
const ANTICIPATION: Duration = Duration::from_us(100);

/// Lines through the rates; the lead is one large write.
impl From<&Figures> for Model {
    fn from(figures: &Figures) -> Self {
        let line = |[small, large]: [u64; 2]| Line::through(small, large);
        Self {
            depth: figures.depth(),
            read: line(figures.reads()),
            write: line(figures.writes()),
            lead: Duration::from_secs(1) / figures.writes()[1],
            anticipation: ANTICIPATION,
        }
    }
}

impl Line {
    /// The line through what was measured: so many I/Os per second alone, of 4 KiB and of 128 KiB.
    ///
    /// # Panics
    /// When a rate is zero.
    pub fn through(rate_4k: u64, rate_128k: u64) -> Self {
        let span = |rate: u64| Duration::from_secs(1) / rate;
        let page = (span(rate_128k) - span(rate_4k)) / 31;
        Self {
            fixed: span(rate_4k) - page,
            page,
        }
    }

    fn cost(&self, bytes: u64) -> u64 {
        let pages = bytes.div_ceil(PAGE_BYTES).max(1);
        (self.fixed + self.page * pages).as_ns().max(1)
    }
}

impl FlashFq {
    /// An idle switch in front of a device that was measured.
    ///
    /// # Panics
    /// When the depth is zero.
    pub fn new(model: Model) -> Self {
        assert!(model.depth > 0, "a depth of zero would let nothing pass");
        Self {
            model,
            tenants: Roster::default(),
            queues: Queues::default(),
            ready: BTreeSet::new(),
            in_flight: BTreeSet::new(),
            tags: Vec::new(),
            awaited: BTreeSet::new(),
            ends: VecDeque::new(),
            virtual_time: 0,
        }
    }

    fn number(&mut self, id: TenantId) -> u32 {
        let number = self.tenants.number(id, || Tenant {
            weight: 1,
            start: 0,
            finish: 0,
            in_flight: 0,
            awaited: None,
            gone: false,
        });
        self.tenants[number].gone = false;
        number
    }

    fn cost(&self, io: &Ask) -> u64 {
        let Model { read, write, .. } = &self.model;
        match io.op {
            Op::Read | Op::Flush => read.cost(io.bytes),
            Op::Write => write.cost(io.bytes),
            Op::CompareAndWrite => read.cost(io.bytes) + write.cost(io.bytes),
            Op::WriteZeroes | Op::Deallocate => write.cost(io.bytes.min(MOST_RANGE_BYTES)),
        }
    }

    /// Tags the oldest I/O of a tenant and lets it compete.
    fn line_up(&mut self, number: u32) {
        let tenant = &mut self.tenants[number];
        tenant.start = tenant.finish.max(self.virtual_time);
        self.ready.insert((tenant.start, number));
    }

    /// Virtual time is the least start tag of all I/O that is queued or in flight, or that a tenant
    /// waited for would send: a tenant with one I/O at a time holds all others to its pace.
    fn advance(&mut self, now: Time) {
        while let Some(&(end, number)) = self.ends.front()
            && end <= now
        {
            self.ends.pop_front();
            if self.tenants[number].awaited == Some(end) {
                self.stop_awaiting(number);
                self.release(number);
            }
        }
        let sets = [&self.ready, &self.in_flight, &self.awaited];
        let firsts = sets.map(|set| set.first().map(|&(tag, _)| tag));
        if let Some(least) = firsts.into_iter().flatten().min() {
            self.virtual_time = self.virtual_time.max(least);
        }
    }

    fn stop_awaiting(&mut self, number: u32) {
        let tenant = &mut self.tenants[number];
        if tenant.awaited.take().is_some() {
            self.awaited.remove(&(tenant.finish, number));
        }
    }

    fn dispatch(&mut self, start: u64, number: u32) -> Next {
        self.ready.remove(&(start, number));
        let io = self.queues.pop(number).expect("who competes has a backlog");
        let cost = self.cost(&io).saturating_mul(UNITS);
        let tenant = &mut self.tenants[number];
        tenant.finish = start.saturating_add(cost / tenant.weight);
        tenant.in_flight += 1;
        let index = io.id.0 as usize;
        if index >= self.tags.len() {
            self.tags.resize(index + 1, 0);
        }
        self.tags[index] = start;
        self.in_flight.insert((start, io.id.0));
        if !self.queues.is_empty(number) {
            self.line_up(number);
        }
        Next::Dispatch(io.id)
    }

    fn release(&mut self, number: u32) {
        let tenant = &self.tenants[number];
        let here = tenant.in_flight > 0 || tenant.awaited.is_some();
        if tenant.gone && !here && self.queues.is_empty(number) {
            self.tenants.release(number);
        }
    }
}

impl Policy for FlashFq {
    fn arrive(&mut self, now: Time, io: Ask) {
        let number = self.number(io.tenant);
        self.advance(now);
        self.stop_awaiting(number);
        let first = self.queues.is_empty(number);
        self.queues.push(number, io);
        if first {
            self.line_up(number);
        }
    }

    fn next(&mut self, now: Time) -> Next {
        self.advance(now);
        let Some(&(start, number)) = self.ready.first() else {
            return Next::WaitForEvent;
        };
        if self.in_flight.len() >= self.model.depth as usize {
            return Next::WaitForEvent;
        }
        let lead = self.model.lead.as_ns().saturating_mul(UNITS);
        if start.saturating_sub(self.virtual_time) <= lead {
            return self.dispatch(start, number);
        }
        match self.ends.front() {
            Some(&(end, _)) => Next::WaitUntil(end),
            None => Next::WaitForEvent,
        }
    }

    fn complete(&mut self, now: Time, io: &Ask, _: Outcome) {
        let tag = self.tags[io.id.0 as usize];
        let was_there = self.in_flight.remove(&(tag, io.id.0));
        assert!(was_there, "only a dispatched I/O completes");
        let number = self
            .tenants
            .find(io.tenant)
            .expect("a tenant stays as long as anything of it is here");
        let tenant = &mut self.tenants[number];
        tenant.in_flight -= 1;
        let idle = tenant.in_flight == 0 && self.queues.is_empty(number);
        if idle && !tenant.gone && self.model.anticipation > Duration::ZERO {
            let end = now + self.model.anticipation;
            tenant.awaited = Some(end);
            self.awaited.insert((tenant.finish, number));
            self.ends.push_back((end, number));
        }
        self.release(number);
    }

    fn cancel(&mut self, _: Time, id: IoId) {
        if let Some((number, _)) = self.queues.remove(id) {
            if self.queues.is_empty(number) {
                let start = self.tenants[number].start;
                self.ready.remove(&(start, number));
            }
            self.release(number);
        }
    }

    /// What is queued first keeps its tag; the weight counts from the next dispatch.
    fn set_share(&mut self, _: Time, tenant: TenantId, share: &Share) {
        let number = self.number(tenant);
        self.tenants[number].weight = u64::from(share.weight.max(1));
    }

    fn forget(&mut self, _: Time, tenant: TenantId) {
        if let Some(number) = self.tenants.find(tenant) {
            self.tenants[number].gone = true;
            self.stop_awaiting(number);
            self.release(number);
        }
    }

    fn watch(&self, _: Time, tell: &mut dyn FnMut(Gauge)) {
        let us = |tag: u64| tag as f64 / UNITS as f64 / 1e3;
        tell(Gauge {
            name: "virtual_time_us",
            tenant: None,
            value: us(self.virtual_time),
        });
        for (id, _, tenant) in self.tenants.iter() {
            tell(Gauge {
                name: "ahead_us",
                tenant: Some(id),
                value: us(tenant.finish.saturating_sub(self.virtual_time)),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;

    const OUTCOME: Outcome = Outcome {
        latency: Duration::from_us(100),
        ok: true,
    };

    fn model(lead_us: u64, anticipation_us: u64) -> Model {
        Model {
            depth: 8,
            read: Line::through(400_000, 25_000),
            write: Line::through(40_000, 1_400),
            lead: Duration::from_us(lead_us),
            anticipation: Duration::from_us(anticipation_us),
        }
    }

    fn io(id: u32, tenant: u32, op: Op, kib: u64) -> Ask {
        Ask {
            id: IoId(id),
            tenant: TenantId(tenant),
            class: Class::Throughput,
            op,
            bytes: kib << 10,
            lba: 0,
        }
    }

    #[test]
    fn the_line_goes_through_what_was_measured() {
        let Model { read, write, .. } = model(0, 0);
        for (line, bytes, ns) in [
            (read, 4096, 2_500),
            (read, 128 << 10, 40_000),
            (write, 4096, 25_000),
            (write, 128 << 10, 714_285),
        ] {
            assert!(line.cost(bytes).abs_diff(ns) <= 31, "{}", line.cost(bytes));
        }
    }

    /// I/Os dispatched of each tenant while those in flight are done in the order of dispatch.
    fn run(fq: &mut FlashFq, tenants: &[(Op, u64)], rounds: u32) -> Vec<u64> {
        let now = Time::ZERO;
        let mut done = alloc::vec![0; tenants.len()];
        let mut in_flight = VecDeque::new();
        for (tenant, &(op, kib)) in (0..).zip(tenants) {
            (0..16).for_each(|id| fq.arrive(now, io(tenant * 16 + id, tenant, op, kib)));
        }
        for _ in 0..rounds {
            while let Next::Dispatch(IoId(id)) = fq.next(now) {
                in_flight.push_back(id);
            }
            let id = in_flight.pop_front().expect("something is in flight");
            let (op, kib) = tenants[id as usize / 16];
            let ended = io(id, id / 16, op, kib);
            done[id as usize / 16] += 1;
            fq.complete(now, &ended, OUTCOME);
            fq.arrive(now, ended);
        }
        done
    }

    #[test]
    fn tenants_share_device_time_by_weight() {
        for (ops, weights, ratio) in [
            ([(Op::Read, 4), (Op::Read, 4)], [1, 1], 1.0),
            ([(Op::Read, 4), (Op::Write, 4)], [1, 1], 10.0),
            ([(Op::Read, 4), (Op::Read, 128)], [1, 1], 16.0),
            ([(Op::Read, 4), (Op::Write, 4)], [1, 2], 5.0),
        ] {
            let mut fq = FlashFq::new(model(100_000, 0));
            for (tenant, weight) in (0..).zip(weights) {
                let share = Share {
                    weight,
                    ..Share::default()
                };
                fq.set_share(Time::ZERO, TenantId(tenant), &share);
            }
            let done = run(&mut fq, &ops, 20_000);
            let found = done[0] as f64 / done[1] as f64;
            assert!((found / ratio - 1.0).abs() < 0.05, "{found} for {ratio}");
        }
    }

    #[test]
    fn who_is_too_far_ahead_of_the_slowest_waits() {
        let now = Time::ZERO;
        let mut fq = FlashFq::new(model(10, 0));
        fq.arrive(now, io(0, 1, Op::Write, 4));
        assert_eq!(fq.next(now), Next::Dispatch(IoId(0)));
        (1..8).for_each(|id| fq.arrive(now, io(id, 2, Op::Read, 4)));
        // Four reads of 2.5 us are 10 us ahead; the fifth still starts there.
        let gone = (0..8).filter(|_| matches!(fq.next(now), Next::Dispatch(_)));
        assert_eq!(gone.count(), 5);
        fq.complete(now, &io(0, 1, Op::Write, 4), OUTCOME);
        assert!(matches!(fq.next(now), Next::WaitForEvent));
        fq.complete(now, &io(1, 2, Op::Read, 4), OUTCOME);
        assert!(matches!(fq.next(now), Next::Dispatch(_)));
    }

    #[test]
    fn a_tenant_that_just_ended_is_waited_for_but_not_for_long() {
        let at = |us| Time::ZERO + Duration::from_us(us);
        let mut fq = FlashFq::new(model(10, 50));
        fq.arrive(at(0), io(0, 1, Op::Read, 4));
        assert_eq!(fq.next(at(0)), Next::Dispatch(IoId(0)));
        fq.complete(at(0), &io(0, 1, Op::Read, 4), OUTCOME);
        (1..8).for_each(|id| fq.arrive(at(0), io(id, 2, Op::Write, 4)));
        assert_eq!(fq.next(at(0)), Next::Dispatch(IoId(1)));
        assert_eq!(fq.next(at(0)), Next::WaitUntil(at(50)));
        fq.arrive(at(30), io(9, 1, Op::Read, 4));
        assert_eq!(fq.next(at(30)), Next::Dispatch(IoId(9)));
    }
}
