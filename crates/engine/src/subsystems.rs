//! The target as all cores share it: tenants with their namespaces, associations, cores. The lock
//! is for the slow path only (Connect, Admin commands, configuration); what I/O needs is copied to
//! each queue and refreshed when a generation number has moved.

mod config;
mod connect;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use flashyard_nvme::Nqn;
use flashyard_nvme::identify::ascii_text;
use flashyard_runtime::channel::Sender;
use flashyard_time::Time;

use crate::alive::Census;
use crate::association::{ConnectionId, Entry, TenantShared};
use crate::forwarding::{Peers, Reply, Request};
use crate::handle::Report;
use crate::host_event::{Follower, HostEvents};
use crate::message::Message;
use crate::part::party;
use crate::{
    ControllerSnapshot, Counters, DeviceHandle, HostEvent, Life, NamespaceSnapshot, Snapshot,
    TargetConfig, TenantSnapshot, TenantSpec,
};
use flashyard_controller::discovery::Discovery;
use flashyard_controller::{ControllerLimits, HostList, Media, NamespaceFeatures, Subsystem};

pub use connect::{AdminSeat, Caller, ConnectFailure, IoSeat};

/// A target: shared by its cores, and by whoever configures it.
pub struct Target {
    config: TargetConfig,
    cores: Box<[CoreLink]>,
    state: Mutex<State>,
    next_device: AtomicU32,
    census: Census,
    discovery_subsystem: Subsystem,
    /// When the first core started.
    started: OnceLock<Time>,
}

/// A core as the others reach it.
#[derive(Default)]
struct CoreLink {
    inbox: OnceLock<Sender<Message>>,
    connections: AtomicUsize,
    /// It takes no new connections.
    ending: AtomicBool,
    /// Receives since the start: who has done more gets the next connection later.
    load: AtomicU64,
}

/// What the lock protects.
struct State {
    tenants: BTreeMap<String, Tenant>,
    /// Whose hosts are asked to come again.
    held_back: BTreeSet<String>,
    associations: BTreeMap<u16, Entry>,
    next_cntlid: u16,
    /// Of controllers that are made from now on.
    controller_limits: ControllerLimits,
    listeners: Vec<SocketAddr>,
    discovery: Discovery,
    /// By the party of the address.
    unconnected: BTreeMap<IpAddr, usize>,
    host_events: HostEvents,
    accept_error: Option<String>,
    life: Life,
}

struct Tenant {
    shared: Arc<TenantShared>,
    spec: TenantSpec,
    subsystem: Arc<Subsystem>,
    devices: BTreeMap<u32, DeviceHandle>,
    features: NamespaceFeatures,
    /// Sums of controllers that have gone, in this run and those before.
    past: Counters,
}

impl Target {
    /// A target without tenants.
    ///
    /// # Panics
    /// When the configuration has no core.
    pub fn new(config: TargetConfig) -> Arc<Self> {
        assert!(config.cores > 0, "a target runs on at least one core");
        let cores = (0..config.cores).map(|_| CoreLink::default()).collect();
        let state = State {
            tenants: BTreeMap::new(),
            held_back: BTreeSet::new(),
            associations: BTreeMap::new(),
            next_cntlid: 1,
            controller_limits: config.limits.of_controllers(),
            listeners: Vec::new(),
            discovery: Discovery::default(),
            unconnected: BTreeMap::new(),
            host_events: HostEvents::default(),
            accept_error: None,
            life: Life::default(),
        };
        let discovery_subsystem =
            Subsystem::new(Nqn::DISCOVERY, &config.target_uuid, HostList::Any, 0);
        Arc::new(Self {
            config,
            cores,
            state: Mutex::new(state),
            next_device: AtomicU32::new(1),
            census: Census::default(),
            discovery_subsystem,
            started: OnceLock::new(),
        })
    }

    /// What it was made with.
    pub fn config(&self) -> &TargetConfig {
        &self.config
    }

    /// The state at this moment.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        Snapshot {
            tenants: state
                .tenants
                .values()
                .map(|tenant| state.tenant_snapshot(tenant))
                .collect(),
            controllers: state
                .associations
                .values()
                .map(controller_snapshot)
                .collect(),
            connections_per_core: self.cores.iter().map(CoreLink::count).collect(),
            unconnected: state.unconnected.values().sum(),
            listeners: state.listeners.clone(),
            discovery_generation: state.discovery.generation(),
            accept_error: state.accept_error.clone(),
            alive: self.census.count(),
            recent_events: state.host_events.recent(),
        }
    }

    /// Counts what lives.
    pub fn census(&self) -> &Census {
        &self.census
    }

    /// Core `index` has started.
    pub(crate) fn join(&self, index: usize, inbox: Sender<Message>, now: Time) {
        self.started.get_or_init(|| now);
        let first = self.cores[index].inbox.set(inbox).is_ok();
        assert!(first, "core {index} has been started before");
    }

    /// Core `index` serves no new connections from now on.
    pub(crate) fn on_core_ending(&self, index: usize) {
        self.cores[index].ending.store(true, Ordering::Relaxed);
    }

    /// Sends a message to a core; false if it is not there.
    pub(crate) fn tell(&self, core: usize, message: Message) -> bool {
        let inbox = self.cores.get(core).and_then(|core| core.inbox.get());
        inbox.is_some_and(|inbox| inbox.send(message).is_ok())
    }

    /// Tells each of `connections` to end.
    pub(crate) fn close_all(&self, connections: impl IntoIterator<Item = ConnectionId>) {
        for connection in connections {
            self.tell(
                connection.core,
                Message::Close {
                    serial: connection.serial,
                },
            );
        }
    }

    /// A number for a new device.
    pub(crate) fn next_device(&self) -> u32 {
        self.next_device.fetch_add(1, Ordering::Relaxed)
    }

    /// A core has received something. Only that core writes its number.
    #[inline]
    pub(crate) fn add_load(&self, core: usize) {
        let load = &self.cores[core].load;
        load.store(
            load.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
    }

    /// Counts a new connection from `peer` and chooses its core; `None` when a bound is reached.
    pub(crate) fn admit_connection(&self, peer: IpAddr) -> Option<usize> {
        let chosen = self.emptiest_core()?;
        let mut state = self.lock();
        let party = party(peer);
        let unconnected = state.unconnected.values().sum();
        let of_party = state.unconnected.get(&party).copied().unwrap_or(0);
        let all: usize = self.cores.iter().map(CoreLink::count).sum();
        let limits = &self.config.limits;
        if all >= limits.connections || !limits.for_addresses().allows(unconnected, of_party) {
            return None;
        }
        *state.unconnected.entry(party).or_default() += 1;
        drop(state);
        self.cores[chosen]
            .connections
            .fetch_add(1, Ordering::Relaxed);
        Some(chosen)
    }

    /// Counts a connection of `core` that no listener has accepted; false when a bound is reached.
    pub(crate) fn add_connection(&self, core: usize) -> bool {
        let all: usize = self.cores.iter().map(CoreLink::count).sum();
        let core = &self.cores[core];
        if all >= self.config.limits.connections || core.ending.load(Ordering::Relaxed) {
            return false;
        }
        core.connections.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// A listener has asked for the next connection: the system gave one, or refused.
    pub(crate) fn on_accepted(&self, error: Option<&io::Error>) {
        self.lock().accept_error = error.map(io::Error::to_string);
    }

    /// The core with the fewest connections, and the least to do among those.
    fn emptiest_core(&self) -> Option<usize> {
        let serving =
            self.cores.iter().enumerate().filter(|(_, core)| {
                core.inbox.get().is_some() && !core.ending.load(Ordering::Relaxed)
            });
        let fewest =
            serving.min_by_key(|(_, core)| (core.count(), core.load.load(Ordering::Relaxed)));
        fewest.map(|(index, _)| index)
    }

    /// The connection from `peer` has become a queue: it does not count as unconnected any more.
    pub fn on_connected(&self, peer: IpAddr) {
        self.lock().forget_unconnected(peer);
    }

    /// A connection of `core` has ended; `unconnected` is its peer if it never became a queue.
    pub(crate) fn forget_connection(&self, core: usize, unconnected: Option<IpAddr>) {
        self.cores[core].connections.fetch_sub(1, Ordering::Relaxed);
        if let Some(peer) = unconnected {
            self.lock().forget_unconnected(peer);
        }
    }

    /// Something for whoever runs the target. Its number is given here.
    pub fn report(&self, event: HostEvent) {
        self.lock().host_events.add(event);
    }

    /// Has `follower` told of what hosts do from now on.
    pub fn follow_hosts(&self, follower: Follower) {
        self.lock().host_events.follow(follower);
    }

    /// The home core has looked at a device again.
    pub(crate) fn set_device_report(&self, device: &DeviceHandle, report: Report) {
        self.lock().set_device_report(self, device, report);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peers for Target {
    fn ask(&self, home: usize, request: Request) -> bool {
        self.tell(home, Message::Request(request))
    }

    fn answer(&self, to: usize, reply: Reply) -> bool {
        self.tell(to, Message::Reply(reply))
    }
}

impl CoreLink {
    fn count(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl State {
    fn forget_unconnected(&mut self, peer: IpAddr) {
        let party = party(peer);
        if let Some(count) = self.unconnected.get_mut(&party) {
            *count -= 1;
            if *count == 0 {
                self.unconnected.remove(&party);
            }
        }
    }

    /// What the hosts of a tenant have done.
    fn counters_of(&self, tenant: &Tenant) -> Counters {
        let mut counters = tenant.past;
        for entry in self
            .associations
            .values()
            .filter(|entry| entry.association.is_of(&tenant.shared))
        {
            counters += entry.counters();
        }
        counters
    }

    /// How the media of a tenant's namespaces are.
    fn media_of(tenant: &Tenant) -> Media {
        let mut media = Media::default();
        for device in tenant.devices.values() {
            let health = device.health();
            media.add(health.spare, health.worn_out);
        }
        media
    }

    fn tenant_snapshot(&self, tenant: &Tenant) -> TenantSnapshot {
        TenantSnapshot {
            id: tenant.spec.id,
            name: tenant.spec.name.clone(),
            subnqn: tenant.subsystem.nqn.to_string(),
            serial: text_of(&tenant.subsystem.serial),
            model: text_of(&tenant.subsystem.model),
            class: tenant.spec.class,
            hosts: tenant.spec.hosts.clone(),
            namespaces: tenant.namespaces(),
            counters: self.counters_of(tenant),
        }
    }
}

impl Tenant {
    fn namespaces(&self) -> Vec<NamespaceSnapshot> {
        let namespaces = self.subsystem.namespaces.values();
        let snapshots = namespaces.map(|namespace| NamespaceSnapshot {
            nsid: namespace.nsid,
            uuid: namespace.uuid,
            nguid: namespace.nguid,
            eui64: namespace.eui64,
            block_size: namespace.block_size,
            blocks: namespace.blocks,
            read_only: namespace.read_only,
            core: self
                .devices
                .get(&namespace.nsid)
                .map_or(0, DeviceHandle::core),
        });
        snapshots.collect()
    }
}

fn text_of(field: &[u8]) -> String {
    ascii_text(field).unwrap_or_default().to_owned()
}

fn controller_snapshot(entry: &Entry) -> ControllerSnapshot {
    let association = &entry.association;
    let cores: BTreeSet<usize> = entry.connections().map(|it| it.core).collect();
    ControllerSnapshot {
        cntlid: association.cntlid,
        tenant: association.tenant.as_ref().map(|tenant| tenant.name()),
        hostnqn: association.host.nqn.to_string(),
        enabled: association.controller().is_ready(),
        peer: (!entry.of_function).then_some(entry.peer),
        io_queues: entry.io_queues(),
        cores: cores.into_iter().collect(),
        counters: entry.counters(),
    }
}
