//! Hosts that receive credits, and apply them.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use flashyard_engine::{Limits, TenantId};
use flashyard_host::{Association, HostError, Options};
use flashyard_nvme::command::Status;
use flashyard_nvme::feature::CompletionCoalescing;
use flashyard_runtime::Rt;
use flashyard_runtime::sim::Config;
use flashyard_sched::gimbal::{Flaws, Tuning};
use flashyard_sched::{Fair, Fifo, Gimbal, Policy, Window};
use flashyard_time::{Duration, Rng};

use crate::world::{BULK, DRIVE, Site, Work, one, options, rates};

/// Two equal bulk tenants, of which `a` applies credits or does not.
struct Shared {
    /// I/Os per second of each.
    rates: [u64; 2],
    /// Mean time that an I/O of `a` waited in the target for its turn, in nanoseconds.
    turn: u64,
    waits: u64,
}

fn shared(credits: bool, work: Work, seed: u64) -> Shared {
    let site = Site::new(
        Config::calm(seed),
        2,
        Limits::default(),
        Box::new(Fair::new()),
        DRIVE,
    );
    let addr = site.bench.addr;
    let (rates, waits) = site.run(move |rt: Rt| async move {
        let bulk = |tenant, host, credits| Options {
            queues: 4,
            credits,
            ..options(tenant, host)
        };
        let a = Association::connect(&rt, addr, bulk("a", 1, credits)).await;
        let b = Association::connect(&rt, addr, bulk("b", 2, false)).await;
        let (a, b) = (a.expect("connects"), b.expect("connects"));
        let rates = rates(&rt, [(&a, work), (&b, work)]).await;
        let waits = a.credit(1).map_or(0, |credit| credit.waits);
        (rates, waits)
    });
    let why = site.switch.why(TenantId(1)).expect("it had I/O");
    Shared {
        rates,
        turn: why.stages.turn / why.ios,
        waits,
    }
}

#[test]
fn what_exceeds_the_credit_waits_at_home_and_costs_nothing() {
    let writes = Work {
        depth: 256,
        blocks: 8,
        write: true,
        sensitive: false,
    };
    for (seed, work) in [(1, BULK), (2, writes)] {
        let (without, with) = (shared(false, work, seed), shared(true, work, seed));
        assert!(without.waits == 0 && with.waits > 0);
        assert!(
            with.turn * 3 < without.turn,
            "{} ns in the target's queue instead of {}",
            with.turn,
            without.turn
        );
        for (with, without) in with.rates.into_iter().zip(without.rates) {
            let most = without / 50;
            assert!(
                with.abs_diff(without) <= most,
                "{with} instead of {without}"
            );
        }
    }
}

/// I/Os per second of two hosts of one tenant, the second with `depth` in flight, and how long each
/// waited in the target for its turn on average, in nanoseconds.
fn hosts_of_one_tenant(depth: usize) -> ([u64; 2], u64) {
    let site = Site::new(
        Config::calm(3),
        2,
        Limits::default(),
        Box::new(Fair::new()),
        DRIVE,
    );
    let addr = site.bench.addr;
    let rates = site.run(move |rt: Rt| async move {
        let connect = |host| {
            let options = Options {
                depth: 256,
                credits: true,
                ..options("a", host)
            };
            Association::connect(&rt, addr, options)
        };
        let (first, second) = (connect(1).await, connect(2).await);
        let (first, second) = (first.expect("connects"), second.expect("connects"));
        rates(&rt, [(&first, BULK), (&second, Work { depth, ..BULK })]).await
    });
    let why = site.switch.why(TenantId(1)).expect("it had I/O");
    (rates, why.stages.turn / why.ios)
}

/// Two hosts of one tenant queue no more in the target together than one does, and each gets what
/// it can use: an equal part, or what the other one leaves.
#[test]
fn hosts_of_a_tenant_share_its_credit() {
    for depth in [4, 256] {
        let ([first, second], turn) = hosts_of_one_tenant(depth);
        assert!(
            first + second > 36_000,
            "the drive is busy: {first} + {second}"
        );
        assert!(turn < 2_000_000, "{turn} ns in the target's queue");
        if depth == 4 {
            assert!(second > 500, "{second} of {first}");
        } else {
            assert!(first.abs_diff(second) < first / 10, "{first} and {second}");
        }
    }
}

/// The event that each command waits for comes, with any network, policy and way of reporting
/// completions.
#[test]
fn every_command_ends() {
    for seed in 0..9 {
        let policy: Box<dyn Policy> = match seed % 3 {
            0 => Box::new(Fair::new()),
            1 => Box::new(Gimbal::new(Tuning::default(), Flaws::default())),
            _ => Box::new(Fifo::new(Window::UNLIMITED)),
        };
        let site = Site::new(Config::stormy(seed), 2, Limits::default(), policy, DRIVE);
        let addr = site.bench.addr;
        site.run(move |rt: Rt| async move {
            let coalescing = CompletionCoalescing {
                window: [1, 0, 32][seed as usize % 3],
                packed: seed % 2 == 0,
            };
            let options = Options {
                credits: true,
                coalescing: (seed % 4 != 3).then_some(coalescing),
                disable_sq_flow_control: seed % 5 < 2,
                queues: 1 + (seed % 3) as u16,
                // The network may be slow.
                command_timeout: Duration::from_secs(1_000),
                depth: [2, 16, 64][seed as usize % 3],
                ..options("a", 1)
            };
            let association = Association::connect(&rt, addr, options).await;
            let association = association.expect("connects");
            let tasks: Vec<_> = (0..32)
                .map(|number| {
                    let queue = association.queue(number as usize);
                    let mut rng = Rng::new(seed).split(number);
                    rt.spawn(async move {
                        for _ in 0..8 {
                            let work = Work {
                                depth: 0,
                                blocks: [1, 1, 7, 16, 32][rng.below(5) as usize],
                                write: rng.chance(1, 2),
                                sensitive: false,
                            };
                            one(&queue, work, &mut rng).await.expect("it is in order");
                            if rng.chance(1, 10) {
                                queue.flush(1).await.expect("it is in order");
                            }
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await;
            }
            let credit = association.credit(1).expect("it was asked for");
            assert_eq!(credit.outstanding, 0);
            assert_eq!(credit.allowed.is_some(), seed % 3 < 2, "{credit:?}");
            association.close().await;
        });
    }
}

/// Those who wait for credit when the association breaks get that error.
#[test]
fn waiting_for_credit_ends_with_the_association() {
    let site = Site::new(
        Config::calm(5),
        1,
        Limits::default(),
        Box::new(Fair::new()),
        DRIVE,
    );
    let (addr, target) = (site.bench.addr, Arc::clone(&site.bench.target));
    site.run(move |rt: Rt| async move {
        let options = Options {
            credits: true,
            queues: 3,
            ..options("a", 1)
        };
        let association = Association::connect(&rt, addr, options).await;
        let association = association.expect("connects");
        let ends: Vec<_> = (0..400)
            .map(|number| {
                let queue = association.queue(number as usize);
                let mut rng = Rng::new(number);
                rt.spawn(async move {
                    loop {
                        match one(&queue, BULK, &mut rng).await {
                            Ok(()) => {}
                            // Its turn came between the end of the tenant and that of the
                            // connection.
                            Err(HostError::Status(status))
                                if status.is(Status::INVALID_NAMESPACE_OR_FORMAT) => {}
                            Err(error) => return error,
                        }
                    }
                })
            })
            .collect();
        rt.sleep(Duration::from_ms(100)).await;
        assert!(association.credit(1).is_some_and(|credit| credit.waits > 0));
        target.remove_tenant("a").expect("it is there");
        for end in ends {
            let error = end.await;
            assert!(error.is_path_failure(), "{error:?}");
        }
    });
}

/// Another policy, another credit: a policy that says nothing lifts the bound.
#[test]
fn credit_follows_the_policy() {
    let site = Site::new(
        Config::calm(6),
        2,
        Limits::default(),
        Box::new(Fair::new()),
        DRIVE,
    );
    let (addr, switch) = (site.bench.addr, Rc::clone(&site.switch));
    site.run(move |rt: Rt| async move {
        let options = Options {
            credits: true,
            depth: 256,
            ..options("a", 1)
        };
        let association = Association::connect(&rt, addr, options).await;
        let association = Rc::new(association.expect("connects"));
        assert_eq!(association.credit(1).expect("asked").allowed, None);
        let ends = Rc::new(Cell::new(false));
        let loading: Vec<_> = (0..256)
            .map(|number| {
                let (queue, ends) = (association.queue(0), Rc::clone(&ends));
                let mut rng = Rng::new(number);
                rt.spawn(async move {
                    while !ends.get() {
                        one(&queue, BULK, &mut rng).await.expect("it is in order");
                    }
                })
            })
            .collect();
        for _ in 0..3 {
            // Costs are known after some ticks of 5 ms, and all that was outstanding by guesses has
            // come back after 256 reads of 25 us.
            rt.sleep(Duration::from_ms(40)).await;
            let credit = association.credit(1).expect("asked");
            let allowed = credit.allowed.expect("fair says something");
            assert!(credit.outstanding <= allowed.max(4096), "{credit:?}");
            switch.set_policy(Box::new(Fifo::new(Window::UNLIMITED)));
            rt.sleep(Duration::from_ms(20)).await;
            let credit = association.credit(1).expect("asked");
            assert_eq!((credit.allowed, credit.outstanding), (None, 256 * 4096));
            switch.set_policy(Box::new(Fair::new()));
        }
        ends.set(true);
        for task in loading {
            task.await;
        }
    });
}
