//! The clock of a core, the clock of a drive that runs on it, and the pump that reports what is
//! due.
//!
//! A model is given commands with the instant at which they came. What it completes at an instant
//! is reported once that instant has passed: the core polls the clock while something is due within
//! microseconds, and sleeps when nothing is in flight. The clock is that of the core's turn, as for
//! every device: begin and end of an I/O are seen at the beginning of a turn, so that a measurement
//! by turns never sees an I/O end before it began.
//!
//! Dilation makes a drive slower by a factor without changing it, so that what the rest of the
//! machine costs becomes small beside it: the model sees the clock divided by the factor.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Weak;
use std::task::{Context, Poll, Waker};

use flashyard_runtime::{Rt, Sleep, Task};
use flashyard_time::{Duration, Time};

/// Translates between the clock of the core and that of the drive.
pub(crate) struct DriveClock {
    began: Time,
    drive_began: Time,
    dilation: u64,
}

impl DriveClock {
    /// The drive's clock shows `drive_began` when the core's shows `began`, and goes `dilation`
    /// times slower; 0 counts as 1.
    pub fn new(began: Time, drive_began: Time, dilation: u32) -> Self {
        Self {
            began,
            drive_began,
            dilation: u64::from(dilation.max(1)),
        }
    }

    /// By how much the drive is slower than its model.
    pub fn dilation(&self) -> u32 {
        self.dilation as u32
    }

    /// What the drive's clock shows when the core's shows `now`.
    pub fn drive_time(&self, now: Time) -> Time {
        let passed = now.since(self.began).as_ns() / self.dilation;
        self.drive_began + Duration::from_ns(passed)
    }

    /// The first instant of the core at which the drive's clock shows `at`.
    pub fn core_time(&self, at: Time) -> Time {
        let passed = at.since(self.drive_began).as_ns();
        self.began + Duration::from_ns(passed.saturating_mul(self.dilation))
    }
}

/// A drive with completions that are due at instants of its own.
pub(crate) trait Timed {
    /// Reports what is due. Gives when to look again, by the clock of the core.
    fn deliver(&self) -> Option<Time>;

    /// The pump that polls it.
    fn pump(&self) -> &Pump;
}

/// Has a drive report what is due, for as long as there is a drive.
pub(crate) struct Pump {
    waker: Cell<Option<Waker>>,
    sleeps_until: Cell<Time>,
    _task: Task<()>,
}

impl Pump {
    /// Begins with what `drive` has due.
    pub fn start(rt: &Rt, drive: Weak<impl Timed + 'static>) -> Self {
        let run = Run {
            rt: rt.clone(),
            drive,
            sleep: None,
        };
        Self {
            waker: Cell::new(None),
            sleeps_until: Cell::new(Time::MAX),
            _task: rt.spawn(run),
        }
    }

    /// Something is due `next`: wakes the pump if it sleeps longer than that.
    pub fn wake_by(&self, next: Option<Time>) {
        if next.is_some_and(|next| next < self.sleeps_until.get()) {
            self.sleeps_until.set(Time::ZERO);
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
    }
}

/// The task of a pump.
struct Run<D> {
    rt: Rt,
    drive: Weak<D>,
    sleep: Option<Sleep>,
}

impl<D: Timed> Future for Run<D> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(drive) = self.drive.upgrade() else {
            return Poll::Ready(());
        };
        loop {
            let next = drive.deliver();
            let pump = drive.pump();
            pump.waker.set(Some(context.waker().clone()));
            pump.sleeps_until.set(next.unwrap_or(Time::MAX));
            self.sleep = next.map(|next| self.rt.sleep_until_precise(next));
            let Some(sleep) = &mut self.sleep else {
                return Poll::Pending;
            };
            if Pin::new(sleep).poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_instant_of_the_drive_is_seen_before_it_has_come() {
        let (began, drive_began) = (Time::ZERO + Duration::from_ms(7), Time::ZERO);
        for dilation in [0, 1, 3, 1000] {
            let clock = DriveClock::new(began, drive_began, dilation);
            for ns in [0, 1, 2, 999, 1_000_001] {
                let at = drive_began + Duration::from_ns(ns);
                let core = clock.core_time(at);
                assert_eq!(clock.drive_time(core), at, "{dilation} {ns}");
                if ns > 0 {
                    let before = began + Duration::from_ns(core.since(began).as_ns() - 1);
                    assert!(clock.drive_time(before) < at, "{dilation} {ns}");
                }
            }
        }
    }
}
