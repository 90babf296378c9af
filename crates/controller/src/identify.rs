//! The Identify command.

use alloc::vec::Vec;

use flashyard_nvme::fabrics::ConnectData;
use flashyard_nvme::feature::AsyncEventConfiguration;
use flashyard_nvme::identify::{
    CSI_NVM, Cns, IDENTIFY_LEN, IdentifyController, IdentifyControllerNvm, IdentifyNamespace,
    IdentifyNamespaceIndependent, LbaFormat, NSID_ALL, NamespaceDescriptors, ascii_field,
    encode_command_sets, encode_controller_list, encode_namespace_list,
};
use flashyard_nvme::{Status, SubmissionQueueEntry};

use super::admin::SubsystemView;
use super::events::REQUEST_LIMIT;
use super::health::ERROR_LOG_ENTRIES;
use super::keep_alive::KAS;
use super::limits::WRITE_ZEROES_BYTES;
use super::properties::VERSION;
use super::transfer::within;
use super::{Controller, ControllerKind, NamespaceInfo, Room, Subsystem};

/// WCTEMP, kelvin. No temperature is measured; hosts expect a plausible threshold.
pub(super) const WARNING_TEMPERATURE: u16 = 343;
/// CCTEMP, kelvin.
const CRITICAL_TEMPERATURE: u16 = 353;
/// Commands that Abort may be outstanding for, zero-based; more are not refused.
const ABORT_LIMIT: u8 = 3;
/// CRDT1: how long a host waits that was answered "busy", in units of 100 ms.
const BUSY_RETRY_DELAY: u16 = 1;
/// NSFEAT of CNS 08h, bit 5: Volatile Write Cache Not Present, whatever VWC of the controller says.
const NSFEAT_NO_VOLATILE_CACHE: u8 = 1 << 5;
/// SQES and CQES: 64 and 16 bytes, required and maximum.
const ENTRY_SIZES: (u8, u8) = (0x66, 0x44);
/// VWC: present, and Flush with NSID FFFFFFFFh not supported. Always "present", for a namespace
/// with a cache may be attached later and hosts look at this once; namespaces without one say so by
/// themselves.
const VWC_PRESENT_NO_BROADCAST: u8 = 1 | 2 << 1;
/// The smallest memory page, bytes (CAP.MPSMIN = 0).
const PAGE: u64 = 4096;

/// FR: the firmware revision, from this package's version.
pub(super) fn firmware_revision() -> [u8; 8] {
    ascii_field(env!("CARGO_PKG_VERSION"))
}

const INVALID: Status = Status::INVALID_FIELD.with_dnr();
const NO_NAMESPACE: Status = Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr();

type Page = [u8; IDENTIFY_LEN];

impl Controller {
    /// Identify: the page.
    pub(super) fn identify(
        &self,
        sqe: &SubmissionQueueEntry,
        view: &SubsystemView<'_>,
        room: Room,
    ) -> Result<Vec<u8>, Status> {
        within(room, IDENTIFY_LEN as u32, IDENTIFY_LEN as u32)?;
        let mut data = [0; IDENTIFY_LEN];
        match (self.kind, Cns(sqe.cns())) {
            (_, Cns::CONTROLLER) => self.describe(view).encode(&mut data),
            (ControllerKind::Discovery, _) => return Err(INVALID),
            (ControllerKind::Io, cns) => self.identify_more(cns, sqe, view, &mut data)?,
        }
        Ok(data.to_vec())
    }

    fn identify_more(
        &self,
        cns: Cns,
        sqe: &SubmissionQueueEntry,
        view: &SubsystemView<'_>,
        data: &mut Page,
    ) -> Result<(), Status> {
        match cns {
            // The structure of a namespace that is not attached is all zero.
            Cns::NAMESPACE => {
                if let Some(namespace) = namespace(sqe, view)? {
                    describe_namespace(namespace, self.limits.transfer_bytes).encode(data);
                }
            }
            Cns::NAMESPACE_INDEPENDENT => {
                if let Some(namespace) = namespace(sqe, view)? {
                    describe_independent(namespace).encode(data);
                }
            }
            Cns::NAMESPACE_OF_SET => {
                nvm_only(sqe)?;
                // Neither storage tags nor protection information: zero for every namespace.
                namespace(sqe, view)?;
            }
            Cns::NAMESPACE_DESCRIPTORS => {
                let namespace = namespace(sqe, view)?.ok_or(NO_NAMESPACE)?;
                names_of(namespace).encode(data);
            }
            Cns::CONTROLLER_OF_SET => {
                nvm_only(sqe)?;
                limits_of_set().encode(data);
            }
            Cns::ACTIVE_NAMESPACES => active_namespaces(sqe, view, data)?,
            Cns::ACTIVE_NAMESPACES_OF_SET => {
                nvm_only(sqe)?;
                active_namespaces(sqe, view, data)?;
            }
            Cns::CONTROLLERS => {
                let from = sqe.identify_cntid();
                let ids = view
                    .controllers
                    .iter()
                    .map(|id| id.0)
                    .filter(|id| *id >= from);
                encode_controller_list(ids, data);
            }
            Cns::COMMAND_SETS => {
                let of = sqe.identify_cntid();
                if of != ConnectData::DYNAMIC && of != self.id.0 {
                    return Err(INVALID);
                }
                encode_command_sets(&[1 << CSI_NVM], data);
            }
            _ => return Err(INVALID),
        }
        Ok(())
    }

    /// What this controller is.
    fn describe(&self, view: &SubsystemView<'_>) -> IdentifyController {
        let (subsystem, pcie) = (view.subsystem, self.transport.pcie);
        let common = IdentifyController {
            vid: pcie.map_or(0, |pcie| pcie.vendors.0),
            ssvid: pcie.map_or(0, |pcie| pcie.vendors.1),
            sn: subsystem.serial,
            mn: subsystem.model,
            fr: firmware_revision(),
            mdts: self
                .limits
                .transfer_bytes
                .ilog2()
                .saturating_sub(PAGE.ilog2()) as u8,
            cntlid: self.id.0,
            ver: VERSION.bits(),
            ctratt: IdentifyController::CTRATT_HOST_ID_128 | IdentifyController::CTRATT_TBKAS,
            aerl: (REQUEST_LIMIT - 1) as u8,
            elpe: (ERROR_LOG_ENTRIES - 1) as u8,
            lpa: IdentifyController::LPA_EXTENDED,
            kas: KAS,
            sqes: ENTRY_SIZES.0,
            cqes: ENTRY_SIZES.1,
            maxcmd: self.limits.queue_depth,
            sgls: self.transport.sgls,
            subnqn: Some(subsystem.nqn),
            ioccsz: self.transport.ioccsz,
            iorcsz: self.transport.iorcsz,
            icdoff: self.transport.icdoff,
            msdbd: self.transport.msdbd,
            ..IdentifyController::default()
        };
        match self.kind {
            ControllerKind::Io if pcie.is_some() => on_pcie(for_io(common, subsystem)),
            ControllerKind::Io => for_io(common, subsystem),
            ControllerKind::Discovery => IdentifyController {
                cntrltype: IdentifyController::TYPE_DISCOVERY,
                oaes: AsyncEventConfiguration::DISCOVERY,
                ..common
            },
        }
    }
}

/// A function has shadow doorbells; fused pairs are not taken from its queues.
fn on_pcie(common: IdentifyController) -> IdentifyController {
    IdentifyController {
        oacs: common.oacs | IdentifyController::OACS_DOORBELL_BUFFER,
        fuses: 0,
        ..common
    }
}

/// On fabrics VID and SSVID stay 0, and IEEE does, as those of other targets in software do: they
/// are numbers that PCI-SIG and IEEE give to vendors, this program has none, and another vendor's
/// would make hosts apply the quirks of that one's drives.
fn for_io(common: IdentifyController, subsystem: &Subsystem) -> IdentifyController {
    IdentifyController {
        cntrltype: IdentifyController::TYPE_IO,
        cmic: IdentifyController::CMIC_MULTIPLE_PORTS
            | IdentifyController::CMIC_MULTIPLE_CONTROLLERS,
        oaes: AsyncEventConfiguration::NAMESPACE,
        crdt1: BUSY_RETRY_DELAY,
        acl: ABORT_LIMIT,
        frmw: IdentifyController::FRMW_SLOT1_READ_ONLY | IdentifyController::FRMW_ONE_SLOT,
        lpa: IdentifyController::LPA_EFFECTS | IdentifyController::LPA_EXTENDED,
        wctemp: WARNING_TEMPERATURE,
        cctemp: CRITICAL_TEMPERATURE,
        nn: subsystem.max_namespaces,
        mnan: subsystem.max_namespaces,
        // What the tenant has, and no more that it could get by itself. What is free in a pool
        // would tell it what the others do.
        tnvmcap: subsystem.namespaces.values().map(capacity).sum(),
        unvmcap: 0,
        oncs: IdentifyController::ONCS_COMPARE
            | IdentifyController::ONCS_DATASET_MANAGEMENT
            | IdentifyController::ONCS_WRITE_ZEROES
            | IdentifyController::ONCS_SAVE_SELECT
            | IdentifyController::ONCS_TIMESTAMP,
        fuses: IdentifyController::FUSES_COMPARE_AND_WRITE,
        vwc: VWC_PRESENT_NO_BROADCAST,
        // These hold for every namespace, so they promise one block; namespaces promise more.
        awun: 0,
        awupf: 0,
        acwu: 0,
        ..common
    }
}

/// Bytes (NVMCAP).
fn capacity(namespace: &NamespaceInfo) -> u128 {
    u128::from(namespace.blocks) * u128::from(namespace.block_size)
}

fn describe_namespace(namespace: &NamespaceInfo, transfer_bytes: u32) -> IdentifyNamespace {
    let mut lbaf = [LbaFormat::default(); 16];
    lbaf[0].lbads = namespace.block_size.ilog2() as u8;
    let write = zero_based(namespace.write_granularity);
    let optimal = zero_based(optimal_write(namespace, transfer_bytes));
    let deallocate = zero_based(namespace.deallocate_granularity);
    let atomic = zero_based(namespace.atomic_write);
    IdentifyNamespace {
        nsze: namespace.blocks,
        ncap: namespace.blocks,
        nuse: namespace.used.min(namespace.blocks),
        nsfeat: features_of(namespace),
        nmic: IdentifyNamespace::NMIC_SHARED,
        dlfeat: IdentifyNamespace::DLFEAT_ZEROES | deallocating_zeroes(namespace),
        nawun: atomic,
        nawupf: atomic,
        nacwu: atomic,
        nvmcap: capacity(namespace),
        npwg: write,
        npwa: write,
        npdg: deallocate,
        npda: deallocate,
        nows: optimal,
        nsattr: u8::from(namespace.read_only) * IdentifyNamespace::NSATTR_WRITE_PROTECTED,
        nguid: namespace.nguid,
        // 0, "not there", unless an administrator gave one: its first bytes would be an OUI, and we
        // have none.
        eui64: namespace.eui64.unwrap_or_default(),
        lbaf,
        ..IdentifyNamespace::default()
    }
}

/// NOWS: a size that one command can carry, and a multiple of the granularity. Linux makes `io_min`
/// of NPWG and `io_opt` of NOWS, and file systems a stripe of both: one of more than a command is
/// of no use to them, and that of a device with many units was larger than the stripes they take.
fn optimal_write(namespace: &NamespaceInfo, transfer_bytes: u32) -> u32 {
    let most = transfer_bytes / namespace.block_size;
    let mut blocks = namespace.optimal_write;
    while blocks > most && blocks.is_multiple_of(2) {
        blocks /= 2;
    }
    let granularity = namespace.write_granularity;
    if blocks == 0 || blocks > most || !blocks.is_multiple_of(granularity.max(1)) {
        return granularity;
    }
    blocks
}

fn describe_independent(namespace: &NamespaceInfo) -> IdentifyNamespaceIndependent {
    let no_cache = u8::from(!namespace.volatile_cache) * NSFEAT_NO_VOLATILE_CACHE;
    IdentifyNamespaceIndependent {
        nsfeat: IdentifyNamespace::NSFEAT_UNIQUE_IDS | no_cache,
        nmic: IdentifyNamespace::NMIC_SHARED,
        nsattr: u8::from(namespace.read_only) * IdentifyNamespace::NSATTR_WRITE_PROTECTED,
        nstat: IdentifyNamespaceIndependent::NSTAT_READY,
        ..IdentifyNamespaceIndependent::default()
    }
}

fn features_of(namespace: &NamespaceInfo) -> u8 {
    let mut features = IdentifyNamespace::NSFEAT_UNIQUE_IDS;
    if namespace.atomic_write > 1 {
        features |= IdentifyNamespace::NSFEAT_ATOMICITY;
    }
    if namespace.write_granularity != 0 || namespace.deallocate_granularity != 0 {
        features |= IdentifyNamespace::NSFEAT_OPTIMAL_SIZES;
    }
    features
}

fn deallocating_zeroes(namespace: &NamespaceInfo) -> u8 {
    u8::from(namespace.deallocate) * IdentifyNamespace::DLFEAT_WRITE_ZEROES_DEALLOCATES
}

fn names_of(namespace: &NamespaceInfo) -> NamespaceDescriptors {
    NamespaceDescriptors {
        eui64: namespace.eui64,
        nguid: Some(namespace.nguid),
        uuid: Some(namespace.uuid),
        csi: Some(CSI_NVM),
    }
}

/// Dataset Management has no limits beside 256 ranges.
fn limits_of_set() -> IdentifyControllerNvm {
    IdentifyControllerNvm {
        wzsl: (WRITE_ZEROES_BYTES / PAGE).ilog2() as u8,
        ..IdentifyControllerNvm::default()
    }
}

fn active_namespaces(
    sqe: &SubmissionQueueEntry,
    view: &SubsystemView<'_>,
    data: &mut Page,
) -> Result<(), Status> {
    if sqe.nsid() >= NSID_ALL - 1 {
        return Err(NO_NAMESPACE);
    }
    let above = view.subsystem.namespaces.range(sqe.nsid() + 1..);
    encode_namespace_list(above.map(|(nsid, _)| *nsid), data);
    Ok(())
}

/// The namespace that a command names, if it is attached.
fn namespace<'a>(
    sqe: &SubmissionQueueEntry,
    view: &SubsystemView<'a>,
) -> Result<Option<&'a NamespaceInfo>, Status> {
    if !view.subsystem.is_valid_nsid(sqe.nsid()) {
        return Err(NO_NAMESPACE);
    }
    Ok(view.subsystem.namespaces.get(&sqe.nsid()))
}

fn nvm_only(sqe: &SubmissionQueueEntry) -> Result<(), Status> {
    if sqe.identify_csi() == CSI_NVM {
        Ok(())
    } else {
        Err(INVALID)
    }
}

/// A count as the specification has it; 0 and 1 are both "one block".
fn zero_based(blocks: u32) -> u16 {
    u16::try_from(blocks.saturating_sub(1)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests;
