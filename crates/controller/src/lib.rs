//! What an NVMe controller decides, without transport and without I/O: state machines with no clock
//! and no lock. A front end brings commands and time, and carries out what is decided.
//!
//! | module | holds |
//! | --- | --- |
//! | [`subsystem`] | plain data: a subsystem, its namespaces, the hosts it lets in |
//! | [`connect`] | checks of Connect |
//! | [`state`] | [`Controller`]: one association's controller |
//! | `admin` | its answer to every command of the Admin queue |
//! | [`properties`] | CAP, CC, CSTS and the others |
//! | `identify`, `logs`, `features` | what those commands return and change |
//! | [`discovery`] | the discovery log |
//! | [`events`] | Asynchronous Event Requests and what they report |
//! | [`keep_alive`] | the Keep Alive Timer |
//! | [`health`] | error log and SMART counters |
//! | [`limits`] | the bounds that are reported to a host and enforced |
//! | [`transfer`] | what data a command moves |
//! | [`io`], [`fused`] | checks of I/O commands, and of pairs of them |
//! | [`pcie`] | registers, queues and pages of a controller on PCIe |
//! | [`intent`] | what class an I/O command is of |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod admin;
pub mod connect;
pub mod discovery;
pub mod events;
mod features;
pub mod fused;
pub mod health;
mod identify;
pub mod intent;
pub mod io;
pub mod keep_alive;
pub mod limits;
mod logs;
pub mod pcie;
pub mod properties;
pub mod state;
pub mod subsystem;
pub mod transfer;

#[cfg(test)]
mod tests;

pub use admin::{AdminOutcome, Answer, DiscoveryView, SubsystemView, asks_statistics};
pub use connect::{AcceptedQueue, ConnectError, ConnectRequest};
pub use events::EventKind;
pub use features::NamespaceFeatures;
pub use fused::FusedPairs;
pub use health::{CommandError, Counters, Media};
pub use intent::Intent;
pub use io::{IoOp, IoRequest};
pub use keep_alive::Expired;
pub use limits::{ControllerLimits, PcieCapabilities, TransportCapabilities};
pub use properties::Effect;
pub use state::{Controller, ControllerId, ControllerKind, HostId};
pub use subsystem::{HostList, NamespaceInfo, Subsystem};
pub use transfer::{Room, Transfer};
