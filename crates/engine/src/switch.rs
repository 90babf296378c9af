//! The stage in front of a device that decides which I/O goes next: a policy holds the ids, the switch holds those
//! who wait. Every I/O gets a [`Permit`], which is spent by completing it; dropping one counts as a failure, and
//! dropping the wait for one takes the I/O back out of the policy. Time here is that of the executor's turn: what
//! the device finished is seen at the beginning of a turn.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use flashyard_block::{SharedDevice, Tag};
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Rt, Task};
use flashyard_sched::{Io, IoId, Next, Op, Outcome, Policy};
use flashyard_time::Time;

/// A policy in front of a device.
pub(crate) struct Switch {
    rt: Rt,
    device: SharedDevice,
    places: RefCell<Places>,
    policy: RefCell<Box<dyn Policy>>,
    /// The timer for a policy that said "not before".
    timer: RefCell<Option<(Time, Task<()>)>>,
    /// I/Os in the policy, not named by it yet.
    queued: Cell<usize>,
    /// I/Os in the policy or at the device.
    present: Cell<usize>,
    /// Somebody waits for the last I/O.
    draining: Cell<bool>,
    /// Its device has been taken away.
    closed: Cell<bool>,
    idle: Notify,
}

/// What an I/O wants from a switch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) tag: Tag,
    pub(crate) op: Op,
    pub(crate) lba: u64,
    pub(crate) bytes: u64,
}

impl Switch {
    /// A switch with nothing in it.
    pub(crate) fn new(rt: Rt, device: SharedDevice, policy: Box<dyn Policy>) -> Rc<Self> {
        Rc::new(Self {
            rt,
            device,
            places: RefCell::default(),
            policy: RefCell::new(policy),
            timer: RefCell::default(),
            queued: Cell::new(0),
            present: Cell::new(0),
            draining: Cell::new(false),
            closed: Cell::new(false),
            idle: Notify::new(),
        })
    }

    /// The device behind.
    #[inline]
    pub(crate) fn device(&self) -> &SharedDevice {
        &self.device
    }

    /// The short way: a permit at once, if nothing is queued and the policy lets it pass.
    #[inline]
    pub(crate) fn try_admit(self: &Rc<Self>, want: Want) -> Option<Permit> {
        let now = self.rt.turn_time();
        let io = want.io(self.places.borrow_mut().take());
        if self.policy.borrow_mut().pass(now, &io) {
            self.present.set(self.present.get() + 1);
            return Some(Permit::new(self, io, now));
        }
        self.places.borrow_mut().give_back(io.id);
        None
    }

    /// Waits for its turn.
    pub(crate) async fn admit(self: &Rc<Self>, want: Want) -> Permit {
        match self.try_admit(want) {
            Some(permit) => permit,
            None => self.queue(want).await,
        }
    }

    /// From now on it is the way to nowhere. What is queued still has its turn.
    pub(crate) fn close(&self) {
        self.closed.set(true);
    }

    /// Whether [`Switch::close`] was called. To be asked by whoever may have waited since it found the way here.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Finishes when no I/O is queued or at the device.
    pub(crate) async fn drained(&self) {
        while self.present.get() > 0 {
            self.draining.set(true);
            self.idle.notified().await;
        }
    }

    fn queue(self: &Rc<Self>, want: Want) -> Queued {
        let io = want.io(self.places.borrow_mut().take());
        self.present.set(self.present.get() + 1);
        self.queued.set(self.queued.get() + 1);
        self.policy.borrow_mut().arrive(self.rt.turn_time(), io);
        self.pump();
        Queued {
            switch: self.clone(),
            io,
            granted: false,
        }
    }

    /// Lets the policy name all that may go now.
    fn pump(self: &Rc<Self>) {
        let now = self.rt.turn_time();
        loop {
            let next = self.policy.borrow_mut().next(now);
            match next {
                Next::Dispatch(id) => {
                    self.queued.set(self.queued.get() - 1);
                    let waiter = self.places.borrow_mut().grant(id, now);
                    if let Some(waker) = waiter {
                        waker.wake();
                    }
                }
                Next::WaitUntil(at) => return self.arm(at),
                Next::WaitForEvent => return,
            }
        }
    }

    fn arm(self: &Rc<Self>, at: Time) {
        let mut timer = self.timer.borrow_mut();
        if timer
            .as_ref()
            .is_some_and(|(armed, _)| *armed <= at && *armed > self.rt.turn_time())
        {
            return;
        }
        let (rt, switch) = (self.rt.clone(), Rc::downgrade(self));
        *timer = Some((at, self.rt.spawn(wake_at(rt, at, switch))));
    }

    fn leave(&self, id: IoId) {
        self.places.borrow_mut().give_back(id);
        self.present.set(self.present.get() - 1);
        if self.present.get() == 0 && self.draining.get() {
            self.idle.notify_all();
        }
    }
}

async fn wake_at(rt: Rt, at: Time, switch: Weak<Switch>) {
    rt.sleep_until(at).await;
    if let Some(switch) = switch.upgrade() {
        switch.pump();
    }
}

impl Want {
    #[inline]
    fn io(self, id: IoId) -> Io {
        Io {
            id,
            tenant: self.tag.tenant,
            class: self.tag.class,
            op: self.op,
            bytes: self.bytes,
            lba: self.lba,
        }
    }
}

/// The right to do one I/O now.
pub(crate) struct Permit {
    switch: Rc<Switch>,
    io: Io,
    dispatched: Time,
    spent: bool,
}

impl Permit {
    #[inline]
    fn new(switch: &Rc<Switch>, io: Io, dispatched: Time) -> Self {
        Self {
            switch: switch.clone(),
            io,
            dispatched,
            spent: false,
        }
    }

    /// Tells how the I/O ended.
    #[inline]
    pub(crate) fn complete<T, E>(mut self, result: Result<T, E>) -> Result<T, E> {
        self.spent = true;
        self.end(result.is_ok());
        result
    }

    /// The device it is for.
    #[inline]
    pub(crate) fn device(&self) -> &SharedDevice {
        &self.switch.device
    }

    #[inline]
    fn end(&self, ok: bool) {
        let switch = &self.switch;
        let now = switch.rt.turn_time();
        let outcome = Outcome {
            latency: now.since(self.dispatched),
            ok,
        };
        switch.policy.borrow_mut().complete(now, &self.io, outcome);
        switch.leave(self.io.id);
        if switch.queued.get() > 0 {
            switch.pump();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.spent {
            self.end(false);
        }
    }
}

/// The wait for a permit.
struct Queued {
    switch: Rc<Switch>,
    io: Io,
    granted: bool,
}

impl Future for Queued {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        let dispatched = self
            .switch
            .places
            .borrow_mut()
            .wait(self.io.id, context.waker());
        let Some(dispatched) = dispatched else {
            return Poll::Pending;
        };
        self.granted = true;
        Poll::Ready(Permit::new(&self.switch, self.io, dispatched))
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        if self.granted {
            return;
        }
        let dispatched = self.switch.places.borrow().dispatched(self.io.id);
        if let Some(dispatched) = dispatched {
            drop(Permit::new(&self.switch, self.io, dispatched));
            return;
        }
        self.switch
            .policy
            .borrow_mut()
            .cancel(self.switch.rt.turn_time(), self.io.id);
        self.switch.queued.set(self.switch.queued.get() - 1);
        self.switch.leave(self.io.id);
        self.switch.pump();
    }
}

/// Who waits under which id. Ids are handed out densely and used again.
#[derive(Default)]
struct Places {
    places: Vec<Place>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Place {
    dispatched: Option<Time>,
    waker: Option<Waker>,
}

impl Places {
    #[inline]
    fn take(&mut self) -> IoId {
        IoId(self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            u32::try_from(self.places.len() - 1).expect("fewer I/Os than bytes of memory")
        }))
    }

    #[inline]
    fn give_back(&mut self, id: IoId) {
        let place = &mut self.places[id.0 as usize];
        place.dispatched = None;
        place.waker = None;
        self.free.push(id.0);
    }

    fn grant(&mut self, id: IoId, now: Time) -> Option<Waker> {
        let place = &mut self.places[id.0 as usize];
        debug_assert!(
            place.dispatched.is_none(),
            "a policy dispatches an I/O once"
        );
        place.dispatched = Some(now);
        place.waker.take()
    }

    fn wait(&mut self, id: IoId, waker: &Waker) -> Option<Time> {
        let place = &mut self.places[id.0 as usize];
        if place.dispatched.is_none() {
            place.waker = Some(waker.clone());
        }
        place.dispatched
    }

    fn dispatched(&self, id: IoId) -> Option<Time> {
        self.places[id.0 as usize].dispatched
    }
}

#[cfg(test)]
mod tests {
    use flashyard_block::NullDevice;
    use flashyard_runtime::sim::{Config, World};
    use flashyard_sched::{Fifo, Window};
    use flashyard_time::Duration;

    use super::*;

    fn want(lba: u64) -> Want {
        Want {
            tag: Tag::default(),
            op: Op::Read,
            lba,
            bytes: 4096,
        }
    }

    fn in_world<F: Future<Output = ()> + 'static>(
        policy: impl Policy + 'static,
        main: impl FnOnce(Rt, Rc<Switch>) -> F,
    ) {
        let world = World::new(Config::default());
        let machine = world.machine(1);
        let device = Rc::new(NullDevice::new(4096, 1 << 20).expect("a good size"));
        world.run(&machine, |rt| {
            let switch = Switch::new(rt.clone(), device, Box::new(policy));
            main(rt, switch)
        });
    }

    #[test]
    fn one_at_a_time_in_order_and_whoever_leaves_is_passed_over() {
        let one = Fifo::new(Window {
            ios: 1,
            bytes: 1 << 20,
        });
        in_world(one, |rt, switch| async move {
            let first = switch.try_admit(want(0)).expect("nobody is there");
            assert!(switch.try_admit(want(1)).is_none());
            // The world decides in which order they come.
            let came: Rc<RefCell<Vec<u64>>> = Rc::default();
            let order: Rc<RefCell<Vec<u64>>> = Rc::default();
            let mut tasks: Vec<_> = (1..6)
                .map(|lba| {
                    let (rt, switch) = (rt.clone(), switch.clone());
                    let (came, order) = (came.clone(), order.clone());
                    rt.clone().spawn(async move {
                        came.borrow_mut().push(lba);
                        let permit = switch.admit(want(lba)).await;
                        order.borrow_mut().push(lba);
                        rt.sleep(Duration::from_us(10)).await;
                        // Some complete, some are dropped: both make room.
                        if lba % 2 == 0 {
                            let _ = permit.complete::<(), ()>(Ok(()));
                        }
                    })
                })
                .collect();
            rt.sleep(Duration::from_us(100)).await;
            assert!(order.borrow().is_empty());
            drop(tasks.remove(2));
            let _ = first.complete::<(), ()>(Err(()));
            switch.drained().await;
            came.borrow_mut().retain(|lba| *lba != 3);
            assert_eq!(*order.borrow(), *came.borrow());
            assert_eq!(order.borrow().len(), 4);
        });
    }

    /// Lets each I/O go only a while after it came.
    struct Later {
        queue: Vec<(Time, IoId)>,
    }

    impl Policy for Later {
        fn arrive(&mut self, now: Time, io: Io) {
            self.queue.push((now + Duration::from_ms(5), io.id));
        }

        fn next(&mut self, now: Time) -> Next {
            match self.queue.first() {
                None => Next::WaitForEvent,
                Some((due, _)) if *due > now => Next::WaitUntil(*due),
                Some(_) => Next::Dispatch(self.queue.remove(0).1),
            }
        }

        fn complete(&mut self, _: Time, _: &Io, outcome: Outcome) {
            assert!(outcome.ok && outcome.latency >= Duration::from_us(9));
        }

        fn cancel(&mut self, _: Time, id: IoId) {
            self.queue.retain(|(_, queued)| *queued != id);
        }
    }

    #[test]
    fn a_policy_that_wants_to_wait_is_asked_again_in_time() {
        in_world(Later { queue: Vec::new() }, |rt, switch| async move {
            let begun = rt.now();
            for n in 1..=3 {
                let permit = switch.admit(want(0)).await;
                assert!(rt.now() >= begun + Duration::from_ms(5 * n));
                rt.sleep(Duration::from_us(10)).await;
                let _ = permit.complete::<(), ()>(Ok(()));
            }
            assert!(rt.now() < begun + Duration::from_ms(20));
        });
    }
}
