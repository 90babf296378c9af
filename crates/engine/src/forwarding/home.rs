//! The home core's side of a hand-over: admits I/Os of other cores, does them and answers. Permits
//! that wait for their data are kept here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use flashyard_block::{Io, IoError};
use flashyard_sched::Ask;

use super::{Answer, Ended, Peers, Reply, Request, Ticket};
use crate::devices::Devices;
use crate::switch::{Permit, Port};

/// A core as the home of devices, and what is done there for other cores and has not been issued.
pub(crate) struct Home {
    index: usize,
    peers: Arc<dyn Peers>,
    devices: Devices,
    remote_grants: RefCell<BTreeMap<Ticket, Entry>>,
}

enum Entry {
    /// In the queue of a switch.
    Queued { withdrawn: bool, waker: Waker },
    /// Its turn has come, its data have not.
    Granted(Permit),
}

/// Does what another core asks for.
pub(crate) async fn serve(home: Rc<Home>, request: Request) {
    let (ticket, answer) = match request {
        Request::Admit {
            ticket,
            device,
            ask,
            again,
            io,
        } => {
            let admitted = home.admit(ticket, device, (ask, again), io);
            (ticket, admitted.await)
        }
        Request::Perform { ticket, io } => {
            let ended = match home.take_granted(ticket) {
                Some(mut permit) => {
                    permit.issue();
                    perform(permit, io).await
                }
                None => (Err(IoError::Internal), None),
            };
            (ticket, Answer::Done(ended))
        }
        Request::Withdraw(ticket) => {
            if home.withdraw(ticket) {
                return;
            }
            (ticket, Answer::TooLate)
        }
        Request::Release(ticket) => return drop(home.take_granted(ticket)),
        Request::Record { device, sample } => {
            if let Some(port) = home.devices.open_port(device) {
                port.record(&sample);
            }
            return;
        }
    };
    // A core that has gone needs no answer.
    let reply = Reply {
        home: home.index,
        ticket,
        answer,
    };
    home.peers.answer(ticket.core, reply);
}

/// Does an I/O for which a permit has been given.
pub(super) async fn perform(permit: Permit, io: Io) -> Ended {
    let outcome = permit.submit(io).await;
    let sample = permit.complete(outcome.is_ok());
    (outcome, sample)
}

impl Home {
    /// The home that core `index` is, without devices.
    pub(crate) fn new(index: usize, peers: Arc<dyn Peers>) -> Rc<Self> {
        Rc::new(Self {
            index,
            peers,
            devices: Devices::default(),
            remote_grants: RefCell::default(),
        })
    }

    /// The devices that are at home here.
    pub(crate) fn devices(&self) -> &Devices {
        &self.devices
    }

    async fn admit(
        &self,
        ticket: Ticket,
        device: u32,
        (ask, again): (Ask, bool),
        io: Option<Io>,
    ) -> Answer {
        let Some(port) = self.devices.open_port(device) else {
            return Answer::Done((Err(IoError::NotReady), None));
        };
        let at_once = if again { None } else { port.try_admit(ask) };
        let permit = match at_once {
            Some(permit) => permit,
            None => match self.queue(ticket, &port, (ask, again)).await {
                Some(permit) => permit,
                None => return Answer::Withdrawn,
            },
        };
        match io {
            Some(io) => Answer::Done(perform(permit, io).await),
            None => {
                let granted = Entry::Granted(permit);
                self.remote_grants.borrow_mut().insert(ticket, granted);
                Answer::Granted
            }
        }
    }

    /// Waits for the turn of an I/O; nothing if it was taken back before.
    async fn queue(
        &self,
        ticket: Ticket,
        port: &Rc<Port>,
        (ask, again): (Ask, bool),
    ) -> Option<Permit> {
        let mut turn = pin!(port.admit(ask, again));
        let permit = std::future::poll_fn(|context| {
            if self.is_withdrawn(ticket) {
                return Poll::Ready(None);
            }
            if let Poll::Ready(permit) = turn.as_mut().poll(context) {
                return Poll::Ready(Some(permit));
            }
            self.wait(ticket, context.waker());
            Poll::Pending
        })
        .await;
        self.remote_grants.borrow_mut().remove(&ticket);
        permit
    }

    fn wait(&self, ticket: Ticket, waker: &Waker) {
        let entry = Entry::Queued {
            withdrawn: false,
            waker: waker.clone(),
        };
        self.remote_grants.borrow_mut().insert(ticket, entry);
    }

    fn is_withdrawn(&self, ticket: Ticket) -> bool {
        let grants = self.remote_grants.borrow();
        matches!(
            grants.get(&ticket),
            Some(Entry::Queued {
                withdrawn: true,
                ..
            })
        )
    }

    /// False if it does not queue any more: what has been issued or granted goes on.
    fn withdraw(&self, ticket: Ticket) -> bool {
        let mut grants = self.remote_grants.borrow_mut();
        let Some(Entry::Queued { withdrawn, waker }) = grants.get_mut(&ticket) else {
            return false;
        };
        *withdrawn = true;
        waker.wake_by_ref();
        true
    }

    fn take_granted(&self, ticket: Ticket) -> Option<Permit> {
        let mut grants = self.remote_grants.borrow_mut();
        if !matches!(grants.get(&ticket), Some(Entry::Granted(_))) {
            return None;
        }
        match grants.remove(&ticket) {
            Some(Entry::Granted(permit)) => Some(permit),
            _ => None,
        }
    }
}
