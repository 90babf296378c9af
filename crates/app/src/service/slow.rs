//! Slow I/Os and slow devices: asked of the cores now and then, and told as events. Sampled I/Os
//! that took long become one event for a tenant and device, with the slowest of them, at once and
//! then once a minute at most; so a device that is slow for hours does not push all others out.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use flashyard_block::TenantId;
use flashyard_engine::{SlowAfter, SlowIo, Slowness};
use flashyard_sched::Op;
use flashyard_time::Duration as Span;

use super::Service;
use super::work::Work;
use crate::control::{SlowIoView, SlowOp};
use crate::cores;
use crate::graph::NodeId;
use crate::spec::TenantSpec;
use crate::units;

/// Of a tenant on a device it is told so often at most.
const EVERY: Duration = Duration::from_mins(1);
/// Of so many tenants and devices, the slowest first, each time that it is looked.
const AT_ONCE: usize = 8;
/// A latency-sensitive I/O is slow when it takes so many times its tenant's latency target. The
/// target is for 99 of 100, so one of a hundred that misses it is nothing to tell.
const TIMES_TARGET: u64 = 4;

/// Whose I/Os, and where.
type Place = (NodeId, TenantId);

/// What was found and not told yet, and when it was told last.
pub(super) struct SlowIos<P = Place> {
    found: BTreeMap<P, SlowIo>,
    told: BTreeMap<P, Instant>,
}

impl<P> Default for SlowIos<P> {
    fn default() -> Self {
        Self {
            found: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }
}

impl<P: Ord + Copy> SlowIos<P> {
    fn add(&mut self, place: P, new: SlowIo) {
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

    /// What is to be told now.
    fn due(&mut self, now: Instant) -> Vec<(P, SlowIo)> {
        self.told
            .retain(|_, told| now.saturating_duration_since(*told) < EVERY);
        let told = &self.told;
        let due = self.found.iter().filter(|(it, _)| !told.contains_key(it));
        let mut due: Vec<(P, SlowIo)> = due.map(|(place, io)| (*place, *io)).collect();
        due.sort_by_key(|(_, io)| std::cmp::Reverse(io.stages.all()));
        due.truncate(AT_ONCE);
        for (place, _) in &due {
            self.found.remove(place);
            self.told.insert(*place, now);
        }
        due
    }
}

impl Work<'_> {
    /// Asks the cores for slow I/Os and slow devices; tells of the first, and notes the others for
    /// health.
    pub(super) fn look_for_slow(&self, seen: &mut SlowIos) {
        let until = cores::patience();
        let ask = |(core, devices): (usize, Vec<(NodeId, _, _)>)| {
            self.cores.send(core, move |state| async move {
                let switches = devices.iter().filter_map(|(device, policy, _)| {
                    let switch = state.switch(*device, policy)?;
                    Some((*device, switch.slowness(), switch.take_slow()))
                });
                switches.collect::<Vec<_>>()
            })
        };
        let replies: Vec<_> = self.devices_by_core().into_iter().map(ask).collect();
        let mut slow = BTreeMap::new();
        for reply in replies {
            for (device, slowness, ios) in reply.wait_until(until).into_iter().flatten() {
                slow.extend(slowness.map(|it| (device, it)));
                for io in ios {
                    seen.add((device, io.io.tenant), io);
                }
            }
        }
        self.service.slow_devices.set(slow);
        for ((device, tenant), io) in seen.due(Instant::now()) {
            let view = view(self.graph.name(device), self.tenant_name(tenant), &io);
            self.service.events.add_slow(view);
        }
    }

    /// How a device is slower than usual, in words.
    pub(super) fn slow_detail(&self, device: NodeId) -> Option<String> {
        Some(match self.service.slow_devices.of(device)? {
            Slowness::Latency { usual, now } => {
                let us = |it: Span| units::microseconds(it.as_ns() as f64 / 1e3);
                format!("I/O takes {} at it, usually {}", us(now), us(usual))
            }
            Slowness::Nothing(lasting) => {
                let seconds = lasting.as_secs_f64();
                format!("it has ended nothing of what it has for {seconds:.0} s")
            }
        })
    }
}

impl Service {
    /// From when on an I/O of a tenant is slow.
    pub(super) fn slow_after(&self, spec: &TenantSpec) -> Option<SlowAfter> {
        let target = spec.latency_target.map(|target| target.0);
        Some(slow_after(self.slow_io?, target))
    }
}

fn slow_after(other: Span, target: Option<Span>) -> SlowAfter {
    let target = target.map(|target| target.scale(TIMES_TARGET, 1));
    SlowAfter {
        latency_sensitive: target.map_or(other, |target| target.min(other)),
        other,
    }
}

/// Devices that were slow when it was looked last.
#[derive(Default)]
pub(super) struct SlowDevices(Mutex<BTreeMap<NodeId, Slowness>>);

impl SlowDevices {
    fn set(&self, devices: BTreeMap<NodeId, Slowness>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = devices;
    }

    fn of(&self, device: NodeId) -> Option<Slowness> {
        let devices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        devices.get(&device).copied()
    }
}

fn view(device: &str, tenant: String, slow: &SlowIo) -> SlowIoView {
    let (us, stages) = (|ns: u64| ns / 1000, &slow.stages);
    SlowIoView {
        tenant,
        device: device.to_owned(),
        op: match slow.io.op {
            Op::Read => SlowOp::Read,
            Op::Write => SlowOp::Write,
            Op::CompareAndWrite => SlowOp::CompareAndWrite,
            Op::Flush => SlowOp::Flush,
            Op::WriteZeroes => SlowOp::WriteZeroes,
            Op::Deallocate => SlowOp::Deallocate,
        },
        bytes: slow.io.bytes,
        took_us: us(stages.all()),
        slow_after_us: us(slow.after.as_ns()),
        ios: slow.ios,
        receive_us: us(stages.receive),
        intake_us: us(stages.intake),
        turn_us: us(stages.turn),
        device_us: us(stages.device),
        send_us: us(stages.send),
    }
}

#[cfg(test)]
mod tests {
    use flashyard_engine::Stages;
    use flashyard_sched::{Ask, Class, IoId};

    use super::*;

    fn slow(tenant: u32, ms: u64) -> (TenantId, SlowIo) {
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

    /// Adds these; gives the tenants that are told of after so many seconds, with how slow and of
    /// how many.
    fn told(
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
    fn the_slowest_is_told_at_once_and_then_once_a_minute() {
        let (mut ios, began) = (SlowIos::default(), Instant::now());
        assert_eq!(
            told(&mut ios, began, 0, &[(1, 10), (1, 30), (1, 20)]),
            [[1, 30, 21]]
        );
        assert_eq!(told(&mut ios, began, 5, &[(1, 50), (2, 10)]), [[2, 10, 7]]);
        assert_eq!(told(&mut ios, began, 59, &[(1, 40)]), [[0; 3]; 0]);
        assert_eq!(told(&mut ios, began, 60, &[]), [[1, 50, 14]]);
        assert_eq!(told(&mut ios, began, 300, &[]), [[0; 3]; 0]);
    }

    #[test]
    fn of_many_the_slowest_come_first_and_the_others_next_time() {
        let (mut ios, began) = (SlowIos::default(), Instant::now());
        let many: Vec<(u32, u64)> = (1..=10).map(|it| (it, u64::from(it) * 10)).collect();
        let first = told(&mut ios, began, 0, &many);
        assert_eq!((first.len(), first[0]), (AT_ONCE, [10, 100, 7]));
        assert_eq!(told(&mut ios, began, 5, &[]), [[2, 20, 7], [1, 10, 7]]);
    }

    #[test]
    fn a_latency_target_makes_slow_what_is_less_than_the_setting() {
        let after = |setting, target: Option<u64>| {
            let after = slow_after(Span::from_ms(setting), target.map(Span::from_ms));
            (after.latency_sensitive.as_us(), after.other.as_us())
        };
        assert_eq!(after(1000, None), (1_000_000, 1_000_000));
        assert_eq!(after(1000, Some(30)), (120_000, 1_000_000));
        assert_eq!(after(1000, Some(500)), (1_000_000, 1_000_000));
    }

    #[test]
    fn it_is_told_in_words_without_stages_that_took_nothing() {
        let (_, io) = slow(1, 345);
        let text = view("ssd0", "db".into(), &io).text();
        assert_eq!(
            text,
            "a read of 4 KiB on device ssd0 took 345.00 ms (12 us waiting for a turn, 344.99 ms at \
             the device); about 7 I/Os took more than 5.00 ms"
        );
    }
}
