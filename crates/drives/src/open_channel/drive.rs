//! Runs the model of an open-channel device by the clock of a core.
//!
//! As with emulated drives (`crate::flash`), the model gets each command with the instant at which
//! it came, and a completion is reported when its instant has passed. Here the owners react to
//! completions with further commands that no host sees. So completions are reported one instant of
//! the device after the other, and what an owner submits then counts from that instant: a core that
//! looks late does not slow garbage collection down.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use flashyard_block::IoError;
use flashyard_flash::channel::{ChunkInfo, Geometry, Rejected};
use flashyard_runtime::Rt;
use flashyard_runtime::sync::Notify;
use flashyard_time::{Duration, Histogram, Time};

use super::jobs::{Job, Pages};
use super::medium::Medium;
use super::model::Model;
use crate::backing::{Backing, Owner, OwnerId, Vector};
use crate::clock::{DriveClock, Pump, Timed};

/// An open-channel device in real time.
pub(super) struct Drive {
    rt: Rt,
    geometry: Geometry,
    clock: DriveClock,
    this: Weak<Self>,
    model: RefCell<Model>,
    /// Completions are being reported; the call that began reports those that follow, too.
    reporting: Cell<bool>,
    /// What was read by the command whose completion is being reported.
    read: RefCell<(Vec<u64>, Pages)>,
    /// What is being done with the file.
    jobs: Cell<u32>,
    jobs_ended: Notify,
    failure: Cell<Option<IoError>>,
    pump: Pump,
}

impl Drive {
    /// Runs `medium` from now on, `dilation` times slower than it is.
    pub fn start(rt: &Rt, medium: Medium, dilation: u32) -> Rc<Self> {
        let clock = DriveClock::new(rt.turn_time(), medium.device.now(), dilation);
        let geometry = medium.device.geometry().clone();
        let file = medium.file().cloned();
        let this = Rc::new_cyclic(|drive| Self {
            rt: rt.clone(),
            geometry,
            clock,
            this: Weak::clone(drive),
            model: RefCell::new(Model::new(medium)),
            reporting: Cell::new(false),
            read: RefCell::default(),
            jobs: Cell::new(0),
            jobs_ended: Notify::new(),
            failure: Cell::new(None),
            pump: Pump::start(rt, Weak::clone(drive)),
        });
        if let Some(file) = file {
            let drive = Rc::downgrade(&this);
            file.on_full(move || drive.upgrade().iter().for_each(|drive| drive.tell_full()));
        }
        this
    }

    fn tell_full(&self) {
        let owners = self.model.borrow().owners();
        for owner in owners {
            owner.full();
        }
    }

    /// Finishes when nothing is being done with the file any more. Of use after [`Drive::cut`].
    pub async fn idle(&self) {
        while self.jobs.get() > 0 {
            self.jobs_ended.notified().await;
        }
    }

    /// How much later than due completions were reported to all owners, in nanoseconds of the
    /// machine's clock.
    pub fn lateness_of_all(&self) -> Histogram {
        self.model.borrow().lateness(None)
    }

    /// Bytes of memory that the content takes.
    pub fn allocated(&self) -> u64 {
        self.model.borrow().medium().map_or(0, Medium::allocated)
    }

    /// Takes the power away: what the flash keeps. Nothing in flight is ever completed. Of a device
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

    fn tell(&self, at: Time, late: Duration) {
        let events = self.model.borrow_mut().advance(at, late);
        for (slot, job) in events.jobs {
            self.spawn(slot, job);
        }
        for completed in events.done {
            self.read.replace((completed.addresses, completed.pages));
            completed.owner.completed(at, &completed.done);
        }
        self.read.take();
        for owner in events.alarms {
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
            drive.doorbell();
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
}

impl Timed for Drive {
    fn deliver(&self) -> Option<Time> {
        if self.reporting.replace(true) {
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
        self.reporting.set(false);
        self.next()
    }

    fn pump(&self) -> &Pump {
        &self.pump
    }
}

impl Backing for Drive {
    fn rt(&self) -> &Rt {
        &self.rt
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn register(&self, owner: Weak<dyn Owner>) -> OwnerId {
        self.model.borrow_mut().register(owner)
    }

    fn is_on(&self) -> bool {
        self.model.borrow().medium().is_some()
    }

    fn catch_up(&self) -> Time {
        self.deliver();
        self.clock.drive_time(self.rt.turn_time())
    }

    fn submit(
        &self,
        at: Time,
        owner: OwnerId,
        tag: u32,
        vector: Vector<'_>,
    ) -> Option<Result<u64, Rejected>> {
        let mut model = self.model.borrow_mut();
        let accepted = model.submit(at, (owner, tag), vector)?;
        let job = model.begin_read(vector, accepted.unwrap_or(0));
        drop(model);
        if let Some((slot, job)) = job {
            self.spawn(slot, job);
        }
        Some(accepted)
    }

    fn store(&self, _: OwnerId, _: u32, address: u64, data: &[u8]) -> Option<Result<(), IoError>> {
        self.model.borrow_mut().store(address, data)
    }

    fn read(&self, address: u64, target: &mut [u8]) -> bool {
        let (addresses, pages) = &*self.read.borrow();
        if matches!(pages, Pages::InMemory) {
            return self.model.borrow().read(address, target);
        }
        let place = addresses.iter().position(|one| *one == address);
        let page = place.and_then(|place| pages.get(place));
        page.inspect(|page| target.copy_from_slice(page)).is_some()
    }

    fn forget(&self, address: u64) {
        self.model.borrow_mut().forget(address, &self.geometry);
    }

    fn is_kept(&self) -> bool {
        self.model.borrow().medium().is_some_and(Medium::is_kept)
    }

    fn is_full(&self) -> bool {
        self.model
            .borrow()
            .file()
            .is_some_and(|file| file.is_full())
    }

    fn wait_for_space(&self, wait: bool) {
        if let Some(file) = self.model.borrow().file() {
            file.wait_for_space(wait);
        }
    }

    fn failure(&self) -> Option<IoError> {
        self.failure.get()
    }

    fn set_alarm(&self, owner: OwnerId, alarm: Option<Time>) {
        self.model.borrow_mut().set_alarm(owner, alarm);
    }

    fn chunk(&self, address: u64) -> Option<ChunkInfo> {
        self.model.borrow().medium()?.device.chunk(address)
    }

    fn report(&self) -> Vec<ChunkInfo> {
        let model = self.model.borrow();
        let chunks = |medium: &Medium| medium.device.report().collect();
        model.medium().map(chunks).unwrap_or_default()
    }

    fn doorbell(&self) {
        self.pump.wake_by(self.next());
    }

    fn writes_per_chunk(&self) -> u32 {
        2
    }

    fn lateness(&self, owner: OwnerId) -> Histogram {
        self.model.borrow().lateness(Some(owner))
    }
}
