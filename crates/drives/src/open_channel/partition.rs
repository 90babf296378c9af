//! A partition as a block device: its spans, one behind the other.

use std::cell::RefCell;
use std::rc::Rc;

use flashyard_block::gate::{Gate, Span};
use flashyard_block::{Device, Done, Health, Info, Io, IoError, IoFuture, Limits, Tag, locate_io};
use flashyard_flash::UNIT_BYTES;
use flashyard_flash::ftl::{Op, State};
use flashyard_runtime::{Buf, Data, Parts, Rt, Shared};

use super::span::{self, Moved, Pending};

/// At a spare of this part of the capacity a translation layer takes no more writes
/// ([`flashyard_flash::ftl::Space`] counts that in).
const LEAST_SPARE: u64 = 64;

/// See the module. Shared by all users of the partition.
pub struct Partition {
    inner: Rc<Inner>,
}

struct Inner {
    spans: RefCell<Vec<Rc<span::Span>>>,
    gate: Rc<Gate>,
    /// Sectors of the best write: a stripe.
    optimal_write: u32,
}

/// Blocks that lie together in a span.
struct Piece {
    span: Rc<span::Span>,
    first: u64,
    count: u64,
}

impl Partition {
    pub(super) fn new(rt: &Rt, spans: Vec<Rc<span::Span>>, optimal_write: u32) -> Rc<Self> {
        let inner = Inner {
            spans: RefCell::new(spans),
            gate: Gate::new(rt),
            optimal_write,
        };
        Rc::new(Self {
            inner: Rc::new(inner),
        })
    }

    /// Adds units to the partition.
    pub(super) fn grown(&self, span: Rc<span::Span>) {
        self.inner.spans.borrow_mut().push(span);
    }

    pub(super) fn spans(&self) -> Vec<Rc<span::Span>> {
        self.inner.spans.borrow().clone()
    }

    /// Ends the partition: later I/O gets [`IoError::NotReady`]; finishes when all that was issued
    /// has ended.
    pub(super) async fn close(&self) {
        self.inner.gate.close(IoError::NotReady);
        self.inner.gate.drained().await;
        for span in self.spans() {
            span.retire().await;
        }
    }

    /// Whether all blocks read as zeroes. Scans the whole map.
    pub fn is_empty(&self) -> bool {
        let spans = self.inner.spans.borrow();
        spans.iter().all(|span| span.is_empty())
    }

    /// Makes everything durable, so that the next recovery reads little.
    pub async fn stop(&self) -> Result<(), IoError> {
        self.inner.on_all(Op::Stop).await.map(drop)
    }
}

impl Device for Partition {
    fn info(&self) -> Info {
        let spans = self.inner.spans.borrow();
        Info {
            block_size: UNIT_BYTES as u32,
            blocks: spans.iter().map(|span| span.capacity()).sum(),
            volatile_cache: true,
            read_only: spans.iter().any(|span| span.state() == State::ReadOnly),
            deallocate: true,
            limits: Limits {
                // The translation layer maps single blocks, and gathers them to stripes itself.
                write_granularity: 1,
                optimal_write: self.inner.optimal_write,
                atomic_write: 1,
                deallocate_granularity: 1,
            },
        }
    }

    /// Blocks that hold zeroes take no flash, whether that is asked for or not.
    fn submit(&self, _tag: Tag, io: Io) -> IoFuture {
        let inner = self.inner.clone();
        let (lba, blocks) = match locate_io(&self.info(), &io) {
            Ok((_, 0)) if !matches!(io, Io::Flush) => return IoFuture::ended(Ok(())),
            Ok((offset, len)) => (offset / UNIT_BYTES, len / UNIT_BYTES),
            Err(error) => return IoFuture::ready(Err(error)),
        };
        let (gate, span) = (
            &self.inner.gate,
            Span {
                start: lba,
                end: lba + blocks,
            },
        );
        match io {
            Io::CompareAndWrite(pair) => {
                let (fua, reader) = (pair.fua(), inner.clone());
                let read = move |into| reader.read(lba, into);
                let write = move |data: Shared| inner.write(lba, &data, fua);
                gate.compare_and_write(span, false, pair, (read, write))
            }
            io => gate.pass(span, false, move || match io {
                Io::Read { into, .. } => inner.read(lba, into),
                Io::Write { data, fua, .. } => inner.write(lba, &data, fua),
                // It passes the gate, too: closing the gate waits for flushes as for all other I/O.
                Io::Flush => inner.on_all(Op::Flush),
                _ => IoFuture::boxed(inner.forget(lba, blocks)),
            }),
        }
    }

    fn health(&self) -> Health {
        let spans = self.inner.spans.borrow();
        Health {
            spare: spans.iter().map(|span| spare(span)).min().unwrap_or(0),
            worn_out: spans.iter().any(|span| span.state() == State::ReadOnly),
        }
    }

    fn moved(&self) -> Option<u64> {
        let spans = self.inner.spans.borrow();
        let moved = spans.iter().map(|span| span.stats().0.moved_units);
        Some(moved.sum::<u64>() * UNIT_BYTES)
    }

    fn is_blank(&self) -> bool {
        let spans = self.inner.spans.borrow();
        spans.iter().all(|span| span.is_blank())
    }
}

impl Inner {
    /// As many of `count` blocks from `lba`, which are on the partition, as lie in one span.
    fn piece(&self, lba: u64, count: u64) -> Result<Piece, IoError> {
        let mut first = lba;
        for span in self.spans.borrow().iter() {
            if first < span.capacity() {
                return Ok(Piece {
                    span: Rc::clone(span),
                    first,
                    count: count.min(span.capacity() - first),
                });
            }
            first -= span.capacity();
        }
        Err(IoError::OutOfRange)
    }

    /// The pieces of some blocks, which are on the partition, in order.
    fn pieces(&self, mut lba: u64, count: u64) -> impl Iterator<Item = Piece> {
        let end = lba + count;
        std::iter::from_fn(move || {
            let piece = self.piece(lba, end - lba).ok();
            let piece = piece.filter(|piece| piece.count > 0)?;
            lba += piece.count;
            Some(piece)
        })
    }

    fn read(&self, lba: u64, into: Buf) -> IoFuture {
        let count = blocks(&into);
        let mut pieces = self.pieces(lba, count).peekable();
        if let Some(piece) = pieces.next_if(|piece| piece.count == count) {
            return piece.read(into);
        }
        let (mut all, mut parts) = (IoFuture::all(self.gate.runtime()), Parts::of(into));
        for piece in pieces {
            let into = parts.cut(piece.bytes());
            all.push(piece.read(into));
        }
        all.read_into(parts)
    }

    fn write(&self, lba: u64, data: &Shared, fua: bool) -> IoFuture {
        let mut all = IoFuture::all(self.gate.runtime());
        let mut at = 0;
        for piece in self.pieces(lba, blocks(data)) {
            let end = at + piece.bytes();
            all.push(piece.write(data.slice(at..end), fua));
            at = end;
        }
        all.into_io()
    }

    async fn forget(self: Rc<Self>, lba: u64, blocks: u64) -> Result<Done, IoError> {
        let mut at = 0;
        while at < blocks {
            let most = (blocks - at).min(u64::from(u32::MAX));
            let piece = self.piece(lba + at, most)?;
            piece.begin(Op::Deallocate, Moved::Nothing)?.await?;
            at += piece.count;
        }
        Ok(Done::EMPTY)
    }

    /// The same command to all spans: all are waited for, even if one fails.
    fn on_all(&self, op: Op) -> IoFuture {
        let mut all = IoFuture::all(self.gate.runtime());
        for span in self.spans.borrow().iter() {
            let span = Rc::clone(span);
            all.push(IoFuture::boxed(async move {
                span.begin_command(op, 0, 0, Moved::Nothing)?.await?;
                Ok(Done::EMPTY)
            }));
        }
        all.into_io()
    }
}

impl Piece {
    fn bytes(&self) -> usize {
        (self.count * UNIT_BYTES) as usize
    }

    fn read(self, into: Buf) -> IoFuture {
        IoFuture::boxed(async move {
            let len = into.len();
            let begun = self.begin(Op::Read, Moved::Into(into))?;
            Ok(match begun.await? {
                (Moved::Into(buf), true) => Data::Buf(buf).into(),
                _ => Data::Zeroes(len).into(),
            })
        })
    }

    fn write(self, data: Shared, durable: bool) -> IoFuture {
        IoFuture::boxed(async move {
            let begun = self.begin(Op::Write { durable }, Moved::From(data))?;
            begun.await?;
            Ok(Done::EMPTY)
        })
    }

    fn begin(&self, op: Op, moved: Moved) -> Result<Pending, IoError> {
        self.span
            .begin_command(op, self.first, self.count as u32, moved)
    }
}

fn blocks(data: &[u8]) -> u64 {
    data.len() as u64 / UNIT_BYTES
}

/// Percent that is left of the flash that may fail before no more is written, of what there would
/// be if none had.
fn spare(span: &span::Span) -> u8 {
    let space = match span.state() {
        State::ReadOnly => return 0,
        _ => span.stats().1,
    };
    let left = space.spare.saturating_sub(space.capacity / LEAST_SPARE);
    let failed = span.sectors().saturating_sub(space.good);
    let percent = (left * 100).checked_div(left + failed);
    percent.map_or(100, |percent| percent as u8)
}
