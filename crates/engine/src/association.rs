//! Associations: a host's controller, its Admin connection, and the I/O connections that belong to
//! it, wherever they are served. Also the fence: a host whose association died may not come back
//! before everything that was issued for it has returned, or an old write could land on top of a
//! new one.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flashyard_block::TenantId;

use crate::alive::Counted;
use crate::counters::QueueCounters;
use crate::credit::{Part, Parts};
use crate::part::party;
use crate::{Counters, HostEventController};
use flashyard_controller::{Controller, HostId};

/// Names a connection in the whole target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// The core that serves it.
    pub(crate) core: usize,
    /// Its number there, never used twice.
    pub(crate) serial: u64,
}

/// A tenant as its connections share it.
#[derive(Debug)]
pub(crate) struct TenantShared {
    pub(crate) id: TenantId,
    /// Changed under the target's lock only, together with the key of the tenant.
    name: Mutex<String>,
    /// Moves with every change of its namespaces or class.
    generation: AtomicU64,
}

impl TenantShared {
    pub(crate) fn new(id: TenantId, name: &str) -> Arc<Self> {
        Arc::new(Self {
            id,
            name: Mutex::new(name.to_owned()),
            generation: AtomicU64::new(1),
        })
    }

    /// What it is called now.
    pub(crate) fn name(&self) -> String {
        self.lock_name().clone()
    }

    /// From now on it is called so.
    pub(crate) fn rename(&self, name: &str) {
        name.clone_into(&mut self.lock_name());
    }

    /// Its namespaces or its class have changed.
    pub(crate) fn touch(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    fn lock_name(&self) -> MutexGuard<'_, String> {
        self.name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be compared with the generation of a copy.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

/// A controller as its connections share it.
#[derive(Debug)]
pub struct Association {
    /// Controller identifier; unique in the whole target while anything of it is left.
    pub cntlid: u16,
    pub(crate) host: HostId,
    /// Whose subsystem it is; `None` for a discovery controller.
    pub(crate) tenant: Option<Arc<TenantShared>>,
    controller: Mutex<Controller>,
    /// Set by I/O queues when the host has been heard of; taken by the keep-alive timer.
    traffic: AtomicBool,
    /// What it has outstanding at which device, if its host receives credits.
    parts: Parts,
    _counted: Counted,
}

impl Association {
    pub(crate) fn new(
        controller: Controller,
        tenant: Option<Arc<TenantShared>>,
        counted: Counted,
    ) -> Arc<Self> {
        let (cntlid, host) = (controller.id().0, *controller.host());
        let controller = Mutex::new(controller);
        Arc::new(Self {
            cntlid,
            host,
            tenant,
            controller,
            traffic: AtomicBool::new(false),
            parts: Parts::default(),
            _counted: counted,
        })
    }

    /// The controller. For the slow path: Admin commands, Connect, errors.
    pub fn controller(&self) -> MutexGuard<'_, Controller> {
        self.controller
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// How an event shows it.
    pub fn for_event(&self) -> HostEventController {
        HostEventController {
            cntlid: Some(self.cntlid),
            tenant: self.tenant.as_ref().map(|tenant| tenant.name()),
            hostnqn: self.host.nqn,
        }
    }

    /// The host has been heard of.
    #[inline]
    pub(crate) fn on_traffic(&self) {
        self.traffic.store(true, Ordering::Relaxed);
    }

    /// Whether the host has been heard of since the last call.
    pub fn take_traffic(&self) -> bool {
        self.traffic.swap(false, Ordering::Relaxed)
    }

    /// What it has outstanding at the device of this number.
    pub(crate) fn part(&self, device: u32) -> Arc<Part> {
        self.parts.of(device)
    }

    /// Whether it is with this tenant's subsystem.
    pub(crate) fn is_of(&self, tenant: &Arc<TenantShared>) -> bool {
        self.tenant
            .as_ref()
            .is_some_and(|mine| Arc::ptr_eq(mine, tenant))
    }
}

/// An association as the target keeps track of it.
pub(crate) struct Entry {
    pub(crate) association: Arc<Association>,
    pub(crate) admin: ConnectionId,
    /// Who has it, as far as its address tells.
    pub(crate) party: IpAddr,
    /// Its end of the Admin connection.
    pub(crate) peer: SocketAddr,
    /// It is that of a function, and stays whichever hosts may connect.
    pub(crate) of_function: bool,
    /// The Admin connection has gone: I/O connections are on their way out.
    pub(crate) ended: bool,
    queues: BTreeMap<u16, Queue>,
    /// Sums of queues that have gone.
    past: Counters,
}

struct Queue {
    connection: ConnectionId,
    counters: Arc<QueueCounters>,
    /// Nothing more is taken from it; what it issued has not returned.
    ending: bool,
}

impl Entry {
    pub(crate) fn new(
        association: Arc<Association>,
        admin: ConnectionId,
        peer: SocketAddr,
    ) -> Self {
        Self {
            association,
            admin,
            peer,
            party: party(peer.ip()),
            of_function: false,
            ended: false,
            queues: BTreeMap::new(),
            past: Counters::default(),
        }
    }

    /// Takes an I/O queue in; false while one of this number is there, or one of any number is on
    /// its way out: the host may repeat on this queue what that one has not answered.
    pub(crate) fn join(
        &mut self,
        qid: u16,
        connection: ConnectionId,
        counters: &Arc<QueueCounters>,
    ) -> bool {
        if self.queues.contains_key(&qid) || self.has_ending() {
            return false;
        }
        self.queues.insert(
            qid,
            Queue {
                connection,
                counters: counters.clone(),
                ending: false,
            },
        );
        true
    }

    /// An I/O queue is on its way out.
    pub(crate) fn begin_end(&mut self, qid: u16) {
        if let Some(queue) = self.queues.get_mut(&qid) {
            queue.ending = true;
        }
    }

    /// All I/O queues are.
    pub(crate) fn begin_end_of_all(&mut self) {
        for queue in self.queues.values_mut() {
            queue.ending = true;
        }
    }

    /// An I/O queue has gone, and everything it issued has returned.
    pub(crate) fn leave(&mut self, qid: u16) {
        if let Some(queue) = self.queues.remove(&qid) {
            self.past += queue.counters.read();
        }
    }

    /// The connections of all I/O queues.
    pub(crate) fn connections(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.queues.values().map(|queue| queue.connection)
    }

    /// The connection of an I/O queue.
    pub(crate) fn connection_of(&self, qid: u16) -> Option<ConnectionId> {
        self.queues.get(&qid).map(|queue| queue.connection)
    }

    /// How many I/O queues are left, those on their way out among them.
    pub(crate) fn io_queues(&self) -> usize {
        self.queues.len()
    }

    /// What has been done over this controller.
    pub(crate) fn counters(&self) -> Counters {
        let mut sum = self.past;
        for queue in self.queues.values() {
            sum += queue.counters.read();
        }
        sum
    }

    /// Whether it stands in the way of `host` connecting to `tenant` again: it has ended, or one of
    /// its queues has, which is often the first that is seen of its end.
    pub(crate) fn fences(&self, host: &HostId, tenant: &Arc<TenantShared>) -> bool {
        let mine = &self.association.host;
        (self.ended || self.has_ending())
            && self.association.is_of(tenant)
            && (mine.id == host.id || mine.nqn == host.nqn)
    }

    fn has_ending(&self) -> bool {
        self.queues.values().any(|queue| queue.ending)
    }
}
