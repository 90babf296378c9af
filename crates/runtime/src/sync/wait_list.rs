//! The queue behind every waiting primitive: first come, first served, O(1) to leave from the
//! middle, places reused. A waiter that was granted keeps its place until its future sees the grant
//! or is dropped.

use std::task::Waker;

/// No place: end of a list.
const NONE: u32 = u32::MAX;

/// A waiter's place, valid until `take_grant` returned true or `leave` was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

/// Waiters in order of arrival, each with what it asked for.
#[derive(Debug)]
pub(super) struct WaitList<T> {
    places: Vec<Waiter<T>>,
    head: u32,
    tail: u32,
    free: u32,
    /// Waiting and not granted.
    queued: usize,
}

#[derive(Debug)]
struct Waiter<T> {
    state: State<T>,
    prev: u32,
    /// The next waiter, or the next free place.
    next: u32,
}

#[derive(Debug)]
enum State<T> {
    Free,
    Queued(T, Waker),
    Granted(T),
}

/// How a waiter left.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left<T> {
    /// It was still waiting.
    Queued,
    /// It had been granted this and never used it.
    Granted(T),
}

impl<T: Copy> WaitList<T> {
    pub(super) const fn new() -> Self {
        Self {
            places: Vec::new(),
            head: NONE,
            tail: NONE,
            free: NONE,
            queued: 0,
        }
    }

    /// Waiters that were not granted yet.
    pub(super) fn len(&self) -> usize {
        self.queued
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queued == 0
    }

    /// What the first waiter asks for.
    pub(super) fn front(&self) -> Option<T> {
        match self.places.get(self.head as usize)?.state {
            State::Queued(wish, _) => Some(wish),
            State::Free | State::Granted(_) => unreachable!("only queued waiters are linked"),
        }
    }

    /// Queues behind all others.
    pub(super) fn join(&mut self, wish: T, waker: Waker) -> Place {
        let waiter = Waiter {
            state: State::Queued(wish, waker),
            prev: self.tail,
            next: NONE,
        };
        let at = self.fill_place(waiter);
        match self.places.get_mut(self.tail as usize) {
            Some(last) => last.next = at,
            None => self.head = at,
        }
        self.tail = at;
        self.queued += 1;
        Place(at)
    }

    /// Gives `grant` to the first waiter. The caller wakes it when it has released every borrow.
    pub(super) fn grant_front(&mut self, grant: T) -> Option<Waker> {
        let at = self.head;
        let waiter = self.places.get_mut(at as usize)?;
        let State::Queued(_, waker) = std::mem::replace(&mut waiter.state, State::Granted(grant))
        else {
            unreachable!("only queued waiters are linked");
        };
        self.unlink(at);
        Some(waker)
    }

    /// True and the place is given up if the waiter was granted; otherwise `waker` is kept for the
    /// grant.
    pub(super) fn take_grant(&mut self, place: Place, waker: &Waker) -> bool {
        match &mut self.places[place.0 as usize].state {
            State::Granted(_) => {
                self.empty_place(place.0);
                true
            }
            State::Queued(_, kept) => {
                kept.clone_from(waker);
                false
            }
            State::Free => unreachable!("a place is used once"),
        }
    }

    /// Gives the place up.
    pub(super) fn leave(&mut self, place: Place) -> Left<T> {
        let left = match self.places[place.0 as usize].state {
            State::Queued(..) => {
                self.unlink(place.0);
                Left::Queued
            }
            State::Granted(wish) => Left::Granted(wish),
            State::Free => unreachable!("a place is left once"),
        };
        self.empty_place(place.0);
        left
    }

    fn unlink(&mut self, at: u32) {
        let Waiter { prev, next, .. } = self.places[at as usize];
        match self.places.get_mut(prev as usize) {
            Some(before) => before.next = next,
            None => self.head = next,
        }
        match self.places.get_mut(next as usize) {
            Some(after) => after.prev = prev,
            None => self.tail = prev,
        }
        self.queued -= 1;
    }

    fn fill_place(&mut self, waiter: Waiter<T>) -> u32 {
        let at = self.free;
        if let Some(place) = self.places.get_mut(at as usize) {
            self.free = place.next;
            *place = waiter;
            return at;
        }
        let at = self.places.len() as u32;
        assert!(at < NONE, "four billion waiters");
        self.places.push(waiter);
        at
    }

    fn empty_place(&mut self, at: u32) {
        self.places[at as usize] = Waiter {
            state: State::Free,
            prev: NONE,
            next: self.free,
        };
        self.free = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serves_in_order_and_reuses_places() {
        let mut list = WaitList::new();
        let waker = Waker::noop();
        for round in 0..3 {
            let [a, b, c] = [1, 2, 3].map(|n| list.join(n, waker.clone()));
            assert_eq!(list.leave(b), Left::Queued);
            assert_eq!(list.front(), Some(1));
            assert!(list.grant_front(7).is_some());
            assert_eq!(list.front(), Some(3));
            assert!(list.take_grant(a, waker));
            assert!(!list.take_grant(c, waker));
            assert!(list.grant_front(7).is_some());
            assert_eq!(list.leave(c), Left::Granted(7));
            assert!(list.is_empty() && list.front().is_none() && list.grant_front(7).is_none());
            assert_eq!(list.places.len(), 3, "round {round}");
        }
    }
}
