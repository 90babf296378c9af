//! What I/O has really cost, on its way to a policy, or not.

use std::cell::RefCell;
use std::rc::Rc;

use flashyard_sched::{Ask, Cost, Credit, IoId, Next, Outcome, Policy, Share, TenantId};
use flashyard_time::Time;

use super::site::WORKERS;

/// What each of [`WORKERS`] has cost.
pub(super) type Costs = Rc<RefCell<[Cost; WORKERS.len()]>>;

/// Notes what I/O has cost.
pub(super) struct Noting {
    pub(super) policy: Box<dyn Policy>,
    pub(super) costs: Costs,
    /// The policy is told, too.
    pub(super) tells: bool,
}

impl Policy for Noting {
    fn arrive(&mut self, now: Time, io: Ask) {
        self.policy.arrive(now, io);
    }

    fn arrive_again(&mut self, now: Time, io: Ask) {
        self.policy.arrive_again(now, io);
    }

    fn pass(&mut self, now: Time, io: &Ask) -> bool {
        self.policy.pass(now, io)
    }

    fn next(&mut self, now: Time) -> Next {
        self.policy.next(now)
    }

    fn settle(&mut self, now: Time, io: &Ask, cost: Cost) {
        self.costs.borrow_mut()[io.tenant.0 as usize - 1] += cost;
        if self.tells {
            self.policy.settle(now, io, cost);
        }
    }

    fn complete(&mut self, now: Time, io: &Ask, outcome: Outcome) {
        self.policy.complete(now, io, outcome);
    }

    fn cancel(&mut self, now: Time, id: IoId) {
        self.policy.cancel(now, id);
    }

    fn set_share(&mut self, now: Time, tenant: TenantId, share: &Share) {
        self.policy.set_share(now, tenant, share);
    }

    fn forget(&mut self, now: Time, tenant: TenantId) {
        self.policy.forget(now, tenant);
    }

    fn credit(&self, tenant: TenantId) -> Option<Credit> {
        self.policy.credit(tenant)
    }
}
