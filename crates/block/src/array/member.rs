//! A member at work: its device, how it is, what is in flight there, and what went wrong.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use flashyard_runtime::Rt;
use flashyard_runtime::sync::{Notify, Semaphore};
use flashyard_time::Duration;

use super::places;
use super::record::{MemberState, Record, Uuid};
use crate::io::Done;
use crate::{Device, Info, Io, IoError, IoFuture, SharedDevice, Tag};

/// How long memory for a superblock is waited for.
const NO_MEMORY: Duration = Duration::from_ms(10);

/// Why a member failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It was not there when the array was opened.
    Missing,
    /// An I/O failed with this.
    Error(IoError),
    /// An I/O did not end in time.
    Hung,
}

/// What has happened at a member since the array was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCounts {
    /// Reads that failed.
    pub read_errors: u64,
    /// Reads that gave other data than most copies.
    pub wrong_reads: u64,
    /// Ranges that were written anew from other copies.
    pub healed: u64,
    /// Bytes that were copied to it.
    pub copied_bytes: u64,
}

/// See the module.
pub(super) struct Member {
    pub(super) id: Uuid,
    pub(super) label: RefCell<String>,
    /// Nothing if it is missing.
    pub(super) device: Option<SharedDevice>,
    pub(super) state: Cell<MemberState>,
    pub(super) failure: Cell<Option<Failure>>,
    /// The place of its newest superblock.
    pub(super) newest: Cell<usize>,
    /// It goes when the member that replaces it has everything.
    pub(super) leaving: Cell<bool>,
    pub(super) counts: Cell<MemberCounts>,
    /// Where its data begin, in blocks.
    pub(super) data_lba: Cell<u64>,
    /// Its column in a set with parity.
    pub(super) column: Cell<usize>,
    /// I/Os in flight by the period in which they began; a period lasts from one look to the next.
    in_flight: [Cell<u32>; 2],
    period: Cell<u8>,
    /// It has failed: no task waits for what is in flight.
    gone: Notify,
    /// Held by who writes its superblock.
    pub(super) writing: Semaphore,
}

impl Member {
    pub(super) fn new(
        id: Uuid,
        label: String,
        state: MemberState,
        device: Option<SharedDevice>,
        newest: usize,
    ) -> Rc<Self> {
        let failure = device.is_none().then_some(Failure::Missing);
        Rc::new(Self {
            id,
            label: RefCell::new(label),
            device,
            state: Cell::new(state),
            failure: Cell::new(failure),
            newest: Cell::new(newest),
            leaving: Cell::new(false),
            counts: Cell::default(),
            data_lba: Cell::new(0),
            column: Cell::new(0),
            in_flight: [Cell::new(0), Cell::new(0)],
            period: Cell::new(0),
            gone: Notify::new(),
            writing: Semaphore::new(1),
        })
    }

    /// Whether it has everything.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.state.get() == MemberState::Active
    }

    /// Whether it gets what is written.
    #[inline]
    pub(super) fn is_written(&self) -> bool {
        matches!(
            self.state.get(),
            MemberState::Active | MemberState::Rebuilding
        )
    }

    /// I/Os in flight.
    #[inline]
    pub(super) fn load(&self) -> u32 {
        self.in_flight[0].get() + self.in_flight[1].get()
    }

    /// Whether this device has I/O of the member that has not ended.
    pub(super) fn is_busy_with(&self, device: &SharedDevice) -> bool {
        let own = self.device.as_ref();
        self.load() > 0 && own.is_some_and(|own| Rc::ptr_eq(own, device))
    }

    /// Counts an I/O in; gives the period, to count it out.
    #[inline]
    pub(super) fn begin(&self) -> u8 {
        let period = self.period.get();
        let count = &self.in_flight[period as usize];
        count.set(count.get() + 1);
        period
    }

    /// Counts an I/O out.
    #[inline]
    pub(super) fn end(&self, period: u8) {
        let count = &self.in_flight[period as usize];
        count.set(count.get() - 1);
    }

    /// Begins a new period; true if an I/O has been in flight for the whole of the last one.
    pub(super) fn look(&self) -> bool {
        let other = self.period.get() ^ 1;
        if self.in_flight[other as usize].get() > 0 {
            return true;
        }
        self.period.set(other);
        false
    }

    /// Counts something.
    pub(super) fn count(&self, change: impl FnOnce(&mut MemberCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// It is not used any more.
    pub(super) fn fail(&self, why: Failure) {
        self.state.set(MemberState::Failed);
        self.failure.set(Some(why));
        self.gone.notify_all();
    }

    /// It is a member no more. What is in flight there ends as if it had failed.
    pub(super) fn leave(&self) {
        self.state.set(MemberState::Failed);
        self.gone.notify_all();
    }

    /// An I/O at this member, to its end; [`IoError::NotReady`] when it fails before.
    pub(super) async fn run(
        self: &Rc<Self>,
        rt: &Rt,
        start: impl FnOnce(&dyn Device) -> IoFuture,
    ) -> Result<Done, IoError> {
        let Some(device) = &self.device else {
            return Err(IoError::NotReady);
        };
        if self.state.get() == MemberState::Failed {
            return Err(IoError::NotReady);
        }
        let period = self.begin();
        let mut io = start(&**device);
        let ended = {
            let mut gone = pin!(self.gone.notified());
            poll_fn(|context| match Pin::new(&mut io).poll(context) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending => gone.as_mut().poll(context).map(|()| None),
            })
            .await
        };
        if let Some(result) = ended {
            self.end(period);
            return result;
        }
        self.leave_behind(rt, io, period);
        Err(IoError::NotReady)
    }

    /// Writes its superblock, behind one that is being written.
    pub(super) async fn write_record(
        self: &Rc<Self>,
        rt: &Rt,
        record: &Record,
    ) -> Result<(), IoError> {
        let device = Counted {
            member: Rc::clone(self),
            device: self.device.clone().ok_or(IoError::NotReady)?,
            rt: rt.clone(),
        };
        self.writing.acquire(1).await;
        let written = loop {
            match places::write(&device, record, self.newest.get()).await {
                Err(IoError::Busy) => rt.sleep(NO_MEMORY).await,
                written => break written,
            }
        };
        self.writing.release(1);
        self.newest.set(written?);
        Ok(())
    }

    /// An I/O for which no task waits any more.
    pub(super) fn leave_behind(self: &Rc<Self>, rt: &Rt, io: IoFuture, period: u8) {
        let member = Rc::clone(self);
        rt.spawn(async move {
            let _ignored = io.await;
            member.end(period);
        })
        .detach();
    }
}

/// A member's device, of which all I/O is counted and ends when the member fails.
struct Counted {
    member: Rc<Member>,
    device: SharedDevice,
    rt: Rt,
}

impl Device for Counted {
    fn info(&self) -> Info {
        self.device.info()
    }

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        let (member, rt) = (Rc::clone(&self.member), self.rt.clone());
        IoFuture::boxed(async move { member.run(&rt, |device| device.submit(tag, io)).await })
    }
}
