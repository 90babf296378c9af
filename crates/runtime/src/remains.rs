//! The end of what other processes have given. How long that takes is theirs to say: the last
//! holder of a socket waits while it lingers, that of a file of a file system in user space for its
//! program, and that of memory until all of its pages are free. A core must not, so it leaves such
//! things to a thread.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::done::something_done;

/// How long the thread waits for more before it ends.
const IDLE: Duration = Duration::from_secs(1);
/// What is left by one peer at most before nothing more is taken from it.
const MOST: usize = 64;

/// Things of one peer that have to end, one after the other: who makes this slow waits for itself.
#[derive(Clone, Default)]
pub(crate) struct Remains(Arc<Shared>);

#[derive(Default)]
struct Shared {
    heap: Mutex<Heap>,
    more: Condvar,
}

#[derive(Default)]
struct Heap {
    things: VecDeque<Box<dyn Send>>,
    /// Those of them that have not ended yet, and the one that is ending.
    left: usize,
    /// There is a thread.
    attended: bool,
}

impl Remains {
    /// Has a thing dropped by the thread.
    pub(crate) fn leave(&self, thing: impl Send + 'static) {
        let mut heap = self.lock();
        heap.things.push_back(Box::new(thing));
        heap.left += 1;
        self.see_to(&mut heap);
    }

    /// Whether so much is left that nothing more should be taken. Who waits for that asks again: if
    /// there was no thread to be had, one is tried to be had then.
    pub(crate) fn are_too_many(&self) -> bool {
        let mut heap = self.lock();
        if heap.left > MOST && !heap.attended {
            self.see_to(&mut heap);
        }
        heap.left > MOST
    }

    /// Has a thread see to what is left.
    fn see_to(&self, heap: &mut Heap) {
        if heap.attended {
            self.0.more.notify_one();
            return;
        }
        let this = self.clone();
        heap.attended = spawn(move || this.attend()).is_ok();
    }

    fn attend(&self) {
        loop {
            let heap = self.lock();
            let waited = self
                .0
                .more
                .wait_timeout_while(heap, IDLE, |heap| heap.things.is_empty());
            let (mut heap, _) = waited.unwrap_or_else(PoisonError::into_inner);
            let Some(thing) = heap.things.pop_front() else {
                heap.attended = false;
                return;
            };
            drop(heap);
            drop(thing);
            self.lock().left -= 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Heap> {
        let heap = self.0.heap.lock();
        heap.unwrap_or_else(PoisonError::into_inner)
    }
}

fn spawn(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    #[cfg(test)]
    if tests::NO_THREADS.get() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let thread = thread::Builder::new().name("remains".into());
    thread.spawn(run).map(drop)
}

/// A descriptor that is closed by the thread of a peer's remains, or at once if closing it takes no
/// time.
pub(crate) struct Held {
    /// Until it is dropped.
    fd: Option<OwnedFd>,
    remains: Option<Remains>,
}

impl Held {
    pub(crate) fn new(fd: OwnedFd, remains: Option<Remains>) -> Self {
        let fd = Some(fd);
        Self { fd, remains }
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let fd = self.fd.as_ref();
        fd.expect("it is there until it is dropped").as_fd()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        match (self.fd.take(), &self.remains) {
            (Some(fd), Some(remains)) => remains.leave(fd),
            (fd, _) => {
                drop(fd);
                something_done();
            }
        }
    }
}

/// Descriptors that a message has brought. Those that are not taken are closed by the thread.
pub struct Descriptors {
    fds: Vec<OwnedFd>,
    remains: Remains,
}

impl Descriptors {
    pub(crate) fn new(fds: Vec<OwnedFd>, remains: &Remains) -> Self {
        let remains = remains.clone();
        Self { fds, remains }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.fds.len()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.fds.is_empty()
    }

    /// All of them, in their order.
    pub fn as_slice(&self) -> &[OwnedFd] {
        &self.fds
    }

    /// Takes all of them: closing them is the taker's.
    pub fn take(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.fds)
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        for fd in self.take() {
            self.remains.leave(fd);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// The system has no threads left.
        pub(super) static NO_THREADS: Cell<bool> = const { Cell::new(false) };
    }

    /// Who waits until less is left is not left waiting because there was no thread.
    #[test]
    fn what_was_left_without_a_thread_ends_when_there_is_one() {
        let remains = Remains::default();
        NO_THREADS.set(true);
        for _ in 0..=MOST {
            remains.leave(());
        }
        assert!(remains.are_too_many() && remains.are_too_many());
        NO_THREADS.set(false);
        for _ in 0..10_000 {
            if !remains.are_too_many() {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("nobody sees to it");
    }
}
