//! Volumes: cutting them from pools, attaching them to their tenants' subsystems, growing and
//! deleting them, and finishing at start what a crash has cut.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flashyard_block::SharedDevice;
use flashyard_block::pool::{self, NewVolume, Owner, Pool, PoolError, VolumeForm};
use flashyard_engine::{ConfigError, DeviceHandle, NamespaceSpec};

use super::cleared::Cleared;
use super::fault::{InUse, Invalid, Unavailable};
use super::snapshot_fault::SnapshotFault;
use super::space::{New, make_in_pool};
use super::work::Work;
use super::{Checked, Fault, Stack, Subject, no_such};
use crate::control::{KindName, View, VolumeChange};
use crate::graph::{NodeId, Volume};
use crate::spec::{CompressionName, Size, VolumeKind, VolumeSpec};
use crate::state::{Kind, Phase, VolumeRecord};

impl Work<'_> {
    /// Serves a volume at start, after what a crash has cut off is finished.
    pub(super) fn open_volume(&mut self, id: NodeId, record: &VolumeRecord) -> Result<(), Fault> {
        match record.phase {
            Phase::Ready => {
                self.take_identity(id)?;
                self.finish_changing(id)?;
                let cleared = self.clear_more(id)?;
                self.serve_volume(id, cleared)
            }
            Phase::Creating => self.finish_creating(&[id]),
            Phase::Deleting => self.finish_deleting(id, Phase::Deleting),
        }
    }

    pub(super) fn create_volume(
        &mut self,
        spec: VolumeSpec,
        checked: Checked,
    ) -> Result<View, Fault> {
        let name = spec.name.clone();
        self.create_volumes(vec![spec], checked)?;
        self.view_one(KindName::Volume, &name)
    }

    /// Creates volumes, all of them or none: not one if it is checked and a tenant cannot have
    /// there what it is promised.
    pub(super) fn create_volumes(
        &mut self,
        mut specs: Vec<VolumeSpec>,
        checked: Checked,
    ) -> Result<(), Fault> {
        let mut places = BTreeSet::new();
        for spec in &mut specs {
            spec.check()?;
            let device = self.check_new(spec)?;
            self.take_kind(spec)?;
            self.take_form(spec)?;
            self.check_size(spec, device)?;
            if spec.pool.is_none() {
                self.check_content(spec, device)?;
            }
            if !spec.is_imported() {
                self.check_not_in_pool(spec)?;
            }
            places.insert((self.tenant(&spec.tenant)?.0, device));
        }
        let devices: BTreeSet<NodeId> = places.iter().map(|(_, device)| *device).collect();
        devices
            .into_iter()
            .try_for_each(|it| self.check_blocks(it))?;
        if checked == Checked::Now {
            for (tenant, device) in &places {
                let spec = self.graph.tenant(*tenant).map(|record| record.spec.clone());
                if let Some(spec) = spec {
                    self.measure_devices_of(&spec, Some(*device))?;
                }
            }
        }
        let places: Vec<_> = places.into_iter().collect();
        let most = self.target.config().limits.namespaces_per_tenant;
        // From here on others see them: their tenants and places are not taken away from under
        // them.
        let ids = self.commit(|state, stack| {
            for spec in &specs {
                stack.check_new(spec)?;
            }
            if checked == Checked::Now {
                stack.check_promises(&[], &places)?;
            }
            let records = state.add_volumes(&specs, most)?;
            Ok(move |stack: &mut Stack| {
                let add = |record: VolumeRecord| {
                    let id = stack.graph.reserve();
                    stack.graph.add(id, record.into());
                    id
                };
                records.into_iter().map(add).collect::<Vec<NodeId>>()
            })
        })?;
        let Err(fault) = self.finish_creating(&ids) else {
            return Ok(());
        };
        // Nothing was acknowledged: whatever has been made of them may go again. A device that was
        // to be given away whole keeps what it holds.
        for id in ids {
            self.finish_deleting(id, Phase::Creating)?;
        }
        Err(fault)
    }

    pub(super) fn set_volume(&mut self, name: &str, change: VolumeChange) -> Result<View, Fault> {
        match change {
            VolumeChange::Size(size) => self.grow_volume(name, size),
            VolumeChange::Reserve(size) => self.reserve_space(name, size),
            VolumeChange::ReadOnly(false) if self.volume(name)?.1.record.spec.is_snapshot() => {
                Err(SnapshotFault::IsSnapshot(name.to_owned()).into())
            }
            VolumeChange::ReadOnly(on) => self.set_read_only(name, on),
        }
    }

    /// Refuses writes to a volume from now on, or takes them again.
    fn set_read_only(&mut self, name: &str, on: bool) -> Result<View, Fault> {
        let (id, _) = self.volume(name)?;
        self.commit(|state, stack| {
            let record = state.set_volume_read_only(&stack.record(id)?, on)?;
            Ok(move |stack: &mut Stack| stack.set_record(id, record))
        })?;
        if self.namespace(id).is_some() {
            let record = self.record(id)?;
            let tenant = &record.spec.tenant;
            match self.target.set_read_only(tenant, record.nsid, on) {
                // One that is being deleted has no hosts any more.
                Ok(()) | Err(ConfigError::NoSuchNamespace) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.view_one(KindName::Volume, name)
    }

    fn grow_volume(&mut self, name: &str, size: Size) -> Result<View, Fault> {
        let (id, volume) = self.volume(name)?;
        self.check_not_migrating(id)?;
        self.check_no_snapshot(id)?;
        let (Some(pool), Some(now)) = (volume.record.spec.pool.clone(), volume.record.spec.size)
        else {
            let place = volume.record.place().to_owned();
            return Err(Invalid::WholeDevice(name.to_owned(), place).into());
        };
        if size < now {
            return Err(Invalid::Shrink(name.to_owned(), now.0).into());
        }
        let (pool, _) = self.pool_home(&pool)?;
        if let Some(device) = self.graph.device_under(pool) {
            self.check_blocks(device)?;
            let grown = VolumeSpec {
                size: Some(size),
                ..volume.record.spec.clone()
            };
            if size > now {
                self.check_size(&grown, device)?;
            }
        }
        // Noted first: what is cut off is finished at the next start.
        self.note_size(id, size)?;
        self.finish_growth(id, now, size)?;
        self.view_one(KindName::Volume, name)
    }

    /// Grows a volume to the size that is noted; if that fails it is as large as it was before.
    pub(super) fn finish_growth(
        &mut self,
        id: NodeId,
        before: Size,
        size: Size,
    ) -> Result<(), Fault> {
        if let Err(fault) = self.grow_in_pool(id, size) {
            self.note_size(id, before)?;
            return Err(fault);
        }
        if let Some(volume) = self.graph.volume(id) {
            self.tell_size(volume);
        }
        Ok(())
    }

    /// Whether volumes can grow together, as far as their pools have room.
    pub(super) fn check_room(&self, grown: &[(NodeId, Size)]) -> Result<(), Fault> {
        let mut pools: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
        for (id, size) in grown {
            let VolumeSpec { name, pool, .. } = self.record(*id)?.spec;
            if let Some(pool) = pool {
                pools.entry(pool).or_default().push((name, size.0));
            }
        }
        for (pool, grown) in pools {
            let (pool, core) = self.pool_home(&pool)?;
            let fits = self.cores.call(core, move |state| async move {
                let pool = state.nodes.pool(pool).ok_or(PoolError::NotAPool)?;
                pool.check_growth(&grown)
            });
            fits?;
        }
        Ok(())
    }

    /// Tells hosts, and who asks, how large a volume is now.
    pub(super) fn tell_size(&self, volume: &Volume) {
        if let Some(handle) = volume.namespace.clone() {
            self.cores.call(handle.core(), move |state| async move {
                state.engine.look_at(&handle);
            });
        }
    }

    /// Writes down how large a volume is to be.
    pub(super) fn note_size(&mut self, id: NodeId, size: Size) -> Result<(), Fault> {
        self.commit(|state, stack| {
            let mut record = stack.record(id)?;
            state.set_volume_size(&record, size)?;
            record.spec.size = Some(size);
            Ok(move |stack: &mut Stack| stack.set_record(id, record))
        })
    }

    /// Asks the pool of a volume on its core; nothing if it is in none.
    pub(super) fn in_pool<T, W, F>(&self, id: NodeId, ask: W) -> Result<Option<T>, Fault>
    where
        T: Send + 'static,
        W: FnOnce(Pool, VolumeRecord) -> F + Send + 'static,
        F: Future<Output = Result<T, PoolError>> + 'static,
    {
        let record = self.record(id)?;
        let Some(pool) = &record.spec.pool else {
            return Ok(None);
        };
        let (pool, core) = self.pool_home(pool)?;
        let answer = self.cores.call(core, move |state| async move {
            let pool = state.nodes.pool(pool).ok_or(PoolError::NotAPool)?;
            ask(pool, record).await
        });
        Ok(Some(answer?))
    }

    /// Grows a volume in its pool, which gives it zeroes.
    fn grow_in_pool(&self, id: NodeId, size: Size) -> Result<(), Fault> {
        let grown = self.in_pool(id, move |pool, record| async move {
            match pool.find(record.uuid.into_bytes()) {
                Some((volume, _)) => pool.grow(&volume, size.0).await,
                None => Err(PoolError::NotFound(record.spec.name)),
            }
        });
        grown.map(drop)
    }

    /// Has the pool of a volume keep whose it is.
    pub(super) fn keep_owner(&self, id: NodeId) -> Result<(), Fault> {
        if self.record(id)?.spec.is_snapshot() {
            return Ok(());
        }
        let quota = self.quota_of(&self.record(id)?.spec);
        let kept = self.in_pool(id, move |pool, record| async move {
            match pool.find(record.uuid.into_bytes()) {
                Some((volume, _)) => {
                    pool.set_quota(&record.spec.tenant, quota);
                    pool.set_owner(&volume, record.owner()).await
                }
                None => Ok(()),
            }
        });
        kept.map(drop)
    }

    /// Ends a rename or growth that a crash has cut off: its pool calls the volume as the store
    /// does, and has it as large as was asked for, or it is as large as its pool has it.
    fn finish_changing(&mut self, id: NodeId) -> Result<(), Fault> {
        if self.record(id)?.spec.is_snapshot() {
            return Ok(());
        }
        let found = self.in_pool(id, |pool, record| async move {
            let found = pool.find(record.uuid.into_bytes());
            Ok(found.map(|(name, device)| (name, device.info())))
        });
        let Some(Some((name, info))) = found? else {
            return Ok(());
        };
        let record = self.record(id)?;
        if name != record.spec.name {
            // It can wait: the volume is found by its UUID.
            let _ = self.rename_in_pool(id);
        }
        // It can wait, too: only an import looks at it.
        let _ = self.keep_owner(id);
        // A pool without the space for it, which only an older state can meet, says so when
        // somebody asks for the reservation again.
        let _ = self.keep_reserve(id);
        let Some(wanted) = record.spec.size else {
            return Ok(());
        };
        let real = Size(info.blocks * u64::from(info.block_size));
        let blocks = |size: Size| size.0.div_ceil(u64::from(info.block_size));
        match blocks(real).cmp(&blocks(wanted)) {
            Ordering::Equal => Ok(()),
            Ordering::Less if self.grow_in_pool(id, wanted).is_ok() => Ok(()),
            _ => self.note_size(id, real),
        }
    }

    pub(super) fn delete_volume(&mut self, name: &str) -> Result<View, Fault> {
        let (id, volume) = self.volume(name)?;
        self.check_not_migrating(id)?;
        self.check_no_snapshots(id)?;
        let phase = volume.record.phase;
        match &volume.record.spec.pool {
            Some(pool) if !self.is_spent_place(id) => self.pool_home(pool).map(drop)?,
            _ => {}
        }
        self.set_phases(&[id], Phase::Deleting)?;
        self.finish_deleting(id, phase)?;
        Ok(View::Done)
    }

    /// Notes how far the creation or deletion of volumes has come.
    pub(super) fn set_phases(&mut self, ids: &[NodeId], phase: Phase) -> Result<(), Fault> {
        self.commit(|state, stack| {
            state.set_volume_phases(ids.iter().map(|id| stack.graph.name(*id)), phase)?;
            Ok(move |stack: &mut Stack| {
                for id in ids {
                    let graph = &mut stack.graph;
                    graph.change_volume(*id, |volume| volume.record.phase = phase);
                }
            })
        })
    }

    /// Refuses a size that its pool, on this device, would round.
    pub(super) fn check_size(&self, spec: &VolumeSpec, device: NodeId) -> Result<(), Fault> {
        let device = self.graph.device(device);
        let block_size = device.map(|device| match self.kind_of(spec) {
            pool::Kind::Raw => device.spec.block_size,
            pool::Kind::Mapped => spec.form().chunk,
        });
        Ok(block_size.map_or(Ok(()), |block_size| spec.check_new(block_size))?)
    }

    /// How the pool of a volume keeps volumes.
    pub(super) fn kind_of(&self, spec: &VolumeSpec) -> pool::Kind {
        let pool = spec.pool.as_deref();
        let pool = pool.and_then(|pool| self.graph.find(Kind::Pool, pool));
        let record = pool.and_then(|pool| self.graph.pool(pool));
        VolumeKind::of_pool(record.and_then(|record| record.spec.kind))
    }

    /// Refuses a kind of volume that the pool does not have; the spec has the pool's then.
    fn take_kind(&self, spec: &mut VolumeSpec) -> Result<(), Fault> {
        let kind = self.kind_of(spec);
        if spec.kind.is_some() && VolumeKind::of_pool(spec.kind) != kind {
            let pool = spec.pool.clone().unwrap_or_default();
            return Err(Invalid::OtherKind(spec.name.clone(), pool, kind).into());
        }
        spec.kind = VolumeKind::found(kind);
        Ok(())
    }

    /// Refuses a form that a volume cannot have; the spec has what holds where nothing was said.
    fn take_form(&self, spec: &mut VolumeSpec) -> Result<(), Fault> {
        spec.reserve = spec.reserve.filter(|size| size.0 > 0);
        if spec.content.is_none() {
            (spec.compression, spec.chunk) = self.form_of_new(spec);
        }
        if let Some(Size(chunk)) = spec.chunk
            && !VolumeForm::CHUNKS.map(u64::from).contains(&chunk)
        {
            return Err(Invalid::Chunk(spec.name.clone(), chunk).into());
        }
        spec.compression = CompressionName::normal(spec.compression);
        spec.chunk = VolumeSpec::normal_chunk(spec.chunk);
        match self.kind_of(spec) {
            pool::Kind::Raw if spec.reserve.is_some() => {
                Err(PoolError::AllReserved("reservations").into())
            }
            pool::Kind::Raw if !spec.form().is_plain() => {
                Err(PoolError::Plain(spec.name.clone()).into())
            }
            _ => Ok(()),
        }
    }

    /// Brings volumes into their pools if they are not there yet, marks them ready, and serves
    /// them.
    fn finish_creating(&mut self, ids: &[NodeId]) -> Result<(), Fault> {
        for (id, cleared) in self.clear_new(ids)? {
            self.serve_volume(id, cleared)?;
        }
        Ok(())
    }

    /// Volumes on memory are gone after a restart; the same names and identities are made again,
    /// empty. Anywhere else a volume that is missing is a loss to be reported: an empty one in its
    /// place would pass for its data.
    pub(super) fn remake_forgotten(&self, pool: NodeId) -> Result<(), Fault> {
        let device = self.graph.device_under(pool);
        if !device.is_some_and(|device| self.forgets(device)) {
            return Ok(());
        }
        let volumes = self.graph.volumes_on(pool);
        let ready = volumes.filter(|(_, volume)| volume.record.phase == Phase::Ready);
        let ready: Vec<NodeId> = ready.map(|(id, _)| id).collect();
        self.make_volumes(&ready)
    }

    /// Brings volumes into their pools, which give them zeroes: those of one pool in one change.
    pub(super) fn make_volumes(&self, ids: &[NodeId]) -> Result<(), Fault> {
        let mut pools: BTreeMap<String, Vec<New>> = BTreeMap::new();
        for id in ids {
            let record = self.record(*id)?;
            // It is there, or it is lost: an empty one in its place would pass for its data.
            if record.spec.is_imported() {
                continue;
            }
            let (owner, form) = (record.owner(), record.spec.form());
            let quota = self.quota_of(&record.spec);
            let VolumeSpec {
                name,
                pool,
                size,
                reserve,
                ..
            } = record.spec;
            if let (Some(pool), Some(Size(bytes))) = (pool, size) {
                let uuid = record.uuid.into_bytes();
                let owner = Some(owner);
                let volume = NewVolume {
                    name,
                    uuid,
                    bytes,
                    form,
                    owner,
                };
                let reserve = reserve.map_or(0, |size| size.0);
                let new = New {
                    volume,
                    reserve,
                    quota,
                };
                pools.entry(pool).or_default().push(new);
            }
        }
        for (pool, mut wanted) in pools {
            let (pool, core) = self.pool_home(&pool)?;
            let made = self.cores.call(core, move |state| async move {
                let pool = state.nodes.pool(pool).ok_or(PoolError::NotAPool)?;
                wanted.retain(|new| pool.find(new.volume.uuid).is_none());
                make_in_pool(&pool, wanted).await
            });
            made?;
        }
        Ok(())
    }

    /// Stops serving a volume, takes it out of its pool and forgets it. `phase` is how far it had
    /// come before. May be repeated at any point.
    pub(super) fn finish_deleting(&mut self, id: NodeId, phase: Phase) -> Result<(), Fault> {
        let record = self.record(id)?;
        let device = self.graph.device_under(id);
        let was_served = self.namespace(id).is_some();
        if !self.withdraw(id)? {
            return Err(Unavailable::NotAnswered(record.spec.name).into());
        }
        if was_served
            && let Some(device) = device
            && let Some(tenant) = self.graph.tenant_of(id)
        {
            self.forget_share(device, tenant);
        }
        // What was not acknowledged as imported stays in the pool as it was.
        let stays =
            phase == Phase::Creating && record.spec.is_imported() || record.spec.is_snapshot();
        if !stays
            && let Err(fault) = self.delete_in_pool(id)
            && !self.is_spent_place(id)
        {
            return Err(fault);
        }
        if record.spec.device.is_some()
            && phase != Phase::Creating
            && let Some(device) = device
            && !self.is_spent(device)
        {
            self.erase(device, 0)?;
            self.note_disposable(device)?;
        }
        self.commit(|state, stack| {
            state.remove(Kind::Volume, stack.graph.name(id))?;
            Ok(move |stack: &mut Stack| stack.forget(id))
        })
    }

    /// Takes a volume out of its pool. Where the medium can be written no more that fails, and is
    /// no reason to keep the volume: nobody gets its space before the flash is erased under another
    /// partition.
    fn delete_in_pool(&self, id: NodeId) -> Result<(), Fault> {
        let deleted = self.in_pool(id, |pool, record| async move {
            match pool.find(record.uuid.into_bytes()) {
                Some((volume, _)) => pool.delete(&volume).await,
                None => Ok(()),
            }
        });
        deleted.map(drop)
    }

    /// Whether a volume is on a partition that [is spent](Self::is_spent).
    fn is_spent_place(&self, id: NodeId) -> bool {
        let device = self.graph.device_under(id);
        device.is_some_and(|device| self.is_spent(device))
    }

    /// Gives a volume to its tenant's hosts.
    pub(super) fn serve_volume(&mut self, id: NodeId, _: Cleared) -> Result<(), Fault> {
        let record = self.record(id)?;
        let (pool, core) = match &record.spec.pool {
            Some(pool) => {
                let (pool, core) = self.pool_home(pool)?;
                (Some(pool), core)
            }
            None => (None, self.home_of(self.device(record.place())?.0)?),
        };
        let gone = || Fault::from(Unavailable::Gone(record.place().to_owned()));
        let device = self.graph.device_under(id).ok_or_else(gone)?;
        let policy = self.policy_of(device);
        let uuid = record.uuid.into_bytes();
        let handle: Option<DeviceHandle> = self.cores.call(core, move |state| async move {
            let found: Option<SharedDevice> = match pool {
                Some(pool) => {
                    let found = state.nodes.pool(pool)?.find(uuid);
                    found.map(|(_, device)| device)
                }
                None => state.nodes.device(device),
            };
            let switch = state.switch(device, &policy)?;
            found.map(|found| state.engine.add_device(found, &switch))
        });
        let handle = handle.ok_or_else(gone)?;
        let names = record.names();
        let spec = NamespaceSpec {
            nguid: names.nguid.0,
            eui64: names.eui64.map(|eui64| eui64.0),
            read_only: record.spec.read_only == Some(true),
            ..NamespaceSpec::new(record.nsid, record.uuid.into_bytes(), handle.clone())
        };
        self.target.attach(&record.spec.tenant, spec)?;
        self.edit(|stack| {
            let serve = |volume: &mut Volume| volume.namespace = Some(handle);
            stack.graph.change_volume(id, serve);
        });
        if let Some(tenant) = self.graph.tenant_of(id) {
            self.tell_share_to(device, tenant);
        }
        Ok(())
    }
}

impl Stack {
    /// What a volume is at this moment.
    pub(super) fn record(&self, id: NodeId) -> Result<VolumeRecord, Fault> {
        let found = self.graph.volume(id);
        let found = found.ok_or_else(|| no_such(KindName::Volume, self.graph.name(id)))?;
        Ok(found.record.clone())
    }

    /// What hosts reach a volume by.
    pub(super) fn namespace(&self, id: NodeId) -> Option<&DeviceHandle> {
        self.graph.volume(id)?.namespace.as_ref()
    }

    pub(super) fn set_record(&mut self, id: NodeId, record: VolumeRecord) {
        self.graph
            .change_volume(id, |volume| volume.record = record);
    }

    /// Refuses what does not fit to what is there; gives the device that it will end on. Of what
    /// this finds nothing changes before it is noted that the volume is made.
    fn check_new(&self, spec: &VolumeSpec) -> Result<NodeId, Fault> {
        if self.graph.find(Kind::Volume, &spec.name).is_some() {
            return Err(InUse::Name(KindName::Volume, spec.name.clone()).into());
        }
        let (tenant, _) = self.tenant(&spec.tenant)?;
        let name = spec.device.as_deref().unwrap_or_default();
        let device = match &spec.pool {
            Some(pool) => {
                let (pool, _) = self.pool_home(pool)?;
                let under = self.graph.device_under(pool);
                under.ok_or_else(|| no_such(KindName::Device, name))?
            }
            None => {
                let (device, _) = self.device(name)?;
                if let Some(user) = self.user_text(device) {
                    return Err(InUse::Taken(name.to_owned(), user).into());
                }
                self.home_of(device)?;
                self.check_no_parity(device)?;
                device
            }
        };
        self.check_new_identity(spec, tenant)?;
        Ok(device)
    }

    /// A pool that is open, and its home core.
    pub(super) fn pool_home(&self, name: &str) -> Result<(NodeId, usize), Fault> {
        let (id, record) = self.pool(name)?;
        if let Some(fault) = self.faults.get(&Subject::Node(id)) {
            let (pool, fault) = (name.to_owned(), Arc::clone(fault));
            return Err(Unavailable::Thing(KindName::Pool, pool, fault).into());
        }
        Ok((id, self.home_of(self.device(record.spec.device())?.0)?))
    }
}

impl VolumeRecord {
    /// Whose it is, as a pool may keep it.
    pub fn owner(&self) -> Owner {
        Owner {
            tenant: self.spec.tenant.clone(),
            nguid: self.nguid().0,
            eui64: self.spec.eui64.map(|eui64| eui64.0),
            nsid: self.nsid,
        }
    }

    /// The pool or device it is on.
    pub fn place(&self) -> &str {
        self.spec
            .pool
            .as_deref()
            .or(self.spec.device.as_deref())
            .unwrap_or_default()
    }
}
