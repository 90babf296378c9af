//! Who is connected to the API. There is a bound, and whoever asks nothing gives way: the
//! connection that has been without a request for longest is closed for a new one, so idle clients
//! and half requests keep nobody out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// All connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// Those without a request, by when they began to be.
    idle: BTreeMap<u64, Idle>,
    at_work: usize,
    /// Whoever has no request any more goes.
    closed: bool,
    /// How often all have had to come again.
    renewed: u64,
}

/// Closes its connection when it is dropped.
type Idle = oneshot::Sender<()>;

/// A connection's place, until it is dropped.
#[derive(Clone)]
pub(super) struct Slot(Arc<Inner>);

struct Inner {
    slots: Slots,
    /// Under which it stands among those without a request.
    since: Mutex<u64>,
}

/// A request at work.
pub(super) struct Work {
    slot: Slot,
    idle: Option<Idle>,
    /// Its connection is from after so many renewals.
    renewed: u64,
}

impl Slots {
    /// Connections at once.
    pub(super) const MOST: usize = 64;

    /// A place for a new connection, and what ends when it is to give way; `None` when every place
    /// has a request at work.
    pub(super) fn take(&self) -> Option<(Slot, oneshot::Receiver<()>)> {
        let mut table = self.lock();
        if table.at_work + table.idle.len() >= Self::MOST {
            table.idle.pop_first()?;
        }
        let (idle, given_up) = oneshot::channel();
        let inner = Inner {
            slots: self.clone(),
            since: Mutex::new(table.add(idle)),
        };
        Some((Slot(Arc::new(inner)), given_up))
    }

    /// Those without a request go, and those with one when it has ended.
    pub(super) fn close(&self) {
        let mut table = self.lock();
        table.closed = true;
        table.idle.clear();
    }

    /// The same for those who are here now; others come in their place.
    pub(super) fn renew(&self) {
        let mut table = self.lock();
        table.renewed += 1;
        table.idle.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn add(&mut self, idle: Idle) -> u64 {
        self.next += 1;
        self.idle.insert(self.next, idle);
        self.next
    }
}

impl Slot {
    /// A whole request has come; `None` if the connection has given way to another.
    pub(super) fn begin(&self) -> Option<Work> {
        let mut table = self.0.slots.lock();
        let idle = table.idle.remove(&self.0.lock())?;
        table.at_work += 1;
        let slot = self.clone();
        Some(Work {
            slot,
            idle: Some(idle),
            renewed: table.renewed,
        })
    }
}

impl Work {
    /// Whether its connection is to come again.
    pub(super) fn is_outdated(&self) -> bool {
        self.slot.0.slots.lock().renewed != self.renewed
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let since = *self.lock();
        self.slots.lock().idle.remove(&since);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let inner = &self.slot.0;
        let mut table = inner.slots.lock();
        table.at_work -= 1;
        let may_stay = !table.closed && table.renewed == self.renewed;
        if let Some(idle) = self.idle.take().filter(|_| may_stay) {
            *inner.lock() = table.add(idle);
        }
    }
}
