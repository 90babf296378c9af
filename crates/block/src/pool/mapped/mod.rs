//! Mapped pools: the volumes of a pool share a log on its device. They are thin, every block is
//! verified when it is read, and what is overwritten comes back by garbage collection.
//!
//! The decisions are `flashyard_logstore`'s; here are the effects. `layout` says what is where on
//! the device, `label` what is kept of a volume; `key_header` and `keys` have the keys of an
//! encrypted pool; `opening` makes and opens pools; `requests` has the data of I/O at work, `coder`
//! and `chunks` what becomes of them before they are stored, and `engine` does what the store says;
//! `volume` is what users see, with `partial` for parts of chunks; `space` has quotas and what is
//! reserved; `look` says what is there and
//! `scrub` verifies it; `check` looks at a pool that is closed.
//!
//! Bounds: 960 volumes of 4 PiB each; all of them together may be larger than the pool.

mod charges;
mod check;
mod chunks;
mod coder;
mod engine;
mod exchange;
mod key_header;
mod keys;
mod label;
mod layout;
mod look;
mod opening;
mod partial;
mod repair;
mod requests;
mod scrub;
mod snapshots;
mod space;
mod volume;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use flashyard_codec::compress::Codec;
use flashyard_logstore::format::BLOCK;
use flashyard_logstore::{CHUNK_BITS, Form, Lineage, MOST_VOLUMES, OpenError, Refused};
use flashyard_runtime::Rt;
use flashyard_runtime::sync::Semaphore;

pub(super) use check::check;
pub use key_header::KeyHeader;
pub use layout::{LEAST_BYTES, VERSION};
pub(super) use opening::overlay;
pub(super) use space::UNIT;

use self::coder::{Coder, Guard, Tools};
use self::engine::{Asked, Engine};
use self::keys::{Keys, Settled};
use self::label::Label;
use self::space::Tenants;
use self::volume::Volume;
use super::change::run_on;
use super::copies::Start;
use super::error::{PoolError, device_error};
use super::facts::{NewVolume, Owner, VolumeForm};
use super::names::check_name;
use crate::{Device, IoError, SharedDevice};

/// What may be chosen each time a mapped pool is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappedOptions {
    /// Records that are kept in memory between two checkpoints; as many as the pool's size allows
    /// if not given, up to a million. For tests that want many checkpoints.
    pub records: Option<usize>,
    /// Leaves of the map that are kept in memory, of 4 KiB for 336 chunks each, 64 at least; 256
    /// MiB for a TiB of the pool, and no less than 64 MiB, if not given. For tests and benchmarks
    /// of a map that is larger than that.
    pub leaves: Option<usize>,
}

/// An open mapped pool; cheap to clone. Lives on the home core of its device.
#[derive(Clone)]
pub struct MappedPool {
    inner: Rc<Inner>,
}

struct Inner {
    rt: Rt,
    device: SharedDevice,
    engine: Rc<Engine>,
    uuid: [u8; 16],
    /// Of an encrypted pool.
    keys: Option<Keys>,
    /// What was put right of them when the pool was opened.
    settled: Settled,
    /// Held by the change that is in flight.
    changing: Semaphore,
    /// The pool takes no change any more.
    stuck: Cell<bool>,
    tools: Rc<Tools>,
    volumes: RefCell<BTreeMap<String, Entry>>,
    tenants: RefCell<Tenants>,
    /// By the volume whose data they have, and their name.
    snapshots: RefCell<BTreeMap<(Lineage, String), Entry>>,
}

/// A volume, and what is kept of it.
struct Entry {
    label: Label,
    device: Rc<Volume>,
}

impl MappedPool {
    /// See [`Pool::create_volumes`](super::Pool::create_volumes).
    pub async fn create_volumes(
        &self,
        wanted: Vec<NewVolume>,
    ) -> Result<Vec<SharedDevice>, PoolError> {
        self.change(async move |inner| inner.create(&wanted).await)
            .await
    }

    /// See [`Pool::grow`](super::Pool::grow).
    pub async fn grow(&self, name: &str, bytes: u64) -> Result<(), PoolError> {
        let name = name.to_owned();
        self.change(async move |inner| {
            let blocks = inner.check_growth(&name, bytes)?;
            let label = inner.label(&name)?;
            inner.relabel(&name, label, Some(blocks)).await
        })
        .await
    }

    /// See [`Pool::extend`](super::Pool::extend).
    pub async fn extend(&self) -> Result<(), PoolError> {
        self.change(async move |inner| {
            let grown = inner.device.take_growth();
            grown.map_err(device_error("looking how large the device is"))?;
            let [.., third, last] = inner.engine.superblocks;
            let kept = third..last + layout::SUPER_BLOCKS;
            let blocks = opening::blocks_of(&*inner.device);
            let growth = inner.engine.store.borrow().growth(blocks, kept);
            let Some(growth) = growth else {
                return Ok(());
            };
            let grown = inner
                .engine
                .ask(|store, request| store.grow(request, growth));
            grown
                .await
                .map_err(|why| failed("growing with its device", why))
        })
        .await
    }

    /// See [`Pool::check_growth`](super::Pool::check_growth).
    pub fn check_growth(&self, wanted: &[(String, u64)]) -> Result<(), PoolError> {
        let mut wanted = wanted.iter();
        wanted.try_for_each(|(name, bytes)| self.inner.check_growth(name, *bytes).map(drop))
    }

    /// See [`Pool::rename`](super::Pool::rename).
    pub async fn rename(&self, name: &str, new: &str) -> Result<(), PoolError> {
        let (name, new) = (name.to_owned(), new.to_owned());
        self.change(async move |inner| {
            check_name(&new)?;
            if inner.volumes.borrow().contains_key(&new) {
                return Err(PoolError::Exists(new));
            }
            let mut label = inner.label(&name)?;
            label.name = new;
            inner.relabel(&name, label, None).await
        })
        .await
    }

    /// See [`Pool::set_owner`](super::Pool::set_owner).
    pub async fn set_owner(&self, name: &str, owner: Owner) -> Result<(), PoolError> {
        let name = name.to_owned();
        self.change(async move |inner| {
            let mut label = inner.label(&name)?;
            if label.owner.as_ref() == Some(&owner) {
                return Ok(());
            }
            label.owner = Some(owner);
            inner.relabel(&name, label, None).await
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
            check_name(&new)?;
            let (mut before, mut taken) = (None, uuid == [0; 16]);
            for (name, entry) in inner.volumes.borrow().iter() {
                match entry.label.uuid == from {
                    true => before = Some(name.clone()),
                    false if *name == new => return Err(PoolError::Exists(new)),
                    false => taken |= entry.label.uuid == uuid,
                }
            }
            let before = before.ok_or_else(|| PoolError::NotFound(new.clone()))?;
            if taken {
                return Err(PoolError::UuidTaken);
            }
            let label = Label {
                name: new,
                uuid,
                ..inner.label(&before)?
            };
            inner.relabel(&before, label, None).await
        })
        .await
    }

    /// See [`Pool::exchange`](super::Pool::exchange).
    pub async fn exchange(&self, first: [u8; 16], second: [u8; 16]) -> Result<(), PoolError> {
        self.change(async move |inner| inner.exchange([first, second]).await)
            .await
    }

    /// See [`Pool::delete`](super::Pool::delete). Its space comes back by and by.
    pub async fn delete(&self, name: &str) -> Result<(), PoolError> {
        let name = name.to_owned();
        self.change(async move |inner| {
            inner.check_no_snapshots(&name)?;
            let entry = inner.volumes.borrow_mut().remove(&name);
            let entry = entry.ok_or(PoolError::NotFound(name))?;
            entry.device.close().await;
            let lineage = entry.device.lineage();
            let deleted = inner
                .engine
                .ask(|store, request| store.delete_volume(request, lineage));
            deleted
                .await
                .map_err(|why| failed("deleting a volume", why))?;
            inner.engine.forget_coder(lineage);
            inner.engine.charges.forget(lineage);
            match &inner.keys {
                Some(keys) => keys.erase(lineage).await,
                None => Ok(()),
            }
        })
        .await
    }

    /// See [`Pool::destroy`](super::Pool::destroy).
    pub async fn destroy(&self) -> Result<(), PoolError> {
        self.change(async move |inner| {
            if let Some(name) = inner.volumes.borrow().keys().next() {
                return Err(PoolError::InUse(name.clone()));
            }
            inner.stuck.set(true);
            inner.engine.stop().await;
            if inner.keys.is_some() {
                keys::erase_all(&*inner.device).await?;
            }
            Start(&*inner.device).erase().await
        })
        .await
    }

    /// See [`Pool::close`](super::Pool::close).
    pub async fn close(&self) {
        self.inner.stuck.set(true);
        // Where a checkpoint cannot end, what it leaves is as after a crash.
        let quiesce = flashyard_logstore::Store::quiesce;
        let _ = self.inner.engine.ask(quiesce).await;
        self.inner.engine.stop().await;
    }

    /// Writes a checkpoint, so that the next opening has nothing to replay.
    pub async fn checkpoint(&self) -> Result<(), PoolError> {
        let written = self.inner.engine.ask(flashyard_logstore::Store::checkpoint);
        written
            .await
            .map_err(|why| failed("writing a checkpoint", why))
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
            let result = match inner.stuck.get() {
                true => Err(PoolError::Stuck),
                false => change(inner.clone()).await,
            };
            inner.changing.release(1);
            result
        };
        run_on(&self.inner.rt, run).await
    }
}

impl Inner {
    async fn create(&self, wanted: &[NewVolume]) -> Result<Vec<SharedDevice>, PoolError> {
        let chunks = self.check_new(wanted)?;
        self.add_keys(wanted.len()).await?;
        let mut made = Vec::new();
        let mut requests = Vec::new();
        // All of them are in one checkpoint: it begins when the first is waited for.
        for (volume, chunks) in wanted.iter().zip(chunks) {
            let label = Label::from(volume);
            let (bytes, form) = (label.encode(), kept(volume.form));
            let asked = self
                .engine
                .begin_change(|store, request| store.create_formed(request, chunks, form, bytes));
            let (lineage, request) = asked.map_err(|why| failed("creating a volume", why))?;
            requests.push(request);
            let device = self.open_volume(lineage)?;
            self.own(lineage, label.owner.as_ref());
            made.push(Entry { label, device });
        }
        for request in requests {
            let ended = self.engine.end_change(request).await;
            ended.map_err(|why| failed("creating a volume", why))?;
        }
        let devices = made
            .iter()
            .map(|entry| entry.device.clone() as SharedDevice);
        let devices = devices.collect();
        let made = made.into_iter();
        let named = made.map(|entry| (entry.label.name.clone(), entry));
        self.volumes.borrow_mut().extend(named);
        Ok(devices)
    }

    /// Gives the next volumes keys, if the pool is encrypted. Changes are made one after the other,
    /// so that no other volume comes before them.
    async fn add_keys(&self, count: usize) -> Result<(), PoolError> {
        let Some(keys) = &self.keys else {
            return Ok(());
        };
        let next = self.engine.store.borrow().next_lineage();
        let all: Vec<Lineage> = (next.0..).map(Lineage).take(count).collect();
        keys.add(&all).await
    }

    /// How what is stored of a volume or snapshot is protected. A snapshot is written by nobody,
    /// and what it has is read by whose it is.
    fn guard(&self, lineage: Lineage, is_snapshot: bool) -> Guard {
        match &self.keys {
            Some(keys) if !is_snapshot => Guard::of(keys.cipher(lineage)),
            _ => Guard::Open,
        }
    }

    /// A volume or snapshot of the store, as a device.
    fn open_volume(&self, lineage: Lineage) -> Result<Rc<Volume>, PoolError> {
        let store = self.engine.store.borrow();
        let mut all = store.volumes();
        let Some(volume) = all.find(|volume| volume.lineage == lineage) else {
            return Err(PoolError::Mapped(OpenError::Map));
        };
        let form = volume.form;
        let guard = self.guard(lineage, volume.is_snapshot());
        let coder = Coder::new(form, guard, self.tools.clone());
        let on = (self.engine.clone(), self.device.clone());
        let blocks = volume.chunks * u64::from(form.chunk_blocks());
        let number = (lineage, volume.is_snapshot());
        Ok(Volume::new(&self.rt, on, number, Rc::new(coder), blocks))
    }

    /// The sizes of new volumes in chunks, if all of them can be made.
    fn check_new(&self, wanted: &[NewVolume]) -> Result<Vec<u64>, PoolError> {
        let volumes = self.volumes.borrow();
        let mut names: Vec<&str> = volumes.keys().map(String::as_str).collect();
        let mut uuids: Vec<[u8; 16]> = volumes.values().map(|it| it.label.uuid).collect();
        let mut chunks = Vec::new();
        let snapshots = self.snapshots.borrow();
        uuids.extend(snapshots.values().map(|it| it.label.uuid));
        for volume in wanted {
            check_name(&volume.name)?;
            if names.contains(&volume.name.as_str()) {
                return Err(PoolError::Exists(volume.name.clone()));
            }
            if volume.uuid == [0; 16] || uuids.contains(&volume.uuid) {
                return Err(PoolError::UuidTaken);
            }
            chunks.push(chunks_of(volume.bytes, volume.form.chunk)?);
            names.push(&volume.name);
            uuids.push(volume.uuid);
        }
        // Those that are being deleted still have a place.
        if self.engine.store.borrow().volumes().count() + wanted.len() > MOST_VOLUMES {
            return Err(PoolError::TooManyVolumes);
        }
        Ok(chunks)
    }

    /// The new size of a volume in blocks.
    fn check_growth(&self, name: &str, bytes: u64) -> Result<u64, PoolError> {
        let volumes = self.volumes.borrow();
        let entry = volumes.get(name);
        let entry = entry.ok_or_else(|| PoolError::NotFound(name.to_owned()))?;
        let form = entry.device.form();
        let blocks = chunks_of(bytes, 1 << form.chunk_shift)? * u64::from(form.chunk_blocks());
        let present = entry.device.info().blocks;
        if blocks < present {
            return Err(PoolError::Shrink {
                name: name.to_owned(),
                bytes: present * BLOCK as u64,
            });
        }
        Ok(blocks)
    }

    fn label(&self, name: &str) -> Result<Label, PoolError> {
        let volumes = self.volumes.borrow();
        let entry = volumes.get(name);
        let entry = entry.ok_or_else(|| PoolError::NotFound(name.to_owned()))?;
        Ok(entry.label.clone())
    }

    /// Changes what is kept of a volume, and its size if one is given.
    async fn relabel(
        &self,
        name: &str,
        label: Label,
        blocks: Option<u64>,
    ) -> Result<(), PoolError> {
        let device = self.volumes.borrow().get(name).map(|it| it.device.clone());
        let device = device.ok_or_else(|| PoolError::NotFound(name.to_owned()))?;
        let blocks = blocks.unwrap_or(device.info().blocks);
        let chunks = blocks / u64::from(device.form().chunk_blocks());
        let (lineage, bytes) = (device.lineage(), label.encode());
        let changed = self
            .engine
            .ask(|store, request| store.change_volume(request, lineage, chunks, bytes));
        changed
            .await
            .map_err(|why| failed("changing a volume", why))?;
        device.grown(blocks);
        self.own(lineage, label.owner.as_ref());
        let mut volumes = self.volumes.borrow_mut();
        volumes.remove(name);
        volumes.insert(label.name.clone(), Entry { label, device });
        Ok(())
    }
}

/// The work of a pool ends with it and its last volume.
impl Drop for Inner {
    fn drop(&mut self) {
        let volumes = self.volumes.borrow();
        let snapshots = self.snapshots.borrow();
        if volumes
            .values()
            .chain(snapshots.values())
            .all(Entry::is_alone)
        {
            self.engine.halt();
        }
    }
}

impl Entry {
    /// Whether the pool is the only one that has the volume.
    fn is_alone(&self) -> bool {
        Rc::strong_count(&self.device) == 1
    }
}

/// How many chunks of a volume hold so many bytes.
fn chunks_of(bytes: u64, chunk: u32) -> Result<u64, PoolError> {
    let chunks = bytes.div_ceil(chunk.into());
    match bytes > 0 && chunks <= 1 << CHUNK_BITS {
        true => Ok(chunks),
        false => Err(PoolError::Size(bytes)),
    }
}

/// A form as the store keeps it.
fn kept(form: VolumeForm) -> Form {
    Form {
        chunk_shift: form.chunk.checked_ilog2().unwrap_or_default() as u8,
        codec: form.compression.map_or(0, Codec::number),
    }
}

/// A change of the pool that was not made.
fn failed(action: &'static str, why: Asked) -> PoolError {
    let error = match why {
        Asked::Refused(Refused::TooManyVolumes) => return PoolError::TooManyVolumes,
        Asked::Refused(Refused::ReadOnly) => IoError::WriteProtected,
        Asked::Refused(Refused::Form) => IoError::Internal,
        Asked::Refused(_) => IoError::NotReady,
        Asked::Ended(error) => error,
    };
    PoolError::Device { action, error }
}
