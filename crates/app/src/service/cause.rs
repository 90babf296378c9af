//! What exactly is wrong, in words.

mod in_use;
mod internal;
mod invalid;
mod not_found;
mod refused;
mod remote;
mod to_import;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use flashyard_block::array::ArrayError;
use flashyard_block::crypt::CryptError;
use flashyard_block::migration::CopyError;
use flashyard_block::pool::{Kind, PoolError};
use flashyard_block::{IoError, OpenError};
use flashyard_drives::open_channel::PartitionError;
use flashyard_engine::ConfigError;
use flashyard_flash::{ProfileError, UNIT_BYTES};
use flashyard_host::ConnectError;
use flashyard_keys::SourceError;
use flashyard_nvme::Nqn;
use flashyard_time::Duration;
use uuid::Uuid;

pub use internal::Internal;

use super::fault::Fault;
use super::snapshot_fault::SnapshotFault;
use crate::control::{KindName, Risk};
use crate::sockets::SocketError;
use crate::spec::{
    Address, DeviceKind, PartitionError as UnitsError, PolicyName, Section, SpecError, VolumeSpec,
};
use crate::state::StateError;
use crate::units;

/// How long I/O in flight of a volume that is deleted or moved is waited for.
pub(super) const DRAIN: Duration = Duration::from_secs(10);

/// What cannot be.
#[derive(Debug)]
pub enum Invalid {
    /// What was written.
    Spec(SpecError),
    /// The choice of units.
    Units(UnitsError),
    /// What the state store cannot take.
    State(StateError),
    /// What the engine does not take.
    Engine(ConfigError),
    /// What cannot be opened as it is asked for.
    Open(OpenError),
    /// What a pool cannot do.
    Pool(PoolError),
    /// What a device for partitions cannot do.
    Partition(PartitionError),
    /// An emulated drive that cannot be.
    Drive(String, DriveFault),
    /// A profile that a device has.
    DriveProfile(String, ProfileError),
    /// The other target's namespace has other blocks.
    RemoteBlocks(u32),
    /// A volume that is a whole device does not grow by itself: the volume and the device.
    WholeDevice(String, String),
    /// The volume, and its pool, which keeps volumes in this way.
    OtherKind(String, String, Kind),
    /// A volume cannot have chunks of so many bytes.
    Chunk(String, u64),
    /// A volume of so many bytes does not shrink.
    Shrink(String, u64),
    /// A namespace number.
    NsidZero,
    /// Partitions are not cut from this device.
    NotForPartitions(String),
    /// Nothing but partitions stands on this device.
    OnlyForPartitions(String),
    /// A layer that injects faults is to stand on such a layer.
    FaultOnFault(String),
    /// The device below a layer has blocks of so many bytes.
    BlocksBelow(String, u32),
    /// A device that injects no faults.
    NoFaults(String),
    /// A partition that the target does not know, and the devices that have one of this name.
    OnWhichDevice(String, Vec<String>),
    /// What an array cannot do.
    Array(ArrayError),
    /// Something other than a mapped pool is to stand on an array with parity.
    OnParity(String),
    /// An array is to be made of an array.
    ArrayOfArrays(String),
    /// A pool on one device, or a device that is no array.
    NoArray(String),
    /// An array that is open.
    IsStarted(String),
    /// A fault behind the end of a device of so many bytes.
    FaultBeyond(String, u64),
    /// A socket that cannot be made as it is asked for.
    Socket(SocketError),
    /// A function without a path for its socket, of a target without a folder.
    NoSocketFolder(String),
    /// What cannot be encrypted, or a wrong key: the encrypted device.
    Crypt(String, CryptError),
    /// The secret of an encrypted device or pool cannot be had.
    Key(KindName, String, SourceError),
    /// A device that is not encrypted.
    NotEncrypted(String),
    /// A pool that has no keys to be overwritten.
    HasNoKeys(String),
}

/// Why an emulated drive cannot be.
#[derive(Debug)]
pub enum DriveFault {
    /// Its profile cannot be had.
    Profile(ProfileFault),
    /// Its size, of a kind of device, by a profile.
    Size {
        /// What it is.
        kind: DeviceKind,
        /// The profile's name.
        profile: String,
        /// The size in bytes.
        size: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// Its model takes more memory than is free.
    Memory {
        /// The size in bytes.
        size: u64,
        /// What the model takes.
        needed: u64,
        /// What is free.
        free: u64,
        /// The size whose model would fit.
        most: u64,
    },
}

/// Why a profile cannot be had.
#[derive(Debug)]
pub enum ProfileFault {
    /// None that ships has this name.
    Unknown(String),
    /// The file cannot be read.
    Read(String, std::io::Error),
    /// The file holds none.
    Wrong(String, ProfileError),
}

/// What is not there.
#[derive(Debug)]
pub enum NotFound {
    /// A member of an array.
    Member(ArrayError),
    /// A thing of a kind.
    Thing(KindName, String),
    /// What a file or command names in another thing.
    Reference {
        /// What names it.
        kind: KindName,
        /// Its name.
        name: String,
        /// What it names.
        wanted: KindName,
        /// The name that is not there.
        missing: String,
    },
    /// A volume in its pool.
    InPool(PoolError),
    /// A partition on its device.
    Partition(PartitionError),
    /// A partition of a device that is to be imported; any if not named.
    PartitionToImport(String, Option<String>),
    /// A volume that is to be imported: its name, and its pool.
    ToImport(String, String),
    /// A tenant's volumes.
    NoVolume(String),
}

/// What something else has.
#[derive(Debug)]
pub enum InUse {
    /// What an array has already.
    Array(ArrayError),
    /// The name of a thing.
    Name(KindName, String),
    /// The name of a tenant that is to be made.
    Tenant(String),
    /// A file or device that another process has.
    Open(OpenError),
    /// What keeps the flash of a device, which another process has.
    Store(Option<String>, PartitionError),
    /// The path of another device.
    Path(String, String),
    /// What stands on a device, and has to go first.
    Below(KindName, String, String),
    /// What stands on a device.
    Taken(String, String),
    /// A device whose writes are to be measured.
    Measured(String, String),
    /// Volumes or functions: of what, its name, what it has, and the name of one of them.
    Has(KindName, String, KindName, String),
    /// The socket of another function: the path, and that function.
    Socket(String, String),
    /// A path or folder that something else has.
    SocketPlace(SocketError),
    /// A function whose client is connected.
    Connected(String),
    /// A tenant of whom the file names this volume, which waits to be imported.
    Waiting(String, String),
    /// What the state store has already, or another program that uses it.
    State(StateError),
    /// The number of another volume: that, its tenant, and the number.
    Nsid(String, String, u32),
    /// What the engine knows already.
    Engine(ConfigError),
    /// What a pool has already.
    Pool(PoolError),
    /// What a device for partitions has already.
    Partition(PartitionError),
    /// A partition of this device that the target does not know.
    ForeignPartition(String, String),
    /// A unit of this device that such a partition has.
    ForeignUnits(String, String, String),
    /// A partition that the target knows already, and its device.
    KnownPartition(String, String),
    /// The name of a partition on a device, which another device has here; the device of that one,
    /// if it is a partition.
    NameOfFound(String, String, Option<String>),
    /// What hosts know the subsystem of another tenant by: the new tenant, the other, the NQN.
    Nqn(String, String, String),
    /// What hosts know another volume by: the new volume, the key, its value, the other.
    Identity(String, &'static str, String, String),
    /// A volume in a pool that the state does not know: the new one, the pool, the UUID, its name.
    UnknownVolume(String, String, String, String),
    /// The volume of a pool, and what it is called here already, and whose it is.
    Imported(String, (String, String)),
    /// A device with a pool that is known by another device: the device, that pool, its UUID.
    SamePool(String, String, Uuid),
    /// A pool that is to go holds a volume that the target does not know.
    NotImported(String, String),
    /// A volume that goes to another pool: the volume, and the pool.
    Migrating(String, String),
    /// A volume is to go to a pool from which others come the other way: the volume, where it is to
    /// go, where it is, and one of the others.
    MovesBack(String, String, String, String),
    /// A pool that a volume goes to, or has come from: the pool, and the volume.
    MigrationOf(String, String),
    /// A port that another program listens at.
    Port(SocketAddr),
    /// A port that the target itself listens at.
    OwnPort(SocketAddr, SocketAddr),
}

/// What is not done.
#[derive(Debug)]
pub enum Refused {
    /// What is not done with a snapshot, or because of one.
    Snapshot(SnapshotFault),
    /// What an array does not do, so that no data are lost.
    Array(ArrayError),
    /// A partition that is on another core than the others of an array.
    OtherCore(String),
    /// What a file says otherwise: of what kind, its name, the key, its value now and in the file.
    Differs(Section, String, String, String, String),
    /// A thing that is there already is not what is to be made: what differs.
    Other(Section, String, String),
    /// A file calls something by a name that it has no longer: its kind, the old and the new one.
    Renamed(Section, String, String),
    /// What would hurt hosts or lose data.
    Risks(Vec<Risk>),
    /// An earlier file has changed what could not be taken back.
    Unfinished,
    /// A volume that is another tenant's: the volume, whose it is, whose it is to be.
    OtherTenants(String, String, String),
    /// A volume is the tenant's already.
    AlreadyTheirs(String, String),
    /// An identity that stays: of what, its name, the key, what it is.
    Fixed(KindName, String, &'static str, String),
    /// A volume that is half made or half deleted.
    HalfMade(String),
    /// A volume is in the pool already.
    AlreadyThere(String, String),
    /// A volume, the tenant that may not take it, its pool, bytes that it counts, and those left.
    OverQuota(String, String, String, u64, u64),
    /// A volume is kept as it is asked to be.
    KeptSo(String),
    /// A volume that is a whole device goes to no pool: the volume, and the device.
    NotInPool(String, String),
    /// Blocks of another size: the volume, what it has, the pool, what that has.
    OtherBlocks(String, u32, String, u32),
    /// A volume that is not on its way to another pool.
    NotMigrating(String),
    /// A volume that is in the other pool already: the volume, and that pool.
    HasMigrated(String, String),
    /// A device on which may be data that no command named, and the tenant that would see it.
    Content(String, String),
    /// A device that is or is on an imported partition, and that: it holds something else.
    HoldsData(String, String),
    /// A volume for what is in an imported partition, without its UUID: the volume, the partition.
    NeedsUuid(String, String),
    /// More is promised of a device than it has: so many percent, by whom.
    Oversold(String, f64, Vec<(String, f64)>),
    /// A guarantee that a device's policy does not keep: the tenant, the device, its policy.
    Ignored(String, String, PolicyName),
    /// A device that is not in use, and on which nothing was written.
    NeverWritten(String),
    /// A device whose pool has no room for a measurement: bytes needed, and free.
    NoRoomToMeasure(String, u64, u64),
    /// A device whose user has hardly written to it: how many percent of the reads found zeroes.
    Unwritten(String, u64),
    /// A policy that needs figures of the device.
    NeedsFigures(PolicyName, String),
    /// A partition that takes no more writes.
    Spent(String),
    /// A partition that is to be deleted as a device, which keeps what it stores.
    IsPartition(String),
    /// What an encrypted device would overwrite: that, the device below, and what is there.
    CryptOver(String, String, &'static str),
    /// A partition that waits to be imported, and the policy that the file gives it.
    PolicyInFile(String, PolicyName),
    /// A volume that is to be imported, and its device that the file has zeroed.
    ErasesImport(String, String),
    /// A pool that waits to be imported: what the file calls it, and its device there.
    OtherInFile(String, String),
    /// A device that holds a pool, and what a new one was to be called.
    HoldsPool(String, String),
    /// A store that is not replaced.
    State(StateError),
    /// What the engine does not change.
    Engine(ConfigError),
    /// What a pool does not do.
    Pool(PoolError),
}

/// What cannot be done now.
#[derive(Debug)]
pub enum Unavailable {
    /// An array.
    Array(ArrayError),
    /// None of the devices of an array is open.
    NoMembers(String),
    /// The target ends.
    ShuttingDown,
    /// So many commands that change something have not ended.
    TooMany(usize),
    /// A thing that could not be opened, and why.
    Thing(KindName, String, Arc<Fault>),
    /// What the system refuses.
    Open(OpenError),
    /// A pool whose device failed, or holds something else.
    Pool(PoolError),
    /// What a file names, and a device has or may have already: it is to be imported.
    ToImport(ToImport),
    /// What is on a device is no pool that can be imported.
    NotImported(String, PoolError),
    /// The device of a pool holds another one.
    OtherPool(String),
    /// A device for partitions that failed.
    Partition(Option<String>, PartitionError),
    /// A partition that is not on its device any more.
    LostPartition(String, String),
    /// A file that is shorter than it was: how long it is, and was.
    CutShort(PathBuf, u64, u64),
    /// A device that is smaller than it was: how large it is, and was.
    Shrunk(String, u64, u64),
    /// Another target.
    Remote(Box<RemoteFault>),
    /// A device failed while it was measured.
    Measured(String, IoError),
    /// No client waits for a measurement any more.
    Cancelled(String),
    /// A device could not be erased.
    NotErased(String, IoError),
    /// A device that is not open as one to be given away.
    NotWhole(String),
    /// What a volume was on has it no more.
    Gone(String),
    /// The device of a volume that is deleted does not answer.
    NotAnswered(String),
    /// A pool whose core does not answer.
    Silent(String),
    /// The device of a volume that is moved does not answer; its tenant.
    NotMoved(String, String),
    /// An encrypted device whose header cannot be used; which, where that has to be said.
    Crypt(Option<String>, CryptError),
    /// The device below an encrypted one holds another one: both of them.
    OtherCrypt(String, String),
    /// A volume stays where it is: the volume, the pool that it was to go to, and why.
    NotMigrated(String, String, CopyError),
    /// A volume goes on to a pool at the next start.
    MigratesLater(String, String),
    /// An address that cannot be listened at.
    Listen(SocketAddr, std::io::Error),
    /// The name of a host that cannot be looked up.
    Unknown(Address, std::io::Error),
    /// A socket that the system refuses now.
    Socket(SocketError),
    /// A core that cannot take a function on.
    Function(String, std::io::Error),
}

/// What is to be imported.
#[derive(Debug)]
pub enum ToImport {
    /// An array, and the devices that it is on.
    Array(String, String),
    /// A partition of a device.
    Partition(String, String),
    /// A pool on a device.
    Pool(String, String),
    /// A volume in a pool.
    Volume(Box<VolumeSpec>, String),
    /// A volume that is a whole device.
    Whole(Box<VolumeSpec>, String),
    /// What stands on a thing that is to be imported first.
    On(KindName, String),
    /// What hosts of a tenant wait for.
    Hosts,
}

/// Another target that cannot be used: where, what of it, why, and who has to be let in there.
#[derive(Debug)]
pub struct RemoteFault {
    /// Where it listens.
    pub address: Address,
    /// The namespace there.
    pub nsid: u32,
    /// Its subsystem.
    pub subnqn: Nqn,
    /// What it says.
    pub error: ConnectError,
    /// What this target is called there.
    pub hostnqn: Nqn,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array(error) => error.fmt(f),
            Self::NoMembers(devices) => write!(
                f,
                "none of the devices {devices} is open: see to them, then start the target again"
            ),
            Self::ShuttingDown => f.write_str("the target is shutting down"),
            Self::TooMany(commands) => write!(
                f,
                "{commands} commands that change something have not ended: see which device does not answer, and try again; what a \
                 device holds up on purpose `flashyard device set DEVICE --no-faults` frees"
            ),
            Self::Thing(kind, name, fault) => {
                write!(f, "{} `{name}` is not available: {fault}", kind.name())
            }
            Self::Open(error) => error.fmt(f),
            Self::Pool(error) => error.fmt(f),
            Self::ToImport(what) => what.fmt(f),
            Self::NotImported(device, PoolError::NotAPool) => write!(
                f,
                "device `{device}` holds no pool, so there is nothing to import: `flashyard pool create` makes one"
            ),
            Self::NotImported(device, error @ PoolError::Damaged(_)) => write!(
                f,
                "device `{device}`: {error}; `flashyard check` with its path tells more, and changes nothing"
            ),
            Self::NotImported(device, error) => write!(f, "device `{device}`: {error}"),
            Self::OtherPool(pool) => write!(f, "device `{pool}` holds another pool now"),
            Self::Partition(Some(device), error) => write!(f, "device `{device}`: {error}"),
            Self::Partition(None, error) => error.fmt(f),
            Self::LostPartition(partition, device) => write!(
                f,
                "partition `{partition}` is not on device `{device}` any more: delete it, its data are lost"
            ),
            Self::CutShort(path, real, wanted) => write!(
                f,
                "{} has {} and should have {}: its end is lost, restore it",
                path.display(),
                units::size(*real),
                units::size(*wanted)
            ),
            Self::Shrunk(device, now, given) => write!(
                f,
                "device `{device}` has {} and had {} when it was given away: its end is lost, give it its size \
                 back and restore what was there",
                units::size(*now),
                units::size(*given)
            ),
            Self::Remote(fault) => fault.fmt(f),
            Self::Measured(device, error) => write!(
                f,
                "device `{device}` failed while it was measured ({error:?}): see to it first"
            ),
            Self::Cancelled(device) => write!(
                f,
                "the measurement of device `{device}` was ended before it was done: nothing is noted"
            ),
            Self::NotErased(device, error) => write!(
                f,
                "device `{device}` could not be erased ({error:?}): see to it, then try again"
            ),
            Self::NotWhole(device) => write!(f, "device `{device}` takes no volume whole"),
            Self::Gone(place) => {
                write!(
                    f,
                    "it is not in {place} any more: restore that from a backup"
                )
            }
            Self::NotAnswered(volume) => write!(
                f,
                "the device of volume `{volume}` has not answered its last I/O for {DRAIN}: nothing new is sent to it; delete the volume again when the device answers"
            ),
            Self::Silent(pool) => write!(
                f,
                "pool `{pool}` does not answer; see to its device, or start the target again"
            ),
            Self::NotMoved(volume, tenant) => write!(
                f,
                "volume `{volume}` is still tenant `{tenant}`'s: its device has not answered the last I/O for {DRAIN}; move it \
                 again when the device answers"
            ),
            Self::Socket(error) => error.fmt(f),
            Self::Function(function, error) => write!(
                f,
                "function `{function}` cannot be offered: {error}; is the target's limit of open files too low?"
            ),
            Self::Crypt(Some(device), error) => write!(f, "device `{device}`: {error}"),
            Self::Crypt(None, error) => error.fmt(f),
            Self::OtherCrypt(device, below) => write!(
                f,
                "device `{below}` holds another encrypted device than `{device}`: put the right one back, or delete `{device}` and \
                 create it anew with the key of that one"
            ),
            Self::NotMigrated(volume, pool, CopyError::Cancelled) => write!(
                f,
                "volume `{volume}` stays where it is: its move to pool `{pool}` was cancelled"
            ),
            Self::NotMigrated(volume, pool, CopyError::Source(lba, error)) => write!(
                f,
                "volume `{volume}` stays where it is, for it cannot be read at block {lba} ({error:?}): restore what is there, then \
                 move it to pool `{pool}` again"
            ),
            Self::NotMigrated(volume, pool, CopyError::Target(error)) => write!(
                f,
                "volume `{volume}` stays where it is, for pool `{pool}` has failed ({error:?}): see to that first"
            ),
            Self::MigratesLater(volume, pool) => write!(
                f,
                "the target ends before volume `{volume}` is in pool `{pool}`: it goes on at the next start"
            ),
            Self::Unknown(address, error) => write!(
                f,
                "cannot look up {address}: {error}; correct the name, or give the address itself"
            ),
            Self::Listen(address, error) => match error.kind() {
                std::io::ErrorKind::AddrNotAvailable => write!(
                    f,
                    "cannot listen on {address}: this machine has no such address; `ip addr` shows those it has"
                ),
                std::io::ErrorKind::PermissionDenied => write!(
                    f,
                    "cannot listen on {address}: permission denied; ports below 1024 need root"
                ),
                _ => write!(f, "cannot listen on {address}: {error}"),
            },
        }
    }
}
