//! Who is connected to the control socket. There is a bound, and whoever asks nothing gives way:
//! the connection that has been without a request for longest is closed for a new one, so idle
//! clients and half requests keep nobody out.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All connections.
#[derive(Clone, Default)]
pub(super) struct Seats(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    next: u64,
    /// Those without a request, by when they began to be.
    idle: BTreeMap<u64, Arc<UnixStream>>,
    at_work: usize,
}

/// A connection's place, until it is dropped.
pub(super) struct Seat {
    seats: Seats,
    stream: Arc<UnixStream>,
    /// Under which it stands among those without a request.
    since: u64,
}

/// A request at work.
pub(super) struct Work<'a>(&'a mut Seat);

impl Seats {
    /// Connections at once.
    pub(super) const MOST: usize = 64;

    /// A place for a new connection; `None` when every place has a request at work.
    pub(super) fn take(&self, stream: &Arc<UnixStream>) -> Option<Seat> {
        let mut table = self.lock();
        if table.at_work + table.idle.len() >= Self::MOST {
            let (_, oldest) = table.idle.pop_first()?;
            // Its thread sees the end. That it has gone already is as good.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        let since = table.add_idle(stream);
        Some(Seat {
            seats: self.clone(),
            stream: Arc::clone(stream),
            since,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn add_idle(&mut self, stream: &Arc<UnixStream>) -> u64 {
        self.next += 1;
        self.idle.insert(self.next, Arc::clone(stream));
        self.next
    }
}

impl Seat {
    /// A whole request has come; `None` if the connection has given way to another.
    pub(super) fn begin(&mut self) -> Option<Work<'_>> {
        let mut table = self.seats.lock();
        table.idle.remove(&self.since)?;
        table.at_work += 1;
        drop(table);
        Some(Work(self))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.lock().idle.remove(&self.since);
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        let mut table = self.0.seats.lock();
        table.at_work -= 1;
        let since = table.add_idle(&self.0.stream);
        drop(table);
        self.0.since = since;
    }
}
