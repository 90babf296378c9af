//! The model of an open-channel device, run by the clock of a core.
//!
//! As with emulated drives (`crate::flash`), the model is given commands with the instant at which
//! they came and completions are told when that instant has passed. Here those who use the device
//! react to completions with further commands, of which no host knows. They are told one instant of
//! the device after the other, and what they submit then counts from that instant: how late the
//! core looks does not slow garbage collection down.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use flashyard_flash::channel::{ChunkInfo, Geometry, Metadata, Op, Rejected};
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Rt, Sleep, Task};
use flashyard_time::{Duration, Histogram, Time};

use super::jobs::{Job, Pages};
use super::medium::Medium;
use super::model::Model;
use flashyard_block::IoError;

/// Who submits commands, and is told of their ends.
pub(crate) trait Owner {
    /// A command is complete, at this instant of the device.
    fn completed(&self, at: Time, done: &Done);

    /// The instant that was asked for by [`Drive::set_alarm`] has come.
    fn alarm(&self, at: Time);

    /// The device has failed: no command is ever completed any more.
    fn lost(&self) {}

    /// What the device is in has no space left: until there is some, nothing is written, and what
    /// is being written is not complete.
    fn full(&self) {}
}

/// A command that is complete.
#[derive(Debug)]
pub(crate) struct Done {
    pub tag: u32,
    /// A bit for each address that failed, the lowest for the first.
    pub failed: u64,
    /// Of a read, of each address.
    pub metadata: Vec<Metadata>,
}

/// Names an owner.
pub(crate) type OwnerId = usize;

/// An open-channel device in real time.
pub(super) struct Drive {
    rt: Rt,
    geometry: Geometry,
    clock: DriveClock,
    this: Weak<Self>,
    model: RefCell<Model>,
    /// Completions are being told: they are told further by whoever began.
    telling: Cell<bool>,
    /// What was read by the command whose completion is being told.
    read: RefCell<(Vec<u64>, Pages)>,
    /// What is being done with the file.
    jobs: Cell<u32>,
    jobs_ended: Notify,
    failure: Cell<Option<IoError>>,
    pump: Cell<Option<Waker>>,
    pump_until: Cell<Time>,
    _pump: Task<()>,
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
        let file = medium.file().cloned();
        let this = Rc::new_cyclic(|drive| Self {
            rt: rt.clone(),
            geometry,
            clock,
            this: Weak::clone(drive),
            model: RefCell::new(Model::new(medium)),
            telling: Cell::new(false),
            read: RefCell::default(),
            jobs: Cell::new(0),
            jobs_ended: Notify::new(),
            failure: Cell::new(None),
            pump: Cell::new(None),
            pump_until: Cell::new(Time::MAX),
            _pump: rt.spawn(Pump {
                drive: Weak::clone(drive),
                sleep: None,
            }),
        });
        if let Some(file) = file {
            let drive = Rc::downgrade(&this);
            file.on_full(move || drive.upgrade().iter().for_each(|drive| drive.tell_full()));
        }
        this
    }

    pub fn rt(&self) -> &Rt {
        &self.rt
    }

    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Adds somebody who will submit commands.
    pub fn register(&self, owner: Weak<dyn Owner>) -> OwnerId {
        self.model.borrow_mut().register(owner)
    }

    /// Whether the power was not taken away.
    pub fn is_on(&self) -> bool {
        self.model.borrow().medium().is_some()
    }

    /// The device's time, after everything that is due was told.
    pub fn catch_up(&self) -> Time {
        self.deliver();
        self.clock.drive_time(self.rt.turn_time())
    }

    /// Submits a command at an instant that is not before what was told last. Which addresses were
    /// accepted: a bit each. Of a read, data of the addresses in `wanted` will be
    /// [read](Self::read). Nothing when the power is off.
    pub fn submit(
        &self,
        at: Time,
        owner: OwnerId,
        tag: u32,
        op: Op<'_>,
        (addresses, wanted): (&[u64], u64),
    ) -> Option<Result<u64, Rejected>> {
        let mut model = self.model.borrow_mut();
        let accepted = model.submit(at, (owner, tag), op, addresses)?;
        let job = model.begin_read(op, addresses, accepted.unwrap_or(0) & wanted);
        drop(model);
        if let Some((slot, job)) = job {
            self.spawn(slot, job);
        }
        Some(accepted)
    }

    /// Stores data of a sector of the write that was submitted last. Nothing when the power is off.
    pub fn store(&self, address: u64, data: &[u8]) -> Option<Result<(), IoError>> {
        self.model.borrow_mut().store(address, data)
    }

    /// Gives a sector of the read whose completion is being told; false when it is lost.
    pub fn read(&self, address: u64, target: &mut [u8]) -> bool {
        let (addresses, pages) = &*self.read.borrow();
        if matches!(pages, Pages::InMemory) {
            return self.model.borrow().read(address, target);
        }
        let place = addresses.iter().position(|one| *one == address);
        let page = place.and_then(|place| pages.get(place));
        page.inspect(|page| target.copy_from_slice(page)).is_some()
    }

    /// A chunk that was erased may be forgotten.
    pub fn forget(&self, address: u64) {
        self.model.borrow_mut().forget(address, &self.geometry);
    }

    /// Whether it is in a file.
    pub fn is_kept(&self) -> bool {
        self.model.borrow().medium().is_some_and(Medium::is_kept)
    }

    /// Whether what it is in has no space left for what is to be written.
    pub fn is_full(&self) -> bool {
        self.model
            .borrow()
            .file()
            .is_some_and(|file| file.is_full())
    }

    /// Whether to wait for space from now on, or to fail without it.
    pub fn wait_for_space(&self, wait: bool) {
        if let Some(file) = self.model.borrow().file() {
            file.wait_for_space(wait);
        }
    }

    fn tell_full(&self) {
        let owners = self.model.borrow().owners();
        for owner in owners {
            owner.full();
        }
    }

    /// Why the device has failed.
    pub fn failure(&self) -> Option<IoError> {
        self.failure.get()
    }

    /// Finishes when nothing is being done with the file any more. Of use after [`Drive::cut`].
    pub async fn idle(&self) {
        while self.jobs.get() > 0 {
            self.jobs_ended.notified().await;
        }
    }

    /// Has `owner` told at `alarm`, or not any more.
    pub fn set_alarm(&self, owner: OwnerId, alarm: Option<Time>) {
        self.model.borrow_mut().set_alarm(owner, alarm);
    }

    /// The chunk that holds `address`; nothing when none does, or the power is off.
    pub fn chunk(&self, address: u64) -> Option<ChunkInfo> {
        self.model.borrow().medium()?.device.chunk(address)
    }

    /// Every chunk.
    pub fn report(&self) -> Vec<ChunkInfo> {
        let model = self.model.borrow();
        let chunks = |medium: &Medium| medium.device.report().collect();
        model.medium().map(chunks).unwrap_or_default()
    }

    /// How much later than due completions were told, in nanoseconds of the machine's clock.
    /// Of what was told to one owner, or to all.
    pub fn lateness(&self, owner: Option<OwnerId>) -> Histogram {
        self.model.borrow().lateness(owner)
    }

    /// Bytes of memory that the content takes.
    pub fn allocated(&self) -> u64 {
        self.model.borrow().medium().map_or(0, Medium::allocated)
    }

    /// Takes the power away: what the flash keeps. Nothing under way is ever completed. Of a device
    /// in a file, the file keeps what counts; what is given here may be more.
    pub fn cut(&self) -> Option<Medium> {
        self.wait_for_space(false);
        let mut medium = self.model.borrow_mut().take()?;
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
        let drive_now = self.clock.drive_time(now);
        loop {
            while let Some(at) = self.next_of_device().filter(|at| *at <= drive_now) {
                let late = now.since(self.clock.core_time(at));
                self.tell(at, late);
            }
            if !self.model.borrow().has_settled() {
                break;
            }
            self.tell(drive_now, Duration::ZERO);
        }
        self.telling.set(false);
        self.next()
    }

    fn tell(&self, at: Time, late: Duration) {
        let told = self.model.borrow_mut().advance(at, late);
        for (slot, job) in told.jobs {
            self.spawn(slot, job);
        }
        for told in told.done {
            self.read.replace((told.addresses, told.pages));
            told.owner.completed(at, &told.done);
        }
        self.read.take();
        for owner in told.alarms {
            owner.alarm(at);
        }
    }

    /// Does something with the file. The command in `slot` waits for it.
    fn spawn(&self, slot: u32, job: Job) {
        let Some(drive) = self.this.upgrade() else {
            return;
        };
        let Some(store) = self.model.borrow().file() else {
            return;
        };
        self.jobs.set(self.jobs.get() + 1);
        let run = async move {
            let outcome = job.run(&store).await;
            drop(store);
            drive.jobs.set(drive.jobs.get() - 1);
            drive.jobs_ended.notify_all();
            match outcome {
                Ok((failed, pages)) => drive.model.borrow_mut().worked(slot, failed, pages),
                Err(error) => return drive.fail(error),
            }
            drive.deliver();
            drive.hurry();
        };
        self.rt.spawn(run).detach();
    }

    /// The file has failed: nothing can be completed any more.
    fn fail(&self, error: IoError) {
        let owners = self.model.borrow_mut().stop();
        if self.failure.get().is_none() {
            self.failure.set(Some(error));
        }
        for owner in owners {
            owner.lost();
        }
    }

    fn next(&self) -> Option<Time> {
        self.next_of_device().map(|at| self.clock.core_time(at))
    }

    fn next_of_device(&self) -> Option<Time> {
        self.model.borrow().next()
    }

    /// Wakes the pump if something may be due before it wakes by itself. To be called after
    /// submitting.
    pub fn hurry(&self) {
        if self.next().is_some_and(|next| next < self.pump_until.get()) {
            self.pump_until.set(Time::ZERO);
            if let Some(pump) = self.pump.take() {
                pump.wake();
            }
        }
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
