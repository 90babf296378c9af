//! Block devices: the trait everything stacks on, the terminal devices (`null`, `memory`, `file`, `block`), and
//! pools that cut a device into volumes.

mod device;

pub use device::{Class, Device, Info, IoError, IoFuture, Limits, SharedDevice, Tag, TenantId};
