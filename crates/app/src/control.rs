//! What can be asked of a running target, and what it answers. `api` carries it over HTTP; the same
//! types serve both ends.

mod activity;
mod arrays;
mod asker;
mod audit;
mod condition;
mod error_kind;
mod events;
mod functions;
mod health;
mod metrics;
mod migration;
mod page;
mod plan;
mod promises;
mod snapshots;
mod space;
mod traffic;
mod view;
mod why;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::spec::{
    ClassName, CompressionName, DeviceSpec, Document, DoorbellName, FaultSpec, FunctionSpec,
    KeyText, PartitionSpec, PolicyName, PoolSpec, RatesSpec, Size, SocketMode, Span,
    TargetSettings, TenantSpec, VolumeSpec,
};

pub use activity::{
    ActivityView, ConnectionActivity, CoreActivity, DeviceActivity, TenantActivity, TenantOnDevice,
};
pub use arrays::{ArrayChange, ArrayHow, ArrayOf, ArrayView, RebuildChange};
pub use asker::{Asker, Progress, Shows};
pub use audit::{AuditAsk, AuditRecord, Means};
pub use condition::{Condition, Health};
pub use error_kind::{ErrorKind, HasKind};
pub use events::{EventKind, EventView, EventsAsk, EventsView, Level, SlowIoView, SlowOp};
pub use functions::{FunctionRow, FunctionView, GuestState, GuestView};
pub use health::{HealthAsk, HealthCode, HealthState, HealthView, ProblemRow};
pub use metrics::{MetricsForm, MetricsText};
pub use migration::{MigrationState, MigrationView};
pub use page::{LIMIT_MAX, Listed, Page, VolumesOf};
pub use plan::{AppliedView, How, KeyChange, ObjectChange, Risk, Verb};
pub use promises::{LimitedBy, PromiseState, PromiseView};
pub use snapshots::*;
pub use space::{QuotaView, SpaceView};
pub use traffic::{TimesView, TrafficRow, TrafficView};
pub use view::*;
pub use why::*;

/// What can be asked of a running target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Everything at a glance; of tenants a part.
    Status(Page),
    /// Something about what is wrong.
    Health(HealthAsk),
    /// Figures for Prometheus.
    Metrics(MetricsForm),
    /// What came to volumes since the target started, of a part of the tenants.
    Traffic(Page),
    /// What goes on at this moment, of a part of the tenants.
    Activity(Page),
    /// What has happened.
    Events(EventsAsk),
    /// Who has changed something.
    Audit(AuditAsk),
    /// The target's own settings.
    ShowTarget,
    /// Other settings of the target.
    SetTarget(TargetSettings),
    /// All of a kind, or a part of these, by name.
    List(KindName, Page),
    /// All volumes, or those of somebody or something, or a part of these, by name.
    ListVolumes(VolumesOf, Page),
    /// One of a kind.
    Show(KindName, String),
    /// A new device.
    CreateDevice(DeviceSpec),
    /// A new device before another one, even if that holds something, which is lost.
    CreateDeviceOver(DeviceSpec),
    /// Another key or passphrase for an encrypted device.
    Rekey {
        /// Which.
        name: String,
        /// Where the new one is.
        key: KeyText,
    },
    /// The same for an encrypted pool: which, and where the new one is.
    RekeyPool(String, KeyText),
    /// An encrypted device less, and its key forgotten.
    EraseKey(String),
    /// Opens a device that could not be opened at the start, with what stands on it.
    StartDevice(String),
    /// Has a pool use what its device has grown by.
    GrowPool(String),
    /// Changes what a pool has for new volumes.
    SetPool {
        /// Which.
        name: String,
        /// What is to change.
        change: PoolChange,
    },
    /// Deletes an encrypted pool, with its volumes if it could not be opened.
    ErasePool(String),
    /// A device made of others, new or as it is on them, and a pool on it.
    CreateArray {
        /// What it is to be.
        of: Box<ArrayOf>,
        /// How it begins.
        how: ArrayHow,
    },
    /// Other members for the array under a pool, or work on it.
    ChangeArray {
        /// The pool, or the array itself.
        name: String,
        /// What is to be done.
        change: ArrayChange,
    },
    /// What one of these makes, if it is not there already with the same settings: a device, pool,
    /// tenant or volume.
    CreateIfMissing(Box<Request>),
    /// A new pool.
    CreatePool {
        /// What it is to be.
        spec: PoolSpec,
        /// Even if the device holds something.
        force: bool,
    },
    /// A pool that is on a device, and that the state does not know.
    ImportPool {
        /// What it is to be called, and where it is.
        spec: PoolSpec,
        /// The tenant of its volumes; none yet if not given.
        tenant: Option<String>,
        /// Only tell what there is.
        list: bool,
    },
    /// Partitions that are on a device, and that the state does not know.
    ImportPartitions {
        /// The device.
        device: String,
        /// Which; all if not given.
        name: Option<String>,
        /// The policy in front of those that the file does not name; `fair` if not given.
        policy: Option<PolicyName>,
        /// Only tell what there is.
        list: bool,
    },
    /// A volume that is in a pool, and that the state does not know; its UUID and size are there.
    ImportVolume(VolumeSpec),
    /// A new tenant.
    CreateTenant {
        /// What it is to be.
        spec: TenantSpec,
        /// Even if a device cannot give what it is promised.
        force: bool,
    },
    /// A new volume.
    CreateVolume {
        /// What it is to be.
        spec: VolumeSpec,
        /// Even if its tenant is promised more there than it can have.
        force: bool,
    },
    /// New functions, all of them or none.
    CreateFunctions(Vec<FunctionSpec>),
    /// Other permissions for the socket of a function.
    SetFunction {
        /// Which.
        name: String,
        /// What is to change.
        change: FunctionChange,
    },
    /// One function less.
    DeleteFunction {
        /// Which.
        name: String,
        /// Even while a virtual machine uses it.
        connected: bool,
    },
    /// Other settings for a tenant.
    SetTenant {
        /// Which.
        name: String,
        /// What is to change.
        change: TenantChange,
        /// Even if a device cannot give what it is promised.
        force: bool,
    },
    /// Another policy for a device, while it is used.
    SetDevice {
        /// Which.
        name: String,
        /// The policy from now on.
        policy: PolicyName,
    },
    /// Other faults for a device that injects them, while it is used.
    SetFaults {
        /// Which.
        name: String,
        /// The faults from now on.
        faults: Vec<FaultSpec>,
    },
    /// What a device can give.
    Calibrate {
        /// Which.
        device: String,
        /// Measure it by writing it over: its content is lost.
        destroy: bool,
        /// Tell how far it is until the answer comes.
        progress: bool,
    },
    /// Where the latency of a tenant comes from.
    Why {
        /// Which.
        tenant: String,
    },
    /// More units for a partition.
    GrowPartition {
        /// Which.
        name: String,
        /// The units that it is to have beside its own.
        more: PartitionSpec,
    },
    /// A larger size for a volume, or write protection.
    SetVolume {
        /// Which.
        name: String,
        /// What is to change.
        change: VolumeChange,
    },
    /// Another name for a volume.
    RenameVolume {
        /// Which.
        name: String,
        /// What it is called from now on.
        new: String,
    },
    /// A volume with its content for another tenant.
    MoveVolume {
        /// Which.
        name: String,
        /// Who is to have it.
        tenant: String,
        /// Its number there; a free one if not given.
        nsid: Option<u32>,
        /// Even if that tenant is promised more there than it can have.
        force: bool,
    },
    /// A volume for another pool, while it is used.
    MigrateVolume {
        /// Which.
        name: String,
        /// What becomes of it.
        to: Destination,
        /// Answer when the copying has begun; it goes on by itself.
        background: bool,
        /// Even if its tenant is promised more there than it can have.
        force: bool,
        /// Tell how far it is until the answer comes.
        progress: bool,
    },
    /// A volume that goes to another pool is to stay where it is.
    CancelMigration(String),
    /// Another name for a tenant.
    RenameTenant {
        /// Which.
        name: String,
        /// What it is called from now on.
        new: String,
    },
    /// Something about snapshots.
    AskSnapshots(SnapshotAsk),
    /// Something is to be done with snapshots.
    ChangeSnapshot(SnapshotChange),
    /// The configuration file that makes what is there.
    Export,
    /// A copy of the state store, in a file that is not there yet; an absolute path.
    Backup(PathBuf),
    /// One less of a kind.
    Delete(KindName, String),
    /// The partition of a device, whether the target knows it or not.
    DeletePartition {
        /// Its name.
        name: String,
        /// The device.
        device: String,
    },
    /// Create and change what the configuration names.
    Apply {
        /// What should be there.
        file: Document,
        /// What else is wanted.
        how: How,
    },
}

impl Request {
    /// What the answer is about: a kind of thing, in the plural, or a question; nothing where the
    /// answer says it.
    pub fn noun(&self) -> &'static str {
        match self {
            Self::CreateIfMissing(create) => create.noun(),
            Self::List(kind, _) | Self::Show(kind, _) => kind.plural(),
            Self::CreateDevice(spec) if spec.partition().is_some() => KindName::Partition.plural(),
            Self::GrowPartition { .. } => KindName::Partition.plural(),
            Self::CreateDevice(_)
            | Self::CreateDeviceOver(_)
            | Self::Rekey { .. }
            | Self::StartDevice(_)
            | Self::SetDevice { .. }
            | Self::SetFaults { .. } => KindName::Device.plural(),
            // What was found in a pool is not shown as a pool is.
            Self::CreateArray { of, how } => match of.pool {
                Some(_) if how.import => "",
                Some(_) => KindName::Pool.plural(),
                None => KindName::Device.plural(),
            },
            Self::CreatePool { .. }
            | Self::SetPool { .. }
            | Self::GrowPool(_)
            | Self::RekeyPool(..)
            | Self::ChangeArray { .. } => KindName::Pool.plural(),
            Self::CreateTenant { .. } | Self::SetTenant { .. } | Self::RenameTenant { .. } => {
                KindName::Tenant.plural()
            }
            Self::AskSnapshots(_) | Self::ChangeSnapshot(SnapshotChange::Create(_)) => "snapshots",
            Self::ListVolumes(..)
            | Self::CreateVolume { .. }
            | Self::ImportVolume(_)
            | Self::SetVolume { .. }
            | Self::RenameVolume { .. }
            | Self::MigrateVolume { .. }
            | Self::CancelMigration(_)
            | Self::ChangeSnapshot(_)
            | Self::MoveVolume { .. } => KindName::Volume.plural(),
            Self::CreateFunctions(_) | Self::SetFunction { .. } => KindName::Function.plural(),
            Self::Why { .. } => "why",
            Self::Audit(_) => "audit",
            Self::Metrics(_) => "metrics",
            _ => "",
        }
    }
}

/// What becomes of a volume while its hosts use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// It goes to this pool.
    Pool(String),
    /// It stays in its mapped pool, and is kept there otherwise.
    Form(NewForm),
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(pool) => write!(f, "pool {pool}"),
            Self::Form(_) => f.write_str("other settings"),
        }
    }
}

/// How a volume of a mapped pool is to be kept; as it is where nothing is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewForm {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<CompressionName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<Size>,
}

/// What is to change in a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeChange {
    /// How large it is to be.
    Size(Size),
    /// What is kept for it in its pool; 0 is nothing.
    Reserve(Size),
    /// Whether writes are refused.
    ReadOnly(bool),
}

/// What is to change of what a pool has for new volumes; what is not given stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PoolChange {
    /// How they are compressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<CompressionName>,
    /// Their chunks; 0 is what goes with their compression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk: Option<Size>,
}

/// What is to change in a tenant; what is not given stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TenantChange {
    /// The new list of hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// The new class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassName>,
    /// The new weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// The new guarantee; an empty one removes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<RatesSpec>,
    /// The new limit; an empty one removes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<RatesSpec>,
    /// The new latency target; zero removes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_target: Option<Span>,
    /// New quotas by pool; zero removes one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub quota: BTreeMap<String, Size>,
}

/// What is to change in a function; what is not given stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FunctionChange {
    /// The new permissions of its socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<SocketMode>,
    /// The new owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The new group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// How a guest rings, from the next start on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doorbells: Option<DoorbellName>,
    /// How many cores serve its I/O queues, from the next start on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<usize>,
}

/// The kinds of thing a request can be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KindName {
    /// Devices.
    Device,
    /// Devices that are partitions of others.
    Partition,
    /// Pools.
    Pool,
    /// Tenants.
    Tenant,
    /// Volumes.
    Volume,
    /// Functions.
    Function,
}

impl KindName {
    /// Several of it.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Device => "devices",
            Self::Partition => "partitions",
            Self::Pool => "pools",
            Self::Tenant => "tenants",
            Self::Volume => "volumes",
            Self::Function => "functions",
        }
    }
}
