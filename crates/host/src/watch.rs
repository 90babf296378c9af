//! Watches over a live association: queues that fail, commands that stay unanswered, and the Keep
//! Alive timer of the controller.

use std::rc::Rc;

use flashyard_nvme::SubmissionQueueEntry;
use flashyard_time::Duration;

use crate::association::Inner;
use crate::payload::Payload;
use crate::queue::{HostError, Queue};

/// A command's time is measured in this many ticks, so that submitting one needs no clock.
const TICKS: u8 = 4;

/// Ends the association when one of its queues has failed.
pub(crate) async fn failures(inner: Rc<Inner>) {
    loop {
        if let Some(error) = inner.queue_failure() {
            return inner.fail(error);
        }
        inner.queue_failed.notified().await;
    }
}

/// Asks the controller to abort commands that are late, and ends the association when that does not
/// help.
///
/// A command is aborted between `command_timeout` and a quarter more after its submission.
pub(crate) async fn timeouts(inner: Rc<Inner>) {
    let tick = inner.options.command_timeout / u64::from(TICKS);
    let mut late = Vec::new();
    while inner.failure.get().is_none() {
        inner.rt.sleep(tick.max(Duration::from_ms(1))).await;
        let mut expired = false;
        let mut visit = |queue: &Queue| {
            let qid = queue.qid();
            queue.shared.slots.borrow_mut().tick(TICKS + 1, |cid, age| {
                expired |= age > 2 * TICKS;
                if age == TICKS + 1 && qid != 0 {
                    late.push((qid, cid));
                }
            });
        };
        visit(&inner.admin);
        inner.io.borrow().iter().for_each(visit);
        if expired {
            return inner.fail(HostError::Timeout);
        }
        for (qid, cid) in late.drain(..) {
            let admin = inner.admin.clone();
            let abort = SubmissionQueueEntry::abort(qid, cid);
            // The answer does not matter: either the command is answered now, or time will tell.
            inner
                .rt
                .spawn(async move { admin.command(abort, Payload::None).await.map(drop) })
                .detach();
        }
    }
}

/// Tells the controller twice in a Keep Alive Timeout that we are here, and ends the association
/// when it does not answer within one.
pub(crate) async fn keep_alive(inner: Rc<Inner>) {
    let kato = inner.options.kato;
    while inner.failure.get().is_none() {
        inner.rt.sleep(kato / 2).await;
        let answer = inner
            .admin
            .command(SubmissionQueueEntry::keep_alive(), Payload::None);
        match inner.rt.timeout(kato, answer).await {
            Some(Ok(_)) => {}
            // Refused: the controller has forgotten us, or never kept a timer. The former shows
            // elsewhere.
            Some(Err(HostError::Status(_))) => return,
            Some(Err(error)) => return inner.fail(error),
            None => return inner.fail(HostError::Timeout),
        }
    }
}
