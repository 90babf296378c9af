//! A block I/O on its way, as a value: no allocation where a terminal device does the work.

use std::future::Future;
use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use flashyard_runtime::{Buf, ControlOp, TransferOp};

use crate::gate::Hold;
use crate::{IoError, TimedEnd};

/// What the outcome of an operation of the runtime without payload means.
pub type ControlMeaning<T> = fn(io::Result<()>) -> Result<T, IoError>;

/// What the outcome of a transfer means: bytes moved, and the buffer. Fewer bytes than the buffer
/// is long is for the meaning to judge.
pub type TransferMeaning<T> = fn(io::Result<usize>, Buf) -> Result<T, IoError>;

/// A block I/O on its way. Terminal devices finish at once or give an operation of the runtime,
/// without an allocation; composite devices box a future of their own.
///
/// What has been issued is never forgotten: when the future is dropped while a device still counts
/// on the I/O (a range is kept exclusive, a volume waits for its last I/O before its space is given
/// away), the rest of it runs on by itself.
#[must_use = "an I/O does nothing unless awaited"]
pub struct IoFuture<T: 'static> {
    state: State<T>,
    holds: [Option<Hold>; 2],
    /// Nobody waits for the result any more.
    abandoned: bool,
}

enum State<T> {
    Ready(Option<Result<T, IoError>>),
    Boxed(Pin<Box<dyn Future<Output = Result<T, IoError>>>>),
    Control(ControlOp, ControlMeaning<T>),
    Transfer(TransferOp, TransferMeaning<T>),
    /// The result is known; it is told when its end has come.
    Timed(TimedEnd, Option<Result<T, IoError>>),
}

impl<T: 'static> IoFuture<T> {
    /// Finished already.
    #[inline]
    pub fn ready(result: Result<T, IoError>) -> Self {
        Self::new(State::Ready(Some(result)))
    }

    /// Any future; costs an allocation.
    pub fn boxed(future: impl Future<Output = Result<T, IoError>> + 'static) -> Self {
        Self::new(State::Boxed(Box::pin(future)))
    }

    /// An operation of the runtime without payload, with the meaning of its outcome.
    pub fn control(op: ControlOp, meaning: ControlMeaning<T>) -> Self {
        Self::new(State::Control(op, meaning))
    }

    /// A transfer of the runtime, with the meaning of its outcome.
    pub fn transfer(op: TransferOp, meaning: TransferMeaning<T>) -> Self {
        Self::new(State::Transfer(op, meaning))
    }

    /// A result that is known and told when `end` has come: of an I/O whose effect is there before
    /// its time has passed.
    pub fn timed(end: TimedEnd, result: Result<T, IoError>) -> Self {
        Self::new(State::Timed(end, Some(result)))
    }

    /// The result, if the I/O has finished already (then the future is spent). Spares those who
    /// submit many the way through an executor.
    #[inline]
    pub fn take_finished(&mut self) -> Option<Result<T, IoError>> {
        match &mut self.state {
            State::Ready(result) => result.take(),
            _ => None,
        }
    }

    /// Keeps `hold` until the I/O has ended, even if the future is dropped before.
    pub fn keep(mut self, hold: Hold) -> Self {
        if let State::Ready(result) = &mut self.state {
            *result = result.take().map(|result| hold.settle(result));
            return self;
        }
        let Some(place) = self.holds.iter_mut().find(|place| place.is_none()) else {
            return Self::boxed(self).keep(hold);
        };
        *place = Some(hold);
        self
    }

    fn new(state: State<T>) -> Self {
        Self {
            state,
            holds: [None, None],
            abandoned: false,
        }
    }

    fn is_finished(&self) -> bool {
        matches!(self.state, State::Ready(_))
    }
}

// Nothing is pinned in place: futures inside are boxed or `Unpin`, and `T` is only moved.
impl<T: 'static> Unpin for IoFuture<T> {}

impl<T: 'static> Future for IoFuture<T> {
    type Output = Result<T, IoError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut result = match &mut self.state {
            State::Ready(result) => {
                return Poll::Ready(result.take().expect("not polled after it was ready"));
            }
            State::Boxed(future) => ready!(future.as_mut().poll(context)),
            State::Control(op, meaning) => {
                let outcome = ready!(Pin::new(op).poll(context));
                meaning(outcome)
            }
            State::Transfer(op, meaning) => {
                let (outcome, buf) = ready!(Pin::new(op).poll(context));
                meaning(outcome, buf)
            }
            State::Timed(end, result) => {
                ready!(Pin::new(end).poll(context));
                result.take().expect("not polled after it was ready")
            }
        };
        self.state = State::Ready(None);
        for hold in mem::take(&mut self.holds).into_iter().flatten() {
            result = hold.settle(result);
        }
        Poll::Ready(result)
    }
}

impl<T: 'static> Drop for IoFuture<T> {
    fn drop(&mut self) {
        if self.is_finished() || self.abandoned {
            return;
        }
        let Some(hold) = self.holds.iter().flatten().next() else {
            return;
        };
        let runtime = hold.runtime();
        let rest = Self {
            state: mem::replace(&mut self.state, State::Ready(None)),
            holds: mem::take(&mut self.holds),
            abandoned: true,
        };
        let run_on = async move {
            let _nobody_waits = rest.await;
        };
        runtime.spawn(run_on).detach();
    }
}
