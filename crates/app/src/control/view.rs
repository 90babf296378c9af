//! What requests are answered with: a type for each answer, whose fields stand in the order in
//! which people and programs see them. The socket makes JSON of them; `table.rs` prints that.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::activity::ActivityView;
use super::arrays::ArrayView;
use super::asker::Shows;
use super::audit::AuditRecord;
use super::condition::{Condition, Health};
use super::events::EventsView;
use super::functions::{FunctionRow, FunctionView};
use super::health::HealthView;
use super::metrics::MetricsText;
use super::migration::MigrationView;
use super::page::Listed;
use super::plan::AppliedView;
use super::promises::{PromiseState, PromiseView};
use super::snapshots::{DiffView, SnapshotView, StoredView};
use super::space::{QuotaView, SpaceView};
use super::traffic::TrafficView;
use super::why::WhyView;
use crate::spec::{
    Address, Bandwidth, ClassName, CompressionName, ConditionName, Conditions, ContentName,
    Document, Eui64, FlatDevice, KeyText, LoadPoint, NamespaceUuid, Nguid, PolicyName, RatesSpec,
    RebuildPriority, Size, Span, VolumeKind,
};

/// The answer to a request that was carried out.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum View {
    /// Done, and there is nothing more to tell.
    Done,
    /// The target at a glance.
    Status(Box<StatusView>),
    /// What was made, and would have been shown if it had been there.
    Made(Box<View>),
    /// What is wrong.
    Health(HealthView),
    /// Figures for Prometheus.
    #[schemars(with = "String")]
    Metrics(MetricsText),
    /// What came to volumes.
    Traffic(Box<TrafficView>),
    /// What goes on.
    Activity(Box<ActivityView>),
    /// What has happened.
    Events(EventsView),
    /// Who has changed something.
    Audit(Listed<AuditRecord>),
    /// The target's own settings.
    Target(TargetView),
    Device(Box<DeviceView>),
    Partition(Box<PartitionView>),
    Pool(Box<PoolView>),
    Tenant(Box<TenantView>),
    Volume(Box<VolumeView>),
    Function(Box<FunctionView>),
    /// What a pool on a device has.
    Import(ImportView),
    /// The partitions that a device has.
    FoundPartitions(FoundPartitionsView),
    /// All of a kind, or a part of these.
    List(Listed<View>),
    /// Snapshots of volumes.
    Snapshots(Listed<SnapshotView>),
    /// A snapshot.
    Snapshot(Box<SnapshotView>),
    /// What differs between two versions of a volume.
    Diff(DiffView),
    /// What a device can give.
    Calibration(Box<CalibrationView>),
    /// Where the latency of a tenant comes from.
    Why(WhyView),
    /// A configuration file.
    File(Document),
    /// What a configuration changes.
    Applied(AppliedView),
}

impl Shows for View {
    fn metrics(&self) -> Option<&MetricsText> {
        match self {
            Self::Metrics(text) => Some(text),
            _ => None,
        }
    }

    fn is_made(&self) -> bool {
        matches!(self, Self::Made(_))
    }

    fn next(&self) -> Option<&str> {
        match self {
            Self::List(part) => part.next.as_deref(),
            Self::Snapshots(part) => part.next.as_deref(),
            Self::Audit(part) => part.next.as_deref(),
            Self::Status(part) => part.next.as_deref(),
            Self::Traffic(part) => part.next.as_deref(),
            Self::Activity(part) => part.next.as_deref(),
            _ => None,
        }
    }
}

impl View {
    /// The same, with a word on what else is to be done.
    #[must_use]
    pub fn with_note(mut self, note: String) -> Self {
        match &mut self {
            Self::Tenant(view) => view.note = Some(note),
            Self::Volume(view) => view.note = Some(note),
            Self::Import(view) => view.notes.push(note),
            _ => {}
        }
        self
    }
}

/// A device: what it was asked to be, with what holds where nothing was said, and what it is.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DeviceView {
    /// What it was asked to be; its size as it is, its curve below.
    #[serde(flatten)]
    pub spec: FlatDevice,
    pub curve: Vec<LoadView>,
    /// An acknowledged write may be lost until it is flushed. Known of open devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volatile_cache: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core: Option<usize>,
    /// What an emulated drive has done.
    #[serde(flatten)]
    pub drive: Option<DriveView>,
    /// What the faults of a device that injects them have done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub injected: Option<Vec<InjectedRow>>,
    /// Bytes that such a device keeps in memory only, because a flush has lied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unflushed_bytes: Option<u64>,
    /// What a device made of others is.
    #[serde(flatten)]
    pub array: Option<ArrayView>,
    pub used_by: Option<String>,
    /// Another policy stands in for one that needs figures of the device: why, and what to
    /// do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_note: Option<String>,
    #[serde(flatten)]
    pub health: Health,
}

/// What an emulated drive has done until now.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DriveView {
    /// Flash written for each byte written.
    pub write_amplification: f64,
    /// Erased superblocks.
    pub free_superblocks: u32,
    /// I/Os that it has not ended.
    pub in_flight: usize,
    /// Mean latency in microseconds.
    pub latency_mean_us: f64,
    /// How much later than due 99 of 100 completions were, in microseconds.
    pub lateness_p99_us: f64,
    /// Whether the machine was fast enough for the drive's time: `yes` or `no`.
    pub kept_time: &'static str,
}

/// A partition.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PartitionView {
    pub name: String,
    pub device: String,
    pub op: String,
    /// What it is, while it is open.
    #[serde(flatten)]
    pub flash: Option<PartitionFlash>,
    pub policy: PolicyName,
    pub used_by: Option<String>,
    #[serde(flatten)]
    pub health: Health,
}

/// The flash of an open partition.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PartitionFlash {
    pub size: u64,
    pub units: String,
    /// Whether others have units on its channels.
    pub placement: &'static str,
    /// What its units can program, if their channels are free.
    pub write_bytes_per_second: u64,
    pub bytes_written: u64,
    /// Flash written for each of them; nothing before the first.
    pub write_amplification: Option<f64>,
    /// Least and most erases of a line.
    pub wear: String,
    /// Bytes of flash that may still fail before it is read-only.
    pub spare_bytes: u64,
    /// How much later than due 99 of 100 completions were, in microseconds.
    pub lateness_p99_us: f64,
    pub read_only: bool,
}

/// A pool.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PoolView {
    pub name: String,
    pub devices: Vec<String>,
    /// How its volumes are kept.
    pub kind: VolumeKind,
    /// Where the key of an encrypted one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyText>,
    /// How new volumes are compressed that do not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<CompressionName>,
    /// The chunks of new volumes that do not say it, if not what goes with their compression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// Its identity on the device.
    pub uuid: String,
    /// Its space, while it is open.
    #[serde(flatten)]
    pub space: Option<SpaceView>,
    /// What a rebuild is beside the I/O of tenants, if it stands on devices with redundancy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuild_priority: Option<RebuildPriority>,
    /// Bytes a second that a rebuild writes to each device at most, if it has a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuild_limit: Option<Bandwidth>,
    /// What it stands on, if that are several devices.
    #[serde(flatten)]
    pub array: Option<ArrayView>,
    #[serde(flatten)]
    pub health: Health,
}

/// What a pool on a device has.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ImportView {
    /// What it is called here; null while it is not imported.
    pub pool: Option<String>,
    pub devices: Vec<String>,
    pub uuid: String,
    /// Bytes for volumes.
    pub size: u64,
    /// Bytes that no volume has.
    #[serde(rename = "free_bytes")]
    pub free: u64,
    pub volumes: Vec<ImportedVolume>,
    /// What the file of the target says to be in it, and was imported with it or could not be.
    pub notes: Vec<String>,
}

/// A volume in such a pool.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ImportedVolume {
    pub name: String,
    pub size: Size,
    pub uuid: NamespaceUuid,
    /// Who has it; null while it is not imported.
    pub tenant: Option<String>,
    pub nsid: Option<u32>,
}

/// The partitions on a device, whether the target knows them or not.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FoundPartitionsView {
    pub device: String,
    pub partitions: Vec<FoundPartition>,
    /// What the file of the target says to stand on them, and was imported with them or could not
    /// be.
    pub notes: Vec<String>,
}

/// A partition on a device.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FoundPartition {
    pub name: String,
    pub uuid: String,
    /// Bytes; null where it cannot be taken up.
    pub size: Option<u64>,
    /// Flash kept beyond that.
    pub op: String,
    /// The units that it was given, each time that it was created or grew.
    pub given: Vec<String>,
    /// Whether the target knows it: it was created here, or is imported.
    pub imported: bool,
    /// What is in it; null where it is used, or cannot be taken up.
    pub holds: Option<Holds>,
    /// It takes no more writes: too much of its flash has failed.
    pub read_only: bool,
    /// Why it cannot be taken up.
    pub fault: Option<String>,
}

/// What is in a partition that nothing uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Holds {
    /// Nothing: it reads as zeroes.
    Nothing,
    /// A pool, or the remains of one.
    Pool,
    /// What a tenant has written that had it whole.
    Data,
}

/// A tenant.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TenantView {
    pub name: String,
    pub hosts: Vec<String>,
    pub class: ClassName,
    /// Its share when everybody wants more than there is.
    pub weight: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<RatesSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<RatesSpec>,
    /// What 99 of 100 of its latency-sensitive I/Os should stay under.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_target: Option<Span>,
    /// What its volumes may take of pools, and what they do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<QuotaView>,
    pub subnqn: String,
    pub serial: String,
    pub model: String,
    pub volumes: Vec<String>,
    pub functions: Vec<String>,
    /// How its guarantee stands; nothing while it has none, or no volume.
    pub guarantee_state: Option<GuaranteeState>,
    /// What to do about that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee_hint: Option<String>,
    /// How its promises are kept: the worst of them; nothing while it has none, or no volume.
    pub promise_state: Option<PromiseState>,
    /// Each promise beside what it got.
    pub promises: Vec<PromiseView>,
    /// What else is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// How a guarantee stands, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GuaranteeState {
    /// The devices can give all of it.
    Verified,
    /// What they can give is unknown.
    Unverified,
    /// They can give less than what is promised.
    Oversold,
    /// The policy of a device keeps no guarantees.
    Ignored,
}

/// A volume.
#[derive(Debug, Serialize, JsonSchema)]
pub struct VolumeView {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Its size in bytes: as it is, or else as it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    pub tenant: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<CompressionName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// What is kept for it and its snapshots in its pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_bytes: Option<Size>,
    /// What was to become of data on a device that is given away whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentName>,
    /// Its number in its tenant's subsystem.
    pub nsid: u32,
    pub uuid: NamespaceUuid,
    pub nguid: Nguid,
    pub eui64: Option<Eui64>,
    pub subnqn: Option<String>,
    pub read_only: bool,
    /// Bytes per block, while it is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size: Option<u32>,
    #[serde(flatten)]
    pub stored: Option<StoredView>,
    /// That it goes to another pool, or was to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationView>,
    #[serde(flatten)]
    pub health: Health,
    /// What else is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The target's own settings.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TargetView {
    /// Where it listens: names as they were written, addresses with their real ports.
    pub listen: Vec<Address>,
    /// What that is now.
    pub addresses: Vec<SocketAddr>,
    /// How the NQNs of subsystems begin.
    pub nqn_prefix: String,
    pub cores: usize,
    /// What its controllers tell hosts.
    #[serde(flatten)]
    pub limits: LimitsView,
    /// Where sockets of functions are made; null for the state directory.
    pub socket_folder: Option<String>,
}

/// What controllers tell hosts.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LimitsView {
    /// Bytes that one command may move.
    pub max_transfer: Option<Size>,
    pub io_queues: Option<u16>,
    pub queue_depth: Option<u16>,
    /// Bytes of data in a capsule.
    pub in_capsule: Option<Size>,
}

/// The target at a glance.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StatusView {
    /// What is wrong.
    #[serde(flatten)]
    pub health: HealthView,
    /// The target as a whole.
    pub target: TargetRow,
    pub cores: Vec<CoreRow>,
    pub drives: Vec<DriveRow>,
    pub partitions: Vec<PartitionRow>,
    /// What is injected on purpose.
    pub injected: Vec<InjectedRow>,
    pub tenants: Vec<TenantRow>,
    pub functions: Vec<FunctionRow>,
    /// What tenants are promised, beside what they got in the last seconds.
    pub promises: Vec<PromiseView>,
    /// What is not available.
    pub faults: Vec<FaultRow>,
    /// What cost hosts a connection.
    pub events: Vec<EventRow>,
    /// If there are more tenants, the one that the next part is behind.
    #[serde(skip)]
    pub next: Option<String>,
}

/// The target as a whole.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TargetRow {
    pub version: &'static str,
    pub listen: Vec<SocketAddr>,
    /// What its controllers tell hosts.
    #[serde(flatten)]
    pub limits: LimitsView,
    pub devices: usize,
    pub pools: usize,
    pub volumes: usize,
    /// How many controllers hosts and guests have.
    pub hosts: usize,
    pub functions: usize,
    /// How often it was started.
    pub starts: u64,
    /// How many of its runs were cut off.
    pub ended_unsafely: u64,
    /// Seconds that it ran, in all runs.
    pub ran_seconds: u64,
}

/// A core at a glance.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CoreRow {
    pub core: usize,
    pub connections: usize,
}

/// An emulated drive at a glance.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DriveRow {
    pub device: String,
    pub profile: String,
    /// What was done to it before.
    pub condition: ConditionName,
    /// What it has done since.
    #[serde(flatten)]
    pub drive: DriveView,
}

/// A partition at a glance; nothing where it is not open.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PartitionRow {
    pub partition: String,
    pub device: String,
    pub size: Option<u64>,
    /// Flash written for each byte written.
    pub write_amplification: Option<f64>,
    /// Least and most erases of a line.
    pub wear: Option<String>,
    /// Bytes of flash that may still fail.
    pub spare_bytes: Option<u64>,
    /// How much later than due 99 of 100 completions were, in microseconds.
    pub lateness_p99_us: Option<f64>,
    pub used_by: Option<String>,
    pub state: Condition,
}

impl From<PartitionView> for PartitionRow {
    fn from(view: PartitionView) -> Self {
        let flash = view.flash.as_ref();
        Self {
            size: flash.map(|flash| flash.size),
            write_amplification: flash.and_then(|flash| flash.write_amplification),
            wear: flash.map(|flash| flash.wear.clone()),
            spare_bytes: flash.map(|flash| flash.spare_bytes),
            lateness_p99_us: flash.map(|flash| flash.lateness_p99_us),
            partition: view.name,
            device: view.device,
            used_by: view.used_by,
            state: view.health.state,
        }
    }
}

/// A fault that is injected on purpose; no figures while its device is not open.
#[derive(Debug, Serialize, JsonSchema)]
pub struct InjectedRow {
    pub device: String,
    /// As it would be typed.
    pub fault: String,
    /// Blocks (of poison) or I/Os (of all others) that it could have happened to.
    pub seen: Option<u64>,
    /// Those that it happened to.
    pub injected: Option<u64>,
    /// Those that were chosen and that nothing came of: another fault came first, or there was
    /// nothing to change.
    pub missed: Option<u64>,
}

/// A tenant at a glance: what its hosts did since it was made.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TenantRow {
    pub tenant: String,
    /// Its volumes that are served.
    pub volumes: usize,
    /// Controllers that its hosts have, and the guests of its functions.
    pub hosts: usize,
    pub reads: u64,
    pub writes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// I/O commands that ended with an error.
    pub errors: u64,
    pub guarantee_state: Option<GuaranteeState>,
    /// The worst of its promises, as kept in the last seconds.
    pub promise_state: Option<PromiseState>,
}

/// What is not available.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FaultRow {
    pub what: String,
    /// Why, and what to do.
    pub why: String,
}

/// What cost hosts a connection.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EventRow {
    pub number: u64,
    pub event: String,
}

/// What a device can give.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CalibrationView {
    pub device: String,
    pub capability: RatesSpec,
    /// How long reads take at several loads.
    pub curve: Vec<LoadView>,
    /// Whether the curve is kept: reads take longer when more of them come.
    pub curve_kept: bool,
    /// When and how it was measured.
    pub calibration: Conditions,
    /// What is to be said of the figures.
    pub note: Option<String>,
}

/// How long reads of 4 KiB take when so many come per second, in microseconds.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LoadView {
    pub read_iops: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
}

impl From<&LoadPoint> for LoadView {
    fn from(point: &LoadPoint) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        Self {
            read_iops: point.read_iops,
            mean_us: us(point.mean_ns),
            p50_us: us(point.p50_ns),
            p95_us: us(point.p95_ns),
            p99_us: us(point.p99_ns),
        }
    }
}
