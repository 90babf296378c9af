//! The Admin queue of a function: queues and shadow doorbells are its own; everything else is what
//! the controllers of hosts have, too.

use std::rc::Rc;

use flashyard_controller::pcie::{Bounds, PAGE, Segment, SubmissionQueue, prp};
use flashyard_controller::{AdminOutcome, Answer, CommandError, Transfer, asks_statistics};
use flashyard_engine::front::ConnectionId;
use flashyard_nvme::command::{Fuse, Psdt};
use flashyard_nvme::log::StatisticsLog;
use flashyard_nvme::{AdminOpcode, Status, SubmissionQueueEntry};

use crate::controller::{Controller, NOWHERE};
use crate::function::{State, VECTORS};
use crate::memory::Unmapped;
use crate::worker::Worker;
use crate::workers::Ack;

/// Queues whose shadow doorbells lie in one page.
const MOST_QUEUES: u16 = 511;
const NO_QUEUE: Status = Status::INVALID_QUEUE_IDENTIFIER.with_dnr();

impl Controller {
    /// A command of the Admin queue was fetched.
    pub(crate) fn on_admin(self: &Rc<Self>, entry: &SubmissionQueueEntry) {
        if let Err(status) = self.execute(entry) {
            self.refuse(entry, status);
        }
        self.report_events();
    }

    fn refuse(&self, entry: &SubmissionQueueEntry, status: Status) {
        self.association.controller().on_error(CommandError {
            sqid: 0,
            cid: entry.cid(),
            opcode: entry.opcode(),
            status,
            lba: 0,
            nsid: entry.nsid(),
        });
        self.answer(entry.cid(), Answer::of(status));
    }

    fn execute(self: &Rc<Self>, entry: &SubmissionQueueEntry) -> Result<(), Status> {
        if entry.psdt() != Psdt::Prp || entry.fuse() != Fuse::Normal {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        if !self.association.controller().is_ready() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr());
        }
        match entry.admin_opcode() {
            AdminOpcode::CREATE_IO_CQ => self.create_completion(entry)?,
            AdminOpcode::CREATE_IO_SQ => return self.create_submission(entry),
            AdminOpcode::DELETE_IO_SQ => return self.delete_submission(entry),
            AdminOpcode::DELETE_IO_CQ => self.delete_completion(entry)?,
            AdminOpcode::DOORBELL_BUFFER_CONFIG => return self.set_shadow(entry),
            _ => {
                return match asks_statistics(entry) {
                    Some(nsid) => {
                        self.gather_statistics(entry, nsid);
                        Ok(())
                    }
                    None => self.execute_common(entry, Err(Status::INTERNAL_ERROR)),
                };
            }
        }
        self.answer(entry.cid(), Answer::SUCCESS);
        Ok(())
    }

    fn bounds(&self) -> Bounds {
        let controller = self.association.controller();
        Bounds {
            queues: controller.granted_queues().min(MOST_QUEUES),
            entries: controller.limits().queue_depth,
            vectors: VECTORS,
        }
    }

    /// Places a completion queue on a core.
    fn create_completion(&self, entry: &SubmissionQueueEntry) -> Result<(), Status> {
        let (state, bounds) = (&self.state, self.bounds());
        let new = state.queues.borrow_mut().create_completion(entry, bounds)?;
        let Some(core) = state.place(new.qid) else {
            state.worker.create_completion(entry, bounds);
            return Ok(());
        };
        let (entry, id, association) = (*entry, self.id, self.association.clone());
        state.workers.tell(core, move |worker| {
            worker.begin(id, association);
            worker.create_completion(&entry, bounds);
            worker.begin_to_look();
        });
        Ok(())
    }

    fn delete_completion(&self, entry: &SubmissionQueueEntry) -> Result<(), Status> {
        let state = &self.state;
        let cqid = state.queues.borrow_mut().delete_completion(entry)?;
        match self.core_of(cqid) {
            None => {
                state.worker.queues.borrow_mut().delete_completion(entry)?;
            }
            Some(core) => {
                let entry = *entry;
                state.workers.tell(core, move |worker| {
                    let _ = worker.queues.borrow_mut().delete_completion(&entry);
                });
            }
        }
        state.workers.remove(cqid);
        Ok(())
    }

    /// The other core that a completion queue is on.
    fn core_of(&self, cqid: u16) -> Option<usize> {
        self.state.workers.core_of(cqid, self.state.core.index())
    }

    /// A submission queue is where its completion queue is.
    fn create_submission(&self, entry: &SubmissionQueueEntry) -> Result<(), Status> {
        let (state, bounds) = (&self.state, self.bounds());
        let new = state.queues.borrow().check_submission(entry, bounds)?;
        state.queues.borrow_mut().add_submission(entry, &new);
        let request = self.connect_to(new);
        let (entry, id) = (*entry, self.id);
        let cqid = state
            .queues
            .borrow()
            .submission(new.qid)
            .map(SubmissionQueue::cqid);
        match cqid.and_then(|cqid| self.core_of(cqid)) {
            None => {
                let made = state.worker.create_submission(&entry, new, &request);
                self.on_created(&entry, new.qid, made);
            }
            Some(core) => state.workers.tell(core, move |worker| {
                let made = worker.create_submission(&entry, new, &request);
                worker.home.tell(move |state| {
                    if let Some(controller) = state.controller_of(id) {
                        controller.on_created(&entry, new.qid, made);
                    }
                });
            }),
        }
        Ok(())
    }

    fn on_created(&self, entry: &SubmissionQueueEntry, qid: u16, made: Result<(), Status>) {
        match made {
            Ok(()) => self.answer(entry.cid(), Answer::SUCCESS),
            Err(status) => {
                self.state.queues.borrow_mut().remove_submission(qid);
                self.refuse(entry, status);
            }
        }
    }

    /// The queue is gone when all its commands have been answered.
    fn delete_submission(&self, entry: &SubmissionQueueEntry) -> Result<(), Status> {
        let state = &self.state;
        let qid = state.queues.borrow().check_delete_submission(entry)?;
        let cqid = state
            .queues
            .borrow()
            .submission(qid)
            .map(SubmissionQueue::cqid);
        let (entry, id) = (*entry, self.id);
        let Some(core) = cqid.and_then(|cqid| self.core_of(cqid)) else {
            let queue = state.worker.begin_to_delete(qid).ok_or(NO_QUEUE)?;
            let state = state.clone();
            let deleted = async move {
                if state.worker.delete(qid, queue).await {
                    state.on_deleted(id, &entry, Ok(()));
                }
            };
            self.state.core.rt().spawn(deleted).detach();
            return Ok(());
        };
        state.workers.tell(core, move |worker| {
            let Some(queue) = worker.begin_to_delete(qid) else {
                let none = move |state: &Rc<State>| state.on_deleted(id, &entry, Err(NO_QUEUE));
                return worker.home.tell(none);
            };
            let worker = worker.clone();
            let rt = worker.core.rt().clone();
            let deleted = async move {
                if worker.delete(qid, queue).await {
                    let done = move |state: &Rc<State>| state.on_deleted(id, &entry, Ok(()));
                    worker.home.tell(done);
                }
            };
            rt.spawn(deleted).detach();
        });
        Ok(())
    }

    /// All workers have them before the guest uses them.
    fn set_shadow(&self, entry: &SubmissionQueueEntry) -> Result<(), Status> {
        let addresses = [entry.prp1(), entry.prp2()];
        if !addresses.iter().all(|address| address.is_multiple_of(PAGE)) {
            return Err(Status::PRP_OFFSET_INVALID.with_dnr());
        }
        let state = &self.state;
        let set = state.worker.set_shadow(addresses);
        set.map_err(|Unmapped| Status::DATA_TRANSFER_ERROR)?;
        let told = state.workers.ask(|| {
            move |worker: &Rc<Worker>, _: Ack| {
                // Its memory is that of the home core, where they have been found.
                let _ = worker.set_shadow(addresses);
            }
        });
        if state.workers.have_answered(told) {
            self.answer(entry.cid(), Answer::SUCCESS);
            return Ok(());
        }
        let (state, id, cid) = (state.clone(), self.id, entry.cid());
        let answered = async move {
            state.workers.answers(told).await;
            if let Some(controller) = state.controller_of(id) {
                controller.answer(cid, Answer::SUCCESS);
            }
        };
        self.state.core.rt().spawn(answered).detach();
        Ok(())
    }

    /// The command is executed when other cores have said what they have counted.
    fn gather_statistics(&self, entry: &SubmissionQueueEntry, nsid: u32) {
        let (state, id, entry) = (self.state.clone(), self.id, *entry);
        let association = self.association.clone();
        let gathered = async move {
            let statistics = state.core.statistics(&association, nsid).await;
            let statistics = statistics.as_ref().map_err(|status| *status);
            if let Some(controller) = state.controller_of(id)
                && let Err(status) = controller.execute_common(&entry, statistics)
            {
                controller.refuse(&entry, status);
            }
        };
        self.state.core.rt().spawn(gathered).detach();
    }

    /// What a controller on fabrics would answer.
    fn execute_common(
        &self,
        entry: &SubmissionQueueEntry,
        statistics: Result<&StatisticsLog, Status>,
    ) -> Result<(), Status> {
        let (transfer, room) = {
            let controller = self.association.controller();
            (
                controller.admin_transfer(entry),
                controller.admin_room(entry),
            )
        };
        let data = match transfer {
            Transfer::FromHost { least, .. } => self.copy_in(entry, least)?,
            _ => Vec::new(),
        };
        let core = &self.state.core;
        let now = core.rt().now();
        let association = &self.association;
        let target = core.target();
        let outcome = target.with_view(association, (NOWHERE, now), statistics, |view| {
            let mut controller = association.controller();
            controller.admin(now, entry, view, &data, room)
        });
        let cid = entry.cid();
        match outcome {
            AdminOutcome::Complete(answer) => self.answer(cid, answer),
            AdminOutcome::Data { page, dw0 } => {
                self.copy_out(entry, &page)?;
                self.answer(cid, Answer::dw0(dw0));
            }
            AdminOutcome::Held => self.state.worker.queues.borrow_mut().release(0),
            AdminOutcome::AbortedEventRequest { cid: aborted } => {
                if self.state.worker.queues.borrow_mut().keep_place(0) {
                    self.answer(aborted, Answer::of(Status::ABORT_REQUESTED));
                }
                self.answer(cid, Answer::to_abort(true));
            }
            AdminOutcome::Abort { sqid, cid: aborted } => self.abort(cid, sqid, aborted),
        }
        Ok(())
    }

    fn abort(&self, ticket: u16, sqid: u16, cid: u16) {
        let target = self.state.core.target();
        if target.abort(&self.association, (sqid, cid), self.id, ticket) {
            self.aborts.borrow_mut().push(ticket);
        } else {
            self.answer(ticket, Answer::to_abort(false));
        }
    }

    fn segments(&self, entry: &SubmissionQueueEntry, bytes: u32) -> Result<Vec<Segment>, Status> {
        let memory = self.state.worker.memory.borrow();
        let mut segments = Vec::new();
        prp::walk(
            (entry.prp1(), entry.prp2()),
            bytes,
            &mut segments,
            |at, to| {
                memory
                    .read(at, to)
                    .map_err(|Unmapped| Status::DATA_TRANSFER_ERROR)
            },
        )?;
        Ok(segments)
    }

    fn copy_in(&self, entry: &SubmissionQueueEntry, bytes: u32) -> Result<Vec<u8>, Status> {
        let mut data = vec![0; bytes as usize];
        let mut rest = &mut data[..];
        for segment in self.segments(entry, bytes)? {
            let (piece, behind) = rest.split_at_mut(segment.bytes as usize);
            let read = self
                .state
                .worker
                .memory
                .borrow()
                .read(segment.address, piece);
            read.map_err(|Unmapped| Status::DATA_TRANSFER_ERROR)?;
            rest = behind;
        }
        Ok(data)
    }

    fn copy_out(&self, entry: &SubmissionQueueEntry, page: &[u8]) -> Result<(), Status> {
        let mut rest = page;
        for segment in self.segments(entry, page.len() as u32)? {
            let (piece, behind) = rest.split_at(segment.bytes as usize);
            let written = self
                .state
                .worker
                .memory
                .borrow()
                .write(segment.address, piece);
            written.map_err(|Unmapped| Status::DATA_TRANSFER_ERROR)?;
            rest = behind;
        }
        Ok(())
    }
}

impl State {
    /// A submission queue of controller `id` has gone, or was not there.
    fn on_deleted(
        &self,
        id: ConnectionId,
        entry: &SubmissionQueueEntry,
        deleted: Result<(), Status>,
    ) {
        let Some(controller) = self.controller_of(id) else {
            return;
        };
        match deleted {
            Ok(()) => {
                let qid = entry.cdw10() as u16;
                self.queues.borrow_mut().remove_submission(qid);
                controller.answer(entry.cid(), Answer::SUCCESS);
            }
            Err(status) => controller.refuse(entry, status),
        }
    }
}
