//! Reads and writes whose data go straight between the device and memory of the host: where that is
//! at hand, and the device is here and takes it. They need no buffer, and so no share of memory.
//! The memory is lent when the device gets the I/O, and not while that waits for its turn.

use flashyard_block::{LentIo, Way};
use flashyard_controller::IoOp;
use flashyard_nvme::Status;
use flashyard_nvme::command::LbaRange;

use super::command::{Command, Issued, Rest, Work};
use super::front::Front;
use super::queue::Queue;
use crate::forwarding::{Admission, Route};
use crate::switch::Port;

/// Starts a command so, as [`super::start`] does; gives it back if its data have to be copied.
#[inline]
pub(super) fn start<F: Front>(queue: &Queue<F>, command: Command) -> Result<Option<Work>, Command> {
    let Some((port, range, way)) = whither(&command) else {
        return Err(command);
    };
    let Some(unit) = port.takes_lent() else {
        return Err(command);
    };
    let Some(memory) = queue.front().lend(command.cid, unit, way) else {
        return Err(command);
    };
    let Some(permit) = port.try_admit(command.ask(range)) else {
        drop(memory);
        return Ok(Some(Work(Rest::Queued(Some(command)))));
    };
    let lba = range.slba;
    match permit.submit_lent(LentIo { lba, memory, way }).try_finish() {
        Ok(result) => {
            let sample = permit.complete(result.is_ok());
            command.finish_lent(queue, (result, sample));
            Ok(None)
        }
        Err(io) => {
            let means = Some((permit, ()));
            Ok(Some(Work(Rest::Lent(Issued { command, means, io }))))
        }
    }
}

/// Executes a command so that has to wait for its turn; false if its data have to be copied, and
/// nothing has been done.
pub(super) async fn execute<F: Front>(queue: &Queue<F>, command: &Command) -> bool {
    let Some((port, range, way)) = whither(command) else {
        return false;
    };
    let lend = |unit: Option<u32>| queue.front().lend(command.cid, unit?, way);
    if lend(port.takes_lent()).is_none() {
        return false;
    }
    let ask = command.ask(range);
    let admission = match queue.admit(command.cid, &command.namespace, ask).await {
        Ok(admission) => admission,
        Err(failure) => {
            command.fail(queue, failure);
            return true;
        }
    };
    let Admission::Here(permit) = admission else {
        command.fail(queue, Status::NAMESPACE_NOT_READY.into());
        return true;
    };
    // While it waited another device has come behind the port, or the memory has gone.
    let Some(memory) = lend(permit.takes_lent()) else {
        return false;
    };
    let lba = range.slba;
    let result = permit.submit_lent(LentIo { lba, memory, way }).await;
    let sample = permit.complete(result.is_ok());
    command.finish_lent(queue, (result, sample));
    true
}

/// Where its data go, if it is a read or write of which they have not come, at a device here.
#[inline]
fn whither(command: &Command) -> Option<(&std::rc::Rc<Port>, LbaRange, Way)> {
    let Route::Here(port) = &command.namespace.route else {
        return None;
    };
    if command.data.is_some() || port.is_closed() {
        return None;
    }
    match command.op {
        IoOp::Read { range, fua: false } => Some((port, range, Way::Read)),
        IoOp::Write { range, fua } => Some((port, range, Way::Write { fua })),
        _ => None,
    }
}
