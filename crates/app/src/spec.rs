//! What a user asks for: devices, pools, tenants, volumes and functions, as they stand in the
//! configuration file, in the state store and in control messages. One set of types for all three;
//! `check` says what is wrong with one.

mod address;
mod array;
mod check;
mod conditions;
mod crypt;
mod device;
mod document;
mod drive;
mod error;
mod fault;
mod fault_error;
mod file;
mod flat;
mod function;
mod identity;
mod keys;
mod kind;
mod namespace_uuid;
mod partition;
mod place;
mod policy_name;
mod rates;
#[cfg(test)]
mod reference;
mod share;
mod size;
mod target;

pub use address::Address;
pub use array::{ArraySpec, RebuildPriority, Redundancy};
pub use conditions::{Conditions, MeasuredMedium, MeasuredPlace};
pub use crypt::{CryptSpec, KeyText};
pub use device::{ChannelsSpec, DeviceSpec, FlashSpec, Medium, RemoteSpec, Store};
pub use document::{Document, Keys, Section, differences, merge, name_of, names_below};
pub use drive::{ConditionName, StoreName, is_file};
pub use error::{PartitionError, SpecError, ValueError};
pub use fault::{FaultLayerSpec, FaultSpec};
pub use file::FileError;
use std::collections::BTreeMap;

use flashyard_block::pool::VolumeForm;
pub use flat::FlatDevice;
pub use function::{DoorbellName, FunctionSpec, SocketMode};
pub use identity::{Eui64, Hex, Nguid};
pub use keys::allowed;
pub use kind::{CompressionName, DeviceKind, LoadPoint, VolumeKind};
pub use namespace_uuid::{CALIBRATION_UUID, NamespaceUuid, is_copy_uuid, new_copy_uuid};
pub use partition::{PartitionSpec, Unlike, parse_units, show_units};
pub use policy_name::PolicyName;
pub use rates::{Bandwidth, RatesSpec, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use size::Size;
pub use target::{CORES_MOST, SettingError, TargetSettings};

/// The whole configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The `[target]` table.
    #[serde(default)]
    pub target: TargetSettings,
    /// The `[[device]]` tables.
    #[serde(default, rename = "device")]
    pub devices: Vec<DeviceSpec>,
    /// The `[[pool]]` tables.
    #[serde(default, rename = "pool")]
    pub pools: Vec<PoolSpec>,
    /// The `[[tenant]]` tables.
    #[serde(default, rename = "tenant")]
    pub tenants: Vec<TenantSpec>,
    /// The `[[volume]]` tables.
    #[serde(default, rename = "volume")]
    pub volumes: Vec<VolumeSpec>,
    /// The `[[function]]` tables.
    #[serde(default, rename = "function")]
    pub functions: Vec<FunctionSpec>,
}

/// A device divided into volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    /// Unique among pools.
    pub name: String,
    /// The device it stands on: one.
    pub devices: Vec<String>,
    /// How its volumes are kept: `raw`, in space of the device with nothing between, or `mapped`,
    /// thin and checksummed; `raw` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<VolumeKind>,
    /// Where the key or passphrase of an encrypted pool is, which has to be `mapped`: each volume
    /// gets a key of its own; not encrypted if not given; `pool rekey` changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyText>,
    /// How new volumes of a mapped pool are compressed that do not say it, `none`, `lz4` or `zstd`;
    /// `none` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<CompressionName>,
    /// The chunks of new volumes of a mapped pool that do not say it, 4KiB or 16KiB; what goes with
    /// their compression if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<Size>,
}

impl PoolSpec {
    /// As it is kept: what holds where nothing is said is not said.
    #[must_use]
    pub fn normal(mut self) -> Self {
        self.kind = VolumeKind::normal(self.kind);
        self.compression = CompressionName::normal(self.compression);
        self.chunk = self.chunk.filter(|chunk| chunk.0 > 0);
        self
    }

    /// The device under it: `check` has let in one, and no more.
    pub fn device(&self) -> &str {
        self.devices.first().map_or("", String::as_str)
    }
}

/// A named party with hosts and volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantSpec {
    /// Unique among tenants.
    pub name: String,
    /// NQN of its subsystem; the target's `nqn_prefix`, a colon and the name if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nqn: Option<String>,
    /// Serial number of its subsystem; made of the target's identity and the NQN if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Model number of its subsystem; `Flashyard` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Host NQNs that may connect; `*` lets anybody in.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// The best class that its hosts may ask for.
    #[serde(default)]
    pub class: ClassName,
    /// Its share when everybody wants more than there is.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// What it gets of each device whatever the others do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<RatesSpec>,
    /// What it never gets more of, of each device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<RatesSpec>,
    /// What 99 of 100 of its latency-sensitive I/Os should stay under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_target: Option<Span>,
    /// What its volumes and their snapshots may take of mapped pools, with what is reserved for
    /// them: a size for each pool's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub quota: BTreeMap<String, Size>,
}

fn default_weight() -> u32 {
    1
}

/// The classes of I/O.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum ClassName {
    /// Latency-sensitive.
    Latency,
    /// Throughput-critical.
    #[default]
    Throughput,
    /// Only what the others leave.
    Background,
}

impl ClassName {
    /// The class as it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Background => "background",
        }
    }
}

/// A block device cut from a pool, or a whole device, given to a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeSpec {
    /// Unique among volumes.
    pub name: String,
    /// The pool it is cut from; this or `device` is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The device it is, whole; this or `pool` is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// How it is kept, `raw` or `mapped`: as its pool keeps volumes; that if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<VolumeKind>,
    /// How it is compressed in a mapped pool, `none`, `lz4` or `zstd`; `none` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<CompressionName>,
    /// What a mapped pool stores and compresses as a whole, 4KiB or 16KiB, so that writes of less
    /// read and write all of it; 16KiB where it is compressed and else 4KiB if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<Size>,
    /// Size, which can grow and not shrink; needed with `pool`, refused with `device`. Of a whole
    /// device the target keeps here what it has given away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Space of its mapped pool that is kept for it and its snapshots, what they take included, so
    /// that no other volume can have it; none if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Size>,
    /// Who it belongs to.
    pub tenant: String,
    /// UUID that hosts know it by; a new one if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<NamespaceUuid>,
    /// NGUID that hosts know it by; the bytes of the UUID if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nguid: Option<Nguid>,
    /// EUI64 that hosts know it by; none if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eui64: Option<Eui64>,
    /// Number in its tenant's subsystem; the next free one if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nsid: Option<u32>,
    /// Whether writes are refused; `false` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// What becomes of data that a device has which is given away whole; needed if there may be
    /// some that this target knows nothing of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentName>,
}

impl VolumeSpec {
    /// A chunk as it is kept: 4 KiB is what holds where nothing is said.
    pub fn normal_chunk(chunk: Option<Size>) -> Option<Size> {
        chunk.filter(|chunk| chunk.0 != u64::from(VolumeForm::CHUNKS[0]))
    }

    /// How its pool keeps its data.
    pub fn form(&self) -> VolumeForm {
        let least = VolumeForm::default();
        VolumeForm {
            chunk: self.chunk.map_or(least.chunk, |chunk| chunk.0 as u32),
            compression: self.compression.and_then(CompressionName::codec),
        }
    }
}

/// What becomes of the data on a device that is given away whole.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum ContentName {
    /// The tenant gets them.
    Keep,
    /// It is a snapshot in its pool.
    #[value(skip)]
    Snapshot,
    /// They are zeroed. A start leaves that to `apply`, for its state may have been lost.
    Erase,
}
