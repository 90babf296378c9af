//! What serves queues of a function on one core: on its home core, with the Admin queue, and on
//! each other one that I/O queues were placed on. A worker has the guest's memory, its eventfds
//! and the doorbells for itself, so that cores share no look-up.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use flashyard_controller::ConnectRequest;
use flashyard_controller::pcie::{Bounds, CompletionQueue, Doorbell, NewQueue, Queues};
use flashyard_engine::Core;
use flashyard_engine::front::{self, Association, ConnectionId};
use flashyard_nvme::vfio_user::DmaUnmap;
use flashyard_nvme::{CompletionQueueEntry, Status, SubmissionQueueEntry};
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Loans, Watch};
use zerocopy::IntoBytes;

use crate::doorbells::MemoryDoorbells;
use crate::function::VECTORS;
use crate::interrupts::Interrupts;
use crate::io::IoConnection;
use crate::memory::{GuestMemory, Unmapped};
use crate::workers::{Ack, Home};

/// What registers and configuration space say of the guest's memory and its interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Gate {
    /// Commands may be fetched, and doorbells looked at.
    pub(crate) running: bool,
    /// Interrupts may be sent.
    pub(crate) bus_master: bool,
    /// INTx is neither disabled nor masked.
    pub(crate) takes_intx: bool,
}

/// Serves queues of a function on one core.
pub(crate) struct Worker {
    pub(crate) core: Rc<Core>,
    /// The way to the registers and the Admin queue.
    pub(crate) home: Home,
    pub(crate) gate: Cell<Gate>,
    /// The controller whose queues these are, by the name of its Admin connection.
    pub(crate) controller: RefCell<Option<(ConnectionId, Arc<Association>)>>,
    pub(crate) io: RefCell<BTreeMap<u16, Rc<IoConnection>>>,
    pub(crate) memory: RefCell<GuestMemory>,
    /// What of it devices move data to and from at the moment.
    pub(crate) loans: Rc<Loans>,
    pub(crate) queues: RefCell<Queues>,
    pub(crate) interrupts: RefCell<Interrupts>,
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

impl Worker {
    /// One without queues, in front of no memory yet.
    pub(crate) fn new(core: &Rc<Core>, home: Home, doorbells: MemoryDoorbells) -> Self {
        Self {
            core: core.clone(),
            home,
            gate: Cell::default(),
            controller: RefCell::default(),
            io: RefCell::default(),
            memory: RefCell::default(),
            loans: Rc::default(),
            queues: RefCell::default(),
            interrupts: RefCell::new(Interrupts::new(VECTORS)),
            rung: RefCell::default(),
            doorbells: RefCell::new(doorbells),
            held: RefCell::default(),
            watch: RefCell::default(),
            ring: Notify::new(),
            interrupt: Notify::new(),
        }
    }

    /// Queues of this controller come.
    pub(crate) fn begin(&self, id: ConnectionId, association: Arc<Association>) {
        *self.controller.borrow_mut() = Some((id, association));
    }

    /// Ends all queues: nothing more is fetched, and no memory of the guest is touched any more.
    /// What was issued returns in its time.
    pub(crate) fn stop(&self) {
        self.queues.borrow_mut().reset();
        self.rung.borrow_mut().clear();
        self.held.borrow_mut().clear();
        self.watch.take();
        self.doorbells.borrow_mut().reset();
        self.controller.take();
        for queue in self.io.take().into_values() {
            queue.detach();
            queue.stop();
        }
    }

    /// The client has gone.
    pub(crate) fn forget_client(&self) {
        self.stop();
        self.interrupts.borrow_mut().forget_client();
        self.memory.borrow_mut().clear();
    }

    /// Holds `ack` back until no device moves data to and from the guest's memory any more.
    pub(crate) fn when_returned(&self, ack: Ack) {
        if self.loans.are_out() {
            let loans = self.loans.clone();
            let returned = async move {
                loans.returned().await;
                drop(ack);
            };
            self.core.rt().spawn(returned).detach();
        }
    }

    /// Memory was unmapped: holds `ack` back until nothing here uses it.
    pub(crate) fn unmap(&self, unmap: &DmaUnmap, ack: Ack) {
        let gone = self.memory.borrow_mut().unmap(unmap).unwrap_or_default();
        self.revise_doorbells();
        let unused = move || gone.iter().all(|mapping| Rc::strong_count(mapping) == 1);
        if !unused() {
            let loans = self.loans.clone();
            let returned = async move {
                loans.until(unused).await;
                drop(ack);
            };
            self.core.rt().spawn(returned).detach();
        }
    }

    /// The guest lets the function touch its memory and interrupt it, or not, from now on.
    pub(crate) fn set_gate(&self, gate: Gate) {
        self.gate.set(gate);
        if gate.running {
            self.look_at_all();
        }
        self.interrupt.notify_one();
        self.remind();
    }

    /// Makes the completion queue of a Create command that was checked.
    pub(crate) fn create_completion(&self, entry: &SubmissionQueueEntry, bounds: Bounds) {
        if let Ok(new) = self.queues.borrow_mut().create_completion(entry, bounds) {
            let mut doorbells = self.doorbells.borrow_mut();
            doorbells.begin_queue(Doorbell::Head(new.qid), new.entries);
        }
    }

    /// Makes the submission queue of a Create command that was checked, which joins the target as
    /// `request` says.
    pub(crate) fn create_submission(
        self: &Rc<Self>,
        entry: &SubmissionQueueEntry,
        new: NewQueue,
        request: &ConnectRequest,
    ) -> Result<(), Status> {
        let core = &self.core;
        let id = core.add_connection().ok_or(Status::INTERNAL_ERROR)?;
        let seat = core.target().connect_io(request, id).map_err(|_| {
            core.forget(id, None);
            // A bound of the tenant: the guest cannot know it, and may go on with fewer queues.
            Status::INVALID_QUEUE_IDENTIFIER.with_dnr()
        })?;
        let queue = IoConnection::new(self, id, seat);
        let connection: Rc<dyn front::Connection> = queue.clone();
        core.keep(id, &connection);
        self.io.borrow_mut().insert(new.qid, queue);
        self.queues.borrow_mut().add_submission(entry, &new);
        let mut doorbells = self.doorbells.borrow_mut();
        doorbells.begin_queue(Doorbell::Tail(new.qid), new.entries);
        Ok(())
    }

    /// Begins to delete a submission queue. At once nothing more is fetched, so that a second
    /// Delete, or a reset, does not end it a second time. None if there is none to be deleted.
    pub(crate) fn begin_to_delete(&self, qid: u16) -> Option<Rc<IoConnection>> {
        let queue = self.io.borrow().get(&qid).cloned();
        let queue = queue.filter(|queue| queue.takes_commands());
        queue.inspect(|queue| queue.stop_fetching())
    }

    /// Waits until all commands of a queue that is being deleted have been answered. False if a
    /// reset was faster: then nothing of the queue is known any more.
    pub(crate) async fn delete(&self, qid: u16, queue: Rc<IoConnection>) -> bool {
        queue.clone().drain().await;
        queue.leave();
        // Until it had left there was no other controller, so this is no other queue.
        let deleted = self.io.borrow_mut().remove(&qid).is_some();
        if deleted {
            self.queues.borrow_mut().remove_submission(qid);
        }
        deleted
    }

    /// Whether commands of this queue may be fetched.
    pub(crate) fn takes_commands(&self, qid: u16) -> bool {
        let io = self.io.borrow();
        qid == 0 || io.get(&qid).is_some_and(|queue| queue.takes_commands())
    }

    /// A command of this queue was fetched; gives how many bytes it moves.
    pub(crate) fn on_command(&self, qid: u16, entry: &SubmissionQueueEntry) -> u32 {
        if qid == 0 {
            self.home.on_admin(entry);
            return 0;
        }
        let queue = self.io.borrow().get(&qid).cloned();
        queue.map_or(0, |queue| queue.on_command(entry))
    }

    /// The guest has written a doorbell of a queue that is here.
    pub(crate) fn on_doorbell(&self, doorbell: Doorbell, value: u32) {
        let shadowed = self.doorbells.borrow().are_shadowed() && doorbell.index() > 1;
        if !shadowed {
            self.doorbells.borrow_mut().written(doorbell, value);
            let rung = self.queues.borrow_mut().ring(doorbell, value);
            if let Err(invalid) = rung {
                return self.home.on_invalid_doorbell(self, invalid);
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
        if cqid == 0 {
            self.home.report_events();
        }
    }

    /// Has the pump look at all: the guest lets the function touch its memory now.
    pub(crate) fn look_at_all(&self) {
        for cqid in 0..=self.core.target().config().limits.io_queues {
            self.look_at_users(cqid);
        }
    }

    /// Writes a completion of a command of queue `sqid`, for which there is a place.
    pub(crate) fn post(&self, sqid: u16, entry: CompletionQueueEntry) {
        if let Err(Unmapped) = self.try_post(sqid, entry) {
            self.home.fail(self);
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
}
