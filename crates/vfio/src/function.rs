//! What of a function stays while its guest resets it or its client goes: registers, configuration
//! space, and the ways from one part to the other.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::Poll;

use flashyard_controller::HostId;
use flashyard_controller::pcie::{
    Change, ConfigSpace, Doorbell, Identity, Queues, Registers, config_space,
};
use flashyard_engine::Core;
use flashyard_nvme::Nqn;
use flashyard_nvme::fabrics::Shutdown;
use flashyard_nvme::vfio_user::{DmaMap, DmaUnmap, SetIrqs};
use flashyard_runtime::Task;
use flashyard_runtime::unix::Descriptors;
use flashyard_time::Duration;

use crate::controller::Controller;
use crate::doorbells::MemoryDoorbells;
use crate::interrupts::InvalidIrqs;
use crate::memory::MapError;
use crate::worker::{Gate, Worker};
use crate::workers::{Ack, Asked, Home, Workers};

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
    /// On how many cores its I/O queues are, if it has as many and the target has: the home core
    /// first. At least 1.
    pub cores: usize,
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
    /// Serves queues on the home core.
    pub(crate) worker: Rc<Worker>,
    /// Serve queues on other cores.
    pub(crate) workers: Workers,
    /// The last change of what workers go by that they were told of.
    gate_told: Cell<Option<Asked>>,
    /// All I/O queues there are, for Create and Delete; what moves is at their workers.
    pub(crate) queues: RefCell<Queues>,
    /// While CC.EN is 1 and it has been made.
    pub(crate) controller: RefCell<Option<Rc<Controller>>>,
    /// What the last change of CC.EN takes: making a controller, or waiting until nothing of one is
    /// at work. The next change ends it.
    changing: RefCell<Option<Task<()>>>,
    /// Workers were asked to end all queues of the last controller.
    stopped: Cell<Option<Asked>>,
}

impl State {
    pub(crate) fn new(core: &Rc<Core>, spec: FunctionSpec) -> io::Result<Rc<Self>> {
        let doorbells = match spec.doorbells {
            Doorbells::Trapped => MemoryDoorbells::default(),
            Doorbells::Mapped => MemoryDoorbells::mappable()?,
        };
        let depth = core.target().config().limits.queue_depth;
        Ok(Rc::new_cyclic(|this: &Weak<Self>| Self {
            core: core.clone(),
            connected: Cell::new(false),
            registers: RefCell::new(Registers::new(depth)),
            config: RefCell::new(ConfigSpace::new(&IDENTITY, VECTORS)),
            worker: Rc::new(Worker::new(core, Home::Here(this.clone()), doorbells)),
            workers: Workers::default(),
            gate_told: Cell::default(),
            queues: RefCell::default(),
            controller: RefCell::default(),
            changing: RefCell::default(),
            stopped: Cell::default(),
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
            Change::InterruptMask => self.worker.remind(),
        }
    }

    /// Ends the controller, if there is one: nothing more is fetched, and no memory of the guest is
    /// touched any more; on other cores when that is answered. What was issued returns in its time;
    /// until then the next one waits.
    pub(crate) fn drop_controller(&self, with_notice: bool) {
        self.queues.borrow_mut().reset();
        self.workers.reset();
        self.worker.stop();
        self.stopped.set(Some(self.workers.ask(|| {
            |worker: &Rc<Worker>, ack| {
                worker.stop();
                worker.when_returned(ack);
            }
        })));
        let controller = self.controller.take();
        if let Some(controller) = controller {
            controller.end(with_notice);
        }
    }

    /// CSTS.RDY is 0 when no device moves data to and from the guest's memory any more.
    fn stop(self: &Rc<Self>) {
        if self.is_stopped() {
            return self.registers.borrow_mut().set_stopped();
        }
        let state = self.clone();
        let stopped = async move {
            state.stopped().await;
            state.registers.borrow_mut().set_stopped();
        };
        let stopped = self.core.rt().spawn(stopped);
        self.changing.replace(Some(stopped));
    }

    fn is_stopped(&self) -> bool {
        let others = self.stopped.get();
        !self.worker.loans.are_out() && others.is_none_or(|asked| self.workers.have_answered(asked))
    }

    /// Waits until nothing of the last controller is at work on any core.
    async fn stopped(&self) {
        self.worker.loans.returned().await;
        if let Some(asked) = self.stopped.get() {
            self.workers.answers(asked).await;
        }
    }

    /// The same, for no longer than a client waits for an answer.
    pub(crate) async fn until_stopped(&self) {
        self.in_time(self.stopped()).await;
    }

    /// Waits until all workers have answered, for no longer than a client waits for that.
    pub(crate) async fn until_answered(&self, asked: Asked) {
        self.in_time(self.workers.answers(asked)).await;
    }

    /// Waits for what is lent, for no longer than a client waits for an answer. Then the controller
    /// has failed, and data of what is still at the device go to memory that the guest believes to
    /// be its own again.
    async fn in_time(&self, returned: impl Future<Output = ()>) {
        let mut returned = pin!(returned);
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

    /// Lets memory go, and waits until no core uses it. False if there is no such region.
    pub(crate) async fn unmap(&self, unmap: &DmaUnmap) -> bool {
        let gone = self.worker.memory.borrow_mut().unmap(unmap);
        let Some(gone) = gone else { return false };
        self.worker.revise_doorbells();
        let others = self.workers.ask(|| {
            let unmap = *unmap;
            move |worker: &Rc<Worker>, ack| worker.unmap(&unmap, ack)
        });
        // Devices that are at it have all of it.
        let unused = move || gone.iter().all(|mapping| Rc::strong_count(mapping) == 1);
        let everywhere = async {
            self.worker.loans.until(unused).await;
            self.workers.answers(others).await;
        };
        self.in_time(everywhere).await;
        true
    }

    /// Sets interrupts up as the client wants it, on all cores.
    pub(crate) async fn set_irqs(
        &self,
        set: &SetIrqs<'_>,
        fds: &mut Descriptors,
    ) -> Result<(), InvalidIrqs> {
        let rt = self.core.rt();
        self.worker.interrupts.borrow_mut().set(rt, set, fds)?;
        let told = self.workers.ask(|| {
            let eventfds = self.worker.interrupts.borrow().share_of(set);
            move |worker: &Rc<Worker>, _: Ack| {
                let mut interrupts = worker.interrupts.borrow_mut();
                interrupts.put(worker.core.rt(), eventfds);
                drop(interrupts);
                worker.remind();
            }
        });
        self.worker.remind();
        self.until_answered(told).await;
        Ok(())
    }

    /// Takes a region of the guest's memory; waits for room if memory that was let go of takes it,
    /// for no longer than a client waits for an answer.
    pub(crate) async fn map(&self, map: &DmaMap, fd: Option<&OwnedFd>) -> Result<(), MapError> {
        let deadline = self.core.rt().now() + PATIENCE;
        loop {
            // Asked first: it may have gone when the region is refused.
            let comes = self.worker.memory.borrow().is_leaving() && self.core.rt().now() < deadline;
            let mapped = self.worker.memory.borrow_mut().map(map, fd);
            match mapped {
                Err(MapError::TooMany) if comes => self.core.rt().sleep(ROOM).await,
                Err(error) => return Err(error),
                Ok(()) => break,
            }
        }
        let told = self.workers.ask(|| {
            let region = self.worker.memory.borrow().share_of(map.address);
            move |worker: &Rc<Worker>, _: Ack| {
                if let Some(region) = region {
                    worker.memory.borrow_mut().take(region);
                }
            }
        });
        self.until_answered(told).await;
        Ok(())
    }

    /// A reset of the function. Memory and eventfds are the client's and stay.
    pub(crate) fn reset(&self) {
        self.changing.take();
        self.drop_controller(true);
        let depth = self.core.target().config().limits.queue_depth;
        *self.registers.borrow_mut() = Registers::new(depth);
        self.config.borrow_mut().reset();
        self.update_gate();
        self.worker.interrupts.borrow_mut().reset();
        let reset = || |worker: &Rc<Worker>, _: Ack| worker.interrupts.borrow_mut().reset();
        let _ = self.workers.ask(reset);
    }

    /// The client has gone: nothing of it is left for the next one.
    pub(crate) fn forget_client(&self) {
        let said_goodbye = self.controller().is_none_or(|it| it.has_said_goodbye());
        self.drop_controller(said_goodbye);
        self.reset();
        self.worker.forget_client();
        self.workers.dismiss();
    }

    /// The guest has set up something that cannot work: CSTS.CFS, until it resets the controller.
    #[cold]
    pub(crate) fn fail(&self) {
        self.registers.borrow_mut().set_fatal();
        self.update_gate();
    }

    /// Registers or configuration space may have changed: workers go by them.
    pub(crate) fn update_gate(&self) {
        let (registers, config) = (self.registers.borrow(), self.config.borrow());
        let gate = Gate {
            running: registers.is_ready() && config.is_bus_master(),
            bus_master: config.is_bus_master(),
            takes_intx: !config.is_intx_disabled() && registers.interrupt_mask() & 1 == 0,
        };
        if self.worker.gate.replace(gate) != gate {
            let told = self
                .workers
                .ask(|| move |worker: &Rc<Worker>, _: Ack| worker.set_gate(gate));
            self.gate_told.set(Some(told));
        }
    }

    /// Waits until all workers go by what registers and configuration space say.
    pub(crate) async fn gate_taken(&self) {
        if let Some(told) = self.gate_told.take() {
            self.until_answered(told).await;
        }
    }

    /// The guest has written a doorbell.
    pub(crate) fn on_doorbell(&self, doorbell: Doorbell, value: u32) {
        if !self.registers.borrow().is_ready() {
            return;
        }
        match self.core_of(doorbell) {
            None => self.worker.on_doorbell(doorbell, value),
            Some(core) => self.workers.ring(core, doorbell, value),
        }
    }

    /// The other core that serves the queue of a doorbell.
    fn core_of(&self, doorbell: Doorbell) -> Option<usize> {
        if self.workers.are_none() {
            return None;
        }
        let cqid = match doorbell {
            Doorbell::Tail(qid) => self.queues.borrow().submission(qid)?.cqid(),
            Doorbell::Head(cqid) => cqid,
        };
        self.workers.core_of(cqid, self.core.index())
    }

    /// Chooses the core for a completion queue and those that complete to it.
    pub(crate) fn place(self: &Rc<Self>, cqid: u16) -> Option<usize> {
        let (home, all) = (self.core.index(), self.core.target().config().cores);
        let cores = (0..all.min(self.spec.cores)).map(|next| (home + next) % all);
        let core = self.workers.emptiest(cores);
        let core = core.filter(|core| *core == home || self.has_worker(*core));
        let core = core.unwrap_or(home);
        self.workers.place(cqid, core);
        Some(core).filter(|core| *core != home)
    }

    /// Bytes of the configuration space were written.
    pub(crate) fn on_config(&self, change: config_space::ConfigChange) {
        self.update_gate();
        if change.reset {
            self.reset();
        } else if change.interrupts {
            self.worker.set_gate(self.worker.gate.get());
        }
    }
}

#[cfg(test)]
mod tests;
