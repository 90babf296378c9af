//! The Admin queue: brings commands to the controller and does what it says. Data of Admin commands
//! come in the capsule, which always takes 8 KiB there; no R2T is sent, so an Admin queue needs no
//! buffers.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use flashyard_engine::front::{Association, Counted};
use flashyard_engine::{HostEventController, HostEventKind};
use flashyard_nvme::command::FabricsType;
use flashyard_nvme::log::StatisticsLog;
use flashyard_nvme::tcp::{CapsuleCmd, Header, Outgoing};
use flashyard_nvme::{CompletionQueueEntry, Status, SubmissionQueueEntry};
use flashyard_time::Time;

use crate::capsule::{self, Duplicate, Payload, QueuePair};
use crate::connect::in_capsule;
use crate::connection::{ConnectedQueue, Connection, End};
use crate::fabrics;
use crate::input::{Input, Pdu};
use crate::outbox;
use flashyard_controller::{AdminOutcome, Answer, Effect, asks_statistics};

/// One Admin queue: one association.
pub(crate) struct AdminQueue {
    connection: Rc<Connection>,
    association: Arc<Association>,
    how: Outgoing,
    pair: QueuePair,
    /// Asynchronous Event Requests that the controller keeps.
    requests: RefCell<Vec<u16>>,
    /// Aborts that another core has been asked about.
    aborts: RefCell<Vec<u16>>,
    /// The host has announced its end by CC.SHN.
    has_said_goodbye: Cell<bool>,
    /// The association has ended; the connection may be there for a farewell.
    has_ended: Cell<bool>,
    _counted: Counted,
}

/// Serves an Admin queue until its connection ends.
pub(crate) async fn serve(queue: &AdminQueue, input: &mut Input) -> End {
    loop {
        queue.connection.outbox().room().await;
        let served = match input.pdu().await {
            Ok(pdu) => queue.on_pdu(&pdu).await,
            Err(end) => Err(end),
        };
        if let Err(end) = served {
            return end;
        }
    }
}

impl AdminQueue {
    /// The Admin queue of a new association.
    pub(crate) fn new(
        connection: Rc<Connection>,
        how: Outgoing,
        association: Arc<Association>,
        pair: QueuePair,
    ) -> Rc<Self> {
        let counted = connection.core().target().census().queue();
        Rc::new(Self {
            connection,
            association,
            how,
            pair,
            requests: RefCell::default(),
            aborts: RefCell::default(),
            has_said_goodbye: Cell::new(false),
            has_ended: Cell::new(false),
            _counted: counted,
        })
    }

    /// The connection has gone, or is not listened to any more, and the association with it.
    pub(crate) fn end_association(&self) {
        self.has_ended.set(true);
        let core = self.connection.core();
        let (goodbye, now) = (self.has_said_goodbye.get(), core.rt().now());
        core.target()
            .end_association(&self.association, goodbye, now);
    }

    async fn on_pdu(&self, pdu: &Pdu) -> Result<(), End> {
        let Header::CapsuleCmd(capsule) = &pdu.header else {
            return Ok(());
        };
        let entry = &capsule.entry;
        if let Err(Duplicate) = self.pair.begin(entry.cid())? {
            self.on_duplicate(entry).await;
        } else if !pdu.digest_ok {
            self.answer(entry.cid(), Answer::of(Status::TRANSIENT_TRANSPORT_ERROR));
        } else if entry.is_fabrics() {
            let answer = self.on_fabrics(entry).await;
            self.answer(entry.cid(), answer);
        } else {
            self.on_admin(capsule, &pdu.data).await;
        }
        self.report_events();
        Ok(())
    }

    /// A command with an identifier that is in use. A host that detaches has forgotten the requests
    /// for events that it will get no answer to, and uses their identifiers for its last property
    /// commands: those are answered.
    async fn on_duplicate(&self, entry: &SubmissionQueueEntry) {
        let only_events = self.requests.borrow().len() + 1 == usize::from(self.pair.outstanding());
        let answer = if only_events && is_property(entry) {
            self.on_fabrics(entry).await
        } else {
            Answer::of(Status::COMMAND_ID_CONFLICT.with_dnr())
        };
        let sqhd = self.pair.end_duplicate();
        let entry = answer.completion(entry.cid()).with_queue(sqhd, 0);
        outbox::complete(self.connection.outbox(), self.how, entry);
    }

    async fn on_fabrics(&self, entry: &SubmissionQueueEntry) -> Answer {
        let now = self.connection.core().rt().now();
        let (answer, effect) = fabrics::execute(&mut self.association.controller(), now, entry);
        match effect {
            Some(Effect::Reset) => self.reset().await,
            Some(Effect::Shutdown { .. }) => self.has_said_goodbye.set(true),
            Some(Effect::Enabled) => self.has_said_goodbye.set(false),
            None => {}
        }
        answer
    }

    /// Forgets what is kept, drops the I/O queues, and waits until all they issued has returned, as
    /// long as a Connect would wait for it.
    async fn reset(&self) {
        let kept = self.requests.take().into_iter().chain(self.aborts.take());
        for cid in kept {
            self.pair.end(cid);
        }
        let core = self.connection.core();
        core.drop_io_queues(&self.association).await;
    }

    async fn on_admin(&self, capsule: &CapsuleCmd, data: &[u8]) {
        let entry = &capsule.entry;
        let statistics = match asks_statistics(entry) {
            Some(nsid) => {
                let core = self.connection.core();
                core.statistics(&self.association, nsid).await
            }
            None => Err(Status::INTERNAL_ERROR),
        };
        match self.outcome(entry, capsule.data_len, data, &statistics) {
            AdminOutcome::Complete(answer) => self.answer(entry.cid(), answer),
            AdminOutcome::Data { page, dw0 } => self.answer_with_data(entry.cid(), &page, dw0),
            AdminOutcome::Held => self.requests.borrow_mut().push(entry.cid()),
            AdminOutcome::AbortedEventRequest { cid } => {
                self.requests.borrow_mut().retain(|kept| *kept != cid);
                self.answer(cid, Answer::of(Status::ABORT_REQUESTED));
                self.answer(entry.cid(), Answer::to_abort(true));
            }
            AdminOutcome::Abort { sqid, cid } => self.abort(entry.cid(), sqid, cid),
        }
    }

    fn outcome(
        &self,
        entry: &SubmissionQueueEntry,
        capsule_bytes: u32,
        data: &[u8],
        statistics: &Result<StatisticsLog, Status>,
    ) -> AdminOutcome {
        let core = self.connection.core();
        let (now, local) = (core.rt().now(), self.connection.stream().local_addr().ip());
        let refuse = |status: Status| AdminOutcome::Complete(Answer::of(status));
        let statistics = statistics.as_ref().map_err(|status| *status);
        core.target()
            .with_view(&self.association, (local, now), statistics, |view| {
                let mut controller = self.association.controller();
                let transfer = controller.admin_transfer(entry);
                let data = match Payload::locate(transfer, entry, capsule_bytes) {
                    Ok(Payload::ByR2t { .. }) => {
                        return refuse(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr());
                    }
                    Ok(payload) => in_capsule(payload, data).unwrap_or_default(),
                    Err(status) => return refuse(status),
                };
                controller.admin(now, entry, view, data, capsule::room(entry))
            })
    }

    /// Asks the core that serves the queue; it answers by `on_aborted`.
    fn abort(&self, ticket: u16, sqid: u16, cid: u16) {
        let target = self.connection.core().target();
        let asked_by = self.connection.id();
        if target.abort(&self.association, (sqid, cid), asked_by, ticket) {
            self.aborts.borrow_mut().push(ticket);
        } else {
            self.answer(ticket, Answer::to_abort(false));
        }
    }

    fn report_events(&self) {
        loop {
            let event = self.association.controller().poll_event();
            let Some((cid, dw0)) = event else { return };
            self.requests.borrow_mut().retain(|kept| *kept != cid);
            self.answer(cid, Answer::dw0(dw0));
        }
    }

    fn answer(&self, cid: u16, answer: Answer) {
        let entry = self.completion(cid, answer);
        outbox::complete(self.connection.outbox(), self.how, entry);
    }

    fn answer_with_data(&self, cid: u16, page: &[u8], dw0: u32) {
        if page.is_empty() {
            return self.answer(cid, Answer::dw0(dw0));
        }
        let entry = self.completion(cid, Answer::dw0(dw0));
        outbox::complete_page(self.connection.outbox(), self.how, page, entry);
    }

    fn completion(&self, cid: u16, answer: Answer) -> CompletionQueueEntry {
        answer.completion(cid).with_queue(self.pair.end(cid), 0)
    }
}

impl ConnectedQueue for AdminQueue {
    fn on_namespace_changed(&self, nsid: u32) {
        self.association.controller().on_namespace_change(nsid);
        self.report_events();
    }

    fn on_discovery_changed(&self) {
        self.association.controller().on_discovery_change();
        self.report_events();
    }

    fn on_aborted(&self, ticket: u16, aborted: bool) {
        let mut aborts = self.aborts.borrow_mut();
        let Some(at) = aborts.iter().position(|waiting| *waiting == ticket) else {
            return;
        };
        aborts.swap_remove(at);
        drop(aborts);
        self.answer(ticket, Answer::to_abort(aborted));
    }

    /// Looks at the Keep Alive Timer.
    fn sweep(&self, now: Time) -> bool {
        if self.has_ended.get() || self.connection.is_closed() {
            return false;
        }
        let mut controller = self.association.controller();
        if self.association.take_traffic() {
            controller.on_traffic(now);
        }
        let expired = controller.poll(now).is_some();
        drop(controller);
        if expired {
            self.connection.report(HostEventKind::KeepAliveExpired);
        }
        expired
    }

    fn for_event(&self) -> HostEventController {
        self.association.for_event()
    }
}

fn is_property(entry: &SubmissionQueueEntry) -> bool {
    let kinds = [FabricsType::PROPERTY_GET, FabricsType::PROPERTY_SET];
    entry.is_fabrics() && kinds.contains(&entry.fabrics_type())
}
