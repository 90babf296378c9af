//! The inventory at work: keeps the state store, the devices on their cores and the engine's
//! tenants and namespaces the same, one change at a time. Every change is in the store before it is
//! acknowledged; what was cut in the middle is finished at the next start.

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
mod view;
mod volumes;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use flashyard_block::{Class, TenantId};
use flashyard_engine::{
    ConfigError, DeviceHandle, SubsystemNames, Target, TenantSpec as EngineTenant,
};
use serde_json::Value;

use crate::control::{Answer, KindName, Request, TenantChange};
use crate::cores::Cores;
use crate::spec::{ClassName, TargetSettings, TenantSpec};
use crate::state::{Inventory, Kind, State, TenantRecord};

use counted::Run;
pub use counted::{KEEP_EVERY, keep_counting};
pub use fault::Fault;
use fault::{InUse, NotFound, Unavailable};
pub use policies::PolicyPlan;

use settings::{By, Listener};

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

/// The running target's inventory.
pub struct Service {
    state: State,
    inventory: Inventory,
    cores: Cores,
    target: Arc<Target>,
    settings: TargetSettings,
    listeners: Vec<Listener>,
    /// `serve --listen` says where, not what was set.
    listens_instead: bool,
    /// Home core of every device that is open.
    homes: BTreeMap<String, usize>,
    /// Handles of the volumes that are served.
    served: BTreeMap<String, DeviceHandle>,
    /// Why a device, pool or volume (`device ssd0`) is not available.
    faults: BTreeMap<Subject, Arc<Fault>>,
    run: Run,
}

impl Service {
    /// Opens everything in the store. What cannot be opened is reported by [`Service::faults`] and
    /// in every listing, and the rest is served.
    pub fn start(mut state: State, cores: Cores, target: Arc<Target>) -> Result<Self, Fault> {
        let inventory = state.inventory()?;
        let (run, unwritten) = Run::begin(&mut state)?;
        let settings = state.settings()?;
        target.set_controller_limits(settings.limits());
        let mut service = Self {
            state,
            inventory,
            settings,
            listens_instead: false,
            cores,
            target,
            listeners: Vec::new(),
            homes: BTreeMap::new(),
            served: BTreeMap::new(),
            faults: BTreeMap::new(),
            run,
        };
        service.open_devices();
        service.open_pools();
        for tenant in service.inventory.tenants.values() {
            if let Err(error) = service.target.set_tenant(engine_tenant(tenant)) {
                let subject = Subject::Tenant(tenant.spec.name.clone());
                service.faults.insert(subject, Arc::new(error.into()));
            }
        }
        service.resume_counters(unwritten)?;
        service.open_volumes();
        service.renew_copy();
        Ok(service)
    }

    /// What could not be opened, and why.
    pub fn faults(&self) -> impl Iterator<Item = (&Subject, &Fault)> {
        self.faults.iter().map(|(what, why)| (what, &**why))
    }

    /// Notes why something is not available.
    fn note_fault(&mut self, what: Subject, why: Fault) {
        self.faults.insert(what, Arc::new(why));
    }

    /// Answers one request. A request that fails has changed nothing, but for two: an `apply` keeps
    /// the steps before the one that failed, and a deletion that failed half way is finished by the
    /// next try or start.
    pub fn handle(&mut self, request: Request) -> Answer {
        let outcome = self.dispatch(request);
        // Before the answer: what was acknowledged is in the copy as well.
        self.renew_copy();
        match outcome {
            Ok(value) => Answer::Ok(value),
            Err(fault) => Answer::Error(fault.to_string()),
        }
    }

    /// Ends serving: finishes what is in flight and closes everything.
    pub fn stop(self) {
        self.cores.stop();
        if let Err(error) = counted::end_run(self.state, &self.target, &self.run) {
            eprintln!(
                "flashyard: the counters of the last minute are lost, and this end counts as an unsafe shutdown: {error}"
            );
        }
    }

    fn dispatch(&mut self, request: Request) -> Result<Value, Fault> {
        match request {
            Request::Status => Ok(self.view_status()),
            Request::ShowTarget => Ok(self.view_target()),
            Request::SetTarget(change) => self.set_target(change, By::Command),
            Request::List(kind) => Ok(self.view_all(kind)),
            Request::Show(kind, name) => self.view_one(kind, &name),
            Request::CreateDevice(spec) => self.create_device(spec),
            Request::CreatePool { spec, force } => self.create_pool(spec, force),
            Request::CreateTenant(spec) => self.create_tenant(spec),
            Request::CreateVolume(spec) => self.create_volume(spec),
            Request::SetTenant { name, change } => self.set_tenant(&name, change),
            Request::SetDevice { name, policy } => self.set_device(&name, policy),
            Request::Calibrate { device, destroy } => self.calibrate(&device, destroy),
            Request::Why { tenant } => self.why(&tenant),
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
            Request::Apply { config, plan } => self.apply(config, plan),
        }
    }

    fn create_tenant(&mut self, spec: TenantSpec) -> Result<Value, Fault> {
        spec.check()?;
        if self.inventory.tenants.contains_key(&spec.name) {
            return Err(InUse::Tenant(spec.name).into());
        }
        self.check_promises(&spec, None)?;
        self.check_nqn(&spec)?;
        self.put_tenant(spec)
    }

    fn set_tenant(&mut self, name: &str, change: TenantChange) -> Result<Value, Fault> {
        let mut spec = self.tenant(name)?.spec.clone();
        spec.hosts = change.hosts.unwrap_or(spec.hosts);
        spec.class = change.class.unwrap_or(spec.class);
        spec.weight = change.weight.unwrap_or(spec.weight);
        spec.guarantee = change.guarantee.or(spec.guarantee);
        spec.limit = change.limit.or(spec.limit);
        spec.latency_target = change.latency_target.or(spec.latency_target);
        let spec = spec.without_empty();
        spec.check()?;
        self.check_promises(&spec, None)?;
        self.put_tenant(spec)
    }

    fn put_tenant(&mut self, spec: TenantSpec) -> Result<Value, Fault> {
        let record = self.state.put_tenant(&spec)?;
        if let Err(refused) = self.target.set_tenant(engine_tenant(&record)) {
            let restored = match self.inventory.tenants.get(&spec.name) {
                Some(before) => self.state.put_tenant(&before.spec).map(drop),
                None => self.state.remove(Kind::Tenant, &spec.name),
            };
            restored?;
            return Err(refused.into());
        }
        self.inventory.tenants.insert(spec.name.clone(), record);
        self.tell_share(&spec.name);
        self.view_one(KindName::Tenant, &spec.name)
    }

    fn delete_tenant(&mut self, name: &str) -> Result<Value, Fault> {
        self.tenant(name)?;
        if let Some(volume) = self
            .inventory
            .volumes
            .values()
            .find(|volume| volume.spec.tenant == name)
        {
            let volume = volume.spec.name.clone();
            return Err(InUse::Volumes(KindName::Tenant, name.to_owned(), volume).into());
        }
        self.state.remove(Kind::Tenant, name)?;
        self.inventory.tenants.remove(name);
        self.faults.remove(&Subject::Tenant(name.to_owned()));
        match self.target.remove_tenant(name) {
            // One that the engine refused at the start is not there.
            Ok(()) | Err(ConfigError::NoSuchTenant) => Ok(Value::Null),
            Err(error) => Err(error.into()),
        }
    }

    fn tenant(&self, name: &str) -> Result<&TenantRecord, Fault> {
        let found = self.inventory.tenants.get(name);
        found.ok_or_else(|| no_such(KindName::Tenant, name))
    }
}

fn no_such(kind: KindName, name: &str) -> Fault {
    NotFound::Thing(kind, name.to_owned()).into()
}

/// A service that several threads may ask.
pub type SharedService = Arc<Mutex<Option<Service>>>;

/// Answers for a control socket; refuses once the service has been taken out to be stopped.
pub fn answer(service: &SharedService, request: Request) -> Answer {
    match service
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_mut()
    {
        Some(service) => service.handle(request),
        None => Answer::Error(Unavailable::ShuttingDown.to_string()),
    }
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
