//! Slow I/Os and slow devices that were found, and which of them are due to be reported.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use flashyard_block::TenantId;
use flashyard_engine::{SlowIo, Slowness};

use crate::graph::NodeId;

/// How often the slow I/Os of a tenant on a device are reported, at most.
const EVERY: Duration = Duration::from_mins(1);
/// Of so many tenants and devices, the slowest first, each time that it is looked.
const AT_ONCE: usize = 8;
/// Whose I/Os, and where.
type Place = (NodeId, TenantId);

/// What was found and not reported yet, and when each was reported last.
pub(in super::super) struct SlowIos<P = Place> {
    found: BTreeMap<P, SlowIo>,
    reported: BTreeMap<P, Instant>,
}

impl<P> Default for SlowIos<P> {
    fn default() -> Self {
        Self {
            found: BTreeMap::new(),
            reported: BTreeMap::new(),
        }
    }
}

impl<P: Ord + Copy> SlowIos<P> {
    pub(super) fn add(&mut self, place: P, new: SlowIo) {
        let found = self.found.entry(place);
        found
            .and_modify(|known| {
                let ios = known.ios + new.ios;
                if new.stages.all() > known.stages.all() {
                    *known = new;
                }
                known.ios = ios;
            })
            .or_insert(new);
    }

    /// What is due to be reported.
    pub(super) fn due(&mut self, now: Instant) -> Vec<(P, SlowIo)> {
        self.reported
            .retain(|_, reported| now.saturating_duration_since(*reported) < EVERY);
        let reported = &self.reported;
        let due = self
            .found
            .iter()
            .filter(|(it, _)| !reported.contains_key(it));
        let mut due: Vec<(P, SlowIo)> = due.map(|(place, io)| (*place, *io)).collect();
        due.sort_by_key(|(_, io)| std::cmp::Reverse(io.stages.all()));
        due.truncate(AT_ONCE);
        for (place, _) in &due {
            self.found.remove(place);
            self.reported.insert(*place, now);
        }
        due
    }
}

/// Devices that were slow when it was looked last.
#[derive(Default)]
pub(in super::super) struct SlowDevices(Mutex<BTreeMap<NodeId, Slowness>>);

impl SlowDevices {
    pub(super) fn set(&self, devices: BTreeMap<NodeId, Slowness>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = devices;
    }

    pub(super) fn of(&self, device: NodeId) -> Option<Slowness> {
        let devices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        devices.get(&device).copied()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use flashyard_engine::Stages;
    use flashyard_sched::{Ask, Class, IoId, Op};
    use flashyard_time::Duration as Span;

    use super::*;

    pub(in super::super) fn slow(tenant: u32, ms: u64) -> (TenantId, SlowIo) {
        let io = Ask {
            id: IoId(0),
            tenant: TenantId(tenant),
            class: Class::Throughput,
            op: Op::Read,
            bytes: 4096,
            lba: 0,
        };
        let stages = Stages {
            turn: 12_000,
            device: ms * 1_000_000 - 12_000,
            ..Stages::default()
        };
        let slow = SlowIo {
            io,
            stages,
            after: Span::from_ms(5),
            ios: 7,
        };
        (TenantId(tenant), slow)
    }

    /// Adds these; gives the tenants that are reported after so many seconds, with how slow and of
    /// how many.
    fn reported(
        ios: &mut SlowIos<TenantId>,
        began: Instant,
        after: u64,
        all: &[(u32, u64)],
    ) -> Vec<[u64; 3]> {
        for &(tenant, ms) in all {
            let (place, io) = slow(tenant, ms);
            ios.add(place, io);
        }
        let due = ios.due(began + Duration::from_secs(after)).into_iter();
        due.map(|(tenant, io)| [tenant.0.into(), io.stages.all() / 1_000_000, io.ios])
            .collect()
    }

    #[test]
    fn the_slowest_is_reported_at_once_and_then_once_a_minute() {
        let (mut ios, began) = (SlowIos::default(), Instant::now());
        assert_eq!(
            reported(&mut ios, began, 0, &[(1, 10), (1, 30), (1, 20)]),
            [[1, 30, 21]]
        );
        assert_eq!(
            reported(&mut ios, began, 5, &[(1, 50), (2, 10)]),
            [[2, 10, 7]]
        );
        assert_eq!(reported(&mut ios, began, 59, &[(1, 40)]), [[0; 3]; 0]);
        assert_eq!(reported(&mut ios, began, 60, &[]), [[1, 50, 14]]);
        assert_eq!(reported(&mut ios, began, 300, &[]), [[0; 3]; 0]);
    }

    #[test]
    fn of_many_the_slowest_come_first_and_the_others_next_time() {
        let (mut ios, began) = (SlowIos::default(), Instant::now());
        let many: Vec<(u32, u64)> = (1..=10).map(|it| (it, u64::from(it) * 10)).collect();
        let first = reported(&mut ios, began, 0, &many);
        assert_eq!((first.len(), first[0]), (AT_ONCE, [10, 100, 7]));
        assert_eq!(reported(&mut ios, began, 5, &[]), [[2, 20, 7], [1, 10, 7]]);
    }
}
