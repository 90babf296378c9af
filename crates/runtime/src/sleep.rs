//! Waiting for an instant, and for the end of the turn.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use flashyard_time::Time;

use crate::executor::Core;
use crate::timer::{Precision, TimerKey};

/// See [`crate::Rt::sleep_until`] and [`crate::Rt::sleep_until_precise`].
#[must_use = "a sleep does nothing unless awaited"]
pub struct Sleep {
    core: Rc<Core>,
    deadline: Time,
    precision: Precision,
    timer: Option<(TimerKey, Waker)>,
}

impl Sleep {
    pub(crate) fn new(core: Rc<Core>, deadline: Time, precision: Precision) -> Self {
        Self {
            core,
            deadline,
            precision,
            timer: None,
        }
    }

    fn stop(&mut self) {
        if let Some((key, _)) = self.timer.take() {
            let waker = self.core.with_timers(|timers| timers.cancel(key));
            drop(waker);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.core.turn_time() >= self.deadline {
            self.stop();
            return Poll::Ready(());
        }
        let waker = context.waker();
        if !self
            .timer
            .as_ref()
            .is_some_and(|(_, known)| known.will_wake(waker))
        {
            self.stop();
            let (precision, deadline) = (self.precision, self.deadline);
            let set = waker.clone();
            let key = self
                .core
                .with_timers(|timers| timers.push(precision, deadline, set));
            self.timer = Some((key, waker.clone()));
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Sleep(until {:?})", self.deadline)
    }
}

/// See [`crate::Rt::turn_end`].
#[must_use = "waiting for the end of the turn does nothing unless awaited"]
pub struct TurnEnd {
    core: Rc<Core>,
    /// The turn whose end is waited for.
    turn: Option<u64>,
}

impl TurnEnd {
    pub(crate) fn new(core: Rc<Core>) -> Self {
        Self { core, turn: None }
    }

    /// Has begun already: `waker` is woken at the end of this turn.
    pub(crate) fn begun(core: Rc<Core>, waker: Waker) -> Self {
        let turn = Some(core.wait_for_turn_end(waker));
        Self { core, turn }
    }
}

impl Future for TurnEnd {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.turn.is_some_and(|turn| self.core.turns() > turn) {
            return Poll::Ready(());
        }
        let turn = self.core.wait_for_turn_end(context.waker().clone());
        self.turn = Some(turn);
        Poll::Pending
    }
}

impl fmt::Debug for TurnEnd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TurnEnd").finish_non_exhaustive()
    }
}
