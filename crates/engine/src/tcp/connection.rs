//! One TCP connection: what its two tasks share, how it begins, its deadlines, and how it ends.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::{Rc, Weak};

use flashyard_nvme::tcp::{Framer, Limits as FramerLimits, MAX_TERM_REQ, Role, Violation};
use flashyard_runtime::TcpStream;
use flashyard_time::Time;

use super::admin::{self, AdminQueue};
use super::connect::{self, Joined};
use super::fabrics::ADMIN_IN_CAPSULE_BYTES;
use super::hold::Pushed;
use super::input::Input;
use super::io::{self, IoQueue};
use super::outbox::Outbox;
use super::owed::Owed;
use super::waiting::TellWithdrawn;
use crate::alive::Counted;
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

/// A connection as its tasks and its core share it. A queue owns its connection and the receiving
/// task owns the queue, so all of it goes when the tasks have ended; the connection itself knows
/// its queue only as long as that is there.
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
    /// Room for what is to be sent.
    room: Owed,
    /// The PDU that has begun.
    pdu: Owed,
    /// The number of the PDU of which the peer owes the rest, while nothing else is waited for.
    awaited: Cell<Option<u64>>,
    _counted: Counted,
}

/// What a connection is.
enum Queue {
    /// Not connected yet.
    None,
    Admin(Weak<AdminQueue>),
    Io(Weak<IoQueue>),
}

impl Connection {
    /// A connection that has just been accepted.
    pub(crate) fn new(core: Rc<Core>, id: ConnectionId, stream: TcpStream) -> Rc<Self> {
        let limits = &core.target().config().limits;
        let outbox = Outbox::new(limits.admin_output_bytes);
        let deadline = core.rt().now() + limits.initialize_deadline;
        stream.set_patience(limits.stall_deadline);
        let counted = core.target().census().connection();
        Rc::new(Self {
            core,
            id,
            stream,
            outbox,
            closed: Cell::new(false),
            queue: RefCell::new(Queue::None),
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

    /// Ends it: nothing more is received or sent, and commands that were not issued are taken back.
    pub(crate) fn close(&self) {
        if self.closed.replace(true) {
            return;
        }
        self.stream.abort();
        self.outbox.close();
        if let Some(queue) = self.io() {
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

    /// From now on the peer owes the rest of this PDU, by the number of its header; or nothing.
    #[inline]
    pub(crate) fn set_awaited(&self, pdu: Option<u64>) {
        self.awaited.set(pdu);
    }

    /// Takes command `cid` back, if it has not been issued; tells now or later whether that was so.
    pub(crate) fn withdraw(&self, cid: u16, tell: TellWithdrawn) {
        match self.io() {
            Some(queue) => queue.withdraw(cid, tell),
            None => tell(false),
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
        let (sent, waiting) = (self.outbox.sent_bytes(), self.outbox.bytes());
        let room = (waiting > 0).then_some(sent + waiting as u64);
        let stalled = self.room.is_overdue(now, limits.stall_deadline, sent, room);
        let pdu = self.awaited.get();
        let next = pdu.map(|number| number + 1);
        let slow = self
            .pdu
            .is_overdue(now, limits.pdu_deadline, pdu.unwrap_or(0), next);
        let owing = self.io().is_some_and(|queue| {
            queue.expire(now);
            queue.data_overdue(now)
        });
        if late || stalled || slow || owing {
            self.close();
        }
        self.with_admin(|admin| admin.sweep(now));
    }

    /// Tells whoever runs the target what costs the host this connection.
    pub(crate) fn report(&self, kind: HostEventKind) {
        let controller = match &*self.queue.borrow() {
            Queue::None => None,
            Queue::Admin(queue) => queue.upgrade().map(|queue| queue.association().for_event()),
            Queue::Io(queue) => queue.upgrade().map(|queue| queue.association().for_event()),
        };
        self.core.target().report(HostEvent {
            number: 0,
            at: self.core.rt().now(),
            peer: self.stream.peer_addr(),
            controller,
            kind,
        });
    }

    fn with_admin(&self, act: impl FnOnce(&AdminQueue)) {
        let admin = match &*self.queue.borrow() {
            Queue::Admin(admin) => admin.upgrade(),
            _ => None,
        };
        if let Some(admin) = admin {
            act(&admin);
        }
    }

    fn io(&self) -> Option<Rc<IoQueue>> {
        match &*self.queue.borrow() {
            Queue::Io(queue) => queue.upgrade(),
            _ => None,
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
            if let Some(queue) = self.io() {
                queue.on_close();
            }
        }
    }
}

/// The sending task of a connection.
pub(crate) async fn send(connection: Rc<Connection>) {
    let rt = connection.core.rt().clone();
    while let Some(mut parcel) = connection.outbox.next(&rt).await {
        let gather = std::mem::take(&mut parcel.gather);
        let (result, gather) = connection.stream.send(gather).await;
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
            connection.become_queue(Queue::Admin(Rc::downgrade(&queue)));
            let end = admin::serve(&queue, &mut input).await;
            // Before the farewell, which takes as long as the peer likes.
            queue.end_association();
            finish(&connection, &mut input, end).await;
        }
        Ok(Joined::Io(queue)) => {
            connection.become_queue(Queue::Io(Rc::downgrade(&queue)));
            io::serve(&queue, &mut input).await;
            queue.leave();
        }
        Err(end) => finish(&connection, &mut input, end).await,
    }
    connection.core.forget(&connection);
}

/// Says why, if the peer is to blame; then waits until it has gone, but not for long.
pub(crate) async fn finish(connection: &Connection, input: &mut Input, end: End) {
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
