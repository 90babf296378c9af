//! Devices and pools: opening them on their home cores, creating and deleting them.

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use flashyard_block::pool::{Pool, PoolError};
use flashyard_block::{Device, FileDevice, FileOptions, MemoryDevice, NullDevice, SharedDevice};
use flashyard_codec::cipher::Key;
use flashyard_flash::{channel, ssd};
use flashyard_host::{Options as HostOptions, Persistence, RemoteDevice};
use flashyard_nvme::Nqn;
use flashyard_runtime::Rt;
use uuid::Uuid;

use super::arrays::check_mapped;
use super::fault::{InUse, Internal, Invalid, Refused, RemoteFault, Unavailable};
use super::once_free::{AT_START, WHILE_RUNNING, once_free};
use super::pool_keys::new_key;
use super::work::Work;
use super::{
    Checked, Fault, Over, Service, Stack, Subject, calibrate, flash, migration, no_such, partitions,
};
use crate::control::{ArrayHow, KindName, View};
use crate::cores::Cores;
use crate::graph::{self, Identity, NodeId};
use crate::nodes::Node;
use crate::out::note;
use crate::spec::{
    ChannelsSpec, DeviceSpec, FlashSpec, Medium, NamespaceUuid, PoolSpec, RemoteSpec, Size,
    SpecError, Store, VolumeKind,
};
use crate::state::{Kind, PoolRecord};

/// Connections to another target, for each device there.
const REMOTE_QUEUES: u16 = 2;

impl Work<'_> {
    /// Opens a device at start, or clears a partition away whose creation or deletion was cut off.
    pub(super) fn open_or_clear(&mut self, id: NodeId, spec: &DeviceSpec) -> Result<(), Fault> {
        match spec.partition().is_some_and(|cut| cut.unfinished) {
            true => self.clear_away(id, spec),
            false => self.open_kept(id, spec),
        }
    }

    /// Opens a device at start.
    fn open_kept(&mut self, id: NodeId, spec: &DeviceSpec) -> Result<(), Fault> {
        let home = once_free(AT_START, || self.open_device(id, spec, Found::Must))?;
        self.edit(|stack| {
            let open = |device: &mut graph::Device| device.home = Some(home);
            stack.graph.change_device(id, open);
        });
        Ok(())
    }

    pub(super) fn create_device(
        &mut self,
        mut spec: DeviceSpec,
        checked: Checked,
        over: Over,
    ) -> Result<View, Fault> {
        spec.check()?;
        spec.check_new()?;
        let name = spec.name.clone();
        if self.graph.find(Kind::Device, &name).is_some() {
            return Err(InUse::Name(KindName::Device, name).into());
        }
        if let Some(path) = spec.path()
            && let Some(other) = self.graph.known_by(&Identity::Path(path.clone()))
        {
            let other = self.graph.name(other).to_owned();
            return Err(InUse::Path(path.clone(), other).into());
        }
        let below = match &spec.medium {
            Medium::Fault(layer) => Some(self.check_new_layer(&spec, layer)?),
            Medium::Crypt(layer) => Some(self.check_below(&spec, &layer.device)?),
            _ => None,
        };
        calibrate::find_figures(&mut spec, checked)?;
        if spec.array().is_some() {
            self.put_array(spec, ArrayHow::default())?;
            return self.view_one(KindName::Device, &name);
        }
        let id = self.reserve();
        if spec.partition().is_some() {
            return self.create_partition(id, spec);
        }
        let home = match spec.crypt().cloned() {
            Some(layer) => {
                let (home, uuid) = self.create_crypt(id, &name, &layer, over)?;
                spec.change_crypt(|layer| layer.uuid = Some(NamespaceUuid(uuid)));
                home
            }
            None => once_free(WHILE_RUNNING, || {
                self.open_device(id, &spec, Found::MayBeMade)
            })?,
        };
        // What is on a layer is what is on its device.
        spec.disposable =
            self.is_blank_at(home, id) || below.is_some_and(|below| self.is_disposable(below));
        let noted = self.commit(|state, _| {
            state.add_devices(std::slice::from_ref(&spec))?;
            Ok(move |stack: &mut Stack| stack.graph.add_open(id, spec, home))
        });
        if let Err(fault) = noted {
            close_device(self.cores, id, home);
            return Err(fault);
        }
        self.view_one(KindName::Device, &name)
    }

    /// Refuses to delete a partition as if what it stores stayed on it.
    pub(super) fn check_no_partition(&self, name: &str) -> Result<(), Fault> {
        match self.device(name)?.1.spec.partition() {
            Some(_) => Err(Refused::IsPartition(name.to_owned()).into()),
            None => Ok(()),
        }
    }

    /// Deletes a device, which leaves what it stores on it, or a partition, which does not.
    pub(super) fn delete_device(&mut self, name: &str) -> Result<View, Fault> {
        let (id, device) = self.device(name)?;
        if device.spec.partition().is_some() {
            return self.delete_partition(name, None);
        }
        self.check_finished(id)?;
        let home = device.home;
        self.commit(|state, stack| {
            if let Some(user) = stack.user_text(id) {
                return Err(InUse::Below(KindName::Device, name.to_owned(), user).into());
            }
            state.remove(Kind::Device, name)?;
            Ok(move |stack: &mut Stack| stack.forget(id))
        })?;
        if let Some(core) = home {
            close_device(self.cores, id, core);
        }
        Ok(View::Done)
    }

    pub(super) fn create_pool(&mut self, mut spec: PoolSpec, force: bool) -> Result<View, Fault> {
        spec = spec.normal();
        let device = self.check_new_pool(&spec)?;
        if self.check_no_parity(device).is_err() {
            check_mapped(&spec)?;
        }
        if !force {
            self.check_nothing_imported(device)?;
        }
        let name = spec.name.clone();
        let id = self.reserve();
        let record = self.commit(|state, _| {
            let record = state.put_pool(&spec, Uuid::new_v4())?;
            Ok(|_: &mut Stack| record)
        })?;
        if let Err(fault) = self.make_pool(id, device, &record, force) {
            self.commit(|state, _| {
                state.remove(Kind::Pool, &name)?;
                Ok(|_: &mut Stack| ())
            })?;
            return Err(match fault {
                Fault::Refused(Refused::Pool(PoolError::HoldsPool)) => {
                    Refused::HoldsPool(spec.device().to_owned(), name).into()
                }
                fault => fault,
            });
        }
        self.edit(|stack| stack.graph.add(id, graph::Node::Pool(record)));
        self.view_one(KindName::Pool, &name)
    }

    /// Refuses a pool whose name or device is taken; gives the device, which is open.
    pub(super) fn check_new_pool(&self, spec: &PoolSpec) -> Result<NodeId, Fault> {
        spec.check()?;
        if self.graph.find(Kind::Pool, &spec.name).is_some() {
            return Err(InUse::Name(KindName::Pool, spec.name.clone()).into());
        }
        let (device, _) = self.device(spec.device())?;
        if let Some(user) = self.user_text(device) {
            return Err(InUse::Taken(spec.device().to_owned(), user).into());
        }
        self.home_of(device)?;
        self.check_blocks(device)?;
        Ok(device)
    }

    pub(super) fn delete_pool(&mut self, name: &str) -> Result<View, Fault> {
        let (id, _) = self.pool(name)?;
        self.check_unused(id)?;
        self.check_no_copies(name)?;
        if let Some(device) = self.graph.device_under(id)
            && let Ok(core) = self.home_of(device)
        {
            let destroyed = self.cores.call(core, move |core| async move {
                let open = core.nodes.pool(id);
                match open {
                    Some(open) => open.destroy().await.map(|()| true),
                    None => Ok(false),
                }
            });
            match destroyed {
                Ok(true) => self.note_disposable(device)?,
                // It could not be opened: whose data there are is not known.
                Ok(false) => {}
                Err(_) if self.is_spent(device) => {}
                Err(PoolError::InUse(volume)) => {
                    return Err(InUse::NotImported(name.to_owned(), volume).into());
                }
                Err(error) => return Err(error.into()),
            }
            self.cores.call(core, move |core| async move {
                close_pool(core.nodes.remove(id)).await;
            });
        }
        self.forget_deleted(id, &[])?;
        Ok(View::Done)
    }

    /// Forgets a pool that is not on its device any more, and the volumes that have gone with it.
    pub(super) fn forget_deleted(&mut self, id: NodeId, volumes: &[NodeId]) -> Result<(), Fault> {
        let under = self.graph.device_under(id);
        let name = self.graph.name(id).to_owned();
        self.commit(|state, stack| {
            for volume in volumes {
                state.remove(Kind::Volume, stack.graph.name(*volume))?;
            }
            if volumes.is_empty() {
                stack.check_unused(id)?;
            }
            let tenants = stack.without_quotas_of(&name);
            let mut stored = Vec::new();
            state.put_tenants::<Fault>(&tenants, |records| {
                stored = records.to_vec();
                Ok(())
            })?;
            state.remove(Kind::Pool, &name)?;
            Ok(move |stack: &mut Stack| {
                for record in stored {
                    stack.put_tenant(record);
                }
                for volume in volumes {
                    stack.forget(*volume);
                }
                stack.forget(id)
            })
        })?;
        // An array that was made with the pool goes with it.
        if let Some(device) = under.and_then(|id| self.graph.device(id))
            && device.spec.name == name
            && device.spec.array().is_some()
        {
            self.delete_array(&name, true)?;
        }
        Ok(())
    }

    /// Opens a device on the core with the fewest, and tells which that is.
    fn open_device(&mut self, id: NodeId, spec: &DeviceSpec, found: Found) -> Result<usize, Fault> {
        if spec.partition().is_some() {
            return self.open_partition(id, spec);
        }
        if let Some(layer) = spec.fault_layer() {
            return self.open_layer(id, spec, layer);
        }
        if let Some(layer) = spec.crypt() {
            return self.open_crypt(id, &spec.name, layer);
        }
        if spec.array().is_some() {
            return self.open_array(id, spec, false);
        }
        let least = (0..self.cores.count()).min_by_key(|core| self.graph.load(*core));
        let core = self.home_beside(id).or(least);
        let core = core.expect("there is at least one core");
        self.open_at(id, spec, found, core)
    }

    /// Opens a device that is there on a core, or a layer on the core of what it stands before.
    pub(super) fn open_device_on(
        &self,
        id: NodeId,
        spec: &DeviceSpec,
        core: usize,
    ) -> Result<usize, Fault> {
        match &spec.medium {
            Medium::Fault(layer) => self.open_layer(id, spec, layer),
            Medium::Crypt(layer) => self.open_crypt(id, &spec.name, layer),
            _ => once_free(WHILE_RUNNING, || self.open_at(id, spec, Found::Must, core)),
        }
    }

    fn open_at(
        &self,
        id: NodeId,
        spec: &DeviceSpec,
        found: Found,
        core: usize,
    ) -> Result<usize, Fault> {
        let wanted = spec.clone();
        let host = self.service.target_uuid;
        let model = Model::of(spec)?;
        self.cores.call(core, move |state| async move {
            let node = Box::pin(open_on(&state.rt, &wanted, model, found, host)).await?;
            state.nodes.add(id, node);
            Ok::<(), Fault>(())
        })?;
        Ok(core)
    }

    /// Opens a pool that the store knows. A pool that is not on its device is made anew only where
    /// nothing can be lost: on memory, which forgets everything, or where no volume was ever
    /// acknowledged.
    pub(super) fn open_pool(&self, id: NodeId, record: &PoolRecord) -> Result<(), Fault> {
        let (device, _) = self.device(record.spec.device())?;
        let core = self.home_of(device)?;
        if self.forgets(device) {
            return self.make_pool(id, device, record, true);
        }
        let never_used = self.graph.user_of(id).is_none();
        let (name, uuid) = (record.spec.name.clone(), record.uuid.into_bytes());
        let key = self.pool_key(&record.spec, device, Some(uuid))?;
        let encrypted = record.spec.key.is_some();
        let copies = self.known_copies();
        let opened = self.cores.call(core, move |state| async move {
            let device = state.nodes.device(device).ok_or(PoolError::NotAPool)?;
            let pool = open_with(&state.rt, device, key).await?;
            if pool.info().uuid != uuid {
                pool.close().await;
                return Ok(Err(Unavailable::OtherPool(name).into()));
            }
            if encrypted && !pool.info().encrypted {
                pool.close().await;
                return Err(PoolError::NotEncrypted);
            }
            calibrate::clear_scratch(&pool).await?;
            migration::clear_copies(&pool, &copies).await?;
            state.nodes.add(id, Node::Pool(pool));
            Ok::<_, PoolError>(Ok(()))
        });
        match opened {
            Ok(outcome) => outcome,
            Err(PoolError::NotAPool) if never_used => self.make_pool(id, device, record, false),
            Err(error) => Err(error.into()),
        }
    }

    fn make_pool(
        &self,
        id: NodeId,
        device: NodeId,
        record: &PoolRecord,
        force: bool,
    ) -> Result<(), Fault> {
        let core = self.home_of(device)?;
        let uuid = record.uuid.into_bytes();
        let kind = VolumeKind::of_pool(record.spec.kind);
        let key = new_key(&record.spec, uuid)?;
        let made = self.cores.call(core, move |state| async move {
            let device = state.nodes.device(device).ok_or(PoolError::NotAPool)?;
            let pool = match key {
                Some(with) => Pool::create_encrypted(&state.rt, device, with, force).await?,
                None => Pool::create_kind(&state.rt, device, uuid, kind, force).await?,
            };
            state.nodes.add(id, Node::Pool(pool));
            Ok::<(), PoolError>(())
        });
        made.map_err(Fault::from)
    }
}

impl Service {
    /// Closes all devices, each before what it stands on. Partitions that are kept are made
    /// durable, so that the next start has little to read.
    pub(super) fn close_devices(&self) {
        let stack = self.stack();
        for id in stack.graph.in_order().into_iter().rev() {
            let Some(device) = stack.graph.device(id) else {
                continue;
            };
            let (Some(core), name) = (device.home, device.spec.name.clone()) else {
                continue;
            };
            self.cores.call(core, move |state| async move {
                if let Some(array) = state.nodes.array(id) {
                    array.close().await;
                }
                let Some(device) = state.nodes.channels(id).filter(|it| it.is_kept()) else {
                    return;
                };
                if let Err(error) = device.stop().await {
                    note(format_args!(
                        "a partition of device {name} could not be stopped ({error:?}); what was flushed is safe"
                    ));
                }
                device.close().await;
            });
        }
    }
}

/// Opens a pool, with its key if it is encrypted.
pub(super) async fn open_with(
    rt: &Rt,
    device: SharedDevice,
    key: Option<Key>,
) -> Result<Pool, PoolError> {
    match key {
        Some(key) => Pool::unlock(rt, device, key).await,
        None => Pool::open(rt, device).await,
    }
}

/// Ends the work of a pool that was open.
pub(super) async fn close_pool(node: Option<Node>) {
    if let Some(Node::Pool(pool)) = node {
        pool.close().await;
    }
}

/// Closes a device that nothing stands on.
pub(super) fn close_device(cores: &Cores, id: NodeId, core: usize) {
    cores.call(core, move |state| async move {
        match state.nodes.remove(id) {
            Some(Node::Channels(device)) => device.close().await,
            Some(Node::Faulty(layer)) => layer.close(),
            Some(Node::Array(array)) => array.close().await,
            _ => {}
        }
    });
}

impl Stack {
    /// Home core of an open device.
    pub(super) fn home_of(&self, device: NodeId) -> Result<usize, Fault> {
        let home = self.graph.device(device).and_then(|device| device.home);
        home.ok_or_else(|| {
            let name = self.graph.name(device);
            match self.faults.get(&Subject::Node(device)) {
                Some(fault) => {
                    let (device, fault) = (name.to_owned(), Arc::clone(fault));
                    Unavailable::Thing(KindName::Device, device, fault).into()
                }
                None => no_such(KindName::Device, name),
            }
        })
    }

    /// The pool, volume or partition that stands on a device.
    pub(super) fn user_text(&self, device: NodeId) -> Option<String> {
        let user = self.graph.user_of(device)?;
        Some(format!("{} `{}`", user.kind().name(), user.name()))
    }

    /// Whether a device is empty after every start.
    pub(super) fn forgets(&self, device: NodeId) -> bool {
        let device_spec = self.graph.device(device).map(|device| &device.spec);
        device_spec.is_some_and(|spec| match &spec.medium {
            Medium::Memory { .. } | Medium::Null { .. } => true,
            Medium::Partition(_) | Medium::Fault(_) | Medium::Crypt(_) => {
                let parent = self.graph.below(device);
                parent.is_some_and(|parent| self.forgets(parent))
            }
            Medium::Array(array) => {
                let members = array.all().map(|name| self.graph.find(Kind::Device, name));
                let mut members = members.collect::<Vec<_>>().into_iter();
                members.all(|member| member.is_some_and(|member| self.forgets(member)))
            }
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

/// What takes seconds to find or to make, so that the thread that asks does it, and gives it to the
/// core: the model of an emulated device, the address of another target.
enum Model {
    None,
    Flash(Box<ssd::Device>),
    OpenChannel(Box<channel::Device>),
    /// Where another target is; a name server may take seconds.
    Remote(SocketAddr),
}

impl Model {
    fn of(spec: &DeviceSpec) -> Result<Self, Fault> {
        Ok(match &spec.medium {
            Medium::Flash(drive) => Self::Flash(Box::new(flash::model(&spec.name, drive)?)),
            Medium::OpenChannel(channels) => {
                Self::OpenChannel(Box::new(partitions::model(&spec.name, channels)?))
            }
            Medium::NvmeTcp(remote) => {
                let unknown = |error| Unavailable::Unknown(remote.address.clone(), error);
                Self::Remote(remote.address.reachable().map_err(unknown)?)
            }
            _ => Self::None,
        })
    }
}

/// Opens a device of any kind that stands on no other one on this core.
async fn open_on(
    rt: &Rt,
    spec: &DeviceSpec,
    model: Model,
    found: Found,
    host: Uuid,
) -> Result<Node, Fault> {
    let (name, blocks) = (&spec.name, spec.block_size);
    let device: SharedDevice = match (&spec.medium, model) {
        (Medium::Zoned { path, units }, _) => {
            return partitions::run_zoned(rt, name, Path::new(path), *units).await;
        }
        (Medium::OpenChannel(channels), Model::OpenChannel(model)) => {
            return Box::pin(partitions::run(rt, spec, channels, *model, found)).await;
        }
        (Medium::Flash(drive), Model::Flash(model)) => {
            let file = match &drive.store {
                Some(Store::File(path)) => {
                    Some(open_file(rt, Path::new(path), Some(drive.size), blocks, found).await?)
                }
                _ => None,
            };
            let drive = flash::run(rt, blocks, drive, *model, file)?;
            return Ok(Node::Drive(drive));
        }
        (Medium::Null { size }, _) => Rc::new(NullDevice::new(blocks, size.0)?),
        (Medium::Memory { size }, _) => Rc::new(MemoryDevice::new(blocks, size.0)?),
        (Medium::File { path, size }, _) => {
            Rc::new(open_file(rt, Path::new(path), *size, blocks, found).await?)
        }
        (Medium::Block { path }, _) => {
            Rc::new(FileDevice::open_block(rt, Path::new(path), blocks, false)?)
        }
        (Medium::NvmeTcp(remote), Model::Remote(address)) => {
            open_remote(rt, spec, remote, address, host).await?
        }
        (
            Medium::OpenChannel(_)
            | Medium::Flash(_)
            | Medium::NvmeTcp(_)
            | Medium::Partition(_)
            | Medium::Fault(_)
            | Medium::Crypt(_)
            | Medium::Array(_),
            _,
        ) => unreachable!("its model was made; what stands on another device is opened with that"),
    };
    Ok(Node::Blocks(device))
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
    spec: &DeviceSpec,
    remote: &RemoteSpec,
    address: SocketAddr,
    host: Uuid,
) -> Result<SharedDevice, Fault> {
    let wrong = |error| SpecError::Device(spec.name.clone(), error);
    let subnqn = remote.subnqn().map_err(wrong)?;
    let hostnqn = format!("nqn.2014-08.org.nvmexpress:uuid:{host}");
    let hostnqn = Nqn::new(&hostnqn).map_err(Internal::HostNqn)?;
    let options = HostOptions {
        queues: REMOTE_QUEUES,
        ..HostOptions::new(subnqn, hostnqn, host.into_bytes())
    };
    let nsid = remote.nsid.unwrap_or(1);
    let device = RemoteDevice::open(rt, address, options, nsid, Persistence::default())
        .await
        .map_err(|error| {
            Unavailable::Remote(Box::new(RemoteFault {
                address: remote.address.clone(),
                nsid,
                subnqn,
                error,
                hostnqn,
            }))
        })?;
    let real = device.info().block_size;
    if real != spec.block_size {
        return Err(Invalid::RemoteBlocks(real).into());
    }
    Ok(Rc::new(device))
}
