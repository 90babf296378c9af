//! How much memory a connection may hold at the grace of its peer: write data that was invited and read data that
//! has not been taken yet. Three bounds, always taken in the same order: connection, tenant on this core, core.
//! Whoever finds one reached waits in order of arrival.

use std::rc::Rc;

use flashyard_runtime::sync::Semaphore;
use flashyard_runtime::{Buf, PAGE, Rt};
use flashyard_time::Duration;

/// Between tries when the buffer pool itself is exhausted, which the bounds below it should prevent.
const POOL_RETRY: Duration = Duration::from_ms(1);

/// The bounds of one connection.
pub(crate) struct Budget {
    connection: Semaphore,
    shared: [Rc<Semaphore>; 2],
}

/// Memory counted against a [`Budget`] until dropped.
pub(crate) struct Held {
    budget: Rc<Budget>,
    bytes: usize,
}

impl Budget {
    /// `bytes` for the connection; `tenant` and `core` are shared with others.
    pub(crate) fn new(bytes: usize, tenant: Rc<Semaphore>, core: Rc<Semaphore>) -> Rc<Self> {
        Rc::new(Self {
            connection: Semaphore::new(bytes),
            shared: [tenant, core],
        })
    }

    /// Bytes that a buffer of `len` counts for.
    #[inline]
    pub(crate) fn charge(len: usize) -> usize {
        len.max(PAGE).next_power_of_two()
    }

    /// Gives back what [`Held::into_bytes`] took over.
    #[inline]
    pub(crate) fn release(&self, bytes: usize) {
        if bytes > 0 {
            self.connection.release(bytes);
            self.shared
                .iter()
                .for_each(|semaphore| semaphore.release(bytes));
        }
    }

    /// Waits until `bytes` fit in all three bounds. Only numbers are held: the memory itself is taken when it is
    /// needed.
    pub(crate) async fn hold(self: &Rc<Self>, bytes: usize) -> Held {
        let connection = Passed::wait(&self.connection, bytes).await;
        let tenant = Passed::wait(&self.shared[0], bytes).await;
        let core = Passed::wait(&self.shared[1], bytes).await;
        [connection, tenant, core]
            .into_iter()
            .for_each(Passed::keep);
        Held {
            budget: self.clone(),
            bytes,
        }
    }

    /// The same, if there is nothing to wait for.
    #[inline]
    pub(crate) fn try_hold(self: &Rc<Self>, bytes: usize) -> Option<Held> {
        let connection = Passed::now(&self.connection, bytes)?;
        let tenant = Passed::now(&self.shared[0], bytes)?;
        let core = Passed::now(&self.shared[1], bytes)?;
        [connection, tenant, core]
            .into_iter()
            .for_each(Passed::keep);
        Some(Held {
            budget: self.clone(),
            bytes,
        })
    }
}

impl Held {
    /// Ends the guard: the bytes are given back by [`Budget::release`].
    #[inline]
    pub(crate) fn into_bytes(mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

/// Waits until this thread's pool has a buffer of `len` bytes.
pub(crate) async fn take_from_pool(rt: &Rt, len: usize) -> Buf {
    loop {
        match Buf::take(len) {
            Some(buf) => return buf,
            None => rt.sleep(POOL_RETRY).await,
        }
    }
}

/// Something that a core shares out, perhaps a part of something greater.
pub(crate) struct Share {
    own: Semaphore,
    whole: Option<Rc<Semaphore>>,
}

impl Share {
    /// `bytes`, which are also taken from `whole`.
    pub(crate) fn new(bytes: usize, whole: Option<Rc<Semaphore>>) -> Rc<Self> {
        Rc::new(Self {
            own: Semaphore::new(bytes),
            whole,
        })
    }
}

/// A part of a [`Share`], until dropped.
pub(crate) struct Claim {
    share: Rc<Share>,
    bytes: usize,
}

impl Claim {
    /// `bytes` of it, if they are there.
    #[inline]
    pub(crate) fn now(share: &Rc<Share>, bytes: usize) -> Option<Self> {
        let own = Passed::now(&share.own, bytes)?;
        if let Some(whole) = &share.whole {
            Passed::now(whole, bytes)?.keep();
        }
        own.keep();
        Some(Self {
            share: share.clone(),
            bytes,
        })
    }

    /// Waits for `bytes` of it.
    pub(crate) async fn wait(share: &Rc<Share>, bytes: usize) -> Self {
        let own = Passed::wait(&share.own, bytes).await;
        if let Some(whole) = &share.whole {
            Passed::wait(whole, bytes).await.keep();
        }
        own.keep();
        Self {
            share: share.clone(),
            bytes,
        }
    }
}

impl Drop for Claim {
    #[inline]
    fn drop(&mut self) {
        self.share.own.release(self.bytes);
        if let Some(whole) = &self.share.whole {
            whole.release(self.bytes);
        }
    }
}

/// One bound of a budget passed; given back unless all are.
struct Passed<'a> {
    semaphore: &'a Semaphore,
    bytes: usize,
}

impl<'a> Passed<'a> {
    #[inline]
    fn now(semaphore: &'a Semaphore, bytes: usize) -> Option<Self> {
        semaphore
            .try_acquire(bytes)
            .then(|| Self { semaphore, bytes })
    }

    async fn wait(semaphore: &'a Semaphore, bytes: usize) -> Self {
        semaphore.acquire(bytes).await;
        Self { semaphore, bytes }
    }
}

impl Passed<'_> {
    /// All are passed: from now on the [`Held`] is what gives back.
    #[inline]
    fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Passed<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.semaphore.release(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_that_is_reached_leaves_the_others_untouched() {
        let (tenant, core) = (
            Rc::new(Semaphore::new(1 << 20)),
            Rc::new(Semaphore::new(10_000)),
        );
        let budget = Budget::new(1 << 20, tenant.clone(), core.clone());
        let held = budget.try_hold(8192).expect("fits");
        assert!(budget.try_hold(8192).is_none(), "the core has no more");
        assert_eq!(tenant.available(), (1 << 20) - 8192);
        let bytes = held.into_bytes();
        assert_eq!(core.available(), 10_000 - 8192);
        budget.release(bytes);
        assert_eq!((core.available(), tenant.available()), (10_000, 1 << 20));
    }

    #[test]
    fn small_buffers_count_for_a_page() {
        assert_eq!(Budget::charge(1), 4096);
        assert_eq!(Budget::charge(4097), 8192);
        assert_eq!(Budget::charge(1 << 20), 1 << 20);
    }
}
