//! An I/O queue: what its commands share, and how each of them is answered.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use flashyard_block::{Class, Done, IoError};
use flashyard_nvme::tcp::{MAX_HEADER, Outgoing, R2T};
use flashyard_nvme::{Allowance, CompletionQueueEntry, Status, SubmissionQueueEntry};
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{CommandPool, Data};
use flashyard_time::Time;

use super::budget::{Budget, Held};
use super::command::{self, Command, Failure};
use super::connection::{Connection, finish};
use super::hold::{Coalescing, Pushed};
use super::input::Input;
use super::namespaces::{Namespace, Namespaces};
use super::outbox::Outbox;
use super::queue::QueuePair;
use super::quota::MemoryQuota;
use super::reply;
use super::session::Session;
use super::transfer::Transfers;
use super::waiting::{TellWithdrawn, Waiting};
use crate::alive::Counted;
use crate::association::Association;
use crate::core::Core;
use crate::counters::QueueCounters;
use crate::credit::CreditShare;
use crate::forwarding::Ended;
use crate::ledger::{Past, Record};
use crate::sample::Sample;
use crate::subsystems::TenantShared;
use flashyard_controller::{CommandError, ControllerLimits, Intent, IoOp};

/// One I/O queue.
pub(crate) struct IoQueue {
    connection: Rc<Connection>,
    association: Arc<Association>,
    tenant: Arc<TenantShared>,
    qid: u16,
    /// Of its controller.
    limits: ControllerLimits,
    how: Outgoing,
    pair: QueuePair,
    intent: Cell<Intent>,
    /// Its last command was latency-sensitive.
    hurried: Cell<bool>,
    /// One completion may tell of several successes.
    packed: bool,
    namespaces: RefCell<Namespaces>,
    budget: Rc<Budget>,
    capsules: Rc<MemoryQuota>,
    waiting: Waiting,
    transfers: Transfers,
    counters: Arc<QueueCounters>,
    /// Wakes who waits for the last command, once the connection is closed.
    finished: Notify,
    _counted: Counted,
}

/// What Connect has found out about a new I/O queue.
pub(crate) struct NewQueue {
    pub(crate) association: Arc<Association>,
    pub(crate) tenant: Arc<TenantShared>,
    pub(crate) qid: u16,
    pub(crate) pair: QueuePair,
    pub(crate) priority: Option<u8>,
    pub(crate) entries: u16,
    pub(crate) counters: Arc<QueueCounters>,
}

/// Serves an I/O queue until its connection has ended and everything that was issued has returned.
pub(crate) async fn serve(queue: &Rc<IoQueue>, input: &mut Input) {
    let pool = CommandPool::new(queue.core().rt(), queue.pair.places());
    let mut session = Session::new(queue.clone(), |work| {
        let refused = pool.run(command::execute(queue.clone(), work)).is_err();
        assert!(!refused, "a queue never has more commands than places");
    });
    let end = session.run(input).await;
    drop(session);
    queue.waiting.close();
    queue.transfers.close();
    queue.begin_end();
    finish(&queue.connection, input, end).await;
    while pool.waiting() > 0 {
        queue.finished.notified().await;
        queue.core().rt().turn_end().await;
    }
}

impl IoQueue {
    /// A queue on `connection` that sends as `how` says.
    pub(crate) fn new(connection: Rc<Connection>, how: Outgoing, new: NewQueue) -> Rc<Self> {
        let core = connection.core();
        let bytes = core.target().config().limits.connection_bytes;
        let budget = Budget::new(bytes, core.peer_quota(new.tenant.id));
        connection.outbox().set_budget(budget.clone());
        connection
            .outbox()
            .set_bytes_max(core.target().config().limits.output_bytes);
        let controller = new.association.controller();
        let (coalescing, credits) = (controller.coalescing(), controller.tells_credits());
        let limits = *controller.limits();
        drop(controller);
        let told = credits.then(|| new.association.clone());
        let rule = match coalescing.window {
            0 => Coalescing::Adaptive,
            window => Coalescing::Window(window),
        };
        connection.outbox().set_coalescing(rule, new.entries);
        let capsules = core.capsule_quota(new.tenant.id);
        Rc::new(Self {
            association: new.association,
            tenant: new.tenant,
            qid: new.qid,
            limits,
            how,
            pair: new.pair,
            intent: Cell::new(Intent::new(new.priority)),
            packed: coalescing.packed,
            hurried: Cell::new(false),
            namespaces: RefCell::new(Namespaces::new(told)),
            budget,
            capsules,
            waiting: Waiting::default(),
            transfers: Transfers::default(),
            counters: new.counters,
            finished: Notify::new(),
            _counted: core.target().census().queue(),
            connection,
        })
    }

    #[inline]
    pub(crate) fn core(&self) -> &Rc<Core> {
        self.connection.core()
    }

    /// The host has been heard of.
    #[inline]
    pub(crate) fn on_traffic(&self) {
        self.association.on_traffic();
        self.core().target().add_load(self.core().index());
    }

    pub(crate) fn association(&self) -> &Association {
        &self.association
    }

    #[inline]
    pub(crate) fn pair(&self) -> &QueuePair {
        &self.pair
    }

    #[inline]
    pub(crate) fn budget(&self) -> &Rc<Budget> {
        &self.budget
    }

    /// Memory for data in capsules.
    #[inline]
    pub(crate) fn capsule_share(&self) -> &Rc<MemoryQuota> {
        &self.capsules
    }

    #[inline]
    pub(crate) fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    #[inline]
    pub(crate) fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    #[inline]
    pub(crate) fn outbox(&self) -> &Outbox {
        self.connection.outbox()
    }

    /// The bounds that its host was told when it connected.
    #[inline]
    pub(crate) fn limits(&self) -> &ControllerLimits {
        &self.limits
    }

    /// The namespace of this identifier, as it is now.
    #[inline]
    pub(crate) fn namespace(&self, nsid: u32) -> Option<Rc<Namespace>> {
        self.namespaces
            .borrow_mut()
            .find(self.core(), &self.tenant, nsid)
            .cloned()
    }

    /// The class of a command that has just come.
    #[inline]
    pub(crate) fn classify(
        &self,
        granted: Class,
        entry: &SubmissionQueueEntry,
        bytes: u32,
    ) -> Class {
        let mut intent = self.intent.get();
        let others = self.pair.outstanding() - 1;
        let class = intent.classify(granted, entry, bytes, others);
        self.intent.set(intent);
        self.hurried.set(class == Class::Latency);
        if class == Class::Latency {
            self.core().on_hurry();
        }
        class
    }

    /// Whether it should let others have their turn: they are in a hurry, and it is not.
    #[inline]
    pub(crate) fn gives_way(&self) -> bool {
        !self.hurried.get() && self.core().is_hurried()
    }

    /// Takes command `cid` back, if it waits to be issued; tells now or later whether that was so.
    pub(crate) fn withdraw(&self, cid: u16, tell: TellWithdrawn) {
        self.waiting.withdraw(cid, tell);
    }

    /// Takes back what has waited for too long.
    pub(crate) fn expire(&self, now: Time) {
        let limits = &self.core().target().config().limits;
        self.waiting.expire(now, limits.wait_deadline);
    }

    /// Whether the host owes data for too long.
    pub(crate) fn data_overdue(&self, now: Time) -> bool {
        self.transfers
            .is_overdue(now, self.core().target().config().limits.data_deadline)
    }

    /// The connection has been closed: nothing more is issued.
    pub(crate) fn on_close(&self) {
        self.waiting.close();
        self.transfers.close();
    }

    /// The queue takes nothing more; what it issued may still return.
    pub(crate) fn begin_end(&self) {
        let target = self.core().target();
        target.begin_end_of_io(&self.association, self.qid);
    }

    /// The queue has gone, and everything it issued has returned.
    pub(crate) fn leave(&self) {
        self.core().target().leave_io(&self.association, self.qid);
    }

    /// The future of a command has come to its end.
    #[inline]
    pub(crate) fn on_finished(&self) {
        if self.connection.is_closed() {
            self.finished.notify_one();
        }
    }

    /// Invites data.
    pub(crate) fn push_r2t(&self, r2t: R2T) {
        let mut pdu = [0; MAX_HEADER];
        let len = r2t.encode(self.how, &mut pdu);
        self.outbox().push(Pushed::Urgent, &pdu[..len]);
    }

    /// Takes an I/O that has come back from its device; the next answer is to it. `past` is what
    /// there was before.
    #[inline]
    pub(crate) fn heed(
        &self,
        namespace: &Rc<Namespace>,
        past: Past,
        (result, looked): Ended,
    ) -> Result<Done, IoError> {
        if let Some(record) = looked {
            self.keep_sample(namespace, past, record);
        }
        result
    }

    #[cold]
    fn keep_sample(&self, namespace: &Rc<Namespace>, past: Past, record: Box<Record>) {
        let sample = Sample::new(self.core(), namespace, past, record);
        self.outbox().keep(sample);
    }

    /// Answers a read that has come back from the device.
    #[inline]
    pub(crate) fn finish_read(&self, command: &Command, ended: Ended, held: Held) {
        match self.heed(&command.namespace, command.past, ended) {
            Ok(done) => self.answer_read(command, done.data, held),
            Err(error) => self.fail(command, error.into()),
        }
    }

    /// Answers a write that has come back from the device.
    #[inline]
    pub(crate) fn finish_write(&self, command: &Command, ended: Ended) {
        match self.heed(&command.namespace, command.past, ended) {
            Ok(_) => self.answer_write(command),
            Err(error) => self.fail(command, error.into()),
        }
    }

    /// Answers a read. Without SQ flow control there is nothing in a completion that the host
    /// needs, and the data say "success" themselves.
    #[inline]
    pub(crate) fn answer_read(&self, command: &Command, data: Data, held: Held) {
        self.counters.on_read(data.len() as u64);
        let cid = command.cid;
        let entry = if self.pair.has_flow_control() {
            Some(self.success(command))
        } else {
            self.pair.end(cid);
            let news = command.settle().and_then(CreditShare::news);
            news.map(|news| reply::entry(cid, Status::SUCCESS, 0).with_allowance(news))
        };
        let held = matches!(data, Data::Buf(_)).then_some(held);
        let what = self.pushed(command.class);
        reply::complete_read(self.outbox(), self.how, what, cid, data, held, entry);
    }

    /// Answers a write.
    #[inline]
    pub(crate) fn answer_write(&self, command: &Command) {
        self.counters.on_write(u64::from(command.payload.bytes()));
        let entry = self.success(command);
        if matches!(command.op, IoOp::Write { fua: true, .. }) {
            return reply::complete(self.outbox(), self.how, entry);
        }
        let what = self.pushed(command.class);
        if self.packed {
            let nsid = command.namespace.info.nsid;
            self.outbox().push_success(what, self.how, entry, nsid);
        } else {
            reply::complete_as(self.outbox(), self.how, what, entry);
        }
    }

    /// Answers both halves of a pair.
    pub(crate) fn answer_pair(&self, cids: [u16; 2], bytes: u64) {
        self.counters.on_read(bytes);
        self.answer(cids[0], Status::SUCCESS);
        self.counters.on_write(bytes);
        self.answer(cids[1], Status::SUCCESS);
    }

    /// Answers any other command that succeeded.
    pub(crate) fn answer_other(&self, command: &Command) {
        match command.op {
            IoOp::Compare { .. } => self.counters.on_read(u64::from(command.payload.bytes())),
            _ => self.counters.on_other(),
        }
        reply::complete(self.outbox(), self.how, self.success(command));
    }

    /// The completion of a command that succeeded.
    #[inline]
    fn success(&self, command: &Command) -> CompletionQueueEntry {
        let sqhd = self.pair.end(command.cid);
        let entry = reply::entry(command.cid, Status::SUCCESS, sqhd);
        let allowance = command
            .settle()
            .map_or(Allowance::Silent, CreditShare::allowance);
        entry.with_allowance(allowance)
    }

    /// How long the answer to a command that succeeded may wait for others.
    #[inline]
    fn pushed(&self, class: Class) -> Pushed {
        if class == Class::Latency {
            return Pushed::Urgent;
        }
        Pushed::Answer {
            now: self.core().rt().turn_time(),
            in_flight: self.pair.outstanding(),
        }
    }

    /// Answers a command that failed.
    #[cold]
    pub(crate) fn fail(&self, command: &Command, failure: Failure) {
        let lba = match command.op {
            IoOp::Read { range, .. }
            | IoOp::Write { range, .. }
            | IoOp::Compare { range, .. }
            | IoOp::WriteZeroes { range, .. } => range.slba,
            IoOp::DatasetManagement { .. } | IoOp::Flush => 0,
        };
        self.counters.on_error(failure.is_of_medium());
        command.settle();
        self.log_and_answer(CommandError {
            sqid: self.qid,
            cid: command.cid,
            opcode: command.opcode,
            status: failure.status(),
            lba,
            nsid: command.namespace.info.nsid,
        });
    }

    /// Answers a command that was refused before anything was done.
    #[cold]
    pub(crate) fn refuse(&self, entry: &SubmissionQueueEntry, status: Status) {
        self.counters.on_error(false);
        self.log_and_answer(CommandError {
            sqid: self.qid,
            cid: entry.cid(),
            opcode: entry.opcode(),
            status,
            lba: entry.starting_lba().unwrap_or(0),
            nsid: entry.nsid(),
        });
    }

    /// Refuses a command whose identifier is in use by another one, which goes on.
    #[cold]
    pub(crate) fn refuse_duplicate(&self, cid: u16) {
        self.counters.on_error(false);
        let sqhd = self.pair.end_duplicate();
        reply::complete(
            self.outbox(),
            self.how,
            reply::entry(cid, Status::COMMAND_ID_CONFLICT.with_dnr(), sqhd),
        );
    }

    fn log_and_answer(&self, mut error: CommandError) {
        let mut controller = self.association.controller();
        if !controller.honours_retry_delay() {
            error.status = error.status.with_crd(0);
        }
        controller.on_error(error);
        drop(controller);
        self.answer(error.cid, error.status.with_more());
    }

    #[inline]
    fn answer(&self, cid: u16, status: Status) {
        let sqhd = self.pair.end(cid);
        reply::complete(self.outbox(), self.how, reply::entry(cid, status, sqhd));
    }
}
