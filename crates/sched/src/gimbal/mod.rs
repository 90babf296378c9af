//! Gimbal: congestion control by delay, an estimator of what writes cost, and round robin over
//! virtual slots.
//!
//! After Min et al., "Gimbal: Enabling Multi-tenant Storage Disaggregation on SmartNIC JBOFs",
//! SIGCOMM 2021, and its released code. I/Os take turns by deficit round robin ([`rounds`]), in
//! which a written byte costs more than a read one ([`cost`]). What was scheduled leaves as tokens
//! allow ([`pace`]), at a rate that follows the device's latency ([`monitor`]). Weights,
//! guarantees, limits and classes are not part of the design.
//!
//! The released code departs from the design in ways that change its behaviour; [`Flaws`] turns
//! them on.

mod cost;
mod monitor;
mod pace;
mod rounds;
mod slots;

use flashyard_time::{Duration, Time};

use crate::{Ask, Credit, Gauge, IoId, Next, Op, Outcome, Policy, TenantId};
use cost::WriteCost;
use monitor::Monitor;
use pace::{Pace, Side};
use rounds::{PARKED, Rounds};

/// The constants of the design. Those that describe a device are published for the Samsung DCT 983.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Below this latency the device is hardly used.
    pub latency_low: Duration,
    /// Above this latency it is overloaded.
    pub latency_high: Duration,
    /// A sample counts `2^-average_shift` in the average of latencies.
    pub average_shift: u32,
    /// The threshold sinks by `2^-decay_shift` of its distance to the average.
    pub decay_shift: u32,
    /// The target rate at first, in bytes per second.
    pub rate_initial: u64,
    /// It never falls lower.
    pub rate_lowest: u64,
    /// It never grows higher.
    pub rate_highest: u64,
    /// How many times faster it grows while the device is hardly used.
    pub growth: u64,
    /// Bytes that each of the two buckets holds.
    pub bucket_bytes: u64,
    /// Bytes over which the rate of completions is taken.
    pub completion_window: u64,
    /// What a written byte costs at worst, in 1024ths of a read one: by the data sheet, the ratio
    /// of the rates of random reads and writes.
    pub worst_write_cost: u64,
    /// How much the write cost falls after each period in which writes were fast, in 1024ths.
    pub write_cost_step: u64,
    /// The period of the write cost.
    pub write_cost_period: Duration,
    /// What a tenant's deficit grows by in each round.
    pub quantum_bytes: u64,
    /// Slots of all tenants: enough for the device's highest bandwidth with one tenant.
    pub slots: u32,
    /// Bytes of cost that fill a slot.
    pub slot_bytes: u64,
}

/// Faults of the released code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flaws {
    /// The write cost estimator never sees a latency: writes cost as much as reads after 1.6 s.
    pub inert_write_cost: bool,
    /// Reads and writes without tokens wait in one queue, whose head holds up both; what has its
    /// turn later overtakes.
    pub one_parking_queue: bool,
    /// The rate of completions is zero before its first window and counts idle time: overload then
    /// cuts the target rate to its lower bound.
    pub raw_completion_rate: bool,
    /// The threshold of latency sinks below the lower bound, and averages begin at zero.
    pub raw_threshold: bool,
}

/// See the module. Work per call is constant, but for rounds in which no tenant can pay, which take
/// time in proportion to the number of tenants with a backlog.
#[derive(Debug)]
pub struct Gimbal {
    flaws: Flaws,
    rounds: Rounds,
    /// Of reads and of writes.
    monitors: [Monitor; 2],
    pace: Pace,
    cost: WriteCost,
    slot_bytes: u64,
}

/// The least an I/O is billed, so that those without data do not go for free.
const LEAST_BYTES: u64 = 4096;

impl Default for Tuning {
    fn default() -> Self {
        Self {
            latency_low: Duration::from_us(250),
            latency_high: Duration::from_us(1500),
            average_shift: 1,
            decay_shift: 4,
            rate_initial: 1000 << 20,
            rate_lowest: 50 << 20,
            rate_highest: 1 << 32,
            growth: 8,
            bucket_bytes: 256 << 10,
            completion_window: 16 << 20,
            worst_write_cost: 9 * cost::ONE,
            write_cost_step: cost::ONE / 2,
            write_cost_period: Duration::from_ms(100),
            quantum_bytes: 128 << 10,
            slots: 8,
            slot_bytes: 128 << 10,
        }
    }
}

impl Flaws {
    /// All of them: the code as released.
    pub const RELEASED: Self = Self {
        inert_write_cost: true,
        one_parking_queue: true,
        raw_completion_rate: true,
        raw_threshold: true,
    };
}

impl Gimbal {
    /// An idle switch.
    pub fn new(tuning: Tuning, flaws: Flaws) -> Self {
        Self {
            flaws,
            rounds: Rounds::new(&tuning),
            monitors: [(); 2].map(|()| Monitor::new(&tuning, flaws.raw_threshold)),
            pace: Pace::new(&tuning, flaws.raw_completion_rate),
            cost: WriteCost::new(&tuning, flaws.inert_write_cost),
            slot_bytes: tuning.slot_bytes,
        }
    }

    /// Lets the oldest of the parked I/Os go that has tokens.
    fn unpark(&mut self) -> Option<Ask> {
        PARKED.into_iter().find_map(|lane| {
            let io = *self.rounds.parked(lane)?;
            let bytes = billed(&io, self.slot_bytes);
            self.pace.take(side(&io), bytes).then_some(())?;
            self.rounds.unpark(lane)
        })
    }

    /// Takes turns until an I/O may leave; parks those that lack tokens.
    fn take_turns(&mut self) -> Option<Ask> {
        while PARKED
            .iter()
            .any(|&lane| self.rounds.parked(lane).is_none())
        {
            let write_cost = self.cost.value();
            let slot_bytes = self.slot_bytes;
            let weighed = |io: &Ask| match side(io) {
                Side::Read => billed(io, slot_bytes),
                Side::Write => billed(io, slot_bytes).saturating_mul(write_cost) / cost::ONE,
            };
            let io = self.rounds.dequeue(weighed)?;
            let lane = if self.flaws.one_parking_queue {
                PARKED[0]
            } else {
                PARKED[side(&io) as usize]
            };
            let bytes = billed(&io, self.slot_bytes);
            let in_turn = self.flaws.one_parking_queue || self.rounds.parked(lane).is_none();
            if in_turn && self.pace.take(side(&io), bytes) {
                return Some(io);
            }
            self.rounds.park(lane, io);
            if self.flaws.one_parking_queue {
                return None;
            }
        }
        None
    }

    /// When the first of the parked I/Os has tokens.
    fn tokens_come(&self, now: Time) -> Next {
        let wait = |&lane: &u32| {
            let io = self.rounds.parked(lane)?;
            Some(
                self.pace
                    .wait(side(io), billed(io, self.slot_bytes), self.cost.value()),
            )
        };
        match PARKED.iter().filter_map(wait).min() {
            Some(wait) => Next::WaitUntil(now + wait),
            None => Next::WaitForEvent,
        }
    }
}

impl Policy for Gimbal {
    fn arrive(&mut self, _: Time, io: Ask) {
        self.rounds.arrive(io);
    }

    fn next(&mut self, now: Time) -> Next {
        self.cost.tick(now);
        self.pace.refill(now, self.cost.value());
        match self.unpark().or_else(|| self.take_turns()) {
            Some(io) => {
                self.pace.dispatched(now);
                Next::Dispatch(io.id)
            }
            None => self.tokens_come(now),
        }
    }

    fn complete(&mut self, now: Time, io: &Ask, outcome: Outcome) {
        self.rounds.end(io.id);
        self.pace.ended(now, if outcome.ok { io.bytes } else { 0 });
        let latency = outcome.latency;
        let side = match io.op {
            Op::Read => Side::Read,
            Op::Write | Op::CompareAndWrite => Side::Write,
            // Their latency says nothing about the load of the flash.
            Op::Flush | Op::WriteZeroes | Op::Deallocate => return,
        };
        if !outcome.ok {
            return;
        }
        match side {
            Side::Read => self.cost.read(),
            Side::Write => self.cost.wrote(latency),
        }
        let load = self.monitors[side as usize].sample(latency);
        self.pace.steer(load, io.bytes);
    }

    fn cancel(&mut self, _: Time, id: IoId) {
        self.rounds.cancel(id);
    }

    fn forget(&mut self, _: Time, tenant: TenantId) {
        self.rounds.forget(tenant);
    }

    fn watch(&self, _: Time, tell: &mut dyn FnMut(Gauge)) {
        let mut device = |name, value| {
            tell(Gauge {
                name,
                tenant: None,
                value,
            });
        };
        let us = |span: Duration| span.as_ns() as f64 / 1e3;
        let [reads, writes] = &self.monitors;
        device("target_rate_bytes_per_second", self.pace.rate() as f64);
        device("write_cost", self.cost.value() as f64 / cost::ONE as f64);
        device("read_latency_us", us(reads.average()));
        device("read_threshold_us", us(reads.threshold()));
        device("write_latency_us", us(writes.average()));
        device("write_threshold_us", us(writes.threshold()));
        device("read_tokens_bytes", self.pace.tokens(Side::Read) as f64);
        device("write_tokens_bytes", self.pace.tokens(Side::Write) as f64);
        device("tenants", f64::from(self.rounds.occupied()));
        for (tenant, full) in self.rounds.slots() {
            tell(Gauge {
                name: "full_slots",
                tenant: Some(tenant),
                value: f64::from(full),
            });
        }
    }

    fn credit(&self, tenant: TenantId) -> Option<Credit> {
        let ios = self.rounds.credit(tenant)?;
        Some(Credit {
            ios,
            bytes: u64::MAX,
        })
    }
}

/// Whose tokens an I/O takes.
fn side(io: &Ask) -> Side {
    match io.op {
        Op::Read | Op::Flush => Side::Read,
        Op::Write | Op::WriteZeroes | Op::Deallocate | Op::CompareAndWrite => Side::Write,
    }
}

/// Bytes that an I/O is billed. A range without transfer is work for the device's maps, not for its
/// flash, and is never more than a slot.
fn billed(io: &Ask, slot_bytes: u64) -> u64 {
    let bytes = match io.op {
        Op::WriteZeroes | Op::Deallocate => io.bytes.min(slot_bytes),
        Op::Read | Op::Write | Op::CompareAndWrite | Op::Flush => io.bytes,
    };
    bytes.max(LEAST_BYTES)
}
