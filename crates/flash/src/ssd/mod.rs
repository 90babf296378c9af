//! A solid-state drive, as a model in virtual time.
//!
//! A command passes the firmware, one after another, and then either reads or writes. A read senses
//! a page of a die, moves it over the die's channel and over the link to the host. A write is
//! complete once it is in the write buffer; the buffer is programmed one row of dies after another.
//! When free superblocks run out, garbage collection moves valid data out of the emptiest one and
//! throttles the writes of the host: writes are cheap up to that limit and suddenly expensive above
//! it. Reads wait for programs and erases of their die.
//!
//! The same commands at the same instants give the same completions, however often
//! [`Device::advance`] is called between them, in every build and on every machine.

mod buffer;
mod collect;
mod command;
mod condition;
mod layout;
mod map;
mod outlook;
mod power;
mod snapshot;
mod stats;
mod unsettled;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flashyard_time::Time;

pub use crate::die::DieTime;
pub use command::{BuildError, Command, Completion, Op, Rejected};
pub use condition::{Condition, UnknownCondition};
pub use power::{Content, Lost, PowerCut, Recovered};
pub use snapshot::SnapshotError;
pub use stats::Stats;

use crate::die::{Engine, Happened, Lane, Order, Read};
use crate::front::Front;
use crate::{Profile, UNIT_BYTES};
use collect::Collector;
use layout::Layout;
use map::{Map, NONE};
use unsettled::{Mark, Unsettled};

/// Commands that may be in flight at once.
const MOST_COMMANDS: usize = 65_536;

/// A command without data is complete.
#[derive(Clone, Copy, Debug)]
struct Done(u32);

/// A drive.
#[derive(Debug)]
pub struct Device {
    clock: u64,
    layout: Layout,
    front: Front,
    map: Map,
    dies: Engine<Done>,
    commands: Vec<Active>,
    unused: Vec<u32>,
    /// When the firmware and each direction of the link are free.
    firmware_free: u64,
    link_out_free: u64,
    link_in_free: u64,
    /// Writes that wait for room in the buffer, for the pace or for free flash.
    waiting: VecDeque<u32>,
    buffer_units: u32,
    buffer_used: u32,
    buffer_protected: bool,
    /// Programs that were given to the dies and have not ended.
    programs_in_flight: u32,
    unsettled: Unsettled,
    /// Commands that wait until what was written before them is settled.
    barriers: VecDeque<(Mark, u32)>,
    collector: Collector,
    done: Vec<Completion>,
    stats: Stats,
    digest: u64,
    seed: u64,
    profile: Profile,
}

/// A command in flight.
#[derive(Clone, Copy, Debug)]
struct Active {
    tag: u64,
    op: Op,
    start: u32,
    units: u32,
    /// Units of a write that are in the buffer.
    admitted: u32,
    /// Parts of a read that are not at the host.
    parts: u32,
}

impl Device {
    /// An empty drive of `capacity` bytes. `seed` decides what is random, which is only the
    /// preconditioning.
    pub fn new(profile: &Profile, capacity: u64, seed: u64) -> Result<Self, BuildError> {
        let layout = Layout::new(profile, capacity)?;
        let map = Map::new(&layout);
        let collector = Collector::new(profile, &layout);
        let depth = 256;
        Ok(Self {
            clock: 0,
            dies: Engine::new(profile, Order::of(profile)),
            front: Front::new(profile),
            commands: Vec::with_capacity(depth),
            unused: Vec::with_capacity(depth),
            firmware_free: 0,
            link_out_free: 0,
            link_in_free: 0,
            waiting: VecDeque::with_capacity(depth),
            buffer_units: (profile.buffer_bytes / UNIT_BYTES).min(u64::from(u32::MAX)) as u32,
            buffer_used: 0,
            buffer_protected: profile.buffer_protected == 1,
            programs_in_flight: 0,
            unsettled: Unsettled::default(),
            barriers: VecDeque::new(),
            collector,
            done: Vec::with_capacity(depth),
            stats: Stats::default(),
            digest: 0,
            seed,
            profile: profile.clone(),
            layout,
            map,
        })
    }

    /// Bytes that can be addressed.
    pub fn capacity(&self) -> u64 {
        u64::from(self.layout.logical) * UNIT_BYTES
    }

    /// Takes a command at `now`. Events up to `now` happen before it.
    pub fn submit(&mut self, now: Time, command: Command) -> Result<(), Rejected> {
        self.run(now.as_ns());
        let (start, units) = self.addressed(&command)?;
        if self.commands.len() - self.unused.len() >= MOST_COMMANDS {
            return Err(Rejected::QueueFull);
        }
        let active = Active {
            tag: command.tag,
            op: command.op,
            start,
            units,
            admitted: 0,
            parts: 0,
        };
        let index = if let Some(index) = self.unused.pop() {
            self.commands[index as usize] = active;
            index
        } else {
            self.commands.push(active);
            self.commands.len() as u32 - 1
        };
        self.map.look_ahead(start, command.op == Op::Write);
        self.firmware_free = self.firmware_free.max(self.clock) + self.front.firmware(units);
        self.dies
            .events
            .push(Lane::Arrive, self.firmware_free + self.front.entry, index);
        Ok(())
    }

    /// When something happens next, if nothing is submitted before; nothing when the drive is idle.
    pub fn next_event(&self) -> Option<Time> {
        if self.done.is_empty() {
            self.dies.events.next_time().map(Time::from_ns)
        } else {
            Some(Time::from_ns(self.clock))
        }
    }

    /// Lets time pass until `now` and adds what was completed to `completions`, in order.
    pub fn advance(&mut self, now: Time, completions: &mut Vec<Completion>) {
        self.run(now.as_ns());
        self.tell(completions);
    }

    /// Lets time pass until commands are completed, and adds these to `completions`. When none is
    /// until `limit`, says false; time then stands at what happened last. A caller that answers
    /// completions with commands in virtual time needs no other function.
    pub fn advance_to_completion(
        &mut self,
        limit: Time,
        completions: &mut Vec<Completion>,
    ) -> bool {
        self.run_while(limit.as_ns(), |device| device.done.is_empty());
        let any = !self.done.is_empty();
        self.tell(completions);
        any
    }

    fn tell(&mut self, completions: &mut Vec<Completion>) {
        // Copying what was written just before would wait for all that was written before that.
        if completions.is_empty() {
            core::mem::swap(completions, &mut self.done);
        } else {
            completions.append(&mut self.done);
        }
    }

    /// Commands in flight.
    pub fn outstanding(&self) -> usize {
        self.commands.len() - self.unused.len()
    }

    /// Counters since the drive was built or restored.
    pub fn stats(&self) -> Stats {
        let flash = self.dies.total();
        Stats {
            buffered_units: self.buffer_used,
            waiting_writes: self.waiting.len() as u32,
            free_superblocks: self.map.free.len() as u32,
            programs: flash.programs,
            erases: flash.erases,
            suspends: flash.suspends,
            die_time: flash.time,
            ..self.stats
        }
    }

    /// Units of a superblock, the unit of garbage collection.
    pub fn superblock_units(&self) -> u32 {
        self.layout.superblock_units
    }

    /// How often each superblock was erased.
    pub fn erase_counts(&self) -> &[u32] {
        &self.map.erases
    }

    /// A number that depends on instant, tag and order of every completion so far.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Checks the invariants; takes as long as a scan of every unit. `Err` names the one that is
    /// violated.
    pub fn check(&self) -> Result<(), &'static str> {
        self.map.check()?;
        if self.collector.headroom != self.counted_headroom() {
            return Err("the headroom is not what is free");
        }
        // Padding takes no memory, but is counted until it is programmed.
        if self.buffer_used > self.buffer_units + 2 * self.layout.group_units() {
            return Err("more is buffered than fits");
        }
        Ok(())
    }

    fn addressed(&self, command: &Command) -> Result<(u32, u32), Rejected> {
        if command.op == Op::Flush {
            return Ok((0, 1));
        }
        let capacity = u64::from(self.layout.logical);
        let end = command.start.checked_add(u64::from(command.units));
        if command.units == 0 || end.is_none_or(|end| end > capacity) {
            return Err(Rejected::OutOfRange);
        }
        Ok((command.start as u32, command.units))
    }

    /// Lets everything happen that is due at `now`. An instant that has passed already changes
    /// nothing.
    fn run(&mut self, now: u64) {
        self.run_while(now, |_| true);
        self.clock = self.clock.max(now);
    }

    /// Lets what is due at `now` happen as long as it is `wanted`. The clock stays at what happened
    /// last.
    fn run_while(&mut self, now: u64, wanted: impl Fn(&Self) -> bool) {
        while wanted(self)
            && let Some((at, happened)) = self.dies.next(now)
        {
            self.clock = at;
            match happened {
                Happened::Sorted(Lane::Arrive, command) => self.arrive(command),
                Happened::Sorted(Lane::Hit, command) => {
                    let units = self.commands[command as usize].admitted;
                    self.send(command, units);
                }
                Happened::Sorted(Lane::Admit, _) => {
                    self.collector.timer = false;
                    self.pump();
                }
                Happened::Sorted(_, command) | Happened::Rare(Done(command)) => {
                    self.complete(command);
                }
                Happened::Read(read) if read.background => {
                    self.collector_read(read.token, u32::from(read.units));
                }
                Happened::Read(read) => self.send(read.token, u32::from(read.units)),
                Happened::Programmed(program) => self.programmed(program),
                Happened::Loaded(_) => unreachable!("no program asks for it"),
                Happened::Erased(erase) => {
                    self.erased(erase.token);
                    self.pump();
                }
            }
        }
    }

    /// A command has left the firmware.
    fn arrive(&mut self, index: u32) {
        let command = self.commands[index as usize];
        match command.op {
            Op::Read => self.read(index, command),
            Op::Write | Op::WriteCold | Op::WriteThrough => {
                self.waiting.push_back(index);
                // What the first one waits for, those behind it do, too.
                if self.waiting.len() == 1 {
                    self.pump();
                }
            }
            Op::Deallocate => {
                for logical in command.start..command.start + command.units {
                    self.stats.deallocated_units += u64::from(self.map.unmap(logical));
                }
                self.dies
                    .events
                    .push_rare(self.clock + self.front.write_exit, Done(index));
            }
            Op::Flush if self.buffer_protected => {
                self.dies
                    .events
                    .push_rare(self.clock + self.front.flush, Done(index));
            }
            Op::Flush => self.force_out(index),
        }
    }

    /// Divides a read into one operation per cell; what is buffered or was never written takes no
    /// flash.
    fn read(&mut self, index: u32, command: Active) {
        let (mut parts, mut buffered) = (0, 0);
        let mut pending: Option<(u32, Read)> = None;
        self.commands[index as usize].parts = u32::MAX;
        for logical in command.start..command.start + command.units {
            let unit = self.map.physical_of[logical as usize];
            if unit == NONE || !self.map.is_programmed(self.layout.program(unit)) {
                buffered += 1;
                continue;
            }
            let cell = self.layout.cell_number(unit);
            if let Some((open, read)) = &mut pending
                && *open == cell
            {
                read.units += 1;
                continue;
            }
            let place = self.layout.cell(unit);
            let read = Read {
                token: index,
                die: place.die,
                units: 1,
                page_type: place.page_type,
                background: false,
            };
            if let Some((_, ready)) = pending.replace((cell, read)) {
                self.dies.read(self.clock, ready);
            }
            parts += 1;
        }
        if let Some((_, ready)) = pending {
            self.dies.read(self.clock, ready);
        }
        if buffered > 0 {
            parts += 1;
            self.commands[index as usize].admitted = buffered;
            self.dies
                .events
                .push(Lane::Hit, self.clock + self.front.buffer_hit, index);
        }
        self.commands[index as usize].parts = parts;
        self.stats.read_units += u64::from(command.units);
        self.stats.buffer_hits += u64::from(buffered);
    }

    /// Sends a part of a read over the link.
    fn send(&mut self, index: u32, units: u32) {
        self.link_out_free =
            self.link_out_free.max(self.clock) + u64::from(units) * self.front.link_unit;
        let command = &mut self.commands[index as usize];
        command.parts -= 1;
        if command.parts == 0 {
            self.dies.events.push(
                Lane::ReadDone,
                self.link_out_free + self.front.read_exit,
                index,
            );
        }
    }

    fn complete(&mut self, index: u32) {
        let tag = self.commands[index as usize].tag;
        self.unused.push(index);
        let mixed = (self.clock ^ tag.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.digest = (self.digest.rotate_left(5) ^ mixed).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        self.stats.completions += 1;
        self.done.push(Completion {
            at: Time::from_ns(self.clock),
            tag,
        });
    }
}
