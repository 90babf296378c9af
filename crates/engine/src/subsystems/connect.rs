//! Connect, and the end of what it made: who gets a controller or an I/O queue, who has to wait for
//! a fence.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use flashyard_block::{Class, TenantId};
use flashyard_nvme::Status;
use flashyard_nvme::log::StatisticsLog;
use flashyard_time::Time;

use super::{State, Target, Tenant};
use crate::association::{Association, ConnectionId, Entry, TenantShared};
use crate::counters::QueueCounters;
use crate::message::Message;
use crate::part::party;
use crate::{Counters, DeviceHandle, HostEvent, HostEventController, HostEventKind, Life, Limits};
use flashyard_controller::{
    AcceptedQueue, ConnectError, ConnectRequest, Controller, ControllerId, ControllerKind,
    ControllerLimits, Counters as HealthCounters, DiscoveryView, Media, NamespaceFeatures,
    NamespaceInfo, SubsystemView, TransportCapabilities,
};

/// The connection that a Connect of an Admin queue has come by.
#[derive(Clone, Copy)]
pub struct Caller {
    /// Its name in the target.
    pub connection: ConnectionId,
    /// Who is at its other end.
    pub peer: SocketAddr,
    /// What its transport can do for a controller of these bounds.
    pub capabilities: fn(&ControllerLimits) -> TransportCapabilities,
}

/// What an accepted Connect of an Admin queue gives.
pub struct AdminSeat {
    /// The controller that was made.
    pub association: Arc<Association>,
    /// What the host wants of its queue.
    pub queue: AcceptedQueue,
}

/// What an accepted Connect of an I/O queue gives.
pub struct IoSeat {
    /// The controller that the queue belongs to.
    pub association: Arc<Association>,
    pub(crate) tenant: Arc<TenantShared>,
    /// What the host wants of it.
    pub queue: AcceptedQueue,
    pub(crate) counters: Arc<QueueCounters>,
}

impl IoSeat {
    /// Whose it is.
    pub fn tenant(&self) -> TenantId {
        self.tenant.id
    }
}

/// Why a Connect has not been accepted.
pub enum ConnectFailure {
    /// It is answered so.
    Refused(ConnectError),
    /// What the host's last association issued has not returned: it may ask again later.
    Fenced,
}

impl From<ConnectError> for ConnectFailure {
    fn from(error: ConnectError) -> Self {
        Self::Refused(error)
    }
}

/// What a tenant's queues may reach.
pub(crate) struct Reachable {
    pub(crate) generation: u64,
    pub(crate) class: Class,
    /// By identifier.
    pub(crate) namespaces: Vec<(NamespaceInfo, DeviceHandle)>,
}

impl Target {
    /// Makes a controller for a host.
    ///
    /// # Errors
    /// The host may not connect, or not yet.
    pub fn connect_admin(
        &self,
        request: &ConnectRequest,
        caller: Caller,
        now: Time,
    ) -> Result<AdminSeat, ConnectFailure> {
        let mut state = self.lock();
        if request.subsystem().is_discovery() {
            let queue = request.check_admin(Some(&self.discovery_subsystem))?;
            let (all, own) = state.discovering(caller.peer.ip());
            if !self.config.limits.for_discovery().allows(all, own) {
                return Err(ConnectError::BUSY.into());
            }
            return self.seat(&mut state, request, caller, None, queue, now);
        }
        let tenant = state.tenant_of(request);
        let queue = request.check_admin(tenant.map(|tenant| &*tenant.subsystem));
        let refused = tenant.filter(|tenant| !tenant.subsystem.hosts.allows(&request.host().nqn));
        let refused = refused.filter(|_| !request.of_function);
        let refused = refused.map(|tenant| tenant.shared.name());
        let held_back = tenant.is_some_and(|it| state.held_back.contains(&it.spec.name));
        let tenant = tenant.map(|tenant| tenant.shared.clone());
        if let Some(tenant) = refused {
            // Whoever runs the target may know what the host does not learn.
            state
                .host_events
                .add(not_allowed(tenant, request, caller, now));
        }
        let queue = queue?;
        if held_back {
            return Err(ConnectError::BUSY.into());
        }
        if let Some(tenant) = &tenant {
            let host = request.host();
            if state
                .associations
                .values()
                .any(|entry| entry.fences(&host, tenant))
            {
                return Err(ConnectFailure::Fenced);
            }
            let taken = Taken::count(&state.associations, tenant);
            if !taken.leaves_a_controller(&self.config.limits) {
                return Err(ConnectError::BUSY.into());
            }
        }
        self.seat(&mut state, request, caller, tenant, queue, now)
    }

    /// Makes an I/O queue of a controller.
    ///
    /// # Errors
    /// The host may not connect, or not yet.
    pub fn connect_io(
        &self,
        request: &ConnectRequest,
        connection: ConnectionId,
    ) -> Result<IoSeat, ConnectFailure> {
        let mut state = self.lock();
        let State {
            tenants,
            associations,
            ..
        } = &mut *state;
        let tenant = tenants
            .values()
            .find(|tenant| tenant.subsystem.nqn == *request.subsystem());
        let shared = tenant.map(|tenant| &tenant.shared);
        let taken = shared.map(|shared| Taken::count(associations, shared));
        let entry = associations.get_mut(&request.data.cntlid).filter(|entry| {
            !entry.ended && shared.is_some_and(|shared| entry.association.is_of(shared))
        });
        let association = entry.as_ref().map(|entry| entry.association.clone());
        let mut controller = association
            .as_ref()
            .map(|association| association.controller());
        let subsystem = tenant.map(|tenant| &*tenant.subsystem);
        let queue = request.check_io(subsystem, controller.as_deref())?;
        let (Some(entry), Some(controller), Some(shared)) = (entry, &mut controller, shared) else {
            return Err(ConnectError::BUSY.into());
        };
        if taken.is_none_or(|taken| !taken.leaves_a_queue(&self.config.limits)) {
            return Err(ConnectError::BUSY.into());
        }
        let counters = Arc::new(QueueCounters::default());
        if !entry.join(queue.qid, connection, &counters) {
            return Err(ConnectFailure::Fenced);
        }
        controller.queue_made(queue.qid);
        Ok(IoSeat {
            association: entry.association.clone(),
            tenant: shared.clone(),
            queue,
            counters,
        })
    }

    /// An I/O queue is on its way out: from now on it is a fence.
    pub(crate) fn begin_end_of_io(&self, association: &Association, qid: u16) {
        if let Some(entry) = self.lock().associations.get_mut(&association.cntlid) {
            entry.begin_end(qid);
            association.controller().queue_gone(qid);
        }
    }

    /// An I/O queue has gone, and everything it issued has returned.
    pub(crate) fn leave_io(&self, association: &Association, qid: u16) {
        let mut state = self.lock();
        let Some(entry) = state.associations.get_mut(&association.cntlid) else {
            return;
        };
        entry.leave(qid);
        state.forget_if_over(association.cntlid);
        drop(state);
        self.lift_fence();
    }

    /// The Admin connection has gone, and with it the association.
    pub fn end_association(&self, association: &Association, with_notice: bool, now: Time) {
        let mut state = self.lock();
        let Some(entry) = state.associations.get_mut(&association.cntlid) else {
            return;
        };
        let was_there = !std::mem::replace(&mut entry.ended, true);
        self.close_all(entry.connections());
        if was_there && let Some(entry) = state.associations.get(&association.cntlid) {
            state.tell(entry, HostEventKind::Ended { with_notice }, now);
        }
        if !with_notice && let Some(tenant) = state.tenant_mut(association) {
            tenant.past.unsafe_shutdowns += 1;
        }
        state.forget_if_over(association.cntlid);
        drop(state);
        self.lift_fence();
    }

    /// A controller reset: its I/O queues go.
    pub(crate) fn close_io_queues(&self, association: &Association) {
        if let Some(entry) = self.lock().associations.get_mut(&association.cntlid) {
            entry.begin_end_of_all();
            self.close_all(entry.connections());
        }
    }

    /// Whether any I/O queue of a controller is left.
    pub(crate) fn has_io_queues(&self, association: &Association) -> bool {
        let state = self.lock();
        state
            .associations
            .get(&association.cntlid)
            .is_some_and(|entry| entry.io_queues() > 0)
    }

    /// Asks the core that serves I/O queue `qid` to take its command `cid` back. The answer comes
    /// to connection `asked_by`, by [`Connection::on_aborted`] with this `ticket`; none comes if
    /// this is false: there is no such queue.
    ///
    /// [`Connection::on_aborted`]: crate::front::Connection::on_aborted
    pub fn abort(
        &self,
        association: &Association,
        (qid, cid): (u16, u16),
        asked_by: ConnectionId,
        ticket: u16,
    ) -> bool {
        let state = self.lock();
        let entry = state.associations.get(&association.cntlid);
        let Some(connection) = entry.and_then(|entry| entry.connection_of(qid)) else {
            return false;
        };
        let message = Message::Abort {
            serial: connection.serial,
            cid,
            asked_by,
            ticket,
        };
        self.tell(connection.core, message)
    }

    /// Lets a controller look at its subsystem. `local` is the address that its host has reached;
    /// `statistics` is the log of [`Core::statistics`], if the command asks for it.
    ///
    /// [`Core::statistics`]: crate::Core::statistics
    pub fn with_view<T>(
        &self,
        association: &Association,
        (local, now): (IpAddr, Time),
        statistics: Result<&StatisticsLog, Status>,
        look: impl FnOnce(&SubsystemView<'_>) -> T,
    ) -> T {
        let state = self.lock();
        let tenant = state.tenant(association);
        let subsystem = tenant.map_or(&self.discovery_subsystem, |tenant| &tenant.subsystem);
        let controllers = state.controllers_beside(association);
        let counters = tenant
            .map(|tenant| state.counters_of(tenant))
            .unwrap_or_default();
        let media = tenant.map(State::media_of).unwrap_or_default();
        let counters = self.health(state.life, &counters, media, now);
        let discovery = association.tenant.is_none().then_some(DiscoveryView {
            log: &state.discovery,
            local,
        });
        look(&SubsystemView {
            subsystem,
            controllers: &controllers,
            counters: &counters,
            features: tenant.map_or(&NamespaceFeatures::default(), |tenant| &tenant.features),
            discovery,
            statistics,
        })
    }

    /// What the queues of `tenant` may reach now.
    pub(crate) fn reachable(&self, tenant: &TenantShared) -> Reachable {
        let state = self.lock();
        let generation = tenant.generation();
        let found = state
            .tenants
            .values()
            .find(|found| std::ptr::eq(&raw const *found.shared, tenant));
        let Some(found) = found else {
            return Reachable {
                generation,
                class: Class::default(),
                namespaces: Vec::new(),
            };
        };
        let namespaces = found.subsystem.namespaces.values();
        let with_devices =
            namespaces.filter_map(|info| Some((*info, found.devices.get(&info.nsid)?.clone())));
        Reachable {
            generation,
            class: found.spec.class,
            namespaces: with_devices.collect(),
        }
    }

    fn seat(
        &self,
        state: &mut State,
        request: &ConnectRequest,
        caller: Caller,
        tenant: Option<Arc<TenantShared>>,
        queue: AcceptedQueue,
        now: Time,
    ) -> Result<AdminSeat, ConnectFailure> {
        let id = state.new_cntlid().ok_or(ConnectError::BUSY)?;
        let kind = if tenant.is_some() {
            ControllerKind::Io
        } else {
            ControllerKind::Discovery
        };
        let kato = request.command.kato;
        let limits = state.controller_limits.sane();
        let bounds = (limits, (caller.capabilities)(&limits));
        let controller = Controller::new(id, kind, request.host(), kato, bounds, now);
        let association = Association::new(controller, tenant, self.census.controller());
        let mut entry = Entry::new(association.clone(), caller.connection, caller.peer);
        entry.of_function = request.of_function;
        state.tell(&entry, HostEventKind::Connected, now);
        state.associations.insert(id.0, entry);
        Ok(AdminSeat { association, queue })
    }

    fn lift_fence(&self) {
        for core in 0..self.cores.len() {
            self.tell(core, Message::FenceLifted);
        }
    }

    fn health(&self, life: Life, counters: &Counters, media: Media, now: Time) -> HealthCounters {
        let started = self.started.get().copied().unwrap_or(now);
        HealthCounters {
            bytes_read: counters.bytes_read,
            bytes_written: counters.bytes_written,
            read_commands: counters.reads,
            write_commands: counters.writes,
            power_on: life.power_on + now.since(started.min(now)),
            power_cycles: life.power_cycles,
            unsafe_shutdowns: counters.unsafe_shutdowns + life.unsafe_shutdowns,
            media_errors: counters.media_errors,
            media,
            ..HealthCounters::default()
        }
    }
}

fn not_allowed(tenant: String, request: &ConnectRequest, caller: Caller, now: Time) -> HostEvent {
    HostEvent {
        number: 0,
        at: now,
        peer: caller.peer,
        controller: Some(HostEventController {
            cntlid: None,
            tenant: Some(tenant),
            hostnqn: request.host().nqn,
        }),
        kind: HostEventKind::NotAllowed,
    }
}

/// What there is of tenants' controllers and of their queues, Admin queues among them: of all
/// tenants, and of one.
#[derive(Default)]
struct Taken {
    controllers: usize,
    queues: usize,
    own_controllers: usize,
    own_queues: usize,
}

impl Taken {
    fn count(associations: &BTreeMap<u16, Entry>, tenant: &Arc<TenantShared>) -> Self {
        let mut taken = Self::default();
        let entries = associations.values();
        for entry in entries.filter(|entry| entry.association.tenant.is_some()) {
            let own = usize::from(entry.association.is_of(tenant));
            let queues = 1 + entry.io_queues();
            taken.controllers += 1;
            taken.queues += queues;
            taken.own_controllers += own;
            taken.own_queues += own * queues;
        }
        taken
    }

    fn leaves_a_queue(&self, limits: &Limits) -> bool {
        limits.for_queues().allows(self.queues, self.own_queues)
    }

    fn leaves_a_controller(&self, limits: &Limits) -> bool {
        let controllers = limits.for_controllers();
        controllers.allows(self.controllers, self.own_controllers) && self.leaves_a_queue(limits)
    }
}

impl State {
    fn tenant_of(&self, request: &ConnectRequest) -> Option<&Tenant> {
        self.tenants
            .values()
            .find(|tenant| tenant.subsystem.nqn == *request.subsystem())
    }

    /// Discovery controllers, in all and of the party of `peer`.
    fn discovering(&self, peer: IpAddr) -> (usize, usize) {
        let all = self.associations.values();
        let parties =
            all.filter_map(|entry| entry.association.tenant.is_none().then_some(entry.party));
        parties.fold((0, 0), |(all, own), of| {
            (all + 1, own + usize::from(of == party(peer)))
        })
    }

    fn tenant(&self, association: &Association) -> Option<&Tenant> {
        let shared = association.tenant.as_ref()?;
        self.tenants
            .get(&shared.name())
            .filter(|tenant| Arc::ptr_eq(&tenant.shared, shared))
    }

    fn tenant_mut(&mut self, association: &Association) -> Option<&mut Tenant> {
        let shared = association.tenant.as_ref()?;
        self.tenants
            .get_mut(&shared.name())
            .filter(|tenant| Arc::ptr_eq(&tenant.shared, shared))
    }

    /// Controllers of the same subsystem, ascending.
    fn controllers_beside(&self, association: &Association) -> Vec<ControllerId> {
        let same = |entry: &&Entry| match &association.tenant {
            Some(tenant) => entry.association.is_of(tenant),
            None => entry.association.tenant.is_none(),
        };
        let beside = self
            .associations
            .values()
            .filter(|entry| !entry.ended)
            .filter(same);
        beside
            .map(|entry| ControllerId(entry.association.cntlid))
            .collect()
    }

    /// Tells whoever follows what hosts do that one of a tenant has come or gone.
    fn tell(&self, entry: &Entry, kind: HostEventKind, now: Time) {
        if entry.association.tenant.is_some() {
            self.host_events.tell(&HostEvent {
                number: 0,
                at: now,
                peer: entry.peer,
                controller: Some(entry.association.for_event()),
                kind,
            });
        }
    }

    /// Drops an association of which nothing is left; what was counted stays with the tenant.
    fn forget_if_over(&mut self, cntlid: u16) {
        let over = self
            .associations
            .get(&cntlid)
            .is_some_and(|entry| entry.ended && entry.io_queues() == 0);
        if !over {
            return;
        }
        if let Some(entry) = self.associations.remove(&cntlid) {
            let counters = entry.counters();
            if let Some(tenant) = self.tenant_mut(&entry.association) {
                tenant.past += counters;
            }
        }
    }

    /// The next free identifier, going round, so that one is not used again soon.
    fn new_cntlid(&mut self) -> Option<ControllerId> {
        for _ in 0..=ControllerId::MAX.0 {
            let id = self.next_cntlid;
            self.next_cntlid = if id >= ControllerId::MAX.0 { 1 } else { id + 1 };
            if !self.associations.contains_key(&id) {
                return Some(ControllerId(id));
            }
        }
        None
    }
}
