//! The executor of one core: tasks, timers, operations, and the turn. One turn: take all that has
//! finished, run every task that became ready until none is left, then those that wait for the end
//! of the turn; then the driver submits once.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::Waker;

use flashyard_time::Time;

use crate::Gather;
use crate::driver::{Drive, Driver, Wait};
use crate::handle::SocketId;
use crate::op::{Completion, Operation, Outcome, Receive};
use crate::table::{Ended, Finished, Table};
use crate::task::Queue;
use crate::ticket::{Place, Ticket};
use crate::timer::Timers;
use crate::wake::{Registration, Remote, TaskId};
use crate::watch::Watches;

/// Tasks polled in one turn at most, before the driver runs again: tasks that wake each other
/// without end do not block it.
const POLLS_PER_TURN: usize = 4096;

/// One core. Its driver (the loop of a thread, or a simulated world) calls `turn` and `flush`
/// in alternation, and `shut_down` at its end. No borrow of a part is ever held while foreign code
/// runs: a waker, the drop of a future or of an operation.
pub(crate) struct Core {
    index: usize,
    /// The machine is a simulated one.
    simulated: bool,
    driver: RefCell<Driver>,
    table: RefCell<Table>,
    queue: Rc<Queue>,
    timers: RefCell<Timers>,
    turn_waiters: RefCell<VecDeque<Waker>>,
    turns: Cell<u64>,
    turn_time: Cell<Time>,
    closed: Cell<bool>,
    watches: Rc<Watches>,
    /// Kept for their allocations.
    scratch: RefCell<Scratch>,
    registration: Registration,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// A task ran, or something came from outside.
    pub(crate) worked: bool,
    /// Something came from outside: what a peer sent or left in shared memory, a device's end of an
    /// I/O, a wake from another thread.
    pub(crate) from_outside: bool,
}

#[derive(Default)]
struct Scratch {
    done: Vec<Completion>,
    woken: Vec<TaskId>,
}

impl Core {
    /// A core with number `index` of its machine.
    pub(crate) fn new(index: usize, registration: Registration, mut driver: Driver) -> Rc<Self> {
        Rc::new(Self {
            index,
            simulated: matches!(driver, Driver::Sim(_)),
            turn_time: Cell::new(driver.now()),
            driver: RefCell::new(driver),
            table: RefCell::default(),
            queue: registration.queue().clone(),
            timers: RefCell::default(),
            turn_waiters: RefCell::default(),
            turns: Cell::new(0),
            closed: Cell::new(false),
            watches: Rc::default(),
            scratch: RefCell::default(),
            registration,
        })
    }

    /// One turn.
    pub(crate) fn turn(&self) -> Turn {
        let now = self.driver.borrow_mut().now();
        self.turn_time.set(now);
        let woken = self.take_inbox();
        let arrived = self.reap() | (!self.watches.is_empty() && self.watches.look());
        self.fire_timers(now);
        let mut ran = self.run_ready();
        if self.end_turn() {
            ran |= self.run_ready();
        }
        let from_outside = woken || arrived;
        Turn {
            worked: ran || from_outside,
            from_outside,
        }
    }

    /// Submits operations to the driver; may sleep, see [`Drive::flush`].
    pub(crate) fn flush(&self, wait: Wait) {
        self.driver
            .borrow_mut()
            .flush(&mut self.table.borrow_mut(), wait);
    }

    /// Whether a turn would have something to do, operations' ends and timers aside.
    pub(crate) fn has_work(&self) -> bool {
        self.queue.ready() > 0
            || !self.turn_waiters.borrow().is_empty()
            || self.remote().is_some_and(Remote::is_pending)
    }

    /// The next timer.
    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.timers.borrow().next()
    }

    /// The next timer that must not be late.
    pub(crate) fn next_precise_timer(&self) -> Option<Time> {
        self.timers.borrow().next_precise()
    }

    /// How many operations are with the driver.
    pub(crate) fn in_flight(&self) -> usize {
        self.table.borrow().in_flight()
    }

    /// How many of them are with a file or block device.
    pub(crate) fn with_devices(&self) -> usize {
        self.table.borrow().with_devices()
    }

    /// Which core of its machine it is.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// The clock, read now.
    pub(crate) fn now(&self) -> Time {
        self.driver.borrow_mut().now()
    }

    /// The clock at the beginning of the turn.
    pub(crate) fn turn_time(&self) -> Time {
        self.turn_time.get()
    }

    /// The side that other threads see; a simulated core has none.
    pub(crate) fn remote(&self) -> Option<&'static Remote> {
        self.registration.remote()
    }

    /// The driver, for a call that does not come back here.
    pub(crate) fn with_driver<T>(&self, call: impl FnOnce(&mut dyn Drive) -> T) -> T {
        call(self.driver.borrow_mut().seldom())
    }

    /// The queue of tasks.
    pub(crate) fn queue(&self) -> &Rc<Queue> {
        &self.queue
    }

    /// Drops all tasks and cancels all operations; those started from now on fail. Turn on until
    /// `in_flight` is 0 before freeing what operations use.
    pub(crate) fn shut_down(&self) {
        self.closed.set(true);
        self.queue.cancel_all();
        let wakers = std::mem::take(&mut *self.turn_waiters.borrow_mut());
        let timers = std::mem::take(&mut *self.timers.borrow_mut());
        drop((wakers, timers));
        self.watches.clear();
        self.table.borrow_mut().direct().cancel_all();
        let in_flight = self.table.borrow().all_in_flight();
        for ticket in in_flight {
            self.cancel(ticket);
        }
    }

    /// Reaps ended operations, without running tasks; the second half of a shutdown.
    pub(crate) fn drain(&self) {
        self.reap();
    }

    /// Starts an operation.
    pub(crate) fn start(&self, operation: Operation) -> Ticket {
        if self.closed.get() {
            return self.fail(operation, io::Error::from_raw_os_error(libc::ECANCELED));
        }
        let mut table = self.table.borrow_mut();
        let (ticket, operation) = table.insert(operation);
        self.driver.borrow_mut().submit(ticket, operation);
        ticket
    }

    /// An operation that fails before it has begun.
    pub(crate) fn fail(&self, operation: Operation, error: io::Error) -> Ticket {
        let mut table = self.table.borrow_mut();
        let (ticket, _) = table.insert(operation);
        table.finish(Completion {
            ticket,
            result: Err(error),
        });
        ticket
    }

    /// Sends past the table what a socket takes at once; gives the number of bytes.
    #[inline]
    pub(crate) fn send_now(&self, socket: SocketId, gather: &Gather) -> io::Result<usize> {
        if self.closed.get() || gather.is_empty() {
            return Ok(0);
        }
        self.driver.borrow_mut().send_now(socket, gather)
    }

    /// Starts a receive past the table, if a new one goes there now; gives it back if not.
    #[inline]
    pub(crate) fn receive_directly(&self, receive: Receive) -> Result<Place, Receive> {
        let mut table = self.table.borrow_mut();
        let direct = table.direct();
        match !self.closed.get() && self.driver.borrow_mut().receives_directly(direct.used()) {
            true => Ok(direct.insert(receive)),
            false => Err(receive),
        }
    }

    /// The end of a receive past the table, which takes it out.
    #[inline]
    pub(crate) fn poll_direct(
        &self,
        place: Place,
        waker: &Waker,
    ) -> Option<(Receive, io::Result<Outcome>)> {
        let polled = self.table.borrow_mut().direct().poll(place, waker);
        polled.ok()
    }

    /// Asks for the early end of a receive past the table; its future gets the result.
    pub(crate) fn cancel_direct(&self, place: Place) {
        self.table.borrow_mut().direct().cancel(place);
    }

    /// The future of a receive past the table was dropped.
    pub(crate) fn abandon_direct(&self, place: Place) {
        let abandoned = self.table.borrow_mut().direct().abandon(place);
        drop(abandoned);
    }

    /// Asks for the early end of an operation; its future gets the result.
    pub(crate) fn cancel(&self, ticket: Ticket) {
        if let Some(operation) = self.table.borrow_mut().operation(ticket) {
            self.driver.borrow_mut().cancel(ticket, operation);
        }
    }

    pub(crate) fn poll_operation(&self, ticket: Ticket, waker: &Waker) -> Option<Finished> {
        let polled = self.table.borrow_mut().poll(ticket, waker.clone());
        polled.ok().inspect(|(operation, _)| operation.settle())
    }

    /// The memory that is looked at in every turn.
    pub(crate) fn watches(&self) -> &Rc<Watches> {
        &self.watches
    }

    /// Whether the machine is a simulated one.
    pub(crate) fn is_simulated(&self) -> bool {
        self.simulated
    }

    /// The future of an operation was dropped.
    pub(crate) fn abandon_operation(&self, ticket: Ticket) {
        let abandoned = {
            let mut table = self.table.borrow_mut();
            let abandoned = table.abandon(ticket);
            if let Some(operation) = table.operation(ticket) {
                operation.spoil();
                self.driver.borrow_mut().cancel(ticket, operation);
            }
            abandoned
        };
        if let Ok(finished) = abandoned {
            finished.0.spoil();
        }
    }

    /// The timers, for a call that does not come back here.
    pub(crate) fn with_timers<T>(&self, call: impl FnOnce(&mut Timers) -> T) -> T {
        call(&mut self.timers.borrow_mut())
    }

    /// Has `waker` woken at the end of this turn. Returns this turn's number.
    pub(crate) fn wait_for_turn_end(&self, waker: Waker) -> u64 {
        self.turn_waiters.borrow_mut().push_back(waker);
        self.turns.get()
    }

    /// How many turns have ended.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.get()
    }

    fn take_inbox(&self) -> bool {
        let Some(remote) = self.remote().filter(|remote| remote.is_pending()) else {
            return false;
        };
        let mut woken = std::mem::take(&mut self.scratch.borrow_mut().woken);
        remote.take(&mut woken);
        woken.drain(..).for_each(|id| self.queue.wake(id));
        self.scratch.borrow_mut().woken = woken;
        true
    }

    /// Reaps ended operations; whether a peer or a device ended any of them.
    fn reap(&self) -> bool {
        let before = self.table.borrow().arrivals();
        let mut scratch = self.scratch.borrow_mut();
        self.driver
            .borrow_mut()
            .reap(&mut self.table.borrow_mut(), &mut scratch.done);
        // A core that polls mostly finds nothing, and taking and draining nothing has a cost.
        if scratch.done.is_empty() {
            drop(scratch);
        } else {
            let mut done = std::mem::take(&mut scratch.done);
            drop(scratch);
            done.drain(..)
                .for_each(|completion| self.finish(completion));
            self.scratch.borrow_mut().done = done;
        }
        self.wake_direct();
        self.table.borrow().arrivals() > before
    }

    /// Wakes those whose receives past the table have ended.
    #[inline]
    fn wake_direct(&self) {
        loop {
            let ended = self.table.borrow_mut().direct().next_ended();
            let Some(waker) = ended else { return };
            waker.wake();
        }
    }

    fn finish(&self, completion: Completion) {
        let ended = self.table.borrow_mut().finish(completion);
        match ended {
            Ended::Wanted(Some(waker)) => waker.wake(),
            Ended::Wanted(None) => {}
            Ended::Unwanted((operation, _)) => operation.settle(),
        }
    }

    fn fire_timers(&self, now: Time) {
        loop {
            let due = self.timers.borrow_mut().pop_due(now);
            let Some(waker) = due else { return };
            waker.wake();
        }
    }

    /// Runs tasks until none is ready; whether one was.
    fn run_ready(&self) -> bool {
        for polls in 0..POLLS_PER_TURN {
            let place = if self.simulated { self.pick() } else { 0 };
            if !self.queue.run(place) {
                return polls > 0;
            }
        }
        true
    }

    /// Which ready task the simulated world wants to see next.
    fn pick(&self) -> usize {
        match self.queue.ready() {
            0 => 0,
            ready => self.driver.borrow_mut().seldom().pick(ready),
        }
    }

    /// Wakes those who wait for the end of the turn; whether there were any.
    fn end_turn(&self) -> bool {
        let waiting = self.turn_waiters.borrow().len();
        if waiting == 0 {
            return false;
        }
        self.turns.set(self.turns.get() + 1);
        // Mostly it is one, so no list is made of them. Who comes meanwhile waits for the next end.
        for _ in 0..waiting {
            let first = self.turn_waiters.borrow_mut().pop_front();
            let Some(waker) = first else { break };
            waker.wake();
        }
        true
    }
}
