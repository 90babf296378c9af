//! Tasks: the queue of those that are ready, and the cell that holds a future and then its result.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::wake::{self, MAX_TASKS, TaskId};

/// Something the executor polls.
pub(crate) trait Runnable {
    /// Polls once; whether it has ended and its place in the queue can be given away.
    fn run(&self, context: &mut Context<'_>) -> bool;

    /// Drops the future, at once or, if it is being polled right now, afterwards.
    fn cancel(&self);
}

/// The tasks of a core, and which of them are to be polled.
pub(crate) struct Queue {
    core: usize,
    /// What generations of tasks begin with.
    first: u32,
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    ready: VecDeque<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    generation: u32,
    /// Whether the slot's index is in `ready` (perhaps still from its last task).
    queued: bool,
    task: Option<Rc<dyn Runnable>>,
}

impl Queue {
    /// The queue of the core with this number; generations of its tasks begin with `first`.
    pub(crate) fn new(core: usize, first: u32) -> Self {
        Self {
            core,
            first,
            inner: RefCell::default(),
        }
    }

    /// Adds a task that is not ready.
    pub(crate) fn insert(&self, task: Rc<dyn Runnable>) -> TaskId {
        let mut inner = self.inner.borrow_mut();
        let index = inner.free.pop().unwrap_or_else(|| {
            assert!(
                inner.slots.len() < MAX_TASKS,
                "more than {MAX_TASKS} tasks on one core"
            );
            inner.slots.push(Slot {
                generation: self.first,
                queued: false,
                task: None,
            });
            inner.slots.len() as u32 - 1
        });
        let slot = &mut inner.slots[index as usize];
        slot.task = Some(task);
        TaskId {
            index,
            generation: slot.generation,
        }
    }

    /// Takes a task out; nothing happens if it is gone already.
    pub(crate) fn remove(&self, id: TaskId) {
        let mut inner = self.inner.borrow_mut();
        let slot = &mut inner.slots[id.index as usize];
        if slot.generation == id.generation {
            slot.generation = TaskId::next_generation(slot.generation);
            let task = slot.task.take();
            inner.free.push(id.index);
            drop(inner);
            drop(task);
        }
    }

    /// Makes a task ready, unless it is ready or gone.
    #[inline]
    pub(crate) fn wake(&self, id: TaskId) {
        let inner = &mut *self.inner.borrow_mut();
        let Some(slot) = inner.slots.get_mut(id.index as usize) else {
            return;
        };
        if slot.generation == id.generation && !slot.queued {
            slot.queued = true;
            inner.ready.push_back(id.index);
        }
    }

    /// The generation after those of all tasks there were.
    pub(crate) fn generation_after(&self) -> u32 {
        let inner = self.inner.borrow();
        let since = |slot: &Slot| TaskId::generations_since(slot.generation, self.first);
        let most = inner.slots.iter().max_by_key(|slot| since(slot));
        most.map_or(self.first, |slot| TaskId::next_generation(slot.generation))
    }

    /// How many tasks there are.
    pub(crate) fn tasks(&self) -> usize {
        let inner = self.inner.borrow();
        inner.slots.len() - inner.free.len()
    }

    /// How many tasks are ready.
    #[inline]
    pub(crate) fn ready(&self) -> usize {
        self.inner.borrow().ready.len()
    }

    /// Polls the ready task at `place` (0 has waited longest); false when none is there.
    pub(crate) fn run(&self, place: usize) -> bool {
        let mut inner = self.inner.borrow_mut();
        let index = match place {
            0 => inner.ready.pop_front(),
            _ => inner.ready.remove(place),
        };
        let Some(index) = index else { return false };
        let slot = &mut inner.slots[index as usize];
        slot.queued = false;
        let Some(task) = slot.task.clone() else {
            return true;
        };
        let id = TaskId {
            index,
            generation: slot.generation,
        };
        drop(inner);
        if self.poll(&*task, id) {
            self.remove(id);
        }
        true
    }

    /// Polls a task now.
    #[inline]
    pub(crate) fn poll(&self, task: &dyn Runnable, id: TaskId) -> bool {
        let waker = wake::waker(self.core, id);
        task.run(&mut Context::from_waker(&waker))
    }

    /// Cancels all tasks; those that come into being meanwhile too.
    pub(crate) fn cancel_all(&self) {
        loop {
            let mut inner = self.inner.borrow_mut();
            let Some(index) = inner.slots.iter().position(|slot| slot.task.is_some()) else {
                return;
            };
            let slots = &mut inner.slots[index..];
            let tasks: Vec<_> = slots.iter().filter_map(|slot| slot.task.clone()).collect();
            let ids: Vec<_> = (index..inner.slots.len())
                .filter(|&index| inner.slots[index].task.is_some())
                .map(|index| TaskId {
                    index: index as u32,
                    generation: inner.slots[index].generation,
                })
                .collect();
            drop(inner);
            for (task, id) in tasks.into_iter().zip(ids) {
                task.cancel();
                self.remove(id);
            }
        }
    }
}

/// A future and its result, shared by the queue and the handle.
struct Spawned<F: Future> {
    stage: RefCell<Stage<F>>,
    /// Set when the task is cancelled while it is polled.
    cancelled: Cell<bool>,
    finished: Cell<bool>,
    joiner: Cell<Option<Waker>>,
}

enum Stage<F: Future> {
    Running(F),
    Done(F::Output),
    Gone,
}

impl<F: Future> Runnable for Spawned<F> {
    fn run(&self, context: &mut Context<'_>) -> bool {
        let mut stage = self.stage.borrow_mut();
        let Stage::Running(future) = &mut *stage else {
            return true;
        };
        // SAFETY: the future lies in a reference-counted cell that is never moved out of: it is
        // only ever overwritten, which drops it in place.
        let polled = unsafe { Pin::new_unchecked(future) }.poll(context);
        *stage = match polled {
            Poll::Ready(result) => Stage::Done(result),
            Poll::Pending if self.cancelled.get() => Stage::Gone,
            Poll::Pending => return false,
        };
        drop(stage);
        self.finished.set(true);
        if let Some(joiner) = self.joiner.take() {
            joiner.wake();
        }
        true
    }

    fn cancel(&self) {
        match self.stage.try_borrow_mut() {
            Ok(mut stage) => *stage = Stage::Gone,
            Err(_) => self.cancelled.set(true),
        }
    }
}

/// What a handle wants to know of its task.
trait Join<T>: Runnable {
    fn is_finished(&self) -> bool;
    fn poll_result(&self, waker: &Waker) -> Poll<T>;
}

impl<F: Future> Join<F::Output> for Spawned<F> {
    fn is_finished(&self) -> bool {
        self.finished.get()
    }

    fn poll_result(&self, waker: &Waker) -> Poll<F::Output> {
        if !self.finished.get() {
            self.joiner.set(Some(waker.clone()));
            return Poll::Pending;
        }
        let Stage::Done(result) = self.stage.replace(Stage::Gone) else {
            panic!(
                "the result of a task was taken before, or the task was cancelled by the end of its core"
            )
        };
        Poll::Ready(result)
    }
}

/// A running task. Dropping it cancels the task (its future is dropped, its operations are
/// cancelled); [`Task::detach`] lets it run on. As a future it gives the task's result.
#[must_use = "dropping it cancels the task"]
pub struct Task<T> {
    cell: Rc<dyn Join<T>>,
    queue: Rc<Queue>,
    id: TaskId,
    detached: bool,
}

impl<T: 'static> Task<T> {
    /// Puts `future` into the queue, ready.
    pub(crate) fn spawn(queue: Rc<Queue>, future: impl Future<Output = T> + 'static) -> Self {
        let cell = Rc::new(Spawned {
            stage: RefCell::new(Stage::Running(future)),
            cancelled: Cell::new(false),
            finished: Cell::new(false),
            joiner: Cell::new(None),
        });
        let id = queue.insert(cell.clone());
        queue.wake(id);
        Self {
            cell,
            queue,
            id,
            detached: false,
        }
    }
}

impl<T> Task<T> {
    /// Lets the task run to its end on its own.
    pub fn detach(mut self) {
        self.detached = true;
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.cell.is_finished()
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.cell.poll_result(context.waker())
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if !self.detached && !self.cell.is_finished() {
            self.cell.cancel();
            self.queue.remove(self.id);
        }
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Task")
            .field("finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}
