//! Translates the kernel's completion of a request into the result of the operation.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use io_uring::cqueue;

use super::chunks::ChunkRing;
use super::request::Scratch;
use super::sockets;
use crate::Chunk;
use crate::handle::Connected;
use crate::op::{Operation, Outcome, Receive, Way};

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
            sockets::established(fd).map_or(Verdict::Again, |new| ok(connected(new)))
        }
        Operation::Connect { .. } => {
            let fd = scratch
                .connecting
                .take()
                .expect("a connection being made has a socket");
            Verdict::Ended(sockets::established(fd).map(connected))
        }
        Operation::Receive(Receive { room: None, .. }) => {
            ok(Outcome::Chunk(match cqueue::buffer_select(flags) {
                Some(id) => chunks.filled(id, count),
                None => Chunk::empty(),
            }))
        }
        Operation::Receive(_) => ok(Outcome::Bytes(count)),
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
        Operation::Write { data, moved, .. } => {
            *moved += count;
            match *moved < data.len() {
                true if count == 0 => Verdict::Ended(Err(io::ErrorKind::WriteZero.into())),
                true => Verdict::Again,
                false => ok(Outcome::Bytes(*moved)),
            }
        }
        Operation::Lent {
            file,
            memory,
            way,
            moved,
            ..
        } => {
            *moved += count;
            let at_end = count == 0 || !moved.is_multiple_of(file.info().alignment as usize);
            match (*moved < memory.len(), way) {
                (true, Way::Read) if !at_end => Verdict::Again,
                (true, Way::Write { .. }) if count > 0 => Verdict::Again,
                (true, Way::Write { .. }) => Verdict::Ended(Err(io::ErrorKind::WriteZero.into())),
                _ => ok(Outcome::Bytes(*moved)),
            }
        }
        Operation::Sync { .. }
        | Operation::Punch { .. }
        | Operation::Zero { .. }
        | Operation::Zone { .. }
        | Operation::Ready { .. }
        | Operation::Signal { .. } => ok(Outcome::Done),
    }
}

fn judge_failure(operation: &mut Operation, code: i32) -> Verdict {
    match (&*operation, code) {
        (Operation::Signal { .. }, libc::EAGAIN) => ok(Outcome::Done),
        (_, libc::EINTR | libc::EAGAIN) | (Operation::Accept { .. }, libc::ECONNABORTED) => {
            Verdict::Again
        }
        (Operation::Receive(Receive { room: None, .. }), libc::ENOBUFS) => Verdict::Starved,
        (Operation::Zero { file, offset, len }, libc::EOPNOTSUPP) => {
            // Where the space cannot be kept, giving it back reads the same. If that does not work
            // either, its error is the answer.
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

fn connected(new: Connected) -> Outcome {
    Outcome::Connected(Box::new(new))
}

fn ok(outcome: Outcome) -> Verdict {
    Verdict::Ended(Ok(outcome))
}

#[cfg(test)]
mod tests {
    use io_uring::IoUring;

    use super::super::request::tests::{Ends, READ, Seen, WRITE, buf, with_ends};
    use super::super::request::{Scratch, ScratchTable};
    use super::*;
    use crate::ticket::Ticket;

    const START: u64 = 1 << 20;
    const LEN: usize = 16_384;

    /// How a transfer ended.
    #[derive(Debug, PartialEq, Eq)]
    enum End {
        Bytes(usize),
        Error(io::ErrorKind),
    }

    /// Answers the requests of a transfer with the kernel's `results`, one after the other. Each
    /// request has to be for the bytes that are missing, at their place in buffer and file.
    fn transfer(operation: &mut Operation, opcode: u8, fd: i32, results: &[i32]) -> End {
        let ring = IoUring::new(8).expect("this machine has io_uring");
        let chunks = ChunkRing::new(&ring.submitter(), 1).expect("there is memory");
        let mut table = ScratchTable::default();
        let first = Ticket {
            index: 0,
            generation: 0,
        };
        let scratch: &mut Scratch = table.begin(first);
        let memory = match &*operation {
            Operation::Read { buf, .. } => buf.as_ptr() as u64,
            Operation::Write { data, .. } => data.as_ptr() as u64,
            _ => unreachable!("it is a transfer"),
        };
        let mut done = 0;
        for (number, &result) in results.iter().enumerate() {
            let entry = scratch.request(operation).expect("it is for the ring");
            let seen = Seen::of(&entry);
            let expected = Seen {
                opcode,
                fd,
                offset: START + done,
                addr: memory + done,
                len: (LEN as u64 - done) as u32,
                op_flags: seen.op_flags,
                ..Seen::default()
            };
            assert_eq!(seen, expected, "request {number} of {results:?}");
            done += u64::try_from(result).unwrap_or(0);
            match judge(operation, scratch, &chunks, result, 0) {
                Verdict::Again => assert!(number + 1 < results.len(), "{results:?}: no end"),
                Verdict::Ended(end) => {
                    assert_eq!(number + 1, results.len(), "{results:?}: too early");
                    return match end {
                        Ok(Outcome::Bytes(bytes)) => End::Bytes(bytes),
                        Ok(other) => panic!("a transfer ends with {other:?}"),
                        Err(error) => End::Error(error.kind()),
                    };
                }
                Verdict::Starved => panic!("a transfer needs no chunk"),
            }
        }
        unreachable!("the last result ends it, or the test has failed")
    }

    #[test]
    fn a_short_write_goes_on_where_it_stopped() {
        let table: [(&[i32], End); 8] = [
            (&[16_384], End::Bytes(LEN)),
            (&[4096, 12_288], End::Bytes(LEN)),
            (&[512, 512, 15_360], End::Bytes(LEN)),
            (&[1, 16_383], End::Bytes(LEN)),
            (
                &[4096, -libc::EINTR, 8192, -libc::EAGAIN, 4096],
                End::Bytes(LEN),
            ),
            (&[8192, 0], End::Error(io::ErrorKind::WriteZero)),
            (
                &[8192, -libc::ENOSPC],
                End::Error(io::ErrorKind::StorageFull),
            ),
            (
                &[-libc::EROFS],
                End::Error(io::ErrorKind::ReadOnlyFilesystem),
            ),
        ];
        with_ends(move |Ends { file, file_fd, .. }| {
            for durable in [false, true] {
                for (results, expected) in &table {
                    let mut write = Operation::Write {
                        file: file.clone(),
                        data: buf(LEN).into(),
                        offset: START,
                        durable,
                        moved: 0,
                    };
                    let end = transfer(&mut write, WRITE, file_fd, results);
                    assert_eq!(end, *expected, "{results:?}");
                }
            }
        });
    }

    #[test]
    fn a_short_read_goes_on_where_it_stopped_unless_the_file_ends_there() {
        let table: [(&[i32], End); 8] = [
            (&[16_384], End::Bytes(LEN)),
            (&[4096, 12_288], End::Bytes(LEN)),
            (&[512, 512, 15_360], End::Bytes(LEN)),
            (
                &[4096, -libc::EINTR, 8192, -libc::EAGAIN, 4096],
                End::Bytes(LEN),
            ),
            // The end of the file: nothing more, or no whole alignment unit (512 here).
            (&[0], End::Bytes(0)),
            (&[8192, 0], End::Bytes(8192)),
            (&[4096, 700], End::Bytes(4796)),
            (
                &[4096, -libc::EIO],
                End::Error(io::Error::from_raw_os_error(libc::EIO).kind()),
            ),
        ];
        with_ends(move |Ends { file, file_fd, .. }| {
            for (results, expected) in &table {
                let mut read = Operation::Read {
                    file: file.clone(),
                    buf: buf(LEN),
                    offset: START,
                    moved: 0,
                };
                let end = transfer(&mut read, READ, file_fd, results);
                assert_eq!(end, *expected, "{results:?}");
            }
        });
    }
}
