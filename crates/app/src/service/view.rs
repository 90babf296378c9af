//! What `list`, `show` and `status` tell, as JSON. Tables for people are made of the same values.

use flashyard_block::Info;
use flashyard_engine::{Counters, Snapshot};
use serde_json::{Map, Value, json};

use super::volumes::find;
use super::work::Work;
use super::{Fault, Subject, flash, no_such};
use crate::control::KindName;
use crate::spec::{ConditionName, DeviceSpec, Medium, Store, StoreName};
use crate::state::{Phase, PoolRecord, TenantRecord, VolumeRecord};

impl Work<'_> {
    /// All things of a kind, by name.
    pub(super) fn view_all(&self, kind: KindName) -> Value {
        match kind {
            KindName::Device => self
                .inventory
                .devices
                .values()
                .map(|spec| self.view_device(spec))
                .collect(),
            KindName::Partition => self
                .inventory
                .devices
                .values()
                .filter(|spec| spec.partition().is_some())
                .map(|spec| self.view_partition(spec))
                .collect(),
            KindName::Pool => self
                .inventory
                .pools
                .values()
                .map(|pool| self.view_pool(pool))
                .collect(),
            KindName::Tenant => self
                .inventory
                .tenants
                .values()
                .map(|tenant| self.view_tenant(tenant))
                .collect(),
            KindName::Volume => self
                .inventory
                .volumes
                .values()
                .map(|volume| self.view_volume(volume))
                .collect(),
        }
    }

    /// One thing.
    pub(super) fn view_one(&self, kind: KindName, name: &str) -> Result<Value, Fault> {
        let found = match kind {
            KindName::Device => self
                .inventory
                .devices
                .get(name)
                .map(|spec| self.view_device(spec)),
            KindName::Partition => self
                .inventory
                .devices
                .get(name)
                .filter(|spec| spec.partition().is_some())
                .map(|spec| self.view_partition(spec)),
            KindName::Pool => self
                .inventory
                .pools
                .get(name)
                .map(|pool| self.view_pool(pool)),
            KindName::Tenant => self
                .inventory
                .tenants
                .get(name)
                .map(|tenant| self.view_tenant(tenant)),
            KindName::Volume => self
                .inventory
                .volumes
                .get(name)
                .map(|volume| self.view_volume(volume)),
        };
        found.ok_or_else(|| no_such(kind, name))
    }

    /// The target at a glance.
    pub(super) fn view_status(&self) -> Value {
        let (snapshot, life) = (self.target.snapshot(), self.service.run.life());
        let faults: Vec<Value> = self
            .faults
            .iter()
            .map(|(what, why)| json!({ "what": what.to_string(), "why": why.to_string() }))
            .chain(snapshot.accept_error.iter().map(|error| {
                let why = format!(
                    "new connections have to wait: {error}; is its limit of open files too low?"
                );
                json!({ "what": "listener", "why": why })
            }))
            .collect();
        let settings = self.settings.effective();
        json!({
            "target": {
                "version": env!("CARGO_PKG_VERSION"),
                "listen": snapshot.listeners,
                "max_transfer": settings.max_transfer,
                "io_queues": settings.io_queues,
                "queue_depth": settings.queue_depth,
                "in_capsule": settings.in_capsule,
                "devices": self.inventory.devices.len(),
                "pools": self.inventory.pools.len(),
                "volumes": self.inventory.volumes.len(),
                "hosts": snapshot.controllers.len(),
                "starts": life.starts,
                "ended_unsafely": life.cut,
                "ran_seconds": life.seconds,
            },
            "cores": view_cores(&snapshot),
            "drives": self.view_drives(),
            "partitions": self.view_partitions(),
            "tenants": snapshot.tenants.iter().map(|tenant| {
                let hosts = snapshot.controllers.iter().filter(|controller| controller.tenant.as_ref() == Some(&tenant.name));
                let mut view = view_counters(&tenant.name, tenant.namespaces.len(), hosts.count(), &tenant.counters);
                if let Some(record) = self.inventory.tenants.get(&tenant.name) {
                    view["guarantee_state"] = self.view_guarantee(&record.spec)["guarantee_state"].clone();
                }
                view
            }).collect::<Vec<_>>(),
            "faults": faults,
            "events": snapshot.recent_events.iter().map(|event| {
                json!({ "number": event.number, "event": event.to_string() })
            }).collect::<Vec<_>>(),
        })
    }

    fn view_device(&self, spec: &DeviceSpec) -> Value {
        let mut view = fields(spec);
        if let Some(&core) = self.homes.get(&spec.name) {
            let name = spec.name.clone();
            let info = self.cores.call(core, move |state| async move {
                state.nodes.device(&name).map(|device| device.info())
            });
            if let Some(info) = info {
                view.insert(
                    "size".into(),
                    json!(info.blocks * u64::from(info.block_size)),
                );
                view.insert("volatile_cache".into(), json!(info.volatile_cache));
                view.insert("read_only".into(), json!(info.read_only));
            }
            view.insert("core".into(), json!(core));
        }
        if let Some(drive) = spec.drive() {
            let condition = ConditionName(drive.condition).to_string();
            view.insert("condition".into(), json!(condition));
            view.insert("store".into(), json!(drive.store.name()));
            view.insert("dilation".into(), json!(drive.dilation));
            let stats = self.drive_stats(&spec.name);
            view.extend(stats.iter().flat_map(flash::view_stats));
        }
        if let Medium::OpenChannel(channels) = &spec.medium {
            let store = channels
                .store
                .as_ref()
                .map_or(StoreName::Memory, Store::name);
            view.insert("store".into(), json!(store.name()));
        }
        view.insert("used_by".into(), json!(self.device_user(&spec.name)));
        let mut view = self.with_state(view, &Subject::Device(spec.name.clone()));
        if let Some((state, why)) = self.trouble_of(&spec.name) {
            view["state"] = json!(state);
            view["fault"] = json!(why);
        }
        view
    }

    fn view_pool(&self, record: &PoolRecord) -> Value {
        let mut view = fields(&record.spec);
        let name = record.spec.name.clone();
        view.insert("uuid".into(), json!(record.uuid.to_string()));
        if let Ok(core) = self.home_of(record.spec.device()) {
            let space = self.cores.call(core, move |state| async move {
                state.nodes.pool(&name).map(|pool| pool.info())
            });
            if let Some(info) = space {
                view.insert("size".into(), json!(info.bytes));
                view.insert("free".into(), json!(info.free));
                view.insert("block_size".into(), json!(info.block_size));
            }
        }
        self.with_state(view, &Subject::Pool(record.spec.name.clone()))
    }

    fn view_tenant(&self, record: &TenantRecord) -> Value {
        let mut view = fields(&record.spec);
        let name = &record.spec.name;
        let volumes: Vec<&str> = self
            .inventory
            .volumes
            .values()
            .filter(|volume| volume.spec.tenant == *name)
            .map(|volume| volume.spec.name.as_str())
            .collect();
        let names = self.names_of(&record.spec);
        view.remove("nqn");
        view.insert("subnqn".into(), json!(names.nqn));
        view.insert("serial".into(), json!(names.serial));
        view.insert("model".into(), json!(names.model));
        view.insert("volumes".into(), json!(volumes));
        view.extend(self.view_guarantee(&record.spec));
        Value::Object(view)
    }

    fn view_volume(&self, record: &VolumeRecord) -> Value {
        let mut view = fields(&record.spec);
        view.insert("nsid".into(), json!(record.nsid));
        let names = record.names();
        view.insert("uuid".into(), json!(names.uuid));
        view.insert("nguid".into(), json!(names.nguid));
        view.insert("eui64".into(), json!(names.eui64));
        view.insert("subnqn".into(), json!(self.subnqn(&record.spec.tenant)));
        let read_only = record.spec.read_only == Some(true);
        view.insert("read_only".into(), json!(read_only));
        if let Some(info) = self.volume_info(record) {
            view.insert(
                "size".into(),
                json!(info.blocks * u64::from(info.block_size)),
            );
            view.insert("block_size".into(), json!(info.block_size));
        }
        let mut view = self.with_state(view, &Subject::Volume(record.spec.name.clone()));
        // Its space may take long to clean.
        if record.phase == Phase::Creating && view["state"] == "online" {
            view["state"] = json!("creating");
        }
        view
    }

    /// What the volume is at this moment, from its home core.
    fn volume_info(&self, record: &VolumeRecord) -> Option<Info> {
        let core = self.served.get(&record.spec.name)?.core();
        let (uuid, place, in_pool) = (
            record.uuid.into_bytes(),
            record.place().to_owned(),
            record.spec.pool.is_some(),
        );
        self.cores.call(core, move |state| async move {
            let device = match in_pool {
                true => find(&state.nodes.pool(&place)?, uuid).map(|(_, device)| device),
                false => state.nodes.device(&place),
            };
            device.map(|device| device.info())
        })
    }

    fn subnqn(&self, tenant: &str) -> Option<String> {
        let record = self.inventory.tenants.get(tenant)?;
        Some(self.names_of(&record.spec).nqn)
    }

    pub(super) fn with_state(&self, mut view: Map<String, Value>, what: &Subject) -> Value {
        let fault = self.faults.get(what);
        view.insert(
            "state".into(),
            json!(if fault.is_some() {
                "unavailable"
            } else {
                "online"
            }),
        );
        if let Some(fault) = fault {
            view.insert("fault".into(), json!(fault.to_string()));
        }
        Value::Object(view)
    }
}

impl KindName {
    /// The kind as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Partition => "partition",
            Self::Pool => "pool",
            Self::Tenant => "tenant",
            Self::Volume => "volume",
        }
    }
}

fn view_cores(snapshot: &Snapshot) -> Vec<Value> {
    let cores = snapshot.connections_per_core.iter().enumerate();
    cores
        .map(|(core, connections)| json!({ "core": core, "connections": connections }))
        .collect()
}

fn view_counters(tenant: &str, volumes: usize, hosts: usize, counters: &Counters) -> Value {
    json!({
        "tenant": tenant,
        "volumes": volumes,
        "hosts": hosts,
        "reads": counters.reads,
        "writes": counters.writes,
        "bytes_read": counters.bytes_read,
        "bytes_written": counters.bytes_written,
        "errors": counters.errors,
    })
}

fn fields(spec: &impl serde::Serialize) -> Map<String, Value> {
    match serde_json::to_value(spec).expect("specifications are plain data") {
        Value::Object(map) => map,
        other => unreachable!("a specification is an object, not {other}"),
    }
}
