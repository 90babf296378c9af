//! Space of mapped pools: what is kept for volumes, and quotas of tenants.

use std::collections::BTreeSet;

use flashyard_block::pool::{NewVolume, Pool, PoolError};

use super::fault::Refused;
use super::work::Work;
use super::{Fault, Stack};
use crate::control::{KindName, QuotaView, View};
use crate::graph::NodeId;
use crate::published::Report;
use crate::spec::{Size, TenantSpec, VolumeKind, VolumeSpec};
use crate::state::Kind;

/// A volume that is to be made in its pool.
pub(super) struct New {
    pub volume: NewVolume,
    /// Bytes that are kept for it.
    pub reserve: u64,
    /// What its tenant may have there.
    pub quota: Option<u64>,
}

/// Makes volumes in their pool and keeps space for them. When one cannot have what is to be
/// reserved none stays.
pub(super) async fn make_in_pool(pool: &Pool, wanted: Vec<New>) -> Result<(), PoolError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let reserves: Vec<(String, u64)> = wanted
        .iter()
        .filter(|new| new.reserve > 0)
        .map(|new| (new.volume.name.clone(), new.reserve))
        .collect();
    let names: Vec<String> = wanted.iter().map(|new| new.volume.name.clone()).collect();
    for new in &wanted {
        if let Some(owner) = &new.volume.owner {
            pool.set_quota(&owner.tenant, new.quota);
        }
    }
    let volumes = wanted.into_iter().map(|new| new.volume);
    pool.create_volumes(volumes.collect()).await?;
    if reserves.is_empty() {
        return Ok(());
    }
    if let Err(error) = pool.reserve(reserves).await {
        for name in names {
            pool.delete(&name).await?;
        }
        return Err(error);
    }
    Ok(())
}

impl Stack {
    /// What the tenant of a volume may have in its pool, in bytes.
    pub(super) fn quota_of(&self, volume: &VolumeSpec) -> Option<u64> {
        let (_, tenant) = self.tenant(&volume.tenant).ok()?;
        let quota = tenant.spec.quota.get(volume.pool.as_ref()?)?;
        Some(quota.0)
    }

    /// Tenants that have a quota of a pool, as they are without it.
    pub(super) fn without_quotas_of(&self, pool: &str) -> Vec<TenantSpec> {
        let all = self.graph.all(Kind::Tenant);
        let specs = all.filter_map(|id| Some(self.graph.tenant(id)?.spec.clone()));
        let with = specs.filter(|spec| spec.quota.contains_key(pool));
        let without = with.map(|mut spec| {
            spec.quota.remove(pool);
            spec
        });
        without.collect()
    }
}

/// What is to be done when three quarters of a quota are taken.
fn quota_hint(pool: &str, taken: u64, quota: u64) -> Option<String> {
    let percent = u128::from(taken) * 100 / u128::from(quota.max(1));
    (percent >= 75).then(|| {
        format!(
            "{percent} % of its quota in pool {pool} is used or reserved: when all is, writes that need space fail with \
             Capacity Exceeded; raise it, delete a volume or snapshot, or have hosts discard what they do not need"
        )
    })
}

impl Work<'_> {
    /// Quotas of a tenant, with what its volumes take.
    pub(super) fn view_quotas(&self, spec: &TenantSpec) -> Vec<QuotaView> {
        let quotas = spec.quota.iter();
        let view = |(pool, quota): (&String, &Size)| {
            let space = self.space_of(pool, &spec.name);
            QuotaView {
                pool: pool.clone(),
                quota_bytes: quota.0,
                used_bytes: space.map(|space| space.0),
                reserved_bytes: space.map(|space| space.1),
                space_hint: space.and_then(|(used, reserved)| {
                    quota_hint(pool, used.saturating_add(reserved), quota.0)
                }),
            }
        };
        quotas.map(view).collect()
    }

    /// What the volumes of a tenant take of a pool, and what is kept for them beside that.
    fn space_of(&self, pool: &str, tenant: &str) -> Option<(u64, u64)> {
        let pool = self.graph.find(Kind::Pool, pool)?;
        let device = self.graph.device_under(pool)?;
        let report = self.report(self.graph.device(device)?.home?, pool)?;
        let Report::Pool(_, tenants) = &*report else {
            return None;
        };
        let found = tenants.iter().find(|space| space.tenant == tenant);
        // Without a volume there is nothing of it.
        Some(found.map_or((0, 0), |space| (space.used, space.reserved)))
    }

    /// Quotas that are new are of mapped pools.
    pub(super) fn check_quotas(&self, spec: &TenantSpec) -> Result<(), Fault> {
        let before = self.tenant(&spec.name).ok();
        for (name, quota) in &spec.quota {
            let now = before.and_then(|(_, record)| record.spec.quota.get(name));
            if now == Some(quota) {
                continue;
            }
            let (_, pool) = self.pool(name)?;
            if pool.spec.kind != Some(VolumeKind::Mapped) {
                return Err(PoolError::AllReserved("quotas").into());
            }
        }
        Ok(())
    }

    /// Refuses to give a volume to a tenant whose quota does not have room for it.
    pub(super) fn check_room_for(&self, id: NodeId, to: &TenantSpec) -> Result<(), Fault> {
        let spec = self.record(id)?.spec;
        let quota = spec.pool.as_ref().and_then(|pool| to.quota.get(pool));
        let (Some(pool), Some(Size(quota))) = (spec.pool.clone(), quota.copied()) else {
            return Ok(());
        };
        let tenant = to.name.clone();
        let taken = self.ask_pool(id, |pool, name| async move {
            let tenants = pool.tenants();
            let there = tenants.iter().find(|space| space.tenant == tenant);
            let there = there.map_or(0, |space| space.used + space.reserved);
            Ok((pool.claimed(&name), there))
        });
        let (needed, there) = taken?;
        let free = quota.saturating_sub(there);
        match needed > free {
            true => Err(Refused::OverQuota(spec.name, to.name.clone(), pool, needed, free).into()),
            false => Ok(()),
        }
    }

    /// Tells pools what the volumes of a tenant may take. One that is away is told when it is there
    /// again.
    pub(super) fn tell_quotas(&self, tenant: NodeId) {
        let volumes = self.graph.volumes_on(tenant);
        let specs = volumes.map(|(_, volume)| &volume.record.spec);
        let pools: BTreeSet<_> = specs
            .filter_map(|spec| Some((spec.pool.clone()?, self.quota_of(spec))))
            .collect();
        let tenant = self.graph.name(tenant).to_owned();
        for (pool, quota) in pools {
            let Ok((pool, core)) = self.pool_home(&pool) else {
                continue;
            };
            let tenant = tenant.clone();
            self.cores.call(core, move |state| async move {
                if let Some(pool) = state.nodes.pool(pool) {
                    pool.set_quota(&tenant, quota);
                }
            });
        }
    }

    /// Keeps so much of its pool for a volume.
    pub(super) fn reserve_space(&mut self, name: &str, size: Size) -> Result<View, Fault> {
        let (id, _) = self.volume(name)?;
        self.check_not_migrating(id)?;
        self.check_no_snapshot(id)?;
        let reserved = self.in_pool(id, move |pool, record| async move {
            match pool.find(record.uuid.into_bytes()) {
                Some((volume, _)) => pool.reserve(vec![(volume, size.0)]).await,
                None => Err(PoolError::NotFound(record.spec.name)),
            }
        });
        if reserved?.is_none() && size.0 > 0 {
            return Err(PoolError::AllReserved("reservations").into());
        }
        let reserve = (size.0 > 0).then_some(size);
        self.commit(|state, stack| {
            let record = state.set_volume_reserve(&stack.record(id)?, reserve)?;
            Ok(move |stack: &mut Stack| stack.set_record(id, record))
        })?;
        self.view_one(KindName::Volume, name)
    }

    /// Has the pool of a volume keep for it what is noted.
    pub(super) fn keep_reserve(&self, id: NodeId) -> Result<(), Fault> {
        let kept = self.in_pool(id, |pool, record| async move {
            let uuid = record.uuid.into_bytes();
            let wanted = record.spec.reserve.map_or(0, |size| size.0);
            let all = pool.list().into_iter();
            let found = all.into_iter().find(|volume| volume.uuid == uuid);
            match found.filter(|volume| volume.reserved != wanted.next_multiple_of(1 << 20)) {
                Some(volume) => pool.reserve(vec![(volume.name, wanted)]).await,
                None => Ok(()),
            }
        });
        kept.map(drop)
    }
}
