//! A namespace of a remote controller that is kept connected: after a failure a new association is
//! made, with growing delays, and I/O that was not answered is issued again.
//!
//! Commands that the controller interrupts are issued again, too, after the delay that it reports.
//!
//! What is issued again is only what may be executed twice: reads, writes of the same data to the
//! same place, flushes, zeroing. A fused Compare and Write is not, for its first execution would
//! make the second fail; its outcome is then unknown and it fails.
//!
//! A write of a dead association that is still in flight in the target could land after its
//! repetition, and even after later writes to the same blocks. A target must prevent that: it lets
//! the host connect again only when the old association's writes have returned (ours does, see the
//! fence in the engine). A host cannot do it.
//!
//! After a reconnect no I/O is issued before the namespace has shown the same identifiers and block
//! size as before, and not fewer blocks; otherwise it is another volume, and the connection is not
//! used.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use flashyard_nvme::command::Status;
use flashyard_nvme::identify::{IdentifyController, IdentifyNamespace, NamespaceDescriptors};
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Rt, Task};
use flashyard_time::{Duration, Time};

use crate::association::{Association, ConnectError, Options};
use crate::events::Event;
use crate::queue::{HostError, Queue};

/// How often a command whose data were damaged on the way is issued again.
const DAMAGE_ATTEMPTS: u32 = 3;

/// How hard to try.
#[derive(Clone, Copy, Debug)]
pub struct Persistence {
    /// Delay before the first attempt to reconnect; doubles with every further one.
    pub first_delay: Duration,
    /// Greatest delay between attempts.
    pub max_delay: Duration,
    /// Give up for good when the controller has been away for so long.
    pub loss_timeout: Duration,
    /// Fail an I/O when it could not be done for so long; later ones too, until the controller is
    /// back.
    pub io_timeout: Duration,
}

impl Default for Persistence {
    /// A tenth of a second, since a target that is restarted is away for hardly longer, growing to
    /// ten; give up after ten minutes; I/O fails after thirty seconds.
    fn default() -> Self {
        Self {
            first_delay: Duration::from_ms(100),
            max_delay: Duration::from_secs(10),
            loss_timeout: Duration::from_secs(600),
            io_timeout: Duration::from_secs(30),
        }
    }
}

/// A remote namespace. Dropping it disconnects.
#[derive(Debug)]
pub struct Remote {
    inner: Rc<Inner>,
    _task: Task<()>,
}

/// What is known of the namespace.
#[derive(Clone, Debug)]
pub struct Namespace {
    /// Bytes per block.
    pub block_size: u32,
    /// Its identifiers, which must not change.
    pub descriptors: NamespaceDescriptors,
    /// Everything else; NGUID and EUI64 must not change, NSZE may grow.
    pub identify: IdentifyNamespace,
    /// The controller it was read from.
    pub controller: IdentifyController,
    /// Most bytes of one command.
    pub max_transfer: usize,
    /// Most bytes of one Write Zeroes.
    pub max_zeroes: u64,
}

#[derive(Debug)]
struct Inner {
    rt: Rt,
    addr: SocketAddr,
    options: Options,
    persistence: Persistence,
    nsid: u32,
    current: RefCell<Option<Rc<Association>>>,
    namespace: RefCell<Namespace>,
    /// Since when there is no association.
    away_since: Cell<Option<Time>>,
    /// Why it was given up.
    lost: Cell<Option<ConnectError>>,
    /// An association came, went, or was given up.
    changed: Notify,
    next_queue: Cell<usize>,
    reconnects: Cell<u64>,
}

impl Namespace {
    /// Whether `found` may be used in its place. Identifiers are compared in both places where a
    /// controller may tell them. Users of a block device do not expect it to become smaller.
    fn is_still(&self, found: &Self) -> bool {
        let identifiers = |of: &Self| (of.descriptors, of.identify.nguid, of.identify.eui64);
        identifiers(self) == identifiers(found)
            && self.block_size == found.block_size
            && self.identify.nsze <= found.identify.nsze
    }
}

impl Remote {
    /// Connects to namespace `nsid`. The first attempt must succeed.
    pub async fn connect(
        rt: &Rt,
        addr: SocketAddr,
        options: Options,
        nsid: u32,
        persistence: Persistence,
    ) -> Result<Self, ConnectError> {
        let association = Association::connect(rt, addr, options.clone()).await?;
        let namespace = look_at(&association, nsid).await?;
        let inner = Rc::new(Inner {
            rt: rt.clone(),
            addr,
            options,
            persistence,
            nsid,
            current: RefCell::new(Some(Rc::new(association))),
            namespace: RefCell::new(namespace),
            away_since: Cell::new(None),
            lost: Cell::new(None),
            changed: Notify::new(),
            next_queue: Cell::new(0),
            reconnects: Cell::new(0),
        });
        let task = rt.spawn(keep_connected(Rc::clone(&inner)));
        Ok(Self { inner, _task: task })
    }

    /// Namespace Identifier.
    pub fn nsid(&self) -> u32 {
        self.inner.nsid
    }

    /// Where its connections live.
    pub(crate) fn rt(&self) -> &Rt {
        &self.inner.rt
    }

    /// The namespace as it was last seen.
    pub fn namespace(&self) -> std::cell::Ref<'_, Namespace> {
        self.inner.namespace.borrow()
    }

    /// Whether there is an association at this moment.
    pub fn is_connected(&self) -> bool {
        self.inner.current.borrow().is_some()
    }

    /// How often the connection was made again.
    pub fn reconnects(&self) -> u64 {
        self.inner.reconnects.get()
    }

    /// Does `io` on one of the queues, and again on another association for as long as it fails for
    /// lack of one. `io` must be something that may be executed twice.
    pub async fn repeatable<T>(
        &self,
        mut io: impl AsyncFnMut(&Queue) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        let inner = &*self.inner;
        let begin = inner.rt.now();
        let mut damaged = 0;
        loop {
            let association = inner.association(begin).await?;
            let queue = association.queue(inner.turn());
            match io(&queue).await {
                Err(error) if error.is_path_failure() => {
                    // It follows its queue at once; until then it would be given out again.
                    association.ended().await;
                }
                Err(error) if is_damage(error) && damaged < DAMAGE_ATTEMPTS => damaged += 1,
                Err(HostError::Status(status)) => {
                    let delay = queue.retry_delay(status);
                    match delay.filter(|delay| inner.has_time(begin, *delay)) {
                        Some(delay) => inner.rt.sleep(delay).await,
                        None => return Err(HostError::Status(status)),
                    }
                }
                other => return other,
            }
        }
    }

    /// Does `io` once; if the association ends meanwhile its outcome is not known.
    pub async fn once<T>(
        &self,
        io: impl AsyncFnOnce(&Queue) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        let association = self.inner.association(self.inner.rt.now()).await?;
        io(&association.queue(self.inner.turn())).await
    }
}

impl Inner {
    /// A living association; waits for one, not longer than an I/O that began at `begin` may take.
    async fn association(&self, begin: Time) -> Result<Rc<Association>, HostError> {
        loop {
            if let Some(association) = &*self.current.borrow()
                && association.failure().is_none()
            {
                return Ok(Rc::clone(association));
            }
            if self.lost.get().is_some() {
                return Err(HostError::Closed);
            }
            // An I/O that comes when the controller has long been away need not wait for it once
            // more.
            let from = self.away_since.get().unwrap_or(begin).min(begin);
            let patience = (from + self.persistence.io_timeout).since(self.rt.now());
            if patience == Duration::ZERO {
                return Err(HostError::Timeout);
            }
            if self
                .rt
                .timeout(patience, self.changed.notified())
                .await
                .is_none()
            {
                return Err(HostError::Timeout);
            }
        }
    }

    /// Whether an I/O that began at `begin` may be tried again after `delay`.
    fn has_time(&self, begin: Time, delay: Duration) -> bool {
        self.rt.now() + delay < begin + self.persistence.io_timeout
    }

    /// Queues are used in turn.
    fn turn(&self) -> usize {
        let turn = self.next_queue.get();
        self.next_queue.set(turn.wrapping_add(1));
        turn
    }

    /// One attempt: connects and makes sure that it is the same namespace.
    async fn connect_again(&self) -> Result<Association, ConnectError> {
        let association = Association::connect(&self.rt, self.addr, self.options.clone()).await?;
        self.look_again(&association).await?;
        Ok(association)
    }

    /// Reads the namespace again: it may have grown, its identity must not have changed.
    async fn look_again(&self, association: &Association) -> Result<(), ConnectError> {
        let found = look_at(association, self.nsid).await?;
        let mut known = self.namespace.borrow_mut();
        if !known.is_still(&found) {
            return Err(ConnectError::Unusable(
                "its namespace is not the one it was",
            ));
        }
        *known = found;
        Ok(())
    }
}

/// The task that keeps a remote connected.
async fn keep_connected(inner: Rc<Inner>) {
    loop {
        let association = inner.current.borrow().clone();
        if let Some(association) = association {
            follow(&inner, &association).await;
        }
        inner.current.borrow_mut().take();
        let since = inner.rt.now();
        inner.away_since.set(Some(since));
        inner.changed.notify_all();
        match reconnect(&inner, since).await {
            Ok(association) => {
                inner.reconnects.set(inner.reconnects.get() + 1);
                *inner.current.borrow_mut() = Some(Rc::new(association));
                inner.away_since.set(None);
                inner.changed.notify_all();
            }
            Err(error) => {
                inner.lost.set(Some(error));
                inner.changed.notify_all();
                return;
            }
        }
    }
}

/// Records what the controller reports, until the association ends or the namespace is not what
/// it was.
async fn follow(inner: &Inner, association: &Association) {
    while let Ok(event) = association.next_event().await {
        let concerns = match event {
            Event::NamespacesChanged(nsids) => nsids.is_empty() || nsids.contains(&inner.nsid),
            Event::Missed => true,
            Event::DiscoveryChanged | Event::Other(_) => false,
        };
        if concerns && inner.look_again(association).await.is_err() {
            return association.inner.fail(HostError::Closed);
        }
    }
}

/// Tries until it works, or the controller has been away for too long.
async fn reconnect(inner: &Inner, since: Time) -> Result<Association, ConnectError> {
    let persistence = &inner.persistence;
    let mut delay = persistence.first_delay;
    loop {
        inner.rt.sleep(delay).await;
        let error = match inner.connect_again().await {
            Ok(association) => return Ok(association),
            Err(error) => error,
        };
        if inner.rt.now().since(since) >= persistence.loss_timeout {
            return Err(error);
        }
        delay = (delay * 2).min(persistence.max_delay);
    }
}

async fn look_at(association: &Association, nsid: u32) -> Result<Namespace, ConnectError> {
    let identify = association.identify_namespace(nsid).await?;
    if identify.ncap == 0 {
        return Err(ConnectError::Unusable("it has no such namespace"));
    }
    let format = identify.format().filter(|format| format.ms == 0);
    let block_size = format
        .and(identify.block_size())
        .filter(|size| [512, 4096].contains(size));
    let block_size = block_size.ok_or(ConnectError::Unusable(
        "its blocks are not of 512 or 4096 bytes",
    ))?;
    let descriptors = association.namespace_descriptors(nsid).await?;
    let (max_transfer, max_zeroes) = (association.max_transfer(), association.max_zeroes().await);
    let controller = association.controller().clone();
    Ok(Namespace {
        block_size,
        descriptors,
        identify,
        controller,
        max_transfer,
        max_zeroes,
    })
}

/// Data were damaged on the way to us or to the controller.
fn is_damage(error: HostError) -> bool {
    match error {
        HostError::DataDigest => true,
        HostError::Status(status) => status.is(Status::TRANSIENT_TRANSPORT_ERROR) && !status.dnr(),
        _ => false,
    }
}
