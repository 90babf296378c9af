//! How much memory a queue may hold at the grace of its host: write data that were asked for and
//! read data that have not been taken yet. Two bounds, always taken in the same order: that of the
//! connection, and what its tenant may have of the core ([`crate::quota`]). Whoever finds one
//! reached waits in order of arrival, before its turn at the device. There is no wait for a buffer
//! after that: what is held here is within the bound of the core's pool
//! ([`crate::Limits::promised_bytes`]), and a pool gives whatever is within its bound.

use std::rc::Rc;

use flashyard_runtime::PAGE;
use flashyard_runtime::sync::Semaphore;

use crate::quota::{MemoryQuota, Reservation};

/// The bounds of one connection.
pub struct Budget {
    connection: Semaphore,
    quota: Rc<MemoryQuota>,
}

/// Memory counted against a [`Budget`] until dropped.
pub struct Held {
    budget: Rc<Budget>,
    bytes: usize,
}

impl Budget {
    /// `bytes` for the connection, out of the quota of its tenant.
    pub(crate) fn new(bytes: usize, quota: Rc<MemoryQuota>) -> Rc<Self> {
        Rc::new(Self {
            connection: Semaphore::new(bytes),
            quota,
        })
    }

    /// Bytes that a buffer of `len` counts for.
    #[inline]
    pub(super) fn charge(len: usize) -> usize {
        len.max(PAGE).next_power_of_two()
    }

    /// Gives back what [`Held::into_bytes`] took over.
    #[inline]
    pub fn release(&self, bytes: usize) {
        if bytes > 0 {
            self.connection.release(bytes);
            self.quota.release(bytes);
        }
    }

    /// Waits until `bytes` fit in both bounds. Only numbers are held: the memory itself is taken
    /// when it is needed.
    pub(super) async fn reserve(self: &Rc<Self>, bytes: usize) -> Held {
        let connection = Passed::wait(&self.connection, bytes).await;
        Reservation::wait(&self.quota, bytes).await.keep();
        connection.keep();
        Held {
            budget: self.clone(),
            bytes,
        }
    }

    /// The same, if there is nothing to wait for.
    #[inline]
    pub fn try_reserve(self: &Rc<Self>, bytes: usize) -> Option<Held> {
        if !self.connection.try_acquire(bytes) {
            return None;
        }
        if !self.quota.try_take(bytes) {
            self.connection.release(bytes);
            return None;
        }
        Some(Held {
            budget: self.clone(),
            bytes,
        })
    }
}

impl Held {
    /// Takes a part out, which is given back by itself.
    pub(super) fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self {
            budget: self.budget.clone(),
            bytes,
        }
    }

    /// Ends the guard: the bytes are given back by [`Budget::release`].
    #[inline]
    pub fn into_bytes(mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

/// One bound of a budget passed; given back unless all are.
struct Passed<'a> {
    semaphore: &'a Semaphore,
    bytes: usize,
}

impl<'a> Passed<'a> {
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
    use crate::quota::Pool;

    #[test]
    fn a_bound_that_is_reached_leaves_the_other_untouched() {
        let pool = Pool::new(10_000, 10_000);
        let budget = Budget::new(16_384, MemoryQuota::new(&pool));
        let held = budget.try_reserve(8192).expect("fits");
        assert!(budget.try_reserve(4096).is_none(), "the core has no more");
        assert_eq!(budget.connection.available(), 8192);
        let bytes = held.into_bytes();
        assert_eq!(pool.free(), 10_000 - 8192);
        budget.release(bytes);
        assert_eq!(
            (pool.free(), budget.connection.available()),
            (10_000, 16_384)
        );
        let narrow = Budget::new(4096, MemoryQuota::new(&pool));
        assert!(
            narrow.try_reserve(8192).is_none(),
            "the connection has no more"
        );
        assert_eq!(pool.free(), 10_000);
    }

    #[test]
    fn small_buffers_count_for_a_page() {
        assert_eq!(Budget::charge(1), 4096);
        assert_eq!(Budget::charge(4097), 8192);
        assert_eq!(Budget::charge(1 << 20), 1 << 20);
    }
}
