//! The commands of a queue that have not been issued: they wait for memory, for their turn in a
//! switch, or for their data. Until they stop waiting they can be taken back, by an Abort, by the
//! end of the association, or because they have waited for so long that their host would lose
//! patience: better to tell it to come again, while nothing has been done. A wait that goes on at
//! another core can only be asked to end; its end tells whether that was in time.

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Poll, Waker};

use flashyard_block::IoError;
use flashyard_time::{Duration, Time};

/// A command was taken back while it waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Withdrawn;

/// Why a command does not wait any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakenBack {
    /// It is not wanted any more.
    Unwanted,
    /// It has waited too long, and may come again.
    Late,
}

impl TakenBack {
    /// What is reported to its host.
    pub(crate) fn error(self) -> IoError {
        match self {
            Self::Unwanted => IoError::Aborted,
            Self::Late => IoError::Busy,
        }
    }
}

/// Hears whether a command was taken back.
pub type TellWithdrawn = Box<dyn FnOnce(bool)>;

/// A wait elsewhere, which can be asked to end.
pub(crate) trait Elsewhere: Future {
    /// Asks for the end. It comes in any case.
    fn withdraw(&mut self);

    /// Whether it is known to have been asked too late.
    fn is_too_late(&self) -> bool;
}

/// Those who wait.
#[derive(Default)]
pub(crate) struct Waiting {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    places: Vec<Option<Place>>,
    closed: bool,
}

struct Place {
    cid: u16,
    withdrawn: bool,
    /// It was withdrawn because of its age.
    late: bool,
    /// When it was first seen by [`Waiting::expire`].
    seen: Option<Time>,
    /// Whether it may wait too long.
    expires: bool,
    /// Whether its end tells what came of the withdrawal.
    elsewhere: bool,
    tell: Option<TellWithdrawn>,
    waker: Waker,
}

impl Waiting {
    /// Waits for `future` on behalf of command `cid`, unless it is taken back.
    pub(crate) async fn unless_withdrawn<T>(
        &self,
        cid: u16,
        future: impl Future<Output = T>,
    ) -> Result<T, TakenBack> {
        self.unless(Guard::new(self, cid), future).await
    }

    /// The same for what only the host keeps waiting, which has a deadline of its own: not taken
    /// back because of its age.
    pub(crate) async fn unless_unwanted<T>(
        &self,
        cid: u16,
        future: impl Future<Output = T>,
    ) -> Result<T, TakenBack> {
        let guard = Guard {
            expires: false,
            ..Guard::new(self, cid)
        };
        self.unless(guard, future).await
    }

    async fn unless<T>(
        &self,
        mut guard: Guard<'_>,
        future: impl Future<Output = T>,
    ) -> Result<T, TakenBack> {
        let mut future = pin!(future);
        std::future::poll_fn(|context| {
            if guard.is_withdrawn() {
                return Poll::Ready(Err(guard.reason()));
            }
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                return Poll::Ready(Ok(value));
            }
            if !guard.join(context.waker()) {
                return Poll::Ready(Err(TakenBack::Unwanted));
            }
            Poll::Pending
        })
        .await
    }

    /// Waits for the end of `wait` on behalf of command `cid`, and asks for it when the command is
    /// taken back.
    pub(crate) async fn until_elsewhere<T, W>(&self, cid: u16, mut wait: W) -> Result<T, TakenBack>
    where
        W: Elsewhere<Output = Result<T, Withdrawn>> + Unpin,
    {
        let mut guard = Guard::new(self, cid);
        guard.elsewhere = true;
        let mut asked = false;
        let outcome = std::future::poll_fn(|context| {
            if let Poll::Ready(outcome) = Pin::new(&mut wait).poll(context) {
                return Poll::Ready(outcome);
            }
            let wanted = guard.join(context.waker()) && !guard.is_withdrawn();
            if !wanted && !asked {
                asked = true;
                wait.withdraw();
            }
            if asked && wait.is_too_late() {
                guard.tell(false);
            }
            Poll::Pending
        })
        .await;
        guard.tell(outcome.is_err());
        outcome.map_err(|Withdrawn| guard.reason())
    }

    /// Takes command `cid` back, and tells now or later whether it was in time; not if it does not
    /// wait.
    pub(crate) fn withdraw(&self, cid: u16, tell: TellWithdrawn) {
        let mut state = self.state.borrow_mut();
        let mut waiting = state.places.iter_mut().flatten();
        let Some(place) = waiting.find(|place| place.cid == cid && !place.withdrawn) else {
            drop(state);
            return tell(false);
        };
        place.withdrawn = true;
        place.waker.wake_by_ref();
        if place.elsewhere {
            place.tell = Some(tell);
            return;
        }
        drop(state);
        tell(true);
    }

    /// Takes back what has waited for so long, as far as has been looked.
    pub(crate) fn expire(&self, now: Time, span: Duration) {
        let mut state = self.state.borrow_mut();
        for place in state.places.iter_mut().flatten() {
            if !place.expires {
                continue;
            }
            let late = now.since(*place.seen.get_or_insert(now)) >= span;
            if late && !place.withdrawn {
                (place.withdrawn, place.late) = (true, true);
                place.waker.wake_by_ref();
            }
        }
    }

    /// Takes all back, now and in future.
    pub(crate) fn close(&self) {
        let mut state = self.state.borrow_mut();
        state.closed = true;
        for place in state.places.iter_mut().flatten() {
            place.withdrawn = true;
            place.waker.wake_by_ref();
        }
    }
}

/// A command that waits, from its first pending poll to its end.
struct Guard<'a> {
    waiting: &'a Waiting,
    cid: u16,
    elsewhere: bool,
    expires: bool,
    place: Option<usize>,
}

impl<'a> Guard<'a> {
    fn new(waiting: &'a Waiting, cid: u16) -> Self {
        Self {
            waiting,
            cid,
            elsewhere: false,
            expires: true,
            place: None,
        }
    }

    /// Takes a place, or renews its waker. False once the queue is closed.
    fn join(&mut self, waker: &Waker) -> bool {
        let mut state = self.waiting.state.borrow_mut();
        if let Some(place) = self.place {
            if let Some(place) = &mut state.places[place] {
                place.waker.clone_from(waker);
            }
            return !state.closed;
        }
        let closed = state.closed;
        if closed && !self.elsewhere {
            return false;
        }
        let place = Some(Place {
            cid: self.cid,
            withdrawn: closed,
            late: false,
            seen: None,
            expires: self.expires,
            elsewhere: self.elsewhere,
            tell: None,
            waker: waker.clone(),
        });
        self.place = Some(match state.places.iter().position(Option::is_none) {
            Some(free) => {
                state.places[free] = place;
                free
            }
            None => {
                state.places.push(place);
                state.places.len() - 1
            }
        });
        !closed
    }

    fn is_withdrawn(&self) -> bool {
        let state = self.waiting.state.borrow();
        let place = self.place.and_then(|place| state.places[place].as_ref());
        place.is_some_and(|place| place.withdrawn)
    }

    fn reason(&self) -> TakenBack {
        let state = self.waiting.state.borrow();
        let place = self.place.and_then(|place| state.places[place].as_ref());
        match place {
            Some(place) if place.late && !state.closed => TakenBack::Late,
            _ => TakenBack::Unwanted,
        }
    }

    /// Tells who asked for the withdrawal what came of it.
    fn tell(&self, withdrawn: bool) {
        let Some(place) = self.place else { return };
        let mut state = self.waiting.state.borrow_mut();
        let tell = state.places[place]
            .as_mut()
            .and_then(|place| place.tell.take());
        drop(state);
        if let Some(tell) = tell {
            tell(withdrawn);
        }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let left = self.waiting.state.borrow_mut().places[place].take();
        // A wait that is dropped before its end was not taken back: nobody knows.
        if let Some(tell) = left.and_then(|place| place.tell) {
            tell(false);
        }
    }
}
