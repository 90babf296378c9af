//! Dies and channels: who may use a die next, and who a channel.
//!
//! A die does one thing at a time. Reads of the host come first, but only so many may overtake what else waits;
//! then erases, reads of garbage collection, and programmes. A programme or erase under way may be suspended for
//! reads of the host. A channel moves data in pieces of 16 KiB, those of reads first.

use alloc::collections::VecDeque;

use flashyard_time::EventKey;

use super::Device;
use super::lanes::{Lane, Rare};
use super::layout::{Cell, Layout};
use super::map::Writer;
use crate::{Profile, UNIT_BYTES};

/// Units of a piece that a channel moves at once.
const PIECE_UNITS: u8 = 4;

/// The times of a profile, as needed on the way of a command. Nanoseconds.
#[derive(Debug)]
pub(super) struct Times {
    command: u64,
    unit: u64,
    pub entry: u64,
    pub read_exit: u64,
    pub write_exit: u64,
    pub buffer_hit: u64,
    pub flush: u64,
    pub link_unit: u64,
    /// Sensing a page of each type, command and address included.
    sense: [u64; 3],
    program: [u64; 3],
    erase: u64,
    /// Moving 1 to 4 units over a channel.
    piece: [u64; PIECE_UNITS as usize],
    suspend: u64,
    resume: u64,
    guard: u64,
    suspends: u8,
    bypass: u16,
    programming_dies: u32,
}

/// A read of one cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// The command, or the first unit of the cell for garbage collection.
    owner: u32,
    die: u32,
    pub units: u8,
    page_type: u8,
    collector: bool,
}

#[derive(Clone, Copy, Debug)]
enum Job {
    Program(u32, Writer),
    Erase(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// Sensing, then waiting for the channel and moving.
    Reading,
    /// Taking the data of a programme.
    Loading,
    /// Programming or erasing.
    Working,
    Suspending,
    Resuming,
}

#[derive(Debug)]
pub(super) struct Die {
    phase: Phase,
    /// When the phase began.
    since: u64,
    read: Read,
    /// The programme or erase under way, suspended or not.
    job: Option<Job>,
    /// How long the suspended job still takes.
    paused: Option<u64>,
    /// The end of the job, while it works.
    end: Option<(u64, EventKey)>,
    suspends: u8,
    /// Host reads since something else began to wait.
    overtaken: u16,
    /// Waits for fewer dies to programme.
    in_power_queue: bool,
    /// Units still to be moved.
    moving: u8,
    host_reads: VecDeque<Read>,
    collector_reads: VecDeque<Read>,
    programs: VecDeque<(u32, Writer)>,
    erases: VecDeque<u32>,
}

/// A channel.
#[derive(Debug)]
pub(super) struct Bus {
    /// The die whose piece is moved, and the units of the piece.
    current: Option<(u32, u8)>,
    reads: VecDeque<u32>,
    programs: VecDeque<u32>,
}

impl Times {
    pub fn new(profile: &Profile) -> Self {
        let moving = |units: u64, rate: u64| (units * UNIT_BYTES * 1_000_000_000 + rate / 2) / rate;
        let sense = |ns: u64| ns + profile.read_overhead_ns;
        Self {
            command: profile.command_ns,
            unit: profile.unit_ns,
            entry: profile.entry_ns,
            read_exit: profile.read_exit_ns,
            write_exit: profile.write_exit_ns,
            buffer_hit: profile.buffer_hit_ns,
            flush: profile.flush_ns,
            link_unit: moving(1, profile.link_bytes_per_second),
            sense: [
                sense(profile.read_lower_ns),
                sense(profile.read_middle_ns),
                sense(profile.read_upper_ns),
            ],
            program: [
                profile.program_ns,
                profile.program_upper_ns,
                profile.program_upper_ns,
            ],
            erase: profile.erase_ns,
            piece: core::array::from_fn(|units| {
                moving(units as u64 + 1, profile.channel_bytes_per_second)
            }),
            suspend: profile.suspend_ns,
            resume: profile.resume_ns,
            guard: profile.suspend_guard_ns,
            suspends: profile.suspends as u8,
            bypass: profile.read_bypass as u16,
            programming_dies: profile.programming_dies as u32,
        }
    }

    /// Firmware time of a command of `units`.
    pub fn firmware(&self, units: u32) -> u64 {
        self.command + u64::from(units - 1) * self.unit
    }
}

impl Read {
    /// A read of one unit of a cell for a command.
    pub fn of_host(command: u32, cell: Cell) -> Self {
        Self {
            owner: command,
            die: cell.die,
            units: 1,
            page_type: cell.page_type,
            collector: false,
        }
    }

    /// A read of `units` of the cell that begins at `first`, for garbage collection.
    pub fn of_collector(first: u32, units: u8, cell: Cell) -> Self {
        Self {
            owner: first,
            die: cell.die,
            units,
            page_type: cell.page_type,
            collector: true,
        }
    }
}

impl Die {
    pub fn new() -> Self {
        Self {
            phase: Phase::Idle,
            since: 0,
            read: Read::of_host(
                0,
                Cell {
                    die: 0,
                    page_type: 0,
                },
            ),
            job: None,
            paused: None,
            end: None,
            suspends: 0,
            overtaken: 0,
            in_power_queue: false,
            moving: 0,
            host_reads: VecDeque::with_capacity(64),
            collector_reads: VecDeque::with_capacity(16),
            programs: VecDeque::with_capacity(16),
            erases: VecDeque::with_capacity(16),
        }
    }

    /// Whether anything but reads of the host waits.
    fn others_wait(&self) -> bool {
        self.paused.is_some()
            || !self.programs.is_empty()
            || !self.collector_reads.is_empty()
            || !self.erases.is_empty()
    }
}

impl Bus {
    pub fn new(layout: &Layout) -> Self {
        let dies = (layout.dies / layout.channels) as usize;
        Self {
            current: None,
            reads: VecDeque::with_capacity(dies),
            programs: VecDeque::with_capacity(dies),
        }
    }
}

impl Device {
    pub(super) fn queue_host_read(&mut self, read: Read) {
        let die = &mut self.dies[read.die as usize];
        die.host_reads.push_back(read);
        match die.phase {
            Phase::Idle => self.dispatch(read.die),
            Phase::Working => self.maybe_suspend(read.die),
            _ => {}
        }
    }

    pub(super) fn queue_collector_read(&mut self, read: Read) {
        self.dies[read.die as usize].collector_reads.push_back(read);
        self.dispatch_if_idle(read.die);
    }

    pub(super) fn queue_program(&mut self, program: u32, writer: Writer) {
        let die = program % self.layout.dies;
        self.dies[die as usize]
            .programs
            .push_back((program, writer));
        self.dispatch_if_idle(die);
    }

    /// Erases `superblock` on every die.
    pub(super) fn queue_erases(&mut self, superblock: u32) {
        for die in 0..self.layout.dies {
            self.dies[die as usize].erases.push_back(superblock);
            self.dispatch_if_idle(die);
        }
    }

    fn dispatch_if_idle(&mut self, die: u32) {
        if self.dies[die as usize].phase == Phase::Idle {
            self.dispatch(die);
        }
    }

    /// Begins what an idle die does next.
    fn dispatch(&mut self, index: u32) {
        let bypass = self.times.bypass;
        let die = &mut self.dies[index as usize];
        let others = die.others_wait();
        if !others {
            die.overtaken = 0;
        }
        if (!others || die.overtaken < bypass)
            && let Some(read) = die.host_reads.pop_front()
        {
            die.overtaken += u16::from(others);
            return self.begin_read(index, read);
        }
        if let Some(left) = die.paused.take() {
            die.overtaken = 0;
            die.paused = Some(left);
            return self.begin_switch(index, Phase::Resuming);
        }
        if let Some(superblock) = die.erases.pop_front() {
            die.overtaken = 0;
            die.job = Some(Job::Erase(superblock));
            die.suspends = 0;
            return self.begin_work(index, self.times.erase);
        }
        if let Some(read) = die.collector_reads.pop_front() {
            die.overtaken = 0;
            return self.begin_read(index, read);
        }
        if !die.programs.is_empty() && self.may_program(index) {
            return self.begin_program(index);
        }
        // What waits is a programme that the power budget holds back; it must not hold back reads.
        if let Some(read) = self.dies[index as usize].host_reads.pop_front() {
            self.begin_read(index, read);
        }
    }

    fn begin_read(&mut self, index: u32, read: Read) {
        let die = &mut self.dies[index as usize];
        (die.phase, die.since, die.read) = (Phase::Reading, self.clock, read);
        let sensed = self.clock + self.times.sense[read.page_type as usize];
        self.lanes.push(Lane::sense(read.page_type), sensed, index);
    }

    /// A die has sensed its page and wants the channel.
    pub(super) fn sensed(&mut self, index: u32) {
        let die = &mut self.dies[index as usize];
        die.moving = die.read.units;
        let bus = index % self.layout.channels;
        self.buses[bus as usize].reads.push_back(index);
        self.begin_move(bus);
    }

    /// Whether the power budget lets another die programme; if not, the die is called when it does.
    fn may_program(&mut self, index: u32) -> bool {
        if self.programming < self.times.programming_dies {
            return true;
        }
        let die = &mut self.dies[index as usize];
        if !core::mem::replace(&mut die.in_power_queue, true) {
            self.power_queue.push_back(index);
        }
        false
    }

    fn begin_program(&mut self, index: u32) {
        self.programming += 1;
        let die = &mut self.dies[index as usize];
        let (program, writer) = die.programs.pop_front().expect("the caller saw one");
        die.job = Some(Job::Program(program, writer));
        die.suspends = 0;
        die.overtaken = 0;
        (die.phase, die.since) = (Phase::Loading, self.clock);
        die.moving = self.layout.program_units as u8;
        let bus = index % self.layout.channels;
        self.buses[bus as usize].programs.push_back(index);
        self.begin_move(bus);
    }

    /// Lets a free channel move the next piece.
    fn begin_move(&mut self, index: u32) {
        let bus = &mut self.buses[index as usize];
        if bus.current.is_some() {
            return;
        }
        let Some(die) = bus.reads.pop_front().or_else(|| bus.programs.pop_front()) else {
            return;
        };
        let units = self.dies[die as usize].moving.min(PIECE_UNITS);
        bus.current = Some((die, units));
        let moved = self.clock + self.times.piece[units as usize - 1];
        self.lanes.push(Lane::moving(units), moved, index);
    }

    /// A channel has moved a piece.
    pub(super) fn moved(&mut self, index: u32) {
        let bus = &mut self.buses[index as usize];
        let (die_index, units) = bus.current.take().expect("only a busy channel moves");
        let die = &mut self.dies[die_index as usize];
        die.moving -= units;
        if die.moving > 0 {
            match die.phase {
                Phase::Reading => bus.reads.push_front(die_index),
                _ => bus.programs.push_front(die_index),
            }
            return self.begin_move(index);
        }
        self.begin_move(index);
        match self.dies[die_index as usize].phase {
            Phase::Reading => self.read_moved(die_index),
            _ => self.loaded(die_index),
        }
    }

    fn read_moved(&mut self, index: u32) {
        let die = &mut self.dies[index as usize];
        self.stats.die_time.reading += self.clock - die.since;
        die.phase = Phase::Idle;
        let read = die.read;
        if read.collector {
            self.dispatch(index);
            self.collector_read(read.owner, u32::from(read.units));
        } else {
            self.send(read.owner, u32::from(read.units));
            self.dispatch(index);
        }
    }

    fn loaded(&mut self, index: u32) {
        let die = &mut self.dies[index as usize];
        self.stats.die_time.loading += self.clock - die.since;
        let Some(Job::Program(program, _)) = die.job else {
            unreachable!("only a programme is loaded")
        };
        let page_type = self.layout.program_type(program);
        self.begin_work(index, self.times.program[page_type as usize]);
    }

    /// Programmes or erases for `span`.
    fn begin_work(&mut self, index: u32, span: u64) {
        let at = self.clock + span;
        let key = self.lanes.push_rare(at, Rare::JobDone(index));
        let die = &mut self.dies[index as usize];
        (die.phase, die.since, die.end) = (Phase::Working, self.clock, Some((at, key)));
        if !die.host_reads.is_empty() {
            self.maybe_suspend(index);
        }
    }

    /// Suspends the job of a die for a read that waits, if it may be.
    fn maybe_suspend(&mut self, index: u32) {
        let die = &mut self.dies[index as usize];
        let (at, key) = die.end.expect("a working die has an end");
        if die.suspends >= self.times.suspends || at - self.clock <= self.times.guard {
            return;
        }
        die.suspends += 1;
        die.overtaken = 0;
        die.paused = Some(at - self.clock);
        die.end = None;
        self.lanes.cancel(key);
        self.stats.suspends += 1;
        self.count_work(index);
        self.begin_switch(index, Phase::Suspending);
    }

    fn begin_switch(&mut self, index: u32, phase: Phase) {
        let die = &mut self.dies[index as usize];
        (die.phase, die.since) = (phase, self.clock);
        let (span, event) = match phase {
            Phase::Suspending => (self.times.suspend, Rare::Suspended(index)),
            _ => (self.times.resume, Rare::Resumed(index)),
        };
        self.lanes.push_rare(self.clock + span, event);
    }

    pub(super) fn suspended(&mut self, index: u32) {
        let die = &mut self.dies[index as usize];
        self.stats.die_time.switching += self.clock - die.since;
        die.phase = Phase::Idle;
        self.dispatch(index);
    }

    pub(super) fn resumed(&mut self, index: u32) {
        let die = &mut self.dies[index as usize];
        self.stats.die_time.switching += self.clock - die.since;
        let left = die.paused.take().expect("only what is suspended resumes");
        self.begin_work(index, left);
    }

    /// Counts the time a die worked since its phase began.
    fn count_work(&mut self, index: u32) {
        let die = &self.dies[index as usize];
        let worked = self.clock - die.since;
        match die.job {
            Some(Job::Program(..)) => self.stats.die_time.programming += worked,
            _ => self.stats.die_time.erasing += worked,
        }
    }

    /// A programme or erase has ended.
    pub(super) fn job_done(&mut self, index: u32) {
        self.count_work(index);
        let die = &mut self.dies[index as usize];
        (die.phase, die.end) = (Phase::Idle, None);
        match die.job.take().expect("a working die has a job") {
            Job::Program(program, writer) => {
                self.programming -= 1;
                self.stats.programs += 1;
                self.map.set_programmed(program);
                match writer {
                    Writer::Host => self.host_programmed(program),
                    Writer::Collector => self.collector.buffered -= self.layout.program_units,
                }
                self.dispatch(index);
                self.give_power();
            }
            Job::Erase(superblock) => {
                self.stats.erases += 1;
                self.dispatch(index);
                self.erased(superblock);
            }
        }
        self.pump();
    }

    /// Calls dies that wait to programme, as long as the budget lasts.
    fn give_power(&mut self) {
        for _ in 0..self.power_queue.len() {
            if self.programming >= self.times.programming_dies {
                return;
            }
            let Some(index) = self.power_queue.pop_front() else {
                return;
            };
            self.dies[index as usize].in_power_queue = false;
            self.dispatch_if_idle(index);
        }
    }
}
