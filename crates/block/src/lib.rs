//! Block devices: the trait everything stacks on, the terminal devices (`null`, `memory`, `file`, `block`), and
//! pools that cut a device into volumes.

mod device;
mod memory;
mod null;
mod open;
mod range;
mod sparse;

pub use device::{Class, Device, Info, IoError, IoFuture, Limits, SharedDevice, Tag, TenantId};
pub use memory::MemoryDevice;
pub use null::NullDevice;
pub use open::{MAX_BYTES, OpenError};
