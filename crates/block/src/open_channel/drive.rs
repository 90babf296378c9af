//! The model of an open-channel device, run by the clock of a core.
//!
//! As with emulated drives (`crate::flash`), the model is given commands with the instant at which they came and completions are told
//! when that instant has passed. Here those who use the device react to completions with further commands, of which no host
//! knows. They are told one instant of the device after the other, and what they submit then counts from that instant: how late
//! the core looks does not slow garbage collection down.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use flashyard_flash::channel::{ChunkInfo, Command, Completion, Geometry, Metadata, Op, Rejected};
use flashyard_runtime::{Rt, Sleep, Task};
use flashyard_time::{Duration, Histogram, Time};

use super::medium::{Content, Medium};

/// Who submits commands, and is told of their ends.
pub(super) trait Owner {
    /// A command is complete, at this instant of the device.
    fn completed(&self, at: Time, done: &Done);

    /// The instant that was asked for by [`Drive::set_alarm`] has come.
    fn alarm(&self, at: Time);
}

/// A command that is complete.
#[derive(Debug)]
pub(super) struct Done {
    pub tag: u32,
    /// A bit for each address that failed, the lowest for the first.
    pub failed: u64,
    /// Of a read, of each address.
    pub metadata: Vec<Metadata>,
}

/// Names an owner.
pub(super) type OwnerId = usize;

/// An open-channel device in real time.
pub(super) struct Drive {
    rt: Rt,
    geometry: Geometry,
    clock: DriveClock,
    model: RefCell<Model>,
    /// Completions are being told: they are told further by whoever began.
    telling: Cell<bool>,
    pump: Cell<Option<Waker>>,
    pump_until: Cell<Time>,
    _pump: Task<()>,
}

struct Model {
    /// None when the power is off.
    medium: Option<Medium>,
    owners: Vec<Registered>,
    slots: Vec<(OwnerId, u32)>,
    unused: Vec<u32>,
    done: Vec<Completion>,
    lateness: Histogram,
}

struct Registered {
    owner: Weak<dyn Owner>,
    alarm: Option<Time>,
}

impl Drive {
    /// Runs `medium` from now on, `dilation` times slower than it is.
    pub fn start(rt: &Rt, medium: Medium, dilation: u32) -> Rc<Self> {
        let clock = DriveClock {
            began: rt.turn_time(),
            drive_began: medium.device.now(),
            dilation: u64::from(dilation.max(1)),
        };
        let geometry = medium.device.geometry().clone();
        Rc::new_cyclic(|drive| Self {
            rt: rt.clone(),
            geometry,
            clock,
            model: RefCell::new(Model::new(medium)),
            telling: Cell::new(false),
            pump: Cell::new(None),
            pump_until: Cell::new(Time::MAX),
            _pump: rt.spawn(Pump {
                drive: Weak::clone(drive),
                sleep: None,
            }),
        })
    }

    pub fn rt(&self) -> &Rt {
        &self.rt
    }

    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Adds somebody who will submit commands.
    pub fn register(&self, owner: Weak<dyn Owner>) -> OwnerId {
        let mut model = self.model.borrow_mut();
        let registered = Registered { owner, alarm: None };
        let gone = |known: &Registered| known.owner.strong_count() == 0;
        // The place of one who is gone can be taken once none of his commands is under way.
        let idle =
            (0..model.owners.len()).find(|&id| gone(&model.owners[id]) && !model.has_slots(id));
        match idle {
            Some(id) => {
                model.owners[id] = registered;
                id
            }
            None => {
                model.owners.push(registered);
                model.owners.len() - 1
            }
        }
    }

    /// Whether the power was not taken away.
    pub fn is_on(&self) -> bool {
        self.model.borrow().medium.is_some()
    }

    /// The device's time, after everything that is due was told.
    pub fn catch_up(&self) -> Time {
        self.deliver();
        self.clock.drive_time(self.rt.turn_time())
    }

    /// Submits a command at an instant that is not before what was told last. Which addresses were accepted: a bit each.
    /// Nothing when the power is off.
    pub fn submit(
        &self,
        at: Time,
        owner: OwnerId,
        tag: u32,
        op: Op<'_>,
        addresses: &[u64],
    ) -> Option<Result<u64, Rejected>> {
        self.model
            .borrow_mut()
            .submit(at, owner, tag, op, addresses)
    }

    /// Has `owner` told at `alarm`, or not any more.
    pub fn set_alarm(&self, owner: OwnerId, alarm: Option<Time>) {
        self.model.borrow_mut().owners[owner].alarm = alarm;
    }

    /// Reads or changes what is in sectors; nothing when the power is off.
    pub fn content<T>(&self, act: impl FnOnce(&mut Content, &Geometry) -> T) -> Option<T> {
        let mut model = self.model.borrow_mut();
        let (_, content) = model.medium.as_mut()?.split();
        Some(act(content, &self.geometry))
    }

    /// The chunk that holds `address`; nothing when none does, or the power is off.
    pub fn chunk(&self, address: u64) -> Option<ChunkInfo> {
        self.model.borrow().medium.as_ref()?.device.chunk(address)
    }

    /// Every chunk.
    pub fn report(&self) -> Vec<ChunkInfo> {
        let model = self.model.borrow();
        let chunks = |medium: &Medium| medium.device.report().collect();
        model.medium.as_ref().map(chunks).unwrap_or_default()
    }

    /// How much later than due completions were told, in nanoseconds of the machine's clock.
    pub fn lateness(&self) -> Histogram {
        self.model.borrow().lateness.clone()
    }

    /// Bytes of memory that the content takes.
    pub fn allocated(&self) -> u64 {
        self.model
            .borrow()
            .medium
            .as_ref()
            .map_or(0, Medium::allocated)
    }

    /// Takes the power away: what the flash keeps. Nothing under way is ever completed.
    pub fn cut(&self) -> Option<Medium> {
        let mut model = self.model.borrow_mut();
        let mut medium = model.medium.take()?;
        let now = self
            .clock
            .drive_time(self.rt.turn_time())
            .max(medium.device.now());
        medium.device.power_cut(now);
        Some(medium)
    }

    /// Tells what is due, instant by instant; when to look again.
    fn deliver(&self) -> Option<Time> {
        if self.telling.replace(true) {
            return self.next();
        }
        let now = self.rt.turn_time();
        while let Some(at) = self
            .next_of_device()
            .filter(|at| *at <= self.clock.drive_time(now))
        {
            let late = now.since(self.clock.core_time(at));
            self.tell(at, late);
        }
        self.telling.set(false);
        self.next()
    }

    fn tell(&self, at: Time, late: Duration) {
        let (done, alarms) = self.model.borrow_mut().advance(at, late);
        for (owner, done) in done {
            owner.completed(at, &done);
        }
        for owner in alarms {
            owner.alarm(at);
        }
    }

    fn next(&self) -> Option<Time> {
        self.next_of_device().map(|at| self.clock.core_time(at))
    }

    fn next_of_device(&self) -> Option<Time> {
        let model = self.model.borrow();
        let medium = model.medium.as_ref()?;
        let event = medium.device.next_event();
        let alarms = model.owners.iter().filter_map(|one| one.alarm);
        // An alarm may be for an instant that has passed; time does not go back.
        let alarm = alarms.min().map(|at| at.max(medium.device.now()));
        event.into_iter().chain(alarm).min()
    }

    /// Wakes the pump if something may be due before it wakes by itself. To be called after submitting.
    pub fn hurry(&self) {
        if self.next().is_some_and(|next| next < self.pump_until.get()) {
            self.pump_until.set(Time::ZERO);
            if let Some(pump) = self.pump.take() {
                pump.wake();
            }
        }
    }
}

/// Completions and alarms on their way to those who wait for them.
type Told = (Vec<(Rc<dyn Owner>, Done)>, Vec<Rc<dyn Owner>>);

impl Model {
    fn new(medium: Medium) -> Self {
        Self {
            medium: Some(medium),
            owners: Vec::new(),
            slots: Vec::new(),
            unused: Vec::new(),
            done: Vec::new(),
            lateness: Histogram::new(),
        }
    }

    fn has_slots(&self, owner: OwnerId) -> bool {
        let busy =
            |(slot, (of, _)): (u32, &(OwnerId, u32))| *of == owner && !self.unused.contains(&slot);
        (0..).zip(&self.slots).any(busy)
    }

    fn submit(
        &mut self,
        at: Time,
        owner: OwnerId,
        tag: u32,
        op: Op<'_>,
        addresses: &[u64],
    ) -> Option<Result<u64, Rejected>> {
        let medium = self.medium.as_mut()?;
        let slot = self
            .unused
            .last()
            .copied()
            .unwrap_or(self.slots.len() as u32);
        let command = Command {
            tag: u64::from(slot),
            op,
            addresses,
        };
        let accepted = medium.device.submit(at, command);
        if accepted.is_ok() {
            match self.unused.pop() {
                Some(_) => self.slots[slot as usize] = (owner, tag),
                None => self.slots.push((owner, tag)),
            }
        }
        Some(accepted)
    }

    /// Lets the device run until `at`, and says who has to be told of what.
    fn advance(&mut self, at: Time, late: Duration) -> Told {
        let Some(medium) = &mut self.medium else {
            return Told::default();
        };
        let mut done = std::mem::take(&mut self.done);
        medium.device.advance(at, &mut done);
        let mut told = Vec::with_capacity(done.len());
        for completion in done.drain(..) {
            let slot = completion.tag as usize;
            self.unused.push(slot as u32);
            self.lateness.record(late.as_ns());
            let (id, tag) = self.slots[slot];
            let Some(owner) = self.owners[id].owner.upgrade() else {
                continue;
            };
            let metadata = medium.device.metadata(&completion).to_vec();
            let failed = completion.failed;
            told.push((
                owner,
                Done {
                    tag,
                    failed,
                    metadata,
                },
            ));
        }
        self.done = done;
        let mut alarms = Vec::new();
        for one in &mut self.owners {
            if one.alarm.is_some_and(|alarm| alarm <= at) {
                one.alarm = None;
                alarms.extend(one.owner.upgrade());
            }
        }
        (told, alarms)
    }
}

/// The clock of the core and that of the device.
struct DriveClock {
    began: Time,
    drive_began: Time,
    dilation: u64,
}

impl DriveClock {
    fn drive_time(&self, now: Time) -> Time {
        let passed = now.since(self.began).as_ns() / self.dilation;
        self.drive_began + Duration::from_ns(passed)
    }

    /// The first instant at which the device's clock shows `at`.
    fn core_time(&self, at: Time) -> Time {
        let passed = at.since(self.drive_began).as_ns();
        self.began + Duration::from_ns(passed.saturating_mul(self.dilation))
    }
}

/// Tells what is due, for as long as there is a device.
struct Pump {
    drive: Weak<Drive>,
    sleep: Option<Sleep>,
}

impl Future for Pump {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(drive) = self.drive.upgrade() else {
            return Poll::Ready(());
        };
        loop {
            let next = drive.deliver();
            drive.pump.set(Some(context.waker().clone()));
            drive.pump_until.set(next.unwrap_or(Time::MAX));
            self.sleep = next.map(|next| drive.rt.sleep_until_precise(next));
            let Some(sleep) = &mut self.sleep else {
                return Poll::Pending;
            };
            if Pin::new(sleep).poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}
