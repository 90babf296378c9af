//! Devices and pools: opening them on their home cores, creating and deleting them.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use flashyard_block::pool::{Pool, PoolError};
use flashyard_block::{Device, FileDevice, FileOptions, MemoryDevice, NullDevice, SharedDevice};
use flashyard_flash::{channel, ssd};
use flashyard_host::{Options as HostOptions, Persistence, RemoteDevice};
use flashyard_nvme::Nqn;
use flashyard_runtime::Rt;
use uuid::Uuid;

use super::fault::{InUse, Internal, Invalid, RemoteFault, Unavailable};
use super::work::Work;
use super::{Fault, Stack, Subject, calibrate, flash, no_such, partitions};
use crate::control::{KindName, View};
use crate::cores::CoreState;
use crate::nodes::Node;
use crate::spec::{ChannelsSpec, DeviceSpec, FlashSpec, Medium, PoolSpec, RemoteSpec, Size, Store};
use crate::state::{Kind, PoolRecord};

/// How long a file or device that another process has is waited for at start, and how often it is
/// tried.
const IN_USE_LONGEST: Duration = Duration::from_secs(3);
const IN_USE_PAUSE: Duration = Duration::from_millis(20);
/// Connections to another target, for each device there.
const REMOTE_QUEUES: u16 = 2;

impl Work<'_> {
    pub(super) fn open_devices(&mut self) {
        for spec in self.in_order_of_opening() {
            let what = Subject::Device(spec.name.clone());
            let unfinished = spec.partition().is_some_and(|cut| cut.unfinished);
            let outcome = match unfinished {
                true => self.clear_away(&spec),
                false => self.open_kept(&spec),
            };
            if let Err(fault) = outcome {
                self.note_fault(what, fault);
            }
        }
    }

    /// Opens a device at start. One that is in use is waited for a little: the files of a target
    /// that was killed are its own until the kernel has ended what it had asked for.
    fn open_kept(&mut self, spec: &DeviceSpec) -> Result<(), Fault> {
        let until = Instant::now() + IN_USE_LONGEST;
        loop {
            match self.open_device(spec, Found::Must) {
                Err(fault) if fault.is_in_use_elsewhere() && Instant::now() < until => {
                    thread::sleep(IN_USE_PAUSE);
                }
                outcome => return outcome,
            }
        }
    }

    pub(super) fn open_pools(&mut self) {
        for record in self.inventory.pools.clone().into_values() {
            let what = Subject::Pool(record.spec.name.clone());
            if let Err(fault) = self.open_pool(&record) {
                self.note_fault(what, fault);
            }
        }
    }

    pub(super) fn create_device(&mut self, mut spec: DeviceSpec) -> Result<View, Fault> {
        spec.check()?;
        let name = spec.name.clone();
        if self.inventory.devices.contains_key(&name) {
            return Err(InUse::Name(KindName::Device, name).into());
        }
        if let Some(path) = spec.path()
            && let Some(other) = self
                .inventory
                .devices
                .values()
                .find(|other| other.path() == Some(path))
        {
            return Err(InUse::Path(path.clone(), other.name.clone()).into());
        }
        calibrate::tell_if_needed(&mut spec)?;
        if spec.partition().is_some() {
            return self.create_partition(spec);
        }
        self.open_device(&spec, Found::MayBeMade)?;
        spec.disposable = self.is_blank(&name);
        let noted = self.commit(|state, stack| {
            state.put_device(&spec)?;
            stack.inventory.devices.insert(name.clone(), spec);
            Ok(())
        });
        if let Err(fault) = noted {
            self.close_device(&name);
            return Err(fault);
        }
        self.view_one(KindName::Device, &name)
    }

    pub(super) fn delete_device(&mut self, name: &str) -> Result<View, Fault> {
        match self.inventory.devices.get(name) {
            None => return Err(no_such(KindName::Device, name)),
            Some(spec) if spec.partition().is_some() => return self.delete_partition(name),
            Some(_) => {}
        }
        if let Some(user) = self.device_user(name) {
            return Err(InUse::Below(KindName::Device, name.to_owned(), user).into());
        }
        self.commit(|state, stack| {
            state.remove(Kind::Device, name)?;
            stack.inventory.devices.remove(name);
            stack.faults.remove(&Subject::Device(name.to_owned()));
            Ok(())
        })?;
        self.close_device(name);
        Ok(View::Done)
    }

    pub(super) fn create_pool(&mut self, spec: PoolSpec, force: bool) -> Result<View, Fault> {
        spec.check()?;
        let (name, device) = (spec.name.clone(), spec.device().to_owned());
        if self.inventory.pools.contains_key(&name) {
            return Err(InUse::Name(KindName::Pool, name).into());
        }
        if let Some(user) = self.device_user(&device) {
            return Err(InUse::Taken(device, user).into());
        }
        self.home_of(&device)?;
        self.check_blocks(&device)?;
        let record = self.commit(|state, _| Ok(state.put_pool(&spec)?))?;
        if let Err(fault) = self.make_pool(&record, force) {
            self.commit(|state, _| Ok(state.remove(Kind::Pool, &name)?))?;
            return Err(fault);
        }
        self.edit(|stack| stack.inventory.pools.insert(name.clone(), record));
        self.view_one(KindName::Pool, &name)
    }

    pub(super) fn delete_pool(&mut self, name: &str) -> Result<View, Fault> {
        let Some(record) = self.inventory.pools.get(name) else {
            return Err(no_such(KindName::Pool, name));
        };
        let on_it =
            |volume: &&crate::state::VolumeRecord| volume.spec.pool.as_deref() == Some(name);
        if let Some(volume) = self.inventory.volumes.values().find(on_it) {
            let volume = volume.spec.name.clone();
            return Err(InUse::Volumes(KindName::Pool, name.to_owned(), volume).into());
        }
        let device = record.spec.device().to_owned();
        if let Ok(core) = self.home_of(&device) {
            let pool = name.to_owned();
            let destroyed = self.cores.call(core, move |core| async move {
                let open = core.nodes.pool(&pool);
                match open {
                    Some(open) => open.destroy().await.map(|()| true),
                    None => Ok(false),
                }
            });
            match destroyed {
                Ok(true) => self.note_disposable(&device)?,
                // It could not be opened: whose data there are is not known.
                Ok(false) => {}
                Err(_) if self.is_spent_pool(name) => {}
                Err(error) => return Err(error.into()),
            }
            let pool = name.to_owned();
            self.cores.call(core, move |core| async move {
                core.nodes.remove_pool(&pool);
            });
        }
        self.commit(|state, stack| {
            state.remove(Kind::Pool, name)?;
            stack.inventory.pools.remove(name);
            stack.faults.remove(&Subject::Pool(name.to_owned()));
            Ok(View::Done)
        })
    }

    /// Opens a device on the core with the fewest.
    fn open_device(&mut self, spec: &DeviceSpec, found: Found) -> Result<(), Fault> {
        if spec.partition().is_some() {
            return self.open_partition(spec);
        }
        let load = |core: &usize| self.homes.values().filter(|home| *home == core).count();
        let core = (0..self.cores.count())
            .min_by_key(load)
            .expect("there is at least one core");
        let (name, wanted) = (spec.name.clone(), spec.clone());
        let host = self.service.target_uuid;
        let model = Model::of(spec)?;
        self.cores.call(core, move |state| async move {
            Box::pin(open_on(&state, &wanted, model, found, host)).await
        })?;
        self.edit(|stack| stack.homes.insert(name, core));
        Ok(())
    }

    fn close_device(&mut self, name: &str) {
        if let Some(core) = self.edit(|stack| stack.homes.remove(name)) {
            let name = name.to_owned();
            self.cores.call(core, move |state| async move {
                if let Some(Node::Channels(device)) = state.nodes.remove_device(&name) {
                    device.close().await;
                }
            });
        }
    }

    /// Opens a pool that the store knows. A pool that is not on its device is made anew only where
    /// nothing can be lost: on memory, which forgets everything, or where no volume was ever
    /// acknowledged.
    fn open_pool(&mut self, record: &PoolRecord) -> Result<(), Fault> {
        let device = record.spec.device().to_owned();
        let core = self.home_of(&device)?;
        let name = record.spec.name.clone();
        let never_used = !self
            .inventory
            .volumes
            .values()
            .any(|volume| volume.spec.pool.as_ref() == Some(&name));
        if self.forgets(&device) {
            return self.make_pool(record, true);
        }
        let uuid = record.uuid.into_bytes();
        let opened = self.cores.call(core, move |state| async move {
            let device = state.nodes.device(&device).ok_or(PoolError::NotAPool)?;
            let pool = Pool::open(&state.rt, device).await?;
            if pool.info().uuid != uuid {
                return Ok(Err(Unavailable::OtherPool(name).into()));
            }
            state.nodes.add_pool(&name, pool);
            Ok::<_, PoolError>(Ok(()))
        });
        match opened {
            Ok(outcome) => outcome,
            Err(PoolError::NotAPool) if never_used => self.make_pool(record, false),
            Err(error) => Err(error.into()),
        }
    }

    fn make_pool(&self, record: &PoolRecord, force: bool) -> Result<(), Fault> {
        let device = record.spec.device().to_owned();
        let core = self.home_of(&device)?;
        let (name, uuid) = (record.spec.name.clone(), record.uuid.into_bytes());
        let made = self.cores.call(core, move |state| async move {
            let device = state.nodes.device(&device).ok_or(PoolError::NotAPool)?;
            let pool = Pool::create(&state.rt, device, uuid, force).await?;
            state.nodes.add_pool(&name, pool);
            Ok::<(), PoolError>(())
        });
        made.map_err(Fault::from)
    }
}

impl Stack {
    /// All devices, each after what it stands on.
    fn in_order_of_opening(&self) -> Vec<DeviceSpec> {
        let mut order = Vec::new();
        for spec in self.inventory.devices.values() {
            self.put_in_order(spec, &mut order);
        }
        order
    }

    fn put_in_order(&self, spec: &DeviceSpec, order: &mut Vec<DeviceSpec>) {
        let below = spec.partition().map(|cut| cut.device.as_str());
        let below = below.and_then(|name| self.inventory.devices.get(name));
        // Nothing is cut from a partition, so that ends here.
        if let Some(below) = below.filter(|below| below.partition().is_none()) {
            self.put_in_order(below, order);
        }
        if !order.iter().any(|there| there.name == spec.name) {
            order.push(spec.clone());
        }
    }

    /// Home core of an open device.
    pub(super) fn home_of(&self, device: &str) -> Result<usize, Fault> {
        self.homes.get(device).copied().ok_or_else(|| {
            match self.faults.get(&Subject::Device(device.to_owned())) {
                Some(fault) => {
                    let (device, fault) = (device.to_owned(), Arc::clone(fault));
                    Unavailable::Thing(KindName::Device, device, fault).into()
                }
                None => no_such(KindName::Device, device),
            }
        })
    }

    /// The pool, volume or partition that stands on a device.
    pub(super) fn device_user(&self, device: &str) -> Option<String> {
        let pool = self
            .inventory
            .pools
            .values()
            .find(|pool| pool.spec.devices.iter().any(|name| name == device));
        let volume = self
            .inventory
            .volumes
            .values()
            .find(|volume| volume.spec.device.as_deref() == Some(device));
        pool.map(|pool| format!("pool `{}`", pool.spec.name))
            .or_else(|| volume.map(|volume| format!("volume `{}`", volume.spec.name)))
            .or_else(|| {
                self.partition_of(device)
                    .map(|name| format!("partition `{name}`"))
            })
    }

    /// Whether a device is empty after every start.
    pub(super) fn forgets(&self, device: &str) -> bool {
        let spec = self.inventory.devices.get(device);
        spec.is_some_and(|spec| match &spec.medium {
            Medium::Memory { .. } | Medium::Null { .. } => true,
            Medium::Partition(cut) => self.forgets(&cut.device),
            Medium::Flash(FlashSpec { store, .. })
            | Medium::OpenChannel(ChannelsSpec { store, .. }) => {
                !matches!(store, Some(Store::File(_)))
            }
            Medium::File { .. }
            | Medium::Block { .. }
            | Medium::Zoned { .. }
            | Medium::NvmeTcp(_) => false,
        })
    }
}

/// Whether a file has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It was acknowledged once: an empty file in its place would pass for its data.
    Must,
    /// It is asked for now.
    MayBeMade,
}

/// The model of an emulated device. It may take seconds to make, so it is made on the thread that
/// asks, and then given to the core.
enum Model {
    None,
    Flash(Box<ssd::Device>),
    OpenChannel(Box<channel::Device>),
}

impl Model {
    fn of(spec: &DeviceSpec) -> Result<Self, Fault> {
        Ok(match &spec.medium {
            Medium::Flash(drive) => Self::Flash(Box::new(flash::model(&spec.name, drive)?)),
            Medium::OpenChannel(channels) => {
                Self::OpenChannel(Box::new(partitions::model(&spec.name, channels)?))
            }
            _ => Self::None,
        })
    }
}

/// Opens a device of any kind but a partition on this core.
async fn open_on(
    state: &CoreState,
    spec: &DeviceSpec,
    model: Model,
    found: Found,
    host: Uuid,
) -> Result<(), Fault> {
    let (rt, name, blocks) = (&state.rt, &spec.name, spec.block_size);
    let device: SharedDevice = match (&spec.medium, model) {
        (Medium::Zoned { path, units }, _) => {
            return partitions::run_zoned(state, name, Path::new(path), *units).await;
        }
        (Medium::OpenChannel(channels), Model::OpenChannel(model)) => {
            return Box::pin(partitions::run(state, spec, channels, *model, found)).await;
        }
        (Medium::Flash(drive), Model::Flash(model)) => {
            let file = match &drive.store {
                Some(Store::File(path)) => {
                    Some(open_file(rt, Path::new(path), Some(drive.size), blocks, found).await?)
                }
                _ => None,
            };
            let drive = flash::run(rt, blocks, drive, *model, file)?;
            state.nodes.add_device(name, Node::Drive(drive));
            return Ok(());
        }
        (Medium::Null { size }, _) => Rc::new(NullDevice::new(blocks, size.0)?),
        (Medium::Memory { size }, _) => Rc::new(MemoryDevice::new(blocks, size.0)?),
        (Medium::File { path, size }, _) => {
            Rc::new(open_file(rt, Path::new(path), *size, blocks, found).await?)
        }
        (Medium::Block { path }, _) => {
            Rc::new(FileDevice::open_block(rt, Path::new(path), blocks, false)?)
        }
        (Medium::NvmeTcp(remote), _) => open_remote(rt, remote, blocks, host).await?,
        (Medium::OpenChannel(_) | Medium::Flash(_) | Medium::Partition(_), _) => {
            unreachable!("its model was made, and a partition is cut")
        }
    };
    state.nodes.add_device(name, Node::Blocks(device));
    Ok(())
}

async fn open_file(
    rt: &Rt,
    path: &Path,
    size: Option<Size>,
    block_size: u32,
    found: Found,
) -> Result<FileDevice, Fault> {
    let size = size.map(|size| size.0);
    let options = FileOptions {
        block_size,
        size: size.filter(|_| found == Found::MayBeMade),
        read_only: false,
    };
    let device = FileDevice::open(rt, path, options).await?;
    let info = device.info();
    let (real, wanted) = (info.blocks * u64::from(info.block_size), size.unwrap_or(0));
    if real < wanted {
        return Err(Unavailable::CutShort(path.to_owned(), real, wanted).into());
    }
    Ok(device)
}

/// Connects to another target, as a host that is named by this target's identity.
async fn open_remote(
    rt: &Rt,
    spec: &RemoteSpec,
    block_size: u32,
    host: Uuid,
) -> Result<SharedDevice, Fault> {
    let subnqn =
        Nqn::new(&spec.subnqn).map_err(|error| Invalid::Subnqn(spec.subnqn.clone(), error))?;
    let hostnqn = format!("nqn.2014-08.org.nvmexpress:uuid:{host}");
    let hostnqn = Nqn::new(&hostnqn).map_err(Internal::HostNqn)?;
    let options = HostOptions {
        queues: REMOTE_QUEUES,
        ..HostOptions::new(subnqn, hostnqn, host.into_bytes())
    };
    let (address, nsid) = (spec.address, spec.nsid.unwrap_or(1));
    let device = RemoteDevice::open(rt, address, options, nsid, Persistence::default())
        .await
        .map_err(|error| {
            Unavailable::Remote(Box::new(RemoteFault {
                address,
                nsid,
                subnqn,
                error,
                hostnqn,
            }))
        })?;
    let real = device.info().block_size;
    if real != block_size {
        return Err(Invalid::RemoteBlocks(real).into());
    }
    Ok(Rc::new(device))
}
