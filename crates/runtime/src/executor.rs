//! The executor of one core: tasks, time, operations, and the turn. One turn: take all that has
//! finished, run every task that became ready until none is left, then [`TurnEnd`] waiters; then
//! the driver submits once.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::task::Waker;

use flashyard_time::{Duration, Time};

use crate::driver::{Drive, Driver, Wait};
use crate::net::Socket;
use crate::op::{Completion, Ended, Finished, Flight, Operation, Outcome, Table, Ticket};
use crate::task::{Queue, Task};
use crate::timer::{Precision, Sleep, Timers, TurnEnd};
use crate::wake::{Registration, Remote, TaskId};
use crate::{File, OpenOptions, TcpListener, TcpStream};

/// A turn polls at most so many tasks before it looks at the world again: tasks that wake each
/// other for ever do not shut it out.
const POLLS_PER_TURN: usize = 4096;

/// A handle to the core's executor and driver. Cheap to clone, bound to its thread.
#[derive(Clone)]
pub struct Rt {
    pub(crate) core: Rc<Core>,
}

impl Rt {
    /// The clock of this machine, read at this call; monotonic.
    pub fn now(&self) -> Time {
        self.core.driver.borrow_mut().now()
    }

    /// The clock as it was when this turn began: free of cost, and at most a turn old.
    pub fn turn_time(&self) -> Time {
        self.core.turn_time()
    }

    /// Starts a task. It is polled for the first time in this turn, not inside this call.
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + 'static,
    {
        Task::spawn(self.core.queue.clone(), future)
    }

    /// Resolves when `deadline` has come.
    pub fn sleep_until(&self, deadline: Time) -> Sleep {
        Sleep::new(self.core.clone(), deadline, Precision::Usual)
    }

    /// The same, to the microsecond: the core does not trust its own wake-up from sleep and looks
    /// at the clock all the time for the last 60 us. For what has to happen at an instant, such as
    /// the end of an emulated I/O; a core that always has one of these ahead never sleeps.
    pub fn sleep_until_precise(&self, deadline: Time) -> Sleep {
        Sleep::new(self.core.clone(), deadline, Precision::Precise)
    }

    /// Resolves after `span`.
    pub fn sleep(&self, span: Duration) -> Sleep {
        self.sleep_until(self.now() + span)
    }

    /// Resolves when every task that could run in this turn has run: the moment to send what they
    /// gathered.
    pub fn turn_end(&self) -> TurnEnd {
        TurnEnd::new(self.core.clone())
    }

    /// Listens for TCP connections (address reuse on, backlog 1024). That the address is in use,
    /// and such, comes as the operating system's error.
    pub fn listen(&self, addr: SocketAddr) -> io::Result<TcpListener> {
        let (id, addr) = self.core.driver.borrow_mut().listen(addr)?;
        Ok(TcpListener::new(Socket::new(self.core.clone(), id), addr))
    }

    /// Opens a TCP connection with `TCP_NODELAY`.
    pub async fn connect(&self, addr: SocketAddr) -> io::Result<TcpStream> {
        let (_, result) = self.core.start(Operation::Connect { addr }).await;
        TcpStream::of_outcome(&self.core, result)
    }

    /// Takes over a connection that another core gave away.
    pub fn attach(&self, stream: crate::Detached) -> TcpStream {
        TcpStream::attach(&self.core, stream)
    }

    /// Opens a file or a block device. Done at once (open is a slow-path call).
    pub fn open(&self, path: &Path, options: OpenOptions) -> io::Result<File> {
        let (id, info) = self.core.driver.borrow_mut().open(path, options)?;
        Ok(File::new(self.core.clone(), id, info))
    }

    /// Which core (0, 1, ...) of its machine this is.
    pub fn core(&self) -> usize {
        self.core.index
    }

    /// A random number: from the operating system, or from the world's seed.
    pub fn random(&self) -> u64 {
        self.core.driver.borrow_mut().random()
    }
}

impl fmt::Debug for Rt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Rt(core {})", self.core.index)
    }
}

/// One core. Whoever turns it (the loop of a thread, or a simulated world) calls `turn` and `flush`
/// in alternation, and `shut_down` at its end. No borrow of a part is ever held while foreign code
/// runs: a waker, the drop of a future or of an operation.
pub(crate) struct Core {
    index: usize,
    driver: RefCell<Driver>,
    table: RefCell<Table>,
    queue: Rc<Queue>,
    timers: RefCell<Timers>,
    turn_waiters: RefCell<Vec<Waker>>,
    turns: Cell<u64>,
    turn_time: Cell<Time>,
    closed: Cell<bool>,
    /// Kept for their allocations.
    scratch: RefCell<Scratch>,
    registration: Registration,
}

/// What a turn was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// A task ran, or something came from outside.
    pub(crate) worked: bool,
    /// Something came from outside: what a peer sent, a device's end of an I/O, a wake from another
    /// thread.
    pub(crate) from_outside: bool,
}

#[derive(Default)]
struct Scratch {
    done: Vec<Completion>,
    woken: Vec<TaskId>,
    wakers: Vec<Waker>,
}

impl Core {
    /// A core with number `index` of its machine.
    pub(crate) fn new(index: usize, registration: Registration, mut driver: Driver) -> Rc<Self> {
        Rc::new(Self {
            index,
            turn_time: Cell::new(driver.now()),
            driver: RefCell::new(driver),
            table: RefCell::default(),
            queue: registration.queue().clone(),
            timers: RefCell::default(),
            turn_waiters: RefCell::default(),
            turns: Cell::new(0),
            closed: Cell::new(false),
            scratch: RefCell::default(),
            registration,
        })
    }

    /// One turn.
    pub(crate) fn turn(&self) -> Turn {
        let now = self.driver.borrow_mut().now();
        self.turn_time.set(now);
        let woken = self.take_inbox();
        let arrived = self.reap();
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

    /// Hands over what was submitted; may sleep, see [`Drive::flush`].
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

    /// The clock at the beginning of the turn.
    pub(crate) fn turn_time(&self) -> Time {
        self.turn_time.get()
    }

    /// The side that other threads see; a simulated core has none.
    pub(crate) fn remote(&self) -> Option<&'static Remote> {
        self.registration.remote()
    }

    /// The driver, for a call that does not come back here.
    pub(crate) fn with_driver<T>(&self, call: impl FnOnce(&mut Driver) -> T) -> T {
        call(&mut self.driver.borrow_mut())
    }

    /// The queue of tasks.
    pub(crate) fn queue(&self) -> &Rc<Queue> {
        &self.queue
    }

    /// Drops all tasks and asks for the end of all operations; those started from now on fail. Turn
    /// on until `in_flight` is 0 before freeing what operations use.
    pub(crate) fn shut_down(&self) {
        self.closed.set(true);
        self.queue.cancel_all();
        let wakers = std::mem::take(&mut *self.turn_waiters.borrow_mut());
        let timers = std::mem::take(&mut *self.timers.borrow_mut());
        drop((wakers, timers));
        let in_flight = self.table.borrow().all_in_flight();
        for ticket in in_flight {
            self.cancel(ticket);
        }
    }

    /// Takes in what has ended, without running tasks; the second half of an end.
    pub(crate) fn drain(&self) {
        self.reap();
    }

    /// Starts an operation.
    pub(crate) fn start(self: &Rc<Self>, operation: Operation) -> Flight {
        if self.closed.get() {
            return self.fail(operation, io::Error::from_raw_os_error(libc::ECANCELED));
        }
        let mut table = self.table.borrow_mut();
        let (ticket, operation) = table.insert(operation);
        self.driver.borrow_mut().submit(ticket, operation);
        Flight::new(self.clone(), ticket)
    }

    /// An operation that fails before it has begun.
    pub(crate) fn fail(self: &Rc<Self>, operation: Operation, error: io::Error) -> Flight {
        let mut table = self.table.borrow_mut();
        let (ticket, _) = table.insert(operation);
        table.finish(Completion {
            ticket,
            result: Err(error),
        });
        Flight::new(self.clone(), ticket)
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
            self.discard(finished);
        }
    }

    /// The timers, for a call that does not come back here.
    pub(crate) fn with_timers<T>(&self, call: impl FnOnce(&mut Timers) -> T) -> T {
        call(&mut self.timers.borrow_mut())
    }

    /// Has `waker` woken at the end of this turn. Returns this turn's number.
    pub(crate) fn wait_for_turn_end(&self, waker: Waker) -> u64 {
        self.turn_waiters.borrow_mut().push(waker);
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

    /// Takes in what has ended; whether any of it was somebody else's doing.
    fn reap(&self) -> bool {
        let before = self.table.borrow().arrivals();
        let mut done = std::mem::take(&mut self.scratch.borrow_mut().done);
        self.driver
            .borrow_mut()
            .reap(&mut self.table.borrow_mut(), &mut done);
        done.drain(..)
            .for_each(|completion| self.finish(completion));
        self.scratch.borrow_mut().done = done;
        self.table.borrow().arrivals() > before
    }

    fn finish(&self, completion: Completion) {
        let ended = self.table.borrow_mut().finish(completion);
        match ended {
            Ended::Wanted(Some(waker)) => waker.wake(),
            Ended::Wanted(None) => {}
            Ended::Unwanted(finished) => self.discard(finished),
        }
    }

    /// Drops what nobody wants.
    fn discard(&self, (operation, result): Finished) {
        operation.settle();
        if let Ok(Outcome::Connected(connected)) = result {
            self.driver.borrow_mut().close_socket(connected.id);
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
        let simulated = matches!(&*self.driver.borrow(), Driver::Sim(_));
        for polls in 0..POLLS_PER_TURN {
            let place = if simulated { self.pick() } else { 0 };
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
            ready => self.driver.borrow_mut().pick(ready),
        }
    }

    /// Wakes those who wait for the end of the turn; whether there were any.
    fn end_turn(&self) -> bool {
        if self.turn_waiters.borrow().is_empty() {
            return false;
        }
        self.turns.set(self.turns.get() + 1);
        let mut wakers = std::mem::take(&mut self.scratch.borrow_mut().wakers);
        std::mem::swap(&mut wakers, &mut *self.turn_waiters.borrow_mut());
        wakers.drain(..).for_each(Waker::wake);
        self.scratch.borrow_mut().wakers = wakers;
        true
    }
}
