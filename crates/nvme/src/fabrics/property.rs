//! Controller properties: what is a register on PCIe and is read and written by Property Get and
//! Set on fabrics (Base Specification, section 3.1.4).

use crate::command::SubmissionQueueEntry;

/// A property, by its offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Property {
    /// Controller Capabilities, 8 bytes.
    Capabilities = 0x00,
    /// Version.
    Version = 0x08,
    /// Controller Configuration.
    Configuration = 0x14,
    /// Controller Status.
    Status = 0x1c,
    /// NVM Subsystem Reset.
    SubsystemReset = 0x20,
    /// Controller Ready Timeouts.
    ReadyTimeouts = 0x68,
}

/// How many bytes Property Get or Set asks for (ATTRIB bits 2:0).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PropertySize {
    /// 000b.
    Four,
    /// 001b.
    Eight,
    /// Everything else.
    Reserved,
}

impl Property {
    /// Every property of a fabrics controller that is kept here.
    pub const ALL: [Self; 6] = [
        Self::Capabilities,
        Self::Version,
        Self::Configuration,
        Self::Status,
        Self::SubsystemReset,
        Self::ReadyTimeouts,
    ];

    /// The property at an offset, if there is one.
    pub fn at(offset: u32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|property| *property as u32 == offset)
    }

    /// The size it has to be asked for with.
    pub fn size(self) -> PropertySize {
        if self == Self::Capabilities {
            PropertySize::Eight
        } else {
            PropertySize::Four
        }
    }
}

/// Property Get and Property Set.
impl SubmissionQueueEntry {
    /// Size asked for (CDW10 bits 2:0).
    pub fn property_size(&self) -> PropertySize {
        match self.cdw10() & 7 {
            0 => PropertySize::Four,
            1 => PropertySize::Eight,
            _ => PropertySize::Reserved,
        }
    }

    /// Offset (CDW11).
    pub fn property_offset(&self) -> u32 {
        self.cdw11()
    }

    /// Value to set (CDW12 and CDW13).
    pub fn property_value(&self) -> u64 {
        u64::from(self.cdw13()) << 32 | u64::from(self.cdw12())
    }
}

/// Controller Capabilities (CAP).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    /// Maximum Queue Entries Supported, zero-based.
    pub mqes: u16,
    /// Contiguous Queues Required; 1 on fabrics.
    pub cqr: bool,
    /// Arbitration mechanisms beside round robin: bit 0 weighted round robin with urgent, bit 1
    /// vendor specific.
    pub ams: u8,
    /// Timeout to become ready, in units of 500 ms.
    pub to: u8,
    /// Subsystem reset is supported.
    pub nssrs: bool,
    /// Command sets supported: bit 0 NVM, bit 6 one or more sets (CC.CSS = 110b), bit 7 none.
    pub css: u8,
    /// Memory Page Size Minimum: 2^(12 + n) bytes.
    pub mpsmin: u8,
    /// Memory Page Size Maximum: 2^(12 + n) bytes.
    pub mpsmax: u8,
    /// Controller Ready Modes: bit 0 ready with media, bit 1 ready independent of media.
    pub crms: u8,
}

impl Capabilities {
    /// CSS bit: the NVM command set.
    pub const CSS_NVM: u8 = 1;
    /// CSS bit: one or more I/O command sets, chosen by CC.CSS = 110b.
    pub const CSS_IO_SETS: u8 = 1 << 6;
    /// CRMS bit: ready means that the media are ready.
    pub const CRMS_WITH_MEDIA: u8 = 1;

    /// The 64 bits of the property.
    pub const fn bits(self) -> u64 {
        self.mqes as u64
            | (self.cqr as u64) << 16
            | (self.ams as u64 & 3) << 17
            | (self.to as u64) << 24
            | (self.nssrs as u64) << 36
            | (self.css as u64) << 37
            | (self.mpsmin as u64 & 0xf) << 48
            | (self.mpsmax as u64 & 0xf) << 52
            | (self.crms as u64 & 3) << 59
    }

    /// Reads the property; fields that are not kept are ignored.
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            mqes: bits as u16,
            cqr: bits & 1 << 16 != 0,
            ams: (bits >> 17) as u8 & 3,
            to: (bits >> 24) as u8,
            nssrs: bits & 1 << 36 != 0,
            css: (bits >> 37) as u8,
            mpsmin: (bits >> 48) as u8 & 0xf,
            mpsmax: (bits >> 52) as u8 & 0xf,
            crms: (bits >> 59) as u8 & 3,
        }
    }
}

/// Version (VS).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Version {
    /// Major.
    pub major: u16,
    /// Minor.
    pub minor: u8,
    /// Tertiary.
    pub tertiary: u8,
}

impl Version {
    /// 1.4.
    pub const V1_4: Self = Self {
        major: 1,
        minor: 4,
        tertiary: 0,
    };
    /// 2.0.
    pub const V2_0: Self = Self {
        major: 2,
        minor: 0,
        tertiary: 0,
    };

    /// The 32 bits of the property.
    pub const fn bits(self) -> u32 {
        (self.major as u32) << 16 | (self.minor as u32) << 8 | self.tertiary as u32
    }

    /// Reads the property.
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            major: (bits >> 16) as u16,
            minor: (bits >> 8) as u8,
            tertiary: bits as u8,
        }
    }
}

/// Shutdown Notification (CC.SHN).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Shutdown {
    /// 00b.
    #[default]
    None,
    /// 01b.
    Normal,
    /// 10b.
    Abrupt,
    /// 11b.
    Reserved,
}

/// Controller Configuration (CC).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Configuration {
    /// Enable.
    pub en: bool,
    /// Command Set Selected: 000b NVM, 110b all supported, 111b Admin only.
    pub css: u8,
    /// Memory Page Size: 2^(12 + n) bytes.
    pub mps: u8,
    /// Arbitration Mechanism Selected: 000b round robin, 001b weighted round robin with urgent.
    pub ams: u8,
    /// Shutdown Notification.
    pub shn: Shutdown,
    /// I/O Submission Queue Entry Size, 2^n bytes; 6.
    pub iosqes: u8,
    /// I/O Completion Queue Entry Size, 2^n bytes; 4.
    pub iocqes: u8,
    /// Controller Ready Independent of Media Enable.
    pub crime: bool,
}

impl Configuration {
    /// The 32 bits of the property.
    pub const fn bits(self) -> u32 {
        self.en as u32
            | (self.css as u32 & 7) << 4
            | (self.mps as u32 & 0xf) << 7
            | (self.ams as u32 & 7) << 11
            | (self.shn as u32) << 14
            | (self.iosqes as u32 & 0xf) << 16
            | (self.iocqes as u32 & 0xf) << 20
            | (self.crime as u32) << 24
    }

    /// Reads the property; reserved bits are ignored.
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            en: bits & 1 != 0,
            css: (bits >> 4) as u8 & 7,
            mps: (bits >> 7) as u8 & 0xf,
            ams: (bits >> 11) as u8 & 7,
            shn: match bits >> 14 & 3 {
                0 => Shutdown::None,
                1 => Shutdown::Normal,
                2 => Shutdown::Abrupt,
                _ => Shutdown::Reserved,
            },
            iosqes: (bits >> 16) as u8 & 0xf,
            iocqes: (bits >> 20) as u8 & 0xf,
            crime: bits & 1 << 24 != 0,
        }
    }
}

/// Shutdown Status (CSTS.SHST).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ShutdownStatus {
    /// 00b: no shutdown was asked for.
    #[default]
    Normal,
    /// 01b.
    Occurring,
    /// 10b.
    Complete,
    /// 11b.
    Reserved,
}

/// Controller Status (CSTS).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ControllerStatus {
    /// Ready.
    pub rdy: bool,
    /// Controller Fatal Status.
    pub cfs: bool,
    /// Shutdown Status.
    pub shst: ShutdownStatus,
    /// NVM Subsystem Reset Occurred.
    pub nssro: bool,
    /// Processing Paused.
    pub pp: bool,
}

impl ControllerStatus {
    /// The 32 bits of the property.
    pub const fn bits(self) -> u32 {
        self.rdy as u32
            | (self.cfs as u32) << 1
            | (self.shst as u32) << 2
            | (self.nssro as u32) << 4
            | (self.pp as u32) << 5
    }

    /// Reads the property; reserved bits are ignored.
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            rdy: bits & 1 != 0,
            cfs: bits & 2 != 0,
            shst: match bits >> 2 & 3 {
                0 => ShutdownStatus::Normal,
                1 => ShutdownStatus::Occurring,
                2 => ShutdownStatus::Complete,
                _ => ShutdownStatus::Reserved,
            },
            nssro: bits & 1 << 4 != 0,
            pp: bits & 1 << 5 != 0,
        }
    }
}

/// Controller Ready Timeouts (CRTO), in units of 500 ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadyTimeouts {
    /// Controller Ready With Media Timeout.
    pub crwmt: u16,
    /// Controller Ready Independent of Media Timeout.
    pub crimt: u16,
}

impl ReadyTimeouts {
    /// The 32 bits of the property.
    pub const fn bits(self) -> u32 {
        self.crwmt as u32 | (self.crimt as u32) << 16
    }

    /// Reads the property.
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            crwmt: bits as u16,
            crimt: (bits >> 16) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_bits() {
        let cap = Capabilities {
            mqes: 127,
            cqr: true,
            ams: 1,
            to: 20,
            nssrs: false,
            css: Capabilities::CSS_NVM | Capabilities::CSS_IO_SETS,
            mpsmin: 0,
            mpsmax: 0,
            crms: Capabilities::CRMS_WITH_MEDIA,
        };
        assert_eq!(cap.bits(), 0x0800_0820_1403_007f);
        assert_eq!(Capabilities::from_bits(cap.bits()), cap);
        assert_eq!(
            Capabilities::from_bits(cap.bits() | 1 << 63 | 1 << 19),
            cap,
            "reserved bits do not matter"
        );
    }

    #[test]
    fn configuration_and_status_bits() {
        let cc = Configuration {
            en: true,
            iosqes: 6,
            iocqes: 4,
            css: 6,
            ..Configuration::default()
        };
        assert_eq!(cc.bits(), 0x0046_0061);
        assert_eq!(Configuration::from_bits(0x0046_0061), cc);
        assert_eq!(
            Configuration::from_bits(0xfe46_0069),
            cc,
            "reserved bits do not matter"
        );
        assert_eq!(Configuration::from_bits(0x0046_4001).shn, Shutdown::Normal);
        let csts = ControllerStatus {
            rdy: true,
            shst: ShutdownStatus::Complete,
            ..ControllerStatus::default()
        };
        assert_eq!(csts.bits(), 0x9);
        assert_eq!(ControllerStatus::from_bits(0x9), csts);
        assert_eq!(Version::V2_0.bits(), 0x0002_0000);
        assert_eq!(Version::from_bits(0x0001_0400), Version::V1_4);
        assert_eq!(
            ReadyTimeouts {
                crwmt: 20,
                crimt: 1
            }
            .bits(),
            0x1_0014
        );
        assert_eq!(
            ReadyTimeouts::from_bits(0x1_0014),
            ReadyTimeouts {
                crwmt: 20,
                crimt: 1
            }
        );
    }

    #[test]
    fn property_commands() {
        let get = SubmissionQueueEntry::property_get(Property::Capabilities as u32, true);
        assert_eq!(
            Property::at(get.property_offset()),
            Some(Property::Capabilities)
        );
        assert_eq!(get.property_size(), Property::Capabilities.size());
        let set = SubmissionQueueEntry::property_set(0x14, false, 0x0102_0304_0506_0708);
        assert_eq!(
            (set.property_offset(), set.property_value()),
            (0x14, 0x0102_0304_0506_0708)
        );
        assert_eq!(set.property_size(), PropertySize::Four);
        assert_eq!(set.with_cdw(10, 5).property_size(), PropertySize::Reserved);
        assert_eq!(Property::at(0x18), None);
    }
}
