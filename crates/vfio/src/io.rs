//! An I/O queue of a function: how its commands get their data and are answered.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::{Ready, ready};
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::{Rc, Weak};

use flashyard_controller::io::check;
use flashyard_controller::pcie::{Segment, prp};
use flashyard_controller::{IoOp, Transfer};
use flashyard_engine::front::{
    self, Command, ConnectionId, End, Failure, Front, Held, IoSeat, PendingSample, Queue,
    TellWithdrawn, Way, Work, buffer, execute, start,
};
use flashyard_nvme::command::{Fuse, Psdt};
use flashyard_nvme::{CompletionQueueEntry, Status, SubmissionQueueEntry};
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Buf, CommandPool, Data, Lent};
use flashyard_time::Time;

use crate::memory::Unmapped;
use crate::worker::Worker;

type IoQueue = Queue<FunctionFront>;

const TRANSFER_ERROR: Status = Status::DATA_TRANSFER_ERROR;

/// Spreads command identifiers. A guest that chooses them badly slows its own queue, whose commands
/// are few.
#[derive(Default)]
struct CidHasher(u64);

impl Hasher for CidHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u16(u16::from(*byte));
        }
    }

    #[inline]
    fn write_u16(&mut self, cid: u16) {
        self.0 = (self.0 ^ u64::from(cid)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// What of an I/O queue is its function's.
pub(crate) struct FunctionFront {
    worker: Rc<Worker>,
    qid: u16,
    /// Where the data of each command are, by its identifier.
    in_flight: RefCell<HashMap<u16, Vec<Segment>, BuildHasherDefault<CidHasher>>>,
    /// Lists of commands that have ended.
    spare: RefCell<Vec<Vec<Segment>>>,
    /// The controller has been reset: nobody is answered, and no memory is touched.
    detached: Cell<bool>,
    sample: RefCell<Option<PendingSample>>,
    /// Wakes who waits for the last command.
    finished: Notify,
}

/// One I/O queue, as a connection of the engine.
pub(crate) struct IoConnection {
    id: ConnectionId,
    queue: Rc<IoQueue>,
    /// Has what has to wait go on by itself.
    go_on: Box<dyn Fn(Work)>,
    /// How many of these there are.
    waiting: Box<dyn Fn() -> usize>,
    /// Nothing more is fetched.
    stopped: Cell<bool>,
    this: Weak<Self>,
}

impl IoConnection {
    pub(crate) fn new(worker: &Rc<Worker>, id: ConnectionId, seat: IoSeat) -> Rc<Self> {
        let core = &worker.core;
        let budget = core.budget(seat.tenant());
        let (qid, places) = (seat.queue.qid, usize::from(seat.queue.entries));
        let front = FunctionFront {
            worker: worker.clone(),
            qid,
            in_flight: RefCell::default(),
            spare: RefCell::default(),
            detached: Cell::new(false),
            sample: RefCell::default(),
            finished: Notify::new(),
        };
        let queue = Queue::new(core, seat, budget, front);
        let pool = Rc::new(CommandPool::new(core.rt(), places));
        let go_on = {
            let (queue, pool) = (queue.clone(), pool.clone());
            Box::new(move |work| {
                let refused = pool.run(execute(queue.clone(), work)).is_err();
                assert!(!refused, "a queue never has more commands than places");
            })
        };
        Rc::new_cyclic(|this| Self {
            id,
            queue,
            go_on,
            waiting: Box::new(move || pool.waiting()),
            stopped: Cell::new(false),
            this: this.clone(),
        })
    }

    /// Whether commands may be fetched: not while it is being deleted, and never more than it has
    /// entries.
    pub(crate) fn takes_commands(&self) -> bool {
        !self.stopped.get()
    }

    /// No command is fetched any more; whoever says so has it leave.
    pub(crate) fn stop_fetching(&self) {
        self.stopped.set(true);
    }

    /// Nobody is answered any more.
    pub(crate) fn detach(&self) {
        self.queue.front().detached.set(true);
    }

    /// Stops fetching, takes back what was not issued, and waits until all has been answered.
    pub(crate) async fn drain(self: Rc<Self>) {
        self.stopped.set(true);
        self.queue.withdraw_all();
        let front = self.queue.front();
        while !front.in_flight.borrow().is_empty() || (self.waiting)() > 0 {
            front.finished.notified().await;
            self.queue.core().rt().turn_end().await;
        }
    }

    /// The same, and leaves the target.
    async fn end(self: Rc<Self>) {
        self.queue.begin_end();
        self.clone().drain().await;
        self.queue.leave();
        self.queue.core().forget(self.id, None);
    }

    /// Ends it, and does not wait for that; again does nothing.
    pub(crate) fn stop(&self) {
        if !self.stopped.replace(true)
            && let Some(this) = self.this.upgrade()
        {
            self.queue.core().rt().spawn(this.end()).detach();
        }
    }

    /// The guest has deleted it, and all its commands have been answered.
    pub(crate) fn leave(&self) {
        self.queue.begin_end();
        self.queue.leave();
        self.queue.core().forget(self.id, None);
    }

    /// Whether it should let others have their turn.
    pub(crate) fn gives_way(&self) -> bool {
        self.queue.gives_way()
    }

    /// A command was fetched; gives how many bytes it moves.
    pub(crate) fn on_command(&self, entry: &SubmissionQueueEntry) -> u32 {
        let front = self.queue.front();
        if !front.begin(entry.cid()) {
            self.queue.on_duplicate();
            let status = Status::COMMAND_ID_CONFLICT.with_dnr();
            let entry = CompletionQueueEntry::new(entry.cid(), status);
            front.worker.post(front.qid, entry);
            return 0;
        }
        self.queue.on_traffic();
        match self.checked(entry) {
            Ok((command, bytes)) => {
                if let Some(rest) = start(&self.queue, command) {
                    (self.go_on)(rest);
                }
                bytes
            }
            Err(status) => {
                self.queue.refuse(entry, status);
                0
            }
        }
    }

    /// The command and the bytes that it moves, if it may be executed and its data are described
    /// well.
    fn checked(&self, entry: &SubmissionQueueEntry) -> Result<(Command, u32), Status> {
        // Fused pairs are not offered, nor are SGLs.
        if entry.psdt() != Psdt::Prp || entry.fuse() != Fuse::Normal {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        let queue = &self.queue;
        let namespace = queue.namespace(entry.nsid());
        let info = namespace.as_ref().map(|namespace| &namespace.info);
        let request = check(entry, info, queue.limits().transfer_bytes)?;
        let bytes = match request.transfer {
            Transfer::None => 0,
            Transfer::ToHost { bytes } => bytes,
            Transfer::FromHost { least, .. } => least,
        };
        let front = queue.front();
        front.locate(entry, bytes)?;
        let namespace = namespace.ok_or(Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr())?;
        let others = front.in_flight.borrow().len().saturating_sub(1);
        let now = queue.core().rt().turn_time();
        let op: IoOp = request.op;
        let others = u16::try_from(others).unwrap_or(u16::MAX);
        let request = (op, bytes);
        let command = Command::new(queue, entry, namespace, request, others, (now, now));
        Ok((command, bytes))
    }
}

impl front::Connection for IoConnection {
    fn close(&self) {
        self.stop();
    }

    fn withdraw(&self, cid: u16, tell: TellWithdrawn) {
        self.queue.withdraw(cid, tell);
    }

    fn on_aborted(&self, _ticket: u16, _aborted: bool) {}

    fn on_namespace_changed(&self, _nsid: u32) {}

    fn on_discovery_changed(&self) {}

    fn sweep(&self, now: Time) {
        self.queue.expire(now);
    }
}

impl FunctionFront {
    /// A command takes its place; false if another one has it.
    fn begin(&self, cid: u16) -> bool {
        let mut in_flight = self.in_flight.borrow_mut();
        let Entry::Vacant(place) = in_flight.entry(cid) else {
            return false;
        };
        place.insert(self.spare.borrow_mut().pop().unwrap_or_default());
        true
    }

    /// Finds the data of a command. Lists are read now, and once.
    fn locate(&self, entry: &SubmissionQueueEntry, bytes: u32) -> Result<(), Status> {
        let mut in_flight = self.in_flight.borrow_mut();
        let Some(segments) = in_flight.get_mut(&entry.cid()) else {
            return Err(Status::INTERNAL_ERROR);
        };
        let memory = self.worker.memory.borrow();
        prp::walk((entry.prp1(), entry.prp2()), bytes, segments, |at, to| {
            memory.read(at, to).map_err(|Unmapped| TRANSFER_ERROR)
        })
    }

    /// Copies the data of a command from the guest.
    fn copy_in(&self, cid: u16, to: &mut [u8]) -> Result<(), Unmapped> {
        let in_flight = self.in_flight.borrow();
        let segments = in_flight.get(&cid).filter(|_| !self.detached.get());
        let memory = self.worker.memory.borrow();
        let mut rest = to;
        for segment in segments.ok_or(Unmapped)? {
            let count = rest.len().min(segment.bytes as usize);
            let (piece, behind) = rest.split_at_mut(count);
            memory.read(segment.address, piece)?;
            rest = behind;
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(Unmapped)
        }
    }

    /// Copies what was read to the guest.
    fn copy_out(&self, cid: u16, data: &Data) -> Result<(), Unmapped> {
        let in_flight = self.in_flight.borrow();
        let memory = self.worker.memory.borrow();
        let mut at = 0;
        for segment in in_flight.get(&cid).ok_or(Unmapped)? {
            let count = (segment.bytes as usize).min(data.len() - at);
            match data {
                Data::Buf(buf) => memory.write(segment.address, &buf[at..at + count])?,
                Data::Zeroes(_) => memory.zero(segment.address, count)?,
            }
            at += count;
        }
        if at == data.len() {
            Ok(())
        } else {
            Err(Unmapped)
        }
    }

    /// A command has ended: its place is free, and the guest is answered.
    fn complete(&self, cid: u16, status: Status) {
        if let Some(segments) = self.in_flight.borrow_mut().remove(&cid) {
            self.spare.borrow_mut().push(segments);
        }
        if !self.detached.get() {
            let entry = CompletionQueueEntry::new(cid, status);
            self.worker.post(self.qid, entry);
        }
        drop(self.sample.take());
        self.finished.notify_one();
    }
}

impl Front for FunctionFront {
    type Fetch<'a> = Ready<Result<(Buf, Option<Held>), Failure>>;

    const AT_HAND: bool = true;

    fn lend(&self, cid: u16, unit: u32, way: Way) -> Option<Lent> {
        if self.detached.get() {
            return None;
        }
        let in_flight = self.in_flight.borrow();
        let memory = self.worker.memory.borrow();
        let segments = in_flight.get(&cid)?;
        memory.lend(&self.worker.loans, segments, unit, way)
    }

    fn copy(&self, cid: u16, to: &mut [u8]) -> Result<(), Failure> {
        let copied = self.copy_in(cid, to);
        copied.map_err(|Unmapped| TRANSFER_ERROR.into())
    }

    /// The data are there: they are copied at once.
    fn fetch(&self, cid: u16, bytes: usize, held: Option<Held>) -> Self::Fetch<'_> {
        let copied = || {
            let mut buf = buffer(bytes)?;
            self.copy(cid, &mut buf)?;
            Ok((buf, held))
        };
        ready(copied())
    }

    fn answer(&self, cid: u16, end: End<'_>) {
        let status = match end {
            End::Read(_, data, _held) if !self.detached.get() => match self.copy_out(cid, &data) {
                Ok(()) => Status::SUCCESS,
                Err(Unmapped) => TRANSFER_ERROR,
            },
            End::Read(..) | End::Write(_) | End::Other(_) => Status::SUCCESS,
            End::Failed(status) => status,
        };
        self.complete(cid, status);
    }

    fn keep(&self, sample: PendingSample) {
        *self.sample.borrow_mut() = Some(sample);
    }

    fn on_finished(&self) {
        self.finished.notify_one();
    }
}
