//! A policy by itself: nanoseconds from an I/O's arrival over its dispatch to its end.
//!
//! Each load keeps its I/Os in flight while virtual time goes on; what a policy holds back is
//! waited for in virtual time only. Up to 64 are completed and then as many submitted, each with a
//! look at the clock before and after. The median over all of these is reported, since the
//! machine's other work affects few of them. Where only a few I/Os are in flight, the two are
//! measured together, as reading the clock takes longer.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

use flashyard_sched::{
    Ask, Class, Figures, IoId, Known, Next, Op, Outcome, Point, Policy, PolicyKind, TenantId,
};
use flashyard_time::{Duration, Time};

use super::{Load, Spent};

/// Most I/Os between two looks at the clock.
const BATCH: u32 = 64;
/// Fewer in flight than this are too few to tell submitting and completing apart.
const FEW: u32 = 8;
/// Virtual time of an I/O.
const SERVICE: Duration = Duration::from_ns(2_500);

/// A policy that has seen nothing yet; none for one of hosts. What has to be told what the device
/// does is told of such a drive as virtual time goes on on.
pub(super) fn make(name: &str) -> Option<Box<dyn Policy>> {
    let curve = vec![Point {
        latency: Duration::from_ms(1),
        tokens: 60_000_000,
    }];
    let figures = Figures::new([400_000, 25_000], [40_000, 1_400])?;
    let known = Known {
        figures: Some(figures.with_depth(128).with_curve(curve)),
        ..Known::NOTHING
    };
    PolicyKind::named(name)?.make(&known)
}

/// A policy at work.
struct Loop<'a> {
    policy: &'a mut dyn Policy,
    depth: u32,
    now: Time,
    in_flight: VecDeque<(u32, Time)>,
    /// Numbers that are free: their I/O has ended.
    idle: VecDeque<u32>,
    wake: Option<Time>,
}

/// What an I/O costs, each half with what it lets go.
pub(super) fn run(policy: &mut dyn Policy, load: Load, ios: u32) -> Spent {
    let in_flight = load.in_flight();
    let mut work = Loop {
        policy,
        depth: load.depth,
        now: Time::ZERO,
        in_flight: VecDeque::with_capacity(in_flight as usize),
        idle: (0..in_flight).collect(),
        wake: None,
    };
    work.offer_all();
    if in_flight < FEW {
        work.together(ios)
    } else {
        work.apart(ios, in_flight.min(BATCH))
    }
}

fn nanos(from: Instant, to: Instant) -> f64 {
    to.duration_since(from).as_nanos() as f64
}

/// The middle one; there is at least one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Loop<'_> {
    /// One is completed and one submitted, in turn.
    fn together(&mut self, ios: u32) -> Spent {
        let mut both = Vec::new();
        for _ in 0..(ios / BATCH).max(1) {
            let begin = Instant::now();
            for _ in 0..BATCH {
                self.complete_one();
                self.offer_all();
            }
            both.push(nanos(begin, Instant::now()) / f64::from(BATCH));
        }
        Spent {
            submit: None,
            both: median(both),
        }
    }

    /// Batches are completed and submitted, in turn.
    fn apart(&mut self, ios: u32, batch: u32) -> Spent {
        let (mut submits, mut completes, mut clock) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..(ios / batch).max(1) {
            let begin = Instant::now();
            for _ in 0..batch {
                self.complete_one();
            }
            let completed = Instant::now();
            let count = self.idle.len().max(1) as f64;
            let before = Instant::now();
            self.offer_all();
            let submitted = Instant::now();
            clock.push(nanos(completed, before));
            completes.push(nanos(begin, completed) / count);
            submits.push(nanos(before, submitted) / count);
        }
        let clock = median(clock) / f64::from(batch);
        let submit = (median(submits) - clock).max(0.0);
        Spent {
            submit: Some(submit),
            both: submit + (median(completes) - clock).max(0.0),
        }
    }

    fn offer_all(&mut self) {
        while let Some(id) = self.idle.pop_front() {
            let io = self.io(id);
            if self.policy.pass(self.now, &io) {
                self.in_flight.push_back((id, self.now));
            } else {
                self.policy.arrive(self.now, io);
                self.dispatch();
            }
        }
        black_box(&self.in_flight);
    }

    fn complete_one(&mut self) {
        let Some((id, since)) = self.next_done() else {
            return;
        };
        self.now += SERVICE;
        let outcome = Outcome {
            latency: self.now.since(since),
            ok: true,
        };
        self.policy.complete(self.now, &self.io(id), outcome);
        self.dispatch();
        self.idle.push_back(id);
    }

    /// The next that the device has done; waits in virtual time for what is held back.
    fn next_done(&mut self) -> Option<(u32, Time)> {
        while self.in_flight.is_empty() {
            self.now = self.wake.take()?.max(self.now);
            self.dispatch();
        }
        self.in_flight.pop_front()
    }

    /// Lets everything go that may.
    fn dispatch(&mut self) {
        loop {
            match self.policy.next(self.now) {
                Next::Dispatch(IoId(id)) => self.in_flight.push_back((id, self.now)),
                Next::WaitUntil(at) => {
                    self.wake = Some(at.max(self.now + Duration::from_ns(1)));
                    return;
                }
                Next::WaitForEvent => {
                    self.wake = None;
                    return;
                }
            }
        }
    }

    fn io(&self, id: u32) -> Ask {
        Ask {
            id: IoId(id),
            tenant: TenantId(1 + id / self.depth),
            class: Class::Throughput,
            op: Op::Read,
            bytes: 4096,
            lba: u64::from(id),
        }
    }
}
