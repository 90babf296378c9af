//! A channel for one value, from one task to another on the same core.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Where the value comes from.
pub struct Sender<T> {
    shared: Rc<Shared<T>>,
}

/// Where the value arrives: a future of `Option<T>`, `None` when the sender was dropped.
pub struct Receiver<T> {
    shared: Rc<Shared<T>>,
}

struct Shared<T> {
    value: Cell<Option<T>>,
    /// One of the two sides is gone.
    closed: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

/// A pair.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Rc::new(Shared {
        value: Cell::new(None),
        closed: Cell::new(false),
        waiting: RefCell::new(None),
    });
    (
        Sender {
            shared: Rc::clone(&shared),
        },
        Receiver { shared },
    )
}

impl<T> Sender<T> {
    /// Sends; gives the value back when the receiver is gone.
    pub fn send(self, value: T) -> Result<(), T> {
        if self.shared.closed.get() {
            return Err(value);
        }
        self.shared.value.set(Some(value));
        Ok(())
    }

    /// Whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.get()
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.shared.closed.set(true);
        let waiting = self.shared.waiting.take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let value = self.shared.value.take();
        if value.is_some() || self.shared.closed.get() {
            return Poll::Ready(value);
        }
        *self.shared.waiting.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.closed.set(true);
        // The value may own the sender's other resources; it must not live on as long as the
        // sender.
        drop(self.shared.value.take());
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("closed", &self.shared.closed.get())
            .finish()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("closed", &self.shared.closed.get())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll<T>(receiver: &mut Receiver<T>) -> Poll<Option<T>> {
        Pin::new(receiver).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn the_value_arrives_before_or_after_waiting() {
        let (sender, mut receiver) = channel();
        assert_eq!(poll(&mut receiver), Poll::Pending);
        assert_eq!(sender.send(5), Ok(()));
        assert_eq!(poll(&mut receiver), Poll::Ready(Some(5)));
        assert_eq!(poll(&mut receiver), Poll::Ready(None));
    }

    #[test]
    fn each_side_notices_that_the_other_is_gone() {
        let (sender, receiver) = channel();
        drop(receiver);
        assert!(sender.is_closed());
        assert_eq!(sender.send(5), Err(5));
        let (sender, mut receiver) = channel::<u8>();
        drop(sender);
        assert_eq!(poll(&mut receiver), Poll::Ready(None));
    }

    #[test]
    fn an_unread_value_is_dropped_with_the_receiver() {
        let witness = Rc::new(());
        let (sender, receiver) = channel();
        assert!(sender.send(Rc::clone(&witness)).is_ok());
        drop(receiver);
        assert_eq!(Rc::strong_count(&witness), 1);
    }
}
