//! The copying of a migration: piece by piece, from the beginning to the end. A piece is copied
//! while writes to it go on, and counts if there were none; otherwise it is copied once more, and
//! writes to it wait meanwhile. These have had their turn at the switch before the source, so what
//! they wait for takes none there: behind them it would wait for ever.

use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use flashyard_runtime::{Buf, Data, Shared};
use flashyard_sched::{Class, TenantId};
use flashyard_time::Duration;

use super::cursor::Span;
use super::{Inner, UnderWay};
use crate::{DeviceExt, IoError, IoFuture, SharedDevice, Tag};

/// Bytes of a piece, and of the I/Os that copy it at the same time.
const PIECE_BYTES: usize = 512 << 10;
const PART_BYTES: usize = 128 << 10;
/// Zeroes that are worth a write of their own, or none: less would cut what is beside them into
/// small writes.
const ZERO_BYTES: usize = 16 << 10;
/// Until memory is asked for again.
const NO_MEMORY: Duration = Duration::from_ms(1);

/// Whose the copying is: it gives way to all I/O of tenants.
const COPYING: Tag = Tag {
    tenant: TenantId(0),
    class: Class::Background,
};
/// The same while writes of tenants wait for it.
const AWAITED: Tag = Tag {
    tenant: TenantId(0),
    class: Class::Throughput,
};

/// What copying reads, what it writes, and whose it is.
pub(super) struct Way<'a> {
    from: &'a SharedDevice,
    to: &'a SharedDevice,
    tag: Tag,
}

impl<'a> Way<'a> {
    /// Of what nobody waits for.
    fn in_background(inner: &'a Inner) -> Self {
        Self {
            from: &inner.sides.copy_from,
            to: &inner.sides.copy_to,
            tag: COPYING,
        }
    }

    /// Of what writes wait for that have had their turn.
    pub(super) fn awaited(inner: &'a Inner, tag: Tag) -> Self {
        Self {
            from: &inner.sides.source,
            to: &inner.sides.target,
            tag,
        }
    }
}

/// Why a volume was not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyError {
    /// Somebody wanted that.
    Cancelled,
    /// It cannot be read, from this block on.
    Source(u64, IoError),
    /// Where it was to go has failed.
    Target(IoError),
}

/// Copies what is not copied yet, and has it on the target's medium.
pub(super) async fn copy(inner: &Rc<Inner>) -> Result<(), CopyError> {
    let blocks = (PIECE_BYTES / inner.block_size as usize) as u64;
    loop {
        inner.check()?;
        let piece = inner.cursor.borrow().next_piece(blocks);
        let Some(piece) = piece else {
            break;
        };
        let is_free = inner.cursor.borrow_mut().begin(piece);
        let copied = match is_free {
            true => copy_with_writes(inner, piece).await,
            false => copy_barred(inner, piece).await,
        };
        copied.map_err(|error| inner.fail(error))?;
        let at = inner.cursor.borrow().at() * u64::from(inner.block_size);
        inner.progress.copied.store(at, Ordering::Relaxed);
    }
    let flushed = inner.sides.copy_to.flush(COPYING).await;
    flushed.map_err(|error| inner.fail(CopyError::Target(error)))?;
    inner.check()
}

async fn copy_with_writes(inner: &Rc<Inner>, piece: Span) -> Result<(), CopyError> {
    let copied = copy_span(inner, piece, &Way::in_background(inner)).await;
    let counts = inner.cursor.borrow_mut().end();
    copied?;
    if counts {
        return Ok(());
    }
    inner.progress.repeated.fetch_add(1, Ordering::Relaxed);
    copy_barred(inner, piece).await
}

async fn copy_barred(inner: &Rc<Inner>, piece: Span) -> Result<(), CopyError> {
    let bar = UnderWay::enter(inner, piece);
    let may_copy = |inner: &Inner| inner.cursor.borrow().may_write_target(bar.ticket);
    inner
        .until(|inner| may_copy(inner) || inner.is_ended())
        .await;
    inner.check()?;
    copy_span(inner, piece, &Way::awaited(inner, AWAITED)).await?;
    inner.cursor.borrow_mut().end_barred(bar.ticket);
    inner.changed.notify_all();
    Ok(())
}

/// Makes the target hold what the source does.
pub(super) async fn copy_span(
    inner: &Rc<Inner>,
    span: Span,
    way: &Way<'_>,
) -> Result<(), CopyError> {
    let blocks = (PIECE_BYTES / inner.block_size as usize) as u64;
    let mut at = span.start;
    while at < span.end {
        let end = span.end.min(at + blocks);
        copy_piece(inner, Span { start: at, end }, way).await?;
        at = end;
    }
    Ok(())
}

async fn copy_piece(inner: &Rc<Inner>, piece: Span, way: &Way<'_>) -> Result<(), CopyError> {
    let in_source = |error| CopyError::Source(piece.start, error);
    let read = read(inner, way.from, piece, way.tag).await;
    let read = read.map_err(in_source)?;
    let is_touched = inner.cursor.borrow().is_touched(piece);
    if !is_touched && read.iter().all(|part| matches!(part, Part::Zeroes(_))) {
        return Ok(());
    }
    if is_touched {
        let present = self::read(inner, way.to, piece, way.tag).await;
        if present.map_err(CopyError::Target)? == read {
            return Ok(());
        }
    }
    inner.cursor.borrow_mut().touch(piece);
    let written = write(inner, piece, read, is_touched, way).await;
    written.map_err(CopyError::Target)
}

/// Blocks that were read together.
enum Part {
    Data(Shared),
    Zeroes(usize),
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Self::Data(data) => data.len(),
            Self::Zeroes(len) => *len,
        }
    }
}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Zeroes(len), Self::Zeroes(other)) => len == other,
            (Self::Data(data), Self::Data(other)) => **data == **other,
            _ => false,
        }
    }
}

/// Reads a piece, in parts at the same time.
async fn read(
    inner: &Rc<Inner>,
    from: &SharedDevice,
    piece: Span,
    tag: Tag,
) -> Result<Vec<Part>, IoError> {
    let mut reads = Vec::new();
    for (lba, bytes) in parts(inner, piece) {
        let into = buffer(inner, bytes.len()).await;
        reads.push(inner.rt.spawn(from.read(tag, lba, into)));
    }
    let mut read = Vec::with_capacity(reads.len());
    for part in reads {
        read.push(match part.await? {
            Data::Buf(buf) if is_zero(&buf) => Part::Zeroes(buf.len()),
            Data::Buf(buf) => Part::Data(buf.into()),
            Data::Zeroes(len) => Part::Zeroes(len),
        });
    }
    Ok(read)
}

/// Writes what was read; zeroes only where the target may hold something else.
async fn write(
    inner: &Rc<Inner>,
    piece: Span,
    read: Vec<Part>,
    zeroes: bool,
    &Way { to, tag, .. }: &Way<'_>,
) -> Result<(), IoError> {
    let block_size = inner.block_size as usize;
    let mut all = IoFuture::all(&inner.rt);
    let mut written = 0;
    for ((lba, _), part) in parts(inner, piece).zip(&read) {
        let runs = match part {
            Part::Data(data) => runs(data, ZERO_BYTES.max(block_size)),
            Part::Zeroes(_) => Vec::from([(0..part.len(), true)]),
        };
        for (range, is_zero) in runs {
            let lba = lba + (range.start / block_size) as u64;
            let blocks = (range.len() / block_size) as u64;
            match part {
                Part::Data(data) if !is_zero => {
                    written += range.len();
                    let data = data.slice(range);
                    all.push(to.submit(
                        tag,
                        crate::Io::Write {
                            lba,
                            data,
                            fua: false,
                        },
                    ));
                }
                _ if zeroes => {
                    let how = crate::Zero::Write { deallocate: true };
                    all.push(to.submit(tag, crate::Io::Zero { lba, blocks, how }));
                }
                _ => {}
            }
        }
    }
    all.into_io().await?;
    inner
        .progress
        .written
        .fetch_add(written as u64, Ordering::Relaxed);
    Ok(())
}

/// The parts of a piece: first block, and the bytes within the piece.
fn parts(inner: &Rc<Inner>, piece: Span) -> impl Iterator<Item = (u64, Range<usize>)> {
    let block_size = inner.block_size as usize;
    let bytes = (piece.end - piece.start) as usize * block_size;
    (0..bytes).step_by(PART_BYTES).map(move |start| {
        let lba = piece.start + (start / block_size) as u64;
        (lba, start..bytes.min(start + PART_BYTES))
    })
}

/// What of `data` is zero and what is not, by units of `unit` bytes.
fn runs(data: &[u8], unit: usize) -> Vec<(Range<usize>, bool)> {
    let mut runs: Vec<(Range<usize>, bool)> = Vec::new();
    let mut at = 0;
    for part in data.chunks(unit) {
        let (end, zero) = (at + part.len(), is_zero(part));
        match runs.last_mut() {
            Some((last, is_zero)) if *is_zero == zero => last.end = end,
            _ => runs.push((at..end, zero)),
        }
        at = end;
    }
    runs
}

fn is_zero(bytes: &[u8]) -> bool {
    // The first bytes decide mostly; the rest is compared as fast as memory is.
    bytes.first().is_none_or(|first| *first == 0)
        && bytes[..bytes.len().saturating_sub(1)] == bytes[bytes.len().min(1)..]
}

/// Memory for a part: tenants come first.
async fn buffer(inner: &Rc<Inner>, bytes: usize) -> Buf {
    loop {
        if let Some(buf) = Buf::take(bytes) {
            return buf;
        }
        inner.rt.sleep(NO_MEMORY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_are_told_from_data_by_units() {
        let mut data = vec![0; 10];
        data[5] = 1;
        assert_eq!(runs(&data, 2), [(0..4, true), (4..6, false), (6..10, true)]);
        assert_eq!(runs(&data, 3), [(0..3, true), (3..6, false), (6..10, true)]);
        assert_eq!(runs(&[1; 4], 3), [(0..4, false)]);
        assert_eq!(runs(&[], 3), []);
        for at in 0..5 {
            let mut data = [0; 5];
            assert!(is_zero(&data));
            data[at] = 7;
            assert!(!is_zero(&data));
        }
    }
}
