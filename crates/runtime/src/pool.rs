//! A pool of short tasks of one type, without an allocation for each.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::Rt;
use crate::task::{Queue, Runnable};
use crate::wake::TaskId;

/// Many short tasks of one type without an allocation each: a bounded set of reusable places. `run`
/// polls the future at once, in place; only if it has to wait does it become a task of its own.
/// Made for one command each of a connection. Dropping the pool cancels all.
pub struct CommandPool<F: Future<Output = ()> + 'static> {
    queue: Rc<Queue>,
    places: RefCell<Vec<(Rc<Place<F>>, TaskId)>>,
    free: Rc<FreePlaces>,
    capacity: usize,
}

impl<F: Future<Output = ()> + 'static> CommandPool<F> {
    /// A pool for at most `capacity` waiting futures; memory is taken as it is needed and kept.
    pub fn new(rt: &Rt, capacity: usize) -> Self {
        Self {
            queue: rt.core.queue().clone(),
            places: RefCell::default(),
            free: Rc::default(),
            capacity,
        }
    }

    /// Polls `future` now; keeps it as a task if it is not ready. `Err` gives it back unpolled when
    /// `capacity` futures are waiting.
    pub fn run(&self, future: F) -> Result<(), F> {
        let Some((place, id)) = self.free_place() else {
            return Err(future);
        };
        *place.future.borrow_mut() = Some(future);
        self.queue.poll(&*place, id);
        Ok(())
    }

    /// How many futures are waiting.
    pub fn waiting(&self) -> usize {
        self.free.used.get()
    }

    fn free_place(&self) -> Option<(Rc<Place<F>>, TaskId)> {
        let number = self.free.numbers.borrow_mut().pop();
        let mut places = self.places.borrow_mut();
        let number = match number {
            Some(number) => number as usize,
            None if places.len() < self.capacity => {
                let place = Rc::new(Place {
                    future: RefCell::new(None),
                    cancelled: Cell::new(false),
                    number: places.len() as u32,
                    free: self.free.clone(),
                });
                let id = self.queue.insert(place.clone());
                places.push((place, id));
                places.len() - 1
            }
            None => return None,
        };
        self.free.used.set(self.free.used.get() + 1);
        Some(places[number].clone())
    }
}

impl<F: Future<Output = ()>> Drop for CommandPool<F> {
    fn drop(&mut self) {
        for (place, id) in self.places.take() {
            place.cancel();
            self.queue.remove(id);
        }
    }
}

impl<F: Future<Output = ()>> fmt::Debug for CommandPool<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CommandPool")
            .field("waiting", &self.free.used.get())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct FreePlaces {
    numbers: RefCell<Vec<u32>>,
    used: Cell<usize>,
}

/// Where one future after the other lives. It is a task of the queue for as long as the pool
/// exists; a waker of an earlier future causes a poll too many at worst.
struct Place<F> {
    future: RefCell<Option<F>>,
    /// Set when the pool is dropped while the future is polled.
    cancelled: Cell<bool>,
    number: u32,
    free: Rc<FreePlaces>,
}

impl<F: Future<Output = ()>> Runnable for Place<F> {
    fn run(&self, context: &mut Context<'_>) -> bool {
        let mut place = self.future.borrow_mut();
        let Some(future) = &mut *place else {
            return false;
        };
        // SAFETY: the place is reference-counted and the future is never moved out of it: it is
        // only ever overwritten, which drops it there.
        let polled = unsafe { Pin::new_unchecked(future) }.poll(context);
        if polled == Poll::Pending && !self.cancelled.get() {
            return false;
        }
        *place = None;
        drop(place);
        self.free.used.set(self.free.used.get() - 1);
        self.free.numbers.borrow_mut().push(self.number);
        false
    }

    fn cancel(&self) {
        match self.future.try_borrow_mut() {
            Ok(mut future) => *future = None,
            Err(_) => self.cancelled.set(true),
        }
    }
}
