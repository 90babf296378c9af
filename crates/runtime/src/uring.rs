//! The real machine: one io_uring per core. `ring` is the driver; `request` and `verdict` translate
//! operations to what the kernel takes and what it says back; `chunks` is the memory it receives
//! into; `sockets`, `storage` and `zones` are what is asked of the system outside of the ring;
//! `enter` is the one system call of a turn; `polling` decides between polling and sleep.

mod chunks;
mod eager;
mod enter;
mod polling;
mod request;
mod ring;
mod sockets;
mod storage;
mod verdict;
mod zones;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use flashyard_time::{Duration, Time};

use crate::driver::{Driver, Wait};
use crate::executor::Core;
use crate::wake::Registration;
use crate::{Rt, Task, memory};

pub(crate) use ring::Uring;

use polling::{Awaited, Polling};

/// Settings of one core.
#[derive(Clone, Debug)]
pub struct Config {
    /// Core number given to [`Rt::core`].
    pub core: usize,
    /// Pin the thread to this processor.
    pub processor: Option<usize>,
    /// How long to poll at most for what comes next before sleeping; only where it mostly comes so
    /// soon.
    pub poll: Duration,
    /// Bound of the buffer pool of this core, in bytes: of what is in use, and of the memory that
    /// the pool takes.
    pub buffer_bytes: usize,
    /// Receive ring: number of 16 KiB chunks (1 to 32768).
    pub chunks: u16,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            core: 0,
            processor: None,
            poll: Duration::from_us(60),
            buffer_bytes: 256 << 20,
            chunks: 128,
        }
    }
}

/// Runs `main` on this thread until it ends; its tasks are dropped then and their operations waited
/// for.
///
/// # Errors
/// When the kernel has no io_uring to give, or the processor cannot be had; the text says what to
/// do.
pub fn run<F, M>(config: Config, main: M) -> io::Result<F::Output>
where
    M: FnOnce(Rt) -> F,
    F: Future + 'static,
{
    if let Some(processor) = config.processor {
        pin_thread(processor)?;
    }
    let (registration, remote) = Registration::new();
    let uring = Uring::new(config.chunks, remote)?;
    memory::set_bound(config.buffer_bytes);
    let core = Core::new(config.core, registration, Driver::Uring(Box::new(uring)));
    let end = End(core.clone());
    let mut task = Task::spawn(core.queue().clone(), main(Rt { core: core.clone() }));
    turn_until_finished(&core, config.poll, &task);
    let polled = Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(result) = polled else {
        unreachable!("the task has just ended")
    };
    drop(end);
    Ok(result)
}

/// How long before a precise timer the core is up: longer than the kernel usually takes to wake a
/// sleeper.
const PRECISE_LEAD: Duration = Duration::from_us(60);

/// Turns until the task has ended; without work the core polls or sleeps, as [`Polling`] decides.
/// Before a precise timer it is awake in any case.
fn turn_until_finished<T>(core: &Core, poll: Duration, task: &Task<T>) {
    let mut polling = Polling::new(poll, core.turn_time());
    loop {
        let turn = core.turn();
        if task.is_finished() {
            return;
        }
        let now = core.turn_time();
        if turn.worked {
            polling.worked(now, turn.from_outside);
        }
        core.flush(if core.has_work() {
            Wait::No
        } else {
            let precise = core.next_precise_timer();
            let up_from = precise.map_or(Time::MAX, |deadline| deadline - PRECISE_LEAD);
            if !polling.polls(now, awaited(core), up_from) {
                let timer = core.next_timer().unwrap_or(Time::MAX);
                Wait::Until(timer.min(up_from).min(core.watches().rest(now)))
            } else if core.watches().is_empty() {
                Wait::Spin
            } else {
                // The turn itself looks, and at more than the rings.
                Wait::No
            }
        });
    }
}

/// What a core without work waits for. The end of an emulated I/O is a precise timer.
fn awaited(core: &Core) -> Awaited {
    if core.with_devices() > 0 || core.next_precise_timer().is_some() {
        Awaited::Device
    } else {
        Awaited::Hosts
    }
}

/// Ends a core, also when a task panics: no operation is left with the kernel when memory is freed.
struct End(Rc<Core>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.shut_down();
        while self.0.in_flight() > 0 {
            self.0.flush(Wait::Until(Time::MAX));
            self.0.drain();
        }
    }
}

/// Binds the calling thread to one processor.
fn pin_thread(processor: usize) -> io::Result<()> {
    let refused = |error: io::Error| {
        let text =
            format!("cannot run on processor {processor}: {error}; choose one that `nproc` counts");
        io::Error::new(error.kind(), text)
    };
    if processor >= libc::CPU_SETSIZE as usize {
        return Err(refused(io::ErrorKind::InvalidInput.into()));
    }
    // SAFETY: all zeroes is an empty set, `processor` is within the set, and the set outlives the
    // call.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(refused(io::Error::last_os_error()))
    }
}
