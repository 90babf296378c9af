//! A raw volume: blocks mapped to runs of extents, nothing between. An I/O inside one run goes
//! through as it is; one over several becomes one for each, at the same time and without a copy.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use flashyard_runtime::{Buf, Parts, Rt, Shared};

use super::metadata::{DATA_START, EXTENT_BYTES, Record};
use crate::gate::{Gate, Span};
use crate::{
    Device, Health, Info, Io, IoError, IoFuture, LentIo, Limits, SharedDevice, Tag, Turns, Zero,
};

/// See the module. Shared by all users of the volume, so that a compare-and-write is exclusive
/// among them.
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

    /// Applies the new size of the volume.
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

    fn takes_lent(&self) -> Option<u32> {
        self.inner.device.takes_lent()
    }

    fn submit_lent(&self, tag: Tag, io: LentIo) -> IoFuture {
        let inner = &self.inner;
        let blocks = io.memory.len() as u64 / u64::from(inner.block_size);
        let piece = match inner.first_piece(io.lba, blocks) {
            Ok(piece) => piece,
            Err(error) => return IoFuture::ready(Err(error)),
        };
        let span = Span {
            start: io.lba,
            end: io.lba + blocks,
        };
        let below = inner.clone();
        let start = move || below.pass_lent_on(tag, span, piece, io);
        inner.gate.pass(span, false, start)
    }

    fn take_turns(&self, turns: &Rc<dyn Turns>) {
        self.inner.device.take_turns(turns);
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
        match io {
            Io::Read { into, .. } => self.read_pieces(tag, span, into),
            Io::Write { data, fua, .. } => self.write_pieces(tag, span, &data, fua),
            Io::Zero { how, .. } => self.zero_pieces(tag, span, how),
            Io::Flush | Io::CompareAndWrite(_) => unreachable!("these do not go by pieces"),
        }
    }

    /// The same for an I/O on lent memory.
    fn pass_lent_on(self: &Rc<Self>, tag: Tag, span: Span, piece: Piece, io: LentIo) -> IoFuture {
        if span.end - span.start == piece.blocks {
            let lba = piece.lba;
            return self.device.submit_lent(tag, LentIo { lba, ..io });
        }
        let (mut all, mut at) = (IoFuture::all(self.gate.runtime()), 0);
        for Piece { lba, blocks } in self.pieces(span) {
            let (bytes, way) = (self.bytes(blocks), io.way);
            let part = io.memory.part(at, bytes);
            all.push(match part {
                Some(memory) => self.device.submit_lent(tag, LentIo { lba, memory, way }),
                None => IoFuture::ready(Err(IoError::Internal)),
            });
            at += bytes;
        }
        all.into_io()
    }

    fn read_pieces(self: &Rc<Self>, tag: Tag, span: Span, into: Buf) -> IoFuture {
        let mut all = IoFuture::all(self.gate.runtime());
        let mut parts = Parts::of(into);
        for Piece { lba, blocks } in self.pieces(span) {
            let into = parts.cut(self.bytes(blocks));
            all.push(self.device.submit(tag, Io::Read { lba, into }));
        }
        all.read_into(parts)
    }

    fn write_pieces(self: &Rc<Self>, tag: Tag, span: Span, data: &Shared, fua: bool) -> IoFuture {
        let mut all = IoFuture::all(self.gate.runtime());
        let mut at = 0;
        for Piece { lba, blocks } in self.pieces(span) {
            let end = at + self.bytes(blocks);
            let data = data.slice(at..end);
            all.push(self.device.submit(tag, Io::Write { lba, data, fua }));
            at = end;
        }
        all.into_io()
    }

    /// Some pieces at a time: there may be as many as the volume has.
    fn zero_pieces(self: &Rc<Self>, tag: Tag, span: Span, how: Zero) -> IoFuture {
        let below = self.device.clone();
        let each = move |Piece { lba, blocks }| below.submit(tag, Io::Zero { lba, blocks, how });
        IoFuture::in_batches(self.gate.runtime(), self.pieces(span).map(each))
    }

    /// The pieces of a range that is on the volume, in order.
    fn pieces(self: &Rc<Self>, span: Span) -> impl Iterator<Item = Piece> + use<> {
        let (this, mut lba) = (self.clone(), span.start);
        std::iter::from_fn(move || {
            let piece = this.first_piece(lba, span.end - lba).ok();
            let piece = piece.filter(|piece| piece.blocks > 0)?;
            lba += piece.blocks;
            Some(piece)
        })
    }

    fn bytes(&self, blocks: u64) -> usize {
        (blocks * u64::from(self.block_size)) as usize
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
