//! How a mapped pool is made and opened, by its users or by somebody who looks at it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use flashyard_codec::cipher::Key;
use flashyard_logstore::format::BLOCK;
use flashyard_logstore::format::superblock::{Features, Superblock};
use flashyard_logstore::{COPIES, Lineage, OpenError, Options, SUPERBLOCK, Secret, State, Store};
use flashyard_runtime::Rt;
use flashyard_runtime::sync::Semaphore;

use super::engine::Engine;
use super::key_header::{self, KeyHeader};
use super::keys::{self, Keys, Settled};
use super::label::Label;
use super::layout::{self, Signpost};
use super::{Entry, Inner, MappedOptions, MappedPool};
use crate::copies::read_each;
use crate::pool::copies::Start;
use crate::pool::error::{PoolError, device_error};
use crate::pool::facts::Forgotten;
use crate::superblock::{self, Found, Raw};
use crate::{Device, Overlay, SharedDevice};

/// Who opens a pool.
enum Access {
    /// Its users, with its key if it is encrypted.
    Users(Option<Key>),
    /// Somebody who looks at it: without its key nothing that is stored can be read.
    Look,
}

/// The same device, of which writes stay in memory.
pub(in crate::pool) fn overlay(device: SharedDevice) -> SharedDevice {
    Rc::new(Overlay::new(device))
}

impl MappedPool {
    /// Makes the device a pool without volumes. What is there is lost.
    pub async fn create(
        rt: &Rt,
        device: SharedDevice,
        uuid: [u8; 16],
        options: MappedOptions,
    ) -> Result<Self, PoolError> {
        Self::make(rt, device, uuid, options, None).await
    }

    /// The same, of an encrypted pool with the UUID of its header and the key in it.
    pub async fn create_encrypted(
        rt: &Rt,
        device: SharedDevice,
        with: (KeyHeader, Key),
        options: MappedOptions,
    ) -> Result<Self, PoolError> {
        let uuid = with.0.uuid();
        Self::make(rt, device, uuid, options, Some(with)).await
    }

    async fn make(
        rt: &Rt,
        device: SharedDevice,
        uuid: [u8; 16],
        options: MappedOptions,
        with: Option<(KeyHeader, Key)>,
    ) -> Result<Self, PoolError> {
        let blocks = blocks_of(&*device);
        let bytes = blocks * BLOCK as u64;
        let rows = device.rows();
        if rows.is_some_and(|rows| !layout::takes(rows)) {
            return Err(PoolError::Rows);
        }
        let least = layout::least_bytes(rows);
        if bytes < least {
            return Err(PoolError::TooSmall { bytes, least });
        }
        let signpost = Signpost::new(uuid, blocks, rows);
        // Until the signposts stand there is no pool here, of this kind or another.
        Start(&*device).erase().await?;
        let secret = Secret(random(rt));
        let options = store_options(rt, &*device, bytes, options);
        let store = Store::create(layout::segments(blocks, rows), uuid, secret, options);
        let mut store = store.map_err(PoolError::Mapped)?;
        let mut keys = None;
        if let Some((header, key)) = with {
            header.store(&*device).await?;
            let made = Keys::new(device.clone(), uuid, &key);
            keys = Some(made.map_err(PoolError::Key)?);
            store = store.with(Features::ENCRYPTION);
        }
        let engine = Engine::start(rt, device.clone(), signpost.superblocks, store);
        wait_until_open(&engine).await?;
        let start = Start(&*device);
        let prepared = superblock::prepare(&start, &signpost)?;
        superblock::commit(&start, prepared, 1).await?;
        Self::new(rt, device, uuid, engine, (keys, Settled::default()))
    }

    /// Opens the pool on a device: replays its log, and writes what was decided of it. Refuses one
    /// that is encrypted.
    pub async fn open(
        rt: &Rt,
        device: SharedDevice,
        options: MappedOptions,
    ) -> Result<Self, PoolError> {
        Self::start(rt, device, options, Access::Users(None)).await
    }

    /// The same, of an encrypted pool with the key in its header.
    pub async fn unlock(
        rt: &Rt,
        device: SharedDevice,
        options: MappedOptions,
        key: Key,
    ) -> Result<Self, PoolError> {
        Self::start(rt, device, options, Access::Users(Some(key))).await
    }

    /// Opens the pool on a device that takes all writes into memory, without its key: what its
    /// volumes hold cannot be read if it is encrypted.
    pub(in crate::pool) async fn look_at(rt: &Rt, device: SharedDevice) -> Result<Self, PoolError> {
        Self::start(rt, device, MappedOptions::default(), Access::Look).await
    }

    async fn start(
        rt: &Rt,
        device: SharedDevice,
        options: MappedOptions,
        access: Access,
    ) -> Result<Self, PoolError> {
        let start = Start(&*device);
        let found: Found<Signpost> = superblock::find(&start).await?;
        let newest = found.newest()?;
        let header = key_header::find_newest(&*device, newest.content.uuid).await?;
        let by_users = matches!(access, Access::Users(_));
        let key = match (access, &header) {
            (Access::Users(None), Some(_)) => return Err(PoolError::Locked),
            (Access::Users(Some(_)), None) => return Err(PoolError::NotEncrypted),
            (Access::Users(key), _) => key,
            (Access::Look, _) => None,
        };
        superblock::repair(&start, &newest).await?;
        if let Some(header) = &header {
            superblock::repair(&key_header::Header(&*device), header).await?;
        }
        let signpost = newest.content;
        let blocks = blocks_of(&*device);
        let wanted = signpost.superblocks[COPIES - 1] + layout::SUPER_BLOCKS;
        if wanted > blocks {
            return Err(PoolError::Mapped(OpenError::Smaller { wanted, blocks }));
        }
        let copies = read_superblocks(&*device, &signpost).await?;
        let options = store_options(rt, &*device, blocks * BLOCK as u64, options);
        let bytes = core::array::from_fn(|copy: usize| copies[copy].as_deref());
        let store = Store::open(bytes, blocks, options).map_err(PoolError::Mapped)?;
        if store.superblock().features.has(Features::ENCRYPTION) != header.is_some() {
            return Err(PoolError::KeysDamaged(
                [(); 2].map(|()| "there is none".into()),
            ));
        }
        let (row, first) = (store.superblock().row, store.superblock().first_block);
        if !layout::fits(row, first, device.rows()) {
            return Err(PoolError::Rows);
        }
        let engine = Engine::start(rt, device.clone(), signpost.superblocks, store);
        wait_until_open(&engine).await?;
        let mut keys = (None, Settled::default());
        if header.is_some() {
            let volumes = volumes_of(&engine);
            let opened = Keys::open(device.clone(), signpost.uuid, key.as_ref(), &volumes).await;
            let (opened, settled) = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    engine.stop().await;
                    return Err(error);
                }
            };
            keys = (Some(opened), settled);
        }
        let pool = Self::new(rt, device, signpost.uuid, engine, keys)?;
        let ready = pool.inner.engine.store.borrow().state() == State::Ready;
        if by_users && ready {
            pool.extend().await?;
        }
        Ok(pool)
    }

    /// See [`Pool::forget_encrypted`](crate::pool::Pool::forget_encrypted).
    pub(in crate::pool) async fn forget_encrypted(
        device: &dyn Device,
        uuid: [u8; 16],
    ) -> Result<Forgotten, PoolError> {
        let start = Start(device);
        let found: Found<Signpost> = superblock::find(&start).await?;
        let signpost = found.newest()?.content;
        if signpost.uuid != uuid {
            return Ok(Forgotten::Other);
        }
        let is_encrypted = match key_header::find_newest(device, uuid).await {
            Ok(Some(_)) | Err(PoolError::KeysDamaged(_)) => true,
            // A power cut may have left it without keys.
            Ok(None) => says_encrypted(device, &signpost).await?,
            Err(why) => return Err(why),
        };
        if !is_encrypted {
            return Err(PoolError::NotEncrypted);
        }
        keys::erase_all(device).await?;
        start.erase().await?;
        Ok(Forgotten::Erased)
    }

    fn new(
        rt: &Rt,
        device: SharedDevice,
        uuid: [u8; 16],
        engine: Rc<Engine>,
        (keys, settled): (Option<Keys>, Settled),
    ) -> Result<Self, PoolError> {
        let inner = Inner {
            rt: rt.clone(),
            device,
            engine,
            uuid,
            keys,
            settled,
            changing: Semaphore::new(1),
            stuck: Cell::new(false),
            tools: Rc::default(),
            volumes: RefCell::default(),
            tenants: RefCell::default(),
            snapshots: RefCell::default(),
        };
        let mut owners = Vec::new();
        for volume in inner.engine.store.borrow().volumes() {
            if volume.deleting {
                continue;
            }
            let label = Label::decode(&volume.label).ok_or(PoolError::Mapped(OpenError::Map))?;
            let name = label.name.clone();
            let device = inner.open_volume(volume.lineage)?;
            let entry = Entry { label, device };
            if volume.is_snapshot() {
                let key = (volume.data, name);
                inner.snapshots.borrow_mut().insert(key, entry);
            } else {
                owners.push((volume.lineage, entry.label.owner.clone()));
                inner.volumes.borrow_mut().insert(name, entry);
            }
        }
        for (lineage, owner) in owners {
            inner.own(lineage, owner.as_ref());
        }
        Ok(Self {
            inner: Rc::new(inner),
        })
    }
}

/// The volumes that have a key: all but those that are being deleted, whose key is forgotten.
fn volumes_of(engine: &Engine) -> BTreeSet<Lineage> {
    let store = engine.store.borrow();
    let volumes = store.volumes();
    let kept = volumes.filter(|volume| !volume.is_snapshot() && !volume.deleting);
    kept.map(|volume| volume.lineage).collect()
}

/// Whole blocks of 4 KiB of a device.
pub(super) fn blocks_of(device: &dyn Device) -> u64 {
    let info = device.info();
    info.blocks / (BLOCK as u64 / u64::from(info.block_size))
}

/// A random number of 16 bytes.
fn random(rt: &Rt) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&rt.random().to_le_bytes());
    bytes[8..].copy_from_slice(&rt.random().to_le_bytes());
    bytes
}

fn store_options(rt: &Rt, device: &dyn Device, bytes: u64, options: MappedOptions) -> Options {
    let default = Options::default();
    // 256 MiB of leaves for a TiB, and 64 MiB at least.
    let leaves = (bytes >> 24) as usize;
    Options {
        records: options.records.unwrap_or(default.records),
        leaves: options.leaves.unwrap_or(leaves.max(default.leaves)),
        discard: device.info().deallocate,
        seed: rt.random(),
        ..default
    }
}

/// The superblocks of the pool that the signposts name, as far as they can be read.
pub(super) async fn read_superblocks(
    device: &dyn Device,
    signpost: &Signpost,
) -> Result<[Option<Vec<u8>>; COPIES], PoolError> {
    let reading = device_error("reading the pool's superblocks");
    let scale = BLOCK as u64 / u64::from(device.info().block_size);
    let mut copies = [const { None }; COPIES];
    for (number, copy) in (0..).zip(&mut copies) {
        let lba = signpost.superblocks[usize::from(number)] * scale;
        let mut newest = None;
        for read in read_each(device, lba, SUPERBLOCK).await.map_err(&reading)? {
            let Raw::Bytes(bytes) = read else {
                continue;
            };
            if bytes[16..32] != signpost.uuid {
                continue;
            }
            let generation = Superblock::decode(&bytes, number).map_or(0, |it| it.generation);
            if copy.is_none() || Some(generation) > newest {
                (*copy, newest) = (Some(bytes.to_vec()), Some(generation));
            }
        }
    }
    Ok(copies)
}

/// Whether a superblock says that the pool is encrypted.
async fn says_encrypted(device: &dyn Device, signpost: &Signpost) -> Result<bool, PoolError> {
    let copies = read_superblocks(device, signpost).await?;
    let says = |(number, copy): (u8, Option<Vec<u8>>)| {
        let superblock = Superblock::decode(&copy?, number).ok()?;
        Some(superblock.features.has(Features::ENCRYPTION))
    };
    Ok((0..).zip(copies).filter_map(says).any(|says| says))
}

async fn wait_until_open(engine: &Rc<Engine>) -> Result<(), PoolError> {
    match engine.opened().await {
        State::Failed(why) => {
            engine.stop().await;
            Err(PoolError::Mapped(why))
        }
        _ => Ok(()),
    }
}
