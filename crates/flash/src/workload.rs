//! Load on a drive in virtual time, and its results: for validation, benchmarks and tests.

use alloc::vec;
use alloc::vec::Vec;

use flashyard_time::{Duration, Histogram, Rng, Time};

use crate::UNIT_BYTES;
use crate::ssd::{Command, Completion, Device, Op};

/// One that keeps a number of commands of one size in flight.
#[derive(Clone, Copy, Debug)]
pub struct Worker {
    /// Commands in flight.
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

/// Runs `workers` on `device` for `warm_up` and then for `span`, which is measured. Commands that
/// are in flight at the end are left to the device.
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
    while device.advance_to_completion(until, &mut done) {
        for completion in done.drain(..) {
            run.complete(device, completion, from);
        }
    }
    run.tallies
}

/// Commands that arrive whether or not others are done.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// What they do.
    pub op: Op,
    /// Units of each.
    pub units: u32,
    /// Random addresses, each a multiple of the size; otherwise one after another.
    pub random: bool,
    /// From one arrival to the next: always, or in the mean of an exponential distribution.
    pub gap: Duration,
    /// Arrivals are exactly a gap apart.
    pub regular: bool,
    /// When the first may arrive and after when none does, counted from the beginning.
    pub span: (Duration, Duration),
}

impl Source {
    /// Reads of one unit at random addresses, `per_second` of them (at least one) at random
    /// instants until `end`.
    pub fn reads(per_second: u64, end: Duration) -> Self {
        Self {
            op: Op::Read,
            units: 1,
            random: true,
            gap: Duration::from_ns(1_000_000_000 / per_second.max(1)),
            regular: false,
            span: (Duration::ZERO, end),
        }
    }

    /// Writes of one unit. See [`Source::reads`].
    pub fn writes(per_second: u64, end: Duration) -> Self {
        Self {
            op: Op::Write,
            ..Self::reads(per_second, end)
        }
    }
}

/// A command of an open loop that is done.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Which of the sources it came from.
    pub source: usize,
    /// When it arrived, counted from the beginning.
    pub arrived: Duration,
    /// How long it took.
    pub latency: Duration,
}

/// Runs `sources` on `device` until all that arrived is done, and tells `record` of each. Returns
/// how many commands the drive's queue had no place for.
pub fn open_loop(
    device: &mut Device,
    sources: &[Source],
    seed: u64,
    mut record: impl FnMut(Answer),
) -> u64 {
    let start = device.now();
    let mut run = Open::new(device, sources, seed);
    let (mut done, mut lost) = (Vec::new(), 0);
    loop {
        let arrival = run.next_arrival();
        device.advance(
            arrival.map_or(Time::MAX, |(_, after)| start + after),
            &mut done,
        );
        for completion in done.drain(..) {
            let (source, arrived) = run.leave(completion.tag);
            let latency = completion.at.since(start + arrived);
            record(Answer {
                source,
                arrived,
                latency,
            });
        }
        let Some((source, after)) = arrival else {
            return lost;
        };
        let command = run.arrive(source, after);
        if device.submit(start + after, command).is_err() {
            run.leave(command.tag);
            lost += 1;
        }
    }
}

/// An open loop in flight.
struct Open {
    sources: Vec<Source>,
    /// The next arrival of each source.
    arrivals: Vec<Duration>,
    chance: Vec<(Rng, Rng)>,
    cursors: Vec<u64>,
    /// Source and arrival of each command; the tag is the place in here.
    slots: Vec<(u32, Duration)>,
    unused: Vec<u64>,
    capacity: u64,
}

impl Open {
    fn new(device: &Device, sources: &[Source], seed: u64) -> Self {
        let stream = |source| Rng::new(seed).split(source);
        let mut open = Self {
            arrivals: sources.iter().map(|source| source.span.0).collect(),
            chance: (0..sources.len() as u64)
                .map(|source| (stream(2 * source), stream(2 * source + 1)))
                .collect(),
            cursors: vec![0; sources.len()],
            slots: Vec::new(),
            unused: Vec::new(),
            sources: sources.to_vec(),
            capacity: device.capacity() / UNIT_BYTES,
        };
        for source in 0..sources.len() {
            open.schedule(source);
        }
        open
    }

    /// Source and instant of the next arrival; nothing when all sources have ended.
    fn next_arrival(&self) -> Option<(usize, Duration)> {
        let waiting = self.arrivals.iter().copied().enumerate();
        waiting
            .filter(|(source, at)| *at <= self.sources[*source].span.1)
            .min_by_key(|(_, at)| *at)
    }

    /// The command that arrives now.
    fn arrive(&mut self, index: usize, at: Duration) -> Command {
        self.schedule(index);
        let slot = (index as u32, at);
        let tag = if let Some(tag) = self.unused.pop() {
            self.slots[tag as usize] = slot;
            tag
        } else {
            self.slots.push(slot);
            self.slots.len() as u64 - 1
        };
        let source = self.sources[index];
        let units = u64::from(source.units);
        let start = if source.random {
            self.chance[index].1.below(self.capacity / units) * units
        } else {
            after(&mut self.cursors[index], units, self.capacity)
        };
        Command {
            tag,
            op: source.op,
            start,
            units: source.units,
        }
    }

    /// Source and arrival of the command with `tag`, which is no more in flight.
    fn leave(&mut self, tag: u64) -> (usize, Duration) {
        self.unused.push(tag);
        let (source, arrived) = self.slots[tag as usize];
        (source as usize, arrived)
    }

    fn schedule(&mut self, index: usize) {
        let source = self.sources[index];
        self.arrivals[index] += if source.regular {
            source.gap
        } else {
            self.chance[index].0.exponential(source.gap)
        };
    }
}

impl Tally {
    fn new(units: u32, span: Duration) -> Self {
        Self {
            reads: Histogram::new(),
            writes: Histogram::new(),
            units,
            span,
        }
    }
}

/// A closed loop in flight.
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
            after(&mut self.cursors[index], units, self.capacity)
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

/// The next `units` after what was taken before, from the beginning again when the end is reached.
fn after(cursor: &mut u64, units: u64, capacity: u64) -> u64 {
    if *cursor + units > capacity {
        *cursor = 0;
    }
    *cursor += units;
    *cursor - units
}

fn per_second(count: u64, span: Duration) -> u64 {
    (u128::from(count) * 1_000_000_000)
        .checked_div(u128::from(span.as_ns()))
        .unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;
    use crate::ssd::Condition;

    fn device() -> Device {
        let profile = Profile::named("dct983").expect("it ships");
        Device::in_condition(&profile, 256 << 20, 1, Condition::Clean).expect("256 MiB suit it")
    }

    fn answers(sources: &[Source], seed: u64) -> (Vec<(usize, u64, u64)>, u64) {
        let mut answers = Vec::new();
        let lost = open_loop(&mut device(), sources, seed, |answer| {
            let times = (answer.arrived.as_ns(), answer.latency.as_ns());
            answers.push((answer.source, times.0, times.1));
        });
        (answers, lost)
    }

    #[test]
    fn sources_arrive_at_their_rate_within_their_span() {
        let (begin, end) = (Duration::from_ms(10), Duration::from_ms(60));
        let regular = Source {
            regular: true,
            span: (begin, end),
            ..Source::writes(10_000, end)
        };
        let (answers, lost) = answers(&[Source::reads(40_000, end), regular], 1);
        assert_eq!(lost, 0);
        let of = |source| answers.iter().filter(move |answer| answer.0 == source);
        assert_eq!(of(1).count(), 500, "10 K/s for 50 ms");
        assert!(of(1).all(|answer| (10_000_000..=60_000_000).contains(&answer.1)));
        assert!((2_200..2_600).contains(&of(0).count()), "40 K/s for 60 ms");
    }

    #[test]
    fn the_seed_decides() {
        let sources = [Source::reads(100_000, Duration::from_ms(5))];
        assert_eq!(answers(&sources, 4), answers(&sources, 4));
        assert_ne!(answers(&sources, 4), answers(&sources, 5));
    }

    #[test]
    fn what_the_drive_has_no_place_for_is_lost() {
        let span = Duration::from_ms(20);
        let (answers, lost) = answers(&[Source::reads(10_000_000, span)], 1);
        assert!(lost > 0);
        let arrived = answers.len() as u64 + lost;
        assert!((190_000..210_000).contains(&arrived), "{arrived}");
    }

    #[test]
    fn a_stream_begins_again_at_the_end() {
        let mut cursor = 0;
        let starts: Vec<_> = (0..5).map(|_| after(&mut cursor, 3, 10)).collect();
        assert_eq!(starts, [0, 3, 6, 0, 3]);
    }
}
