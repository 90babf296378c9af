//! Raw pools: space of a device is given to volumes, with nothing between.
//!
//! Space is given out in extents of 1 MiB. A volume reads as zeroes where it was not written:
//! extents that are not known to be zero are zeroed and flushed before the change that gives them
//! away is committed. Changes are done one after the other, run to their end even if no task waits
//! for them, and are durable before they are reported. A power cut leaves the state before or after
//! the change (see `copies`).
//!
//! Bounds: 1024 volumes, 32768 runs of extents of all volumes together.
//!
//! Map: `runs` and `metadata` decide, pure; `codec` is the layout on the device, `copies` its two
//! places, at which [`superblock`] keeps it; `volume` is what users see; `check` looks without
//! changing.

mod check;
mod codec;
mod metadata;
mod runs;
mod volume;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use flashyard_runtime::Rt;
use flashyard_runtime::sync::Semaphore;

pub(super) use check::check;
pub(super) use metadata::{MAX_RUNS, MAX_VOLUMES, Metadata};

use self::metadata::{DATA_START, EXTENT_BYTES, extents_of_device};
use self::runs::Runs;
use self::volume::Volume;
use super::change::run_on;
use super::copies::{self, Start};
use super::error::{PoolError, device_error};
use super::facts::{Kind, NewVolume, PoolInfo, VolumeInfo};
use crate::superblock::{self, Found, Other};
use crate::{IoError, SharedDevice, make_clean};

/// An open raw pool; cheap to clone. Lives on the home core of its device.
#[derive(Clone)]
pub struct RawPool {
    inner: Rc<Inner>,
}

struct Inner {
    rt: Rt,
    device: SharedDevice,
    /// Held by the change that is in flight.
    changing: Semaphore,
    state: RefCell<State>,
}

struct State {
    metadata: Metadata,
    /// Extents that belong to no volume.
    free: Runs,
    /// The copy that counts.
    newest: usize,
    /// A change failed half way.
    stuck: bool,
    /// Another pool may be on the device.
    closed: bool,
    volumes: BTreeMap<String, Rc<Volume>>,
}

impl RawPool {
    /// Makes the device a pool without volumes. Refuses a device that holds a pool or something
    /// else that is known, unless `force`; what is there is lost then.
    pub async fn create(
        rt: &Rt,
        device: SharedDevice,
        uuid: [u8; 16],
        force: bool,
    ) -> Result<Self, PoolError> {
        if device.rows().is_some() {
            return Err(PoolError::NeedsMapped);
        }
        let start = Start(&*device);
        let found: Found<Metadata> = superblock::find(&start).await?;
        if !force {
            start.check_free(&found).await?;
        }
        let info = device.info();
        let mut metadata = Metadata::new(
            uuid,
            info.block_size,
            info.blocks * u64::from(info.block_size),
        )?;
        let (highest, place) = found.highest();
        metadata.generation = copies::after(highest)?;
        if device.is_blank() {
            metadata.add_clean(&metadata.free());
        }
        let prepared = superblock::prepare(&start, &metadata)?;
        let newest = superblock::commit(&start, prepared, place).await?;
        Ok(Self::new(rt, device, metadata, newest))
    }

    /// Opens the pool of which `found` is on a device, with the newest valid state. Where a copy of
    /// it is lost, on a member of the device or on all, it is written anew, unless nothing can be.
    pub(super) async fn open(
        rt: &Rt,
        device: SharedDevice,
        found: Found<Metadata>,
    ) -> Result<Self, PoolError> {
        let newest = found.newest()?;
        let is_lost = newest.other == Other::Unusable || newest.uneven.contains(&true);
        let (mut metadata, mut place): (Metadata, usize) = (newest.content, newest.place);
        fit(&mut metadata, &device)?;
        if is_lost {
            // What is lost may have given away what this one calls clean.
            metadata.clean = Runs::default();
        }
        if is_lost && !device.info().read_only {
            // A state of its own: the copies that are there call more clean.
            metadata.generation = copies::after(metadata.generation)?;
            let start = Start(&*device);
            let prepared = superblock::prepare(&start, &metadata)?;
            place = superblock::commit(&start, prepared, place).await?;
        }
        Ok(Self::new(rt, device, metadata, place))
    }

    /// Creates volumes in one change: all of them, or none if one cannot be. Gives them in the
    /// order in which they were asked for.
    pub async fn create_volumes(
        &self,
        wanted: Vec<NewVolume>,
    ) -> Result<Vec<SharedDevice>, PoolError> {
        if let Some(volume) = wanted.iter().find(|volume| !volume.form.is_plain()) {
            return Err(PoolError::Plain(volume.name.clone()));
        }
        self.change(async move |inner| {
            let mut metadata = inner.state.borrow().metadata.clone();
            let mut dirty = Vec::new();
            for NewVolume {
                name, uuid, bytes, ..
            } in &wanted
            {
                dirty.extend_from_slice(metadata.add(name, *uuid, *bytes)?.as_slice());
            }
            let dirty = Runs::new(dirty).expect("no two volumes share an extent");
            inner.clean(&dirty).await?;
            let mut made = Vec::new();
            for NewVolume { name, .. } in wanted {
                let record = metadata.volume(&name)?;
                made.push((name, Volume::new(&inner.rt, inner.device.clone(), record)));
            }
            inner.commit(metadata).await?;
            let devices = made
                .iter()
                .map(|(_, volume)| volume.clone() as SharedDevice);
            let devices = devices.collect();
            inner.state.borrow_mut().volumes.extend(made);
            Ok(devices)
        })
        .await
    }

    /// Makes a volume larger while it is used; the new part reads as zeroes.
    pub async fn grow(&self, name: &str, bytes: u64) -> Result<(), PoolError> {
        let name = name.to_owned();
        self.change(async move |inner| {
            let mut metadata = inner.state.borrow().metadata.clone();
            let dirty = metadata.grow(&name, bytes)?;
            inner.clean(&dirty).await?;
            let record = metadata.volume(&name)?.clone();
            inner.commit(metadata).await?;
            if let Some(volume) = inner.state.borrow().volumes.get(&name) {
                volume.grown(&record);
            }
            Ok(())
        })
        .await
    }

    /// Takes up the space by which the device has grown since the pool was opened.
    pub async fn extend(&self) -> Result<(), PoolError> {
        self.change(async move |inner| {
            let grown = inner.device.take_growth();
            grown.map_err(device_error("looking how large the device is"))?;
            let mut metadata = inner.state.borrow().metadata.clone();
            let before = metadata.extents;
            fit(&mut metadata, &inner.device)?;
            match metadata.extents == before {
                true => Ok(()),
                false => inner.commit(metadata).await,
            }
        })
        .await
    }

    /// Whether volumes can grow to so many bytes, all of them.
    pub fn check_growth(&self, wanted: &[(String, u64)]) -> Result<(), PoolError> {
        let mut metadata = self.inner.state.borrow().metadata.clone();
        for (name, bytes) in wanted {
            metadata.grow(name, *bytes)?;
        }
        Ok(())
    }

    /// Renames a volume, while it is used; its UUID stays.
    pub async fn rename(&self, name: &str, new: &str) -> Result<(), PoolError> {
        let (name, new) = (name.to_owned(), new.to_owned());
        self.change(async move |inner| {
            let mut metadata = inner.state.borrow().metadata.clone();
            metadata.rename(&name, &new)?;
            inner.commit(metadata).await?;
            let volumes = &mut inner.state.borrow_mut().volumes;
            if let Some(volume) = volumes.remove(&name) {
                volumes.insert(new, volume);
            }
            Ok(())
        })
        .await
    }

    /// See [`Pool::identify`](super::Pool::identify).
    pub async fn identify(
        &self,
        from: [u8; 16],
        uuid: [u8; 16],
        name: &str,
    ) -> Result<(), PoolError> {
        let new = name.to_owned();
        self.change(async move |inner| {
            let mut metadata = inner.state.borrow().metadata.clone();
            let mut records = metadata.volumes.iter();
            let before = records.find(|record| record.uuid == from);
            let before = before.map(|record| record.name.clone());
            metadata.identify(from, uuid, &new)?;
            inner.commit(metadata).await?;
            let volumes = &mut inner.state.borrow_mut().volumes;
            if let Some(volume) = before.and_then(|name| volumes.remove(&name)) {
                volumes.insert(new, volume);
            }
            Ok(())
        })
        .await
    }

    /// Deletes a volume, used or not: its later I/O gets [`IoError::NotReady`], what was issued is
    /// waited for, and its space is freed below where the device can. When the change fails half
    /// way the volume stays out of reach until the pool is opened again.
    pub async fn delete(&self, name: &str) -> Result<(), PoolError> {
        let name = name.to_owned();
        self.change(async move |inner| {
            let mut metadata = inner.state.borrow().metadata.clone();
            let extents = metadata.remove(&name)?;
            let volume = inner.state.borrow_mut().volumes.remove(&name);
            if let Some(volume) = volume {
                volume.close().await;
            }
            inner.commit(metadata).await?;
            inner.free_below(&extents).await;
            Ok(())
        })
        .await
    }

    /// Takes the pool off its device, which counts as empty afterwards. Refused while there is a
    /// volume. A power cut in the middle leaves the pool, or nothing. The pool takes no further
    /// change, even if this fails.
    pub async fn destroy(&self) -> Result<(), PoolError> {
        self.change(async move |inner| {
            let volume = inner.state.borrow().volumes.keys().next().cloned();
            if let Some(name) = volume {
                return Err(PoolError::InUse(name));
            }
            inner.state.borrow_mut().stuck = true;
            Start(&*inner.device).erase().await
        })
        .await
    }

    /// See [`Pool::close`](super::Pool::close).
    pub(super) fn close(&self) {
        self.inner.state.borrow_mut().closed = true;
    }

    /// The volumes, in the order of their names.
    pub fn list(&self) -> Vec<VolumeInfo> {
        check::list(&self.inner.state.borrow().metadata)
    }

    /// The volume called `name`. All callers get the same device.
    pub fn volume(&self, name: &str) -> Option<SharedDevice> {
        let volume = self.inner.state.borrow().volumes.get(name)?.clone();
        Some(volume)
    }

    /// The volume that was given this UUID, and what it is called.
    pub fn find(&self, uuid: [u8; 16]) -> Option<(String, SharedDevice)> {
        let state = self.inner.state.borrow();
        let mut records = state.metadata.volumes.iter();
        let record = records.find(|record| record.uuid == uuid)?;
        let volume = state.volumes.get(&record.name)?.clone();
        Some((record.name.clone(), volume))
    }

    /// Facts about the pool.
    pub fn info(&self) -> PoolInfo {
        let state = self.inner.state.borrow();
        let metadata = &state.metadata;
        let bytes = metadata.extents * EXTENT_BYTES;
        let free = state.free.count() * EXTENT_BYTES;
        PoolInfo {
            encrypted: false,
            scrub: None,
            read_only: None,
            kind: Kind::Raw,
            uuid: metadata.uuid,
            block_size: metadata.block_size,
            bytes,
            free,
            reserved: 0,
            logical: bytes - free,
            snapshots: 0,
            written: bytes - free,
            stored: bytes - free,
            generation: metadata.generation,
        }
    }

    fn new(rt: &Rt, device: SharedDevice, metadata: Metadata, newest: usize) -> Self {
        let open = |record: &metadata::Record| {
            (record.name.clone(), Volume::new(rt, device.clone(), record))
        };
        let volumes = metadata.volumes.iter().map(open).collect();
        let state = RefCell::new(State {
            free: metadata.free(),
            metadata,
            newest,
            stuck: false,
            closed: false,
            volumes,
        });
        let inner = Rc::new(Inner {
            rt: rt.clone(),
            device,
            changing: Semaphore::new(1),
            state,
        });
        inner.say_what_is_unneeded();
        Self { inner }
    }

    /// Runs one change after the others, to its end even if the caller goes away.
    async fn change<T, F>(&self, change: F) -> Result<T, PoolError>
    where
        T: 'static,
        F: AsyncFnOnce(Rc<Inner>) -> Result<T, PoolError> + 'static,
    {
        let inner = self.inner.clone();
        let run = async move {
            inner.changing.acquire(1).await;
            let stuck = inner.state.borrow().stuck;
            let result = if stuck {
                Err(PoolError::Stuck)
            } else {
                change(inner.clone()).await
            };
            inner.changing.release(1);
            result
        };
        run_on(&self.inner.rt, run).await
    }
}

impl Inner {
    /// Members of the device that are rebuilt need not get what free extents hold: a volume that
    /// gets one later has zeroes there.
    fn say_what_is_unneeded(self: &Rc<Self>) {
        let Some(copies) = self.device.copies() else {
            return;
        };
        let inner = Rc::downgrade(self);
        copies.set_unneeded(Box::new(move |range| {
            let inner = inner.upgrade();
            inner.is_some_and(|it| it.is_unneeded(&range))
        }));
    }

    /// Whether these blocks of the device lie in free extents. They are zeroed, if they have to be,
    /// before a volume has them and writes.
    fn is_unneeded(&self, blocks: &Range<u64>) -> bool {
        let block_size = u64::from(self.device.info().block_size);
        let (start, end) = (blocks.start * block_size, blocks.end * block_size);
        let Some(first) = start.checked_sub(DATA_START) else {
            return false;
        };
        let extents = first / EXTENT_BYTES..(end - DATA_START).div_ceil(EXTENT_BYTES);
        let state = self.state.borrow();
        // A change that failed half way may have given them away.
        !state.stuck && !state.closed && state.free.contains(&extents)
    }

    /// Zeroes the extents that a volume is about to get, durably.
    async fn clean(&self, dirty: &Runs) -> Result<(), PoolError> {
        if dirty.count() == 0 {
            return Ok(());
        }
        self.zero(dirty)
            .await
            .map_err(device_error("zeroing new extents"))
    }

    /// Frees the space of `extents` on the device below, if it can. A failure costs nothing but
    /// space: they are zeroed again before they are used.
    async fn free_below(&self, extents: &Runs) {
        if self.device.info().deallocate && self.zero(extents).await.is_ok() {
            self.state.borrow_mut().metadata.add_clean(extents);
        }
    }

    async fn zero(&self, extents: &Runs) -> Result<(), IoError> {
        let blocks_per_extent = EXTENT_BYTES / u64::from(self.device.info().block_size);
        let lba = |extent: u64| (DATA_START / EXTENT_BYTES + extent) * blocks_per_extent;
        let ranges = extents.as_slice().iter();
        let ranges = ranges.map(|run| lba(run.start)..lba(run.end()));
        make_clean(&*self.device, ranges).await
    }

    /// Makes `metadata` the state of the pool.
    async fn commit(&self, mut metadata: Metadata) -> Result<(), PoolError> {
        metadata.generation = copies::after(metadata.generation)?;
        let newest = self.state.borrow().newest;
        let start = Start(&*self.device);
        let prepared = superblock::prepare(&start, &metadata)?;
        // Until it is known that both copies are written, neither state may be built on.
        self.state.borrow_mut().stuck = true;
        let newest = superblock::commit(&start, prepared, newest).await?;
        let mut state = self.state.borrow_mut();
        state.free = metadata.free();
        state.metadata = metadata;
        state.newest = newest;
        state.stuck = false;
        Ok(())
    }
}

/// Checks that the metadata is of this device, and adds the space by which the device has grown.
fn fit(metadata: &mut Metadata, device: &SharedDevice) -> Result<(), PoolError> {
    let info = device.info();
    if info.block_size != metadata.block_size {
        return Err(PoolError::Geometry(format!(
            "the pool was made with blocks of {} bytes and the device has {}: set block_size = {}",
            metadata.block_size, info.block_size, metadata.block_size
        )));
    }
    let extents = extents_of_device(info.blocks * u64::from(info.block_size));
    if extents < metadata.extents {
        let least = DATA_START + metadata.extents * EXTENT_BYTES;
        return Err(PoolError::Geometry(format!(
            "the pool was made on a device of at least {least} bytes and this one is smaller: give it its size back"
        )));
    }
    metadata.extents = extents;
    Ok(())
}
