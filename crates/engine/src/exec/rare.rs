//! Every command but a plain read or write: FUA reads, Compare, Write Zeroes, Dataset Management
//! and Flush.

use std::rc::Rc;

use flashyard_block::{Class, IoError};
use flashyard_controller::IoOp;
use flashyard_controller::io::check_ranges;
use flashyard_nvme::command::LbaRange;
use flashyard_runtime::{Buf, Data};
use flashyard_sched::Op;

use super::command::{Command, io};
use super::front::{Failure, Front, HostData};
use super::queue::{Namespace, Queue};
use crate::ledger::Past;
use crate::quota::{Budget, Held, Reservation, buffer};

/// Everything but plain reads and writes.
pub(super) async fn execute<F: Front>(queue: &Queue<F>, mut command: Command) {
    // Some do several I/Os, and each is booked by itself: from where it comes to the switch.
    command.past = Past::default();
    let done = match command.op {
        IoOp::Read { range, .. } => read_from_medium(queue, &command, range).await,
        IoOp::Compare { range, fua } => compare(queue, &mut command, range, fua).await,
        IoOp::WriteZeroes { range, fua, .. } => write_zeroes(queue, &command, range, fua).await,
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
        Ok(Some((data, held))) => command.answer_read(queue, data, held),
        Ok(None) => command.answer_other(queue),
        Err(failure) => command.fail(queue, failure),
    }
}

/// What a rare command returns to its host.
type Outcome = Result<Option<(Data, Held)>, Failure>;

/// A read with FUA: what lies in a volatile cache goes to the medium first.
async fn read_from_medium<F: Front>(
    queue: &Queue<F>,
    command: &Command,
    range: LbaRange,
) -> Outcome {
    let bytes = command.bytes as usize;
    let held = queue.reserve(command.cid, bytes).await?;
    empty_cache(queue, command.cid, &command.namespace, command.class).await?;
    let done = command
        .perform(queue, range, || buffer(bytes).map(Some))
        .await?;
    Ok(Some((done.data, held)))
}

async fn compare<F: Front>(
    queue: &Queue<F>,
    command: &mut Command,
    range: LbaRange,
    fua: bool,
) -> Outcome {
    let (cid, bytes) = (command.cid, command.bytes as usize);
    let data = command.data.take();
    // What they are compared with needs as much again, and is had together with it: whoever waits
    // for memory must not hold some of the same.
    let buffers = if data.is_some() { 1 } else { 2 };
    let held = queue.reserve(cid, buffers * Budget::charge(bytes)).await?;
    let (theirs, _memory) = match data {
        Some(HostData { buf, reservation }) => (buf, Memory::Sent(reservation, Some(held))),
        None => fetch(queue, cid, bytes, held).await?,
    };
    if fua {
        empty_cache(queue, cid, &command.namespace, command.class).await?;
    }
    let room = || buffer(theirs.len()).map(Some);
    let done = command.perform(queue, range, room).await?;
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

async fn write_zeroes<F: Front>(
    queue: &Queue<F>,
    command: &Command,
    range: LbaRange,
    fua: bool,
) -> Outcome {
    command.perform(queue, range, || Ok(None)).await?;
    if fua {
        empty_cache(queue, command.cid, &command.namespace, command.class).await?;
    }
    Ok(None)
}

async fn manage_dataset<F: Front>(
    queue: &Queue<F>,
    command: &mut Command,
    ranges: usize,
    deallocate: bool,
) -> Outcome {
    let (data, _held) = data(queue, command).await?;
    let ranges: Vec<_> = check_ranges(&data, ranges, &command.namespace.info)?.collect();
    for range in ranges
        .into_iter()
        .filter(|range| deallocate && range.blocks > 0)
    {
        let (slba, blocks) = (range.slba, range.blocks);
        let range = LbaRange { slba, blocks };
        command.perform(queue, range, || Ok(None)).await?;
    }
    Ok(None)
}

async fn flush<F: Front>(
    queue: &Queue<F>,
    cid: u16,
    namespace: &Rc<Namespace>,
    class: Class,
) -> Result<(), Failure> {
    let ask = namespace.ask(class, Op::Flush, 0, 0);
    let admission = queue.admit(cid, namespace, ask).await?;
    let flush = io(IoOp::Flush, None, None)?;
    let done = admission.submit(queue.waiting(), cid, ask, flush);
    queue.take(namespace, Past::default(), done.await)?;
    Ok(())
}

/// Forced unit access of what has no flag for it at the device: what lies in a volatile cache goes
/// to the medium.
pub(super) async fn empty_cache<F: Front>(
    queue: &Queue<F>,
    cid: u16,
    namespace: &Rc<Namespace>,
    class: Class,
) -> Result<(), Failure> {
    if namespace.info.volatile_cache {
        flush(queue, cid, namespace, class).await?;
    }
    Ok(())
}

/// The command's data, which came with it or are fetched.
async fn data<F: Front>(queue: &Queue<F>, command: &mut Command) -> Result<(Buf, Memory), Failure> {
    if let Some(HostData { buf, reservation }) = command.data.take() {
        return Ok((buf, Memory::Sent(reservation, None)));
    }
    let bytes = command.bytes as usize;
    let held = queue.reserve(command.cid, bytes).await?;
    fetch(queue, command.cid, bytes, held).await
}

/// What data are counted against, until dropped.
enum Memory {
    /// They came with the command.
    Sent(
        #[expect(dead_code, reason = "held to be dropped")] Reservation,
        #[expect(dead_code, reason = "held to be dropped")] Option<Held>,
    ),
    /// They were fetched.
    Fetched(#[expect(dead_code, reason = "held to be dropped")] Option<Held>),
}

/// Asks the host for the data of a command and waits for them.
async fn fetch<F: Front>(
    queue: &Queue<F>,
    cid: u16,
    bytes: usize,
    held: Held,
) -> Result<(Buf, Memory), Failure> {
    let (buf, held) = queue.fetch(cid, bytes, held).await?;
    Ok((buf, Memory::Fetched(held)))
}
