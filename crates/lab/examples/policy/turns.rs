//! The policy that docs/guide/writing-a-policy.md shows. The contract test of `sched` runs it, too.

use std::collections::VecDeque;

use flashyard_sched::{Ask, IoId, Next, Outcome, Policy, TenantId};
use flashyard_time::Time;

/// One I/O of each tenant in turn, and few at the drive at a time.
#[derive(Default)]
pub struct Turns {
    queues: VecDeque<(TenantId, VecDeque<IoId>)>,
    in_flight: u32,
}

/// As many as keep the drive's dies busy without long queues inside it.
const MOST_IN_FLIGHT: u32 = 32;

impl Policy for Turns {
    fn arrive(&mut self, _: Time, io: Ask) {
        let known = self.queues.iter_mut().find(|(id, _)| *id == io.tenant);
        match known {
            Some((_, queue)) => queue.push_back(io.id),
            None => self.queues.push_back((io.tenant, VecDeque::from([io.id]))),
        }
    }

    fn next(&mut self, _: Time) -> Next {
        if self.in_flight == MOST_IN_FLIGHT {
            return Next::WaitForEvent;
        }
        for _ in 0..self.queues.len() {
            self.queues.rotate_left(1);
            let front = self.queues.back_mut().and_then(|(_, it)| it.pop_front());
            if let Some(id) = front {
                self.in_flight += 1;
                return Next::Dispatch(id);
            }
        }
        Next::WaitForEvent
    }

    fn complete(&mut self, _: Time, _: &Ask, _: Outcome) {
        self.in_flight -= 1;
    }

    fn cancel(&mut self, _: Time, id: IoId) {
        for (_, queue) in &mut self.queues {
            queue.retain(|queued| *queued != id);
        }
    }

    fn forget(&mut self, _: Time, tenant: TenantId) {
        self.queues
            .retain(|(id, queue)| *id != tenant || !queue.is_empty());
    }
}
