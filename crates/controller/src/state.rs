//! One controller: the state behind the Admin queue of one association.

use alloc::collections::BTreeSet;

use flashyard_nvme::Nqn;
use flashyard_nvme::fabrics::ControllerStatus;
use flashyard_nvme::feature::CompletionCoalescing;
use flashyard_time::Time;

use super::events::Events;
use super::features::Features;
use super::health::{CommandError, ErrorLog};
use super::keep_alive::{Expired, KeepAlive};
use super::limits::{ControllerLimits, TransportCapabilities};
use super::properties::{Effect, Properties};
use crate::pcie::{InterruptCoalescing, InvalidDoorbell};

/// Controller Identifier (CNTLID), unique in its subsystem while the controller lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ControllerId(pub u16);

impl ControllerId {
    /// The greatest identifier of a controller; those above mean "dynamic" and "any".
    pub const MAX: Self = Self(0xffef);
}

/// What a controller is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControllerKind {
    /// I/O to namespaces.
    Io,
    /// The discovery log.
    Discovery,
}

/// The host of an association, as it calls itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostId {
    /// Host NQN.
    pub nqn: Nqn,
    /// Host Identifier.
    pub id: [u8; 16],
}

/// One controller.
#[derive(Clone, Debug)]
pub struct Controller {
    pub(super) id: ControllerId,
    pub(super) kind: ControllerKind,
    pub(super) host: HostId,
    pub(super) limits: ControllerLimits,
    pub(super) transport: TransportCapabilities,
    pub(super) properties: Properties,
    pub(super) features: Features,
    pub(super) events: Events,
    pub(super) errors: ErrorLog,
    pub(super) keep_alive: KeepAlive,
    queues: BTreeSet<u16>,
}

impl Controller {
    /// The controller that an accepted Connect of an Admin queue makes; `kato` as the Connect says,
    /// milliseconds.
    pub fn new(
        id: ControllerId,
        kind: ControllerKind,
        host: HostId,
        kato: u32,
        (limits, transport): (ControllerLimits, TransportCapabilities),
        now: Time,
    ) -> Self {
        let limits = limits.sane();
        let keep_alive = match kind {
            ControllerKind::Io => KeepAlive::new(kato, now),
            ControllerKind::Discovery => KeepAlive::for_discovery(kato, now),
        };
        Self {
            id,
            kind,
            host,
            limits,
            transport,
            properties: Properties::new(limits.queue_depth),
            features: Features::new(now),
            events: Events::default(),
            errors: ErrorLog::default(),
            keep_alive,
            queues: BTreeSet::new(),
        }
    }

    /// Controller Identifier.
    pub fn id(&self) -> ControllerId {
        self.id
    }

    /// What it is for.
    pub fn kind(&self) -> ControllerKind {
        self.kind
    }

    /// Whose it is.
    pub fn host(&self) -> &HostId {
        &self.host
    }

    /// Its bounds.
    pub fn limits(&self) -> &ControllerLimits {
        &self.limits
    }

    /// Whether commands other than fabrics commands are taken; otherwise they are a Command
    /// Sequence Error.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.properties.is_ready()
    }

    /// CSTS.
    pub fn status(&self) -> ControllerStatus {
        self.properties.status()
    }

    /// Whether a Connect may make I/O queues now.
    pub fn takes_io_queues(&self) -> bool {
        self.kind == ControllerKind::Io && self.properties.takes_io_queues()
    }

    /// Whether the host has selected weighted round robin, so that its queues have a priority
    /// class.
    pub fn is_weighted(&self) -> bool {
        self.properties.is_weighted()
    }

    /// How its I/O queues tell of successes.
    pub fn coalescing(&self) -> CompletionCoalescing {
        self.features.coalescing()
    }

    /// Whether completions of I/O queues that are made now tell the host what it may have
    /// outstanding.
    pub fn tells_credits(&self) -> bool {
        self.features.credits()
    }

    /// I/O queues that a host may make: those granted by Number of Queues, before that all there
    /// can be. None on a discovery controller.
    pub fn granted_queues(&self) -> u16 {
        match self.kind {
            ControllerKind::Io => self.features.granted_queues(&self.limits),
            ControllerKind::Discovery => 0,
        }
    }

    /// Whether I/O queue `qid` exists.
    pub fn has_queue(&self, qid: u16) -> bool {
        self.queues.contains(&qid)
    }

    /// I/O queues that exist.
    pub fn queues(&self) -> impl ExactSizeIterator<Item = u16> + '_ {
        self.queues.iter().copied()
    }

    /// An I/O queue was made by an accepted Connect.
    pub fn queue_made(&mut self, qid: u16) {
        self.queues.insert(qid);
    }

    /// An I/O queue has gone with its connection.
    pub fn queue_gone(&mut self, qid: u16) {
        self.queues.remove(&qid);
    }

    /// A command has come on one of its queues: the Keep Alive Timer starts again. Cheap; also
    /// allowed once for everything that one receive has brought.
    #[inline]
    pub fn on_traffic(&mut self, now: Time) {
        self.keep_alive.on_traffic(now);
    }

    /// When to call [`Self::poll`] next, if ever.
    pub fn next_wakeup(&self) -> Option<Time> {
        self.keep_alive.next_wakeup()
    }

    /// Looks at the Keep Alive Timer. When it has expired, CSTS.CFS is set and the association is
    /// to be ended.
    pub fn poll(&mut self, now: Time) -> Option<Expired> {
        let expired = self.keep_alive.poll(now)?;
        self.properties.set_fatal();
        Some(expired)
    }

    /// A namespace was attached, detached, resized or changed.
    pub fn on_namespace_change(&mut self, nsid: u32) {
        if self.kind == ControllerKind::Io {
            self.events.namespace_changed(nsid);
        }
    }

    /// A doorbell was written in vain.
    pub fn on_invalid_doorbell(&mut self, kind: InvalidDoorbell) {
        self.events.invalid_doorbell(kind);
    }

    /// How completions that come by `vector` wait for others before they interrupt; not at all if
    /// that is switched off for the vector.
    pub fn interrupt_coalescing(&self, vector: u16) -> Option<InterruptCoalescing> {
        self.features.interrupt_coalescing(vector)
    }

    /// The discovery log has changed for this host.
    pub fn on_discovery_change(&mut self) {
        if self.kind == ControllerKind::Discovery {
            self.events.discovery_changed();
        }
    }

    /// A command was answered with an error: it goes to the error log. Errors of [`Self::admin`]
    /// are there already.
    ///
    /// [`Self::admin`]: Controller::admin
    pub fn on_error(&mut self, error: CommandError) {
        self.errors.push(error);
    }

    /// The next Asynchronous Event Request to complete: its identifier, and DW0 of the completion.
    /// To be asked after every change and every command, until there is none.
    pub fn poll_event(&mut self) -> Option<(u16, u32)> {
        self.events.poll()
    }

    /// CC.EN went to 0: everything but the association itself begins anew.
    pub(super) fn reset(&mut self, now: Time) {
        self.features = Features::new(now);
        self.events = Events::default();
        self.queues.clear();
    }

    pub(super) fn apply(&mut self, effect: Option<Effect>, now: Time) {
        if effect == Some(Effect::Reset) {
            self.reset(now);
        }
    }
}
