//! Parda's hosts: each has a window of its own, and there is no switch in front of the drive.

use flashyard_host::Parda;
use flashyard_sched::{Ask, Credit};
use flashyard_time::{Duration, Time};

use crate::bench::HostPolicy;

/// See the module; the rule is [`Parda`].
#[derive(Debug)]
pub struct PardaHosts {
    threshold: Duration,
    hosts: Vec<(Parda, u32)>,
}

impl PardaHosts {
    /// Hosts that steer for this latency.
    pub fn new(threshold: Duration) -> Self {
        Self {
            threshold,
            hosts: Vec::new(),
        }
    }

    /// The window of a host, and what it has in flight.
    fn host(&mut self, worker: usize) -> &mut (Parda, u32) {
        while self.hosts.len() <= worker {
            self.hosts.push((Parda::new(self.threshold), 0));
        }
        &mut self.hosts[worker]
    }
}

impl HostPolicy for PardaHosts {
    fn admit(&mut self, _: Time, worker: usize, _: &Ask) -> bool {
        let (parda, in_flight) = self.host(worker);
        let goes = *in_flight < parda.window();
        *in_flight += u32::from(goes);
        goes
    }

    fn complete(
        &mut self,
        now: Time,
        worker: usize,
        _: &Ask,
        latency: Duration,
        _: Option<Credit>,
    ) {
        let (parda, in_flight) = self.host(worker);
        *in_flight -= 1;
        parda.observe(now, latency);
    }
}
