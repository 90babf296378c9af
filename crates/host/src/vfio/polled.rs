//! A driver that polls, as drivers in user space do: many commands at a time over several queues,
//! completions found by looking for them, and one doorbell for all commands of a moment. To measure
//! functions with.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use flashyard_nvme::identify::{Cns, IdentifyController, IdentifyNamespace};
use flashyard_nvme::{CompletionQueueEntry, SubmissionQueueEntry};
use flashyard_runtime::shared_memory::Mapping;
use flashyard_runtime::sync::Semaphore;
use flashyard_runtime::{Data, Rt, Task};
use flashyard_time::{Duration, Time};
use zerocopy::{FromBytes, IntoBytes};

use super::client::ClientError;
use super::guest::{Guest, GuestError, GuestOptions, PAGE, RAM_BASE};
use crate::payload::{Payload, ReadInto};
use crate::queue::{Answer, HostError};

/// Bytes of a command whose list is one page.
const MOST_TRANSFER: u32 = 512 * PAGE as u32;
/// So long nothing may come back before the driver looks whether the controller is still there.
const SILENCE: Duration = Duration::from_secs(1);
/// Memory of a guest beside what its queues and their data take.
const SPARE: u64 = 4 << 20;

/// How a function is driven.
#[derive(Clone, Copy, Debug)]
pub struct PolledOptions {
    /// I/O queues.
    pub queues: u16,
    /// Commands in flight of each; fewer if its queues are shorter.
    pub depth: u16,
    /// Bytes of a command's data at most.
    pub transfer: u32,
    /// Uses shadow doorbells.
    pub shadow: bool,
    /// Maps the doorbells.
    pub mapped: bool,
}

/// A function with a controller that is enabled, and the task that polls.
pub struct PolledFunction {
    queues: Vec<PolledQueue>,
    namespace: IdentifyNamespace,
    max_transfer: usize,
    stop: Rc<Cell<bool>>,
    driver: Task<Guest>,
}

/// An I/O queue of a function. Cheap to clone.
#[derive(Clone)]
pub struct PolledQueue(Rc<Ring>);

struct Ring {
    ram: Rc<Mapping>,
    qid: u16,
    entries: u16,
    /// Where its parts are, as offsets in the guest's memory.
    submission: usize,
    completion: usize,
    /// Data of place 0; those of the others follow.
    data: usize,
    stride: usize,
    transfer: usize,
    permits: Semaphore,
    state: RefCell<State>,
    failure: Cell<Option<HostError>>,
}

struct State {
    tail: u16,
    /// What the function was last given.
    rung_tail: u16,
    head: u16,
    rung_head: u16,
    phase: bool,
    free: Vec<u16>,
    places: Vec<Place>,
}

#[derive(Default)]
struct Place {
    completion: Option<CompletionQueueEntry>,
    waker: Option<Waker>,
    /// So many bytes of its data may be other than zero.
    used: usize,
}

impl PolledFunction {
    /// Connects to the function at `path`, enables its controller, makes queues, and finds
    /// namespace `nsid`.
    ///
    /// # Errors
    /// See [`GuestError`].
    pub async fn start(
        rt: &Rt,
        path: &Path,
        options: PolledOptions,
        nsid: u32,
    ) -> Result<Self, GuestError> {
        if options.transfer > MOST_TRANSFER {
            return Err(GuestError::Full);
        }
        let guest_options = GuestOptions {
            ram: 0,
            queues: options.queues,
            entries: options.depth.saturating_add(1),
            transfer: options.transfer,
            shadow: options.shadow,
            mapped: options.mapped,
            interrupts: false,
            posted: true,
        };
        let needed = guest_options.needed() + SPARE;
        let guest_options = GuestOptions {
            ram: needed,
            ..guest_options
        };
        let mut guest = Guest::start(rt, path, guest_options).await?;
        let page = guest.identify(Cns::CONTROLLER, 0).await?;
        let most = IdentifyController::decode(&page).max_transfer(0);
        let namespace = IdentifyNamespace::decode(&guest.identify(Cns::NAMESPACE, nsid).await?);
        let rings: Vec<_> = (1..=options.queues)
            .map(|qid| Rc::new(Ring::new(&guest, qid, options.transfer as usize)))
            .collect();
        for ring in &rings {
            ring.write_lists()?;
        }
        let stop = Rc::new(Cell::new(false));
        let driver = rt.spawn(drive(rt.clone(), guest, rings.clone(), stop.clone()));
        Ok(Self {
            queues: rings.into_iter().map(PolledQueue).collect(),
            namespace,
            max_transfer: most.map_or(usize::MAX, |most| most as usize),
            stop,
            driver,
        })
    }

    /// Its I/O queues.
    pub fn queues(&self) -> Vec<PolledQueue> {
        self.queues.clone()
    }

    /// The namespace.
    pub fn namespace(&self) -> &IdentifyNamespace {
        &self.namespace
    }

    /// Most bytes a command may move, from MDTS.
    pub fn max_transfer(&self) -> usize {
        self.max_transfer
    }

    /// Disables the controller and leaves.
    pub async fn close(self) {
        self.stop.set(true);
        let mut guest = self.driver.await;
        // Whatever comes of it, the function sees the connection end.
        let _ = guest.disable().await;
    }
}

impl PolledQueue {
    /// Any command that moves data or none. Its identifier and its PRPs are set here. It is in its
    /// queue when it is first polled, unless the queue is full.
    pub async fn command(
        &self,
        entry: SubmissionQueueEntry,
        payload: Payload,
    ) -> Result<Answer, HostError> {
        let ring = &*self.0;
        if !ring.permits.try_acquire(1) {
            ring.permits.acquire(1).await;
        }
        let answer = ring.command(entry, payload).await;
        ring.permits.release(1);
        answer
    }
}

impl Ring {
    fn new(guest: &Guest, qid: u16, transfer: usize) -> Self {
        let places = guest.places(qid);
        let offset = |address: u64| (address - RAM_BASE) as usize;
        Self {
            ram: guest.ram().clone(),
            qid,
            entries: places.entries,
            submission: offset(places.submission),
            completion: offset(places.completion),
            data: offset(places.data),
            stride: places.stride as usize,
            transfer,
            permits: Semaphore::new(usize::from(places.entries - 1)),
            state: RefCell::new(State {
                tail: 0,
                rung_tail: 0,
                head: 0,
                rung_head: 0,
                phase: true,
                free: (0..places.entries - 1).rev().collect(),
                places: (0..places.entries).map(|_| Place::default()).collect(),
            }),
            failure: Cell::new(None),
        }
    }

    /// The lists of all places, once: the data of a place are always at the same address.
    fn write_lists(&self) -> Result<(), GuestError> {
        for cid in 0..self.entries {
            let (list, data) = (self.list(cid), self.data(cid));
            for page in 1..self.transfer.div_ceil(PAGE as usize) {
                let address = RAM_BASE + data as u64 + page as u64 * PAGE;
                let written = self
                    .ram
                    .write(list + (page - 1) * 8, &address.to_le_bytes());
                written.then_some(()).ok_or(GuestError::Memory)?;
            }
        }
        Ok(())
    }

    fn list(&self, cid: u16) -> usize {
        self.data + usize::from(cid) * self.stride
    }

    fn data(&self, cid: u16) -> usize {
        self.list(cid) + Guest::LISTS as usize
    }

    async fn command(
        &self,
        entry: SubmissionQueueEntry,
        mut payload: Payload,
    ) -> Result<Answer, HostError> {
        if let Some(failure) = self.failure.get() {
            return Err(failure);
        }
        let Some(cid) = self.state.borrow_mut().free.pop() else {
            return Err(HostError::NoBuffer);
        };
        self.fill(cid, &payload)?;
        self.submit(entry, cid, payload.len())?;
        let completion = poll_fn(|context| self.poll(cid, context)).await?;
        if !completion.status().is_success() {
            return Err(HostError::Status(completion.status()));
        }
        if let Payload::In(ReadInto::Buf(buf)) = &mut payload {
            let read = self.ram.read(self.data(cid), buf);
            read.then_some(()).ok_or(HostError::Closed)?;
        }
        Ok(Answer {
            value: completion.value(),
            payload,
        })
    }

    /// Puts what is written to where the command says that it is.
    fn fill(&self, cid: u16, payload: &Payload) -> Result<(), HostError> {
        let at = self.data(cid);
        let place = &mut self.state.borrow_mut().places[usize::from(cid)];
        let used = place.used.max(payload.len());
        let (filled, used) = match payload {
            Payload::None => (true, place.used),
            Payload::In(_) => (true, used),
            Payload::Out(Data::Buf(buf)) => (self.ram.write(at, buf), used),
            Payload::Shared(data) => (self.ram.write(at, data), used),
            Payload::Out(Data::Zeroes(_)) if place.used == 0 => (true, 0),
            Payload::Out(Data::Zeroes(_)) => (self.ram.write(at, &vec![0; used]), 0),
        };
        place.used = used;
        filled.then_some(()).ok_or(HostError::NoBuffer)
    }

    fn submit(&self, entry: SubmissionQueueEntry, cid: u16, bytes: usize) -> Result<(), HostError> {
        let address = RAM_BASE + self.data(cid) as u64;
        let second = match bytes.div_ceil(PAGE as usize) {
            0 | 1 => 0,
            2 => address + PAGE,
            _ => RAM_BASE + self.list(cid) as u64,
        };
        let entry = entry.with_cid(cid).with_prps(address, second);
        let state = &mut *self.state.borrow_mut();
        let at = self.submission + usize::from(state.tail) * SubmissionQueueEntry::LEN;
        let written = self.ram.write(at, entry.as_bytes());
        state.tail = (state.tail + 1) % self.entries;
        written.then_some(()).ok_or(HostError::Closed)
    }

    fn poll(
        &self,
        cid: u16,
        context: &mut Context<'_>,
    ) -> Poll<Result<CompletionQueueEntry, HostError>> {
        let mut state = self.state.borrow_mut();
        let place = &mut state.places[usize::from(cid)];
        if let Some(completion) = place.completion.take() {
            state.free.push(cid);
            return Poll::Ready(Ok(completion));
        }
        if let Some(failure) = self.failure.get() {
            return Poll::Ready(Err(failure));
        }
        place.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Takes all completions that are there; how many.
    fn reap(&self) -> usize {
        let mut count = 0;
        loop {
            let mut state = self.state.borrow_mut();
            let at = self.completion + usize::from(state.head) * 16;
            let last = self.ram.load(at + 12);
            if last.is_none_or(|last| (last >> 16 & 1 == 1) != state.phase) {
                return count;
            }
            let mut bytes = [0; 16];
            let read = self.ram.read(at, &mut bytes);
            let Some(entry) = CompletionQueueEntry::read_from_bytes(&bytes)
                .ok()
                .filter(|_| read)
            else {
                return count;
            };
            state.head = (state.head + 1) % self.entries;
            state.phase ^= state.head == 0;
            count += 1;
            let place = state.places.get_mut(usize::from(entry.cid()));
            let waker = place.and_then(|place| {
                place.completion = Some(entry);
                place.waker.take()
            });
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn in_flight(&self) -> bool {
        let state = self.state.borrow();
        state.free.len() + 1 < usize::from(self.entries)
    }

    fn fail(&self, failure: HostError) {
        self.failure.set(Some(failure));
        let mut state = self.state.borrow_mut();
        let wakers: Vec<_> = state
            .places
            .iter_mut()
            .filter_map(|place| place.waker.take())
            .collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Doorbells that have moved since they were rung.
    fn moved(&self) -> [Option<(u64, u16)>; 2] {
        let mut state = self.state.borrow_mut();
        let index = u64::from(self.qid) * 2;
        let State { tail, head, .. } = *state;
        let tail = (std::mem::replace(&mut state.rung_tail, tail) != tail).then_some((index, tail));
        let head =
            (std::mem::replace(&mut state.rung_head, head) != head).then_some((index + 1, head));
        // First the room, then the commands that may need it.
        [head, tail]
    }
}

/// Polls until `stop`, or until the function is gone.
async fn drive(rt: Rt, mut guest: Guest, rings: Vec<Rc<Ring>>, stop: Rc<Cell<bool>>) -> Guest {
    let mut heard = rt.turn_time();
    while !stop.get() {
        if let Err(failure) = drive_once(&rt, &mut guest, &rings, &mut heard).await {
            for ring in &rings {
                ring.fail(failure);
            }
            break;
        }
    }
    guest
}

async fn drive_once(
    rt: &Rt,
    guest: &mut Guest,
    rings: &[Rc<Ring>],
    heard: &mut Time,
) -> Result<(), HostError> {
    let came: usize = rings.iter().map(|ring| ring.reap()).sum();
    let mut in_flight = false;
    if came > 0 {
        *heard = rt.turn_time();
        behind_the_others().await;
    } else {
        rt.turn_end().await;
        in_flight = rings.iter().any(|ring| ring.in_flight());
    }
    for ring in rings {
        for (index, value) in ring.moved().into_iter().flatten() {
            let rung = guest.doorbell(index, value, true).await;
            rung.map_err(|error| failure(&error))?;
        }
    }
    if !in_flight {
        *heard = rt.turn_time();
    } else if rt.turn_time().since(*heard) > SILENCE {
        *heard = rt.turn_time();
        let status = guest.status().await.map_err(|error| failure(&error))?;
        if status.cfs || !status.rdy {
            return Err(HostError::Transport(io::ErrorKind::ConnectionReset));
        }
    }
    Ok(())
}

fn failure(error: &GuestError) -> HostError {
    HostError::Transport(match error {
        GuestError::Client(ClientError::Io(error)) => error.kind(),
        GuestError::Client(ClientError::Closed) => io::ErrorKind::ConnectionReset,
        _ => io::ErrorKind::InvalidData,
    })
}

/// Lets all tasks run that are ready now.
async fn behind_the_others() {
    let mut waited = false;
    poll_fn(move |context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
