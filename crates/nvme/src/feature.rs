//! Features: identifiers and the layout of their values (Base Specification, Set Features).

use crate::bytes::Field;

/// A feature identifier (FID).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FeatureId(pub u8);

impl FeatureId {
    /// Arbitration.
    pub const ARBITRATION: Self = Self(0x01);
    /// Power Management.
    pub const POWER_MANAGEMENT: Self = Self(0x02);
    /// Temperature Threshold.
    pub const TEMPERATURE_THRESHOLD: Self = Self(0x04);
    /// Error Recovery.
    pub const ERROR_RECOVERY: Self = Self(0x05);
    /// Volatile Write Cache.
    pub const VOLATILE_WRITE_CACHE: Self = Self(0x06);
    /// Number of Queues.
    pub const NUMBER_OF_QUEUES: Self = Self(0x07);
    /// Interrupt Coalescing. PCIe only.
    pub const INTERRUPT_COALESCING: Self = Self(0x08);
    /// Interrupt Vector Configuration. PCIe only.
    pub const INTERRUPT_VECTOR: Self = Self(0x09);
    /// Write Atomicity Normal.
    pub const WRITE_ATOMICITY: Self = Self(0x0a);
    /// Asynchronous Event Configuration.
    pub const ASYNC_EVENT_CONFIGURATION: Self = Self(0x0b);
    /// Timestamp.
    pub const TIMESTAMP: Self = Self(0x0e);
    /// Keep Alive Timer.
    pub const KEEP_ALIVE_TIMER: Self = Self(0x0f);
    /// Host Behavior Support.
    pub const HOST_BEHAVIOR_SUPPORT: Self = Self(0x16);
    /// Host Identifier.
    pub const HOST_IDENTIFIER: Self = Self(0x81);
    /// Completion Coalescing, a vendor specific feature of this project: [`CompletionCoalescing`].
    pub const COMPLETION_COALESCING: Self = Self(0xc0);
    /// Command Credits, a vendor specific feature of this project. Bit 0 of its value: the
    /// completions of the I/O queues that are made from now on tell an [`crate::Allowance`]; all
    /// other bits are 0.
    pub const COMMAND_CREDITS: Self = Self(0xc1);
    /// Reservation Notification Mask.
    pub const RESERVATION_NOTIFICATION_MASK: Self = Self(0x82);
    /// Reservation Persistence.
    pub const RESERVATION_PERSISTENCE: Self = Self(0x83);
    /// Namespace Write Protection Config.
    pub const NAMESPACE_WRITE_PROTECTION: Self = Self(0x84);
}

/// Which value Get Features is for (SEL).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Select {
    /// 000b.
    Current,
    /// 001b.
    Default,
    /// 010b.
    Saved,
    /// 011b: not a value but [`SupportedCapabilities`].
    Supported,
    /// Everything else.
    Reserved,
}

impl Select {
    /// From the three bits of CDW10.
    pub const fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Self::Current,
            1 => Self::Default,
            2 => Self::Saved,
            3 => Self::Supported,
            _ => Self::Reserved,
        }
    }
}

/// DW0 of Get Features with SEL = 011b.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SupportedCapabilities {
    /// Bit 0.
    pub saveable: bool,
    /// Bit 1.
    pub namespace_specific: bool,
    /// Bit 2.
    pub changeable: bool,
}

impl SupportedCapabilities {
    /// DW0.
    pub const fn dw0(self) -> u32 {
        self.saveable as u32 | (self.namespace_specific as u32) << 1 | (self.changeable as u32) << 2
    }

    /// Reads DW0.
    pub const fn from_dw0(dw0: u32) -> Self {
        Self {
            saveable: dw0 & 1 != 0,
            namespace_specific: dw0 & 2 != 0,
            changeable: dw0 & 4 != 0,
        }
    }
}

/// Number of Queues (07h): counts as they are on the wire, zero-based.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NumberOfQueues {
    /// Submission queues, zero-based; FFFFh is invalid in a request.
    pub submission: u16,
    /// Completion queues, zero-based; FFFFh is invalid in a request.
    pub completion: u16,
}

impl NumberOfQueues {
    /// CDW11 of the command or DW0 of the completion.
    pub const fn bits(self) -> u32 {
        self.submission as u32 | (self.completion as u32) << 16
    }

    /// Reads CDW11 or DW0.
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            submission: bits as u16,
            completion: (bits >> 16) as u16,
        }
    }

    /// Whether a host may ask for it.
    pub const fn is_valid_request(self) -> bool {
        self.submission != 0xffff && self.completion != 0xffff
    }
}

/// Asynchronous Event Configuration (0Bh); the notice bits have the places of OAES in Identify
/// Controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AsyncEventConfiguration(pub u32);

impl AsyncEventConfiguration {
    /// Bits 7:0: SMART critical warnings.
    pub const SMART: u32 = 0xff;
    /// Bit 8: Namespace Attribute Notices.
    pub const NAMESPACE: u32 = 1 << 8;
    /// Bit 9: Firmware Activation Notices.
    pub const FIRMWARE: u32 = 1 << 9;
    /// Bit 11: Asymmetric Namespace Access Change Notices.
    pub const ANA: u32 = 1 << 11;
    /// Bit 31: Discovery Log Page Change.
    pub const DISCOVERY: u32 = 1 << 31;

    /// Whether all bits of `mask` are on.
    pub const fn has(self, mask: u32) -> bool {
        self.0 & mask == mask
    }
}

/// Arbitration (01h).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arbitration {
    /// Arbitration Burst: 2^n commands, 7 without limit.
    pub burst: u8,
    /// Low Priority Weight, zero-based.
    pub low: u8,
    /// Medium Priority Weight, zero-based.
    pub medium: u8,
    /// High Priority Weight, zero-based.
    pub high: u8,
}

impl Arbitration {
    /// The value's 32 bits.
    pub const fn bits(self) -> u32 {
        u32::from_le_bytes([self.burst & 7, self.low, self.medium, self.high])
    }

    /// Reads the value; reserved bits are ignored.
    pub const fn from_bits(bits: u32) -> Self {
        let [burst, low, medium, high] = bits.to_le_bytes();
        Self {
            burst: burst & 7,
            low,
            medium,
            high,
        }
    }
}

/// Temperature Threshold (04h).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TemperatureThreshold {
    /// Threshold, kelvin.
    pub kelvin: u16,
    /// Sensor: 0 composite, 1 to 8, Fh all.
    pub sensor: u8,
    /// Threshold Type Select: 0 over, 1 under.
    pub kind: u8,
}

impl TemperatureThreshold {
    /// The value's 32 bits.
    pub const fn bits(self) -> u32 {
        self.kelvin as u32 | (self.sensor as u32 & 0xf) << 16 | (self.kind as u32 & 3) << 20
    }

    /// Reads the value; reserved bits are ignored.
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            kelvin: bits as u16,
            sensor: (bits >> 16) as u8 & 0xf,
            kind: (bits >> 20) as u8 & 3,
        }
    }
}

/// Error Recovery (05h).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErrorRecovery {
    /// Time Limited Error Recovery, in units of 100 ms; 0 without limit.
    pub tler: u16,
    /// Deallocated or Unwritten Logical Block Error Enable.
    pub dulbe: bool,
}

impl ErrorRecovery {
    /// The value's 32 bits.
    pub const fn bits(self) -> u32 {
        self.tler as u32 | (self.dulbe as u32) << 16
    }

    /// Reads the value; reserved bits are ignored.
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            tler: bits as u16,
            dulbe: bits & 1 << 16 != 0,
        }
    }
}

/// Volatile Write Cache (06h), bit 0: the cache is enabled.
pub const WRITE_CACHE_ENABLE: u32 = 1;
/// Write Atomicity Normal (0Ah), bit 0: Disable Normal, so that only AWUPF holds.
pub const WRITE_ATOMICITY_DISABLE_NORMAL: u32 = 1;
/// Power Management (02h), bits 4:0: the power state.
pub const POWER_STATE_MASK: u32 = 0x1f;
/// Host Identifier (81h), CDW11 bit 0: the extended, 128-bit form.
pub const HOST_IDENTIFIER_EXTENDED: u32 = 1;

/// Timestamp (0Eh): 8 bytes of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timestamp {
    /// Milliseconds since 1970-01-01 UTC, 48 bits.
    pub milliseconds: u64,
    /// Origin (bits 3:1 of byte 6): 0 cleared by reset, 1 set by a host.
    pub origin: u8,
    /// Synch (bit 0 of byte 6): the clock may have stopped in between.
    pub may_have_stopped: bool,
}

impl Timestamp {
    /// Length of the data.
    pub const LEN: usize = 8;

    /// Reads the data; reserved bits are ignored.
    pub fn decode(data: [u8; Self::LEN]) -> Self {
        Self {
            milliseconds: u64::from_le_bytes(data) & 0xffff_ffff_ffff,
            origin: data[6] >> 1 & 7,
            may_have_stopped: data[6] & 1 != 0,
        }
    }

    /// Writes the data.
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut data = (self.milliseconds & 0xffff_ffff_ffff).to_le_bytes();
        data[6] = (self.origin & 7) << 1 | u8::from(self.may_have_stopped);
        data
    }
}

/// Completion Coalescing (C0h, vendor specific): how the I/O queues that are made from now on tell
/// their successes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompletionCoalescing {
    /// Bits 7:0: completions that may be held until they are reported together, 1 to 128; 0 leaves
    /// it to the controller.
    pub window: u8,
    /// Bit 8: a completion may retire up to four more commands that succeeded
    /// ([`crate::CompletionQueueEntry::retired`]).
    pub packed: bool,
}

impl CompletionCoalescing {
    /// Largest window.
    pub const MOST: u8 = 128;

    /// From CDW11 of Set Features or DW0 of Get Features; nothing if there is no such value.
    pub fn from_bits(bits: u32) -> Option<Self> {
        let window = bits as u8;
        (bits >> 9 == 0 && window <= Self::MOST).then_some(Self {
            window,
            packed: bits & 0x100 != 0,
        })
    }

    /// As in CDW11 or DW0.
    pub fn bits(self) -> u32 {
        u32::from(self.window) | u32::from(self.packed) << 8
    }
}

/// Host Behavior Support (16h): 512 bytes of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostBehavior {
    /// Advanced Command Retry Enable: the host honours Command Retry Delays.
    pub acre: bool,
    /// Extended Telemetry Data Area 4 Supported.
    pub etdas: bool,
    /// LBA Format Extension Enable.
    pub lbafee: bool,
    /// Copy Descriptor Formats Enable, bits 2 to 4.
    pub cdfe: u16,
}

impl HostBehavior {
    /// Length of the data.
    pub const LEN: usize = 512;

    /// Reads the data; reserved bytes are ignored.
    pub fn decode(data: &[u8; Self::LEN]) -> Self {
        let [acre, etdas, lbafee] = Field::get(data, 0);
        Self {
            acre: acre == 1,
            etdas: etdas == 1,
            lbafee: lbafee == 1,
            cdfe: Field::get(data, 4),
        }
    }

    /// Writes the data.
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut data = [0; Self::LEN];
        data[0] = u8::from(self.acre);
        data[1] = u8::from(self.etdas);
        data[2] = u8::from(self.lbafee);
        self.cdfe.put(&mut data, 4);
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coalescing_both_ways() {
        for (bits, window, packed) in [(0, 0, false), (0x120, 32, true), (128, 128, false)] {
            let value = CompletionCoalescing { window, packed };
            assert_eq!(CompletionCoalescing::from_bits(bits), Some(value));
            assert_eq!(value.bits(), bits);
        }
        for bits in [129, 0xff, 0x200, 1 << 31] {
            assert_eq!(CompletionCoalescing::from_bits(bits), None, "{bits:#x}");
        }
    }

    #[test]
    fn values_both_ways() {
        let queues = NumberOfQueues {
            submission: 3,
            completion: 7,
        };
        assert_eq!(queues.bits(), 0x0007_0003);
        assert_eq!(NumberOfQueues::from_bits(0x0007_0003), queues);
        assert!(
            queues.is_valid_request() && !NumberOfQueues::from_bits(0x0007_ffff).is_valid_request()
        );

        let arbitration = Arbitration {
            burst: 7,
            low: 1,
            medium: 2,
            high: 3,
        };
        assert_eq!(arbitration.bits(), 0x0302_0107);
        assert_eq!(
            Arbitration::from_bits(0x0302_01ff),
            arbitration,
            "reserved bits do not matter"
        );

        let threshold = TemperatureThreshold {
            kelvin: 343,
            sensor: 15,
            kind: 1,
        };
        assert_eq!(threshold.bits(), 0x001f_0157);
        assert_eq!(TemperatureThreshold::from_bits(0xffdf_0157), threshold);

        let recovery = ErrorRecovery {
            tler: 10,
            dulbe: true,
        };
        assert_eq!(recovery.bits(), 0x1_000a);
        assert_eq!(ErrorRecovery::from_bits(0xffff_000a), recovery);

        let capabilities = SupportedCapabilities {
            saveable: false,
            namespace_specific: false,
            changeable: true,
        };
        assert_eq!(capabilities.dw0(), 4);
        assert_eq!(SupportedCapabilities::from_dw0(4), capabilities);
        assert!(AsyncEventConfiguration(0x8000_0100).has(AsyncEventConfiguration::DISCOVERY));
    }

    #[test]
    fn data_both_ways() {
        let time = Timestamp {
            milliseconds: 0x0102_0304_0506,
            origin: 1,
            may_have_stopped: false,
        };
        assert_eq!(time.encode(), [6, 5, 4, 3, 2, 1, 2, 0]);
        assert_eq!(Timestamp::decode([6, 5, 4, 3, 2, 1, 2, 0xff]), time);

        let behavior = HostBehavior {
            acre: true,
            etdas: false,
            lbafee: true,
            cdfe: 0x1c,
        };
        let mut data = behavior.encode();
        assert_eq!(data[..6], [1, 0, 1, 0, 0x1c, 0]);
        data[6..].fill(0xff);
        assert_eq!(HostBehavior::decode(&data), behavior);
    }
}
