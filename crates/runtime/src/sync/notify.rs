//! Wakes tasks when something has changed: see [`Notify`].

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::wait_list::{Left, Place, WaitList};

/// Wakes waiters. A permit is kept if no task waits (like one bit), so a notify before the wait is
/// not lost.
#[derive(Debug)]
pub struct Notify {
    permit: Cell<bool>,
    waiters: RefCell<WaitList<Call>>,
}

/// Which call woke a waiter: one that leaves without having noticed passes only `One` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    One,
    All,
}

impl Notify {
    /// A notifier without a kept permit.
    pub const fn new() -> Self {
        Self {
            permit: Cell::new(false),
            waiters: RefCell::new(WaitList::new()),
        }
    }

    /// Wakes one waiter, or keeps one permit.
    pub fn notify_one(&self) {
        let woken = self.waiters.borrow_mut().grant_front(Call::One);
        match woken {
            Some(waker) => waker.wake(),
            None => self.permit.set(true),
        }
    }

    /// Wakes all present waiters; keeps nothing.
    pub fn notify_all(&self) {
        let present = self.waiters.borrow().len();
        for _ in 0..present {
            let woken = self.waiters.borrow_mut().grant_front(Call::All);
            if let Some(waker) = woken {
                waker.wake();
            }
        }
    }

    /// Waits for a notification. One that was sent to this waiter by [`Notify::notify_one`] and not
    /// taken before the future is dropped goes to the next.
    pub async fn notified(&self) {
        Notified {
            notify: self,
            place: None,
        }
        .await;
    }
}

impl Default for Notify {
    fn default() -> Self {
        Self::new()
    }
}

struct Notified<'a> {
    notify: &'a Notify,
    place: Option<Place>,
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let notify = self.notify;
        let Some(place) = self.place else {
            if notify.permit.replace(false) {
                return Poll::Ready(());
            }
            self.place = Some(
                notify
                    .waiters
                    .borrow_mut()
                    .join(Call::One, cx.waker().clone()),
            );
            return Poll::Pending;
        };
        if !notify.waiters.borrow_mut().take_grant(place, cx.waker()) {
            return Poll::Pending;
        }
        self.place = None;
        Poll::Ready(())
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let left = self.notify.waiters.borrow_mut().leave(place);
        if left == Left::Granted(Call::One) {
            self.notify.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    fn poll(future: Pin<&mut impl Future<Output = ()>>) -> bool {
        future
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn a_permit_is_kept_once() {
        let notify = Notify::new();
        notify.notify_one();
        notify.notify_one();
        assert!(poll(pin!(notify.notified())));
        assert!(!poll(pin!(notify.notified())));
    }

    #[test]
    fn one_wakes_the_first_all_wakes_the_present() {
        let notify = Notify::new();
        let (mut a, mut b, mut c) = (
            pin!(notify.notified()),
            pin!(notify.notified()),
            pin!(notify.notified()),
        );
        assert!(!poll(a.as_mut()) && !poll(b.as_mut()));
        notify.notify_one();
        assert!(!poll(b.as_mut()) && poll(a.as_mut()));
        notify.notify_all();
        assert!(!poll(c.as_mut()), "it was not waiting at the call");
        assert!(poll(b.as_mut()));
    }

    #[test]
    fn a_dropped_waiter_passes_one_on_and_not_all() {
        let notify = Notify::new();
        let mut b = pin!(notify.notified());
        {
            let mut a = pin!(notify.notified());
            assert!(!poll(a.as_mut()) && !poll(b.as_mut()));
            notify.notify_one();
        }
        assert!(poll(b.as_mut()));
        {
            let mut a = pin!(notify.notified());
            assert!(!poll(a.as_mut()));
            notify.notify_all();
        }
        assert!(!poll(pin!(notify.notified())));
    }
}
