//! What of a function stays while its guest resets it or its client goes: registers, configuration
//! space, and the ways from one part to the other.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use flashyard_controller::HostId;
use flashyard_controller::pcie::{
    Change, CompletionQueue, ConfigSpace, Doorbell, Identity, InterruptCoalescing, Need, Queues,
    Registers, config_space,
};
use flashyard_engine::Core;
use flashyard_nvme::fabrics::Shutdown;
use flashyard_nvme::vfio_user::DmaMap;
use flashyard_nvme::{CompletionQueueEntry, Nqn};
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Loans, Task, Watch};
use flashyard_time::Duration;
use zerocopy::IntoBytes;

use crate::controller::Controller;
use crate::doorbells::MemoryDoorbells;
use crate::interrupts::Interrupts;
use crate::memory::{GuestMemory, MapError, Unmapped};

/// Interrupt vectors of a function.
pub(crate) const VECTORS: u16 = 65;

/// What a function is.
#[derive(Clone, Debug)]
pub struct FunctionSpec {
    /// The subsystem of its tenant.
    pub subnqn: Nqn,
    /// What its controllers are called in lists of hosts; not to be shared with another function,
    /// for a host is fenced until what it issued has returned.
    pub host: HostId,
    /// How the guest rings.
    pub doorbells: Doorbells,
}

/// How a guest rings that does not use shadow doorbells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Doorbells {
    /// By a message of its machine monitor: an exit of the virtual machine and a few microseconds
    /// for each, and the function wakes at once when it sleeps.
    #[default]
    Trapped,
    /// By a store to memory that the monitor maps: no exit and no message, but it wakes no core. A
    /// core that sleeps looks each millisecond, which takes about 1 % of it.
    Mapped,
}

/// How long an answer may wait for I/O that a device is busy with: QEMU waits 5 s for it.
const PATIENCE: Duration = Duration::from_secs(4);

/// How often it is looked whether memory that was let go of is unmapped.
const ROOM: Duration = Duration::from_ms(1);

/// Vendor and device. This project has no numbers of its own; these are those of SPDK's vfio-user
/// target, for which guests have no quirks. A monitor can show others (QEMU: `x-pci-vendor-id`).
pub(crate) const IDENTITY: Identity = Identity {
    vendor: 0x4e58,
    device: 0x0001,
    subsystem_vendor: 0x4e58,
    subsystem: 0x0001,
};

/// The parts of a function.
pub(crate) struct State {
    pub(crate) core: Rc<Core>,
    pub(crate) spec: FunctionSpec,
    /// A client is there; another one is let go.
    pub(crate) connected: Cell<bool>,
    pub(crate) registers: RefCell<Registers>,
    pub(crate) config: RefCell<ConfigSpace>,
    pub(crate) memory: RefCell<GuestMemory>,
    /// What of it devices move data to and from at the moment.
    pub(crate) loans: Rc<Loans>,
    pub(crate) queues: RefCell<Queues>,
    pub(crate) interrupts: RefCell<Interrupts>,
    /// While CC.EN is 1 and it has been made.
    pub(crate) controller: RefCell<Option<Rc<Controller>>>,
    /// What the last change of CC.EN takes: making a controller, or waiting until nothing of one is
    /// at work. The next change ends it.
    changing: RefCell<Option<Task<()>>>,
    /// Submission queues to be looked at.
    pub(crate) rung: RefCell<Vec<u16>>,
    pub(crate) doorbells: RefCell<MemoryDoorbells>,
    /// Completion queues whose guest is still reading, so that no interrupt was sent.
    pub(crate) held: RefCell<Vec<u16>>,
    /// While there are doorbells in memory to be looked at.
    pub(crate) watch: RefCell<Option<Watch>>,
    /// Wakes the pump.
    pub(crate) ring: Notify,
    /// Wakes who sends interrupts.
    pub(crate) interrupt: Notify,
}

impl State {
    pub(crate) fn new(core: &Rc<Core>, spec: FunctionSpec) -> io::Result<Rc<Self>> {
        let doorbells = match spec.doorbells {
            Doorbells::Trapped => MemoryDoorbells::default(),
            Doorbells::Mapped => MemoryDoorbells::mappable()?,
        };
        let depth = core.target().config().limits.queue_depth;
        Ok(Rc::new(Self {
            core: core.clone(),
            connected: Cell::new(false),
            registers: RefCell::new(Registers::new(depth)),
            config: RefCell::new(ConfigSpace::new(&IDENTITY, VECTORS)),
            memory: RefCell::default(),
            loans: Rc::default(),
            queues: RefCell::default(),
            interrupts: RefCell::new(Interrupts::new(VECTORS)),
            controller: RefCell::default(),
            changing: RefCell::default(),
            rung: RefCell::default(),
            doorbells: RefCell::new(doorbells),
            held: RefCell::default(),
            watch: RefCell::default(),
            ring: Notify::new(),
            interrupt: Notify::new(),
            spec,
        }))
    }

    /// Its controller, if it has one.
    pub(crate) fn controller(&self) -> Option<Rc<Controller>> {
        self.controller.borrow().clone()
    }

    /// A register was written, with this consequence.
    pub(crate) fn apply(self: &Rc<Self>, change: Change) {
        match change {
            Change::Enable(queues) => {
                let made = Controller::make(self.clone(), queues);
                let made = self.core.rt().spawn(made);
                self.changing.replace(Some(made));
            }
            Change::Disable => {
                self.changing.take();
                self.drop_controller(true);
                self.stop();
            }
            Change::Shutdown { abrupt } => {
                let kind = if abrupt {
                    Shutdown::Abrupt
                } else {
                    Shutdown::Normal
                };
                if let Some(controller) = self.controller() {
                    controller.shut_down(kind);
                }
                // Nothing is held back here that a Flush would save.
                self.registers.borrow_mut().set_shut_down();
            }
            Change::InterruptMask => self.remind(),
        }
    }

    /// Ends the controller, if there is one: nothing more is fetched, and no memory of the guest is
    /// touched any more. What was issued returns in its time; until then the next one waits.
    pub(crate) fn drop_controller(&self, with_notice: bool) {
        self.queues.borrow_mut().reset();
        self.rung.borrow_mut().clear();
        self.held.borrow_mut().clear();
        self.watch.take();
        self.doorbells.borrow_mut().reset();
        let controller = self.controller.take();
        if let Some(controller) = controller {
            controller.end(with_notice);
        }
    }

    /// CSTS.RDY is 0 when no device moves data to and from the guest's memory any more.
    fn stop(self: &Rc<Self>) {
        if !self.loans.are_out() {
            return self.registers.borrow_mut().set_stopped();
        }
        let state = self.clone();
        let stopped = async move {
            state.loans.returned().await;
            state.registers.borrow_mut().set_stopped();
        };
        let stopped = self.core.rt().spawn(stopped);
        self.changing.replace(Some(stopped));
    }

    /// Waits until `done`, of what is lent; for no longer than a client waits for an answer. Then
    /// the controller has failed, and data of what is still at the device go to memory that the
    /// guest believes to be its own again.
    pub(crate) async fn until_returned(&self, done: impl Fn() -> bool) {
        let mut returned = pin!(self.loans.until(done));
        let mut late = self.core.rt().sleep(PATIENCE);
        let in_time = poll_fn(|context| {
            if returned.as_mut().poll(context).is_ready() {
                return Poll::Ready(true);
            }
            Pin::new(&mut late).poll(context).map(|()| false)
        });
        if !in_time.await {
            self.fail();
        }
    }

    /// Takes a region of the guest's memory; waits for room if memory that was let go of takes it,
    /// for no longer than a client waits for an answer.
    pub(crate) async fn map(&self, map: &DmaMap, fd: Option<&OwnedFd>) -> Result<(), MapError> {
        let deadline = self.core.rt().now() + PATIENCE;
        loop {
            let mapped = self.memory.borrow_mut().map(map, fd);
            let comes = self.memory.borrow().is_leaving() && self.core.rt().now() < deadline;
            if mapped != Err(MapError::TooMany) || !comes {
                return mapped;
            }
            self.core.rt().sleep(ROOM).await;
        }
    }

    /// A reset of the function. Memory and eventfds are the client's and stay.
    pub(crate) fn reset(&self) {
        self.changing.take();
        self.drop_controller(true);
        let depth = self.core.target().config().limits.queue_depth;
        *self.registers.borrow_mut() = Registers::new(depth);
        self.config.borrow_mut().reset();
        self.interrupts.borrow_mut().reset();
    }

    /// The client has gone: nothing of it is left for the next one.
    pub(crate) fn forget_client(&self) {
        let said_goodbye = self.controller().is_none_or(|it| it.has_said_goodbye());
        self.drop_controller(said_goodbye);
        self.reset();
        self.interrupts.borrow_mut().forget_client();
        self.memory.borrow_mut().clear();
    }

    /// The guest has set up something that cannot work: CSTS.CFS, until it resets the controller.
    #[cold]
    pub(crate) fn fail(&self) {
        self.registers.borrow_mut().set_fatal();
    }

    /// Whether commands may be fetched, and completions written.
    pub(crate) fn is_running(&self) -> bool {
        self.registers.borrow().is_ready() && self.config.borrow().is_bus_master()
    }

    /// The guest has written a doorbell.
    pub(crate) fn on_doorbell(&self, doorbell: Doorbell, value: u32) {
        if !self.registers.borrow().is_ready() {
            return;
        }
        let shadowed = self.doorbells.borrow().are_shadowed() && doorbell.index() > 1;
        if !shadowed {
            self.doorbells.borrow_mut().written(doorbell, value);
            let rung = self.queues.borrow_mut().ring(doorbell, value);
            if let Err(invalid) = rung
                && let Some(controller) = self.controller()
            {
                controller.on_invalid_doorbell(invalid);
                return;
            }
        }
        match doorbell {
            Doorbell::Tail(qid) => self.look_at(qid),
            Doorbell::Head(cqid) => self.look_at_users(cqid),
        }
    }

    /// Has the pump look at a submission queue.
    pub(crate) fn look_at(&self, qid: u16) {
        let mut rung = self.rung.borrow_mut();
        if !rung.contains(&qid) {
            rung.push(qid);
        }
        self.ring.notify_one();
    }

    /// Has the pump look at those that complete to `cqid`, which has more room; reports events that
    /// have waited for it.
    pub(crate) fn look_at_users(&self, cqid: u16) {
        let users: Vec<u16> = self.queues.borrow().users(cqid).collect();
        for qid in users {
            self.look_at(qid);
        }
        if cqid == 0
            && let Some(controller) = self.controller()
        {
            controller.report_events();
        }
    }

    /// Has the pump look at all: the guest lets the function touch its memory now.
    pub(crate) fn look_at_all(&self) {
        for cqid in 0..=self.core.target().config().limits.io_queues {
            self.look_at_users(cqid);
        }
    }

    /// Bytes of the configuration space were written.
    pub(crate) fn on_config(&self, change: config_space::ConfigChange) {
        if change.reset {
            self.reset();
        } else if change.interrupts {
            self.look_at_all();
            self.interrupt.notify_one();
            self.remind();
        }
    }

    /// Sends INTx again if the guest has completions to read: they may have come while it was
    /// masked.
    pub(crate) fn remind(&self) {
        if self.queues.borrow().has_unread(0) && self.takes_intx() {
            self.interrupts.borrow().remind();
        }
    }

    fn takes_intx(&self) -> bool {
        !self.config.borrow().is_intx_disabled()
            && self.registers.borrow().interrupt_mask() & 1 == 0
    }

    /// Writes a completion of a command of queue `sqid`, for which there is a place.
    pub(crate) fn post(&self, sqid: u16, entry: CompletionQueueEntry) {
        if let Err(Unmapped) = self.try_post(sqid, entry) {
            self.fail();
        }
    }

    fn try_post(&self, sqid: u16, entry: CompletionQueueEntry) -> Result<(), Unmapped> {
        let mut queues = self.queues.borrow_mut();
        let queue = queues.submission(sqid).ok_or(Unmapped)?;
        let (cqid, head) = (queue.cqid(), queue.head());
        let vector = queues.completion(cqid).and_then(CompletionQueue::vector);
        let slot = queues.post(cqid).ok_or(Unmapped)?;
        drop(queues);
        let entry = entry.with_queue(head, sqid);
        let mut words = [0u32; 4];
        words.as_mut_bytes().copy_from_slice(entry.as_bytes());
        let [dw0, dw1, dw2, last] = words.map(u32::from_le);
        // The guest takes the entry when it sees the phase, so that is written last.
        let last = last & !(1 << 16) | u32::from(slot.phase) << 16;
        let memory = self.memory.borrow();
        memory.post(slot.address, [dw0, dw1, dw2, last])?;
        drop(memory);
        self.look_at_full(cqid);
        if let Some(vector) = vector {
            self.announce(cqid, vector);
        }
        Ok(())
    }

    /// A completion was posted: the guest is interrupted, unless it is still reading those before
    /// it and this function sees when it has.
    fn announce(&self, cqid: u16, vector: u16) {
        if self.held.borrow().contains(&cqid) {
            return;
        }
        if self.sees_heads(cqid) && self.interrupts_at_once(vector) {
            self.look_at_head(cqid);
            if self.need(cqid) == Need::Later {
                self.held.borrow_mut().push(cqid);
                return;
            }
        }
        self.interrupt_for(cqid, vector);
    }

    fn need(&self, cqid: u16) -> Need {
        let queues = self.queues.borrow();
        let queue = queues.completion(cqid);
        queue.map_or(Need::Nothing, CompletionQueue::need)
    }

    fn interrupt_for(&self, cqid: u16, vector: u16) {
        self.queues.borrow_mut().notify(cqid);
        self.interrupts.borrow_mut().posted(vector);
        self.interrupt.notify_one();
    }

    /// Whether interrupts of a vector do not wait for each other as the guest has set it.
    fn interrupts_at_once(&self, vector: u16) -> bool {
        let coalescing = self
            .controller()
            .and_then(|it| it.interrupt_coalescing(vector));
        !coalescing.is_some_and(InterruptCoalescing::is_on)
    }

    /// Sends the interrupts that were held back for guests that have read on since; with `all` any
    /// that was held back. Whether there was any to send.
    pub(crate) fn release_interrupts(&self, all: bool) -> bool {
        let mut released = false;
        let mut at = 0;
        loop {
            let Some(cqid) = self.held.borrow().get(at).copied() else {
                return released;
            };
            self.look_at_head(cqid);
            let need = self.need(cqid);
            if need == Need::Later && !all {
                at += 1;
                continue;
            }
            self.held.borrow_mut().swap_remove(at);
            let queues = self.queues.borrow();
            let vector = queues.completion(cqid).and_then(CompletionQueue::vector);
            drop(queues);
            match vector {
                Some(vector) if need != Need::Nothing => {
                    self.interrupt_for(cqid, vector);
                    released = true;
                }
                _ => self.queues.borrow_mut().notify(cqid),
            }
        }
    }

    /// Sends the interrupts of completions that were posted in this turn.
    pub(crate) fn send_interrupts(&self) {
        if !self.config.borrow().is_bus_master() {
            return;
        }
        let controller = self.controller();
        let now = self.core.rt().turn_time();
        let coalescing = |vector| {
            let controller = controller.as_ref()?;
            controller.interrupt_coalescing(vector)
        };
        let takes_intx = self.takes_intx();
        self.interrupts
            .borrow_mut()
            .flush(now, takes_intx, coalescing);
    }
}

#[cfg(test)]
mod tests;
