//! One TCP connection: what its two tasks share, how it begins, its deadlines, and how it ends.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

use flashyard_nvme::tcp::{Framer, Limits as FramerLimits, MAX_TERM_REQ, Role, Violation};
use flashyard_runtime::TcpStream;
use flashyard_time::Time;

use super::admin::{self, AdminQueue};
use super::connect::{self, Joined};
use super::hold::Pushed;
use super::input::Input;
use super::io::{self, IoQueue};
use super::outbox::Outbox;
use super::waiting::TellWithdrawn;
use crate::association::Association;
use crate::controller::limits::ADMIN_IN_CAPSULE_BYTES;
use crate::core::Core;
use crate::message::ConnectionId;
use crate::{HostEvent, HostEventKind, Limits};

/// What a peer may still send after it was told to go, before nothing more is read at all.
const LAST_WORDS: usize = 1 << 20;

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The peer closed, or the network failed, or this end was told to close.
    Closed,
    /// The peer broke the rules and is told so.
    Violation(Violation),
}

impl From<Violation> for End {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// A connection as its tasks and its core share it.
pub(crate) struct Connection {
    core: Rc<Core>,
    id: ConnectionId,
    stream: TcpStream,
    outbox: Outbox,
    closed: Cell<bool>,
    /// What it has become.
    queue: RefCell<Queue>,
    /// By when it must have come further (see [`Connection::set_deadline`]).
    deadline: Cell<Option<Time>>,
    sending: Progress,
}

/// What a connection is.
enum Queue {
    /// Not connected yet.
    None,
    Admin(Rc<AdminQueue>),
    Io(Rc<IoQueue>),
}

/// Something that must go on: whoever does it counts steps, the sweep sees whether they do.
#[derive(Default)]
pub(crate) struct Progress {
    pending: Cell<bool>,
    steps: Cell<u64>,
    seen: Cell<u64>,
    stuck_since: Cell<Option<Time>>,
}

impl Progress {
    /// Something is awaited (or not any more); a step has been made.
    #[inline]
    pub(crate) fn step(&self, pending: bool) {
        self.pending.set(pending);
        self.steps.set(self.steps.get() + 1);
    }

    /// Since when nothing has moved although something is awaited, as far as has been looked.
    pub(crate) fn stuck_since(&self, now: Time) -> Option<Time> {
        let moved = self.seen.replace(self.steps.get()) != self.steps.get();
        if moved || !self.pending.get() {
            self.stuck_since.set(None);
        } else if self.stuck_since.get().is_none() {
            self.stuck_since.set(Some(now));
        }
        self.stuck_since.get()
    }
}

impl Connection {
    /// A connection that has just been accepted.
    pub(crate) fn new(core: Rc<Core>, id: ConnectionId, stream: TcpStream) -> Rc<Self> {
        let limits = &core.target().config().limits;
        let outbox = Outbox::new(limits.admin_output_bytes);
        let deadline = core.rt().now() + limits.initialize_deadline;
        Rc::new(Self {
            core,
            id,
            stream,
            outbox,
            closed: Cell::new(false),
            queue: RefCell::new(Queue::None),
            deadline: Cell::new(Some(deadline)),
            sending: Progress::default(),
        })
    }

    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.core.target().config().limits
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    #[inline]
    pub(crate) fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Ends it: nothing more is received or sent, and commands that were not issued are taken back.
    pub(crate) fn close(&self) {
        if self.closed.replace(true) {
            return;
        }
        self.stream.shutdown();
        self.outbox.close();
        if let Queue::Io(queue) = &*self.queue.borrow() {
            queue.on_close();
        }
    }

    /// The peer, while it counts as one that has not connected.
    pub(crate) fn unconnected_peer(&self) -> Option<IpAddr> {
        matches!(&*self.queue.borrow(), Queue::None).then(|| self.stream.peer_addr().ip())
    }

    /// From now on it has to have come further by `deadline`, or it is closed.
    pub(crate) fn set_deadline(&self, deadline: Option<Time>) {
        self.deadline.set(deadline);
    }

    /// Takes command `cid` back, if it has not been issued; tells now or later whether that was so.
    pub(crate) fn withdraw(&self, cid: u16, tell: TellWithdrawn) {
        match &*self.queue.borrow() {
            Queue::Io(queue) => queue.withdraw(cid, tell),
            _ => tell(false),
        }
    }

    pub(crate) fn on_aborted(&self, ticket: u16, aborted: bool) {
        self.with_admin(|admin| admin.on_aborted(ticket, aborted));
    }

    pub(crate) fn on_namespace_changed(&self, nsid: u32) {
        self.with_admin(|admin| admin.on_namespace_changed(nsid));
    }

    pub(crate) fn on_discovery_changed(&self) {
        self.with_admin(AdminQueue::on_discovery_changed);
    }

    /// Looks at its deadlines.
    pub(crate) fn sweep(&self, now: Time) {
        let limits = self.limits();
        let late = self.deadline.get().is_some_and(|deadline| now >= deadline);
        let stalled = self
            .sending
            .stuck_since(now)
            .is_some_and(|since| now.since(since) >= limits.stall_deadline);
        let owing = match &*self.queue.borrow() {
            Queue::Io(queue) => {
                queue.expire(now);
                queue.data_overdue(now)
            }
            _ => false,
        };
        if late || stalled || owing {
            self.close();
        }
        self.with_admin(|admin| admin.sweep(now));
    }

    /// Tells whoever runs the target what costs the host this connection.
    pub(crate) fn report(&self, kind: HostEventKind) {
        let queue = self.queue.borrow();
        let association = match &*queue {
            Queue::None => None,
            Queue::Admin(queue) => Some(queue.association()),
            Queue::Io(queue) => Some(queue.association()),
        };
        self.core.target().report(HostEvent {
            number: 0,
            at: self.core.rt().now(),
            peer: self.stream.peer_addr(),
            controller: association.map(Association::for_event),
            kind,
        });
    }

    fn with_admin(&self, act: impl FnOnce(&AdminQueue)) {
        let admin = match &*self.queue.borrow() {
            Queue::Admin(admin) => Some(admin.clone()),
            _ => None,
        };
        if let Some(admin) = admin {
            act(&admin);
        }
    }

    fn become_queue(&self, queue: Queue) {
        *self.queue.borrow_mut() = queue;
        self.core
            .target()
            .on_connected(self.stream.peer_addr().ip());
        self.set_deadline(None);
        if self.is_closed() {
            // It was closed while Connect was waiting: the queue has to hear of it.
            if let Queue::Io(queue) = &*self.queue.borrow() {
                queue.on_close();
            }
        }
    }
}

/// The sending task of a connection.
pub(crate) async fn send(connection: Rc<Connection>) {
    let rt = connection.core.rt().clone();
    while let Some(mut parcel) = connection.outbox.next(&rt).await {
        connection.sending.step(true);
        let gather = std::mem::take(&mut parcel.gather);
        let (result, gather) = connection.stream.send(gather).await;
        connection.sending.step(false);
        parcel.gather = gather;
        connection.outbox.sent(parcel);
        if result.is_err() {
            connection.close();
        }
    }
}

/// The receiving task of a connection, from the first byte until nothing is left of it.
pub(crate) async fn serve(connection: Rc<Connection>) {
    // Nothing but a Connect is taken until it is known which queue this is.
    let in_capsule = ADMIN_IN_CAPSULE_BYTES;
    let framer = Framer::new(
        Role::Controller,
        FramerLimits {
            in_capsule,
            c2h_data: 0,
        },
    );
    let mut input = Input::new(connection.clone(), framer);
    match connect::begin(&connection, &mut input).await {
        Ok(Joined::Admin(queue)) => {
            connection.become_queue(Queue::Admin(queue.clone()));
            let end = admin::serve(&queue, &mut input).await;
            finish(&connection, &mut input, end).await;
        }
        Ok(Joined::Io(queue)) => {
            connection.become_queue(Queue::Io(queue.clone()));
            io::serve(&queue, &mut input).await;
            queue.leave();
        }
        Err(end) => finish(&connection, &mut input, end).await,
    }
    connection.core.forget(&connection);
}

/// Says why, if the peer is to blame; then waits until it has gone, but not for long.
pub(crate) async fn finish(connection: &Connection, input: &mut Input, end: End) {
    match &*connection.queue.borrow() {
        Queue::None => {}
        // Before the farewell, which takes as long as the peer likes.
        Queue::Admin(queue) => queue.end_association(),
        Queue::Io(queue) => queue.begin_end(),
    }
    if let End::Violation(violation) = end {
        connection.report(HostEventKind::Violation(violation));
        let mut pdu = [0; MAX_TERM_REQ];
        let len = violation.term_req().encode(
            Role::Controller,
            input.framer.offending_header(),
            &mut pdu,
        );
        connection.outbox.push(Pushed::Urgent, &pdu[..len]);
        connection.outbox.seal();
        connection.set_deadline(Some(
            connection.core.rt().now() + connection.limits().terminate_deadline,
        ));
        connection.outbox.flushed().await;
        input.discard(LAST_WORDS).await;
    }
    connection.close();
}
