//! I/O for a device whose home is another core: a hand-over by message, not a lock.
//!
//! Whoever needs no data from the host sends the I/O with the request; the home core admits
//! it, does it and answers. A write whose data have to be fetched asks for the grant alone, and
//! sends them when they have come: so no R2T goes out before the policy has picked the write.
//! What still queues at the home can be taken back.

mod asking;
mod home;

use std::rc::Rc;

use flashyard_block::{Done, Io, IoError};
use flashyard_sched::Ask;

use crate::ledger::Sample;
use crate::switch::{Permit, Port};
use crate::waiting::Waiting;
use asking::Asked;
pub(crate) use asking::{Forwarding, Grant};
pub(crate) use home::{Home, serve};

/// The other cores.
pub(crate) trait Peers {
    /// Asks core `home`; false if it is not there.
    fn ask(&self, home: usize, request: Request) -> bool;

    /// Answers core `to`; false if it is not there.
    fn answer(&self, to: usize, reply: Reply) -> bool;
}

/// How an I/O ended, and what is to be recorded of it.
pub(crate) type Ended = (Result<Done, IoError>, Option<Box<Sample>>);

/// Names an I/O that was handed over: the core that asks, and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    core: usize,
    index: u32,
    generation: u32,
}

/// What a core wants of the home core of a device.
pub(crate) enum Request {
    /// Admit this I/O, and do it if it is here with its data already.
    Admit {
        ticket: Ticket,
        device: u32,
        ask: Ask,
        /// It had its turn before, and its host kept it waiting.
        again: bool,
        io: Option<Io>,
    },
    /// Do what has been granted.
    Perform { ticket: Ticket, io: Io },
    /// Take the I/O back, if it still queues; it is answered in any case.
    Withdraw(Ticket),
    /// What has been granted is not wanted any more.
    Release(Ticket),
    /// Record an I/O whose answer has gone.
    Record { device: u32, sample: Sample },
}

/// What the home core says.
pub(crate) struct Reply {
    home: usize,
    ticket: Ticket,
    answer: Answer,
}

impl Reply {
    /// The core that says it.
    pub(crate) fn home(&self) -> usize {
        self.home
    }
}

enum Answer {
    /// Its turn has come; the home core waits for the I/O with its data.
    Granted,
    /// It has been done, or cannot be.
    Done(Ended),
    /// It was taken back in time.
    Withdrawn,
    /// It was to be taken back too late; another answer has come or will.
    TooLate,
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
        forwarding: Rc<Forwarding>,
        home: usize,
        device: u32,
    },
    Granted(Grant),
    Nowhere,
}

impl Route {
    /// At once, unless the I/O has to queue here.
    #[inline]
    pub(crate) fn try_admit(&self, forwarding: &Rc<Forwarding>, ask: Ask) -> Option<Admission> {
        match self {
            Self::Here(port) if port.is_closed() => Some(Admission::Nowhere),
            Self::Here(port) => port.try_admit(ask).map(Admission::Here),
            Self::There { core: home, device } => Some(Admission::There {
                forwarding: forwarding.clone(),
                home: *home,
                device: *device,
            }),
            Self::Nowhere => Some(Admission::Nowhere),
        }
    }

    /// Waits for the turn of the I/O; `again`: it had one before, and its host kept it waiting.
    pub(crate) async fn admit(
        &self,
        forwarding: &Rc<Forwarding>,
        ask: Ask,
        again: bool,
    ) -> Admission {
        match self {
            Self::Here(port) if !port.is_closed() => Admission::Here(port.admit(ask, again).await),
            _ => self
                .try_admit(forwarding, ask)
                .expect("only a switch here makes one wait"),
        }
    }
}

impl Route {
    /// Does an I/O that no host has asked for, when its turn has come.
    pub(crate) async fn submit(&self, forwarding: &Rc<Forwarding>, ask: Ask, io: Io) -> Ended {
        let refused = |error| (Err(error), None);
        let (home, device) = match self {
            Self::Here(port) if !port.is_closed() => {
                return home::perform(port.admit(ask, false).await, io).await;
            }
            Self::There { core, device } => (*core, *device),
            _ => return refused(IoError::NotReady),
        };
        let asked = match asking::ask(forwarding, home, device, (ask, false), Some(io)) {
            Ok(asked) => asked,
            Err(error) => return refused(error),
        };
        match asked.await {
            Ok(Asked::Done(ended)) => ended,
            Ok(Asked::Granted(_)) => refused(IoError::Internal),
            Err(_withdrawn) => refused(IoError::Aborted),
        }
    }
}

impl Admission {
    /// Waits until the turn has really come, for those who need the host to do something first.
    /// `cid` can be taken back meanwhile, and is then [`IoError::Aborted`].
    pub(crate) async fn granted(
        self,
        waiting: &Waiting,
        cid: u16,
        (ask, again): (Ask, bool),
    ) -> Result<Self, IoError> {
        let Self::There {
            forwarding,
            home,
            device,
        } = self
        else {
            return Ok(self);
        };
        let asked = asking::ask(&forwarding, home, device, (ask, again), None)?;
        match waiting.until_elsewhere(cid, asked).await {
            Ok(Asked::Granted(grant)) => Ok(Self::Granted(grant)),
            Ok(Asked::Done((outcome, _))) => Err(outcome.err().unwrap_or(IoError::Internal)),
            Err(taken_back) => Err(taken_back.error()),
        }
    }

    /// What had to be waited for after the turn had come is here.
    pub(crate) fn issue(&mut self) {
        if let Self::Here(permit) = self {
            permit.issue();
        }
    }

    /// Does the I/O.
    #[inline]
    pub(crate) async fn submit(self, waiting: &Waiting, cid: u16, ask: Ask, io: Io) -> Ended {
        match self {
            Self::Here(permit) => home::perform(permit, io).await,
            elsewhere => elsewhere.forward(waiting, cid, ask, io).await,
        }
    }

    async fn forward(self, waiting: &Waiting, cid: u16, ask: Ask, io: Io) -> Ended {
        let refused = |error| (Err(error), None);
        match self {
            Self::There {
                forwarding,
                home,
                device,
            } => {
                let asked = match asking::ask(&forwarding, home, device, (ask, false), Some(io)) {
                    Ok(asked) => asked,
                    Err(error) => return refused(error),
                };
                match waiting.until_elsewhere(cid, asked).await {
                    Ok(Asked::Done(ended)) => ended,
                    Ok(Asked::Granted(_)) => refused(IoError::Internal),
                    Err(taken_back) => refused(taken_back.error()),
                }
            }
            Self::Granted(grant) => grant.perform(io).await,
            Self::Here(_) | Self::Nowhere => refused(IoError::NotReady),
        }
    }
}
