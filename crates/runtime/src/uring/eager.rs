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
//! the socket does not take all of it. Until then neither is in the table of operations.
//!
//! The calls are made by `syscall(2)`: those that the C library has for them are points where a
//! thread can be cancelled, which it writes down by atomic instructions before and after each call.
//! No thread of ours is ever cancelled, and no call of these waits.

use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;

use super::chunks::{CHUNK, ChunkStack};
use super::request::MAX_IOVECS;
use crate::direct::{Direct, MOST, Tried};
use crate::handle::SocketId;
use crate::op::{Outcome, Receive, Room};
use crate::ticket::Place;
use crate::{Chunk, Gather};

/// Fruitless tries after which a receive goes to the ring: some 60 us where it is the only one.
const TRIES: u32 = 256;
/// After sockets were too many, so many receives go to the ring before the eager path is tried
/// again: a moment where sockets are busy, yet long enough that the trying costs nothing.
const PAUSE: u32 = 4096;
/// Longer sends are more than an empty socket takes at once; the ring sees them through.
const LONGEST_SEND: usize = 64 << 10;

/// What the core does by itself.
pub(super) struct Eager {
    /// Sends in this turn.
    sends: usize,
    /// Receives that still go to the ring at once, because sockets were too many.
    pause: u32,
    chunks: Rc<ChunkStack>,
}

impl Eager {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            sends: 0,
            pause: 0,
            chunks: ChunkStack::new()?,
        })
    }

    /// Whether a new receive is to be tried, where there are `used` already.
    #[inline]
    pub(super) fn takes_receive(&mut self, used: usize) -> bool {
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        if used == MOST {
            self.pause = PAUSE;
            return false;
        }
        true
    }

    /// Whether receives are for the ring now, for there are too many.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        self.pause > 0
    }

    /// A turn is over: others may send.
    #[inline]
    pub(super) fn end_turn(&mut self) {
        self.sends = 0;
    }

    /// Sends what the socket takes at once. Nothing where the ring is to do it: when sockets are
    /// many, when enough has been sent in this turn, when the socket is full.
    #[inline]
    pub(super) fn send(&mut self, socket: SocketId, gather: &Gather) -> io::Result<usize> {
        if self.pause > 0 || self.sends == MOST || gather.len() > LONGEST_SEND {
            return Ok(0);
        }
        self.sends += 1;
        let pieces = gather.as_iovecs();
        // SAFETY: all zeroes is an empty message.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = pieces.as_ptr().cast_mut();
        message.msg_iovlen = pieces.len().min(MAX_IOVECS);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the message points to so many pieces, and those to bytes, which belong to the
        // gather and stay as they are during the call, which only reads them.
        let result =
            unsafe { libc::syscall(libc::SYS_sendmsg, socket.fd(), &raw const message, flags) };
        match taken(result) {
            Err(error) if is_passing(&error) => Ok(0),
            result => result,
        }
    }

    /// Tries each receive once. What is for the ring is appended to `left`.
    #[inline]
    pub(super) fn receive(&mut self, direct: &mut Direct, left: &mut Vec<Place>) {
        if direct.waiting() == 0 {
            return;
        }
        let chunks = &self.chunks;
        direct.try_each(
            TRIES,
            |receive| try_receive(receive, chunks),
            |place| left.push(place),
        );
    }
}

#[inline]
fn try_receive(receive: &mut Receive, chunks: &Rc<ChunkStack>) -> Tried {
    let fd = receive.socket.id().fd();
    match &mut receive.room {
        None => {
            let Some(id) = chunks.take() else {
                return Tried::Unfit;
            };
            // SAFETY: chunk `id` was just taken, so its memory has no other user.
            let result = unsafe { receive_bytes(fd, chunks.start(id), CHUNK) };
            match result {
                Ok(len) if len > 0 => Tried::Ended(Ok(Outcome::Chunk(chunks.filled(id, len)))),
                result => {
                    chunks.put(id);
                    judge(result.map(|_| Outcome::Chunk(Chunk::empty())))
                }
            }
        }
        Some(room) => judge(receive_into(fd, room).map(Outcome::Bytes)),
    }
}

fn receive_into(fd: RawFd, room: &mut Room) -> io::Result<usize> {
    let (front, behind) = room.pieces();
    if behind.is_empty() {
        // SAFETY: the pointer and the length are those of `front`.
        return unsafe { receive_bytes(fd, front.as_mut_ptr(), front.len()) };
    }
    let mut pieces = [front, behind].map(|piece| libc::iovec {
        iov_base: piece.as_mut_ptr().cast(),
        iov_len: piece.len(),
    });
    // SAFETY: all zeroes is an empty message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = pieces.len();
    // SAFETY: the message points to two pieces, and those to memory without another user during
    // the call.
    taken(unsafe { libc::syscall(libc::SYS_recvmsg, fd, &raw mut message, libc::MSG_DONTWAIT) })
}

#[inline]
fn judge(result: io::Result<Outcome>) -> Tried {
    match result {
        Err(error) if is_passing(&error) => Tried::Nothing,
        result => Tried::Ended(result),
    }
}

/// Receives what is there, without waiting.
///
/// # Safety
/// `start` points to `len` bytes without another user during the call.
#[inline]
unsafe fn receive_bytes(fd: RawFd, start: *mut u8, len: usize) -> io::Result<usize> {
    // SAFETY: the caller's promise.
    taken(unsafe {
        let (nobody, none) = (
            std::ptr::null_mut::<libc::sockaddr>(),
            std::ptr::null_mut::<u32>(),
        );
        libc::syscall(
            libc::SYS_recvfrom,
            fd,
            start,
            len,
            libc::MSG_DONTWAIT,
            nobody,
            none,
        )
    })
}

/// The number of bytes that a call has moved.
#[inline]
fn taken(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Whether the same call may work later.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR))
}
