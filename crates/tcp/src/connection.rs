//! One TCP connection: what its two tasks share, its deadlines, and its end.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::{Rc, Weak};

use flashyard_engine::front::{self, ConnectionId, Counted, TellWithdrawn};
use flashyard_engine::{Core, HostEvent, HostEventController, HostEventKind, Limits};
use flashyard_nvme::tcp::Violation;
use flashyard_runtime::TcpStream;
use flashyard_time::Time;

use crate::outbox::Outbox;
use crate::owed::Owed;

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The peer closed, or the network failed, or this end was asked to close.
    Closed,
    /// The peer broke the rules and is notified of it.
    Violation(Violation),
}

impl From<Violation> for End {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// A connection as its tasks and its core share it. A queue owns its connection and the receiving
/// task owns the queue, so all of it goes when the tasks have ended; the connection itself knows
/// its queue only as long as that is there.
pub(crate) struct Connection {
    core: Rc<Core>,
    id: ConnectionId,
    stream: TcpStream,
    outbox: Outbox,
    closed: Cell<bool>,
    /// What it has become, until that is gone.
    queue: RefCell<Option<Weak<dyn ConnectedQueue>>>,
    /// By when it must have come further (see [`Connection::set_deadline`]).
    deadline: Cell<Option<Time>>,
    /// Room for what is to be sent.
    room: Owed,
    /// The PDU that has begun.
    pdu: Owed,
    /// The number of the PDU of which the peer owes the rest, while nothing else is waited for.
    awaited: Cell<Option<u64>>,
    _counted: Counted,
}

/// The queue that a connection has become.
pub(crate) trait ConnectedQueue {
    /// The connection has been closed: nothing more is issued.
    fn on_close(&self) {}

    /// See [`front::Connection::withdraw`].
    fn withdraw(&self, _cid: u16, tell: TellWithdrawn) {
        tell(false);
    }

    /// See [`front::Connection::on_aborted`].
    fn on_aborted(&self, _ticket: u16, _aborted: bool) {}

    /// See [`front::Connection::on_namespace_changed`].
    fn on_namespace_changed(&self, _nsid: u32) {}

    /// See [`front::Connection::on_discovery_changed`].
    fn on_discovery_changed(&self) {}

    /// Looks at its deadlines; whether its host owes anything for too long.
    fn sweep(&self, now: Time) -> bool;

    /// Its controller, as an event shows it.
    fn for_event(&self) -> HostEventController;
}

impl Connection {
    /// A connection that has just been accepted.
    pub(crate) fn new(core: Rc<Core>, id: ConnectionId, stream: TcpStream) -> Rc<Self> {
        let limits = &core.target().config().limits;
        let outbox = Outbox::new(core.rt(), limits.admin_output_bytes);
        let deadline = core.rt().now() + limits.initialize_deadline;
        stream.set_patience(limits.stall_deadline);
        let counted = core.target().census().connection();
        Rc::new(Self {
            core,
            id,
            stream,
            outbox,
            closed: Cell::new(false),
            queue: RefCell::default(),
            deadline: Cell::new(Some(deadline)),
            room: Owed::default(),
            pdu: Owed::default(),
            awaited: Cell::new(None),
            _counted: counted,
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

    /// The peer, while it counts as one that has not connected.
    pub(crate) fn unconnected_peer(&self) -> Option<IpAddr> {
        self.queue
            .borrow()
            .is_none()
            .then(|| self.stream.peer_addr().ip())
    }

    /// From now on it has to have come further by `deadline`, or it is closed.
    pub(crate) fn set_deadline(&self, deadline: Option<Time>) {
        self.deadline.set(deadline);
    }

    /// From now on the peer owes the rest of this PDU, by the number of its header; or nothing.
    #[inline]
    pub(crate) fn set_awaited(&self, pdu: Option<u64>) {
        self.awaited.set(pdu);
    }

    /// Tells whoever runs the target what costs the host this connection.
    pub(crate) fn report(&self, kind: HostEventKind) {
        let controller = self.queue().map(|queue| queue.for_event());
        self.core.target().report(HostEvent {
            number: 0,
            at: self.core.rt().now(),
            peer: self.stream.peer_addr(),
            controller,
            kind,
        });
    }

    fn queue(&self) -> Option<Rc<dyn ConnectedQueue>> {
        self.queue.borrow().as_ref().and_then(Weak::upgrade)
    }

    /// It has become `queue`.
    pub(crate) fn become_queue(&self, queue: Weak<dyn ConnectedQueue>) {
        *self.queue.borrow_mut() = Some(queue);
        self.core
            .target()
            .on_connected(self.stream.peer_addr().ip());
        self.set_deadline(None);
        if self.is_closed() {
            // It was closed while Connect was waiting: the queue has to hear of it.
            if let Some(queue) = self.queue() {
                queue.on_close();
            }
        }
    }
}

impl front::Connection for Connection {
    fn close(&self) {
        if self.closed.replace(true) {
            return;
        }
        self.stream.abort();
        self.outbox.close();
        if let Some(queue) = self.queue() {
            queue.on_close();
        }
    }

    fn withdraw(&self, cid: u16, tell: TellWithdrawn) {
        match self.queue() {
            Some(queue) => queue.withdraw(cid, tell),
            None => tell(false),
        }
    }

    fn on_aborted(&self, ticket: u16, aborted: bool) {
        if let Some(queue) = self.queue() {
            queue.on_aborted(ticket, aborted);
        }
    }

    fn on_namespace_changed(&self, nsid: u32) {
        if let Some(queue) = self.queue() {
            queue.on_namespace_changed(nsid);
        }
    }

    fn on_discovery_changed(&self) {
        if let Some(queue) = self.queue() {
            queue.on_discovery_changed();
        }
    }

    fn sweep(&self, now: Time) {
        let limits = self.limits();
        let late = self.deadline.get().is_some_and(|deadline| now >= deadline);
        let (sent, waiting) = (self.outbox.sent_bytes(), self.outbox.bytes());
        let room = (waiting > 0).then_some(sent + waiting as u64);
        let stalled = self.room.is_overdue(now, limits.stall_deadline, sent, room);
        let pdu = self.awaited.get();
        let next = pdu.map(|number| number + 1);
        let slow = self
            .pdu
            .is_overdue(now, limits.pdu_deadline, pdu.unwrap_or(0), next);
        let owing = || self.queue().is_some_and(|queue| queue.sweep(now));
        if late || stalled || slow || owing() {
            self.close();
        }
    }
}
