//! The host side of NVMe/TCP: connects to a controller, gives it commands, and makes a remote
//! namespace a block device.
//!
//! Map: [`Association`] is one connected controller, made in `bring_up`, watched over in `watch`,
//! its events in `events`, its administration in `admin`; [`Queue`] takes commands; below it
//! `slots` has the commands in flight, `outbox` what is to be sent, `receiver` what comes and
//! `credits` what waits for the controller's credit, or for a window of our own ([`Parda`]);
//! [`discover`] asks a discovery controller. [`Remote`] is a namespace that is kept connected,
//! [`RemoteDevice`] makes it a block device. [`raw`] stands apart: a host
//! for tests of targets, which may break every rule. [`vfio`] is a guest of a virtual machine's
//! function, without the machine.
#![forbid(unsafe_code)]

mod admin;
mod association;
mod bring_up;
mod credits;
mod device;
mod discovery;
mod events;
mod outbox;
mod parda;
mod payload;
mod queue;
pub mod raw;
mod receiver;
mod remote;
mod slots;
pub mod vfio;
mod watch;

pub use association::{Association, ConnectError, Options};
pub use credits::CreditReport;
pub use device::RemoteDevice;
pub use discovery::discover;
pub use events::Event;
pub use parda::Parda;
pub use payload::{Payload, ReadInto};
pub use queue::{Answer, HostError, Pending, Queue};
pub use receiver::Violation;
pub use remote::{Namespace, Persistence, Remote};
