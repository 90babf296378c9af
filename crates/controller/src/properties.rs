//! The properties of a controller (Base Specification, section 3.1.4): its registers, however a
//! transport reads and writes them.

use flashyard_nvme::Status;
use flashyard_nvme::fabrics::{
    Capabilities, Configuration, ControllerStatus, Property, PropertySize, ReadyTimeouts, Shutdown,
    ShutdownStatus, Version,
};

/// The version of the specification that is kept to.
pub const VERSION: Version = Version::V2_0;

/// How long a host should wait for CSTS.RDY, in units of 500 ms. The answer is immediate; this is
/// for a slow network.
const READY_TIMEOUT: u8 = 30;

/// CAP.AMS: beside round robin, weighted round robin with urgent class is there; the same number
/// selects it in CC.AMS.
const WEIGHTED_ROUND_ROBIN: u8 = 1;

/// What the front end has to do after a property was set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// CC.EN went to 1: the controller is ready.
    Enabled,
    /// CC.EN went to 0: abort all commands, drop all I/O queues. The Admin queue stays.
    Reset,
    /// The host says goodbye; CSTS.SHST is "complete" already, for nothing is held back that a
    /// Flush would save.
    Shutdown {
        /// CC.SHN was "abrupt".
        abrupt: bool,
    },
}

/// Property values of one controller.
#[derive(Clone, Debug)]
pub struct Properties {
    capabilities: Capabilities,
    configuration: Configuration,
    status: ControllerStatus,
}

impl Properties {
    /// Of a controller that has just been created: not enabled.
    pub fn new(queue_depth: u16) -> Self {
        Self {
            capabilities: Capabilities {
                mqes: queue_depth.saturating_sub(1),
                cqr: true,
                to: READY_TIMEOUT,
                css: Capabilities::CSS_NVM,
                ams: WEIGHTED_ROUND_ROBIN,
                crms: Capabilities::CRMS_WITH_MEDIA,
                ..Capabilities::default()
            },
            configuration: Configuration::default(),
            status: ControllerStatus::default(),
        }
    }

    /// Whether weighted round robin with urgent class was selected.
    pub fn is_weighted(&self) -> bool {
        self.configuration.ams == WEIGHTED_ROUND_ROBIN
    }

    /// Whether commands other than fabrics commands are taken.
    pub fn is_ready(&self) -> bool {
        self.status.rdy && !self.status.cfs && self.status.shst == ShutdownStatus::Normal
    }

    /// Whether I/O queues may be made: ready, with the only entry sizes there are.
    pub fn takes_io_queues(&self) -> bool {
        self.is_ready() && self.configuration.iosqes == 6 && self.configuration.iocqes == 4
    }

    /// Sets Controller Fatal Status, until a reset.
    pub fn set_fatal(&mut self) {
        self.status.cfs = true;
    }

    /// CSTS.
    pub fn status(&self) -> ControllerStatus {
        self.status
    }

    /// The value of a property.
    ///
    /// # Errors
    /// Invalid Field: it has another size.
    pub fn get(&self, property: Property, size: PropertySize) -> Result<u64, Status> {
        if property.size() != size {
            return Err(INVALID);
        }
        Ok(match property {
            Property::Capabilities => self.capabilities.bits(),
            Property::Version => VERSION.bits().into(),
            Property::Configuration => self.configuration.bits().into(),
            Property::Status => self.status.bits().into(),
            // CAP.NSSRS says that there is no subsystem reset.
            Property::SubsystemReset => 0,
            Property::ReadyTimeouts => {
                let timeouts = ReadyTimeouts {
                    crwmt: READY_TIMEOUT.into(),
                    crimt: 0,
                };
                timeouts.bits().into()
            }
        })
    }

    /// Sets a property.
    ///
    /// # Errors
    /// Invalid Field: it has another size, cannot be set or not to this value. Nothing has changed
    /// then.
    pub fn set(
        &mut self,
        property: Property,
        size: PropertySize,
        value: u64,
    ) -> Result<Option<Effect>, Status> {
        if property != Property::Configuration || property.size() != size {
            return Err(INVALID);
        }
        self.configure(Configuration::from_bits(value as u32))
    }

    /// Whether a controller can be enabled so, but for the sizes of entries.
    pub(crate) fn supports(&self, wanted: Configuration) -> bool {
        wanted.css == 0 && wanted.mps == 0 && wanted.ams <= self.capabilities.ams && !wanted.crime
    }

    fn configure(&mut self, wanted: Configuration) -> Result<Option<Effect>, Status> {
        if (wanted.en && !self.supports(wanted)) || wanted.shn == Shutdown::Reserved {
            return Err(INVALID);
        }
        let before = core::mem::replace(&mut self.configuration, wanted);
        if before.en != wanted.en {
            self.status = ControllerStatus {
                rdy: wanted.en,
                ..ControllerStatus::default()
            };
            return Ok(Some(if wanted.en {
                Effect::Enabled
            } else {
                Effect::Reset
            }));
        }
        let shutdown = match wanted.shn {
            Shutdown::Normal | Shutdown::Abrupt if before.shn != wanted.shn => {
                self.status.shst = ShutdownStatus::Complete;
                Some(Effect::Shutdown {
                    abrupt: wanted.shn == Shutdown::Abrupt,
                })
            }
            _ => None,
        };
        Ok(shutdown)
    }
}

const INVALID: Status = Status::INVALID_FIELD.with_dnr();

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: Property = Property::Capabilities;
    const VS: Property = Property::Version;
    const CC: Property = Property::Configuration;
    const CSTS: Property = Property::Status;
    const NSSR: Property = Property::SubsystemReset;
    const CRTO: Property = Property::ReadyTimeouts;

    fn get(properties: &Properties, property: Property) -> Result<u64, Status> {
        properties.get(property, property.size())
    }

    fn set(properties: &mut Properties, cc: u64) -> Result<Option<Effect>, Status> {
        properties.set(CC, PropertySize::Four, cc)
    }

    #[test]
    fn what_a_host_reads() {
        let properties = Properties::new(128);
        let capabilities = Capabilities::from_bits(get(&properties, CAP).expect("CAP"));
        assert_eq!((capabilities.mqes, capabilities.cqr), (127, true));
        assert_eq!(capabilities.css, Capabilities::CSS_NVM);
        assert_eq!(capabilities.crms, Capabilities::CRMS_WITH_MEDIA);
        for (property, value) in [
            (VS, 0x0002_0000),
            (CC, 0),
            (CSTS, 0),
            (NSSR, 0),
            (CRTO, u64::from(READY_TIMEOUT)),
        ] {
            assert_eq!(get(&properties, property), Ok(value), "{property:?}");
        }
    }

    #[test]
    fn wrong_sizes_and_what_cannot_be_set() {
        let mut properties = Properties::new(128);
        let (four, eight) = (PropertySize::Four, PropertySize::Eight);
        for (property, size) in [
            (CAP, four),
            (VS, eight),
            (CC, eight),
            (CSTS, eight),
            (VS, PropertySize::Reserved),
        ] {
            assert_eq!(properties.get(property, size), Err(INVALID), "{property:?}");
        }
        for (property, size) in [
            (CAP, eight),
            (VS, four),
            (CSTS, four),
            (NSSR, four),
            (CRTO, four),
            (CC, eight),
        ] {
            let set = properties.set(property, size, 0);
            assert_eq!(set, Err(INVALID), "{property:?}");
        }
    }

    #[test]
    fn enable_shut_down_reset() {
        let mut properties = Properties::new(128);
        assert_eq!(
            set(&mut properties, 0x46_0000),
            Ok(None),
            "entry sizes, not enabled"
        );
        assert!(!properties.is_ready());
        assert_eq!(set(&mut properties, 0x46_0001), Ok(Some(Effect::Enabled)));
        assert!(properties.is_ready() && properties.takes_io_queues());
        assert_eq!(get(&properties, CSTS), Ok(1));
        assert_eq!(set(&mut properties, 0x46_0001), Ok(None));

        let normal = Effect::Shutdown { abrupt: false };
        assert_eq!(set(&mut properties, 0x46_4001), Ok(Some(normal)));
        assert_eq!(
            get(&properties, CSTS),
            Ok(0b1001),
            "ready, shutdown complete"
        );
        assert!(!properties.is_ready(), "no commands after a shutdown");
        assert_eq!(set(&mut properties, 0x46_4001), Ok(None), "reported once");

        assert_eq!(set(&mut properties, 0x46_0000), Ok(Some(Effect::Reset)));
        assert_eq!(get(&properties, CSTS), Ok(0));
        assert_eq!(set(&mut properties, 0x46_0001), Ok(Some(Effect::Enabled)));
        let abrupt = Effect::Shutdown { abrupt: true };
        assert_eq!(set(&mut properties, 0x46_8001), Ok(Some(abrupt)));
    }

    #[test]
    fn a_fatal_status_stays_until_a_reset() {
        let mut properties = Properties::new(128);
        set(&mut properties, 0x46_0001).expect("enabled");
        properties.set_fatal();
        assert_eq!(get(&properties, CSTS), Ok(0b11));
        assert!(!properties.is_ready());
        set(&mut properties, 0x46_0000).expect("reset");
        set(&mut properties, 0x46_0001).expect("enabled");
        assert!(properties.is_ready());
    }

    #[test]
    fn what_cannot_be_configured() {
        let mut properties = Properties::new(128);
        for cc in [
            0x46_0061,  // CSS 110b
            0x46_0081,  // MPS 1
            0x46_1001,  // AMS 2
            0x46_c000,  // SHN 11b
            0x146_0001, // CRIME
        ] {
            assert_eq!(set(&mut properties, cc), Err(INVALID), "{cc:#x}");
        }
        assert_eq!(get(&properties, CC), Ok(0), "nothing has changed");
        assert_eq!(set(&mut properties, 1), Ok(Some(Effect::Enabled)));
        assert!(!properties.takes_io_queues(), "no entry sizes");
    }
}
