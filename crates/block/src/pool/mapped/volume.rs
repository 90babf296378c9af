//! A mapped volume: chunks of 4 KiB, thin, verified when they are read. Longer I/O is cut into what
//! the store takes at a time; up to 32 blocks are written whole or not at all.

use std::cell::Cell;
use std::rc::Rc;

use flashyard_logstore::{Lineage, MOST_CHUNKS, MOST_TRIM, State};
use flashyard_runtime::{Buf, Parts, Rt, Shared};

use super::engine::Engine;
use crate::gate::{Gate, Span};
use crate::{Device, Health, Info, Io, IoError, IoFuture, Limits, SharedDevice, Tag};

/// Log2 of the bytes of a block.
pub(super) const BLOCK_SHIFT: u8 = 12;
/// Bytes of a block.
pub(super) const BLOCK: u32 = 1 << BLOCK_SHIFT;

/// See the module. Shared by all users of the volume, so that a compare-and-write is exclusive
/// among them.
pub(super) struct Volume {
    inner: Rc<Inner>,
}

struct Inner {
    engine: Rc<Engine>,
    /// What is under the pool.
    below: SharedDevice,
    lineage: Lineage,
    blocks: Cell<u64>,
    gate: Rc<Gate>,
}

impl Volume {
    /// The volume of this lineage.
    pub fn new(
        rt: &Rt,
        engine: Rc<Engine>,
        below: SharedDevice,
        lineage: Lineage,
        blocks: u64,
    ) -> Rc<Self> {
        let inner = Rc::new(Inner {
            engine,
            below,
            lineage,
            blocks: Cell::new(blocks),
            gate: Gate::new(rt),
        });
        Rc::new(Self { inner })
    }

    /// The number of its data.
    pub fn lineage(&self) -> Lineage {
        self.inner.lineage
    }

    /// Applies its new size.
    pub fn grown(&self, blocks: u64) {
        self.inner.blocks.set(blocks);
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
        Info {
            block_size: BLOCK,
            blocks: self.inner.blocks.get(),
            volatile_cache: below.volatile_cache,
            read_only: below.read_only || failed,
            deallocate: true,
            limits: Limits {
                write_granularity: 1,
                optimal_write: MOST_CHUNKS,
                atomic_write: MOST_CHUNKS,
                deallocate_granularity: 1,
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
                let (lba, fua, reader) = (span.start, pair.fua(), below.clone());
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

    fn health(&self) -> Health {
        self.inner.below.health()
    }

    fn moved(&self) -> Option<u64> {
        self.inner.below.moved()
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

    fn start(self: &Rc<Self>, tag: Tag, span: Span, io: Io) -> IoFuture {
        match io {
            _ if span.start == span.end => IoFuture::ended(Ok(())),
            Io::Read { lba, into } => self.read(tag, lba, into),
            Io::Write { lba, data, fua } => self.write(tag, lba, data, fua),
            Io::Zero { .. } => self.unmap(tag, span),
            Io::Flush | Io::CompareAndWrite(_) => IoFuture::ready(Err(IoError::Internal)),
        }
    }

    fn read(&self, tag: Tag, lba: u64, into: Buf) -> IoFuture {
        let piece = (MOST_CHUNKS * BLOCK) as usize;
        let len = into.len();
        if len <= piece {
            return self.engine.read(tag, self.lineage, lba, into);
        }
        let mut all = IoFuture::all(self.gate.runtime());
        let mut parts = Parts::of(into);
        for at in (0..len).step_by(piece) {
            let into = parts.cut(piece.min(len - at));
            let chunk = lba + (at / BLOCK as usize) as u64;
            all.push(self.engine.read(tag, self.lineage, chunk, into));
        }
        all.read_into(parts)
    }

    fn write(&self, tag: Tag, lba: u64, data: Shared, fua: bool) -> IoFuture {
        let piece = (MOST_CHUNKS * BLOCK) as usize;
        if data.len() <= piece {
            return self.engine.write(tag, self.lineage, lba, data, fua);
        }
        let mut all = IoFuture::all(self.gate.runtime());
        for at in (0..data.len()).step_by(piece) {
            let part = data.slice(at..data.len().min(at + piece));
            let chunk = lba + (at / BLOCK as usize) as u64;
            all.push(self.engine.write(tag, self.lineage, chunk, part, fua));
        }
        all.into_io()
    }

    /// Blocks read as zeroes from now on, and take no space. Some at a time: a trim of a large
    /// volume waits for checkpoints.
    fn unmap(self: &Rc<Self>, tag: Tag, span: Span) -> IoFuture {
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
