//! A small device of a few servers and workers on it, in virtual time.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use flashyard_time::{Duration, EventQueue, Rng, Time};

use crate::{Ask, Class, IoId, Next, Op, Outcome, Policy, TenantId};

/// Does as many I/Os at a time as it has servers; the rest wait in the order they came. Service
/// takes the given time, more or less by half.
pub(super) struct Device {
    pub(super) servers: usize,
    pub(super) read_ns: u64,
    pub(super) write_ns: u64,
    /// I/O of more than 64 KiB takes so many times longer.
    pub(super) large: u64,
    /// Times are multiplied by this between these instants.
    pub(super) slow: (Time, Time, u64),
    pub(super) busy: usize,
    pub(super) waiting: VecDeque<usize>,
}

impl Device {
    pub(super) fn new(servers: usize, read_ns: u64, write_ns: u64) -> Self {
        Self {
            servers,
            read_ns,
            write_ns,
            large: 1,
            slow: (Time::MAX, Time::MAX, 1),
            busy: 0,
            waiting: VecDeque::new(),
        }
    }

    fn time(&self, now: Time, io: &Ask, chance: &mut Rng) -> Duration {
        let mean = match io.op {
            Op::Read => self.read_ns,
            _ => self.write_ns,
        };
        let mean = match io.bytes > 65_536 {
            true => mean * self.large,
            false => mean,
        };
        let factor = if now >= self.slow.0 && now < self.slow.1 {
            self.slow.2
        } else {
            1
        };
        Duration::from_ns((mean / 2 + chance.below(mean)) * factor)
    }
}

/// Keeps so many I/Os under way, or with a pause after each.
#[derive(Clone, Copy)]
pub(super) struct Worker {
    pub(super) tenant: u32,
    pub(super) class: Class,
    pub(super) op: Op,
    /// So many of a hundred I/Os are writes instead.
    pub(super) writes: u64,
    pub(super) bytes: u64,
    pub(super) depth: u32,
    pub(super) pause: Duration,
    pub(super) start: Duration,
}

pub(super) const READER: Worker = Worker {
    tenant: 1,
    class: Class::Throughput,
    op: Op::Read,
    writes: 0,
    bytes: 4096,
    depth: 32,
    pause: Duration::ZERO,
    start: Duration::ZERO,
};

pub(super) fn reader(tenant: u32) -> Worker {
    Worker { tenant, ..READER }
}

pub(super) fn writer(tenant: u32) -> Worker {
    Worker {
        op: Op::Write,
        ..reader(tenant)
    }
}

pub(super) struct Done {
    pub(super) at: Time,
    /// When it went to the device.
    pub(super) sent: Time,
    pub(super) worker: usize,
    pub(super) latency: Duration,
}

enum Event {
    Issue(usize),
    Served(usize),
    Look,
}

struct Slot {
    worker: usize,
    issued: Time,
    sent: Time,
    io: Ask,
}

/// Runs the workers for `span`; what was done, in order.
pub(super) fn run(
    policy: &mut dyn Policy,
    device: &mut Device,
    workers: &[Worker],
    span: Duration,
    seed: u64,
) -> Vec<Done> {
    let mut chance = Rng::new(seed);
    let mut events = EventQueue::with_capacity(64);
    let mut slots: Vec<Slot> = vec![];
    for (index, worker) in workers.iter().enumerate() {
        for _ in 0..worker.depth {
            let io = Ask {
                id: IoId(slots.len() as u32),
                tenant: TenantId(worker.tenant),
                class: worker.class,
                op: worker.op,
                bytes: worker.bytes,
                lba: 0,
            };
            events.push(Time::ZERO + worker.start, Event::Issue(slots.len()));
            slots.push(Slot {
                worker: index,
                issued: Time::ZERO,
                sent: Time::ZERO,
                io,
            });
        }
    }
    let (mut done, mut look) = (vec![], Time::MAX);
    while let Some((now, event)) = events.pop() {
        if now > Time::ZERO + span {
            break;
        }
        match event {
            Event::Issue(slot) => {
                slots[slot].issued = now;
                slots[slot].sent = now;
                let worker = workers[slots[slot].worker];
                if worker.writes > 0 {
                    let writes = chance.below(100) < worker.writes;
                    slots[slot].io.op = if writes { Op::Write } else { worker.op };
                }
                let io = slots[slot].io;
                if policy.pass(now, &io) {
                    send(device, &mut events, &slots, slot, now, &mut chance);
                } else {
                    policy.arrive(now, io);
                }
            }
            Event::Served(slot) => {
                let place = &slots[slot];
                let worker = workers[place.worker];
                let outcome = Outcome {
                    latency: now.since(place.sent),
                    ok: true,
                };
                policy.complete(now, &place.io, outcome);
                done.push(Done {
                    at: now,
                    sent: place.sent,
                    worker: place.worker,
                    latency: now.since(place.issued),
                });
                events.push(now + worker.pause, Event::Issue(slot));
                device.busy -= 1;
                if let Some(next) = device.waiting.pop_front() {
                    send(device, &mut events, &slots, next, now, &mut chance);
                }
            }
            Event::Look => look = Time::MAX,
        }
        loop {
            match policy.next(now) {
                Next::Dispatch(IoId(id)) => {
                    slots[id as usize].sent = now;
                    send(device, &mut events, &slots, id as usize, now, &mut chance);
                }
                Next::WaitUntil(at) => {
                    assert!(at > now, "nothing is to be waited for");
                    if at < look {
                        look = at;
                        events.push(at, Event::Look);
                    }
                    break;
                }
                Next::WaitForEvent => break,
            }
        }
    }
    done
}

fn send(
    device: &mut Device,
    events: &mut EventQueue<Event>,
    slots: &[Slot],
    slot: usize,
    now: Time,
    chance: &mut Rng,
) {
    if device.busy < device.servers {
        device.busy += 1;
        let time = device.time(now, &slots[slot].io, chance);
        events.push(now + time, Event::Served(slot));
    } else {
        device.waiting.push_back(slot);
    }
}
