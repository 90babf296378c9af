//! What hosts know volumes and subsystems by: given once, never the same twice, and what we call
//! things is another matter.

use std::sync::Arc;

use flashyard_block::pool::PoolError;
use flashyard_controller::subsystem::{MODEL, serial_number};
use flashyard_engine::ConfigError;
use flashyard_nvme::Nqn;
use flashyard_nvme::identify::ascii_text;

use super::fault::{InUse, Refused};
use super::volumes::find;
use super::work::Work;
use super::{Fault, Stack, Subject};
use crate::control::{KindName, View};
use crate::spec::{Eui64, Hex, NamespaceUuid, Nguid, TenantSpec, VolumeSpec};
use crate::state::{Phase, VolumeRecord};

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
            nguid: nguid_of(&self.spec, NamespaceUuid(self.uuid)),
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

/// The NGUID of a volume: the bytes of its UUID unless it was given another.
fn nguid_of(spec: &VolumeSpec, uuid: NamespaceUuid) -> Nguid {
    spec.nguid.unwrap_or(Hex(uuid.0.into_bytes()))
}

impl Work<'_> {
    /// What hosts know a tenant's subsystem by.
    pub(super) fn names_of(&self, spec: &TenantSpec) -> TenantNames {
        let config = self.target.config();
        let nqn = match &spec.nqn {
            Some(nqn) => nqn.clone(),
            None => format!("{}:{}", config.nqn_prefix, spec.name),
        };
        let made = || {
            let nqn = Nqn::new(&nqn).ok()?;
            let serial = serial_number(&config.target_uuid, &nqn);
            ascii_text(&serial).map(str::to_owned)
        };
        TenantNames {
            serial: spec.serial.clone().or_else(made).unwrap_or_default(),
            model: spec.model.clone().unwrap_or_else(|| MODEL.to_owned()),
            nqn,
        }
    }

    /// Refuses a new tenant whose subsystem would be called as another's.
    pub(super) fn check_nqn(&self, spec: &TenantSpec) -> Result<(), Fault> {
        let nqn = self.names_of(spec).nqn;
        let mut others = self.inventory.tenants.values();
        match others.find(|other| self.names_of(&other.spec).nqn == nqn) {
            Some(other) => Err(InUse::Nqn(spec.name.clone(), other.spec.name.clone(), nqn).into()),
            None => Ok(()),
        }
    }

    /// A tenant's settings as a file has them, with the identity that the tenant has: the file may
    /// leave it out, and may not change it.
    pub(super) fn with_identity(
        &self,
        spec: TenantSpec,
        present: &TenantSpec,
    ) -> Result<TenantSpec, Fault> {
        let now = self.names_of(present);
        for (key, wanted, now) in [
            ("nqn", &spec.nqn, &now.nqn),
            ("serial", &spec.serial, &now.serial),
            ("model", &spec.model, &now.model),
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

    /// What is in the pool and not in the inventory is nobody's: its content is not to be had by
    /// giving its UUID.
    pub(super) fn check_not_in_pool(&self, spec: &VolumeSpec) -> Result<(), Fault> {
        let (Some(pool), Some(uuid)) = (&spec.pool, spec.uuid) else {
            return Ok(());
        };
        let (core, place) = (self.pool_home(pool)?, pool.clone());
        let there = self.cores.call(core, move |state| async move {
            let pool = state.nodes.pool(&place);
            pool.and_then(|pool| find(&pool, uuid.0.into_bytes()))
                .map(|(name, _)| name)
        });
        match there {
            Some(name) => {
                let (volume, uuid) = (spec.name.clone(), uuid.to_string());
                Err(InUse::UnknownVolume(volume, pool.clone(), uuid, name).into())
            }
            None => Ok(()),
        }
    }

    /// Calls a volume otherwise: in the store first, then in its pool. A crash between them is
    /// finished at the next start, for volumes are found by their UUID.
    pub(super) fn rename_volume(&mut self, name: &str, new: &str) -> Result<View, Fault> {
        let record = self.volume(name)?.clone();
        let spec = VolumeSpec {
            name: new.to_owned(),
            ..record.spec.clone()
        };
        spec.check()?;
        if self.inventory.volumes.contains_key(new) {
            return Err(InUse::Name(KindName::Volume, new.to_owned()).into());
        }
        if record.phase != Phase::Ready {
            return Err(Refused::HalfMade(name.to_owned()).into());
        }
        let renamed = self.commit(|state, _| Ok(state.rename_volume(&record, new)?))?;
        if let Err(fault) = self.rename_in_pool(&renamed) {
            self.commit(|state, _| Ok(state.rename_volume(&renamed, name)?))?;
            return Err(fault);
        }
        self.edit(|stack| {
            stack.inventory.volumes.remove(name);
            stack.inventory.volumes.insert(new.to_owned(), renamed);
            if let Some(handle) = stack.served.remove(name) {
                stack.served.insert(new.to_owned(), handle);
            }
            stack.rename_fault(KindName::Volume, name, new);
        });
        self.view_renamed(KindName::Volume, name, new)
    }

    /// Calls a tenant otherwise. Its subsystem keeps its NQN, and with it its serial number.
    pub(super) fn rename_tenant(&mut self, name: &str, new: &str) -> Result<View, Fault> {
        let mut record = self.tenant(name)?.clone();
        record.spec.nqn = Some(self.names_of(&record.spec).nqn);
        new.clone_into(&mut record.spec.name);
        record.spec.check()?;
        if self.inventory.tenants.contains_key(new) {
            return Err(InUse::Name(KindName::Tenant, new.to_owned()).into());
        }
        let target = Arc::clone(self.target);
        let renamed = self.commit(|state, stack| {
            state.rename_tenant(name, &record.spec)?;
            stack.inventory.tenants.remove(name);
            stack.inventory.tenants.insert(new.to_owned(), record);
            for volume in stack.inventory.volumes.values_mut() {
                if volume.spec.tenant == name {
                    new.clone_into(&mut volume.spec.tenant);
                }
            }
            stack.rename_fault(KindName::Tenant, name, new);
            // Before anybody else sees the new name.
            Ok(target.rename_tenant(name, new))
        })?;
        match renamed {
            // One that the engine refused at the start is not there.
            Ok(()) | Err(ConfigError::NoSuchTenant) => {}
            Err(error) => return Err(error.into()),
        }
        self.view_renamed(KindName::Tenant, name, new)
    }

    /// Makes the pool call a volume as the store does.
    pub(super) fn rename_in_pool(&self, record: &VolumeRecord) -> Result<(), Fault> {
        let Some(place) = record.spec.pool.clone() else {
            return Ok(());
        };
        let core = self.pool_home(&place)?;
        let (new, uuid) = (record.spec.name.clone(), record.uuid.into_bytes());
        let renamed = self.cores.call(core, move |state| async move {
            let pool = state.nodes.pool(&place);
            let pool = pool.ok_or(PoolError::NotAPool)?;
            match find(&pool, uuid) {
                Some((name, _)) if name != new => pool.rename(&name, &new).await,
                // A volume that is not in its pool is told where it is served.
                _ => Ok(()),
            }
        });
        renamed.map_err(Fault::from)
    }

    fn view_renamed(&self, kind: KindName, name: &str, new: &str) -> Result<View, Fault> {
        let view = self.view_one(kind, new)?;
        let kind = kind.name();
        Ok(view.with_note(format!(
            "a configuration file that says {kind} `{name}` would make another one: say `{new}` there as well"
        )))
    }
}

impl Stack {
    /// Refuses a new volume that hosts would take for another one.
    pub(super) fn check_new_identity(&self, spec: &VolumeSpec) -> Result<(), Fault> {
        let taken = |key, value: String, other: &VolumeRecord| {
            let other = other.spec.name.clone();
            Err(InUse::Identity(spec.name.clone(), key, value, other).into())
        };
        for other in self.inventory.volumes.values() {
            let names = other.names();
            if spec.uuid == Some(names.uuid) {
                return taken("uuid", names.uuid.to_string(), other);
            }
            let nguid = spec.uuid.map(|uuid| nguid_of(spec, uuid)).or(spec.nguid);
            if nguid == Some(names.nguid) {
                return taken("nguid", names.nguid.to_string(), other);
            }
            if let (Some(own), Some(eui64)) = (spec.eui64, names.eui64)
                && own == eui64
            {
                return taken("eui64", eui64.to_string(), other);
            }
            if spec.nsid == Some(other.nsid) && spec.tenant == other.spec.tenant {
                return taken("nsid", other.nsid.to_string(), other);
            }
        }
        Ok(())
    }

    fn rename_fault(&mut self, kind: KindName, name: &str, new: &str) {
        let subject = |name: &str| match kind {
            KindName::Tenant => Subject::Tenant(name.to_owned()),
            KindName::Volume => Subject::Volume(name.to_owned()),
            KindName::Pool => Subject::Pool(name.to_owned()),
            KindName::Device | KindName::Partition => Subject::Device(name.to_owned()),
        };
        if let Some(fault) = self.faults.remove(&subject(name)) {
            self.faults.insert(subject(new), fault);
        }
    }
}

fn fixed(kind: KindName, name: &str, key: &'static str, now: String) -> Fault {
    Refused::Fixed(kind, name.to_owned(), key, now).into()
}
