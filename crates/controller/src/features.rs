//! Get Features and Set Features. Nothing is saved over a reset, for hosts set what they need at
//! every connect. What belongs to a namespace is the same for all controllers of its subsystem.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;

use flashyard_nvme::feature::{
    AsyncEventConfiguration, CompletionCoalescing, ErrorRecovery, FeatureId,
    HOST_IDENTIFIER_EXTENDED, HostBehavior, NumberOfQueues, POWER_STATE_MASK, Select,
    SupportedCapabilities, TemperatureThreshold, Timestamp, WRITE_ATOMICITY_DISABLE_NORMAL,
    WRITE_CACHE_ENABLE,
};
use flashyard_nvme::identify::NSID_ALL;
use flashyard_nvme::{Status, SubmissionQueueEntry};
use flashyard_time::Time;

use super::admin::{AdminOutcome, Answer, SubsystemView};
use super::identify::WARNING_TEMPERATURE;
use super::limits::ControllerLimits;
use super::transfer::within;
use super::{Controller, ControllerKind, Room};
use crate::pcie::InterruptCoalescing;

/// What holds for a feature whatever its value.
pub(super) struct Traits {
    pub(super) id: FeatureId,
    /// Discovery controllers have it too.
    on_discovery: bool,
    /// Only functions on PCIe have it.
    only_pcie: bool,
    /// Set Features can change it.
    changeable: bool,
    /// Bytes of data its value has; 0 if the value is a dword.
    data: u32,
    /// Each namespace has a value of its own; otherwise the controller has one.
    pub(super) of_namespace: bool,
}

const fn dword(id: FeatureId) -> Traits {
    Traits {
        id,
        on_discovery: false,
        only_pcie: false,
        changeable: true,
        data: 0,
        of_namespace: false,
    }
}

const FEATURES: [Traits; 16] = [
    dword(FeatureId::ARBITRATION),
    dword(FeatureId::POWER_MANAGEMENT),
    dword(FeatureId::TEMPERATURE_THRESHOLD),
    Traits {
        of_namespace: true,
        ..dword(FeatureId::ERROR_RECOVERY)
    },
    Traits {
        changeable: false,
        ..dword(FeatureId::VOLATILE_WRITE_CACHE)
    },
    dword(FeatureId::NUMBER_OF_QUEUES),
    Traits {
        only_pcie: true,
        ..dword(FeatureId::INTERRUPT_COALESCING)
    },
    Traits {
        only_pcie: true,
        ..dword(FeatureId::INTERRUPT_VECTOR)
    },
    dword(FeatureId::WRITE_ATOMICITY),
    Traits {
        on_discovery: true,
        ..dword(FeatureId::ASYNC_EVENT_CONFIGURATION)
    },
    Traits {
        data: Timestamp::LEN as u32,
        ..dword(FeatureId::TIMESTAMP)
    },
    Traits {
        on_discovery: true,
        ..dword(FeatureId::KEEP_ALIVE_TIMER)
    },
    Traits {
        data: HostBehavior::LEN as u32,
        ..dword(FeatureId::HOST_BEHAVIOR_SUPPORT)
    },
    Traits {
        changeable: false,
        data: 16,
        ..dword(FeatureId::HOST_IDENTIFIER)
    },
    dword(FeatureId::COMPLETION_COALESCING),
    dword(FeatureId::COMMAND_CREDITS),
];

/// Coalescing Disable of Interrupt Vector Configuration.
const COALESCING_DISABLE: u32 = 1 << 16;

const INVALID: Status = Status::INVALID_FIELD.with_dnr();

/// The features of a kind of controller, on PCIe or on fabrics.
pub(super) fn all(kind: ControllerKind, pcie: bool) -> impl Iterator<Item = &'static Traits> {
    let io = kind == ControllerKind::Io;
    let of_kind = FEATURES
        .iter()
        .filter(move |feature| io || feature.on_discovery);
    of_kind.filter(move |feature| pcie || !feature.only_pcie)
}

/// Bytes of data that Set Features of this feature brings.
pub(super) fn data_of_set(id: u8) -> u32 {
    FEATURES
        .iter()
        .find(|feature| feature.id.0 == id && feature.changeable)
        .map_or(0, |feature| feature.data)
}

/// Bytes of data that Get Features of this feature gives.
pub(super) fn data_of_get(id: u8) -> u32 {
    let mut all = FEATURES.iter();
    all.find(|feature| feature.id.0 == id)
        .map_or(0, |feature| feature.data)
}

/// Values that are kept here; the others belong to other parts of the controller.
#[derive(Clone, Debug)]
pub(super) struct Features {
    arbitration: u32,
    over_temperature: u16,
    under_temperature: u16,
    /// AWUN is no greater than AWUPF, so there is nothing to disable; kept for the host to read.
    write_atomicity: u32,
    queues: Option<NumberOfQueues>,
    interrupts: InterruptCoalescing,
    /// Vectors whose interrupts are not coalesced.
    uncoalesced: BTreeSet<u16>,
    timestamp: Timestamp,
    timestamp_set: Time,
    behavior: HostBehavior,
    coalescing: CompletionCoalescing,
    credits: bool,
}

/// What the namespaces of a subsystem have as features, by namespace; those that are not there have
/// the default.
#[derive(Debug, Default)]
pub struct NamespaceFeatures {
    /// The devices below limit their error recovery themselves; kept for hosts to read.
    error_recovery: RefCell<BTreeMap<u32, ErrorRecovery>>,
}

impl NamespaceFeatures {
    /// A namespace has gone: another one of its number begins with the defaults.
    pub fn forget(&mut self, nsid: u32) {
        self.error_recovery.get_mut().remove(&nsid);
    }

    fn error_recovery(&self, nsid: u32) -> ErrorRecovery {
        let values = self.error_recovery.borrow();
        values.get(&nsid).copied().unwrap_or_default()
    }
}

enum Value {
    Dword(u32),
    Data(Vec<u8>),
}

impl Features {
    pub(super) fn new(now: Time) -> Self {
        Self {
            arbitration: 0,
            over_temperature: WARNING_TEMPERATURE,
            under_temperature: 0,
            write_atomicity: 0,
            queues: None,
            interrupts: InterruptCoalescing::default(),
            uncoalesced: BTreeSet::new(),
            timestamp: Timestamp::default(),
            timestamp_set: now,
            behavior: HostBehavior::default(),
            coalescing: CompletionCoalescing::default(),
            credits: false,
        }
    }

    /// How the host wants successes to be reported.
    pub(super) fn coalescing(&self) -> CompletionCoalescing {
        self.coalescing
    }

    /// Whether the host wants to know what it may have outstanding.
    pub(super) fn credits(&self) -> bool {
        self.credits
    }

    pub(super) fn interrupt_coalescing(&self, vector: u16) -> Option<InterruptCoalescing> {
        (!self.uncoalesced.contains(&vector)).then_some(self.interrupts)
    }

    /// Interrupt Vector Configuration: bit 16 switches coalescing off. Vector 0, that of the Admin
    /// queue, is never coalesced.
    fn set_vector(&mut self, value: u32, vectors: u16) -> Result<(), Status> {
        let vector = known_vector(value, vectors)?;
        if value & COALESCING_DISABLE == 0 {
            self.uncoalesced.remove(&vector);
        } else {
            self.uncoalesced.insert(vector);
        }
        Ok(())
    }

    fn vector(&self, value: u32, vectors: u16) -> Result<u32, Status> {
        let vector = known_vector(value, vectors)?;
        let disabled = self.uncoalesced.contains(&vector);
        Ok(u32::from(vector) | (u32::from(disabled) * COALESCING_DISABLE))
    }

    /// I/O queues granted; all that there can be until the host has asked.
    pub(super) fn granted_queues(&self, limits: &ControllerLimits) -> u16 {
        self.queues.map_or(limits.io_queues, |granted| {
            granted.submission.min(granted.completion) + 1
        })
    }

    fn set_temperature(&mut self, value: u32) -> Result<(), Status> {
        let threshold = TemperatureThreshold::from_bits(value);
        *match (threshold.sensor, threshold.kind) {
            (0 | 0xf, 0) => &mut self.over_temperature,
            (0 | 0xf, 1) => &mut self.under_temperature,
            _ => return Err(INVALID),
        } = threshold.kelvin;
        Ok(())
    }

    fn temperature(&self, value: u32) -> Result<u32, Status> {
        let asked = TemperatureThreshold::from_bits(value);
        match (asked.sensor, asked.kind) {
            (0, 0) => Ok(self.over_temperature.into()),
            (0, 1) => Ok(self.under_temperature.into()),
            _ => Err(INVALID),
        }
    }

    fn timestamp(&self, now: Time) -> Timestamp {
        let elapsed = now.since(self.timestamp_set).as_ms();
        Timestamp {
            milliseconds: self.timestamp.milliseconds.wrapping_add(elapsed),
            ..self.timestamp
        }
    }

    fn set_behavior(&mut self, data: &[u8]) -> Result<(), Status> {
        let data: &[u8; HostBehavior::LEN] = data
            .first_chunk()
            .ok_or(Status::DATA_SGL_LENGTH_INVALID.with_dnr())?;
        if data[..3].iter().any(|flag| *flag > 1) {
            return Err(INVALID);
        }
        self.behavior = HostBehavior::decode(data);
        Ok(())
    }
}

impl Controller {
    /// Whether the host waits as Command Retry Delay says (ACRE); otherwise that field is to be 0.
    pub fn honours_retry_delay(&self) -> bool {
        self.features.behavior.acre
    }

    pub(super) fn get_features(
        &self,
        now: Time,
        sqe: &SubmissionQueueEntry,
        view: &SubsystemView<'_>,
        room: Room,
    ) -> Result<AdminOutcome, Status> {
        let feature = self.feature(sqe)?;
        let value = match Select::from_bits(sqe.feature_select()) {
            Select::Supported => Value::Dword(
                SupportedCapabilities {
                    saveable: false,
                    namespace_specific: feature.of_namespace,
                    changeable: feature.changeable,
                }
                .dw0(),
            ),
            select if feature.of_namespace => {
                let nsid = attached(sqe.nsid(), view)?;
                Value::Dword(match select {
                    Select::Current => view.features.error_recovery(nsid).bits(),
                    _ => ErrorRecovery::default().bits(),
                })
            }
            Select::Current => self.current(feature.id, sqe, now, &self.features)?,
            // What cannot be saved has its default as the saved value.
            Select::Default | Select::Saved => self.default_value(feature.id, sqe, now)?,
            Select::Reserved => return Err(INVALID),
        };
        Ok(match value {
            Value::Dword(dw0) => AdminOutcome::Complete(Answer::dw0(dw0)),
            Value::Data(mut page) => {
                let bytes = within(room, feature.data, self.transport.admin_bytes)?;
                page.resize(bytes as usize, 0);
                AdminOutcome::Data { page, dw0: 0 }
            }
        })
    }

    pub(super) fn set_features(
        &mut self,
        now: Time,
        sqe: &SubmissionQueueEntry,
        view: &SubsystemView<'_>,
        data: &[u8],
    ) -> Result<Answer, Status> {
        let feature = self.feature(sqe)?;
        if sqe.feature_save() {
            return Err(Status::FEATURE_NOT_SAVEABLE.with_dnr());
        }
        if sqe.nsid() != 0 && sqe.nsid() != NSID_ALL && !feature.of_namespace {
            return Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC.with_dnr());
        }
        let value = sqe.cdw11();
        match feature.id {
            FeatureId::ARBITRATION => self.features.arbitration = value,
            FeatureId::POWER_MANAGEMENT if value & POWER_STATE_MASK == 0 => {}
            FeatureId::TEMPERATURE_THRESHOLD => self.features.set_temperature(value)?,
            FeatureId::ERROR_RECOVERY => set_error_recovery(sqe.nsid(), value, view)?,
            FeatureId::VOLATILE_WRITE_CACHE => allow_cache(value)?,
            FeatureId::NUMBER_OF_QUEUES => return self.set_queues(value),
            FeatureId::INTERRUPT_COALESCING => {
                self.features.interrupts = InterruptCoalescing::from_bits(value);
            }
            FeatureId::INTERRUPT_VECTOR => {
                let vectors = self.vectors();
                self.features.set_vector(value, vectors)?;
            }
            FeatureId::WRITE_ATOMICITY => {
                self.features.write_atomicity = value & WRITE_ATOMICITY_DISABLE_NORMAL;
            }
            FeatureId::ASYNC_EVENT_CONFIGURATION => {
                self.events.configure(AsyncEventConfiguration(value));
            }
            FeatureId::TIMESTAMP => self.set_timestamp(now, data)?,
            FeatureId::KEEP_ALIVE_TIMER => self.set_keep_alive(now, value)?,
            FeatureId::HOST_BEHAVIOR_SUPPORT => self.features.set_behavior(data)?,
            FeatureId::COMPLETION_COALESCING => {
                let asked = CompletionCoalescing::from_bits(value).ok_or(INVALID)?;
                self.features.coalescing = asked;
            }
            FeatureId::COMMAND_CREDITS if value <= 1 => self.features.credits = value == 1,
            // On fabrics the Host Identifier comes with Connect.
            FeatureId::HOST_IDENTIFIER => return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr()),
            _ => return Err(INVALID),
        }
        Ok(Answer::SUCCESS)
    }

    fn feature(&self, sqe: &SubmissionQueueEntry) -> Result<&'static Traits, Status> {
        all(self.kind, self.transport.pcie.is_some())
            .find(|feature| feature.id.0 == sqe.feature_id())
            .ok_or(INVALID)
    }

    /// Interrupt vectors; none on fabrics.
    fn vectors(&self) -> u16 {
        self.transport.pcie.map_or(0, |pcie| pcie.vectors)
    }

    fn current(
        &self,
        id: FeatureId,
        sqe: &SubmissionQueueEntry,
        now: Time,
        features: &Features,
    ) -> Result<Value, Status> {
        Ok(Value::Dword(match id {
            FeatureId::ARBITRATION => features.arbitration,
            FeatureId::TEMPERATURE_THRESHOLD => features.temperature(sqe.cdw11())?,
            FeatureId::VOLATILE_WRITE_CACHE => WRITE_CACHE_ENABLE,
            FeatureId::NUMBER_OF_QUEUES => {
                let zero_based = features.granted_queues(&self.limits) - 1;
                queues(zero_based, zero_based).bits()
            }
            FeatureId::INTERRUPT_COALESCING => features.interrupts.bits(),
            FeatureId::INTERRUPT_VECTOR => features.vector(sqe.cdw11(), self.vectors())?,
            FeatureId::WRITE_ATOMICITY => features.write_atomicity,
            FeatureId::COMPLETION_COALESCING => features.coalescing.bits(),
            FeatureId::COMMAND_CREDITS => features.credits.into(),
            FeatureId::ASYNC_EVENT_CONFIGURATION => self.events.configuration().0,
            FeatureId::KEEP_ALIVE_TIMER => self.keep_alive.kato(),
            FeatureId::TIMESTAMP => {
                return Ok(Value::Data(features.timestamp(now).encode().to_vec()));
            }
            FeatureId::HOST_BEHAVIOR_SUPPORT => {
                return Ok(Value::Data(features.behavior.encode().to_vec()));
            }
            FeatureId::HOST_IDENTIFIER if sqe.cdw11() & HOST_IDENTIFIER_EXTENDED == 0 => {
                return Err(Status::HOST_IDENTIFIER_INCONSISTENT.with_dnr());
            }
            FeatureId::HOST_IDENTIFIER => return Ok(Value::Data(self.host.id.to_vec())),
            // Power Management: there is one state.
            _ => 0,
        }))
    }

    fn default_value(
        &self,
        id: FeatureId,
        sqe: &SubmissionQueueEntry,
        now: Time,
    ) -> Result<Value, Status> {
        match id {
            FeatureId::ASYNC_EVENT_CONFIGURATION | FeatureId::KEEP_ALIVE_TIMER => {
                Ok(Value::Dword(0))
            }
            _ => self.current(id, sqe, now, &Features::new(now)),
        }
    }

    /// What is granted: what is asked for, up to the limit.
    fn set_queues(&mut self, value: u32) -> Result<Answer, Status> {
        let asked = NumberOfQueues::from_bits(value);
        if !asked.is_valid_request() {
            return Err(INVALID);
        }
        if self.queues().len() != 0 {
            return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr());
        }
        let most = self.limits.io_queues - 1;
        let granted = queues(asked.submission.min(most), asked.completion.min(most));
        self.features.queues = Some(granted);
        Ok(Answer::dw0(granted.bits()))
    }

    fn set_timestamp(&mut self, now: Time, data: &[u8]) -> Result<(), Status> {
        let data = data
            .first_chunk()
            .ok_or(Status::DATA_SGL_LENGTH_INVALID.with_dnr())?;
        self.features.timestamp = Timestamp {
            milliseconds: Timestamp::decode(*data).milliseconds,
            origin: 1,
            may_have_stopped: false,
        };
        self.features.timestamp_set = now;
        Ok(())
    }

    /// On fabrics a host cannot do without the timer once it has one.
    fn set_keep_alive(&mut self, now: Time, kato: u32) -> Result<(), Status> {
        if kato == 0 {
            return Err(Status::KEEP_ALIVE_INVALID.with_dnr());
        }
        self.keep_alive.set(kato, now);
        Ok(())
    }
}

/// The vector of an Interrupt Vector Configuration, if there is one of this number.
fn known_vector(value: u32, vectors: u16) -> Result<u16, Status> {
    let vector = value as u16;
    if vector < vectors {
        Ok(vector)
    } else {
        Err(INVALID)
    }
}

/// The namespace that a Get Features names: one that is attached. FFFFFFFFh names none, for each
/// has its own value.
fn attached(nsid: u32, view: &SubsystemView<'_>) -> Result<u32, Status> {
    if !view.subsystem.is_valid_nsid(nsid) {
        return Err(Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr());
    }
    match view.subsystem.namespaces.contains_key(&nsid) {
        true => Ok(nsid),
        false => Err(INVALID),
    }
}

/// FFFFFFFFh sets it for all namespaces that are attached. NSFEAT says that errors for deallocated
/// blocks are not supported.
fn set_error_recovery(nsid: u32, value: u32, view: &SubsystemView<'_>) -> Result<(), Status> {
    let recovery = ErrorRecovery::from_bits(value);
    let all = view.subsystem.namespaces.keys().copied();
    let named: Vec<u32> = match nsid {
        NSID_ALL => all.collect(),
        one => vec![attached(one, view)?],
    };
    if recovery.dulbe {
        return Err(INVALID);
    }
    let mut values = view.features.error_recovery.borrow_mut();
    values.extend(named.into_iter().map(|nsid| (nsid, recovery)));
    Ok(())
}

/// The cache belongs to devices that other tenants use too: a host cannot switch it off, it can use
/// FUA.
fn allow_cache(value: u32) -> Result<(), Status> {
    if value & WRITE_CACHE_ENABLE == 0 {
        return Err(Status::FEATURE_NOT_CHANGEABLE.with_dnr());
    }
    Ok(())
}

fn queues(submission: u16, completion: u16) -> NumberOfQueues {
    NumberOfQueues {
        submission,
        completion,
    }
}

#[cfg(test)]
mod tests;
