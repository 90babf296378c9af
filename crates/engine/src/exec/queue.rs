//! What the commands of one I/O queue share: whose they are, which namespaces they reach, the
//! memory they may have, and those that wait. [`Front`] is how they get their data and are
//! answered.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use flashyard_block::{Class, Done, IoError, Tag};
use flashyard_controller::{CommandError, ControllerLimits, Intent, NamespaceInfo};
use flashyard_nvme::{Status, SubmissionQueueEntry};
use flashyard_runtime::Buf;
use flashyard_sched::{Ask, IoId, Op};
use flashyard_time::Time;

use super::front::{End, Failure, Front};
use crate::alive::Counted;
use crate::association::{Association, TenantShared};
use crate::core::Core;
use crate::counters::QueueCounters;
use crate::credit::CreditShare;
use crate::forwarding::{Admission, Ended, Route};
use crate::ledger::{Past, Sample};
use crate::quota::{Budget, Held};
use crate::sample::PendingSample;
use crate::subsystems::IoSeat;
use crate::waiting::{TakenBack, TellWithdrawn, Waiting};

/// One I/O queue.
pub struct Queue<F> {
    front: F,
    core: Rc<Core>,
    association: Arc<Association>,
    tenant: Arc<TenantShared>,
    qid: u16,
    /// Of its controller.
    limits: ControllerLimits,
    intent: Cell<Intent>,
    /// Its last command was latency-sensitive.
    latency_sensitive: Cell<bool>,
    namespaces: RefCell<Namespaces>,
    budget: Rc<Budget>,
    waiting: Waiting,
    counters: Arc<QueueCounters>,
    _counted: Counted,
}

impl<F: Front> Queue<F> {
    /// A queue of `core` behind `front`, whose commands may have the memory of `budget`.
    pub fn new(core: &Rc<Core>, seat: IoSeat, budget: Rc<Budget>, front: F) -> Rc<Self> {
        let controller = seat.association.controller();
        let credits = controller.tells_credits();
        let limits = *controller.limits();
        drop(controller);
        let reported = credits.then(|| seat.association.clone());
        Rc::new(Self {
            front,
            association: seat.association,
            tenant: seat.tenant,
            qid: seat.queue.qid,
            limits,
            intent: Cell::new(Intent::new(seat.queue.priority)),
            latency_sensitive: Cell::new(false),
            namespaces: RefCell::new(Namespaces::new(reported)),
            budget,
            waiting: Waiting::default(),
            counters: seat.counters,
            _counted: core.target().census().queue(),
            core: core.clone(),
        })
    }

    /// How its commands get their data and are answered.
    #[inline]
    pub fn front(&self) -> &F {
        &self.front
    }

    /// The core that serves it.
    #[inline]
    pub fn core(&self) -> &Rc<Core> {
        &self.core
    }

    /// The host has been heard of.
    #[inline]
    pub fn on_traffic(&self) {
        self.association.on_traffic();
        self.core.target().add_load(self.core.index());
    }

    /// Its controller.
    pub fn association(&self) -> &Association {
        &self.association
    }

    #[inline]
    pub(super) fn counters(&self) -> &QueueCounters {
        &self.counters
    }

    #[inline]
    pub(super) fn budget(&self) -> &Rc<Budget> {
        &self.budget
    }

    /// Those of its commands that have not been issued.
    #[inline]
    pub(super) fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    /// The bounds that were reported to its host when it connected.
    #[inline]
    pub fn limits(&self) -> &ControllerLimits {
        &self.limits
    }

    /// The namespace of this identifier, as it is now.
    #[inline]
    pub fn namespace(&self, nsid: u32) -> Option<Rc<Namespace>> {
        self.namespaces
            .borrow_mut()
            .find(&self.core, &self.tenant, nsid)
            .cloned()
    }

    /// The class of a command that has just come, with so many others outstanding.
    #[inline]
    pub(super) fn classify(
        &self,
        granted: Class,
        entry: &SubmissionQueueEntry,
        bytes: u32,
        others: u16,
    ) -> Class {
        let mut intent = self.intent.get();
        let class = intent.classify(granted, entry, bytes, others);
        self.intent.set(intent);
        self.latency_sensitive.set(class == Class::Latency);
        if class == Class::Latency {
            self.core.on_latency_sensitive();
        }
        class
    }

    /// Whether it should let others have their turn: they are latency-sensitive, and it is not.
    #[inline]
    pub fn gives_way(&self) -> bool {
        !self.latency_sensitive.get() && self.core.is_latency_sensitive()
    }

    /// Waits for `future` on behalf of command `cid`, unless that is taken back.
    pub async fn unless_withdrawn<T>(
        &self,
        cid: u16,
        future: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let waited = self.waiting.unless_withdrawn(cid, future).await;
        waited.map_err(|taken_back| taken_back.error().into())
    }

    /// Takes command `cid` back, if it has not been issued; tells now or later whether that was so.
    pub fn withdraw(&self, cid: u16, tell: TellWithdrawn) {
        self.waiting.withdraw(cid, tell);
    }

    /// Takes back all that has not been issued, now and in future.
    pub fn withdraw_all(&self) {
        self.waiting.close();
    }

    /// Takes back what has waited for too long.
    pub fn expire(&self, now: Time) {
        let limits = &self.core.target().config().limits;
        self.waiting.expire(now, limits.wait_deadline);
    }

    /// The queue takes nothing more; what it issued may still return.
    pub fn begin_end(&self) {
        let target = self.core.target();
        target.begin_end_of_io(&self.association, self.qid);
    }

    /// The queue has gone, and everything it issued has returned.
    pub fn leave(&self) {
        self.core.target().leave_io(&self.association, self.qid);
    }

    /// Waits for a share of memory.
    #[inline]
    pub(super) async fn reserve(&self, cid: u16, bytes: usize) -> Result<Held, Failure> {
        let charge = Budget::charge(bytes);
        if let Some(held) = self.budget.try_reserve(charge) {
            return Ok(held);
        }
        self.unless_withdrawn(cid, self.budget.reserve(charge))
            .await
    }

    /// Waits for the turn of an I/O.
    #[inline]
    pub(super) async fn admit(
        &self,
        cid: u16,
        namespace: &Namespace,
        ask: Ask,
    ) -> Result<Admission, Failure> {
        if let Some(admission) = namespace.route.try_admit(self.core.forwarding(), ask) {
            return Ok(admission);
        }
        self.wait_for_turn(cid, namespace, ask, false).await
    }

    /// The same, of an I/O that has to wait; `again`: it had its turn before, and its host kept it
    /// waiting.
    pub(super) async fn wait_for_turn(
        &self,
        cid: u16,
        namespace: &Namespace,
        ask: Ask,
        again: bool,
    ) -> Result<Admission, Failure> {
        let admitted = namespace.route.admit(self.core.forwarding(), ask, again);
        self.unless_withdrawn(cid, admitted).await
    }

    /// Has so many bytes fetched from the host, counted against `held`, and waits for them.
    pub(super) async fn fetch(
        &self,
        cid: u16,
        bytes: usize,
        held: Held,
    ) -> Result<(Buf, Option<Held>), Failure> {
        let fetch = self.front.fetch(cid, bytes, Some(held));
        let fetched = self.waiting.unless_unwanted(cid, fetch).await;
        fetched.map_err(TakenBack::error)?
    }

    /// Takes an I/O that has come back from its device; the next answer is to it. `past` is what
    /// there was before.
    #[inline]
    pub(super) fn take(
        &self,
        namespace: &Rc<Namespace>,
        past: Past,
        (result, sample): Ended,
    ) -> Result<Done, IoError> {
        if let Some(sample) = sample {
            self.keep(namespace, past, sample);
        }
        result
    }

    #[cold]
    fn keep(&self, namespace: &Rc<Namespace>, past: Past, sample: Box<Sample>) {
        let sample = PendingSample::new(&self.core, namespace, past, sample);
        self.front.keep(sample);
    }

    /// Answers a command that was refused before anything was done.
    #[cold]
    pub fn refuse(&self, entry: &SubmissionQueueEntry, status: Status) {
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

    /// A command whose identifier is in use was refused: that is not an error of another one.
    #[cold]
    pub fn on_duplicate(&self) {
        self.counters.on_error(false);
    }

    /// Answers a command that failed: its identifier and opcode, its namespace and first block.
    #[cold]
    pub(super) fn fail(&self, failure: Failure, (cid, opcode): (u16, u8), (nsid, lba): (u32, u64)) {
        self.counters.on_error(failure.is_of_medium());
        self.log_and_answer(CommandError {
            sqid: self.qid,
            cid,
            opcode,
            status: failure.status(),
            lba,
            nsid,
        });
    }

    fn log_and_answer(&self, mut error: CommandError) {
        let mut controller = self.association.controller();
        if !controller.honours_retry_delay() {
            error.status = error.status.with_crd(0);
        }
        controller.on_error(error);
        drop(controller);
        let status = error.status.with_more();
        self.front.answer(error.cid, End::Failed(status));
    }
}

/// A namespace and the way to its device.
pub struct Namespace {
    /// What its host sees of it.
    pub info: NamespaceInfo,
    pub(crate) route: Route,
    pub(crate) tag: Tag,
    /// For a host that receives credits.
    pub(crate) credit_share: Option<CreditShare>,
}

impl Namespace {
    /// What an I/O to it asks of the switch before its device.
    #[inline]
    pub(super) fn ask(&self, class: Class, op: Op, lba: u64, bytes: u64) -> Ask {
        Ask {
            id: IoId::NONE,
            tenant: self.tag.tenant,
            class,
            op,
            bytes,
            lba,
        }
    }
}

/// All that a queue may reach: a copy that is refreshed when its tenant's generation has moved, so
/// that the path of an I/O takes no lock.
#[derive(Default)]
struct Namespaces {
    /// Whose host receives credits.
    reported: Option<Arc<Association>>,
    generation: u64,
    /// By identifier.
    list: Vec<Rc<Namespace>>,
}

impl Namespaces {
    /// Nothing yet. The host of `reported` receives credits.
    fn new(reported: Option<Arc<Association>>) -> Self {
        Self {
            reported,
            ..Self::default()
        }
    }

    /// The namespace of this identifier, as it is now.
    #[inline]
    fn find(&mut self, core: &Core, tenant: &TenantShared, nsid: u32) -> Option<&Rc<Namespace>> {
        if self.generation != tenant.generation() {
            self.refresh(core, tenant);
        }
        // Identifiers mostly count from 1 without gaps.
        let guess = (nsid as usize).wrapping_sub(1);
        if self
            .list
            .get(guess)
            .is_some_and(|namespace| namespace.info.nsid == nsid)
        {
            return self.list.get(guess);
        }
        let found = self
            .list
            .binary_search_by_key(&nsid, |namespace| namespace.info.nsid);
        found.ok().map(|at| &self.list[at])
    }

    #[cold]
    fn refresh(&mut self, core: &Core, tenant: &TenantShared) {
        let reachable = core.target().reachable(tenant);
        self.generation = reachable.generation;
        let tag = Tag {
            tenant: tenant.id,
            class: reachable.class,
        };
        let namespaces = reachable.namespaces.into_iter().map(|(info, device)| {
            let route = if device.core() == core.index() {
                core.port(device.id()).map_or(Route::Nowhere, Route::Here)
            } else {
                Route::There {
                    core: device.core(),
                    device: device.id(),
                }
            };
            let credit_share = self.reported.as_ref().map(|association| {
                CreditShare::new(device.account(tenant.id), association.part(device.id()))
            });
            Rc::new(Namespace {
                info,
                route,
                tag,
                credit_share,
            })
        });
        self.list = namespaces.collect();
    }
}
