//! What hosts know volumes and subsystems by: given once, never the same twice, and what we call
//! things is another matter.

use std::sync::Arc;

use flashyard_controller::subsystem::{MODEL, serial_number};
use flashyard_engine::ConfigError;
use flashyard_nvme::Nqn;
use flashyard_nvme::identify::ascii_text;

use super::fault::{InUse, Refused};
use super::names::TenantNames;
use super::work::Work;
use super::{Fault, Stack};
use crate::control::{KindName, View};
use crate::graph::{Identity, NodeId};
use crate::spec::{Hex, Section, TenantSpec, VolumeSpec};
use crate::state::{Kind, Phase};

impl Work<'_> {
    /// What hosts know a tenant's subsystem by.
    pub(super) fn names_of(&self, spec: &TenantSpec) -> TenantNames {
        let (config, nqn) = (self.target.config(), self.nqn_of(spec));
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

    /// What a tenant's subsystem is called.
    pub(super) fn nqn_of(&self, spec: &TenantSpec) -> String {
        let made = || format!("{}:{}", self.settings.prefix(), spec.name);
        spec.nqn.clone().unwrap_or_else(made)
    }

    /// A tenant whose subsystem has its NQN for good, whatever prefix is set later.
    pub(super) fn with_nqn(&self, spec: TenantSpec) -> TenantSpec {
        TenantSpec {
            nqn: Some(self.nqn_of(&spec)),
            ..spec
        }
    }

    /// Refuses a new tenant whose subsystem would be called as another's.
    pub(super) fn check_nqn(&self, spec: &TenantSpec) -> Result<(), Fault> {
        let nqn = self.nqn_of(spec);
        match self.graph.known_by(&Identity::Nqn(nqn.clone())) {
            Some(other) => {
                let other = self.graph.name(other).to_owned();
                Err(InUse::Nqn(spec.name.clone(), other, nqn).into())
            }
            None => Ok(()),
        }
    }

    /// What is in the pool and not in the inventory has no owner: its content is not to be had by
    /// giving its UUID.
    pub(super) fn check_not_in_pool(&self, spec: &VolumeSpec) -> Result<(), Fault> {
        let (Some(pool), Some(uuid)) = (&spec.pool, spec.uuid) else {
            return Ok(());
        };
        let (place, core) = self.pool_home(pool)?;
        let there = self.cores.call(core, move |state| async move {
            let pool = state.nodes.pool(place)?;
            pool.find(uuid.0.into_bytes()).map(|(name, _)| name)
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
        let (id, volume) = self.volume(name)?;
        let spec = VolumeSpec {
            name: new.to_owned(),
            ..volume.record.spec.clone()
        };
        spec.check()?;
        if self.graph.find(Kind::Volume, new).is_some() {
            return Err(InUse::Name(KindName::Volume, new.to_owned()).into());
        }
        if volume.record.phase != Phase::Ready {
            return Err(Refused::HalfMade(name.to_owned()).into());
        }
        self.call_volume(id, new)?;
        if let Err(fault) = self.rename_in_pool(id) {
            self.call_volume(id, name)?;
            return Err(fault);
        }
        self.view_renamed(KindName::Volume, name, new)
    }

    fn call_volume(&mut self, id: NodeId, name: &str) -> Result<(), Fault> {
        self.commit(|state, stack| {
            let before = stack.record(id)?;
            let renamed = state.rename_volume(&before, name)?;
            Ok(move |stack: &mut Stack| {
                stack.rename_in_file(Section::Volume, &before.spec.name, name);
                stack.set_record(id, renamed);
            })
        })
    }

    /// Calls a tenant otherwise. Its subsystem keeps its NQN, and with it its serial number.
    pub(super) fn rename_tenant(&mut self, name: &str, new: &str) -> Result<View, Fault> {
        let (id, record) = self.tenant(name)?;
        let mut record = record.clone();
        record.spec = self.with_nqn(record.spec);
        new.clone_into(&mut record.spec.name);
        record.spec.check()?;
        if self.graph.find(Kind::Tenant, new).is_some() {
            return Err(InUse::Name(KindName::Tenant, new.to_owned()).into());
        }
        let target = Arc::clone(self.target);
        let renamed = self.commit(|state, _| {
            state.rename_tenant(name, &record.spec)?;
            Ok(|stack: &mut Stack| {
                stack.rename_in_file(Section::Tenant, name, new);
                stack.graph.change_tenant(id, record);
                // Before anybody else sees the new name.
                target.rename_tenant(name, new)
            })
        })?;
        match renamed {
            // One that the engine refused at the start is not there.
            Ok(()) | Err(ConfigError::NoSuchTenant) => {}
            Err(error) => return Err(error.into()),
        }
        let volumes: Vec<NodeId> = self.graph.volumes_on(id).map(|(it, _)| it).collect();
        for volume in volumes {
            // What fails here is done at the next start.
            let _ = self.keep_owner(volume);
        }
        self.view_renamed(KindName::Tenant, name, new)
    }

    /// Makes the pool call a volume as the store does.
    pub(super) fn rename_in_pool(&self, id: NodeId) -> Result<(), Fault> {
        if self.record(id)?.spec.is_snapshot() {
            return Ok(());
        }
        let renamed = self.in_pool(id, |pool, record| async move {
            let new = record.spec.name;
            match pool.find(record.uuid.into_bytes()) {
                Some((name, _)) if name != new => pool.rename(&name, &new).await,
                // A volume that is not in its pool is reported where it is served.
                _ => Ok(()),
            }
        });
        renamed.map(drop)
    }

    fn view_renamed(&self, kind: KindName, name: &str, new: &str) -> Result<View, Fault> {
        let view = self.view_one(kind, new)?;
        let kind = kind.name();
        Ok(view.with_note(format!(
            "a configuration file has to say {kind} `{new}` from now on: one that says `{name}` is refused, or makes another one"
        )))
    }
}

impl Stack {
    /// As the store does it.
    fn rename_in_file(&mut self, section: Section, name: &str, new: &str) {
        Arc::make_mut(&mut self.applied).rename(section, name, new);
    }

    /// Refuses a new volume that hosts would take for another one.
    pub(super) fn check_new_identity(
        &self,
        spec: &VolumeSpec,
        tenant: NodeId,
    ) -> Result<(), Fault> {
        let made = spec.uuid.map(|uuid| Hex(uuid.0.into_bytes()));
        let nguid = spec.nguid.or(made);
        let known = [
            spec.uuid
                .map(|uuid| ("uuid", uuid.to_string(), Identity::Uuid(uuid.0))),
            nguid.map(|nguid| ("nguid", nguid.to_string(), Identity::Nguid(nguid))),
            spec.eui64
                .map(|eui64| ("eui64", eui64.to_string(), Identity::Eui64(eui64))),
            spec.nsid
                .map(|nsid| ("nsid", nsid.to_string(), Identity::Nsid(tenant, nsid))),
        ];
        for (key, value, identity) in known.into_iter().flatten() {
            if let Some(other) = self.graph.known_by(&identity) {
                let other = self.graph.name(other).to_owned();
                return Err(InUse::Identity(spec.name.clone(), key, value, other).into());
            }
        }
        Ok(())
    }
}
