//! An association: one controller of a subsystem, with its Admin queue and I/O queues, from the
//! first byte to the last. Connecting follows what mainstream hosts do (initialize connection,
//! Connect, properties, Identify, Number of Queues, I/O queues, asynchronous events), so a target
//! that serves them serves us.
//!
//! An association does not outlive a failure: when one queue breaks, a command stays unanswered or
//! the controller breaks the protocol, all queues end with that error. [`crate::Remote`] makes a
//! new one.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use flashyard_nvme::Nqn;
use flashyard_nvme::fabrics::{Capabilities, InvalidParameter};
use flashyard_nvme::feature::CompletionCoalescing;
use flashyard_nvme::identify::IdentifyController;
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Rt, Task};
use flashyard_time::Duration;

use crate::admin;
use crate::bring_up;
use crate::credits::{CreditReport, Credits};
use crate::events::{self, Event, Events};
use crate::queue::{HostError, Queue};
use crate::watch;

/// What to connect to and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The subsystem wanted.
    pub subnqn: Nqn,
    /// NQN of the host.
    pub hostnqn: Nqn,
    /// Host Identifier; the same for every association of one host. Not all zeroes.
    pub hostid: [u8; 16],
    /// Keep Alive Timeout; zero turns it off.
    pub kato: Duration,
    /// Protect headers with CRC32C.
    pub header_digest: bool,
    /// Protect data with CRC32C.
    pub data_digest: bool,
    /// I/O queues wanted; the controller may grant fewer. Zero: administration only.
    pub queues: u16,
    /// Commands in flight per I/O queue, 1 to 4,095; the controller may allow fewer.
    pub depth: u16,
    /// Give up submission queue flow control: the controller then need not send a response for a
    /// successful read.
    pub disable_sq_flow_control: bool,
    /// Priority class of the I/O queues (0 urgent to 3 low), where the controller has weighted
    /// round robin.
    pub priority: Option<u8>,
    /// How the controller may coalesce and pack successful completions. Only asked of a controller
    /// of this project; any other one, and without it, answers each command by itself.
    pub coalescing: Option<CompletionCoalescing>,
    /// Ask for credits (what may be outstanding), and keep commands beyond that here. Only asked of
    /// a controller of this project; with any other one, and without it, the depth of the queues is
    /// the only bound.
    pub credits: bool,
    /// Have no more commands outstanding than keep the latency we see near this, as
    /// [`crate::Parda`] does (1 to 128 over all queues, though each queue may always have one). Any
    /// controller will do; credits are not asked for then.
    pub parda: Option<Duration>,
    /// How long connecting may take in all.
    pub connect_timeout: Duration,
    /// How long the controller may take for a command, before it is asked to abort it; after as
    /// long again the association ends.
    pub command_timeout: Duration,
}

impl Options {
    /// One I/O queue of 128, Keep Alive of 5 seconds, no digests, 30 seconds for a command.
    pub fn new(subnqn: Nqn, hostnqn: Nqn, hostid: [u8; 16]) -> Self {
        Self {
            subnqn,
            hostnqn,
            hostid,
            kato: Duration::from_secs(5),
            header_digest: false,
            data_digest: false,
            queues: 1,
            depth: 128,
            disable_sq_flow_control: false,
            priority: None,
            coalescing: None,
            credits: false,
            parda: None,
            connect_timeout: Duration::from_secs(10),
            command_timeout: Duration::from_secs(30),
        }
    }
}

/// Why there is no association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The connection could not be made, or broke, or the controller broke the protocol.
    Host(HostError),
    /// Connect was refused: which parameter the controller does not like.
    InvalidParameter(InvalidParameter),
    /// The subsystem does not let this host in.
    HostNotAllowed,
    /// The controller is busy: trying later may do.
    Busy,
    /// The controller wants the host to authenticate itself, which is not supported.
    AuthenticationRequired,
    /// The controller did not become ready in the time it reported.
    NotReady,
    /// What the controller says about itself cannot be worked with.
    Unusable(&'static str),
    /// An option is out of its range.
    Option(&'static str),
    /// Not done in [`Options::connect_timeout`].
    Timeout,
}

impl From<HostError> for ConnectError {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(error) => write!(f, "{error}"),
            Self::InvalidParameter(parameter) if *parameter == InvalidParameter::SUBNQN => {
                write!(
                    f,
                    "there is no such subsystem, or none for this host: check its NQN, and that the target \
                     allows the NQN of this host"
                )
            }
            Self::InvalidParameter(parameter) => {
                let place = if parameter.in_data { "data" } else { "command" };
                write!(
                    f,
                    "Connect was refused because of byte {} of its {place}",
                    parameter.ipo
                )
            }
            Self::HostNotAllowed => {
                write!(f, "the subsystem does not let this host in: allow its NQN")
            }
            Self::Busy => write!(
                f,
                "the controller is busy (Connect Controller Busy): try again later; `flashyard status` at the target shows whether \
                 volumes wait to be imported"
            ),
            Self::AuthenticationRequired => {
                write!(f, "the controller demands authentication, not supported")
            }
            Self::NotReady => write!(f, "the controller did not become ready in time"),
            Self::Unusable(why) => write!(f, "the controller cannot be used: {why}"),
            Self::Option(why) => write!(f, "{why}"),
            Self::Timeout => write!(f, "connecting took too long"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// A connected controller. Dropping it closes the connections without a shutdown.
#[derive(Debug)]
pub struct Association {
    pub(crate) inner: Rc<Inner>,
    /// What runs beside the commands; ends with the association.
    _tasks: Vec<Task<()>>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) rt: Rt,
    pub(crate) addr: SocketAddr,
    pub(crate) options: Options,
    pub(crate) admin: Queue,
    pub(crate) io: RefCell<Vec<Queue>>,
    pub(crate) cntlid: u16,
    pub(crate) capabilities: Capabilities,
    pub(crate) identify: IdentifyController,
    /// What may be outstanding, if the controller or the latency says.
    pub(crate) credits: Option<Rc<Credits>>,
    pub(crate) events: Events,
    /// Notified by a queue that failed.
    pub(crate) queue_failed: Rc<Notify>,
    /// Notifies the tasks that wait for the end.
    pub(crate) ended: Notify,
    pub(crate) failure: Cell<Option<HostError>>,
}

impl Association {
    /// Connects, gets the controller ready and opens the I/O queues.
    pub async fn connect(
        rt: &Rt,
        addr: SocketAddr,
        options: Options,
    ) -> Result<Self, ConnectError> {
        bring_up::connect(rt, addr, options).await
    }

    pub(crate) fn new(inner: Rc<Inner>) -> Self {
        let rt = &inner.rt;
        let mut tasks = vec![
            rt.spawn(watch::failures(Rc::clone(&inner))),
            rt.spawn(watch::timeouts(Rc::clone(&inner))),
            rt.spawn(events::listen(Rc::clone(&inner))),
        ];
        if inner.options.kato > Duration::ZERO {
            tasks.push(rt.spawn(watch::keep_alive(Rc::clone(&inner))));
        }
        Self {
            inner,
            _tasks: tasks,
        }
    }

    /// The I/O queues, as many as were granted.
    pub fn queues(&self) -> Vec<Queue> {
        self.inner.io.borrow().clone()
    }

    /// I/O queue number `index`, modulo their count.
    ///
    /// # Panics
    /// When the association was made without I/O queues.
    pub fn queue(&self, index: usize) -> Queue {
        let queues = self.inner.io.borrow();
        assert!(
            !queues.is_empty(),
            "the association was made without I/O queues"
        );
        queues[index % queues.len()].clone()
    }

    /// The Admin queue, for commands that have no method here.
    pub fn admin(&self) -> &Queue {
        &self.inner.admin
    }

    /// Controller Identifier.
    pub fn cntlid(&self) -> u16 {
        self.inner.cntlid
    }

    /// Where the controller is.
    pub fn addr(&self) -> SocketAddr {
        self.inner.addr
    }

    /// What the controller said about itself when it was connected.
    pub fn controller(&self) -> &IdentifyController {
        &self.inner.identify
    }

    /// Most bytes a command may move, from MDTS.
    pub fn max_transfer(&self) -> usize {
        admin::max_transfer(&self.inner.identify, self.inner.capabilities)
    }

    /// What may be outstanding on a namespace, by what the controller says or the latency we see;
    /// nothing if neither is asked for, or the controller does not tell.
    pub fn credit(&self, nsid: u32) -> Option<CreditReport> {
        let credits = self.inner.credits.as_ref()?;
        Some(credits.report(nsid))
    }

    /// The next event that the controller reports; waits for it.
    pub async fn next_event(&self) -> Result<Event, HostError> {
        self.inner.events.next(&self.inner).await
    }

    /// Waits until the association has ended and gives why.
    pub async fn ended(&self) -> HostError {
        loop {
            if let Some(error) = self.inner.failure.get() {
                return error;
            }
            self.inner.ended.notified().await;
        }
    }

    /// Why the association has ended, if it has.
    pub fn failure(&self) -> Option<HostError> {
        self.inner.failure.get()
    }

    /// Ends it in order: the controller shuts down before the connections are
    /// closed. Commands in flight are ended with [`HostError::Closed`]; wait for them first.
    pub async fn close(self) {
        if self.inner.failure.get().is_none() {
            admin::shut_down(&self.inner).await;
        }
        self.inner.fail(HostError::Closed);
    }
}

impl Drop for Association {
    fn drop(&mut self) {
        self.inner.fail(HostError::Closed);
    }
}

impl Inner {
    /// Ends all queues. The first error stays.
    pub(crate) fn fail(&self, error: HostError) {
        if self.failure.get().is_some() {
            return;
        }
        self.failure.set(Some(error));
        let io = self.io.borrow();
        // A queue that failed by itself closes its connection when it has said why.
        for queue in io
            .iter()
            .chain([&self.admin])
            .filter(|queue| queue.failure().is_none())
        {
            queue.shared.fail(error);
        }
        self.events.end();
        self.ended.notify_all();
    }

    /// The first failure of a queue.
    pub(crate) fn queue_failure(&self) -> Option<HostError> {
        let io = self.io.borrow();
        std::iter::once(&self.admin)
            .chain(io.iter())
            .find_map(Queue::failure)
    }
}
