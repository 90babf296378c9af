//! A counting semaphore: see [`Semaphore`].

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::wait_list::{Left, Place, WaitList};

/// Counted permits handed out in order of arrival.
#[derive(Debug)]
pub struct Semaphore {
    permits: Cell<usize>,
    waiters: RefCell<WaitList<usize>>,
}

impl Semaphore {
    /// A semaphore with `permits`.
    pub const fn new(permits: usize) -> Self {
        Self {
            permits: Cell::new(permits),
            waiters: RefCell::new(WaitList::new()),
        }
    }

    /// Takes `n` permits, waiting behind earlier waiters. Dropping the future gives up the place;
    /// permits it was handed and never saw go back.
    pub async fn acquire(&self, n: usize) {
        Acquire {
            semaphore: self,
            n,
            place: None,
        }
        .await;
    }

    /// Takes `n` permits if they are there and no task waits.
    #[inline]
    pub fn try_acquire(&self, n: usize) -> bool {
        if !self.waiters.borrow().is_empty() {
            return false;
        }
        let Some(rest) = self.permits.get().checked_sub(n) else {
            return false;
        };
        self.permits.set(rest);
        true
    }

    /// Gives `n` permits back.
    #[inline]
    pub fn release(&self, n: usize) {
        let permits = self
            .permits
            .get()
            .checked_add(n)
            .expect("permits given back were taken before");
        self.permits.set(permits);
        if !self.waiters.borrow().is_empty() {
            self.hand_out();
        }
    }

    /// Permits that could be taken now, if no task waits.
    pub fn available(&self) -> usize {
        self.permits.get()
    }

    /// Serves waiters from the front as far as permits go. A wide request at the front holds up all
    /// behind it: otherwise narrow ones could starve it.
    fn hand_out(&self) {
        while let Some(waker) = self.grant_next() {
            waker.wake();
        }
    }

    fn grant_next(&self) -> Option<std::task::Waker> {
        let mut waiters = self.waiters.borrow_mut();
        let n = waiters.front()?;
        let rest = self.permits.get().checked_sub(n)?;
        self.permits.set(rest);
        waiters.grant_front(n)
    }
}

struct Acquire<'a> {
    semaphore: &'a Semaphore,
    n: usize,
    place: Option<Place>,
}

impl Future for Acquire<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let semaphore = self.semaphore;
        let Some(place) = self.place else {
            if semaphore.try_acquire(self.n) {
                return Poll::Ready(());
            }
            self.place = Some(
                semaphore
                    .waiters
                    .borrow_mut()
                    .join(self.n, cx.waker().clone()),
            );
            return Poll::Pending;
        };
        if !semaphore.waiters.borrow_mut().take_grant(place, cx.waker()) {
            return Poll::Pending;
        }
        self.place = None;
        Poll::Ready(())
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let left = self.semaphore.waiters.borrow_mut().leave(place);
        match left {
            Left::Granted(n) => self.semaphore.release(n),
            // It may have been the wide one that held up the others.
            Left::Queued => self.semaphore.hand_out(),
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
    fn permits_go_out_in_order_of_arrival() {
        let semaphore = Semaphore::new(2);
        assert!(semaphore.try_acquire(1));
        let (mut wide, mut narrow) = (pin!(semaphore.acquire(2)), pin!(semaphore.acquire(1)));
        assert!(!poll(wide.as_mut()));
        assert!(
            !poll(narrow.as_mut()),
            "one permit is there, but it waits behind the wide one"
        );
        assert!(!semaphore.try_acquire(1));
        semaphore.release(1);
        assert!(!poll(narrow.as_mut()) && poll(wide.as_mut()));
        semaphore.release(2);
        assert!(poll(narrow.as_mut()));
        assert_eq!(semaphore.available(), 1);
    }

    #[test]
    fn leaving_unblocks_those_behind() {
        let semaphore = Semaphore::new(1);
        let mut narrow = pin!(semaphore.acquire(1));
        {
            let mut wide = pin!(semaphore.acquire(5));
            assert!(!poll(wide.as_mut()) && !poll(narrow.as_mut()));
        }
        assert!(poll(narrow.as_mut()));
    }

    #[test]
    fn granted_and_dropped_permits_come_back() {
        let semaphore = Semaphore::new(0);
        let mut second = pin!(semaphore.acquire(3));
        {
            let mut first = pin!(semaphore.acquire(3));
            assert!(!poll(first.as_mut()) && !poll(second.as_mut()));
            semaphore.release(3);
        }
        assert!(poll(second.as_mut()));
        assert_eq!(semaphore.available(), 0);
    }

    #[test]
    fn nothing_is_taken_for_nothing() {
        let semaphore = Semaphore::new(0);
        assert!(poll(pin!(semaphore.acquire(0))));
        assert!(semaphore.try_acquire(0) && !semaphore.try_acquire(1));
    }
}
