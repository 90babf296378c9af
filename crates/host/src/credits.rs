//! The credit that the controller grants (vendor feature C1h), and the commands that wait for it
//! here instead of in the target. That makes shorter queues in the target, and the order of waiting
//! commands can still be chosen here.
//!
//! A credit is for a namespace and shared by all queues of the association: first come, first
//! served. A queue that has nothing in flight on a namespace may always send one command there. So
//! no queue waits for what another one holds, and none waits without end, since credit comes only
//! with answers. Until the controller reports a credit, and where it reports none, the depth of the
//! queues is the only bound.
//!
//! A host that steers by the latency it sees ([`Parda`]) has one such gate for everything, at which
//! each command counts the same and which its window opens and closes.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use flashyard_nvme::Allowance;
use flashyard_runtime::Rt;
use flashyard_runtime::sync::oneshot::{self, Receiver, Sender};
use flashyard_time::{Duration, Time};

use crate::parda::Parda;

/// Nothing was said.
const UNBOUNDED: u64 = u64::MAX;

/// The credits of an association.
#[derive(Debug)]
pub(crate) struct Credits {
    rt: Rt,
    /// Latency target of a host that does not apply the controller's credit.
    threshold: Option<Duration>,
    /// By namespace; few.
    gates: RefCell<Vec<(u32, Rc<Gate>)>>,
    waits: Cell<u64>,
    waited: Cell<Duration>,
}

/// What was said of a namespace and what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditReport {
    /// Bytes that may be outstanding, as the controller said last (a command counts as 4 KiB at
    /// least; by a window of our own, as 4 KiB whatever it moves); `None` if it has not said
    /// anything, or that there is no bound.
    pub allowed: Option<u64>,
    /// Bytes that are.
    pub outstanding: u64,
    /// Commands of the whole association that had to wait here.
    pub waits: u64,
    /// How long they waited, all together.
    pub waited: Duration,
}

/// The credit of one namespace.
#[derive(Debug)]
pub(crate) struct Gate {
    allowed: Cell<u64>,
    in_flight: Cell<u64>,
    /// Commands in flight of each queue; by queue identifier.
    of_queues: RefCell<Vec<u32>>,
    waiting: RefCell<VecDeque<Waiter>>,
    steering: Option<Steering>,
}

/// A window of our own.
#[derive(Debug)]
struct Steering {
    rt: Rt,
    rule: RefCell<Parda>,
}

#[derive(Debug)]
struct Waiter {
    qid: u16,
    cost: u64,
    tell: Sender<Charge>,
}

/// The part of a credit that a command takes, until dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    gate: Rc<Gate>,
    qid: u16,
    cost: u64,
    /// Where we steer by latency.
    begun: Time,
}

impl Credits {
    /// The credit that the controller reports.
    pub(crate) fn new(rt: &Rt) -> Rc<Self> {
        Self::with(rt, None)
    }

    /// What keeps latency near `threshold`.
    pub(crate) fn steered(rt: &Rt, threshold: Duration) -> Rc<Self> {
        Self::with(rt, Some(threshold))
    }

    fn with(rt: &Rt, threshold: Option<Duration>) -> Rc<Self> {
        Rc::new(Self {
            rt: rt.clone(),
            threshold,
            gates: RefCell::default(),
            waits: Cell::new(0),
            waited: Cell::new(Duration::ZERO),
        })
    }

    /// Whether the controller reports them, in its completions.
    pub(crate) fn are_reported(&self) -> bool {
        self.threshold.is_none()
    }

    /// What a command of so many bytes takes.
    pub(crate) fn cost(&self, bytes: usize) -> u64 {
        match self.threshold {
            None => Allowance::cost(bytes as u64),
            Some(_) => Allowance::LEAST,
        }
    }

    /// The gate of a namespace.
    pub(crate) fn gate(&self, nsid: u32) -> Rc<Gate> {
        let nsid = if self.are_reported() { nsid } else { 0 };
        let mut gates = self.gates.borrow_mut();
        if let Some((_, gate)) = gates.iter().find(|(number, _)| *number == nsid) {
            return Rc::clone(gate);
        }
        let gate = match self.threshold {
            None => Gate::new(),
            Some(threshold) => Gate::steered(&self.rt, threshold),
        };
        gates.push((nsid, Rc::clone(&gate)));
        gate
    }

    /// Waits for a part of the credit of `gate`, behind all commands that wait already. When the
    /// association ends, all that is in flight is given back, so this ends, too.
    pub(crate) async fn wait(&self, gate: &Rc<Gate>, qid: u16, cost: u64) -> Option<Charge> {
        let begun = self.rt.turn_time();
        let charge = gate.queue(qid, cost).await;
        self.waits.set(self.waits.get() + 1);
        let waited = self.rt.turn_time().since(begun);
        self.waited.set(self.waited.get() + waited);
        charge
    }

    pub(crate) fn report(&self, nsid: u32) -> CreditReport {
        let gate = self.gate(nsid);
        let allowed = gate.allowed.get();
        let bytes = |units: u64| units.saturating_mul(Allowance::UNIT);
        CreditReport {
            allowed: (allowed < UNBOUNDED).then(|| bytes(allowed)),
            outstanding: bytes(gate.in_flight.get()),
            waits: self.waits.get(),
            waited: self.waited.get(),
        }
    }
}

impl Gate {
    fn new() -> Rc<Self> {
        Self::with(UNBOUNDED, None)
    }

    fn steered(rt: &Rt, threshold: Duration) -> Rc<Self> {
        let (rt, rule) = (rt.clone(), Parda::new(threshold));
        let allowed = units_of(&rule);
        let rule = RefCell::new(rule);
        Self::with(allowed, Some(Steering { rt, rule }))
    }

    fn with(allowed: u64, steering: Option<Steering>) -> Rc<Self> {
        Rc::new(Self {
            allowed: Cell::new(allowed),
            in_flight: Cell::new(0),
            of_queues: RefCell::default(),
            waiting: RefCell::default(),
            steering,
        })
    }

    /// A part of the credit, if it is there and no command waits, or the queue has nothing in
    /// flight.
    pub(crate) fn try_charge(self: &Rc<Self>, qid: u16, cost: u64) -> Option<Charge> {
        let fits = self.waiting.borrow().is_empty() && self.fits(cost);
        (fits || self.is_idle(qid)).then(|| self.charge(qid, cost))
    }

    fn queue(self: &Rc<Self>, qid: u16, cost: u64) -> Receiver<Charge> {
        let (tell, charge) = oneshot::channel();
        let waiter = Waiter { qid, cost, tell };
        self.waiting.borrow_mut().push_back(waiter);
        // A command may have ended since the caller looked.
        self.serve();
        charge
    }

    fn charge(self: &Rc<Self>, qid: u16, cost: u64) -> Charge {
        self.in_flight.set(self.in_flight.get() + cost);
        let mut of_queues = self.of_queues.borrow_mut();
        let place = usize::from(qid);
        if of_queues.len() <= place {
            of_queues.resize(place + 1, 0);
        }
        of_queues[place] += 1;
        let steering = self.steering.as_ref();
        Charge {
            gate: Rc::clone(self),
            qid,
            cost,
            begun: steering.map_or(Time::ZERO, |steering| steering.rt.turn_time()),
        }
    }

    fn fits(&self, cost: u64) -> bool {
        self.in_flight.get().saturating_add(cost) <= self.allowed.get()
    }

    fn is_idle(&self, qid: u16) -> bool {
        let of_queues = self.of_queues.borrow();
        of_queues
            .get(usize::from(qid))
            .is_none_or(|count| *count == 0)
    }

    fn set_allowed(self: &Rc<Self>, allowed: u64) {
        if self.allowed.replace(allowed) < allowed {
            self.serve();
        }
    }

    /// Serves waiting commands, from the front, as far as the credit goes. A wide one at the front
    /// holds up those behind it, or narrow ones would starve it.
    fn serve(self: &Rc<Self>) {
        loop {
            let mut waiting = self.waiting.borrow_mut();
            let Some(first) = waiting.front() else { return };
            let gone = first.tell.is_closed();
            if !gone && !self.fits(first.cost) {
                return;
            }
            let first = waiting.pop_front();
            drop(waiting);
            if let Some(first) = first.filter(|_| !gone) {
                self.grant(first);
            }
        }
    }

    /// Serves one of a queue that has nothing in flight.
    fn serve_idle(self: &Rc<Self>, qid: u16) {
        let mut waiting = self.waiting.borrow_mut();
        let mine = |waiter: &Waiter| waiter.qid == qid && !waiter.tell.is_closed();
        let found = waiting.iter().position(mine);
        let waiter = found.and_then(|place| waiting.remove(place));
        drop(waiting);
        if let Some(waiter) = waiter {
            self.grant(waiter);
        }
    }

    fn grant(self: &Rc<Self>, waiter: Waiter) {
        let charge = self.charge(waiter.qid, waiter.cost);
        // A waiter that has left gives it back by dropping it.
        drop(waiter.tell.send(charge));
    }
}

impl Steering {
    /// A command that began then has been answered; gives what may be outstanding now.
    fn observe(&self, begun: Time) -> u64 {
        let now = self.rt.turn_time();
        let mut rule = self.rule.borrow_mut();
        rule.observe(now, now.since(begun));
        units_of(&rule)
    }
}

fn units_of(rule: &Parda) -> u64 {
    u64::from(rule.window()) * Allowance::LEAST
}

impl Charge {
    /// The command has been answered, with this credit for its namespace.
    pub(crate) fn settle(self, reported: Allowance) {
        let (gate, begun) = (Rc::clone(&self.gate), self.begun);
        drop(self);
        match (&gate.steering, reported) {
            (Some(steering), _) => gate.set_allowed(steering.observe(begun)),
            (None, Allowance::Silent) => {}
            (None, Allowance::Units(units)) => gate.set_allowed(units),
            (None, Allowance::Unbounded) => gate.set_allowed(UNBOUNDED),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let gate = &self.gate;
        gate.in_flight.set(gate.in_flight.get() - self.cost);
        let left = {
            let mut of_queues = gate.of_queues.borrow_mut();
            let count = &mut of_queues[usize::from(self.qid)];
            *count -= 1;
            *count
        };
        if left == 0 {
            gate.serve_idle(self.qid);
        }
        gate.serve();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn granted(receiver: &mut Receiver<Charge>) -> Option<Charge> {
        match Pin::new(receiver).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(charge) => Some(charge.expect("the gate is there")),
            Poll::Pending => None,
        }
    }

    #[test]
    fn until_something_is_said_there_is_no_bound() {
        let gate = Gate::new();
        let charges: Vec<_> = (0..1000).map(|_| gate.try_charge(1, 1 << 40)).collect();
        assert!(charges.iter().all(Option::is_some));
        for charge in charges.into_iter().flatten() {
            charge.settle(Allowance::Silent);
        }
        assert_eq!((gate.in_flight.get(), gate.allowed.get()), (0, UNBOUNDED));
    }

    #[test]
    fn beyond_the_credit_one_waits_in_order() {
        let gate = Gate::new();
        gate.set_allowed(24);
        let mut in_flight: Vec<_> = (0..3).filter_map(|_| gate.try_charge(1, 8)).collect();
        assert_eq!(in_flight.len(), 3);
        assert!(gate.try_charge(1, 8).is_none());
        let (mut wide, mut narrow) = (gate.queue(1, 16), gate.queue(1, 8));
        in_flight.pop();
        assert!(granted(&mut wide).is_none() && granted(&mut narrow).is_none());
        assert!(gate.try_charge(1, 8).is_none(), "others were first");
        in_flight.pop();
        let wide = granted(&mut wide).expect("there is room");
        assert!(granted(&mut narrow).is_none());
        drop(wide);
        assert!(granted(&mut narrow).is_some());
    }

    #[test]
    fn a_waiter_that_leaves_is_passed_over() {
        let gate = Gate::new();
        gate.set_allowed(8);
        let first = gate.try_charge(1, 8).expect("it is free");
        let (second, mut third) = (gate.queue(1, 8), gate.queue(1, 8));
        drop(second);
        drop(first);
        let third = granted(&mut third).expect("it is the next");
        let fourth = gate.queue(1, 8);
        drop(third);
        drop(fourth);
        assert_eq!(gate.in_flight.get(), 0, "granted and never looked at");
    }

    #[test]
    fn no_credit_at_all_is_one_command_at_a_time() {
        let gate = Gate::new();
        let first = gate.try_charge(1, 4096).expect("nothing was said yet");
        first.settle(Allowance::Units(0));
        for _ in 0..3 {
            let one = gate.try_charge(1, 4096).expect("nothing is in flight");
            let mut other = gate.queue(1, 8);
            assert!(granted(&mut other).is_none());
            one.settle(Allowance::Units(1));
            granted(&mut other)
                .expect("nothing is in flight")
                .settle(Allowance::Units(0));
        }
    }

    #[test]
    fn a_queue_does_not_wait_for_what_another_one_holds() {
        let gate = Gate::new();
        gate.set_allowed(64);
        let bulk: Vec<_> = (0..8).filter_map(|_| gate.try_charge(1, 8)).collect();
        let mut behind: Vec<_> = (0..5).map(|_| gate.queue(1, 8)).collect();
        let first = gate.try_charge(2, 8).expect("its first");
        assert!(gate.try_charge(2, 8).is_none());
        let mut next = gate.queue(2, 8);
        drop(first);
        let next = granted(&mut next).expect("its first again, before the five");
        assert!(behind.iter_mut().all(|waiter| granted(waiter).is_none()));
        drop(next);
        drop(bulk);
        assert!(behind.iter_mut().all(|waiter| granted(waiter).is_some()));
        assert_eq!(gate.in_flight.get(), 0);
    }

    #[test]
    fn more_credit_lets_more_go_at_once() {
        let gate = Gate::new();
        gate.set_allowed(8);
        let one = gate.try_charge(1, 8).expect("it is free");
        let mut waiting: Vec<_> = (0..4).map(|_| gate.queue(1, 8)).collect();
        one.settle(Allowance::Units(24));
        let going: Vec<_> = waiting.iter_mut().map_while(granted).collect();
        assert_eq!(going.len(), 3);
        gate.set_allowed(8);
        assert!(
            granted(&mut waiting[3]).is_none(),
            "less takes nothing back"
        );
        drop(going);
        assert!(granted(&mut waiting[3]).is_some());
    }
}
