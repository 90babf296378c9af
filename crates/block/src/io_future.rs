//! A block I/O in flight, as a value: no allocation where a terminal device does the work.

use std::future::Future;
use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use flashyard_runtime::{Buf, ControlOp, LentOp, ReadOp, Rt, Shared, WriteOp};

use crate::IoError;
use crate::all::{All, in_batches};
use crate::gate::Hold;
use crate::io::Done;
use crate::served::Served;
use crate::timed_end::TimedEnd;

/// Translates the outcome of an operation of the runtime without payload.
pub type ControlMeaning = fn(io::Result<()>) -> Result<(), IoError>;

/// Translates the outcome of a read: bytes moved, and the buffer. It judges a read that is shorter
/// than the buffer.
pub type ReadMeaning = fn(io::Result<usize>, Buf) -> Result<Done, IoError>;

/// Translates the outcome of a write: bytes moved, and the data.
pub type WriteMeaning = fn(io::Result<usize>, Shared) -> Result<(), IoError>;

/// Translates the outcome of a transfer of lent memory: bytes moved, and all there were to move.
pub type LentMeaning = fn(io::Result<usize>, usize) -> Result<(), IoError>;

/// A block I/O in flight. Terminal devices finish at once or give an operation of the runtime.
/// Composite devices wait for the [`All`] that they made of it. Neither allocates.
///
/// An I/O that was issued is never forgotten. When the future is dropped, the rest of it runs on by
/// itself if a device still depends on it (a range is kept exclusive, a volume waits for its last
/// I/O before its space is given away), or if only some children of a composite have ended.
#[must_use = "an I/O does nothing unless awaited"]
pub struct IoFuture {
    state: State,
    holds: [Option<Hold>; 2],
    /// No task waits for the result any more.
    abandoned: bool,
}

type Outcome = Result<Done, IoError>;

enum State {
    Ready(Option<Outcome>),
    Boxed(Pin<Box<dyn Future<Output = Outcome>>>),
    Control(ControlOp, ControlMeaning),
    Read(ReadOp, ReadMeaning),
    Write(WriteOp, WriteMeaning),
    Lent(LentOp, LentMeaning),
    /// The result is known, and returned when it is time.
    Timed(TimedEnd, Option<Outcome>),
    /// The device gives the result later.
    Served(Served),
    /// The children of a composite.
    All(All),
}

impl IoFuture {
    /// Finished already.
    #[inline]
    pub fn ready(result: Outcome) -> Self {
        Self::new(State::Ready(Some(result)))
    }

    /// Finished already, with nothing read.
    #[inline]
    pub fn ended(result: Result<(), IoError>) -> Self {
        Self::ready(result.map(|()| Done::EMPTY))
    }

    /// Any future; costs an allocation.
    pub fn boxed(future: impl Future<Output = Outcome> + 'static) -> Self {
        Self::new(State::Boxed(Box::pin(future)))
    }

    /// An operation of the runtime without payload, with the meaning of its outcome.
    pub fn control(op: ControlOp, meaning: ControlMeaning) -> Self {
        Self::new(State::Control(op, meaning))
    }

    /// A read of the runtime, with the meaning of its outcome.
    pub fn read(op: ReadOp, meaning: ReadMeaning) -> Self {
        Self::new(State::Read(op, meaning))
    }

    /// A write of the runtime, with the meaning of its outcome.
    pub fn write(op: WriteOp, meaning: WriteMeaning) -> Self {
        Self::new(State::Write(op, meaning))
    }

    /// A transfer of lent memory, with the meaning of its outcome.
    pub fn lent(op: LentOp, meaning: LentMeaning) -> Self {
        Self::new(State::Lent(op, meaning))
    }

    /// A result that is known now, and returned when `end` has come.
    pub fn timed(end: TimedEnd, result: Outcome) -> Self {
        Self::new(State::Timed(end, Some(result)))
    }

    /// A result that the device gives later.
    pub fn served(served: Served) -> Self {
        Self::new(State::Served(served))
    }

    /// The children of a composite device's I/O, to be added. Children that are left when no task
    /// waits any more run on `rt`.
    pub fn all(rt: &Rt) -> All {
        All::new(rt)
    }

    /// One I/O of as many children as there are, some at a time and in order; for those that read
    /// nothing. It fails with the first that did, in their order, and then begins no more.
    pub fn in_batches(rt: &Rt, children: impl Iterator<Item = Self> + 'static) -> Self {
        let mut all = Self::all(rt);
        // As a child it goes on when no task waits any more.
        all.push(Self::boxed(in_batches(rt.clone(), children)));
        all.into_io()
    }

    /// Children of which one has not ended.
    pub(crate) fn all_of(all: All) -> Self {
        Self::new(State::All(all))
    }

    /// The result, if the I/O has finished already; else the I/O itself. It spares code that
    /// submits many I/Os the executor.
    #[inline]
    pub fn try_finish(mut self) -> Result<Outcome, Self> {
        let State::Ready(result) = &mut self.state else {
            return Err(self);
        };
        let result = result.take().expect("not polled after it was ready");
        // Nothing is left in it; checking that when it is dropped costs 50 instructions.
        mem::forget(self);
        Ok(result)
    }

    /// Keeps `hold` until the I/O has ended, even if the future is dropped before.
    pub(crate) fn keep(mut self, hold: Hold) -> Self {
        if let State::Ready(result) = &mut self.state {
            *result = result.take().map(|result| hold.settle(result));
            return self;
        }
        let Some(place) = self.holds.iter_mut().find(|place| place.is_none()) else {
            let mut all = Self::all(&hold.runtime());
            all.push(self);
            return Self::all_of(all).keep(hold);
        };
        *place = Some(hold);
        self
    }

    fn new(state: State) -> Self {
        Self {
            state,
            holds: [None, None],
            abandoned: false,
        }
    }

    /// No task waits any more, and the rest is not to run on once more.
    pub(crate) fn abandon(&mut self) {
        self.abandoned = true;
        if let State::All(all) = &mut self.state {
            all.abandon();
        }
    }

    /// Where the rest of it has to run on if no task waits any more.
    fn runs_on(&self) -> Option<Rt> {
        match (&self.state, self.holds.iter().flatten().next()) {
            _ if self.abandoned => None,
            (State::Ready(_), _) => None,
            (State::All(all), _) => Some(all.runtime().clone()),
            (_, hold) => hold.map(Hold::runtime),
        }
    }
}

// Nothing is pinned in place: futures inside are boxed or `Unpin`.
impl Unpin for IoFuture {}

impl Future for IoFuture {
    type Output = Outcome;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut result = match &mut self.state {
            State::Ready(result) => {
                return Poll::Ready(result.take().expect("not polled after it was ready"));
            }
            State::Boxed(future) => ready!(future.as_mut().poll(context)),
            State::Control(op, meaning) => {
                let outcome = ready!(Pin::new(op).poll(context));
                meaning(outcome).map(|()| Done::EMPTY)
            }
            State::Read(op, meaning) => {
                let (outcome, buf) = ready!(Pin::new(op).poll(context));
                meaning(outcome, buf)
            }
            State::Write(op, meaning) => {
                let (outcome, data) = ready!(Pin::new(op).poll(context));
                meaning(outcome, data).map(|()| Done::EMPTY)
            }
            State::Lent(op, meaning) => {
                let (outcome, all) = ready!(Pin::new(op).poll(context));
                meaning(outcome, all).map(|()| Done::EMPTY)
            }
            State::Timed(end, result) => {
                ready!(Pin::new(end).poll(context));
                result.take().expect("not polled after it was ready")
            }
            State::Served(served) => ready!(Pin::new(served).poll(context)),
            State::All(all) => ready!(all.poll(context)),
        };
        self.state = State::Ready(None);
        for hold in mem::take(&mut self.holds).into_iter().flatten() {
            result = hold.settle(result);
        }
        Poll::Ready(result)
    }
}

impl Drop for IoFuture {
    fn drop(&mut self) {
        let Some(runtime) = self.runs_on() else {
            return;
        };
        let mut rest = Self {
            state: mem::replace(&mut self.state, State::Ready(None)),
            holds: mem::take(&mut self.holds),
            abandoned: false,
        };
        rest.abandon();
        let run_on = async move {
            let _ignored = rest.await;
        };
        runtime.spawn(run_on).detach();
    }
}
