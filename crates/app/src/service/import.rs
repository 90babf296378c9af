//! Pools that are on a device while the state does not know them: its directory was lost, or
//! another target made them. The pool's metadata have names, UUIDs and sizes. Whose the volumes
//! were, and under which number, a mapped pool keeps; of a raw one whoever imports says it.
//!
//! An imported volume counts as created with `content = "keep"`: cut off, it is finished at the
//! next start, and whatever fails, the pool keeps it.

use std::collections::BTreeMap;

use flashyard_block::array::ArrayError;
use flashyard_block::pool::{Pool, PoolError, PoolInfo, VolumeInfo};
use uuid::Uuid;

use super::devices::{close_pool, open_with};
use super::fault::{InUse, NotFound, Refused, Rest, ToImport, Unavailable};
use super::migration::clear_copies;
use super::partitions::cut_of;
use super::plan::Step;
use super::work::Work;
use super::{Checked, Fault, Stack, no_such};
use crate::control::{ArrayHow, ImportView, ImportedVolume, KindName, View};
use crate::graph::{self, Identity, NodeId};
use crate::nodes::Node;
use crate::out::note;
use crate::spec::{
    CALIBRATION_UUID, CompressionName, ContentName, Hex, NamespaceUuid, PoolSpec, Section, Size,
    VolumeKind, VolumeSpec, is_copy_uuid,
};
use crate::state::Kind;
use crate::units;

impl Work<'_> {
    /// What a pool on a device has, whether the state knows it or not. Changes nothing.
    pub(super) fn view_import(&self, spec: &PoolSpec) -> Result<View, Fault> {
        let (device, _) = self.device(spec.device())?;
        let (info, volumes) = self.pool_on(device)?;
        let notes = volumes.iter().filter_map(|it| self.owner_note(it));
        let mut notes: Vec<String> = notes.collect();
        if info.encrypted {
            let note =
                "the pool is encrypted: whoever imports it gives its key or passphrase with --key";
            notes.push(note.to_owned());
        }
        Ok(self.shown(spec, &info, &volumes, notes))
    }

    /// Whose a volume was that the state does not know, as far as its pool keeps that.
    fn owner_note(&self, volume: &VolumeInfo) -> Option<String> {
        let owner = volume.owner.as_ref()?;
        self.owner_of(volume.uuid).is_none().then(|| {
            format!(
                "volume {} was tenant `{}`'s, with nsid {}",
                volume.name, owner.tenant, owner.nsid
            )
        })
    }

    /// Makes a pool known, and gives its volumes to a tenant if one is named, or each to the tenant
    /// whose it was if that is there: all of it, or none.
    pub(super) fn import_pool(
        &mut self,
        spec: &PoolSpec,
        tenant: Option<&str>,
    ) -> Result<View, Fault> {
        if let Some(tenant) = tenant {
            self.tenant(tenant)?;
        }
        self.check_name_in_file(spec)?;
        let follow = self.followers(std::slice::from_ref(&spec.name), &[]);
        let (info, volumes) = self.take_pool(spec)?;
        let mut notes = self.import_followers(follow);
        self.give_unknown(&spec.name, &volumes, tenant)?;
        // Those whose tenant is not there.
        notes.extend(volumes.iter().filter_map(|it| self.owner_note(it)));
        Ok(self.shown(spec, &info, &volumes, notes))
    }

    /// Gives a tenant the volumes of a pool that neither the target knows nor its file names: whose
    /// those are the file says. Without a tenant each goes to the one that the pool says, if it is
    /// there. If that fails the pool is forgotten, unless it has volumes.
    fn give_unknown(
        &mut self,
        pool: &str,
        volumes: &[VolumeInfo],
        tenant: Option<&str>,
    ) -> Result<(), Fault> {
        let waiting = self.waiting_volumes(pool);
        let is_waiting = |it: &VolumeInfo| waiting.iter().any(|spec| names(spec, it));
        let unknown = |it: &&VolumeInfo| self.owner_of(it.uuid).is_none() && !is_waiting(it);
        let unknown = volumes.iter().filter(unknown);
        let specs = unknown.filter_map(|it| {
            let owner = it.owner.as_ref().map(|owner| owner.tenant.as_str());
            let owner = owner.filter(|owner| self.tenant(owner).is_ok());
            Some(imported(it, pool, tenant.or(owner)?))
        });
        let specs: Vec<VolumeSpec> = specs.collect();
        if specs.is_empty() {
            return Ok(());
        }
        // Data come back whatever their tenant was promised: that is shown as for a start.
        let Err(fault) = self.create_volumes(specs, Checked::Forced) else {
            return Ok(());
        };
        let (id, _) = self.pool(pool)?;
        if self.graph.user_of(id).is_none() && self.forget_pool(pool).is_ok() {
            return Err(fault);
        }
        let what = match tenant {
            Some(tenant) => format!("give the volumes of pool {pool} to tenant {tenant}"),
            None => format!("give the volumes of pool {pool} to their tenants"),
        };
        Err(Fault::Step(what, Box::new(fault), Rest::PoolStays))
    }

    /// Gives a volume that is in a pool, and that the state does not know, to a tenant.
    pub(super) fn import_volume(&mut self, mut spec: VolumeSpec) -> Result<View, Fault> {
        let name = spec.name.clone();
        if !self.find_in_pool(&mut spec)? {
            let place = spec.pool.unwrap_or_default();
            return Err(NotFound::ToImport(name, place).into());
        }
        // Pools that keep whose a volume was know it, for that tenant.
        let known = spec.nsid.is_some();
        self.create_volumes(vec![spec], Checked::Forced)?;
        let view = self.view_one(KindName::Volume, &name)?;
        let View::Volume(volume) = &view else {
            return Ok(view);
        };
        let mut note = format!(
            "tenant `{}` reads all that is in it; its nsid is {}",
            volume.tenant, volume.nsid
        );
        if !known {
            note += ", which the pool does not know: if hosts had another, move it to another tenant and back with --nsid";
        }
        Ok(view.with_note(note))
    }

    /// Makes a volume of a file one that gets its device as it is, if data may be there of which
    /// this target knows nothing; says so then.
    fn keep_whole(&self, spec: &mut VolumeSpec) -> Result<Option<String>, Fault> {
        let Some(name) = &spec.device else {
            return Ok(None);
        };
        let (device, _) = self.device(name)?;
        if self.is_disposable(device) {
            return Ok(None);
        }
        if spec.content == Some(ContentName::Erase) {
            return Err(Refused::ErasesImport(spec.name.clone(), name.clone()).into());
        }
        spec.content = Some(ContentName::Keep);
        Ok(Some(format!(
            "volume {} has device {name} as it was: tenant {} reads all that is on it",
            spec.name, spec.tenant
        )))
    }

    /// Makes a volume of a file one that is imported, if its pool has it: by its UUID, or by its
    /// name where the file says none.
    pub(super) fn find_in_pool(&self, spec: &mut VolumeSpec) -> Result<bool, Fault> {
        let Some(pool) = &spec.pool else {
            return Ok(false);
        };
        let device = self.graph.device_under(self.pool_home(pool)?.0);
        let device = device.ok_or_else(|| no_such(KindName::Pool, pool))?;
        let (_, volumes) = self.pool_on(device)?;
        let mut volumes = volumes.into_iter();
        let found = volumes.find(|it| names(spec, it));
        let Some(found) = found else {
            return Ok(false);
        };
        if let Some(owner) = self.owner_of(found.uuid) {
            return Err(InUse::Imported(spec.name.clone(), owner).into());
        }
        let block = u64::from(self.graph.device(device).map_or(1, |it| it.spec.block_size));
        // It may have grown since the file was written.
        if let Some(size) = spec
            .size
            .filter(|size| size.0.next_multiple_of(block) > found.bytes)
        {
            let (is, said) = (units::size(found.bytes), units::size(size.0));
            let (name, key) = (spec.name.clone(), "size".to_owned());
            return Err(Refused::Differs(Section::Volume, name, key, is, said).into());
        }
        let as_found = imported(&found, pool, &spec.tenant);
        spec.nguid = spec.nguid.or(as_found.nguid);
        spec.eui64 = spec.eui64.or(as_found.eui64);
        spec.nsid = spec.nsid.or(as_found.nsid);
        spec.uuid = as_found.uuid;
        spec.size = Some(Size(found.bytes));
        spec.content = Some(ContentName::Keep);
        Ok(true)
    }

    /// A step of a file, for which pools and volumes that are on devices are taken over, and only
    /// what is not there is made. Gives a note for each that was found.
    pub(super) fn carry_out_importing(
        &mut self,
        step: Step,
        checked: Checked,
    ) -> Result<Vec<String>, Fault> {
        match step {
            Step::CreateDevice(spec) if spec.partition().is_some() => {
                let (name, device) = (&spec.name, cut_of(&spec)?.device.clone());
                if self.take_partition(&spec)? {
                    return Ok(vec![format!(
                        "partition {name} was on device {device} and is imported"
                    )]);
                }
                self.carry_out(Step::CreateDevice(spec), checked)?;
                Ok(Vec::new())
            }
            Step::CreateDevice(spec) if spec.array().is_some() => {
                let name = spec.name.clone();
                let import = ArrayHow {
                    import: true,
                    ..ArrayHow::default()
                };
                match self.put_array(spec.clone(), import) {
                    Err(Fault::Unavailable(Unavailable::Array(ArrayError::NoMember(_)))) => {
                        self.carry_out(Step::CreateDevice(spec), checked)?;
                        Ok(Vec::new())
                    }
                    Err(fault) => Err(fault),
                    Ok(mut notes) => {
                        notes.insert(
                            0,
                            format!("array {name} was on its devices and is imported"),
                        );
                        Ok(notes)
                    }
                }
            }
            Step::CreatePool(spec) => match self.take_pool(&spec) {
                Err(Fault::Unavailable(Unavailable::NotImported(_, PoolError::NotAPool))) => {
                    self.create_pool(spec, false)?;
                    Ok(Vec::new())
                }
                Err(fault) => Err(fault),
                Ok(_) => Ok(vec![format!(
                    "pool {} was on device {} and is imported",
                    spec.name,
                    spec.device()
                )]),
            },
            Step::CreateVolumes(specs) => self.import_or_create(specs, checked),
            step => self.carry_out(step, checked).map(|()| Vec::new()),
        }
    }

    /// Volumes of a file: those that their pools have are taken over, the others made.
    fn import_or_create(
        &mut self,
        mut specs: Vec<VolumeSpec>,
        checked: Checked,
    ) -> Result<Vec<String>, Fault> {
        let mut notes = Vec::new();
        for spec in &mut specs {
            notes.extend(self.keep_whole(spec)?);
            if self.find_in_pool(spec)? {
                let (name, pool) = (&spec.name, spec.pool.as_deref().unwrap_or_default());
                notes.push(format!(
                    "volume {name} was in pool {pool}: tenant {} reads all that is in it",
                    spec.tenant
                ));
            }
        }
        self.create_volumes(specs, checked)?;
        Ok(notes)
    }

    /// Forgets a pool and leaves it on its device.
    pub(super) fn forget_pool(&mut self, name: &str) -> Result<(), Fault> {
        let (id, _) = self.pool(name)?;
        self.check_unused(id)?;
        if let Some(device) = self.graph.device_under(id)
            && let Ok(core) = self.home_of(device)
        {
            let cores = self.cores;
            cores.call(core, move |core| async move {
                close_pool(core.nodes.remove(id)).await;
            });
        }
        self.commit(|state, stack| {
            stack.check_unused(id)?;
            state.remove(Kind::Pool, name)?;
            Ok(move |stack: &mut Stack| stack.forget(id))
        })
    }

    /// Makes the pool on a device known under a name.
    fn take_pool(&mut self, spec: &PoolSpec) -> Result<(PoolInfo, Vec<VolumeInfo>), Fault> {
        let device = self.check_new_pool(spec)?;
        let core = self.home_of(device)?;
        let (info, volumes) = self.pool_on(device)?;
        let kind = VolumeKind::found(info.kind);
        if spec.kind.is_some() && VolumeKind::of_pool(spec.kind) != info.kind {
            let (name, key) = (spec.name.clone(), "kind".to_owned());
            let said = VolumeKind::of_pool(spec.kind).to_string();
            let is = info.kind.to_string();
            return Err(Refused::Differs(Section::Pool, name, key, is, said).into());
        }
        let spec = &PoolSpec {
            kind,
            ..spec.clone().normal()
        };
        let uuid = Uuid::from_bytes(info.uuid);
        if spec.key.is_some() && !info.encrypted {
            return Err(PoolError::NotEncrypted.into());
        }
        let key = self.pool_key(spec, device, Some(info.uuid))?;
        let id = self.reserve();
        let opened = self.cores.call(core, move |state| async move {
            let device = state.nodes.device(device).ok_or(PoolError::NotAPool)?;
            let pool = open_with(&state.rt, device, key).await?;
            state.nodes.add(id, Node::Pool(pool));
            Ok::<(), PoolError>(())
        });
        opened?;
        let noted = self.commit(|state, stack| {
            stack.check_other_pool(spec, uuid)?;
            let record = state.put_pool(spec, uuid)?;
            Ok(move |stack: &mut Stack| stack.graph.add(id, graph::Node::Pool(record)))
        });
        if let Err(fault) = noted {
            let cores = self.cores;
            cores.call(core, move |state| async move {
                close_pool(state.nodes.remove(id)).await;
            });
            return Err(fault);
        }
        // Copies that were no volumes, of moves that nothing is known of any more.
        let copies = self.known_copies();
        let cleared = self.cores.call(core, move |state| async move {
            let pool = state.nodes.pool(id).ok_or(PoolError::NotAPool)?;
            clear_copies(&pool, &copies).await
        });
        if let Err(error) = cleared {
            note(format_args!(
                "a copy in pool {} is not deleted: {error}",
                spec.name
            ));
        }
        Ok((info, volumes))
    }

    /// What the pool on an open device is, and has.
    pub(super) fn pool_on(&self, device: NodeId) -> Result<(PoolInfo, Vec<VolumeInfo>), Fault> {
        let core = self.home_of(device)?;
        self.check_blocks(device)?;
        let pools = self.graph.all(Kind::Pool);
        let known = pools
            .into_iter()
            .find(|id| self.graph.device_under(*id) == Some(device));
        let found = self.cores.call(core, move |state| async move {
            let open = known.and_then(|id| state.nodes.pool(id));
            let (info, mut volumes) = match open {
                Some(pool) => (pool.info(), pool.list()),
                None => {
                    let device = state.nodes.device(device).ok_or(PoolError::NotAPool)?;
                    Pool::look(&state.rt, device).await?
                }
            };
            volumes.retain(|volume| {
                volume.uuid != CALIBRATION_UUID.into_bytes() && !is_copy_uuid(&volume.uuid)
            });
            Ok::<_, PoolError>((info, volumes))
        });
        found.map_err(|error| {
            let device = self.graph.name(device).to_owned();
            Unavailable::NotImported(device, error).into()
        })
    }

    fn shown(
        &self,
        spec: &PoolSpec,
        info: &PoolInfo,
        volumes: &[VolumeInfo],
        notes: Vec<String>,
    ) -> View {
        let by_uuid: BTreeMap<_, _> = self
            .graph
            .all(Kind::Volume)
            .filter_map(|id| Some((self.graph.volume(id)?.record.uuid.into_bytes(), id)))
            .collect();
        let volumes = volumes.iter().map(|it| {
            let id = by_uuid.get(&it.uuid).copied();
            let record = id.and_then(|id| Some(&self.graph.volume(id)?.record));
            ImportedVolume {
                name: it.name.clone(),
                size: Size(it.bytes),
                uuid: NamespaceUuid(Uuid::from_bytes(it.uuid)),
                tenant: record.map(|record| record.spec.tenant.clone()),
                nsid: record.map(|record| record.nsid),
            }
        });
        let pools = self.graph.all(Kind::Pool);
        let known = pools.filter_map(|id| self.graph.pool(id));
        let uuid = Uuid::from_bytes(info.uuid);
        let known = known.filter(|record| record.uuid == uuid);
        View::Import(ImportView {
            pool: known.map(|record| record.spec.name.clone()).next(),
            devices: spec.devices.clone(),
            uuid: uuid.to_string(),
            size: info.bytes,
            free: info.free,
            volumes: volumes.collect(),
            notes,
        })
    }

    /// What the volume of a UUID is called here, and whose it is.
    fn owner_of(&self, uuid: [u8; 16]) -> Option<(String, String)> {
        let known = self
            .graph
            .known_by(&Identity::Uuid(Uuid::from_bytes(uuid)))?;
        let spec = &self.graph.volume(known)?.record.spec;
        Some((spec.name.clone(), spec.tenant.clone()))
    }
}

impl Stack {
    /// Refuses to import a pool that the file names under another name, or from another device:
    /// what the file says to be in it would not follow, and nothing renames a pool.
    fn check_name_in_file(&self, spec: &PoolSpec) -> Result<(), Fault> {
        for (_, _, fault) in self.faults_to_import() {
            if let Fault::Unavailable(Unavailable::ToImport(ToImport::Pool(name, device))) = fault
                && (name == spec.name) != (device == spec.device())
            {
                return Err(Refused::OtherInFile(name, device).into());
            }
        }
        Ok(())
    }

    /// The volumes of a pool that the file names and that wait to be imported.
    fn waiting_volumes(&self, pool: &str) -> Vec<VolumeSpec> {
        let waiting = self.faults_to_import().into_iter();
        let volumes = waiting.filter_map(|(_, _, fault)| match fault {
            Fault::Unavailable(Unavailable::ToImport(ToImport::Volume(spec, of))) => {
                (of == pool).then_some(*spec)
            }
            _ => None,
        });
        volumes.collect()
    }

    /// Refuses a second pool of a UUID: it is a copy of the device, and both have the same volumes.
    fn check_other_pool(&self, spec: &PoolSpec, uuid: Uuid) -> Result<(), Fault> {
        let pools = self.graph.all(Kind::Pool);
        let mut pools = pools.filter_map(|id| self.graph.pool(id));
        match pools.find(|record| record.uuid == uuid) {
            Some(other) => {
                let (device, other) = (spec.device().to_owned(), other.spec.name.clone());
                Err(InUse::SamePool(device, other, uuid).into())
            }
            None => Ok(()),
        }
    }
}

/// Whether a volume of a file is this one of its pool: by its UUID, or by its name where the file
/// says none.
fn names(spec: &VolumeSpec, volume: &VolumeInfo) -> bool {
    match spec.uuid {
        Some(uuid) => uuid.0.into_bytes() == volume.uuid,
        None => spec.name == volume.name,
    }
}

/// A volume of a pool, as it is given to a tenant: hosts know it by what they knew it by, as far as
/// the pool keeps that.
fn imported(volume: &VolumeInfo, pool: &str, tenant: &str) -> VolumeSpec {
    let owner = volume.owner.as_ref();
    let nguid = owner.map(|owner| owner.nguid);
    let nsid = owner.filter(|owner| owner.tenant == tenant);
    VolumeSpec {
        name: volume.name.clone(),
        pool: Some(pool.to_owned()),
        device: None,
        kind: None,
        compression: CompressionName::found(volume.form.compression),
        chunk: VolumeSpec::normal_chunk(Some(Size(volume.form.chunk.into()))),
        size: Some(Size(volume.bytes)),
        reserve: (volume.reserved > 0).then_some(Size(volume.reserved)),
        tenant: tenant.to_owned(),
        uuid: Some(NamespaceUuid(Uuid::from_bytes(volume.uuid))),
        nguid: nguid.filter(|nguid| *nguid != volume.uuid).map(Hex),
        eui64: owner.and_then(|owner| owner.eui64).map(Hex),
        nsid: nsid.map(|owner| owner.nsid),
        read_only: None,
        content: Some(ContentName::Keep),
    }
}
