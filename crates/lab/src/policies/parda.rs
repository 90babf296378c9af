//! Parda: each host has a window that follows the latency it sees, and the target does nothing.
//!
//! After Gulati, Ahmad and Waldspurger, "PARDA: Proportional Allocation of Resources for Distributed Storage Access",
//! FAST 2009: `w <- (1 - g) w + g (threshold / L * w + b)`, with `L` an average of latencies. The constants for a
//! disk array (every 2 s, 25 to 40 ms) are of no use for flash; the period here is 5 ms, and the threshold is what
//! the drive was calibrated for. Sizes are not told apart, and reads not from writes.

use flashyard_sched::{Credit, Io};
use flashyard_time::{Duration, Time};

use crate::bench::HostPolicy;

/// See the module.
#[derive(Debug)]
pub struct Parda {
    threshold_ns: f64,
    hosts: Vec<Host>,
}

#[derive(Debug)]
struct Host {
    window: f64,
    under_way: u32,
    /// Average latency in nanoseconds; zero before the first.
    latency: f64,
    updated: Time,
}

/// From one change of a window to the next.
const PERIOD: Duration = Duration::from_ms(5);
/// How much of a window is new at each change.
const GAIN: f64 = 0.8;
/// What each window grows by at the threshold: the host's share.
const SHARE: f64 = 1.0;
/// How much a sample counts in the average.
const SAMPLE: f64 = 1.0 / 8.0;
const LEAST: f64 = 1.0;
const MOST: f64 = 128.0;

impl Parda {
    /// Hosts that steer for this latency.
    pub fn new(threshold: Duration) -> Self {
        Self {
            threshold_ns: threshold.as_ns().max(1) as f64,
            hosts: Vec::new(),
        }
    }

    fn host(&mut self, worker: usize) -> &mut Host {
        while self.hosts.len() <= worker {
            self.hosts.push(Host {
                window: 32.0,
                under_way: 0,
                latency: 0.0,
                updated: Time::ZERO,
            });
        }
        &mut self.hosts[worker]
    }
}

impl HostPolicy for Parda {
    fn admit(&mut self, _: Time, worker: usize, _: &Io) -> bool {
        let host = self.host(worker);
        let goes = f64::from(host.under_way) < host.window.floor();
        host.under_way += u32::from(goes);
        goes
    }

    fn complete(&mut self, now: Time, worker: usize, _: &Io, latency: Duration, _: Option<Credit>) {
        let threshold = self.threshold_ns;
        let host = self.host(worker);
        host.under_way -= 1;
        let latency = latency.as_ns() as f64;
        host.latency = if host.latency > 0.0 {
            host.latency + (latency - host.latency) * SAMPLE
        } else {
            latency
        };
        if now.since(host.updated) >= PERIOD {
            host.updated = now;
            let goal = threshold / host.latency.max(1.0) * host.window + SHARE;
            let window = (1.0 - GAIN) * host.window + GAIN * goal;
            host.window = window.clamp(LEAST, MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use flashyard_sched::{Class, IoId, Op, TenantId};

    use super::*;

    /// The window of a host after a second at this latency.
    fn window(latency_us: u64) -> usize {
        let io = Io {
            id: IoId(0),
            tenant: TenantId(1),
            class: Class::Throughput,
            op: Op::Read,
            bytes: 4096,
            lba: 0,
        };
        let mut parda = Parda::new(Duration::from_ms(1));
        let mut now = Time::ZERO;
        for _ in 0..1000 {
            now += Duration::from_ms(1);
            assert!(parda.admit(now, 0, &io));
            let latency = Duration::from_us(latency_us);
            parda.complete(now, 0, &io, latency, None);
        }
        (0..999).take_while(|_| parda.admit(now, 0, &io)).count()
    }

    #[test]
    fn windows_follow_latency_between_their_bounds() {
        assert_eq!(window(500), 128);
        assert_eq!(window(1_000), 128);
        // At rest, w = threshold / L * w + b.
        assert_eq!(window(1_250), 5);
        assert_eq!(window(9_000), 1);
    }
}
