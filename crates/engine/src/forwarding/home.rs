//! The home core's side of a hand-over: admits I/Os of other cores, does them and answers. Permits
//! that wait for their data are kept here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use flashyard_block::{Io, IoError};
use flashyard_sched::Ask;

use super::{Answer, Ended, Reply, Request, Ticket};
use crate::core::Core;
use crate::message::Message;
use crate::switch::{Permit, Port};

/// What is done here for other cores and has not been issued.
#[derive(Default)]
pub(crate) struct RemoteGrants {
    entries: RefCell<BTreeMap<Ticket, Entry>>,
}

enum Entry {
    /// In the queue of a switch.
    Queued { withdrawn: bool, waker: Waker },
    /// Its turn has come, its data have not.
    Granted(Permit),
}

/// Does what another core asks for.
pub(crate) async fn serve(core: Rc<Core>, request: Request) {
    let (ticket, answer) = match request {
        Request::Admit {
            ticket,
            device,
            ask,
            again,
            io,
        } => {
            let admitted = admit(&core, ticket, device, (ask, again), io);
            (ticket, admitted.await)
        }
        Request::Perform { ticket, io } => {
            let ended = match core.remote_grants().take_granted(ticket) {
                Some(mut permit) => {
                    permit.issue();
                    perform(permit, io).await
                }
                None => (Err(IoError::Internal), None),
            };
            (ticket, Answer::Done(ended))
        }
        Request::Withdraw(ticket) => {
            if core.remote_grants().withdraw(ticket) {
                return;
            }
            (ticket, Answer::TooLate)
        }
        Request::Release(ticket) => return drop(core.remote_grants().take_granted(ticket)),
        Request::Record { device, sample } => {
            if let Some(port) = core.port(device) {
                port.record(&sample);
            }
            return;
        }
    };
    // A core that has gone needs no answer.
    let reply = Reply {
        home: core.index(),
        ticket,
        answer,
    };
    core.target().tell(ticket.core, Message::Reply(reply));
}

/// Does an I/O for which a permit has been given.
pub(super) async fn perform(permit: Permit, io: Io) -> Ended {
    let outcome = permit.submit(io).await;
    let sample = permit.complete(outcome.is_ok());
    (outcome, sample)
}

async fn admit(
    core: &Core,
    ticket: Ticket,
    device: u32,
    (ask, again): (Ask, bool),
    io: Option<Io>,
) -> Answer {
    let Some(port) = core.port(device) else {
        return Answer::Done((Err(IoError::NotReady), None));
    };
    let at_once = if again { None } else { port.try_admit(ask) };
    let permit = match at_once {
        Some(permit) => permit,
        None => match queue(core.remote_grants(), ticket, &port, (ask, again)).await {
            Some(permit) => permit,
            None => return Answer::Withdrawn,
        },
    };
    match io {
        Some(io) => Answer::Done(perform(permit, io).await),
        None => {
            core.remote_grants()
                .entries
                .borrow_mut()
                .insert(ticket, Entry::Granted(permit));
            Answer::Granted
        }
    }
}

/// Waits for the turn of an I/O; nothing if it was taken back before.
async fn queue(
    remote_grants: &RemoteGrants,
    ticket: Ticket,
    port: &Rc<Port>,
    (ask, again): (Ask, bool),
) -> Option<Permit> {
    let mut turn = pin!(port.admit(ask, again));
    let permit = std::future::poll_fn(|context| {
        if remote_grants.is_withdrawn(ticket) {
            return Poll::Ready(None);
        }
        if let Poll::Ready(permit) = turn.as_mut().poll(context) {
            return Poll::Ready(Some(permit));
        }
        remote_grants.wait(ticket, context.waker());
        Poll::Pending
    })
    .await;
    remote_grants.entries.borrow_mut().remove(&ticket);
    permit
}

impl RemoteGrants {
    fn wait(&self, ticket: Ticket, waker: &Waker) {
        let entry = Entry::Queued {
            withdrawn: false,
            waker: waker.clone(),
        };
        self.entries.borrow_mut().insert(ticket, entry);
    }

    fn is_withdrawn(&self, ticket: Ticket) -> bool {
        let entries = self.entries.borrow();
        matches!(
            entries.get(&ticket),
            Some(Entry::Queued {
                withdrawn: true,
                ..
            })
        )
    }

    /// False if it does not queue any more: what has been issued or granted goes on.
    fn withdraw(&self, ticket: Ticket) -> bool {
        let mut entries = self.entries.borrow_mut();
        let Some(Entry::Queued { withdrawn, waker }) = entries.get_mut(&ticket) else {
            return false;
        };
        *withdrawn = true;
        waker.wake_by_ref();
        true
    }

    fn take_granted(&self, ticket: Ticket) -> Option<Permit> {
        let mut entries = self.entries.borrow_mut();
        if !matches!(entries.get(&ticket), Some(Entry::Granted(_))) {
            return None;
        }
        match entries.remove(&ticket) {
            Some(Entry::Granted(permit)) => Some(permit),
            _ => None,
        }
    }
}
