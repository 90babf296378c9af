//! The eager path: while the core polls, a receive and a send are system calls of their own instead
//! of requests of the ring. A receive that waits in the ring costs an armed poll, a wake-up,
//! deferred work and an entrance of its own; a core that is awake anyway just asks the socket.
//! Measured with such cores on both sides, a null device and 4 KiB reads, as a share of what bare
//! spinning sockets do: at queue depth 1 0.73 instead of 0.58, at depth 32 0.63 instead of 0.56, at
//! depth 128 0.69 instead of 0.65, over 16 queues the same.
//!
//! It serves a few busy sockets only. Where there are more, one entrance for all of them costs less
//! than a call for each. What it does not finish becomes a request of the ring: a receive when the
//! core is about to sleep, when nothing has come for a while, or when sockets get many; a send when
//! the socket does not take all of it.

use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;

use super::chunks::{CHUNK, ChunkStack};
use super::request::ScratchTable;
use crate::Chunk;
use crate::op::{Completion, Operation, Outcome, Table, Ticket};

/// Receives tried directly at a time, and sends in one turn.
const MOST: usize = 4;
/// Fruitless tries after which a receive goes to the ring: some 60 us where it is the only one.
const TRIES: u32 = 256;
/// After sockets were too many, so many receives go to the ring before the eager path is tried
/// again: a moment where sockets are busy, yet long enough that the trying costs nothing.
const PAUSE: u32 = 4096;
/// Longer sends are more than an empty socket takes at once; the ring sees them through.
const LONGEST_SEND: usize = 64 << 10;

/// Operations that the ring has not seen, and may never see.
pub(super) struct Eager {
    receives: Vec<Receive>,
    sends: Vec<Ticket>,
    /// Receives that still go to the ring at once, because sockets were too many.
    pause: u32,
    chunks: Rc<ChunkStack>,
}

struct Receive {
    ticket: Ticket,
    tries: u32,
}

/// What a direct call brought.
enum Tried {
    Ended(io::Result<Outcome>),
    /// Nothing yet.
    Nothing,
    /// It is for the ring to go on.
    Unfit,
}

impl Eager {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            receives: Vec::with_capacity(MOST),
            sends: Vec::with_capacity(MOST),
            pause: 0,
            chunks: ChunkStack::new()?,
        })
    }

    /// Takes a new operation. False when it is for the ring.
    pub(super) fn take(&mut self, ticket: Ticket, operation: &Operation) -> bool {
        match operation {
            Operation::Recv { .. } | Operation::RecvInto { .. } => self.take_receive(ticket),
            Operation::Send { gather, .. } => {
                let fits = self.pause == 0
                    && self.sends.len() < MOST
                    && (1..=LONGEST_SEND).contains(&gather.len());
                if fits {
                    self.sends.push(ticket);
                }
                fits
            }
            _ => false,
        }
    }

    fn take_receive(&mut self, ticket: Ticket) -> bool {
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        if self.receives.len() == MOST {
            self.pause = PAUSE;
            return false;
        }
        self.receives.push(Receive { ticket, tries: 0 });
        true
    }

    /// Forgets an operation that is to be cancelled. False when the ring has it.
    pub(super) fn forget(&mut self, ticket: Ticket) -> bool {
        let before = self.receives.len() + self.sends.len();
        self.receives.retain(|receive| receive.ticket != ticket);
        self.sends.retain(|&send| send != ticket);
        self.receives.len() + self.sends.len() < before
    }

    /// How many receives are tried directly.
    pub(super) fn receives(&self) -> usize {
        self.receives.len()
    }

    /// Whether receives are for the ring now, for there are too many.
    pub(super) fn is_crowded(&self) -> bool {
        self.pause > 0
    }

    /// One receive that is for the ring from now on; `None` when no more are here.
    pub(super) fn give_up_receive(&mut self) -> Option<Ticket> {
        self.receives.pop().map(|receive| receive.ticket)
    }

    /// Tries this turn's sends. What ended is appended to `ended`, what did not to `left`.
    pub(super) fn send(
        &mut self,
        table: &mut Table,
        scratch: &mut ScratchTable,
        ended: &mut Vec<Completion>,
        left: &mut Vec<Ticket>,
    ) {
        for ticket in self.sends.drain(..) {
            let operation = waiting(table, ticket);
            let Operation::Send {
                socket,
                gather,
                sent,
            } = operation
            else {
                unreachable!("only sends are among the sends")
            };
            let message = scratch.of(ticket).message(gather.as_iovecs(), *sent);
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: the message and what it points to belong to the operation's scratch place and
            // to its gather, which stay in place and unchanged during the call; the socket is open
            // as long as the operation.
            let result = unsafe { libc::sendmsg(socket.id().fd(), message, flags) };
            let result = match usize::try_from(result) {
                Ok(count) => {
                    *sent += count;
                    if *sent < gather.len() {
                        left.push(ticket);
                        continue;
                    }
                    Ok(Outcome::Done)
                }
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if is_passing(&error) {
                        left.push(ticket);
                        continue;
                    }
                    Err(error)
                }
            };
            ended.push(Completion { ticket, result });
        }
    }

    /// Tries each receive once. What ended is appended to `ended`, what is for the ring to `left`.
    pub(super) fn receive(
        &mut self,
        table: &mut Table,
        ended: &mut Vec<Completion>,
        left: &mut Vec<Ticket>,
    ) {
        let chunks = &self.chunks;
        self.receives.retain_mut(|Receive { ticket, tries }| {
            let ticket = *ticket;
            match try_receive(waiting(table, ticket), chunks) {
                Tried::Ended(result) => {
                    ended.push(Completion { ticket, result });
                    return false;
                }
                Tried::Nothing if *tries < TRIES => {
                    *tries += 1;
                    return true;
                }
                Tried::Nothing | Tried::Unfit => {}
            }
            left.push(ticket);
            false
        });
    }
}

/// An operation that the eager path holds.
fn waiting(table: &mut Table, ticket: Ticket) -> &mut Operation {
    table
        .operation(ticket)
        .expect("the eager path forgets what has ended")
}

fn try_receive(operation: &mut Operation, chunks: &Rc<ChunkStack>) -> Tried {
    match operation {
        Operation::Recv { socket } => {
            let Some(id) = chunks.take() else {
                return Tried::Unfit;
            };
            // SAFETY: chunk `id` was just taken, so nobody else uses its memory.
            let result = unsafe { receive(socket.id().fd(), chunks.start(id), CHUNK) };
            match result {
                Ok(len) if len > 0 => Tried::Ended(Ok(Outcome::Chunk(chunks.filled(id, len)))),
                result => {
                    chunks.put(id);
                    judge(result.map(|_| Outcome::Chunk(Chunk::empty())))
                }
            }
        }
        Operation::RecvInto { socket, buf, at } => {
            let room = &mut buf[*at..];
            // SAFETY: the pointer and the length are those of `room`.
            let result = unsafe { receive(socket.id().fd(), room.as_mut_ptr(), room.len()) };
            judge(result.map(Outcome::Bytes))
        }
        _ => unreachable!("only receives are among the receives"),
    }
}

fn judge(result: io::Result<Outcome>) -> Tried {
    match result {
        Err(error) if is_passing(&error) => Tried::Nothing,
        result => Tried::Ended(result),
    }
}

/// Receives what is there, without waiting.
///
/// # Safety
/// `start` points to `len` bytes that nobody else uses during the call.
unsafe fn receive(fd: RawFd, start: *mut u8, len: usize) -> io::Result<usize> {
    // SAFETY: the caller's promise.
    let result = unsafe { libc::recv(fd, start.cast(), len, libc::MSG_DONTWAIT) };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Whether the same call may work later.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR))
}
