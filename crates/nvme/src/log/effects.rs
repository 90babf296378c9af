//! Logs about what a controller can do: log pages (00h), commands (05h), features (12h).

use crate::bytes::Field;

/// What a command does beside returning a result (one dword of the Commands Supported and Effects
/// log).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CommandEffects {
    /// Command Supported.
    pub csupp: bool,
    /// Logical Block Content Change.
    pub lbcc: bool,
    /// Namespace Capability Change.
    pub ncc: bool,
    /// Namespace Inventory Change.
    pub nic: bool,
    /// Controller Capability Change.
    pub ccc: bool,
    /// Command Submission and Execution: 0 without limit, 1 alone on the namespace, 2 alone.
    pub cse: u8,
}

impl CommandEffects {
    /// A command that is supported and changes nothing.
    pub const SUPPORTED: Self = Self {
        csupp: true,
        lbcc: false,
        ncc: false,
        nic: false,
        ccc: false,
        cse: 0,
    };
    /// A command that is supported and changes the content of logical blocks.
    pub const WRITES: Self = Self {
        lbcc: true,
        ..Self::SUPPORTED
    };

    /// The dword.
    pub const fn bits(self) -> u32 {
        self.csupp as u32
            | (self.lbcc as u32) << 1
            | (self.ncc as u32) << 2
            | (self.nic as u32) << 3
            | (self.ccc as u32) << 4
            | (self.cse as u32 & 7) << 16
    }

    /// Reads the dword; other bits are ignored.
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            csupp: bits & 1 != 0,
            lbcc: bits & 1 << 1 != 0,
            ncc: bits & 1 << 2 != 0,
            nic: bits & 1 << 3 != 0,
            ccc: bits & 1 << 4 != 0,
            cse: (bits >> 16) as u8 & 7,
        }
    }
}

/// Commands Supported and Effects log (05h), by opcode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EffectsLog {
    /// Admin commands.
    pub admin: [CommandEffects; 256],
    /// I/O commands of the asked command set.
    pub io: [CommandEffects; 256],
}

impl EffectsLog {
    /// Length in bytes.
    pub const LEN: usize = 4096;
    const IO: usize = 1024;

    /// A log of no command.
    pub const NONE: Self = Self {
        admin: [CommandEffects::from_bits(0); 256],
        io: [CommandEffects::from_bits(0); 256],
    };

    /// Writes the log.
    pub fn encode(&self, data: &mut [u8; Self::LEN]) {
        data.fill(0);
        for (i, effects) in self.admin.iter().chain(&self.io).enumerate() {
            effects.bits().put(data, i * 4);
        }
    }

    /// Reads the log.
    pub fn decode(data: &[u8; Self::LEN]) -> Self {
        let table = |from: usize| {
            core::array::from_fn(|i| CommandEffects::from_bits(Field::get(data, from + i * 4)))
        };
        Self {
            admin: table(0),
            io: table(Self::IO),
        }
    }
}

/// What setting a feature does (one dword of log 12h).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FeatureEffects {
    /// FID Supported.
    pub fsupp: bool,
    /// User Data Content Change.
    pub udcc: bool,
    /// Namespace Capability Change.
    pub ncc: bool,
    /// Namespace Inventory Change.
    pub nic: bool,
    /// Controller Capability Change.
    pub ccc: bool,
    /// FID Scope, 12 bits: bit 0 namespace, bit 1 controller, bit 2 NVM set, bit 3 endurance group,
    /// bit 4 domain, bit 5 subsystem.
    pub fsp: u16,
}

impl FeatureEffects {
    /// Scope: the namespace.
    pub const SCOPE_NAMESPACE: u16 = 1;
    /// Scope: the controller.
    pub const SCOPE_CONTROLLER: u16 = 1 << 1;
    /// Scope: the NVM subsystem.
    pub const SCOPE_SUBSYSTEM: u16 = 1 << 5;

    /// The dword.
    pub const fn bits(self) -> u32 {
        self.fsupp as u32
            | (self.udcc as u32) << 1
            | (self.ncc as u32) << 2
            | (self.nic as u32) << 3
            | (self.ccc as u32) << 4
            | (self.fsp as u32 & 0xfff) << 20
    }

    /// Reads the dword; other bits are ignored.
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            fsupp: bits & 1 != 0,
            udcc: bits & 1 << 1 != 0,
            ncc: bits & 1 << 2 != 0,
            nic: bits & 1 << 3 != 0,
            ccc: bits & 1 << 4 != 0,
            fsp: (bits >> 20) as u16,
        }
    }
}

/// Feature Identifiers Supported and Effects log (12h), by feature identifier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FeatureEffectsLog(pub [FeatureEffects; 256]);

impl FeatureEffectsLog {
    /// Length in bytes.
    pub const LEN: usize = 1024;
    /// A log of no feature.
    pub const NONE: Self = Self([FeatureEffects::from_bits(0); 256]);

    /// Writes the log.
    pub fn encode(&self, data: &mut [u8; Self::LEN]) {
        for (i, effects) in self.0.iter().enumerate() {
            effects.bits().put(data, i * 4);
        }
    }

    /// Reads the log.
    pub fn decode(data: &[u8; Self::LEN]) -> Self {
        Self(core::array::from_fn(|i| {
            FeatureEffects::from_bits(Field::get(data, i * 4))
        }))
    }
}

/// Supported Log Pages log (00h): which log pages there are, by identifier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SupportedLogs(pub [bool; 256]);

impl SupportedLogs {
    /// Length in bytes.
    pub const LEN: usize = 1024;

    /// Exactly these.
    pub fn of(ids: &[super::LogId]) -> Self {
        let mut logs = [false; 256];
        for id in ids {
            logs[usize::from(id.0)] = true;
        }
        Self(logs)
    }

    /// Writes the log.
    pub fn encode(&self, data: &mut [u8; Self::LEN]) {
        for (i, supported) in self.0.iter().enumerate() {
            u32::from(*supported).put(data, i * 4);
        }
    }

    /// Reads the log.
    pub fn decode(data: &[u8; Self::LEN]) -> Self {
        Self(core::array::from_fn(|i| u32::get(data, i * 4) & 1 != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogId;

    #[test]
    fn command_effects_both_ways() {
        let mut log = EffectsLog::NONE;
        log.admin[6] = CommandEffects::SUPPORTED;
        log.io[1] = CommandEffects {
            cse: 1,
            ..CommandEffects::WRITES
        };
        let mut data = [0xaa; EffectsLog::LEN];
        log.encode(&mut data);
        assert_eq!(data[24..28], [1, 0, 0, 0]);
        assert_eq!(data[1028..1032], [3, 0, 1, 0]);
        assert_eq!(data.iter().filter(|b| **b != 0).count(), 3);
        assert_eq!(EffectsLog::decode(&data), log);
        assert_eq!(
            CommandEffects::from_bits(0xfff8_ffe3),
            CommandEffects::WRITES,
            "reserved bits do not matter"
        );
    }

    #[test]
    fn feature_effects_both_ways() {
        let mut log = FeatureEffectsLog::NONE;
        log.0[7] = FeatureEffects {
            fsupp: true,
            ccc: true,
            fsp: FeatureEffects::SCOPE_CONTROLLER,
            ..Default::default()
        };
        let mut data = [0xaa; FeatureEffectsLog::LEN];
        log.encode(&mut data);
        assert_eq!(data[28..32], [0x11, 0, 0x20, 0]);
        assert_eq!(FeatureEffectsLog::decode(&data), log);
    }

    #[test]
    fn supported_logs_both_ways() {
        let log = SupportedLogs::of(&[LogId::SMART, LogId::DISCOVERY]);
        let mut data = [0xaa; SupportedLogs::LEN];
        log.encode(&mut data);
        assert_eq!((data[8], data[0x70 * 4]), (1, 1));
        assert_eq!(data.iter().filter(|b| **b != 0).count(), 2);
        assert_eq!(SupportedLogs::decode(&data), log);
    }
}
