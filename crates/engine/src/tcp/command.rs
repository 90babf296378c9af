//! I/O commands at work. Each takes a share of memory, waits for its turn in the switch, does the
//! I/O and answers. If nothing has to be waited for, that is a plain call; otherwise it is a
//! future. The share comes first, so that a host that takes nothing keeps only itself waiting and
//! never the turn of somebody else; the memory itself is taken when the turn has come.

use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use flashyard_block::{Class, Done, Io, IoError, IoFuture, Tag, Zero};
use flashyard_nvme::Status;
use flashyard_nvme::command::LbaRange;
use flashyard_runtime::{Buf, Data, Rt};
use flashyard_sched::Op;
use flashyard_time::Duration;

use super::budget::{Budget, Held};
use super::fused::{self, Pair};
use super::io::IoQueue;
use super::namespaces::Namespace;
use super::payload::Payload;
use super::quota::Reservation;
use super::transfer::Arrived;
use super::waiting::TakenBack;
use crate::credit::CreditShare;
use crate::forwarding::{Admission, Ended, Route};
use crate::ledger::Past;
use crate::status;
use crate::switch::{Permit, Want};
use flashyard_controller::IoOp;
use flashyard_controller::io::check_ranges;

/// A checked command with the data that came in its capsule.
pub(crate) struct Command {
    pub(crate) cid: u16,
    pub(crate) opcode: u8,
    pub(crate) class: Class,
    pub(crate) namespace: Rc<Namespace>,
    pub(crate) op: IoOp,
    pub(crate) payload: Payload,
    pub(crate) capsule: Option<CapsuleData>,
    /// What there was before it asked for its turn.
    pub(crate) past: Past,
}

/// Data that came in a capsule, counted against the core's share for them.
pub(crate) struct CapsuleData {
    pub(crate) buf: Buf,
    pub(crate) reservation: Reservation,
}

/// The rest of a command that could not be finished at once: goes to the pool of the connection.
pub(crate) enum Work {
    /// Nothing has been done yet.
    Queued(Option<Command>),
    /// A read that the device is busy with.
    Reading(Issued<Held>),
    /// A write that the device is busy with.
    Writing(Issued<Reservation>),
    /// A fused pair.
    Pair(Option<Box<Pair>>),
}

/// A command at the device, with its permit and the memory that is held for it.
pub(crate) struct Issued<M> {
    command: Command,
    means: Option<(Permit, M)>,
    io: IoFuture,
}

/// Why a command ends without having been done.
#[derive(Clone, Copy)]
pub(crate) enum Failure {
    Status(Status),
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
    pub(crate) fn status(self) -> Status {
        match self {
            Self::Status(status) => status,
            Self::Device(error) => status::of(error),
            Self::Gone => Status::ABORTED_SQ_DELETION,
        }
    }

    /// Whether the medium is to blame.
    pub(crate) fn is_of_medium(self) -> bool {
        matches!(self, Self::Device(error) if status::is_media_error(error))
    }
}

/// Starts a command. One that need not wait, for memory, for its turn or for the device, is
/// finished and answered on return, without ever becoming a future; of any other one the rest is
/// returned.
#[inline]
pub(crate) fn start(queue: &Rc<IoQueue>, command: Command) -> Option<Work> {
    match command.op {
        IoOp::Read { range, fua: false } => start_read(queue, command, range),
        IoOp::Write { range, fua } if command.capsule.is_some() => {
            start_write(queue, command, range, fua)
        }
        _ => Some(Work::Queued(Some(command))),
    }
}

fn start_read(queue: &Rc<IoQueue>, command: Command, range: LbaRange) -> Option<Work> {
    let bytes = command.payload.bytes() as usize;
    let want = command.want(Op::Read, range.slba, bytes as u64);
    let Some((memory, buf, permit)) = read_means(queue, &command, want, bytes) else {
        return Some(Work::Queued(Some(command)));
    };
    let (lba, into) = (want.lba, buf);
    let mut io = permit.device().submit(want.tag, Io::Read { lba, into });
    let Some(result) = io.take_finished() else {
        return Some(Work::Reading(Issued {
            command,
            means: Some((permit, memory)),
            io,
        }));
    };
    let looked = permit.complete(result.is_ok());
    queue.finish_read(&command, (result, looked), memory);
    None
}

/// All that a read needs, if nothing of it has to be waited for.
#[inline]
fn read_means(
    queue: &Rc<IoQueue>,
    command: &Command,
    want: Want,
    bytes: usize,
) -> Option<(Held, Buf, Permit)> {
    let Route::Here(port) = &command.namespace.route else {
        return None;
    };
    let held = queue.budget().try_hold(Budget::charge(bytes))?;
    let buf = Buf::take(bytes)?;
    let permit = port.try_admit(want)?;
    Some((held, buf, permit))
}

fn start_write(
    queue: &Rc<IoQueue>,
    mut command: Command,
    range: LbaRange,
    fua: bool,
) -> Option<Work> {
    let bytes = command.payload.bytes();
    let want = command.want(Op::Write, range.slba, u64::from(bytes));
    let permit = match &command.namespace.route {
        // Since the header came, which is when the way was found, its device may have been taken
        // away.
        Route::Here(port) if !port.is_closed() => port.try_admit(want),
        _ => None,
    };
    let Some(permit) = permit else {
        return Some(Work::Queued(Some(command)));
    };
    let Some(CapsuleData { buf, reservation }) = command.capsule.take() else {
        unreachable!("whoever starts a write at once has its data");
    };
    let (lba, data) = (want.lba, buf.into());
    let mut io = permit
        .device()
        .submit(want.tag, Io::Write { lba, data, fua });
    let Some(result) = io.take_finished() else {
        return Some(Work::Writing(Issued {
            command,
            means: Some((permit, reservation)),
            io,
        }));
    };
    let looked = permit.complete(result.is_ok());
    queue.finish_write(&command, (result, looked));
    None
}

/// The future of a command that has to wait. The pool of a connection keeps a place of this size
/// for each command that has ever waited at the same time, so it works in place, and what is long
/// is in a box: a queue that has gone idle after a burst of 128 keeps 40 KiB instead of 200.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` would keep its arguments twice"
)]
pub(crate) fn execute(queue: Rc<IoQueue>, mut work: Work) -> impl Future<Output = ()> {
    async move {
        match &mut work {
            Work::Reading(read) => {
                let result = (&mut read.io).await;
                if let Some((permit, held)) = read.means.take() {
                    let looked = permit.complete(result.is_ok());
                    queue.finish_read(&read.command, (result, looked), held);
                }
            }
            Work::Writing(write) => {
                let result = (&mut write.io).await;
                if let Some((permit, reservation)) = write.means.take() {
                    drop(reservation);
                    let looked = permit.complete(result.is_ok());
                    queue.finish_write(&write.command, (result, looked));
                }
            }
            Work::Queued(command) => {
                if let Some(command) = command.take() {
                    Box::pin(from_the_beginning(&queue, command)).await;
                }
            }
            Work::Pair(pair) => {
                if let Some(pair) = pair.take() {
                    Box::pin(fused::execute(&queue, *pair)).await;
                }
            }
        }
        queue.on_finished();
    }
}

async fn from_the_beginning(queue: &Rc<IoQueue>, command: Command) {
    match command.op {
        IoOp::Read { range, fua: false } => read(queue, &command, range).await,
        IoOp::Write { range, fua } => write(queue, command, range, fua).await,
        _ => Box::pin(rare(queue, command)).await,
    }
}

async fn read(queue: &Rc<IoQueue>, command: &Command, range: LbaRange) {
    let bytes = command.payload.bytes() as usize;
    let want = command.want(Op::Read, range.slba, bytes as u64);
    let done = async {
        let held = hold(queue, command.cid, bytes).await?;
        let admission = admit(queue, command.cid, &command.namespace, want).await?;
        let buf = buffer(bytes)?;
        let done = read_into(queue, command, (admission, want), buf).await?;
        Ok((done.data, held))
    };
    match done.await {
        Ok((data, held)) => queue.answer_read(command, data, held),
        Err(failure) => queue.fail(command, failure),
    }
}

async fn read_into(
    queue: &Rc<IoQueue>,
    command: &Command,
    (admission, want): (Admission, Want),
    into: Buf,
) -> Result<Done, IoError> {
    let io = Io::Read {
        lba: want.lba,
        into,
    };
    let read = admission.submit(queue.waiting(), command.cid, want, io);
    command.heed(queue, read.await)
}

async fn write(queue: &Rc<IoQueue>, mut command: Command, range: LbaRange, fua: bool) {
    let bytes = command.payload.bytes() as usize;
    let want = command.want(Op::Write, range.slba, bytes as u64);
    let capsule = command.capsule.take();
    let done = async {
        let Some(CapsuleData { buf, reservation }) = capsule else {
            return write_invited(queue, &mut command, want, bytes, fua).await;
        };
        let admission = admit(queue, command.cid, &command.namespace, want).await?;
        let (lba, data) = (want.lba, buf.into());
        let io = Io::Write { lba, data, fua };
        let written = admission.submit(queue.waiting(), command.cid, want, io);
        command.heed(queue, written.await)?;
        drop(reservation);
        Ok(())
    };
    match done.await {
        Ok(()) => queue.answer_write(&command),
        Err(failure) => queue.fail(&command, failure),
    }
}

/// A host that lets its data wait does not keep the device from the others: its turn lapses, and
/// comes again when the data are here.
async fn write_invited(
    queue: &Rc<IoQueue>,
    command: &mut Command,
    want: Want,
    bytes: usize,
    fua: bool,
) -> Result<(), Failure> {
    let cid = command.cid;
    let rt = queue.core().rt();
    let held = hold(queue, cid, bytes).await?;
    let asked = rt.turn_time();
    let admission = turn(queue, cid, &command.namespace, want).await?;
    let buf = buffer(bytes)?;
    let (r2t, arrival) = queue.transfers().invite(cid, buf, Some(held));
    queue.push_r2t(r2t);
    let mut arrival = pin!(queue.waiting().unless_unwanted(cid, arrival));
    let deadline = queue.core().target().config().limits.turn_deadline;
    let (arrived, admission) = match soon(rt, deadline, arrival.as_mut()).await {
        Some(arrived) => (arrived, Some(admission)),
        None => {
            drop(admission);
            let arrived = arrival.await;
            // It waits for its turn once more, because of its host.
            command.past.network += rt.turn_time().since(asked);
            (arrived, None)
        }
    };
    let (buf, held) = whole(arrived)?;
    let mut admission = match admission {
        Some(admission) => admission,
        None => {
            let again = Want {
                again: true,
                ..want
            };
            turn(queue, cid, &command.namespace, again).await?
        }
    };
    admission.issue();
    let (lba, data) = (want.lba, buf.into());
    let written = admission.submit(queue.waiting(), cid, want, Io::Write { lba, data, fua });
    command.heed(queue, written.await)?;
    drop(held);
    Ok(())
}

/// Waits for the turn of an I/O, wherever its device is.
async fn turn(
    queue: &Rc<IoQueue>,
    cid: u16,
    namespace: &Namespace,
    want: Want,
) -> Result<Admission, Failure> {
    let admission = admit(queue, cid, namespace, want).await?;
    Ok(admission.granted(queue.waiting(), cid, want).await?)
}

/// What `future` gives, if that comes within `span`.
async fn soon<F: Future + Unpin>(rt: &Rt, span: Duration, mut future: F) -> Option<F::Output> {
    let mut late = rt.sleep(span);
    std::future::poll_fn(|context| {
        if let Poll::Ready(output) = Pin::new(&mut future).poll(context) {
            return Poll::Ready(Some(output));
        }
        Pin::new(&mut late).poll(context).map(|()| None)
    })
    .await
}

/// Everything but plain reads and writes.
async fn rare(queue: &Rc<IoQueue>, mut command: Command) {
    // Some do several I/Os, and each is booked by itself: from where it comes to the switch.
    command.past = Past::default();
    let done = match command.op {
        IoOp::Read { range, .. } => read_from_medium(queue, &command, range).await,
        IoOp::Compare { range, fua } => compare(queue, &mut command, range, fua).await,
        IoOp::WriteZeroes {
            range,
            fua,
            deallocate,
        } => write_zeroes(queue, &command, range, fua, deallocate).await,
        IoOp::DatasetManagement { ranges, deallocate } => {
            manage_dataset(queue, &mut command, ranges, deallocate).await
        }
        IoOp::Flush | IoOp::Write { .. } => {
            flush(queue, command.cid, &command.namespace, command.class)
                .await
                .map(|()| None)
        }
    };
    match done {
        Ok(Some((data, held))) => queue.answer_read(&command, data, held),
        Ok(None) => queue.answer_other(&command),
        Err(failure) => queue.fail(&command, failure),
    }
}

/// What a rare command returns to its host.
type Outcome = Result<Option<(Data, Held)>, Failure>;

/// A read with FUA: what lies in a volatile cache goes to the medium first.
async fn read_from_medium(queue: &Rc<IoQueue>, command: &Command, range: LbaRange) -> Outcome {
    let bytes = command.payload.bytes() as usize;
    let held = hold(queue, command.cid, bytes).await?;
    empty_cache(queue, command.cid, &command.namespace, command.class).await?;
    let want = command.want(Op::Read, range.slba, bytes as u64);
    let admission = admit(queue, command.cid, &command.namespace, want).await?;
    let buf = buffer(bytes)?;
    let done = read_into(queue, command, (admission, want), buf).await?;
    Ok(Some((done.data, held)))
}

async fn compare(
    queue: &Rc<IoQueue>,
    command: &mut Command,
    range: LbaRange,
    fua: bool,
) -> Outcome {
    let (cid, bytes) = (command.cid, command.payload.bytes() as usize);
    let capsule = command.capsule.take();
    // What they are compared with needs as much again, and is had together with it: whoever waits
    // for memory must not hold some of the same.
    let buffers = if capsule.is_some() { 1 } else { 2 };
    let held = hold(queue, cid, buffers * Budget::charge(bytes)).await?;
    let (theirs, _memory) = match capsule {
        Some(CapsuleData { buf, reservation }) => (buf, Memory::Capsule(reservation, Some(held))),
        None => invite(queue, cid, bytes, held).await?,
    };
    if fua {
        empty_cache(queue, cid, &command.namespace, command.class).await?;
    }
    let want = command.want(Op::Read, range.slba, theirs.len() as u64);
    let admission = admit(queue, cid, &command.namespace, want).await?;
    let buf = buffer(theirs.len())?;
    let done = read_into(queue, command, (admission, want), buf).await?;
    let equal = match done.data {
        Data::Buf(ours) => *ours == *theirs,
        Data::Zeroes(_) => theirs.iter().all(|byte| *byte == 0),
    };
    if equal {
        Ok(None)
    } else {
        Err(IoError::Miscompare.into())
    }
}

async fn write_zeroes(
    queue: &Rc<IoQueue>,
    command: &Command,
    range: LbaRange,
    fua: bool,
    deallocate: bool,
) -> Outcome {
    let blocks = u64::from(range.blocks);
    let want = command.want(
        Op::WriteZeroes,
        range.slba,
        blocks * u64::from(command.namespace.info.block_size),
    );
    let admission = admit(queue, command.cid, &command.namespace, want).await?;
    let io = Io::Zero {
        lba: range.slba,
        blocks,
        how: Zero::Write { deallocate },
    };
    let done = admission.submit(queue.waiting(), command.cid, want, io);
    command.heed(queue, done.await)?;
    if fua {
        empty_cache(queue, command.cid, &command.namespace, command.class).await?;
    }
    Ok(None)
}

async fn manage_dataset(
    queue: &Rc<IoQueue>,
    command: &mut Command,
    ranges: usize,
    deallocate: bool,
) -> Outcome {
    let (data, _held) = data(queue, command).await?;
    let info = &command.namespace.info;
    let ranges: Vec<_> = check_ranges(&data, ranges, info)?.collect();
    for range in ranges
        .into_iter()
        .filter(|range| deallocate && range.blocks > 0)
    {
        let blocks = u64::from(range.blocks);
        let want = command.want(
            Op::Deallocate,
            range.slba,
            blocks * u64::from(info.block_size),
        );
        let admission = admit(queue, command.cid, &command.namespace, want).await?;
        let io = Io::Zero {
            lba: range.slba,
            blocks,
            how: Zero::Deallocate,
        };
        let done = admission.submit(queue.waiting(), command.cid, want, io);
        command.heed(queue, done.await)?;
    }
    Ok(None)
}

async fn flush(
    queue: &Rc<IoQueue>,
    cid: u16,
    namespace: &Rc<Namespace>,
    class: Class,
) -> Result<(), Failure> {
    let want = Want {
        tag: Tag {
            class,
            ..namespace.tag
        },
        op: Op::Flush,
        lba: 0,
        bytes: 0,
        again: false,
    };
    let admission = admit(queue, cid, namespace, want).await?;
    let done = admission.submit(queue.waiting(), cid, want, Io::Flush);
    queue.heed(namespace, Past::default(), done.await)?;
    Ok(())
}

/// Forced unit access of what has no flag for it at the device: what lies in a volatile cache goes
/// to the medium.
pub(crate) async fn empty_cache(
    queue: &Rc<IoQueue>,
    cid: u16,
    namespace: &Rc<Namespace>,
    class: Class,
) -> Result<(), Failure> {
    if namespace.info.volatile_cache {
        flush(queue, cid, namespace, class).await?;
    }
    Ok(())
}

/// The command's data, from its capsule or by invitation.
async fn data(queue: &Rc<IoQueue>, command: &mut Command) -> Result<(Buf, Memory), Failure> {
    if let Some(CapsuleData { buf, reservation }) = command.capsule.take() {
        return Ok((buf, Memory::Capsule(reservation, None)));
    }
    let bytes = command.payload.bytes() as usize;
    let held = hold(queue, command.cid, bytes).await?;
    invite(queue, command.cid, bytes, held).await
}

/// What data are counted against, until dropped.
pub(crate) enum Memory {
    Capsule(
        #[expect(dead_code, reason = "held to be dropped")] Reservation,
        #[expect(dead_code, reason = "held to be dropped")] Option<Held>,
    ),
    Peer(#[expect(dead_code, reason = "held to be dropped")] Option<Held>),
}

/// Waits for a share of memory.
#[inline]
pub(crate) async fn hold(queue: &Rc<IoQueue>, cid: u16, bytes: usize) -> Result<Held, Failure> {
    let charge = Budget::charge(bytes);
    if let Some(held) = queue.budget().try_hold(charge) {
        return Ok(held);
    }
    let waiting = queue
        .waiting()
        .unless_withdrawn(cid, queue.budget().hold(charge));
    waiting
        .await
        .map_err(|taken_back| taken_back.error().into())
}

/// Waits for the turn of an I/O.
#[inline]
pub(crate) async fn admit(
    queue: &Rc<IoQueue>,
    cid: u16,
    namespace: &Namespace,
    want: Want,
) -> Result<Admission, Failure> {
    let core = queue.core();
    if let Some(admission) = namespace.route.try_admit(core, want) {
        return Ok(admission);
    }
    let waiting = queue
        .waiting()
        .unless_withdrawn(cid, namespace.route.admit(core, want));
    waiting
        .await
        .map_err(|taken_back| taken_back.error().into())
}

/// A buffer for which a share is held: the pool has it, unless the system has no memory or what
/// devices take for themselves is beyond what is left to them. Nobody waits for it: it is the turn
/// of this I/O, and nothing could end the wait.
#[inline]
pub(crate) fn buffer(bytes: usize) -> Result<Buf, IoError> {
    Buf::take(bytes).ok_or(IoError::Busy)
}

/// Asks the host for the data of a command and waits for them.
async fn invite(
    queue: &Rc<IoQueue>,
    cid: u16,
    bytes: usize,
    held: Held,
) -> Result<(Buf, Memory), Failure> {
    let buf = buffer(bytes)?;
    let (r2t, arrival) = queue.transfers().invite(cid, buf, Some(held));
    queue.push_r2t(r2t);
    let (buf, held) = whole(queue.waiting().unless_unwanted(cid, arrival).await)?;
    Ok((buf, Memory::Peer(held)))
}

fn whole(arrived: Result<Arrived, TakenBack>) -> Result<(Buf, Option<Held>), Failure> {
    match arrived.map_err(TakenBack::error)? {
        Arrived::Whole(buf, held) => Ok((buf, held)),
        Arrived::Damaged => Err(Status::TRANSIENT_TRANSPORT_ERROR.into()),
        Arrived::Never => Err(Failure::Gone),
    }
}

impl Command {
    /// It has come: for a host that is told what it may have outstanding, this counts.
    #[inline]
    pub(crate) fn count(&self) {
        if let Some(credit_share) = &self.namespace.credit_share {
            credit_share.spend(u64::from(self.payload.bytes()));
        }
    }

    /// It is being answered; gives who knows what the host may have outstanding now.
    #[inline]
    pub(crate) fn settle(&self) -> Option<&CreditShare> {
        let credit_share = self.namespace.credit_share.as_ref()?;
        credit_share.give_back(u64::from(self.payload.bytes()));
        Some(credit_share)
    }

    /// Takes an I/O of it that has come back from its device.
    #[inline]
    fn heed(&self, queue: &IoQueue, ended: Ended) -> Result<Done, IoError> {
        queue.heed(&self.namespace, self.past, ended)
    }

    #[inline]
    fn want(&self, op: Op, lba: u64, bytes: u64) -> Want {
        Want {
            tag: Tag {
                class: self.class,
                ..self.namespace.tag
            },
            op,
            lba,
            bytes,
            again: false,
        }
    }
}
