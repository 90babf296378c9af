//! A drive for tests: it does so many I/Os at a time, takes as long for each as it is told, and stops when told. It
//! keeps a list of what it was given.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use flashyard_block::{Device, Info, IoFuture, SharedDevice, Tag, TenantId};
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Buf, Data, Rt};
use flashyard_time::{Duration, Time};

use crate::world::memory;

/// What was given to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) tenant: TenantId,
    pub(crate) write: bool,
    pub(crate) lba: u64,
}

/// A drive in memory. Runs on the core that is its home.
pub(crate) struct Drive {
    inner: SharedDevice,
    rt: Rt,
    dial: Rc<Dial>,
}

/// What a test sees and turns.
pub(crate) struct Dial {
    latency: Cell<Duration>,
    /// When each of those who work is free again.
    free: RefCell<Vec<Time>>,
    stopped: Cell<bool>,
    resumed: Notify,
    pub(crate) given: RefCell<Vec<Given>>,
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

impl Drive {
    /// A drive that does `parallel` I/Os at a time.
    pub(crate) fn of(rt: &Rt, parallel: usize, latency: Duration) -> (SharedDevice, Rc<Dial>) {
        let dial = Rc::new(Dial {
            latency: Cell::new(latency),
            free: RefCell::new(vec![Time::ZERO; parallel]),
            stopped: Cell::new(false),
            resumed: Notify::new(),
            given: RefCell::default(),
        });
        let drive = Self {
            inner: memory(32 << 20),
            rt: rt.clone(),
            dial: dial.clone(),
        };
        (Rc::new(drive), dial)
    }

    fn work<T: Unpin + 'static>(
        &self,
        given: Given,
        act: impl FnOnce(SharedDevice) -> IoFuture<T> + 'static,
    ) -> IoFuture<T> {
        self.dial.given.borrow_mut().push(given);
        let (inner, rt, dial) = (self.inner.clone(), self.rt.clone(), self.dial.clone());
        let end = dial.end(rt.now());
        IoFuture::boxed(async move {
            rt.sleep_until(end).await;
            while dial.stopped.get() {
                dial.resumed.notified().await;
            }
            act(inner).await
        })
    }
}

impl Device for Drive {
    fn info(&self) -> Info {
        self.inner.info()
    }

    fn read(&self, tag: Tag, lba: u64, buf: Buf) -> IoFuture<Data> {
        let given = Given {
            tenant: tag.tenant,
            write: false,
            lba,
        };
        self.work(given, move |inner| inner.read(tag, lba, buf))
    }

    fn write(&self, tag: Tag, lba: u64, buf: Buf, fua: bool) -> IoFuture<()> {
        let given = Given {
            tenant: tag.tenant,
            write: true,
            lba,
        };
        self.work(given, move |inner| inner.write(tag, lba, buf, fua))
    }

    fn flush(&self, tag: Tag) -> IoFuture<()> {
        self.inner.flush(tag)
    }

    fn write_zeroes(&self, tag: Tag, lba: u64, blocks: u64, deallocate: bool) -> IoFuture<()> {
        self.inner.write_zeroes(tag, lba, blocks, deallocate)
    }

    fn deallocate(&self, tag: Tag, lba: u64, blocks: u64) -> IoFuture<()> {
        self.inner.deallocate(tag, lba, blocks)
    }

    fn compare_and_write(
        &self,
        tag: Tag,
        lba: u64,
        compare: Buf,
        write: Buf,
        fua: bool,
    ) -> IoFuture<()> {
        self.inner.compare_and_write(tag, lba, compare, write, fua)
    }
}
