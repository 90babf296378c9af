//! The kinds of device, as they are written, and what measuring a device gives.

use flashyard_block::pool::Kind;
use flashyard_codec::compress::Codec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How long reads of 4 KiB take when so many come per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadPoint {
    /// Reads per second.
    pub read_iops: u64,
    /// Mean latency in nanoseconds.
    pub mean_ns: u64,
    /// Median latency in nanoseconds.
    pub p50_ns: u64,
    /// What 95 of 100 keep to, in nanoseconds.
    pub p95_ns: u64,
    /// What 99 of 100 keep to, in nanoseconds.
    pub p99_ns: u64,
}

/// The kinds of device.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
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
    /// A layer that injects faults before another device, for tests.
    Fault,
    /// A layer that encrypts another device.
    Crypt,
    /// Several devices as one: striped, mirrored, or both.
    Array,
}

impl DeviceKind {
    /// The kind as it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Memory => "memory",
            Self::File => "file",
            Self::Block => "block",
            Self::Flash => "flash",
            Self::OpenChannel => "open-channel",
            Self::Zoned => "zoned",
            Self::Partition => "partition",
            Self::NvmeTcp => "nvme-tcp",
            Self::Fault => "fault",
            Self::Crypt => "crypt",
            Self::Array => "array",
        }
    }
}

/// How a pool keeps the data of its volumes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeKind {
    /// In space of the device, with nothing between.
    Raw,
    /// Thin and checksummed, in a log.
    Mapped,
}

impl VolumeKind {
    /// As it is kept: `raw` is what holds where nothing is said.
    pub fn normal(kind: Option<Self>) -> Option<Self> {
        kind.filter(|kind| *kind != Self::Raw)
    }

    /// As pools know it.
    pub fn of_pool(kind: Option<Self>) -> Kind {
        match kind {
            Some(Self::Mapped) => Kind::Mapped,
            Some(Self::Raw) | None => Kind::Raw,
        }
    }

    /// As it is kept of a pool that is there.
    pub fn found(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Raw => None,
            Kind::Mapped => Some(Self::Mapped),
        }
    }
}

/// How the chunks of a volume are compressed.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum CompressionName {
    /// Not at all.
    None,
    /// LZ4: fast.
    Lz4,
    /// Zstandard: half as fast, and a third smaller.
    Zstd,
}

impl CompressionName {
    /// As it is kept: not at all is what holds where nothing is said.
    pub fn normal(name: Option<Self>) -> Option<Self> {
        name.filter(|name| *name != Self::None)
    }

    /// As pools know it.
    pub fn codec(self) -> Option<Codec> {
        match self {
            Self::None => None,
            Self::Lz4 => Some(Codec::Lz4),
            Self::Zstd => Some(Codec::Zstd),
        }
    }

    /// As it is kept of a volume that is there.
    pub fn found(codec: Option<Codec>) -> Option<Self> {
        codec.map(|codec| match codec {
            Codec::Lz4 => Self::Lz4,
            Codec::Zstd => Self::Zstd,
        })
    }
}
