//! Hosts that apply the credit of a switch.

use std::collections::BTreeMap;

use flashyard_sched::{Ask, Credit, TenantId};
use flashyard_time::{Duration, Time};

use crate::bench::HostPolicy;

/// Each host keeps no more in flight than the credit of its tenant says, which comes with every
/// answer; before the first one, what Gimbal's target begins with. Several hosts of a tenant share
/// its credit, but each has one I/O free.
#[derive(Debug, Default)]
pub struct CreditHosts {
    tenants: BTreeMap<TenantId, Window>,
    /// I/Os in flight of each worker.
    workers: BTreeMap<usize, u64>,
}

#[derive(Debug)]
struct Window {
    credit: Credit,
    ios: u64,
    bytes: u64,
}

const FIRST: Credit = Credit {
    ios: 32,
    bytes: u64::MAX,
};

impl HostPolicy for CreditHosts {
    fn admit(&mut self, _: Time, worker: usize, io: &Ask) -> bool {
        let window = self.tenants.entry(io.tenant).or_insert(Window {
            credit: FIRST,
            ios: 0,
            bytes: 0,
        });
        let in_flight = self.workers.entry(worker).or_default();
        let fits = window.ios < u64::from(window.credit.ios)
            && window.bytes.saturating_add(io.bytes) <= window.credit.bytes;
        let goes = fits || *in_flight == 0;
        if goes {
            *in_flight += 1;
            window.ios += 1;
            window.bytes += io.bytes;
        }
        goes
    }

    fn complete(&mut self, _: Time, worker: usize, io: &Ask, _: Duration, credit: Option<Credit>) {
        if let Some(window) = self.tenants.get_mut(&io.tenant) {
            window.ios -= 1;
            window.bytes -= io.bytes;
            // A switch that says nothing does not ask for anything.
            window.credit = credit.unwrap_or(Credit {
                ios: u32::MAX,
                bytes: u64::MAX,
            });
        }
        if let Some(in_flight) = self.workers.get_mut(&worker) {
            *in_flight -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use flashyard_sched::{Class, IoId, Op};

    use super::*;

    #[test]
    fn no_more_is_in_flight_than_the_credit_says() {
        let io = Ask {
            id: IoId(0),
            tenant: TenantId(1),
            class: Class::Throughput,
            op: Op::Read,
            bytes: 4096,
            lba: 0,
        };
        let mut hosts = CreditHosts::default();
        let sent = |hosts: &mut CreditHosts, worker| {
            (0..99)
                .take_while(|_| hosts.admit(Time::ZERO, worker, &io))
                .count()
        };
        assert_eq!(sent(&mut hosts, 0), 32);
        assert_eq!(sent(&mut hosts, 1), 1, "a host with nothing in flight");
        let credit = Some(Credit {
            ios: 34,
            bytes: u64::MAX,
        });
        hosts.complete(Time::ZERO, 0, &io, Duration::ZERO, credit);
        assert_eq!(sent(&mut hosts, 0), 2);
    }
}
