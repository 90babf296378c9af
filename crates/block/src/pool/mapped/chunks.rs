//! Which chunks of a volume are being written. A write of a part of a chunk reads it, merges, and
//! writes all of it; so it has the chunk for itself meanwhile, and writes of whole chunks do, too.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use flashyard_runtime::sync::Notify;

/// See the module. Who comes first goes first.
#[derive(Default)]
pub(super) struct Chunks {
    /// Who has chunks or waits for them, in the order of coming.
    taken: RefCell<BTreeMap<u64, Range<u64>>>,
    next: Cell<u64>,
    changed: Notify,
}

/// Chunks that somebody has, or waits for; given back when this is dropped.
pub(super) struct Taken {
    all: Rc<Chunks>,
    number: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.all.taken.borrow_mut().remove(&self.number);
        self.all.changed.notify_all();
    }
}

impl Chunks {
    /// Waits until no earlier I/O has any of these chunks.
    pub async fn take(self: &Rc<Self>, chunks: Range<u64>) -> Taken {
        let number = self.next.get();
        self.next.set(number + 1);
        self.taken.borrow_mut().insert(number, chunks.clone());
        let taken = Taken {
            all: self.clone(),
            number,
        };
        while self.is_barred(number, &chunks) {
            self.changed.notified().await;
        }
        taken
    }

    fn is_barred(&self, number: u64, chunks: &Range<u64>) -> bool {
        let taken = self.taken.borrow();
        let overlaps = |other: &Range<u64>| other.start < chunks.end && chunks.start < other.end;
        taken.range(..number).any(|(_, other)| overlaps(other))
    }
}
