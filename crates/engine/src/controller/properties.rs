//! The properties of a controller: what is read and written by Property Get and Property Set (Base Specification,
//! section 3.1.4).

use flashyard_nvme::fabrics::{
    Capabilities, Configuration, ControllerStatus, Property, ReadyTimeouts, Shutdown,
    ShutdownStatus, Version,
};
use flashyard_nvme::{Status, SubmissionQueueEntry};

/// The version of the specification that is kept to.
pub const VERSION: Version = Version::V2_0;

/// How long a host should wait for CSTS.RDY, in units of 500 ms. The answer is immediate; this is for a slow network.
const READY_TIMEOUT: u8 = 30;

/// What the transport has to do after a Property Set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// CC.EN went to 1: the controller is ready.
    Enabled,
    /// CC.EN went to 0: abort all commands, drop all I/O queues. The Admin queue stays.
    Reset,
    /// The host says goodbye; CSTS.SHST is "complete" already, for nothing is held back that a Flush would save.
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
                crms: Capabilities::CRMS_WITH_MEDIA,
                ..Capabilities::default()
            },
            configuration: Configuration::default(),
            status: ControllerStatus::default(),
        }
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

    /// Property Get: DW0 and DW1 of the answer.
    ///
    /// # Errors
    /// Invalid Field: there is no such property, or it has another size.
    pub fn get(&self, sqe: &SubmissionQueueEntry) -> Result<u64, Status> {
        Ok(match addressed(sqe)? {
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

    /// Property Set.
    ///
    /// # Errors
    /// Invalid Field: there is no such property, it has another size, cannot be set or not to this value. Nothing
    /// has changed then.
    pub fn set(&mut self, sqe: &SubmissionQueueEntry) -> Result<Option<Effect>, Status> {
        if addressed(sqe)? != Property::Configuration {
            return Err(INVALID);
        }
        let wanted = Configuration::from_bits(sqe.property_value() as u32);
        self.configure(wanted)
    }

    fn configure(&mut self, wanted: Configuration) -> Result<Option<Effect>, Status> {
        let supported = wanted.css == 0 && wanted.mps == 0 && wanted.ams == 0 && !wanted.crime;
        if (wanted.en && !supported) || wanted.shn == Shutdown::Reserved {
            return Err(INVALID);
        }
        let before = std::mem::replace(&mut self.configuration, wanted);
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

/// The property that a command means, if it asks for it in its size.
fn addressed(sqe: &SubmissionQueueEntry) -> Result<Property, Status> {
    Property::at(sqe.property_offset())
        .filter(|property| property.size() == sqe.property_size())
        .ok_or(INVALID)
}
