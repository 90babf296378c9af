//! An I/O that is looked at, from the device's end until its answer has gone. It is booked where
//! its device is at home.

use std::rc::Rc;

use crate::core::Core;
use crate::forwarding::{self, Route};
use crate::ledger::{Past, Record};
use crate::tcp::Namespace;

/// An I/O whose answer is on its way. When dropped, that has gone, or will never go, and the I/O is
/// booked.
pub(crate) struct Sample {
    core: Rc<Core>,
    namespace: Rc<Namespace>,
    record: Box<Record>,
}

impl Sample {
    /// An I/O of `core` to this namespace.
    pub(crate) fn new(
        core: &Rc<Core>,
        namespace: &Rc<Namespace>,
        past: Past,
        mut record: Box<Record>,
    ) -> Self {
        record.spans.past = past;
        Self {
            core: core.clone(),
            namespace: namespace.clone(),
            record,
        }
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        self.record.spans.sent = self.core.rt().turn_time();
        match &self.namespace.route {
            Route::Here(port) => port.book(&self.record),
            Route::There { core, device } => {
                forwarding::book(&self.core, *core, *device, *self.record);
            }
            Route::Nowhere => {}
        }
    }
}
