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

use flashyard_runtime::sync::oneshot::{self, Receiver, Sender};

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
    tell: Sender<Reservation>,
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
            let gone = first.tell.is_closed();
            if !gone && !self.fits(first.bytes) {
                return Looked::Waits;
            }
            let first = waiting.pop_front();
            drop(waiting);
            if let Some(Waiter { bytes, tell }) = first.filter(|_| !gone) {
                // Who leaves now gives it back by dropping it.
                self.take(bytes);
                drop(tell.send(Reservation::of(self, bytes)));
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
        let (tell, told) = oneshot::channel();
        let pool = &quota.pool;
        if quota.waiting.borrow().is_empty() {
            pool.waiting.borrow_mut().push_back(quota.clone());
        }
        quota.waiting.borrow_mut().push_back(Waiter { bytes, tell });
        let wait = Wait {
            told: Some(told),
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
    told: Option<Receiver<Reservation>>,
    pool: &'a Pool,
}

impl Future for Wait<'_> {
    type Output = Reservation;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reservation> {
        let told = self.told.as_mut().expect("it is not polled after its end");
        match Pin::new(told).poll(context) {
            Poll::Ready(reservation) => {
                self.told = None;
                Poll::Ready(reservation.expect("a quota lives as long as somebody waits for it"))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if self.told.take().is_some() {
            // It may have been what held up those behind.
            self.pool.serve();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use flashyard_time::Rng;

    use super::*;

    const MIB: usize = 1 << 20;

    fn poll(wait: Pin<&mut (impl Future<Output = Reservation> + ?Sized)>) -> Option<Reservation> {
        match wait.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reservation) => Some(reservation),
            Poll::Pending => None,
        }
    }

    fn all_it_gets(quota: &Rc<MemoryQuota>, bytes: usize) -> Vec<Reservation> {
        std::iter::from_fn(|| Reservation::now(quota, bytes)).collect()
    }

    #[test]
    fn whoever_comes_finds_some_however_much_the_others_took() {
        let pool = Pool::new(128 * MIB, 16 * MIB);
        let mut taken = Vec::new();
        for n in 1..=16 {
            let reservations = all_it_gets(&MemoryQuota::new(&pool), MIB / 4);
            let got = reservations.len() * MIB / 4;
            let least = if n < 9 { 5 * MIB } else { MIB };
            assert!((least..=16 * MIB).contains(&got), "number {n} got {got}");
            taken.push(reservations);
        }
        assert!(pool.free() >= 4 * MIB, "{} are free", pool.free());
        taken.clear();
        assert_eq!(pool.free(), 128 * MIB);
    }

    #[test]
    fn those_who_give_back_and_take_again_come_to_have_the_same() {
        let pool = Pool::new(128 * MIB, 16 * MIB);
        let quotas: Vec<_> = (0..60).map(|_| MemoryQuota::new(&pool)).collect();
        let mut taken: Vec<_> = quotas.iter().map(|r| all_it_gets(r, MIB / 16)).collect();
        for round in 0..100 {
            for (quota, reservations) in quotas.iter().zip(&mut taken) {
                reservations.truncate(
                    reservations.len() - reservations.len().div_ceil(8).min(reservations.len()),
                );
                reservations.extend(all_it_gets(quota, MIB / 16));
                let same = reservations.len() * MIB / 16;
                assert!(round < 50 || (MIB..3 * MIB).contains(&same), "{same}");
            }
        }
        let free = pool.free();
        assert!((6 * MIB..12 * MIB).contains(&free), "{free} are free");
    }

    #[test]
    fn who_has_nothing_may_have_what_is_there_and_others_wait() {
        let pool = Pool::new(4 * MIB, 2 * MIB);
        let (one, two) = (MemoryQuota::new(&pool), MemoryQuota::new(&pool));
        let large = Reservation::now(&one, 3 * MIB).expect("it has nothing");
        assert!(
            Reservation::now(&one, 4096).is_none(),
            "it has more than a part"
        );
        let mut wait = pin!(Reservation::wait(&two, 2 * MIB));
        assert!(poll(wait.as_mut()).is_none());
        assert!(
            Reservation::now(&two, 4096).is_none(),
            "behind the other one"
        );
        drop(large);
        let reservation = poll(wait.as_mut()).expect("there is room");
        reservation.keep();
        assert_eq!(pool.free(), 2 * MIB);
        two.release(2 * MIB);
        assert_eq!(pool.free(), 4 * MIB);
    }

    #[test]
    fn whoever_leaves_unblocks_those_behind() {
        let pool = Pool::new(4 * MIB, 4 * MIB);
        let quota = MemoryQuota::new(&pool);
        let held = Reservation::now(&quota, MIB / 2).expect("it has nothing");
        let mut narrow = pin!(Reservation::wait(&quota, 4096));
        {
            let mut wide = pin!(Reservation::wait(&quota, 3 * MIB));
            assert!(poll(wide.as_mut()).is_none());
            assert!(poll(narrow.as_mut()).is_none());
        }
        assert!(poll(narrow.as_mut()).is_some());
        {
            let mut granted = pin!(Reservation::wait(&quota, MIB));
            assert!(poll(granted.as_mut()).is_none());
            drop(held);
        }
        assert_eq!(pool.free(), 4 * MIB, "granted and never looked at");
        assert!(pool.waiting.borrow().is_empty());
    }

    #[test]
    fn what_is_for_one_it_may_have_all_of() {
        let quota = Pool::of_one(MIB);
        assert_eq!(all_it_gets(&quota, MIB / 16).len(), 16);
    }

    /// By chance: nothing is lost, nobody who could have been served waits, and all end.
    #[test]
    fn all_are_served_in_the_end() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let pool = Pool::new(8 * MIB, 2 * MIB);
            let quotas: Vec<_> = (0..6).map(|_| MemoryQuota::new(&pool)).collect();
            let mut waits: Vec<Pin<Box<dyn Future<Output = Reservation>>>> = Vec::new();
            let mut reservations = Vec::new();
            for _ in 0..300 {
                let quota = quotas[rng.below(6) as usize].clone();
                let most = 1 << (12 + rng.below(9));
                let bytes = 1 + rng.below(most) as usize;
                match rng.below(4) {
                    0 | 1 => waits.push(Box::pin(
                        async move { Reservation::wait(&quota, bytes).await },
                    )),
                    2 if !reservations.is_empty() => {
                        reservations.swap_remove(rng.below(reservations.len() as u64) as usize);
                    }
                    3 if !waits.is_empty() => {
                        drop(waits.swap_remove(rng.below(waits.len() as u64) as usize));
                    }
                    _ => {}
                }
                waits.retain_mut(|wait| match poll(wait.as_mut()) {
                    Some(reservation) => {
                        reservations.push(reservation);
                        false
                    }
                    None => true,
                });
                let held: usize = reservations
                    .iter()
                    .map(|reservation: &Reservation| reservation.bytes)
                    .sum();
                assert_eq!(pool.free() + held, 8 * MIB, "seed {seed}");
            }
            while !waits.is_empty() {
                reservations.clear();
                let before = waits.len();
                waits.retain_mut(|wait| match poll(wait.as_mut()) {
                    Some(reservation) => {
                        reservations.push(reservation);
                        false
                    }
                    None => true,
                });
                assert!(waits.len() < before, "seed {seed}: {before} wait for ever");
            }
            reservations.clear();
            assert_eq!(pool.free(), 8 * MIB);
            assert!(pool.waiting.borrow().is_empty());
        }
    }
}
