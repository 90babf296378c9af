//! A function and its workers on other cores: what they tell each other. Neither has anything of
//! the other's; each does what the other sends, in its order. What the home core asks of all
//! workers counts as answered when each has done it, or has gone.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flashyard_controller::pcie::{Doorbell, InvalidDoorbell};
use flashyard_engine::Core;
use flashyard_engine::front::ConnectionId;
use flashyard_nvme::SubmissionQueueEntry;
use flashyard_runtime::Task;
use flashyard_runtime::channel::{Receiver, Sender, channel};
use flashyard_runtime::sync::Notify;

use crate::controller::Controller;
use crate::doorbells::{MemoryDoorbells, SharedDoorbells};
use crate::function::State;
use crate::interrupts::EventFds;
use crate::memory::SharedRegion;
use crate::worker::{Gate, Worker};

/// Something to be done where a `T` is.
type Act<T> = Box<dyn FnOnce(&Rc<T>) + Send>;

/// The workers of a function on other cores, as its home core has them.
#[derive(Default)]
pub(crate) struct Workers {
    links: RefCell<BTreeMap<usize, Link>>,
    /// Where each completion queue is, and with it those that complete to it.
    places: RefCell<BTreeMap<u16, usize>>,
    /// What was asked of all of them, and how many have not answered.
    asked: RefCell<BTreeMap<u64, usize>>,
    last: Cell<u64>,
    answered: Notify,
    /// What they say, and who does it; from the first one on.
    inbox: RefCell<Option<Inbox>>,
}

/// Where workers send to, and the task that does what they say.
type Inbox = (Sender<Act<State>>, Task<()>);

/// The way to one worker. It ends when this is dropped.
struct Link {
    acts: Sender<Act<Worker>>,
    /// Doorbells that were rung and not looked at: the worker has been told of them.
    rung: Arc<Mutex<BTreeMap<Doorbell, u32>>>,
}

/// What was asked of all workers.
#[derive(Clone, Copy)]
#[must_use = "the answers may have to be waited for"]
pub(crate) struct Asked(u64);

/// An answer, which is given when this is dropped: also when the worker has gone.
pub(crate) struct Ack {
    asked: u64,
    home: Sender<Act<State>>,
}

impl Drop for Ack {
    fn drop(&mut self) {
        let asked = self.asked;
        // If the home core has gone nobody waits.
        let _ = self
            .home
            .send(Box::new(move |state| state.workers.on_answer(asked)));
    }
}

impl Workers {
    /// The other core that a doorbell's queue is on; `cqid` is the completion queue of that.
    pub(crate) fn core_of(&self, cqid: u16, home: usize) -> Option<usize> {
        let core = self.places.borrow().get(&cqid).copied();
        core.filter(|core| *core != home)
    }

    /// Whether everything is on the home core.
    pub(crate) fn are_none(&self) -> bool {
        self.links.borrow().is_empty()
    }

    /// Of `cores` the one with the fewest queues; the first one of several.
    pub(crate) fn emptiest(&self, cores: impl Iterator<Item = usize>) -> Option<usize> {
        let places = self.places.borrow();
        let queues = |core: &usize| places.values().filter(|place| *place == core).count();
        cores.min_by_key(queues)
    }

    /// A completion queue is on this core from now on.
    pub(crate) fn place(&self, cqid: u16, core: usize) {
        self.places.borrow_mut().insert(cqid, core);
    }

    /// A completion queue is nowhere any more.
    pub(crate) fn remove(&self, cqid: u16) {
        self.places.borrow_mut().remove(&cqid);
    }

    /// There are no queues any more.
    pub(crate) fn reset(&self) {
        self.places.borrow_mut().clear();
    }

    /// Has the worker on `core` do something, if there is one.
    pub(crate) fn tell(&self, core: usize, act: impl FnOnce(&Rc<Worker>) + Send + 'static) {
        if let Some(link) = self.links.borrow().get(&core) {
            // One that has gone does nothing, and all it had has ended.
            let _ = link.acts.send(Box::new(act));
        }
    }

    /// Tells the worker on `core` of a doorbell. Of several values it may see only the last one.
    pub(crate) fn ring(&self, core: usize, doorbell: Doorbell, value: u32) {
        let links = self.links.borrow();
        let Some(link) = links.get(&core) else { return };
        let mut rung = lock(&link.rung);
        let told = !rung.is_empty();
        rung.insert(doorbell, value);
        drop(rung);
        if !told {
            let rung = link.rung.clone();
            let look = move |worker: &Rc<Worker>| {
                let rung = mem::take(&mut *lock(&rung));
                for (doorbell, value) in rung {
                    worker.on_doorbell(doorbell, value);
                }
            };
            let _ = link.acts.send(Box::new(look));
        }
    }

    /// Asks all workers to do something; it is answered when the last [`Ack`] has been dropped.
    pub(crate) fn ask<A>(&self, mut make: impl FnMut() -> A) -> Asked
    where
        A: FnOnce(&Rc<Worker>, Ack) + Send + 'static,
    {
        let (links, inbox) = (self.links.borrow(), self.inbox.borrow());
        let Some((home, _)) = inbox.as_ref().filter(|_| !links.is_empty()) else {
            return Asked(0);
        };
        self.last.set(self.last.get() + 1);
        let asked = self.last.get();
        self.asked.borrow_mut().insert(asked, links.len());
        for link in links.values() {
            let home = home.clone();
            let (act, ack) = (make(), Ack { asked, home });
            let _ = link.acts.send(Box::new(move |worker| act(worker, ack)));
        }
        Asked(asked)
    }

    /// Whether all have answered.
    pub(crate) fn have_answered(&self, Asked(asked): Asked) -> bool {
        !self.asked.borrow().contains_key(&asked)
    }

    /// Waits until all have answered.
    pub(crate) async fn answers(&self, asked: Asked) {
        while !self.have_answered(asked) {
            self.answered.notified().await;
        }
    }

    fn on_answer(&self, asked: u64) {
        let mut all = self.asked.borrow_mut();
        if let Some(left) = all.get_mut(&asked) {
            *left -= 1;
            if *left == 0 {
                all.remove(&asked);
                self.answered.notify_all();
            }
        }
    }

    /// Lets all workers end.
    pub(crate) fn dismiss(&self) {
        self.places.borrow_mut().clear();
        self.links.borrow_mut().clear();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a worker begins with.
struct Beginning {
    memory: Vec<SharedRegion>,
    doorbells: SharedDoorbells,
    eventfds: EventFds,
    gate: Gate,
}

impl State {
    /// Has a worker on another core, if that can be. False if not.
    pub(crate) fn has_worker(self: &Rc<Self>, core: usize) -> bool {
        if self.workers.links.borrow().contains_key(&core) {
            return true;
        }
        let (acts, orders) = channel();
        let beginning = Beginning {
            memory: self.worker.memory.borrow().share(),
            doorbells: self.worker.doorbells.borrow().share(),
            eventfds: self.worker.interrupts.borrow().share(),
            gate: self.worker.gate.get(),
        };
        let reports = Reports::new(core, self.hear());
        let started = self.core.run_on(core, move |core| {
            let worker = begin(core, reports, beginning);
            core.rt().spawn(serve(worker, orders)).detach();
        });
        if started {
            let rung = Arc::default();
            let mut links = self.workers.links.borrow_mut();
            links.insert(core, Link { acts, rung });
        }
        started
    }

    /// The way home for workers.
    fn hear(self: &Rc<Self>) -> Sender<Act<Self>> {
        let mut inbox = self.workers.inbox.borrow_mut();
        let (sender, _) = inbox.get_or_insert_with(|| {
            let (sender, acts) = channel::<Act<Self>>();
            let state = Rc::downgrade(self);
            let hear = async move {
                while let Some(act) = acts.recv().await {
                    let Some(state) = state.upgrade() else { return };
                    act(&state);
                }
            };
            (sender, self.core.rt().spawn(hear))
        });
        sender.clone()
    }

    /// The controller of this name, if it is the one that there is.
    pub(crate) fn controller_of(&self, id: ConnectionId) -> Option<Rc<Controller>> {
        self.controller().filter(|controller| controller.id == id)
    }

    fn on_alarm(&self, core: usize, of: Option<ConnectionId>, alarm: Alarm) {
        if let Some(controller) = of.and_then(|id| self.controller_of(id)) {
            if alarm.failed {
                self.fail();
            }
            for invalid in alarm.invalid {
                controller.on_invalid_doorbell(invalid);
            }
            let takes_intx = self.worker.gate.get().takes_intx;
            let mut interrupts = self.worker.interrupts.borrow_mut();
            for vector in alarm.vectors {
                interrupts.interrupt_or_pend(vector, takes_intx);
            }
        }
        self.workers
            .tell(core, |worker| worker.home.on_alarm_heard(worker));
    }
}

fn begin(core: &Rc<Core>, reports: Reports, beginning: Beginning) -> Rc<Worker> {
    let mut memory = beginning.memory.into_iter();
    let worker = Worker::new(core, Home::There(reports), MemoryDoorbells::default());
    memory
        .by_ref()
        .for_each(|region| worker.memory.borrow_mut().take(region));
    let doorbells = MemoryDoorbells::shared(&beginning.doorbells, &worker.memory.borrow());
    *worker.doorbells.borrow_mut() = doorbells;
    let mut interrupts = worker.interrupts.borrow_mut();
    interrupts.put(core.rt(), beginning.eventfds);
    drop(interrupts);
    worker.gate.set(beginning.gate);
    Rc::new(worker)
}

/// Does what the home core says, until it has nothing more to say.
async fn serve(worker: Rc<Worker>, orders: Receiver<Act<Worker>>) {
    let _tasks = worker.tasks();
    while let Some(act) = orders.recv().await {
        act(&worker);
    }
    worker.forget_client();
}

/// The way from a worker to the function.
pub(crate) enum Home {
    /// On the same core.
    Here(Weak<State>),
    /// On another one.
    There(Reports),
}

/// What a worker has to say, of which at most one piece is on its way.
pub(crate) struct Reports {
    core: usize,
    home: Sender<Act<State>>,
    alarm: RefCell<Alarm>,
    is_away: Cell<bool>,
}

/// What has happened since the last one.
#[derive(Default, PartialEq, Eq)]
struct Alarm {
    failed: bool,
    invalid: BTreeSet<InvalidDoorbell>,
    /// Of interrupts for which the worker has no eventfd.
    vectors: BTreeSet<u16>,
}

impl Reports {
    fn new(core: usize, home: Sender<Act<State>>) -> Self {
        Self {
            core,
            home,
            alarm: RefCell::default(),
            is_away: Cell::new(false),
        }
    }

    fn raise(&self, worker: &Worker, what: impl FnOnce(&mut Alarm)) {
        what(&mut self.alarm.borrow_mut());
        if !self.is_away.get() {
            self.send(worker);
        }
    }

    fn send(&self, worker: &Worker) {
        let alarm = self.alarm.take();
        self.is_away.set(alarm != Alarm::default());
        if self.is_away.get() {
            let controller = worker.controller.borrow();
            let (core, of) = (self.core, controller.as_ref().map(|(id, _)| *id));
            let _ = self
                .home
                .send(Box::new(move |state| state.on_alarm(core, of, alarm)));
        }
    }
}

impl Home {
    /// Has the function do something for a worker of another core.
    pub(crate) fn tell(&self, act: impl FnOnce(&Rc<State>) + Send + 'static) {
        if let Self::There(reports) = self {
            let _ = reports.home.send(Box::new(act));
        }
    }

    /// A command of the Admin queue was fetched.
    pub(crate) fn on_admin(&self, entry: &SubmissionQueueEntry) {
        if let Some(controller) = self.controller() {
            controller.on_admin(entry);
        }
    }

    /// There may be places for completions of events.
    pub(crate) fn report_events(&self) {
        if let Some(controller) = self.controller() {
            controller.report_events();
        }
    }

    fn controller(&self) -> Option<Rc<Controller>> {
        match self {
            Self::Here(state) => state.upgrade()?.controller(),
            Self::There(_) => None,
        }
    }

    /// The guest has set up something that cannot work.
    #[cold]
    pub(crate) fn fail(&self, worker: &Worker) {
        match self {
            Self::Here(state) => {
                if let Some(state) = state.upgrade() {
                    state.fail();
                }
            }
            Self::There(reports) => reports.raise(worker, |alarm| alarm.failed = true),
        }
    }

    /// A doorbell was written in vain.
    pub(crate) fn on_invalid_doorbell(&self, worker: &Worker, invalid: InvalidDoorbell) {
        match self {
            Self::Here(_) => {
                if let Some(controller) = self.controller() {
                    controller.on_invalid_doorbell(invalid);
                }
            }
            Self::There(reports) => reports.raise(worker, |alarm| {
                alarm.invalid.insert(invalid);
            }),
        }
    }

    /// An interrupt is due, for which the worker has no eventfd.
    pub(crate) fn interrupt(&self, worker: &Worker, vector: u16) {
        match self {
            Self::Here(_) => worker.interrupts.borrow_mut().msix.set_pending(vector),
            Self::There(reports) => reports.raise(worker, |alarm| {
                alarm.vectors.insert(vector);
            }),
        }
    }

    fn on_alarm_heard(&self, worker: &Worker) {
        if let Self::There(reports) = self {
            reports.send(worker);
        }
    }
}
