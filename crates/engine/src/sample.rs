//! A sampled I/O from the device's end until its answer has gone. The ledger of its device's home
//! core records it then.

use std::rc::Rc;

use crate::core::Core;
use crate::exec::Namespace;
use crate::forwarding::Route;
use crate::ledger::{Past, Sample};

/// A sample whose answer is on its way. When dropped, that has gone, or will never go, and the
/// sample is recorded.
pub struct PendingSample {
    core: Rc<Core>,
    namespace: Rc<Namespace>,
    sample: Box<Sample>,
}

impl PendingSample {
    /// An I/O of `core` to this namespace.
    pub(crate) fn new(
        core: &Rc<Core>,
        namespace: &Rc<Namespace>,
        past: Past,
        mut sample: Box<Sample>,
    ) -> Self {
        sample.spans.past = past;
        Self {
            core: core.clone(),
            namespace: namespace.clone(),
            sample,
        }
    }
}

impl Drop for PendingSample {
    fn drop(&mut self) {
        self.sample.spans.sent = self.core.rt().turn_time();
        match &self.namespace.route {
            Route::Here(port) => port.record(&self.sample),
            Route::There { core, device } => {
                self.core.forwarding().record(*core, *device, *self.sample);
            }
            Route::Nowhere => {}
        }
    }
}
