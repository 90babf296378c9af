//! Requests that the store works on: their data, and who waits for them.

use std::task::{Context, Poll, Waker};

use flashyard_logstore::format::{BLOCK, SECTOR};
use flashyard_logstore::{Outcome, Refused};
use flashyard_runtime::{Buf, Data, Parts, Shared};

use crate::{Done, IoError, Tag};

/// All requests, by slot.
#[derive(Default)]
pub(super) struct Requests {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

/// A request. Its lists keep their memory.
#[derive(Default)]
struct Slot {
    tag: Tag,
    /// What is written.
    data: Option<Shared>,
    /// Where a read goes, until its first piece.
    into: Option<Buf>,
    /// Of a read of several pieces.
    parts: Option<Parts>,
    pieces: Vec<Piece>,
    answers: Vec<Data>,
    ended: Option<Result<Done, IoError>>,
    waker: Option<Waker>,
    /// No task waits any more.
    released: bool,
}

/// Blocks of a read that lie side by side.
struct Piece {
    first: u32,
    blocks: u32,
    /// Where they go, while they have to be decoded.
    into: Option<Buf>,
    data: Option<Result<Data, IoError>>,
}

impl Requests {
    /// A request without data.
    pub fn begin(&mut self, tag: Tag) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let request = &mut self.slots[slot as usize];
        (request.tag, request.released) = (tag, false);
        slot
    }

    /// A request that writes `data`.
    pub fn write(&mut self, tag: Tag, data: Shared) -> u32 {
        let slot = self.begin(tag);
        self.slots[slot as usize].data = Some(data);
        slot
    }

    /// A request that reads.
    pub fn read(&mut self, tag: Tag, into: Buf) -> u32 {
        let slot = self.begin(tag);
        self.slots[slot as usize].into = Some(into);
        slot
    }

    /// The tag that its I/O has.
    pub fn tag(&self, slot: u32) -> Tag {
        self.slots[slot as usize].tag
    }

    /// Sectors of what is written, as it is stored.
    pub fn written(&self, slot: u32, first: u32, sectors: u32) -> &[u8] {
        let from = first as usize * SECTOR;
        let data = self.slots[slot as usize].data.as_deref();
        data.map_or(&[], |data| &data[from..from + sectors as usize * SECTOR])
    }

    /// The buffer for blocks of a read. They come in order, or once more if what they gave was not
    /// good. Nothing when there is no memory.
    pub fn place(&mut self, slot: u32, first: u32, blocks: u32) -> Option<Buf> {
        let request = &mut self.slots[slot as usize];
        let len = blocks as usize * BLOCK;
        if request.pieces.iter().any(|piece| piece.first == first) {
            return Buf::take(len);
        }
        let buf = request.next(len)?;
        request.pieces.push(Piece {
            first,
            blocks,
            into: None,
            data: None,
        });
        Some(buf)
    }

    /// Keeps a place for blocks of a read that are decoded when they have come. They come in order,
    /// or once more.
    pub fn reserve(&mut self, slot: u32, first: u32, blocks: u32) {
        let request = &mut self.slots[slot as usize];
        if request.pieces.iter().all(|piece| piece.first != first) {
            let into = request.next(blocks as usize * BLOCK);
            request.pieces.push(Piece {
                first,
                blocks,
                into,
                data: None,
            });
        }
    }

    /// The place that was kept; what was decoded there before was not good.
    pub fn take_place(&mut self, slot: u32, first: u32) -> Option<Buf> {
        let mut pieces = self.slots[slot as usize].pieces.iter_mut();
        let piece = pieces.find(|piece| piece.first == first)?;
        match (piece.into.take(), piece.data.take()) {
            (None, Some(Ok(Data::Buf(buf)))) => Some(buf),
            (None, _) => Buf::take(piece.blocks as usize * BLOCK),
            (into, _) => into,
        }
    }

    /// Blocks of a read are zeroes.
    pub fn zeroes(&mut self, slot: u32, first: u32, blocks: u32) {
        let request = &mut self.slots[slot as usize];
        let len = blocks as usize * BLOCK;
        drop(request.next(len));
        request.pieces.push(Piece {
            first,
            blocks,
            into: None,
            data: Some(Ok(Data::Zeroes(len))),
        });
    }

    /// What was read for blocks, or why that is nothing.
    pub fn give(&mut self, slot: u32, first: u32, data: Result<Data, IoError>) {
        let mut pieces = self.slots[slot as usize].pieces.iter_mut();
        if let Some(piece) = pieces.find(|piece| piece.first == first) {
            piece.data = Some(data);
        }
    }

    /// A request is done.
    pub fn end(&mut self, slot: u32, outcome: Outcome) {
        let request = &mut self.slots[slot as usize];
        let result = match outcome {
            Outcome::Success => request.collect(),
            Outcome::MediaError => Err(IoError::Read),
            Outcome::NoSpace => Err(IoError::NoSpace),
            Outcome::ReadOnly => Err(IoError::WriteProtected),
        };
        self.finish(slot, result);
    }

    /// All that wait fail.
    pub fn end_all(&mut self, error: IoError) {
        for slot in 0..self.slots.len() as u32 {
            if !self.free.contains(&slot) && self.slots[slot as usize].ended.is_none() {
                self.finish(slot, Err(error));
            }
        }
    }

    /// The result of a request that was done at once; its slot is free then.
    pub fn take(&mut self, slot: u32) -> Option<Result<Done, IoError>> {
        let result = self.slots[slot as usize].ended.take()?;
        self.free(slot);
        Some(result)
    }

    /// The store did not take it.
    pub fn refuse(&mut self, slot: u32, why: Refused) -> IoError {
        self.free(slot);
        match why {
            Refused::NotReady | Refused::NoVolume => IoError::NotReady,
            Refused::Form => IoError::Internal,
            Refused::Range => IoError::OutOfRange,
            Refused::ReadOnly | Refused::Snapshot => IoError::WriteProtected,
            Refused::Busy
            | Refused::TooManyVolumes
            | Refused::Changing
            | Refused::HasSnapshots
            | Refused::HasClones
            | Refused::NotNewest
            | Refused::TooManySnapshots
            | Refused::Space(_) => IoError::Busy,
        }
    }

    pub fn poll(&mut self, slot: u32, context: &mut Context<'_>) -> Poll<Result<Done, IoError>> {
        let request = &mut self.slots[slot as usize];
        match request.ended.take() {
            Some(result) => {
                // No task asks again, and the slot is free when it is released.
                request.ended = Some(Ok(Done::EMPTY));
                Poll::Ready(result)
            }
            None => {
                request.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    pub fn release(&mut self, slot: u32) {
        let request = &mut self.slots[slot as usize];
        match request.ended.take() {
            Some(_) => self.free(slot),
            None => (request.released, request.waker) = (true, None),
        }
    }

    fn finish(&mut self, slot: u32, result: Result<Done, IoError>) {
        let request = &mut self.slots[slot as usize];
        let waker = request.waker.take();
        request.clear();
        if request.released {
            return self.free(slot);
        }
        request.ended = Some(result);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn free(&mut self, slot: u32) {
        self.slots[slot as usize].clear();
        self.free.push(slot);
    }
}

impl Slot {
    /// The next part of the buffer that is read into; all of it if it is the only one.
    fn next(&mut self, len: usize) -> Option<Buf> {
        if let Some(whole) = self.into.take() {
            if whole.len() == len {
                return Some(whole);
            }
            self.parts = Some(Parts::of(whole));
        }
        Some(self.parts.as_mut()?.cut(len))
    }

    /// What a read gives; nothing for anything else.
    fn collect(&mut self) -> Result<Done, IoError> {
        if self.pieces.is_empty() {
            return Ok(Done::EMPTY);
        }
        let blocks: u32 = self.pieces.iter().map(|piece| piece.blocks).sum();
        for piece in self.pieces.drain(..) {
            self.answers.push(piece.data.ok_or(IoError::Internal)??);
        }
        let zeroes = |data: &Data| matches!(data, Data::Zeroes(_));
        if self.answers.iter().all(zeroes) {
            return Ok(Data::Zeroes(blocks as usize * BLOCK).into());
        }
        if let Some(parts) = self.parts.take() {
            let whole = parts.join(&mut self.answers).ok_or(IoError::Busy)?;
            return Ok(Data::Buf(whole).into());
        }
        Ok(self.answers.pop().map_or(Done::EMPTY, Done::from))
    }

    fn clear(&mut self) {
        (self.data, self.into, self.parts) = (None, None, None);
        (self.ended, self.waker) = (None, None);
        self.pieces.clear();
        self.answers.clear();
    }
}
