//! Sampled I/Os that took longer than their tenant should have to wait, until somebody asks. What
//! others cost is a comparison for each sampled one.

use std::collections::BTreeMap;

use flashyard_sched::{Ask, Class, TenantId};
use flashyard_time::Duration;

use super::stamps::Stages;

/// From when on an I/O of a tenant is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowAfter {
    /// One that is latency-sensitive.
    pub latency_sensitive: Duration,
    /// Any other one.
    pub other: Duration,
}

/// The slowest of those of a tenant since somebody asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowIo {
    /// What it was, and whose.
    pub io: Ask,
    /// How long each stage of it took.
    pub stages: Stages,
    /// From how much on one is slow.
    pub after: Duration,
    /// How many I/Os were slow, by what the sampled ones stand for.
    pub ios: u64,
}

/// Who is watched, and what was found.
#[derive(Default)]
pub(super) struct SlowIos {
    after: BTreeMap<TenantId, SlowAfter>,
    /// The least of these, in nanoseconds; nothing while no tenant is watched.
    least: Option<u64>,
    found: BTreeMap<TenantId, SlowIo>,
}

impl SlowAfter {
    fn least(&self) -> u64 {
        self.latency_sensitive.min(self.other).as_ns()
    }
}

impl SlowIos {
    /// From now on an I/O of `tenant` is slow that takes at least so long; never with nothing.
    pub(super) fn watch(&mut self, tenant: TenantId, after: Option<SlowAfter>) {
        match after {
            Some(after) => self.after.insert(tenant, after),
            None => self.after.remove(&tenant),
        };
        self.least = self.after.values().map(SlowAfter::least).min();
    }

    /// Looks at a sampled I/O that stands for so many.
    pub(super) fn look(&mut self, io: &Ask, stages: &Stages, times: u64) {
        let took = stages.all();
        if self.least.is_none_or(|least| took < least) {
            return;
        }
        let Some(after) = self.after.get(&io.tenant) else {
            return;
        };
        let after = match io.class {
            Class::Latency => after.latency_sensitive,
            _ => after.other,
        };
        if took < after.as_ns() {
            return;
        }
        let new = SlowIo {
            io: *io,
            stages: *stages,
            after,
            ios: times,
        };
        let found = self.found.entry(io.tenant);
        found
            .and_modify(|known| {
                let ios = known.ios + times;
                if took > known.stages.all() {
                    *known = new;
                }
                known.ios = ios;
            })
            .or_insert(new);
    }

    /// What was found since this was asked last.
    pub(super) fn take(&mut self) -> Vec<SlowIo> {
        std::mem::take(&mut self.found).into_values().collect()
    }
}
