//! The driver: operations become submission entries, completions become results. Everything that was submitted in a
//! turn goes to the kernel by one call, which also runs the kernel's deferred work.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::rc::Rc;

use flashyard_time::Time;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};

use super::chunks::{CHUNK, ChunkRing, GROUP};
use super::sockets::{self, KernelAddr};
use super::{Config, storage};
use crate::driver::{Drive, FileId, Loose, SocketId, Wait};
use crate::op::{Completion, Operation, Outcome, Table, Ticket};
use crate::wake::Remote;
use crate::{FileInfo, OpenOptions};

/// Submission entries; what does not fit waits in the backlog.
const ENTRIES: u32 = 1024;
/// Completion entries; the kernel keeps what does not fit.
const COMPLETIONS: u32 = 8192;
/// iovecs the kernel takes by one call (`UIO_MAXIOV`).
const MAX_IOVECS: usize = 1024;
/// Looks at the rings between two looks at everything else.
const SPINS: u32 = 16;
/// Scratch places are made so many at a time, and never move.
const BLOCK: usize = 64;
/// The completion of a cancel request: says nothing.
const CANCEL: u64 = u64::MAX;
/// The completion of the poll on the event counter.
const KICK: u64 = u64::MAX - 1;

/// One io_uring.
pub(crate) struct Uring {
    ring: IoUring,
    chunks: Rc<ChunkRing>,
    remote: &'static Remote,
    eventfd: RawFd,
    /// Whether the event counter is being polled.
    kick_armed: bool,
    /// By ticket: what the kernel needs beside the operation itself.
    scratch: Vec<Box<[Scratch; BLOCK]>>,
    /// What did not fit into the submission queue, in order.
    backlog: VecDeque<Entry>,
    /// Receives for which there was no chunk.
    starved: VecDeque<Ticket>,
    /// What ended without the kernel.
    early: Vec<Completion>,
}

/// At a stable address while its operation is with the kernel.
struct Scratch {
    message: libc::msghdr,
    /// The rest of a gathered send that stopped within a piece.
    rest: Vec<libc::iovec>,
    addr: Option<KernelAddr>,
    /// The socket of a connection being made.
    connecting: Option<OwnedFd>,
}

/// What a completion says.
struct Said {
    result: i32,
    flags: u32,
}

impl Uring {
    /// Sets a ring up.
    pub(crate) fn new(config: &Config, remote: &'static Remote) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .build(ENTRIES)
            .map_err(explain)?;
        ring.submitter().register_ring_fd()?;
        let chunks = ChunkRing::new(&ring.submitter(), config.chunks)?;
        Ok(Self {
            ring,
            chunks,
            remote,
            eventfd: remote.eventfd()?,
            kick_armed: false,
            scratch: Vec::new(),
            backlog: VecDeque::new(),
            starved: VecDeque::new(),
            early: Vec::new(),
        })
    }

    fn prepare(&mut self, ticket: Ticket, operation: &mut Operation) -> io::Result<Entry> {
        while self.scratch.len() <= ticket.index as usize / BLOCK {
            self.scratch
                .push(Box::new(std::array::from_fn(|_| Scratch::new())));
        }
        let scratch =
            &mut self.scratch[ticket.index as usize / BLOCK][ticket.index as usize % BLOCK];
        let entry = match operation {
            Operation::Accept { listener } => {
                let null = std::ptr::null_mut();
                opcode::Accept::new(Fd(listener.id().fd()), null, null.cast())
                    .flags(libc::SOCK_CLOEXEC)
                    .build()
            }
            Operation::Connect { addr } => scratch.connect(*addr)?,
            Operation::Recv { socket } => {
                opcode::Recv::new(Fd(socket.id().fd()), std::ptr::null_mut(), CHUNK as u32)
                    .buf_group(GROUP)
                    .build()
                    .flags(Flags::BUFFER_SELECT)
            }
            Operation::RecvInto { socket, buf, at } => {
                let room = &mut buf[*at..];
                opcode::Recv::new(Fd(socket.id().fd()), room.as_mut_ptr(), room.len() as u32)
                    .build()
            }
            Operation::Send {
                socket,
                gather,
                sent,
            } => scratch.send(socket.id().fd(), gather.as_iovecs(), *sent),
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
                buf,
                offset,
                durable,
                moved,
            } => {
                let rest = &buf[*moved..];
                opcode::Write::new(Fd(file.id().fd()), rest.as_ptr(), rest.len() as u32)
                    .offset(offset.saturating_add(*moved as u64))
                    .rw_flags(if *durable { libc::RWF_DSYNC } else { 0 })
                    .build()
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
        };
        Ok(entry.user_data(ticket.pack()))
    }

    /// Puts an entry into the submission queue, or behind those that wait for a place in it.
    fn push(&mut self, entry: Entry) {
        if !self.backlog.is_empty() || !self.try_push(&entry) {
            self.backlog.push_back(entry);
        }
    }

    fn try_push(&mut self, entry: &Entry) -> bool {
        // SAFETY: what the entry points to belongs to an operation in the table or to its scratch place; both stay
        // where they are until the operation's completion has been reaped.
        unsafe { self.ring.submission().push(entry).is_ok() }
    }

    /// Moves the backlog into the submission queue, as far as it fits.
    fn push_backlog(&mut self) {
        while let Some(entry) = self.backlog.pop_front() {
            if !self.try_push(&entry) {
                self.backlog.push_front(entry);
                return;
            }
        }
    }

    /// Starts receives again for which there are chunks now.
    fn feed_starved(&mut self, table: &mut Table) {
        for _ in 0..self.chunks.available() {
            let Some(ticket) = self.starved.pop_front() else {
                return;
            };
            if let Some(operation) = table.operation(ticket) {
                self.submit(ticket, operation);
            }
        }
    }

    /// What the end of a kernel request means for its operation; `None` when the operation goes on.
    fn judge(
        &mut self,
        ticket: Ticket,
        operation: &mut Operation,
        orphaned: bool,
        said: &Said,
    ) -> Option<io::Result<Outcome>> {
        let outcome = match usize::try_from(said.result) {
            Ok(count) => self.judge_success(ticket, operation, count, said.flags),
            Err(_) => self.judge_failure(ticket, operation, -said.result),
        };
        match outcome {
            Verdict::Ended(result) => Some(result),
            // Nobody waits for the rest.
            Verdict::Again | Verdict::Starved if orphaned => {
                self.forget_connection(ticket);
                Some(Err(canceled()))
            }
            Verdict::Starved => {
                self.starved.push_back(ticket);
                None
            }
            Verdict::Again => {
                self.submit(ticket, operation);
                None
            }
        }
    }

    fn judge_success(
        &mut self,
        ticket: Ticket,
        operation: &mut Operation,
        count: usize,
        flags: u32,
    ) -> Verdict {
        match operation {
            Operation::Accept { .. } => {
                // SAFETY: the kernel has just made this descriptor for us.
                let fd = unsafe { OwnedFd::from_raw_fd(count as RawFd) };
                // A connection that is gone already was none.
                sockets::established(fd)
                    .map_or(Verdict::Again, |new| Verdict::ok(Outcome::Connected(new)))
            }
            Operation::Connect { .. } => {
                let fd = self.scratch(ticket).connecting.take();
                let fd = fd.expect("a connection being made has a socket");
                Verdict::Ended(sockets::established(fd).map(Outcome::Connected))
            }
            Operation::Recv { .. } => {
                Verdict::ok(Outcome::Chunk(match cqueue::buffer_select(flags) {
                    Some(id) => self.chunks.filled(id, count),
                    None => crate::Chunk::empty(),
                }))
            }
            Operation::RecvInto { .. } => Verdict::ok(Outcome::Bytes(count)),
            Operation::Send { gather, sent, .. } => {
                *sent += count;
                if *sent < gather.len() {
                    Verdict::Again
                } else {
                    Verdict::ok(Outcome::Done)
                }
            }
            Operation::Read {
                file, buf, moved, ..
            } => {
                *moved += count;
                // A direct read that stops within an alignment unit stopped at the end of the file.
                let at_end = count == 0 || !moved.is_multiple_of(file.info().alignment as usize);
                transferred(*moved, buf.len(), at_end)
            }
            Operation::Write { buf, moved, .. } => {
                *moved += count;
                if count == 0 && *moved < buf.len() {
                    return Verdict::Ended(Err(io::ErrorKind::WriteZero.into()));
                }
                transferred(*moved, buf.len(), false)
            }
            Operation::Sync { .. } | Operation::Punch { .. } | Operation::Zero { .. } => {
                Verdict::ok(Outcome::Done)
            }
        }
    }

    fn judge_failure(&mut self, ticket: Ticket, operation: &mut Operation, code: i32) -> Verdict {
        match (&*operation, code) {
            (_, libc::EINTR | libc::EAGAIN) | (Operation::Accept { .. }, libc::ECONNABORTED) => {
                self.forget_connection(ticket);
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
            _ => {
                self.forget_connection(ticket);
                Verdict::Ended(Err(io::Error::from_raw_os_error(code)))
            }
        }
    }
}

/// What is to become of an operation.
enum Verdict {
    Ended(io::Result<Outcome>),
    /// Goes on with another request.
    Again,
    /// Goes on when a chunk is free.
    Starved,
}

impl Verdict {
    fn ok(outcome: Outcome) -> Self {
        Self::Ended(Ok(outcome))
    }
}

fn transferred(moved: usize, len: usize, at_end: bool) -> Verdict {
    if moved == len || at_end {
        Verdict::ok(Outcome::Bytes(moved))
    } else {
        Verdict::Again
    }
}

impl Uring {
    fn scratch(&mut self, ticket: Ticket) -> &mut Scratch {
        &mut self.scratch[ticket.index as usize / BLOCK][ticket.index as usize % BLOCK]
    }

    /// Closes the socket of a connection that was not made.
    fn forget_connection(&mut self, ticket: Ticket) {
        self.scratch(ticket).connecting = None;
    }

    /// Takes the kernel's word for one request.
    fn complete(
        &mut self,
        user_data: u64,
        said: &Said,
        table: &mut Table,
        done: &mut Vec<Completion>,
    ) {
        if user_data == CANCEL {
            return;
        }
        if user_data == KICK {
            self.kick_armed = false;
            drain_eventfd(self.eventfd);
            return;
        }
        let ticket = Ticket::unpack(user_data);
        let orphaned = table.is_orphaned(ticket);
        let operation = table
            .operation(ticket)
            .expect("the kernel completes what was submitted");
        if let Some(result) = self.judge(ticket, operation, orphaned, said) {
            done.push(Completion { ticket, result });
        }
    }

    /// Enters the kernel if there is a reason to; true if so.
    fn enter(&mut self) -> bool {
        let queue = self.ring.submission();
        let (submissions, needed) = (queue.len() as u32, queue.taskrun() || queue.cq_overflow());
        drop(queue);
        if submissions == 0 && !needed {
            return false;
        }
        let flags = io_uring::EnterFlags::GETEVENTS.bits();
        // SAFETY: no argument is passed; the entries submitted are valid, see `try_push`.
        let entered = unsafe {
            self.ring
                .submitter()
                .enter::<libc::sigset_t>(submissions, 0, flags, None)
        };
        check(entered);
        true
    }

    /// Looks at the rings for a moment.
    fn spin(&mut self) {
        for _ in 0..SPINS {
            let queue = self.ring.submission();
            let busy = queue.taskrun() || queue.cq_overflow() || self.remote.is_pending();
            drop(queue);
            if busy || !self.ring.completion().is_empty() {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Submits and sleeps until something happens or `until` has come.
    fn sleep(&mut self, until: Time) {
        if !self.kick_armed {
            let poll = opcode::PollAdd::new(Fd(self.eventfd), libc::POLLIN as u32).build();
            self.push(poll.user_data(KICK));
            self.kick_armed = true;
        }
        let now = self.now();
        if until <= now || !self.backlog.is_empty() || !self.remote.fall_asleep() {
            self.enter();
            return;
        }
        let span = until.since(now).as_ns();
        let timeout = Timespec::new()
            .sec(span / 1_000_000_000)
            .nsec((span % 1_000_000_000) as u32);
        let forever = SubmitArgs::new();
        let args = if until == Time::MAX {
            forever
        } else {
            forever.timespec(&timeout)
        };
        check(self.ring.submitter().submit_with_args(1, &args));
        self.remote.awake();
    }
}

impl Drive for Uring {
    fn now(&mut self) -> Time {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the call fills in `time`; this clock always exists.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        Time::from_ns(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    fn random(&mut self) -> u64 {
        let mut bytes = [0; 8];
        // SAFETY: the pointer and the length are those of `bytes`.
        let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        assert_eq!(filled, 8, "short requests to getrandom(2) succeed");
        u64::from_ne_bytes(bytes)
    }

    fn submit(&mut self, ticket: Ticket, operation: &mut Operation) {
        match self.prepare(ticket, operation) {
            Ok(entry) => self.push(entry),
            Err(error) => self.early.push(Completion {
                ticket,
                result: Err(error),
            }),
        }
    }

    fn cancel(&mut self, ticket: Ticket, _: &mut Operation) {
        if let Some(place) = self.starved.iter().position(|&starved| starved == ticket) {
            self.starved.remove(place);
            self.early.push(Completion {
                ticket,
                result: Err(canceled()),
            });
        } else {
            self.push(
                opcode::AsyncCancel::new(ticket.pack())
                    .build()
                    .user_data(CANCEL),
            );
        }
    }

    fn reap(&mut self, table: &mut Table, done: &mut Vec<Completion>) {
        done.append(&mut self.early);
        loop {
            let Some(entry) = self.ring.completion().next() else {
                return;
            };
            let said = Said {
                result: entry.result(),
                flags: entry.flags(),
            };
            self.complete(entry.user_data(), &said, table, done);
        }
    }

    fn flush(&mut self, table: &mut Table, wait: Wait) {
        self.push_backlog();
        self.feed_starved(table);
        match wait {
            Wait::Until(until) if self.early.is_empty() => self.sleep(until),
            Wait::Spin if self.early.is_empty() => {
                if !self.enter() {
                    self.spin();
                }
            }
            _ => {
                self.enter();
            }
        }
    }

    fn listen(&mut self, addr: SocketAddr) -> io::Result<(SocketId, SocketAddr)> {
        sockets::listen(addr)
    }

    fn shutdown(&mut self, socket: SocketId) {
        sockets::shutdown(socket);
    }

    fn close_socket(&mut self, socket: SocketId) {
        // SAFETY: the executor closes a socket once, after its last operation.
        drop(unsafe { sockets::owned(socket.0) });
    }

    fn detach(&mut self, socket: SocketId) -> Loose {
        // SAFETY: the executor gives a socket away instead of closing it, when nothing is in flight on it.
        Loose::Fd(unsafe { sockets::owned(socket.0) })
    }

    fn attach(&mut self, loose: Loose) -> SocketId {
        match loose {
            Loose::Fd(fd) => SocketId(fd.into_raw_fd() as u32),
            Loose::Simulated(_) => panic!("a connection cannot leave its simulated world"),
        }
    }

    fn open(&mut self, path: &Path, options: OpenOptions) -> io::Result<(FileId, FileInfo)> {
        storage::open(path, options)
    }

    fn set_size(&mut self, file: FileId, size: u64) -> io::Result<()> {
        storage::set_size(file, size)
    }

    fn close_file(&mut self, file: FileId) {
        // SAFETY: the executor closes a file once, after its last operation.
        drop(unsafe { sockets::owned(file.0) });
    }
}

impl Scratch {
    fn new() -> Self {
        Self {
            // SAFETY: all zeroes is an empty message.
            message: unsafe { std::mem::zeroed() },
            rest: Vec::new(),
            addr: None,
            connecting: None,
        }
    }

    fn connect(&mut self, addr: SocketAddr) -> io::Result<Entry> {
        let fd = sockets::for_connection_to(addr)?;
        let raw = fd.as_raw_fd();
        self.connecting = Some(fd);
        let (addr, len) = KernelAddr::new(addr);
        let addr: *const KernelAddr = self.addr.insert(addr);
        Ok(opcode::Connect::new(Fd(raw), addr.cast(), len).build())
    }

    /// The next call of a gathered send of which `sent` bytes are gone.
    fn send(&mut self, fd: RawFd, pieces: &[libc::iovec], mut sent: usize) -> Entry {
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
        opcode::SendMsg::new(Fd(fd), &raw const self.message)
            .flags((libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32)
            .build()
    }
}

fn fallocate(file: FileId, offset: u64, len: u64, mode: libc::c_int) -> Entry {
    let mode = mode | libc::FALLOC_FL_KEEP_SIZE;
    opcode::Fallocate::new(Fd(file.fd()), len)
        .offset(offset)
        .mode(mode)
        .build()
}

fn canceled() -> io::Error {
    io::Error::from_raw_os_error(libc::ECANCELED)
}

/// What a call to enter the kernel says. Interruptions, timeouts and passing shortages are met by entering again.
fn check(entered: io::Result<usize>) {
    if let Err(error) = entered {
        let code = error.raw_os_error().unwrap_or(0);
        let passing = [
            libc::EINTR,
            libc::ETIME,
            libc::EBUSY,
            libc::EAGAIN,
            libc::ENOMEM,
        ];
        assert!(passing.contains(&code), "io_uring_enter: {error}");
    }
}

/// Sets the event counter back to zero, so that the next poll waits.
fn drain_eventfd(eventfd: RawFd) {
    let mut count = [0; 8];
    // SAFETY: the pointer and the length are those of `count`. The counter does not block; if it is zero already,
    // that is what was wanted.
    unsafe { libc::read(eventfd, count.as_mut_ptr().cast(), count.len()) };
}

/// Adds to the kernel's refusal what to do about it.
fn explain(error: io::Error) -> io::Error {
    let advice = match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has none; Linux 6.1 or later is needed",
        Some(libc::EINVAL) => "this kernel is too old; Linux 6.1 or later is needed",
        Some(libc::EPERM | libc::EACCES) => {
            "it is forbidden; allow it by `sysctl kernel.io_uring_disabled=0` and by the seccomp profile of the container"
        }
        Some(libc::ENOMEM) => "no memory may be locked for it; raise `ulimit -l`",
        Some(libc::EMFILE | libc::ENFILE) => "too many files are open; raise `ulimit -n`",
        _ => "see io_uring_setup(2)",
    };
    io::Error::new(
        error.kind(),
        format!("cannot set up io_uring: {error}: {advice}"),
    )
}
