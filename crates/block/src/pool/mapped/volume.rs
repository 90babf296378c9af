//! A mapped volume: blocks of 4 KiB, thin, verified when they are read. Longer I/O is cut into what
//! the store takes at a time; up to 32 blocks are written whole or not at all. Where chunks are
//! longer than blocks, `partial` has what reads and writes parts of them.

use std::cell::Cell;
use std::rc::Rc;

use flashyard_logstore::format::batch::Lane;
use flashyard_logstore::{Form, Lineage, MOST_BLOCKS, MOST_TRIM, State};
use flashyard_runtime::{Buf, Parts, Rt, Shared};
use flashyard_sched::{Class, Cost, TenantId};

use super::chunks::Chunks;
use super::coder::Coder;
use super::engine::Engine;
use crate::gate::{Gate, Hold, Span};
use crate::{Device, Health, Info, Io, IoError, IoFuture, Limits, SharedDevice, Tag, Turns};

/// Log2 of the bytes of a block.
pub(super) const BLOCK_SHIFT: u8 = 12;
/// Bytes of a block.
pub(super) const BLOCK: u32 = 1 << BLOCK_SHIFT;

/// Writes after the last latency-sensitive one with which a volume leaves the lane for such.
const LEAVES_AFTER: u32 = 256;

/// See the module. Shared by all users of the volume, so that a compare-and-write is exclusive
/// among them.
pub(super) struct Volume {
    inner: Rc<Inner>,
}

pub(super) struct Inner {
    pub engine: Rc<Engine>,
    /// What is under the pool.
    below: SharedDevice,
    pub lineage: Lineage,
    pub coder: Rc<Coder>,
    /// Chunks that are written, where they are longer than blocks.
    pub chunks: Rc<Chunks>,
    blocks: Cell<u64>,
    snapshot: bool,
    pub gate: Rc<Gate>,
    /// The lane of its writes, and how many since the last latency-sensitive one were not so.
    lane: Cell<Lane>,
    others: Cell<u32>,
    /// Who has written last, and pays.
    writer: Cell<Option<TenantId>>,
}

impl Volume {
    /// The volume or snapshot of this number.
    pub fn new(
        rt: &Rt,
        (engine, below): (Rc<Engine>, SharedDevice),
        (lineage, snapshot): (Lineage, bool),
        coder: Rc<Coder>,
        blocks: u64,
    ) -> Rc<Self> {
        // Data of a snapshot are known by the number of its volume.
        if !snapshot {
            engine.set_coder(lineage, &coder);
        }
        let inner = Rc::new(Inner {
            engine,
            below,
            lineage,
            coder,
            chunks: Rc::default(),
            blocks: Cell::new(blocks),
            snapshot,
            gate: Gate::new(rt),
            lane: Cell::new(Lane::User),
            others: Cell::new(LEAVES_AFTER),
            writer: Cell::new(None),
        });
        Rc::new(Self { inner })
    }

    /// Its number.
    pub fn lineage(&self) -> Lineage {
        self.inner.lineage
    }

    /// How it keeps its chunks.
    pub fn form(&self) -> Form {
        self.inner.coder.form()
    }

    /// Applies its new size.
    pub fn grown(&self, blocks: u64) {
        self.inner.blocks.set(blocks);
    }

    /// Keeps all I/O but flushes away until what this gives is dropped; waits for what was let in.
    pub async fn exclude_all(&self) -> Result<Hold, IoError> {
        let all = Span {
            start: 0,
            end: u64::MAX,
        };
        self.inner.gate.exclude(all, false).await
    }

    /// Ends the volume: later I/O gets [`IoError::NotReady`]; finishes when all that was issued has
    /// ended.
    pub async fn close(&self) {
        self.inner.gate.close(IoError::NotReady);
        self.inner.gate.drained().await;
    }
}

impl Device for Volume {
    fn info(&self) -> Info {
        let below = self.inner.below.info();
        let failed = self.inner.engine.store.borrow().state() != State::Ready;
        let chunk = self.form().chunk_blocks();
        Info {
            block_size: BLOCK,
            blocks: self.inner.blocks.get(),
            volatile_cache: below.volatile_cache,
            read_only: below.read_only || failed || self.inner.snapshot,
            deallocate: true,
            limits: Limits {
                write_granularity: chunk,
                optimal_write: MOST_BLOCKS,
                atomic_write: MOST_BLOCKS,
                deallocate_granularity: chunk,
            },
        }
    }

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        let inner = &self.inner;
        let span = match inner.span(&io) {
            Ok(span) => span,
            Err(error) => return IoFuture::ready(Err(error)),
        };
        let below = inner.clone();
        match io {
            Io::Flush if inner.gate.is_closed() => IoFuture::ready(Err(IoError::NotReady)),
            Io::Flush => inner.engine.flush(tag, inner.lineage),
            Io::CompareAndWrite(pair) => {
                let span = inner.chunk_span(span);
                let lba = pair.lba();
                let (fua, reader) = (pair.fua(), below.clone());
                let read = move |into| reader.read(tag, lba, into);
                let write = move |data| below.write(tag, lba, data, fua);
                inner
                    .gate
                    .compare_and_write(span, false, pair, (read, write))
            }
            io => {
                let start = move || below.start(tag, span, io);
                inner.gate.pass(span, false, start)
            }
        }
    }

    fn take_turns(&self, turns: &Rc<dyn Turns>) {
        self.inner.engine.queue.set(turns);
        self.inner.below.take_turns(turns);
    }

    fn health(&self) -> Health {
        self.inner.below.health()
    }

    fn moved(&self) -> Option<u64> {
        self.inner.below.moved()
    }

    fn take_cost(&self, tenant: TenantId) -> Option<Cost> {
        Some(self.inner.engine.charges.take(tenant))
    }
}

impl Inner {
    /// The blocks of an I/O.
    fn span(&self, io: &Io) -> Result<Span, IoError> {
        let (start, blocks) = (io.lba(), io.blocks(BLOCK)?);
        let end = start.checked_add(blocks);
        let end = end.filter(|end| *end <= self.blocks.get());
        let end = end.ok_or(IoError::OutOfRange)?;
        Ok(Span { start, end })
    }

    /// All of the chunks of which some blocks are meant.
    pub fn chunk_span(&self, span: Span) -> Span {
        let blocks = u64::from(self.coder.form().chunk_blocks());
        Span {
            start: span.start / blocks * blocks,
            end: span.end.next_multiple_of(blocks),
        }
    }

    fn start(self: &Rc<Self>, tag: Tag, span: Span, io: Io) -> IoFuture {
        match io {
            _ if span.start == span.end => IoFuture::ended(Ok(())),
            Io::Read { lba, into } => self.read(tag, lba, into),
            Io::Write { lba, data, fua } => self.write(tag, lba, data, fua),
            Io::Zero { .. } if self.has_long_chunks() => self.unmap_part(tag, span),
            Io::Zero { .. } => self.unmap(tag, span),
            Io::Flush | Io::CompareAndWrite(_) => IoFuture::ready(Err(IoError::Internal)),
        }
    }

    /// Whether a block is less than a chunk.
    pub fn has_long_chunks(&self) -> bool {
        self.coder.form().chunk_blocks() > 1
    }

    /// The number of its data, and how they are stored.
    pub fn data(&self) -> (Lineage, &Coder) {
        (self.lineage, &self.coder)
    }

    fn read(self: &Rc<Self>, tag: Tag, lba: u64, into: Buf) -> IoFuture {
        if self.has_long_chunks() {
            return self.read_part(tag, lba, into);
        }
        let piece = (MOST_BLOCKS * BLOCK) as usize;
        let len = into.len();
        if len <= piece {
            return self.engine.read(tag, self.data(), lba, into);
        }
        let mut all = IoFuture::all(self.gate.runtime());
        let mut parts = Parts::of(into);
        for at in (0..len).step_by(piece) {
            let into = parts.cut(piece.min(len - at));
            let chunk = lba + (at / BLOCK as usize) as u64;
            all.push(self.engine.read(tag, self.data(), chunk, into));
        }
        all.read_into(parts)
    }

    /// Notes who pays for what this volume causes.
    pub fn note_writer(&self, tag: Tag) {
        if self.writer.replace(Some(tag.tenant)) != Some(tag.tenant) {
            self.engine.charges.set_owner(self.lineage, tag.tenant);
        }
    }

    /// Writes of a latency-sensitive tenant go in batches of their own, so that they are not
    /// answered behind the long ones of others. The lane changes when the volume has nothing that
    /// is not durable; until then the next write tries again.
    fn choose_lane(&self, tag: Tag) {
        let others = match tag.class {
            Class::Latency => 0,
            _ => self.others.get().saturating_add(1),
        };
        self.others.set(others);
        let wanted = match others < LEAVES_AFTER {
            true => Lane::Latency,
            false => Lane::User,
        };
        if wanted != self.lane.get() && self.engine.set_lane(self.lineage, wanted) {
            self.lane.set(wanted);
        }
    }

    fn write(self: &Rc<Self>, tag: Tag, lba: u64, data: Shared, fua: bool) -> IoFuture {
        self.note_writer(tag);
        self.choose_lane(tag);
        if self.has_long_chunks() {
            return self.write_part(tag, lba, data, fua);
        }
        let piece = (MOST_BLOCKS * BLOCK) as usize;
        if data.len() <= piece {
            return self.engine.write(tag, self.data(), lba, data, fua);
        }
        let mut all = IoFuture::all(self.gate.runtime());
        for at in (0..data.len()).step_by(piece) {
            let part = data.slice(at..data.len().min(at + piece));
            let chunk = lba + (at / BLOCK as usize) as u64;
            all.push(self.engine.write(tag, self.data(), chunk, part, fua));
        }
        all.into_io()
    }

    /// Chunks read as zeroes from now on, and take no space. Some at a time: a trim of a large
    /// volume waits for checkpoints.
    pub fn unmap(self: &Rc<Self>, tag: Tag, span: Span) -> IoFuture {
        self.note_writer(tag);
        let end_of = move |start: u64| span.end.min(start + MOST_TRIM);
        if end_of(span.start) == span.end {
            let chunks = span.start..span.end;
            return self.engine.trim(tag, self.lineage, chunks);
        }
        let (engine, lineage) = (self.engine.clone(), self.lineage);
        let starts = (span.start..span.end).step_by(MOST_TRIM as usize);
        let trims = starts.map(move |start| engine.trim(tag, lineage, start..end_of(start)));
        IoFuture::in_batches(self.gate.runtime(), trims)
    }
}
