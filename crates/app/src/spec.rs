//! What a user asks for: devices, pools, tenants and volumes, as they stand in the configuration
//! file, in the state store and in control messages. One set of types for all three; `check` says
//! what is wrong with one.

mod check;
mod drive;
mod identity;
mod partition;
mod share;
mod size;
mod target;

pub use drive::{ConditionName, StoreName, is_file};
pub use identity::{Eui64, Hex, NamespaceUuid, Nguid};
pub use partition::{PartitionSpec, parse_units, show_units};
use serde::{Deserialize, Serialize};
pub use share::{Bandwidth, RatesSpec, Span};
pub use size::Size;
pub use target::{TargetSettings, TargetSpec};

/// Longest name of anything, in bytes.
pub const NAME_LEN_MAX: usize = 64;

/// The whole configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The `[target]` table.
    #[serde(default)]
    pub target: TargetSpec,
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
}

/// Something that stores blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// Unique among devices.
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    /// Size such as `8GiB`; needed for `null`, `memory`, `flash` and new files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Bytes per block, 512 or 4096.
    #[serde(default = "default_block_size")]
    pub block_size: u32,
    /// File or block device, for the kinds `file`, `block` and `zoned`; for `flash` and
    /// `open-channel` with `store = "file"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `ADDR:PORT` of the other target, for `nvme-tcp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<std::net::SocketAddr>,
    /// Subsystem of the other target, for `nvme-tcp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnqn: Option<String>,
    /// Namespace of the other target, for `nvme-tcp`; 1 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nsid: Option<u32>,
    /// The drive that a `flash` device emulates: the name of a profile, or a file that holds one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// What was done to a `flash` drive before; empty if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<ConditionName>,
    /// Where the content of a `flash` or `open-channel` device is; in memory if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreName>,
    /// What chance in the condition of a `flash` drive follows from; 1 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// How many times slower than its model a `flash` drive is; 1 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dilation: Option<u32>,
    /// Parallel units that the zones of a `zoned` device are dealt out to; as many as make sense if
    /// not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<u32>,
    /// What a partition was cut from, and what of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionSpec>,
    /// The algorithm of the switch in front of it.
    #[serde(default)]
    pub policy: PolicyName,
    /// What it can give at most, which guarantees are held against; measured by `device calibrate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<RatesSpec>,
    /// How long its reads take at several loads, the least load first; measured by `device
    /// calibrate`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<LoadPoint>,
    /// What is on it comes from users of this target, or nothing is on it: it may be zeroed for its
    /// next user without a question. Kept by the target, not for files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disposable: bool,
}

/// How long reads of 4 KiB take when so many come per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadPoint {
    /// Reads per second.
    pub read_iops: u64,
    /// Mean latency in nanoseconds.
    pub mean_ns: u64,
    /// Its median.
    pub p50_ns: u64,
    /// What 95 of 100 keep to.
    pub p95_ns: u64,
    /// What 99 of 100 keep to.
    pub p99_ns: u64,
}

fn default_block_size() -> u32 {
    4096
}

/// The kinds of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// Keeps nothing, reads as zeroes.
    Null,
    /// Lives in memory and dies with the program.
    Memory,
    /// A regular file.
    File,
    /// A kernel block device.
    Block,
    /// An emulated drive.
    Flash,
    /// An emulated open-channel device, for partitions.
    OpenChannel,
    /// A host-managed zoned block device of the kernel, for partitions.
    Zoned,
    /// Parallel units of an open-channel or zoned device.
    #[value(skip)]
    Partition,
    /// A namespace of another target.
    NvmeTcp,
}

/// The scheduling policies that can stand in front of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// Order of arrival.
    Fifo,
    /// Device time in proportion to weights, with guarantees, limits and latency targets.
    #[default]
    Fair,
    /// Gimbal (SIGCOMM 2021), with the faults of its release repaired.
    Gimbal,
    /// Gimbal as its authors released it.
    GimbalReleased,
    /// ReFlex (ASPLOS 2017): tokens priced by what the device was measured to do.
    Reflex,
    /// FlashFQ (USENIX ATC 2013): start-time fair queueing with costs measured before.
    #[value(name = "flashfq")]
    #[serde(rename = "flashfq")]
    FlashFq,
    /// Limits alone.
    Caps,
}

/// A device divided into volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    /// Unique among pools.
    pub name: String,
    /// The device it stands on.
    pub devices: Vec<String>,
}

/// A named party with hosts and volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantSpec {
    /// Unique among tenants; the last part of its subsystem's NQN if `nqn` is not given.
    pub name: String,
    /// NQN of its subsystem; fixed when the tenant is made, as the next two are.
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
    /// What its I/O wants.
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
}

fn default_weight() -> u32 {
    1
}

/// The classes of I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
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

/// A block device cut from a pool, or a whole device, given to a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeSpec {
    /// Unique among volumes.
    pub name: String,
    /// The pool it is cut from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The device it is, whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Size; needed with `pool`, refused with `device`. Of a whole device the target keeps here
    /// what it has given away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Who it belongs to.
    pub tenant: String,
    /// UUID that hosts know it by; fixed when the volume is made, as the next three are. Made anew
    /// if not given.
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
    /// Whether writes are refused; a new volume takes them if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// What becomes of data that a device has which is given away whole; needed if there may be
    /// some that this target knows nothing of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentName>,
}

/// What becomes of the data on a device that is given away whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContentName {
    /// The tenant gets them.
    Keep,
    /// They are zeroed.
    Erase,
}
