//! The bounds that a controller tells its host and holds it to.

/// Bounds of a controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControllerLimits {
    /// I/O queues, at least 1.
    pub io_queues: u16,
    /// Entries of an I/O queue (MQES, MAXCMD), at least 2.
    pub queue_depth: u16,
    /// Bytes of data in the capsule of an I/O command (IOCCSZ), a multiple of 16.
    pub in_capsule_bytes: u32,
    /// Bytes that one command may move (MDTS): a power of two, at least 8,192, for an MDTS of 0
    /// means that there is no bound.
    pub transfer_bytes: u32,
}

impl Default for ControllerLimits {
    fn default() -> Self {
        Self {
            io_queues: 128,
            queue_depth: 1024,
            in_capsule_bytes: 8 << 10,
            transfer_bytes: 1 << 20,
        }
    }
}

impl ControllerLimits {
    /// The same, with what is too small to make sense raised to the least that does.
    pub fn sane(self) -> Self {
        Self {
            io_queues: self.io_queues.clamp(1, u16::MAX - 1),
            queue_depth: self.queue_depth.max(2),
            in_capsule_bytes: self.in_capsule_bytes.next_multiple_of(16),
            transfer_bytes: self.transfer_bytes.max(8192),
        }
    }
}

/// What the transport of a controller can do, as Identify Controller reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransportCapabilities {
    /// SGLS: which descriptors it takes.
    pub sgls: u32,
    /// IOCCSZ: the size of a command capsule, units of 16 bytes; 0 without capsules.
    pub ioccsz: u32,
    /// IORCSZ: the size of a response capsule, units of 16 bytes; 0 without capsules.
    pub iorcsz: u32,
    /// ICDOFF: where in a capsule data begin, units of 16 bytes after the command.
    pub icdoff: u16,
    /// MSDBD: descriptors that a capsule may hold.
    pub msdbd: u8,
    /// Bytes of data that a command of the Admin queue may bring, or take with Get Features.
    pub admin_bytes: u32,
    /// What only a function on PCIe has.
    pub pcie: Option<PcieCapabilities>,
}

/// What a function on PCIe has, and a controller on fabrics does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcieCapabilities {
    /// PCI Vendor ID and PCI Subsystem Vendor ID, as in the configuration space.
    pub vendors: (u16, u16),
    /// Interrupt vectors.
    pub vectors: u16,
}

/// Entries of an Admin queue (ASQSZ of the discovery log).
pub const ADMIN_QUEUE_DEPTH: u16 = 128;

/// Bytes that one Write Zeroes may cover (WZSL): with blocks of 512 B, hosts cannot count further
/// than 65,536 blocks.
pub const WRITE_ZEROES_BYTES: u64 = 32 << 20;
