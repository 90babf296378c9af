//! What `list`, `show` and `status` answer.

use std::collections::BTreeSet;

use flashyard_block::Info;
use flashyard_block::array::{MemberState, Status};
use flashyard_block::pool::{self, PoolInfo, ReadOnly};
use flashyard_engine::DeviceHandle;

use super::observed::{Observed, worst};
use super::partitions::trouble_of;
use super::work::Work;
use super::{Fault, Subject, policies};
use crate::control::{
    ArrayView, Condition, CoreRow, DeviceView, DriveView, EventRow, FaultRow, Health, KindName,
    LimitsView, LoadView, Page, PoolView, SpaceView, StatusView, TargetRow, TenantRow, TenantView,
    View, VolumeView, VolumesOf,
};
use crate::graph::{Device, Node, NodeId, Volume};
use crate::published::Report;
use crate::spec::{ConditionName, FlatDevice, Medium, Size, Store, StoreName, VolumeKind};
use crate::state::{Kind, Phase, PoolRecord, TenantRecord};

impl Work<'_> {
    /// All things of a kind, or a part of them, by name.
    pub(super) fn view_all(&self, kind: KindName, page: &Page) -> View {
        let all = || self.graph.all_after(kind.table(), page.after.as_deref());
        let most = page.limit.unwrap_or(usize::MAX);
        let tenants = all().filter(|_| kind == KindName::Tenant).take(most);
        let observed = self.ask_observed(tenants).answers();
        let views = all().filter_map(|id| {
            let view = self.view(kind, id, &observed)?;
            Some((self.graph.name(id).to_owned(), view))
        });
        View::List(page.take(views))
    }

    /// The volumes of a tenant, in a pool, of both or all, or a part of them, by name.
    pub(super) fn view_volumes(&self, of: &VolumesOf, page: &Page) -> Result<View, Fault> {
        let named = [(KindName::Tenant, &of.tenant), (KindName::Pool, &of.pool)];
        for (kind, name) in named {
            let Some(name) = name else { continue };
            if self.graph.find(kind.table(), name).is_none() {
                return Err(self.missing(kind, name));
            }
        }
        let after = page.after.as_deref();
        let all = self.graph.all_after(KindName::Volume.table(), after);
        let views = all.filter_map(|id| {
            let volume = self.graph.volume(id)?;
            let spec = &volume.record.spec;
            let wanted = of.tenant.as_ref().is_none_or(|name| spec.tenant == *name)
                && of
                    .pool
                    .as_ref()
                    .is_none_or(|name| spec.pool.as_ref() == Some(name));
            wanted.then(|| (spec.name.clone(), self.view_volume(id, volume)))
        });
        Ok(View::List(page.take(views)))
    }

    /// One thing.
    pub(super) fn view_one(&self, kind: KindName, name: &str) -> Result<View, Fault> {
        let found = self.graph.find(kind.table(), name);
        let tenant = found.filter(|_| kind == KindName::Tenant);
        let observed = self.ask_observed(tenant).answers();
        let view = found.and_then(|id| {
            let mut view = self.view(kind, id, &observed)?;
            if let View::Volume(volume) = &mut view {
                volume.stored = self.stored_bytes(id);
            }
            Some(view)
        });
        view.ok_or_else(|| self.missing(kind, name))
    }

    fn view(&self, kind: KindName, id: NodeId, observed: &Observed) -> Option<View> {
        Some(match (kind, self.graph.get(id)?) {
            (KindName::Partition, _) => View::Partition(Box::new(self.view_partition(id)?)),
            (_, Node::Device(device)) => self.view_device(id, device),
            (_, Node::Pool(record)) => self.view_pool(id, record),
            (_, Node::Tenant(_)) => self.view_tenant(id, self.graph.tenant(id)?, observed),
            (_, Node::Volume(volume)) => self.view_volume(id, volume),
            (_, Node::Function(function)) => self.view_function(id, function),
        })
    }

    /// The target at a glance.
    pub(super) fn view_status(&self, silent: &[usize], observed: &Observed, page: &Page) -> View {
        let (snapshot, life) = (self.target.snapshot(), self.service.run.life());
        let faults = self.named_faults().into_iter();
        let faults = faults.map(|fault| FaultRow {
            what: fault.name,
            why: fault.why.to_string(),
        });
        let refused = snapshot.accept_error.iter().map(|error| FaultRow {
            what: "listener".into(),
            why: format!(
                "new connections have to wait: {error}; is its limit of open files too low?"
            ),
        });
        let silent_rows = silent.iter().map(|core| FaultRow {
            what: format!("core {core}"),
            why: "it does not answer: what is shown of its devices is older, and its hosts wait; see to its devices, or \
                  start the target again"
                .into(),
        });
        let injecting = self.injecting().into_iter();
        let injecting = injecting.map(|(what, why)| FaultRow { what, why });
        let hosts = |tenant: &String| {
            let controllers = snapshot.controllers.iter();
            controllers
                .filter(|controller| controller.tenant.as_ref() == Some(tenant))
                .count()
        };
        let mut promises = Vec::new();
        let tenants = snapshot.tenants.iter().map(|tenant| {
            let record = self.tenant(&tenant.name).ok();
            let own = record.map(|(id, record)| self.view_promises(id, record, observed));
            let own = own.unwrap_or_default();
            let promise_state = worst(&own);
            promises.extend(own);
            TenantRow {
                tenant: tenant.name.clone(),
                volumes: tenant.namespaces.len(),
                hosts: hosts(&tenant.name),
                reads: tenant.counters.reads,
                writes: tenant.counters.writes,
                bytes_read: tenant.counters.bytes_read,
                bytes_written: tenant.counters.bytes_written,
                errors: tenant.counters.errors,
                guarantee_state: record.and_then(|(_, record)| self.view_guarantee(&record.spec).0),
                promise_state,
            }
        });
        let tenants: Vec<TenantRow> = tenants.collect();
        let health = self.view_health(silent, &promises);
        let cores = snapshot.connections_per_core.iter().enumerate();
        let events = snapshot.recent_events.iter().map(|event| EventRow {
            number: event.number,
            event: event.to_string(),
        });
        let whole = StatusView {
            health,
            target: TargetRow {
                version: env!("CARGO_PKG_VERSION"),
                listen: snapshot.listeners.clone(),
                limits: self.view_limits(),
                devices: self.graph.count(Kind::Device),
                pools: self.graph.count(Kind::Pool),
                volumes: self.graph.count(Kind::Volume),
                hosts: snapshot.controllers.len(),
                functions: self.graph.count(Kind::Function),
                starts: life.starts,
                ended_unsafely: life.cut,
                ran_seconds: life.seconds,
            },
            cores: cores
                .map(|(core, &connections)| CoreRow { core, connections })
                .collect(),
            drives: self.view_drives(),
            partitions: self.view_partitions(),
            injected: self.view_all_injected(),
            tenants,
            functions: self.view_functions(&snapshot),
            promises,
            faults: faults
                .chain(refused)
                .chain(silent_rows)
                .chain(injecting)
                .collect(),
            events: events.collect(),
            next: None,
        };
        View::Status(Box::new(part_of(whole, page)))
    }

    pub(super) fn view_device(&self, id: NodeId, device: &Device) -> View {
        let (spec, core) = (&device.spec, device.home);
        let report = core.and_then(|core| self.report(core, id));
        let (info, stats) = match report.as_deref() {
            Some(Report::Device(info, stats)) => (Some(info), stats.as_deref()),
            Some(Report::Faulty(info, _) | Report::Array(info, _)) => (Some(info), None),
            _ => (None, None),
        };
        let unflushed_bytes = match report.as_deref() {
            Some(Report::Faulty(_, faults)) => Some(faults.unflushed_bytes),
            _ => None,
        };
        let mut flat = FlatDevice::from(spec.clone());
        flat.size = info.map(size_of).or(flat.size);
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
        let trouble = match report.as_deref() {
            Some(Report::Channels(channels)) => trouble_of(&spec.name, channels),
            _ => None,
        };
        let curve = std::mem::take(&mut flat.curve);
        View::Device(Box::new(DeviceView {
            curve: curve.iter().map(LoadView::from).collect(),
            spec: flat,
            volatile_cache: info.map(|info| info.volatile_cache),
            read_only: info.map(|info| info.read_only),
            core,
            drive: stats.map(DriveView::from),
            injected: spec.fault_layer().map(|_| self.view_injected(id)),
            unflushed_bytes,
            array: self.view_array(id),
            used_by: self.user_text(id),
            policy_note: policies::stand_in(spec),
            health: trouble.unwrap_or_else(|| self.health(Subject::Node(id))),
        }))
    }

    pub(super) fn view_pool(&self, id: NodeId, record: &PoolRecord) -> View {
        let device = self.graph.device_under(id);
        let core = device.and_then(|device| self.graph.device(device)?.home);
        let report = core.and_then(|core| self.report(core, id));
        let space = match report.as_deref() {
            Some(Report::Pool(info, _)) => Some(info),
            _ => None,
        };
        let array = device.and_then(|device| self.graph.device(device)?.spec.array());
        View::Pool(Box::new(PoolView {
            name: record.spec.name.clone(),
            devices: record.spec.devices.clone(),
            kind: record.spec.kind.unwrap_or(VolumeKind::Raw),
            key: record.spec.key.clone(),
            compression: record.spec.compression,
            chunk_bytes: record.spec.chunk.map(|chunk| chunk.0),
            uuid: record.uuid.to_string(),
            space: space.map(|info| SpaceView {
                size: info.bytes,
                free_bytes: info.free,
                used_bytes: info.bytes - info.free,
                reserved_bytes: info.reserved,
                logical_bytes: info.logical,
                snapshot_bytes: info.snapshots,
                written_bytes: info.written,
                stored_bytes: info.stored,
                compression_ratio: ratio(info.written, info.stored),
                block_size: info.block_size,
                space_hint: space_hint(info),
            }),
            rebuild_priority: array
                .filter(|array| array.copies() > 1)
                .map(|array| array.rebuild_priority),
            rebuild_limit: array.and_then(|array| array.rebuild_limit),
            array: device
                .and_then(|device| self.view_array(device))
                .map(|array| {
                    let scrub = space.and_then(|info| info.scrub).map(Into::into);
                    ArrayView {
                        scrub: scrub.or(array.scrub),
                        ..array
                    }
                }),
            health: self.health(Subject::Node(id)),
        }))
    }

    /// What a device made of others is; nothing of any other, or while it is not open.
    pub(super) fn view_array(&self, device: NodeId) -> Option<ArrayView> {
        let core = self.graph.device(device)?.home?;
        match self.report(core, device).as_deref() {
            Some(Report::Array(_, status)) => Some(ArrayView::from(&**status)),
            _ => None,
        }
    }

    /// That something stands on an array with fewer copies than it is to have, or is one, and what
    /// to do.
    fn degraded(&self, id: NodeId) -> Option<String> {
        let below = self.graph.all_under(id).into_iter();
        let mut marks = below.filter_map(|id| {
            let core = self.graph.device(id)?.home?;
            let report = self.report(core, id)?;
            let Report::Array(_, status) = &*report else {
                return None;
            };
            let name = self.graph.name(id);
            status.is_degraded().then(|| degraded_text(name, status))
        });
        marks.next()
    }

    fn view_tenant(&self, id: NodeId, record: &TenantRecord, observed: &Observed) -> View {
        let spec = record.spec.clone();
        let names = self.names_of(&spec);
        let volumes = self.graph.volumes_on(id);
        let volumes = volumes.map(|(_, volume)| volume.record.spec.name.clone());
        let mut volumes: Vec<String> = volumes.collect();
        volumes.sort_unstable();
        let functions = self.graph.functions_of(id);
        let functions = functions.map(|(_, function)| function.spec.name.clone());
        let mut functions: Vec<String> = functions.collect();
        functions.sort_unstable();
        let (guarantee_state, guarantee_hint) = self.view_guarantee(&spec);
        let promises = self.view_promises(id, record, observed);
        let quotas = self.view_quotas(&spec);
        View::Tenant(Box::new(TenantView {
            volumes,
            functions,
            name: spec.name,
            hosts: spec.hosts,
            class: spec.class,
            weight: spec.weight,
            guarantee: spec.guarantee,
            limit: spec.limit,
            latency_target: spec.latency_target,
            quotas,
            subnqn: names.nqn,
            serial: names.serial,
            model: names.model,
            guarantee_state,
            guarantee_hint,
            promise_state: worst(&promises),
            promises,
            note: None,
        }))
    }

    fn view_volume(&self, id: NodeId, volume: &Volume) -> View {
        let record = &volume.record;
        let (spec, names) = (record.spec.clone(), record.names());
        let info = volume.namespace.as_ref().map(DeviceHandle::info);
        let mut health = self.health(Subject::Node(id));
        // Its space may take long to clean.
        let usable = matches!(
            health.state,
            Condition::Online | Condition::InjectsFaults | Condition::Degraded
        );
        if record.phase == Phase::Creating && usable {
            health.state = Condition::Creating;
        }
        let form = spec.form();
        View::Volume(Box::new(VolumeView {
            size: info.as_ref().map(size_of).or(spec.size),
            nsid: record.nsid,
            uuid: names.uuid,
            nguid: names.nguid,
            eui64: names.eui64,
            subnqn: self.subnqn(&spec.tenant),
            read_only: spec.read_only == Some(true),
            block_size: info.map(|info| info.block_size),
            stored: None,
            migration: self.view_migration(id, record),
            health,
            note: None,
            name: spec.name,
            pool: spec.pool,
            device: spec.device,
            tenant: spec.tenant,
            compression: spec.compression,
            reserved_bytes: spec.reserve,
            chunk_bytes: spec.kind.map(|_| u64::from(form.chunk)),
            content: spec.content,
        }))
    }

    fn subnqn(&self, tenant: &str) -> Option<String> {
        let (_, record) = self.tenant(tenant).ok()?;
        Some(self.nqn_of(&record.spec))
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

    /// Whether something could be opened, and what is to be known of it while it is online.
    pub(super) fn health(&self, what: Subject) -> Health {
        let mark = |state, why: Option<String>| why.map(|why| (state, why));
        let marks = |id| {
            mark(Condition::ReadOnly, self.read_only(id))
                .or_else(|| mark(Condition::Degraded, self.degraded(id)))
                .or_else(|| mark(Condition::InjectsFaults, self.injects(id)))
        };
        let fault = self.faults.get(&what).map(ToString::to_string);
        let found = mark(Condition::Unavailable, fault).or_else(|| match what {
            Subject::Node(id) => marks(id),
            _ => None,
        });
        match found {
            Some((state, why)) => Health {
                state,
                fault: Some(why),
            },
            None => Health {
                state: Condition::Online,
                fault: None,
            },
        }
    }

    /// That something is a pool which can only be read, or stands on one, and what to do.
    fn read_only(&self, id: NodeId) -> Option<String> {
        let below = self.graph.all_under(id).into_iter();
        let mut marks = below.filter(|id| self.graph.pool(*id).is_some());
        marks.find_map(|pool| {
            let device = self.graph.device_under(pool)?;
            let report = self.report(self.graph.device(device)?.home?, pool)?;
            let Report::Pool(info, _) = &*report else {
                return None;
            };
            Some(read_only_text(self.graph.name(pool), info.read_only?))
        })
    }
}

/// Why a pool can only be read, and what to do.
fn read_only_text(name: &str, why: ReadOnly) -> String {
    match why {
        ReadOnly::Device => format!(
            "the device of pool {name} has failed writes, so it can only be read until the target is started again"
        ),
        ReadOnly::Log => format!(
            "pool {name} has lost a part of its log that was flushed: its volumes are as they were before that, and can only \
             be read; copy what is needed to another pool, or restore a backup"
        ),
    }
}

/// That an array is degraded, and what to do.
fn degraded_text(name: &str, status: &Status) -> String {
    let of = |state: MemberState| {
        let members = status.members.iter().filter(move |it| it.state == state);
        members.map(|it| it.name.clone()).collect::<Vec<_>>()
    };
    let (failed, rebuilt) = (of(MemberState::Failed), of(MemberState::Rebuilding));
    match (failed.first(), rebuilt.first()) {
        (_, Some(new)) => format!(
            "array {name} is degraded while {new} gets what it lacks: nothing is to be done, see `rebuild`"
        ),
        (Some(old), None) => format!(
            "array {name} is degraded: {} failed or missing; `flashyard pool replace {name} --device {old} --with NEW` has another \
             device take its place",
            failed.join(", ")
        ),
        (None, None) => format!("array {name} has fewer copies than it is to have: add a spare"),
    }
}

impl KindName {
    /// Where things of this kind are kept: a partition is a device.
    fn table(self) -> Kind {
        match self {
            Self::Device | Self::Partition => Kind::Device,
            Self::Pool => Kind::Pool,
            Self::Tenant => Kind::Tenant,
            Self::Volume => Kind::Volume,
            Self::Function => Kind::Function,
        }
    }

    /// The kind as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Partition => "partition",
            Self::Pool => "pool",
            Self::Tenant => "tenant",
            Self::Volume => "volume",
            Self::Function => "function",
        }
    }
}

fn size_of(info: &Info) -> Size {
    Size(info.blocks * u64::from(info.block_size))
}

/// How many times more was written than it takes, in hundredths.
pub(super) fn ratio(written: u64, stored: u64) -> Option<f64> {
    (stored > 0).then(|| (written as f64 / stored as f64 * 100.0).round() / 100.0)
}

/// What is to be done before a mapped pool is full: its volumes may be larger than it together.
fn space_hint(info: &PoolInfo) -> Option<String> {
    let used = info.bytes - info.free + info.reserved;
    let is_near = info.kind == pool::Kind::Mapped && used * 4 >= info.bytes * 3;
    is_near.then(|| {
        format!(
            "{} % of its space is used or reserved, and its volumes may ask for more: when it is full writes fail with Capacity Exceeded; \
             delete a volume, or have hosts discard what they do not need",
            used * 100 / info.bytes.max(1)
        )
    })
}

/// A part of the tenants, with what belongs to them; of what else there may be much of, as many
/// rows at most. All of that has a list of its own, or is counted in health.
fn part_of(mut status: StatusView, page: &Page) -> StatusView {
    if *page == Page::default() {
        return status;
    }
    let mut tenants = status.tenants;
    let after = page.after.as_deref();
    tenants.retain(|row| after.is_none_or(|after| *row.tenant > *after));
    tenants.sort_by(|one, other| one.tenant.cmp(&other.tenant));
    let part = page.take(tenants.into_iter().map(|row| (row.tenant.clone(), row)));
    (status.tenants, status.next) = (part.rows, part.next);
    let shown: BTreeSet<&str> = status.tenants.iter().map(|row| &*row.tenant).collect();
    status.promises.retain(|row| shown.contains(&*row.tenant));
    status.functions.retain(|row| shown.contains(&*row.tenant));
    let most = page.limit.unwrap_or(usize::MAX);
    status.functions.truncate(most);
    status.drives.truncate(most);
    status.partitions.truncate(most);
    status.injected.truncate(most);
    status.faults.truncate(most);
    status
}
