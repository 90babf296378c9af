//! Snapshots of volumes, clones of them, and snapshots that are given to tenants. Pools are the
//! truth about snapshots: the store knows only the volumes that are made of them.

use std::time::{SystemTime, UNIX_EPOCH};

use flashyard_block::pool::{self, NewSnapshot, NewVolume, Pool, PoolError, SnapshotInfo};
use uuid::Uuid;

use super::fault::{Refused, Unavailable};
use super::snapshot_fault::SnapshotFault;
use super::view::ratio;
use super::work::Work;
use super::{Checked, Fault};
use crate::control::{
    DiffView, KindName, NewVersion, Page, RangeView, SnapshotAsk, SnapshotChange, SnapshotName,
    SnapshotView, StoredView, View,
};
use crate::graph::{Identity, NodeId};
use crate::spec::{ContentName, NamespaceUuid, Size, VolumeKind, VolumeSpec};
use crate::state::{Kind, Phase, VolumeRecord};
use crate::units;

impl Work<'_> {
    /// What is asked of snapshots.
    pub(super) fn ask_snapshots(&mut self, ask: SnapshotAsk) -> Result<View, Fault> {
        match ask {
            SnapshotAsk::List(volume, page) => self.list_snapshots(volume.as_deref(), &page),
            SnapshotAsk::Show(one) => self.show_snapshot(&one),
            SnapshotAsk::Diff {
                volume,
                since,
                until,
                from,
            } => self.diff(&volume, (since, until), from),
        }
    }

    /// Does something with snapshots.
    pub(super) fn change_snapshot(&mut self, change: SnapshotChange) -> Result<View, Fault> {
        match change {
            SnapshotChange::Create(all) => self.create_snapshots(&all),
            SnapshotChange::Delete(one) => self.delete_snapshot(&one),
            SnapshotChange::Restore(one) => self.restore_snapshot(&one),
            SnapshotChange::Clone(new) => self.clone_volume(&new),
            SnapshotChange::Share(new) => self.share_snapshot(new),
        }
    }

    /// A volume that is ready, in a pool; its record, and the pool.
    fn in_a_pool(&self, name: &str) -> Result<(NodeId, VolumeRecord, String), Fault> {
        let (id, volume) = self.volume(name)?;
        let record = volume.record.clone();
        if record.spec.is_snapshot() {
            return Err(SnapshotFault::IsSnapshot(name.to_owned()).into());
        }
        if record.phase != Phase::Ready {
            return Err(Refused::HalfMade(name.to_owned()).into());
        }
        match record.spec.pool.clone() {
            Some(pool) => Ok((id, record, pool)),
            None => Err(SnapshotFault::WholeDevice(name.to_owned()).into()),
        }
    }

    /// Asks the pool of a volume, with what that pool calls the volume.
    pub(super) fn ask_pool<T, W, F>(&self, id: NodeId, ask: W) -> Result<T, Fault>
    where
        T: Send + 'static,
        W: FnOnce(Pool, String) -> F + Send + 'static,
        F: Future<Output = Result<T, PoolError>> + 'static,
    {
        let name = self.record(id)?.spec.name;
        let asked = self.in_pool(id, |pool, record| async move {
            let found = pool.find(record.uuid.into_bytes());
            let (name, _) = found.ok_or(PoolError::NotFound(record.spec.name))?;
            ask(pool, name).await
        })?;
        asked.ok_or_else(|| SnapshotFault::WholeDevice(name).into())
    }

    fn list_snapshots(
        &self,
        volume: Option<&str>,
        page: &Page<SnapshotName>,
    ) -> Result<View, Fault> {
        let mut all = Vec::new();
        if let Some(name) = volume {
            let (_, _, pool) = self.in_a_pool(name)?;
            let found = self.snapshots_in(&pool)?.into_iter();
            all.extend(found.filter(|one| one.volume == name));
        } else {
            let pools = self.graph.in_order().into_iter();
            let pools: Vec<String> = pools
                .filter(|id| self.graph.pool(*id).is_some())
                .map(|id| self.graph.name(id).to_owned())
                .collect();
            for pool in pools {
                // One that is not open is shown as that by `pool list`.
                all.extend(self.snapshots_in(&pool).unwrap_or_default());
            }
        }
        // Of a volume they stay as the pool has them: by age.
        all.sort_by(|one, other| one.volume.cmp(&other.volume));
        let begin = match &page.after {
            Some(after) => behind(&all, after)?,
            None => 0,
        };
        let rows = all.into_iter().skip(begin);
        let part = page.take(rows.map(|one| (one.name.clone(), one)));
        Ok(View::Snapshots(part))
    }

    /// The snapshots in a pool of volumes that the target knows, as it calls them.
    fn snapshots_in(&self, pool: &str) -> Result<Vec<SnapshotView>, Fault> {
        let (id, core) = self.pool_home(pool)?;
        let found = self.cores.call_soon(core, move |state| async move {
            let pool = state.nodes.pool(id).ok_or(PoolError::NotAPool)?;
            let volumes = pool.list().into_iter();
            let uuids: Vec<_> = volumes.map(|it| (it.name, it.uuid)).collect();
            Ok::<_, PoolError>((pool.snapshots(), uuids))
        });
        let silent = || Fault::from(Unavailable::Silent(pool.to_owned()));
        let (snapshots, uuids) = found.ok_or_else(silent)??;
        let known = |name: &str| {
            let (_, uuid) = uuids.iter().find(|(it, _)| it == name)?;
            let uuid = Identity::Uuid(Uuid::from_bytes(*uuid));
            Some(self.graph.name(self.graph.known_by(&uuid)?).to_owned())
        };
        let view = |it: SnapshotInfo| {
            let volume = known(&it.volume)?;
            let uuid = Uuid::from_bytes(it.uuid);
            let shared = self.graph.known_by(&Identity::Uuid(uuid));
            Some(SnapshotView {
                name: format!("{volume}@{}", it.name),
                volume,
                pool: pool.to_owned(),
                uuid: NamespaceUuid(uuid),
                size: it.bytes,
                own_bytes: it.allocated,
                shared_bytes: it.shared,
                frees_bytes: None,
                made: (it.made > 0).then(|| units::utc(it.made)),
                clones: it
                    .clones
                    .iter()
                    .map(|name| known(name).unwrap_or_else(|| name.clone()))
                    .collect(),
                shared_as: shared
                    .map(|id| self.graph.name(id).to_owned())
                    .into_iter()
                    .collect(),
            })
        };
        Ok(snapshots.into_iter().filter_map(view).collect())
    }

    fn find_snapshot(&self, pool: &str, of: &SnapshotName) -> Result<SnapshotView, Fault> {
        let full = of.to_string();
        let found = self.snapshots_in(pool)?.into_iter();
        let mut found = found.filter(|one| one.name == full);
        found.next().ok_or_else(|| {
            let (volume, name) = (of.volume.clone(), of.name.clone());
            PoolError::NoSnapshot { volume, name }.into()
        })
    }

    fn show_snapshot(&self, of: &SnapshotName) -> Result<View, Fault> {
        let (id, _, pool) = self.in_a_pool(&of.volume)?;
        let mut found = self.find_snapshot(&pool, of)?;
        if found.clones.is_empty() {
            let name = of.name.clone();
            let freed = self.ask_pool(id, |pool, volume| async move {
                pool.freed_by(&volume, &name).await
            });
            found.frees_bytes = Some(freed?);
        }
        Ok(View::Snapshot(Box::new(found)))
    }

    fn create_snapshots(&mut self, all: &[SnapshotName]) -> Result<View, Fault> {
        let (mut wanted, mut place) = (Vec::new(), None::<String>);
        for one in all {
            let (id, record, pool) = self.in_a_pool(&one.volume)?;
            // It would stay behind in the pool that the volume leaves.
            self.check_not_migrating(id)?;
            match &place {
                Some(other) if *other != pool => {
                    return Err(SnapshotFault::TwoPools(other.clone(), pool).into());
                }
                _ => place = Some(pool),
            }
            wanted.push((record, one.name.clone()));
        }
        let Some(place) = place else {
            return Ok(View::Snapshots(Vec::new().into()));
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let made = now.map_or(0, |since| since.as_secs());
        let (id, core) = self.pool_home(&place)?;
        let done = self.cores.call(core, move |state| async move {
            let pool = state.nodes.pool(id).ok_or(PoolError::NotAPool)?;
            let new = |(record, name): (VolumeRecord, String)| {
                let found = pool.find(record.uuid.into_bytes());
                let (volume, _) = found.ok_or(PoolError::NotFound(record.spec.name))?;
                let uuid = Uuid::new_v4().into_bytes();
                Ok(NewSnapshot { volume, name, uuid })
            };
            let wanted = wanted.into_iter().map(new);
            let wanted = wanted.collect::<Result<_, PoolError>>();
            pool.snapshot(wanted?, made).await
        });
        done?;
        let views = all.iter().map(|one| self.find_snapshot(&place, one));
        let views = views.collect::<Result<Vec<_>, _>>()?;
        Ok(View::Snapshots(views.into()))
    }

    fn delete_snapshot(&mut self, of: &SnapshotName) -> Result<View, Fault> {
        let (id, _, pool) = self.in_a_pool(&of.volume)?;
        let found = self.find_snapshot(&pool, of)?;
        if let Some(volume) = found.shared_as.first() {
            return Err(SnapshotFault::Shared(of.clone(), volume.clone()).into());
        }
        let name = of.name.clone();
        self.ask_pool(id, |pool, volume| async move {
            pool.delete_snapshot(&volume, &name).await
        })?;
        Ok(View::Done)
    }

    fn restore_snapshot(&mut self, of: &SnapshotName) -> Result<View, Fault> {
        let (id, _, _) = self.in_a_pool(&of.volume)?;
        self.check_not_migrating(id)?;
        let name = of.name.clone();
        self.ask_pool(id, |pool, volume| async move {
            pool.restore(&volume, &name).await
        })?;
        Ok(View::Done)
    }

    fn diff(
        &self,
        volume: &str,
        (since, until): (Option<String>, Option<String>),
        from: u64,
    ) -> Result<View, Fault> {
        let (id, ..) = self.in_a_pool(volume)?;
        let changes = self.ask_pool(id, move |pool, volume| async move {
            let (since, until) = (since.as_deref(), until.as_deref());
            pool.changes(&volume, since, until, from).await
        })?;
        let ranges = changes.ranges.iter().map(|range| RangeView {
            offset_bytes: range.start,
            length_bytes: range.end - range.start,
        });
        let ranges: Vec<RangeView> = ranges.collect();
        Ok(View::Diff(DiffView {
            changed_bytes: ranges.iter().map(|range| range.length_bytes).sum(),
            ranges,
            next_bytes: changes.next,
        }))
    }

    /// A volume that begins as a snapshot: first in the pool, then in the store, as if it were
    /// imported. What a crash has cut off between them is taken up when it is asked for again.
    fn clone_volume(&mut self, new: &NewVersion) -> Result<View, Fault> {
        let (id, record, pool) = self.in_a_pool(&new.of.volume)?;
        let owner = record.spec.tenant.clone();
        if new.tenant.as_ref().is_some_and(|tenant| *tenant != owner) {
            return Err(SnapshotFault::CloneOfOther(new.of.clone(), owner).into());
        }
        let found = self.find_snapshot(&pool, &new.of)?;
        let spec = self.version(new, &found, owner, pool, ContentName::Keep)?;
        let uuid = match self.unserved_clone(id, new)? {
            Some(left) => left,
            None => self.make_clone(id, new)?,
        };
        let spec = VolumeSpec {
            uuid: Some(NamespaceUuid(uuid)),
            ..spec
        };
        let name = spec.name.clone();
        if let Err(fault) = self.create_volumes(vec![spec], Checked::Forced) {
            self.drop_clone(id, uuid)?;
            return Err(fault);
        }
        let _ = self
            .graph
            .find(Kind::Volume, &name)
            .map(|id| self.keep_owner(id));
        self.view_one(KindName::Volume, &name)
    }

    /// The clone of this name that a crash has left in the pool: no tenant ever had it. One that a
    /// tenant has had, here or before the state was lost, is not taken.
    fn unserved_clone(&self, of: NodeId, new: &NewVersion) -> Result<Option<Uuid>, Fault> {
        let (name, snapshot) = (new.name.clone(), new.of.name.clone());
        let there = self.ask_pool(of, move |pool, volume| async move {
            let mut volumes = pool.list().into_iter();
            let Some(there) = volumes.find(|one| one.name == name) else {
                return Ok(None);
            };
            let mut snapshots = pool.snapshots().into_iter();
            let is_clone = snapshots.any(|one| {
                one.volume == volume && one.name == snapshot && one.clones.contains(&name)
            });
            match is_clone && there.owner.is_none() {
                true => Ok(Some(Uuid::from_bytes(there.uuid))),
                false => Err(PoolError::Exists(name)),
            }
        })?;
        match there.filter(|uuid| self.graph.known_by(&Identity::Uuid(*uuid)).is_some()) {
            Some(_) => Err(PoolError::Exists(new.name.clone()).into()),
            None => Ok(there),
        }
    }

    fn make_clone(&self, of: NodeId, new: &NewVersion) -> Result<Uuid, Fault> {
        let (name, snapshot) = (new.name.clone(), new.of.name.clone());
        let uuid = Uuid::new_v4();
        self.ask_pool(of, move |pool, volume| async move {
            let clone = NewVolume::new(name, uuid.into_bytes(), 0);
            pool.clone_snapshot(&volume, &snapshot, clone)
                .await
                .map(drop)
        })?;
        Ok(uuid)
    }

    /// A clone that its tenant did not get.
    fn drop_clone(&self, of: NodeId, uuid: Uuid) -> Result<(), Fault> {
        self.ask_pool(of, move |pool, _| async move {
            match pool.find(uuid.into_bytes()) {
                Some((name, _)) => pool.delete(&name).await,
                None => Ok(()),
            }
        })
    }

    fn share_snapshot(&mut self, new: NewVersion) -> Result<View, Fault> {
        let (_, record, pool) = self.in_a_pool(&new.of.volume)?;
        let found = self.find_snapshot(&pool, &new.of)?;
        if let Some(volume) = found.shared_as.first() {
            return Err(SnapshotFault::Shared(new.of, volume.clone()).into());
        }
        let tenant = new.tenant.clone().unwrap_or(record.spec.tenant);
        let spec = self.version(&new, &found, tenant, pool, ContentName::Snapshot)?;
        let name = spec.name.clone();
        self.create_volumes(vec![spec], Checked::Forced)?;
        self.view_one(KindName::Volume, &name)
    }

    /// A volume that is made of a snapshot, if it can be.
    fn version(
        &self,
        new: &NewVersion,
        of: &SnapshotView,
        tenant: String,
        pool: String,
        content: ContentName,
    ) -> Result<VolumeSpec, Fault> {
        let (_, origin, _) = self.in_a_pool(&new.of.volume)?;
        let spec = VolumeSpec {
            name: new.name.clone(),
            pool: Some(pool),
            device: None,
            kind: None,
            compression: origin.spec.compression,
            chunk: origin.spec.chunk,
            size: Some(Size(of.size)),
            reserve: None,
            tenant,
            uuid: Some(of.uuid),
            nguid: None,
            eui64: None,
            nsid: new.nsid,
            read_only: (content == ContentName::Snapshot).then_some(true),
            content: Some(content),
        };
        spec.check()?;
        if self.graph.find(Kind::Volume, &new.name).is_some() {
            let name = new.name.clone();
            return Err(super::fault::InUse::Name(KindName::Volume, name).into());
        }
        Ok(spec)
    }

    /// What a volume of a mapped pool stores itself, and what snapshots store of it, in bytes.
    pub(super) fn stored_bytes(&self, id: NodeId) -> Option<StoredView> {
        let record = self.record(id).ok()?;
        let (pool, core) = self.pool_home(record.spec.pool.as_deref()?).ok()?;
        let uuid = record.uuid.into_bytes();
        let found = self.cores.call_soon(core, move |state| async move {
            let pool = state.nodes.pool(pool)?;
            if pool.info().kind == pool::Kind::Raw {
                return None;
            }
            let volumes = pool.list().into_iter();
            let volumes =
                volumes.map(|one| (one.uuid, one.allocated, one.shared, Some(one.written)));
            let snapshots = pool.snapshots().into_iter();
            let snapshots = snapshots.map(|one| (one.uuid, one.allocated, one.shared, None));
            volumes.chain(snapshots).find(|one| one.0 == uuid)
        });
        let (_, own_bytes, shared_bytes, written_bytes) = found??;
        Some(StoredView {
            own_bytes,
            shared_bytes,
            written_bytes,
            compression_ratio: written_bytes.and_then(|written| ratio(written, own_bytes)),
        })
    }

    /// Refuses what would leave snapshots of a volume behind.
    pub(super) fn check_no_snapshots(&self, id: NodeId) -> Result<(), Fault> {
        let spec = self.record(id)?.spec;
        let (name, is_snapshot) = (spec.name.clone(), spec.is_snapshot());
        let Some(pool) = spec.pool.filter(|_| !is_snapshot) else {
            return Ok(());
        };
        // A pool that is not open says so itself, where it is needed.
        if self.pool_home(&pool).is_err() {
            return Ok(());
        }
        let snapshots = self.snapshots_in(&pool)?;
        match snapshots.into_iter().find(|one| one.volume == name) {
            Some(one) => Err(SnapshotFault::HasSnapshots(name, one.name).into()),
            None => Ok(()),
        }
    }

    /// Refuses what is not done with a volume that is a snapshot.
    pub(super) fn check_no_snapshot(&self, id: NodeId) -> Result<(), Fault> {
        let record = self.record(id)?;
        match record.spec.is_snapshot() {
            true => Err(SnapshotFault::IsSnapshot(record.spec.name).into()),
            false => Ok(()),
        }
    }

    /// Refuses to give a clone, which has data of its snapshot's volume, to another tenant. The
    /// pool knows what it is a clone of, also where the target does not know that volume.
    pub(super) fn check_no_clone(&self, id: NodeId) -> Result<(), Fault> {
        match self.clone_of(id)? {
            Some((name, of)) => Err(SnapshotFault::IsClone(name, of).into()),
            None => Ok(()),
        }
    }

    /// Refuses to keep a clone otherwise: it would lose what it shares with its snapshot.
    pub(super) fn check_clone_stays(&self, id: NodeId) -> Result<(), Fault> {
        match self.clone_of(id)? {
            Some((name, of)) => Err(SnapshotFault::CloneStays(name, of).into()),
            None => Ok(()),
        }
    }

    /// A volume that is a clone, and of what.
    fn clone_of(&self, id: NodeId) -> Result<Option<(String, String)>, Fault> {
        let spec = self.record(id)?.spec;
        let Some(pool) = spec.pool else {
            return Ok(None);
        };
        let (_, place) = self.pool(&pool)?;
        if VolumeKind::of_pool(place.spec.kind) == pool::Kind::Raw {
            return Ok(None);
        }
        let origin = self.ask_pool(id, |pool, name| async move {
            let mut snapshots = pool.snapshots().into_iter();
            let origin = snapshots.find(|one| one.clones.contains(&name));
            let volumes = pool.list();
            Ok(origin.map(|one| {
                let volume = volumes.into_iter().find(|it| it.name == one.volume);
                (one, volume.map(|it| it.uuid))
            }))
        })?;
        let Some((snapshot, volume)) = origin else {
            return Ok(None);
        };
        let known = volume.map(|uuid| Identity::Uuid(Uuid::from_bytes(uuid)));
        let known = known.and_then(|uuid| self.graph.known_by(&uuid));
        let volume = known.map_or(&*snapshot.volume, |id| self.graph.name(id));
        let of = format!("{volume}@{}", snapshot.name);
        Ok(Some((spec.name, of)))
    }
}

/// How many snapshots, which are in the order of their volumes, are not behind this one. One that
/// is gone says nothing about which of its volume's were told already.
fn behind(all: &[SnapshotView], after: &SnapshotName) -> Result<usize, Fault> {
    let begin = all.partition_point(|one| one.volume < after.volume);
    let end = all.partition_point(|one| one.volume <= after.volume);
    let full = after.to_string();
    match all[begin..end].iter().position(|one| one.name == full) {
        Some(place) => Ok(begin + place + 1),
        None if begin == end => Ok(begin),
        None => {
            let SnapshotName { volume, name } = after.clone();
            Err(PoolError::NoSnapshot { volume, name }.into())
        }
    }
}
