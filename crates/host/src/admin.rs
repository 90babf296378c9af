//! Admin commands: what a host asks about the controller, its namespaces and its logs.

use flashyard_nvme::aer::AsyncEvent;
use flashyard_nvme::fabrics::{
    Capabilities, Configuration, ControllerStatus, Property, PropertySize, Shutdown, ShutdownStatus,
};
use flashyard_nvme::feature::{CompletionCoalescing, FeatureId, HostBehavior, NumberOfQueues};
use flashyard_nvme::identify::{
    CSI_NVM, Cns, IDENTIFY_LEN, IdentifyController, IdentifyControllerNvm, IdentifyNamespace,
    NamespaceDescriptors, decode_namespace_list,
};
use flashyard_nvme::log::{
    CHANGED_NAMESPACES_LEN, LogId, NotStatistics, SmartLog, StatisticsLog,
    decode_changed_namespaces,
};
use flashyard_nvme::{Sgl, SubmissionQueueEntry};
use flashyard_runtime::{Buf, Data};
use flashyard_time::Duration;

use crate::association::{Association, Inner};
use crate::payload::{Payload, ReadInto};
use crate::queue::{HostError, Queue};

/// No SGL yet: the queue sets it.
const NO_DATA: Sgl = Sgl::Transport { length: 0 };
/// Most namespaces that are looked at, whatever the controller says.
const MAX_NAMESPACES: usize = 64 << 10;
/// Without MDTS a command moves at most this, the largest buffer there is.
const MAX_TRANSFER: usize = 1 << 20;
/// Between two looks at CSTS.
const POLL: Duration = Duration::from_ms(1);

impl Association {
    /// Identify Namespace. All zeroes if there is no such namespace.
    pub async fn identify_namespace(&self, nsid: u32) -> Result<IdentifyNamespace, HostError> {
        identify_namespace(&self.inner.admin, nsid).await
    }

    /// The identifiers of a namespace.
    pub async fn namespace_descriptors(
        &self,
        nsid: u32,
    ) -> Result<NamespaceDescriptors, HostError> {
        let page = identify(&self.inner.admin, Cns::NAMESPACE_DESCRIPTORS, nsid).await?;
        Ok(NamespaceDescriptors::decode(page_of(&page)))
    }

    /// The active namespaces, ascending.
    pub async fn namespaces(&self) -> Result<Vec<u32>, HostError> {
        let mut found = Vec::new();
        loop {
            let after = found.last().copied().unwrap_or(0);
            let page = identify(&self.inner.admin, Cns::ACTIVE_NAMESPACES, after).await?;
            let before = found.len();
            // A list that does not ascend would never end.
            found.extend(decode_namespace_list(page_of(&page)).filter(|nsid| *nsid > after));
            let full = found.len() - before == IDENTIFY_LEN / 4;
            if !full || found.len() >= MAX_NAMESPACES || !found.is_sorted() {
                return Ok(found);
            }
        }
    }

    /// Most bytes of one Write Zeroes, from WZSL; controllers of before NVMe 2.0 do not tell and
    /// have no limit.
    pub async fn max_zeroes(&self) -> u64 {
        let Ok(page) = identify(&self.inner.admin, Cns::CONTROLLER_OF_SET, 0).await else {
            return u64::MAX;
        };
        let limits = IdentifyControllerNvm::decode(page_of(&page));
        let shift = 12 + u32::from(self.inner.capabilities.mpsmin) + u32::from(limits.wzsl);
        if limits.wzsl == 0 {
            u64::MAX
        } else {
            1_u64.checked_shl(shift).unwrap_or(u64::MAX)
        }
    }

    /// The SMART log of the controller.
    pub async fn smart_log(&self) -> Result<SmartLog, HostError> {
        let page = get_log(&self.inner.admin, LogId::SMART, 0, SmartLog::LEN, true).await?;
        Ok(SmartLog::decode(page_of(&page)))
    }

    /// The log of I/O statistics of a namespace; of all that there are with `nsid` 0.
    pub async fn statistics_log(
        &self,
        nsid: u32,
    ) -> Result<Result<StatisticsLog, NotStatistics>, HostError> {
        let (id, len) = (LogId::STATISTICS.0, StatisticsLog::LEN);
        let entry = SubmissionQueueEntry::get_log_page(id, nsid, 0, len as u32, true, NO_DATA);
        let page = get(&self.inner.admin, entry, len).await?;
        Ok(StatisticsLog::decode(&page))
    }
}

/// Most bytes of one command.
pub(crate) fn max_transfer(identify: &IdentifyController, capabilities: Capabilities) -> usize {
    let bytes = identify
        .max_transfer(capabilities.mpsmin)
        .unwrap_or(u64::MAX);
    usize::try_from(bytes)
        .unwrap_or(usize::MAX)
        .min(MAX_TRANSFER)
}

pub(crate) async fn identify(admin: &Queue, cns: Cns, nsid: u32) -> Result<Buf, HostError> {
    let entry = SubmissionQueueEntry::identify(cns.0, nsid, 0, CSI_NVM, NO_DATA);
    get(admin, entry, IDENTIFY_LEN).await
}

pub(crate) async fn identify_controller(admin: &Queue) -> Result<IdentifyController, HostError> {
    let page = identify(admin, Cns::CONTROLLER, 0).await?;
    Ok(IdentifyController::decode(page_of(&page)))
}

pub(crate) async fn identify_namespace(
    admin: &Queue,
    nsid: u32,
) -> Result<IdentifyNamespace, HostError> {
    let page = identify(admin, Cns::NAMESPACE, nsid).await?;
    Ok(IdentifyNamespace::decode(page_of(&page)))
}

/// `len` bytes of a log page from `offset` on. `retain`: the event that announced it stays
/// reported.
pub(crate) async fn get_log(
    admin: &Queue,
    log: LogId,
    offset: u64,
    len: usize,
    retain: bool,
) -> Result<Buf, HostError> {
    const NSID: u32 = 0xffff_ffff;
    let entry =
        SubmissionQueueEntry::get_log_page(log.0, NSID, offset, len as u32, retain, NO_DATA);
    get(admin, entry, len).await
}

/// The changed namespaces since this was last asked; empty if there are too many to list.
pub(crate) async fn changed_namespaces(admin: &Queue) -> Result<Vec<u32>, HostError> {
    let page = get_log(
        admin,
        LogId::CHANGED_NAMESPACES,
        0,
        CHANGED_NAMESPACES_LEN,
        false,
    )
    .await?;
    Ok(decode_changed_namespaces(page_of(&page))
        .map(Iterator::collect)
        .unwrap_or_default())
}

/// Reads the front of an event's log, so that the controller reports such an event again.
pub(crate) async fn acknowledge(admin: &Queue, event: AsyncEvent) -> Result<(), HostError> {
    if event.log_id == LogId::SUPPORTED.0 {
        return Ok(());
    }
    get_log(admin, LogId(event.log_id), 0, SmartLog::LEN, false)
        .await
        .map(drop)
}

/// Asks for I/O queues and gives how many there may be.
pub(crate) async fn set_number_of_queues(admin: &Queue, wanted: u16) -> Result<u16, HostError> {
    let wanted = wanted.saturating_sub(1);
    let value = NumberOfQueues {
        submission: wanted,
        completion: wanted,
    }
    .bits();
    let entry = SubmissionQueueEntry::set_features(FeatureId::NUMBER_OF_QUEUES.0, 0, value);
    let answer = admin.command(entry, Payload::None).await?;
    let granted = NumberOfQueues::from_bits(answer.value as u32);
    Ok(granted.submission.min(granted.completion).min(wanted) + 1)
}

pub(crate) async fn set_coalescing(
    admin: &Queue,
    wanted: CompletionCoalescing,
) -> Result<(), HostError> {
    let id = FeatureId::COMPLETION_COALESCING.0;
    let entry = SubmissionQueueEntry::set_features(id, 0, wanted.bits());
    admin.command(entry, Payload::None).await.map(drop)
}

pub(crate) async fn set_credits(admin: &Queue) -> Result<(), HostError> {
    let entry = SubmissionQueueEntry::set_features(FeatureId::COMMAND_CREDITS.0, 0, 1);
    admin.command(entry, Payload::None).await.map(drop)
}

/// Says that this host waits as long as a Command Retry Delay.
pub(crate) async fn set_retry_delays(admin: &Queue) -> Result<(), HostError> {
    let behavior = HostBehavior {
        acre: true,
        ..HostBehavior::default()
    };
    let mut buf = Buf::take(HostBehavior::LEN).ok_or(HostError::NoBuffer)?;
    buf.copy_from_slice(&behavior.encode());
    let id = FeatureId::HOST_BEHAVIOR_SUPPORT.0;
    let entry = SubmissionQueueEntry::set_features(id, 0, 0);
    let sent = admin.command(entry, Payload::Out(Data::Buf(buf)));
    sent.await.map(drop)
}

pub(crate) async fn set_async_events(admin: &Queue, events: u32) -> Result<(), HostError> {
    let entry =
        SubmissionQueueEntry::set_features(FeatureId::ASYNC_EVENT_CONFIGURATION.0, 0, events);
    admin.command(entry, Payload::None).await.map(drop)
}

pub(crate) async fn property_get(admin: &Queue, property: Property) -> Result<u64, HostError> {
    let eight = property.size() == PropertySize::Eight;
    let entry = SubmissionQueueEntry::property_get(property as u32, eight);
    Ok(admin.command(entry, Payload::None).await?.value)
}

pub(crate) async fn property_set(
    admin: &Queue,
    property: Property,
    value: u64,
) -> Result<(), HostError> {
    let eight = property.size() == PropertySize::Eight;
    let entry = SubmissionQueueEntry::property_set(property as u32, eight, value);
    admin.command(entry, Payload::None).await.map(drop)
}

pub(crate) async fn status(admin: &Queue) -> Result<ControllerStatus, HostError> {
    Ok(ControllerStatus::from_bits(
        property_get(admin, Property::Status).await? as u32,
    ))
}

/// A normal shutdown, as far as the controller does it in a short time.
pub(crate) async fn shut_down(inner: &Inner) {
    const LOOKS: u32 = 1_000;
    let configuration = Configuration {
        shn: Shutdown::Normal,
        ..enabled()
    };
    let value = u64::from(configuration.bits());
    if property_set(&inner.admin, Property::Configuration, value)
        .await
        .is_err()
    {
        return;
    }
    for _ in 0..LOOKS {
        match status(&inner.admin).await {
            Ok(status) if status.shst != ShutdownStatus::Complete && !status.cfs => {
                inner.rt.sleep(POLL).await
            }
            _ => return,
        }
    }
}

/// The configuration of a controller in use: NVM command set, entries of 64 and 16 bytes, round
/// robin.
pub(crate) fn enabled() -> Configuration {
    Configuration {
        en: true,
        iosqes: 6,
        iocqes: 4,
        ..Configuration::default()
    }
}

async fn get(admin: &Queue, entry: SubmissionQueueEntry, len: usize) -> Result<Buf, HostError> {
    let buf = Buf::take(len).ok_or(HostError::NoBuffer)?;
    let answer = admin
        .command(entry, Payload::In(ReadInto::Buf(buf)))
        .await?;
    match answer.payload {
        Payload::In(ReadInto::Buf(buf)) => Ok(buf),
        _ => Err(HostError::Closed),
    }
}

/// The structure of `N` bytes at the front of a page that was asked for with at least so many.
pub(crate) fn page_of<const N: usize>(page: &Buf) -> &[u8; N] {
    page.first_chunk().expect("as long as it was asked for")
}
