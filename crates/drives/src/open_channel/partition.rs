//! A partition as a device: spans one behind the other.

use std::cell::RefCell;
use std::rc::Rc;

use flashyard_block::gate::{self, Gate};
use flashyard_block::{
    Device, Health, Info, IoError, IoFuture, Limits, Tag, locate, locate_blocks,
};
use flashyard_flash::UNIT_BYTES;
use flashyard_flash::ftl::{Op, State};
use flashyard_runtime::{Buf, Data, Rt};

use super::span::Span;

/// At a spare of this part of the capacity a translation layer takes no more writes
/// ([`flashyard_flash::ftl::Space`] counts that in).
const LEAST_SPARE: u64 = 64;

/// See the module. Shared by all who use the partition.
pub struct Partition {
    inner: Rc<Inner>,
}

struct Inner {
    spans: RefCell<Vec<Rc<Span>>>,
    gate: Rc<Gate>,
    /// Sectors of the best write: a stripe.
    optimal_write: u32,
}

/// Blocks that lie together in a span.
struct Piece {
    span: Rc<Span>,
    first: u64,
    count: u64,
}

impl Partition {
    pub(super) fn new(rt: &Rt, spans: Vec<Rc<Span>>, optimal_write: u32) -> Rc<Self> {
        let inner = Inner {
            spans: RefCell::new(spans),
            gate: Gate::new(rt),
            optimal_write,
        };
        Rc::new(Self {
            inner: Rc::new(inner),
        })
    }

    /// Takes over units that the partition was given.
    pub(super) fn grown(&self, span: Rc<Span>) {
        self.inner.spans.borrow_mut().push(span);
    }

    pub(super) fn spans(&self) -> Vec<Rc<Span>> {
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

    /// Makes everything durable, so that the partition is taken up again with little to read.
    pub async fn stop(&self) -> Result<(), IoError> {
        self.inner.clone().on_all(Op::Stop).await
    }

    /// Passes the gate with an I/O on some blocks.
    fn pass<T: 'static>(
        &self,
        lba: u64,
        blocks: u64,
        io: impl FnOnce(Rc<Inner>) -> IoFuture<T> + 'static,
    ) -> IoFuture<T> {
        let inner = self.inner.clone();
        let span = gate::Span {
            start: lba,
            end: lba + blocks,
        };
        self.inner.gate.pass(span, false, move || io(inner))
    }

    fn forget(&self, lba: u64, blocks: u64) -> IoFuture<()> {
        match locate_blocks(&self.info(), lba, blocks) {
            Ok((_, 0)) => IoFuture::ready(Ok(())),
            Ok(_) => self.pass(lba, blocks, move |inner| {
                IoFuture::boxed(inner.forget(lba, blocks))
            }),
            Err(error) => IoFuture::ready(Err(error)),
        }
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

    fn read(&self, _tag: Tag, lba: u64, buf: Buf) -> IoFuture<Data> {
        match locate(&self.info(), lba, buf.len()) {
            Ok(_) if buf.is_empty() => IoFuture::ready(Ok(Data::Zeroes(0))),
            Ok(_) => self.pass(lba, blocks(&buf), move |inner| {
                IoFuture::boxed(inner.read(lba, buf))
            }),
            Err(error) => IoFuture::ready(Err(error)),
        }
    }

    fn write(&self, _tag: Tag, lba: u64, buf: Buf, fua: bool) -> IoFuture<()> {
        match locate(&self.info(), lba, buf.len()) {
            Ok(_) if buf.is_empty() => IoFuture::ready(Ok(())),
            Ok(_) => self.pass(lba, blocks(&buf), move |inner| {
                IoFuture::boxed(inner.write(lba, buf, fua))
            }),
            Err(error) => IoFuture::ready(Err(error)),
        }
    }

    fn flush(&self, _tag: Tag) -> IoFuture<()> {
        if self.inner.gate.is_closed() {
            return IoFuture::ready(Err(IoError::NotReady));
        }
        IoFuture::boxed(self.inner.clone().on_all(Op::Flush))
    }

    /// Blocks that hold zeroes take no flash, whether that is asked for or not.
    fn write_zeroes(&self, _tag: Tag, lba: u64, blocks: u64, _deallocate: bool) -> IoFuture<()> {
        self.forget(lba, blocks)
    }

    fn deallocate(&self, _tag: Tag, lba: u64, blocks: u64) -> IoFuture<()> {
        self.forget(lba, blocks)
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

    fn compare_and_write(
        &self,
        _tag: Tag,
        lba: u64,
        compare: Buf,
        write: Buf,
        fua: bool,
    ) -> IoFuture<()> {
        assert_eq!(
            compare.len(),
            write.len(),
            "a caller checks both halves of a fused pair"
        );
        match locate(&self.info(), lba, compare.len()) {
            Ok(_) if compare.is_empty() => IoFuture::ready(Ok(())),
            Ok(_) => IoFuture::boxed(
                self.inner
                    .clone()
                    .compare_and_write(lba, compare, write, fua),
            ),
            Err(error) => IoFuture::ready(Err(error)),
        }
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

    async fn read(self: Rc<Self>, lba: u64, mut buf: Buf) -> Result<Data, IoError> {
        let piece = self.piece(lba, blocks(&buf))?;
        if piece.count == blocks(&buf) {
            return piece.read(buf).await;
        }
        let (mut at, mut zeroes) = (0, true);
        while at < buf.len() {
            let rest = buf.len() - at;
            let piece = self.piece(lba + at as u64 / UNIT_BYTES, rest as u64 / UNIT_BYTES)?;
            let len = (piece.count * UNIT_BYTES) as usize;
            let part = Buf::take(len).ok_or(IoError::Busy)?;
            match piece.read(part).await? {
                Data::Buf(part) => {
                    zeroes = false;
                    buf[at..at + len].copy_from_slice(&part);
                }
                Data::Zeroes(_) => buf[at..at + len].fill(0),
            }
            at += len;
        }
        Ok(if zeroes {
            Data::Zeroes(at)
        } else {
            Data::Buf(buf)
        })
    }

    async fn write(self: Rc<Self>, lba: u64, buf: Buf, fua: bool) -> Result<(), IoError> {
        let piece = self.piece(lba, blocks(&buf))?;
        if piece.count == blocks(&buf) {
            return piece.write(buf, fua).await;
        }
        let mut at = 0;
        while at < buf.len() {
            let rest = buf.len() - at;
            let piece = self.piece(lba + at as u64 / UNIT_BYTES, rest as u64 / UNIT_BYTES)?;
            let len = (piece.count * UNIT_BYTES) as usize;
            let mut part = Buf::take(len).ok_or(IoError::Busy)?;
            part.copy_from_slice(&buf[at..at + len]);
            piece.write(part, fua).await?;
            at += len;
        }
        Ok(())
    }

    async fn forget(self: Rc<Self>, lba: u64, blocks: u64) -> Result<(), IoError> {
        let mut at = 0;
        while at < blocks {
            let piece = self.piece(lba + at, blocks - at)?;
            let count = piece.count.min(u64::from(u32::MAX));
            let begun =
                piece
                    .span
                    .begin_command(Op::Deallocate, piece.first, count as u32, None)?;
            begun.await?;
            at += count;
        }
        Ok(())
    }

    async fn on_all(self: Rc<Self>, op: Op) -> Result<(), IoError> {
        let spans = self.spans.borrow().clone();
        let begun: Vec<_> = spans
            .iter()
            .map(|span| span.begin_command(op, 0, 0, None))
            .collect();
        for pending in begun {
            pending?.await?;
        }
        Ok(())
    }

    async fn compare_and_write(
        self: Rc<Self>,
        lba: u64,
        compare: Buf,
        write: Buf,
        fua: bool,
    ) -> Result<(), IoError> {
        let span = gate::Span {
            start: lba,
            end: lba + blocks(&compare),
        };
        let hold = self.gate.exclude(span, false).await?;
        let current = Buf::take(compare.len()).ok_or(IoError::Busy)?;
        let equal = match self.clone().read(lba, current).await? {
            Data::Buf(current) => *current == *compare,
            Data::Zeroes(_) => compare.iter().all(|&byte| byte == 0),
        };
        if !equal {
            return Err(IoError::Miscompare);
        }
        // The write keeps the range barred until it has ended, even if nobody waits for it any
        // more.
        IoFuture::boxed(self.write(lba, write, fua))
            .keep(hold)
            .await
    }
}

impl Piece {
    async fn read(self, buf: Buf) -> Result<Data, IoError> {
        let len = buf.len();
        let begun = self
            .span
            .begin_command(Op::Read, self.first, self.count as u32, Some(buf))?;
        Ok(match begun.await? {
            (Some(buf), true) => Data::Buf(buf),
            _ => Data::Zeroes(len),
        })
    }

    async fn write(self, buf: Buf, durable: bool) -> Result<(), IoError> {
        let op = Op::Write { durable };
        let begun = self
            .span
            .begin_command(op, self.first, self.count as u32, Some(buf))?;
        begun.await.map(drop)
    }
}

fn blocks(buf: &Buf) -> u64 {
    buf.len() as u64 / UNIT_BYTES
}

/// Percent that is left of the flash that may fail before no more is written, of what there would
/// be if none had.
fn spare(span: &Span) -> u8 {
    let space = match span.state() {
        State::ReadOnly => return 0,
        _ => span.stats().1,
    };
    let left = space.spare.saturating_sub(space.capacity / LEAST_SPARE);
    let failed = span.sectors().saturating_sub(space.good);
    let percent = (left * 100).checked_div(left + failed);
    percent.map_or(100, |percent| percent as u8)
}
