//! A raw volume: blocks mapped to runs of extents, nothing between. An I/O inside one run goes
//! through without an allocation or a copy.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use flashyard_runtime::{Buf, Data, Rt};

use super::metadata::{DATA_START, EXTENT_BYTES, Record};
use crate::gate::{Gate, Span};
use crate::range::locate;
use crate::{Device, Health, Info, IoError, IoFuture, Limits, SharedDevice, Tag};

/// See the module. Shared by all who use the volume, so that a compare-and-write is exclusive among
/// them.
pub(super) struct Volume {
    inner: Rc<Inner>,
}

struct Inner {
    device: SharedDevice,
    block_size: u32,
    blocks: Cell<u64>,
    segments: RefCell<Vec<Segment>>,
    gate: Rc<Gate>,
}

/// A run of blocks of the volume, in order without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    /// First block of the volume.
    start: u64,
    /// Where that is on the device.
    lba: u64,
    blocks: u64,
}

/// Blocks that lie together on the device.
#[derive(Clone, Copy)]
struct Piece {
    lba: u64,
    blocks: u64,
}

impl Volume {
    /// The volume of `record` on `device`.
    pub(super) fn new(rt: &Rt, device: SharedDevice, record: &Record) -> Rc<Self> {
        let block_size = device.info().block_size;
        let inner = Inner {
            device,
            block_size,
            blocks: Cell::new(record.blocks),
            segments: RefCell::new(segments(record, block_size)),
            gate: Gate::new(rt),
        };
        Rc::new(Self {
            inner: Rc::new(inner),
        })
    }

    /// Takes over that the volume has become larger.
    pub(super) fn grown(&self, record: &Record) {
        *self.inner.segments.borrow_mut() = segments(record, self.inner.block_size);
        self.inner.blocks.set(record.blocks);
    }

    /// Ends the volume: later I/O gets [`IoError::NotReady`]; finishes when all that was issued has
    /// ended.
    pub(super) async fn close(&self) {
        self.inner.gate.close(IoError::NotReady);
        self.inner.gate.drained().await;
    }

    fn zero(&self, tag: Tag, lba: u64, blocks: u64, zero: Zero) -> IoFuture<()> {
        let inner = self.inner.clone();
        let whole = match inner.first_piece(lba, blocks) {
            Ok(piece) => piece.blocks == blocks,
            Err(error) => return IoFuture::ready(Err(error)),
        };
        self.inner.gate.pass(
            Span {
                start: lba,
                end: lba + blocks,
            },
            false,
            move || {
                if whole {
                    inner.zero_piece(tag, lba, blocks, zero).1
                } else {
                    IoFuture::boxed(inner.zero(tag, lba, blocks, zero))
                }
            },
        )
    }
}

impl Device for Volume {
    fn info(&self) -> Info {
        self.inner.info()
    }

    fn read(&self, tag: Tag, lba: u64, buf: Buf) -> IoFuture<Data> {
        let inner = self.inner.clone();
        let (span, piece) = match inner.resolve(lba, buf.len()) {
            Ok(found) => found,
            Err(error) => return IoFuture::ready(Err(error)),
        };
        self.inner.gate.pass(span, false, move || {
            if span.end - span.start == piece.blocks {
                inner.device.read(tag, piece.lba, buf)
            } else {
                IoFuture::boxed(inner.read_pieces(tag, lba, buf))
            }
        })
    }

    fn write(&self, tag: Tag, lba: u64, buf: Buf, fua: bool) -> IoFuture<()> {
        let inner = self.inner.clone();
        match inner.resolve(lba, buf.len()) {
            Ok((span, _)) => self
                .inner
                .gate
                .pass(span, false, move || inner.write(tag, lba, buf, fua)),
            Err(error) => IoFuture::ready(Err(error)),
        }
    }

    fn health(&self) -> Health {
        self.inner.device.health()
    }

    fn moved(&self) -> Option<u64> {
        self.inner.device.moved()
    }

    fn flush(&self, tag: Tag) -> IoFuture<()> {
        if self.inner.gate.is_closed() {
            return IoFuture::ready(Err(IoError::NotReady));
        }
        self.inner.device.flush(tag)
    }

    fn write_zeroes(&self, tag: Tag, lba: u64, blocks: u64, deallocate: bool) -> IoFuture<()> {
        self.zero(tag, lba, blocks, Zero::Write { deallocate })
    }

    fn deallocate(&self, tag: Tag, lba: u64, blocks: u64) -> IoFuture<()> {
        self.zero(tag, lba, blocks, Zero::Deallocate)
    }

    fn compare_and_write(
        &self,
        tag: Tag,
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
        let inner = self.inner.clone();
        match inner.resolve(lba, compare.len()) {
            Ok((span, _)) => {
                IoFuture::boxed(inner.compare_and_write(tag, span, compare, write, fua))
            }
            Err(error) => IoFuture::ready(Err(error)),
        }
    }
}

/// Which way blocks become zero.
#[derive(Clone, Copy)]
enum Zero {
    Write { deallocate: bool },
    Deallocate,
}

impl Inner {
    fn info(&self) -> Info {
        let below = self.device.info();
        let limits = Limits {
            atomic_write: below.limits.atomic_write.min(1),
            ..below.limits
        };
        Info {
            blocks: self.blocks.get(),
            limits,
            ..below
        }
    }

    /// The blocks of `len` bytes from `lba`, and the first of their pieces.
    fn resolve(&self, lba: u64, len: usize) -> Result<(Span, Piece), IoError> {
        locate(&self.info(), lba, len)?;
        let blocks = len as u64 / u64::from(self.block_size);
        Ok((
            Span {
                start: lba,
                end: lba + blocks,
            },
            self.first_piece(lba, blocks)?,
        ))
    }

    /// As many of `blocks` blocks from `lba` as lie together on the device.
    fn first_piece(&self, lba: u64, blocks: u64) -> Result<Piece, IoError> {
        if lba
            .checked_add(blocks)
            .is_none_or(|end| end > self.blocks.get())
        {
            return Err(IoError::OutOfRange);
        }
        let segments = self.segments.borrow();
        let index = segments.partition_point(|segment| segment.start <= lba) - 1;
        let segment = segments[index];
        let inside = lba - segment.start;
        Ok(Piece {
            lba: segment.lba + inside,
            blocks: blocks.min(segment.blocks - inside),
        })
    }

    async fn read_pieces(
        self: Rc<Self>,
        tag: Tag,
        mut lba: u64,
        mut buf: Buf,
    ) -> Result<Data, IoError> {
        let mut at = 0;
        let mut only_zeroes = true;
        while at < buf.len() {
            let (piece, len) = self.piece_of(lba, buf.len() - at)?;
            let part = Buf::take(len).ok_or(IoError::Busy)?;
            match self.device.read(tag, piece.lba, part).await? {
                Data::Buf(part) => {
                    only_zeroes = false;
                    buf[at..at + len].copy_from_slice(&part);
                }
                Data::Zeroes(_) => buf[at..at + len].fill(0),
            }
            at += len;
            lba += piece.blocks;
        }
        Ok(if only_zeroes {
            Data::Zeroes(buf.len())
        } else {
            Data::Buf(buf)
        })
    }

    fn write(self: Rc<Self>, tag: Tag, lba: u64, buf: Buf, fua: bool) -> IoFuture<()> {
        match self.piece_of(lba, buf.len()) {
            Ok((piece, len)) if len == buf.len() => self.device.write(tag, piece.lba, buf, fua),
            Ok(_) => IoFuture::boxed(self.write_pieces(tag, lba, buf, fua)),
            Err(error) => IoFuture::ready(Err(error)),
        }
    }

    async fn write_pieces(
        self: Rc<Self>,
        tag: Tag,
        mut lba: u64,
        buf: Buf,
        fua: bool,
    ) -> Result<(), IoError> {
        let mut at = 0;
        while at < buf.len() {
            let (piece, len) = self.piece_of(lba, buf.len() - at)?;
            let mut part = Buf::take(len).ok_or(IoError::Busy)?;
            part.copy_from_slice(&buf[at..at + len]);
            self.device.write(tag, piece.lba, part, fua).await?;
            at += len;
            lba += piece.blocks;
        }
        Ok(())
    }

    fn piece_of(&self, lba: u64, bytes: usize) -> Result<(Piece, usize), IoError> {
        let block_size = u64::from(self.block_size);
        let piece = self.first_piece(lba, bytes as u64 / block_size)?;
        Ok((piece, (piece.blocks * block_size) as usize))
    }

    async fn zero(
        self: Rc<Self>,
        tag: Tag,
        mut lba: u64,
        blocks: u64,
        zero: Zero,
    ) -> Result<(), IoError> {
        let end = lba + blocks;
        while lba < end {
            let (blocks, io) = self.zero_piece(tag, lba, end - lba, zero);
            io.await?;
            lba += blocks;
        }
        Ok(())
    }

    fn zero_piece(&self, tag: Tag, lba: u64, blocks: u64, zero: Zero) -> (u64, IoFuture<()>) {
        let piece = match self.first_piece(lba, blocks) {
            Ok(piece) => piece,
            Err(error) => return (0, IoFuture::ready(Err(error))),
        };
        let io = match zero {
            Zero::Write { deallocate } => {
                self.device
                    .write_zeroes(tag, piece.lba, piece.blocks, deallocate)
            }
            Zero::Deallocate => self.device.deallocate(tag, piece.lba, piece.blocks),
        };
        (piece.blocks, io)
    }

    async fn compare_and_write(
        self: Rc<Self>,
        tag: Tag,
        span: Span,
        compare: Buf,
        write: Buf,
        fua: bool,
    ) -> Result<(), IoError> {
        let hold = self.gate.exclude(span, false).await?;
        let current = Buf::take(compare.len()).ok_or(IoError::Busy)?;
        let equal = match self.clone().read_pieces(tag, span.start, current).await? {
            Data::Buf(current) => *current == *compare,
            Data::Zeroes(_) => compare.iter().all(|&byte| byte == 0),
        };
        if !equal {
            return Err(IoError::Miscompare);
        }
        // The write keeps the range barred until it has ended, even if nobody waits for it any
        // more.
        self.write(tag, span.start, write, fua).keep(hold).await
    }
}

fn segments(record: &Record, block_size: u32) -> Vec<Segment> {
    let block_size = u64::from(block_size);
    let mut start = 0;
    let place = |run: &super::runs::Run| {
        let blocks = run.count * (EXTENT_BYTES / block_size);
        let lba = (DATA_START + run.start * EXTENT_BYTES) / block_size;
        let segment = Segment { start, lba, blocks };
        start += blocks;
        segment
    };
    record.runs.iter().map(place).collect()
}
