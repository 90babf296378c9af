//! What `fair` remembers, that nothing may go, is what it would find if it looked again; and who
//! waits stands in order.

use alloc::collections::VecDeque;

use flashyard_time::{Duration, Time};

use super::super::learn::Phase;
use super::super::tenants::{Lane, NONE};
use super::machine::{Device, Worker, reader, run, writer};
use super::{Fair, ms};
use crate::{Ask, Class, Credit, IoId, Next, Outcome, Policy, Rates, Share, TenantId};

/// Two that hear the same: one as it is, one that has to look each time.
struct Twins {
    quick: Fair,
    thorough: Fair,
    /// How often the quick one did not look.
    spared: u32,
}

impl Twins {
    fn new() -> Self {
        Self {
            quick: Fair::new(),
            thorough: Fair::new(),
            spared: 0,
        }
    }
}

/// Whoever waits stands where its tag says, whichever of its lanes went last.
fn check_order(fair: &Fair) {
    if fair.learner.phase() != Phase::Open {
        return;
    }
    for number in fair.tenants.numbers() {
        let tenant = &fair.tenants[number];
        for lane in [Lane::Latency, Lane::Read, Lane::Write] {
            let gated = fair.gated.key_of(number * 4 + lane as u32).is_some();
            let waits = tenant.head(lane) != NONE && !gated;
            let key = fair.ready[lane as usize].key_of(number);
            assert_eq!(key, waits.then_some(tenant.tag), "{lane:?} of {number}");
        }
    }
}

impl Policy for Twins {
    fn arrive(&mut self, now: Time, io: Ask) {
        self.quick.arrive(now, io);
        self.thorough.arrive(now, io);
    }

    fn pass(&mut self, now: Time, io: &Ask) -> bool {
        let passes = self.quick.pass(now, io);
        assert_eq!(passes, self.thorough.pass(now, io));
        passes
    }

    fn next(&mut self, now: Time) -> Next {
        self.spared += u32::from(self.quick.stuck);
        self.thorough.stuck = false;
        let next = self.quick.next(now);
        assert_eq!(next, self.thorough.next(now), "at {now:?}");
        check_order(&self.quick);
        next
    }

    fn complete(&mut self, now: Time, io: &Ask, outcome: Outcome) {
        self.quick.complete(now, io, outcome);
        self.thorough.complete(now, io, outcome);
    }

    fn cancel(&mut self, now: Time, id: IoId) {
        self.quick.cancel(now, id);
        self.thorough.cancel(now, id);
    }

    fn set_share(&mut self, now: Time, tenant: TenantId, share: &Share) {
        self.quick.set_share(now, tenant, share);
        self.thorough.set_share(now, tenant, share);
    }

    fn credit(&self, tenant: TenantId) -> Option<Credit> {
        let credit = self.quick.credit(tenant);
        assert_eq!(credit, self.thorough.credit(tenant));
        credit
    }
}

fn limited() -> Share {
    Share {
        limit: Rates {
            ios: Some(3_000),
            ..Rates::NONE
        },
        ..Share::default()
    }
}

fn guaranteed() -> Share {
    Share {
        guarantee: Rates {
            read_ios: Some(9_000),
            ..Rates::NONE
        },
        ..Share::default()
    }
}

#[test]
fn who_remembers_that_nothing_may_go_decides_as_who_looks() {
    let deep = |worker: Worker| Worker {
        depth: 100,
        ..worker
    };
    let rare = |class, tenant| Worker {
        class,
        depth: 1,
        pause: ms(7),
        ..reader(tenant)
    };
    let late = |worker: Worker| Worker {
        start: ms(60),
        bytes: 65_536,
        ..worker
    };
    let crowd = [deep(reader(1)), deep(writer(2)), late(reader(1)), writer(1)];
    let guests = [
        rare(Class::Latency, 4),
        rare(Class::Background, 5),
        rare(Class::Throughput, 6),
    ];
    let shares = [Share::default(), limited(), guaranteed()];
    for (seed, guest) in (1..).zip(guests) {
        for share in &shares {
            let mut twins = Twins::new();
            twins.set_share(Time::ZERO, TenantId(1), share);
            let workers = [&crowd[..], &[guest]].concat();
            let mut device = Device::new(4, 80_000, 300_000);
            // For a while nothing ends between two ticks.
            device.slow = (Time::ZERO + ms(25), Time::ZERO + ms(75), 200);
            let done = run(&mut twins, &mut device, &workers, ms(700), seed);
            assert!(done.len() > 1_000, "{}", done.len());
            let plain = guest.class == Class::Throughput && *share == Share::default();
            assert!(twins.spared > 500 || !plain, "{}", twins.spared);
        }
    }
}

/// Reads of two tenants.
fn read(id: u32, bytes: u64) -> Ask {
    super::read(id, 1 + id % 2, bytes)
}

#[test]
fn what_is_taken_out_or_owed_lets_others_go() {
    let mut twins = Twins::new();
    let now = Time::ZERO + Duration::from_us(1);
    (0..40).for_each(|id| twins.arrive(now, read(id, 1 << 20)));
    while twins.next(now) != Next::WaitForEvent {}
    assert!(twins.quick.stuck);
    (20..40).for_each(|id| {
        twins.cancel(now, IoId(id));
        twins.next(now);
    });
    twins.set_share(now, TenantId(1), &limited());
    twins.next(now);
    twins.set_share(now, TenantId(1), &Share::default());
    twins.next(now);
}

#[test]
fn a_window_that_grows_lets_others_go() {
    let mut twins = Twins::new();
    let mut now = Time::ZERO;
    let mut device = VecDeque::new();
    (0..400).for_each(|id| twins.arrive(now, read(id, 4096)));
    // Until what a read takes is known.
    while now < Time::ZERO + ms(8) {
        while let Next::Dispatch(IoId(id)) = twins.next(now) {
            device.push_back((id, now));
        }
        now += Duration::from_us(20);
        let (id, begun) = device.pop_front().expect("the device has something to do");
        let outcome = Outcome {
            latency: now.since(begun),
            ok: true,
        };
        twins.complete(now, &read(id, 4096), outcome);
        twins.arrive(now, read(id, 4096));
    }
    while twins.next(now) != Next::WaitForEvent {}
    assert!(twins.quick.stuck);
    let more = (1..=4).filter(|n| twins.next(now + ms(6 * n)) != Next::WaitForEvent);
    assert!(more.count() > 0, "the window never grew");
}
