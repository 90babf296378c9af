//! The storage target: tenants as NVMe subsystems, controllers, execution of commands, the switch
//! in front of every device. It knows no transport: a front end is a crate of its own.
//!
//! A [`Target`] is what all cores share: configuration, tenants, associations. A [`Core`] runs on
//! one executor: it is the home of devices, and serves connections. What a controller decides is in
//! `flashyard_controller`; what a front end builds on is in [`front`].
//!
//! | module | holds |
//! | --- | --- |
//! | `config`, `snapshot`, `host_event` | what a target is configured with, and what it shows |
//! | `subsystems`, `association` | tenants, namespaces, controllers; Connect, the fence |
//! | `core`, `connection`, `message` | one core, its connections and inbox |
//! | `devices`, `handle` | the devices of a core, and as others see them |
//! | `switch`, `ledger`, `sample` | a policy in front of a device; where the latency of its I/O comes from |
//! | `traffic` | what came to each volume, and how long it took |
//! | `turns` | turns for what devices do on their own account |
//! | `credit` | what hosts may have outstanding |
//! | `forwarding`, `way` | I/O for a device at home on another core; a device behind its switch as a device |
//! | `exec` | commands at work: memory, turn, data, I/O, answer; the trait `Front` |
//! | `waiting`, `quota` | commands that were not issued yet; memory that tenants and connections may have |
#![forbid(unsafe_code)]

mod alive;
mod association;
mod config;
mod connection;
mod core;
mod counters;
mod credit;
mod devices;
mod exec;
mod forwarding;
mod handle;
mod host_event;
mod ledger;
mod message;
mod part;
mod quota;
mod sample;
mod snapshot;
mod statistics;
mod status;
mod subsystems;
mod switch;
mod traffic;
mod turns;
mod waiting;
mod way;

pub use crate::core::Core;
pub use alive::Alive;
pub use config::{ConfigError, Limits, NamespaceSpec, SubsystemNames, TargetConfig, TenantSpec};
pub use handle::DeviceHandle;
pub use host_event::{Follower, HostEvent, HostEventController, HostEventKind};
pub use ledger::{Cause, Moved, Recent, Sample, SlowAfter, SlowIo, Slowness, Stages, Why};
pub use snapshot::{
    ControllerSnapshot, Counters, Life, NamespaceSnapshot, Snapshot, TenantSnapshot,
};
pub use subsystems::Target;
pub use switch::{Permit, Port, Switch};
pub use traffic::{Timed, Traffic};

pub use flashyard_block::{Class, TenantId};

/// What a front end builds on: it accepts connections of hosts, has them join a tenant as queues,
/// gives checked commands to execution, and answers them.
///
/// | step | with |
/// | --- | --- |
/// | a stream is accepted, on whichever core has the fewest | [`Core::listen_for`], [`Serve`], [`Connection`] |
/// | it becomes the Admin queue of a new association, or an I/O queue of one | [`Caller`], [`Target::connect_admin`], [`Target::connect_io`], [`Association`] |
/// | its commands are executed | [`Queue`], [`Command`], [`Pair`], [`start`], [`execute`] |
/// | what they need of the transport | [`Front`] |
/// | memory that they hold at the grace of a host | [`Budget`], [`MemoryQuota`] |
pub mod front {
    pub use crate::alive::{Census, Counted};
    pub use crate::association::{Association, ConnectionId};
    pub use crate::connection::{Connection, Serve};
    pub use crate::exec::{
        Command, End, Failure, Front, HalfData, HostData, Namespace, Pair, Queue, Success, Work,
        execute, start,
    };
    pub use crate::quota::{Budget, Held, MemoryQuota, Reservation, buffer};
    pub use crate::sample::PendingSample;
    pub use crate::subsystems::{AdminSeat, Caller, ConnectFailure, IoSeat};
    pub use crate::waiting::TellWithdrawn;
    pub use flashyard_block::Way;
}
