//! The engine of a mapped pool: does on the device what the store says, and tells the store how it
//! ended. Background work (garbage collection, checkpoints, flushes of its own) goes to the device
//! as the system's, and is charged to whose writes have caused it.
//!
//! What hosts write in one turn of the core goes into as few batches as can be: the store is asked
//! what to do next at the end of the turn, and when an I/O of its own ends.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use flashyard_logstore::format::batch::Lane;
use flashyard_logstore::format::{BLOCK, SECTOR};
use flashyard_logstore::{
    Action, COPIES, IoError as StoreError, IoOp, Lineage, Outcome, Part, Read, Refused, Request,
    State, Store, Stored, Tag as StoreTag,
};
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Buf, Data, Rt, Shared};
use flashyard_sched::Cost;
use flashyard_time::Duration;

use super::charges::Charges;
use super::coder::Coder;
use super::requests::Requests;
use crate::turns::{Queue, Taken};
use crate::{Done, Io, IoError, IoFuture, Served, Server, SharedDevice, Tag, Zero};

/// What was written and not flushed by a host is flushed after this long at most.
const PROVED_WITHIN: Duration = Duration::from_secs(1);
/// How long buffers are waited for.
pub(super) const BUFFER_PAUSE: Duration = Duration::from_ms(1);

/// What reads of blocks that hold nothing are verified against.
static ZEROES: [u8; 1 << 20] = [0; 1 << 20];

/// See the module.
pub(super) struct Engine {
    pub rt: Rt,
    pub device: SharedDevice,
    pub superblocks: [u64; COPIES],
    pub store: RefCell<Store>,
    pub charges: Charges,
    requests: RefCell<Requests>,
    /// What reads gave whose data are moved.
    kept: RefCell<BTreeMap<StoreTag, Data>>,
    stored: RefCell<Vec<Stored>>,
    /// Of volumes whose data are not stored as hosts see them.
    coders: RefCell<BTreeMap<Lineage, Rc<Coder>>>,
    /// Some of them encrypt.
    encrypted: Cell<bool>,
    /// Chunks of the read that has ended.
    chunks: RefCell<Vec<Read>>,
    in_flight: Cell<u32>,
    /// Where scrubs take their turns.
    pub queue: Queue,
    /// Copies that the last scrub has put right.
    pub scrub_healed: Cell<u64>,
    stopped: Cell<bool>,
    /// A look at the store at the end of this turn is due.
    due: Cell<bool>,
    /// Something was written since the clock looked last; whether it runs.
    written: Cell<bool>,
    clock: Cell<bool>,
    bell: Rc<Notify>,
    /// An I/O has ended, or the store is another state.
    pub changed: Notify,
}

impl Engine {
    /// An engine for `store`, whose superblocks are at these blocks of the device.
    pub fn start(
        rt: &Rt,
        device: SharedDevice,
        superblocks: [u64; COPIES],
        store: Store,
    ) -> Rc<Self> {
        let bell = Rc::new(Notify::new());
        let engine = Rc::new(Self {
            rt: rt.clone(),
            device,
            superblocks,
            store: RefCell::new(store),
            charges: Charges::default(),
            requests: RefCell::default(),
            kept: RefCell::default(),
            stored: RefCell::default(),
            coders: RefCell::default(),
            encrypted: Cell::new(false),
            chunks: RefCell::default(),
            in_flight: Cell::new(0),
            queue: Queue::default(),
            scrub_healed: Cell::new(0),
            stopped: Cell::new(false),
            due: Cell::new(false),
            written: Cell::new(false),
            clock: Cell::new(false),
            bell: bell.clone(),
            changed: Notify::new(),
        });
        engine.say_what_is_unneeded();
        let looks = look_at_turn_ends(rt.clone(), Rc::downgrade(&engine), bell);
        rt.spawn(looks).detach();
        engine.run();
        engine
    }

    /// Members of the device that are rebuilt need not get what segments hold that are free.
    fn say_what_is_unneeded(self: &Rc<Self>) {
        let Some(copies) = self.device.copies() else {
            return;
        };
        let scale = BLOCK as u64 / u64::from(self.device.info().block_size);
        let engine = Rc::downgrade(self);
        copies.set_unneeded(Box::new(move |range| {
            let blocks = range.start / scale..range.end.div_ceil(scale);
            let engine = engine.upgrade();
            // Who uses the device when this pool is closed has other segments.
            let open = engine.filter(|it| !it.stopped.get());
            open.is_some_and(|it| it.store.borrow().is_unneeded(blocks))
        }));
    }

    /// Waits until the store is open, or cannot be.
    pub async fn opened(&self) -> State {
        loop {
            let state = self.store.borrow().state();
            if state != State::Opening {
                return state;
            }
            self.changed.notified().await;
        }
    }

    /// Ends all work: nothing is begun any more, and what is in flight is waited for.
    pub async fn stop(&self) {
        self.halt();
        while self.in_flight.get() > 0 {
            self.changed.notified().await;
        }
    }

    /// Nothing is begun any more.
    pub fn halt(&self) {
        self.stopped.set(true);
        self.queue.end();
        self.requests.borrow_mut().end_all(IoError::NotReady);
        self.changed.notify_all();
        self.bell.notify_one();
    }

    /// Asks the store for something that is not I/O, and waits for its end.
    pub async fn ask<T>(
        self: &Rc<Self>,
        ask: impl FnOnce(&mut Store, Request) -> Result<T, Refused>,
    ) -> Result<T, Asked> {
        let (value, change) = self.begin_change(ask)?;
        self.end_change(change).await.map(|()| value)
    }

    /// Asks the store for a change, which begins when its end is waited for, or a little later.
    pub fn begin_change<T>(
        self: &Rc<Self>,
        ask: impl FnOnce(&mut Store, Request) -> Result<T, Refused>,
    ) -> Result<(T, Served), Asked> {
        if self.stopped.get() {
            return Err(Asked::Ended(IoError::NotReady));
        }
        let slot = self.requests.borrow_mut().begin(Tag::default());
        let asked = ask(&mut self.store.borrow_mut(), u64::from(slot));
        match asked {
            Err(refused) => {
                self.requests.borrow_mut().refuse(slot, refused);
                Err(Asked::Refused(refused))
            }
            Ok(value) => {
                self.ring();
                Ok((value, Served::new(self.clone(), slot)))
            }
        }
    }

    /// The end of a change.
    pub async fn end_change(self: &Rc<Self>, change: Served) -> Result<(), Asked> {
        self.run();
        change.await.map(drop).map_err(Asked::Ended)
    }

    /// Reads `into.len()` bytes, whole chunks and as many as are written at once.
    pub fn read(
        self: &Rc<Self>,
        tag: Tag,
        (lineage, coder): (Lineage, &Coder),
        chunk: u64,
        into: Buf,
    ) -> IoFuture {
        let count = (into.len() / coder.chunk_bytes()) as u32;
        let slot = self.requests.borrow_mut().read(tag, into);
        self.begin(slot, |store, request| {
            store.read(request, lineage, chunk, count)
        })
    }

    /// Writes whole chunks, 128 KiB wherever they begin at most.
    pub fn write(
        self: &Rc<Self>,
        tag: Tag,
        (lineage, coder): (Lineage, &Coder),
        chunk: u64,
        data: Shared,
        fua: bool,
    ) -> IoFuture {
        let mut stored = self.stored.borrow_mut();
        let data = match coder.encode(lineage, chunk, data, &mut stored) {
            Ok(data) => data,
            Err(error) => return IoFuture::ready(Err(error)),
        };
        let slot = self.requests.borrow_mut().write(tag, data);
        self.note_write();
        self.begin(slot, |store, request| {
            store.write(request, lineage, chunk, &stored, fua)
        })
    }

    /// Which lane writes of a volume go to from now on; false when it has writes that are not
    /// durable.
    pub fn set_lane(&self, lineage: Lineage, lane: Lane) -> bool {
        self.store.borrow_mut().set_lane(lineage, lane).is_ok()
    }

    /// Unmaps chunks.
    pub fn trim(self: &Rc<Self>, tag: Tag, lineage: Lineage, chunks: Range<u64>) -> IoFuture {
        let slot = self.requests.borrow_mut().begin(tag);
        self.note_write();
        self.begin(slot, |store, request| store.trim(request, lineage, chunks))
    }

    /// Makes durable what was answered of a volume.
    pub fn flush(self: &Rc<Self>, tag: Tag, lineage: Lineage) -> IoFuture {
        let slot = self.requests.borrow_mut().begin(tag);
        self.begin(slot, |store, request| store.flush(request, lineage))
    }

    /// Hands a request to the store.
    fn begin(
        self: &Rc<Self>,
        slot: u32,
        ask: impl FnOnce(&mut Store, Request) -> Result<(), Refused>,
    ) -> IoFuture {
        let asked = match self.stopped.get() {
            true => Err(Refused::NotReady),
            false => ask(&mut self.store.borrow_mut(), u64::from(slot)),
        };
        if let Err(refused) = asked {
            let error = self.requests.borrow_mut().refuse(slot, refused);
            return IoFuture::ready(Err(error));
        }
        self.do_decided();
        self.ring();
        let ended = self.requests.borrow_mut().take(slot);
        match ended {
            Some(result) => IoFuture::ready(result),
            None => IoFuture::served(Served::new(self.clone(), slot)),
        }
    }

    /// The store is to be looked at at the end of this turn.
    pub fn ring(&self) {
        if !self.due.replace(true) {
            self.bell.notify_one();
        }
    }

    /// Does what the store has decided.
    fn do_decided(self: &Rc<Self>) {
        loop {
            let action = self.store.borrow_mut().decided();
            match action {
                Some(action) => self.act(action),
                None => return,
            }
        }
    }

    /// Does what the store says until it says nothing more.
    fn run(self: &Rc<Self>) {
        if self.stopped.get() {
            return;
        }
        self.due.set(false);
        loop {
            let action = self.store.borrow_mut().poll();
            match action {
                Some(action) => self.act(action),
                None => break,
            }
        }
        self.changed.notify_all();
    }

    fn act(self: &Rc<Self>, action: Action) {
        match action {
            Action::Submit(tag) => self.submit(tag),
            Action::Forget(tag) => drop(self.kept.borrow_mut().remove(&tag)),
            Action::Zeroes {
                request,
                first,
                blocks,
            } => {
                let mut requests = self.requests.borrow_mut();
                requests.zeroes(request as u32, first, blocks);
            }
            Action::Done { request, outcome } => self.end(request, outcome),
        }
    }

    fn end(&self, request: Request, outcome: Outcome) {
        self.requests.borrow_mut().end(request as u32, outcome);
    }

    /// Begins an I/O of the store; when there is no memory for it, a little later.
    fn submit(self: &Rc<Self>, tag: StoreTag) {
        if self.stopped.get() {
            return;
        }
        self.in_flight.set(self.in_flight.get() + 1);
        let is_scrub = self.store.borrow().io(tag).is_scrub();
        match is_scrub {
            true => self.clone().issue_in_turn(tag),
            false => self.issue(tag, Taken::default()),
        }
    }

    /// Begins a read of a scrub when it has its turn.
    fn issue_in_turn(self: Rc<Self>, tag: StoreTag) {
        let rt = self.rt.clone();
        let wait = async move {
            match self.scrub_turn(tag).await {
                Some(turn) => {
                    self.issue(tag, turn);
                    self.run();
                }
                None => self.in_flight.set(self.in_flight.get() - 1),
            }
            self.changed.notify_all();
        };
        rt.spawn(wait).detach();
    }

    fn issue(self: &Rc<Self>, tag: StoreTag, mut turn: Taken) {
        let Some((charged, io)) = self.build(tag) else {
            let engine = self.clone();
            let later = async move {
                engine.rt.sleep(BUFFER_PAUSE).await;
                engine.in_flight.set(engine.in_flight.get() - 1);
                engine.submit(tag);
                engine.changed.notify_all();
            };
            return self.rt.spawn(later).detach();
        };
        turn.begin();
        let io = match io {
            Io::Read { lba, into } if self.has_copies_of(tag) => {
                let engine = self.clone();
                let read = async move { engine.read_copies(tag, charged, lba, into).await };
                IoFuture::boxed(read)
            }
            io => self.device.submit(charged, io),
        };
        match io.try_finish() {
            Ok(result) => {
                turn.end(result.is_ok());
                self.ended(tag, result);
            }
            Err(io) => {
                let engine = self.clone();
                let rest = async move {
                    let result = io.await;
                    turn.end(result.is_ok());
                    engine.ended(tag, result);
                    engine.run();
                    engine.changed.notify_all();
                };
                self.rt.spawn(rest).detach();
            }
        }
    }

    /// Whether a read was not good, and another copy may be.
    fn has_copies_of(&self, tag: StoreTag) -> bool {
        self.store.borrow().io(tag).is_again() && self.device.copies().is_some()
    }

    /// An I/O of the store for the device, and who is charged for it.
    fn build(&self, tag: StoreTag) -> Option<(Tag, Io)> {
        let store = self.store.borrow();
        let io = store.io(tag);
        let scale = BLOCK as u64 / u64::from(self.device.info().block_size);
        let (lba, len) = (io.block * scale, io.blocks as usize * BLOCK);
        let system = Tag::default();
        Some(match io.op {
            IoOp::Read => match io.host {
                Some((request, first)) => {
                    let mut requests = self.requests.borrow_mut();
                    let into = match io.is_plain() {
                        true => requests.place(request as u32, first, io.blocks)?,
                        false => {
                            let chunk = self.chunk_blocks(io.chunks());
                            let blocks = io.chunks().len() as u32 * chunk;
                            requests.reserve(request as u32, first, blocks);
                            Buf::take(len)?
                        }
                    };
                    (requests.tag(request as u32), Io::Read { lba, into })
                }
                None => {
                    let into = Buf::take(len)?;
                    (system, Io::Read { lba, into })
                }
            },
            IoOp::Write | IoOp::WriteSuperblock(_) => {
                let place = match io.op {
                    IoOp::WriteSuperblock(copy) => self.superblocks[usize::from(copy)] * scale,
                    _ => lba,
                };
                let (lba, fua) = (place, false);
                let data = self.gather(io, len)?.into();
                (system, Io::Write { lba, data, fua })
            }
            IoOp::Flush => (system, Io::Flush),
            IoOp::Discard => {
                let (blocks, how) = (u64::from(io.blocks) * scale, Zero::Deallocate);
                (system, Io::Zero { lba, blocks, how })
            }
        })
    }

    /// What a write of the store has, in one buffer.
    fn gather(&self, io: &flashyard_logstore::Io, len: usize) -> Option<Buf> {
        let mut whole = Buf::take(len)?;
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            whole[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        for part in &io.parts {
            match *part {
                Part::Own => put(&io.own),
                Part::Host {
                    request,
                    first,
                    sectors,
                } => put(self
                    .requests
                    .borrow()
                    .written(request as u32, first, sectors)),
                Part::Gap(sectors) => put(&ZEROES[..sectors as usize * SECTOR]),
                Part::Copy {
                    read,
                    first,
                    sectors,
                } => {
                    let (from, len) = (first as usize * SECTOR, sectors as usize * SECTOR);
                    match self.kept.borrow().get(&read) {
                        Some(Data::Buf(buf)) => put(&buf[from..from + len]),
                        _ => put(&ZEROES[..len]),
                    }
                }
            }
        }
        debug_assert_eq!(at, len, "the parts fill the write");
        Some(whole)
    }

    /// Tells the store the end of an I/O.
    fn ended(&self, tag: StoreTag, result: Result<Done, IoError>) {
        self.in_flight.set(self.in_flight.get() - 1);
        self.charge(tag);
        let result = result.map(|done| done.data).map_err(|error| match error {
            IoError::NoSpace => StoreError::NoSpace,
            _ => StoreError::Failed,
        });
        let mut store = self.store.borrow_mut();
        let io = store.io(tag);
        let (host, is_plain) = (io.host, io.host.is_none() || io.is_plain());
        let mut chunks = self.chunks.borrow_mut();
        chunks.clear();
        let as_read = io.host.is_none() || is_plain && !self.encrypted.get();
        chunks.extend_from_slice(if as_read { &[] } else { io.chunks() });
        match &result {
            Ok(Data::Buf(buf)) => store.completed(tag, Ok(buf)),
            Ok(Data::Zeroes(len)) => match ZEROES.get(..*len) {
                Some(zeroes) => store.completed(tag, Ok(zeroes)),
                None => store.completed(tag, Ok(&vec![0; *len])),
            },
            Err(error) => store.completed(tag, Err(*error)),
        }
        let Ok(data) = result else {
            return;
        };
        match host {
            Some((request, first)) => {
                // The answer comes with the store's next action.
                let mut requests = self.requests.borrow_mut();
                let slot = request as u32;
                let decoded = match data {
                    data if as_read => Ok(data),
                    data if is_plain => self.decrypt(&chunks, data),
                    data => self.decode_into(&chunks, data, requests.take_place(slot, first)),
                };
                requests.give(slot, first, decoded);
            }
            None if store.keeps(tag) => drop(self.kept.borrow_mut().insert(tag, data)),
            None => {}
        }
    }

    /// Charges an I/O of the store that has ended.
    fn charge(&self, tag: StoreTag) {
        let store = self.store.borrow();
        let io = store.io(tag);
        let block = match io.op {
            IoOp::WriteSuperblock(copy) => self.superblocks[usize::from(copy)],
            _ => io.block,
        };
        let (at, bytes) = (block * BLOCK as u64, u64::from(io.blocks) * BLOCK as u64);
        let mut cost = Cost::default();
        match io.op {
            IoOp::Read => cost.read = self.device.read_for(at, bytes),
            IoOp::Write | IoOp::WriteSuperblock(_) => {
                cost.written = self.device.written_for(at, bytes);
            }
            IoOp::Flush | IoOp::Discard => return,
        }
        match io.host {
            Some((request, _)) => {
                let tenant = self.requests.borrow().tag(request as u32).tenant;
                self.charges.charge(tenant, cost);
            }
            None => {
                if store.is_upkeep(tag) {
                    cost.upkeep = cost.read + cost.written;
                }
                self.charges.divide(store.payers(tag), cost);
            }
        }
    }

    /// Volumes of this lineage store their data with this.
    pub fn set_coder(&self, lineage: Lineage, coder: &Rc<Coder>) {
        if !coder.is_plain() {
            self.encrypted
                .set(self.encrypted.get() || coder.is_encrypted());
            self.coders.borrow_mut().insert(lineage, coder.clone());
        }
    }

    /// The data of this lineage are gone.
    pub fn forget_coder(&self, lineage: Lineage) {
        self.coders.borrow_mut().remove(&lineage);
    }

    /// What decodes the data of this lineage; nothing where they are stored as hosts see them.
    fn coder_of(&self, chunk: &Read) -> Option<Rc<Coder>> {
        self.coders.borrow().get(&chunk.lineage).cloned()
    }

    /// Decrypts chunks where they were read: they are not compressed.
    fn decrypt(&self, chunks: &[Read], data: Data) -> Result<Data, IoError> {
        let Data::Buf(mut data) = data else {
            // What is encrypted is never stored as zeroes; what is not may be.
            return match chunks.iter().all(|chunk| self.coder_of(chunk).is_none()) {
                true => Ok(data),
                false => Err(IoError::Read),
            };
        };
        for chunk in chunks {
            if let Some(coder) = self.coder_of(chunk) {
                coder.decrypt(chunk, &mut data)?;
            }
        }
        Ok(Data::Buf(data))
    }

    /// Decodes chunks one after another into memory for all of them.
    fn decode_into(&self, chunks: &[Read], data: Data, into: Option<Buf>) -> Result<Data, IoError> {
        let mut into = into.ok_or(IoError::Internal)?;
        // What is compressed is never stored as zeroes.
        let Data::Buf(mut data) = data else {
            return Err(IoError::Read);
        };
        let chunk_bytes = into.len() / chunks.len().max(1);
        for (chunk, place) in chunks.iter().zip(into.chunks_exact_mut(chunk_bytes)) {
            let coder = self.coder_of(chunk).ok_or(IoError::Read)?;
            coder.decode(chunk, &mut data, place)?;
        }
        Ok(Data::Buf(into))
    }

    /// Blocks of a chunk of those that are read.
    fn chunk_blocks(&self, chunks: &[Read]) -> u32 {
        let coder = chunks.first().and_then(|chunk| self.coder_of(chunk));
        coder.map_or(1, |coder| coder.form().chunk_blocks())
    }

    /// Sees to it that what is written now is durable soon, whether its host flushes or not.
    fn note_write(self: &Rc<Self>) {
        self.written.set(true);
        if !self.clock.replace(true) {
            let engine = Rc::downgrade(self);
            self.rt
                .spawn(prove_in_time(self.rt.clone(), engine))
                .detach();
        }
    }
}

/// Why what was asked of a store was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// It did not begin.
    Refused(Refused),
    /// It failed.
    Ended(IoError),
}

impl Server for Engine {
    fn poll_served(&self, slot: u32, context: &mut Context<'_>) -> Poll<Result<Done, IoError>> {
        self.requests.borrow_mut().poll(slot, context)
    }

    fn release(&self, slot: u32) {
        self.requests.borrow_mut().release(slot);
    }
}

/// Asks the store what to do at the end of each turn that has brought something.
async fn look_at_turn_ends(rt: Rt, engine: Weak<Engine>, bell: Rc<Notify>) {
    loop {
        bell.notified().await;
        rt.turn_end().await;
        match engine.upgrade() {
            Some(engine) if !engine.stopped.get() => engine.run(),
            _ => return,
        }
    }
}

/// Makes what was written durable until nothing was written for a while.
async fn prove_in_time(rt: Rt, engine: Weak<Engine>) {
    loop {
        rt.sleep(PROVED_WITHIN).await;
        let Some(engine) = engine.upgrade() else {
            return;
        };
        engine.store.borrow_mut().prove();
        engine.run();
        if !engine.written.replace(false) {
            engine.clock.set(false);
            return;
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.bell.notify_one();
    }
}
