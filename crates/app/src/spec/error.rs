//! What is wrong with what a user has written, in one line that says what to do.

use std::fmt;

use flashyard_block::array::MAX_COLUMNS;
use flashyard_flash::Profile;
use flashyard_flash::ssd::UnknownCondition;
use flashyard_nvme::Nqn;
use flashyard_nvme::nqn::InvalidNqn;
use flashyard_time::Duration;
use uuid::Uuid;

use super::fault_error::FaultError;
use super::function::FunctionError;
use super::kind::DeviceKind;
use super::rates::Bandwidth;
use super::target::SettingError;
use crate::units::{self, UnitError};

/// Longest name of anything, in bytes.
pub const NAME_LEN_MAX: usize = 64;
/// Most bytes of an NQN (NVM Express Base Specification, NVMe Qualified Names).
pub(super) const NQN_LEN_MAX: usize = 223;
/// Who gives a size below this has forgotten the unit.
pub(super) const SIZE_LEAST: u64 = 1 << 20;
/// Weights go up to this.
pub(super) const WEIGHT_MOST: u32 = 10_000;
/// Most that a drive can be slowed down: a read of a tenth of a millisecond then takes a tenth of a
/// second.
pub(super) const DILATION_MOST: u32 = 1_000;
/// Numbers in a list of units at most.
pub(super) const MOST_NUMBERS: usize = 4096;
/// The keys of rates.
pub(super) const RATES: [&str; 6] = [
    "iops",
    "read_iops",
    "write_iops",
    "bandwidth",
    "read_bandwidth",
    "write_bandwidth",
];

/// What is wrong with a file, or with an entry by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecError {
    /// The text is no configuration: where, if that is known, and what is wrong.
    Syntax(Option<usize>, String),
    /// An entry is wrong in this line.
    At(usize, Box<SpecError>),
    /// Two entries of a kind have the same name.
    Twice(&'static str, String),
    /// Not a name for a thing of this kind.
    Name(&'static str, String),
    /// A setting of the target.
    Setting(SettingError),
    /// A target with so many cores.
    Cores(usize),
    /// Not what names of subsystems can begin with.
    Prefix(String),
    /// What hosts know something by.
    Identity(IdentityError),
    /// What is wrong with a device, and with which one.
    Device(String, DeviceError),
    /// A pool of no device, or of several.
    PoolDevices(String, usize),
    /// A pool that is not mapped has a key.
    PoolKey(String),
    /// A pool that is not mapped says how volumes are compressed.
    PoolDefaults(String),
    /// Volumes of a pool cannot have these chunks.
    PoolChunk(String, u64),
    /// What is wrong with a tenant, and with which one.
    Tenant(String, TenantError),
    /// What is wrong with a volume, and with which one.
    Volume(String, VolumeError),
    /// What is wrong with a function, and with which one.
    Function(String, FunctionError),
}

/// What is wrong with a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// The kind needs this key.
    Needs(DeviceKind, &'static str),
    /// The kind has no such key.
    HasNo(DeviceKind, &'static str),
    /// The target itself notes this key.
    Noted(&'static str),
    /// Blocks of so many bytes.
    BlockSize(u32),
    /// Sectors of a device for partitions are not chosen.
    SectorSize,
    /// So many bytes are not a whole number of such blocks, or none.
    Size(u64, u32),
    /// So many bytes, in such blocks, are less than anybody means.
    Small(u64, u32),
    /// Not the name of a subsystem.
    Subnqn(String, InvalidNqn),
    /// A translation layer needs what it has written.
    Pattern,
    /// No profile that ships.
    Profile(String),
    /// So many times slower.
    Dilation(u32),
    /// What is wrong with the partition that it is.
    Partition(PartitionError),
    /// What is wrong with a fault that it is to inject.
    Fault(Box<FaultError>),
    /// So many devices cannot be sets of so many copies.
    Members(usize, u32),
    /// So many devices cannot have parity, which needs the second number of them.
    Columns(usize, u32),
    /// A mirror with so many copies.
    Copies(u32),
    /// So many devices are no sets of so many columns.
    Sets(usize, u32),
    /// An array without parity has no columns.
    NoColumns,
    /// An array without redundancy has one copy only.
    OneCopy,
    /// An array without redundancy is never rebuilt.
    NothingToRebuild(&'static str),
    /// A rebuild would take weeks.
    RebuildLimit(Bandwidth),
    /// An array without redundancy has nothing to fill a spare from.
    SpareOfNone,
    /// A device that an array has twice, or itself.
    Twice(String),
}

/// What is wrong with the choice of units for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionError {
    /// They are named in no way, or in several.
    Wanted,
    /// Not a percentage.
    OverProvisioning(String),
    /// Not a parallel unit.
    Unit(String),
    /// Not a channel, and not a range of them.
    Channels(String),
    /// More than any device has.
    TooMany,
    /// What it was given is not what another key chooses: the key, what it says, and what was
    /// given.
    Given(&'static str, String, String),
}

/// What is wrong with a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantError {
    /// Not a name of a host.
    Host(String),
    /// Out of range.
    Weight(u32),
    /// This rate, of a guarantee or limit, is nothing.
    Nothing(&'static str, &'static str),
    /// It is guaranteed more than its limit of this rate lets through.
    AboveLimit(&'static str, u64),
    /// Out of range.
    LatencyTarget(Duration),
}

/// What is wrong with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeError {
    /// So many bytes are not a whole number of blocks of its pool, which have so many, or less than
    /// anybody means.
    Size(u64, u32),
    /// Of a pool, with a word on what is in it.
    Content,
    /// Of a pool, without a size.
    NeedsSize,
    /// A whole device, with a size.
    HasNoSize,
    /// On neither a pool nor a device, or on both.
    Place,
    /// A whole device, with a kind.
    HasNoKind,
}

/// What cannot be read as what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueError {
    /// A rate with its value.
    Rate(String),
    /// The value of a rate.
    In(String, UnitError),
    /// A name of a rate.
    NoSuchRate(String),
    /// A pool with its size.
    Quota(String),
    /// What was done to a drive.
    Condition(String, UnknownCondition),
}

/// Why something is no identity for a volume or a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityError {
    /// Not a UUID, or the one that is all zero.
    Uuid(String),
    /// The one that calibration keeps for itself.
    ReservedUuid(Uuid),
    /// Not so many bytes in hexadecimal digits, or all zero.
    Hex(String, usize),
    /// A namespace number is from 1 on.
    Nsid(String),
    /// Not an NQN for a subsystem.
    Nqn(String, String),
    /// Not a serial number.
    Serial(String, String),
    /// Not a model number.
    Model(String, String),
    /// Two volumes or tenants of a file have the same: the key, what it says, and the later one.
    Twice(&'static str, String, String),
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(text) => write!(
                f,
                "`{text}` is not a UUID: write it like 2f0d1c46-52c5-4b0f-9a1c-0d3a5f2b7e11, not all zero"
            ),
            Self::ReservedUuid(uuid) => write!(
                f,
                "UUID {uuid} is kept for `device calibrate`: take another, or leave it out"
            ),
            Self::Hex(text, bytes) => write!(
                f,
                "`{text}` is not {} hexadecimal digits, or all zero",
                2 * bytes
            ),
            Self::Nsid(volume) => write!(f, "volume `{volume}`: nsid is 0; numbers begin with 1"),
            Self::Nqn(tenant, nqn) => write!(
                f,
                "tenant `{tenant}`: nqn `{nqn}` is no name for a subsystem: write it like \
                 nqn.2014-08.org.example:name, at most {} bytes, and not the one of discovery",
                Nqn::MAX_LEN
            ),
            Self::Serial(tenant, serial) => write!(
                f,
                "tenant `{tenant}`: serial `{serial}` must be 1 to 20 printable ASCII characters, without spaces at the ends"
            ),
            Self::Model(tenant, model) => write!(
                f,
                "tenant `{tenant}`: model `{model}` must be 1 to 40 printable ASCII characters, without spaces at the ends"
            ),
            Self::Twice(key, value, name) => write!(
                f,
                "`{name}`: {key} {value} is there twice: hosts know things by it"
            ),
        }
    }
}

impl std::error::Error for IdentityError {}

impl SpecError {
    /// What it is about: the kind of table, its name and the key.
    pub(super) fn subject(&self) -> Option<(&'static str, &str, &'static str)> {
        Some(match self {
            Self::Syntax(..) | Self::At(..) => return None,
            Self::Twice(what, name) | Self::Name(what, name) => (what, name, "name"),
            Self::Setting(error) => ("target", "", error.key()),
            Self::Cores(_) => ("target", "", "cores"),
            Self::Prefix(_) => ("target", "", "nqn_prefix"),
            Self::Identity(error) => return error.subject(),
            Self::Device(name, error) => ("device", name, error.key()),
            Self::PoolDevices(name, _) => ("pool", name, "devices"),
            Self::PoolKey(name) => ("pool", name, "key"),
            Self::PoolDefaults(name) => ("pool", name, "compression"),
            Self::PoolChunk(name, _) => ("pool", name, "chunk"),
            Self::Tenant(name, error) => ("tenant", name, error.key()),
            Self::Volume(name, error) => ("volume", name, error.key()),
            Self::Function(name, error) => ("function", name, error.key()),
        })
    }
}

impl IdentityError {
    fn subject(&self) -> Option<(&'static str, &str, &'static str)> {
        Some(match self {
            // Found where they stand.
            Self::Uuid(_) | Self::ReservedUuid(_) | Self::Hex(..) => return None,
            Self::Nsid(volume) => ("volume", volume, "nsid"),
            Self::Nqn(tenant, _) => ("tenant", tenant, "nqn"),
            Self::Serial(tenant, _) => ("tenant", tenant, "serial"),
            Self::Model(tenant, _) => ("tenant", tenant, "model"),
            Self::Twice(key, _, name) => match *key {
                "nqn" => ("tenant", name, key),
                "socket" => ("function", name, key),
                _ => ("volume", name, key),
            },
        })
    }
}

impl DeviceError {
    fn key(&self) -> &'static str {
        match self {
            Self::Needs(..) => "name",
            Self::HasNo(_, key) | Self::NothingToRebuild(key) => key,
            Self::Noted(key) => key.split('.').next().unwrap_or(key),
            Self::BlockSize(_) | Self::SectorSize => "block_size",
            Self::Size(..) | Self::Small(..) => "size",
            Self::Subnqn(..) => "subnqn",
            Self::Pattern => "store",
            Self::Profile(_) => "profile",
            Self::Dilation(_) => "dilation",
            Self::Partition(_) => "partition",
            Self::Fault(_) => "faults",
            Self::Members(..) | Self::Sets(..) | Self::Columns(..) | Self::Twice(_) => "devices",
            Self::Copies(_) => "copies",
            Self::NoColumns => "columns",
            Self::OneCopy => "redundancy",
            Self::RebuildLimit(_) => "rebuild_limit",
            Self::SpareOfNone => "spares",
        }
    }
}

impl TenantError {
    fn key(&self) -> &'static str {
        match self {
            Self::Host(_) => "hosts",
            Self::Weight(_) => "weight",
            Self::Nothing(what, _) => what,
            Self::AboveLimit(..) => "guarantee",
            Self::LatencyTarget(_) => "latency_target",
        }
    }
}

impl VolumeError {
    fn key(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::NeedsSize | Self::HasNoSize | Self::Size(..) => "size",
            Self::HasNoKind => "kind",
            Self::Place => "name",
        }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(Some(line), what) => write!(f, "line {line}: {what}"),
            Self::Syntax(None, what) => f.write_str(what),
            Self::At(line, error) => write!(f, "line {line}: {error}"),
            Self::Twice(what, name) => {
                write!(f, "{what} `{name}` is there twice: rename one of them")
            }
            Self::Name(what, name) => write!(
                f,
                "`{name}` is not a name for a {what}: use 1 to {NAME_LEN_MAX} letters, digits, `-`, `_` or `.`, \
                 beginning with a letter, a digit or `_`"
            ),
            Self::Setting(error) => error.fmt(f),
            Self::Cores(cores) => write!(f, "[target] cores = {cores} is out of range: 1 to 256"),
            Self::Prefix(prefix) => write!(
                f,
                "[target] nqn_prefix `{prefix}` must begin with `nqn.`, a year and a month, as nqn.2026-11.org.example does, \
                 and have at most {} bytes",
                NQN_LEN_MAX - 1 - NAME_LEN_MAX
            ),
            Self::Identity(error) => error.fmt(f),
            Self::Device(name, DeviceError::Partition(error)) => {
                write!(f, "partition `{name}`: {error}")
            }
            Self::Device(name, error) => write!(f, "device `{name}`: {error}"),
            Self::PoolDevices(name, 0) => write!(f, "pool `{name}`: name the device it stands on"),
            Self::PoolDevices(name, _) => write!(
                f,
                "pool `{name}`: several devices need RAID, which this version does not have"
            ),
            Self::PoolKey(name) => write!(
                f,
                "pool `{name}`: only a mapped pool has a key: say kind mapped, or encrypt the device under it (a device of kind \
                 crypt)"
            ),
            Self::PoolDefaults(name) => write!(
                f,
                "pool `{name}`: only volumes of a mapped pool are compressed or have chunks: say kind mapped"
            ),
            Self::PoolChunk(name, chunk) => write!(
                f,
                "pool `{name}`: no volume has chunks of {}: use 4KiB, or 16KiB, which compresses better",
                units::size(*chunk)
            ),
            Self::Tenant(name, error) => write!(f, "tenant `{name}`: {error}"),
            Self::Volume(name, error) => write!(f, "volume `{name}`: {error}"),
            Self::Function(name, error) => write!(f, "function `{name}`: {error}"),
        }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Needs(kind, key) => write!(f, "a {} device needs `{key}`", kind.name()),
            Self::HasNo(kind, key) => write!(f, "a {} device has no `{key}`", kind.name()),
            Self::Noted(key) => write!(
                f,
                "`{key}` is noted by the target itself and not for files: leave it out"
            ),
            Self::BlockSize(bytes) => write!(f, "block_size is {bytes}; it must be 512 or 4096"),
            Self::SectorSize => f.write_str(
                "sectors of a device for partitions have 4096 bytes; leave block_size out",
            ),
            Self::Size(bytes, block) | Self::Small(bytes, block) => {
                write!(f, "{}", Sizes(*bytes, *block, "the block size"))
            }
            Self::Subnqn(subnqn, error) => write!(
                f,
                "subnqn is `{subnqn}`: {error}; give the NQN of a subsystem, such as nqn.2026-11.dev.flashyard:db"
            ),
            Self::Pattern => f.write_str(
                "translation layers read back what they have written, so store must be memory or file",
            ),
            Self::Profile(profile) => write!(
                f,
                "there is no profile `{profile}`: use one of {}, or the path of a file, such as ./{profile}.toml",
                Profile::names().collect::<Vec<_>>().join(", ")
            ),
            Self::Dilation(dilation) => write!(
                f,
                "dilation is {dilation}; it must be from 1 (as fast as its model) to {DILATION_MOST}"
            ),
            Self::Partition(error) => error.fmt(f),
            Self::Fault(error) => write!(f, "faults: {error}"),
            Self::Members(devices, 1) => {
                write!(f, "an array of {devices} devices: name one device at least")
            }
            Self::Members(devices, copies) => write!(
                f,
                "{devices} devices cannot be mirrors of {copies} copies: give a multiple of {copies}"
            ),
            Self::Columns(devices, least) => write!(
                f,
                "{devices} devices cannot have this parity: give {least} to {MAX_COLUMNS}"
            ),
            Self::Copies(copies) => write!(f, "copies is {copies}: a mirror has 2 to 4"),
            Self::Sets(devices, columns) => write!(
                f,
                "{devices} devices cannot be sets of {columns} columns: give a multiple of {columns}"
            ),
            Self::NoColumns => f.write_str(
                "`columns` are of parity: set `redundancy` to `parity` or `double-parity`, or leave it out",
            ),
            Self::OneCopy => f.write_str(
                "`copies` and `safe_read` are for mirrors: set `redundancy = \"mirror\"`, or leave them out",
            ),
            Self::NothingToRebuild(key) => write!(
                f,
                "without redundancy nothing is rebuilt: set `redundancy` to `mirror`, `parity` or `double-parity`, or leave `{key}` out"
            ),
            Self::RebuildLimit(limit) => write!(
                f,
                "rebuild_limit is {} bytes a second: give 1MB/s or more, or leave it out",
                limit.0
            ),
            Self::SpareOfNone => f.write_str(
                "without redundancy a spare cannot be filled: set `redundancy` to `mirror`, `parity` or `double-parity`, or leave `spares` out",
            ),
            Self::Twice(device) => write!(
                f,
                "device {device} is named twice: an array has each device once, and is none of its own"
            ),
        }
    }
}

impl fmt::Display for PartitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wanted => f.write_str("name either `channels`, `units` or `count`"),
            Self::OverProvisioning(text) => {
                write!(
                    f,
                    "`{text}` is no over-provisioning: write such as 20% or 7.5%"
                )
            }
            Self::Unit(word) => write!(
                f,
                "`{word}` is no parallel unit: write its channel and its number there, such as 3.0"
            ),
            Self::Channels(word) => write!(
                f,
                "`{word}` is no channel and no range of them: write such as 0-3,7"
            ),
            Self::TooMany => write!(f, "more than {MOST_NUMBERS} are no device's"),
            Self::Given(key, said, given) => write!(
                f,
                "{key} is {said}, but `given` begins with {given}: leave `given` out, or correct one of them"
            ),
        }
    }
}

impl fmt::Display for TenantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => write!(
                f,
                "hosts: `{host}` is no host NQN and not `*`: write it like nqn.2014-08.org.nvmexpress:uuid:..., as \
                 /etc/nvme/hostnqn of the host has it, at most {NQN_LEN_MAX} bytes"
            ),
            Self::Weight(weight) => {
                write!(f, "weight {weight} is out of range: 1 to {WEIGHT_MOST}")
            }
            Self::Nothing(what, key) => {
                write!(f, "{what} {key} is 0: leave it out, or give what is meant")
            }
            Self::AboveLimit(key, most) => write!(
                f,
                "its guarantee is above its limit of {key} {most}: raise the limit or lower the guarantee"
            ),
            Self::LatencyTarget(target) => {
                write!(f, "latency_target is {target}; give 10us to 10s")
            }
        }
    }
}

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Size(bytes, block) => {
                return write!(f, "{}", Sizes(*bytes, *block, "a block of its pool"));
            }
            Self::Content => "a volume of a pool begins with zeroes, leave `content` out",
            Self::NeedsSize => "a volume of a pool needs a `size`, not 0",
            Self::HasNoSize => "it is the whole device, leave `size` out",
            Self::HasNoKind => "it is the whole device, which is always raw: leave `kind` out",
            Self::Place => "name either a `pool` or a `device`",
        })
    }
}

/// A size that cannot be, the block it has to be a multiple of, and what that is.
struct Sizes(u64, u32, &'static str);

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes, block, what) = self;
        write!(
            f,
            "size is {bytes} bytes; give at least {}, and a multiple of {block} bytes ({what}), such as 8GiB",
            units::size(SIZE_LEAST)
        )
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(part) => write!(f, "`{part}` is no rate: write it like read_iops=20000"),
            Self::In(key, error) => write!(f, "{key}: {error}"),
            Self::NoSuchRate(other) => {
                write!(f, "there is no rate `{other}`: use {}", RATES.join(", "))
            }
            Self::Quota(text) => write!(f, "`{text}` is no quota: write it like safe=100GiB"),
            Self::Condition(text, unknown) => write!(f, "`{text}` is no condition: {unknown}"),
        }
    }
}

impl std::error::Error for SpecError {}
impl std::error::Error for PartitionError {}
impl std::error::Error for ValueError {}

impl From<SettingError> for SpecError {
    fn from(error: SettingError) -> Self {
        Self::Setting(error)
    }
}

impl From<IdentityError> for SpecError {
    fn from(error: IdentityError) -> Self {
        Self::Identity(error)
    }
}

/// Names go into NQNs, file names and tables: letters, digits, `-`, `_` and `.`.
pub(super) fn check_name(what: &'static str, name: &str) -> Result<(), SpecError> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty()
        || name.len() > NAME_LEN_MAX
        || !name.chars().all(good)
        || name.starts_with(['-', '.'])
    {
        return Err(SpecError::Name(what, name.to_owned()));
    }
    Ok(())
}
