//! The inventory at work: keeps the state store, the devices on their cores and the engine's
//! tenants and namespaces the same. Commands that have nothing in common never wait for each other
//! (`turns.rs`, `work.rs`). Every change is in the store before it is acknowledged; what was cut in
//! the middle is finished at the next start.

mod apply;
mod calibrate;
mod cause;
mod counted;
mod devices;
mod fault;
mod flash;
mod handover;
mod identity;
mod moving;
mod partitions;
mod policies;
mod promises;
mod settings;
mod switches;
mod turns;
mod view;
mod volumes;
mod wants;
mod work;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use flashyard_block::{Class, TenantId};
use flashyard_drives::FlashStats;
use flashyard_engine::{
    ConfigError, DeviceHandle, SubsystemNames, Target, TenantSpec as EngineTenant,
};
use uuid::Uuid;

use crate::control::{KindName, Request, TenantChange, View};
use crate::cores::Cores;
use crate::spec::{ClassName, Config, TargetSettings, TenantSpec};
use crate::state::{Inventory, Kind, State, StateError, TenantRecord};

use counted::Run;
pub use counted::{KEEP_EVERY, keep_counting};
pub use fault::Fault;
use fault::{InUse, NotFound};
pub use policies::PolicyPlan;

use settings::{By, Listener};
use turns::Turns;
use work::Work;

/// What may not be available, in the order in which it is listed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A device or partition.
    Device(String),
    /// A pool.
    Pool(String),
    /// What the state store keeps of the SMART logs.
    Counters,
    /// The copy of the state store.
    Copy,
    /// A tenant.
    Tenant(String),
    /// A volume.
    Volume(String),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(name) => write!(f, "device {name}"),
            Self::Pool(name) => write!(f, "pool {name}"),
            Self::Counters => f.write_str("state store: counters of the SMART logs"),
            Self::Copy => f.write_str("state store: its copy"),
            Self::Tenant(name) => write!(f, "tenant {name}"),
            Self::Volume(name) => write!(f, "volume {name}"),
        }
    }
}

/// The running target's inventory, and what of it is open. Commands read a copy.
#[derive(Clone)]
struct Stack {
    inventory: Inventory,
    settings: TargetSettings,
    listeners: Vec<Listener>,
    /// `serve --listen` says where, not what was set.
    listens_instead: bool,
    /// Home core of every device that is open.
    homes: BTreeMap<String, usize>,
    /// Handles of the volumes that are served.
    served: BTreeMap<String, DeviceHandle>,
    /// Why something is not available.
    faults: BTreeMap<Subject, Arc<Fault>>,
}

/// The running target. Any number of threads may ask it. The order of its locks is turns, store,
/// stack (see ARCHITECTURE.md); none but a turn is held while a command waits for a core.
pub struct Service {
    turns: Turns,
    /// Whoever has it may change the stack.
    state: Mutex<State>,
    stack: Mutex<Arc<Stack>>,
    cores: Cores,
    target: Arc<Target>,
    target_uuid: Uuid,
    run: Run,
}

impl Service {
    /// Opens everything in the store. What cannot be opened is reported by [`Service::faults`] and
    /// in every listing, and the rest is served.
    pub fn start(mut state: State, cores: Cores, target: Arc<Target>) -> Result<Self, Fault> {
        let (run, unwritten) = Run::begin(&mut state)?;
        let stack = Stack {
            inventory: state.inventory()?,
            settings: state.settings()?,
            listeners: Vec::new(),
            listens_instead: false,
            homes: BTreeMap::new(),
            served: BTreeMap::new(),
            faults: BTreeMap::new(),
        };
        target.set_controller_limits(stack.settings.limits());
        let service = Self {
            turns: Turns::default(),
            target_uuid: state.target_uuid(),
            state: Mutex::new(state),
            stack: Mutex::new(Arc::new(stack)),
            cores,
            target,
            run,
        };
        service.work()?.open_everything(unwritten)?;
        Ok(service)
    }

    /// What could not be opened, and why.
    pub fn faults(&self) -> Vec<(Subject, Arc<Fault>)> {
        let stack = self.stack();
        let faults = stack.faults.iter();
        faults
            .map(|(what, why)| (what.clone(), Arc::clone(why)))
            .collect()
    }

    /// Answers one request. A request that fails has changed nothing, but for two: an `apply` keeps
    /// the steps before the one that failed, and a deletion that failed half way is finished by the
    /// next try or start.
    pub fn handle(&self, request: Request) -> Result<View, Fault> {
        self.work().and_then(|mut work| {
            let changes = request.changes();
            let outcome = work.dispatch(request);
            // Before the answer: what was acknowledged is in the copy as well.
            if changes {
                work.renew_copy();
            }
            outcome
        })
    }

    /// Carries the plan of the file that the target is started with out. What it promises too much
    /// of is served nevertheless; [`Service::doubtful_guarantees`] tells.
    pub fn apply_at_start(&self, config: Config) -> Result<(), Fault> {
        let mut work = self.work()?;
        let outcome = work.apply_at_start(config);
        work.renew_copy();
        outcome
    }

    /// Tenants whose guarantee is not known to hold, and why.
    pub fn doubtful_guarantees(&self) -> Result<Vec<(String, String)>, Fault> {
        Ok(self.work()?.doubtful_guarantees())
    }

    /// Listens for the first time: at `instead`, if any are given, until a command says something
    /// else; otherwise where it was set. Returns the real addresses.
    pub fn listen(&self, instead: &[SocketAddr]) -> Result<Vec<SocketAddr>, Fault> {
        self.work()?.listen(instead)
    }

    /// What a device that is an emulated drive has done until now.
    pub fn drive_stats(&self, device: &str) -> Option<FlashStats> {
        self.work().ok()?.drive_stats(device)
    }

    /// Forgets the lateness and latency that an emulated drive has counted, to measure anew.
    pub fn clear_drive_timing(&self, device: &str) {
        if let Ok(work) = self.work() {
            work.clear_drive_timing(device);
        }
    }

    /// Ends serving: lets nobody in any more, waits for the commands that run, finishes what is in
    /// flight and closes everything.
    pub fn stop(&self) {
        self.turns.close();
        self.cores.stop();
        if let Err(error) = counted::end_run(&mut self.store(), &self.target, &self.run) {
            eprintln!(
                "flashyard: the counters of the last minute are lost, and this end counts as an unsafe shutdown: {error}"
            );
        }
    }

    fn work(&self) -> Result<Work<'_>, Fault> {
        Work::begin(self)
    }
}

impl Request {
    /// Whether it may change something.
    fn changes(&self) -> bool {
        !matches!(
            self,
            Self::Status | Self::ShowTarget | Self::List(_) | Self::Show(..) | Self::Why { .. }
        )
    }
}

impl Work<'_> {
    fn open_everything(&mut self, unwritten: Option<StateError>) -> Result<(), Fault> {
        self.open_devices();
        self.open_pools();
        for tenant in self.inventory.tenants.clone().into_values() {
            if let Err(error) = self.target.set_tenant(engine_tenant(&tenant)) {
                self.note_fault(Subject::Tenant(tenant.spec.name), error.into());
            }
        }
        self.resume_counters(unwritten)?;
        self.open_volumes();
        self.renew_copy();
        Ok(())
    }

    fn dispatch(&mut self, request: Request) -> Result<View, Fault> {
        match request {
            Request::Status => Ok(self.view_status()),
            Request::ShowTarget => Ok(self.view_target()),
            Request::List(kind) => Ok(self.view_all(kind)),
            Request::Show(kind, name) => self.view_one(kind, &name),
            Request::Why { tenant } => self.why(&tenant),
            Request::Apply { config, plan } => self.apply(config, plan),
            change => {
                let _turn = self.take(|work| Ok(work.wants_of(&change)))?;
                self.change(change)
            }
        }
    }

    /// Does what has its turn.
    fn change(&mut self, request: Request) -> Result<View, Fault> {
        match request {
            Request::SetTarget(change) => self.set_target(change, By::Command),
            Request::CreateDevice(spec) => self.create_device(spec),
            Request::CreatePool { spec, force } => self.create_pool(spec, force),
            Request::CreateTenant(spec) => self.create_tenant(spec),
            Request::CreateVolume(spec) => self.create_volume(spec),
            Request::SetTenant { name, change } => self.set_tenant(&name, change),
            Request::SetDevice { name, policy } => self.set_device(&name, policy),
            Request::Calibrate { device, destroy } => self.calibrate(&device, destroy),
            Request::SetVolume { name, change } => self.set_volume(&name, change),
            Request::RenameVolume { name, new } => self.rename_volume(&name, &new),
            Request::MoveVolume { name, tenant, nsid } => self.move_volume(&name, &tenant, nsid),
            Request::RenameTenant { name, new } => self.rename_tenant(&name, &new),
            Request::Delete(KindName::Device, name) => self.delete_device(&name),
            Request::Delete(KindName::Partition, name) => self.delete_partition(&name),
            Request::GrowPartition { name, more } => self.grow_partition(&name, &more),
            Request::Delete(KindName::Pool, name) => self.delete_pool(&name),
            Request::Delete(KindName::Tenant, name) => self.delete_tenant(&name),
            Request::Delete(KindName::Volume, name) => self.delete_volume(&name),
            reading => self.dispatch(reading),
        }
    }

    fn create_tenant(&mut self, spec: TenantSpec) -> Result<View, Fault> {
        spec.check()?;
        if self.inventory.tenants.contains_key(&spec.name) {
            return Err(InUse::Tenant(spec.name).into());
        }
        self.measure_devices_of(&spec, None)?;
        self.check_promises(&spec, None)?;
        self.check_nqn(&spec)?;
        self.put_tenant(spec, Checked::Now)
    }

    fn set_tenant(&mut self, name: &str, change: TenantChange) -> Result<View, Fault> {
        let mut spec = self.tenant(name)?.spec.clone();
        spec.hosts = change.hosts.unwrap_or(spec.hosts);
        spec.class = change.class.unwrap_or(spec.class);
        spec.weight = change.weight.unwrap_or(spec.weight);
        spec.guarantee = change.guarantee.or(spec.guarantee);
        spec.limit = change.limit.or(spec.limit);
        spec.latency_target = change.latency_target.or(spec.latency_target);
        let spec = spec.without_empty();
        spec.check()?;
        self.measure_devices_of(&spec, None)?;
        self.put_tenant(spec, Checked::Now)
    }

    /// Makes or changes a tenant. With a command what is promised is checked as it is then; a file
    /// that the target is started with is served whatever it promises.
    fn put_tenant(&mut self, spec: TenantSpec, checked: Checked) -> Result<View, Fault> {
        let (target, name) = (Arc::clone(self.target), spec.name.clone());
        self.commit(|state, stack| {
            if checked == Checked::Now {
                stack.check_promises(&spec, None)?;
            }
            let record = state.put_tenant(&spec)?;
            if let Err(refused) = target.set_tenant(engine_tenant(&record)) {
                match stack.inventory.tenants.get(&spec.name) {
                    Some(before) => drop(state.put_tenant(&before.spec)?),
                    None => state.remove(Kind::Tenant, &spec.name)?,
                }
                return Err(refused.into());
            }
            stack.inventory.tenants.insert(spec.name.clone(), record);
            Ok(())
        })?;
        self.tell_share(&name);
        self.view_one(KindName::Tenant, &name)
    }

    fn delete_tenant(&mut self, name: &str) -> Result<View, Fault> {
        self.commit(|state, stack| {
            stack.tenant(name)?;
            let mut volumes = stack.inventory.volumes.values();
            if let Some(volume) = volumes.find(|volume| volume.spec.tenant == name) {
                let volume = volume.spec.name.clone();
                return Err(InUse::Volumes(KindName::Tenant, name.to_owned(), volume).into());
            }
            state.remove(Kind::Tenant, name)?;
            stack.inventory.tenants.remove(name);
            stack.faults.remove(&Subject::Tenant(name.to_owned()));
            Ok(())
        })?;
        match self.target.remove_tenant(name) {
            // One that the engine refused at the start is not there.
            Ok(()) | Err(ConfigError::NoSuchTenant) => Ok(View::Done),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether promises are held against what devices can give before something is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checked {
    /// Now.
    Now,
    /// They are kept as far as they can be.
    Never,
}

impl Stack {
    fn tenant(&self, name: &str) -> Result<&TenantRecord, Fault> {
        let found = self.inventory.tenants.get(name);
        found.ok_or_else(|| no_such(KindName::Tenant, name))
    }
}

fn no_such(kind: KindName, name: &str) -> Fault {
    NotFound::Thing(kind, name.to_owned()).into()
}

fn engine_tenant(record: &TenantRecord) -> EngineTenant {
    EngineTenant {
        id: TenantId(record.id),
        name: record.spec.name.clone(),
        hosts: record.spec.hosts.clone(),
        class: match record.spec.class {
            ClassName::Latency => Class::Latency,
            ClassName::Throughput => Class::Throughput,
            ClassName::Background => Class::Background,
        },
        names: SubsystemNames {
            nqn: record.spec.nqn.clone(),
            serial: record.spec.serial.clone(),
            model: record.spec.model.clone(),
        },
    }
}
