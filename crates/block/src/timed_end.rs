//! The end of an I/O at a time that its device decides.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Decides when I/Os end. It knows each of them by a slot, which it gives out itself.
pub trait EndSource {
    /// Whether the I/O in `slot` has ended; if not, the task that polled last is woken when it has.
    fn poll_end(&self, slot: u32, context: &mut Context<'_>) -> Poll<()>;

    /// No task waits for the I/O in `slot` any more, whether it has ended or not. Called once.
    fn release(&self, slot: u32);
}

/// The end of one I/O, as a future. Costs a count of references and no allocation. Dropping it does
/// not take the I/O back.
pub struct TimedEnd {
    source: Rc<dyn EndSource>,
    slot: u32,
}

impl TimedEnd {
    /// The end of the I/O that `source` keeps in `slot`.
    pub fn new(source: Rc<dyn EndSource>, slot: u32) -> Self {
        Self { source, slot }
    }
}

impl Future for TimedEnd {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.source.poll_end(self.slot, context)
    }
}

impl Drop for TimedEnd {
    fn drop(&mut self) {
        self.source.release(self.slot);
    }
}
