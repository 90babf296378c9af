//! The simulated world as such: time, order, cores, crashes, and how it finds that no progress is
//! made.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use flashyard_runtime::sim::{Config, Machine, World};
use flashyard_runtime::{Buf, channel};
use flashyard_time::Duration;

#[test]
fn time_jumps_to_the_next_timer() {
    let world = World::new(Config::default());
    let machine = world.machine(1);
    let started = std::time::Instant::now();
    world.run(&machine, |rt| async move {
        let before = rt.now();
        rt.sleep(Duration::from_secs(365 * 24 * 3600)).await;
        assert!((rt.now() - before).as_secs() >= 365 * 24 * 3600);
    });
    assert!(started.elapsed().as_secs() < 10);
    let now = world.now();
    world.run_for(Duration::from_ms(5));
    assert_eq!(world.now(), now + Duration::from_ms(5));
}

#[test]
fn timers_fire_in_order_and_not_before_their_time() {
    for seed in 0..50 {
        let world = World::new(Config::stormy(seed));
        let machine = world.machine(1);
        let order = world.run(&machine, |rt| async move {
            let order = Rc::new(RefCell::new(Vec::new()));
            let tasks = (0..10_u64).map(|task| {
                let (inner, order) = (rt.clone(), order.clone());
                rt.spawn(async move {
                    let deadline = inner.now() + Duration::from_ms(10 * (task * 7 % 10));
                    inner.sleep_until(deadline).await;
                    assert!(inner.now() >= deadline);
                    order.borrow_mut().push(task * 7 % 10);
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await;
            }
            order.take()
        });
        assert_eq!(order, (0..10).collect::<Vec<_>>());
    }
}

#[test]
fn the_seed_decides_the_order_of_tasks() {
    let order = |seed| {
        let world = World::new(Config::calm(seed));
        let machine = world.machine(1);
        world.run(&machine, |rt| async move {
            let order = Rc::new(RefCell::new(Vec::new()));
            let tasks = (0..4).map(|task| {
                let order = order.clone();
                rt.spawn(async move { order.borrow_mut().push(task) })
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await;
            }
            order.take()
        })
    };
    let orders: BTreeSet<Vec<i32>> = (0..500).map(order).collect();
    assert_eq!(orders.len(), 24, "every order of four tasks");
    assert_eq!(order(11), order(11));
}

#[test]
fn cores_talk_by_channels_and_it_takes_a_moment() {
    let world = World::new(Config::default());
    let machine = world.machine(2);
    let (to, from_here) = channel::channel::<u64>();
    let (back, replies) = channel::channel::<u64>();
    machine
        .rt(1)
        .spawn(async move {
            while let Some(number) = from_here.recv().await {
                if back.send(number * 2).is_err() {
                    return;
                }
            }
        })
        .detach();
    world.run(&machine, |rt| async move {
        assert_eq!(rt.core(), 0);
        for number in 0..100 {
            let before = rt.now();
            to.send(number).unwrap();
            assert_eq!(replies.recv().await, Some(number * 2));
            assert!(
                rt.now() - before >= Duration::from_us(1),
                "two kicks of at least 500 ns"
            );
        }
    });
}

#[test]
fn randomness_is_the_seeds() {
    let numbers = |seed| {
        let world = World::new(Config::calm(seed));
        let machine = world.machine(1);
        world.run(&machine, |rt| async move { (rt.random(), rt.random()) })
    };
    assert_eq!(numbers(1), numbers(1));
    assert_ne!(numbers(1), numbers(2));
    assert_ne!(numbers(1).0, numbers(1).1);
}

#[test]
#[should_panic(expected = "deadlock: seed 42, time")]
fn a_deadlock_is_noticed() {
    let world = World::new(Config::calm(42));
    let machine = world.machine(1);
    world.run(&machine, |_| std::future::pending::<()>());
}

#[test]
#[should_panic(expected = "something runs in circles")]
fn running_in_circles_is_noticed() {
    let world = World::new(Config {
        max_steps: 1000,
        ..Config::default()
    });
    let machine = world.machine(1);
    world.run(&machine, |rt| async move {
        loop {
            rt.turn_end().await;
        }
    });
}

#[test]
#[should_panic(expected = "the machine of the main task crashed")]
fn main_must_not_crash_its_own_machine() {
    let world = World::new(Config::default());
    let machine = world.machine(1);
    let own = machine.clone();
    world.run(&machine, |rt| async move {
        own.crash();
        rt.sleep(Duration::from_secs(1)).await;
    });
}

/// Counts its drops.
struct Witness(Rc<Cell<u32>>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn a_crash_drops_all_tasks_and_a_restart_begins_anew() {
    let world = World::new(Config::default());
    let (machine, observer) = (world.machine(3), world.machine(1));
    let (dropped, before) = (Rc::new(Cell::new(0)), Buf::balance());
    for core in 0..3 {
        let rt = machine.rt(core);
        let witness = Witness(dropped.clone());
        let inner = rt.clone();
        rt.spawn(async move {
            let _held = (witness, Buf::take(4096));
            let listener = inner
                .listen(format!("0.0.0.0:{}", 100 + inner.core()).parse().unwrap())
                .unwrap();
            let _ = listener.accept().await;
        })
        .detach();
    }
    world.run_for(Duration::from_ms(1));
    let crashing = machine.clone();
    let after = dropped.clone();
    world.run(&observer, |rt| async move {
        crashing.power_cut();
        assert_eq!((after.get(), crashing.is_up()), (3, false));
        rt.sleep(Duration::from_secs(1)).await;
        crashing.restart();
        assert!(
            crashing
                .rt(2)
                .listen("0.0.0.0:102".parse().unwrap())
                .is_ok(),
            "the port is free again"
        );
    });
    assert_eq!(Buf::balance(), before);
}

#[test]
fn many_worlds_may_come_and_go() {
    let dropped = Rc::new(Cell::new(0));
    for seed in 0..3000 {
        let world = World::new(Config::calm(seed));
        let machine = world.machine(2);
        let witness = Witness(dropped.clone());
        let (handle, own) = (world.handle(), machine.clone());
        machine
            .rt(1)
            .spawn(async move {
                let _held = (witness, handle, own);
                std::future::pending::<()>().await;
            })
            .detach();
        world.run_for(Duration::from_us(10));
    }
    assert_eq!(dropped.get(), 3000);
}

#[test]
fn crashing_at_any_moment_is_deterministic() {
    let history = |seed: u64| {
        let world = World::new(Config::stormy(seed));
        let (server, client) = (world.machine(2), world.machine(1));
        server.add_disk("/dev/a", 1 << 20);
        for round in 0..3 {
            let (up, to) = (server.clone(), std::net::SocketAddr::new(server.ip(), 80));
            let listener = up.rt(0).listen(to).unwrap();
            up.rt(0)
                .spawn(async move {
                    while let Ok(stream) = listener.accept().await {
                        let mut gather = flashyard_runtime::Gather::new();
                        gather.push_bytes(&[1; 3000]);
                        let _ = stream.send(gather).await;
                    }
                })
                .detach();
            client
                .rt(0)
                .spawn({
                    let rt = client.rt(0);
                    async move {
                        for _ in 0..5 {
                            let Ok(stream) = rt.connect(to).await else {
                                return;
                            };
                            while stream.recv().await.is_ok_and(|chunk| !chunk.is_empty()) {}
                        }
                    }
                })
                .detach();
            world.run_for(Duration::from_us(seed * 371 % 9000));
            if round == 1 {
                server.crash();
            } else {
                server.power_cut();
            }
            world.run_for(Duration::from_ms(50));
            server.restart();
        }
        (world.digest(), world.events())
    };
    for seed in 0..40 {
        assert_eq!(history(seed), history(seed), "seed {seed}");
    }
}

/// Starts a task on the machine that is never done, and leaves its waker; counts its polls.
fn start_waiting(machine: &Machine) -> (Rc<RefCell<Option<Waker>>>, Rc<Cell<u32>>) {
    let (waker, polls) = (Rc::new(RefCell::new(None)), Rc::new(Cell::new(0)));
    let (left, counted) = (waker.clone(), polls.clone());
    let waits = poll_fn(move |context| {
        counted.set(counted.get() + 1);
        left.replace(Some(context.waker().clone()));
        Poll::<()>::Pending
    });
    machine.rt(0).spawn(waits).detach();
    (waker, polls)
}

#[test]
fn a_waker_of_a_task_that_ended_with_its_core_wakes_no_other() {
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    let mut wakers = Vec::new();
    for _ in 0..5 {
        let (waker, polls) = start_waiting(&machine);
        world.run_for(Duration::from_ms(1));
        wakers.iter().for_each(Waker::wake_by_ref);
        world.run_for(Duration::from_ms(1));
        assert_eq!(polls.get(), 1, "those of earlier lives did nothing");
        let waker = waker.take().expect("it was polled");
        waker.wake_by_ref();
        world.run_for(Duration::from_ms(1));
        assert_eq!(polls.get(), 2);
        wakers.push(waker);
        machine.crash();
        machine.restart();
    }
}

#[test]
fn a_waker_of_another_thread_wakes_no_task_in_a_world() {
    let leave = || {
        let world = World::new(Config::calm(1));
        let (waker, _) = start_waiting(&world.machine(1));
        world.run_for(Duration::from_ms(1));
        waker.take()
    };
    let waker = std::thread::spawn(leave).join().expect("no panic");
    let waker = waker.expect("it was polled");
    let world = World::new(Config::calm(1));
    let (_, polls) = start_waiting(&world.machine(1));
    world.run_for(Duration::from_ms(1));
    let digest = world.digest();
    waker.wake();
    world.run_for(Duration::from_ms(1));
    assert_eq!((polls.get(), world.digest()), (1, digest));
}

#[test]
fn a_timeout_gives_what_came_in_time_and_drops_what_did_not() {
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    world.run(&machine, |rt| async move {
        let (long, short) = (Duration::from_ms(20), Duration::from_ms(10));
        let in_time = rt.timeout(long, async { rt.sleep(short).await }).await;
        assert_eq!(in_time, Some(()));
        let begun = rt.now();
        let alive = Rc::new(());
        let held = alive.clone();
        let late = async {
            rt.sleep(long).await;
            drop(held);
        };
        assert_eq!(rt.timeout(short, late).await, None);
        assert!(rt.now().since(begun) < long, "it did not wait for it");
        assert_eq!(Rc::strong_count(&alive), 1, "it was dropped");
        let at_once = rt.timeout_at(begun, async { 7 }).await;
        assert_eq!(at_once, Some(7), "the future is asked first");
    });
}
