//! I/O for a device whose home is another core: a hand-over by message, not a lock. The asking side keeps a place
//! for the answer; the home core admits and does the I/O as if it were its own.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use flashyard_block::IoError;
use flashyard_runtime::{Buf, Data};

use crate::core::Core;
use crate::message::Message;
use crate::switch::{Permit, Port, Want};

/// What is to be done to a device.
pub(crate) enum Operation {
    /// Read into the buffer.
    Read { lba: u64, buf: Buf },
    /// Write the buffer.
    Write { lba: u64, buf: Buf, fua: bool },
    /// Make finished writes durable.
    Flush,
    /// Make blocks read as zeroes.
    WriteZeroes {
        lba: u64,
        blocks: u64,
        deallocate: bool,
    },
    /// Forget the content of blocks.
    Deallocate { lba: u64, blocks: u64 },
    /// Compare, and write if equal.
    CompareAndWrite {
        lba: u64,
        compare: Buf,
        write: Buf,
        fua: bool,
    },
}

/// How an operation ended; without data for all but reads.
pub(crate) type Outcome = Result<Option<Data>, IoError>;

/// An operation on its way to the home core.
pub(crate) struct Request {
    asked_by: usize,
    ticket: Ticket,
    device: u32,
    want: Want,
    operation: Operation,
}

/// The answer on its way back.
pub(crate) struct Reply {
    ticket: Ticket,
    outcome: Outcome,
}

/// How a core reaches a device.
#[derive(Clone)]
pub(crate) enum Route {
    /// It is at home here.
    Here(Rc<Port>),
    /// It is at home there.
    There { core: usize, device: u32 },
    /// It has gone.
    Nowhere,
}

/// The turn of an I/O has come, or is going to be waited for at the home core of the device.
pub(crate) enum Admission {
    Here(Permit),
    There {
        core: Rc<Core>,
        home: usize,
        device: u32,
    },
    Nowhere,
}

impl Route {
    /// At once, unless the I/O has to queue here.
    #[inline]
    pub(crate) fn try_admit(&self, core: &Rc<Core>, want: Want) -> Option<Admission> {
        match self {
            Self::Here(port) if port.is_closed() => Some(Admission::Nowhere),
            Self::Here(port) => port.try_admit(want).map(Admission::Here),
            Self::There { core: home, device } => Some(Admission::There {
                core: core.clone(),
                home: *home,
                device: *device,
            }),
            Self::Nowhere => Some(Admission::Nowhere),
        }
    }

    /// Waits for the turn of the I/O.
    pub(crate) async fn admit(&self, core: &Rc<Core>, want: Want) -> Admission {
        match self {
            Self::Here(port) => Admission::Here(port.admit(want).await),
            _ => self
                .try_admit(core, want)
                .expect("only a switch here makes one wait"),
        }
    }
}

impl Admission {
    /// Does a read.
    #[inline]
    pub(crate) async fn read(self, want: Want, buf: Buf) -> Result<Data, IoError> {
        match self {
            Self::Here(permit) => {
                let reading = permit.device().read(want.tag, want.lba, buf);
                permit.complete(reading.await)
            }
            elsewhere => {
                let operation = Operation::Read { lba: want.lba, buf };
                elsewhere
                    .ask(want, operation)
                    .await?
                    .ok_or(IoError::Internal)
            }
        }
    }

    /// Does a write.
    #[inline]
    pub(crate) async fn write(self, want: Want, buf: Buf, fua: bool) -> Result<(), IoError> {
        match self {
            Self::Here(permit) => {
                let writing = permit.device().write(want.tag, want.lba, buf, fua);
                permit.complete(writing.await)
            }
            elsewhere => {
                let operation = Operation::Write {
                    lba: want.lba,
                    buf,
                    fua,
                };
                elsewhere.ask(want, operation).await.map(drop)
            }
        }
    }

    /// Does anything.
    pub(crate) async fn perform(self, want: Want, operation: Operation) -> Outcome {
        match self {
            Self::Here(permit) => perform(permit, want, operation).await,
            elsewhere => elsewhere.ask(want, operation).await,
        }
    }

    async fn ask(self, want: Want, operation: Operation) -> Outcome {
        let Self::There { core, home, device } = self else {
            return Err(IoError::NotReady);
        };
        let ticket = core.handover().places.borrow_mut().take();
        let asked_by = core.index();
        let request = Request {
            asked_by,
            ticket,
            device,
            want,
            operation,
        };
        if !core.target().tell(home, Message::Request(request)) {
            core.handover().places.borrow_mut().give_back(ticket);
            return Err(IoError::NotReady);
        }
        Answer { core, ticket }.await
    }
}

/// Does an operation for which a permit has been given.
async fn perform(permit: Permit, want: Want, operation: Operation) -> Outcome {
    let device = permit.device().clone();
    let tag = want.tag;
    let outcome = match operation {
        Operation::Read { lba, buf } => device.read(tag, lba, buf).await.map(Some),
        Operation::Write { lba, buf, fua } => device.write(tag, lba, buf, fua).await.map(|()| None),
        Operation::Flush => device.flush(tag).await.map(|()| None),
        Operation::WriteZeroes {
            lba,
            blocks,
            deallocate,
        } => device
            .write_zeroes(tag, lba, blocks, deallocate)
            .await
            .map(|()| None),
        Operation::Deallocate { lba, blocks } => {
            device.deallocate(tag, lba, blocks).await.map(|()| None)
        }
        Operation::CompareAndWrite {
            lba,
            compare,
            write,
            fua,
        } => device
            .compare_and_write(tag, lba, compare, write, fua)
            .await
            .map(|()| None),
    };
    permit.complete(outcome)
}

/// The home core's side: does the I/O and answers.
pub(crate) async fn serve(core: Rc<Core>, request: Request) {
    let Request {
        asked_by,
        ticket,
        device,
        want,
        operation,
    } = request;
    let port = core.port(device);
    let outcome = match port {
        Some(port) => perform(port.admit(want).await, want, operation).await,
        None => Err(IoError::NotReady),
    };
    core.target()
        .tell(asked_by, Message::Reply(Reply { ticket, outcome }));
}

/// The asking side's state: who waits for which answer.
#[derive(Default)]
pub(crate) struct Handover {
    places: RefCell<Places>,
}

impl Handover {
    /// Takes an answer in. Nobody may be waiting for it any more.
    pub(crate) fn on_reply(&self, reply: Reply) {
        let waiter = self.places.borrow_mut().arrive(reply.ticket, reply.outcome);
        if let Some(waker) = waiter {
            waker.wake();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Ticket {
    index: u32,
    generation: u32,
}

#[derive(Default)]
struct Places {
    places: Vec<Place>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Place {
    generation: u32,
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

impl Places {
    fn take(&mut self) -> Ticket {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            u32::try_from(self.places.len() - 1).expect("fewer I/Os than bytes of memory")
        });
        Ticket {
            index,
            generation: self.places[index as usize].generation,
        }
    }

    fn give_back(&mut self, ticket: Ticket) -> Option<Outcome> {
        let place = &mut self.places[ticket.index as usize];
        place.generation = place.generation.wrapping_add(1);
        place.waker = None;
        self.free.push(ticket.index);
        place.outcome.take()
    }

    fn arrive(&mut self, ticket: Ticket, outcome: Outcome) -> Option<Waker> {
        let place = &mut self.places[ticket.index as usize];
        if place.generation != ticket.generation {
            return None;
        }
        place.outcome = Some(outcome);
        place.waker.take()
    }
}

/// The wait for an answer.
struct Answer {
    core: Rc<Core>,
    ticket: Ticket,
}

impl Future for Answer {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut places = self.core.handover().places.borrow_mut();
        let place = &mut places.places[self.ticket.index as usize];
        match place.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                place.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let late = self
            .core
            .handover()
            .places
            .borrow_mut()
            .give_back(self.ticket);
        drop(late);
    }
}
