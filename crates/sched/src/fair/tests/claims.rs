//! Those who ask for their share with what they have in flight, and have nothing queued.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::machine::{Device, Worker, reader, run};
use super::*;

const DONE: Outcome = Outcome {
    latency: Duration::from_us(200),
    ok: true,
};

/// Has eight times the weight of the others. With 20 reads in flight it has half of the device
/// where others fill the window, which is 40 here.
fn heavy(depth: u32) -> Worker {
    Worker { depth, ..reader(1) }
}

fn deep(tenant: u32, start: Duration) -> Worker {
    Worker {
        depth: 128,
        start,
        ..reader(tenant)
    }
}

fn heavy_first() -> Fair {
    let mut fair = Fair::new();
    fair.set_share(Time::ZERO, TenantId(1), &weighted(8));
    fair
}

#[test]
fn others_of_the_same_kind_wait_for_who_has_less_than_its_share() {
    for seed in 0..4 {
        let workers = [heavy(20), deep(2, Duration::ZERO), deep(3, Duration::ZERO)];
        let mut device = Device::new(8, 80_000, 80_000);
        let done = run(&mut heavy_first(), &mut device, &workers, ms(2000), seed);
        let rates = rates(&done, 3, ms(1000), ms(2000));
        let sum: f64 = rates.iter().sum();
        // Eight tenths are its share.
        assert!(rates[0] > 0.72 * sum, "{rates:?} (seed {seed})");
        // All 100,000 that the device does.
        assert!(sum > 90_000.0, "{rates:?} (seed {seed})");
    }
}

/// The window would have room for all that both have, so nothing waits for it.
#[test]
fn who_fits_into_the_window_waits_too() {
    for seed in 0..4 {
        let few = Worker {
            depth: 14,
            ..reader(2)
        };
        let mut fair = heavy_first();
        // With so few in flight it is never measured.
        let class = super::super::costs::Class::new(Kind::Read, 4096);
        fair.costs.set(class, 10_000 * PER_NS);
        let mut device = Device::new(8, 80_000, 80_000);
        let done = run(&mut fair, &mut device, &[heavy(24), few], ms(2000), seed);
        let rates = rates(&done, 2, ms(1000), ms(2000));
        let sum: f64 = rates.iter().sum();
        // Eight ninths are its share; of 38 in flight it has 24.
        assert!(rates[0] > 0.8 * sum, "{rates:?} (seed {seed})");
    }
}

/// What somebody has had beyond its share, while nobody could use it, is not held against it.
#[test]
fn who_had_more_than_its_share_is_level_with_who_comes_later() {
    for seed in 0..4 {
        let workers = [heavy(40), deep(2, Duration::ZERO), deep(3, ms(1000))];
        let mut device = Device::new(8, 80_000, 80_000);
        let done = run(&mut heavy_first(), &mut device, &workers, ms(2000), seed);
        let rates = rates(&done, 3, ms(1200), ms(2000));
        assert!(close(rates[1], rates[2], 10.0), "{rates:?} (seed {seed})");
    }
}

/// Sends what may go; the ids, and what is to be done then.
fn sent(fair: &mut Fair, now: Time) -> (Vec<u32>, Next) {
    let mut sent = vec![];
    loop {
        match fair.next(now) {
            Next::Dispatch(IoId(id)) => sent.push(id),
            next => return (sent, next),
        }
    }
}

/// After a second of these workers, with nothing queued or in flight; and when.
fn at_rest(workers: &[Worker]) -> (Fair, Time) {
    let mut fair = heavy_first();
    let mut device = Device::new(8, 80_000, 80_000);
    run(&mut fair, &mut device, workers, ms(1000), 1);
    let mut now = Time::ZERO + ms(1001);
    while fair.queued > 0 || fair.in_flight[0] > 0 {
        now += DONE.latency;
        for id in 0..fair.places.len() as u32 {
            let place = fair.places[id as usize];
            if place.state == State::Dispatched {
                let tenant = fair.tenants[place.tenant].id.0;
                fair.complete(now, &read(id, tenant, 4096), DONE);
            }
        }
        sent(&mut fair, now);
    }
    (fair, now)
}

/// What the one has in flight never comes back, and no event would come.
#[test]
fn nobody_is_held_for_good_by_who_waits_for_a_device_that_does_not_answer() {
    let (mut fair, mut now) = at_rest(&[heavy(30), deep(2, Duration::ZERO)]);
    (0..30).for_each(|id| fair.arrive(now, read(id, 1, 4096)));
    assert_eq!(sent(&mut fair, now).0.len(), 30);
    (1000..1100).for_each(|id| fair.arrive(now, read(id, 2, 4096)));
    // The other gets its I/O back, one every 10 us, until it is ahead by all that it may be.
    let (others, mut next) = sent(&mut fair, now);
    let mut others: VecDeque<u32> = others.into();
    while let Some(id) = others.pop_front() {
        assert!(now < Time::ZERO + ms(2000), "it is never held");
        now += Duration::from_us(10);
        fair.complete(now, &read(id, 2, 4096), DONE);
        fair.arrive(now, read(id, 2, 4096));
        let (more, then) = sent(&mut fair, now);
        others.extend(more);
        next = then;
    }
    let held = now;
    let mut more = vec![];
    while more.is_empty() {
        assert!(now.since(held) < ms(50), "still held");
        now = match next {
            Next::WaitUntil(until) => until,
            _ => panic!("held until an event, and none will come"),
        };
        (more, next) = sent(&mut fair, now);
    }
}

/// What is done in the background has no share that it could have too little of.
#[test]
fn background_io_in_flight_holds_nobody() {
    let (mut fair, now) = at_rest(&[deep(2, Duration::ZERO)]);
    let background = |id| Ask {
        class: Class::Background,
        ..read(id, 1, 4096)
    };
    (0..30).for_each(|id| fair.arrive(now, background(id)));
    assert_eq!(sent(&mut fair, now).0.len(), 30);
    // Its tag is where it began, and the other's is a second later.
    (1000..1100).for_each(|id| fair.arrive(now, read(id, 2, 4096)));
    let others = sent(&mut fair, now).0.len();
    assert!(others >= 4, "{others} of a hundred");
}
