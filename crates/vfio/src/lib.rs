//! The front end for virtual machines: NVMe functions on PCIe, each behind a unix socket that
//! speaks vfio-user. A function is a controller of a tenant's subsystem, as that of a host that
//! connects over NVMe/TCP; its commands go through the same execution.
//!
//! A function has a home core, which has its socket, registers and Admin queue, and serves its I/O
//! queues; if that is wanted other cores serve some of them. Doorbells are messages on the socket,
//! or lie in memory that a core looks at while there is work; a function whose guest does nothing
//! costs nothing. Data go straight between the guest's memory and devices that neither look at them
//! nor need them twice, and by a buffer of the core for others. Only I/O of the former kind holds
//! the guest's memory, while it is at the device; DMA_UNMAP and resets are answered when it has
//! returned.
//!
//! | module | holds |
//! | --- | --- |
//! | `serve` | the socket: one client at a time, its messages |
//! | `regions` | BARs and configuration space as the client reads and writes them |
//! | `function` | what of a function stays while its guest resets it or its client goes |
//! | `worker` | what serves queues on one core |
//! | `workers` | workers on other cores, and what they and the function tell each other |
//! | `memory` | the guest's memory |
//! | `interrupts` | eventfds, and which interrupt goes out |
//! | `announce` | when a worker interrupts the guest for what it has posted |
//! | `controller` | a controller from CC.EN = 1 to its end |
//! | `admin` | the Admin queue |
//! | `doorbells` | doorbells in memory: shadow doorbells, and a page that the client maps |
//! | `look` | how a worker looks at those |
//! | `pump` | fetches commands |
//! | `io` | an I/O queue: its side of execution |
#![forbid(unsafe_code)]

mod admin;
mod announce;
mod controller;
mod doorbells;
mod function;
mod interrupts;
mod io;
mod look;
mod memory;
mod pump;
mod regions;
mod serve;
mod worker;
mod workers;

pub use flashyard_controller::HostId;
pub use function::{Doorbells, FunctionSpec};
pub use serve::{Function, FunctionReport, offer};
