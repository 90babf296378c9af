//! How a worker looks at doorbells in memory, and goes to sleep.

use std::rc::{Rc, Weak};

use flashyard_controller::pcie::{CompletionQueue, Doorbell, SubmissionQueue};
use flashyard_runtime::Watched;
use flashyard_runtime::shared_memory::full_fence;
use flashyard_time::{Duration, Time};

use crate::memory::Unmapped;
use crate::worker::Worker;

/// How often a core that sleeps looks at doorbells that cannot wake it.
const LOOK: Duration = Duration::from_ms(1);

/// What a core looks at while a controller has doorbells in memory.
pub(crate) struct Look(pub(crate) Weak<Worker>);

impl Watched for Look {
    fn look(&self) -> bool {
        self.0.upgrade().is_some_and(|worker| worker.look())
    }

    fn rest(&self, now: Time) -> Time {
        self.0
            .upgrade()
            .map_or(Time::MAX, |worker| worker.rest(now))
    }
}

impl Worker {
    /// Shadow doorbells are in these pages from now on.
    pub(crate) fn set_shadow(self: &Rc<Self>, addresses: [u64; 2]) -> Result<(), Unmapped> {
        let values = self.queues.borrow().doorbells();
        let memory = self.memory.borrow();
        let mut doorbells = self.doorbells.borrow_mut();
        doorbells.set_shadow(&memory, addresses, values)?;
        drop((memory, doorbells));
        self.begin_to_look();
        Ok(())
    }

    /// Has the core look at doorbells in memory, if there are any.
    pub(crate) fn begin_to_look(self: &Rc<Self>) {
        if self.doorbells.borrow().are_there() {
            let look = Rc::new(Look(Rc::downgrade(self)));
            *self.watch.borrow_mut() = Some(self.core.rt().watch(look));
        }
    }

    /// Memory was unmapped, in which doorbells may lie.
    pub(crate) fn revise_doorbells(&self) {
        let memory = self.memory.borrow();
        self.doorbells.borrow_mut().revise(&memory);
    }

    /// Looks at the doorbells of all queues; whether any has moved.
    fn look(&self) -> bool {
        if !self.gate.get().running {
            return false;
        }
        let mut found = self.release_interrupts(false);
        let end = self.queues.borrow().submission_end();
        for qid in 0..end {
            if self.look_at_tail(qid) || self.look_for_room(qid) {
                self.look_at(qid);
                found = true;
            }
        }
        if self.take(Doorbell::Head(0)) {
            self.look_at_users(0);
            found = true;
        }
        found
    }

    /// Takes the tail of a submission queue, if it has moved.
    pub(crate) fn look_at_tail(&self, qid: u16) -> bool {
        self.take(Doorbell::Tail(qid))
    }

    /// Takes the head of the completion queue that a submission queue waits for, if it has moved.
    pub(crate) fn look_for_room(&self, qid: u16) -> bool {
        let awaited = self.awaited_head(qid);
        awaited.is_some_and(|head| self.take(head))
    }

    /// The head that has to move before the next entry of a queue is fetched.
    fn awaited_head(&self, qid: u16) -> Option<Doorbell> {
        let queues = self.queues.borrow();
        let queue = queues.submission(qid)?;
        let full = || {
            let completion = queues.completion(queue.cqid());
            completion.is_some_and(|completion| !completion.has_room())
        };
        (queue.has_entries() && full()).then(|| Doorbell::Head(queue.cqid()))
    }

    /// Whether the head of a completion queue lies in memory.
    pub(crate) fn sees_heads(&self, cqid: u16) -> bool {
        let doorbells = self.doorbells.borrow();
        self.watch.borrow().is_some() && doorbells.load(Doorbell::Head(cqid)).is_some()
    }

    /// Takes the head of a completion queue, if it has moved.
    pub(crate) fn look_at_head(&self, cqid: u16) {
        self.take(Doorbell::Head(cqid));
    }

    /// Takes the head of a completion queue of which half is not read, as far as is known.
    pub(crate) fn look_at_full(&self, cqid: u16) {
        let queues = self.queues.borrow();
        let filling = queues
            .completion(cqid)
            .is_some_and(CompletionQueue::is_half_full);
        drop(queues);
        if filling {
            self.take(Doorbell::Head(cqid));
        }
    }

    /// Takes the value of a doorbell in memory, if it has moved and can have this value.
    fn take(&self, doorbell: Doorbell) -> bool {
        let entries = {
            let queues = self.queues.borrow();
            match doorbell {
                Doorbell::Tail(qid) => queues.submission(qid).map(SubmissionQueue::entries),
                Doorbell::Head(cqid) => queues.completion(cqid).map(CompletionQueue::entries),
            }
        };
        let Some(entries) = entries else { return false };
        let taken = self.doorbells.borrow_mut().take(doorbell, entries);
        let Some(value) = taken else { return false };
        let rung = self.queues.borrow_mut().ring(doorbell, value.into());
        if let Err(invalid) = rung {
            self.home.on_invalid_doorbell(self, invalid);
            return false;
        }
        true
    }

    /// The core is about to sleep: the guest rings from now on.
    fn rest(&self, now: Time) -> Time {
        // Asleep, no core sees that the guest has read on.
        if self.release_interrupts(true) {
            return now;
        }
        let mut doorbells = self.doorbells.borrow_mut();
        let until = match doorbells.are_mappable() {
            true => now + LOOK,
            false => Time::MAX,
        };
        if doorbells.asleep || !self.gate.get().running {
            return until;
        }
        let end = self.queues.borrow().submission_end();
        let tails = (0..end).filter(|qid| self.queues.borrow().submission(*qid).is_some());
        let awaited: Vec<_> = tails
            .flat_map(|qid| [Some(Doorbell::Tail(qid)), self.awaited_head(qid)])
            .flatten()
            .collect();
        for doorbell in &awaited {
            doorbells.arm(*doorbell);
        }
        full_fence();
        if awaited
            .iter()
            .any(|doorbell| doorbells.has_moved(*doorbell))
        {
            return now;
        }
        doorbells.asleep = true;
        until
    }
}
