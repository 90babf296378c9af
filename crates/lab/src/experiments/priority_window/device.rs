//! A device that keeps nothing and takes its time: as long as a fast drive for each I/O, however many there are.

use std::cell::RefCell;
use std::rc::Rc;

use flashyard_block::{Device, Info, IoFuture, NullDevice, Tag};
use flashyard_runtime::sim::Weather;
use flashyard_runtime::{Buf, Data, Rt};
use flashyard_time::{Duration, Rng};

/// Least time of an I/O, and by how much it can be longer: a `dct983` takes 85 us for a read.
const LEAST: Duration = Duration::from_us(60);
const SPREAD_NS: u64 = 40_000;

/// See the module.
pub(super) struct Distant {
    inner: Rc<NullDevice>,
    rt: Rt,
    weather: Weather,
    work: Duration,
    rng: RefCell<Rng>,
}

impl Distant {
    /// A device of `bytes` bytes; every read and write costs the target's core `work` besides.
    pub(super) fn new(
        block: u32,
        bytes: u64,
        rt: Rt,
        weather: Weather,
        work: Duration,
        seed: u64,
    ) -> Self {
        let inner = NullDevice::new(block, bytes).expect("a good size");
        Self {
            inner: Rc::new(inner),
            rt,
            weather,
            work,
            rng: RefCell::new(Rng::new(seed).split(0xD157)),
        }
    }

    fn later<T>(&self, done: impl FnOnce(&NullDevice) -> IoFuture<T> + 'static) -> IoFuture<T> {
        self.weather.spend(self.work);
        let more = Duration::from_ns(self.rng.borrow_mut().below(SPREAD_NS));
        let (rt, inner) = (self.rt.clone(), Rc::clone(&self.inner));
        IoFuture::boxed(async move {
            rt.sleep(LEAST + more).await;
            done(&inner).await
        })
    }
}

impl Device for Distant {
    fn info(&self) -> Info {
        self.inner.info()
    }

    fn read(&self, tag: Tag, lba: u64, buf: Buf) -> IoFuture<Data> {
        self.later(move |inner| inner.read(tag, lba, buf))
    }

    fn write(&self, tag: Tag, lba: u64, buf: Buf, fua: bool) -> IoFuture<()> {
        self.later(move |inner| inner.write(tag, lba, buf, fua))
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
