//! Scrubs of a mapped pool: everything is read and verified in the background.

use flashyard_logstore::{Refused, Store};

use super::engine::Asked;
use super::{MappedPool, failed};
use crate::pool::error::PoolError;
use crate::pool::facts::Scrub;

impl MappedPool {
    /// Reads and verifies everything in the background, all copies of it where there are several,
    /// and puts right what differs. Goes on with a scrub that runs.
    pub fn scrub(&self) -> Result<(), PoolError> {
        let engine = self.inner.engine.clone();
        let change = match engine.begin_change(Store::scrub) {
            Ok(((), change)) => change,
            Err(Asked::Refused(Refused::Busy)) => return Ok(()),
            Err(why) => return Err(failed("scrubbing", why)),
        };
        engine.scrub_healed.set(0);
        let scrub = async move {
            // Whoever closes the pool ends it.
            let ended = engine.end_change(change).await;
            let found = engine.store.borrow().scrubbed();
            let whole = found.done == found.of && found.lost == 0;
            if let (Ok(()), true, Some(copies)) = (ended, whole, engine.device.copies()) {
                copies.verified();
            }
        };
        self.inner.rt.spawn(scrub).detach();
        Ok(())
    }

    /// Ends a scrub.
    pub fn stop_scrub(&self) {
        self.inner.engine.store.borrow_mut().stop_scrub();
        self.inner.engine.ring();
    }

    /// The scrub that runs, or the last one.
    pub(super) fn scrubbed(&self) -> Option<Scrub> {
        let store = self.inner.engine.store.borrow();
        let found = store.scrubbed();
        (found.of > 0).then(|| Scrub {
            running: store.is_scrubbing(),
            done: found.done,
            of: found.of,
            repaired: self.inner.engine.scrub_healed.get(),
            unresolved: found.lost,
        })
    }
}
