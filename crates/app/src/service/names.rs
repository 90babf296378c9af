//! What hosts know volumes and subsystems by, which is fixed when they are made.

use super::Fault;
use super::fault::Refused;
use crate::control::KindName;
use crate::spec::{Eui64, NamespaceUuid, Nguid, TenantSpec, VolumeSpec};
use crate::state::VolumeRecord;

/// What hosts know a volume by.
pub(super) struct VolumeNames {
    pub(super) uuid: NamespaceUuid,
    pub(super) nguid: Nguid,
    pub(super) eui64: Option<Eui64>,
}

/// What hosts know a subsystem by.
pub(super) struct TenantNames {
    pub(super) nqn: String,
    pub(super) serial: String,
    pub(super) model: String,
}

impl VolumeRecord {
    /// What hosts know it by.
    pub(super) fn names(&self) -> VolumeNames {
        VolumeNames {
            uuid: NamespaceUuid(self.uuid),
            nguid: self.nguid(),
            eui64: self.spec.eui64,
        }
    }

    /// Refuses a file that wants it to have another identity than it has.
    pub(super) fn check_same_identity(&self, spec: &VolumeSpec) -> Result<(), Fault> {
        let now = self.names();
        let differs = |key, now: &dyn std::fmt::Display| {
            Err(fixed(KindName::Volume, &spec.name, key, now.to_string()))
        };
        if spec.uuid.is_some_and(|uuid| uuid != now.uuid) {
            return differs("uuid", &now.uuid);
        }
        if spec.nguid.is_some_and(|nguid| nguid != now.nguid) {
            return differs("nguid", &now.nguid);
        }
        if spec.eui64.is_some() && spec.eui64 != now.eui64 {
            let now = now.eui64.map_or_else(|| "none".to_owned(), String::from);
            return differs("eui64", &now);
        }
        if spec.nsid.is_some_and(|nsid| nsid != self.nsid) {
            return differs("nsid", &self.nsid);
        }
        Ok(())
    }
}

impl TenantNames {
    /// A tenant's settings as a file has them, with the identity that the tenant has: the file may
    /// leave it out, and may not change it.
    pub(super) fn keep_identity(
        &self,
        spec: TenantSpec,
        present: &TenantSpec,
    ) -> Result<TenantSpec, Fault> {
        for (key, wanted, now) in [
            ("nqn", &spec.nqn, &self.nqn),
            ("serial", &spec.serial, &self.serial),
            ("model", &spec.model, &self.model),
        ] {
            if wanted.as_ref().is_some_and(|wanted| wanted != now) {
                return Err(fixed(KindName::Tenant, &spec.name, key, now.clone()));
            }
        }
        Ok(TenantSpec {
            nqn: present.nqn.clone(),
            serial: present.serial.clone(),
            model: present.model.clone(),
            ..spec
        })
    }
}

fn fixed(kind: KindName, name: &str, key: &'static str, now: String) -> Fault {
    Refused::Fixed(kind, name.to_owned(), key, now).into()
}
