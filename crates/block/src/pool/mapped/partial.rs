//! Reads, writes and trims of volumes whose chunks are longer than blocks. Chunks are read whole;
//! a write of a part of one reads it, merges and writes it, while no other write has it.

use std::rc::Rc;

use flashyard_codec::compress::is_zero;
use flashyard_logstore::MOST_BLOCKS;
use flashyard_runtime::{Buf, Data, Parts, Shared};

use super::volume::{BLOCK, Inner};
use crate::gate::Span;
use crate::{Done, IoError, IoFuture, Tag};

/// Bytes that are read or written at a time.
const MOST: usize = (MOST_BLOCKS * BLOCK) as usize;

impl Inner {
    /// Reads blocks. What is longer than the store takes is cut between chunks.
    pub fn read_part(self: &Rc<Self>, tag: Tag, lba: u64, into: Buf) -> IoFuture {
        let first = first_piece(lba, into.len());
        if first == into.len() {
            return self.read_piece(tag, lba, into);
        }
        let mut all = IoFuture::all(self.gate.runtime());
        let (len, mut parts) = (into.len(), Parts::of(into));
        let (mut at, mut next) = (0, first);
        while at < len {
            let place = lba + (at / BLOCK as usize) as u64;
            all.push(self.read_piece(tag, place, parts.cut(next)));
            at += next;
            next = MOST.min(len - at);
        }
        all.read_into(parts)
    }

    /// Reads what lies in as many chunks as are read at once.
    fn read_piece(self: &Rc<Self>, tag: Tag, lba: u64, mut into: Buf) -> IoFuture {
        let span = span_of(lba, into.len());
        let whole = self.chunk_span(span);
        let chunk = whole.start / u64::from(self.coder.form().chunk_blocks());
        if span == whole {
            return self.engine.read(tag, self.data(), chunk, into);
        }
        let Some(all) = Buf::take(bytes_of(whole)) else {
            return IoFuture::ready(Err(IoError::Busy));
        };
        let read = self.engine.read(tag, self.data(), chunk, all);
        let from = (span.start - whole.start) as usize * BLOCK as usize;
        IoFuture::boxed(async move {
            let data = match read.await?.data {
                Data::Zeroes(_) => Data::Zeroes(into.len()),
                Data::Buf(all) => {
                    let end = from + into.len();
                    into.copy_from_slice(all.get(from..end).ok_or(IoError::Internal)?);
                    Data::Buf(into)
                }
            };
            Ok(data.into())
        })
    }

    /// Writes blocks; up to 32 of them whole or not at all.
    pub fn write_part(self: &Rc<Self>, tag: Tag, lba: u64, data: Shared, fua: bool) -> IoFuture {
        let this = self.clone();
        self.lasting(async move {
            let _chunks = this.take_chunks(span_of(lba, data.len())).await;
            let mut all = IoFuture::all(this.gate.runtime());
            let (mut at, mut next) = (0, first_piece(lba, data.len()));
            while at < data.len() {
                let place = lba + (at / BLOCK as usize) as u64;
                let part = data.slice(at..at + next);
                let (chunk, merged) = this.merge(tag, place, part).await?;
                let write = this.engine.write(tag, this.data(), chunk, merged, fua);
                all.push(write);
                at += next;
                next = MOST.min(data.len() - at);
            }
            all.into_io().await
        })
    }

    /// What is to be written to whole chunks, from which on, so that these blocks are.
    async fn merge(&self, tag: Tag, lba: u64, data: Shared) -> Result<(u64, Shared), IoError> {
        let span = span_of(lba, data.len());
        let whole = self.chunk_span(span);
        let blocks = u64::from(self.coder.form().chunk_blocks());
        let first = whole.start / blocks;
        if span == whole {
            return Ok((first, data));
        }
        let mut all = Buf::take_zeroed(bytes_of(whole)).ok_or(IoError::Busy)?;
        let last = whole.end / blocks - 1;
        let (head, tail) = (span.start > whole.start, span.end < whole.end);
        let parts = [
            (first, head || tail && last == first),
            (last, tail && last > first),
        ];
        for (chunk, _) in parts.into_iter().filter(|(_, is_part)| *is_part) {
            let into = Buf::take(self.coder.chunk_bytes()).ok_or(IoError::Busy)?;
            let read = self.engine.read(tag, self.data(), chunk, into).await?;
            if let Data::Buf(old) = read.data {
                let at = (chunk - first) as usize * old.len();
                all[at..at + old.len()].copy_from_slice(&old);
            }
        }
        let at = (span.start - whole.start) as usize * BLOCK as usize;
        all[at..at + data.len()].copy_from_slice(&data);
        Ok((first, all.into()))
    }

    /// Blocks read as zeroes from now on; whole chunks take no space.
    pub fn unmap_part(self: &Rc<Self>, tag: Tag, span: Span) -> IoFuture {
        let this = self.clone();
        self.lasting(async move {
            let _chunks = this.take_chunks(span).await;
            let blocks = u64::from(this.coder.form().chunk_blocks());
            let start = span.start.next_multiple_of(blocks).min(span.end);
            let end = (span.end / blocks * blocks).max(start);
            for edge in [span.start..start, end..span.end] {
                if edge.is_empty() {
                    continue;
                }
                let len = (edge.end - edge.start) as usize * BLOCK as usize;
                let zeroes = Buf::take_zeroed(len).ok_or(IoError::Busy)?;
                let edge = this.merge(tag, edge.start, zeroes.into()).await?;
                let (chunk, merged) = edge;
                let change = match is_zero(&merged) {
                    true => this.engine.trim(tag, this.lineage, chunk..chunk + 1),
                    false => this.engine.write(tag, this.data(), chunk, merged, false),
                };
                change.await?;
            }
            match start < end {
                true => {
                    let (start, end) = (start / blocks, end / blocks);
                    this.unmap(tag, Span { start, end }).await
                }
                false => Ok(Done::EMPTY),
            }
        })
    }

    async fn take_chunks(&self, span: Span) -> super::chunks::Taken {
        let whole = self.chunk_span(span);
        let blocks = u64::from(self.coder.form().chunk_blocks());
        self.chunks
            .take(whole.start / blocks..whole.end / blocks)
            .await
    }

    /// An I/O that goes on to its end when no task waits for it: others must not have its chunks
    /// before.
    fn lasting(&self, io: impl Future<Output = Result<Done, IoError>> + 'static) -> IoFuture {
        let mut all = IoFuture::all(self.gate.runtime());
        all.push(IoFuture::boxed(io));
        all.into_io()
    }
}

fn span_of(lba: u64, bytes: usize) -> Span {
    Span {
        start: lba,
        end: lba + (bytes / BLOCK as usize) as u64,
    }
}

fn bytes_of(span: Span) -> usize {
    (span.end - span.start) as usize * BLOCK as usize
}

/// Bytes of the first piece of an I/O: all of it if that is one, else as much as ends where pieces
/// that are aligned begin.
fn first_piece(lba: u64, len: usize) -> usize {
    let into = (lba % u64::from(MOST_BLOCKS)) as usize * BLOCK as usize;
    if len <= MOST { len } else { MOST - into }
}
