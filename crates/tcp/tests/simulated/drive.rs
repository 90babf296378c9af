//! A drive for tests: it does so many I/Os at a time, takes as long for each as it is set to, and
//! stops on request. It keeps a list of what it was given.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use flashyard_block::{SharedDevice, Tag};
use flashyard_runtime::Rt;
use flashyard_runtime::sync::Notify;
use flashyard_testbed::{Paced, memory};
use flashyard_time::{Duration, Time};

/// What a test sees and turns.
pub(crate) struct Dial {
    latency: Cell<Duration>,
    /// When each of those who work is free again.
    free: RefCell<Vec<Time>>,
    stopped: Cell<bool>,
    resumed: Notify,
    pub(crate) given: RefCell<Vec<Tag>>,
}

impl Dial {
    /// From now on each I/O takes so long.
    pub(crate) fn set_latency(&self, latency: Duration) {
        self.latency.set(latency);
    }

    /// Nothing is answered any more.
    pub(crate) fn stop(&self) {
        self.stopped.set(true);
    }

    /// What is due is answered.
    pub(crate) fn resume(&self) {
        self.stopped.set(false);
        self.resumed.notify_all();
    }

    /// When an I/O that comes now is done.
    fn end(&self, now: Time) -> Time {
        let mut free = self.free.borrow_mut();
        let next = free.iter_mut().min().expect("somebody works");
        *next = now.max(*next) + self.latency.get();
        *next
    }
}

/// A drive in memory, on the core that is its home, which does `parallel` I/Os at a time.
pub(crate) fn drive(rt: &Rt, parallel: usize, latency: Duration) -> (SharedDevice, Rc<Dial>) {
    let dial = Rc::new(Dial {
        latency: Cell::new(latency),
        free: RefCell::new(vec![Time::ZERO; parallel]),
        stopped: Cell::new(false),
        resumed: Notify::new(),
        given: RefCell::default(),
    });
    let (rt, turned) = (rt.clone(), dial.clone());
    let pace = move |tag, _: &_| {
        let (rt, dial) = (rt.clone(), turned.clone());
        dial.given.borrow_mut().push(tag);
        let end = dial.end(rt.now());
        async move {
            rt.sleep_until(end).await;
            while dial.stopped.get() {
                dial.resumed.notified().await;
            }
        }
    };
    (Rc::new(Paced::new(memory(32 << 20), pace)), dial)
}
