//! Load on a drive in virtual time, and what came of it: for validation, benchmarks and tests.

use alloc::vec;
use alloc::vec::Vec;

use flashyard_time::{Duration, Histogram, Rng, Time};

use crate::UNIT_BYTES;
use crate::ssd::{Command, Completion, Device, Op};

/// One that keeps a number of commands of one size under way.
#[derive(Clone, Copy, Debug)]
pub struct Worker {
    /// Commands under way.
    pub depth: u32,
    /// Units of each.
    pub units: u32,
    /// How many of a hundred read; the others write.
    pub reads: u64,
    /// Random addresses, each a multiple of the size; otherwise one after another.
    pub random: bool,
}

impl Worker {
    /// Reads of one unit at random addresses.
    pub const fn reader(depth: u32) -> Self {
        Self {
            depth,
            units: 1,
            reads: 100,
            random: true,
        }
    }

    /// Writes of one unit at random addresses.
    pub const fn writer(depth: u32) -> Self {
        Self {
            depth,
            units: 1,
            reads: 0,
            random: true,
        }
    }

    /// Reads or writes of 128 KiB, one after another.
    pub const fn streamer(depth: u32, reads: u64) -> Self {
        Self {
            depth,
            units: 32,
            reads,
            random: false,
        }
    }
}

/// What a worker got within the span that was measured.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Latencies of reads, in nanoseconds.
    pub reads: Histogram,
    /// Latencies of writes, in nanoseconds.
    pub writes: Histogram,
    /// Arrivals of an open loop that the drive's queue had no place for.
    pub lost: u64,
    /// Units of each command.
    pub units: u32,
    /// The span that was measured.
    pub span: Duration,
}

impl Tally {
    /// Reads per second.
    pub fn read_iops(&self) -> u64 {
        per_second(self.reads.count(), self.span)
    }

    /// Writes per second.
    pub fn write_iops(&self) -> u64 {
        per_second(self.writes.count(), self.span)
    }

    /// Bytes per second, both ways.
    pub fn bytes_per_second(&self) -> u64 {
        (self.read_iops() + self.write_iops()) * u64::from(self.units) * UNIT_BYTES
    }
}

/// Runs `workers` on `device` for `warm_up` and then for `span`, which is measured. Commands that are under way at the
/// end are left to the device.
pub fn closed_loop(
    device: &mut Device,
    workers: &[Worker],
    warm_up: Duration,
    span: Duration,
    seed: u64,
) -> Vec<Tally> {
    let start = device.now();
    let (from, until) = (start + warm_up, start + warm_up + span);
    let mut run = Closed::new(device, workers, span, seed);
    run.begin(device, start);
    let mut done = Vec::with_capacity(256);
    while let Some(next) = device.next_event().filter(|next| *next <= until) {
        device.advance(next, &mut done);
        for completion in done.drain(..) {
            run.complete(device, completion, from);
        }
    }
    run.tallies
}

/// Reads of one unit at random addresses that arrive whether or not others are done, `gap` apart in the mean with
/// exponential distribution. All are waited for; of those that arrive within `warm_up` none is counted.
pub fn open_loop(
    device: &mut Device,
    gap: Duration,
    warm_up: Duration,
    span: Duration,
    seed: u64,
) -> Tally {
    let capacity = device.capacity() / UNIT_BYTES;
    let (mut gaps, mut addresses) = (Rng::new(seed).split(0), Rng::new(seed).split(1));
    let start = device.now();
    let mut tally = Tally::new(1, span);
    let (mut done, mut arrival) = (Vec::new(), start);
    loop {
        arrival += gaps.exponential(gap);
        let last = arrival > start + warm_up + span;
        device.advance(if last { Time::MAX } else { arrival }, &mut done);
        for completion in done.drain(..) {
            let arrived = Time::from_ns(completion.tag);
            if arrived > start + warm_up {
                tally.reads.record(completion.at.since(arrived).as_ns());
            }
        }
        if last {
            return tally;
        }
        let command = Command {
            tag: arrival.as_ns(),
            op: Op::Read,
            start: addresses.below(capacity),
            units: 1,
        };
        tally.lost += u64::from(device.submit(arrival, command).is_err());
    }
}

impl Tally {
    fn new(units: u32, span: Duration) -> Self {
        Self {
            reads: Histogram::new(),
            writes: Histogram::new(),
            lost: 0,
            units,
            span,
        }
    }
}

/// A closed loop under way.
struct Closed {
    workers: Vec<Worker>,
    tallies: Vec<Tally>,
    chance: Vec<Rng>,
    /// The next address of each worker that goes one after another.
    cursors: Vec<u64>,
    /// Worker, operation and instant of each command; the tag is the place in here.
    slots: Vec<(u32, Op, Time)>,
    capacity: u64,
}

impl Closed {
    fn new(device: &Device, workers: &[Worker], span: Duration, seed: u64) -> Self {
        let capacity = device.capacity() / UNIT_BYTES;
        let count = workers.len() as u64;
        Self {
            tallies: workers
                .iter()
                .map(|worker| Tally::new(worker.units, span))
                .collect(),
            chance: (0..count)
                .map(|worker| Rng::new(seed).split(worker))
                .collect(),
            cursors: (0..count).map(|worker| capacity / count * worker).collect(),
            slots: vec![],
            workers: workers.to_vec(),
            capacity,
        }
    }

    fn begin(&mut self, device: &mut Device, now: Time) {
        for worker in 0..self.workers.len() {
            for _ in 0..self.workers[worker].depth {
                self.slots.push((worker as u32, Op::Read, now));
                self.issue(device, self.slots.len() - 1, now);
            }
        }
    }

    fn complete(&mut self, device: &mut Device, completion: Completion, from: Time) {
        let slot = completion.tag as usize;
        let (worker, op, issued) = self.slots[slot];
        if completion.at > from {
            let latency = completion.at.since(issued).as_ns();
            let tally = &mut self.tallies[worker as usize];
            match op {
                Op::Read => tally.reads.record(latency),
                _ => tally.writes.record(latency),
            }
        }
        self.issue(device, slot, completion.at);
    }

    fn issue(&mut self, device: &mut Device, slot: usize, now: Time) {
        let index = self.slots[slot].0 as usize;
        let worker = self.workers[index];
        let chance = &mut self.chance[index];
        let op = match worker.reads {
            0 => Op::Write,
            100.. => Op::Read,
            reads if chance.chance(reads, 100) => Op::Read,
            _ => Op::Write,
        };
        let units = u64::from(worker.units);
        let start = if worker.random {
            chance.below(self.capacity / units) * units
        } else {
            let cursor = &mut self.cursors[index];
            if *cursor + units > self.capacity {
                *cursor = 0;
            }
            *cursor += units;
            *cursor - units
        };
        self.slots[slot] = (index as u32, op, now);
        let command = Command {
            tag: slot as u64,
            op,
            start,
            units: worker.units,
        };
        device
            .submit(now, command)
            .expect("the address lies on the drive, and the depth below its limit");
    }
}

fn per_second(count: u64, span: Duration) -> u64 {
    (u128::from(count) * 1_000_000_000)
        .checked_div(u128::from(span.as_ns()))
        .unwrap_or(0) as u64
}
