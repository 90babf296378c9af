//! A queue of a controller, and the commands a host gives to it. Every queue is one TCP connection.
//!
//! A command is written into the send queue at once; everything that was made in one turn goes out
//! in one send. The number of commands in flight is bounded by the queue's depth: later ones wait
//! in order. Nothing is allocated for a command that need not wait. Dropping a command's future
//! does not withdraw the command: the controller may still execute it, and its place is free again
//! when the answer comes.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use flashyard_nvme::command::{Fuse, LbaRange, Status};
use flashyard_nvme::dsm::DsmRange;
use flashyard_nvme::{Allowance, CompletionQueueEntry, Sgl, SubmissionQueueEntry};
use flashyard_runtime::sync::{Notify, Semaphore};
use flashyard_runtime::{Buf, Data, TcpStream};
use flashyard_time::Duration;

use crate::credits::{Charge, Credits};
use crate::outbox::Outbox;
use crate::payload::{Payload, ReadInto};
use crate::receiver::Violation;
use crate::slots::Slots;

/// Every controller takes this much data in the capsule on the Admin queue, and of a Connect.
pub(crate) const ADMIN_IN_CAPSULE: u32 = 8192;
/// A command is not tried again sooner, whatever the controller says.
const LEAST_RETRY_DELAY: Duration = Duration::from_ms(10);

/// Why a command, or the whole association, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostError {
    /// The controller answered with this status.
    Status(Status),
    /// The connection broke; whether the command was executed is not known.
    Transport(io::ErrorKind),
    /// The controller did what the protocol forbids; the association was ended.
    Protocol(Violation),
    /// The controller ended the connection because of what we sent: the Fatal Error Status and
    /// Information of its termination request.
    Terminated {
        /// Fatal Error Status.
        fes: u16,
        /// Fatal Error Information.
        fei: u32,
    },
    /// No answer in time; the association was ended.
    Timeout,
    /// The data received do not fit their digest; the same command may succeed.
    DataDigest,
    /// No buffer was free for the moment.
    NoBuffer,
    /// The association was closed by this side.
    Closed,
}

impl HostError {
    /// Whether the association is gone with it, so that the outcome of the command is not known.
    pub fn is_path_failure(self) -> bool {
        !matches!(self, Self::Status(_) | Self::DataDigest | Self::NoBuffer)
    }
}

impl std::fmt::Display for HostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(status) => write!(f, "the controller answered {status}"),
            Self::Transport(kind) => write!(f, "the connection broke: {kind}"),
            Self::Protocol(violation) => {
                write!(f, "the controller broke the protocol: {violation}")
            }
            Self::Terminated { fes, fei } => {
                write!(
                    f,
                    "the controller ended the connection: error {fes:#x}, information {fei:#x}"
                )
            }
            Self::Timeout => write!(f, "the controller did not answer in time"),
            Self::DataDigest => write!(f, "data arrived damaged (data digest)"),
            Self::NoBuffer => write!(f, "no buffer memory is free"),
            Self::Closed => write!(f, "the association was closed"),
        }
    }
}

impl std::error::Error for HostError {}

/// A queue of a connected controller. Cheap to clone; bound to its core.
#[derive(Clone, Debug)]
pub struct Queue {
    pub(crate) shared: Rc<Shared>,
}

/// State shared by the tasks of a queue and its users.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) qid: u16,
    pub(crate) depth: u16,
    pub(crate) permits: Semaphore,
    pub(crate) slots: RefCell<Slots>,
    pub(crate) outbox: Outbox,
    pub(crate) stream: TcpStream,
    /// Most bytes of data that a capsule may carry. Of an I/O queue: what the controller says, once
    /// it is connected; a Connect brings its data in any case.
    pub(crate) in_capsule: Cell<u32>,
    /// A completion may retire several commands.
    pub(crate) packed: Cell<bool>,
    /// The controller's Command Retry Delays.
    pub(crate) retry_delays: Cell<[Duration; 3]>,
    /// What the host may have outstanding, if the controller or the measured latency bounds it.
    pub(crate) credits: OnceCell<Rc<Credits>>,
    failure: Cell<Option<HostError>>,
    /// Notified when the queue fails; shared by all queues of an association.
    on_failure: Rc<Notify>,
}

/// A command's answer.
#[derive(Debug)]
pub struct Answer {
    /// DW0 and, in the upper half, DW1 of the completion.
    pub value: u64,
    /// What came back of the payload: the filled [`Payload::In`].
    pub payload: Payload,
}

impl Queue {
    /// How many commands can be in flight.
    pub fn depth(&self) -> u16 {
        self.shared.depth
    }

    /// The queue identifier: 0 is the Admin queue.
    pub fn qid(&self) -> u16 {
        self.shared.qid
    }

    /// Why the queue does not work any more, if so.
    pub fn failure(&self) -> Option<HostError> {
        self.shared.failure.get()
    }

    /// How long to wait before a command that ended with this status is tried again, if the
    /// controller says that it was only interrupted: as long as its Command Retry Delay says, or a
    /// moment. `None` for every other status.
    pub fn retry_delay(&self, status: Status) -> Option<Duration> {
        if status.is_success() || status.dnr() {
            return None;
        }
        let reported = match status.crd() {
            0 if status.is(Status::COMMAND_INTERRUPTED) => Duration::ZERO,
            0 => return None,
            which => self.shared.retry_delays.get()[usize::from(which) - 1],
        };
        Some(reported.max(LEAST_RETRY_DELAY))
    }

    /// Reads blocks from `slba` on; `into` is as long as the blocks.
    pub async fn read(
        &self,
        nsid: u32,
        range: LbaRange,
        into: ReadInto,
    ) -> Result<ReadInto, HostError> {
        let sgl = Sgl::Transport {
            length: into.len() as u32,
        };
        let entry = SubmissionQueueEntry::read(nsid, range, sgl);
        match self.shared.command(entry, Payload::In(into)).await?.payload {
            Payload::In(into) => Ok(into),
            _ => Err(HostError::Closed),
        }
    }

    /// Writes `data`, which is as long as the range. `fua`: answered only when on the medium.
    pub async fn write(
        &self,
        nsid: u32,
        range: LbaRange,
        data: Data,
        fua: bool,
    ) -> Result<(), HostError> {
        let entry = SubmissionQueueEntry::write(nsid, range, self.shared.sgl_for(data.len()));
        let entry = if fua { entry.with_fua() } else { entry };
        self.shared
            .command(entry, Payload::Out(data))
            .await
            .map(drop)
    }

    /// Makes durable what was written and answered before.
    pub async fn flush(&self, nsid: u32) -> Result<(), HostError> {
        self.shared
            .command(SubmissionQueueEntry::flush(nsid), Payload::None)
            .await
            .map(drop)
    }

    /// Compares `data` with what is stored; [`Status::COMPARE_FAILURE`] if different.
    pub async fn compare(&self, nsid: u32, range: LbaRange, data: Data) -> Result<(), HostError> {
        let entry = SubmissionQueueEntry::compare(nsid, range, self.shared.sgl_for(data.len()));
        self.shared
            .command(entry, Payload::Out(data))
            .await
            .map(drop)
    }

    /// Fused Compare and Write: writes `write` if `compare` is what is stored, with nothing in
    /// between. [`Status::COMPARE_FAILURE`] if different.
    ///
    /// Needs a queue of a depth of at least two.
    pub async fn compare_and_write(
        &self,
        nsid: u32,
        range: LbaRange,
        compare: impl Into<Payload>,
        write: impl Into<Payload>,
        fua: bool,
    ) -> Result<(), HostError> {
        let (compare, write) = (compare.into(), write.into());
        let shared = &*self.shared;
        let first = SubmissionQueueEntry::compare(nsid, range, shared.sgl_for(compare.len()));
        let second = SubmissionQueueEntry::write(nsid, range, shared.sgl_for(write.len()));
        let second = if fua { second.with_fua() } else { second };
        assert!(shared.depth >= 2, "a fused pair needs two places");
        let charge = shared.charge(nsid, compare.len() + write.len()).await?;
        shared.permits(2).await?;
        // Nothing may come between the two on the wire: both are submitted without waiting.
        let first = shared.submit(first.with_fuse(Fuse::First), compare, charge);
        let second = shared.submit(second.with_fuse(Fuse::Second), write, None);
        let compared = first.await.and_then(answer);
        let written = second.await.and_then(answer);
        compared.and(written).map(drop)
    }

    /// Makes blocks read as zeroes, without data on the wire; `deallocate` lets their space be
    /// freed.
    pub async fn write_zeroes(
        &self,
        nsid: u32,
        range: LbaRange,
        deallocate: bool,
    ) -> Result<(), HostError> {
        let entry = SubmissionQueueEntry::write_zeroes(nsid, range, deallocate);
        self.shared.command(entry, Payload::None).await.map(drop)
    }

    /// Says that the content of up to 256 ranges is not needed any more.
    ///
    /// # Panics
    /// When there are no ranges or more than 256.
    pub async fn deallocate(&self, nsid: u32, ranges: &[DsmRange]) -> Result<(), HostError> {
        assert!(
            (1..=DsmRange::MAX_RANGES).contains(&ranges.len()),
            "1 to 256 ranges"
        );
        let mut buf = Buf::take(ranges.len() * DsmRange::LEN).ok_or(HostError::NoBuffer)?;
        for (place, range) in buf.chunks_exact_mut(DsmRange::LEN).zip(ranges) {
            place.copy_from_slice(&range.encode());
        }
        let data = Data::Buf(buf);
        let entry = SubmissionQueueEntry::deallocate(
            nsid,
            ranges.len() as u16,
            self.shared.sgl_for(data.len()),
        );
        self.shared
            .command(entry, Payload::Out(data))
            .await
            .map(drop)
    }

    /// Any command. The command identifier and, if it moves data, the SGL descriptor are set here.
    /// It is in the send queue when this returns, unless the queue is full.
    pub fn command(&self, entry: SubmissionQueueEntry, payload: Payload) -> Pending<'_> {
        let entry = match &payload {
            Payload::None => entry,
            Payload::In(into) => entry.with_sgl(Sgl::Transport {
                length: into.len() as u32,
            }),
            out => entry.with_sgl(self.shared.sgl_for(out.len())),
        };
        self.shared.command(entry, payload)
    }
}

impl Shared {
    pub(crate) fn new(
        qid: u16,
        depth: u16,
        stream: TcpStream,
        outbox: Outbox,
        on_failure: Rc<Notify>,
    ) -> Self {
        Self {
            qid,
            depth,
            permits: Semaphore::new(usize::from(depth)),
            slots: RefCell::new(Slots::new(depth)),
            outbox,
            stream,
            in_capsule: Cell::new(ADMIN_IN_CAPSULE),
            packed: Cell::new(false),
            retry_delays: Cell::default(),
            credits: OnceCell::new(),
            failure: Cell::new(None),
            on_failure,
        }
    }

    /// In the capsule if it fits there, else by R2T.
    fn sgl_for(&self, len: usize) -> Sgl {
        let length = len as u32;
        if len <= self.in_capsule.get() as usize {
            Sgl::InCapsule { offset: 0, length }
        } else {
            Sgl::Transport { length }
        }
    }

    pub(crate) fn command(&self, entry: SubmissionQueueEntry, payload: Payload) -> Pending<'_> {
        if let Some(error) = self.failure.get() {
            return Pending(State::Refused(error));
        }
        let (nsid, bytes) = (entry.nsid(), payload.len());
        let charge = match self.credits.get() {
            None => Some(None),
            Some(credits) => credits
                .gate(nsid)
                .try_charge(self.qid, credits.cost(bytes))
                .map(Some),
        };
        Pending(match charge {
            Some(charge) if self.permits.try_acquire(1) => {
                State::Submitted(self.submit(entry, payload, charge))
            }
            charge => State::Waiting(Box::pin(async move {
                let charge = match charge {
                    Some(charge) => charge,
                    None => self.charge(nsid, bytes).await?,
                };
                self.permits(1).await?;
                self.submit(entry, payload, charge).await.and_then(answer)
            })),
        })
    }

    /// Waits for the credit of its namespace that a command of so many bytes takes; nothing if the
    /// controller reports none.
    async fn charge(&self, nsid: u32, bytes: usize) -> Result<Option<Charge>, HostError> {
        let Some(credits) = self.credits.get() else {
            return Ok(None);
        };
        let (gate, cost) = (credits.gate(nsid), credits.cost(bytes));
        if let Some(charge) = gate.try_charge(self.qid, cost) {
            return Ok(Some(charge));
        }
        match credits.wait(&gate, self.qid, cost).await {
            Some(charge) => Ok(Some(charge)),
            None => Err(self.failure.get().unwrap_or(HostError::Closed)),
        }
    }

    /// The completion as it is, success or error.
    pub(crate) async fn connect_command(
        &self,
        entry: SubmissionQueueEntry,
        data: Data,
    ) -> Result<CompletionQueueEntry, HostError> {
        self.permits(1).await?;
        Ok(self.submit(entry, Payload::Out(data), None).await?.0)
    }

    /// A command that may stay unanswered for as long as the association lives.
    pub(crate) async fn patient_command(
        &self,
        entry: SubmissionQueueEntry,
    ) -> Result<Answer, HostError> {
        self.permits(1).await?;
        self.submit_as(entry, Payload::None, true)
            .await
            .and_then(answer)
    }

    /// Places for `n` commands, in order of arrival.
    async fn permits(&self, n: usize) -> Result<(), HostError> {
        self.permits.acquire(n).await;
        match self.failure.get() {
            None => Ok(()),
            Some(error) => {
                self.permits.release(n);
                Err(error)
            }
        }
    }

    /// Needs a permit, which the command keeps until it is answered, as it does `charge`.
    fn submit(
        &self,
        entry: SubmissionQueueEntry,
        payload: Payload,
        charge: Option<Charge>,
    ) -> Command<'_> {
        let command = self.submit_as(entry, payload, false);
        if let Some(charge) = charge {
            self.slots.borrow_mut().keep_charge(command.cid, charge);
        }
        command
    }

    fn submit_as(
        &self,
        entry: SubmissionQueueEntry,
        payload: Payload,
        patient: bool,
    ) -> Command<'_> {
        let length = payload.len();
        let in_capsule = payload.is_out() && length <= self.in_capsule.get() as usize;
        let (kept, sent) = if in_capsule {
            (Payload::None, payload)
        } else {
            (payload, Payload::None)
        };
        let length = if in_capsule { 0 } else { length };
        let cid = self.slots.borrow_mut().occupy(kept, length as u32, patient);
        self.outbox.push_command(entry.with_cid(cid), sent);
        Command {
            queue: Some(self),
            cid,
        }
    }

    /// The controller's answer to a command, and to those that it retires with it.
    pub(crate) fn complete(&self, entry: CompletionQueueEntry) -> Result<(), Violation> {
        if !entry.status().is_success() {
            return self.complete_one(entry, Allowance::Silent);
        }
        let (entry, reported) = match self.credits.get() {
            Some(credits) if credits.are_reported() => {
                (entry.with_allowance(Allowance::Silent), entry.allowance())
            }
            _ => (entry, Allowance::Silent),
        };
        if !self.packed.get() {
            return self.complete_one(entry, reported);
        }
        let more = entry.retired().ok_or(Violation::UnknownCommand)?;
        self.complete_one(entry.with_retired(&[]), reported)?;
        for cid in more {
            let entry = CompletionQueueEntry::new(cid, Status::SUCCESS);
            self.complete_one(entry, Allowance::Silent)?;
        }
        Ok(())
    }

    fn complete_one(
        &self,
        entry: CompletionQueueEntry,
        reported: Allowance,
    ) -> Result<(), Violation> {
        let mut slots = self.slots.borrow_mut();
        let freed = slots.complete(entry)?;
        let charge = slots.take_charge(entry.cid());
        drop(slots);
        if freed {
            self.permits.release(1);
        }
        if let Some(charge) = charge {
            charge.settle(reported);
        }
        Ok(())
    }

    /// From now on these bound what is sent, too.
    pub(crate) fn apply(&self, credits: Rc<Credits>) {
        let fresh = self.credits.set(credits).is_ok();
        assert!(fresh, "a queue is made once");
    }

    pub(crate) fn failure(&self) -> Option<HostError> {
        self.failure.get()
    }

    /// Ends the queue and closes its connection. The first error is kept.
    pub(crate) fn fail(&self, error: HostError) {
        self.end_commands(error);
        self.stream.shutdown();
    }

    /// Every command, waiting or yet to come, gets `error`; what is to be sent still goes out.
    pub(crate) fn end_commands(&self, error: HostError) {
        if self.failure.get().is_some() {
            return;
        }
        self.failure.set(Some(error));
        let freed = self.slots.borrow_mut().fail_all(error);
        self.permits.release(freed);
        self.outbox.close();
        self.on_failure.notify_one();
    }
}

/// A command that was made: in flight, or waiting for its place in the queue (which costs an
/// allocation).
#[must_use = "the answer matters"]
pub struct Pending<'a>(State<'a>);

enum State<'a> {
    Submitted(Command<'a>),
    Waiting(Pin<Box<dyn Future<Output = Result<Answer, HostError>> + 'a>>),
    Refused(HostError),
}

impl Future for Pending<'_> {
    type Output = Result<Answer, HostError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Submitted(command) => Pin::new(command)
                .poll(context)
                .map(|answered| answered.and_then(answer)),
            State::Waiting(future) => future.as_mut().poll(context),
            State::Refused(error) => Poll::Ready(Err(*error)),
        }
    }
}

/// A command in flight.
struct Command<'a> {
    /// `None` when the answer has been taken.
    queue: Option<&'a Shared>,
    cid: u16,
}

impl Future for Command<'_> {
    type Output = Result<(CompletionQueueEntry, Payload), HostError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let queue = self.queue.expect("polled after it was ready");
        let polled = queue.slots.borrow_mut().poll(self.cid, context);
        polled.map(|(outcome, payload)| {
            self.queue = None;
            queue.permits.release(1);
            outcome.map(|entry| (entry, payload))
        })
    }
}

impl Drop for Command<'_> {
    fn drop(&mut self) {
        if let Some(queue) = self.queue
            && queue.slots.borrow_mut().abandon(self.cid)
        {
            queue.permits.release(1);
        }
    }
}

/// Success or error of an answer.
fn answer((entry, payload): (CompletionQueueEntry, Payload)) -> Result<Answer, HostError> {
    let status = entry.status();
    if status.is_success() {
        Ok(Answer {
            value: entry.value(),
            payload,
        })
    } else {
        Err(HostError::Status(status))
    }
}
