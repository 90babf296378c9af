//! The storage target: tenants as NVMe subsystems, controllers, the switch in front of every
//! device, and the NVMe/TCP transport.
//!
//! A [`Target`] is what all cores share: configuration, tenants, associations. A [`Core`] runs on
//! one executor: it is the home of devices, and serves connections. What a controller decides is in
//! `flashyard_controller`; what moves data is in `tcp`.
//!
//! | module | holds |
//! | --- | --- |
//! | `config`, `snapshot`, `host_event` | what a target is told, and what it shows |
//! | `subsystems`, `association` | tenants, namespaces, controllers; Connect, the fence |
//! | `core`, `connection`, `message`, `handle` | one core, its connections and inbox, its devices as others see them |
//! | `switch`, `ledger`, `sample` | a policy in front of a device; where the latency of its I/O comes from |
//! | `credit` | what hosts are told that they may have outstanding |
//! | `forwarding` | I/O for a device at home on another core |
//! | `way` | I/O through a switch without a command around it |
//! | `exec` | commands at work: memory, turn, data, I/O, answer; the trait `Front` |
//! | `waiting`, `quota` | commands that were not issued yet; memory that tenants share |
//! | `tcp` | connections, framing, answers: the front end for NVMe/TCP |
#![forbid(unsafe_code)]

mod alive;
mod association;
mod config;
mod connection;
mod core;
mod counters;
mod credit;
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
mod status;
mod subsystems;
mod switch;
mod tcp;
mod waiting;
mod way;

pub use crate::core::Core;
pub use alive::Alive;
pub use config::{ConfigError, Limits, NamespaceSpec, SubsystemNames, TargetConfig, TenantSpec};
pub use handle::DeviceHandle;
pub use host_event::{HostEvent, HostEventController, HostEventKind};
pub use ledger::{Cause, Stages, Why};
pub use snapshot::{
    ControllerSnapshot, Counters, Life, NamespaceSnapshot, Snapshot, TenantSnapshot,
};
pub use subsystems::Target;
pub use switch::Switch;
pub use tcp::Coalescing;
pub use way::Way;

pub use flashyard_block::{Class, TenantId};
