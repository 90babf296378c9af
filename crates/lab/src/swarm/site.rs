//! The target of a life: its machine, pools, volumes and tenants, and how it is started (again).
//! Its devices are in `devices`, what is changed while it runs in `changes`.

mod changes;
mod devices;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use flashyard_block::SharedDevice;
use flashyard_block::pool::Pool;
use flashyard_engine::{
    Class, Core, DeviceHandle, NamespaceSpec, SubsystemNames, Switch, Target, TargetConfig,
    TenantId, TenantSpec,
};
use flashyard_host::raw::Identity;
use flashyard_nvme::Nqn;
use flashyard_runtime::sim::{Disk, Machine, WorldHandle};
use flashyard_runtime::sync::{Notify, oneshot};
use flashyard_tcp::listen;
use flashyard_time::{Duration, Rng, Time};

use self::devices::{open_device, paced, policy};
use super::content::{Content, Order};
use super::plan::{DevicePlan, Fault, Kind, Medium, Plan};

const PREFIX: &str = "nqn.2026-11.dev.flashyard";
const MIB: u64 = 1 << 20;
/// How long after a change of a volume or tenant a host may still see what was before, or in
/// between.
const GRACE: Duration = Duration::from_secs(2);

/// What was found, and how much was looked at.
#[derive(Default)]
pub struct Notes {
    finding: RefCell<Option<String>>,
    pub commands: Cell<u64>,
    pub connects: Cell<u64>,
    pub troubles: Cell<u64>,
}

impl Notes {
    /// Something is wrong. The first counts.
    pub fn find(&self, what: impl Into<String>) {
        self.finding.borrow_mut().get_or_insert(what.into());
    }

    /// The first that was found.
    pub fn finding(&self) -> Option<String> {
        self.finding.borrow().clone()
    }

    /// Whether anything was found.
    pub fn is_over(&self) -> bool {
        self.finding.borrow().is_some()
    }

    pub fn count(counter: &Cell<u64>) {
        counter.set(counter.get() + 1);
    }
}

/// Where a volume is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Creating,
    Ready,
    Deleting,
    Gone,
}

/// A namespace of a tenant.
pub struct Volume {
    pub tenant: usize,
    pub nsid: u32,
    uuid: [u8; 16],
    /// In its pool; none for a whole device.
    name: Option<String>,
    pub device: usize,
    pub block_size: u32,
    pub blocks: Cell<u64>,
    pub content: RefCell<Content>,
    /// Whether it is known what it holds.
    pub known: bool,
    pub phase: Cell<Phase>,
    read_only: Cell<bool>,
    changing: Cell<bool>,
    changed: Cell<Option<Time>>,
    handle: RefCell<Option<DeviceHandle>>,
}

impl Volume {
    /// Whether a command that was given then may have met a change.
    pub fn may_surprise(&self, given: Time) -> bool {
        self.changing.get()
            || self.read_only.get()
            || self.changed.get().is_some_and(|at| given < at + GRACE)
    }
}

/// A device of the running target.
struct Place {
    switch: Rc<Switch>,
    pool: Option<Pool>,
    base: SharedDevice,
    gate: Rc<Gate>,
}

/// Stops devices in memory.
#[derive(Default)]
pub struct Gate {
    shut: Cell<bool>,
    opened: Notify,
}

impl Gate {
    pub fn shut(&self) {
        self.shut.set(true);
    }

    pub fn open(&self) {
        self.shut.set(false);
        self.opened.notify_all();
    }
}

/// The running target.
pub struct Up {
    pub target: Arc<Target>,
    pub cores: Vec<Rc<Core>>,
    places: Vec<Place>,
}

/// A tenant as the operator sees it.
#[derive(Default)]
struct Tenant {
    /// Numbers of hosts that may not connect for the moment.
    excluded: RefCell<Vec<u32>>,
    changing: Cell<bool>,
    changed: Cell<Option<Time>>,
}

/// See the module.
pub struct Site {
    pub plan: Plan,
    pub handle: WorldHandle,
    pub server: Machine,
    pub hosts: Vec<Machine>,
    pub notes: Notes,
    /// Hosts give no more commands.
    pub stopping: Cell<bool>,
    order: Order,
    up: RefCell<Option<Rc<Up>>>,
    volumes: RefCell<Vec<Rc<Volume>>>,
    disks: Vec<Option<Disk>>,
    /// By device: something failed there on purpose.
    pub failed: Vec<Cell<bool>>,
    tenants: Vec<Tenant>,
    next_nsid: Cell<u32>,
    /// The target has been started before.
    was_up: Cell<bool>,
}

impl Site {
    pub fn new(plan: Plan, handle: WorldHandle, server: Machine, hosts: Vec<Machine>) -> Self {
        let disks = plan.devices.iter().enumerate();
        let disks = disks.map(|(index, device)| match device.medium {
            Medium::Block => Some(server.add_disk(path(index), device.bytes)),
            _ => None,
        });
        let (disks, failed) = (
            disks.collect(),
            plan.devices.iter().map(|_| Cell::default()),
        );
        let tenants = (0..plan.tenants).map(|_| Tenant::default()).collect();
        Self {
            handle,
            server,
            hosts,
            notes: Notes::default(),
            stopping: Cell::new(false),
            order: Order::default(),
            up: RefCell::default(),
            volumes: RefCell::default(),
            disks,
            failed: failed.collect(),
            tenants,
            next_nsid: Cell::new(1),
            was_up: Cell::new(false),
            plan,
        }
    }

    /// The running target, if it runs.
    pub fn up(&self) -> Option<Rc<Up>> {
        self.up.borrow().clone()
    }

    pub fn addr(&self) -> SocketAddr {
        SocketAddr::new(self.server.ip(), 4420)
    }

    pub fn now(&self) -> Time {
        self.handle.now()
    }

    /// Whether hosts are to work on.
    pub fn goes_on(&self) -> bool {
        !self.stopping.get() && !self.notes.is_over()
    }

    pub fn subnqn(tenant: usize) -> Nqn {
        Nqn::new(&format!("{PREFIX}:{}", name(tenant))).expect("a good name")
    }

    /// A number for a host of `tenant` that comes when all others have gone.
    pub fn last_host(tenant: usize) -> u32 {
        1_000_000 + tenant as u32
    }

    /// A volume of `tenant` that can be used, by chance.
    pub fn pick(&self, tenant: usize, rng: &mut Rng) -> Option<Rc<Volume>> {
        let volumes = self.volumes.borrow();
        let ready = volumes
            .iter()
            .filter(|volume| volume.tenant == tenant && volume.phase.get() == Phase::Ready);
        let ready: Vec<_> = ready.collect();
        rng.pick(&ready).map(|volume| Rc::clone(volume))
    }

    pub fn volumes(&self) -> Vec<Rc<Volume>> {
        self.volumes.borrow().clone()
    }

    /// Whether a host of `tenant` that connected, or tried to, at that time may have met a change.
    pub fn may_be_refused(&self, tenant: usize, since: Time) -> bool {
        let tenant = &self.tenants[tenant];
        tenant.changing.get() || tenant.changed.get().is_some_and(|at| since < at + GRACE)
    }

    /// The writes of a host will do nothing more.
    pub fn settle(&self, host: u32) {
        for volume in self.volumes.borrow().iter() {
            volume.content.borrow_mut().settle(host);
        }
    }

    /// Whether the target knows a controller of this host.
    pub fn knows(&self, host: &Identity) -> bool {
        let name = host.hostnqn.to_string();
        self.up().is_some_and(|up| {
            let snapshot = up.target.snapshot();
            snapshot
                .controllers
                .iter()
                .any(|controller| controller.hostnqn == name)
        })
    }

    /// Runs `work` on a core of the target's machine, as the target's own control does; none if it
    /// ends before.
    pub async fn on_server<T: 'static>(
        &self,
        core: usize,
        work: impl Future<Output = T> + 'static,
    ) -> Option<T> {
        if !self.server.is_up() {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        let run = async move { drop(sender.send(work.await)) };
        self.server.rt(core).spawn(run).detach();
        receiver.await
    }

    /// Starts the target, for the first time or again.
    pub async fn start(&self) {
        let target = Target::new(TargetConfig {
            nqn_prefix: PREFIX.to_owned(),
            target_uuid: [7; 16],
            limits: self.plan.limits.clone(),
            cores: self.plan.cores,
        });
        let cores: Vec<_> = (0..self.plan.cores)
            .map(|index| Core::start(self.server.rt(index), target.clone(), index))
            .collect();
        let mut places = Vec::new();
        for index in 0..self.plan.devices.len() {
            let Some(place) = self.open(index, &cores).await else {
                return;
            };
            places.push(place);
        }
        let up = Rc::new(Up {
            target,
            cores,
            places,
        });
        for tenant in 0..self.plan.tenants {
            self.tell_tenant(&up, tenant);
        }
        self.serve_again(&up).await;
        listen(&up.cores[0], self.addr()).expect("the port is free");
        up.target.set_listeners(vec![self.addr()]);
        *self.up.borrow_mut() = Some(up);
        self.was_up.set(true);
    }

    /// The target has ended: killed, or without power.
    pub fn on_end(&self, power_cut: bool) {
        self.up.borrow_mut().take();
        for volume in self.volumes.borrow().iter() {
            let mut content = volume.content.borrow_mut();
            content.stop();
            if power_cut {
                content.power_cut();
            }
            volume.handle.borrow_mut().take();
            if volume.changing.replace(false) || volume.read_only.replace(false) {
                volume.changed.set(Some(self.now()));
            }
        }
        for tenant in &self.tenants {
            tenant.excluded.borrow_mut().clear();
            if tenant.changing.replace(false) {
                tenant.changed.set(Some(self.now()));
            }
        }
    }

    async fn open(&self, index: usize, cores: &[Rc<Core>]) -> Option<Place> {
        let plan = &self.plan.devices[index];
        let (rt, seed) = (self.server.rt(plan.core), self.plan.seed);
        let opening = open_device(rt.clone(), plan.clone(), index, seed);
        let opened = self.on_server(plan.core, opening).await?;
        let gate = Rc::new(Gate::default());
        let base = match plan.medium {
            Medium::Memory | Medium::Null if self.plan.has(Fault::Disk) => paced(opened, &gate),
            _ => opened,
        };
        let switch = cores[plan.core].add_switch(policy(plan.policy));
        let pool = if plan.pool {
            let device = base.clone();
            let again = self.was_up.get() && plan.is_persistent();
            let pool = self.on_server(plan.core, async move {
                match again {
                    true => Pool::open(&rt, device).await,
                    false => Pool::create(&rt, device, [9; 16], false).await,
                }
            });
            match pool.await? {
                Ok(pool) => Some(pool),
                Err(error) => {
                    self.notes
                        .find(format!("the pool on device {index} does not open: {error}"));
                    return None;
                }
            }
        } else {
            None
        };
        Some(Place {
            switch,
            pool,
            base,
            gate,
        })
    }

    /// The first volumes: some for each tenant where there are pools, and each whole device for
    /// one.
    pub async fn furnish(&self, rng: &mut Rng) {
        let Some(up) = self.up() else { return };
        for (index, plan) in self.plan.devices.iter().enumerate() {
            if plan.pool {
                for tenant in 0..self.plan.tenants {
                    self.create_volume(tenant, index, 1 + rng.below(2 * MIB))
                        .await;
                }
            } else {
                let tenant = rng.below(self.plan.tenants as u64) as usize;
                let blocks = up.places[index].base.info().blocks;
                let volume = self.new_volume(tenant, index, None, blocks);
                self.volumes.borrow_mut().push(volume.clone());
                self.attach(&up, &volume, up.places[index].base.clone());
                volume.phase.set(Phase::Ready);
            }
        }
    }

    fn new_volume(
        &self,
        tenant: usize,
        device: usize,
        name: Option<String>,
        blocks: u64,
    ) -> Rc<Volume> {
        let nsid = self.next_nsid.get();
        self.next_nsid.set(nsid + 1);
        let plan = &self.plan.devices[device];
        let mut uuid = [3; 16];
        uuid[..4].copy_from_slice(&nsid.to_le_bytes());
        let hostile = self
            .plan
            .hosts
            .iter()
            .any(|host| host.kind == Kind::Hostile && host.tenant == tenant);
        Rc::new(Volume {
            tenant,
            nsid,
            uuid,
            name,
            device,
            block_size: plan.block_size,
            blocks: Cell::new(blocks),
            content: RefCell::new(Content::new(
                tenant,
                plan.block_size,
                plan.is_persistent(),
                &self.order,
            )),
            known: !hostile && plan.medium != Medium::Null,
            phase: Cell::new(Phase::Creating),
            read_only: Cell::new(false),
            changing: Cell::new(false),
            changed: Cell::new(None),
            handle: RefCell::default(),
        })
    }

    /// The simulated disk of a device, if it has one.
    pub fn disk(&self, device: usize) -> Option<Disk> {
        match self.plan.devices[device].medium {
            Medium::File => self.server.disk(path(device)),
            _ => self.disks[device].clone(),
        }
    }

    /// What stops a device in memory.
    pub fn gate(&self, device: usize) -> Option<Rc<Gate>> {
        Some(self.up()?.places[device].gate.clone())
    }

    fn pool(&self, device: usize) -> Option<Pool> {
        self.up()?.places.get(device)?.pool.clone()
    }

    fn settle_change(&self, volume: &Volume) {
        volume.changing.set(false);
        volume.changed.set(Some(self.now()));
    }

    fn drop_gone(&self) {
        let mut volumes = self.volumes.borrow_mut();
        volumes.retain(|volume| volume.phase.get() != Phase::Gone);
    }

    fn attach(&self, up: &Up, volume: &Volume, device: SharedDevice) {
        let plan = &self.plan.devices[volume.device];
        let handle = up.cores[plan.core].add_device(device, &up.places[volume.device].switch);
        volume.handle.replace(Some(handle.clone()));
        self.tell_namespace(up, volume, handle);
    }

    fn tell_namespace(&self, up: &Up, volume: &Volume, device: DeviceHandle) {
        let spec = NamespaceSpec {
            nsid: volume.nsid,
            uuid: volume.uuid,
            nguid: volume.uuid,
            eui64: None,
            device,
            read_only: volume.read_only.get(),
        };
        if let Err(error) = up.target.attach(&name(volume.tenant), spec)
            && !self.tenants[volume.tenant].changing.get()
        {
            self.notes.find(format!(
                "volume {} cannot be attached: {error}",
                volume.nsid
            ));
        }
    }

    fn tell_tenant(&self, up: &Up, tenant: usize) {
        let hosts = self.plan.hosts.iter().zip(0..);
        let theirs = hosts.filter_map(|(host, number)| (host.tenant == tenant).then_some(number));
        let excluded = self.tenants[tenant].excluded.borrow();
        let allowed = theirs.chain([Self::last_host(tenant)]);
        let allowed = allowed.filter(|number| !excluded.contains(number));
        let spec = TenantSpec {
            id: TenantId(tenant as u32 + 1),
            name: name(tenant),
            hosts: allowed
                .map(|number| Identity::number(number).hostnqn.to_string())
                .collect(),
            class: [Class::Throughput, Class::Latency, Class::Background][tenant % 3],
            names: SubsystemNames::default(),
        };
        if let Err(error) = up.target.set_tenant(spec) {
            self.notes
                .find(format!("tenant {tenant} cannot be set: {error}"));
        }
    }

    /// Serves the volumes that there were before the target ended, as far as they have to be there.
    async fn serve_again(&self, up: &Up) {
        for volume in self.volumes() {
            let (plan, place) = (&self.plan.devices[volume.device], &up.places[volume.device]);
            let found = match (&volume.name, &place.pool) {
                (Some(name), Some(pool)) => pool.volume(name),
                _ => Some(place.base.clone()),
            };
            match (volume.phase.get(), found) {
                (Phase::Ready | Phase::Creating, Some(device)) => {
                    // A change that was cut is there or not.
                    volume.blocks.set(device.info().blocks);
                    self.attach(up, &volume, device);
                    volume.phase.set(Phase::Ready);
                }
                (Phase::Ready, None) if plan.is_persistent() => {
                    self.notes
                        .find(format!("volume {} is gone after a restart", volume.nsid));
                }
                (Phase::Ready, None) => self.make_again(up, &volume).await,
                (Phase::Creating, None) | (Phase::Gone, _) => volume.phase.set(Phase::Gone),
                (Phase::Deleting, found) => {
                    if let (Some(_), Some(pool), Some(name)) =
                        (found, place.pool.clone(), volume.name.clone())
                    {
                        let deleted = async move { pool.delete(&name).await };
                        self.on_server(plan.core, deleted).await;
                    }
                    volume.phase.set(Phase::Gone);
                }
            }
        }
        self.drop_gone();
    }

    /// A volume on a medium that forgets is made again, empty.
    async fn make_again(&self, up: &Up, volume: &Volume) {
        let plan = &self.plan.devices[volume.device];
        let (Some(pool), Some(name)) = (up.places[volume.device].pool.clone(), volume.name.clone())
        else {
            return;
        };
        let (uuid, bytes) = (
            volume.uuid,
            volume.blocks.get() * u64::from(plan.block_size),
        );
        let made = async move { pool.create_volume(&name, uuid, bytes).await };
        match self.on_server(plan.core, made).await {
            Some(Ok(device)) => self.attach(up, volume, device),
            _ => volume.phase.set(Phase::Gone),
        }
    }

    fn is_still(&self, up: &Rc<Up>) -> bool {
        self.up().is_some_and(|now| Rc::ptr_eq(&now, up))
    }
}

impl DevicePlan {
    fn is_persistent(&self) -> bool {
        matches!(self.medium, Medium::File | Medium::Block)
    }
}

fn name(tenant: usize) -> String {
    format!("tenant{tenant}")
}

fn path(device: usize) -> PathBuf {
    format!("/disk{device}").into()
}
