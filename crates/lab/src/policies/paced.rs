//! Fixed rates: every tenant's I/O leaves evenly spaced. With the right rates, found by search,
//! this is the best that a switch could do: the bound for other policies.

use std::collections::{BTreeMap, VecDeque};

use flashyard_sched::{Ask, IoId, Next, Op, Outcome, Policy, TenantId};
use flashyard_time::{Duration, Time};

/// See the module. Tenants without a rate never wait.
#[derive(Debug, Default)]
pub struct Paced {
    tenants: BTreeMap<TenantId, Lane>,
}

#[derive(Debug, Default)]
struct Lane {
    /// Bytes per second.
    rate: Option<u64>,
    /// When its next I/O may leave.
    due: Time,
    queue: VecDeque<Ask>,
}

/// A tenant that was late may catch up on so much.
const SLACK: Duration = Duration::from_ms(1);

impl Paced {
    /// Tenants with their rates in bytes per second.
    pub fn new(rates: impl IntoIterator<Item = (TenantId, u64)>) -> Self {
        let lane = |(tenant, rate): (TenantId, u64)| {
            let rate = Some(rate.max(1));
            (
                tenant,
                Lane {
                    rate,
                    ..Lane::default()
                },
            )
        };
        Self {
            tenants: rates.into_iter().map(lane).collect(),
        }
    }
}

impl Policy for Paced {
    fn arrive(&mut self, _: Time, io: Ask) {
        let lane = self.tenants.entry(io.tenant).or_default();
        lane.queue.push_back(io);
    }

    fn next(&mut self, now: Time) -> Next {
        let waiting = self
            .tenants
            .values_mut()
            .filter(|lane| !lane.queue.is_empty());
        let Some(lane) = waiting.min_by_key(|lane| lane.due) else {
            return Next::WaitForEvent;
        };
        if lane.due > now {
            return Next::WaitUntil(lane.due);
        }
        let io = lane
            .queue
            .pop_front()
            .expect("only lanes with I/O are asked");
        if let Some(rate) = lane.rate
            && matches!(io.op, Op::Read | Op::Write)
        {
            let span = Duration::from_secs(1).scale(io.bytes, rate);
            lane.due = lane.due.max(now - SLACK) + span;
        }
        Next::Dispatch(io.id)
    }

    fn complete(&mut self, _: Time, _: &Ask, _: Outcome) {}

    fn cancel(&mut self, _: Time, id: IoId) {
        for lane in self.tenants.values_mut() {
            lane.queue.retain(|io| io.id != id);
        }
    }
}

#[cfg(test)]
mod tests {
    use flashyard_sched::Class;

    use super::*;

    fn io(id: u32, tenant: u32) -> Ask {
        Ask {
            id: IoId(id),
            tenant: TenantId(tenant),
            class: Class::Throughput,
            op: Op::Write,
            bytes: 4096,
            lba: 0,
        }
    }

    #[test]
    fn each_tenant_leaves_at_its_own_rate_and_those_without_at_once() {
        let mut paced = Paced::new([(TenantId(1), 4_096_000), (TenantId(2), 8_192_000)]);
        let mut now = Time::ZERO + Duration::from_secs(1);
        let begin = now;
        for tenant in 1..=3 {
            for place in 0..10 {
                paced.arrive(now, io(tenant * 100 + place, tenant));
            }
        }
        paced.cancel(now, IoId(309));
        let mut left = [Vec::new(), Vec::new(), Vec::new()];
        loop {
            match paced.next(now) {
                Next::Dispatch(IoId(id)) => {
                    left[id as usize / 100 - 1].push(now.since(begin).as_us());
                }
                Next::WaitUntil(at) => now = at,
                Next::WaitForEvent => break,
            }
        }
        // The first catches up on the millisecond of slack.
        assert_eq!(
            left[0],
            [0, 0, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000]
        );
        assert_eq!(left[1][..5], [0, 0, 0, 500, 1000]);
        assert_eq!(left[2], [0; 9]);
    }
}
