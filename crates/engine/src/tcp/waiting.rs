//! The commands of a queue that have not been issued: they wait for their turn in a switch, or for a buffer. Until
//! they stop waiting they can be taken back, by an Abort or by the end of the association.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::task::{Poll, Waker};

/// A command was taken back while it waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Withdrawn;

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
    waker: Waker,
}

impl Waiting {
    /// Waits for `future` on behalf of command `cid`, unless it is taken back.
    pub(crate) async fn unless_withdrawn<T>(
        &self,
        cid: u16,
        future: impl Future<Output = T>,
    ) -> Result<T, Withdrawn> {
        let mut future = pin!(future);
        let mut guard = Guard {
            waiting: self,
            place: None,
        };
        std::future::poll_fn(|context| {
            if guard.place.is_some_and(|place| self.is_withdrawn(place)) {
                return Poll::Ready(Err(Withdrawn));
            }
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                return Poll::Ready(Ok(value));
            }
            match guard.place {
                Some(place) => self.renew(place, context.waker()),
                None => match self.join(cid, context.waker()) {
                    Some(place) => guard.place = Some(place),
                    None => return Poll::Ready(Err(Withdrawn)),
                },
            }
            Poll::Pending
        })
        .await
    }

    /// Takes command `cid` back; false if it does not wait.
    pub(crate) fn withdraw(&self, cid: u16) -> bool {
        let mut state = self.state.borrow_mut();
        let mut waiting = state.places.iter_mut().flatten();
        let Some(place) = waiting.find(|place| place.cid == cid && !place.withdrawn) else {
            return false;
        };
        place.withdrawn = true;
        place.waker.wake_by_ref();
        true
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

    fn join(&self, cid: u16, waker: &Waker) -> Option<usize> {
        let mut state = self.state.borrow_mut();
        if state.closed {
            return None;
        }
        let place = Some(Place {
            cid,
            withdrawn: false,
            waker: waker.clone(),
        });
        match state.places.iter().position(Option::is_none) {
            Some(free) => {
                state.places[free] = place;
                Some(free)
            }
            None => {
                state.places.push(place);
                Some(state.places.len() - 1)
            }
        }
    }

    fn renew(&self, place: usize, waker: &Waker) {
        if let Some(place) = &mut self.state.borrow_mut().places[place] {
            place.waker.clone_from(waker);
        }
    }

    fn is_withdrawn(&self, place: usize) -> bool {
        self.state.borrow().places[place]
            .as_ref()
            .is_some_and(|place| place.withdrawn)
    }
}

struct Guard<'a> {
    waiting: &'a Waiting,
    place: Option<usize>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.waiting.state.borrow_mut().places[place] = None;
        }
    }
}
