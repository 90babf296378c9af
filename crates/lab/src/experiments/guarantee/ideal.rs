//! An ideal device: eight servers, each with one I/O at a time; the service time depends only on
//! kind and length. A guarantee that is not kept here is the policy's fault.

use std::collections::VecDeque;

use flashyard_sched::{Ask, IoId, Next, Op, Outcome, Policy, TenantId};
use flashyard_time::{Duration, EventQueue, Rng, Time};

use crate::bench::fold;
use crate::load::Worker;
use crate::load::source::Source;

const SERVERS: u64 = 8;
/// Where workers do their I/O, in bytes.
const CAPACITY: u64 = 1 << 30;
const UNIT: u64 = 4096;

/// Time of an I/O: 300 us and 12 us for every 4 KiB, twice that for a write.
fn service(op: Op, bytes: u64) -> Duration {
    let read = Duration::from_us(300) + Duration::from_us(12).scale(bytes / UNIT, 1);
    match op {
        Op::Read => read,
        _ => read.scale(2, 1),
    }
}

/// I/Os of such a kind and length that it does in a second.
pub(super) fn rate(op: Op, bytes: u64) -> u64 {
    SERVERS * 1_000_000_000 / service(op, bytes).as_ns()
}

/// The device, its policy and its workers.
struct Machine<'a> {
    policy: &'a mut dyn Policy,
    workers: Vec<Active>,
    events: EventQueue<Event>,
    /// By number.
    ios: Vec<InFlight>,
    free: Vec<u32>,
    waiting: VecDeque<u32>,
    busy: u64,
    wake: Option<Time>,
    digest: u64,
}

struct Active {
    tenant: TenantId,
    class: flashyard_sched::Class,
    source: Source,
    depth: u32,
    in_flight: u32,
    working: bool,
    phases: Option<crate::load::Phases>,
}

#[derive(Clone, Copy)]
struct InFlight {
    worker: usize,
    io: Ask,
    sent: Time,
}

enum Event {
    Turn(usize),
    Served(u32),
    Look,
}

/// Lets closed loops of `workers` run against `policy` until `until`. A number over everything that
/// was done.
pub(super) fn run(policy: &mut dyn Policy, workers: &[Worker], seed: u64, until: Time) -> u64 {
    let chance = Rng::new(seed);
    let active = |(worker, place): (&Worker, u64)| Active {
        tenant: worker.tenant,
        class: worker.class,
        source: Source::new(&worker.work, CAPACITY, &chance.split(place)),
        depth: worker.most_in_flight(),
        in_flight: 0,
        working: false,
        phases: worker.phases,
    };
    let mut machine = Machine {
        policy,
        workers: workers.iter().zip(0..).map(active).collect(),
        events: EventQueue::with_capacity(1024),
        ios: Vec::new(),
        free: Vec::new(),
        waiting: VecDeque::new(),
        busy: 0,
        wake: None,
        digest: 0,
    };
    for place in 0..workers.len() {
        machine.events.push(Time::ZERO, Event::Turn(place));
    }
    while let Some(now) = machine.events.next_time().filter(|at| *at <= until) {
        if let Some((_, event)) = machine.events.pop() {
            machine.happen(now, event);
        }
    }
    machine.digest
}

impl Machine<'_> {
    fn happen(&mut self, now: Time, event: Event) {
        match event {
            Event::Turn(place) => {
                let worker = &mut self.workers[place];
                worker.working = !worker.working;
                if let Some(phases) = worker.phases {
                    let span = if worker.working {
                        phases.on
                    } else {
                        phases.off
                    };
                    self.events.push(now + span, Event::Turn(place));
                }
                self.refill(now, place);
            }
            Event::Served(id) => self.served(now, id),
            Event::Look => {
                if self.wake == Some(now) {
                    self.wake = None;
                    self.pump(now);
                }
            }
        }
    }

    fn refill(&mut self, now: Time, place: usize) {
        loop {
            let worker = &mut self.workers[place];
            if !worker.working || worker.in_flight >= worker.depth {
                return;
            }
            let Some(draft) = worker.source.draft() else {
                return;
            };
            worker.in_flight += 1;
            let (tenant, class) = (worker.tenant, worker.class);
            let id = self.free.pop().unwrap_or(self.ios.len() as u32);
            let io = Ask {
                id: IoId(id),
                tenant,
                class,
                op: draft.op,
                bytes: u64::from(draft.units) * UNIT,
                lba: draft.start,
            };
            let in_flight = InFlight {
                worker: place,
                io,
                sent: now,
            };
            match self.ios.get_mut(id as usize) {
                Some(slot) => *slot = in_flight,
                None => self.ios.push(in_flight),
            }
            if self.policy.pass(now, &io) {
                self.dispatch(now, id);
            } else {
                self.policy.arrive(now, io);
                self.pump(now);
            }
        }
    }

    fn pump(&mut self, now: Time) {
        loop {
            match self.policy.next(now) {
                Next::Dispatch(IoId(id)) => self.dispatch(now, id),
                Next::WaitUntil(at) => {
                    let at = at.max(now + Duration::from_ns(1));
                    if self.wake.is_none_or(|wake| at < wake || wake <= now) {
                        self.wake = Some(at);
                        self.events.push(at, Event::Look);
                    }
                    return;
                }
                Next::WaitForEvent => return,
            }
        }
    }

    fn dispatch(&mut self, now: Time, id: u32) {
        self.ios[id as usize].sent = now;
        self.waiting.push_back(id);
        self.serve(now);
    }

    fn serve(&mut self, now: Time) {
        while self.busy < SERVERS
            && let Some(id) = self.waiting.pop_front()
        {
            self.busy += 1;
            let io = &self.ios[id as usize].io;
            self.events
                .push(now + service(io.op, io.bytes), Event::Served(id));
        }
    }

    fn served(&mut self, now: Time, id: u32) {
        self.busy -= 1;
        self.serve(now);
        let InFlight { worker, io, sent } = self.ios[id as usize];
        let outcome = Outcome {
            latency: now.since(sent),
            ok: true,
        };
        self.policy.complete(now, &io, outcome);
        self.pump(now);
        self.digest = fold(fold(self.digest, now.as_ns()), u64::from(io.tenant.0));
        self.free.push(id);
        self.workers[worker].in_flight -= 1;
        self.refill(now, worker);
    }
}
