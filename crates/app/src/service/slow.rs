//! Slow I/Os and slow devices: asked of the cores now and then, and reported as events. Sampled
//! I/Os that took long become one event for a tenant and device, with the slowest of them, at once
//! and then once a minute at most; so a device that is slow for hours does not push all others out.

mod found;

use std::collections::BTreeMap;
use std::time::Instant;

use flashyard_engine::{SlowAfter, SlowIo, Slowness};
use flashyard_sched::Op;
use flashyard_time::Duration as Span;

pub(super) use found::{SlowDevices, SlowIos};

use super::Service;
use super::work::Work;
use crate::control::{SlowIoView, SlowOp};
use crate::cores;
use crate::graph::NodeId;
use crate::spec::TenantSpec;
use crate::units;

/// A latency-sensitive I/O is slow when it takes so many times its tenant's latency target. The
/// target is for 99 of 100, so one of a hundred that misses it is not worth a report.
const TIMES_TARGET: u64 = 4;

impl Work<'_> {
    /// Asks the cores for slow I/Os and slow devices; reports the first, and notes the others for
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
    use super::found::tests::slow;
    use super::*;

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
    fn it_is_put_in_words_without_stages_that_took_nothing() {
        let (_, io) = slow(1, 345);
        let text = view("ssd0", "db".into(), &io).text();
        assert_eq!(
            text,
            "a read of 4 KiB on device ssd0 took 345.00 ms (12 us waiting for a turn, 344.99 ms at \
             the device); about 7 I/Os took more than 5.00 ms"
        );
    }
}
