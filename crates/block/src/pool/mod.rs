//! Pools: one device divided into volumes. A pool is of one [`Kind`]: `raw` gives space of the
//! device to volumes as it is; `mapped` keeps a log, so that volumes are thin and every block is
//! verified when it is read.
//!
//! Changes are done one after the other, run to their end even if no task waits for them, and are
//! durable before they are reported. A power cut leaves the state before or after the change.
//!
//! Map: `raw` and `mapped` are the kinds; `facts` is what users learn of pools and volumes; `names`
//! says what a volume may be called; `check` looks without changing.

mod change;
mod check;
mod copies;
mod error;
mod facts;
mod mapped;
mod names;
mod raw;

use flashyard_codec::cipher::Key;
use flashyard_runtime::Rt;

pub use check::check;
pub use error::PoolError;
pub use facts::{
    Changes, Forgotten, Kind, NewSnapshot, NewVolume, Owner, PoolInfo, ReadOnly, Report, Scrub,
    SnapshotInfo, TenantSpace, VolumeForm, VolumeInfo,
};
pub use mapped::{KeyHeader, LEAST_BYTES, MappedOptions, MappedPool};
pub use raw::RawPool;

use self::copies::Start;
use self::error::device_error;
use self::raw::Metadata;
use crate::superblock::{self, Found, Unusable};
use crate::{DeviceExt, IoError, SharedDevice};

/// An open pool; cheap to clone. Lives on the home core of its device.
#[derive(Clone)]
pub enum Pool {
    /// See [`Kind::Raw`].
    Raw(RawPool),
    /// See [`Kind::Mapped`].
    Mapped(MappedPool),
}

impl Pool {
    /// Makes the device a raw pool without volumes. Refuses a device that holds a pool or something
    /// else that is known, unless `force`; what is there is lost then.
    pub async fn create(
        rt: &Rt,
        device: SharedDevice,
        uuid: [u8; 16],
        force: bool,
    ) -> Result<Self, PoolError> {
        let pool = RawPool::create(rt, device, uuid, force).await;
        pool.map(Self::Raw)
    }

    /// Makes the device a pool of `kind`, as [`Pool::create`] does.
    pub async fn create_kind(
        rt: &Rt,
        device: SharedDevice,
        uuid: [u8; 16],
        kind: Kind,
        force: bool,
    ) -> Result<Self, PoolError> {
        match kind {
            Kind::Raw => Self::create(rt, device, uuid, force).await,
            Kind::Mapped => {
                if !force {
                    check_free(&device).await?;
                }
                let options = MappedOptions::default();
                let pool = MappedPool::create(rt, device, uuid, options).await;
                pool.map(Self::Mapped)
            }
        }
    }

    /// Makes the device an encrypted pool, of kind [`Kind::Mapped`], with the UUID of its header
    /// and the key in it; as [`Pool::create`] does.
    pub async fn create_encrypted(
        rt: &Rt,
        device: SharedDevice,
        with: (KeyHeader, Key),
        force: bool,
    ) -> Result<Self, PoolError> {
        if !force {
            check_free(&device).await?;
        }
        let options = MappedOptions::default();
        let pool = MappedPool::create_encrypted(rt, device, with, options).await;
        pool.map(Self::Mapped)
    }

    /// Opens the pool on a device, of whatever kind, with the newest valid state. Flushes first: a
    /// program that was killed between a write and its flush may have left volatile data, and later
    /// changes build on what is found here.
    ///
    /// A raw pool writes only what is lost of its metadata then. A mapped one replays its log, and
    /// writes what it has decided; no other program may use the device.
    ///
    /// Refuses an encrypted pool with [`PoolError::Locked`].
    pub async fn open(rt: &Rt, device: SharedDevice) -> Result<Self, PoolError> {
        match find_other(&device).await? {
            Some(found) => RawPool::open(rt, device, found).await.map(Self::Raw),
            None => {
                let pool = MappedPool::open(rt, device, MappedOptions::default()).await;
                pool.map(Self::Mapped)
            }
        }
    }

    /// Opens an encrypted pool, as [`Pool::open`] does, with the key in its [`KeyHeader`]. Refuses
    /// any other with [`PoolError::NotEncrypted`].
    pub async fn unlock(rt: &Rt, device: SharedDevice, key: Key) -> Result<Self, PoolError> {
        if find_other(&device).await?.is_some() {
            return Err(PoolError::NotEncrypted);
        }
        let pool = MappedPool::unlock(rt, device, MappedOptions::default(), key).await;
        pool.map(Self::Mapped)
    }

    /// What the pool on a device is, and its volumes. Writes nothing, and needs no key.
    pub async fn look(
        rt: &Rt,
        device: SharedDevice,
    ) -> Result<(PoolInfo, Vec<VolumeInfo>), PoolError> {
        let device = mapped::overlay(device);
        let pool = match find_other(&device).await? {
            Some(found) => RawPool::open(rt, device, found).await.map(Self::Raw)?,
            None => MappedPool::look_at(rt, device).await.map(Self::Mapped)?,
        };
        let looked = (pool.info(), pool.list());
        pool.close().await;
        Ok(looked)
    }

    /// Creates a volume of `bytes` bytes (rounded up to whole blocks) that reads as zeroes.
    pub async fn create_volume(
        &self,
        name: &str,
        uuid: [u8; 16],
        bytes: u64,
    ) -> Result<SharedDevice, PoolError> {
        let made = self.create_volumes(vec![NewVolume::new(name, uuid, bytes)]);
        Ok(made.await?.remove(0))
    }

    /// Creates volumes in one change: all of them, or none if one cannot be. Gives them in the
    /// order in which they were asked for.
    pub async fn create_volumes(
        &self,
        wanted: Vec<NewVolume>,
    ) -> Result<Vec<SharedDevice>, PoolError> {
        match self {
            Self::Raw(pool) => pool.create_volumes(wanted).await,
            Self::Mapped(pool) => pool.create_volumes(wanted).await,
        }
    }

    /// Makes a volume larger while it is used; the new part reads as zeroes.
    pub async fn grow(&self, name: &str, bytes: u64) -> Result<(), PoolError> {
        match self {
            Self::Raw(pool) => pool.grow(name, bytes).await,
            Self::Mapped(pool) => pool.grow(name, bytes).await,
        }
    }

    /// Takes up the space by which the device, or its medium, has grown since the pool was opened.
    pub async fn extend(&self) -> Result<(), PoolError> {
        match self {
            Self::Raw(pool) => pool.extend().await,
            Self::Mapped(pool) => pool.extend().await,
        }
    }

    /// Keeps so many bytes for each of these volumes with its snapshots, what they take already
    /// included, so that no other volume can have them; rounded up to whole MiB. Refused with what
    /// is free, and for one after the other. Of a raw pool all volumes have their space anyway.
    pub async fn reserve(&self, wanted: Vec<(String, u64)>) -> Result<(), PoolError> {
        match self {
            Self::Raw(_) if wanted.iter().all(|(_, bytes)| *bytes == 0) => Ok(()),
            Self::Raw(_) => Err(PoolError::AllReserved("reservations")),
            Self::Mapped(pool) => pool.reserve(wanted).await,
        }
    }

    /// Bounds what the volumes of a tenant and their snapshots take, with what is reserved for
    /// them, until the pool is closed: writes that add to it fail with
    /// [`IoError::CapacityExceeded`](crate::IoError) then. A raw pool has no quotas.
    pub fn set_quota(&self, tenant: &str, bytes: Option<u64>) {
        if let Self::Mapped(pool) = self {
            pool.set_quota(tenant, bytes);
        }
    }

    /// What a volume of a mapped pool and its snapshots count for the quota of their tenant, in
    /// bytes.
    pub fn claimed(&self, name: &str) -> u64 {
        match self {
            Self::Raw(_) => 0,
            Self::Mapped(pool) => pool.claimed(name),
        }
    }

    /// What tenants have of a mapped pool.
    pub fn tenants(&self) -> Vec<TenantSpace> {
        match self {
            Self::Raw(_) => Vec::new(),
            Self::Mapped(pool) => pool.tenants(),
        }
    }

    /// Whether volumes can grow to so many bytes, all of them.
    pub fn check_growth(&self, wanted: &[(String, u64)]) -> Result<(), PoolError> {
        match self {
            Self::Raw(pool) => pool.check_growth(wanted),
            Self::Mapped(pool) => pool.check_growth(wanted),
        }
    }

    /// Renames a volume, while it is used; its UUID stays.
    pub async fn rename(&self, name: &str, new: &str) -> Result<(), PoolError> {
        match self {
            Self::Raw(pool) => pool.rename(name, new).await,
            Self::Mapped(pool) => pool.rename(name, new).await,
        }
    }

    /// Gives a volume another UUID and name, in one change and while it is used: it takes the place
    /// of another one, or gives its own up.
    pub async fn identify(
        &self,
        from: [u8; 16],
        uuid: [u8; 16],
        name: &str,
    ) -> Result<(), PoolError> {
        match self {
            Self::Raw(pool) => pool.identify(from, uuid, name).await,
            Self::Mapped(pool) => pool.identify(from, uuid, name).await,
        }
    }

    /// Two volumes of a mapped pool take each other's UUID, name and owner, in one change and while
    /// they are used.
    pub async fn exchange(&self, first: [u8; 16], second: [u8; 16]) -> Result<(), PoolError> {
        match self {
            Self::Raw(pool) => match pool.find(first) {
                Some((name, _)) => Err(PoolError::Plain(name)),
                None => Err(PoolError::NoUuid(first)),
            },
            Self::Mapped(pool) => pool.exchange(first, second).await,
        }
    }

    /// Notes whose a volume is. A raw pool does not keep that.
    pub async fn set_owner(&self, name: &str, owner: Owner) -> Result<(), PoolError> {
        match self {
            Self::Raw(_) => Ok(()),
            Self::Mapped(pool) => pool.set_owner(name, owner).await,
        }
    }

    /// Deletes a volume without snapshots, used or not: its later I/O gets
    /// [`IoError::NotReady`](crate::IoError), what was issued is waited for, and its space is
    /// freed.
    pub async fn delete(&self, name: &str) -> Result<(), PoolError> {
        match self {
            Self::Raw(pool) => pool.delete(name).await,
            Self::Mapped(pool) => pool.delete(name).await,
        }
    }

    /// Makes snapshots of volumes, all at the same moment: each has every write that was answered
    /// before this was asked for, and none that is issued after it is answered. `made` is when that
    /// is, for [`SnapshotInfo::made`]. Only mapped pools have snapshots.
    pub async fn snapshot(&self, wanted: Vec<NewSnapshot>, made: u64) -> Result<(), PoolError> {
        self.mapped()?.snapshot(wanted, made).await
    }

    /// Deletes a snapshot that has no clones. Its space comes back by and by.
    pub async fn delete_snapshot(&self, volume: &str, name: &str) -> Result<(), PoolError> {
        self.mapped()?.delete_snapshot(volume, name).await
    }

    /// Makes a volume what its newest snapshot is; what was written since is gone.
    pub async fn restore(&self, volume: &str, name: &str) -> Result<(), PoolError> {
        self.mapped()?.restore(volume, name).await
    }

    /// Makes a volume that begins as a snapshot and has its size, whatever `clone` says of that.
    pub async fn clone_snapshot(
        &self,
        volume: &str,
        name: &str,
        clone: NewVolume,
    ) -> Result<SharedDevice, PoolError> {
        self.mapped()?.clone_snapshot(volume, name, clone).await
    }

    /// All snapshots: by volume, the oldest first.
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        match self {
            Self::Raw(_) => Vec::new(),
            Self::Mapped(pool) => pool.snapshots(),
        }
    }

    /// What was written to a volume since a snapshot, or at all, and until another one, or now; a
    /// part of it that begins at byte `from`.
    pub async fn changes(
        &self,
        volume: &str,
        since: Option<&str>,
        until: Option<&str>,
        from: u64,
    ) -> Result<Changes, PoolError> {
        self.mapped()?.changes(volume, since, until, from).await
    }

    /// Bytes that deleting a snapshot would free: those that it stores and the next snapshot, or
    /// the volume, has not got. Its clones are not looked at.
    pub async fn freed_by(&self, volume: &str, snapshot: &str) -> Result<u64, PoolError> {
        self.mapped()?.freed_by(volume, snapshot).await
    }

    fn mapped(&self) -> Result<&MappedPool, PoolError> {
        match self {
            Self::Raw(_) => Err(PoolError::NoSnapshots),
            Self::Mapped(pool) => Ok(pool),
        }
    }

    /// Takes the pool off its device, which counts as empty afterwards. Refused while there is a
    /// volume. A power cut in the middle leaves the pool, or nothing. The pool takes no further
    /// change, even if this fails.
    pub async fn destroy(&self) -> Result<(), PoolError> {
        match self {
            Self::Raw(pool) => pool.destroy().await,
            Self::Mapped(pool) => pool.destroy().await,
        }
    }

    /// Takes the encrypted pool with this UUID off its device without opening it, so without its
    /// key: first all its keys are overwritten, durably, so that no one can read its volumes again.
    /// May be repeated after a power cut. Nothing is written where something else is.
    pub async fn forget_encrypted(
        device: &SharedDevice,
        uuid: [u8; 16],
    ) -> Result<Forgotten, PoolError> {
        match find_other(device).await? {
            Some(found) => match found.newest() {
                Err(Unusable::Absent) => Ok(Forgotten::Absent),
                Err(why) => Err(why.into()),
                Ok(_) => Ok(Forgotten::Other),
            },
            None => MappedPool::forget_encrypted(&**device, uuid).await,
        }
    }

    /// Ends all work on the device; the pool and its volumes take no I/O any more. What was flushed
    /// is safe. Has to be done before another opens the device.
    pub async fn close(&self) {
        match self {
            Self::Raw(pool) => pool.close(),
            Self::Mapped(pool) => pool.close().await,
        }
    }

    /// The volumes, in the order of their names.
    pub fn list(&self) -> Vec<VolumeInfo> {
        match self {
            Self::Raw(pool) => pool.list(),
            Self::Mapped(pool) => pool.list(),
        }
    }

    /// The volume called `name`. All callers get the same device.
    pub fn volume(&self, name: &str) -> Option<SharedDevice> {
        match self {
            Self::Raw(pool) => pool.volume(name),
            Self::Mapped(pool) => pool.volume(name),
        }
    }

    /// The volume or snapshot that was given this UUID, and what it is called.
    pub fn find(&self, uuid: [u8; 16]) -> Option<(String, SharedDevice)> {
        match self {
            Self::Raw(pool) => pool.find(uuid),
            Self::Mapped(pool) => pool.find(uuid),
        }
    }

    /// Facts about the pool.
    pub fn info(&self) -> PoolInfo {
        match self {
            Self::Raw(pool) => pool.info(),
            Self::Mapped(pool) => pool.info(),
        }
    }
}

/// What is on a device that a new pool, or a new member of an array, would destroy; nothing if it
/// is not known that there is anything.
pub(crate) async fn occupant(device: &SharedDevice) -> Result<Option<String>, IoError> {
    let error = |error| match error {
        PoolError::Device { error, .. } => error,
        _ => IoError::Internal,
    };
    let start = Start(&**device);
    let found: Found<Metadata> = superblock::find(&start).await.map_err(error)?;
    match start.check_free(&found).await {
        Ok(()) => Ok(None),
        Err(PoolError::HoldsPool) => Ok(Some("a pool, or the remains of one".into())),
        Err(PoolError::Occupied(what)) => Ok(Some(what)),
        Err(why) => Err(error(why)),
    }
}

/// Refuses a device on which a new pool would destroy something.
async fn check_free(device: &SharedDevice) -> Result<(), PoolError> {
    let start = Start(&**device);
    let found: Found<Metadata> = superblock::find(&start).await?;
    start.check_free(&found).await
}

/// What is where a raw pool has its metadata; nothing if a mapped pool is there. Flushes first.
async fn find_other(device: &SharedDevice) -> Result<Option<Found<Metadata>>, PoolError> {
    // Where nothing can be written any more nothing can be built either.
    if !device.info().read_only {
        let flushed = device.flush(crate::Tag::default()).await;
        flushed.map_err(device_error("flushing what was written before"))?;
    }
    let found: Found<Metadata> = superblock::find(&Start(&**device)).await?;
    let mapped = Some(Unusable::Newer(mapped::VERSION));
    match found.clone().newest().err() == mapped {
        true => Ok(None),
        false => Ok(Some(found)),
    }
}
