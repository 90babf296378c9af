//! Connect, and the end of what it made: who gets a controller or an I/O queue, who has to wait for a fence.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use flashyard_block::Class;
use flashyard_time::Time;

use super::{State, Target, Tenant, TenantShared};
use crate::association::{Association, Entry};
use crate::controller::{
    AcceptedQueue, ConnectError, ConnectRequest, Controller, ControllerId, ControllerKind,
    Counters as HealthCounters, DiscoveryView, Media, NamespaceInfo, SubsystemView,
};
use crate::counters::QueueCounters;
use crate::message::{ConnectionId, Message};
use crate::{Counters, DeviceHandle};

/// What an accepted Connect of an Admin queue gives.
pub(crate) struct AdminSeat {
    pub(crate) association: Arc<Association>,
    pub(crate) queue: AcceptedQueue,
}

/// What an accepted Connect of an I/O queue gives.
pub(crate) struct IoSeat {
    pub(crate) association: Arc<Association>,
    pub(crate) tenant: Arc<TenantShared>,
    pub(crate) queue: AcceptedQueue,
    pub(crate) counters: Arc<QueueCounters>,
}

/// Why a Connect has not been accepted.
pub(crate) enum ConnectFailure {
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
    pub(crate) fn connect_admin(
        &self,
        request: &ConnectRequest,
        connection: ConnectionId,
        now: Time,
    ) -> Result<AdminSeat, ConnectFailure> {
        let mut state = self.lock();
        if request.subsystem().is_discovery() {
            let queue = request.check_admin(Some(&self.discovery_subsystem))?;
            let discovering = state
                .associations
                .values()
                .filter(|entry| entry.association.tenant.is_none());
            if discovering.count() >= self.config.limits.discovery_controllers {
                return Err(ConnectError::BUSY.into());
            }
            return self.seat(&mut state, request, connection, None, queue, now);
        }
        let tenant = state.tenant_of(request);
        let queue = request.check_admin(tenant.map(|tenant| &*tenant.subsystem))?;
        let tenant = tenant.map(|tenant| tenant.shared.clone());
        if let Some(tenant) = &tenant {
            let host = request.host();
            if state
                .associations
                .values()
                .any(|entry| entry.fences(&host, tenant))
            {
                return Err(ConnectFailure::Fenced);
            }
            let (controllers, queues) = queues_of(&state.associations, tenant);
            let limits = &self.config.limits;
            if controllers >= limits.controllers_per_tenant || queues >= limits.queues_per_tenant {
                return Err(ConnectError::BUSY.into());
            }
        }
        self.seat(&mut state, request, connection, tenant, queue, now)
    }

    /// Makes an I/O queue of a controller.
    pub(crate) fn connect_io(
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
        let queues = shared.map_or(0, |shared| queues_of(associations, shared).1);
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
        if queues >= self.config.limits.queues_per_tenant {
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
    pub(crate) fn end_association(&self, association: &Association, with_notice: bool) {
        let mut state = self.lock();
        let Some(entry) = state.associations.get_mut(&association.cntlid) else {
            return;
        };
        entry.ended = true;
        self.close_all(entry.connections());
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

    /// The connection of an I/O queue.
    pub(crate) fn connection_of(
        &self,
        association: &Association,
        qid: u16,
    ) -> Option<ConnectionId> {
        self.lock()
            .associations
            .get(&association.cntlid)?
            .connection_of(qid)
    }

    /// Lets a controller look at its subsystem. `local` is the address that its host has reached.
    pub(crate) fn with_view<T>(
        &self,
        association: &Association,
        local: IpAddr,
        now: Time,
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
        let counters = self.health(&counters, media, now);
        let discovery = association.tenant.is_none().then_some(DiscoveryView {
            log: &state.discovery,
            local,
        });
        look(&SubsystemView {
            subsystem,
            controllers: &controllers,
            counters: &counters,
            discovery,
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
        connection: ConnectionId,
        tenant: Option<Arc<TenantShared>>,
        queue: AcceptedQueue,
        now: Time,
    ) -> Result<AdminSeat, ConnectFailure> {
        if state.associations.len() >= self.config.limits.controllers {
            return Err(ConnectError::BUSY.into());
        }
        let id = state.new_cntlid().ok_or(ConnectError::BUSY)?;
        let kind = if tenant.is_some() {
            ControllerKind::Io
        } else {
            ControllerKind::Discovery
        };
        let kato = request.command.kato;
        let controller =
            Controller::new(id, kind, request.host(), kato, state.controller_limits, now);
        let association = Association::new(controller, tenant);
        state
            .associations
            .insert(id.0, Entry::new(association.clone(), connection));
        Ok(AdminSeat { association, queue })
    }

    fn lift_fence(&self) {
        for core in 0..self.cores.len() {
            self.tell(core, Message::FenceLifted);
        }
    }

    fn health(&self, counters: &Counters, media: Media, now: Time) -> HealthCounters {
        let started = self.started.get().copied().unwrap_or(now);
        HealthCounters {
            bytes_read: counters.bytes_read,
            bytes_written: counters.bytes_written,
            read_commands: counters.reads,
            write_commands: counters.writes,
            power_on: now.since(started.min(now)),
            power_cycles: 1,
            unsafe_shutdowns: counters.unsafe_shutdowns,
            media_errors: counters.media_errors,
            media,
            ..HealthCounters::default()
        }
    }
}

/// Controllers of a tenant, and all their queues.
fn queues_of(associations: &BTreeMap<u16, Entry>, tenant: &Arc<TenantShared>) -> (usize, usize) {
    associations
        .values()
        .filter(|entry| entry.association.is_of(tenant))
        .fold((0, 0), |(controllers, queues), entry| {
            (controllers + 1, queues + 1 + entry.io_queues())
        })
}

impl State {
    fn tenant_of(&self, request: &ConnectRequest) -> Option<&Tenant> {
        self.tenants
            .values()
            .find(|tenant| tenant.subsystem.nqn == *request.subsystem())
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
