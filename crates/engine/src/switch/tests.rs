//! Turns, in order and given up; policies replaced; the ledger.

use flashyard_block::{IoError, NullDevice};
use flashyard_runtime::Buf;
use flashyard_runtime::sim::{Config, World};
use flashyard_sched::{Class, Fifo, Op, Window};
use flashyard_time::Duration;

use super::*;

mod slow;

fn ask(lba: u64) -> Ask {
    Ask {
        id: IoId::NONE,
        tenant: TenantId::default(),
        class: Class::default(),
        op: Op::Read,
        bytes: 4096,
        lba,
    }
}

fn in_world<F: Future<Output = ()> + 'static>(
    policy: impl Policy + 'static,
    main: impl FnOnce(Rt, Rc<Port>) -> F,
) {
    let world = World::new(Config::default());
    let machine = world.machine(1);
    let device = Rc::new(NullDevice::new(4096, 1 << 20).expect("a good size"));
    world.run(&machine, |rt| {
        let switch = Switch::new(rt.clone(), Box::new(policy));
        let port = Port::new(&switch, device);
        main(rt, port)
    });
}

#[test]
fn one_at_a_time_in_order_and_whoever_leaves_is_passed_over() {
    let one = Fifo::new(Window {
        ios: 1,
        bytes: 1 << 20,
    });
    in_world(one, |rt, port| async move {
        let first = port.try_admit(ask(0)).expect("nobody is there");
        assert!(port.try_admit(ask(1)).is_none());
        // The world decides in which order they come.
        let came: Rc<RefCell<Vec<u64>>> = Rc::default();
        let order: Rc<RefCell<Vec<u64>>> = Rc::default();
        let mut tasks: Vec<_> = (1..6)
            .map(|lba| {
                let (rt, port) = (rt.clone(), port.clone());
                let (came, order) = (came.clone(), order.clone());
                rt.clone().spawn(async move {
                    came.borrow_mut().push(lba);
                    let permit = port.admit(ask(lba), false).await;
                    order.borrow_mut().push(lba);
                    rt.sleep(Duration::from_us(10)).await;
                    // Some complete, some are dropped: both make room.
                    if lba % 2 == 0 {
                        drop(permit.complete(true));
                    }
                })
            })
            .collect();
        rt.sleep(Duration::from_us(100)).await;
        assert!(order.borrow().is_empty());
        drop(tasks.remove(2));
        drop(first.complete(false));
        port.drained().await;
        came.borrow_mut().retain(|lba| *lba != 3);
        assert_eq!(*order.borrow(), *came.borrow());
        assert_eq!(order.borrow().len(), 4);
    });
}

/// Lets each I/O go only a while after it came.
struct Later {
    queue: Vec<(Time, IoId)>,
}

impl Policy for Later {
    fn arrive(&mut self, now: Time, io: Ask) {
        self.queue.push((now + Duration::from_ms(5), io.id));
    }

    fn next(&mut self, now: Time) -> Next {
        match self.queue.first() {
            None => Next::WaitForEvent,
            Some((due, _)) if *due > now => Next::WaitUntil(*due),
            Some(_) => Next::Dispatch(self.queue.remove(0).1),
        }
    }

    fn complete(&mut self, _: Time, _: &Ask, outcome: Outcome) {
        assert!(outcome.ok && outcome.latency >= Duration::from_us(9));
    }

    fn cancel(&mut self, _: Time, id: IoId) {
        self.queue.retain(|(_, queued)| *queued != id);
    }
}

#[test]
fn a_policy_that_wants_to_wait_is_asked_again_in_time() {
    in_world(Later { queue: Vec::new() }, |rt, port| async move {
        let begun = rt.now();
        for n in 1..=3 {
            let permit = port.admit(ask(0), false).await;
            assert!(rt.now() >= begun + Duration::from_ms(5 * n));
            rt.sleep(Duration::from_us(10)).await;
            drop(permit.complete(true));
        }
        assert!(rt.now() < begun + Duration::from_ms(20));
    });
}

#[test]
fn volumes_on_a_device_share_its_window_and_drain_alone() {
    let one = Fifo::new(Window {
        ios: 1,
        bytes: 1 << 20,
    });
    in_world(one, |rt, first| async move {
        let second = Port::new(&first.switch, first.device());
        let busy = first.try_admit(ask(0)).expect("nobody is there");
        assert!(second.try_admit(ask(0)).is_none(), "the device is taken");
        second.drained().await;
        let waiting = rt.spawn({
            let second = second.clone();
            async move {
                let permit = second.admit(ask(1), false).await;
                drop(permit.complete(true));
            }
        });
        rt.sleep(Duration::from_us(1)).await;
        drop(busy.complete(true));
        first.drained().await;
        waiting.await;
    });
}

#[test]
fn another_policy_takes_over_what_is_queued_and_nothing_is_lost() {
    in_world(Later { queue: Vec::new() }, |rt, port| async move {
        let order: Rc<RefCell<Vec<u64>>> = Rc::default();
        let one = || {
            Box::new(Fifo::new(Window {
                ios: 1,
                bytes: 1 << 20,
            }))
        };
        port.switch.set_policy(one());
        let busy = port.try_admit(ask(0)).expect("nobody is there");
        for lba in 1..20 {
            let (rt, port, order) = (rt.clone(), port.clone(), order.clone());
            rt.clone()
                .spawn(async move {
                    rt.sleep(Duration::from_us(lba)).await;
                    let permit = port.admit(ask(lba), false).await;
                    order.borrow_mut().push(lba);
                    rt.sleep(Duration::from_us(10)).await;
                    drop(permit.complete(true));
                })
                .detach();
        }
        rt.sleep(Duration::from_us(100)).await;
        // What is at the device when the policy changes does not count in the new window.
        port.switch.set_policy(one());
        rt.sleep(Duration::from_us(5)).await;
        assert_eq!(*order.borrow(), [1]);
        drop(busy.complete(true));
        rt.sleep(Duration::from_us(20)).await;
        port.switch.set_policy(one());
        port.drained().await;
        assert_eq!(*order.borrow(), (1..20).collect::<Vec<_>>());
    });
}

#[test]
fn an_io_has_its_turn_and_stands_in_the_ledger_and_what_is_not_there_is_refused() {
    let one = Fifo::new(Window {
        ios: 1,
        bytes: 1 << 20,
    });
    in_world(one, |rt, port| async move {
        let read = |lba| {
            let port = port.clone();
            let ask = Ask {
                tenant: TenantId(3),
                ..ask(lba)
            };
            rt.spawn(async move {
                let permit = port.admit(ask, false).await;
                let into = Buf::take(4096).expect("memory");
                let done = permit.submit(Io::Read { lba, into }).await;
                if let Some(sample) = permit.complete(done.is_ok()) {
                    port.record(&sample);
                }
                done.map(|done| done.data.len())
            })
        };
        let mut results = Vec::new();
        for task in [0, 255, 256].map(read) {
            results.push(task.await);
        }
        assert_eq!(results, [Ok(4096), Ok(4096), Err(IoError::OutOfRange)]);
        let switch = &port.switch;
        let why = switch.why(TenantId(3)).expect("it had I/O here");
        assert_eq!(why.ios, 3);
        assert!(switch.why(TenantId(4)).is_none());
        let account = switch.accounts().of(TenantId(3));
        assert!(Arc::ptr_eq(&account, &switch.accounts().of(TenantId(3))));
        switch.forget(TenantId(3));
        assert!(switch.why(TenantId(3)).is_none());
        let opened = switch.accounts().of(TenantId(3));
        assert!(!Arc::ptr_eq(&account, &opened), "nothing is kept of it");
    });
}

/// What waited for its turn and what was served at once are told apart, and what came to a volume
/// that has gone stays with its tenant until that has gone too.
#[test]
fn waiting_and_being_served_are_counted_apart_and_outlive_the_volume() {
    let one = Fifo::new(Window {
        ios: 1,
        bytes: 1 << 20,
    });
    in_world(one, |rt, port| async move {
        let ask = |lba| Ask {
            tenant: TenantId(3),
            ..ask(lba)
        };
        let first = port.try_admit(ask(0)).expect("nobody is there");
        let waiting = rt.spawn({
            let (rt, port) = (rt.clone(), port.clone());
            async move {
                let permit = port.admit(ask(1), false).await;
                rt.sleep(Duration::from_us(100)).await;
                drop(permit.complete(true));
            }
        });
        rt.sleep(Duration::from_ms(2)).await;
        assert_eq!(port.traffic().in_flight, 2);
        drop(first.complete(true));
        waiting.await;
        drop(port.try_admit(ask(2)).expect("nobody is there"));

        let traffic = port.traffic();
        let reads = &traffic.reads;
        assert_eq!((reads.ios(), reads.bytes, traffic.in_flight), (2, 8192, 0));
        assert_eq!((traffic.writes.ios(), traffic.writes.bytes), (0, 0));
        let ms = |ns: u64| ns as f64 / 1e6;
        let near = |ns: u64, want: f64| (ms(ns) - want).abs() < 0.05;
        assert!(near(reads.waited_ns, 2.0), "{}", reads.waited_ns);
        assert!(near(reads.served_ns, 2.1), "{}", reads.served_ns);
        // What was never given to the device is not counted.
        let longest = |counts: &[u64]| {
            let last = counts
                .iter()
                .rposition(|count| *count > 0)
                .expect("there are some");
            Traffic::bounds_ns()
                .nth(last)
                .flatten()
                .expect("milliseconds")
        };
        let bounds = [&reads.waited, &reads.served, &reads.took].map(|counts| ms(longest(counts)));
        let [waited, served, took] = bounds;
        assert!(waited > 2.0 && served > 2.0 && took > 2.1, "{bounds:?}");
        assert!(bounds.iter().all(|bound| *bound < 2.7), "{bounds:?}");

        let switch = &port.switch;
        assert!(switch.gone_traffic(TenantId(3)).is_none());
        port.leave_traffic();
        port.leave_traffic();
        let gone = switch
            .gone_traffic(TenantId(3))
            .expect("its volume has gone");
        assert_eq!(gone.reads.bytes, 2 * 8192);
        switch.forget(TenantId(3));
        assert!(switch.gone_traffic(TenantId(3)).is_none());
    });
}

/// Tenants asked for a few at a time are told the same as all of them at once.
#[test]
fn what_tenants_got_is_told_of_each_as_of_all() {
    let one = Fifo::new(Window {
        ios: 1,
        bytes: 1 << 20,
    });
    in_world(one, |rt, port| async move {
        let of = |tenant| Ask {
            tenant: TenantId(tenant),
            ..ask(0)
        };
        // Not each of them is looked at.
        for tenant in (0..200).map(|n| 1 + n % 2) {
            let permit = port.admit(of(tenant), false).await;
            rt.sleep(Duration::from_us(100)).await;
            if let Some(sample) = permit.complete(true) {
                port.record(&sample);
            }
        }
        let busy = port.try_admit(of(1)).expect("nobody is there");
        for tenant in [2, 3, 3] {
            let (port, io) = (port.clone(), of(tenant));
            let waits = async move { drop(port.admit(io, false).await.complete(true)) };
            rt.spawn(waits).detach();
        }
        rt.sleep(Duration::from_us(10)).await;
        let waiting = port.switch.waiting();
        assert_eq!(waiting, [(TenantId(2), 1), (TenantId(3), 2)].into());
        let all = [4, 3, 2, 1].map(TenantId);
        let each = all.chunks(2).flat_map(|some| port.switch.recent_of(some));
        let mut each: Vec<_> = each
            .map(|it| Recent {
                queued: waiting.get(&it.tenant).copied().unwrap_or_default(),
                ..it
            })
            .collect();
        each.sort_by_key(|it| it.tenant);
        // Whoever only waits has got nothing.
        let mut got = port.switch.recent();
        got.retain(|it| !it.is_nothing());
        got.sort_by_key(|it| it.tenant);
        assert_eq!(each, got);
        let tenants: Vec<_> = got.iter().map(|it| it.tenant.0).collect();
        assert_eq!(tenants, [1, 2]);
        drop(busy.complete(true));
        port.drained().await;
    });
}
