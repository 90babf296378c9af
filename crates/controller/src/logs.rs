//! The Get Log Page command.

use alloc::vec;
use alloc::vec::Vec;

use flashyard_nvme::identify::{CSI_NVM, NSID_ALL};
use flashyard_nvme::log::{
    self, CHANGED_NAMESPACES_LEN, CommandEffects, EffectsLog, ErrorLogEntry, FeatureEffects,
    FeatureEffectsLog, FirmwareSlotLog, LogId, SmartLog, StatisticsLog, SupportedLogs,
};
use flashyard_nvme::{AdminOpcode, IoOpcode, Status, SubmissionQueueEntry};

use super::admin::SubsystemView;
use super::health::{CommandError, Counters, ERROR_LOG_ENTRIES};
use super::identify::firmware_revision;
use super::transfer::within;
use super::{Controller, ControllerKind, EventKind, Room, features};

/// Composite temperature in kelvin: 40 degrees Celsius. No device here has a sensor; hosts that
/// watch temperatures take 0 K for a broken one.
const TEMPERATURE: u16 = 313;
/// Available Spare Threshold, percent: with less, hosts are warned.
const SPARE_THRESHOLD: u8 = 10;
/// TRTYPE of an entry of the error log.
const TCP: u8 = 3;

const INVALID: Status = Status::INVALID_FIELD.with_dnr();

const IO_LOGS: [LogId; 8] = [
    LogId::SUPPORTED,
    LogId::ERROR,
    LogId::SMART,
    LogId::FIRMWARE_SLOT,
    LogId::CHANGED_NAMESPACES,
    LogId::EFFECTS,
    LogId::FEATURE_EFFECTS,
    LogId::STATISTICS,
];

const DISCOVERY_LOGS: [LogId; 4] = [
    LogId::SUPPORTED,
    LogId::ERROR,
    LogId::FEATURE_EFFECTS,
    LogId::DISCOVERY,
];

impl Controller {
    /// Get Log Page: the part of the log that the host asked for, zeroes behind its end.
    pub(super) fn get_log_page(
        &mut self,
        sqe: &SubmissionQueueEntry,
        view: &SubsystemView<'_>,
        room: Room,
    ) -> Result<Vec<u8>, Status> {
        let id = LogId(sqe.log_id());
        if !self.logs().contains(&id) {
            return Err(Status::INVALID_LOG_PAGE.with_dnr());
        }
        let bytes = u32::try_from(sqe.log_bytes())
            .ok()
            .filter(|bytes| *bytes <= self.limits.transfer_bytes)
            .ok_or(INVALID)?;
        if sqe.log_offset_is_index() || !sqe.log_offset().is_multiple_of(4) {
            return Err(INVALID);
        }
        within(room, bytes, bytes)?;
        let mut page = vec![0; bytes as usize];
        self.read_log(id, sqe, view, &mut page)?;
        Ok(page)
    }

    fn logs(&self) -> &'static [LogId] {
        match self.kind {
            ControllerKind::Io => &IO_LOGS,
            ControllerKind::Discovery => &DISCOVERY_LOGS,
        }
    }

    fn read_log(
        &mut self,
        id: LogId,
        sqe: &SubmissionQueueEntry,
        view: &SubsystemView<'_>,
        page: &mut [u8],
    ) -> Result<(), Status> {
        let offset = sqe.log_offset();
        match id {
            LogId::SUPPORTED => copy(&self.supported_logs(), offset, page),
            LogId::ERROR => {
                copy(&self.error_log(), offset, page)?;
                for kind in [EventKind::InvalidDoorbell, EventKind::InvalidDoorbellValue] {
                    self.events.log_was_read(kind, sqe.log_rae());
                }
                Ok(())
            }
            LogId::SMART => {
                // Without LPA bit 0 the log is that of the controller.
                if sqe.nsid() != 0 && sqe.nsid() != NSID_ALL {
                    return Err(INVALID);
                }
                copy(&self.smart_log(view.counters), offset, page)
            }
            LogId::FIRMWARE_SLOT => copy(&firmware_slots(), offset, page),
            LogId::CHANGED_NAMESPACES => {
                copy(&self.changed_namespaces(), offset, page)?;
                self.events
                    .log_was_read(EventKind::NamespaceChanged, sqe.log_rae());
                Ok(())
            }
            LogId::EFFECTS if sqe.log_csi() != CSI_NVM => Err(INVALID),
            LogId::EFFECTS => copy(&self.command_effects(), offset, page),
            LogId::FEATURE_EFFECTS => copy(&self.feature_effects(), offset, page),
            LogId::STATISTICS => {
                let mut data = [0; StatisticsLog::LEN];
                view.statistics?.encode(&mut data);
                copy(&data, offset, page)
            }
            LogId::DISCOVERY => {
                let discovery = view.discovery.ok_or(Status::INTERNAL_ERROR)?;
                let host = &self.host.nqn;
                discovery
                    .log
                    .read(host, discovery.local, offset, page)
                    .ok_or(INVALID)?;
                self.events
                    .log_was_read(EventKind::DiscoveryChanged, sqe.log_rae());
                Ok(())
            }
            _ => Err(Status::INVALID_LOG_PAGE.with_dnr()),
        }
    }

    fn supported_logs(&self) -> [u8; SupportedLogs::LEN] {
        let mut data = [0; SupportedLogs::LEN];
        SupportedLogs::of(self.logs()).encode(&mut data);
        data
    }

    fn error_log(&self) -> [u8; ERROR_LOG_ENTRIES * ErrorLogEntry::LEN] {
        let mut data = [0; ERROR_LOG_ENTRIES * ErrorLogEntry::LEN];
        for (slot, (number, error)) in data
            .as_chunks_mut()
            .0
            .iter_mut()
            .zip(self.errors.newest_first())
        {
            let pcie = self.transport.pcie.is_some();
            ErrorLogEntry {
                trtype: if pcie { 0 } else { TCP },
                ..describe_error(number, error)
            }
            .encode(slot);
        }
        data
    }

    fn smart_log(&self, counters: &Counters) -> [u8; SmartLog::LEN] {
        let smart = SmartLog {
            critical_warning: counters.media.critical_warning(SPARE_THRESHOLD),
            composite_temperature: TEMPERATURE,
            available_spare: counters.media.spare(),
            available_spare_threshold: SPARE_THRESHOLD,
            data_units_read: SmartLog::data_units(counters.bytes_read.into()),
            data_units_written: SmartLog::data_units(counters.bytes_written.into()),
            host_read_commands: counters.read_commands.into(),
            host_write_commands: counters.write_commands.into(),
            controller_busy_time: (counters.busy.as_secs() / 60).into(),
            power_cycles: counters.power_cycles.into(),
            power_on_hours: (counters.power_on.as_secs() / 3600).into(),
            unsafe_shutdowns: counters.unsafe_shutdowns.into(),
            media_errors: counters.media_errors.into(),
            error_log_entries: self.errors.count().into(),
            ..SmartLog::default()
        };
        let mut data = [0; SmartLog::LEN];
        smart.encode(&mut data);
        data
    }

    fn changed_namespaces(&self) -> [u8; CHANGED_NAMESPACES_LEN] {
        let nsids: Option<Vec<u32>> = self.events.changed().nsids().map(Iterator::collect);
        let changed = nsids.as_deref().map_or(
            log::ChangedNamespaces::Overflow,
            log::ChangedNamespaces::Some,
        );
        let mut data = [0; CHANGED_NAMESPACES_LEN];
        log::encode_changed_namespaces(changed, &mut data);
        data
    }

    fn command_effects(&self) -> [u8; EffectsLog::LEN] {
        let mut effects = EffectsLog::NONE;
        for opcode in [
            AdminOpcode::GET_LOG_PAGE,
            AdminOpcode::IDENTIFY,
            AdminOpcode::ABORT,
            AdminOpcode::SET_FEATURES,
            AdminOpcode::GET_FEATURES,
            AdminOpcode::ASYNC_EVENT_REQUEST,
            AdminOpcode::KEEP_ALIVE,
        ] {
            effects.admin[usize::from(opcode.0)] = CommandEffects::SUPPORTED;
        }
        if self.transport.pcie.is_some() {
            for opcode in [
                AdminOpcode::CREATE_IO_SQ,
                AdminOpcode::CREATE_IO_CQ,
                AdminOpcode::DELETE_IO_SQ,
                AdminOpcode::DELETE_IO_CQ,
                AdminOpcode::DOORBELL_BUFFER_CONFIG,
            ] {
                effects.admin[usize::from(opcode.0)] = CommandEffects::SUPPORTED;
            }
        }
        for opcode in [IoOpcode::FLUSH, IoOpcode::READ, IoOpcode::COMPARE] {
            effects.io[usize::from(opcode.0)] = CommandEffects::SUPPORTED;
        }
        for opcode in [
            IoOpcode::WRITE,
            IoOpcode::WRITE_ZEROES,
            IoOpcode::DATASET_MANAGEMENT,
        ] {
            effects.io[usize::from(opcode.0)] = CommandEffects::WRITES;
        }
        let mut data = [0; EffectsLog::LEN];
        effects.encode(&mut data);
        data
    }

    fn feature_effects(&self) -> [u8; FeatureEffectsLog::LEN] {
        let mut effects = FeatureEffectsLog::NONE;
        for feature in features::all(self.kind, self.transport.pcie.is_some()) {
            effects.0[usize::from(feature.id.0)] = FeatureEffects {
                fsupp: true,
                fsp: match feature.of_namespace {
                    true => FeatureEffects::SCOPE_NAMESPACE,
                    false => FeatureEffects::SCOPE_CONTROLLER,
                },
                ..FeatureEffects::default()
            };
        }
        let mut data = [0; FeatureEffectsLog::LEN];
        effects.encode(&mut data);
        data
    }
}

fn describe_error(number: u64, error: &CommandError) -> ErrorLogEntry {
    ErrorLogEntry {
        error_count: number,
        sqid: error.sqid,
        cid: error.cid,
        status: error.status,
        parameter_error_location: 0xffff,
        lba: error.lba,
        nsid: error.nsid,
        csi: CSI_NVM,
        opcode: error.opcode,
        version: 1,
        ..ErrorLogEntry::default()
    }
}

fn firmware_slots() -> [u8; FirmwareSlotLog::LEN] {
    let mut data = [0; FirmwareSlotLog::LEN];
    let slots = FirmwareSlotLog {
        afi: 1,
        frs1: firmware_revision(),
    };
    slots.encode(&mut data);
    data
}

/// Copies a log from `offset` on; the rest of `page` stays zero.
fn copy(log: &[u8], offset: u64, page: &mut [u8]) -> Result<(), Status> {
    let offset = usize::try_from(offset).map_err(|_| INVALID)?;
    let rest = log.get(offset..).ok_or(INVALID)?;
    let length = rest.len().min(page.len());
    page[..length].copy_from_slice(&rest[..length]);
    Ok(())
}

#[cfg(test)]
mod tests;
