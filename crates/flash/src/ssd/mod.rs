//! A solid-state drive in the time it is told.
//!
//! A command passes the firmware, one after another, and then either reads or writes. A read senses a page of a
//! die, moves it over the die's channel and over the link to the host. A write is complete once it is in the write
//! buffer; the buffer is programmed one row of dies after another. When free superblocks run out, garbage
//! collection moves what is valid out of the emptiest one and paces the writes of the host, so that writes are
//! cheap until that limit and then suddenly dear. What reads wait for is programmes and erases of their die.
//!
//! The same commands at the same instants give the same completions, however often [`Device::advance`] is called
//! between them, in every build and on every machine.

mod collect;
mod condition;
mod layout;
mod map;
mod outlook;
mod snapshot;
mod stats;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use flashyard_time::Time;

pub use crate::die::DieTime;
pub use condition::{Condition, UnknownCondition};
pub use snapshot::SnapshotError;
pub use stats::Stats;

use crate::die::{Engine, Happened, Lane, Order, Program, Read};
use crate::front::Front;
use crate::{Profile, ProfileError, UNIT_BYTES};
use collect::Collector;
use layout::Layout;
use map::{Map, NONE, Writer};

/// Commands that may be under way at once.
const MOST_COMMANDS: usize = 65_536;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads units.
    Read,
    /// Writes units into the buffer.
    Write,
    /// Writes units that will stay for longer than others, into superblocks of their own.
    WriteCold,
    /// Writes units; complete once they outlive a power cut.
    WriteThrough,
    /// Forgets units.
    Deallocate,
    /// Complete once all writes completed before outlive a power cut; start and units mean nothing.
    Flush,
}

impl Op {
    /// Where what the host writes goes.
    fn writer(self) -> Writer {
        match self {
            Self::WriteCold => Writer::HostCold,
            _ => Writer::Host,
        }
    }
}

/// A command to a drive. Addresses count units of [`UNIT_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// What the completion is told apart by; need not be unique.
    pub tag: u64,
    /// What to do.
    pub op: Op,
    /// The first unit.
    pub start: u64,
    /// How many units.
    pub units: u32,
}

/// A command that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// When it was done.
    pub at: Time,
    /// The tag of the command.
    pub tag: u64,
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// Some unit lies beyond the capacity, or there is none.
    OutOfRange,
    /// As many commands as the drive takes are under way.
    QueueFull,
}

/// Why a drive cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// The profile is not sound.
    Profile(ProfileError),
    /// The capacity in bytes is not a multiple of [`UNIT_BYTES`], or out of these bounds.
    Capacity {
        /// The least that works with this profile.
        least: u64,
        /// More than addresses reach.
        most: u64,
    },
}

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
    /// Rows of the host that are not yet programmed: number and programmes left.
    rows: VecDeque<(u32, u32)>,
    rows_begun: u64,
    rows_done: u64,
    /// Commands that wait until so many rows are programmed.
    barriers: VecDeque<(u64, u32)>,
    collector: Collector,
    done: Vec<Completion>,
    stats: Stats,
    digest: u64,
    seed: u64,
    profile: Profile,
}

/// A command under way.
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
    /// An empty drive of `capacity` bytes. Whatever is left to chance - only preconditioning is - follows from `seed`.
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
            rows: VecDeque::new(),
            rows_begun: 0,
            rows_done: 0,
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
        completions.append(&mut self.done);
    }

    /// Lets time pass until commands are completed and adds these to `completions`; without any until `limit`, and
    /// then says false. Whoever answers completions with commands in virtual time needs no other.
    pub fn advance_to_completion(
        &mut self,
        limit: Time,
        completions: &mut Vec<Completion>,
    ) -> bool {
        self.run_while(limit.as_ns(), |device| device.done.is_empty());
        if self.done.is_empty() {
            self.clock = self.clock.max(limit.as_ns());
            return false;
        }
        completions.append(&mut self.done);
        true
    }

    /// Commands under way.
    pub fn outstanding(&self) -> usize {
        self.commands.len() - self.unused.len()
    }

    /// What was done since the drive was built or restored.
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

    /// Checks what holds at every instant; takes as long as a look at every unit. `Err` says what does not hold.
    pub fn check(&self) -> Result<(), &'static str> {
        self.map.check()?;
        if self.collector.headroom != self.counted_headroom() {
            return Err("the headroom is not what is free");
        }
        // Padding takes no memory, but is counted until it is programmed.
        if self.buffer_used > self.buffer_units + 2 * self.layout.row_units() {
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

    /// Lets everything happen that is due at `now`. An instant that has passed already changes nothing.
    fn run(&mut self, now: u64) {
        self.run_while(now, |_| true);
        self.clock = self.clock.max(now);
    }

    /// Lets what is due at `now` happen as long as it is `wanted`. The clock stays at what happened last.
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
                Happened::Loaded(_) => unreachable!("no programme asks for it"),
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

    /// Divides a read into one operation per cell; what is buffered or was never written takes no flash.
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

    /// All units of a write are in the buffer.
    fn written(&mut self, index: u32) {
        let command = self.commands[index as usize];
        self.link_in_free =
            self.link_in_free.max(self.clock) + u64::from(command.units) * self.front.link_unit;
        if command.op == Op::WriteThrough && !self.buffer_protected {
            self.force_out(index);
        } else {
            self.dies.events.push(
                Lane::WriteDone,
                self.link_in_free + self.front.write_exit,
                index,
            );
        }
    }

    /// Completes `index` when everything the host has written so far is programmed. Rows begun are filled up.
    fn force_out(&mut self, index: u32) {
        for writer in [Writer::Host, Writer::HostCold] {
            self.fill_row(writer);
        }
        self.barriers.push_back((self.rows_begun, index));
        self.release_barriers();
        self.pump();
    }

    fn fill_row(&mut self, writer: Writer) {
        let row = self.layout.row_units();
        loop {
            let point = self.map.points[writer as usize];
            if point.left == 0 || point.next.is_multiple_of(row) {
                break;
            }
            self.append_host(writer, NONE);
            self.collector.headroom -= 1;
            self.stats.padded_units += 1;
        }
    }

    fn release_barriers(&mut self) {
        while let Some(&(rows, index)) = self.barriers.front()
            && rows <= self.rows_done
        {
            self.barriers.pop_front();
            let data = self.link_in_free.max(self.clock);
            self.dies
                .events
                .push_rare(data + self.front.flush, Done(index));
        }
    }

    /// Puts a unit of the host, or padding, into the buffer and begins the programme that it completes.
    fn append_host(&mut self, writer: Writer, logical: u32) {
        let unit = self.map.append(writer, logical);
        self.buffer_used += 1;
        if self.layout.begins_row(unit) {
            self.rows
                .push_back((unit / self.layout.row_units(), self.layout.dies));
            self.rows_begun += 1;
        }
        if let Some(program) = self.layout.completed_by(unit + 1) {
            self.begin_program(program, Writer::Host);
        }
    }

    /// Has the die of `program`, all of whose data is in the buffer, programme it.
    fn begin_program(&mut self, program: u32, writer: Writer) {
        let job = Program {
            token: program,
            die: program % self.layout.dies,
            page_type: self.layout.program_type(program),
            background: writer == Writer::Collector,
            tell_loaded: false,
            longer_by: 0,
        };
        self.dies.program(self.clock, job);
    }

    /// A programme has ended.
    fn programmed(&mut self, program: Program) {
        self.map.set_programmed(program.token);
        if program.background {
            self.collector.buffered -= self.layout.program_units;
        } else {
            self.host_programmed(program.token);
        }
        self.pump();
    }

    /// A programme of the host's data has ended.
    fn host_programmed(&mut self, program: u32) {
        self.buffer_used -= self.layout.program_units;
        let row = program / self.layout.dies;
        if let Some(open) = self.rows.iter_mut().find(|open| open.0 == row) {
            open.1 -= 1;
        }
        while self.rows.front().is_some_and(|front| front.1 == 0) {
            self.rows.pop_front();
            self.rows_done += 1;
        }
        self.release_barriers();
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

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfRange => "no unit, or one beyond the capacity",
            Self::QueueFull => "too many commands are under way",
        })
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Profile(error) => error.fmt(f),
            Self::Capacity { least, most } => {
                write!(
                    f,
                    "the capacity must be a multiple of {UNIT_BYTES} from {least} to {most} bytes"
                )
            }
        }
    }
}

impl core::error::Error for Rejected {}
impl core::error::Error for BuildError {}
