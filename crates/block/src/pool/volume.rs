//! A raw volume: blocks mapped to runs of extents, nothing between. An I/O inside one run goes
//! through without an allocation or a copy.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use flashyard_runtime::{Buf, Data, Parts, Rt, Shared};

use super::metadata::{DATA_START, EXTENT_BYTES, Record};
use crate::gate::{Gate, Span};
use crate::{Device, Done, Health, Info, Io, IoError, IoFuture, Limits, SharedDevice, Tag};

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
}

impl Device for Volume {
    fn info(&self) -> Info {
        self.inner.info()
    }

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        let inner = &self.inner;
        if let Io::Flush = io {
            return match inner.gate.is_closed() {
                true => IoFuture::ready(Err(IoError::NotReady)),
                false => inner.device.submit(tag, io),
            };
        }
        let (span, piece) = match inner.resolve(&io) {
            Ok(found) => found,
            Err(error) => return IoFuture::ready(Err(error)),
        };
        let below = inner.clone();
        match io {
            Io::CompareAndWrite(pair) => {
                let (lba, fua, reader) = (span.start, pair.fua(), below.clone());
                let read = move |into| reader.pass_on(tag, span, piece, Io::Read { lba, into });
                let write =
                    move |data| below.pass_on(tag, span, piece, Io::Write { lba, data, fua });
                inner
                    .gate
                    .compare_and_write(span, false, pair, (read, write))
            }
            io => {
                let start = move || below.pass_on(tag, span, piece, io);
                inner.gate.pass(span, false, start)
            }
        }
    }

    fn health(&self) -> Health {
        self.inner.device.health()
    }

    fn moved(&self) -> Option<u64> {
        self.inner.device.moved()
    }
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

    /// The blocks of an I/O, and the first of their pieces.
    fn resolve(&self, io: &Io) -> Result<(Span, Piece), IoError> {
        let (lba, blocks) = (io.lba(), io.blocks(self.block_size)?);
        let piece = self.first_piece(lba, blocks)?;
        Ok((
            Span {
                start: lba,
                end: lba + blocks,
            },
            piece,
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

    /// Does an I/O on `span`, of which `piece` is the first one, where it is on the device.
    fn pass_on(self: &Rc<Self>, tag: Tag, span: Span, piece: Piece, io: Io) -> IoFuture {
        if span.end - span.start == piece.blocks {
            return self.device.submit(tag, io.at(piece.lba));
        }
        let inner = self.clone();
        IoFuture::boxed(async move {
            match io {
                Io::Read { lba, into } => inner.read_pieces(tag, lba, into).await,
                Io::Write { lba, data, fua } => inner.write_pieces(tag, lba, data, fua).await,
                _ => inner.zero_pieces(tag, span, io).await,
            }
        })
    }

    async fn read_pieces(&self, tag: Tag, mut lba: u64, into: Buf) -> Result<Done, IoError> {
        let len = into.len();
        let (mut parts, mut answers, mut at) = (Parts::of(into), Vec::new(), 0);
        while at < len {
            let (piece, bytes) = self.piece_of(lba, len - at)?;
            let io = Io::Read {
                lba: piece.lba,
                into: parts.cut(bytes),
            };
            answers.push(self.device.submit(tag, io).await?.data);
            at += bytes;
            lba += piece.blocks;
        }
        if answers.iter().all(|data| matches!(data, Data::Zeroes(_))) {
            return Ok(Data::Zeroes(len).into());
        }
        let whole = parts.join(&mut answers).ok_or(IoError::Busy)?;
        Ok(Data::Buf(whole).into())
    }

    async fn write_pieces(
        &self,
        tag: Tag,
        mut lba: u64,
        data: Shared,
        fua: bool,
    ) -> Result<Done, IoError> {
        let mut at = 0;
        while at < data.len() {
            let (piece, len) = self.piece_of(lba, data.len() - at)?;
            let io = Io::Write {
                lba: piece.lba,
                data: data.slice(at..at + len),
                fua,
            };
            self.device.submit(tag, io).await?;
            at += len;
            lba += piece.blocks;
        }
        Ok(Done::EMPTY)
    }

    async fn zero_pieces(&self, tag: Tag, span: Span, io: Io) -> Result<Done, IoError> {
        let Io::Zero { how, .. } = io else {
            return Err(IoError::Internal);
        };
        let mut lba = span.start;
        while lba < span.end {
            let Piece { lba: to, blocks } = self.first_piece(lba, span.end - lba)?;
            let io = Io::Zero {
                lba: to,
                blocks,
                how,
            };
            self.device.submit(tag, io).await?;
            lba += blocks;
        }
        Ok(Done::EMPTY)
    }

    fn piece_of(&self, lba: u64, bytes: usize) -> Result<(Piece, usize), IoError> {
        let block_size = u64::from(self.block_size);
        let piece = self.first_piece(lba, bytes as u64 / block_size)?;
        Ok((piece, (piece.blocks * block_size) as usize))
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
