//! Block devices: the trait everything stacks on, the terminal devices (`null`, `memory`, `file`,
//! `block`), pools that cut a device into volumes, and the `superblock` for what devices keep
//! of themselves.

mod all;
mod clean;
mod device;
mod durability;
mod error;
mod file;
pub mod gate;
mod io;
mod io_future;
mod memory;
mod null;
mod open;
mod paced;
pub mod pool;
mod range;
mod sparse;
pub mod superblock;
mod system_error;
mod timed_end;
mod verdict;

pub use all::All;
pub use clean::make_clean;
pub use device::{Answer, Device, DeviceExt, Health, Info, Limits, SharedDevice, Tag};
pub use error::IoError;
pub use file::{FileDevice, FileOptions};
// The words of a tag are those of the schedulers, so that an I/O needs no translation on its way
// into a switch.
pub use flashyard_sched::{Class, TenantId};
pub use io::{Done, Io, Pair, Zero};
pub use io_future::{ControlMeaning, IoFuture, ReadMeaning, WriteMeaning};
pub use memory::MemoryDevice;
pub use null::NullDevice;
pub use open::{MAX_BYTES, OpenError, geometry};
pub use paced::Paced;
pub use range::locate_io;
pub use sparse::Sparse;
pub use timed_end::{EndSource, TimedEnd};
pub use verdict::Verdict;
