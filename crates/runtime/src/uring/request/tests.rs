//! What the kernel is asked for each operation, field by field.

use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::rc::Rc;

use super::*;
use crate::handle::{Handle, OpenFile, Socket};
use crate::op::{Completion, Room};
use crate::table::Table;
use crate::zone::ZoneAction;
use crate::{Buf, FileInfo, FileKind, Gather};

/// What the kernel reads of an entry: `struct io_uring_sqe`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(in crate::uring) struct Seen {
    pub(in crate::uring) opcode: u8,
    pub(in crate::uring) flags: u8,
    pub(in crate::uring) ioprio: u16,
    pub(in crate::uring) fd: i32,
    /// `off`, `addr2`
    pub(in crate::uring) offset: u64,
    pub(in crate::uring) addr: u64,
    pub(in crate::uring) len: u32,
    /// `rw_flags`, `fsync_flags`, `msg_flags`, `accept_flags`
    pub(in crate::uring) op_flags: u32,
    pub(in crate::uring) user_data: u64,
    pub(in crate::uring) buf_group: u16,
    pub(in crate::uring) rest: [u16; 11],
}

impl Seen {
    pub(in crate::uring) fn of(entry: &Entry) -> Self {
        const { assert!(size_of::<Entry>() == size_of::<Self>()) };
        // SAFETY: an entry is a `struct io_uring_sqe` and nothing else: 64 bytes, of which all are
        // set and all values are valid here.
        unsafe { std::ptr::from_ref(entry).cast::<Self>().read() }
    }
}

/// Of the kernel's `enum io_uring_op`.
const FSYNC: u8 = 3;
const SENDMSG: u8 = 9;
const ACCEPT: u8 = 13;
const CONNECT: u8 = 16;
const FALLOCATE: u8 = 17;
pub(in crate::uring) const READ: u8 = 22;
pub(in crate::uring) const WRITE: u8 = 23;
const RECV: u8 = 27;
const RECVMSG: u8 = 10;

/// A file and a socket that are there, for operations on them.
pub(in crate::uring) struct Ends {
    pub(in crate::uring) file: Rc<OpenFile>,
    pub(in crate::uring) file_fd: i32,
    socket: Rc<Socket>,
    socket_fd: i32,
}

impl Ends {
    fn new() -> Self {
        let file = std::fs::File::open("/dev/null").expect("it is everywhere");
        let file_fd = file.as_raw_fd();
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let socket_fd = socket.as_raw_fd();
        let info = FileInfo {
            kind: FileKind::File,
            size: 1 << 30,
            direct: true,
            alignment: 512,
        };
        Self {
            file: OpenFile::new(Handle::file(file), info),
            file_fd,
            socket: Socket::new(Handle::socket(socket.into())),
            socket_fd,
        }
    }
}

/// Runs `test` with them.
pub(in crate::uring) fn with_ends(test: impl FnOnce(Ends)) {
    test(Ends::new());
}

pub(in crate::uring) fn buf(len: usize) -> Buf {
    Buf::take(len).expect("the bound is far")
}

fn seen(operation: &mut Operation, scratch: &mut Scratch) -> Seen {
    Seen::of(&scratch.request(operation).expect("it is for the ring"))
}

#[test]
fn transfers_of_files_say_where_what_and_how_durable() {
    with_ends(|Ends { file, file_fd, .. }| {
        for moved in [0, 4096] {
            let buf = buf(12_288);
            let expected = Seen {
                opcode: READ,
                fd: file_fd,
                offset: 0x1_0000_2000 + moved as u64,
                addr: buf.as_ptr() as u64 + moved as u64,
                len: 12_288 - moved as u32,
                ..Seen::default()
            };
            let mut read = Operation::Read {
                file: file.clone(),
                buf,
                offset: 0x1_0000_2000,
                moved,
            };
            assert_eq!(seen(&mut read, &mut Scratch::new()), expected);
        }
        for (durable, moved, flags) in [
            (false, 0, 0),
            (true, 0, libc::RWF_DSYNC),
            (false, 8192, 0),
            (true, 8192, libc::RWF_DSYNC),
        ] {
            let buf = buf(12_288);
            let expected = Seen {
                opcode: WRITE,
                fd: file_fd,
                offset: 0x1_0000_2000 + moved as u64,
                addr: buf.as_ptr() as u64 + moved as u64,
                len: 12_288 - moved as u32,
                op_flags: flags.cast_unsigned(),
                ..Seen::default()
            };
            let mut write = Operation::Write {
                file: file.clone(),
                data: buf.into(),
                offset: 0x1_0000_2000,
                durable,
                moved,
            };
            assert_eq!(seen(&mut write, &mut Scratch::new()), expected);
        }
    });
}

#[test]
fn other_requests_for_files_say_what_is_to_become_of_them() {
    const KEEP_SIZE: i32 = 1;
    const PUNCH_HOLE: i32 = 2;
    const ZERO_RANGE: i32 = 16;
    const DATASYNC: u32 = 1;
    with_ends(|Ends { file, file_fd, .. }| {
        let sync = Seen {
            opcode: FSYNC,
            fd: file_fd,
            op_flags: DATASYNC,
            ..Seen::default()
        };
        let fallocate = |mode: i32| Seen {
            opcode: FALLOCATE,
            fd: file_fd,
            offset: 1 << 40,
            addr: 3 << 20,
            len: mode.cast_unsigned(),
            ..Seen::default()
        };
        let (offset, len) = (1 << 40, 3 << 20);
        let table = [
            (Operation::Sync { file: file.clone() }, sync),
            (
                Operation::Punch {
                    file: file.clone(),
                    offset,
                    len,
                },
                fallocate(PUNCH_HOLE | KEEP_SIZE),
            ),
            (
                Operation::Zero {
                    file: file.clone(),
                    offset,
                    len,
                },
                fallocate(ZERO_RANGE | KEEP_SIZE),
            ),
        ];
        for (mut operation, expected) in table {
            assert_eq!(seen(&mut operation, &mut Scratch::new()), expected);
        }
        let action = ZoneAction::Reset { start: 0, len: 1 };
        let mut zone = Operation::Zone { file, action };
        let refused = Scratch::new().request(&mut zone);
        assert_eq!(
            refused.expect_err("no entry says it").kind(),
            io::ErrorKind::Unsupported
        );
    });
}

#[test]
fn requests_for_sockets_say_where_bytes_go_and_from_where() {
    with_ends(|ends| {
        let (socket, fd) = (ends.socket, ends.socket_fd);
        let mut accept = Operation::Accept {
            listener: socket.clone(),
        };
        let expected = Seen {
            opcode: ACCEPT,
            fd,
            op_flags: libc::SOCK_CLOEXEC.cast_unsigned(),
            ..Seen::default()
        };
        assert_eq!(seen(&mut accept, &mut Scratch::new()), expected);

        let receive = |room| {
            let socket = socket.clone();
            Operation::Receive(Receive { socket, room })
        };
        let expected = Seen {
            opcode: RECV,
            // IOSQE_BUFFER_SELECT
            flags: 1 << 5,
            fd,
            len: CHUNK as u32,
            buf_group: GROUP,
            ..Seen::default()
        };
        assert_eq!(seen(&mut receive(None), &mut Scratch::new()), expected);

        let buf = buf(10_000);
        let expected = Seen {
            opcode: RECV,
            fd,
            addr: buf.as_ptr() as u64 + 72,
            len: 10_000 - 72,
            ..Seen::default()
        };
        let (at, behind) = (72, None);
        let mut receive = receive(Some(Room { buf, at, behind }));
        assert_eq!(seen(&mut receive, &mut Scratch::new()), expected);
        both_pieces(socket, fd);

        let addr = "192.0.2.7:4420".parse().expect("it is an address");
        let mut scratch = Scratch::new();
        let connect = seen(&mut Operation::Connect { addr }, &mut scratch);
        let made = scratch.connecting.as_ref().expect("a socket is made");
        let expected = Seen {
            opcode: CONNECT,
            fd: made.as_raw_fd(),
            offset: size_of::<libc::sockaddr_in>() as u64,
            addr: std::ptr::from_ref(scratch.addr.as_ref().expect("it is kept")) as u64,
            ..Seen::default()
        };
        assert_eq!(connect, expected);
    });
}

/// A receive into two buffers names the rest of the first and all of the second.
fn both_pieces(socket: Rc<Socket>, fd: i32) {
    let (first, second) = (buf(131_072), buf(4096));
    let expected = [
        (first.as_ptr() as u64 + 100_000, 31_072),
        (second.as_ptr() as u64, 4096),
    ];
    let room = Some(Room {
        buf: first,
        at: 100_000,
        behind: Some(second),
    });
    let mut receive = Operation::Receive(Receive { socket, room });
    let mut scratch = Scratch::new();
    let request = Seen {
        opcode: RECVMSG,
        fd,
        addr: &raw const scratch.message as u64,
        len: 1,
        ..Seen::default()
    };
    assert_eq!(seen(&mut receive, &mut scratch), request);
    let pieces: Vec<_> = scratch
        .rest
        .iter()
        .map(|piece| (piece.iov_base as u64, piece.iov_len))
        .collect();
    assert_eq!(pieces, expected);
    assert_eq!(scratch.message.msg_iov, scratch.rest.as_mut_ptr());
    assert_eq!(scratch.message.msg_iovlen, 2);
}

#[test]
fn what_is_with_devices_and_what_came_from_others_is_counted() {
    with_ends(|ends| {
        let (file, socket) = (ends.file, ends.socket);
        let send = Operation::Send {
            socket: socket.clone(),
            gather: Gather::new(),
            sent: 0,
        };
        let room = None;
        let receive = Operation::Receive(Receive { socket, room });
        let sync = Operation::Sync { file };
        let mut table = Table::default();
        for (operation, with_devices, arrived) in [(send, 0, 0), (receive, 0, 1), (sync, 1, 1)] {
            let before = table.arrivals();
            let (ticket, _) = table.insert(operation);
            assert_eq!(table.with_devices(), with_devices);
            table.finish(Completion {
                ticket,
                result: Err(io::ErrorKind::Other.into()),
            });
            assert_eq!(table.with_devices(), 0);
            assert_eq!(table.arrivals() - before, arrived);
        }
    });
}

#[test]
fn a_send_goes_on_with_the_first_byte_that_has_not_gone() {
    with_ends(|ends| {
        let mut gather = Gather::new();
        gather.push_bytes(&[1; 24]);
        gather.push_data(crate::Data::Buf(buf(4096)), 0..4096);
        gather.push_bytes(&[2; 16]);
        let pieces: Vec<_> = gather
            .as_iovecs()
            .iter()
            .map(|piece| (piece.iov_base as u64, piece.iov_len))
            .collect();
        assert_eq!(pieces.len(), 3);
        let mut operation = Operation::Send {
            socket: ends.socket,
            gather,
            sent: 0,
        };
        let mut scratch = Scratch::new();
        for gone in 0..24 + 4096 + 16 {
            let Operation::Send { sent, .. } = &mut operation else {
                unreachable!("it is a send")
            };
            *sent = gone;
            let expected = Seen {
                opcode: SENDMSG,
                fd: ends.socket_fd,
                addr: &raw const scratch.message as u64,
                len: 1,
                op_flags: (libc::MSG_NOSIGNAL | libc::MSG_WAITALL).cast_unsigned(),
                ..Seen::default()
            };
            assert_eq!(seen(&mut operation, &mut scratch), expected);
            // SAFETY: the message points to that many pieces, of this gather or this scratch place.
            let message = unsafe {
                let (first, count) = (scratch.message.msg_iov, scratch.message.msg_iovlen);
                std::slice::from_raw_parts(first, count)
            };
            let message: Vec<_> = message
                .iter()
                .map(|piece| (piece.iov_base as u64, piece.iov_len))
                .collect();
            assert_eq!(message, without(&pieces, gone));
        }
    });
}

/// What is left of `pieces` (start and length) without their first `gone` bytes.
fn without(pieces: &[(u64, usize)], mut gone: usize) -> Vec<(u64, usize)> {
    let mut left = Vec::new();
    for &(start, len) in pieces {
        let less = gone.min(len);
        gone -= less;
        if less < len {
            left.push((start + less as u64, len - less));
        }
    }
    left
}
