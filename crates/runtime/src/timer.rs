//! The timers of a core.

use std::task::Waker;

use flashyard_time::{EventKey, EventQueue, Time};

/// How late a timer may fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// As late as the kernel wakes a sleeper.
    Usual,
    /// As late as the clock is looked at.
    Precise,
}

/// Names a timer that was set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimerKey(Precision, EventKey);

/// The timers of a core.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    usual: EventQueue<Waker>,
    precise: EventQueue<Waker>,
}

impl Timers {
    /// Sets a timer.
    pub(crate) fn push(&mut self, precision: Precision, deadline: Time, waker: Waker) -> TimerKey {
        TimerKey(precision, self.queue(precision).push(deadline, waker))
    }

    /// Takes a timer back, unless it has fired; its waker is for the caller to drop.
    pub(crate) fn cancel(&mut self, TimerKey(precision, key): TimerKey) -> Option<Waker> {
        self.queue(precision).cancel(key)
    }

    /// Takes a timer that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Waker> {
        let first = match (self.usual.next_time(), self.precise.next_time()) {
            (None, _) => Precision::Precise,
            (Some(usual), Some(precise)) if precise <= usual => Precision::Precise,
            _ => Precision::Usual,
        };
        self.queue(first).pop_due(now).map(|(_, waker)| waker)
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Time> {
        let (usual, precise) = (self.usual.next_time(), self.precise.next_time());
        usual.into_iter().chain(precise).min()
    }

    /// When the next one of [`Precision::Precise`] is due.
    pub(crate) fn next_precise(&self) -> Option<Time> {
        self.precise.next_time()
    }

    fn queue(&mut self, precision: Precision) -> &mut EventQueue<Waker> {
        match precision {
            Precision::Usual => &mut self.usual,
            Precision::Precise => &mut self.precise,
        }
    }
}
