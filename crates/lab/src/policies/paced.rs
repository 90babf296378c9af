//! Fixed rates: every tenant's I/O leaves evenly spaced. With the right rates, found by search, this is the best that a
//! switch could do, and what others are held against.

use std::collections::{BTreeMap, VecDeque};

use flashyard_sched::{Io, IoId, Next, Op, Outcome, Policy, TenantId};
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
    queue: VecDeque<Io>,
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
    fn arrive(&mut self, _: Time, io: Io) {
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

    fn complete(&mut self, _: Time, _: &Io, _: Outcome) {}

    fn cancel(&mut self, _: Time, id: IoId) {
        for lane in self.tenants.values_mut() {
            lane.queue.retain(|io| io.id != id);
        }
    }
}
