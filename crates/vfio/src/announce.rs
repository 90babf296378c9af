//! When a worker interrupts the guest for what it has posted.

use flashyard_controller::pcie::{CompletionQueue, InterruptCoalescing, Need};

use crate::worker::Worker;

impl Worker {
    /// Sends INTx again if the guest has completions to read: they may have come while it was
    /// masked.
    pub(crate) fn remind(&self) {
        if self.queues.borrow().has_unread(0) && self.gate.get().takes_intx {
            self.interrupts.borrow().remind();
        }
    }

    /// A completion was posted: the guest is interrupted, unless it is still reading those before
    /// it and this function sees when it has.
    pub(crate) fn announce(&self, cqid: u16, vector: u16) {
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
        !self
            .coalescing(vector)
            .is_some_and(InterruptCoalescing::is_on)
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
        let gate = self.gate.get();
        if !gate.bus_master {
            return;
        }
        let now = self.core.rt().turn_time();
        let unsent = self
            .interrupts
            .borrow_mut()
            .flush(now, gate.takes_intx, |vector| self.coalescing(vector));
        for vector in unsent {
            self.home.interrupt(self, vector);
        }
    }

    /// How interrupts of a vector wait for others, as the guest has set it.
    fn coalescing(&self, vector: u16) -> Option<InterruptCoalescing> {
        let controller = self.controller.borrow();
        let (_, association) = controller.as_ref()?;
        association.controller().interrupt_coalescing(vector)
    }
}
