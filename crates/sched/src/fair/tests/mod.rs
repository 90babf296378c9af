//! What tenants get on a small device.

mod claims;
mod conserving;
mod latency_sensitive;
mod machine;
mod probes;
mod stuck;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use flashyard_time::{Duration, Rng, Time};

use super::*;
use crate::{Class, Op, Rates};
use machine::{Device, Done, Worker, reader, run, writer};

/// I/Os per second of each worker after `from`.
fn rates(done: &[Done], workers: usize, from: Duration, span: Duration) -> Vec<f64> {
    let mut counts = vec![0.0; workers];
    for io in done {
        if io.at > Time::ZERO + from {
            counts[io.worker] += 1.0;
        }
    }
    let seconds = (span.as_ns() - from.as_ns()) as f64 / 1e9;
    counts.iter().map(|count| count / seconds).collect()
}

fn ms(ms: u64) -> Duration {
    Duration::from_ms(ms)
}

fn read(id: u32, tenant: u32, bytes: u64) -> Ask {
    Ask {
        id: IoId(id),
        tenant: TenantId(tenant),
        class: crate::Class::Throughput,
        op: crate::Op::Read,
        bytes,
        lba: 0,
    }
}

fn close(one: f64, other: f64, percent: f64) -> bool {
    (one / other - 1.0).abs() * 100.0 <= percent
}

fn weighted(weight: u32) -> Share {
    Share {
        weight,
        ..Share::default()
    }
}

#[test]
fn equal_tenants_get_equal_parts_whatever_they_have_queued() {
    let mut fair = Fair::new();
    let workers = [
        reader(1),
        Worker {
            depth: 256,
            ..reader(2)
        },
    ];
    let done = run(
        &mut fair,
        &mut Device::new(4, 80_000, 80_000),
        &workers,
        ms(300),
        1,
    );
    let rates = rates(&done, 2, ms(50), ms(300));
    assert!(close(rates[0], rates[1], 3.0), "{rates:?}");
    assert!(close(rates[0] + rates[1], 50_000.0, 4.0), "{rates:?}");
}

#[test]
fn weights_divide_the_device() {
    let mut fair = Fair::new();
    for (tenant, weight) in [(1, 1), (2, 2), (3, 5)] {
        fair.set_share(Time::ZERO, TenantId(tenant), &weighted(weight));
    }
    let workers = [reader(1), reader(2), reader(3)].map(|worker| Worker {
        depth: 64,
        ..worker
    });
    let done = run(
        &mut fair,
        &mut Device::new(4, 80_000, 80_000),
        &workers,
        ms(300),
        2,
    );
    let rates = rates(&done, 3, ms(50), ms(300));
    assert!(close(rates[1], 2.0 * rates[0], 4.0), "{rates:?}");
    assert!(close(rates[2], 5.0 * rates[0], 4.0), "{rates:?}");
}

#[test]
fn readers_and_writers_get_the_same_part_of_what_they_would_get_alone() {
    let mut fair = Fair::new();
    let workers = [reader(1), reader(2), writer(3), writer(4)].map(|worker| Worker {
        depth: 128,
        ..worker
    });
    let done = run(
        &mut fair,
        &mut Device::new(8, 80_000, 800_000),
        &workers,
        ms(1200),
        3,
    );
    let rates = rates(&done, 4, ms(500), ms(1200));
    // Alone, readers would do 100,000 a second and writers 10,000.
    for (rate, alone) in rates.iter().zip([1e5, 1e5, 1e4, 1e4]) {
        assert!(close(rate / alone, 0.25, 8.0), "{rates:?}");
    }
}

/// While reads of one size alone could go, who has others ahead of them would send none.
#[test]
fn tenants_that_mix_sizes_are_measured_and_get_their_part() {
    let mut fair = Fair::new();
    let mixed = |worker: Worker| {
        [4096, 65_536].map(|bytes| Worker {
            bytes,
            depth: 64,
            ..worker
        })
    };
    let workers = [reader(1), reader(2), writer(3), writer(4)].map(mixed);
    let workers: Vec<Worker> = workers.into_iter().flatten().collect();
    let mut device = Device::new(8, 80_000, 800_000);
    let done = run(&mut fair, &mut device, &workers, ms(4000), 3);
    // After the sizes that were measured together were tried once more.
    let rates = rates(&done, 8, ms(2600), ms(4000));
    for (tenant, alone) in rates.chunks(2).zip([1e5, 1e5, 1e4, 1e4]) {
        let rate = tenant[0] + tenant[1];
        // Never measured, writers would have four times as much as readers.
        assert!(close(rate / alone, 0.25, 30.0), "{rates:?}");
    }
    // Each of the four classes at most twice: with others, and then apart from them.
    assert!(fair.learner.probes <= 8, "{}", fair.learner.probes);
}

#[test]
fn one_who_asks_for_little_gets_it_and_the_rest_goes_to_the_others() {
    let mut fair = Fair::new();
    let light = Worker {
        depth: 1,
        pause: Duration::from_us(900),
        ..reader(1)
    };
    let workers = [light, reader(2), reader(3)];
    let done = run(
        &mut fair,
        &mut Device::new(4, 80_000, 80_000),
        &workers,
        ms(300),
        4,
    );
    let rates = rates(&done, 3, ms(50), ms(300));
    assert!(rates[0] > 450.0, "{rates:?}");
    assert!(close(rates.iter().sum(), 50_000.0, 4.0), "{rates:?}");
}

#[test]
fn what_was_not_used_in_a_pause_is_not_kept() {
    let mut fair = Fair::new();
    let late = Worker {
        start: ms(300),
        ..reader(2)
    };
    let workers = [reader(1), late];
    let done = run(
        &mut fair,
        &mut Device::new(4, 80_000, 80_000),
        &workers,
        ms(400),
        5,
    );
    let rates = rates(&done, 2, ms(310), ms(400));
    assert!(close(rates[0], rates[1], 6.0), "{rates:?}");
}

#[test]
fn a_limit_is_never_exceeded() {
    let mut fair = Fair::new();
    let share = Share {
        limit: Rates {
            ios: Some(5_000),
            read_bytes: Some(10_000_000),
            ..Rates::NONE
        },
        ..Share::default()
    };
    fair.set_share(Time::ZERO, TenantId(1), &share);
    let workers = [reader(1), writer(1), reader(2)];
    let done = run(
        &mut fair,
        &mut Device::new(4, 80_000, 80_000),
        &workers,
        ms(1000),
        6,
    );
    for start in (0..900).step_by(10) {
        let within =
            |io: &&Done| io.at >= Time::ZERO + ms(start) && io.at < Time::ZERO + ms(start + 100);
        let reads = done
            .iter()
            .filter(within)
            .filter(|io| io.worker == 0)
            .count();
        let all = done
            .iter()
            .filter(within)
            .filter(|io| io.worker < 2)
            .count();
        // A millisecond of burst, and what was in flight when the interval began.
        assert!(
            reads <= 244 + 3 + 4 && all <= 500 + 5 + 8,
            "{reads} {all} at {start}"
        );
    }
    let rates = rates(&done, 3, ms(500), ms(1000));
    assert!(rates[0] + rates[1] > 4_900.0, "{rates:?}");
}

#[test]
fn a_guarantee_is_kept_in_every_tenth_of_a_second_beside_any_neighbours() {
    let seeds = if cfg!(debug_assertions) { 4 } else { 100 };
    for seed in 0..seeds {
        let mut chance = Rng::new(seed).split(9);
        let mut fair = Fair::new();
        let share = Share {
            guarantee: Rates {
                read_ios: Some(10_000),
                ..Rates::NONE
            },
            ..Share::default()
        };
        fair.set_share(Time::ZERO, TenantId(1), &share);
        let guaranteed = Worker {
            depth: 256,
            ..reader(1)
        };
        let mut workers = vec![guaranteed];
        for tenant in 2..3 + chance.below(20) as u32 {
            let worker = if chance.chance(1, 2) {
                reader(tenant)
            } else {
                writer(tenant)
            };
            workers.push(Worker {
                bytes: 4096 << chance.below(6),
                depth: 1 + chance.below(64) as u32,
                start: ms(chance.below(200)),
                ..worker
            });
            let weight = 1 + chance.below(8) as u32;
            fair.set_share(Time::ZERO, TenantId(tenant), &weighted(weight));
        }
        let mut device = Device::new(8, 80_000, 400_000);
        let done = run(&mut fair, &mut device, &workers, ms(500), seed);
        for start in (0..=350).step_by(10) {
            let within =
                |at: Time| at >= Time::ZERO + ms(start) && at < Time::ZERO + ms(start + 100);
            let own = done.iter().filter(|io| io.worker == 0);
            let sent = own.clone().filter(|io| within(io.sent)).count();
            assert!(sent >= 1_000, "seed {seed}: {sent} sent from {start} ms");
            // What comes back moves by what is under way.
            let back = own.filter(|io| within(io.at)).count();
            assert!(back >= 900, "seed {seed}: {back} came back from {start} ms");
        }
    }
}

#[test]
fn a_device_that_was_a_hundred_times_slower_for_a_while_is_used_fully_right_after() {
    let mut device = Device::new(8, 80_000, 400_000);
    device.slow = (Time::ZERO + ms(400), Time::ZERO + ms(1400), 100);
    let workers = [reader(1), reader(2), writer(3), writer(4)];
    let done = run(&mut Fair::new(), &mut device, &workers, ms(1800), 10);
    // What the slow time has begun takes up to 60 ms more.
    let rates = rates(&done, 4, ms(1560), ms(1800));
    let used = (rates[0] + rates[1]) / 1e5 + (rates[2] + rates[3]) / 2e4;
    assert!(used > 0.9, "{rates:?}");
}

#[test]
fn no_io_is_lost_whatever_is_cancelled_forgotten_or_changed() {
    for seed in 0..20 {
        let mut chance = Rng::new(seed);
        let mut fair = Fair::new();
        let mut now = Time::ZERO;
        let (mut queued, mut sent) = (vec![], vec![]);
        let mut free: Vec<u32> = (0..200).rev().collect();
        for _ in 0..4_000 {
            now += Duration::from_us(chance.below(200));
            match chance.below(12) {
                0..=4 => {
                    if let Some(id) = free.pop() {
                        let io = any_io(&mut chance, id);
                        if chance.chance(1, 2) && fair.pass(now, &io) {
                            sent.push((io, now));
                        } else {
                            fair.arrive(now, io);
                            queued.push(io);
                        }
                    }
                }
                5..=8 if !sent.is_empty() => {
                    let (io, at) = sent.swap_remove(chance.below(sent.len() as u64) as usize);
                    let outcome = Outcome {
                        latency: now.since(at),
                        ok: chance.chance(9, 10),
                    };
                    fair.complete(now, &io, outcome);
                    free.push(io.id.0);
                }
                9 if !queued.is_empty() => {
                    let io: Ask = queued.swap_remove(chance.below(queued.len() as u64) as usize);
                    fair.cancel(now, io.id);
                    free.push(io.id.0);
                }
                10 => fair.set_share(now, any_tenant(&mut chance), &any_share(&mut chance)),
                11 => fair.forget(now, any_tenant(&mut chance)),
                _ => {}
            }
            while let Next::Dispatch(id) = fair.next(now) {
                let at = queued.iter().position(|io| io.id == id);
                sent.push((queued.swap_remove(at.expect("it was queued")), now));
            }
        }
        for tenant in 0..6 {
            fair.forget(now, TenantId(tenant));
        }
        while !queued.is_empty() || !sent.is_empty() {
            for (io, at) in sent.drain(..) {
                let outcome = Outcome {
                    latency: now.since(at),
                    ok: true,
                };
                fair.complete(now, &io, outcome);
            }
            now += ms(20_000_000);
            while let Next::Dispatch(id) = fair.next(now) {
                let at = queued.iter().position(|io| io.id == id);
                sent.push((queued.swap_remove(at.expect("it was queued")), now));
            }
            assert!(!sent.is_empty() || queued.is_empty(), "something is stuck");
        }
        assert_eq!(
            (fair.load, fair.in_flight, fair.queued),
            ([0; 2], [0; 2], 0)
        );
        assert_eq!(fair.active_weight, 0);
    }
}

fn any_tenant(chance: &mut Rng) -> TenantId {
    TenantId(chance.below(6) as u32)
}

fn any_io(chance: &mut Rng, id: u32) -> Ask {
    let ops = [
        Op::Read,
        Op::Write,
        Op::Flush,
        Op::WriteZeroes,
        Op::Deallocate,
        Op::CompareAndWrite,
    ];
    let sizes = [0, 1, 512, 4096, 8192, 131_072, 1 << 30, u64::MAX];
    Ask {
        id: IoId(id),
        tenant: any_tenant(chance),
        class: [Class::Latency, Class::Throughput, Class::Background][chance.below(3) as usize],
        op: ops[chance.below(6) as usize],
        bytes: sizes[chance.below(8) as usize],
        lba: 0,
    }
}

fn any_share(chance: &mut Rng) -> Share {
    let mut rate = || {
        chance
            .chance(1, 4)
            .then(|| [0, 1, 1_000, 1_000_000, u64::MAX][chance.below(5) as usize])
    };
    let mut rates = || Rates {
        ios: rate(),
        read_ios: rate(),
        write_ios: rate(),
        bytes: rate(),
        read_bytes: rate(),
        write_bytes: rate(),
    };
    Share {
        guarantee: rates(),
        limit: rates(),
        weight: [0, 1, 7, u32::MAX][chance.below(4) as usize],
        latency_target: None,
    }
}

/// What was served before a guess was charged by the guess before.
#[test]
fn reads_are_measured_right_though_their_cost_was_guessed_at() {
    for seed in 0..8 {
        let mut fair = Fair::new();
        let latency = Worker {
            class: Class::Latency,
            depth: 1,
            pause: ms(5),
            ..reader(2)
        };
        let mut device = Device::new(8, 80_000, 80_000);
        run(&mut fair, &mut device, &[reader(1), latency], ms(200), seed);
        let cost = fair.costs.of(Kind::Read, 4096) / PER_NS;
        assert!(fair.costs.is_any_learnt(Kind::Read), "{seed}");
        assert!((9_000..11_500).contains(&cost), "{cost} ns (seed {seed})");
    }
}

/// In a probe all others are put aside; that they wait does not mean that the probed class fills
/// the device.
#[test]
fn what_a_limit_lets_through_is_not_taken_for_what_the_device_does() {
    for limit in [2_000_000, 8_000_000, 30_000_000] {
        let mut fair = Fair::new();
        let share = Share {
            limit: Rates {
                bytes: Some(limit),
                ..Rates::NONE
            },
            ..Share::default()
        };
        fair.set_share(Time::ZERO, TenantId(1), &share);
        let limited = Worker {
            bytes: 65_536,
            ..writer(1)
        };
        let mut device = Device::new(8, 80_000, 80_000);
        run(&mut fair, &mut device, &[limited, writer(2)], ms(2000), 1);
        let [small, large] = [4096, 65_536].map(|bytes| fair.costs.of(Kind::Write, bytes) / PER_NS);
        // It does 100,000 a second of either; the large ones are guessed from the small ones: six
        // times as much, as in the prior.
        assert!(
            (8_000..13_000).contains(&small) && large < 7 * small,
            "{small} ns, {large} ns (limit {limit})"
        );
    }
}

#[test]
fn credit_follows_the_share() {
    let mut fair = Fair::new();
    let unknown = fair.credit(TenantId(9)).expect("fair gives credit");
    assert!(unknown.ios >= 1 && unknown.bytes >= 1);
    fair.set_share(Time::ZERO, TenantId(1), &weighted(3));
    let workers = [reader(1), reader(2)];
    let mut device = Device::new(4, 80_000, 80_000);
    run(&mut fair, &mut device, &workers, ms(100), 11);
    let credit = [1, 2].map(|tenant| fair.credit(TenantId(tenant)).expect("as above"));
    assert!(credit[0].ios >= 2 * credit[1].ios, "{credit:?}");
    assert!(credit[1].ios >= 1 && credit[1].bytes >= 4096, "{credit:?}");
}

/// After a stall, I/O may be charged far more than the time in which it is done.
#[test]
fn costs_that_are_much_too_high_are_corrected() {
    let (mut learner, mut costs, mut bases) = (Learner::new(), Costs::new(), windows::Bases::new());
    let [large, small] = [131_072, 4096].map(|bytes| costs::Class::new(Kind::Read, bytes));
    let second = 1_000_000_000 * PER_NS;
    for class in [large, small] {
        costs.set(class, 10 * second);
        (0..256).for_each(|_| _ = bases.record(class, 100_000));
    }
    for (class, ios) in [(large, 1000), (small, 20)] {
        (0..ios).for_each(|_| learner.record(class, 10 * second, 10_000_000, true));
    }
    let scene = Scene {
        full: [true; 2],
        ..Scene::default()
    };
    learner.tick(learn::TICK_NS, scene, &mut costs, &mut bases);
    let cost = costs.at(large) / PER_NS;
    assert!(cost < 10_000_000_000, "{cost} ns");
}

#[test]
fn figures_can_be_watched() {
    let fair: Box<dyn Policy> = Box::new(Fair::new());
    let mut names = vec![];
    fair.watch(Time::ZERO, &mut |gauge| names.push(gauge.name));
    assert!(names.contains(&"read_4k_cost_us"));
}
