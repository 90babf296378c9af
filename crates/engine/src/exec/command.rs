//! Plain reads and writes, and what all commands have in common. Each takes a share of memory,
//! waits for its turn in the switch, does the I/O and answers. If nothing has to be waited for,
//! that is a plain call; otherwise it is a future. The share comes first, so that a host that takes
//! nothing keeps only itself waiting and never the turn of somebody else; the memory itself is
//! taken when the turn has come.

use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use flashyard_block::{Class, Done, Io, IoError, IoFuture, Zero};
use flashyard_controller::IoOp;
use flashyard_nvme::SubmissionQueueEntry;
use flashyard_nvme::command::LbaRange;
use flashyard_runtime::{Buf, Data, Rt};
use flashyard_sched::{Ask, Op};
use flashyard_time::{Duration, Time};

use super::front::{End, Failure, Front, HostData, Success};
use super::fused::{self, Pair};
use super::queue::{Namespace, Queue};
use super::{lent, rare};
use crate::forwarding::{Admission, Ended, Route};
use crate::ledger::Past;
use crate::quota::{Budget, Held, Reservation, buffer};
use crate::switch::Permit;

/// A checked command with the data that came with it.
pub struct Command {
    pub(super) cid: u16,
    opcode: u8,
    pub(super) class: Class,
    pub(super) namespace: Rc<Namespace>,
    pub(super) op: IoOp,
    /// Length of its data, whichever way they go.
    pub(super) bytes: u32,
    pub(super) data: Option<HostData>,
    /// What there was before it asked for its turn.
    pub(super) past: Past,
}

/// What of a command or pair could not be done at once: goes to the pool of the queue.
pub struct Work(pub(super) Rest);

pub(super) enum Rest {
    /// Nothing has been done yet.
    Queued(Option<Command>),
    /// A read that the device is busy with.
    Reading(Issued<Held>),
    /// A write that the device is busy with.
    Writing(Issued<WriteMemory>),
    /// Either, with memory of its host.
    Lent(Issued<()>),
    /// A fused pair.
    Pair(Option<Box<Pair>>),
}

impl From<Pair> for Work {
    fn from(pair: Pair) -> Self {
        Self(Rest::Pair(Some(Box::new(pair))))
    }
}

/// What the data of a write are counted against, until the device has them.
pub(super) enum WriteMemory {
    /// They came with the command.
    Capsule { _reservation: Reservation },
    /// They were copied when its turn had come.
    Copied { _held: Held },
}

/// A command at the device, with its permit and the memory that is held for it.
pub(super) struct Issued<M> {
    pub(super) command: Command,
    pub(super) means: Option<(Permit, M)>,
    pub(super) io: IoFuture,
}

/// Starts a command. One that need not wait, for memory, for its turn or for the device, is
/// finished and answered on return, without ever becoming a future; of any other one the rest is
/// returned.
#[inline]
pub fn start<F: Front>(queue: &Queue<F>, command: Command) -> Option<Work> {
    let command = match F::AT_HAND {
        true => match lent::start(queue, command) {
            Ok(rest) => return rest,
            Err(command) => command,
        },
        false => command,
    };
    match command.op {
        IoOp::Read { range, fua: false } => start_read(queue, command, range),
        IoOp::Write { range, .. } if command.data.is_some() || F::AT_HAND => {
            start_write(queue, command, range)
        }
        _ => Some(Work(Rest::Queued(Some(command)))),
    }
}

fn start_read<F: Front>(queue: &Queue<F>, command: Command, range: LbaRange) -> Option<Work> {
    let ask = command.ask(range);
    let Some((memory, buf, permit)) = read_means(queue, &command, ask) else {
        return Some(Work(Rest::Queued(Some(command))));
    };
    let result = match command.submit(&permit, range, Some(buf)) {
        Ok(result) => result,
        Err(io) => {
            return Some(Work(Rest::Reading(Issued {
                command,
                means: Some((permit, memory)),
                io,
            })));
        }
    };
    let sample = permit.complete(result.is_ok());
    command.finish_read(queue, (result, sample), memory);
    None
}

/// All that a read needs, if nothing of it has to be waited for.
#[inline]
fn read_means<F: Front>(
    queue: &Queue<F>,
    command: &Command,
    ask: Ask,
) -> Option<(Held, Buf, Permit)> {
    let Route::Here(port) = &command.namespace.route else {
        return None;
    };
    let bytes = command.bytes as usize;
    let held = queue.budget().try_reserve(Budget::charge(bytes))?;
    let buf = Buf::take(bytes)?;
    let permit = port.try_admit(ask)?;
    Some((held, buf, permit))
}

fn start_write<F: Front>(queue: &Queue<F>, mut command: Command, range: LbaRange) -> Option<Work> {
    let ask = command.ask(range);
    let (memory, buf, permit) = match write_means(queue, &mut command, ask) {
        Ok(Some(means)) => means,
        Ok(None) => return Some(Work(Rest::Queued(Some(command)))),
        Err(failure) => {
            command.fail(queue, failure);
            return None;
        }
    };
    let result = match command.submit(&permit, range, Some(buf)) {
        Ok(result) => result,
        Err(io) => {
            return Some(Work(Rest::Writing(Issued {
                command,
                means: Some((permit, memory)),
                io,
            })));
        }
    };
    let sample = permit.complete(result.is_ok());
    command.finish_write(queue, (result, sample));
    None
}

/// All that a write needs with its data, if nothing of it has to be waited for.
#[inline]
fn write_means<F: Front>(
    queue: &Queue<F>,
    command: &mut Command,
    ask: Ask,
) -> Result<Option<(WriteMemory, Buf, Permit)>, Failure> {
    let port = match &command.namespace.route {
        // Since the header came, which is when the way was found, its device may have been taken
        // away.
        Route::Here(port) if !port.is_closed() => port,
        _ => return Ok(None),
    };
    let bytes = command.bytes as usize;
    let copied = match command.data {
        Some(_) => None,
        None => {
            let held = queue.budget().try_reserve(Budget::charge(bytes));
            let Some(means) = held.and_then(|held| Some((held, Buf::take(bytes)?))) else {
                return Ok(None);
            };
            Some(means)
        }
    };
    let Some(permit) = port.try_admit(ask) else {
        return Ok(None);
    };
    if let Some((held, mut buf)) = copied {
        queue.front().copy(command.cid, &mut buf)?;
        let memory = WriteMemory::Copied { _held: held };
        return Ok(Some((memory, buf, permit)));
    }
    Ok(command.data.take().map(|HostData { buf, reservation }| {
        let memory = WriteMemory::Capsule {
            _reservation: reservation,
        };
        (memory, buf, permit)
    }))
}

/// The future of a command that has to wait. The pool of a connection keeps a place of this size
/// for each command that has ever waited at the same time, so it works in place, and what is long
/// is in a box: a queue that has gone idle after a burst of 128 keeps 40 KiB instead of 200.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` would keep its arguments twice"
)]
pub fn execute<F: Front>(queue: Rc<Queue<F>>, mut work: Work) -> impl Future<Output = ()> {
    async move {
        match &mut work.0 {
            Rest::Reading(read) => {
                let result = (&mut read.io).await;
                if let Some((permit, held)) = read.means.take() {
                    let sample = permit.complete(result.is_ok());
                    read.command.finish_read(&queue, (result, sample), held);
                }
            }
            Rest::Writing(write) => {
                let result = (&mut write.io).await;
                if let Some((permit, memory)) = write.means.take() {
                    drop(memory);
                    let sample = permit.complete(result.is_ok());
                    write.command.finish_write(&queue, (result, sample));
                }
            }
            Rest::Lent(lent) => {
                let result = (&mut lent.io).await;
                if let Some((permit, ())) = lent.means.take() {
                    let sample = permit.complete(result.is_ok());
                    lent.command.finish_lent(&queue, (result, sample));
                }
            }
            Rest::Queued(command) => {
                if let Some(command) = command.take() {
                    Box::pin(from_the_beginning(&queue, command)).await;
                }
            }
            Rest::Pair(pair) => {
                if let Some(pair) = pair.take() {
                    Box::pin(fused::execute(&queue, *pair)).await;
                }
            }
        }
        queue.front().on_finished();
    }
}

async fn from_the_beginning<F: Front>(queue: &Queue<F>, command: Command) {
    if F::AT_HAND && lent::execute(queue, &command).await {
        return;
    }
    match command.op {
        IoOp::Read { range, fua: false } => read(queue, &command, range).await,
        IoOp::Write { range, .. } => write(queue, command, range).await,
        _ => Box::pin(rare::execute(queue, command)).await,
    }
}

async fn read<F: Front>(queue: &Queue<F>, command: &Command, range: LbaRange) {
    let bytes = command.bytes as usize;
    let done = async {
        let held = queue.reserve(command.cid, bytes).await?;
        let done = command
            .perform(queue, range, || buffer(bytes).map(Some))
            .await?;
        Ok((done.data, held))
    };
    match done.await {
        Ok((data, held)) => command.answer_read(queue, data, held),
        Err(failure) => command.fail(queue, failure),
    }
}

async fn write<F: Front>(queue: &Queue<F>, mut command: Command, range: LbaRange) {
    let data = command.data.take();
    let done = async {
        let Some(HostData { buf, reservation }) = data else {
            return write_fetched(queue, &mut command, range).await;
        };
        command.perform(queue, range, || Ok(Some(buf))).await?;
        drop(reservation);
        Ok(())
    };
    match done.await {
        Ok(()) => command.answer_write(queue),
        Err(failure) => command.fail(queue, failure),
    }
}

/// A host that lets its data wait does not keep the device from the others: its turn lapses, and
/// comes again when the data are here.
async fn write_fetched<F: Front>(
    queue: &Queue<F>,
    command: &mut Command,
    range: LbaRange,
) -> Result<(), Failure> {
    let (cid, bytes) = (command.cid, command.bytes as usize);
    let ask = command.ask(range);
    let rt = queue.core().rt();
    let held = queue.reserve(cid, bytes).await?;
    let asked = rt.turn_time();
    let admission = turn(queue, cid, &command.namespace, ask, false).await?;
    let mut fetched = pin!(queue.fetch(cid, bytes, held));
    let deadline = queue.core().target().config().limits.turn_deadline;
    let (fetched, admission) = match soon(rt, deadline, fetched.as_mut()).await {
        Some(fetched) => (fetched, Some(admission)),
        None => {
            drop(admission);
            let fetched = fetched.await;
            // It waits for its turn once more, because of its host.
            command.past.receive += rt.turn_time().since(asked);
            (fetched, None)
        }
    };
    let (buf, held) = fetched?;
    let mut admission = match admission {
        Some(admission) => admission,
        None => turn(queue, cid, &command.namespace, ask, true).await?,
    };
    admission.issue();
    let io = io(command.op, Some(range), Some(buf))?;
    let written = admission.submit(queue.waiting(), cid, ask, io);
    command.take(queue, written.await)?;
    drop(held);
    Ok(())
}

/// Waits for the turn of an I/O, wherever its device is; `again`: it had one before, and its host
/// kept it waiting.
async fn turn<F: Front>(
    queue: &Queue<F>,
    cid: u16,
    namespace: &Namespace,
    ask: Ask,
    again: bool,
) -> Result<Admission, Failure> {
    let admission = if again {
        queue.wait_for_turn(cid, namespace, ask, true).await?
    } else {
        queue.admit(cid, namespace, ask).await?
    };
    let granted = admission.granted(queue.waiting(), cid, (ask, again));
    Ok(granted.await?)
}

/// The I/O with its data: what `op` does to the blocks of `range`. `buf` has what is written, or is
/// room for what is read.
///
/// # Errors
/// Internal: there has to be a range or a buffer, or none, and it is the other way round.
#[inline]
pub(super) fn io(op: IoOp, range: Option<LbaRange>, buf: Option<Buf>) -> Result<Io, IoError> {
    let Some(LbaRange { slba: lba, blocks }) = range else {
        return match op {
            IoOp::Flush => Ok(Io::Flush),
            _ => Err(IoError::Internal),
        };
    };
    let how = match (op, buf) {
        (IoOp::Read { .. } | IoOp::Compare { .. }, Some(into)) => {
            return Ok(Io::Read { lba, into });
        }
        (IoOp::Write { fua, .. }, Some(buf)) => {
            let data = buf.into();
            return Ok(Io::Write { lba, data, fua });
        }
        (IoOp::WriteZeroes { deallocate, .. }, None) => Zero::Write { deallocate },
        (IoOp::DatasetManagement { .. }, None) => Zero::Deallocate,
        _ => return Err(IoError::Internal),
    };
    let blocks = u64::from(blocks);
    Ok(Io::Zero { lba, blocks, how })
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

impl Command {
    /// An accepted command: `bytes` is the length of its data, `others` how many commands are
    /// outstanding beside it, `began` and `at` when its first byte was seen and its last. For a
    /// host that receives credits, it counts from now on.
    #[inline]
    pub fn new<F: Front>(
        queue: &Queue<F>,
        entry: &SubmissionQueueEntry,
        namespace: Rc<Namespace>,
        (op, bytes): (IoOp, u32),
        others: u16,
        (began, at): (Time, Time),
    ) -> Self {
        let class = queue.classify(namespace.tag.class, entry, bytes, others);
        if let Some(credit_share) = &namespace.credit_share {
            credit_share.spend(u64::from(bytes));
        }
        Self {
            cid: entry.cid(),
            opcode: entry.opcode(),
            class,
            namespace,
            op,
            bytes,
            data: None,
            past: Past {
                began,
                receive: at.since(began),
            },
        }
    }

    /// Its identifier.
    #[inline]
    pub fn cid(&self) -> u16 {
        self.cid
    }

    /// Its data have come.
    #[inline]
    pub fn set_data(&mut self, data: HostData, at: Time) {
        self.data = Some(data);
        self.past.receive = at.since(self.past.began);
    }

    /// Takes an I/O of it that has come back from its device.
    #[inline]
    pub(super) fn take<F: Front>(&self, queue: &Queue<F>, ended: Ended) -> Result<Done, IoError> {
        queue.take(&self.namespace, self.past, ended)
    }

    /// The ask: what an I/O of it to these blocks is to the switch.
    #[inline]
    pub(super) fn ask(&self, range: LbaRange) -> Ask {
        let op = match self.op {
            IoOp::Read { .. } | IoOp::Compare { .. } => Op::Read,
            IoOp::Write { .. } => Op::Write,
            IoOp::WriteZeroes { .. } => Op::WriteZeroes,
            IoOp::DatasetManagement { .. } => Op::Deallocate,
            IoOp::Flush => Op::Flush,
        };
        let bytes = u64::from(range.blocks) * u64::from(self.namespace.info.block_size);
        self.namespace.ask(self.class, op, range.slba, bytes)
    }

    /// Gives the device an I/O for which there is a permit; its end, if that is here already.
    #[inline]
    fn submit(
        &self,
        permit: &Permit,
        range: LbaRange,
        buf: Option<Buf>,
    ) -> Result<Result<Done, IoError>, IoFuture> {
        match io(self.op, Some(range), buf) {
            Ok(io) => permit.submit(io).try_finish(),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Does an I/O of it to these blocks when its turn has come. The buffer, if it needs one, is
    /// taken only then.
    pub(super) async fn perform<F: Front>(
        &self,
        queue: &Queue<F>,
        range: LbaRange,
        buf: impl FnOnce() -> Result<Option<Buf>, IoError>,
    ) -> Result<Done, Failure> {
        let ask = self.ask(range);
        let admission = queue.admit(self.cid, &self.namespace, ask).await?;
        let io = io(self.op, Some(range), buf()?)?;
        let done = admission.submit(queue.waiting(), self.cid, ask, io);
        Ok(self.take(queue, done.await)?)
    }

    /// It is being answered with success: what the host gets to know beside that.
    #[inline]
    fn success(&self) -> Success<'_> {
        let credit = self.namespace.credit_share.as_ref();
        if let Some(credit) = credit {
            credit.give_back(u64::from(self.bytes));
        }
        Success {
            class: self.class,
            nsid: self.namespace.info.nsid,
            credit,
        }
    }

    /// Answers a read that has come back from the device.
    #[inline]
    fn finish_read<F: Front>(&self, queue: &Queue<F>, ended: Ended, held: Held) {
        match self.take(queue, ended) {
            Ok(done) => self.answer_read(queue, done.data, held),
            Err(error) => self.fail(queue, error.into()),
        }
    }

    /// Answers a write that has come back from the device.
    #[inline]
    fn finish_write<F: Front>(&self, queue: &Queue<F>, ended: Ended) {
        match self.take(queue, ended) {
            Ok(_) => self.answer_write(queue),
            Err(error) => self.fail(queue, error.into()),
        }
    }

    #[inline]
    pub(super) fn answer_read<F: Front>(&self, queue: &Queue<F>, data: Data, held: Held) {
        queue.counters().on_read(data.len() as u64);
        let end = End::Read(self.success(), data, held);
        queue.front().answer(self.cid, end);
    }

    #[inline]
    fn answer_write<F: Front>(&self, queue: &Queue<F>) {
        queue.counters().on_write(u64::from(self.bytes));
        let success = self.success();
        let end = match self.op {
            IoOp::Write { fua: true, .. } => End::Other(success),
            _ => End::Write(success),
        };
        queue.front().answer(self.cid, end);
    }

    /// Answers a command whose data have not been in a buffer.
    #[inline]
    pub(super) fn finish_lent<F: Front>(&self, queue: &Queue<F>, ended: Ended) {
        match (self.take(queue, ended), self.op) {
            (Err(error), _) => self.fail(queue, error.into()),
            (Ok(_), IoOp::Write { .. }) => self.answer_write(queue),
            (Ok(_), _) => {
                queue.counters().on_read(u64::from(self.bytes));
                queue.front().answer(self.cid, End::Other(self.success()));
            }
        }
    }

    /// Answers any other command that succeeded.
    pub(super) fn answer_other<F: Front>(&self, queue: &Queue<F>) {
        match self.op {
            IoOp::Compare { .. } => queue.counters().on_read(u64::from(self.bytes)),
            _ => queue.counters().on_other(),
        }
        queue.front().answer(self.cid, End::Other(self.success()));
    }

    /// Answers it with a failure.
    #[cold]
    pub fn fail<F: Front>(&self, queue: &Queue<F>, failure: Failure) {
        let lba = self.op.range().map_or(0, |range| range.slba);
        let Success { nsid, .. } = self.success();
        queue.fail(failure, (self.cid, self.opcode), (nsid, lba));
    }
}
