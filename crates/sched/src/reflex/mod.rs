//! ReFlex: a token rate known in advance, reserved by latency-critical tenants and shared by
//! best-effort ones.
//!
//! After Klimovic, Litz and Kozyrakis, "ReFlex: Remote Flash = Local Flash", ASPLOS 2017, and its
//! released code (`nvme_sw_queue.c`). A tenant with a guarantee is latency-critical: it earns
//! tokens at the rate of its guarantee and may go into debt by one write. The strictest of their
//! latency targets decides, by [`Calibration`], how many tokens the device earns; what is not
//! reserved is divided equally among all other tenants, and what those do not use goes to the next.
//! Weights and limits are not part of the design. Tokens are given out in rounds, as the polling
//! loop of the source does.

mod calibration;

use alloc::vec::Vec;

use flashyard_time::{Duration, Time};

use crate::queues::Queues;
use crate::roster::Roster;
use crate::{Ask, Gauge, IoId, Next, Op, Outcome, Policy, Rates, Share, TenantId};

pub use crate::figures::{Point, READ_TOKENS};
pub use calibration::Calibration;

/// See the module. A round takes time in proportion to the number of tenants, everything else
/// constant time.
#[derive(Debug)]
pub struct Reflex {
    calibration: Calibration,
    tenants: Roster<Tenant>,
    queues: Queues,
    /// The tenants served in a round, in order: the latency-critical first.
    critical: Vec<u32>,
    best_effort: Vec<u32>,
    /// Whose turn it is to be first among the best-effort.
    first: usize,
    /// Tokens per second of each best-effort tenant.
    best_effort_rate: u64,
    rounded: Option<Time>,
    queued: u32,
}

#[derive(Debug)]
struct Tenant {
    /// Tokens per second that are reserved; `None` for best effort.
    reserved: Option<u64>,
    latency_target: Option<Duration>,
    tokens: i64,
    /// Billionths of a token.
    rest: u64,
    /// Tokens of all that is queued.
    demand: u64,
    gone: bool,
}

/// The list of what has been paid for; tenants have those behind.
const READY: u32 = 0;
/// From one round to the next. The polling loop of the source takes less when little happens and
/// more when much does.
const ROUND: Duration = Duration::from_us(5);
/// After a longer pause, tokens are earned for so much only.
const LONGEST_ROUND: Duration = Duration::from_ms(1);
/// The longest range without transfer that is priced in full.
const MOST_RANGE_BYTES: u64 = 128 << 10;
const SECOND: u64 = 1_000_000_000;

impl Reflex {
    /// An idle switch in front of a device that was measured.
    pub fn new(calibration: Calibration) -> Self {
        Self {
            calibration,
            tenants: Roster::default(),
            queues: Queues::default(),
            critical: Vec::new(),
            best_effort: Vec::new(),
            first: 0,
            best_effort_rate: 0,
            rounded: None,
            queued: 0,
        }
    }

    fn number(&mut self, id: TenantId) -> u32 {
        if let Some(number) = self.tenants.find(id) {
            return number;
        }
        let number = self.tenants.number(id, || Tenant {
            reserved: None,
            latency_target: None,
            tokens: 0,
            rest: 0,
            demand: 0,
            gone: false,
        });
        self.divide();
        number
    }

    /// Divides the device's tokens anew, after a tenant came, went or changed.
    fn divide(&mut self) {
        self.critical.clear();
        self.best_effort.clear();
        let mut reserved = 0_u64;
        let mut strictest = None;
        for (_, number, tenant) in self.tenants.iter() {
            if let Some(rate) = tenant.reserved {
                reserved = reserved.saturating_add(rate);
                strictest = strictest.into_iter().chain(tenant.latency_target).min();
                self.critical.push(number);
            } else {
                self.best_effort.push(number);
            }
        }
        let left = self.calibration.rate(strictest).saturating_sub(reserved);
        self.best_effort_rate = left / (self.best_effort.len() as u64).max(1);
    }

    fn price(&self, io: &Ask) -> u64 {
        match io.op {
            Op::Read | Op::Flush => self.calibration.price(io.bytes, false),
            Op::Write => self.calibration.price(io.bytes, true),
            Op::CompareAndWrite => {
                let read = self.calibration.price(io.bytes, false);
                read.saturating_add(self.calibration.price(io.bytes, true))
            }
            Op::WriteZeroes | Op::Deallocate => {
                let bytes = io.bytes.min(MOST_RANGE_BYTES);
                self.calibration.price(bytes, true)
            }
        }
    }

    /// Gives out the tokens of `span`, and moves what is paid for to the ready list.
    fn round(&mut self, span: Duration) {
        let mut pool = 0;
        for place in 0..self.critical.len() {
            self.serve_critical(self.critical[place], span, &mut pool);
        }
        let count = self.best_effort.len();
        for place in 0..count {
            let number = self.best_effort[(self.first + place) % count];
            self.serve_best_effort(number, span, &mut pool);
        }
        self.first = (self.first + 1) % count.max(1);
    }

    fn serve_critical(&mut self, number: u32, span: Duration, pool: &mut i64) {
        let rate = self.tenants[number].reserved.unwrap_or(0);
        let earned = self.tenants[number].earn(rate, span);
        let debt = self.calibration.write_tokens().cast_signed();
        while self.tenants[number].tokens > -debt && self.buy(number) {}
        let tokens = &mut self.tenants[number].tokens;
        if *tokens > earned.saturating_mul(3) {
            let spare = *tokens / 10 * 9;
            *pool += spare;
            *tokens -= spare;
        }
    }

    fn serve_best_effort(&mut self, number: u32, span: Duration, pool: &mut i64) {
        let tenant = &mut self.tenants[number];
        tenant.earn(self.best_effort_rate, span);
        let demand = i64::try_from(tenant.demand).unwrap_or(i64::MAX);
        let taken = demand.saturating_sub(tenant.tokens).clamp(0, *pool);
        tenant.tokens += taken;
        *pool -= taken;
        while self.affords_head(number) && self.buy(number) {}
        let tenant = &mut self.tenants[number];
        let demand = i64::try_from(tenant.demand).unwrap_or(i64::MAX);
        let spare = tenant.tokens.saturating_sub(demand).max(0);
        tenant.tokens -= spare;
        *pool = pool.saturating_add(spare);
    }

    fn affords_head(&self, number: u32) -> bool {
        let head = self.queues.front(number + 1);
        head.is_some_and(|io| self.tenants[number].tokens >= self.price(io).cast_signed())
    }

    /// Pays for the oldest I/O of a tenant. Whether there was any.
    fn buy(&mut self, number: u32) -> bool {
        let Some(io) = self.queues.pop(number + 1) else {
            return false;
        };
        let price = self.price(&io);
        let tenant = &mut self.tenants[number];
        tenant.tokens -= price.cast_signed();
        tenant.demand -= price;
        self.queues.push(READY, io);
        true
    }

    fn leave(&mut self, number: u32) {
        if self.tenants[number].gone && self.queues.is_empty(number + 1) {
            self.tenants.release(number);
            self.divide();
        }
    }
}

impl Tenant {
    /// Adds what a rate gives in a span, and returns how much that was.
    fn earn(&mut self, rate: u64, span: Duration) -> i64 {
        let earned = rate.saturating_mul(span.as_ns()).saturating_add(self.rest);
        self.rest = earned % SECOND;
        let tokens = (earned / SECOND).cast_signed();
        self.tokens = self.tokens.saturating_add(tokens);
        tokens
    }
}

impl Policy for Reflex {
    fn arrive(&mut self, _: Time, io: Ask) {
        let number = self.number(io.tenant);
        let price = self.price(&io);
        self.tenants[number].gone = false;
        self.tenants[number].demand += price;
        self.queues.push(number + 1, io);
        self.queued += 1;
    }

    fn next(&mut self, now: Time) -> Next {
        if self.queued > 0 && self.queues.is_empty(READY) {
            let rounded = *self.rounded.get_or_insert(now);
            let span = now.since(rounded);
            if span < ROUND && rounded != now {
                return Next::WaitUntil(rounded + ROUND);
            }
            self.round(span.min(LONGEST_ROUND));
            self.rounded = Some(now);
        }
        match self.queues.pop(READY) {
            Some(io) => {
                self.queued -= 1;
                if let Some(number) = self.tenants.find(io.tenant) {
                    self.leave(number);
                }
                Next::Dispatch(io.id)
            }
            None if self.queued > 0 => Next::WaitUntil(now + ROUND),
            None => Next::WaitForEvent,
        }
    }

    fn complete(&mut self, _: Time, _: &Ask, _: Outcome) {}

    fn cancel(&mut self, _: Time, id: IoId) {
        if let Some((list, io)) = self.queues.remove(id) {
            self.queued -= 1;
            if let Some(number) = list.checked_sub(1) {
                let price = self.price(&io);
                self.tenants[number].demand -= price;
                self.leave(number);
            }
        }
    }

    fn set_share(&mut self, _: Time, tenant: TenantId, share: &Share) {
        let number = self.number(tenant);
        let reserved = self.calibration.tokens_of(&share.guarantee);
        let tenant = &mut self.tenants[number];
        tenant.reserved = reserved;
        tenant.latency_target = share.latency_target;
        tenant.gone = false;
        self.divide();
    }

    fn forget(&mut self, _: Time, tenant: TenantId) {
        if let Some(number) = self.tenants.find(tenant) {
            self.tenants[number].gone = true;
            self.leave(number);
        }
    }

    fn watch(&self, _: Time, tell: &mut dyn FnMut(Gauge)) {
        tell(Gauge {
            name: "best_effort_rate_tokens_per_second",
            tenant: None,
            value: self.best_effort_rate as f64,
        });
        for (id, _, tenant) in self.tenants.iter() {
            tell(Gauge {
                name: "tokens",
                tenant: Some(id),
                value: tenant.tokens as f64,
            });
        }
    }
}

impl Calibration {
    /// Tokens per second of a guarantee. What does not say whether it reads or writes is priced as
    /// writes.
    fn tokens_of(&self, rates: &Rates) -> Option<u64> {
        let tokens = |each: u64, rate: Option<u64>| rate.unwrap_or(0).saturating_mul(each);
        let write = self.write_tokens();
        let ios = tokens(write, rates.ios)
            .saturating_add(tokens(READ_TOKENS, rates.read_ios))
            .saturating_add(tokens(write, rates.write_ios));
        let pages = |rate: Option<u64>| rate.map(|bytes| bytes.div_ceil(4096));
        let bytes = tokens(write, pages(rates.bytes))
            .saturating_add(tokens(READ_TOKENS, pages(rates.read_bytes)))
            .saturating_add(tokens(write, pages(rates.write_bytes)));
        Some(ios.max(bytes)).filter(|tokens| *tokens > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;

    /// 40 million tokens a second: 400,000 reads of 4 KiB; a write is worth nine.
    fn dct983() -> Reflex {
        let point = |us, tokens| Point {
            latency: Duration::from_us(us),
            tokens,
        };
        Reflex::new(Calibration::new(
            900,
            alloc::vec![point(500, 12_000_000), point(1000, 40_000_000)],
        ))
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

    /// I/Os per second that each tenant gets, all of them always with 64 queued.
    fn rates<const N: usize>(reflex: &mut Reflex, tenants: [(Op, u64); N]) -> [u64; N] {
        let mut done = [0; N];
        for (tenant, &(op, kib)) in (0..).zip(&tenants) {
            (0..64).for_each(|id| reflex.arrive(Time::ZERO, io(tenant * 64 + id, tenant, op, kib)));
        }
        let mut now = Time::ZERO;
        while now < Time::ZERO + Duration::from_secs(1) {
            match reflex.next(now) {
                Next::Dispatch(IoId(id)) => {
                    let (op, kib) = tenants[id as usize / 64];
                    done[id as usize / 64] += 1;
                    reflex.arrive(now, io(id, id / 64, op, kib));
                }
                Next::WaitUntil(at) => now = at,
                Next::WaitForEvent => panic!("there is always something queued"),
            }
        }
        done
    }

    fn assert_near<const N: usize>(rates: [u64; N], expected: [u64; N]) {
        for (rate, expected) in rates.iter().zip(expected) {
            assert!(rate.abs_diff(expected) <= expected / 100 + 2, "{rates:?}");
        }
    }

    #[test]
    fn best_effort_tenants_share_tokens_not_ios() {
        use Op::{Read, Write};
        for (ops, expected) in [
            ([(Read, 4), (Read, 4)], [200_000, 200_000]),
            ([(Read, 4), (Write, 4)], [200_000, 22_222]),
            ([(Read, 4), (Read, 128)], [200_000, 6_250]),
            ([(Write, 128), (Write, 4)], [694, 22_222]),
        ] {
            assert_near(rates(&mut dct983(), ops), expected);
        }
    }

    #[test]
    fn the_strictest_target_of_a_critical_tenant_sets_the_rate_of_all() {
        let mut reflex = dct983();
        let share = Share {
            guarantee: Rates {
                read_ios: Some(50_000),
                ..Rates::NONE
            },
            latency_target: Some(Duration::from_us(500)),
            ..Share::default()
        };
        reflex.set_share(Time::ZERO, TenantId(0), &share);
        let ops = [(Op::Read, 4), (Op::Read, 4), (Op::Write, 4)];
        assert_near(rates(&mut reflex, ops), [50_000, 35_000, 3_888]);
        reflex.forget(Time::ZERO, TenantId(0));
    }

    #[test]
    fn tokens_not_reserved_flow_to_the_others() {
        let mut reflex = dct983();
        for tenant in 0..4 {
            reflex.set_share(Time::ZERO, TenantId(tenant), &Share::default());
        }
        let [rate] = rates(&mut reflex, [(Op::Read, 4)]);
        // An idle tenant's tokens are gone when its turn is after those of the only busy one.
        assert!((150_000..=400_000).contains(&rate), "{rate}");
    }
}
