//! Block devices: the trait everything stacks on, the terminal devices (`null`, `memory`, `file`, `block`), and
//! pools that cut a device into volumes.

mod device;
mod memory;
mod null;
mod open;
mod range;
mod sparse;

pub use device::{Device, Info, IoError, IoFuture, Limits, SharedDevice, Tag};
pub use memory::MemoryDevice;
pub use null::NullDevice;
pub use open::{MAX_BYTES, OpenError};
// The words of a tag are those of the schedulers, so that an I/O needs no translation on its way into a switch.
pub use flashyard_sched::{Class, TenantId};
