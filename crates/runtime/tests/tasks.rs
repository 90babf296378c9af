//! Tasks, timers, channels and command pools on the real driver.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use flashyard_runtime::channel::channel;
use flashyard_runtime::uring::{self, Config};
use flashyard_runtime::{CommandPool, Rt, Task, TurnEnd};
use flashyard_time::{Duration, Rng};

fn run<F: Future + 'static>(main: impl FnOnce(Rt) -> F) -> F::Output {
    uring::run(Config::default(), main).expect("this machine has io_uring")
}

#[test]
fn timers_fire_in_order_and_not_early() {
    run(|rt| async move {
        let order = Rc::new(RefCell::new(Vec::new()));
        let mut rng = Rng::new(1);
        let start = rt.now();
        let tasks: Vec<_> = (0..200)
            .map(|number| {
                let span = Duration::from_us(rng.below(20_000));
                let (rt, order) = (rt.clone(), order.clone());
                rt.clone().spawn(async move {
                    if number % 2 == 0 {
                        rt.sleep_until(start + span).await;
                    } else {
                        rt.sleep_until_precise(start + span).await;
                    }
                    assert!(rt.now().since(start) >= span);
                    order.borrow_mut().push(span);
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        assert!(order.borrow().is_sorted());
        drop(rt.sleep(Duration::from_secs(100)));
        drop(rt.sleep_until_precise(rt.now() + Duration::from_secs(100)));
    });
}

#[test]
fn a_dropped_task_is_gone_and_a_detached_one_is_not() {
    struct Flag(Rc<Cell<u32>>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    run(|rt| async move {
        let dropped = Rc::new(Cell::new(0));
        let flag = Flag(dropped.clone());
        let sleeper = rt.clone();
        let task = rt.spawn(async move {
            let _flag = flag;
            sleeper.sleep(Duration::from_secs(100)).await;
        });
        rt.sleep(Duration::from_us(1)).await;
        assert!(!task.is_finished());
        assert_eq!(dropped.get(), 0);
        drop(task);
        assert_eq!(dropped.get(), 1);

        let (seen, sleeper) = (dropped.clone(), rt.clone());
        rt.spawn(async move {
            sleeper.sleep(Duration::from_us(10)).await;
            seen.set(10);
        })
        .detach();
        rt.sleep(Duration::from_ms(1)).await;
        assert_eq!(dropped.get(), 10);
        assert_eq!(rt.spawn(async { 7 }).await, 7);
    });
}

#[test]
fn a_task_may_drop_its_own_handle() {
    run(|rt| async move {
        let handle: Rc<RefCell<Option<Task<()>>>> = Rc::default();
        let own = handle.clone();
        let task = rt.spawn(async move {
            own.borrow_mut().take();
            std::future::pending::<()>().await;
        });
        *handle.borrow_mut() = Some(task);
        rt.sleep(Duration::from_us(1)).await;
        assert_eq!(Rc::strong_count(&handle), 1, "the future was dropped");
    });
}

#[test]
fn the_turn_ends_after_everything_that_can_run() {
    run(|rt| async move {
        let log = Rc::new(RefCell::new(Vec::new()));
        let sender = rt.spawn({
            let (rt, log) = (rt.clone(), log.clone());
            async move {
                rt.turn_end().await;
                log.borrow_mut().push("end");
                rt.turn_end().await;
                log.borrow_mut().push("next end");
            }
        });
        for _ in 0..3 {
            let (rt, log) = (rt.clone(), log.clone());
            rt.clone()
                .spawn(async move {
                    log.borrow_mut().push("first");
                    let log = log.clone();
                    rt.spawn(async move { log.borrow_mut().push("second") })
                        .detach();
                })
                .detach();
        }
        sender.await;
        let expected = [
            "first", "first", "first", "second", "second", "second", "end", "next end",
        ];
        assert_eq!(*log.borrow(), expected);
    });
}

#[test]
fn tasks_that_wake_each_other_for_ever_do_not_stop_the_clock() {
    run(|rt| async move {
        rt.spawn(poll_fn(|context| {
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        }))
        .detach();
        rt.sleep(Duration::from_ms(1)).await;
    });
}

#[test]
fn messages_cross_threads_both_ways_and_wake_sleepers() {
    let (to_other, at_other) = channel::<u64>();
    let (to_here, at_here) = channel::<u64>();
    let other = std::thread::spawn(move || {
        run(|rt| async move {
            let mut sum = 0;
            while let Some(number) = at_other.recv().await {
                sum += number;
                if number % 10 == 0 {
                    // Long enough for the other side to fall asleep.
                    rt.sleep(Duration::from_us(500)).await;
                }
                assert!(to_here.send(number + 1).is_ok());
            }
            sum
        })
    });
    run(|rt| async move {
        for number in 0..200 {
            if number % 7 == 0 {
                rt.sleep(Duration::from_us(500)).await;
            }
            assert!(to_other.send(number).is_ok());
            assert_eq!(at_here.recv().await, Some(number + 1));
        }
        drop(to_other);
        assert_eq!(at_here.recv().await, None);
    });
    assert_eq!(
        other.join().expect("the other core ends well"),
        199 * 200 / 2
    );
}

#[test]
fn messages_from_many_threads_all_arrive() {
    const EACH: u64 = 20_000;
    let (sender, receiver) = channel::<u64>();
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                (0..EACH).for_each(|number| assert!(sender.send(number * 4 + thread).is_ok()));
            })
        })
        .collect();
    drop(sender);
    let (count, sum) = run(|_| async move {
        let (mut count, mut sum) = (0, 0);
        while let Some(number) = receiver.recv().await {
            count += 1;
            sum += number;
        }
        (count, sum)
    });
    for thread in threads {
        thread.join().expect("senders end well");
    }
    assert_eq!((count, sum), (4 * EACH, 4 * EACH * (4 * EACH - 1) / 2));
    let (sender, receiver) = channel();
    drop(receiver);
    assert_eq!(sender.send(1), Err(1));
}

/// Where a command of the tests below waits.
#[derive(Clone, Default)]
struct Gate(Rc<RefCell<Vec<Waker>>>, Rc<Cell<bool>>);

impl Gate {
    async fn pass(self) {
        poll_fn(|context| {
            if self.1.get() {
                return Poll::Ready(());
            }
            self.0.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn open(&self) {
        self.1.set(true);
        self.0.take().into_iter().for_each(Waker::wake);
    }
}

type Command = Pin<Box<dyn Future<Output = ()>>>;

#[test]
fn a_command_pool_polls_at_once_and_reuses_its_places() {
    run(|rt| async move {
        let pool: CommandPool<Command> = CommandPool::new(&rt, 2);
        let done = Rc::new(Cell::new(0));
        let command = |gate: &Gate| -> Command {
            let (gate, done) = (gate.clone(), done.clone());
            Box::pin(async move {
                gate.pass().await;
                done.set(done.get() + 1);
            })
        };
        let open = Gate::default();
        open.open();
        for _ in 0..10 {
            assert!(pool.run(command(&open)).is_ok());
        }
        assert_eq!(
            (pool.waiting(), done.get()),
            (0, 10),
            "ready commands ran in place"
        );

        for round in 0..3 {
            let gate = Gate::default();
            assert!(pool.run(command(&gate)).is_ok());
            assert!(pool.run(command(&gate)).is_ok());
            assert!(pool.run(command(&gate)).is_err(), "the pool is full");
            assert_eq!((pool.waiting(), done.get()), (2, 10 + 2 * round));
            gate.open();
            rt.turn_end().await;
            assert_eq!((pool.waiting(), done.get()), (0, 12 + 2 * round));
        }

        let gate = Gate::default();
        assert!(pool.run(command(&gate)).is_ok());
        assert_eq!(Rc::strong_count(&gate.1), 2);
        drop(pool);
        assert_eq!(
            Rc::strong_count(&gate.1),
            1,
            "the waiting command was dropped"
        );
        gate.open();
        rt.turn_end().await;
        assert_eq!(done.get(), 16);
    });
}

/// A task that waits for something else can be called for the end of the turn: it is polled there,
/// and not before only to begin to wait.
#[test]
fn a_task_that_is_called_for_the_end_of_the_turn_is_polled_once() {
    run(|rt| async move {
        let polls = Rc::new(Cell::new(0));
        let waker = Rc::new(Cell::new(None));
        let called: Rc<Cell<Option<TurnEnd>>> = Rc::default();
        let sender = rt.spawn({
            let (polls, waker, called) = (polls.clone(), waker.clone(), called.clone());
            poll_fn(move |context| {
                polls.set(polls.get() + 1);
                let Some(mut end) = called.take() else {
                    waker.set(Some(context.waker().clone()));
                    return Poll::Pending;
                };
                let ended = Pin::new(&mut end).poll(context);
                assert!(ended.is_ready(), "it was called for this end");
                ended
            })
        });
        rt.turn_end().await;
        let waiting = waker.take().expect("it waits");
        called.set(Some(rt.turn_end_for(waiting)));
        rt.spawn(async {}).await;
        sender.await;
        assert_eq!(polls.get(), 2);
    });
}

#[test]
fn a_panic_in_a_task_leaves_the_thread_usable() {
    let panicked = std::panic::catch_unwind(|| {
        run(|rt| async move {
            let sleeper = rt.clone();
            rt.spawn(async move { sleeper.sleep(Duration::from_secs(10)).await })
                .detach();
            rt.sleep(Duration::from_us(10)).await;
            panic!("on purpose");
        });
    });
    assert!(panicked.is_err());
    assert_eq!(run(|_| async { 5 }), 5);
}

#[test]
fn a_thread_can_run_many_cores_in_turn() {
    let descriptors = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let mut before = 0;
    for round in 0..60 {
        assert_eq!(
            run(move |rt| async move { rt.spawn(async move { round }).await }),
            round
        );
        if round == 20 {
            before = descriptors();
        }
    }
    // Other tests run beside this one and have their own.
    assert!(descriptors() < before + 30, "rings are closed");
}
