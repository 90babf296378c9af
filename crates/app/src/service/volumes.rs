//! Volumes: cutting them from pools, attaching them to their tenants' subsystems, growing and
//! deleting them, and finishing at start what a crash has cut.

use std::cmp::Ordering;
use std::sync::Arc;

use flashyard_block::SharedDevice;
use flashyard_block::pool::{Pool, PoolError};
use flashyard_engine::{ConfigError, DeviceHandle, NamespaceSpec};

use super::fault::{InUse, Invalid, Unavailable};
use super::handover::Cleared;
use super::work::Work;
use super::{Checked, Fault, Stack, Subject, no_such};
use crate::control::{KindName, View, VolumeChange};
use crate::spec::{Size, VolumeSpec};
use crate::state::{Kind, Phase, VolumeRecord};

impl Work<'_> {
    pub(super) fn open_volumes(&mut self) {
        for record in self.inventory.volumes.clone().into_values() {
            let name = record.spec.name.clone();
            let opened = match record.phase {
                Phase::Ready => {
                    // Where a crash has cut a rename. It can wait: the volume is found by its UUID.
                    let _ = self.rename_in_pool(&record);
                    self.remake_forgotten(&record)
                        .and_then(|()| self.finish_growing(&record))
                        .and_then(|()| self.clear_more(&record))
                        .and_then(|cleared| self.serve_volume(&record, cleared))
                }
                Phase::Creating => self.finish_creating(&record).map(drop),
                Phase::Deleting => self.finish_deleting(&record),
            };
            if let Err(fault) = opened {
                self.note_fault(Subject::Volume(name), fault);
            }
        }
    }

    pub(super) fn create_volume(&mut self, spec: VolumeSpec) -> Result<View, Fault> {
        self.add_volume(spec, Checked::Now)
    }

    /// Creates a volume, unless it is checked and its tenant cannot have there what it is promised.
    pub(super) fn add_volume(&mut self, spec: VolumeSpec, checked: Checked) -> Result<View, Fault> {
        spec.check()?;
        self.check_new(&spec)?;
        self.check_place(&spec)?;
        self.check_not_in_pool(&spec)?;
        let name = spec.name.clone();
        let device = self.device_of_spec(&spec);
        if checked == Checked::Now {
            let tenant = self.tenant(&spec.tenant)?.spec.clone();
            self.measure_devices_of(&tenant, Some(&device))?;
        }
        let most = self.target.config().limits.namespaces_per_tenant;
        // From here on others see it: its tenant and its place are not taken away from under it.
        let record = self.commit(|state, stack| {
            stack.check_new(&spec)?;
            if checked == Checked::Now {
                let tenant = &stack.tenant(&spec.tenant)?.spec;
                stack.check_promises(tenant, Some(&device))?;
            }
            let record = state.add_volume(&spec, most)?;
            let volumes = &mut stack.inventory.volumes;
            volumes.insert(spec.name.clone(), record.clone());
            Ok(record)
        })?;
        match self.finish_creating(&record) {
            Ok(()) => self.view_one(KindName::Volume, &name),
            Err(fault) => {
                // Nothing was acknowledged: whatever has been made of it may go again.
                self.undo_creating(&record)?;
                Err(fault)
            }
        }
    }

    pub(super) fn set_volume(&mut self, name: &str, change: VolumeChange) -> Result<View, Fault> {
        match change {
            VolumeChange::Size(size) => self.grow_volume(name, size),
            VolumeChange::ReadOnly(on) => self.set_read_only(name, on),
        }
    }

    /// Refuses writes to a volume from now on, or takes them again.
    fn set_read_only(&mut self, name: &str, on: bool) -> Result<View, Fault> {
        let record = self.volume(name)?.clone();
        let record = self.commit(|state, stack| {
            let record = state.set_volume_read_only(&record, on)?;
            let volumes = &mut stack.inventory.volumes;
            volumes.insert(name.to_owned(), record.clone());
            Ok(record)
        })?;
        if self.served.contains_key(name) {
            match self
                .target
                .set_read_only(&record.spec.tenant, record.nsid, on)
            {
                // One that is being deleted has no hosts any more.
                Ok(()) | Err(ConfigError::NoSuchNamespace) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.view_one(KindName::Volume, name)
    }

    fn grow_volume(&mut self, name: &str, size: Size) -> Result<View, Fault> {
        let record = self.volume(name)?.clone();
        let (Some(pool), Some(now)) = (record.spec.pool.clone(), record.spec.size) else {
            let place = record.place().to_owned();
            return Err(Invalid::WholeDevice(name.to_owned(), place).into());
        };
        if size < now {
            return Err(Invalid::Shrink(name.to_owned(), now.0).into());
        }
        self.pool_home(&pool)?;
        self.check_blocks(self.inventory.pools[&pool].spec.device())?;
        // Noted first: what is cut off is finished at the next start.
        self.note_size(&record, size)?;
        if let Err(fault) = self.grow_in_pool(&pool, &record, size) {
            self.note_size(&record, now)?;
            return Err(fault);
        }
        if let Some(handle) = self.served.get(name) {
            self.target.resized(handle);
        }
        self.view_one(KindName::Volume, name)
    }

    /// Writes down how large a volume is to be.
    pub(super) fn note_size(&mut self, record: &VolumeRecord, size: Size) -> Result<(), Fault> {
        self.commit(|state, stack| {
            state.set_volume_size(record, size)?;
            if let Some(record) = stack.inventory.volumes.get_mut(&record.spec.name) {
                record.spec.size = Some(size);
            }
            Ok(())
        })
    }

    /// Grows a volume in its pool, which gives it zeroes.
    fn grow_in_pool(&self, pool: &str, record: &VolumeRecord, size: Size) -> Result<(), Fault> {
        let core = self.pool_home(pool)?;
        let (pool, uuid) = (pool.to_owned(), record.uuid.into_bytes());
        let missing = PoolError::NotFound(record.spec.name.clone());
        let grown = self.cores.call(core, move |state| async move {
            let pool = state.nodes.pool(&pool);
            let pool = pool.ok_or(PoolError::NotAPool)?;
            let (volume, _) = find(&pool, uuid).ok_or(missing)?;
            pool.grow(&volume, size.0).await
        });
        grown.map_err(Fault::from)
    }

    /// Ends the growth of a volume that was cut off: its pool has it as large as was asked for, or
    /// it is as large as its pool has it.
    fn finish_growing(&mut self, record: &VolumeRecord) -> Result<(), Fault> {
        let (Some(pool), Some(wanted)) = (&record.spec.pool, record.spec.size) else {
            return Ok(());
        };
        let Some(real) = self.size_in_pool(pool, record)? else {
            return Ok(());
        };
        let blocks = |size: Size| size.0.div_ceil(u64::from(real.1));
        match blocks(real.0).cmp(&blocks(wanted)) {
            Ordering::Equal => Ok(()),
            Ordering::Less if self.grow_in_pool(pool, record, wanted).is_ok() => Ok(()),
            _ => self.note_size(record, real.0),
        }
    }

    /// How large a pool has a volume, and its blocks; nothing if it has none of this identity.
    fn size_in_pool(
        &self,
        pool: &str,
        record: &VolumeRecord,
    ) -> Result<Option<(Size, u32)>, Fault> {
        let core = self.pool_home(pool)?;
        let (pool, uuid) = (pool.to_owned(), record.uuid.into_bytes());
        let info = self.cores.call(core, move |state| async move {
            let pool = state.nodes.pool(&pool)?;
            find(&pool, uuid).map(|(_, device)| device.info())
        });
        let size = |blocks, block_size| Size(blocks * u64::from(block_size));
        Ok(info.map(|info| (size(info.blocks, info.block_size), info.block_size)))
    }

    pub(super) fn delete_volume(&mut self, name: &str) -> Result<View, Fault> {
        let record = self.volume(name)?.clone();
        match &record.spec.pool {
            Some(pool) if !self.is_spent_pool(pool) => self.pool_home(pool).map(drop)?,
            _ => {}
        }
        self.commit(|state, stack| {
            state.set_volume_phase(name, Phase::Deleting)?;
            if let Some(record) = stack.inventory.volumes.get_mut(name) {
                record.phase = Phase::Deleting;
            }
            Ok(())
        })?;
        self.finish_deleting(&record)?;
        Ok(View::Done)
    }

    /// Refuses a place that volumes cannot stand on, as far as only its core knows.
    fn check_place(&self, spec: &VolumeSpec) -> Result<(), Fault> {
        match (&spec.pool, &spec.device) {
            (Some(pool), _) => self.check_blocks(self.inventory.pools[pool].spec.device()),
            (None, Some(device)) => {
                self.check_blocks(device)?;
                self.check_content(spec, device)
            }
            (None, None) => Ok(()),
        }
    }

    /// Brings a volume into its pool if it is not there yet, marks it ready, and serves it.
    fn finish_creating(&mut self, record: &VolumeRecord) -> Result<(), Fault> {
        let (record, cleared) = self.clear_new(record)?;
        self.serve_volume(&record, cleared)
    }

    /// The record says that it is being created, so a device that was to be given away whole keeps
    /// what it holds.
    fn undo_creating(&mut self, record: &VolumeRecord) -> Result<(), Fault> {
        self.finish_deleting(record)
    }

    /// A volume on memory is gone after a restart; the same name and identity is made again, empty.
    /// Anywhere else a volume that is missing is a loss to be told: an empty one in its place would
    /// pass for its data.
    fn remake_forgotten(&self, record: &VolumeRecord) -> Result<(), Fault> {
        let pool = record.spec.pool.as_ref();
        let record_of_pool = pool.and_then(|pool| self.inventory.pools.get(pool));
        if record_of_pool.is_some_and(|pool| self.forgets(pool.spec.device())) {
            self.make_volume(record)?;
        }
        Ok(())
    }

    /// Brings a volume into its pool, which gives it zeroes.
    pub(super) fn make_volume(&self, record: &VolumeRecord) -> Result<(), Fault> {
        let (Some(pool), Some(size)) = (record.spec.pool.clone(), record.spec.size) else {
            return Ok(());
        };
        let core = self.pool_home(&pool)?;
        let (name, uuid) = (record.spec.name.clone(), record.uuid.into_bytes());
        let made = self.cores.call(core, move |state| async move {
            let pool = state.nodes.pool(&pool).ok_or(PoolError::NotAPool)?;
            if find(&pool, uuid).is_some() {
                return Ok(());
            }
            pool.create_volume(&name, uuid, size.0).await.map(drop)
        });
        made.map_err(Fault::from)
    }

    /// Stops serving a volume, takes it out of its pool and forgets it. May be repeated at any
    /// point.
    fn finish_deleting(&mut self, record: &VolumeRecord) -> Result<(), Fault> {
        let name = record.spec.name.clone();
        if self.served.contains_key(&name) {
            if !self.withdraw(record)? {
                return Err(Unavailable::NotAnswered(name).into());
            }
            self.forget_share(&self.device_of(record), &record.spec.tenant);
        }
        if let Some(pool) = &record.spec.pool
            && let Err(fault) = self.delete_in_pool(pool, record)
            && !self.is_spent_pool(pool)
        {
            return Err(fault);
        }
        if let Some(device) = &record.spec.device
            && record.phase != Phase::Creating
            && !self.is_spent(device)
        {
            self.erase(device, 0)?;
            self.note_disposable(device)?;
        }
        self.commit(|state, stack| {
            state.remove(Kind::Volume, &name)?;
            stack.inventory.volumes.remove(&name);
            stack.faults.remove(&Subject::Volume(name));
            Ok(())
        })
    }

    /// Takes a volume out of its pool. Where the medium can be written no more that fails, and is
    /// no reason to keep the volume: nobody gets its space before the flash is erased under another
    /// partition.
    fn delete_in_pool(&self, pool: &str, record: &VolumeRecord) -> Result<(), Fault> {
        let core = self.pool_home(pool)?;
        let (pool, uuid) = (pool.to_owned(), record.uuid.into_bytes());
        let deleted = self.cores.call(core, move |state| async move {
            let pool = state.nodes.pool(&pool).ok_or(PoolError::NotAPool)?;
            match find(&pool, uuid) {
                Some((volume, _)) => pool.delete(&volume).await,
                None => Ok(()),
            }
        });
        deleted.map_err(Fault::from)
    }

    /// Whether a pool is on a partition that [is spent](Self::is_spent).
    pub(super) fn is_spent_pool(&self, pool: &str) -> bool {
        let record = self.inventory.pools.get(pool);
        record.is_some_and(|record| self.is_spent(record.spec.device()))
    }

    /// Gives a volume to its tenant's hosts.
    pub(super) fn serve_volume(&mut self, record: &VolumeRecord, _: Cleared) -> Result<(), Fault> {
        let pool = record.spec.pool.clone();
        let uuid = record.uuid.into_bytes();
        let core = match &pool {
            Some(pool) => self.pool_home(pool)?,
            None => self.home_of(record.place())?,
        };
        let device_name = self.device_of(record);
        let policy = self.policy_of(&device_name);
        let switch_name = device_name.clone();
        let handle: Option<DeviceHandle> = self.cores.call(core, move |state| async move {
            let device: Option<SharedDevice> = match &pool {
                Some(pool) => state
                    .nodes
                    .pool(pool)
                    .and_then(|pool| find(&pool, uuid))
                    .map(|(_, device)| device),
                None => state.nodes.device(&switch_name),
            };
            let switch = state.switch(&switch_name, &policy)?;
            device.map(|device| state.engine.add_device(device, &switch))
        });
        let handle = handle.ok_or_else(|| Unavailable::Gone(record.place().to_owned()))?;
        let names = record.names();
        let spec = NamespaceSpec {
            nguid: names.nguid.0,
            eui64: names.eui64.map(|eui64| eui64.0),
            read_only: record.spec.read_only == Some(true),
            ..NamespaceSpec::new(record.nsid, record.uuid.into_bytes(), handle.clone())
        };
        self.target.attach(&record.spec.tenant, spec)?;
        let name = record.spec.name.clone();
        self.edit(|stack| stack.served.insert(name, handle));
        self.tell_share_to(&device_name, &record.spec.tenant);
        Ok(())
    }
}

impl Stack {
    pub(super) fn volume(&self, name: &str) -> Result<&VolumeRecord, Fault> {
        let found = self.inventory.volumes.get(name);
        found.ok_or_else(|| no_such(KindName::Volume, name))
    }

    /// Refuses what does not fit to what is there. Of what this finds nothing changes before it is
    /// noted that the volume is made.
    fn check_new(&self, spec: &VolumeSpec) -> Result<(), Fault> {
        if self.inventory.volumes.contains_key(&spec.name) {
            return Err(InUse::Name(KindName::Volume, spec.name.clone()).into());
        }
        self.tenant(&spec.tenant)?;
        match (&spec.pool, &spec.device) {
            (Some(pool), _) => self.pool_home(pool).map(drop)?,
            (None, Some(device)) => match self.device_user(device) {
                Some(user) => return Err(InUse::Taken(device.clone(), user).into()),
                None => self.home_of(device).map(drop)?,
            },
            (None, None) => {}
        }
        self.check_new_identity(spec)
    }

    /// The device that a volume will end on.
    fn device_of_spec(&self, spec: &VolumeSpec) -> String {
        let pool = spec.pool.as_ref();
        match pool.and_then(|pool| self.inventory.pools.get(pool)) {
            Some(pool) => pool.spec.device().to_owned(),
            None => spec.device.clone().unwrap_or_default(),
        }
    }

    /// Home core of an open pool.
    pub(super) fn pool_home(&self, pool: &str) -> Result<usize, Fault> {
        let record = self.inventory.pools.get(pool);
        let record = record.ok_or_else(|| no_such(KindName::Pool, pool))?;
        match self.faults.get(&Subject::Pool(pool.to_owned())) {
            Some(fault) => {
                let (pool, fault) = (pool.to_owned(), Arc::clone(fault));
                Err(Unavailable::Thing(KindName::Pool, pool, fault).into())
            }
            None => self.home_of(record.spec.device()),
        }
    }
}

/// The volume of this identity, and what the pool calls it: another one that has taken its name is
/// not it.
pub(super) fn find(pool: &Pool, uuid: [u8; 16]) -> Option<(String, SharedDevice)> {
    let listed = pool.list();
    let found = listed.into_iter().find(|volume| volume.uuid == uuid)?;
    let device = pool.volume(&found.name)?;
    Some((found.name, device))
}

impl VolumeRecord {
    /// The pool or device it is on.
    pub fn place(&self) -> &str {
        self.spec
            .pool
            .as_deref()
            .or(self.spec.device.as_deref())
            .unwrap_or_default()
    }
}
