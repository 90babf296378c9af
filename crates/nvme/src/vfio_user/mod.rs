//! vfio-user: the messages by which a virtual machine monitor uses a PCI device that another
//! process offers on a unix socket (`docs/interop/vfio-user.rst` of QEMU).
//!
//! A message is a [`Header`] and a payload, in the byte order of the machine. File descriptors
//! travel beside the bytes; only their number is checked here. Decoding is total: any bytes give a
//! message or a [`Malformed`].
//!
//! | module | holds |
//! | --- | --- |
//! | `header` | the 16 bytes before every payload, commands, errors |
//! | `request` | what a client asks, both directions |
//! | `reply` | what a server answers, both directions |
//! | `version` | what both ends agree on first |

mod header;
mod reply;
mod request;
mod version;

pub use header::{Command, Header, MAX_PAYLOAD, Malformed};
pub use reply::{
    DEVICE_PCI, DEVICE_RESET, DeviceInfo, IRQ_EVENTFD, IRQ_NORESIZE, IrqInfo, MappableArea,
    REGION_CAPS, REGION_MMAP, REGION_READ, REGION_WRITE, RegionInfo, Reply,
};
pub use request::{
    DMA_READ, DMA_WRITE, DmaMap, DmaUnmap, IrqAction, IrqData, RegionAccess, Request, SetIrqs,
    UNMAP_ALL,
};
pub use version::{Capabilities, Version};

/// Indices of regions and interrupts of a PCI device.
pub mod pci {
    /// Regions 0 to 5 are BARs.
    pub const BAR0: u32 = 0;
    /// BAR 4.
    pub const BAR4: u32 = 4;
    /// BAR 5.
    pub const BAR5: u32 = 5;
    /// The configuration space.
    pub const CONFIG: u32 = 7;
    /// Regions there are, the ROM and VGA among them.
    pub const REGIONS: u32 = 9;
    /// INTx.
    pub const INTX: u32 = 0;
    /// MSI-X.
    pub const MSIX: u32 = 2;
    /// Kinds of interrupts there are: INTx, MSI, MSI-X, error and request.
    pub const IRQS: u32 = 5;
}

/// The 4 bytes at `at`; the caller has checked the length.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(field)
}

/// The 8 bytes at `at`; the caller has checked the length.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(field)
}

/// Appends fields of 4 bytes.
fn put_u32s(out: &mut alloc::vec::Vec<u8>, fields: &[u32]) {
    for field in fields {
        out.extend_from_slice(&field.to_ne_bytes());
    }
}

/// Appends fields of 8 bytes.
fn put_u64s(out: &mut alloc::vec::Vec<u8>, fields: &[u64]) {
    for field in fields {
        out.extend_from_slice(&field.to_ne_bytes());
    }
}
