//! Descriptors that are not sockets or files of a driver: the core waits for them, and whoever has
//! them calls the system. The simulated world has none.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use crate::executor::Core;
use crate::flight::Flight;
use crate::op::Operation;

/// A descriptor and the core that waits for it.
pub(crate) struct Descriptor {
    core: Rc<Core>,
    fd: Rc<OwnedFd>,
}

impl Descriptor {
    /// Takes a descriptor over.
    ///
    /// # Errors
    /// Unsupported, in the simulated world.
    pub(crate) fn new(core: &Rc<Core>, fd: OwnedFd) -> io::Result<Self> {
        if core.is_simulated() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self {
            core: core.clone(),
            fd: Rc::new(fd),
        })
    }

    /// Waits until it can be read from, or written to; or is at its end, which the next call tells.
    pub(crate) async fn ready(&self, write: bool) -> io::Result<()> {
        let fd = self.fd.clone();
        let (_, result) = Flight::start(&self.core, Operation::Ready { fd, write }).await;
        result.map(drop)
    }

    /// Begins to add 1 to an event counter, with what else the core submits in this turn.
    pub(crate) fn signal(&self) -> Flight {
        let (fd, one) = (self.fd.clone(), 1u64.to_ne_bytes());
        Flight::start(&self.core, Operation::Signal { fd, one })
    }

    /// Repeats `call`, waiting before each repetition, while the system says that it would block.
    pub(crate) async fn when_ready<T>(
        &self,
        write: bool,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match call(self.fd.as_fd()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.ready(write).await?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
