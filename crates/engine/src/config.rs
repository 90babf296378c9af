//! The configuration of a target: its identity, every bound it keeps, tenants and namespaces.

use flashyard_block::{Class, TenantId};
use flashyard_time::Duration;

use crate::DeviceHandle;
use crate::part::Stock;
use flashyard_controller::ControllerLimits;

/// Identity and bounds of a target.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// A tenant's subsystem is called `PREFIX:TENANT`.
    pub nqn_prefix: String,
    /// Chosen once and kept for ever: serial numbers and other stable identifiers are made from it.
    pub target_uuid: [u8; 16],
    /// Every bound, in one place.
    pub limits: Limits,
    /// Number of cores that will be started.
    pub cores: usize,
}

/// Every bound of the target. At a bound the answer is an NVMe status, a refused connection or
/// waiting in order.
///
/// Connections, controllers and memory are shared out: an address or a tenant may hold its own
/// bound, but not more than a quarter of what is left of the whole (one alone comes to a fifth of
/// it). So those who take all they may leave some to whoever comes next. An address is a whole /64
/// in IPv6.
#[derive(Clone, Debug)]
pub struct Limits {
    /// TCP connections, in all: those without an accepted Connect, those of discovery controllers,
    /// and what is left, the queues of all tenants.
    pub connections: usize,
    /// Connections whose Connect has not been accepted yet, in all.
    pub unconnected: usize,
    /// The same from one address, at most.
    pub unconnected_per_address: usize,
    /// Time from accept to a complete ICReq.
    pub initialize_deadline: Duration,
    /// Time from accept to an accepted Connect.
    pub connect_deadline: Duration,
    /// How long a Connect waits for the writes of its host's dead associations before it is
    /// answered "busy".
    pub fence_deadline: Duration,
    /// After a C2HTermReq: how long the peer has to close.
    pub terminate_deadline: Duration,
    /// What is to be sent to a peer has to be taken in so long, all that waits at a time, or the
    /// peer is dropped. The system drops it as well when it leaves what was sent unacknowledged for
    /// so long.
    pub stall_deadline: Duration,
    /// A peer that has begun a PDU and does not finish it in so long is dropped; data that were
    /// requested by R2T have their own deadline.
    pub pdu_deadline: Duration,
    /// A peer that owes any of the data of an R2T for so long is dropped.
    pub data_deadline: Duration,
    /// A host that has an R2T and sends nothing for so long loses its turn at the device until it
    /// has: it may be slow, but not at the cost of the others.
    pub turn_deadline: Duration,
    /// A command that waits for memory or for its turn for so long is answered "interrupted, try
    /// again" (Command Interrupted, with a retry delay for hosts that honour it). Nothing of it has
    /// been done. It should be less than what hosts wait for an answer, which is 30 s mostly: when
    /// that has passed they break the connection, and come back with all they had.
    pub wait_deadline: Duration,
    /// Controllers of all tenants, and of discovery.
    pub controllers: usize,
    /// Discovery controllers, which anybody may have: shared out among addresses, since hosts can
    /// call themselves what they like.
    pub discovery_controllers: usize,
    /// Controllers of one tenant, at most.
    pub controllers_per_tenant: usize,
    /// Admin and I/O queues of one tenant's controllers, at most.
    pub queues_per_tenant: usize,
    /// I/O queues of one controller, at first.
    pub io_queues: u16,
    /// Entries of an I/O queue, at first.
    pub queue_depth: u16,
    /// Bytes of data in the capsule of an I/O command, at first.
    pub in_capsule_bytes: u32,
    /// Bytes that one command may move, and that one PDU may bring, at most.
    pub transfer_bytes: u32,
    /// Bytes of write data requested by R2T, or of read data not sent yet, on one connection. At
    /// least twice `transfer_bytes`: a fused pair is requested as a whole.
    pub connection_bytes: usize,
    /// The same of one tenant on one core, at most: a small part of `core_bytes`, since a tenant
    /// whose hosts owe data or take none may hold all of it for as long as `data_deadline` or
    /// `stall_deadline`. Nor may it hold more than a quarter of what is left, but for one command:
    /// so the more tenants hold much, the less each does, and some is always left.
    pub tenant_bytes: usize,
    /// The same of all tenants on one core.
    pub core_bytes: usize,
    /// Bytes of in-capsule data not written yet on one core. They count once they are all there,
    /// and need nothing more from the host then, so they have a share of their own. Before, each
    /// connection has those of one capsule.
    pub capsule_bytes: usize,
    /// The same of one tenant, at most, and no more than a quarter of what is left: its slow
    /// devices delay no one else.
    pub tenant_capsule_bytes: usize,
    /// Bytes of large receive buffers on one core.
    pub receive_bytes: usize,
    /// Bytes of responses not sent yet at which an I/O queue takes no more commands.
    pub output_bytes: usize,
    /// The same of an Admin queue, and of a connection that is no queue yet: log pages, of which
    /// the last may go as far beyond it as `transfer_bytes`, are counted against nothing else.
    pub admin_output_bytes: usize,
    /// Commands that a queue takes in one turn of its core while latency-sensitive commands come to
    /// the core: fewer make those wait less, and cost the others more. At least 1.
    pub throughput_batch: u32,
    /// Namespaces of one tenant.
    pub namespaces_per_tenant: u32,
}

impl Limits {
    /// What controllers tell their hosts at first;
    /// [`Target::set_controller_limits`](crate::Target::set_controller_limits) changes it.
    pub(crate) fn of_controllers(&self) -> ControllerLimits {
        ControllerLimits {
            io_queues: self.io_queues,
            queue_depth: self.queue_depth,
            in_capsule_bytes: self.in_capsule_bytes,
            transfer_bytes: self.transfer_bytes,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 32_768,
            unconnected: 2_048,
            unconnected_per_address: 512,
            initialize_deadline: Duration::from_secs(10),
            connect_deadline: Duration::from_secs(15),
            fence_deadline: Duration::from_secs(5),
            terminate_deadline: Duration::from_secs(10),
            stall_deadline: Duration::from_secs(30),
            pdu_deadline: Duration::from_secs(10),
            data_deadline: Duration::from_secs(30),
            turn_deadline: Duration::from_ms(20),
            wait_deadline: Duration::from_secs(20),
            controllers: 8_192,
            discovery_controllers: 1_024,
            controllers_per_tenant: 1_024,
            queues_per_tenant: 8_192,
            io_queues: 128,
            queue_depth: 1_024,
            in_capsule_bytes: 8 << 10,
            transfer_bytes: 1 << 20,
            connection_bytes: 2 << 20,
            tenant_bytes: 16 << 20,
            core_bytes: 128 << 20,
            capsule_bytes: 32 << 20,
            tenant_capsule_bytes: 8 << 20,
            receive_bytes: 16 << 20,
            output_bytes: 4 << 20,
            admin_output_bytes: 256 << 10,
            throughput_batch: 16,
            namespaces_per_tenant: 1_024,
        }
    }
}

impl Limits {
    /// The least that a core's pool of buffers can have: its part for hosts takes two of the
    /// largest commands then.
    pub const LEAST_BUFFERS: usize = 4 << 20;

    /// Bytes of buffers that a core promises to commands and to receive into. A command that has
    /// its part of them waits for no buffer, so the pool of the core must have more: what devices
    /// take for themselves comes out of the rest, and whoever finds nothing there is answered
    /// "interrupted, try again".
    pub fn promised_bytes(&self) -> usize {
        self.core_bytes + self.capsule_bytes + self.receive_bytes
    }

    /// No command is on its way to a device for longer, before it is issued.
    pub fn longest_wait(&self) -> Duration {
        // For memory or its turn, for its data, and for its turn once more.
        self.wait_deadline + self.data_deadline + self.wait_deadline
    }

    /// The default bounds, made smaller where they would promise more than 11/16 of a pool of
    /// `bytes` (at least [`Limits::LEAST_BUFFERS`]) on each core.
    pub fn for_buffers(bytes: usize) -> Self {
        let limits = Self::default();
        let core_bytes = limits.core_bytes.min(bytes / 2);
        Self {
            core_bytes,
            tenant_bytes: limits.tenant_bytes.min(core_bytes),
            capsule_bytes: limits.capsule_bytes.min(bytes / 8),
            tenant_capsule_bytes: limits.tenant_capsule_bytes.min(bytes / 32),
            receive_bytes: limits.receive_bytes.min(bytes / 16),
            ..limits
        }
    }

    /// Connections without an accepted Connect, for addresses.
    pub(crate) fn for_addresses(&self) -> Stock {
        Stock {
            total: self.unconnected,
            most: self.unconnected_per_address,
        }
    }

    /// Discovery controllers, for addresses.
    pub(crate) fn for_discovery(&self) -> Stock {
        Stock {
            total: self.discovery_controllers,
            most: self.discovery_controllers,
        }
    }

    /// Controllers, for tenants.
    pub(crate) fn for_controllers(&self) -> Stock {
        Stock {
            total: self.controllers.saturating_sub(self.discovery_controllers),
            most: self.controllers_per_tenant,
        }
    }

    /// Queues, for tenants.
    pub(crate) fn for_queues(&self) -> Stock {
        let others = self.unconnected + self.discovery_controllers;
        Stock {
            total: self.connections.saturating_sub(others),
            most: self.queues_per_tenant,
        }
    }
}

/// A tenant: one NVMe subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantSpec {
    /// Travels with every I/O; not 0, and never reused for another tenant while the target runs.
    pub id: TenantId,
    /// Last part of its subsystem's name.
    pub name: String,
    /// Names of the hosts that may connect; `*` lets anybody in.
    pub hosts: Vec<String>,
    /// How its I/O is to be treated.
    pub class: Class,
    /// What its subsystem calls itself; fixed when the tenant is added.
    pub names: SubsystemNames,
}

/// What a subsystem calls itself, as far as that is not left to the target: so can it stand in for
/// one of another target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubsystemNames {
    /// Its NQN; `PREFIX:TENANT` if not given.
    pub nqn: Option<String>,
    /// Serial number (SN), 1 to 20 printable ASCII characters; made of the target's identity and
    /// the NQN if not given.
    pub serial: Option<String>,
    /// Model number (MN), 1 to 40 printable ASCII characters.
    pub model: Option<String>,
}

/// A namespace: a device as one tenant sees it.
#[derive(Clone, Debug)]
pub struct NamespaceSpec {
    /// Namespace identifier, from 1.
    pub nsid: u32,
    /// Never changes, or hosts take it for another disk.
    pub uuid: [u8; 16],
    /// The same for the NGUID.
    pub nguid: [u8; 16],
    /// The same for the EUI64, if there is one.
    pub eui64: Option<[u8; 8]>,
    /// What stores its blocks.
    pub device: DeviceHandle,
    /// Refuse writes: see [`Target::set_read_only`](crate::Target::set_read_only).
    pub read_only: bool,
}

impl NamespaceSpec {
    /// A namespace that takes writes, has no EUI64, and the bytes of its UUID as its NGUID.
    pub fn new(nsid: u32, uuid: [u8; 16], device: DeviceHandle) -> Self {
        Self {
            nsid,
            uuid,
            nguid: uuid,
            eui64: None,
            device,
            read_only: false,
        }
    }
}

/// Why a change of configuration was refused. Nothing has been changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// There is no tenant of this name.
    NoSuchTenant,
    /// The tenant has no namespace of this number.
    NoSuchNamespace,
    /// The tenant has a namespace of this number already.
    NamespaceExists,
    /// Namespace numbers go from 1 to `Limits::namespaces_per_tenant`.
    NamespaceNumber,
    /// Prefix and name do not make an NVMe Qualified Name.
    InvalidName,
    /// The name or the number belongs to another tenant.
    TenantExists,
    /// Another tenant's subsystem has this NQN.
    NqnTaken,
    /// A serial or model number is empty, too long, or not printable ASCII.
    InvalidNumber,
    /// NQN, serial and model number of a tenant stay as they are.
    FixedNames,
    /// The home core of the device has ended.
    NoSuchDevice,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoSuchTenant => "there is no tenant of this name",
            Self::NoSuchNamespace => "the tenant has no namespace of this number",
            Self::NamespaceExists => "the tenant already has a namespace of this number",
            Self::NamespaceNumber => "the namespace number is outside of what the target allows",
            Self::InvalidName => "prefix and tenant name do not make a valid NVMe Qualified Name",
            Self::TenantExists => "name or number already belong to another tenant",
            Self::NqnTaken => "the subsystem of another tenant has this NQN",
            Self::InvalidNumber => {
                "a serial number has 1 to 20 printable ASCII characters, a model number 1 to 40"
            }
            Self::FixedNames => {
                "NQN, serial and model number of a tenant are given when it is made, and stay"
            }
            Self::NoSuchDevice => "the core of the device has ended",
        })
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_pool_promises_more_than_it_has() {
        let default = Limits::default();
        let all = Limits::for_buffers(256 << 20);
        assert_eq!(all.promised_bytes(), default.promised_bytes());
        assert_eq!(all.core_bytes, default.core_bytes);
        for bytes in (0..12).map(|n| Limits::LEAST_BUFFERS << n) {
            let limits = Limits::for_buffers(bytes);
            assert!(limits.promised_bytes() <= bytes / 4 * 3, "{bytes}");
            // Two buffers of the largest command, for a fused pair or a Compare.
            assert!(limits.core_bytes >= 2 * limits.transfer_bytes as usize);
            assert!(limits.tenant_capsule_bytes >= 4 * limits.in_capsule_bytes as usize);
        }
    }
}
