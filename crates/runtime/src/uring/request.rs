//! Translates operations into submission entries, with what the kernel needs for them beside the
//! operation itself.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use io_uring::opcode;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, FsyncFlags};

use super::chunks::{CHUNK, GROUP};
use super::sockets::{self, KernelAddr};
use crate::handle::FileId;
use crate::op::{Operation, Receive, Way};
use crate::ticket::Ticket;

/// iovecs the kernel takes by one call (`UIO_MAXIOV`).
pub(super) const MAX_IOVECS: usize = 1024;
/// Places are made so many at a time, and never move.
const BLOCK: usize = 64;

/// One place of scratch memory for each ticket's index, at addresses that never change.
#[derive(Default)]
pub(super) struct ScratchTable {
    blocks: Vec<Box<[Scratch; BLOCK]>>,
}

impl ScratchTable {
    /// The place for a new operation, which is made if need be.
    pub(super) fn begin(&mut self, ticket: Ticket) -> &mut Scratch {
        while self.blocks.len() <= ticket.index as usize / BLOCK {
            self.blocks
                .push(Box::new(std::array::from_fn(|_| Scratch::new())));
        }
        let scratch = self.of(ticket);
        scratch.cancelled = false;
        scratch
    }

    /// The place of an operation that has begun.
    pub(super) fn of(&mut self, ticket: Ticket) -> &mut Scratch {
        &mut self.blocks[ticket.index as usize / BLOCK][ticket.index as usize % BLOCK]
    }
}

/// Scratch memory of one operation.
pub(super) struct Scratch {
    message: libc::msghdr,
    /// The rest of a gathered send that stopped within a piece, or the pieces of a receive.
    rest: Vec<libc::iovec>,
    addr: Option<KernelAddr>,
    /// The socket of a connection being made.
    pub(super) connecting: Option<OwnedFd>,
    /// The operation is to end: no further request for it.
    pub(super) cancelled: bool,
}

impl Scratch {
    fn new() -> Self {
        Self {
            // SAFETY: all zeroes is an empty message.
            message: unsafe { std::mem::zeroed() },
            rest: Vec::new(),
            addr: None,
            connecting: None,
            cancelled: false,
        }
    }

    /// The next request for `operation`, which is at its beginning or has moved some bytes. Its
    /// pointers are those of the operation's buffers and of this place.
    pub(super) fn request(&mut self, operation: &mut Operation) -> io::Result<Entry> {
        Ok(match operation {
            Operation::Accept { listener } => accept(listener.id().fd()),
            Operation::Connect { addr } => self.connect(*addr)?,
            Operation::Receive(Receive { socket, room: None }) => {
                opcode::Recv::new(Fd(socket.id().fd()), std::ptr::null_mut(), CHUNK as u32)
                    .buf_group(GROUP)
                    .build()
                    .flags(Flags::BUFFER_SELECT)
            }
            Operation::Receive(Receive {
                socket,
                room: Some(room),
            }) => {
                let fd = Fd(socket.id().fd());
                let (front, behind) = room.pieces();
                if behind.is_empty() {
                    opcode::Recv::new(fd, front.as_mut_ptr(), front.len() as u32).build()
                } else {
                    opcode::RecvMsg::new(fd, self.room(front, behind)).build()
                }
            }
            Operation::Send {
                socket,
                gather,
                sent,
            } => {
                let message = self.message(gather.as_iovecs(), *sent);
                opcode::SendMsg::new(Fd(socket.id().fd()), message)
                    .flags((libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32)
                    .build()
            }
            Operation::Read {
                file,
                buf,
                offset,
                moved,
            } => {
                let room = &mut buf[*moved..];
                opcode::Read::new(Fd(file.id().fd()), room.as_mut_ptr(), room.len() as u32)
                    .offset(offset.saturating_add(*moved as u64))
                    .build()
            }
            Operation::Write {
                file,
                data,
                offset,
                durable,
                moved,
            } => {
                let rest = &data[*moved..];
                opcode::Write::new(Fd(file.id().fd()), rest.as_ptr(), rest.len() as u32)
                    .offset(offset.saturating_add(*moved as u64))
                    .rw_flags(if *durable { libc::RWF_DSYNC } else { 0 })
                    .build()
            }
            Operation::Lent {
                file,
                memory,
                offset,
                way,
                moved,
            } => {
                memory.iovecs(*moved, &mut self.rest);
                let (fd, at) = (Fd(file.id().fd()), *offset + *moved as u64);
                transfer(fd, &self.rest, at, *way)
            }
            Operation::Sync { file } => opcode::Fsync::new(Fd(file.id().fd()))
                .flags(FsyncFlags::DATASYNC)
                .build(),
            Operation::Punch { file, offset, len } => {
                fallocate(file.id(), *offset, *len, libc::FALLOC_FL_PUNCH_HOLE)
            }
            Operation::Zero { file, offset, len } => {
                fallocate(file.id(), *offset, *len, libc::FALLOC_FL_ZERO_RANGE)
            }
            Operation::Ready { fd, write } => {
                let events = if *write { libc::POLLOUT } else { libc::POLLIN };
                opcode::PollAdd::new(Fd(fd.as_fd().as_raw_fd()), events as u32).build()
            }
            Operation::Signal { fd, one } => {
                opcode::Write::new(Fd(fd.as_fd().as_raw_fd()), one.as_ptr(), one.len() as u32)
                    .build()
            }
            Operation::Zone { .. } => return Err(io::ErrorKind::Unsupported.into()),
        })
    }

    fn connect(&mut self, addr: SocketAddr) -> io::Result<Entry> {
        let fd = sockets::for_connection_to(addr)?;
        let raw = fd.as_raw_fd();
        self.connecting = Some(fd);
        let (addr, len) = KernelAddr::new(addr);
        let addr: *const KernelAddr = self.addr.insert(addr);
        Ok(opcode::Connect::new(Fd(raw), addr.cast(), len).build())
    }

    /// The message of a receive into two pieces. Its pointers are those and of this place.
    fn room(&mut self, front: &mut [u8], behind: &mut [u8]) -> *mut libc::msghdr {
        self.rest.clear();
        for piece in [front, behind] {
            self.rest.push(libc::iovec {
                iov_base: piece.as_mut_ptr().cast(),
                iov_len: piece.len(),
            });
        }
        self.message.msg_iov = self.rest.as_mut_ptr();
        self.message.msg_iovlen = self.rest.len();
        &raw mut self.message
    }

    /// The next message of a gathered send of which `sent` bytes are gone. Its pointers are those
    /// of the gather and of this place.
    fn message(&mut self, pieces: &[libc::iovec], mut sent: usize) -> *const libc::msghdr {
        let mut first = 0;
        while first < pieces.len() && sent >= pieces[first].iov_len {
            sent -= pieces[first].iov_len;
            first += 1;
        }
        let pieces = &pieces[first..];
        let mut now = &pieces[..pieces.len().min(MAX_IOVECS)];
        if sent > 0 {
            self.rest.clear();
            self.rest.extend_from_slice(now);
            let piece = &mut self.rest[0];
            piece.iov_base = piece.iov_base.wrapping_byte_add(sent);
            piece.iov_len -= sent;
            now = &self.rest;
        }
        self.message.msg_iov = now.as_ptr().cast_mut();
        self.message.msg_iovlen = now.len();
        &raw const self.message
    }
}

/// A transfer between a file and the pieces of memory in `iovecs`.
fn transfer(fd: Fd, iovecs: &[libc::iovec], offset: u64, way: Way) -> Entry {
    let (first, count) = (iovecs.as_ptr(), iovecs.len() as u32);
    match (way, iovecs) {
        (Way::Read, [one]) => opcode::Read::new(fd, one.iov_base.cast(), one.iov_len as u32)
            .offset(offset)
            .build(),
        (Way::Read, _) => opcode::Readv::new(fd, first, count).offset(offset).build(),
        (Way::Write { durable }, _) => {
            let flags = if durable { libc::RWF_DSYNC } else { 0 };
            match iovecs {
                [one] => opcode::Write::new(fd, one.iov_base.cast(), one.iov_len as u32)
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
                _ => opcode::Writev::new(fd, first, count)
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
            }
        }
    }
}

fn accept(listener: RawFd) -> Entry {
    let (no_addr, no_len) = (std::ptr::null_mut(), std::ptr::null_mut());
    opcode::Accept::new(Fd(listener), no_addr, no_len)
        .flags(libc::SOCK_CLOEXEC)
        .build()
}

fn fallocate(file: FileId, offset: u64, len: u64, mode: libc::c_int) -> Entry {
    let mode = mode | libc::FALLOC_FL_KEEP_SIZE;
    opcode::Fallocate::new(Fd(file.fd()), len)
        .offset(offset)
        .mode(mode)
        .build()
}

#[cfg(test)]
pub(super) mod tests;
