//! The state of a target at a glance: plain data for those who show it.

use std::net::SocketAddr;

use flashyard_block::{Class, TenantId};
use flashyard_time::Duration;

use crate::{Alive, HostEvent};

/// Everything, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// By name.
    pub tenants: Vec<TenantSnapshot>,
    /// By number.
    pub controllers: Vec<ControllerSnapshot>,
    /// TCP connections of each core.
    pub connections_per_core: Vec<usize>,
    /// TCP connections without an accepted Connect.
    pub unconnected: usize,
    /// Addresses in the discovery log.
    pub listeners: Vec<SocketAddr>,
    /// Generation counter of the discovery log.
    pub discovery_generation: u64,
    /// What the system says to the target's wish for another connection, while it refuses: it has
    /// no descriptors or no memory left. Those who come wait meanwhile; the target asks again and
    /// again.
    pub accept_error: Option<String>,
    /// What is in memory of connections, their queues and controllers.
    pub alive: Alive,
    /// What cost hosts a connection: the last 64, oldest first.
    pub recent_events: Vec<HostEvent>,
}

/// One tenant.
#[derive(Clone, Debug)]
pub struct TenantSnapshot {
    /// Number that travels with its I/O.
    pub id: TenantId,
    /// Name.
    pub name: String,
    /// Name of its subsystem.
    pub subnqn: String,
    /// Its serial number.
    pub serial: String,
    /// Its model number.
    pub model: String,
    /// How its I/O is treated.
    pub class: Class,
    /// Hosts that may connect.
    pub hosts: Vec<String>,
    /// Its namespaces.
    pub namespaces: Vec<NamespaceSnapshot>,
    /// What its hosts have done since it was added.
    pub counters: Counters,
}

/// One namespace.
#[derive(Clone, Copy, Debug)]
pub struct NamespaceSnapshot {
    /// Namespace identifier.
    pub nsid: u32,
    /// Identifier that never changes.
    pub uuid: [u8; 16],
    /// Another one that never changes.
    pub nguid: [u8; 16],
    /// A third one, if it has one.
    pub eui64: Option<[u8; 8]>,
    /// Bytes per block.
    pub block_size: u32,
    /// Size in blocks.
    pub blocks: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Home core of its device.
    pub core: usize,
}

/// One controller: an association with a host.
#[derive(Clone, Debug)]
pub struct ControllerSnapshot {
    /// Controller identifier.
    pub cntlid: u16,
    /// Name of the tenant; `None` for a discovery controller.
    pub tenant: Option<String>,
    /// Name of the host.
    pub hostnqn: String,
    /// Whether the host has enabled it.
    pub enabled: bool,
    /// The host's end of its Admin connection; `None` for a function, which has none.
    pub peer: Option<SocketAddr>,
    /// I/O queues that are connected.
    pub io_queues: usize,
    /// The cores that serve these, each once, in order.
    pub cores: Vec<usize>,
    /// What this host has done over this controller.
    pub counters: Counters,
}

/// The life of a target, as it goes into the SMART logs. Every tenant sees that of the target, as
/// with any machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Starts, with that of this run.
    pub power_cycles: u64,
    /// Time that it ran before this run.
    pub power_on: Duration,
    /// Runs that did not end in order.
    pub unsafe_shutdowns: u64,
}

impl Default for Life {
    /// Of a target that has never run before.
    fn default() -> Self {
        Self {
            power_cycles: 1,
            power_on: Duration::ZERO,
            unsafe_shutdowns: 0,
        }
    }
}

/// Sums of what was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Read and Compare commands completed.
    pub reads: u64,
    /// Write commands completed.
    pub writes: u64,
    /// Other I/O commands completed.
    pub others: u64,
    /// Bytes read by the host.
    pub bytes_read: u64,
    /// Bytes written by the host.
    pub bytes_written: u64,
    /// I/O commands that ended with an error.
    pub errors: u64,
    /// Errors of the medium among them.
    pub media_errors: u64,
    /// Controllers that were lost without a shutdown by the host.
    pub unsafe_shutdowns: u64,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, more: Self) {
        self.reads += more.reads;
        self.writes += more.writes;
        self.others += more.others;
        self.bytes_read += more.bytes_read;
        self.bytes_written += more.bytes_written;
        self.errors += more.errors;
        self.media_errors += more.media_errors;
        self.unsafe_shutdowns += more.unsafe_shutdowns;
    }
}
