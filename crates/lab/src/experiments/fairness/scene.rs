//! A scene: a drive, the way to it, and the tenants on it.

use flashyard_flash::Profile;
use flashyard_flash::ssd::{Condition, Device};
use flashyard_sched::{Class, Rates, Share, TenantId};
use flashyard_time::{Duration, Time};

use crate::bench::{Path, Results, Setup};
use crate::experiment::Refused;
use crate::load::{Access, Pace, Pattern, Phases, Worker};
use crate::policies::Switch;

/// A tenant with a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tenant {
    pub(super) weight: u32,
    pub(super) class: Class,
    pub(super) pace: Pace,
    /// Its region is decided by the scene: in order in a part of its own, at random everywhere.
    pub(super) pattern: Pattern,
    /// Work and rest by turns.
    pub(super) phases: Option<Phases>,
    /// When it is there.
    pub(super) start: Time,
    pub(super) stop: Time,
    pub(super) guarantee: Rates,
    pub(super) limit: Rates,
}

/// A drive and who uses it.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) profile: Profile,
    pub(super) capacity: u64,
    pub(super) condition: Condition,
    /// What lies before the drive, from these spans after the beginning on.
    pub(super) paths: Vec<(Duration, Path)>,
    pub(super) tenants: Vec<Tenant>,
}

/// When a run begins to be measured, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spans {
    pub(super) warm_up: Duration,
    pub(super) measured: Duration,
}

impl Tenant {
    /// One that always has `depth` I/Os of these lengths in flight, each length as often.
    pub(super) fn closed(weight: u32, reads: bool, sizes: &[u64], depth: u32) -> Self {
        let percent = if reads { 100 } else { 0 };
        let sizes = sizes.iter().map(|&bytes| (bytes, 1)).collect();
        Self {
            weight,
            class: Class::Throughput,
            pace: Pace::Closed { depth },
            pattern: Pattern {
                sizes,
                ..Pattern::random(percent, 4096)
            },
            phases: None,
            start: Time::ZERO,
            stop: Time::MAX,
            guarantee: Rates::NONE,
            limit: Rates::NONE,
        }
    }

    /// The same, one address after another.
    pub(super) fn in_order(mut self) -> Self {
        self.pattern.access = Access::Sequential;
        self
    }

    fn share(&self) -> Share {
        Share {
            weight: self.weight,
            guarantee: self.guarantee,
            limit: self.limit,
            latency_target: None,
        }
    }
}

impl Scene {
    /// The drive before the first I/O.
    pub(super) fn device(&self, seed: u64) -> Result<Device, Refused> {
        let built = Device::in_condition(&self.profile, self.capacity, seed, self.condition);
        built.map_err(|error| {
            let (name, bytes) = (&self.profile.name, self.capacity);
            Refused::Conflict(format!("`{name}` cannot have {bytes} bytes: {error}"))
        })
    }

    /// The sum of all weights.
    pub(super) fn weights(&self) -> f64 {
        self.tenants
            .iter()
            .map(|tenant| f64::from(tenant.weight))
            .sum()
    }

    /// What happens under a policy, also in every `window` of the span if that is not zero.
    pub(super) fn run(
        &self,
        switch: Switch,
        spans: Spans,
        window: Duration,
        seed: u64,
    ) -> Result<Results, Refused> {
        let mut policy = switch.policy;
        for (tenant, id) in self.tenants.iter().zip(1..) {
            let id = TenantId(id);
            policy.set_share(Time::ZERO, id, &tenant.share());
        }
        let mut setup = Setup::new(self.device(seed)?, policy, self.workers()).seeded(seed);
        setup.host = switch.host;
        setup.window = window;
        let setup = setup.over(self.paths.clone());
        Ok(setup.measured(spans.warm_up, spans.measured).run()?)
    }

    /// A worker for each tenant.
    pub(super) fn workers(&self) -> Vec<Worker> {
        let count = self.tenants.len() as u64;
        let worker = |(tenant, place): (&Tenant, u32)| {
            let mut pattern = tenant.pattern.clone();
            if pattern.access == Access::Sequential {
                pattern = pattern.within_part(u64::from(place), count, self.capacity);
            }
            let label = format!("tenant {}", place + 1);
            let worker = Worker::new(label, place + 1, tenant.pace, pattern);
            Worker {
                phases: tenant.phases,
                ..worker
                    .of_class(tenant.class)
                    .between(tenant.start, tenant.stop)
            }
        };
        self.tenants.iter().zip(0..).map(worker).collect()
    }
}
