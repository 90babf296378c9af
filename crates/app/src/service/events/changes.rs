//! Whether a request changes something, and what one that was carried out has changed, in words.

use crate::control::{HealthAsk, KindName, Request, SnapshotChange};
use crate::spec::FunctionSpec;

impl Request {
    /// Whether it may change something.
    pub(in crate::service) fn changes(&self) -> bool {
        !matches!(
            self,
            Self::Status(_)
                | Self::Health(HealthAsk::Show)
                | Self::Metrics(_)
                | Self::Traffic(_)
                | Self::Activity(_)
                | Self::Events(_)
                | Self::Audit(_)
                | Self::ShowTarget
                | Self::List(..)
                | Self::Show(..)
                | Self::Why { .. }
                | Self::AskSnapshots(_)
                | Self::Export
                | Self::Backup(_)
        )
    }

    /// What it changes, and how; nothing of what only looks.
    pub fn told(&self) -> Option<(String, String)> {
        let of = |kind: KindName, name: &str| format!("{} {name}", kind.name());
        let tenant = |name: &str| of(KindName::Tenant, name);
        let volume = |name: &str| of(KindName::Volume, name);
        let device = |name: &str| of(KindName::Device, name);
        let pool = |name: &str| of(KindName::Pool, name);
        let (what, done) = match self {
            Self::SetTarget(_) => ("target".to_owned(), "changed".to_owned()),
            Self::CreateDevice(spec) | Self::CreateDeviceOver(spec) => {
                (device(&spec.name), "created".to_owned())
            }
            Self::Rekey { name, .. } => (device(name), "has another key".to_owned()),
            Self::RekeyPool(name, _) => (pool(name), "has another key".to_owned()),
            Self::EraseKey(name) => (device(name), "deleted, and its key forgotten".to_owned()),
            Self::StartDevice(name) => (device(name), "opened".to_owned()),
            Self::GrowPool(name) => (pool(name), "grown".to_owned()),
            Self::SetPool { name, .. } => (pool(name), "changed".to_owned()),
            Self::ErasePool(name) => (pool(name), "deleted, and its keys forgotten".to_owned()),
            Self::CreateArray { of, .. } => (device(&of.device.name), "created".to_owned()),
            Self::ChangeArray { name, .. } => (pool(name), "its array was changed".to_owned()),
            Self::CreatePool { spec, .. } => (pool(&spec.name), "created".to_owned()),
            Self::ImportPool { spec, list, .. } if !list => {
                (pool(&spec.name), "imported".to_owned())
            }
            Self::ImportPartitions {
                device: name, list, ..
            } if !list => (device(name), "its partitions were imported".to_owned()),
            Self::ImportVolume(spec) => (volume(&spec.name), "imported".to_owned()),
            Self::CreateTenant { spec, .. } => (tenant(&spec.name), "created".to_owned()),
            Self::CreateVolume { spec, .. } => (
                volume(&spec.name),
                format!("created for tenant {}", spec.tenant),
            ),
            Self::CreateFunctions(specs) => {
                let names: Vec<&str> = specs
                    .iter()
                    .map(|spec: &FunctionSpec| &*spec.name)
                    .collect();
                (
                    of(KindName::Function, &names.join(", ")),
                    "created".to_owned(),
                )
            }
            Self::SetFunction { name, .. } => (of(KindName::Function, name), "changed".to_owned()),
            Self::DeleteFunction { name, .. } => {
                (of(KindName::Function, name), "deleted".to_owned())
            }
            Self::SetTenant { name, .. } => (tenant(name), "changed".to_owned()),
            Self::SetDevice { name, .. } => (device(name), "has another policy".to_owned()),
            Self::SetFaults { name, .. } => (device(name), "injects other faults".to_owned()),
            Self::Calibrate { device: name, .. } => (device(name), "was measured".to_owned()),
            Self::GrowPartition { name, .. } => (of(KindName::Partition, name), "grew".to_owned()),
            Self::DeletePartition { name, .. } => {
                (of(KindName::Partition, name), "deleted".to_owned())
            }
            Self::SetVolume { name, .. } => (volume(name), "changed".to_owned()),
            Self::RenameVolume { name, new } => (volume(name), format!("is called {new} now")),
            Self::RenameTenant { name, new } => (tenant(name), format!("is called {new} now")),
            Self::MoveVolume { name, tenant, .. } => {
                (volume(name), format!("given to tenant {tenant}"))
            }
            Self::MigrateVolume {
                name,
                to,
                background,
                ..
            } => {
                let done = if *background { "goes" } else { "has gone" };
                (volume(name), format!("{done} to {to}"))
            }
            Self::CancelMigration(name) => (volume(name), "stays where it is".to_owned()),
            Self::ChangeSnapshot(change) => snapshots(change),
            Self::Delete(kind, name) => (of(*kind, name), "deleted".to_owned()),
            Self::Apply { how, .. } if !how.plan => (
                "target".to_owned(),
                "a configuration file was applied".to_owned(),
            ),
            Self::Health(HealthAsk::Mute(code, seconds)) => {
                (code.to_string(), format!("does not count for {seconds} s"))
            }
            Self::Health(HealthAsk::Unmute(code)) => (code.to_string(), "counts again".to_owned()),
            _ => return None,
        };
        Some((what, done))
    }
}

fn snapshots(change: &SnapshotChange) -> (String, String) {
    match change {
        SnapshotChange::Create(names) => {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            (
                format!("snapshot {}", names.join(", ")),
                "created".to_owned(),
            )
        }
        SnapshotChange::Delete(name) => (format!("snapshot {name}"), "deleted".to_owned()),
        SnapshotChange::Restore(name) => (
            format!("volume {}", name.volume),
            format!("is what it was in snapshot {name}"),
        ),
        SnapshotChange::Clone(new) => (
            format!("volume {}", new.name),
            format!("made of snapshot {}", new.of),
        ),
        SnapshotChange::Share(new) => (
            format!("volume {}", new.name),
            format!("shows snapshot {}", new.of),
        ),
    }
}
