//! Fetches commands: the one task of a function that looks at its submission queues. It sleeps
//! until a doorbell rings.
//!
//! With shadow doorbells the guest's tails are read from its memory. As long as the pump is awake
//! the guest need not ring; before it sleeps, it has the guest ring at the next move, and looks
//! once more.

use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use flashyard_controller::pcie::{CompletionQueue, Doorbell, shadow};
use flashyard_nvme::SubmissionQueueEntry;
use flashyard_runtime::shared_memory::full_fence;
use zerocopy::FromBytes;

use crate::function::State;
use crate::memory::Unmapped;

/// Commands of an I/O queue in one turn, so that one guest does not hold up the core.
const BATCH: u32 = 64;
/// The same of the Admin queue, whose commands are copies of up to a whole log each.
const ADMIN_BATCH: u32 = 4;
/// Bytes of data of the commands of a queue in one turn, but for those of the last one.
const BATCH_BYTES: u32 = 512 << 10;

/// The pages of shadow doorbells and event indices, by guest address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shadow {
    pub(crate) doorbells: u64,
    pub(crate) event_indices: u64,
}

/// Looks at queues whose doorbells ring, until the function goes.
pub(crate) async fn run(state: Rc<State>) {
    loop {
        state.ring.notified().await;
        while look(&state) {
            state.core.rt().turn_end().await;
        }
    }
}

/// Sends interrupts at the end of each turn that has posted completions, and when those that wait
/// for others have waited long enough.
pub(crate) async fn interrupt(state: Rc<State>) {
    loop {
        let due = state.interrupts.borrow().next_due();
        let mut posted = pin!(state.interrupt.notified());
        match due {
            None => posted.await,
            Some(due) => {
                let mut late = state.core.rt().sleep_until(due);
                std::future::poll_fn(|context| {
                    let either = posted.as_mut().poll(context).is_ready()
                        || Pin::new(&mut late).poll(context).is_ready();
                    if either {
                        Poll::Ready(())
                    } else {
                        Poll::Pending
                    }
                })
                .await;
            }
        }
        state.core.rt().turn_end().await;
        state.send_interrupts();
    }
}

/// Looks at each queue that has rung; whether any has more.
fn look(state: &Rc<State>) -> bool {
    let rung = state.rung.take();
    for qid in rung {
        if !drain(state, qid) {
            state.look_at(qid);
        }
    }
    !state.rung.borrow().is_empty()
}

/// Fetches the commands of a queue; false if there are more than for one turn.
fn drain(state: &Rc<State>, qid: u16) -> bool {
    let most = state.controller().map_or(0, |it| it.batch(qid));
    let (mut commands, mut bytes) = (0, 0);
    while commands < most && bytes < BATCH_BYTES {
        match fetch(state, qid) {
            Some(moved) => bytes += moved,
            None if has_moved(state, qid) => {}
            None => return true,
        }
        commands += 1;
    }
    most == 0
}

/// Fetches and begins one command of a queue, if there is one and it may be fetched; gives how many
/// bytes it moves.
fn fetch(state: &Rc<State>, qid: u16) -> Option<u32> {
    let controller = state.controller().filter(|_| state.is_running())?;
    if !controller.takes_commands(qid) {
        return None;
    }
    let address = state.queues.borrow_mut().fetch(qid)?;
    let mut bytes = [0; SubmissionQueueEntry::LEN];
    if let Err(Unmapped) = state.memory.borrow().read(address, &mut bytes) {
        state.fail();
        return None;
    }
    let entry = SubmissionQueueEntry::read_from_bytes(&bytes).ok()?;
    Some(controller.on_command(qid, &entry))
}

/// Commands of queue `qid` in one turn; fewer while those of others are latency-sensitive.
pub(crate) fn batch(qid: u16, gives_way: Option<u32>) -> u32 {
    match gives_way {
        _ if qid == 0 => ADMIN_BATCH,
        Some(fewer) => fewer.clamp(1, BATCH),
        None => BATCH,
    }
}

/// Looks at the shadow doorbells of a queue from which nothing can be fetched, and whether that
/// has changed it. If not, the guest rings at its next move.
fn has_moved(state: &State, qid: u16) -> bool {
    let Some(shadow) = state.shadow.get().filter(|_| qid > 0) else {
        return false;
    };
    let queues = state.queues.borrow();
    let Some(queue) = queues.submission(qid) else {
        return false;
    };
    let (tail, cqid) = (queue.tail(), queue.cqid());
    let stuck = queue.has_entries();
    let head = queues.completion(cqid).map_or(0, CompletionQueue::head);
    drop(queues);
    let (doorbell, seen) = if stuck {
        // There is no place for its completion: the guest has to read some.
        (Doorbell::Head(cqid), head)
    } else {
        (Doorbell::Tail(qid), tail)
    };
    let moved = look_at_shadow(state, shadow, doorbell, seen);
    moved.unwrap_or_else(|Unmapped| {
        // The pages have gone: the real doorbells count again.
        state.shadow.set(None);
        false
    })
}

/// Takes the value of a shadow doorbell that was at `seen`; whether it has moved.
fn look_at_shadow(
    state: &State,
    shadow: Shadow,
    doorbell: Doorbell,
    seen: u16,
) -> Result<bool, Unmapped> {
    let at = shadow::offset(doorbell);
    let memory = state.memory.borrow();
    let mut value = memory.load(shadow.doorbells + at)?;
    if value as u16 == seen {
        memory.store(shadow.event_indices + at, shadow::wake_after(seen))?;
        full_fence();
        value = memory.load(shadow.doorbells + at)?;
    }
    drop(memory);
    if value as u16 == seen {
        return Ok(false);
    }
    let rung = state.queues.borrow_mut().ring(doorbell, value);
    if let Err(invalid) = rung {
        if let Some(controller) = state.controller() {
            controller.on_invalid_doorbell(invalid);
        }
        return Ok(false);
    }
    Ok(true)
}
