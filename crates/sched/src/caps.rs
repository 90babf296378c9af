//! Caps: each tenant is held below fixed rates, slice by slice. It does nothing else.
//!
//! What SPDK's block device layer offers as quality of service (`bdev_set_qos_limit`: reads and
//! writes per second, bytes both ways, read and written per second), per tenant: every millisecond
//! each rate gives its quota; an I/O may go while any of it is left, and what it overdraws is taken
//! from the next. Tenants below their limits take turns. Weights and guarantees are not part of the
//! design.

use alloc::collections::{BTreeSet, VecDeque};

use flashyard_time::{Duration, Time};

use crate::queues::Queues;
use crate::roster::Roster;
use crate::{Ask, Gauge, IoId, Next, Op, Outcome, Policy, Rates, Share, TenantId};

/// See the module. Calls take constant time, but for the first one of a slice, which takes time in
/// proportion to the number of tenants that were held.
#[derive(Debug, Default)]
pub struct Caps {
    tenants: Roster<Tenant>,
    queues: Queues,
    /// Of what is queued, what was taken out of its quotas before.
    paid: BTreeSet<IoId>,
    /// Lists that may have something to go, in the order of their turns.
    turns: VecDeque<u32>,
    /// Lists that are held until the next slice.
    held: VecDeque<u32>,
    slice: u64,
}

#[derive(Debug, Default)]
struct Tenant {
    /// In the order of [`all`].
    quotas: [Option<Quota>; 6],
    /// Whether its reads and its writes are in one of the lists of lists.
    listed: [bool; 2],
    gone: bool,
}

/// One limit: what is left of it, in thousandths, in the slice it was last looked at.
#[derive(Clone, Copy, Debug)]
struct Quota {
    rate: u64,
    left: i64,
    slice: u64,
}

const SLICE: Duration = Duration::from_ms(1);
/// Slices in a second; also the thousandths that quotas are kept in.
const PER_SECOND: u64 = 1000;

impl Caps {
    /// A switch that knows of no limits yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn number(&mut self, id: TenantId) -> u32 {
        let number = self.tenants.number(id, Tenant::default);
        self.tenants[number].gone = false;
        number
    }

    fn turn_slice(&mut self, now: Time) {
        let slice = now.as_ns() / SLICE.as_ns();
        if slice > self.slice {
            self.slice = slice;
            self.turns.append(&mut self.held);
        }
    }

    fn release(&mut self, number: u32) {
        let tenant = &self.tenants[number];
        if tenant.gone && tenant.listed == [false; 2] {
            self.tenants.release(number);
        }
    }
}

impl Tenant {
    /// Takes an I/O out of every quota it counts against, if all of them have something left.
    fn pays(&mut self, io: &Ask, slice: u64) -> bool {
        let uses = uses(io);
        let used = || uses.iter().enumerate().filter(|(_, units)| **units > 0);
        for (place, _) in used() {
            if let Some(quota) = &mut self.quotas[place] {
                quota.refill(slice);
                if quota.left <= 0 {
                    return false;
                }
            }
        }
        for (place, &units) in used() {
            if let Some(quota) = &mut self.quotas[place] {
                let parts = i64::try_from(units.saturating_mul(PER_SECOND)).unwrap_or(i64::MAX);
                quota.left = quota.left.saturating_sub(parts);
            }
        }
        true
    }
}

impl Quota {
    fn refill(&mut self, slice: u64) {
        let slices = slice.saturating_sub(self.slice);
        let most = i64::try_from(self.rate).unwrap_or(i64::MAX);
        let gained = i64::try_from(self.rate.saturating_mul(slices)).unwrap_or(i64::MAX);
        self.left = self.left.saturating_add(gained).min(most);
        self.slice = self.slice.max(slice);
    }
}

impl Policy for Caps {
    fn arrive(&mut self, _: Time, io: Ask) {
        let number = self.number(io.tenant);
        let side = side(&io);
        self.queues.push(list(number, side), io);
        let listed = &mut self.tenants[number].listed[side as usize];
        if !*listed {
            *listed = true;
            self.turns.push_back(list(number, side));
        }
    }

    fn arrive_again(&mut self, now: Time, io: Ask) {
        self.paid.insert(io.id);
        self.arrive(now, io);
    }

    fn next(&mut self, now: Time) -> Next {
        self.turn_slice(now);
        while let Some(list) = self.turns.pop_front() {
            let (number, side) = (list / 2, list % 2);
            let Some(&io) = self.queues.front(list) else {
                self.tenants[number].listed[side as usize] = false;
                self.release(number);
                continue;
            };
            if self.paid.remove(&io.id) || self.tenants[number].pays(&io, self.slice) {
                self.queues.remove(io.id);
                self.turns.push_back(list);
                return Next::Dispatch(io.id);
            }
            self.held.push_back(list);
        }
        if self.held.is_empty() {
            return Next::WaitForEvent;
        }
        let next = (self.slice + 1).saturating_mul(SLICE.as_ns());
        Next::WaitUntil(Time::from_ns(next))
    }

    fn complete(&mut self, _: Time, _: &Ask, _: Outcome) {}

    fn cancel(&mut self, _: Time, id: IoId) {
        // A list that is empty is found when its turn comes.
        self.queues.remove(id);
        self.paid.remove(&id);
    }

    fn set_share(&mut self, now: Time, tenant: TenantId, share: &Share) {
        self.turn_slice(now);
        let number = self.number(tenant);
        let slice = self.slice;
        let quota = |rate: Option<u64>| {
            rate.map(|rate| Quota {
                rate,
                left: i64::try_from(rate).unwrap_or(i64::MAX),
                slice,
            })
        };
        self.tenants[number].quotas = all(&share.limit).map(quota);
        self.turns.append(&mut self.held);
    }

    fn forget(&mut self, _: Time, tenant: TenantId) {
        if let Some(number) = self.tenants.find(tenant) {
            self.tenants[number].gone = true;
            self.tenants[number].quotas = [None; 6];
            self.turns.append(&mut self.held);
            self.release(number);
        }
    }

    fn watch(&self, _: Time, tell: &mut dyn FnMut(Gauge)) {
        tell(Gauge {
            name: "held_queues",
            tenant: None,
            value: self.held.len() as f64,
        });
    }
}

/// Every limit there may be.
fn all(rates: &Rates) -> [Option<u64>; 6] {
    let Rates {
        ios,
        read_ios,
        write_ios,
        bytes,
        read_bytes,
        write_bytes,
    } = *rates;
    [ios, read_ios, write_ios, bytes, read_bytes, write_bytes]
}

/// What an I/O takes of each of them. Ranges without transfer count as I/Os only.
fn uses(io: &Ask) -> [u64; 6] {
    match io.op {
        Op::Read => [1, 1, 0, io.bytes, io.bytes, 0],
        Op::Write | Op::CompareAndWrite => [1, 0, 1, io.bytes, 0, io.bytes],
        Op::Flush | Op::WriteZeroes | Op::Deallocate => [1, 0, 1, 0, 0, 0],
    }
}

/// Reads and all others wait apart, so that one kind of limit does not hold up the other kind of
/// I/O.
fn side(io: &Ask) -> u32 {
    u32::from(io.op != Op::Read)
}

fn list(number: u32, side: u32) -> u32 {
    2 * number + side
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;

    fn io(id: u32, op: Op, kib: u64) -> Ask {
        Ask {
            id: IoId(id),
            tenant: TenantId(1),
            class: Class::Throughput,
            op,
            bytes: kib << 10,
            lba: 0,
        }
    }

    /// I/Os per second of a tenant that always has 8 of this kind queued.
    fn rate(limit: Rates, op: Op, kib: u64) -> u64 {
        let mut caps = Caps::new();
        let share = Share {
            limit,
            ..Share::default()
        };
        caps.set_share(Time::ZERO, TenantId(1), &share);
        (0..8).for_each(|id| caps.arrive(Time::ZERO, io(id, op, kib)));
        let (mut now, mut done) = (Time::ZERO, 0);
        while now < Time::ZERO + Duration::from_secs(4) {
            match caps.next(now) {
                Next::Dispatch(IoId(id)) => {
                    done += 1;
                    caps.arrive(now, io(id, op, kib));
                }
                Next::WaitUntil(at) => now = at,
                Next::WaitForEvent => panic!("there is always something queued"),
            }
        }
        done / 4
    }

    #[test]
    fn each_limit_holds_what_it_is_for() {
        let limits = |change: fn(&mut Rates)| {
            let mut rates = Rates {
                ios: Some(1_000_000),
                ..Rates::NONE
            };
            change(&mut rates);
            rates
        };
        for (limit, op, kib, expected) in [
            (
                limits(|rates| rates.ios = Some(20_000)),
                Op::Read,
                4,
                20_000,
            ),
            (limits(|rates| rates.ios = Some(10)), Op::Read, 4, 10),
            (
                limits(|rates| rates.bytes = Some(40 << 20)),
                Op::Write,
                4,
                10_240,
            ),
            (
                limits(|rates| rates.bytes = Some(32 << 20)),
                Op::Read,
                128,
                256,
            ),
            (
                limits(|rates| rates.read_bytes = Some(4 << 20)),
                Op::Read,
                4,
                1024,
            ),
            (
                limits(|rates| rates.write_bytes = Some(4 << 20)),
                Op::Write,
                4,
                1024,
            ),
            (
                limits(|rates| rates.write_ios = Some(100)),
                Op::Deallocate,
                4,
                100,
            ),
            (
                limits(|rates| rates.write_ios = Some(100)),
                Op::Read,
                4,
                1_000_000,
            ),
        ] {
            let found = rate(limit, op, kib);
            assert!(
                found.abs_diff(expected) <= expected / 100 + 1,
                "{found} for {expected}"
            );
        }
    }

    #[test]
    fn a_limit_on_writes_does_not_hold_up_reads_and_can_be_lifted() {
        let now = Time::ZERO;
        let mut caps = Caps::new();
        let share = Share {
            limit: Rates {
                write_bytes: Some(1),
                ..Rates::NONE
            },
            ..Share::default()
        };
        caps.set_share(now, TenantId(1), &share);
        for id in 0..2 {
            caps.arrive(now, io(id, Op::Write, 4));
        }
        caps.arrive(now, io(2, Op::Read, 4));
        assert_eq!(caps.next(now), Next::Dispatch(IoId(0)));
        assert_eq!(caps.next(now), Next::Dispatch(IoId(2)));
        assert_eq!(caps.next(now), Next::WaitUntil(Time::ZERO + SLICE));
        caps.forget(now, TenantId(1));
        assert_eq!(caps.next(now), Next::Dispatch(IoId(1)));
        assert_eq!(caps.next(now), Next::WaitForEvent);
    }
}
