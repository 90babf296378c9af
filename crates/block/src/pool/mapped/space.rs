//! Space that is kept for volumes, and how much those may take whose volumes they are. What is
//! reserved lies in the pool; quotas are set each time it is opened.

use std::collections::BTreeMap;

use flashyard_logstore::format::BLOCK;
use flashyard_logstore::{Lineage, Owned, RESERVED_UNIT, Refused};

use super::engine::Asked;
use super::{Inner, MappedPool, failed};
use crate::pool::error::PoolError;
use crate::pool::facts::{Owner, TenantSpace};

/// Bytes of the unit in which space is reserved.
pub(in crate::pool) const UNIT: u64 = RESERVED_UNIT * BLOCK as u64;

/// Tenants as the store knows them, by number.
#[derive(Default)]
pub(super) struct Tenants {
    numbers: BTreeMap<String, u32>,
}

impl Tenants {
    fn number(&mut self, tenant: &str) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(tenant.to_owned()).or_insert(next)
    }
}

impl MappedPool {
    /// See [`Pool::reserve`](crate::pool::Pool::reserve).
    pub async fn reserve(&self, wanted: Vec<(String, u64)>) -> Result<(), PoolError> {
        self.change(async move |inner| {
            for (name, bytes) in &wanted {
                inner.reserve(name, *bytes).await?;
            }
            Ok(())
        })
        .await
    }

    /// See [`Pool::set_quota`](crate::pool::Pool::set_quota).
    pub fn set_quota(&self, tenant: &str, bytes: Option<u64>) {
        let number = self.inner.tenants.borrow_mut().number(tenant);
        let quota = bytes.map(|bytes| bytes / BLOCK as u64);
        let mut store = self.inner.engine.store.borrow_mut();
        store.set_quota(number, quota);
        drop(store);
        self.inner.engine.ring();
    }

    /// See [`Pool::claimed`](crate::pool::Pool::claimed).
    pub fn claimed(&self, name: &str) -> u64 {
        let volumes = self.inner.volumes.borrow();
        let store = self.inner.engine.store.borrow();
        let entry = volumes.get(name);
        entry.map_or(0, |it| store.claimed(it.device.lineage()) * BLOCK as u64)
    }

    /// See [`Pool::tenants`](crate::pool::Pool::tenants).
    pub fn tenants(&self) -> Vec<TenantSpace> {
        let store = self.inner.engine.store.borrow();
        let tenants = self.inner.tenants.borrow();
        let all = tenants.numbers.iter();
        let space = |(name, number): (&String, &u32)| {
            let Owned {
                taken,
                reserved,
                quota,
            } = store.owned(*number);
            TenantSpace {
                tenant: name.clone(),
                used: taken * BLOCK as u64,
                reserved: reserved * BLOCK as u64,
                quota: quota.map(|quota| quota * BLOCK as u64),
            }
        };
        all.map(space).collect()
    }
}

impl Inner {
    /// Keeps so many bytes for a volume. What is not in the map yet counts as more than it is: so
    /// it is tried again after a checkpoint.
    async fn reserve(&self, name: &str, bytes: u64) -> Result<(), PoolError> {
        let device = self.volumes.borrow().get(name).map(|it| it.device.clone());
        let device = device.ok_or_else(|| PoolError::NotFound(name.to_owned()))?;
        let lineage = device.lineage();
        let units = u32::try_from(bytes.div_ceil(UNIT)).map_err(|_| PoolError::Size(bytes))?;
        let ask = || {
            self.engine
                .ask(move |store, request| store.reserve(request, lineage, units))
        };
        let mut asked = ask().await;
        if matches!(asked, Err(Asked::Refused(Refused::Space(_)))) {
            let written = self.engine.ask(flashyard_logstore::Store::checkpoint);
            written.await.map_err(|why| failed(RESERVING, why))?;
            asked = ask().await;
        }
        asked.map_err(|why| match why {
            Asked::Refused(Refused::Space(free)) => PoolError::Reserved {
                volume: name.to_owned(),
                needed: bytes,
                free: free * BLOCK as u64 / UNIT * UNIT,
            },
            why => failed(RESERVING, why),
        })
    }

    /// Has the store know whose a volume is.
    pub(super) fn own(&self, lineage: Lineage, owner: Option<&Owner>) {
        let mut tenants = self.tenants.borrow_mut();
        let number = owner.map(|owner| tenants.number(&owner.tenant));
        let mut store = self.engine.store.borrow_mut();
        store.set_owner(lineage, number);
    }
}

const RESERVING: &str = "reserving space for a volume";
