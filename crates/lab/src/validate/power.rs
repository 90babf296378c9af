//! Test 17: the power goes, again and again, and a host looks at what is left of its writes.
//!
//! Here the drives are checked against what they report, as their owner sees it. The tests of the
//! drives themselves compare their flash, cell by cell.

use std::collections::{BTreeMap, VecDeque};

use flashyard_time::{Duration, Rng, Time};

use super::bench::{Bench, FRAGMENTED, shipped};
use super::channel_power;
use super::row::Row;
use flashyard_flash::Profile;
use flashyard_flash::ssd::{Command, Content, Device, Op, PowerCut};

/// Commands that the host keeps in flight.
const DEPTH: usize = 16;
/// Units that it writes to: few, so that many are written while an earlier write is not yet
/// programmed.
const UNITS: u64 = 4096;

/// Test 17.
pub(super) fn cuts(bench: &Bench) -> Vec<Row> {
    let cuts = if bench.full { 10_000 } else { 100 };
    let mut rows = Vec::new();
    for (name, wrong, lost) in [
        (
            "dct983",
            "protected buffer: what had to stay and did not",
            "protected buffer: writes lost",
        ),
        (
            "970pro",
            "volatile buffer: what had to stay and did not",
            "volatile buffer: writes lost, at least",
        ),
    ] {
        let mut host = Host::new(name);
        for _ in 0..cuts {
            host.live_and_lose_power();
        }
        host.work(host.device.now() + Duration::from_ms(1));
        host.finish();
        rows.push(Row::exact(wrong, 0, host.wrong));
        rows.push(if host.protected {
            Row::exact(lost, 0, host.lost)
        } else {
            Row::within(lost, 1.0, host.lost as f64, (0.0, f64::INFINITY))
                .note("none of them was flushed")
        });
    }
    rows.extend(channel_power::cuts(bench));
    rows
}

struct Host {
    device: Device,
    protected: bool,
    chance: Rng,
    /// Commands in flight by tag; of a flush, how many writes were complete before it.
    in_flight: BTreeMap<u64, (Command, usize)>,
    tags: u64,
    /// Units in the order in which they were written since the last cut, and how many were accepted
    /// before it.
    order: VecDeque<u32>,
    accepted: u64,
    /// Units and numbers of the writes that are complete since the last cut.
    completed: Vec<(u32, u32)>,
    units: Vec<Unit>,
    wrong: u64,
    lost: u64,
}

/// What the host knows of a unit. Writes of it are numbered from one; at first it holds write zero.
#[derive(Clone, Copy, Debug, Default)]
struct Unit {
    submitted: u32,
    /// The last write that has to outlive a power cut.
    durable: u32,
    busy: bool,
}

impl Host {
    /// A host of a drive of four dies, so that everything happens soon.
    fn new(name: &str) -> Self {
        let mut profile = Profile {
            channels: 2,
            dies_per_channel: 2,
            ..shipped(name)
        };
        profile.buffer_bytes = 2 * profile.row_bytes();
        let device = Device::in_condition(&profile, 256 << 20, 3, FRAGMENTED);
        Self {
            device: device.expect("the capacity suits the profile"),
            protected: profile.buffer_protected == 1,
            chance: Rng::new(4),
            in_flight: BTreeMap::new(),
            tags: 0,
            order: VecDeque::new(),
            accepted: 0,
            completed: Vec::new(),
            units: vec![Unit::default(); UNITS as usize],
            wrong: 0,
            lost: 0,
        }
    }

    /// Works for a while, often a short one, and compares what the drive has after a power cut.
    fn live_and_lose_power(&mut self) {
        let most = [300_000, 3_000_000, 30_000_000][self.chance.below(3) as usize];
        let cut = self.device.now() + Duration::from_ns(self.chance.below(most));
        self.work(cut);
        self.lose_power(cut);
    }

    fn work(&mut self, end: Time) {
        let mut done = Vec::new();
        loop {
            while self.in_flight.len() < DEPTH {
                self.submit();
            }
            let Some(next) = self.device.next_event().filter(|next| *next <= end) else {
                return;
            };
            self.device.advance(next, &mut done);
            for completion in done.drain(..) {
                self.complete(completion.tag);
            }
        }
    }

    /// Waits for what is in flight: a drive that came to a halt never ends it.
    fn finish(&mut self) {
        self.device.advance(Time::MAX, &mut Vec::new());
        self.wrong += self.device.outstanding() as u64;
    }

    fn submit(&mut self) {
        let units = 1 + self.chance.below(8);
        let op = match self.chance.below(40) {
            0 => Op::Flush,
            1 => Op::WriteThrough,
            2..5 => Op::WriteCold,
            5..8 => Op::Read,
            _ => Op::Write,
        };
        let command = Command {
            tag: self.tags,
            op,
            start: self.chance.below(UNITS - units),
            units: units as u32,
        };
        if writes(op) {
            let range = range(&command);
            // Writes of one unit that overlap have no order.
            if self.units[range.clone()].iter().any(|unit| unit.busy) {
                return;
            }
            for unit in range {
                self.order.push_back(unit as u32);
                self.units[unit].busy = true;
                self.units[unit].submitted += 1;
            }
        }
        self.tags += 1;
        let before = (command, self.completed.len());
        self.in_flight.insert(command.tag, before);
        self.device
            .submit(self.device.now(), command)
            .expect("the address lies on the drive");
    }

    fn complete(&mut self, tag: u64) {
        let (command, before) = self.in_flight.remove(&tag).expect("it is in flight");
        if command.op == Op::Flush {
            for &(unit, write) in &self.completed[..before] {
                let durable = &mut self.units[unit as usize].durable;
                *durable = write.max(*durable);
            }
        }
        if !writes(command.op) {
            return;
        }
        for place in range(&command) {
            let unit = &mut self.units[place];
            unit.busy = false;
            self.completed.push((place as u32, unit.submitted));
            if self.protected || command.op == Op::WriteThrough {
                unit.durable = unit.submitted;
            }
        }
    }

    fn lose_power(&mut self, at: Time) {
        let recovered = self.device.power_cut(at, &PowerCut::default());
        // What was not accepted was never written.
        let accepted = self.device.accepted_units() - self.accepted;
        self.accepted += accepted;
        for unit in self.order.drain(..).skip(accepted as usize) {
            self.units[unit as usize].submitted -= 1;
        }
        for lost in &recovered.lost {
            let Some(unit) = self.units.get_mut(lost.unit as usize) else {
                self.wrong += 1;
                continue;
            };
            self.lost += u64::from(lost.writes);
            let left = unit.submitted.checked_sub(lost.writes);
            let kept = left.is_some_and(|left| left >= unit.durable);
            self.wrong += u64::from(!kept || lost.content != Content::Earlier);
            unit.submitted = left.unwrap_or(0);
        }
        for unit in &mut self.units {
            unit.busy = false;
            self.wrong += u64::from(unit.submitted < unit.durable);
        }
        self.in_flight.clear();
        self.completed.clear();
        self.wrong += u64::from(self.device.outstanding() != 0);
        if self.chance.chance(1, 16) {
            self.wrong += u64::from(self.device.check().is_err());
        }
    }
}

fn writes(op: Op) -> bool {
    matches!(op, Op::Write | Op::WriteCold | Op::WriteThrough)
}

fn range(command: &Command) -> core::ops::Range<usize> {
    command.start as usize..command.start as usize + command.units as usize
}
