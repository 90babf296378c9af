//! A device and a policy that keep a list of everything they are told, so that a test can see that
//! nothing a host said was lost on the way.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use flashyard_block::{Device, Info, IoFuture, SharedDevice, Tag};
use flashyard_runtime::{Buf, Data, Rt};
use flashyard_sched::{Fifo, Io, IoId, Next, Outcome, Policy, TenantId, Window};
use flashyard_time::{Duration, Time};

/// An operation with all that it says: first block, number of blocks, and its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Did {
    Read(u64, u64),
    Write {
        lba: u64,
        blocks: u64,
        fua: bool,
    },
    Flush,
    Zero {
        lba: u64,
        blocks: u64,
        deallocate: bool,
    },
    Deallocate(u64, u64),
    CompareAndWrite {
        lba: u64,
        blocks: u64,
        fua: bool,
    },
}

/// An operation as the device got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) did: Did,
    pub(crate) tag: Tag,
    /// Others that were under way when it came.
    pub(crate) beside: usize,
}

/// How often the policy is asked for an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    First,
    Again,
}

/// What was told to the device and to the policy before it.
pub(crate) struct Notes {
    given: RefCell<Vec<Given>>,
    asked: RefCell<Vec<(Io, Asked)>>,
    /// Whose I/Os are at the device.
    under_way: RefCell<Vec<TenantId>>,
    /// What an I/O takes.
    takes: Cell<Duration>,
    /// Whether the device says that it has a volatile cache.
    volatile: bool,
}

impl Notes {
    pub(crate) fn new(volatile: bool) -> Rc<Self> {
        Rc::new(Self {
            given: RefCell::default(),
            asked: RefCell::default(),
            under_way: RefCell::default(),
            takes: Cell::new(Duration::ZERO),
            volatile,
        })
    }

    /// From now on each I/O takes so long; with zero it has ended when the call returns.
    pub(crate) fn set_takes(&self, takes: Duration) {
        self.takes.set(takes);
    }

    /// What the device was given for `tenant` since the last call.
    pub(crate) fn take_given(&self, tenant: TenantId) -> Vec<Given> {
        let given = self.given.take().into_iter();
        given.filter(|given| given.tag.tenant == tenant).collect()
    }

    /// What the policy was asked for `tenant` since the last call, without the names.
    pub(crate) fn take_asked(&self, tenant: TenantId) -> Vec<(Io, Asked)> {
        let asked = self.asked.take().into_iter();
        asked
            .filter(|(io, _)| io.tenant == tenant)
            .map(|(io, asked)| (Io { id: IoId(0), ..io }, asked))
            .collect()
    }

    /// Whether an I/O of `tenant` is at the device.
    pub(crate) fn has_under_way(&self, tenant: TenantId) -> bool {
        self.under_way.borrow().contains(&tenant)
    }
}

/// The device: does everything on another one, and keeps notes.
pub(crate) struct Recorder {
    pub(crate) rt: Rt,
    pub(crate) inner: SharedDevice,
    pub(crate) notes: Rc<Notes>,
}

impl Recorder {
    fn note<T: Unpin + 'static>(
        &self,
        tag: Tag,
        did: Did,
        act: impl FnOnce(&dyn Device) -> IoFuture<T> + 'static,
    ) -> IoFuture<T> {
        let beside = self.notes.under_way.borrow().len();
        let given = Given { did, tag, beside };
        self.notes.given.borrow_mut().push(given);
        let takes = self.notes.takes.get();
        if takes == Duration::ZERO {
            return act(&*self.inner);
        }
        self.notes.under_way.borrow_mut().push(tag.tenant);
        let (rt, inner, notes) = (self.rt.clone(), self.inner.clone(), self.notes.clone());
        IoFuture::boxed(async move {
            rt.sleep(takes).await;
            let result = act(&*inner).await;
            let mut under_way = notes.under_way.borrow_mut();
            let at = under_way.iter().position(|tenant| *tenant == tag.tenant);
            under_way.swap_remove(at.expect("it was there"));
            result
        })
    }

    fn blocks(&self, buf: &Buf) -> u64 {
        buf.len() as u64 / u64::from(self.inner.info().block_size)
    }
}

impl Device for Recorder {
    fn info(&self) -> Info {
        Info {
            volatile_cache: self.notes.volatile,
            ..self.inner.info()
        }
    }

    fn read(&self, tag: Tag, lba: u64, buf: Buf) -> IoFuture<Data> {
        let did = Did::Read(lba, self.blocks(&buf));
        self.note(tag, did, move |inner| inner.read(tag, lba, buf))
    }

    fn write(&self, tag: Tag, lba: u64, buf: Buf, fua: bool) -> IoFuture<()> {
        let blocks = self.blocks(&buf);
        let did = Did::Write { lba, blocks, fua };
        self.note(tag, did, move |inner| inner.write(tag, lba, buf, fua))
    }

    fn flush(&self, tag: Tag) -> IoFuture<()> {
        self.note(tag, Did::Flush, move |inner| inner.flush(tag))
    }

    fn write_zeroes(&self, tag: Tag, lba: u64, blocks: u64, deallocate: bool) -> IoFuture<()> {
        let did = Did::Zero {
            lba,
            blocks,
            deallocate,
        };
        self.note(tag, did, move |inner| {
            inner.write_zeroes(tag, lba, blocks, deallocate)
        })
    }

    fn deallocate(&self, tag: Tag, lba: u64, blocks: u64) -> IoFuture<()> {
        self.note(tag, Did::Deallocate(lba, blocks), move |inner| {
            inner.deallocate(tag, lba, blocks)
        })
    }

    fn compare_and_write(
        &self,
        tag: Tag,
        lba: u64,
        compare: Buf,
        write: Buf,
        fua: bool,
    ) -> IoFuture<()> {
        let blocks = self.blocks(&write);
        let did = Did::CompareAndWrite { lba, blocks, fua };
        self.note(tag, did, move |inner| {
            inner.compare_and_write(tag, lba, compare, write, fua)
        })
    }
}

/// The policy: one I/O at a time, in their order.
pub(crate) struct Listener {
    inner: Fifo,
    notes: Rc<Notes>,
}

impl Listener {
    pub(crate) fn new(notes: &Rc<Notes>) -> Self {
        let window = Window {
            ios: 1,
            bytes: u64::MAX,
        };
        Self {
            inner: Fifo::new(window),
            notes: notes.clone(),
        }
    }
}

impl Policy for Listener {
    fn arrive(&mut self, now: Time, io: Io) {
        self.notes.asked.borrow_mut().push((io, Asked::First));
        self.inner.arrive(now, io);
    }

    fn arrive_again(&mut self, now: Time, io: Io) {
        self.notes.asked.borrow_mut().push((io, Asked::Again));
        self.inner.arrive_again(now, io);
    }

    fn pass(&mut self, now: Time, io: &Io) -> bool {
        let passes = self.inner.pass(now, io);
        if passes {
            self.notes.asked.borrow_mut().push((*io, Asked::First));
        }
        passes
    }

    fn next(&mut self, now: Time) -> Next {
        self.inner.next(now)
    }

    fn complete(&mut self, now: Time, io: &Io, outcome: Outcome) {
        self.inner.complete(now, io, outcome);
    }

    fn cancel(&mut self, now: Time, id: IoId) {
        self.inner.cancel(now, id);
    }
}
