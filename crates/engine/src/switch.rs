//! The stage in front of a device that decides which I/O goes next. One [`Switch`] stands before
//! each device that really does something, however many volumes lie on it; each volume reaches it
//! through a [`Port`] of its own. A policy holds the ids, the switch holds those who wait. Every
//! I/O gets a [`Permit`], which is spent by completing it; dropping one counts as a failure, and
//! dropping the wait for one takes the I/O back out of the policy. Time here is that of the
//! executor's turn: what the device finished is seen at the beginning of a turn.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use flashyard_block::{Io, IoFuture, LentIo, SharedDevice, SystemWork, Tag, Turns};
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Rt, Task};
use flashyard_sched::{Ask, Cost, Credit, Gauge, IoId, Next, Outcome, Policy, Share, TenantId};
use flashyard_time::Time;

use crate::credit::{Accounts, Book};
use crate::ledger::{
    Ledger, Past, Recent, Sample, SlowAfter, SlowIo, Slowness, Spans, Why, booked,
};
use crate::traffic::{Meter, Traffic};

/// A policy at work, on the core that is the home of its device.
pub struct Switch {
    rt: Rt,
    places: RefCell<Places>,
    policy: RefCell<Box<dyn Policy>>,
    ledger: RefCell<Ledger>,
    /// What came to volumes that have gone, by tenant.
    gone: RefCell<BTreeMap<TenantId, Traffic>>,
    /// What is reported to hosts.
    credits: Book,
    /// How often the policy was replaced: what an earlier one has dispatched is none of its
    /// business.
    epoch: Cell<u32>,
    /// The timer for a policy that said "not before".
    timer: RefCell<Option<(Time, Task<()>)>>,
    /// I/Os in the policy, not named by it yet.
    queued: Cell<usize>,
}

/// The way of one volume through a switch to its device.
pub struct Port {
    switch: Rc<Switch>,
    device: RefCell<SharedDevice>,
    /// What comes this way is no I/O of a volume, but this.
    work: Option<SystemWork>,
    /// I/Os in the policy or at the device: those that came since the device was exchanged last,
    /// and those that came before, by the parity of the generation.
    present: [Cell<usize>; 2],
    generation: Cell<usize>,
    meter: Meter,
    /// Somebody waits for the last I/O.
    draining: Cell<bool>,
    /// Its device has been taken away.
    closed: Cell<bool>,
    idle: Notify,
}

impl Switch {
    /// A switch with nothing in it.
    pub(crate) fn new(rt: Rt, policy: Box<dyn Policy>) -> Rc<Self> {
        Rc::new(Self {
            rt,
            places: RefCell::default(),
            policy: RefCell::new(policy),
            ledger: RefCell::default(),
            gone: RefCell::default(),
            credits: Book::default(),
            epoch: Cell::new(0),
            timer: RefCell::default(),
            queued: Cell::new(0),
        })
    }

    /// Turns for what devices behind it do on their own account, which is I/O of the
    /// system.
    pub fn turns(self: &Rc<Self>) -> Rc<dyn Turns> {
        crate::turns::at(self)
    }

    /// Puts `policy` in the place of the present one. What is queued arrives there anew, in its old
    /// order; what is at the device returns as if the new one had never heard of it. Shares have to
    /// be reported again.
    pub fn set_policy(self: &Rc<Self>, policy: Box<dyn Policy>) {
        let now = self.rt.turn_time();
        *self.policy.borrow_mut() = policy;
        self.epoch.set(self.epoch.get() + 1);
        for io in self.places.borrow_mut().queued() {
            self.policy.borrow_mut().arrive(now, io);
        }
        self.pump();
    }

    /// Says what `tenant` is owed from now on.
    pub fn set_share(self: &Rc<Self>, tenant: TenantId, share: &Share) {
        let now = self.rt.turn_time();
        self.policy.borrow_mut().set_share(now, tenant, share);
        self.pump();
    }

    /// Forgets what was said of `tenant`.
    pub fn forget(self: &Rc<Self>, tenant: TenantId) {
        let now = self.rt.turn_time();
        self.policy.borrow_mut().forget(now, tenant);
        let mut ledger = self.ledger.borrow_mut();
        ledger.forget(tenant);
        ledger.watch_slow(tenant, None);
        drop(ledger);
        self.gone.borrow_mut().remove(&tenant);
        self.credits.forget(tenant);
        self.pump();
    }

    /// Tells each figure of the policy's state.
    pub fn watch(&self, tell: &mut dyn FnMut(Gauge)) {
        self.policy.borrow().watch(self.rt.turn_time(), tell);
    }

    /// Where the latency of `tenant` comes from, if it has had any I/O here.
    pub fn why(&self, tenant: TenantId) -> Option<Why> {
        let now = self.rt.turn_time();
        self.ledger.borrow_mut().why(tenant, now)
    }

    /// From when on a sampled I/O of `tenant` is one that [`Switch::take_slow`] reports; none is
    /// with nothing.
    pub fn watch_slow(&self, tenant: TenantId, after: Option<SlowAfter>) {
        self.ledger.borrow_mut().watch_slow(tenant, after);
    }

    /// The slowest I/O of each tenant that had slow ones since this was asked last.
    pub fn take_slow(&self) -> Vec<SlowIo> {
        self.ledger.borrow_mut().take_slow()
    }

    /// How many I/Os have had their turn and not ended.
    pub fn at_device(&self) -> usize {
        let places = self.places.borrow();
        places.table.len() - places.free.len() - self.queued.get()
    }

    /// How the device is slower than it usually is, if it is. To be asked every few seconds: of an
    /// I/O that never ends it is only known that it was here when that was asked before.
    pub fn slowness(&self) -> Option<Slowness> {
        let here = self.at_device();
        let now = self.rt.turn_time();
        self.ledger.borrow_mut().slowness(now, here)
    }

    /// What each tenant got in the last seconds, of those that got something or wait for it.
    pub fn recent(&self) -> Vec<Recent> {
        let mut all = self.ledger.borrow().recent(self.rt.turn_time());
        for io in self.places.borrow().queued() {
            let known = all.iter().position(|recent| recent.tenant == io.tenant);
            let place = known.unwrap_or_else(|| {
                all.push(Recent::nothing(io.tenant));
                all.len() - 1
            });
            all[place].queued += 1;
        }
        all
    }

    /// What these tenants got in the last seconds, of those that got something. How many of their
    /// I/Os wait is not in it: `waiting` tells that of all at once.
    pub fn recent_of(&self, tenants: &[TenantId]) -> Vec<Recent> {
        let (ledger, now) = (self.ledger.borrow(), self.rt.turn_time());
        let all = tenants.iter();
        all.filter_map(|tenant| ledger.recent_of(*tenant, now))
            .collect()
    }

    /// How many I/Os of each tenant wait for their turn now.
    pub fn waiting(&self) -> BTreeMap<TenantId, usize> {
        let mut all = BTreeMap::new();
        for (_, io) in self.places.borrow().waiting() {
            *all.entry(io.tenant).or_default() += 1;
        }
        all
    }

    /// What came to volumes of `tenant` that have gone.
    pub fn gone_traffic(&self, tenant: TenantId) -> Option<Traffic> {
        self.gone.borrow().get(&tenant).cloned()
    }

    /// What `tenant` may have outstanding, if the policy says.
    pub fn credit(&self, tenant: TenantId) -> Option<Credit> {
        self.policy.borrow().credit(tenant)
    }

    /// Where all cores find what tenants may have outstanding.
    pub(crate) fn accounts(&self) -> &Arc<Accounts> {
        self.credits.accounts()
    }

    /// Lets the policy name all that may go now.
    fn pump(self: &Rc<Self>) {
        let now = self.rt.turn_time();
        loop {
            let next = self.policy.borrow_mut().next(now);
            match next {
                Next::Dispatch(id) => {
                    self.queued.set(self.queued.get() - 1);
                    let waiter = self.places.borrow_mut().grant(id, now, self.epoch.get());
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
}

async fn wake_at(rt: Rt, at: Time, switch: Weak<Switch>) {
    rt.sleep_until(at).await;
    if let Some(switch) = switch.upgrade() {
        // It has fired: what is armed now must not be taken for it. It is this task's own handle,
        // so it is kept until the end.
        let fired = switch.timer.borrow_mut().take();
        switch.pump();
        drop(fired);
    }
}

impl Port {
    /// A way to `device` with nothing on it.
    pub fn new(switch: &Rc<Switch>, device: SharedDevice) -> Rc<Self> {
        Self::of(switch, device, None)
    }

    /// A way for what a device does on its own account.
    pub(crate) fn for_work(
        switch: &Rc<Switch>,
        device: SharedDevice,
        work: SystemWork,
    ) -> Rc<Self> {
        Self::of(switch, device, Some(work))
    }

    fn of(switch: &Rc<Switch>, device: SharedDevice, work: Option<SystemWork>) -> Rc<Self> {
        Rc::new(Self {
            switch: switch.clone(),
            device: RefCell::new(device),
            work,
            present: [Cell::new(0), Cell::new(0)],
            generation: Cell::new(0),
            meter: Meter::default(),
            draining: Cell::new(false),
            closed: Cell::new(false),
            idle: Notify::new(),
        })
    }

    /// The device behind.
    pub(crate) fn device(&self) -> SharedDevice {
        self.device.borrow().clone()
    }

    /// Puts `device` in the place of the one behind: whatever is submitted from now on goes there.
    /// Finishes when all I/O that came before has ended, so that nothing of it is at the old one.
    pub(crate) async fn exchange(&self, device: SharedDevice) {
        // Of two exchanges the second one waits for the first.
        let old = self.generation.get();
        self.emptied(old + 1).await;
        self.generation.set(old + 1);
        *self.device.borrow_mut() = device;
        self.emptied(old).await;
    }

    /// The short way: a permit at once, if nothing is queued and the policy lets it pass.
    #[inline]
    pub(crate) fn try_admit(self: &Rc<Self>, ask: Ask) -> Option<Permit> {
        let switch = &*self.switch;
        let now = switch.rt.turn_time();
        let id = switch.places.borrow_mut().take();
        let io = Ask { id, ..ask };
        if switch.policy.borrow_mut().pass(now, &io) {
            self.enter();
            return Some(Permit::new(self, io, now, (now, switch.epoch.get())));
        }
        switch.places.borrow_mut().give_back(io.id);
        None
    }

    /// Waits for its turn; `again`: it had one before, and its host kept it waiting.
    pub async fn admit(self: &Rc<Self>, ask: Ask, again: bool) -> Permit {
        if !again && let Some(permit) = self.try_admit(ask) {
            return permit;
        }
        self.queue(ask, again).await
    }

    /// What the device behind takes of memory that is lent ([`flashyard_block::Device`]).
    #[inline]
    pub(crate) fn takes_lent(&self) -> Option<u32> {
        self.device.borrow().takes_lent()
    }

    /// Records a sampled I/O.
    pub fn record(&self, sample: &Sample) {
        self.switch.ledger.borrow_mut().record(sample);
    }

    /// What came this way until now.
    pub(crate) fn traffic(&self) -> Traffic {
        self.metered().1
    }

    fn metered(&self) -> (TenantId, Traffic) {
        let present = self.present.iter().map(Cell::get).sum();
        self.meter.read(present)
    }

    /// Its volume goes: what came to it stays with its tenant. For once, when it is drained.
    pub(crate) fn leave_traffic(&self) {
        let (tenant, traffic) = self.metered();
        if !traffic.is_nothing() {
            *self.switch.gone.borrow_mut().entry(tenant).or_default() += &traffic;
        }
    }

    /// From now on it is the way to nowhere. What is queued still has its turn.
    pub(crate) fn close(&self) {
        self.closed.set(true);
    }

    /// Whether [`Port::close`] was called. To be asked by whoever may have waited since it found
    /// the way here.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Finishes when no I/O is queued or at the device.
    pub(crate) async fn drained(&self) {
        self.emptied(0).await;
        self.emptied(1).await;
    }

    async fn emptied(&self, generation: usize) {
        while self.present[generation % 2].get() > 0 {
            self.draining.set(true);
            self.idle.notified().await;
        }
    }

    #[inline]
    fn enter(&self) {
        let present = &self.present[self.generation.get() % 2];
        present.set(present.get() + 1);
    }

    fn queue(self: &Rc<Self>, ask: Ask, again: bool) -> Queued {
        let switch = &self.switch;
        let io = {
            let mut places = switch.places.borrow_mut();
            let id = places.take();
            let io = Ask { id, ..ask };
            places.wait_in(io);
            io
        };
        self.enter();
        let generation = self.generation.get();
        switch.queued.set(switch.queued.get() + 1);
        let now = switch.rt.turn_time();
        match again {
            false => switch.policy.borrow_mut().arrive(now, io),
            true => switch.policy.borrow_mut().arrive_again(now, io),
        }
        switch.pump();
        Queued {
            port: self.clone(),
            io,
            generation,
            arrived: switch.rt.turn_time(),
            granted: false,
        }
    }

    #[inline]
    fn leave(&self, id: IoId, generation: usize) {
        self.switch.places.borrow_mut().give_back(id);
        let present = &self.present[generation % 2];
        present.set(present.get() - 1);
        if present.get() == 0 && self.draining.get() {
            self.idle.notify_all();
        }
    }
}

/// The right to do one I/O now.
pub struct Permit {
    port: Rc<Port>,
    io: Ask,
    /// Of the port, when it came.
    generation: usize,
    arrived: Time,
    dispatched: Time,
    issued: Time,
    /// Under which policy it was dispatched.
    epoch: u32,
    spent: bool,
}

impl Permit {
    #[inline]
    fn new(port: &Rc<Port>, io: Ask, arrived: Time, (dispatched, epoch): (Time, u32)) -> Self {
        Self {
            port: port.clone(),
            io,
            generation: port.generation.get(),
            arrived,
            dispatched,
            issued: dispatched,
            epoch,
            spent: false,
        }
    }

    /// The device gets it now, after a wait for something else than its turn.
    pub(crate) fn issue(&mut self) {
        self.issued = self.port.switch.rt.turn_time();
    }

    /// Tells whether the I/O ended well. If it is sampled, gives what is to be recorded when its
    /// answer has gone.
    #[inline]
    pub fn complete(mut self, ok: bool) -> Option<Box<Sample>> {
        self.spent = true;
        let now = self.port.switch.rt.turn_time();
        let (waited, served) = (self.dispatched.since(self.arrived), now.since(self.issued));
        self.port.meter.count(&self.io, waited, served);
        let sample = self.note(now);
        let cost = self.take_cost();
        if let Some(cost) = &cost {
            let mut ledger = self.port.switch.ledger.borrow_mut();
            ledger.on_cost(self.io.tenant, cost);
        }
        self.end(now, ok, cost);
        sample
    }

    /// Notes in the ledger that the device is done.
    #[inline]
    fn note(&self, now: Time) -> Option<Box<Sample>> {
        let moved = || self.port.device.borrow().moved();
        let mut ledger = self.port.switch.ledger.borrow_mut();
        let times = match self.port.work {
            None => ledger.on_end(&self.io, now, moved)?,
            Some(work) => ledger.on_end(&booked(work, self.io), now, moved)?,
        };
        Some(Box::new(self.sample(now, times)))
    }

    #[cold]
    fn sample(&self, now: Time, times: u32) -> Sample {
        Sample {
            io: self.io,
            spans: Spans {
                past: Past::default(),
                arrived: self.arrived,
                dispatched: self.dispatched,
                issued: self.issued,
                ended: now,
                sent: now,
            },
            times,
        }
    }

    /// Gives the device the I/O, with its data.
    #[inline]
    pub fn submit(&self, io: Io) -> IoFuture {
        let Ask { tenant, class, .. } = self.io;
        self.port.device.borrow().submit(Tag { tenant, class }, io)
    }

    /// The same for an I/O on memory that is lent.
    #[inline]
    pub(crate) fn submit_lent(&self, io: LentIo) -> IoFuture {
        let Ask { tenant, class, .. } = self.io;
        let device = self.port.device.borrow();
        device.submit_lent(Tag { tenant, class }, io)
    }

    /// What the device takes now of memory that is lent.
    pub(crate) fn takes_lent(&self) -> Option<u32> {
        self.port.takes_lent()
    }

    /// What was done for the tenant below, if that is more than it has asked for.
    #[inline]
    fn take_cost(&self) -> Option<Cost> {
        let cost = self.port.device.borrow().take_cost(self.io.tenant);
        cost.filter(|cost| !cost.is_zero())
    }

    #[inline]
    fn end(&self, now: Time, ok: bool, cost: Option<Cost>) {
        let switch = &self.port.switch;
        let outcome = Outcome {
            latency: now.since(self.issued),
            ok,
        };
        let mut policy = switch.policy.borrow_mut();
        if self.epoch == switch.epoch.get() {
            if let Some(cost) = cost {
                policy.settle(now, &self.io, cost);
            }
            policy.complete(now, &self.io, outcome);
        }
        switch
            .credits
            .enter(&self.io, || policy.credit(self.io.tenant));
        drop(policy);
        self.port.leave(self.io.id, self.generation);
        if switch.queued.get() > 0 {
            switch.pump();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.spent {
            // The device never got it, so there is nothing to be recorded.
            self.end(self.port.switch.rt.turn_time(), false, None);
        }
    }
}

/// The wait for a permit.
struct Queued {
    port: Rc<Port>,
    io: Ask,
    generation: usize,
    arrived: Time,
    granted: bool,
}

impl Queued {
    fn permit(&self, granted: (Time, u32)) -> Permit {
        let mut permit = Permit::new(&self.port, self.io, self.arrived, granted);
        permit.generation = self.generation;
        permit
    }
}

impl Future for Queued {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        let mut places = self.port.switch.places.borrow_mut();
        let Some(granted) = places.wait(self.io.id, context.waker()) else {
            return Poll::Pending;
        };
        drop(places);
        self.granted = true;
        Poll::Ready(self.permit(granted))
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        if self.granted {
            return;
        }
        let switch = &self.port.switch;
        let granted = switch.places.borrow().granted(self.io.id);
        if let Some(granted) = granted {
            drop(self.permit(granted));
            return;
        }
        let now = switch.rt.turn_time();
        switch.policy.borrow_mut().cancel(now, self.io.id);
        switch.queued.set(switch.queued.get() - 1);
        self.port.leave(self.io.id, self.generation);
        switch.pump();
    }
}

/// Who waits under which id. Ids are handed out densely and used again.
#[derive(Default)]
struct Places {
    table: Vec<Place>,
    free: Vec<u32>,
    /// I/Os that ever had to wait.
    arrivals: u64,
}

#[derive(Default)]
struct Place {
    /// The I/O that waits here, and the how many-th it is.
    waiting: Option<(u64, Ask)>,
    /// When its turn came, and under which policy.
    granted: Option<(Time, u32)>,
    waker: Option<Waker>,
}

impl Places {
    #[inline]
    fn take(&mut self) -> IoId {
        IoId(self.free.pop().unwrap_or_else(|| {
            self.table.push(Place::default());
            u32::try_from(self.table.len() - 1).expect("fewer I/Os than bytes of memory")
        }))
    }

    #[inline]
    fn give_back(&mut self, id: IoId) {
        let place = &mut self.table[id.0 as usize];
        place.waiting = None;
        place.granted = None;
        place.waker = None;
        self.free.push(id.0);
    }

    fn wait_in(&mut self, io: Ask) {
        self.arrivals += 1;
        self.table[io.id.0 as usize].waiting = Some((self.arrivals, io));
    }

    /// All that wait for their turn, with the order in which they came.
    fn waiting(&self) -> impl Iterator<Item = (u64, Ask)> {
        self.table.iter().filter_map(|place| place.waiting)
    }

    /// All that wait for their turn, by order of arrival.
    fn queued(&self) -> Vec<Ask> {
        let mut queued: Vec<_> = self.waiting().collect();
        queued.sort_unstable_by_key(|(order, _)| *order);
        queued.into_iter().map(|(_, io)| io).collect()
    }

    fn grant(&mut self, id: IoId, now: Time, epoch: u32) -> Option<Waker> {
        let place = &mut self.table[id.0 as usize];
        assert!(
            place.waiting.take().is_some(),
            "a policy dispatches what is queued, and once"
        );
        place.granted = Some((now, epoch));
        place.waker.take()
    }

    fn wait(&mut self, id: IoId, waker: &Waker) -> Option<(Time, u32)> {
        let place = &mut self.table[id.0 as usize];
        if place.granted.is_none() {
            place.waker = Some(waker.clone());
        }
        place.granted
    }

    fn granted(&self, id: IoId) -> Option<(Time, u32)> {
        self.table[id.0 as usize].granted
    }
}

#[cfg(test)]
mod tests;
