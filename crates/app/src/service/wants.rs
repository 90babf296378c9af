//! What each command changes, and what has to stay as it is for it.

use super::Stack;
use super::turns::{Mode, Object, Wants};
use crate::control::{ArrayChange, Destination, KindName, Request, SnapshotChange};
use crate::graph::{Node, NodeId};
use crate::spec::{DeviceSpec, FunctionSpec, PoolSpec, VolumeSpec};
use crate::state::Kind;

impl Stack {
    /// What a command that changes something wants.
    pub(super) fn wants_of(&self, request: &Request) -> Wants {
        match request {
            Request::SetTarget(_) => Wants::change(Object::Target),
            Request::CreateDevice(spec) | Request::CreateDeviceOver(spec) => wants_of_device(spec),
            Request::CreateArray { of, .. } => {
                let wants = wants_of_device(&of.device);
                let names = of
                    .tenant
                    .iter()
                    .map(|name| Object::TenantName(name.clone()));
                let wants = match &of.pool {
                    Some(pool) => wants.and_all(wants_of_pool(pool)),
                    None => wants,
                };
                names.fold(wants, |wants, name| wants.and(name, Mode::Kept))
            }
            Request::ChangeArray {
                name,
                change: ArrayChange::Start { .. },
            } => match self.to_start(name) {
                Ok((_, id)) => self.wants_of_all_on(id),
                Err(_) => Wants::change(Object::Pool(name.clone())),
            },
            Request::StartDevice(name) => match self.device(name) {
                Ok((id, _)) => self.wants_of_all_on(id),
                Err(_) => Wants::change(Object::Device(name.clone())),
            },
            Request::ChangeArray { name, change } => self.wants_of_array(name, change),
            Request::CreatePool { spec, .. } => wants_of_pool(spec),
            Request::ImportPool { spec, tenant, .. } => {
                let names = tenant.iter().map(|name| Object::TenantName(name.clone()));
                let follow = self.followers(std::slice::from_ref(&spec.name), &[]);
                let wants = wants_of_pool(spec).and_all(follow.wants());
                names.fold(wants, |wants, name| wants.and(name, Mode::Kept))
            }
            Request::ImportPartitions { device, name, .. } => {
                let names = match name {
                    Some(name) => vec![name.clone()],
                    None => self.waiting_partitions(device),
                };
                let parent = Wants::change(Object::Device(device.clone()));
                let wants = parent.and_all(self.followers(&[], &names).wants());
                let names = names.into_iter().map(Object::Device);
                names.fold(wants, |wants, name| wants.and(name, Mode::Changed))
            }
            Request::CreateTenant { spec, .. } => tenant(&spec.name),
            Request::CreateVolume { spec, .. } | Request::ImportVolume(spec) => {
                wants_of_volume(spec)
            }
            Request::SetTenant { name, .. } | Request::Delete(KindName::Tenant, name) => {
                tenant(name)
            }
            Request::CreateFunctions(specs) => wants_of_functions(specs),
            Request::SetFunction { name, .. }
            | Request::DeleteFunction { name, .. }
            | Request::Delete(KindName::Function, name) => {
                Wants::change(Object::Function(name.clone()))
            }
            Request::SetDevice { name, .. } | Request::Calibrate { device: name, .. } => {
                Wants::change(Object::Device(name.clone()))
            }
            Request::SetFaults { name, .. } => Wants::change(Object::Faults(name.clone())),
            Request::SetVolume { name, .. } | Request::Delete(KindName::Volume, name) => {
                self.wants_of_present(name)
            }
            Request::MoveVolume { name, tenant, .. } => self
                .wants_of_present(name)
                .and(Object::TenantName(tenant.clone()), Mode::Kept),
            Request::MigrateVolume { name, to, .. } => match to {
                Destination::Pool(to) => self.wants_of_migration(name, to),
                Destination::Form(_) => self.wants_of_present(name),
            },
            Request::CancelMigration(name) => self.wants_of_present(name),
            Request::RenameVolume { name, new } => self
                .wants_of_present(name)
                .and(Object::Volume(new.clone()), Mode::Changed),
            Request::RenameTenant { name, new } => tenant(name)
                .and_all(tenant(new))
                .and(Object::TenantName(name.clone()), Mode::Changed),
            Request::Delete(KindName::Device | KindName::Partition, name)
            | Request::GrowPartition { name, .. }
            | Request::Rekey { name, .. }
            | Request::EraseKey(name) => match self.device(name) {
                Ok((_, device)) => wants_of_device(&device.spec),
                Err(_) => Wants::change(Object::Device(name.clone())),
            },
            Request::DeletePartition { name, device } => {
                Wants::change(Object::Device(name.clone()))
                    .and(Object::Device(device.clone()), Mode::Changed)
            }
            Request::Delete(KindName::Pool, name)
            | Request::ErasePool(name)
            | Request::GrowPool(name)
            | Request::SetPool { name, .. }
            | Request::RekeyPool(name, _) => match self.pool(name) {
                Ok((_, record)) => wants_of_pool(&record.spec),
                Err(_) => Wants::change(Object::Pool(name.clone())),
            },
            Request::ChangeSnapshot(change) => self.wants_of_snapshots(change),
            Request::Status(_)
            | Request::Health(_)
            | Request::Metrics(_)
            | Request::Traffic(_)
            | Request::Activity(_)
            | Request::Events(_)
            | Request::Audit(_)
            | Request::AskSnapshots(_)
            | Request::ShowTarget
            | Request::List(..)
            | Request::ListVolumes(..)
            | Request::CreateIfMissing(_)
            | Request::Show(..)
            | Request::Why { .. }
            | Request::Export
            | Request::Backup(_)
            | Request::Apply { .. } => Wants::default(),
        }
    }

    /// A volume and the pool that it goes to, or has come from.
    pub(super) fn wants_of_migration(&self, name: &str, other: &str) -> Wants {
        self.wants_of_present(name)
            .and(Object::Pool(other.to_owned()), Mode::Kept)
    }

    /// An array with all that stands on it, and devices that come or go.
    fn wants_of_array(&self, name: &str, change: &ArrayChange) -> Wants {
        let Ok((_, id)) = self.array_of(name) else {
            return Wants::change(Object::Pool(name.to_owned()));
        };
        let array = self.graph.device(id).map(|it| wants_of_device(&it.spec));
        let mut wants = array.unwrap_or_default();
        if let Some(pool) = self
            .graph
            .find(Kind::Pool, name)
            .and_then(|id| self.graph.pool(id))
        {
            wants = wants.and_all(wants_of_pool(&pool.spec));
        }
        let names: Vec<&String> = match change {
            ArrayChange::Add { devices, .. } | ArrayChange::AddSpares { devices, .. } => {
                devices.iter().collect()
            }
            ArrayChange::Replace { old, new, .. } => new.iter().chain([old]).collect(),
            ArrayChange::Remove { device } => vec![device],
            ArrayChange::Start { .. } | ArrayChange::SetRebuild(_) | ArrayChange::Scrub { .. } => {
                Vec::new()
            }
        };
        names.into_iter().fold(wants, |wants, name| {
            wants.and(Object::Device(name.clone()), Mode::Changed)
        })
    }

    /// A device or pool, and all that stands on it.
    fn wants_of_all_on(&self, id: NodeId) -> Wants {
        let all = self.graph.in_order().into_iter();
        let all = all.filter(|node| self.graph.all_under(*node).contains(&id));
        all.fold(Wants::default(), |wants, node| match self.graph.get(node) {
            Some(Node::Device(device)) => wants.and_all(wants_of_device(&device.spec)),
            Some(Node::Pool(pool)) => wants.and_all(wants_of_pool(&pool.spec)),
            Some(Node::Volume(volume)) => wants.and_all(wants_of_volume(&volume.record.spec)),
            _ => wants,
        })
    }

    /// The volumes of snapshots, and one that is made of them.
    fn wants_of_snapshots(&self, change: &SnapshotChange) -> Wants {
        let volumes = change.snapshots().iter().map(|one| &one.volume);
        let wants = volumes.fold(Wants::default(), |wants, volume| {
            wants.and_all(self.wants_of_present(volume))
        });
        let (SnapshotChange::Clone(new) | SnapshotChange::Share(new)) = change else {
            return wants;
        };
        let tenants = new
            .tenant
            .iter()
            .map(|name| Object::TenantName(name.clone()));
        let wants = wants.and(Object::Volume(new.name.clone()), Mode::Changed);
        tenants.fold(wants, |wants, tenant| wants.and(tenant, Mode::Kept))
    }

    /// A volume that there is, or may be.
    fn wants_of_present(&self, name: &str) -> Wants {
        match self.volume(name) {
            Ok((_, volume)) => {
                let wants = wants_of_volume(&volume.record.spec);
                let moving = volume.record.moving.as_ref();
                let left = moving.and_then(|moving| moving.left_device()).into_iter();
                left.fold(wants, |wants, device| {
                    wants.and(Object::Device(device.to_owned()), Mode::Changed)
                })
            }
            Err(_) => Wants::change(Object::Volume(name.to_owned())),
        }
    }
}

/// A device, what it is in, and what it stands on.
pub(super) fn wants_of_device(spec: &DeviceSpec) -> Wants {
    let mut wants = Wants::change(Object::Device(spec.name.clone()));
    if let Some(path) = spec.path() {
        wants = wants.and(Object::Path(path.clone()), Mode::Changed);
    }
    for below in spec.stands_on() {
        wants = wants.and(Object::Device(below.to_owned()), Mode::Changed);
    }
    wants
}

/// A pool and the devices under it: nobody measures their writes or gives them away meanwhile.
pub(super) fn wants_of_pool(spec: &PoolSpec) -> Wants {
    let pool = Wants::change(Object::Pool(spec.name.clone()));
    let devices = spec.devices.iter();
    devices.fold(pool, |wants, device| {
        wants.and(Object::Device(device.clone()), Mode::Changed)
    })
}

/// A volume and the device that it is, or the pool that it is in, which other volumes keep as well;
/// so they do with the name of their tenant.
pub(super) fn wants_of_volume(spec: &VolumeSpec) -> Wants {
    let mut wants = Wants::change(Object::Volume(spec.name.clone()))
        .and(Object::TenantName(spec.tenant.clone()), Mode::Kept);
    if let Some(pool) = &spec.pool {
        wants = wants.and(Object::Pool(pool.clone()), Mode::Kept);
    }
    if let Some(device) = &spec.device {
        wants = wants.and(Object::Device(device.clone()), Mode::Changed);
    }
    wants
}

/// Functions, and what their tenants are called.
pub(super) fn wants_of_functions(specs: &[FunctionSpec]) -> Wants {
    specs.iter().fold(Wants::default(), |wants, spec| {
        wants
            .and(Object::Function(spec.name.clone()), Mode::Changed)
            .and(Object::TenantName(spec.tenant.clone()), Mode::Kept)
    })
}

fn tenant(name: &str) -> Wants {
    Wants::change(Object::Tenant(name.to_owned()))
}
