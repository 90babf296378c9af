//! Memory that a core shares out among tenants. Of what is left, each may hold a part, and never
//! more than a fixed bound: so whoever comes finds some, though many others have taken as much as
//! they may. (When `n` of them give back and take again, each comes to have one part in `n + 4` of
//! the whole, and four such parts stay free.) A tenant that holds nothing may have what it needs as
//! long as it is there.
//!
//! Within a tenant it is first come, first served; tenants that wait are served in turn.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use flashyard_block::IoError;
use flashyard_runtime::sync::Semaphore;
use flashyard_runtime::sync::oneshot::{self, Receiver, Sender};
use flashyard_runtime::{Buf, PAGE};

/// A tenant may hold a quarter of what is left.
const PART: usize = 4;

/// What is shared out.
pub(crate) struct Pool {
    free: Cell<usize>,
    /// Most bytes of one tenant.
    most: usize,
    /// Each may have this part of what is left; all of it if it is 0.
    part: usize,
    /// Those of whom somebody waits, in the order in which they are served.
    waiting: RefCell<VecDeque<Rc<MemoryQuota>>>,
}

/// What one tenant has of a [`Pool`].
pub struct MemoryQuota {
    pool: Rc<Pool>,
    held: Cell<usize>,
    waiting: RefCell<VecDeque<Waiter>>,
}

struct Waiter {
    bytes: usize,
    grant: Sender<Reservation>,
}

/// A part of a quota, until dropped.
pub struct Reservation {
    quota: Rc<MemoryQuota>,
    bytes: usize,
}

/// What came of looking at those who wait for a quota.
enum Looked {
    /// The first has been served.
    Served,
    /// The first has to go on waiting.
    Waits,
    /// There is nobody.
    Nobody,
}

impl Pool {
    /// `bytes` to be shared out, to each tenant `most` at most.
    pub(crate) fn new(bytes: usize, most: usize) -> Rc<Self> {
        Rc::new(Self {
            free: Cell::new(bytes),
            most,
            part: PART,
            waiting: RefCell::default(),
        })
    }

    /// `bytes` that need not be left for anybody else.
    pub(crate) fn of_one(bytes: usize) -> Rc<MemoryQuota> {
        MemoryQuota::new(&Rc::new(Self {
            free: Cell::new(bytes),
            most: bytes,
            part: 0,
            waiting: RefCell::default(),
        }))
    }

    /// Bytes that nobody has.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.free.get()
    }

    /// Lets those who wait have what they may have now, one of each tenant in turn, until a whole
    /// round has brought nobody anything.
    fn serve(&self) {
        let mut in_vain = 0;
        loop {
            let mut waiting = self.waiting.borrow_mut();
            if in_vain >= waiting.len() {
                return;
            }
            let Some(quota) = waiting.pop_front() else {
                return;
            };
            drop(waiting);
            match quota.look() {
                Looked::Nobody => continue,
                Looked::Served => in_vain = 0,
                Looked::Waits => in_vain += 1,
            }
            self.waiting.borrow_mut().push_back(quota);
        }
    }
}

impl MemoryQuota {
    /// The quota of a tenant that holds nothing.
    pub(crate) fn new(pool: &Rc<Pool>) -> Rc<Self> {
        Rc::new(Self {
            pool: pool.clone(),
            held: Cell::new(0),
            waiting: RefCell::default(),
        })
    }

    #[inline]
    fn fits(&self, bytes: usize) -> bool {
        let (free, held) = (self.pool.free.get(), self.held.get());
        let part = free.checked_div(self.pool.part).unwrap_or(usize::MAX);
        let most = self.pool.most.min(part);
        bytes <= free && (held == 0 || held.saturating_add(bytes) <= most)
    }

    #[inline]
    fn take(&self, bytes: usize) {
        self.pool.free.set(self.pool.free.get() - bytes);
        self.held.set(self.held.get() + bytes);
    }

    /// Takes `bytes` if they are to be had and nobody waits for them; they are given back by
    /// [`MemoryQuota::release`].
    #[inline]
    pub(crate) fn try_take(&self, bytes: usize) -> bool {
        let taken = self.waiting.borrow().is_empty() && self.fits(bytes);
        if taken {
            self.take(bytes);
        }
        taken
    }

    /// Gives back what was taken and is in no [`Reservation`].
    #[inline]
    pub(crate) fn release(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.held.set(self.held.get() - bytes);
        self.pool.free.set(self.pool.free.get() + bytes);
        if !self.pool.waiting.borrow().is_empty() {
            self.pool.serve();
        }
    }

    /// Serves the first who waits, if it may be; those who have left are passed over.
    fn look(self: &Rc<Self>) -> Looked {
        loop {
            let mut waiting = self.waiting.borrow_mut();
            let Some(first) = waiting.front() else {
                return Looked::Nobody;
            };
            let gone = first.grant.is_closed();
            if !gone && !self.fits(first.bytes) {
                return Looked::Waits;
            }
            let first = waiting.pop_front();
            drop(waiting);
            if let Some(Waiter { bytes, grant }) = first.filter(|_| !gone) {
                // Who leaves now gives it back by dropping it.
                self.take(bytes);
                drop(grant.send(Reservation::of(self, bytes)));
                return Looked::Served;
            }
        }
    }
}

impl Reservation {
    /// `bytes` of the quota, if they are to be had and nobody waits for them.
    #[inline]
    pub fn now(quota: &Rc<MemoryQuota>, bytes: usize) -> Option<Self> {
        quota.try_take(bytes).then(|| Self::of(quota, bytes))
    }

    /// Of `bytes` that have been taken.
    #[inline]
    fn of(quota: &Rc<MemoryQuota>, bytes: usize) -> Self {
        let quota = quota.clone();
        Self { quota, bytes }
    }

    /// Waits for `bytes` of it.
    pub(crate) async fn wait(quota: &Rc<MemoryQuota>, bytes: usize) -> Self {
        if let Some(reservation) = Self::now(quota, bytes) {
            return reservation;
        }
        let (grant, granted) = oneshot::channel();
        let pool = &quota.pool;
        if quota.waiting.borrow().is_empty() {
            pool.waiting.borrow_mut().push_back(quota.clone());
        }
        quota
            .waiting
            .borrow_mut()
            .push_back(Waiter { bytes, grant });
        let wait = Wait {
            granted: Some(granted),
            pool,
        };
        wait.await
    }

    /// Leaves it taken: given back by [`MemoryQuota::release`].
    #[inline]
    pub(crate) fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Reservation {
    #[inline]
    fn drop(&mut self) {
        self.quota.release(self.bytes);
    }
}

/// The wait for a reservation.
struct Wait<'a> {
    /// Until it has come.
    granted: Option<Receiver<Reservation>>,
    pool: &'a Pool,
}

impl Future for Wait<'_> {
    type Output = Reservation;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reservation> {
        let granted = self
            .granted
            .as_mut()
            .expect("it is not polled after its end");
        match Pin::new(granted).poll(context) {
            Poll::Ready(reservation) => {
                self.granted = None;
                Poll::Ready(reservation.expect("a quota lives as long as somebody waits for it"))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if self.granted.take().is_some() {
            // It may have been what held up those behind.
            self.pool.serve();
        }
    }
}

/// How much memory a queue may hold at the grace of its host: write data that were asked for and
/// read data that have not been taken yet. Two bounds, always taken in the same order: that of the
/// connection, and the quota of its tenant. Whoever finds one reached waits in order of arrival,
/// before its turn at the device. There is no wait for a buffer after that: what is held here is
/// within the bound of the core's pool ([`crate::Limits::promised_bytes`]), and a pool gives
/// whatever is within its bound.
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
    pub(crate) fn charge(len: usize) -> usize {
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
    pub(crate) async fn reserve(self: &Rc<Self>, bytes: usize) -> Held {
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
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
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

/// A buffer for which a share is held: the pool has it, unless the system has no memory or what
/// devices take for themselves is beyond what is left to them. Nobody waits for it: it is the turn
/// of this I/O, and nothing could end the wait.
#[inline]
pub fn buffer(bytes: usize) -> Result<Buf, IoError> {
    Buf::take(bytes).ok_or(IoError::Busy)
}

#[cfg(test)]
mod tests;
