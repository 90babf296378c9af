//! Wakers without allocation and without counting: the waker's word holds core, task and
//! generation. Waking on the core's own thread pushes to its ready queue; from another thread it
//! goes through the core's inbox.
//!
//! Numbers of cores are reused after a core's end, and a waker may outlive its core. It then wakes
//! no task: generations continue from one core with a number to the next. A simulated core gets no
//! wake-ups from other threads.

use std::cell::RefCell;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{RawWaker, RawWakerVTable, Waker};

use crate::task::Queue;

const INDEX_BITS: u32 = 24;
const GENERATION_BITS: u32 = 28;
/// Cores of a kind that can exist in a process at a time: those that run by themselves, and
/// simulated ones.
const MAX_CORES: usize = 1 << (usize::BITS - INDEX_BITS - GENERATION_BITS - 1);
/// Numbers of simulated cores begin with this.
const SIMULATED: usize = MAX_CORES;
/// Tasks that a core can have at a time.
pub(crate) const MAX_TASKS: usize = 1 << INDEX_BITS;

/// Names a task of some core for waking.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl TaskId {
    /// The generation after `generation`.
    pub(crate) fn next_generation(generation: u32) -> u32 {
        (generation + 1) & ((1 << GENERATION_BITS) - 1)
    }

    /// How many generations come between.
    pub(crate) fn generations_since(generation: u32, first: u32) -> u32 {
        generation.wrapping_sub(first) & ((1 << GENERATION_BITS) - 1)
    }
}

/// A waker of task `id` of `core`. Dropping it does nothing, hence it need not be dropped.
#[inline]
pub(crate) fn waker(core: usize, id: TaskId) -> ManuallyDrop<Waker> {
    let word = (core << (INDEX_BITS + GENERATION_BITS))
        | (id.generation as usize) << INDEX_BITS
        | id.index as usize;
    let raw = RawWaker::new(std::ptr::without_provenance(word), &VTABLE);
    // SAFETY: all functions of the table take the data as a plain number, from any thread.
    ManuallyDrop::new(unsafe { Waker::from_raw(raw) })
}

static VTABLE: RawWakerVTable =
    RawWakerVTable::new(|data| RawWaker::new(data, &VTABLE), wake, wake, |_| ());

fn wake(data: *const ()) {
    let word = data.addr();
    let id = TaskId {
        index: (word & (MAX_TASKS - 1)) as u32,
        generation: (word >> INDEX_BITS) as u32 & ((1 << GENERATION_BITS) - 1),
    };
    let core = word >> (INDEX_BITS + GENERATION_BITS);
    let here = LOCAL.try_with(|local| match local.borrow().get(core) {
        Some(Some(queue)) => {
            queue.wake(id);
            true
        }
        _ => false,
    });
    if !here.unwrap_or(false) {
        wake_elsewhere(core, id);
    }
}

/// Apart, so that the wakes of a core's own tasks, which are nearly all, save no registers for it.
#[cold]
#[inline(never)]
fn wake_elsewhere(core: usize, id: TaskId) {
    if core < SIMULATED {
        Remote::of(core).wake(id);
    }
}

thread_local! {
    /// The cores that live on this thread: one, or all of a simulated world.
    static LOCAL: RefCell<Vec<Option<Rc<Queue>>>> = const { RefCell::new(Vec::new()) };
}

static REMOTES: [OnceLock<Remote>; MAX_CORES] = [const { OnceLock::new() }; MAX_CORES];
static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers::of(0..SIMULATED));
static SIMULATED_NUMBERS: Mutex<Numbers> = Mutex::new(Numbers::of(SIMULATED..2 * MAX_CORES));

/// Numbers of cores of a kind.
struct Numbers {
    free: Vec<Number>,
    unused: Range<usize>,
}

/// A number that no core has.
struct Number {
    core: usize,
    /// What the generations of the next core's tasks begin with.
    generation: u32,
}

impl Numbers {
    const fn of(cores: Range<usize>) -> Self {
        Self {
            free: Vec::new(),
            unused: cores,
        }
    }

    fn take(&mut self) -> Number {
        let used_before = self.free.pop();
        let generation = 0;
        let unused = || {
            Some(Number {
                core: self.unused.next()?,
                generation,
            })
        };
        used_before
            .or_else(unused)
            .unwrap_or_else(|| panic!("more than {MAX_CORES} cores of a kind in one process"))
    }
}

/// A number taken for a core until its end, and the core's queue, which wakers find by it.
pub(crate) struct Registration {
    core: usize,
    queue: Rc<Queue>,
    /// What other threads see of this core; nothing of a simulated one.
    remote: Option<&'static Remote>,
}

impl Registration {
    /// For a core that runs by itself, on this thread; with what other threads see of it.
    pub(crate) fn new() -> (Self, &'static Remote) {
        let number = lock(&NUMBERS).take();
        let remote = Remote::of(number.core);
        remote.open();
        let registration = Self::enter(number.core, number.generation, Some(remote));
        (registration, remote)
    }

    /// For a core of a simulated world on this thread.
    pub(crate) fn simulated() -> Self {
        let number = lock(&SIMULATED_NUMBERS).take();
        Self::enter(number.core, number.generation, None)
    }

    /// Lets wakers on this thread find the core's queue.
    fn enter(core: usize, generation: u32, remote: Option<&'static Remote>) -> Self {
        let queue = Rc::new(Queue::new(core, generation));
        LOCAL.with(|local| {
            let mut local = local.borrow_mut();
            if local.len() <= core {
                local.resize(core + 1, None);
            }
            local[core] = Some(queue.clone());
        });
        Self {
            core,
            queue,
            remote,
        }
    }

    /// The queue of the core.
    pub(crate) fn queue(&self) -> &Rc<Queue> {
        &self.queue
    }

    /// What other threads see of this core; nothing of a simulated one.
    pub(crate) fn remote(&self) -> Option<&'static Remote> {
        self.remote
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // At the end of a thread the list may be gone already.
        let _ = LOCAL.try_with(|local| local.borrow_mut()[self.core] = None);
        let number = Number {
            core: self.core,
            generation: self.queue.generation_after(),
        };
        let numbers = match self.remote {
            Some(remote) => {
                remote.close();
                &NUMBERS
            }
            None => &SIMULATED_NUMBERS,
        };
        lock(numbers).free.push(number);
    }
}

/// The side of a core that other threads see. Never freed.
#[derive(Default)]
pub(crate) struct Remote {
    woken: Mutex<Vec<TaskId>>,
    /// Something is in `woken`.
    pending: AtomicBool,
    /// The core sleeps, or is about to: the thread that sets `pending` has to kick it.
    asleep: AtomicBool,
    open: AtomicBool,
    eventfd: OnceLock<OwnedFd>,
}

impl Remote {
    fn of(core: usize) -> &'static Self {
        REMOTES[core].get_or_init(Self::default)
    }

    fn open(&self) {
        self.asleep.store(false, Ordering::SeqCst);
        self.open.store(true, Ordering::SeqCst);
    }

    fn close(&self) {
        let mut woken = lock(&self.woken);
        self.open.store(false, Ordering::SeqCst);
        woken.clear();
        self.pending.store(false, Ordering::SeqCst);
    }

    /// Wakes a task of this core from another thread.
    fn wake(&self, id: TaskId) {
        let mut woken = lock(&self.woken);
        if !self.open.load(Ordering::SeqCst) {
            return;
        }
        woken.push(id);
        drop(woken);
        self.nudge();
    }

    /// Has the core take a turn: another thread has something for its driver.
    pub(crate) fn nudge(&self) {
        self.pending.store(true, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.kick();
        }
    }

    /// Whether other threads woke tasks.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// Moves the woken tasks to `tasks`.
    pub(crate) fn take(&self, tasks: &mut Vec<TaskId>) {
        let mut woken = lock(&self.woken);
        self.pending.store(false, Ordering::SeqCst);
        tasks.append(&mut woken);
    }

    /// Announces that the core will sleep until kicked. False when there is something to do
    /// already.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        if self.pending.load(Ordering::SeqCst) {
            self.asleep.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// The core is awake: no kicks, please.
    pub(crate) fn awake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// The event counter by which a sleeping core is kicked; made when first asked for.
    pub(crate) fn eventfd(&self) -> io::Result<RawFd> {
        if self.eventfd.get().is_none() {
            // SAFETY: the call takes no pointers.
            let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the descriptor is new and has no other owner. Should another thread have been
            // faster, this one is closed again.
            let _ = self.eventfd.set(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        Ok(self.eventfd.get().expect("it was just set").as_raw_fd())
    }

    fn kick(&self) {
        let Some(eventfd) = self.eventfd.get() else {
            return;
        };
        let one = 1_u64.to_ne_bytes();
        // SAFETY: the pointer and the length are those of `one`. The write cannot fail in a way
        // that matters: a full counter wakes the core as well.
        unsafe { libc::write(eventfd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the locks guard is whole after every statement, panic or not.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
