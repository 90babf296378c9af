//! The asking side of a hand-over: a place for each I/O that is away, where its answer arrives.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use flashyard_block::{Io, IoError};
use flashyard_sched::Ask;

use super::{Answer, Ended, Peers, Reply, Request, Ticket};
use crate::ledger::Sample;
use crate::waiting::{Elsewhere, Withdrawn};

/// The I/Os of one core that are away: who waits for which answer.
pub(crate) struct Forwarding {
    index: usize,
    peers: Arc<dyn Peers>,
    places: RefCell<Places>,
}

/// What came of asking.
pub(crate) enum Asked {
    /// The turn has come; the I/O is to be sent.
    Granted(Grant),
    /// The I/O has ended.
    Done(Ended),
}

/// Asks `home` to admit an I/O, and to do it if its data are given.
pub(super) fn ask(
    forwarding: &Rc<Forwarding>,
    home: usize,
    device: u32,
    (ask, again): (Ask, bool),
    io: Option<Io>,
) -> Result<Waits, IoError> {
    let place = Place::take(forwarding, home);
    let request = Request::Admit {
        ticket: place.ticket,
        device,
        ask,
        again,
        io,
    };
    place.send(request)?;
    Ok(Waits { place: Some(place) })
}

impl Forwarding {
    /// Nothing is away from core `index` yet.
    pub(crate) fn new(index: usize, peers: Arc<dyn Peers>) -> Rc<Self> {
        Rc::new(Self {
            index,
            peers,
            places: RefCell::default(),
        })
    }

    /// Has the home core of a device record an I/O of this one.
    pub(crate) fn record(&self, home: usize, device: u32, sample: Sample) {
        // A core that has gone needs no ledger.
        self.peers.ask(home, Request::Record { device, sample });
    }

    /// Takes an answer in. Gives back what nobody waits for any more, if the home core has to hear
    /// of that.
    pub(crate) fn on_reply(&self, reply: Reply) -> Option<Request> {
        let ticket = reply.ticket;
        let granted = matches!(reply.answer, Answer::Granted);
        let mut places = self.places.borrow_mut();
        let state = &mut places.states[ticket.index as usize];
        if state.generation != ticket.generation {
            return granted.then_some(Request::Release(ticket));
        }
        match reply.answer {
            Answer::TooLate => state.too_late = true,
            answer => state.answer = Some(answer),
        }
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        None
    }
}

#[derive(Default)]
struct Places {
    states: Vec<State>,
    free: Vec<u32>,
}

#[derive(Default)]
struct State {
    generation: u32,
    answer: Option<Answer>,
    too_late: bool,
    waker: Option<Waker>,
}

/// A place taken, until dropped.
struct Place {
    forwarding: Rc<Forwarding>,
    home: usize,
    ticket: Ticket,
}

impl Place {
    fn take(forwarding: &Rc<Forwarding>, home: usize) -> Self {
        let mut places = forwarding.places.borrow_mut();
        let index = places.free.pop().unwrap_or_else(|| {
            places.states.push(State::default());
            u32::try_from(places.states.len() - 1).expect("fewer I/Os than bytes of memory")
        });
        let ticket = Ticket {
            core: forwarding.index,
            index,
            generation: places.states[index as usize].generation,
        };
        drop(places);
        Self {
            forwarding: forwarding.clone(),
            home,
            ticket,
        }
    }

    fn send(&self, request: Request) -> Result<(), IoError> {
        if self.forwarding.peers.ask(self.home, request) {
            Ok(())
        } else {
            Err(IoError::NotReady)
        }
    }

    fn is_too_late(&self) -> bool {
        let places = self.forwarding.places.borrow();
        places.states[self.ticket.index as usize].too_late
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Answer> {
        let mut places = self.forwarding.places.borrow_mut();
        let state = &mut places.states[self.ticket.index as usize];
        match state.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.forwarding.places.borrow_mut();
        let state = &mut places.states[self.ticket.index as usize];
        state.generation = state.generation.wrapping_add(1);
        state.waker = None;
        state.too_late = false;
        let late = state.answer.take();
        places.free.push(self.ticket.index);
        drop(places);
        if matches!(late, Some(Answer::Granted)) {
            // The home core has gone if it cannot be notified, and its permits with it.
            let _ = self.send(Request::Release(self.ticket));
        }
    }
}

/// The wait for the first answer.
pub(super) struct Waits {
    /// Until it has come.
    place: Option<Place>,
}

impl Future for Waits {
    type Output = Result<Asked, Withdrawn>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let place = self.place.take().expect("it is not polled after its end");
        match place.poll(context) {
            Poll::Pending => {
                self.place = Some(place);
                Poll::Pending
            }
            Poll::Ready(Answer::Granted) => {
                Poll::Ready(Ok(Asked::Granted(Grant { place, used: false })))
            }
            Poll::Ready(Answer::Done(ended)) => Poll::Ready(Ok(Asked::Done(ended))),
            Poll::Ready(Answer::Withdrawn) => Poll::Ready(Err(Withdrawn)),
            Poll::Ready(Answer::TooLate) => unreachable!("it is kept apart"),
        }
    }
}

impl Elsewhere for Waits {
    fn withdraw(&mut self) {
        if let Some(place) = &self.place {
            // A home core that has gone has answered, or never will, and its device with it.
            let _ = place.send(Request::Withdraw(place.ticket));
        }
    }

    fn is_too_late(&self) -> bool {
        self.place.as_ref().is_some_and(Place::is_too_late)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        // Nobody will look at the answer: better not done than done unseen.
        self.withdraw();
    }
}

/// The right to do one I/O at its home core now.
pub(crate) struct Grant {
    place: Place,
    used: bool,
}

impl Grant {
    /// Sends the I/O and waits for its end.
    pub(super) async fn perform(mut self, io: Io) -> Ended {
        self.used = true;
        let sent = self.place.send(Request::Perform {
            ticket: self.place.ticket,
            io,
        });
        if let Err(error) = sent {
            return (Err(error), None);
        }
        match std::future::poll_fn(|context| self.place.poll(context)).await {
            Answer::Done(ended) => ended,
            _ => (Err(IoError::Internal), None),
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if !self.used {
            let _ = self.place.send(Request::Release(self.place.ticket));
        }
    }
}
