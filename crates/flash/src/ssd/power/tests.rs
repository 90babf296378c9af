//! A host that loses power again and again, compared with what the flash really holds.

use alloc::collections::BTreeMap;
use alloc::string::String;

use flashyard_time::Rng;

use super::*;
use crate::Profile;
use crate::ssd::{Command, Condition, Op};

const CUTS: u64 = if cfg!(debug_assertions) { 100 } else { 10_000 };
const DEPTH: usize = 24;
/// Units at the beginning that are written often.
const OFTEN: u64 = 400;

/// A drive of two dies, so that everything happens soon, with blocks of several rows.
fn small(name: &str, capacity: u64) -> Device {
    let mut profile = Profile::named(name).expect("it ships");
    (profile.channels, profile.dies_per_channel) = (2, 1);
    profile.buffer_bytes = 2 * profile.row_bytes();
    Device::in_condition(&profile, capacity, 3, Condition::Fragmented(100)).expect("it fits")
}

/// What the host knows of the units it has written, and what the drive reported.
struct Host {
    chance: Rng,
    protected: bool,
    commands: BTreeMap<u64, Command>,
    next_tag: u64,
    /// Units in the order in which they were written, as far as the drive reported, since it was
    /// built.
    order: Vec<u32>,
    /// The write of each unit that is the last one submitted.
    submitted: Vec<u32>,
    /// Units with a command in flight.
    busy: Vec<u32>,
    /// Completed writes, and how many of these were completed before each flush in flight.
    completed: Vec<(u32, u32)>,
    flushes: BTreeMap<u64, usize>,
    /// Of each unit, the last write that has to outlive everything.
    durable: Vec<u32>,
    /// Of each unit, the last write that was deallocated, once that was acknowledged, and before.
    deallocated: Vec<Option<u32>>,
    deallocating: Vec<Option<u32>>,
    /// The first of `order` that was not accepted by any cut before.
    base: u64,
}

impl Host {
    fn new(device: &Device, seed: u64) -> Self {
        let units = device.layout.logical as usize;
        Self {
            chance: Rng::new(seed),
            protected: device.buffer_protected,
            commands: BTreeMap::new(),
            next_tag: 0,
            order: Vec::new(),
            submitted: vec![0; units],
            busy: vec![0; units],
            completed: Vec::new(),
            flushes: BTreeMap::new(),
            durable: vec![0; units],
            deallocated: vec![None; units],
            deallocating: vec![None; units],
            base: 0,
        }
    }

    fn submit(&mut self, device: &mut Device) {
        let units = 1 + self.chance.below(12);
        // A small part of the drive is written often, so that a unit is in the buffer more than
        // once.
        let span = device.capacity() / crate::UNIT_BYTES - units;
        let span = if self.chance.chance(1, 2) {
            OFTEN
        } else {
            span
        };
        let start = self.chance.below(span);
        let op = match self.chance.below(60) {
            0 | 1 => Op::Flush,
            2 => Op::WriteThrough,
            3 => Op::Deallocate,
            4..8 => Op::WriteCold,
            8..12 => Op::Read,
            _ => Op::Write,
        };
        let range = start as usize..(start + units) as usize;
        // Commands that overlap have no order.
        if matches!(op, Op::Flush | Op::Read)
            || self.busy[range.clone()].iter().all(|&busy| busy == 0)
        {
            self.send(device, op, range);
        }
    }

    fn send(&mut self, device: &mut Device, op: Op, range: core::ops::Range<usize>) {
        let tag = self.next_tag;
        self.next_tag += 1;
        match op {
            Op::Read => {}
            Op::Flush => {
                self.flushes.insert(tag, self.completed.len());
            }
            Op::Deallocate => {
                for unit in range.clone() {
                    self.deallocating[unit] = Some(self.submitted[unit]);
                    self.busy[unit] += 1;
                }
            }
            Op::Write | Op::WriteCold | Op::WriteThrough => {
                for unit in range.clone() {
                    self.order.push(unit as u32);
                    self.submitted[unit] += 1;
                    self.busy[unit] += 1;
                }
            }
        }
        let command = Command {
            tag,
            op,
            start: range.start as u64,
            units: range.len() as u32,
        };
        self.commands.insert(tag, command);
        device
            .submit(device.now(), command)
            .expect("it is on the drive");
    }

    fn complete(&mut self, tag: u64) {
        let command = self.commands.remove(&tag).expect("it is in flight");
        let range = command.start as usize..(command.start + u64::from(command.units)) as usize;
        match command.op {
            Op::Read => {}
            Op::Flush => {
                let written = self.flushes.remove(&tag).expect("it is in flight");
                for &(unit, write) in &self.completed[..written] {
                    let durable = &mut self.durable[unit as usize];
                    *durable = write.max(*durable);
                }
            }
            Op::Deallocate => {
                for unit in range {
                    self.busy[unit] -= 1;
                    self.deallocated[unit] = Some(self.submitted[unit]);
                }
            }
            Op::Write | Op::WriteCold | Op::WriteThrough => {
                for unit in range {
                    self.busy[unit] -= 1;
                    let write = self.submitted[unit];
                    self.completed.push((unit as u32, write));
                    if command.op == Op::WriteThrough || self.protected {
                        self.durable[unit] = write;
                    }
                }
            }
        }
    }

    /// Keeps commands in flight until `end`.
    fn run(&mut self, device: &mut Device, end: Time) {
        let mut done = Vec::new();
        loop {
            for _ in self.commands.len()..DEPTH {
                self.submit(device);
            }
            let more = device.advance_to_completion(end, &mut done);
            for completion in done.drain(..) {
                self.complete(completion.tag);
            }
            if !more {
                return;
            }
        }
    }

    /// Forgets what was in flight, and goes on from what the drive holds.
    fn reconnect(&mut self, device: &mut Device) {
        self.commands.clear();
        self.flushes.clear();
        self.completed.clear();
        self.busy.fill(0);
        for unit in 0..self.deallocating.len() {
            // Done, though it was never reported.
            if let Some(gone) = self.deallocating[unit].take()
                && held(device, unit as u32).is_none()
            {
                self.deallocated[unit] = Some(gone);
            }
        }
        let accepted = (device.accepted_units() - self.base) as usize;
        for &unit in &self.order {
            if let Some((_, write)) = held(device, unit) {
                device.map.content.writes[unit as usize] = write;
            }
            self.submitted[unit as usize] = device.map.content.writes[unit as usize];
        }
        assert!(accepted <= self.order.len());
        self.base = device.accepted_units();
        self.order.clear();
    }

    /// Cuts the power now, and says what is wrong with what is left.
    fn cut(&mut self, device: &mut Device, power: &PowerCut) -> Result<Recovered, String> {
        let touched: BTreeMap<u32, Option<(u32, u32)>> = (self.order.iter())
            .map(|&unit| (unit, held(device, unit)))
            .collect();
        let accepted = (device.accepted_units() - self.base) as usize;
        let settled = (device.settled_units().saturating_sub(self.base)) as usize;
        let recovered = device.power_cut(device.now(), power);
        let wrong = |unit: u32, what: &str| Err(alloc::format!("unit {unit}: {what}"));
        for lost in &recovered.lost {
            let unit = lost.unit as u32;
            let unsettled = &self.order[settled..accepted];
            if unsettled.iter().filter(|&&other| other == unit).count() < lost.writes as usize {
                return wrong(unit, "a settled write is lost");
            }
        }
        for (&unit, &before) in &touched {
            let now = held(device, unit);
            let loss = recovered
                .lost
                .binary_search_by_key(&u64::from(unit), |lost| lost.unit);
            let expected = match loss.map(|place| recovered.lost[place]) {
                Err(_) => before,
                Ok(lost) if lost.content == Content::Earlier => {
                    before.map(|(unit, write)| (unit, write - lost.writes))
                }
                Ok(_) => None,
            };
            if now != expected {
                return Err(alloc::format!(
                    "unit {unit}: {now:?} is not {expected:?}, {loss:?}"
                ));
            }
        }
        // All of them now and then: what no command touched is not lost either.
        let all = self.next_tag.is_multiple_of(16);
        for (unit, &durable) in self.durable.iter().enumerate() {
            if !all && !touched.contains_key(&(unit as u32)) && unit >= OFTEN as usize {
                continue;
            }
            let now = held(device, unit as u32);
            if now.is_some_and(|(owner, _)| owner != unit as u32) {
                return wrong(unit as u32, "data of another unit");
            }
            let deallocated = self.deallocated[unit].max(self.deallocating[unit]);
            match now {
                Some((_, write)) if write < durable => return wrong(unit as u32, "too old"),
                Some((_, write)) if self.deallocated[unit].is_some_and(|gone| write <= gone) => {
                    return wrong(unit as u32, "deallocated data is back");
                }
                None if durable > 0 && deallocated.is_none_or(|gone| gone < durable) => {
                    return wrong(unit as u32, "nothing");
                }
                _ => {}
            }
        }
        Ok(recovered)
    }
}

/// What the flash holds where a unit is mapped.
fn held(device: &Device, unit: u32) -> Option<(u32, u32)> {
    match device.map.physical_of[unit as usize] {
        NONE => None,
        place => Some(device.map.content.held[place as usize].unwrap_or((NONE, 0))),
    }
}

fn cut_again_and_again(name: &str, capacity: u64, seed: u64) {
    let mut device = small(name, capacity);
    for unit in 0..device.layout.physical() {
        let logical = device.map.logical_of[unit as usize];
        device.map.content.held[unit as usize] = (logical != NONE).then_some((logical, 0));
    }
    let mut host = Host::new(&device, seed);
    let power = PowerCut::default();
    let (mut lost, mut torn, mut again) = (0, 0, 0);
    for cut in 0..CUTS {
        // Often soon after the last one, sometimes after everything has been overwritten in part.
        let most = [200_000, 1_000_000, 3_000_000, 12_000_000][host.chance.below(4) as usize];
        let span = Duration::from_ns(host.chance.below(most));
        let end = device.now() + span;
        host.run(&mut device, end);
        let recovered = host
            .cut(&mut device, &power)
            .unwrap_or_else(|wrong| panic!("{name}, cut {cut}: {wrong}"));
        if cut % 16 == 0 {
            device
                .check()
                .unwrap_or_else(|wrong| panic!("{name}, cut {cut}: {wrong}"));
        }
        host.reconnect(&mut device);
        lost += recovered.lost.len();
        torn += recovered.torn_programs;
        again += recovered.erased_again;
    }
    let mut done = Vec::new();
    for _ in 0..2_000 {
        host.submit(&mut device);
    }
    let end = device.now() + Duration::from_ms(30_000);
    device.advance(end, &mut done);
    assert_eq!(device.outstanding(), 0, "{name} has come to a halt");
    assert_eq!(lost > 0, !device.buffer_protected, "{name}: {lost} lost");
    assert_eq!(torn > 0, !device.buffer_protected, "{name}: {torn} torn");
    assert!(again > 0 || CUTS < 1_000, "{name}: no erase was cut short");
}

#[test]
fn a_volatile_buffer_loses_nothing_that_was_flushed() {
    cut_again_and_again("970pro", 160 << 20, 1);
}

#[test]
fn a_protected_buffer_loses_nothing_that_was_completed() {
    cut_again_and_again("dct983", 128 << 20, 2);
}
