//! A volume whose content goes to another device while it is used.
//!
//! [`Migration`] stands in the place of the volume. Until the very end the **source** is the
//! volume: it is what is read, what a flush is about, and what counts after a crash. A cursor goes
//! over it; behind it, writes go to the **target** too, after the source has them. So nothing that
//! happens to the target can fail an I/O, and a copy that was cut off is at worst a copy that is
//! not complete.
//!
//! | | copying | switching | moved |
//! | --- | --- | --- | --- |
//! | read | source | target | target |
//! | write | source, behind the cursor then target | source, then target | target |
//! | it has ended when | the source has it (*) | both have it | the target has it |
//! | flush | source | both | target |
//!
//! (*) What the target has yet to get is bounded; beyond that a write ends when the target has it.
//!
//! *Switching* is for whoever records which side counts: whatever is decided, and whenever the
//! program is killed, that side has all that was acknowledged and all that was read. `cursor`
//! decides, pure; `copier` copies.

mod copier;
mod cursor;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Buf, Rt};
use flashyard_sched::{Cost, TenantId};

use self::copier::Way;
use self::cursor::{Cursor, Span, Ticket};
use crate::gate::{self, Gate};
use crate::io::Done;
use crate::range::locate_io;
use crate::{
    Device, DeviceExt, Health, Info, Io, IoError, IoFuture, Limits, SharedDevice, Tag, Turns, Zero,
};

pub use copier::CopyError;

/// What the target has yet to get of writes that are acknowledged.
const LAG_BYTES: usize = 4 << 20;
const LAG_WRITES: usize = 128;

/// All that may be locked: mode changes concern every I/O.
const ALL: gate::Span = gate::Span {
    start: 0,
    end: u64::MAX,
};

/// The devices of a migration. The same device may be given twice: the second one is used for
/// copying that no write waits for, so that it can stand behind a switch where it is charged to the
/// system.
#[derive(Clone)]
pub struct Sides {
    /// Where the volume is.
    pub source: SharedDevice,
    /// The same, to be read by the copying.
    pub copy_from: SharedDevice,
    /// Where it goes: at least as large, with blocks of the same size; zeroes behind what
    /// [`Start`] says.
    pub target: SharedDevice,
    /// The same, to be written by the copying.
    pub copy_to: SharedDevice,
}

/// What the target has already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Bytes from the beginning that are the same on both sides.
    pub copied: u64,
    /// Bytes from the beginning that may hold anything, such as a copy that was cut off: they are
    /// compared, and written where they differ.
    pub touched: u64,
}

/// How far a migration is; to be read from any thread.
#[derive(Debug, Default)]
pub struct Progress {
    copied: AtomicU64,
    written: AtomicU64,
    repeated: AtomicU64,
}

impl Progress {
    /// Bytes from the beginning that are on both sides.
    pub fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    /// Bytes that the copying has written to the target; the rest was zero, or there already.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Pieces that were copied again, because they were written to meanwhile.
    pub fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }
}

/// Which side the volume is on from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where it was.
    Source,
    /// Where it was to go.
    Target,
}

/// See the module. Stands in the place of the volume; cheap to clone.
#[derive(Clone)]
pub struct Migration {
    inner: Rc<Inner>,
}

struct Inner {
    rt: Rt,
    sides: Sides,
    block_size: u32,
    blocks: u64,
    mode: Cell<Mode>,
    /// Which side it is to be, for writes that have to know before the mode can change.
    decided: Cell<Option<Side>>,
    /// Why it was given up.
    failure: Cell<Option<CopyError>>,
    cursor: RefCell<Cursor>,
    /// Writes of which only the source has all, and their bytes.
    lag: Cell<(usize, usize)>,
    /// No write ends before the target has it.
    together: Cell<bool>,
    /// A step of a write, or the mode.
    changed: Notify,
    /// Every I/O passes it; closed while the mode changes.
    gate: Rc<Gate>,
    progress: Arc<Progress>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Copying,
    Switching,
    Ended(Side),
}

/// What the target gets of a write.
enum Mirrored {
    Same(Io),
    /// Whatever the source holds there: the write has failed, so that is not known.
    Present,
}

impl Migration {
    /// Stands before `sides` from now on. No I/O to the source may be in flight but through this,
    /// when [`Migration::copy`] begins.
    pub fn new(rt: &Rt, sides: Sides, start: Start) -> Self {
        let info = sides.source.info();
        let blocks_in = |bytes: u64| bytes / u64::from(info.block_size);
        let touched = start.touched.div_ceil(u64::from(info.block_size));
        let cursor = Cursor::new(
            blocks_in(start.copied).min(info.blocks),
            touched.min(info.blocks),
            info.blocks,
        );
        let progress = Arc::new(Progress::default());
        let copied = cursor.at() * u64::from(info.block_size);
        progress.copied.store(copied, Ordering::Relaxed);
        Self {
            inner: Rc::new(Inner {
                rt: rt.clone(),
                sides,
                block_size: info.block_size,
                blocks: info.blocks,
                mode: Cell::new(Mode::Copying),
                decided: Cell::new(None),
                failure: Cell::new(None),
                cursor: RefCell::new(cursor),
                lag: Cell::new((0, 0)),
                together: Cell::new(false),
                changed: Notify::new(),
                gate: Gate::new(rt),
                progress,
            }),
        }
    }

    /// How far it is.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.inner.progress)
    }

    /// Copies all that is not on the target yet, and has it on the medium there. Where this fails
    /// the volume stays where it is, as if nothing had happened.
    pub async fn copy(&self) -> Result<(), CopyError> {
        copier::copy(&self.inner).await
    }

    /// When all is copied: from now on both sides count, until [`Migration::end`] says which one
    /// does. What was acknowledged before is on both media.
    pub async fn begin_switch(&self) -> Result<(), CopyError> {
        let inner = &self.inner;
        inner.check()?;
        if inner.mode.get() == Mode::Switching {
            return Ok(());
        }
        inner.together.set(true);
        let hold = inner.gate.exclude(ALL, false).await;
        let hold = hold.map_err(|_| CopyError::Cancelled)?;
        inner
            .until(|inner| inner.cursor.borrow().is_quiet() || inner.is_ended())
            .await;
        inner.check()?;
        inner.mode.set(Mode::Switching);
        drop(hold);
        let flushed = inner.sides.target.flush(Tag::default()).await;
        flushed.map_err(|error| inner.fail(CopyError::Target(error)))?;
        inner.check()
    }

    /// The target is recorded as the volume, or may be: a write that it does not take fails from
    /// now on. Until then such a write waits, for the source may be enough. Both sides still get
    /// all.
    pub fn target_may_count(&self) {
        if !self.inner.is_ended() {
            self.inner.decided.set(Some(Side::Target));
            self.inner.changed.notify_all();
        }
    }

    /// From now on one side is the volume, and the other gets nothing more. When this has ended,
    /// what it was about to get has ended too, if this is [`Side::Target`].
    pub async fn end(&self, side: Side) {
        let inner = &self.inner;
        if side == Side::Source {
            return inner.give_up(CopyError::Cancelled);
        }
        if inner.is_ended() {
            return;
        }
        self.target_may_count();
        // What was read from the target is there; what is written now must not be read from one
        // side while it is missing on the other.
        let hold = inner.gate.exclude(ALL, false).await;
        inner.mode.set(Mode::Ended(side));
        inner.changed.notify_all();
        drop(hold);
    }

    /// The copying ends, and the volume stays where it is; too late once both sides count.
    pub fn cancel(&self) {
        if self.inner.mode.get() == Mode::Copying {
            self.inner.give_up(CopyError::Cancelled);
        }
    }

    /// Why it was given up, if it was.
    pub fn failure(&self) -> Option<CopyError> {
        self.inner.failure.get()
    }
}

impl Device for Migration {
    fn info(&self) -> Info {
        let sides = &self.inner.sides;
        let info = sides.source.info();
        Info {
            // The source may not grow meanwhile.
            blocks: self.inner.blocks,
            limits: Limits {
                atomic_write: info.limits.atomic_write.min(1),
                ..info.limits
            },
            read_only: match self.inner.mode.get() {
                Mode::Ended(Side::Target) => sides.target.info().read_only,
                _ => info.read_only,
            },
            ..info
        }
    }

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        let inner = &self.inner;
        let info = self.info();
        if let Err(error) = locate_io(&info, &io) {
            return IoFuture::ready(Err(error));
        }
        if info.read_only && !matches!(io, Io::Read { .. } | Io::Flush) {
            return IoFuture::ready(Err(IoError::WriteProtected));
        }
        let this = Rc::clone(inner);
        inner.gate.pass(ALL, false, move || this.begin(tag, io))
    }

    fn take_turns(&self, turns: &Rc<dyn Turns>) {
        self.inner.side().take_turns(turns);
    }

    fn health(&self) -> Health {
        self.inner.side().health()
    }

    fn moved(&self) -> Option<u64> {
        self.inner.side().moved()
    }

    fn take_cost(&self, tenant: TenantId) -> Option<Cost> {
        self.inner.side().take_cost(tenant)
    }
}

impl Inner {
    fn side(&self) -> &SharedDevice {
        match self.mode.get() {
            Mode::Ended(Side::Target) => &self.sides.target,
            _ => &self.sides.source,
        }
    }

    /// An I/O that has passed the gate.
    fn begin(self: Rc<Self>, tag: Tag, io: Io) -> IoFuture {
        match (self.mode.get(), io) {
            (Mode::Ended(_), io) => self.side().submit(tag, io),
            (Mode::Copying, io @ (Io::Read { .. } | Io::Flush)) => {
                self.sides.source.submit(tag, io)
            }
            (Mode::Switching, Io::Flush) => self.flush_both(tag),
            (Mode::Switching, Io::Read { lba, into }) => {
                IoFuture::boxed(self.read_switching(tag, lba, into))
            }
            (_, io) => IoFuture::boxed(self.write(tag, io)),
        }
    }

    fn flush_both(&self, tag: Tag) -> IoFuture {
        let mut all = IoFuture::all(&self.rt);
        all.push(self.sides.source.submit(tag, Io::Flush));
        all.push(self.sides.target.submit(tag, Io::Flush));
        all.into_io()
    }

    /// What both sides have. Where the target cannot be read the source can.
    async fn read_switching(
        self: Rc<Self>,
        tag: Tag,
        lba: u64,
        into: Buf,
    ) -> Result<Done, IoError> {
        let bytes = into.len();
        let read = self.sides.target.submit(tag, Io::Read { lba, into }).await;
        if read.is_ok() {
            return read;
        }
        let into = Buf::take(bytes).ok_or(IoError::Busy)?;
        self.sides.source.submit(tag, Io::Read { lba, into }).await
    }

    async fn write(self: Rc<Self>, tag: Tag, io: Io) -> Result<Done, IoError> {
        let blocks = io.blocks(self.block_size)?;
        let span = Span {
            start: io.lba(),
            end: io.lba() + blocks,
        };
        let under_way = UnderWay::enter(&self, span);
        let ticket = under_way.ticket;
        self.until(|inner| inner.cursor.borrow().may_write_source(ticket))
            .await;
        let io = on_both_alike(io);
        let counts = self.mode.get() == Mode::Switching;
        let (copy, again) = (for_target(&io, counts), for_target(&io, counts));
        let bytes = io.transfers();
        let outcome = self.sides.source.submit(tag, io).await;
        let mirrored = self.cursor.borrow_mut().on_source_written(ticket);
        self.changed.notify_all();
        let what = match &outcome {
            Ok(_) => Mirrored::Same(copy),
            Err(IoError::Miscompare | IoError::WriteProtected) => return outcome,
            // What is read now is what the target holds, which is what was there before.
            Err(_) if counts => return outcome,
            Err(_) => Mirrored::Present,
        };
        if !mirrored || self.is_ended() {
            return outcome;
        }
        let lag = Lag::enter(&self, bytes);
        let rest = Rc::clone(&self).mirror(tag, under_way, lag, what);
        let rest = self.rt.spawn(rest);
        if !self.together.get() && !self.is_far_behind() {
            rest.detach();
            return outcome;
        }
        if rest.await.is_err() && counts {
            self.until(|inner| inner.decided.get().is_some()).await;
            if self.decided.get() == Some(Side::Target) {
                // It is the volume now: what it says is the end of the write.
                return self.sides.target.submit(tag, again).await;
            }
        }
        outcome
    }

    /// Brings a write to the target.
    async fn mirror(
        self: Rc<Self>,
        tag: Tag,
        under_way: UnderWay,
        _lag: Lag,
        what: Mirrored,
    ) -> Result<(), CopyError> {
        let UnderWay { ticket, span, .. } = under_way;
        self.until(|inner| inner.cursor.borrow().may_write_target(ticket) || inner.is_ended())
            .await;
        self.check()?;
        let done = match what {
            Mirrored::Same(io) => {
                let done = self.sides.target.submit(tag, io).await;
                done.map(drop).map_err(CopyError::Target)
            }
            Mirrored::Present => copier::copy_span(&self, span, &Way::awaited(&self, tag)).await,
        };
        if let Err(error) = done
            && self.mode.get() == Mode::Copying
        {
            self.give_up(error);
        }
        drop(under_way);
        done
    }

    fn is_far_behind(&self) -> bool {
        let (writes, bytes) = self.lag.get();
        writes > LAG_WRITES || bytes > LAG_BYTES
    }

    fn is_ended(&self) -> bool {
        matches!(self.mode.get(), Mode::Ended(_))
    }

    /// Nothing, as long as it goes on.
    fn check(&self) -> Result<(), CopyError> {
        match self.is_ended() {
            true => Err(self.failure.get().unwrap_or(CopyError::Cancelled)),
            false => Ok(()),
        }
    }

    fn fail(&self, error: CopyError) -> CopyError {
        self.give_up(error);
        error
    }

    /// The volume stays where it is. What is on its way to the target does not matter any more.
    fn give_up(&self, why: CopyError) {
        if self.is_ended() {
            return;
        }
        self.failure.set(Some(why));
        self.decided.set(Some(Side::Source));
        self.mode.set(Mode::Ended(Side::Source));
        self.changed.notify_all();
    }

    async fn until(&self, holds: impl Fn(&Self) -> bool) {
        while !holds(self) {
            self.changed.notified().await;
        }
    }
}

/// A write that is in flight, until it is dropped.
struct UnderWay {
    inner: Rc<Inner>,
    ticket: Ticket,
    span: Span,
}

impl UnderWay {
    fn enter(inner: &Rc<Inner>, span: Span) -> Self {
        Self {
            inner: Rc::clone(inner),
            ticket: inner.cursor.borrow_mut().enter(span),
            span,
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.inner.cursor.borrow_mut().leave(self.ticket);
        self.inner.changed.notify_all();
    }
}

/// A write that the target has yet to get, until it is dropped.
struct Lag {
    inner: Rc<Inner>,
    bytes: usize,
}

impl Lag {
    fn enter(inner: &Rc<Inner>, bytes: usize) -> Self {
        let (writes, present) = inner.lag.get();
        inner.lag.set((writes + 1, present + bytes));
        let inner = Rc::clone(inner);
        Self { inner, bytes }
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        let (writes, present) = self.inner.lag.get();
        self.inner.lag.set((writes - 1, present - self.bytes));
    }
}

/// What both sides make the same of: what deallocated blocks hold is a device's own affair, and a
/// host that has read them must not find something else there later.
fn on_both_alike(io: Io) -> Io {
    match io {
        Io::Zero {
            lba,
            blocks,
            how: Zero::Deallocate,
        } => Io::Zero {
            lba,
            blocks,
            how: Zero::Write { deallocate: true },
        },
        io => io,
    }
}

/// The same write, for the target: lasting only if that counts already.
fn for_target(io: &Io, counts: bool) -> Io {
    match io {
        Io::Write { lba, data, fua } => Io::Write {
            lba: *lba,
            data: data.clone(),
            fua: *fua && counts,
        },
        Io::Zero { lba, blocks, how } => Io::Zero {
            lba: *lba,
            blocks: *blocks,
            how: *how,
        },
        Io::CompareAndWrite(pair) => Io::Write {
            lba: pair.lba(),
            data: pair.data().clone(),
            fua: pair.fua() && counts,
        },
        Io::Read { .. } | Io::Flush => unreachable!("these write nothing"),
    }
}
