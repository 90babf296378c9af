//! Block devices: the trait everything stacks on, the terminal devices (`null`, `memory`, `file`,
//! `block`), the layers before any of them (one injects faults, one encrypts), pools that cut a
//! device into volumes, and the `superblock` for what devices keep of themselves.
//!
//! # Writing a device
//!
//! A device implements [`Device`]: what it is, and what becomes of an [`Io`]. It finds here:
//!
//! - [`geometry`], for when it is made, and [`locate_io`], for each I/O: whether blocks are on it.
//! - [`gate::Gate`], for a device whose I/Os take time: it counts those in flight, keeps a range
//!   exclusive for a compare and write, shares flushes, and closes for good.
//! - [`IoFuture`]: an answer that is ready, an operation of the runtime, an answer that is due when
//!   the device says so ([`TimedEnd`]) or that it gives later ([`Served`]), or any future, which
//!   costs an allocation.
//! - [`Sparse`], for content in memory.
//! - [`superblock`], for what it keeps of itself, and [`Verdict`], for what a check of it comes to.

mod all;
pub mod array;
mod clean;
mod copies;
pub mod crypt;
mod device;
mod durability;
mod envelopes;
mod error;
pub mod fault;
mod file;
mod foreign;
pub mod gate;
mod io;
mod io_future;
mod memory;
pub mod migration;
mod null;
mod open;
mod overlay;
pub mod pool;
mod range;
mod served;
mod sparse;
pub mod superblock;
mod system_error;
mod timed_end;
mod turns;
mod verdict;

pub use all::All;
pub use clean::make_clean;
pub use copies::{Copies, Healed, Unneeded};
pub use device::{Answer, Device, DeviceExt, Health, Info, Limits, SharedDevice, Tag, WholeRows};
pub use error::IoError;
pub use file::{FileDevice, FileOptions};
// The words of a tag are those of the schedulers, so that an I/O needs no translation on its way
// into a switch.
pub use flashyard_sched::{Class, TenantId};
pub use io::{Done, Io, LentIo, Pair, Way, Zero};
pub use io_future::{ControlMeaning, IoFuture, LentMeaning, ReadMeaning, WriteMeaning};
pub use memory::MemoryDevice;
pub use null::NullDevice;
pub use open::{MAX_BYTES, OpenError, geometry};
pub use overlay::Overlay;
pub use range::locate_io;
pub use served::{Served, Server};
pub use sparse::Sparse;
pub use timed_end::{EndSource, TimedEnd};
pub use turns::{Step, SystemWork, Turn, Turns};
pub use verdict::Verdict;
