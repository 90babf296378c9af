//! From the kernel's completion of a request to what becomes of the operation.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use io_uring::cqueue;

use super::chunks::ChunkRing;
use super::request::Scratch;
use super::sockets;
use crate::Chunk;
use crate::op::{Operation, Outcome};

/// What is to become of an operation.
pub(super) enum Verdict {
    Ended(io::Result<Outcome>),
    /// Goes on with another request.
    Again,
    /// Goes on when a chunk is free.
    Starved,
}

/// Judges the completion of a request for `operation`: `result` and `flags` are the kernel's.
pub(super) fn judge(
    operation: &mut Operation,
    scratch: &mut Scratch,
    chunks: &Rc<ChunkRing>,
    result: i32,
    flags: u32,
) -> Verdict {
    let verdict = match usize::try_from(result) {
        Ok(count) => judge_success(operation, scratch, chunks, count, flags),
        Err(_) => judge_failure(operation, -result),
    };
    // Whatever comes next, a socket that is not connected by now is of no use.
    scratch.connecting = None;
    match verdict {
        Verdict::Again | Verdict::Starved if scratch.cancelled => Verdict::Ended(Err(cancelled())),
        verdict => verdict,
    }
}

/// The end of an operation that was cancelled before it could end by itself.
pub(super) fn cancelled() -> io::Error {
    io::Error::from_raw_os_error(libc::ECANCELED)
}

fn judge_success(
    operation: &mut Operation,
    scratch: &mut Scratch,
    chunks: &Rc<ChunkRing>,
    count: usize,
    flags: u32,
) -> Verdict {
    match operation {
        Operation::Accept { .. } => {
            let fd = RawFd::try_from(count).expect("a result is an int");
            // SAFETY: the kernel has just made this descriptor for us.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            // A connection that is gone already was none.
            sockets::established(fd).map_or(Verdict::Again, |new| ok(Outcome::Connected(new)))
        }
        Operation::Connect { .. } => {
            let fd = scratch
                .connecting
                .take()
                .expect("a connection being made has a socket");
            Verdict::Ended(sockets::established(fd).map(Outcome::Connected))
        }
        Operation::Recv { .. } => ok(Outcome::Chunk(match cqueue::buffer_select(flags) {
            Some(id) => chunks.filled(id, count),
            None => Chunk::empty(),
        })),
        Operation::RecvInto { .. } => ok(Outcome::Bytes(count)),
        Operation::Send { gather, sent, .. } => {
            *sent += count;
            if *sent < gather.len() {
                Verdict::Again
            } else {
                ok(Outcome::Done)
            }
        }
        Operation::Read {
            file, buf, moved, ..
        } => {
            *moved += count;
            // A direct read that stops within an alignment unit stopped at the end of the file.
            let at_end = count == 0 || !moved.is_multiple_of(file.info().alignment as usize);
            if *moved < buf.len() && !at_end {
                Verdict::Again
            } else {
                ok(Outcome::Bytes(*moved))
            }
        }
        Operation::Write { buf, moved, .. } => {
            *moved += count;
            match *moved < buf.len() {
                true if count == 0 => Verdict::Ended(Err(io::ErrorKind::WriteZero.into())),
                true => Verdict::Again,
                false => ok(Outcome::Bytes(*moved)),
            }
        }
        Operation::Sync { .. }
        | Operation::Punch { .. }
        | Operation::Zero { .. }
        | Operation::Zone { .. } => ok(Outcome::Done),
    }
}

fn judge_failure(operation: &mut Operation, code: i32) -> Verdict {
    match (&*operation, code) {
        (_, libc::EINTR | libc::EAGAIN) | (Operation::Accept { .. }, libc::ECONNABORTED) => {
            Verdict::Again
        }
        (Operation::Recv { .. }, libc::ENOBUFS) => Verdict::Starved,
        (Operation::Zero { file, offset, len }, libc::EOPNOTSUPP) => {
            // Where the space cannot be kept, giving it back reads the same. If that does not work either, its
            // error is the answer.
            *operation = Operation::Punch {
                file: file.clone(),
                offset: *offset,
                len: *len,
            };
            Verdict::Again
        }
        _ => Verdict::Ended(Err(io::Error::from_raw_os_error(code))),
    }
}

fn ok(outcome: Outcome) -> Verdict {
    Verdict::Ended(Ok(outcome))
}
