//! Observes what a policy does for one tenant: which of its I/O waits, is sent to the drive or
//! comes back, at every instant.

use std::cell::RefCell;
use std::rc::Rc;

use flashyard_sched::{Ask, Credit, Gauge, IoId, Next, Outcome, Policy, Share, TenantId};
use flashyard_time::{Duration, Time};

/// A policy, and a record of what it does for a tenant.
pub(super) struct Watched {
    inner: Box<dyn Policy>,
    tenant: TenantId,
    /// By number of an I/O: whether it is one of the tenant's that waits.
    waits: Vec<bool>,
    log: Rc<RefCell<Log>>,
}

/// What became of a tenant's I/O.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    waiting: u64,
    since: Time,
    /// From when to when something waited, in order, as far as it is over.
    backlogs: Vec<(Time, Time)>,
    sent: Vec<Time>,
    back: Vec<Time>,
}

/// How a promise was kept over many intervals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// All intervals, and those throughout which something of the tenant's waited.
    pub(super) intervals: u64,
    pub(super) backlogged: u64,
    /// Of the backlogged: in which less than was promised was sent, and the least part of the
    /// promise that was.
    pub(super) broken: u64,
    pub(super) least_sent: f64,
    /// Of all: in which less than nearly the promise came back, and the least part of it that did.
    pub(super) late: u64,
    pub(super) least_back: f64,
}

impl Watched {
    /// Watches what `inner` does for `tenant`. It has not seen any I/O.
    pub(super) fn new(inner: Box<dyn Policy>, tenant: TenantId) -> (Self, Rc<RefCell<Log>>) {
        let log = Rc::<RefCell<Log>>::default();
        let watched = Self {
            inner,
            tenant,
            waits: Vec::new(),
            log: Rc::clone(&log),
        };
        (watched, log)
    }

    /// It does not wait any more. Whether it was one of the tenant's.
    fn leaves(&mut self, now: Time, id: IoId) -> bool {
        let waited = self.waits.get_mut(id.0 as usize);
        let own = waited.is_some_and(std::mem::take);
        if own {
            self.log.borrow_mut().leave(now);
        }
        own
    }
}

impl Policy for Watched {
    fn arrive(&mut self, now: Time, io: Ask) {
        if io.tenant == self.tenant {
            let place = io.id.0 as usize;
            if self.waits.len() <= place {
                self.waits.resize(place + 1, false);
            }
            self.waits[place] = true;
            self.log.borrow_mut().join(now);
        }
        self.inner.arrive(now, io);
    }

    fn pass(&mut self, now: Time, io: &Ask) -> bool {
        let passed = self.inner.pass(now, io);
        if passed && io.tenant == self.tenant {
            self.log.borrow_mut().sent.push(now);
        }
        passed
    }

    fn next(&mut self, now: Time) -> Next {
        let next = self.inner.next(now);
        if let Next::Dispatch(id) = next
            && self.leaves(now, id)
        {
            self.log.borrow_mut().sent.push(now);
        }
        next
    }

    fn complete(&mut self, now: Time, io: &Ask, outcome: Outcome) {
        if io.tenant == self.tenant {
            self.log.borrow_mut().back.push(now);
        }
        self.inner.complete(now, io, outcome);
    }

    fn cancel(&mut self, now: Time, id: IoId) {
        self.leaves(now, id);
        self.inner.cancel(now, id);
    }

    fn set_share(&mut self, now: Time, tenant: TenantId, share: &Share) {
        self.inner.set_share(now, tenant, share);
    }

    fn forget(&mut self, now: Time, tenant: TenantId) {
        self.inner.forget(now, tenant);
    }

    fn watch(&self, now: Time, tell: &mut dyn FnMut(Gauge)) {
        self.inner.watch(now, tell);
    }

    fn credit(&self, tenant: TenantId) -> Option<Credit> {
        self.inner.credit(tenant)
    }
}

impl Log {
    fn join(&mut self, now: Time) {
        if self.waiting == 0 {
            // What left and came at the same instant has left nothing uncovered.
            match self.backlogs.pop() {
                Some((since, until)) if until == now => self.since = since,
                other => {
                    self.backlogs.extend(other);
                    self.since = now;
                }
            }
        }
        self.waiting += 1;
    }

    fn leave(&mut self, now: Time) {
        self.waiting -= 1;
        if self.waiting == 0 {
            self.backlogs.push((self.since, now));
        }
    }

    /// Judges all intervals of `length` between `from` and `until` that begin a tenth of it apart.
    /// Of `per_second` I/Os so many are promised as fit into one; what comes back may be less by
    /// `slack`, a part of that.
    pub(super) fn judge(
        &self,
        (from, until): (Time, Time),
        length: Duration,
        per_second: u64,
        slack: f64,
    ) -> Kept {
        let promised = (per_second as f64 * length.as_secs_f64()).floor().max(1.0);
        let mut kept = Kept {
            intervals: 0,
            backlogged: 0,
            broken: 0,
            least_sent: f64::MAX,
            late: 0,
            least_back: f64::MAX,
        };
        let mut start = from;
        while start + length <= until {
            let end = start + length;
            kept.intervals += 1;
            let back = count(&self.back, start, end) as f64 / promised;
            kept.late += u64::from(back < 1.0 - slack);
            kept.least_back = kept.least_back.min(back);
            if self.is_backlogged(start, end) {
                let sent = count(&self.sent, start, end) as f64 / promised;
                kept.backlogged += 1;
                kept.broken += u64::from(sent < 1.0);
                kept.least_sent = kept.least_sent.min(sent);
            }
            start += length.scale(1, 10);
        }
        kept
    }

    fn is_backlogged(&self, start: Time, end: Time) -> bool {
        let open = self.waiting > 0 && self.since <= start;
        let after = self.backlogs.partition_point(|(since, _)| *since <= start);
        let closed = after > 0 && self.backlogs[after - 1].1 >= end;
        open || closed
    }
}

/// How many of ordered instants are within `start..end`.
fn count(instants: &[Time], start: Time, end: Time) -> usize {
    let before = |limit: Time| instants.partition_point(|at| *at < limit);
    before(end) - before(start)
}

impl Kept {
    /// Two records as one.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            intervals: self.intervals + other.intervals,
            backlogged: self.backlogged + other.backlogged,
            broken: self.broken + other.broken,
            least_sent: self.least_sent.min(other.least_sent),
            late: self.late + other.late,
            least_back: self.least_back.min(other.least_back),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_ms(ms)
    }

    /// One I/O waits from 0 to 300 ms and from 300 on; one is sent every 10 ms from 100 to 200 ms.
    #[test]
    fn only_intervals_with_something_waiting_count_and_too_few_are_found() {
        let mut log = Log::default();
        log.join(at(0));
        log.leave(at(300));
        log.join(at(300));
        log.sent = (100..200).step_by(10).map(at).collect();
        log.back = log.sent.clone();
        let judge = |log: &Log, until, rate| {
            log.judge((at(0), at(until)), Duration::from_ms(100), rate, 0.0)
        };
        let kept = judge(&log, 400, 100);
        assert_eq!((kept.intervals, kept.backlogged), (31, 31));
        assert_eq!(kept.broken, 30, "only the one from 100 to 200 has its ten");
        assert_eq!((kept.least_sent, kept.late), (0.0, 30));
        log.leave(at(350));
        assert_eq!(
            judge(&log, 400, 100).backlogged,
            26,
            "the end is open no more"
        );
        let own = log.judge((at(100), at(200)), Duration::from_ms(100), 100, 0.0);
        assert_eq!((own.backlogged, own.broken), (1, 0));
    }
}
