//! Scrubs of a mapped pool: everything is read and verified in the background.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use flashyard_logstore::format::BLOCK;
use flashyard_logstore::{Refused, Store, Tag as StoreTag};
use flashyard_sched::{Class, Op};

use super::engine::{Asked, Engine};
use super::{MappedPool, failed};
use crate::pool::error::PoolError;
use crate::pool::facts::Scrub;
use crate::turns::Taken;
use crate::{Step, SystemWork};

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

impl Engine {
    /// The turn of a read of a scrub, of all copies; nothing when the engine is stopped. Writes
    /// that wait for room may wait for the segment that is read: while there are such it takes
    /// none.
    pub(super) async fn scrub_turn(&self, tag: StoreTag) -> Option<Taken> {
        let step = self.scrub_step(tag);
        let mut turn = pin!(self.queue.take(step));
        loop {
            if self.store.borrow().is_starved() {
                return Some(Taken::default());
            }
            let mut changed = pin!(self.changed.notified());
            let taken = poll_fn(|context| match turn.as_mut().poll(context) {
                Poll::Ready(turn) => Poll::Ready(Some(turn)),
                Poll::Pending => changed.as_mut().poll(context).map(|()| None),
            });
            if let Some(turn) = taken.await {
                return turn;
            }
        }
    }

    fn scrub_step(&self, tag: StoreTag) -> Step {
        let (store, scale) = (
            self.store.borrow(),
            u64::from(self.device.info().block_size),
        );
        let io = store.io(tag);
        let lba = io.block * BLOCK as u64 / scale;
        let copies = self.device.copies().map_or(1, |copies| copies.stored(lba));
        Step {
            work: SystemWork::Scrub,
            class: Class::Background,
            op: Op::Read,
            bytes: u64::from(io.blocks) * (BLOCK * copies.max(1)) as u64,
            lba,
        }
    }
}
