//! What a front end does for the execution of its commands. Generic, never `dyn`, and one value for
//! each I/O queue.
//!
//! A command is named by its identifier, which NVMe makes unique among those of its queue. Data
//! that came with a command travel in it: there is no table to look them up in.

use std::future::Future;
use std::ops::Range;
use std::rc::Rc;

use flashyard_block::{Class, IoError, Way};
use flashyard_nvme::{Allowance, Status};
use flashyard_runtime::{Buf, Data, Lent};

use crate::credit::CreditShare;
use crate::quota::{Budget, Held, MemoryQuota, Reservation, buffer};
use crate::sample::PendingSample;
use crate::status;

/// The front end's side of an I/O queue.
pub trait Front: 'static {
    /// The wait for the data of one command; gives them, and what they are counted against. Dropped
    /// before they are here, they are not wanted any more.
    type Fetch<'a>: Future<Output = Result<(Buf, Option<Held>), Failure>> + Unpin
    where
        Self: 'a;

    /// Whether the data of writes are always at hand, so that [`Self::copy`] has them.
    const AT_HAND: bool = false;

    /// Copies the data of command `cid`, which fill `to`, where they are at hand.
    ///
    /// # Errors
    /// They cannot be had.
    fn copy(&self, cid: u16, to: &mut [u8]) -> Result<(), Failure> {
        let _ = (cid, to);
        Err(Failure::Gone)
    }

    /// Lends the memory of the host in which the data of command `cid` are, or are to be, if all of
    /// its pieces are multiples of `unit` bytes. Only where they are at hand.
    fn lend(&self, cid: u16, unit: u32, way: Way) -> Option<Lent> {
        let _ = (cid, unit, way);
        None
    }

    /// Asks the host for the data of command `cid`: so many bytes, for which there is a share of
    /// memory, which `held` may be. The memory itself is taken when they come. Begins when called.
    fn fetch(&self, cid: u16, bytes: usize, held: Option<Held>) -> Self::Fetch<'_>;

    /// Answers command `cid`, once.
    fn answer(&self, cid: u16, end: End<'_>);

    /// Keeps `sample` until the next answer has gone.
    fn keep(&self, sample: PendingSample);

    /// The future of a command that had to wait has come to its end.
    fn on_finished(&self);
}

/// How a command ended.
pub enum End<'a> {
    /// Its data go to the host, then success. What they are counted against is held until they have
    /// gone.
    Read(Success<'a>, Data, Held),
    /// A write, done as far as the device's cache: the answer may be coalesced.
    Write(Success<'a>),
    /// Success with nothing else, and not to be kept back: FUA, Flush and all that is rare.
    Other(Success<'a>),
    /// It failed.
    Failed(Status),
}

/// A command that succeeded.
pub struct Success<'a> {
    /// What it was executed as.
    pub class: Class,
    /// Its namespace.
    pub nsid: u32,
    /// Who knows what the host may have outstanding now, if it wants credits.
    pub(super) credit: Option<&'a CreditShare>,
}

impl Success<'_> {
    /// What the host may have outstanding at its namespace from now on, for a completion that goes
    /// to it in any case.
    #[inline]
    pub fn allowance(&self) -> Allowance {
        self.credit
            .map_or(Allowance::Silent, CreditShare::allowance)
    }

    /// The same, if it is worth a completion of its own.
    #[inline]
    pub fn news(&self) -> Option<Allowance> {
        self.credit.and_then(CreditShare::news)
    }
}

/// Why a command ends without having been done.
#[derive(Clone, Copy)]
pub enum Failure {
    /// It is answered so.
    Status(Status),
    /// Its device refused it, or failed.
    Device(IoError),
    /// The connection has ended: nobody is there to be answered.
    Gone,
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<IoError> for Failure {
    fn from(error: IoError) -> Self {
        Self::Device(error)
    }
}

impl Failure {
    /// The status to answer with.
    pub fn status(self) -> Status {
        match self {
            Self::Status(status) => status,
            Self::Device(error) => status::of(error),
            Self::Gone => Status::ABORTED_SQ_DELETION,
        }
    }

    /// Whether the medium is to blame.
    pub(super) fn is_of_medium(self) -> bool {
        matches!(self, Self::Device(error) if status::is_media_error(error))
    }
}

/// Data that came with a command, counted against the core's share for them.
pub struct HostData {
    pub(super) buf: Buf,
    pub(super) reservation: Reservation,
}

impl HostData {
    /// Room for `len` bytes, counted against `quota`, if it is to be had now.
    #[inline]
    pub fn now(quota: &Rc<MemoryQuota>, len: usize) -> Option<Self> {
        let reservation = Reservation::now(quota, Budget::charge(len))?;
        let buf = Buf::take(len)?;
        Some(Self { buf, reservation })
    }

    /// Waits for room for `len` bytes.
    ///
    /// # Errors
    /// Busy: the system has no memory.
    pub async fn wait(quota: &Rc<MemoryQuota>, len: usize) -> Result<Self, IoError> {
        let reservation = Reservation::wait(quota, Budget::charge(len)).await;
        buffer(len).map(|buf| Self { buf, reservation })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buf
    }

    /// With these bytes, which are as many as there is room for.
    #[inline]
    pub fn filled(mut self, bytes: &[u8]) -> Self {
        self.buf.copy_from_slice(bytes);
        self
    }

    /// Leaves only the bytes of `range`.
    #[inline]
    pub fn cut(&mut self, range: Range<usize>) {
        let len = range.len();
        if range.start > 0 {
            self.buf.copy_within(range, 0);
        }
        self.buf.set_len(len);
    }
}
