//! The FIFO policy against a model that keeps whole lists.

use std::collections::VecDeque;

use flashyard_sched::{Ask, Class, Fifo, IoId, Next, Op, Outcome, Policy, TenantId, Window};
use flashyard_time::{Duration, Rng, Time};

const OUTCOME: Outcome = Outcome {
    latency: Duration::from_us(80),
    ok: true,
};

fn io(id: u32, bytes: u64) -> Ask {
    Ask {
        id: IoId(id),
        tenant: TenantId(1),
        class: Class::Throughput,
        op: Op::Read,
        bytes,
        lba: 0,
    }
}

/// What FIFO means, said plainly.
struct Model {
    window: Window,
    queue: VecDeque<Ask>,
    in_flight: Vec<Ask>,
    free: Vec<u32>,
}

impl Model {
    fn new(window: Window, ids: u32) -> Self {
        Self {
            window,
            queue: VecDeque::new(),
            in_flight: Vec::new(),
            free: (0..ids).collect(),
        }
    }

    fn fits(&self, bytes: u64) -> bool {
        let held: u64 = self.in_flight.iter().map(|io| io.bytes).sum();
        self.in_flight.is_empty()
            || (self.in_flight.len() < self.window.ios as usize
                && held + bytes <= self.window.bytes)
    }

    fn next(&mut self) -> Next {
        match self.queue.front() {
            Some(io) if self.fits(io.bytes) => {
                let io = self.queue.pop_front().expect("there is a front");
                self.in_flight.push(io);
                Next::Dispatch(io.id)
            }
            _ => Next::WaitForEvent,
        }
    }
}

fn step(rng: &mut Rng, model: &mut Model, fifo: &mut Fifo) {
    let now = Time::ZERO;
    match rng.below(8) {
        0..4 if !model.free.is_empty() => {
            let id = model
                .free
                .swap_remove(rng.below(model.free.len() as u64) as usize);
            let io = io(id, rng.below(12) * 4096);
            let passes = model.queue.is_empty() && model.fits(io.bytes);
            let passed = rng.below(2) == 0 && {
                assert_eq!(fifo.pass(now, &io), passes);
                passes
            };
            if passed {
                model.in_flight.push(io);
            } else {
                fifo.arrive(now, io);
                model.queue.push_back(io);
            }
        }
        4..7 if !model.in_flight.is_empty() => {
            let io = model
                .in_flight
                .swap_remove(rng.below(model.in_flight.len() as u64) as usize);
            fifo.complete(now, &io, OUTCOME);
            model.free.push(io.id.0);
        }
        7 if !model.queue.is_empty() => {
            let at = rng.below(model.queue.len() as u64) as usize;
            let io = model.queue.remove(at).expect("the place is inside");
            fifo.cancel(now, io.id);
            model.free.push(io.id.0);
        }
        _ => {}
    }
}

#[test]
fn follows_the_model_for_any_sequence_of_events() {
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let window = Window {
            ios: 1 + rng.below(16) as u32,
            bytes: 4096 * (1 + rng.below(40)),
        };
        let mut model = Model::new(window, 64);
        let mut fifo = Fifo::new(window);
        for _ in 0..2000 {
            step(&mut rng, &mut model, &mut fifo);
            loop {
                let expected = model.next();
                assert_eq!(fifo.next(Time::ZERO), expected, "seed {seed}");
                if expected == Next::WaitForEvent {
                    break;
                }
            }
        }
    }
}

#[test]
fn an_io_larger_than_the_window_goes_alone() {
    let now = Time::ZERO;
    let mut fifo = Fifo::new(Window {
        ios: 4,
        bytes: 4096,
    });
    let (small, large) = (io(0, 512), io(1, 1 << 20));
    assert!(fifo.pass(now, &small));
    assert!(!fifo.pass(now, &large));
    fifo.arrive(now, large);
    assert_eq!(fifo.next(now), Next::WaitForEvent);
    assert!(
        !fifo.pass(now, &io(2, 512)),
        "no I/O overtakes what is queued"
    );
    fifo.complete(now, &small, OUTCOME);
    assert_eq!(fifo.next(now), Next::Dispatch(large.id));
    assert!(!fifo.pass(now, &io(2, 0)));
    fifo.complete(now, &large, OUTCOME);
    assert!(fifo.pass(now, &io(2, 0)));
}

#[test]
fn cancelling_the_head_lets_the_next_one_go() {
    let now = Time::ZERO;
    let mut fifo = Fifo::new(Window {
        ios: 4,
        bytes: 8192,
    });
    assert!(fifo.pass(now, &io(0, 4096)));
    fifo.arrive(now, io(1, 8192));
    fifo.arrive(now, io(2, 4096));
    assert_eq!(fifo.next(now), Next::WaitForEvent);
    fifo.cancel(now, IoId(1));
    fifo.cancel(now, IoId(77));
    assert_eq!(fifo.next(now), Next::Dispatch(IoId(2)));
    assert_eq!(fifo.credit(TenantId(1)), None);
}

#[test]
fn a_large_range_without_transfer_does_not_fill_the_window() {
    let now = Time::ZERO;
    let mut fifo = Fifo::new(Window {
        ios: 4,
        bytes: 8192,
    });
    let deallocate = Ask {
        op: Op::Deallocate,
        ..io(0, 1 << 40)
    };
    assert!(fifo.pass(now, &deallocate));
    assert!(fifo.pass(now, &io(1, 8192)));
    fifo.complete(now, &deallocate, OUTCOME);
    assert!(!fifo.pass(now, &io(2, 1)));
}
