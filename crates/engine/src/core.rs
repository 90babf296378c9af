//! One core of the target: the devices at home here, the connections served here, and its inbox.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;

use flashyard_block::{SharedDevice, TenantId};
use flashyard_runtime::channel::{self, Receiver};
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{CommandPool, Rt, Task, TcpListener, TcpStream};
use flashyard_sched::Policy;
use flashyard_time::{Duration, Time};

use crate::association::{Association, ConnectionId};
use crate::connection::{Connection, Serve};
use crate::forwarding::{self, Forwarding, Home, Route};
use crate::handle::Report;
use crate::message::Message;
use crate::quota::{Budget, MemoryQuota, Pool};
use crate::switch::{Port, Switch};
use crate::traffic::Traffic;
use crate::way::Way;
use crate::{DeviceHandle, Target};

/// How often deadlines are looked at; what is late by so much is still in time.
const SWEEP: Duration = Duration::from_ms(500);
/// I/Os of other cores in flight before one costs an allocation.
const FORWARDED: usize = 1024;
/// For so long after a latency-sensitive command the others work in small pieces.
const LATENCY_SENSITIVE: Duration = Duration::from_ms(1);
/// After a failed accept (no file descriptors left): until the next try.
const ACCEPT_RETRY: Duration = Duration::from_ms(100);

/// One core of a [`Target`].
pub struct Core {
    rt: Rt,
    target: Arc<Target>,
    index: usize,
    /// Their tasks own them.
    connections: RefCell<BTreeMap<u64, Weak<dyn Connection>>>,
    next_serial: Cell<u64>,
    /// Until when the next latency-sensitive command is expected.
    latency_sensitive_until: Cell<Time>,
    forwarding: Rc<Forwarding>,
    home: Rc<Home>,
    shares: Shares,
    /// Wakes Connects that wait for the writes of dead associations.
    fence: Notify,
    /// Each with its real address.
    listeners: RefCell<Vec<(SocketAddr, Task<()>)>>,
    /// [`Core::shutdown`] was called: no connection is served any more.
    ending: Cell<bool>,
    emptied: Notify,
}

/// What the connections of a core share: see [`crate::Limits`].
struct Shares {
    peers: Rc<Pool>,
    capsules: Rc<Pool>,
    tenants: RefCell<BTreeMap<TenantId, TenantShares>>,
    receives: Rc<MemoryQuota>,
}

/// What the connections of a tenant share on a core.
#[derive(Clone)]
struct TenantShares {
    peers: Rc<MemoryQuota>,
    capsules: Rc<MemoryQuota>,
}

impl TenantShares {
    /// Whether anybody else has them: a connection of the tenant, or what is left of one.
    fn are_used(&self) -> bool {
        [&self.peers, &self.capsules]
            .into_iter()
            .any(|quota| Rc::strong_count(quota) > 1)
    }
}

impl Core {
    /// Starts core number `index` of `target` on this runtime.
    ///
    /// # Panics
    /// When the target has no such core, or it has been started before.
    pub fn start(rt: Rt, target: Arc<Target>, index: usize) -> Rc<Self> {
        let (inbox, messages) = channel::channel();
        target.join(index, inbox, rt.now());
        let limits = &target.config().limits;
        let shares = Shares {
            peers: Pool::new(limits.core_bytes, limits.tenant_bytes),
            tenants: RefCell::default(),
            capsules: Pool::new(limits.capsule_bytes, limits.tenant_capsule_bytes),
            receives: Pool::of_one(limits.receive_bytes),
        };
        let core = Rc::new(Self {
            rt: rt.clone(),
            index,
            connections: RefCell::default(),
            next_serial: Cell::new(0),
            latency_sensitive_until: Cell::new(Time::ZERO),
            forwarding: Forwarding::new(index, target.clone()),
            home: Home::new(index, target.clone()),
            shares,
            fence: Notify::new(),
            listeners: RefCell::default(),
            ending: Cell::new(false),
            emptied: Notify::new(),
            target,
        });
        rt.spawn(core.clone().read_inbox(messages)).detach();
        rt.spawn(core.clone().sweep()).detach();
        core
    }

    /// A switch that runs `policy`, for a device of this core and everything that is cut from it.
    pub fn add_switch(&self, policy: Box<dyn Policy>) -> Rc<Switch> {
        Switch::new(self.rt.clone(), policy)
    }

    /// Makes this core the home of `device`, which is or lies on the device behind `switch`. What
    /// that does on its own account takes its turns there from now on.
    pub fn add_device(&self, device: SharedDevice, switch: &Rc<Switch>) -> DeviceHandle {
        let accounts = switch.accounts().clone();
        let id = self.target.next_device();
        let handle = DeviceHandle::new(self.index, id, Report::by(&*device), accounts);
        device.take_turns(&switch.turns());
        let port = Port::new(switch, device);
        self.home.devices().add(handle.clone(), port);
        handle
    }

    /// Puts `device` in the place of the one that `handle` names: I/O goes there from now on.
    /// Finishes when all that came before has ended. Nothing if the device has gone.
    pub async fn exchange_device(&self, handle: &DeviceHandle, device: SharedDevice) {
        if let Some(port) = self.home.devices().port(handle.id()) {
            port.exchange(device).await;
        }
    }

    /// A device of this core or another one as one that I/O can be submitted to: each waits for its
    /// turn at the switch before the device, and is charged to its tag there.
    pub fn way_to(&self, handle: &DeviceHandle) -> SharedDevice {
        let route = match handle.core() == self.index {
            true => self.port(handle.id()).map_or(Route::Nowhere, Route::Here),
            false => Route::There {
                core: handle.core(),
                device: handle.id(),
            },
        };
        Rc::new(Way::new(handle, route, &self.forwarding))
    }

    /// The same of `device`, which is behind `switch`.
    pub fn way_through(&self, switch: &Rc<Switch>, device: SharedDevice) -> SharedDevice {
        let handle = DeviceHandle::new(
            self.index,
            self.target.next_device(),
            Report::by(&*device),
            switch.accounts().clone(),
        );
        let route = Route::Here(Port::new(switch, device));
        Rc::new(Way::new(&handle, route, &self.forwarding))
    }

    /// Forgets a device of this core; finishes when no I/O of it is in flight. Later I/O is
    /// answered "not ready". Who gives up waiting may wait again later.
    pub async fn remove_device(&self, handle: &DeviceHandle) {
        let Some(port) = self.home.devices().port(handle.id()) else {
            return;
        };
        port.close();
        self.target.touch_tenants();
        port.drained().await;
        if self.home.devices().remove(handle.id()) {
            port.leave_traffic();
        }
    }

    /// What came to a device of this core until now.
    pub fn traffic(&self, handle: &DeviceHandle) -> Option<Traffic> {
        Some(self.home.devices().port(handle.id())?.traffic())
    }

    /// Listens for the hosts of a front end, which makes connections by `serve`; hands them to the
    /// cores evenly. Gives the address with its real port.
    ///
    /// # Errors
    /// The system refuses: the address is taken, or not of this machine.
    pub fn listen_for(self: &Rc<Self>, addr: SocketAddr, serve: Serve) -> io::Result<SocketAddr> {
        let listener = self.rt.listen(addr)?;
        Ok(self.accept_from(listener, serve))
    }

    /// The same at a socket of this process that listens already. The socket stays open as long as
    /// anybody else has it.
    ///
    /// # Errors
    /// It does not listen, or this core is simulated.
    pub fn listen_on(
        self: &Rc<Self>,
        listener: std::net::TcpListener,
        serve: Serve,
    ) -> io::Result<SocketAddr> {
        let listener = self.rt.listen_on(listener)?;
        Ok(self.accept_from(listener, serve))
    }

    fn accept_from(self: &Rc<Self>, listener: TcpListener, serve: Serve) -> SocketAddr {
        let addr = listener.local_addr();
        let task = self.rt.spawn(self.clone().accept(listener, serve));
        self.listeners.borrow_mut().push((addr, task));
        addr
    }

    /// Listens no more at a real address; connections that were accepted stay.
    pub fn unlisten(&self, addr: SocketAddr) {
        self.listeners.borrow_mut().retain(|(own, _)| *own != addr);
    }

    /// Stops listening, ends every connection of this core, and finishes when their I/O has
    /// finished. Connections that other cores accept go elsewhere from now on. What was issued is
    /// done, but its answers are not sent: to a host this is a lost connection, after which it
    /// repeats what has not been answered.
    pub async fn shutdown(&self) {
        self.ending.set(true);
        self.target.on_core_ending(self.index);
        self.listeners.borrow_mut().clear();
        for connection in self.connections() {
            connection.close();
        }
        while !self.connections.borrow().is_empty() {
            self.emptied.notified().await;
        }
    }

    /// The runtime that it runs on.
    pub fn rt(&self) -> &Rt {
        &self.rt
    }

    /// The target that it is a core of.
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Its number among the cores of the target.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Has another core do something for a front end. False if there is no such core (any more).
    pub fn run_on(&self, core: usize, act: impl FnOnce(&Rc<Core>) + Send + 'static) -> bool {
        self.target.tell(core, Message::Run(Box::new(act)))
    }

    /// A latency-sensitive command has come.
    #[inline]
    pub(crate) fn on_latency_sensitive(&self) {
        self.latency_sensitive_until
            .set(self.rt.turn_time() + LATENCY_SENSITIVE);
    }

    /// Whether latency-sensitive commands came recently, so that more may come any moment.
    #[inline]
    pub(crate) fn is_latency_sensitive(&self) -> bool {
        self.rt.turn_time() < self.latency_sensitive_until.get()
    }

    /// I/Os of this core that are away.
    pub(crate) fn forwarding(&self) -> &Rc<Forwarding> {
        &self.forwarding
    }

    /// Waits until a fence has been lifted, or `deadline`.
    pub async fn fence_lifted_or(&self, deadline: Time) {
        let mut lifted = pin!(self.fence.notified());
        let mut late = self.rt.sleep_until(deadline);
        std::future::poll_fn(|context| {
            let either = lifted.as_mut().poll(context).is_ready()
                || Pin::new(&mut late).poll(context).is_ready();
            if either {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Drops the I/O queues of a controller, and waits until all they issued has returned, as long
    /// as a Connect would wait for it.
    pub async fn drop_io_queues(&self, association: &Association) {
        let deadline = self.rt.now() + self.target.config().limits.fence_deadline;
        self.target.close_io_queues(association);
        while self.target.has_io_queues(association) && self.rt.now() < deadline {
            self.fence_lifted_or(deadline).await;
        }
    }

    /// The way to a device of this core, unless that is being removed.
    pub(crate) fn port(&self, device: u32) -> Option<Rc<Port>> {
        self.home.devices().open_port(device)
    }

    /// The bounds of a connection of `tenant`, for memory that it holds at the grace of its host.
    pub fn budget(&self, tenant: TenantId) -> Rc<Budget> {
        let limits = &self.target.config().limits;
        Budget::new(limits.connection_bytes, self.peer_quota(tenant))
    }

    /// Memory at the grace of the hosts of `tenant`.
    fn peer_quota(&self, tenant: TenantId) -> Rc<MemoryQuota> {
        self.tenant_shares(tenant).peers
    }

    /// Memory for in-capsule data of `tenant`.
    pub fn capsule_quota(&self, tenant: TenantId) -> Rc<MemoryQuota> {
        self.tenant_shares(tenant).capsules
    }

    fn tenant_shares(&self, tenant: TenantId) -> TenantShares {
        let mut tenants = self.shares.tenants.borrow_mut();
        tenants.retain(|id, shares| *id == tenant || shares.are_used());
        let shares = tenants.entry(tenant).or_insert_with(|| TenantShares {
            peers: MemoryQuota::new(&self.shares.peers),
            capsules: MemoryQuota::new(&self.shares.capsules),
        });
        shares.clone()
    }

    /// Memory for large receives.
    pub fn receive_share(&self) -> &Rc<MemoryQuota> {
        &self.shares.receives
    }

    async fn accept(self: Rc<Self>, listener: TcpListener, serve: Serve) {
        loop {
            let accepted = listener.accept().await;
            self.target.on_accepted(accepted.as_ref().err());
            match accepted {
                Ok(stream) => self.place(stream, serve),
                Err(_) => self.rt.sleep(ACCEPT_RETRY).await,
            }
        }
    }

    /// Gives a new connection to the core that has the fewest, or drops it when there are too many.
    fn place(self: &Rc<Self>, stream: TcpStream, serve: Serve) {
        let Some(core) = self.target.admit_connection(stream.peer_addr().ip()) else {
            return;
        };
        if core == self.index {
            self.serve(stream, serve);
            return;
        }
        let peer = stream.peer_addr().ip();
        if !self
            .target
            .tell(core, Message::Serve(stream.detach(), serve))
        {
            self.target.forget_connection(core, Some(peer));
        }
    }

    fn serve(self: &Rc<Self>, stream: TcpStream, serve: Serve) {
        if self.ending.get() {
            // It was on its way here when the end began.
            let peer = stream.peer_addr().ip();
            self.target.forget_connection(self.index, Some(peer));
            return;
        }
        let id = self.next_connection();
        let connection = serve(self.clone(), id, stream);
        self.keep(id, &connection);
    }

    fn next_connection(&self) -> ConnectionId {
        let serial = self.next_serial.get();
        self.next_serial.set(serial + 1);
        ConnectionId {
            core: self.index,
            serial,
        }
    }

    /// A name for a connection that comes by no listener of the target: the queue of a function.
    /// It counts until [`Core::forget`]. None when a bound is reached, or the core is ending.
    pub fn add_connection(&self) -> Option<ConnectionId> {
        let counted = self.target.add_connection(self.index);
        counted.then(|| self.next_connection())
    }

    /// From now on `connection` is found by its name, as long as it is there.
    pub fn keep(&self, id: ConnectionId, connection: &Rc<dyn Connection>) {
        self.connections
            .borrow_mut()
            .insert(id.serial, Rc::downgrade(connection));
    }

    /// A connection has ended and everything it did has returned; `unconnected` is its peer if it
    /// never became a queue.
    pub fn forget(&self, connection: ConnectionId, unconnected: Option<IpAddr>) {
        self.connections.borrow_mut().remove(&connection.serial);
        self.target.forget_connection(self.index, unconnected);
        if self.connections.borrow().is_empty() {
            self.emptied.notify_all();
        }
    }

    async fn read_inbox(self: Rc<Self>, messages: Receiver<Message>) {
        let forwarding = CommandPool::new(&self.rt, FORWARDED);
        while let Some(message) = messages.recv().await {
            match message {
                Message::Request(request) => {
                    if let Err(late) = forwarding.run(forwarding::serve(self.home.clone(), request))
                    {
                        self.begin(late).await;
                    }
                }
                other => self.on_message(other),
            }
        }
    }

    /// Begins a task at once, as a pool does: the next message may be that it is not wanted any
    /// more, which only reaches what waits.
    async fn begin(&self, task: impl Future<Output = ()> + 'static) {
        let mut task = Box::pin(task);
        let polled = std::future::poll_fn(|context| Poll::Ready(task.as_mut().poll(context)));
        if polled.await.is_pending() {
            self.rt.spawn(task).detach();
        }
    }

    fn on_message(self: &Rc<Self>, message: Message) {
        match message {
            Message::Serve(stream, serve) => self.serve(self.rt.attach(stream), serve),
            Message::Reply(reply) => {
                let home = reply.home();
                if let Some(request) = self.forwarding.on_reply(reply) {
                    self.target.tell(home, Message::Request(request));
                }
            }
            Message::FenceLifted => self.fence.notify_all(),
            Message::Run(act) => act(self),
            Message::DeviceResized(device) => self.look_at(&device),
            Message::Close { serial } => self.with(serial, |connection| connection.close()),
            Message::Abort {
                serial,
                cid,
                asked_by,
                ticket,
            } => {
                let connection = self.connection(serial);
                let target = self.target.clone();
                let tell = Box::new(move |aborted| {
                    let answer = Message::Aborted {
                        serial: asked_by.serial,
                        ticket,
                        aborted,
                    };
                    target.tell(asked_by.core, answer);
                });
                match connection {
                    Some(connection) => connection.withdraw(cid, tell),
                    None => tell(false),
                }
            }
            Message::Aborted {
                serial,
                ticket,
                aborted,
            } => {
                self.with(serial, |connection| connection.on_aborted(ticket, aborted));
            }
            Message::NamespaceChanged { serial, nsid } => {
                self.with(serial, |connection| connection.on_namespace_changed(nsid));
            }
            Message::DiscoveryChanged { serial } => {
                self.with(serial, |connection| connection.on_discovery_changed())
            }
            Message::Request(_) => unreachable!("the inbox takes requests out"),
        }
    }

    fn with(&self, serial: u64, act: impl FnOnce(&dyn Connection)) {
        if let Some(connection) = self.connection(serial) {
            act(&*connection);
        }
    }

    fn connection(&self, serial: u64) -> Option<Rc<dyn Connection>> {
        self.connections.borrow().get(&serial)?.upgrade()
    }

    fn connections(&self) -> Vec<Rc<dyn Connection>> {
        let connections = self.connections.borrow();
        connections.values().filter_map(Weak::upgrade).collect()
    }

    /// Looks at a device of this core anew, and tells of it what has changed.
    pub fn look_at(&self, device: &DeviceHandle) {
        if let Some(port) = self.port(device.id()) {
            let report = Report::by(&*port.device());
            self.target.set_device_report(device, report);
        }
    }

    /// Looks at all deadlines and some devices now and then, so that no I/O has to set a timer.
    async fn sweep(self: Rc<Self>) {
        loop {
            self.rt.sleep(SWEEP).await;
            let update = |handle: &_, report| self.target.set_device_report(handle, report);
            self.home.devices().look(update);
            let now = self.rt.now();
            for connection in self.connections() {
                connection.sweep(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use flashyard_runtime::sim::{Config, World};

    use super::*;
    use crate::{Limits, TargetConfig};

    /// Who has gone leaves nothing behind, and who is here has one quota, however often it comes.
    #[test]
    fn tenants_without_connections_are_forgotten() {
        let world = World::new(Config::calm(1));
        let target = Target::new(TargetConfig {
            nqn_prefix: "nqn.2026-11.test".into(),
            target_uuid: [1; 16],
            limits: Limits::default(),
            cores: 1,
        });
        let core = Core::start(world.machine(1).rt(0), target, 0);
        let [peers, capsules] = [
            core.peer_quota(TenantId(1)),
            core.capsule_quota(TenantId(2)),
        ];
        for id in 3..1000 {
            drop((
                core.peer_quota(TenantId(id)),
                core.capsule_quota(TenantId(id)),
            ));
            assert!(core.shares.tenants.borrow().len() <= 3);
        }
        assert!(Rc::ptr_eq(&peers, &core.peer_quota(TenantId(1))));
        assert!(Rc::ptr_eq(&capsules, &core.capsule_quota(TenantId(2))));
    }
}
