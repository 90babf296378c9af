//! The driver: everything that was submitted in a turn goes to the kernel by one call, which also
//! runs the kernel's deferred work; what has ended is read from shared memory.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::rc::Rc;

use flashyard_time::{Duration, Time};
use io_uring::squeue::Entry;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode};

use super::chunks::ChunkRing;
use super::eager::Eager;
use super::enter::Entrance;
use super::request::ScratchTable;
use super::verdict::{self, Verdict};
use super::zones::{self, Zones};
use super::{sockets, storage};
use crate::Gather;
use crate::driver::{Drive, Loose, Wait};
use crate::handle::{FileId, FileInfo, Handle, OpenOptions, Owner, SocketId};
use crate::op::{Completion, Operation};
use crate::table::Table;
use crate::ticket::{Place, Ticket};
use crate::wake::Remote;
use crate::zone::Zoned;

/// Submission entries; what does not fit waits in the backlog.
const ENTRIES: u32 = 1024;
/// Completion entries; the kernel keeps what does not fit.
const COMPLETIONS: u32 = 8192;
/// Looks at the rings between two looks at everything else.
const SPINS: u32 = 16;
/// The completion of a cancel request: says nothing.
const CANCEL: u64 = u64::MAX;
/// The completion of the poll on the event counter.
const KICK: u64 = u64::MAX - 1;

/// One io_uring.
pub(crate) struct Uring {
    /// Dropped before the ring.
    entrance: Entrance,
    ring: IoUring,
    chunks: Rc<ChunkRing>,
    remote: &'static Remote,
    eventfd: RawFd,
    /// Whether the event counter is being polled.
    kick_armed: bool,
    scratch: ScratchTable,
    /// What did not fit into the submission queue, in order.
    backlog: VecDeque<Entry>,
    /// Receives for which there was no chunk.
    starved: VecDeque<Ticket>,
    /// What does not go to the ring, since the core does it by itself.
    eager: Eager,
    /// What ended without the ring.
    early: Vec<Completion>,
    /// What the ring cannot do.
    zones: Zones,
    /// What the eager path leaves to the ring; empty between calls.
    left: Vec<Place>,
}

impl Uring {
    /// Sets a ring up that receives into so many chunks.
    pub(crate) fn new(chunks: u16, remote: &'static Remote) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .build(ENTRIES)
            .map_err(explain)?;
        let chunks = ChunkRing::new(&ring.submitter(), chunks)?;
        Ok(Self {
            entrance: Entrance::new(ring.as_raw_fd()),
            ring,
            chunks,
            remote,
            eventfd: remote.eventfd()?,
            kick_armed: false,
            scratch: ScratchTable::default(),
            backlog: VecDeque::new(),
            starved: VecDeque::new(),
            eager: Eager::new()?,
            early: Vec::new(),
            zones: Zones::new(remote),
            left: Vec::new(),
        })
    }

    /// Makes the next request for an operation.
    fn request(&mut self, ticket: Ticket, operation: &mut Operation) {
        match self.scratch.of(ticket).request(operation) {
            Ok(entry) => self.push(entry.user_data(ticket.pack())),
            Err(error) => self.early.push(Completion {
                ticket,
                result: Err(error),
            }),
        }
    }

    /// Puts an entry into the submission queue, or behind those that wait for a place in it.
    fn push(&mut self, entry: Entry) {
        if !self.backlog.is_empty() || !self.try_push(&entry) {
            self.backlog.push_back(entry);
        }
    }

    fn try_push(&mut self, entry: &Entry) -> bool {
        // SAFETY: what the entry points to belongs to an operation in the table or to its scratch
        // place; both stay where they are until the operation's completion has been reaped.
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

    /// Forgets an operation that the ring does not have at the moment. False when it has.
    fn forget(&mut self, ticket: Ticket) -> bool {
        if let Some(place) = self.starved.iter().position(|&starved| starved == ticket) {
            self.starved.remove(place);
            return true;
        }
        false
    }

    /// Starts receives again for which there are chunks now.
    fn feed_starved(&mut self, table: &mut Table) {
        for _ in 0..self.chunks.available() {
            let Some(ticket) = self.starved.pop_front() else {
                return;
            };
            let operation = table
                .operation(ticket)
                .expect("a starved receive has not ended");
            self.request(ticket, operation);
        }
    }

    /// Tries the receives that need not go through the ring.
    #[inline]
    fn receive_eagerly(&mut self, table: &mut Table) {
        self.eager.receive(table.direct(), &mut self.left);
        while let Some(place) = self.left.pop() {
            self.hand_over(place, table);
        }
    }

    /// Leaves all receives to the ring, which wakes the core when something comes.
    fn hand_receives_over(&mut self, table: &mut Table) {
        while let Some(place) = table.direct().any_waiting() {
            self.hand_over(place, table);
        }
    }

    fn hand_over(&mut self, place: Place, table: &mut Table) {
        let (ticket, operation) = table.hand_over(place);
        self.scratch.begin(ticket);
        self.request(ticket, operation);
    }

    /// Takes the kernel's word for one request.
    fn complete(
        &mut self,
        entry: &io_uring::cqueue::Entry,
        table: &mut Table,
    ) -> Option<Completion> {
        match entry.user_data() {
            CANCEL => return None,
            KICK => {
                self.kick_armed = false;
                drain_eventfd(self.eventfd);
                return None;
            }
            _ => {}
        }
        let ticket = Ticket::unpack(entry.user_data());
        let operation = table
            .operation(ticket)
            .expect("the kernel completes what was submitted");
        let scratch = self.scratch.of(ticket);
        let (result, flags) = (entry.result(), entry.flags());
        match verdict::judge(operation, scratch, &self.chunks, result, flags) {
            Verdict::Ended(result) => return Some(Completion { ticket, result }),
            Verdict::Again => self.request(ticket, operation),
            Verdict::Starved => self.starved.push_back(ticket),
        }
        None
    }

    /// Whether something has ended without the ring.
    #[inline]
    fn has_ended(&self, table: &mut Table) -> bool {
        !self.early.is_empty() || table.direct().has_ended()
    }

    /// Enters the kernel if there is a reason to; whether there was.
    fn enter(&mut self) -> bool {
        let queue = self.ring.submission();
        let (entries, needed) = (queue.len() as u32, queue.taskrun() || queue.cq_overflow());
        drop(queue);
        if entries == 0 && !needed {
            return false;
        }
        check(self.entrance.enter(entries));
        true
    }

    /// Looks at the rings and at the eager path's sockets for a moment.
    fn spin(&mut self, table: &mut Table) {
        let rounds = SPINS / (1 + table.direct().waiting() as u32);
        for _ in 0..rounds {
            let queue = self.ring.submission();
            let busy = queue.taskrun() || queue.cq_overflow() || self.remote.is_pending();
            drop(queue);
            if busy || !self.ring.completion().is_empty() {
                return;
            }
            if table.direct().waiting() == 0 {
                std::hint::spin_loop();
                continue;
            }
            self.receive_eagerly(table);
            if self.has_ended(table) {
                return;
            }
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
        let timeout = (until != Time::MAX).then(|| until.since(now));
        let entries = self.ring.submission().len() as u32;
        check(self.entrance.wait(entries, timeout));
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
        self.scratch.begin(ticket);
        if let Operation::Zone { file, action } = operation {
            if let Err(error) = self.zones.start(ticket, file.id(), *action) {
                let result = Err(error);
                self.early.push(Completion { ticket, result });
            }
            return;
        }
        self.request(ticket, operation);
    }

    #[inline]
    fn receives_directly(&mut self, used: usize) -> bool {
        self.eager.takes_receive(used)
    }

    #[inline]
    fn send_now(&mut self, socket: SocketId, gather: &Gather) -> io::Result<usize> {
        self.eager.send(socket, gather)
    }

    fn cancel(&mut self, ticket: Ticket, _: &mut Operation) {
        self.scratch.of(ticket).cancelled = true;
        if self.forget(ticket) {
            self.early.push(Completion {
                ticket,
                result: Err(verdict::cancelled()),
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
        if !self.early.is_empty() {
            done.append(&mut self.early);
        }
        self.zones.reap(done);
        loop {
            let Some(entry) = self.ring.completion().next() else {
                return;
            };
            done.extend(self.complete(&entry, table));
        }
    }

    fn flush(&mut self, table: &mut Table, wait: Wait) {
        self.push_backlog();
        self.feed_starved(table);
        self.eager.end_turn();
        if self.eager.is_crowded() {
            self.hand_receives_over(table);
        }
        match wait {
            Wait::Until(until) if !self.has_ended(table) => {
                self.hand_receives_over(table);
                self.sleep(until);
            }
            _ => {
                let entered = self.enter();
                // In every turn, whatever else there is to do: no task may wait behind a busy
                // ring.
                self.receive_eagerly(table);
                if wait == Wait::Spin && !entered && !self.has_ended(table) {
                    self.spin(table);
                    self.enter();
                }
            }
        }
    }

    fn listen(&mut self, addr: SocketAddr) -> io::Result<(Handle<SocketId>, SocketAddr)> {
        sockets::listen(addr)
    }

    fn adopt(&mut self, listener: TcpListener) -> io::Result<(Handle<SocketId>, SocketAddr)> {
        sockets::adopt(listener)
    }

    fn shutdown(&mut self, socket: SocketId) {
        sockets::shutdown(socket);
    }

    fn abort(&mut self, socket: SocketId) {
        sockets::forget_unsent(socket);
        sockets::shutdown(socket);
    }

    fn set_patience(&mut self, socket: SocketId, span: Duration) {
        sockets::set_patience(socket, span);
    }

    fn detach(&mut self, socket: Handle<SocketId>) -> Loose {
        match socket.owner {
            Owner::Socket(fd) => Loose::Fd(fd),
            Owner::Other(_) => unreachable!("this driver opened the socket"),
        }
    }

    fn attach(&mut self, loose: Loose) -> Handle<SocketId> {
        match loose {
            Loose::Fd(fd) => Handle::socket(fd),
            Loose::Simulated(_) => panic!("a connection cannot leave its simulated world"),
        }
    }

    fn open(
        &mut self,
        path: &Path,
        options: OpenOptions,
    ) -> io::Result<(Handle<FileId>, FileInfo)> {
        storage::open(path, options)
    }

    fn size(&mut self, file: FileId) -> io::Result<u64> {
        storage::size(file)
    }

    fn set_size(&mut self, file: FileId, size: u64) -> io::Result<()> {
        storage::set_size(file, size)
    }

    fn zoned(&mut self, file: FileId) -> io::Result<Option<Zoned>> {
        zones::facts(file)
    }
}

/// What a call to enter the kernel says. Interruptions, timeouts and passing shortages are met by
/// entering again.
fn check(entered: io::Result<()>) {
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
    // SAFETY: the pointer and the length are those of `count`. The counter does not block; if it is
    // zero already, that is what was wanted.
    unsafe { libc::read(eventfd, count.as_mut_ptr().cast(), count.len()) };
}

/// Adds to the kernel's refusal what to do about it.
fn explain(error: io::Error) -> io::Error {
    let advice = match error.raw_os_error() {
        Some(libc::ENOSYS) => {
            "this kernel has none, or the container hides it; Linux 6.1 or later is needed, and a seccomp profile that allows it"
        }
        Some(libc::EINVAL) => "this kernel is too old; Linux 6.1 or later is needed",
        Some(libc::EPERM | libc::EACCES) => {
            "it is forbidden; allow it by `sysctl kernel.io_uring_disabled=0` and in the container's seccomp profile"
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

#[cfg(test)]
mod tests {
    use super::super::request::tests::{Ends, buf, with_ends};
    use super::*;
    use crate::wake::Registration;

    #[test]
    fn every_operation_on_a_file_is_put_to_the_kernel() {
        with_ends(|Ends { file, .. }| {
            let (offset, len) = (4096, 8192);
            let write = |durable| Operation::Write {
                file: file.clone(),
                data: buf(8192).into(),
                offset,
                durable,
                moved: 0,
            };
            let read = Operation::Read {
                file: file.clone(),
                buf: buf(8192),
                offset,
                moved: 0,
            };
            let sync = Operation::Sync { file: file.clone() };
            let punch = Operation::Punch {
                file: file.clone(),
                offset,
                len,
            };
            let zero = Operation::Zero {
                file: file.clone(),
                offset,
                len,
            };
            let (_registration, remote) = Registration::new();
            let mut uring = Uring::new(128, remote).expect("this machine has io_uring");
            let mut table = Table::default();
            let all = [read, write(false), write(true), sync, punch, zero];
            for (before, operation) in all.into_iter().enumerate() {
                let (ticket, operation) = table.insert(operation);
                uring.submit(ticket, operation);
                assert_eq!(uring.ring.submission().len(), before + 1);
                assert!(uring.early.is_empty(), "no other code can do it");
            }
        });
    }
}
