//! The workers on a drive.

use std::ops::Range;

use flashyard_flash::Profile;
use flashyard_flash::ssd::Condition;
use flashyard_sched::{Class, Rates, Share, TenantId};
use flashyard_time::Duration;

use crate::load::{Pace, Pattern, Worker};
use crate::policies::Calibration;

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::experiments) struct Kind {
    pub(in crate::experiments) reads: bool,
    pub(in crate::experiments) bytes: u64,
    pub(in crate::experiments) depth: u32,
}

/// Workers of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::experiments) struct Group {
    pub(in crate::experiments) kind: Kind,
    pub(in crate::experiments) count: u32,
    pub(in crate::experiments) class: Class,
    /// One tenant has all of them; otherwise each is a tenant.
    pub(in crate::experiments) one_tenant: bool,
}

/// Groups on a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::experiments) struct Workload {
    /// The place of the drive's profile.
    pub(in crate::experiments) profile: usize,
    pub(in crate::experiments) condition: Condition,
    pub(in crate::experiments) groups: Vec<Group>,
}

impl Kind {
    pub(in crate::experiments) const READ_4K: Self = Self::new(true, 4096, 32);
    pub(in crate::experiments) const WRITE_4K: Self = Self::new(false, 4096, 32);
    pub(in crate::experiments) const READ_128K: Self = Self::new(true, 128 << 10, 4);
    pub(in crate::experiments) const WRITE_128K: Self = Self::new(false, 128 << 10, 4);

    pub(in crate::experiments) const fn new(reads: bool, bytes: u64, depth: u32) -> Self {
        Self {
            reads,
            bytes,
            depth,
        }
    }

    pub(in crate::experiments) fn label(self) -> String {
        let op = if self.reads { "read" } else { "write" };
        format!("{} KiB {op}, QD {}", self.bytes >> 10, self.depth)
    }

    /// The `place`-th of `count` workers on a drive of `capacity` bytes. Long writes go through a
    /// part of their own in order; everything else is at random everywhere.
    fn worker(self, tenant: u32, place: u32, count: u32, capacity: u64) -> Worker {
        let pace = Pace::Closed { depth: self.depth };
        let percent = if self.reads { 100 } else { 0 };
        let pattern = if self.reads || self.bytes < 128 << 10 {
            Pattern::random(percent, self.bytes)
        } else {
            let pattern = Pattern::sequential(percent, self.bytes);
            pattern.within_part(u64::from(place), u64::from(count), capacity)
        };
        Worker::new(self.label(), tenant, pace, pattern)
    }
}

impl Group {
    /// So many tenants with a worker each.
    pub(in crate::experiments) const fn of(count: u32, kind: Kind) -> Self {
        Self {
            kind,
            count,
            class: Class::Throughput,
            one_tenant: false,
        }
    }

    /// The same, in another class.
    pub(in crate::experiments) const fn of_class(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// One tenant with so many workers.
    pub(in crate::experiments) const fn of_one_tenant(count: u32, kind: Kind) -> Self {
        Self {
            one_tenant: true,
            ..Self::of(count, kind)
        }
    }

    pub(in crate::experiments) fn tenants(&self) -> u32 {
        if self.one_tenant { 1 } else { self.count }
    }

    pub(in crate::experiments) fn label(&self) -> String {
        let class = match self.class {
            Class::Latency => "latency ",
            Class::Throughput => "",
            Class::Background => "background ",
        };
        let noun = if self.kind.reads { "reader" } else { "writer" };
        match (self.count, self.one_tenant) {
            (1, _) => format!("1 {class}{noun}"),
            (count, false) => format!("{count} {class}{noun}s"),
            (count, true) => format!("1 tenant with {count} {class}{noun}s"),
        }
    }
}

impl Group {
    /// With what they do: groups of one workload may differ in that only.
    pub(in crate::experiments) fn label_with_kind(&self) -> String {
        format!("{}, {}", self.label(), self.kind.label())
    }
}

impl Workload {
    pub(in crate::experiments) fn new(
        profile: usize,
        condition: Condition,
        groups: impl Into<Vec<Group>>,
    ) -> Self {
        Self {
            profile,
            condition,
            groups: groups.into(),
        }
    }

    pub(in crate::experiments) fn label(&self, profiles: &[Profile]) -> String {
        let drive = &profiles[self.profile].name;
        format!("{} on {drive}, {}", self.tenants_label(), self.condition)
    }

    /// The workers, such as `16 readers + 16 writers`.
    pub(in crate::experiments) fn tenants_label(&self) -> String {
        let groups: Vec<_> = self.groups.iter().map(Group::label).collect();
        groups.join(" + ")
    }

    pub(in crate::experiments) fn tenants(&self) -> u32 {
        self.groups.iter().map(Group::tenants).sum()
    }

    /// The places of the workers of a group.
    pub(in crate::experiments) fn range(&self, group: usize) -> Range<usize> {
        let begin: u32 = self.groups[..group].iter().map(|group| group.count).sum();
        let begin = begin as usize;
        begin..begin + self.groups[group].count as usize
    }

    /// All workers, with tenants counted from 1. The released Gimbal takes every connection for a
    /// tenant.
    pub(in crate::experiments) fn workers(&self, policy: &str, capacity: u64) -> Vec<Worker> {
        let connections = policy == "gimbal-released";
        let mut workers = Vec::new();
        let mut tenant = 0;
        for group in &self.groups {
            for place in 0..group.count {
                tenant += u32::from(place == 0 || !group.one_tenant || connections);
                let worker = group.kind.worker(tenant, place, group.count, capacity);
                workers.push(worker.of_class(group.class));
            }
        }
        workers
    }

    /// Entitlements of tenants, for policies that distinguish tenants by them only. With caps, each
    /// was sold its part of what its work reaches on the drive as calibrated. For ReFlex, a
    /// latency-sensitive tenant has reserved what one read at a time can use, at a p95 of 1 ms.
    pub(in crate::experiments) fn shares(
        &self,
        policy: &str,
        drive: &Calibration,
    ) -> Vec<(TenantId, Share)> {
        let part = |kind: Kind| drive.bandwidth(kind.reads, kind.bytes) / u64::from(self.tenants());
        let share = |group: &Group| match (policy, group.class) {
            ("caps", _) => Some(Share {
                limit: Rates {
                    bytes: Some(part(group.kind)),
                    ..Rates::NONE
                },
                ..Share::default()
            }),
            ("reflex", Class::Latency) => Some(Share {
                guarantee: Rates {
                    read_ios: Some(12_000),
                    ..Rates::NONE
                },
                latency_target: Some(Duration::from_ms(1)),
                ..Share::default()
            }),
            _ => None,
        };
        let tenants = self.groups.iter().flat_map(|group| {
            let share = share(group);
            (0..group.tenants()).map(move |_| share)
        });
        let numbered = (1..).zip(tenants);
        numbered
            .filter_map(|(tenant, share)| Some((TenantId(tenant), share?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_of_a_tenant_share_its_number_but_in_the_released_gimbal() {
        let groups = [
            Group::of_one_tenant(3, Kind::READ_4K),
            Group::of(2, Kind::WRITE_128K),
        ];
        let workload = Workload::new(0, Condition::Clean, groups);
        assert_eq!((workload.tenants(), workload.range(1)), (3, 3..5));
        assert_eq!(
            workload.tenants_label(),
            "1 tenant with 3 readers + 2 writers"
        );
        for (policy, tenants) in [
            ("fair", [1, 1, 1, 2, 3]),
            ("gimbal-released", [1, 2, 3, 4, 5]),
        ] {
            let workers = workload.workers(policy, 1 << 30);
            let found: Vec<_> = workers.iter().map(|worker| worker.tenant.0).collect();
            assert_eq!(found, tenants);
            assert!(workers.iter().all(|worker| worker.check(1 << 30).is_ok()));
        }
    }
}
