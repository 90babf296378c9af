//! Fetches commands: the one task of a worker that looks at its submission queues. It sleeps
//! until a doorbell rings, or the core finds one in memory that has moved (`doorbells`).

use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use flashyard_nvme::SubmissionQueueEntry;
use flashyard_runtime::Task;
use zerocopy::{FromBytes, IntoBytes};

use crate::memory::Unmapped;
use crate::worker::Worker;

/// Commands of an I/O queue in one turn, so that one guest does not hold up the core.
const BATCH: u32 = 64;
/// The same of the Admin queue, whose commands are copies of up to a whole log each.
const ADMIN_BATCH: u32 = 4;
/// Bytes of data of the commands of a queue in one turn, but for those of the last one.
const BATCH_BYTES: u32 = 512 << 10;

/// Looks at queues whose doorbells ring, until the function goes.
async fn run(worker: Rc<Worker>) {
    loop {
        worker.ring.notified().await;
        while look(&worker) {
            worker.core.rt().turn_end().await;
        }
    }
}

/// Sends interrupts at the end of each turn that has posted completions, and when those that wait
/// for others have waited long enough.
async fn interrupt(worker: Rc<Worker>) {
    loop {
        let due = worker.interrupts.borrow().next_due();
        let mut posted = pin!(worker.interrupt.notified());
        match due {
            None => posted.await,
            Some(due) => {
                let mut late = worker.core.rt().sleep_until(due);
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
        worker.core.rt().turn_end().await;
        worker.send_interrupts();
    }
}

/// Looks at each queue that has rung; whether any has more.
fn look(worker: &Worker) -> bool {
    let rung = worker.rung.take();
    for qid in rung {
        if !drain(worker, qid) {
            worker.look_at(qid);
        }
    }
    !worker.rung.borrow().is_empty()
}

/// Fetches the commands of a queue; false if there are more than for one turn.
fn drain(worker: &Worker, qid: u16) -> bool {
    let most = worker.batch(qid);
    let (mut commands, mut bytes) = (0, 0);
    while commands < most && bytes < BATCH_BYTES {
        match fetch(worker, qid) {
            Some(moved) => bytes += moved,
            None if worker.look_at_tail(qid) || worker.look_for_room(qid) => {}
            None => return true,
        }
        commands += 1;
    }
    most == 0
}

/// Fetches and begins one command of a queue, if there is one and it may be fetched; gives how many
/// bytes it moves.
fn fetch(worker: &Worker, qid: u16) -> Option<u32> {
    if !worker.gate.get().running || !worker.takes_commands(qid) {
        return None;
    }
    let address = worker.queues.borrow_mut().fetch(qid)?;
    // As words: so it lies where words do.
    let mut words = [0u64; SubmissionQueueEntry::LEN / 8];
    let read = worker.memory.borrow().read(address, words.as_mut_bytes());
    if let Err(Unmapped) = read {
        worker.home.fail(worker);
        return None;
    }
    let entry = SubmissionQueueEntry::read_from_bytes(words.as_bytes()).ok()?;
    Some(worker.on_command(qid, &entry))
}

impl Worker {
    /// Fetches commands, and sends interrupts, until the tasks are dropped.
    pub(crate) fn tasks(self: &Rc<Self>) -> [Task<()>; 2] {
        let rt = self.core.rt();
        [
            rt.spawn(run(self.clone())),
            rt.spawn(interrupt(self.clone())),
        ]
    }

    /// Commands of this queue in one turn; fewer while those of others are latency-sensitive.
    fn batch(&self, qid: u16) -> u32 {
        if self.controller.borrow().is_none() {
            return 0;
        }
        let io = self.io.borrow();
        let gives_way = io.get(&qid).is_some_and(|queue| queue.gives_way());
        let fewer = self.core.target().config().limits.throughput_batch;
        match gives_way {
            _ if qid == 0 => ADMIN_BATCH,
            true => fewer.clamp(1, BATCH),
            false => BATCH,
        }
    }
}
