//! What `list`, `show` and `status` answer.

use flashyard_block::Info;

use super::volumes::find;
use super::work::Work;
use super::{Fault, Subject, no_such};
use crate::control::{
    Condition, CoreRow, DeviceView, EventRow, FaultRow, Health, KindName, LimitsView, PoolView,
    SpaceView, StatusView, TargetRow, TenantRow, TenantView, View, VolumeView,
};
use crate::spec::{ConditionName, DeviceSpec, FlatDevice, Medium, Size, Store, StoreName};
use crate::state::{Phase, PoolRecord, TenantRecord, VolumeRecord};

impl Work<'_> {
    /// All things of a kind, by name.
    pub(super) fn view_all(&self, kind: KindName) -> View {
        let inventory = &self.inventory;
        let names: Vec<&String> = match kind {
            KindName::Device | KindName::Partition => inventory.devices.keys().collect(),
            KindName::Pool => inventory.pools.keys().collect(),
            KindName::Tenant => inventory.tenants.keys().collect(),
            KindName::Volume => inventory.volumes.keys().collect(),
        };
        let views = names.into_iter().filter_map(|name| self.find(kind, name));
        View::List(views.collect())
    }

    /// One thing.
    pub(super) fn view_one(&self, kind: KindName, name: &str) -> Result<View, Fault> {
        self.find(kind, name).ok_or_else(|| no_such(kind, name))
    }

    fn find(&self, kind: KindName, name: &str) -> Option<View> {
        let inventory = &self.inventory;
        Some(match kind {
            KindName::Device => self.view_device(inventory.devices.get(name)?),
            KindName::Partition => {
                let view = self.view_partition(inventory.devices.get(name)?)?;
                View::Partition(Box::new(view))
            }
            KindName::Pool => self.view_pool(inventory.pools.get(name)?),
            KindName::Tenant => self.view_tenant(inventory.tenants.get(name)?),
            KindName::Volume => self.view_volume(inventory.volumes.get(name)?),
        })
    }

    /// The target at a glance.
    pub(super) fn view_status(&self) -> View {
        let (snapshot, life) = (self.target.snapshot(), self.service.run.life());
        let faults = self.faults.iter().map(|(what, why)| FaultRow {
            what: what.to_string(),
            why: why.to_string(),
        });
        let refused = snapshot.accept_error.iter().map(|error| FaultRow {
            what: "listener".into(),
            why: format!(
                "new connections have to wait: {error}; is its limit of open files too low?"
            ),
        });
        let hosts = |tenant: &String| {
            let controllers = snapshot.controllers.iter();
            controllers
                .filter(|controller| controller.tenant.as_ref() == Some(tenant))
                .count()
        };
        let tenants = snapshot.tenants.iter().map(|tenant| {
            let record = self.inventory.tenants.get(&tenant.name);
            TenantRow {
                tenant: tenant.name.clone(),
                volumes: tenant.namespaces.len(),
                hosts: hosts(&tenant.name),
                reads: tenant.counters.reads,
                writes: tenant.counters.writes,
                bytes_read: tenant.counters.bytes_read,
                bytes_written: tenant.counters.bytes_written,
                errors: tenant.counters.errors,
                guarantee_state: record.and_then(|record| self.view_guarantee(&record.spec).0),
            }
        });
        let cores = snapshot.connections_per_core.iter().enumerate();
        let events = snapshot.recent_events.iter().map(|event| EventRow {
            number: event.number,
            event: event.to_string(),
        });
        View::Status(Box::new(StatusView {
            target: TargetRow {
                version: env!("CARGO_PKG_VERSION"),
                listen: snapshot.listeners.clone(),
                limits: self.view_limits(),
                devices: self.inventory.devices.len(),
                pools: self.inventory.pools.len(),
                volumes: self.inventory.volumes.len(),
                hosts: snapshot.controllers.len(),
                starts: life.starts,
                ended_unsafely: life.cut,
                ran_seconds: life.seconds,
            },
            cores: cores
                .map(|(core, &connections)| CoreRow { core, connections })
                .collect(),
            drives: self.view_drives(),
            partitions: self.view_partitions(),
            tenants: tenants.collect(),
            faults: faults.chain(refused).collect(),
            events: events.collect(),
        }))
    }

    fn view_device(&self, spec: &DeviceSpec) -> View {
        let core = self.homes.get(&spec.name).copied();
        let name = spec.name.clone();
        let info = core.and_then(|core| {
            self.cores.call(core, move |state| async move {
                state.nodes.device(&name).map(|device| device.info())
            })
        });
        let mut flat = FlatDevice::from(spec.clone());
        flat.size = info.as_ref().map(size_of).or(flat.size);
        match &spec.medium {
            Medium::Flash(drive) => {
                let drive = drive.complete();
                flat.condition = Some(ConditionName(drive.condition));
                flat.store = Some(drive.store);
                flat.dilation = Some(drive.dilation);
            }
            Medium::OpenChannel(channels) => {
                let store = channels.store.as_ref();
                flat.store = Some(store.map_or(StoreName::Memory, Store::name));
            }
            _ => {}
        }
        let trouble = self.trouble_of(&spec.name);
        View::Device(Box::new(DeviceView {
            spec: flat,
            volatile_cache: info.as_ref().map(|info| info.volatile_cache),
            read_only: info.as_ref().map(|info| info.read_only),
            core,
            drive: spec.drive().and_then(|_| self.view_drive(&spec.name)),
            used_by: self.device_user(&spec.name),
            health: trouble.unwrap_or_else(|| self.health(&Subject::Device(spec.name.clone()))),
        }))
    }

    fn view_pool(&self, record: &PoolRecord) -> View {
        let name = record.spec.name.clone();
        let space = self.home_of(record.spec.device()).ok().and_then(|core| {
            self.cores.call(core, move |state| async move {
                state.nodes.pool(&name).map(|pool| pool.info())
            })
        });
        View::Pool(PoolView {
            name: record.spec.name.clone(),
            devices: record.spec.devices.clone(),
            uuid: record.uuid.to_string(),
            space: space.map(|info| SpaceView {
                size: info.bytes,
                free: info.free,
                block_size: info.block_size,
            }),
            health: self.health(&Subject::Pool(record.spec.name.clone())),
        })
    }

    fn view_tenant(&self, record: &TenantRecord) -> View {
        let spec = record.spec.clone();
        let names = self.names_of(&spec);
        let volumes = self.inventory.volumes.values();
        let volumes = volumes.filter(|volume| volume.spec.tenant == spec.name);
        let (guarantee_state, guarantee_hint) = self.view_guarantee(&spec);
        View::Tenant(Box::new(TenantView {
            volumes: volumes.map(|volume| volume.spec.name.clone()).collect(),
            name: spec.name,
            hosts: spec.hosts,
            class: spec.class,
            weight: spec.weight,
            guarantee: spec.guarantee,
            limit: spec.limit,
            latency_target: spec.latency_target,
            subnqn: names.nqn,
            serial: names.serial,
            model: names.model,
            guarantee_state,
            guarantee_hint,
            note: None,
        }))
    }

    fn view_volume(&self, record: &VolumeRecord) -> View {
        let (spec, names) = (record.spec.clone(), record.names());
        let info = self.volume_info(record);
        let mut health = self.health(&Subject::Volume(spec.name.clone()));
        // Its space may take long to clean.
        if record.phase == Phase::Creating && health.state == Condition::Online {
            health.state = Condition::Creating;
        }
        View::Volume(Box::new(VolumeView {
            size: info.as_ref().map(size_of).or(spec.size),
            nsid: record.nsid,
            uuid: names.uuid,
            nguid: names.nguid,
            eui64: names.eui64,
            subnqn: self.subnqn(&spec.tenant),
            read_only: spec.read_only == Some(true),
            block_size: info.map(|info| info.block_size),
            health,
            note: None,
            name: spec.name,
            pool: spec.pool,
            device: spec.device,
            tenant: spec.tenant,
            content: spec.content,
        }))
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

    /// What controllers tell hosts.
    pub(super) fn view_limits(&self) -> LimitsView {
        let settings = self.settings.effective();
        LimitsView {
            max_transfer: settings.max_transfer,
            io_queues: settings.io_queues,
            queue_depth: settings.queue_depth,
            in_capsule: settings.in_capsule,
        }
    }

    /// Whether something could be opened.
    pub(super) fn health(&self, what: &Subject) -> Health {
        let fault = self.faults.get(what).map(ToString::to_string);
        Health {
            state: match fault {
                Some(_) => Condition::Unavailable,
                None => Condition::Online,
            },
            fault,
        }
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

fn size_of(info: &Info) -> Size {
    Size(info.blocks * u64::from(info.block_size))
}
