//! The PCI configuration space of a function: header, and the capabilities for power management,
//! MSI-X and PCI Express. Bytes behind the first 256 read as 0: there are no extended capabilities.

use super::BAR0_BYTES;

/// Bytes of the whole space.
pub const BYTES: usize = 4096;
/// Bytes that are kept.
const KEPT: usize = 256;

/// Vendors and devices by which guests choose a driver and its quirks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Subsystem Vendor ID.
    pub subsystem_vendor: u16,
    /// Subsystem ID.
    pub subsystem: u16,
}

/// What a write has changed that the function has to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConfigChange {
    /// A function level reset was asked for.
    pub reset: bool,
    /// Bus mastering, MSI-X or the disabling of INTx has changed.
    pub interrupts: bool,
}

const COMMAND: usize = 0x04;
const COMMAND_MEMORY: u8 = 1 << 1;
const COMMAND_BUS_MASTER: u8 = 1 << 2;
/// Bit 10, in the second byte of the register.
const COMMAND_INTX_DISABLE: u8 = 1 << 2;
const STATUS: usize = 0x06;
const STATUS_INTERRUPT: u8 = 1 << 3;
const STATUS_CAPABILITIES: u8 = 1 << 4;
const BAR0: usize = 0x10;
const BAR4: usize = 0x20;
const BAR5: usize = 0x24;
/// A BAR of 64 bits.
const BAR_64: u32 = 4;
const POWER: usize = 0x40;
const MSIX: usize = 0x50;
const MSIX_CONTROL: usize = MSIX + 2;
/// Bits 15 and 14 of Message Control, in its second byte.
const MSIX_ENABLE: u8 = 1 << 7;
const MSIX_MASK: u8 = 1 << 6;
const EXPRESS: usize = 0x60;
const DEVICE_CONTROL: usize = EXPRESS + 8;
/// Initiate Function Level Reset: bit 15, in the second byte of Device Control. Reads as 0.
const DEVICE_CONTROL_RESET: u8 = 1 << 7;
/// Bytes of BAR 4 and BAR 5.
const SMALL_BAR: u32 = 0x1000;

/// The configuration space of one function.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    bytes: [u8; KEPT],
    /// Bits that a guest can set and clear.
    writable: [u8; KEPT],
}

impl ConfigSpace {
    /// After power-on, with so many MSI-X vectors (1 to 256, all in one page of BAR 4).
    pub fn new(identity: &Identity, vectors: u16) -> Self {
        let mut space = Self {
            bytes: [0; KEPT],
            writable: [0; KEPT],
        };
        space.put(0x00, &identity.vendor.to_le_bytes());
        space.put(0x02, &identity.device.to_le_bytes());
        space.put(STATUS, &[STATUS_CAPABILITIES]);
        // Programming interface 02h, NVM 08h, mass storage 01h.
        space.put(0x09, &[0x02, 0x08, 0x01]);
        space.put(0x2c, &identity.subsystem_vendor.to_le_bytes());
        space.put(0x2e, &identity.subsystem.to_le_bytes());
        space.put(0x34, &[POWER as u8]);
        // INTA.
        space.put(0x3d, &[1]);
        let command = COMMAND_MEMORY | COMMAND_BUS_MASTER;
        space.allow(COMMAND, &[command | 0x41, COMMAND_INTX_DISABLE | 1]);
        space.allow(0x0c, &[0xff]);
        space.allow(0x3c, &[0xff]);
        space.put(BAR0, &BAR_64.to_le_bytes());
        space.allow(BAR0, &(!(BAR0_BYTES - 1)).to_le_bytes());
        for bar in [BAR4, BAR5] {
            space.allow(bar, &(!(SMALL_BAR - 1)).to_le_bytes());
        }
        space.power_management();
        space.msix(vectors.clamp(1, 256));
        space.express();
        space
    }

    fn power_management(&mut self) {
        // Version 3; no soft reset on the way from D3 to D0.
        self.put(POWER, &[0x01, MSIX as u8, 0x03, 0x00, 0x08]);
        self.allow(POWER + 4, &[0x03]);
    }

    fn msix(&mut self, vectors: u16) {
        let [low, high] = (vectors - 1).to_le_bytes();
        self.put(MSIX, &[0x11, EXPRESS as u8, low, high]);
        self.put(MSIX + 4, &4u32.to_le_bytes());
        self.put(MSIX + 8, &5u32.to_le_bytes());
        self.allow(MSIX_CONTROL + 1, &[MSIX_ENABLE | MSIX_MASK]);
    }

    fn express(&mut self) {
        // An endpoint, version 2; role-based errors and function level reset.
        self.put(EXPRESS, &[0x10, 0x00, 0x02, 0x00]);
        self.put(EXPRESS + 4, &(1u32 << 15 | 1 << 28).to_le_bytes());
        self.allow(DEVICE_CONTROL, &[0xff, 0x7f]);
        // One lane of the first generation, as capability and as status.
        self.put(EXPRESS + 0x0c, &0x11u32.to_le_bytes());
        self.put(EXPRESS + 0x12, &0x11u16.to_le_bytes());
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn allow(&mut self, at: usize, bits: &[u8]) {
        self.writable[at..at + bits.len()].copy_from_slice(bits);
    }

    /// Copies what is at `offset` to `to`. False if that is not within the space.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> bool {
        let Some(start) = within(offset, to.len()) else {
            return false;
        };
        to.fill(0);
        let kept = self.bytes.get(start..).unwrap_or_default();
        let count = kept.len().min(to.len());
        to[..count].copy_from_slice(&kept[..count]);
        true
    }

    /// Writes `data` at `offset`, as far as bits are writable; `None` if that is not within the
    /// space.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Option<ConfigChange> {
        let start = within(offset, data.len())?;
        let before = self.interrupts();
        let mut change = ConfigChange::default();
        for (at, &value) in (start..KEPT).zip(data) {
            let writable = self.writable[at];
            self.bytes[at] = self.bytes[at] & !writable | value & writable;
            if at == DEVICE_CONTROL + 1 && value & DEVICE_CONTROL_RESET != 0 {
                change.reset = true;
            }
        }
        change.interrupts = before != self.interrupts();
        Some(change)
    }

    fn interrupts(&self) -> (bool, bool, bool) {
        (
            self.is_bus_master(),
            self.takes_msix(),
            self.is_intx_disabled(),
        )
    }

    /// Whether the function may touch the memory of the guest and send interrupts.
    pub fn is_bus_master(&self) -> bool {
        self.bytes[COMMAND] & COMMAND_BUS_MASTER != 0
    }

    /// Whether INTx is disabled.
    pub fn is_intx_disabled(&self) -> bool {
        self.bytes[COMMAND + 1] & COMMAND_INTX_DISABLE != 0
    }

    /// Whether MSI-X is enabled.
    pub fn is_msix_enabled(&self) -> bool {
        self.bytes[MSIX_CONTROL + 1] & MSIX_ENABLE != 0
    }

    /// Whether MSI-X is enabled and the function as a whole is not masked.
    pub fn takes_msix(&self) -> bool {
        self.bytes[MSIX_CONTROL + 1] & (MSIX_ENABLE | MSIX_MASK) == MSIX_ENABLE
    }

    /// Shows in the status register whether INTx is asserted.
    pub fn set_intx(&mut self, asserted: bool) {
        self.bytes[STATUS] = STATUS_CAPABILITIES | (u8::from(asserted) * STATUS_INTERRUPT);
    }

    /// A reset of the function: what a guest has written goes back to what it was at power-on.
    pub fn reset(&mut self) {
        for (byte, writable) in self.bytes.iter_mut().zip(&self.writable) {
            *byte &= !writable;
        }
        self.set_intx(false);
    }
}

/// Where the access begins, if it lies in the space.
fn within(offset: u64, len: usize) -> Option<usize> {
    let start = usize::try_from(offset).ok()?;
    (start.checked_add(len)? <= BYTES).then_some(start)
}
