//! What a queue has done, counted by the one task that does it and read by anybody: plain loads and
//! stores on the path of an I/O, no locked instruction.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Counters;

/// The counters of one queue. Only the core that serves the queue writes.
#[derive(Debug, Default)]
pub(crate) struct QueueCounters {
    reads: AtomicU64,
    writes: AtomicU64,
    others: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    errors: AtomicU64,
    media_errors: AtomicU64,
}

impl QueueCounters {
    /// A read or compare of `bytes`.
    #[inline]
    pub(crate) fn on_read(&self, bytes: u64) {
        add(&self.reads, 1);
        add(&self.bytes_read, bytes);
    }

    /// A write of `bytes`.
    #[inline]
    pub(crate) fn on_write(&self, bytes: u64) {
        add(&self.writes, 1);
        add(&self.bytes_written, bytes);
    }

    /// Any other I/O command.
    pub(crate) fn on_other(&self) {
        add(&self.others, 1);
    }

    /// An I/O command that failed.
    pub(crate) fn on_error(&self, of_medium: bool) {
        add(&self.errors, 1);
        add(&self.media_errors, u64::from(of_medium));
    }

    /// The sums so far.
    pub(crate) fn read(&self) -> Counters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            reads: get(&self.reads),
            writes: get(&self.writes),
            others: get(&self.others),
            bytes_read: get(&self.bytes_read),
            bytes_written: get(&self.bytes_written),
            errors: get(&self.errors),
            media_errors: get(&self.media_errors),
            unsafe_shutdowns: 0,
        }
    }
}

#[inline]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(n),
        Ordering::Relaxed,
    );
}
