//! The TCP side of an I/O queue: how its commands get their data and are answered.

use std::rc::Rc;

use flashyard_block::Class;
use flashyard_engine::HostEventController;
use flashyard_engine::front::{
    End, Front, Held, IoSeat, MemoryQuota, PendingSample, Queue, Success, TellWithdrawn, execute,
};
use flashyard_nvme::tcp::{MAX_HEADER, Outgoing};
use flashyard_nvme::{CompletionQueueEntry, Status};
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{CommandPool, Data};
use flashyard_time::Time;

use crate::capsule::QueuePair;
use crate::coalesce::{Coalescing, Pushed};
use crate::connection::{ConnectedQueue, Connection};
use crate::input::{Input, finish};
use crate::outbox::{self, Outbox};
use crate::session::Session;
use crate::transfer::{Arrival, Transfers};

/// One I/O queue.
pub(crate) type IoQueue = Queue<TcpFront>;

/// What of an I/O queue is its connection's.
pub(crate) struct TcpFront {
    connection: Rc<Connection>,
    how: Outgoing,
    pair: QueuePair,
    /// One completion may report several successes.
    packed: bool,
    capsules: Rc<MemoryQuota>,
    transfers: Transfers,
    /// Wakes who waits for the last command, once the connection is closed.
    finished: Notify,
}

/// Serves an I/O queue until its connection has ended and everything that was issued has returned.
pub(crate) async fn serve(queue: &Rc<IoQueue>, input: &mut Input) {
    let front = queue.front();
    let pool = CommandPool::new(queue.core().rt(), front.pair.places());
    let mut session = Session::new(queue.clone(), |work| {
        let refused = pool.run(execute(queue.clone(), work)).is_err();
        assert!(!refused, "a queue never has more commands than places");
    });
    let end = session.run(input).await;
    drop(session);
    queue.on_close();
    queue.begin_end();
    finish(input, end).await;
    while pool.waiting() > 0 {
        front.finished.notified().await;
        queue.core().rt().turn_end().await;
    }
}

/// A queue on `connection` that sends as `how` says.
pub(crate) fn new_queue(
    connection: Rc<Connection>,
    how: Outgoing,
    pair: QueuePair,
    seat: IoSeat,
) -> Rc<IoQueue> {
    let core = connection.core().clone();
    let limits = &core.target().config().limits;
    let budget = core.budget(seat.tenant());
    let outbox = connection.outbox();
    outbox.set_budget(budget.clone());
    outbox.set_bytes_max(limits.output_bytes);
    let coalescing = seat.association.controller().coalescing();
    let rule = match coalescing.window {
        0 => Coalescing::Adaptive,
        window => Coalescing::Window(window),
    };
    outbox.set_coalescing(rule, seat.queue.entries);
    let front = TcpFront {
        how,
        pair,
        packed: coalescing.packed,
        capsules: core.capsule_quota(seat.tenant()),
        transfers: Transfers::default(),
        finished: Notify::new(),
        connection,
    };
    Queue::new(&core, seat, budget, front)
}

impl ConnectedQueue for IoQueue {
    fn on_close(&self) {
        self.withdraw_all();
        self.front().transfers.close();
    }

    fn withdraw(&self, cid: u16, tell: TellWithdrawn) {
        Queue::withdraw(self, cid, tell);
    }

    fn sweep(&self, now: Time) -> bool {
        self.expire(now);
        let deadline = self.front().connection.limits().data_deadline;
        self.front().transfers.is_overdue(now, deadline)
    }

    fn for_event(&self) -> HostEventController {
        self.association().for_event()
    }
}

/// Refuses a command whose identifier is in use by another one, which goes on.
#[cold]
pub(crate) fn refuse_duplicate(queue: &IoQueue, cid: u16) {
    queue.on_duplicate();
    let front = queue.front();
    let sqhd = front.pair.end_duplicate();
    let status = Status::COMMAND_ID_CONFLICT.with_dnr();
    outbox::complete(front.outbox(), front.how, outbox::entry(cid, status, sqhd));
}

impl TcpFront {
    #[inline]
    pub(crate) fn pair(&self) -> &QueuePair {
        &self.pair
    }

    /// Memory for data in capsules.
    #[inline]
    pub(crate) fn capsule_share(&self) -> &Rc<MemoryQuota> {
        &self.capsules
    }

    #[inline]
    pub(crate) fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    #[inline]
    pub(crate) fn outbox(&self) -> &Outbox {
        self.connection.outbox()
    }

    /// Answers a read. Without SQ flow control there is nothing in a completion that the host
    /// needs, and the data say "success" themselves.
    #[inline]
    fn answer_read(&self, cid: u16, success: &Success<'_>, data: Data, held: Held) {
        let entry = if self.pair.has_flow_control() {
            Some(self.success(cid, success))
        } else {
            self.pair.end(cid);
            success
                .news()
                .map(|news| outbox::entry(cid, Status::SUCCESS, 0).with_allowance(news))
        };
        let held = matches!(data, Data::Buf(_)).then_some(held);
        let what = self.pushed(success.class);
        outbox::complete_read(self.outbox(), self.how, what, cid, data, held, entry);
    }

    /// Answers a write.
    #[inline]
    fn answer_write(&self, cid: u16, success: &Success<'_>) {
        let entry = self.success(cid, success);
        let what = self.pushed(success.class);
        if self.packed {
            self.outbox()
                .push_success(what, self.how, entry, success.nsid);
        } else {
            outbox::complete_as(self.outbox(), self.how, what, entry);
        }
    }

    /// The completion of a command that succeeded.
    #[inline]
    fn success(&self, cid: u16, success: &Success<'_>) -> CompletionQueueEntry {
        let sqhd = self.pair.end(cid);
        outbox::entry(cid, Status::SUCCESS, sqhd).with_allowance(success.allowance())
    }

    /// How long the answer to a command that succeeded may wait for others.
    #[inline]
    fn pushed(&self, class: Class) -> Pushed {
        if class == Class::Latency {
            return Pushed::AtOnce;
        }
        Pushed::Answer {
            now: self.connection.core().rt().turn_time(),
            in_flight: self.pair.outstanding(),
        }
    }
}

impl Front for TcpFront {
    type Fetch<'a> = Arrival<'a>;

    /// Sends an R2T for all of the data.
    fn fetch(&self, cid: u16, bytes: usize, held: Option<Held>) -> Arrival<'_> {
        let (r2t, arrival) = self.transfers.begin(cid, bytes, held);
        let mut pdu = [0; MAX_HEADER];
        let len = r2t.encode(self.how, &mut pdu);
        self.outbox().push(Pushed::AtOnce, &pdu[..len]);
        arrival
    }

    #[expect(
        clippy::inline_always,
        reason = "whoever answers knows which end it is, so it need not go through memory"
    )]
    #[inline(always)]
    fn answer(&self, cid: u16, end: End<'_>) {
        match end {
            End::Read(success, data, held) => self.answer_read(cid, &success, data, held),
            End::Write(success) => self.answer_write(cid, &success),
            End::Other(success) => {
                let entry = self.success(cid, &success);
                outbox::complete(self.outbox(), self.how, entry);
            }
            End::Failed(status) => {
                let sqhd = self.pair.end(cid);
                outbox::complete(self.outbox(), self.how, outbox::entry(cid, status, sqhd));
            }
        }
    }

    fn keep(&self, sample: PendingSample) {
        self.outbox().keep(sample);
    }

    #[inline]
    fn on_finished(&self) {
        if self.connection.is_closed() {
            self.finished.notify_one();
        }
    }
}
