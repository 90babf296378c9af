//! A device and a policy that keep a list of everything they are given, so that a test can see that
//! nothing a host said was lost on the way.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use flashyard_block::{Device, Info, Io, IoFuture, SharedDevice, Tag, Zero};
use flashyard_runtime::Rt;
use flashyard_sched::{self as sched, Fifo, IoId, Next, Outcome, Policy, TenantId, Window};
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
    /// Others that were in flight when it came.
    pub(crate) beside: usize,
}

/// How often the policy is asked for an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    First,
    Again,
}

/// What was given to the device and to the policy before it.
pub(crate) struct Notes {
    given: RefCell<Vec<Given>>,
    asked: RefCell<Vec<(sched::Ask, Asked)>>,
    /// Whose I/Os are at the device.
    in_flight: RefCell<Vec<TenantId>>,
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
            in_flight: RefCell::default(),
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
    pub(crate) fn take_asked(&self, tenant: TenantId) -> Vec<(sched::Ask, Asked)> {
        let asked = self.asked.take().into_iter();
        asked
            .filter(|(io, _)| io.tenant == tenant)
            .map(|(io, asked)| (sched::Ask { id: IoId(0), ..io }, asked))
            .collect()
    }

    /// Whether an I/O of `tenant` is at the device.
    pub(crate) fn has_in_flight(&self, tenant: TenantId) -> bool {
        self.in_flight.borrow().contains(&tenant)
    }
}

/// The device: does everything on another one, and keeps notes.
pub(crate) struct Recorder {
    pub(crate) rt: Rt,
    pub(crate) inner: SharedDevice,
    pub(crate) notes: Rc<Notes>,
}

impl Did {
    fn of(io: &Io, block_size: u32) -> Self {
        let (lba, blocks) = (io.lba(), io.blocks(block_size).expect("whole blocks"));
        match io {
            Io::Read { .. } => Self::Read(lba, blocks),
            Io::Write { fua, .. } => Self::Write {
                lba,
                blocks,
                fua: *fua,
            },
            Io::Flush => Self::Flush,
            Io::Zero {
                how: Zero::Write { deallocate },
                ..
            } => Self::Zero {
                lba,
                blocks,
                deallocate: *deallocate,
            },
            Io::Zero { .. } => Self::Deallocate(lba, blocks),
            Io::CompareAndWrite(pair) => Self::CompareAndWrite {
                lba,
                blocks,
                fua: pair.fua(),
            },
        }
    }
}

impl Device for Recorder {
    fn info(&self) -> Info {
        Info {
            volatile_cache: self.notes.volatile,
            ..self.inner.info()
        }
    }

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        let did = Did::of(&io, self.inner.info().block_size);
        let beside = self.notes.in_flight.borrow().len();
        let given = Given { did, tag, beside };
        self.notes.given.borrow_mut().push(given);
        let takes = self.notes.takes.get();
        if takes == Duration::ZERO {
            return self.inner.submit(tag, io);
        }
        self.notes.in_flight.borrow_mut().push(tag.tenant);
        let (rt, inner, notes) = (self.rt.clone(), self.inner.clone(), self.notes.clone());
        IoFuture::boxed(async move {
            rt.sleep(takes).await;
            let result = inner.submit(tag, io).await;
            let mut in_flight = notes.in_flight.borrow_mut();
            let at = in_flight.iter().position(|tenant| *tenant == tag.tenant);
            in_flight.swap_remove(at.expect("it was there"));
            result
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
    fn arrive(&mut self, now: Time, io: sched::Ask) {
        self.notes.asked.borrow_mut().push((io, Asked::First));
        self.inner.arrive(now, io);
    }

    fn arrive_again(&mut self, now: Time, io: sched::Ask) {
        self.notes.asked.borrow_mut().push((io, Asked::Again));
        self.inner.arrive_again(now, io);
    }

    fn pass(&mut self, now: Time, io: &sched::Ask) -> bool {
        let passes = self.inner.pass(now, io);
        if passes {
            self.notes.asked.borrow_mut().push((*io, Asked::First));
        }
        passes
    }

    fn next(&mut self, now: Time) -> Next {
        self.inner.next(now)
    }

    fn complete(&mut self, now: Time, io: &sched::Ask, outcome: Outcome) {
        self.inner.complete(now, io, outcome);
    }

    fn cancel(&mut self, now: Time, id: IoId) {
        self.inner.cancel(now, id);
    }
}
