//! Devices and pools: opening them on their home cores, creating and deleting them.

use std::path::Path;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use flashyard_block::pool::{Pool, PoolError};
use flashyard_block::{
    Device, FileDevice, FileOptions, MemoryDevice, NullDevice, OpenError, SharedDevice,
};
use flashyard_drives::FlashDevice;
use flashyard_flash::ssd;
use flashyard_host::{Options as HostOptions, Persistence, RemoteDevice};
use flashyard_nvme::Nqn;
use flashyard_runtime::Rt;
use serde_json::Value;
use uuid::Uuid;

use super::{Fault, Service, calibrate, flash, partitions};
use crate::control::KindName;
use crate::spec::{DeviceKind, DeviceSpec, PoolSpec, StoreName};
use crate::state::{Kind, PoolRecord};

/// What is said of a file or device that another process has locked.
const IN_USE: &str = "is in use by another process";
/// How long one is waited for at start, and how often it is tried.
const IN_USE_LONGEST: Duration = Duration::from_secs(3);
const IN_USE_PAUSE: Duration = Duration::from_millis(20);
/// Connections to another target, for each device there.
const REMOTE_QUEUES: u16 = 2;

impl Service {
    pub(super) fn open_devices(&mut self) {
        let mut specs: Vec<DeviceSpec> = self.inventory.devices.values().cloned().collect();
        // Partitions after what they are cut from.
        specs.sort_by_key(|spec| spec.kind == DeviceKind::Partition);
        for spec in specs {
            let what = format!("device {}", spec.name);
            let unfinished = spec.partition.as_ref().is_some_and(|cut| cut.unfinished);
            let outcome = match unfinished {
                true => self.clear_away(&spec),
                false => self.open_kept(&spec),
            };
            if let Err(fault) = outcome {
                self.faults.insert(what, fault);
            }
        }
    }

    /// Opens a device at start. One that is in use is waited for a little: the files of a target
    /// that was killed are its own until the kernel has ended what it had asked for.
    fn open_kept(&mut self, spec: &DeviceSpec) -> Result<(), Fault> {
        let until = Instant::now() + IN_USE_LONGEST;
        loop {
            match self.open_device(spec, Found::Must) {
                Err(fault) if fault.contains(IN_USE) && Instant::now() < until => {
                    thread::sleep(IN_USE_PAUSE);
                }
                outcome => return outcome,
            }
        }
    }

    pub(super) fn open_pools(&mut self) {
        for record in self.inventory.pools.clone().into_values() {
            let what = format!("pool {}", record.spec.name);
            if let Err(fault) = self.open_pool(&record) {
                self.faults.insert(what, fault);
            }
        }
    }

    pub(super) fn create_device(&mut self, mut spec: DeviceSpec) -> Result<Value, Fault> {
        spec.check()?;
        let name = spec.name.clone();
        if self.inventory.devices.contains_key(&name) {
            return Err(format!("there is a device `{name}` already"));
        }
        if let Some(path) = &spec.path
            && let Some(other) = self
                .inventory
                .devices
                .values()
                .find(|other| other.path.as_ref() == Some(path))
        {
            return Err(format!("{path} is device `{}` already", other.name));
        }
        calibrate::tell_if_needed(&mut spec)?;
        if spec.kind == DeviceKind::Partition {
            return self.create_partition(spec);
        }
        self.open_device(&spec, Found::MayBeMade)?;
        spec.disposable = self.is_blank(&name);
        if let Err(error) = self.state.put_device(&spec) {
            self.close_device(&name);
            return Err(error.to_string());
        }
        self.inventory.devices.insert(name.clone(), spec);
        self.view_one(KindName::Device, &name)
    }

    pub(super) fn delete_device(&mut self, name: &str) -> Result<Value, Fault> {
        if !self.inventory.devices.contains_key(name) {
            return Err(format!(
                "there is no device `{name}`: `flashyard device list` shows all"
            ));
        }
        if self.inventory.devices[name].kind == DeviceKind::Partition {
            return self.delete_partition(name);
        }
        if let Some(user) = self.device_user(name) {
            return Err(format!(
                "device `{name}` is used by {user}: delete that first"
            ));
        }
        self.state
            .remove(Kind::Device, name)
            .map_err(|error| error.to_string())?;
        self.inventory.devices.remove(name);
        self.faults.remove(&format!("device {name}"));
        self.close_device(name);
        Ok(Value::Null)
    }

    pub(super) fn create_pool(&mut self, spec: PoolSpec, force: bool) -> Result<Value, Fault> {
        spec.check()?;
        let (name, device) = (spec.name.clone(), spec.devices[0].clone());
        if self.inventory.pools.contains_key(&name) {
            return Err(format!("there is a pool `{name}` already"));
        }
        if let Some(user) = self.device_user(&device) {
            return Err(format!("device `{device}` is used by {user}"));
        }
        self.home_of(&device)?;
        self.check_blocks(&device)?;
        let record = self
            .state
            .put_pool(&spec)
            .map_err(|error| error.to_string())?;
        if let Err(fault) = self.make_pool(&record, force) {
            self.state
                .remove(Kind::Pool, &name)
                .map_err(|error| error.to_string())?;
            return Err(fault);
        }
        self.inventory.pools.insert(name.clone(), record);
        self.view_one(KindName::Pool, &name)
    }

    pub(super) fn delete_pool(&mut self, name: &str) -> Result<Value, Fault> {
        let Some(record) = self.inventory.pools.get(name) else {
            return Err(format!(
                "there is no pool `{name}`: `flashyard pool list` shows all"
            ));
        };
        let on_it =
            |volume: &&crate::state::VolumeRecord| volume.spec.pool.as_deref() == Some(name);
        if let Some(volume) = self.inventory.volumes.values().find(on_it) {
            return Err(format!(
                "pool `{name}` has volume `{}`: delete its volumes first",
                volume.spec.name
            ));
        }
        let device = record.spec.devices[0].clone();
        if let Ok(core) = self.home_of(&device) {
            let pool = name.to_owned();
            let destroyed = self.cores.call(core, move |core| async move {
                let open = core.pools.borrow().get(&pool).cloned();
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
                Err(error) => return Err(error.to_string()),
            }
            let pool = name.to_owned();
            self.cores.call(core, move |core| async move {
                core.pools.borrow_mut().remove(&pool);
            });
        }
        self.state
            .remove(Kind::Pool, name)
            .map_err(|error| error.to_string())?;
        self.inventory.pools.remove(name);
        self.faults.remove(&format!("pool {name}"));
        Ok(Value::Null)
    }

    /// Home core of an open device.
    pub(super) fn home_of(&self, device: &str) -> Result<usize, Fault> {
        self.homes.get(device).copied().ok_or_else(|| {
            match self.faults.get(&format!("device {device}")) {
                Some(fault) => format!("device `{device}` is not available: {fault}"),
                None => format!("there is no device `{device}`: `flashyard device list` shows all"),
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

    /// Opens a device on the core with the fewest.
    fn open_device(&mut self, spec: &DeviceSpec, found: Found) -> Result<(), Fault> {
        if spec.kind == DeviceKind::Partition {
            return self.open_partition(spec);
        }
        let load = |core: &usize| self.homes.values().filter(|home| *home == core).count();
        let core = (0..self.cores.count())
            .min_by_key(load)
            .expect("there is at least one core");
        let (name, wanted) = (spec.name.clone(), spec.clone());
        let host = self.state.target_uuid();
        let model = match spec.kind {
            DeviceKind::Flash => Some(flash::model(spec)?),
            _ => None,
        };
        let open_channel = match spec.kind {
            DeviceKind::OpenChannel => Some(partitions::model(spec)?),
            _ => None,
        };
        self.cores.call(core, move |state| async move {
            if wanted.kind == DeviceKind::Zoned {
                return partitions::run_zoned(&state, &wanted).await;
            }
            if let Some(model) = open_channel {
                return partitions::run(&state, &wanted, model, found).await;
            }
            let device = match model {
                Some(model) => {
                    let drive = open_flash(&state.rt, &wanted, model, found).await?;
                    let mut drives = state.drives.borrow_mut();
                    drives.insert(wanted.name.clone(), Rc::clone(&drive));
                    drive
                }
                None => open(&state.rt, &wanted, found, host).await?,
            };
            state.devices.borrow_mut().insert(wanted.name, device);
            Ok::<(), Fault>(())
        })?;
        self.homes.insert(name, core);
        Ok(())
    }

    fn close_device(&mut self, name: &str) {
        if let Some(core) = self.homes.remove(name) {
            let name = name.to_owned();
            self.cores.call(core, move |state| async move {
                state.devices.borrow_mut().remove(&name);
                state.drives.borrow_mut().remove(&name);
                state.switches.borrow_mut().remove(&name);
                let open_channel = state.open_channels.borrow_mut().remove(&name);
                if let Some(open_channel) = open_channel {
                    open_channel.close().await;
                }
            });
        }
    }

    /// Opens a pool that the store knows. A pool that is not on its device is made anew only where
    /// nothing can be lost: on memory, which forgets everything, or where no volume was ever
    /// acknowledged.
    fn open_pool(&mut self, record: &PoolRecord) -> Result<(), Fault> {
        let device = record.spec.devices[0].clone();
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
            let device = state
                .devices
                .borrow()
                .get(&device)
                .cloned()
                .expect("its home is this core");
            let pool = Pool::open(&state.rt, device).await?;
            if pool.info().uuid != uuid {
                return Ok(Err(format!("device `{name}` holds another pool now")));
            }
            state.pools.borrow_mut().insert(name, pool);
            Ok::<_, PoolError>(Ok(()))
        });
        match opened {
            Ok(outcome) => outcome,
            Err(PoolError::NotAPool) if never_used => self.make_pool(record, false),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Whether a device is empty after every start.
    pub(super) fn forgets(&self, device: &str) -> bool {
        let spec = self.inventory.devices.get(device);
        spec.is_some_and(|spec| match spec.kind {
            DeviceKind::Memory | DeviceKind::Null => true,
            DeviceKind::Partition => {
                let cut = spec.partition.as_ref();
                cut.is_none_or(|cut| self.forgets(&cut.device))
            }
            DeviceKind::Flash | DeviceKind::OpenChannel => spec.store != Some(StoreName::File),
            DeviceKind::File | DeviceKind::Block | DeviceKind::Zoned | DeviceKind::NvmeTcp => false,
        })
    }

    fn make_pool(&self, record: &PoolRecord, force: bool) -> Result<(), Fault> {
        let device = record.spec.devices[0].clone();
        let core = self.home_of(&device)?;
        let (name, uuid) = (record.spec.name.clone(), record.uuid.into_bytes());
        let made = self.cores.call(core, move |state| async move {
            let device = state
                .devices
                .borrow()
                .get(&device)
                .cloned()
                .expect("its home is this core");
            let pool = Pool::create(&state.rt, device, uuid, force).await?;
            state.pools.borrow_mut().insert(name, pool);
            Ok::<(), PoolError>(())
        });
        made.map_err(|error| error.to_string())
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

/// Opens a device of any kind but an emulated drive.
async fn open(rt: &Rt, spec: &DeviceSpec, found: Found, host: Uuid) -> Result<SharedDevice, Fault> {
    let size = spec.size.map(|size| size.0);
    let device: Result<SharedDevice, OpenError> = match spec.kind {
        DeviceKind::Null => NullDevice::new(spec.block_size, size.unwrap_or_default())
            .map(|device| Rc::new(device) as _),
        DeviceKind::Memory => MemoryDevice::new(spec.block_size, size.unwrap_or_default())
            .map(|device| Rc::new(device) as _),
        DeviceKind::File => return Ok(Rc::new(open_file(rt, spec, found).await?)),
        DeviceKind::Flash | DeviceKind::OpenChannel | DeviceKind::Zoned | DeviceKind::Partition => {
            unreachable!("it is opened in its own way")
        }
        DeviceKind::Block => FileDevice::open_block(rt, path_of(spec), spec.block_size, false)
            .map(|device| Rc::new(device) as _),
        DeviceKind::NvmeTcp => return open_remote(rt, spec, host).await,
    };
    device.map_err(|error| error.to_string())
}

async fn open_flash(
    rt: &Rt,
    spec: &DeviceSpec,
    model: ssd::Device,
    found: Found,
) -> Result<Rc<FlashDevice>, Fault> {
    let file = match spec.store {
        Some(StoreName::File) => Some(open_file(rt, spec, found).await?),
        _ => None,
    };
    flash::run(rt, spec, model, file)
}

async fn open_file(rt: &Rt, spec: &DeviceSpec, found: Found) -> Result<FileDevice, Fault> {
    let wanted = spec.size.map_or(0, |size| size.0);
    let size = spec
        .size
        .map(|size| size.0)
        .filter(|_| found == Found::MayBeMade);
    let options = FileOptions {
        block_size: spec.block_size,
        size,
        read_only: false,
    };
    let device = FileDevice::open(rt, path_of(spec), options)
        .await
        .map_err(|error| error.to_string())?;
    let info = device.info();
    let real = info.blocks * u64::from(info.block_size);
    if real < wanted {
        let (real, wanted) = (crate::units::size(real), crate::units::size(wanted));
        return Err(format!(
            "{} has {real} and should have {wanted}: its end is lost, restore it",
            path_of(spec).display()
        ));
    }
    Ok(device)
}

/// Connects to another target, as a host that is named by this target's identity.
async fn open_remote(rt: &Rt, spec: &DeviceSpec, host: Uuid) -> Result<SharedDevice, Fault> {
    let (Some(address), Some(subnqn)) = (spec.address, &spec.subnqn) else {
        return Err("an nvme-tcp device needs `address` and `subnqn`".to_owned());
    };
    let subnqn = Nqn::new(subnqn).map_err(|error| format!("subnqn {subnqn}: {error}"))?;
    let hostnqn = format!("nqn.2014-08.org.nvmexpress:uuid:{host}");
    let hostnqn = Nqn::new(&hostnqn).map_err(|error| error.to_string())?;
    let options = HostOptions {
        queues: REMOTE_QUEUES,
        ..HostOptions::new(subnqn, hostnqn, host.into_bytes())
    };
    let nsid = spec.nsid.unwrap_or(1);
    let device = RemoteDevice::open(rt, address, options, nsid, Persistence::default())
        .await
        .map_err(|error| {
            format!("{address}, namespace {nsid} of {subnqn}: {error}; allow host {hostnqn} there, and start it first")
        })?;
    let block_size = device.info().block_size;
    if block_size != spec.block_size {
        return Err(format!(
            "the remote namespace has blocks of {block_size} bytes: set block_size to that"
        ));
    }
    Ok(Rc::new(device))
}

pub(super) fn path_of(spec: &DeviceSpec) -> &Path {
    Path::new(spec.path.as_deref().unwrap_or_default())
}
