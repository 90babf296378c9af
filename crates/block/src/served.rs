//! An I/O that its device serves later, with a result that is not known yet.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::IoError;
use crate::io::Done;

/// Serves I/Os. It knows each of them by a slot, which it gives out itself.
pub trait Server {
    /// The result of the I/O in `slot`, once; if it has not ended, the task that polled last is
    /// woken when it has.
    fn poll_served(&self, slot: u32, context: &mut Context<'_>) -> Poll<Result<Done, IoError>>;

    /// No task waits for the I/O in `slot` any more, whether it has ended or not. Called once.
    fn release(&self, slot: u32);
}

/// One I/O that is served, as a future. Costs a count of references and no allocation. Dropping it
/// does not take the I/O back.
pub struct Served {
    server: Rc<dyn Server>,
    slot: u32,
}

impl Served {
    /// The I/O that `server` keeps in `slot`.
    pub fn new(server: Rc<dyn Server>, slot: u32) -> Self {
        Self { server, slot }
    }
}

impl Future for Served {
    type Output = Result<Done, IoError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.server.poll_served(self.slot, context)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.release(self.slot);
    }
}
