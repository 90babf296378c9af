//! What a flush proves. Flushes of one device are shared: a flush that comes while one is running
//! waits for the next, which then serves all that wait. A flush that failed is not forgotten: the
//! kernel reports lost writes once and then calls the pages clean, so a later flush would "succeed"
//! without them. After the first failure the device takes no more writes and every flush fails,
//! until it is opened again.

use std::cell::Cell;

use flashyard_runtime::sync::Notify;

use crate::IoError;

/// The state of a device's durability.
#[derive(Default)]
pub(crate) struct Durability {
    broken: Cell<bool>,
    running: Cell<bool>,
    started: Cell<u64>,
    /// The last flush that ended well.
    proved: Cell<u64>,
    ended: Notify,
}

/// How a caller's flush is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// By issuing it.
    Lead,
    /// It has been done by another.
    Served,
}

impl Durability {
    /// Refuses writes and flushes once a promise was broken ([`IoError::Write`]).
    #[inline]
    pub(crate) fn check(&self) -> Result<(), IoError> {
        if self.broken.get() {
            Err(IoError::Write)
        } else {
            Ok(())
        }
    }

    /// Counts writes that were finished and not flushed as lost.
    pub(crate) fn give_up(&self) {
        self.broken.set(true);
    }

    /// Whether a flush may be issued right now; it is then the caller's to issue.
    pub(crate) fn try_lead(&self) -> bool {
        let free = !self.running.get();
        if free {
            self.running.set(true);
            self.started.set(self.started.get() + 1);
        }
        free
    }

    /// Waits until a flush that started after this call has ended, or until the caller may issue
    /// it.
    pub(crate) async fn join(&self) -> Result<Turn, IoError> {
        let needed = self.started.get() + 1;
        loop {
            self.check()?;
            if self.proved.get() >= needed {
                return Ok(Turn::Served);
            }
            if self.try_lead() {
                return Ok(Turn::Lead);
            }
            self.ended.notified().await;
        }
    }

    /// What may be reported of a durable write's result.
    pub(crate) fn judge_write<T>(&self, result: Result<T, IoError>) -> Result<T, IoError> {
        let harmless = matches!(
            result,
            // Refused before anything was written, or no space for this write only.
            Err(IoError::OutOfRange
                | IoError::WriteProtected
                | IoError::NoSpace
                | IoError::Busy
                | IoError::Aborted)
        );
        if result.is_err() && !harmless {
            self.broken.set(true);
        }
        result.and_then(|value| self.check().map(|()| value))
    }

    /// What may be reported of a flush's result. No failure of it is harmless.
    pub(crate) fn judge_flush<T>(&self, result: Result<T, IoError>) -> Result<T, IoError> {
        match result {
            Ok(_) => self.proved.set(self.started.get()),
            Err(_) => self.broken.set(true),
        }
        result.and_then(|value| self.check().map(|()| value))
    }

    /// The running flush is over, judged or not.
    pub(crate) fn flush_ended(&self) {
        self.running.set(false);
        self.ended.notify_all();
    }
}
