//! Descriptors that are not sockets or files of a driver: the core waits for them, and whoever has
//! them calls the system.
//!
//! Simulated machines have real ones, both ends of which are in their thread: what the system says
//! of them follows from what was done before, by seed like everything else, and takes no time of
//! theirs. There is no notice when one is ready; whoever waits tries again whenever anything was
//! done with any of them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use crate::done::{something_done, until_something_done};
use crate::executor::Core;
use crate::flight::Flight;
use crate::op::Operation;
use crate::remains::{Held, Remains};

/// A descriptor and the core that waits for it.
pub(crate) struct Descriptor {
    core: Rc<Core>,
    fd: Rc<Held>,
}

impl Descriptor {
    /// Takes a descriptor over.
    pub(crate) fn new(core: &Rc<Core>, fd: OwnedFd) -> Self {
        Self::held(core, Held::new(fd, None))
    }

    /// The same for one that may bring more of a peer's with it: it is closed with its remains.
    pub(crate) fn leaving(core: &Rc<Core>, fd: OwnedFd, remains: &Remains) -> Self {
        // A thread has no place in a simulated machine, nor have peers that hold it up.
        let remains = (!core.is_simulated()).then(|| remains.clone());
        Self::held(core, Held::new(fd, remains))
    }

    fn held(core: &Rc<Core>, fd: Held) -> Self {
        Self {
            core: core.clone(),
            fd: Rc::new(fd),
        }
    }

    /// Waits until it can be read from, or written to; or is at its end, which the next call tells.
    pub(crate) async fn ready(&self, write: bool) -> io::Result<()> {
        if self.core.is_simulated() {
            until_something_done().await;
            return Ok(());
        }
        let fd = self.fd.clone();
        let (_, result) = Flight::start(&self.core, Operation::Ready { fd, write }).await;
        result.map(drop)
    }

    /// Begins to add 1 to an event counter, with what else the core submits in this turn; nothing
    /// if it is done already.
    pub(crate) fn signal(&self) -> Option<Flight> {
        let (fd, one) = (self.fd.clone(), 1u64.to_ne_bytes());
        if self.core.is_simulated() {
            // A full one wakes whoever waits for it as well.
            let _ = rustix::io::write((*fd).as_fd(), &one);
            something_done();
            return None;
        }
        Some(Flight::start(&self.core, Operation::Signal { fd, one }))
    }

    /// Repeats `call`, waiting before each repetition, while the system says that it would block.
    pub(crate) async fn when_ready<T>(
        &self,
        write: bool,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match call((*self.fd).as_fd()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.ready(write).await?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => {
                    if self.core.is_simulated() {
                        something_done();
                    }
                    return result;
                }
            }
        }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (*self.fd).as_fd()
    }
}
