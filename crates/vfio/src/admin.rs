//! The Admin queue of a function: queues and shadow doorbells are its own; everything else is what
//! the controllers of hosts have, too.

use std::rc::Rc;

use flashyard_controller::pcie::{Bounds, Doorbell, PAGE, Segment, prp};
use flashyard_controller::{AdminOutcome, Answer, CommandError, Transfer};
use flashyard_nvme::command::{Fuse, Psdt};
use flashyard_nvme::{AdminOpcode, Status, SubmissionQueueEntry};

use crate::controller::{Controller, NOWHERE};
use crate::function::VECTORS;
use crate::memory::Unmapped;

/// Queues whose shadow doorbells lie in one page.
const MOST_QUEUES: u16 = 511;

impl Controller {
    /// A command of the Admin queue was fetched.
    pub(crate) fn on_admin(self: &Rc<Self>, entry: &SubmissionQueueEntry) {
        if let Err(status) = self.execute(entry) {
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
        self.report_events();
    }

    fn execute(self: &Rc<Self>, entry: &SubmissionQueueEntry) -> Result<(), Status> {
        if entry.psdt() != Psdt::Prp || entry.fuse() != Fuse::Normal {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        if !self.association.controller().is_ready() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr());
        }
        let state = &self.state;
        match entry.admin_opcode() {
            AdminOpcode::CREATE_IO_CQ => {
                let bounds = self.bounds();
                let mut queues = state.queues.borrow_mut();
                let new = queues.create_completion(entry, bounds)?;
                let mut doorbells = state.doorbells.borrow_mut();
                doorbells.begin_queue(Doorbell::Head(new.qid), new.entries);
            }
            AdminOpcode::CREATE_IO_SQ => self.create_submission(entry)?,
            AdminOpcode::DELETE_IO_SQ => return self.delete_submission(entry),
            AdminOpcode::DELETE_IO_CQ => state.queues.borrow_mut().delete_completion(entry)?,
            AdminOpcode::DOORBELL_BUFFER_CONFIG => self.set_shadow(entry)?,
            _ => return self.execute_common(entry),
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

    fn create_submission(&self, entry: &SubmissionQueueEntry) -> Result<(), Status> {
        let bounds = self.bounds();
        let new = self.state.queues.borrow().check_submission(entry, bounds)?;
        self.join(new)?;
        self.state.queues.borrow_mut().add_submission(entry, &new);
        let mut doorbells = self.state.doorbells.borrow_mut();
        doorbells.begin_queue(Doorbell::Tail(new.qid), new.entries);
        Ok(())
    }

    /// The queue is gone when all its commands have been answered.
    fn delete_submission(self: &Rc<Self>, entry: &SubmissionQueueEntry) -> Result<(), Status> {
        let qid = self.state.queues.borrow().check_delete_submission(entry)?;
        let queue = self.io.borrow().get(&qid).cloned();
        let queue = queue.filter(|queue| queue.takes_commands());
        let queue = queue.ok_or(Status::INVALID_QUEUE_IDENTIFIER.with_dnr())?;
        // At once: a second Delete, or a reset, must not end it a second time.
        queue.stop_fetching();
        let (this, cid) = (self.clone(), entry.cid());
        let deleted = async move {
            queue.clone().drain().await;
            queue.leave();
            // A reset may have been faster: then nothing of the queue is known any more.
            if this.io.borrow_mut().remove(&qid).is_none() {
                return;
            }
            this.state.queues.borrow_mut().remove_submission(qid);
            this.answer(cid, Answer::SUCCESS);
        };
        self.state.core.rt().spawn(deleted).detach();
        Ok(())
    }

    fn set_shadow(&self, entry: &SubmissionQueueEntry) -> Result<(), Status> {
        let addresses = [entry.prp1(), entry.prp2()];
        if !addresses.iter().all(|address| address.is_multiple_of(PAGE)) {
            return Err(Status::PRP_OFFSET_INVALID.with_dnr());
        }
        let state = &self.state;
        let values = state.queues.borrow().doorbells();
        let memory = state.memory.borrow();
        let mut doorbells = state.doorbells.borrow_mut();
        let set = doorbells.set_shadow(&memory, addresses, values);
        set.map_err(|Unmapped| Status::DATA_TRANSFER_ERROR)?;
        drop((memory, doorbells));
        state.begin_to_look();
        Ok(())
    }

    /// What a controller on fabrics would answer.
    fn execute_common(&self, entry: &SubmissionQueueEntry) -> Result<(), Status> {
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
        let outcome = core.target().with_view(association, NOWHERE, now, |view| {
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
            AdminOutcome::Held => self.state.queues.borrow_mut().release(0),
            AdminOutcome::AbortedEventRequest { cid: aborted } => {
                if self.state.queues.borrow_mut().keep_place(0) {
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
        let memory = self.state.memory.borrow();
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
            let read = self.state.memory.borrow().read(segment.address, piece);
            read.map_err(|Unmapped| Status::DATA_TRANSFER_ERROR)?;
            rest = behind;
        }
        Ok(data)
    }

    fn copy_out(&self, entry: &SubmissionQueueEntry, page: &[u8]) -> Result<(), Status> {
        let mut rest = page;
        for segment in self.segments(entry, page.len() as u32)? {
            let (piece, behind) = rest.split_at(segment.bytes as usize);
            let written = self.state.memory.borrow().write(segment.address, piece);
            written.map_err(|Unmapped| Status::DATA_TRANSFER_ERROR)?;
            rest = behind;
        }
        Ok(())
    }
}
