//! The future of an operation that is in the table.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::executor::Core;
use crate::op::Operation;
use crate::table::Finished;
use crate::ticket::Ticket;

/// One operation in flight as its future holds it.
pub(crate) struct Flight {
    core: Rc<Core>,
    ticket: Option<Ticket>,
}

impl Flight {
    /// Starts an operation.
    pub(crate) fn start(core: &Rc<Core>, operation: Operation) -> Self {
        let ticket = Some(core.start(operation));
        let core = core.clone();
        Self { core, ticket }
    }

    /// An operation that fails before it has begun.
    pub(crate) fn fail(core: &Rc<Core>, operation: Operation, error: io::Error) -> Self {
        let ticket = Some(core.fail(operation, error));
        let core = core.clone();
        Self { core, ticket }
    }

    /// The operation's ticket.
    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket.expect("the operation has not ended")
    }
}

impl Future for Flight {
    type Output = Finished;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Finished> {
        let ticket = self.ticket.expect("polled after it was ready");
        match self.core.poll_operation(ticket, context.waker()) {
            Some(finished) => {
                self.ticket = None;
                Poll::Ready(finished)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.core.abandon_operation(ticket);
        }
    }
}

/// A future that waits for another, and gives what `$end` makes of that one's end.
macro_rules! ends_as {
    ($(#[$about:meta])* $name:ident($inner:ty) -> $output:ty { $end:expr }) => {
        $(#[$about])*
        pub struct $name($inner);

        impl Future for $name {
            type Output = $output;

            #[inline]
            fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
                Pin::new(&mut self.0).poll(context).map($end)
            }
        }
    };
}

pub(crate) use ends_as;
