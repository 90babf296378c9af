//! The model of a device together with its owners: which command is whose, and what each waits for.

use std::rc::{Rc, Weak};

use flashyard_block::IoError;
use flashyard_flash::channel::{Command, Completion, Geometry, Metadata, Op, Rejected};
use flashyard_time::{Duration, Histogram, Time};

use super::file_store::FileStore;
use super::jobs::{Job, Pages, Work};
use super::medium::{Medium, Store};
use crate::backing::{Done, Owner, OwnerId, Vector};

/// See the module.
pub(super) struct Model {
    /// None when the power is off.
    medium: Option<Medium>,
    owners: Vec<Registered>,
    slots: Vec<Slot>,
    unused: Vec<u32>,
    /// Of the command that was submitted last.
    last: u32,
    /// Commands that wait for nothing any more.
    settled: Vec<u32>,
    done: Vec<Completion>,
}

struct Registered {
    owner: Weak<dyn Owner>,
    alarm: Option<Time>,
    lateness: Histogram,
}

/// A command in flight.
#[derive(Default)]
struct Slot {
    owner: OwnerId,
    tag: u32,
    /// The model, and what is done with the file.
    waits: u32,
    work: Work,
    failed: u64,
    metadata: Vec<Metadata>,
    /// Of a read out of a file.
    addresses: Vec<u64>,
    pages: Pages,
}

/// A completion on its way to its owner.
pub(super) struct OwnersDone {
    pub owner: Rc<dyn Owner>,
    pub done: Done,
    pub addresses: Vec<u64>,
    pub pages: Pages,
}

/// What is to be reported at an instant.
#[derive(Default)]
pub(super) struct Events {
    pub done: Vec<OwnersDone>,
    pub alarms: Vec<Rc<dyn Owner>>,
    pub jobs: Vec<(u32, Job)>,
}

impl Model {
    pub fn new(medium: Medium) -> Self {
        Self {
            medium: Some(medium),
            owners: Vec::new(),
            slots: Vec::new(),
            unused: Vec::new(),
            last: 0,
            settled: Vec::new(),
            done: Vec::new(),
        }
    }

    pub fn medium(&self) -> Option<&Medium> {
        self.medium.as_ref()
    }

    /// The file that the device is in.
    pub fn file(&self) -> Option<Rc<FileStore>> {
        self.medium.as_ref()?.file().cloned()
    }

    /// Takes the power away.
    pub fn take(&mut self) -> Option<Medium> {
        self.settled.clear();
        self.medium.take()
    }

    /// Ends everything; gives the owners to notify.
    pub fn stop(&mut self) -> Vec<Rc<dyn Owner>> {
        self.take();
        self.owners()
    }

    /// All owners that may submit commands.
    pub fn owners(&self) -> Vec<Rc<dyn Owner>> {
        let owners = self.owners.iter();
        owners.filter_map(|one| one.owner.upgrade()).collect()
    }

    /// How late the completions of an owner were reported, in nanoseconds of the machine's
    /// clock; of all owners when none is named.
    pub fn lateness(&self, owner: Option<OwnerId>) -> Histogram {
        let mut all = Histogram::new();
        let owners = self.owners.iter().enumerate();
        for (_, one) in owners.filter(|(id, _)| owner.is_none_or(|owner| owner == *id)) {
            all.merge(&one.lateness);
        }
        all
    }

    /// Adds an owner that will submit commands.
    pub fn register(&mut self, owner: Weak<dyn Owner>) -> OwnerId {
        let registered = Registered {
            owner,
            alarm: None,
            lateness: Histogram::new(),
        };
        let gone = |known: &Registered| known.owner.strong_count() == 0;
        // The place of an owner that is gone can be reused once none of its commands is in flight.
        let idle = (0..self.owners.len()).find(|&id| gone(&self.owners[id]) && !self.has_slots(id));
        match idle {
            Some(id) => {
                self.owners[id] = registered;
                id
            }
            None => {
                self.owners.push(registered);
                self.owners.len() - 1
            }
        }
    }

    pub fn set_alarm(&mut self, owner: OwnerId, alarm: Option<Time>) {
        self.owners[owner].alarm = alarm;
    }

    fn has_slots(&self, owner: OwnerId) -> bool {
        let busy = |slot: &Slot| slot.owner == owner && slot.waits > 0;
        let is_next = |&slot: &u32| self.slots[slot as usize].owner == owner;
        self.slots.iter().any(busy) || self.settled.iter().any(is_next)
    }

    /// Whether something is to be reported at once.
    pub fn has_settled(&self) -> bool {
        !self.settled.is_empty()
    }

    /// When the next completion or alarm is due.
    pub fn next(&self) -> Option<Time> {
        let device = &self.medium.as_ref()?.device;
        let alarms = self.owners.iter().filter_map(|one| one.alarm);
        // An alarm may be for an instant that has passed; time does not go back.
        let alarm = alarms.min().map(|at| at.max(device.now()));
        device.next_event().into_iter().chain(alarm).min()
    }

    /// Gives a command to the device. Nothing when the power is off.
    pub fn submit(
        &mut self,
        at: Time,
        (owner, tag): (OwnerId, u32),
        Vector { op, addresses, .. }: Vector<'_>,
    ) -> Option<Result<u64, Rejected>> {
        let medium = self.medium.as_mut()?;
        let new = self.slots.len() as u32;
        let slot = self.unused.last().copied().unwrap_or(new);
        let command = Command {
            tag: u64::from(slot),
            op,
            addresses,
        };
        let accepted = match medium.device.submit(at, command) {
            Ok(accepted) => accepted,
            Err(rejected) => return Some(Err(rejected)),
        };
        let work = match &medium.store {
            Store::Memory(_) => Work::Nothing,
            Store::File(file) => Work::begin(file, op, addresses, accepted),
        };
        if self.unused.pop().is_none() {
            self.slots.push(Slot::default());
        }
        self.slots[slot as usize] = Slot {
            owner,
            tag,
            waits: 1,
            work,
            ..Slot::default()
        };
        self.last = slot;
        Some(Ok(accepted))
    }

    /// What has to be read out of the file for the command that was submitted last.
    pub fn begin_read(&mut self, vector: Vector<'_>, accepted: u64) -> Option<(u32, Job)> {
        self.file()?;
        if vector.op != Op::Read {
            return None;
        }
        let (addresses, wanted) = (vector.addresses, vector.wanted & accepted);
        let slot = &mut self.slots[self.last as usize];
        slot.addresses = addresses.to_vec();
        slot.pages = Pages::nothing();
        if wanted == 0 {
            return None;
        }
        slot.waits += 1;
        let addresses = addresses.to_vec();
        Some((self.last, Job::Read { addresses, wanted }))
    }

    /// Stores data of a sector of the write that was submitted last. Nothing when the power is off.
    pub fn store(&mut self, address: u64, data: &[u8]) -> Option<Result<(), IoError>> {
        match &mut self.medium.as_mut()?.store {
            Store::Memory(content) => Some(content.write(address, data)),
            Store::File(file) => {
                self.slots[self.last as usize]
                    .work
                    .store(file, address, data);
                Some(Ok(()))
            }
        }
    }

    /// Reads what is in memory.
    pub fn read(&self, address: u64, target: &mut [u8]) -> bool {
        match self.medium.as_ref().map(|medium| &medium.store) {
            Some(Store::Memory(content)) => content.read(address, target),
            _ => false,
        }
    }

    pub fn forget(&mut self, address: u64, geometry: &Geometry) {
        if let Some(Store::Memory(content)) = self.medium.as_mut().map(|medium| &mut medium.store) {
            content.forget(address, geometry);
        }
    }

    /// What a command had to do with the file is done.
    pub fn worked(&mut self, slot: u32, failed: u64, pages: Option<Pages>) {
        if self.medium.is_none() {
            return;
        }
        let command = &mut self.slots[slot as usize];
        command.failed |= failed;
        command.pages = pages.unwrap_or(std::mem::take(&mut command.pages));
        self.end_part(slot);
    }

    /// Lets the device run until `at`, and gives what is to be reported to which owner.
    pub fn advance(&mut self, at: Time, late: Duration) -> Events {
        let mut events = Events::default();
        let Some(medium) = &mut self.medium else {
            return events;
        };
        let mut done = std::mem::take(&mut self.done);
        medium.device.advance(at, &mut done);
        for completion in done.drain(..) {
            events.jobs.extend(self.completed(&completion, late));
        }
        self.done = done;
        for slot in std::mem::take(&mut self.settled) {
            events.done.extend(self.end(slot));
        }
        for one in &mut self.owners {
            if one.alarm.is_some_and(|alarm| alarm <= at) {
                one.alarm = None;
                events.alarms.extend(one.owner.upgrade());
            }
        }
        events
    }

    /// The model is done with a command. What is left to do with the file.
    fn completed(&mut self, completion: &Completion, late: Duration) -> Option<(u32, Job)> {
        let medium = self.medium.as_ref()?;
        let slot = completion.tag as u32;
        let command = &mut self.slots[slot as usize];
        let owner = &mut self.owners[command.owner];
        owner.lateness.record(late.as_ns());
        command.failed |= completion.failed;
        command.metadata = medium.device.metadata(completion).to_vec();
        let work = std::mem::take(&mut command.work);
        let job = match &medium.store {
            Store::Memory(_) => None,
            Store::File(file) => {
                let chunk = |address| medium.device.chunk(address);
                work.job(file, completion.failed, chunk)
            }
        };
        command.waits += u32::from(job.is_some());
        self.end_part(slot);
        job.map(|job| (slot, job))
    }

    fn end_part(&mut self, slot: u32) {
        let command = &mut self.slots[slot as usize];
        command.waits -= 1;
        if command.waits == 0 {
            self.settled.push(slot);
        }
    }

    /// A command waits for nothing any more.
    fn end(&mut self, slot: u32) -> Option<OwnersDone> {
        let command = std::mem::take(&mut self.slots[slot as usize]);
        self.unused.push(slot);
        Some(OwnersDone {
            owner: self.owners[command.owner].owner.upgrade()?,
            done: Done {
                tag: command.tag,
                failed: command.failed,
                metadata: command.metadata,
            },
            addresses: command.addresses,
            pages: command.pages,
        })
    }
}
