//! Runs a translation layer over parallel units: the layer decides, this moves the data and waits.
//!
//! Queues, write buffer and what may be in flight are of this span alone. A host's data go into the
//! write buffer, or come out of it or of the flash, when the layer says so; a command is answered
//! when the layer says that it is done.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use flashyard_block::IoError;
use flashyard_flash::channel::Op as VectorOp;
use flashyard_flash::ftl::{self, Action, Ftl, IoOp, Op, Outcome, Part, State, Tag};
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Buf, Shared};
use flashyard_time::{Histogram, Time};

use super::error::PartitionError;
use super::layout;
use super::medium::SECTOR;
use super::units::{OwnUnits, Scope, Turns};
use crate::backing::{Backing, Done, Owner, Vector};

/// Commands of hosts that may be in flight.
const MOST_COMMANDS: usize = 1024;

/// See the module.
pub(super) struct Span {
    units: OwnUnits,
    formatted: bool,
    /// The units go to another owner: nothing is submitted any more.
    retired: Cell<bool>,
    capacity: Cell<u64>,
    state: Cell<State>,
    changed: Notify,
    work: RefCell<Work>,
}

/// The translation layer, and the data in flight.
struct Work {
    ftl: Ftl,
    /// The write buffer, a sector for each slot.
    slots: Vec<u8>,
    turns: Turns,
    commands: Vec<Command>,
    unused: Vec<u32>,
    woken: Vec<Waker>,
    /// Ends that are to be reported to the layer, because the device took nothing of them.
    refused: VecDeque<(Tag, u64)>,
}

struct Command {
    stage: Stage,
    op: Op,
    moved: Moved,
    /// Some of the data were not zeros.
    data: bool,
}

/// The data of a host's command.
pub(super) enum Moved {
    Nothing,
    Into(Buf),
    From(Shared),
}

enum Stage {
    Unused,
    Waiting(Option<Waker>),
    /// No task waits any more; the command goes on.
    Abandoned,
    Done(Outcome),
    /// The device has failed.
    Lost,
    /// It waits for space for so long that the waiting task gets an error.
    Full,
}

/// How a span starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// All units are erased.
    Format,
    /// The existing data are recovered.
    Recover,
}

impl Span {
    /// Starts; [`Span::ready`] finishes when commands are accepted.
    pub fn begin(
        drive: &Rc<dyn Backing>,
        span: &layout::Span,
        over_provisioning: u32,
        begin: Begin,
    ) -> Result<Rc<Self>, PartitionError> {
        let options = ftl::Options {
            over_provisioning,
            writes_per_chunk: drive.writes_per_chunk(),
            ..ftl::Options::default()
        };
        let scope = || Scope::Units(span.units.clone());
        let geometry = drive.geometry();
        let no_owner: Weak<Self> = Weak::new();
        let report = OwnUnits::new(drive, scope(), no_owner).report();
        let build = match begin {
            Begin::Format => Ftl::format,
            Begin::Recover => Ftl::recover,
        };
        let ftl = build(geometry, &span.units, report, span.key, options)?;
        let work = Work {
            slots: vec![0; ftl.slots() as usize * SECTOR],
            turns: Turns::default(),
            commands: Vec::new(),
            unused: Vec::new(),
            woken: Vec::new(),
            refused: VecDeque::new(),
            ftl,
        };
        let this = Rc::new_cyclic(|this: &Weak<Self>| {
            let owner: Weak<dyn Owner> = this.clone();
            Self {
                units: OwnUnits::new(drive, scope(), owner),
                formatted: begin == Begin::Format,
                retired: Cell::new(false),
                capacity: Cell::new(0),
                state: Cell::new(work.ftl.state()),
                changed: Notify::new(),
                work: RefCell::new(work),
            }
        });
        this.go_on();
        Ok(this)
    }

    /// Finishes when commands are accepted; `name` is that of the partition, for errors.
    pub async fn ready(&self, name: &str) -> Result<(), PartitionError> {
        loop {
            match self.state.get() {
                State::Ready | State::ReadOnly => return Ok(()),
                State::Failed(error) => return Err(PartitionError::Recover(name.into(), error)),
                _ if !self.units.drive().is_on() => return Err(PartitionError::Off),
                State::Formatting | State::Recovering => self.changed.notified().await,
            }
        }
    }

    /// Releases the units; finishes when nothing is in flight on them any more.
    pub async fn retire(&self) {
        self.retired.set(true);
        while !self.work.borrow().turns.is_idle() && self.units.drive().is_on() {
            self.changed.notified().await;
        }
    }

    /// Sectors shown to hosts.
    pub fn capacity(&self) -> u64 {
        self.capacity.get()
    }

    pub fn state(&self) -> State {
        self.state.get()
    }

    /// How much later than due completions of the device were reported, in nanoseconds.
    pub fn lateness(&self) -> Histogram {
        self.units.lateness()
    }

    pub fn stats(&self) -> (ftl::Stats, ftl::Space) {
        let work = self.work.borrow();
        (work.ftl.stats(), work.ftl.space())
    }

    /// Sectors of its flash, whether they are good or not.
    pub fn sectors(&self) -> u64 {
        self.units.sectors()
    }

    /// Whether all sectors are known to be zero: nothing was written since it was formatted.
    pub fn is_blank(&self) -> bool {
        self.formatted && self.stats().0.host_units == 0
    }

    /// Whether all sectors read as zeroes. Scans the whole map.
    pub fn is_empty(&self) -> bool {
        self.work.borrow().ftl.is_empty()
    }

    /// Begins a command of a host on `count` sectors from `first`.
    pub fn begin_command(
        self: &Rc<Self>,
        op: Op,
        first: u64,
        count: u32,
        moved: Moved,
    ) -> Result<Pending, IoError> {
        let now = self.units.drive().catch_up();
        if self.retired.get() || !self.units.drive().is_on() {
            return Err(IoError::NotReady);
        }
        if op != Op::Read && self.units.drive().is_full() {
            return Err(IoError::NoSpace);
        }
        let mut work = self.work.borrow_mut();
        let place = work.unused.last().copied();
        let id = place.unwrap_or(work.commands.len() as u32);
        if id as usize >= MOST_COMMANDS {
            return Err(IoError::Busy);
        }
        let command = ftl::Command {
            id: u64::from(id),
            op,
            first,
            count,
        };
        work.ftl
            .submit(command)
            .map_err(|rejected| match rejected {
                ftl::Rejected::NotReady => IoError::NotReady,
                ftl::Rejected::OutOfRange => IoError::OutOfRange,
                ftl::Rejected::QueueFull => IoError::Busy,
            })?;
        let command = Command {
            stage: Stage::Waiting(None),
            op,
            moved,
            data: false,
        };
        match work.unused.pop() {
            Some(_) => work.commands[id as usize] = command,
            None => work.commands.push(command),
        }
        drop(work);
        self.act(now);
        self.units.drive().doorbell();
        let span = Rc::clone(self);
        Ok(Pending { span, id })
    }

    /// Executes the actions of the layer, at the device's time.
    fn go_on(&self) {
        let now = self.units.drive().catch_up();
        self.act(now);
        self.units.drive().doorbell();
    }

    /// Executes the actions of the layer at an instant of the device.
    fn act(&self, now: Time) {
        if self.retired.get() {
            self.units.set_alarm(None);
            return self.changed.notify_all();
        }
        let mut work = self.work.borrow_mut();
        work.act(now, &self.units);
        self.units.set_alarm(work.ftl.next_wakeup());
        let state = work.ftl.state();
        self.capacity.set(work.ftl.capacity());
        let mut woken = std::mem::take(&mut work.woken);
        drop(work);
        woken.drain(..).for_each(Waker::wake);
        self.work.borrow_mut().woken = woken;
        if self.state.replace(state) != state {
            self.changed.notify_all();
        }
    }
}

impl Owner for Span {
    fn completed(&self, at: Time, done: &Done) {
        self.work.borrow_mut().completed(at, done, &self.units);
        self.act(at);
    }

    fn alarm(&self, at: Time) {
        self.act(at);
    }

    fn lost(&self) {
        let woken = self.work.borrow_mut().lose();
        woken.into_iter().for_each(Waker::wake);
        self.changed.notify_all();
    }

    fn full(&self) {
        let woken = self.work.borrow_mut().refuse_writes();
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Work {
    fn act(&mut self, now: Time, units: &OwnUnits) {
        loop {
            while let Some(action) = self.ftl.poll(now) {
                self.perform(now, action, units);
            }
            while let Some(tag) = self.turns.next() {
                self.submit(now, tag, units);
            }
            if self.refused.is_empty() {
                return;
            }
            while let Some((tag, failed)) = self.refused.pop_front() {
                self.ftl.on_completion(now, tag, failed, &[]);
            }
        }
    }

    fn perform(&mut self, now: Time, action: Action, units: &OwnUnits) {
        match action {
            Action::Submit(tag) if self.ftl.io(tag).op() == IoOp::Report => {
                let address = self.ftl.io(tag).addresses()[0];
                self.ftl.on_report(now, tag, units.chunk(address));
            }
            Action::Submit(tag) => self.turns.push(tag),
            Action::Store { id, unit, slot } => {
                let Moved::From(source) = &self.commands[id as usize].moved else {
                    unreachable!("a write keeps its data until it is done");
                };
                self.slots[range(slot)].copy_from_slice(&source[range(unit)]);
            }
            Action::Load { id, unit, slot } => {
                let command = &mut self.commands[id as usize];
                command.part(unit).copy_from_slice(&self.slots[range(slot)]);
                command.data = true;
            }
            Action::Zeroes { id, unit } => self.commands[id as usize].part(unit).fill(0),
            Action::Done { id, outcome } => self.finish(id as u32, outcome),
        }
    }

    /// Submits a vector command, and stores the data of a write.
    fn submit(&mut self, now: Time, tag: Tag, units: &OwnUnits) {
        let io = self.ftl.io(tag);
        let op = match io.op() {
            IoOp::Read => VectorOp::Read,
            IoOp::Reset => VectorOp::Reset,
            IoOp::Write | IoOp::Report => VectorOp::Write {
                metadata: io.metadata(),
            },
        };
        let vector = Vector {
            op,
            addresses: io.addresses(),
            wanted: wanted(io.parts()),
        };
        let Ok(accepted) = units.submit(now, tag, vector) else {
            self.turns.ended();
            self.refused.push_back((tag, u64::MAX));
            return;
        };
        if io.op() != IoOp::Write {
            return;
        }
        let mut page = [0; SECTOR];
        for (place, (&address, &part)) in io.addresses().iter().zip(io.parts()).enumerate() {
            if accepted >> place & 1 == 0 {
                continue;
            }
            let data: &[u8] = match part {
                Part::Slot(slot) => &self.slots[range(slot)],
                Part::Page => {
                    self.ftl.page(tag, place, &mut page);
                    &page
                }
                Part::Host(..) | Part::Unused => continue,
            };
            // Without memory the sector is lost, as the medium reports when it is read.
            let _stored = units.store(tag, address, data);
        }
    }

    /// Moves the data that were read, and reports to the layer.
    fn completed(&mut self, at: Time, done: &Done, units: &OwnUnits) {
        self.turns.ended();
        let io = self.ftl.io(done.tag).clone();
        let mut failed = done.failed;
        let good = |place: usize| done.failed >> place & 1 == 0;
        let addresses = io.addresses().iter().enumerate();
        for (place, &address) in addresses.filter(|(place, _)| good(*place)) {
            match (io.op(), io.parts().get(place)) {
                (IoOp::Read, Some(&part)) => {
                    let taken = self.take(done.tag, place, part, address, units);
                    failed |= u64::from(!taken) << place;
                }
                (IoOp::Reset, _) => {
                    units.forget(address);
                }
                _ => {}
            }
        }
        self.ftl.on_completion(at, done.tag, failed, &done.metadata);
    }

    /// Takes the data of a sector that was read to where they belong; false when they are lost.
    fn take(&mut self, tag: Tag, place: usize, part: Part, address: u64, units: &OwnUnits) -> bool {
        match part {
            Part::Slot(slot) => units.read(address, &mut self.slots[range(slot)]),
            Part::Page => {
                let mut page = [0; SECTOR];
                let read = units.read(address, &mut page);
                if read {
                    self.ftl.on_page(tag, place, &page);
                }
                read
            }
            Part::Host(id, unit) => {
                let command = &mut self.commands[id as usize];
                command.data = true;
                units.read(address, command.part(unit))
            }
            Part::Unused => true,
        }
    }

    fn finish(&mut self, id: u32, outcome: Outcome) {
        let command = &mut self.commands[id as usize];
        match std::mem::replace(&mut command.stage, Stage::Done(outcome)) {
            Stage::Waiting(waker) => self.woken.extend(waker),
            Stage::Abandoned => self.release(id),
            Stage::Full => {}
            Stage::Unused | Stage::Done(_) | Stage::Lost => {
                unreachable!("a command is done once")
            }
        }
    }

    /// The device has failed: commands that wait get an error.
    fn lose(&mut self) -> Vec<Waker> {
        let mut woken = Vec::new();
        for id in 0..self.commands.len() as u32 {
            let stage = &mut self.commands[id as usize].stage;
            match stage {
                Stage::Waiting(waker) => {
                    woken.extend(waker.take());
                    *stage = Stage::Lost;
                }
                Stage::Full => *stage = Stage::Lost,
                Stage::Abandoned => self.release(id),
                Stage::Unused | Stage::Done(_) | Stage::Lost => {}
            }
        }
        woken
    }

    /// A waiting write or flush is answered that there is no space; the command goes on when
    /// there is.
    fn refuse_writes(&mut self) -> Vec<Waker> {
        let mut woken = Vec::new();
        for command in self.commands.iter_mut().filter(|one| one.op != Op::Read) {
            if let Stage::Waiting(waker) = &mut command.stage {
                woken.extend(waker.take());
                command.stage = Stage::Full;
            }
        }
        woken
    }

    fn release(&mut self, id: u32) {
        self.commands[id as usize] = Command {
            stage: Stage::Unused,
            op: Op::Read,
            moved: Moved::Nothing,
            data: false,
        };
        self.unused.push(id);
    }
}

impl Command {
    /// The place of a sector in the host's buffer.
    fn part(&mut self, unit: u32) -> &mut [u8] {
        let Moved::Into(buf) = &mut self.moved else {
            unreachable!("a read keeps its buffer until it is done");
        };
        &mut buf[range(unit)]
    }
}

/// A bit for each part whose data a task takes.
fn wanted(parts: &[Part]) -> u64 {
    let taken = |(place, part): (usize, &Part)| u64::from(*part != Part::Unused) << place;
    parts.iter().enumerate().map(taken).sum()
}

/// The bytes of a sector among others.
fn range(number: u32) -> std::ops::Range<usize> {
    let start = number as usize * SECTOR;
    start..start + SECTOR
}

/// A command in flight. Dropping it does not cancel the command.
pub(super) struct Pending {
    span: Rc<Span>,
    id: u32,
}

/// What is left of a command: its buffer, and whether what was read is more than zeros.
pub(super) type Left = (Moved, bool);

impl Future for Pending {
    type Output = Result<Left, IoError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut work = self.span.work.borrow_mut();
        let command = &mut work.commands[self.id as usize];
        match &mut command.stage {
            Stage::Done(outcome) => {
                let outcome = *outcome;
                let moved = std::mem::replace(&mut command.moved, Moved::Nothing);
                let left = (moved, command.data);
                Poll::Ready(match outcome {
                    Outcome::Success => Ok(left),
                    Outcome::Unreadable => Err(IoError::Read),
                    Outcome::ReadOnly => Err(IoError::WriteProtected),
                })
            }
            Stage::Waiting(waker) => {
                let former = waker.replace(context.waker().clone());
                drop(work);
                drop(former);
                Poll::Pending
            }
            Stage::Lost => Poll::Ready(Err(IoError::NotReady)),
            Stage::Full => Poll::Ready(Err(IoError::NoSpace)),
            Stage::Unused | Stage::Abandoned => unreachable!("it is waited for"),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut work = self.span.work.borrow_mut();
        let stage = &mut work.commands[self.id as usize].stage;
        let waker = match std::mem::replace(stage, Stage::Abandoned) {
            Stage::Waiting(waker) => waker,
            Stage::Full => None,
            _ => {
                work.release(self.id);
                None
            }
        };
        drop(work);
        drop(waker);
    }
}
