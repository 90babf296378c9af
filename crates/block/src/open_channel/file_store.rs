//! Flash in a file: what is programmed is written and flushed before anybody is told of it, so that the device can be
//! opened again after the program, or the power of the machine, has gone at any instant.
//!
//! Flushes are shared by all that has been written meanwhile. When the file fails, the device is out of order until it is
//! opened again: nobody can know what the file holds.

use std::cell::{Cell, RefCell};

use flashyard_flash::channel::{MOST_ADDRESSES, Metadata};
use flashyard_runtime::sync::Semaphore;
use flashyard_runtime::{Buf, Rt};
use flashyard_time::Duration;

use super::image::{Fate, Head, Image, PIECE, Record, checksum};
use crate::{Device, FileDevice, IoError, Tag};

/// Transfers of many pieces, and of few, that can be under way: memory is kept for them, so that none has to wait for
/// what hosts have taken.
const LARGE: usize = 16;
const SMALL: usize = 64;
/// Pieces of a small transfer.
const FEW: usize = 4;
/// How long to wait for memory that others have.
const PATIENCE: Duration = Duration::from_ms(1);

/// See the module.
pub(super) struct FileStore {
    rt: Rt,
    file: FileDevice,
    image: Image,
    chunks: RefCell<Vec<Kept>>,
    /// Of each chunk, the checksums of its sectors, as far as it is written.
    sums: RefCell<Vec<Vec<u32>>>,
    /// Held by the head that is being written.
    heads: Semaphore,
    large: Stock,
    small: Stock,
    broken: Cell<Option<IoError>>,
}

/// What is known of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub head: Head,
    /// Write units that are durable.
    pub durable: u32,
}

/// Write units of one chunk that follow each other, as they are in the file: room for each record, and the sectors.
#[derive(Debug)]
pub(super) struct Staged {
    /// The address of the first sector.
    pub first: u64,
    pub metadata: Vec<Metadata>,
    pub bytes: Vec<u8>,
}

/// Staged units that have their records.
#[derive(Debug)]
pub(super) struct Sealed {
    chunk: u32,
    unit: u32,
    units: u32,
    bytes: Vec<u8>,
}

impl FileStore {
    /// Over a file that is large enough. Memory for its transfers has to be there.
    pub fn new(rt: &Rt, file: FileDevice, image: Image) -> Result<Self, IoError> {
        let unit = image.unit_pieces() as usize;
        let most = MOST_ADDRESSES / image.geometry().ws_min as usize * unit;
        let unused = Kept {
            head: Head {
                epoch: 0,
                resets: 0,
                fate: Fate::InUse,
            },
            durable: 0,
        };
        Ok(Self {
            rt: rt.clone(),
            file,
            chunks: RefCell::new(vec![unused; image.chunks() as usize]),
            sums: RefCell::new(vec![Vec::new(); image.chunks() as usize]),
            heads: Semaphore::new(1),
            large: Stock::new(LARGE, most * PIECE)?,
            small: Stock::new(SMALL, FEW * PIECE)?,
            broken: Cell::new(None),
            image,
        })
    }

    pub fn image(&self) -> &Image {
        &self.image
    }

    /// A number that nobody else has.
    pub fn random(&self) -> u32 {
        self.rt.random() as u32
    }

    pub fn kept(&self, chunk: u32) -> Kept {
        self.chunks.borrow()[chunk as usize]
    }

    pub fn set_kept(&self, chunk: u32, kept: Kept) {
        self.chunks.borrow_mut()[chunk as usize] = kept;
    }

    /// Takes what the sectors of a chunk are known to be by.
    pub fn set_sums(&self, chunk: u32, sums: Vec<u32>) {
        self.sums.borrow_mut()[chunk as usize] = sums;
    }

    /// Whether these are the data that a sector was written with, as far as the file can tell.
    pub fn is_sound(&self, chunk: u32, sector: u32, data: &[u8]) -> bool {
        let sums = self.sums.borrow();
        let sum = sums[chunk as usize].get(sector as usize);
        !self.image.has_sums() || sum == Some(&checksum(&[data]))
    }

    /// Room for write units from `first` on, all of one chunk.
    pub fn stage(&self, first: u64, metadata: &[Metadata]) -> Staged {
        let units = metadata.len() / self.image.geometry().ws_min as usize;
        Staged {
            first,
            metadata: metadata.to_vec(),
            bytes: vec![0; units * self.image.unit_pieces() as usize * PIECE],
        }
    }

    /// The place of a sector among what is staged.
    pub fn sector_of<'a>(&self, staged: &'a mut Staged, sector: usize) -> &'a mut [u8] {
        let size = self.image.geometry().ws_min as usize;
        let piece = sector / size * (size + 1) + 1 + sector % size;
        &mut staged.bytes[piece * PIECE..][..PIECE]
    }

    /// Gives the first `sectors` of what is staged, which are programmed now, their records. The first unit of a chunk
    /// begins a new epoch. In the order in which the units of a chunk are programmed.
    pub fn seal(&self, mut staged: Staged, sectors: usize) -> Option<Sealed> {
        let (chunk, sector) = self.image.chunk_of(staged.first)?;
        let size = self.image.geometry().ws_min as usize;
        let (unit, units) = (sector / size as u32, sectors / size);
        if units == 0 {
            return None;
        }
        let mut chunks = self.chunks.borrow_mut();
        let kept = &mut chunks[chunk as usize];
        if unit == 0 {
            kept.head.epoch = kept.head.epoch.wrapping_add(1);
            kept.durable = 0;
        }
        let sums = &mut self.sums.borrow_mut()[chunk as usize];
        sums.truncate(sector as usize);
        let slots = staged.bytes.chunks_exact_mut((size + 1) * PIECE);
        let metadata = staged.metadata.chunks_exact(size);
        for ((unit, slot), metadata) in (unit..).zip(slots.take(units)).zip(metadata) {
            let (piece, data) = slot.split_at_mut(PIECE);
            let of_sectors: Vec<u32> = data
                .chunks_exact(PIECE)
                .map(|one| checksum(&[one]))
                .collect();
            sums.extend_from_slice(&of_sectors);
            let record = Record {
                chunk,
                unit,
                epoch: kept.head.epoch,
                durable: kept.durable,
                data: checksum(&[data]),
                metadata: metadata.to_vec(),
                sums: of_sectors,
            };
            self.image.encode_record(&record, piece);
        }
        staged.bytes.truncate(units * (size + 1) * PIECE);
        Some(Sealed {
            chunk,
            unit,
            units: units as u32,
            bytes: staged.bytes,
        })
    }

    /// Writes units; durable after a [`FileStore::flush`], of which [`FileStore::flushed`] is to be told.
    pub async fn write(&self, sealed: &Sealed) -> Result<(), IoError> {
        if sealed.unit == 0 {
            self.write_head(sealed.chunk).await?;
        }
        let at = self.image.record(sealed.chunk, sealed.unit);
        let (outcome, buf) = {
            let mut buf = self.large.take().await;
            buf.set_len(sealed.bytes.len());
            buf.copy_from_slice(&sealed.bytes);
            self.file.put(at, buf).await
        };
        self.large.give(buf);
        self.judge(outcome)
    }

    /// Units were flushed after they were written.
    pub fn flushed(&self, sealed: &Sealed) {
        let mut chunks = self.chunks.borrow_mut();
        let kept = &mut chunks[sealed.chunk as usize];
        if kept.durable == sealed.unit {
            kept.durable += sealed.units;
        }
    }

    /// Makes durable what was written before.
    pub async fn flush(&self) -> Result<(), IoError> {
        let outcome = self.file.flush(Tag::default()).await;
        self.judge(outcome)
    }

    /// A chunk has come to an end before it was full; durable after a flush.
    pub async fn end(&self, chunk: u32, fate: Fate) -> Result<(), IoError> {
        self.chunks.borrow_mut()[chunk as usize].head.fate = fate;
        self.write_head(chunk).await
    }

    /// A chunk was erased, `resets` times by now; durable after a flush.
    pub async fn erase(&self, chunk: u32, resets: u32) -> Result<(), IoError> {
        self.set_sums(chunk, Vec::new());
        {
            let mut chunks = self.chunks.borrow_mut();
            let kept = &mut chunks[chunk as usize];
            kept.durable = 0;
            kept.head = Head {
                epoch: kept.head.epoch.wrapping_add(1),
                resets,
                fate: Fate::InUse,
            };
        }
        self.write_head(chunk).await
    }

    /// Gives the space of a chunk back whose erase is durable.
    pub async fn forget(&self, chunk: u32) -> Result<(), IoError> {
        let first = self.image.head(chunk) + 1;
        let pieces = self.image.chunk_pieces() - 1;
        loop {
            let freed = self.file.deallocate(Tag::default(), first, pieces).await;
            match freed {
                Err(IoError::Busy) => self.rt.sleep(PATIENCE).await,
                outcome => return self.judge(outcome),
            }
        }
    }

    /// Reads pieces from `first` on. Damage of the file is told, and changes nothing.
    pub async fn read(&self, first: u64, target: &mut [u8]) -> Result<(), IoError> {
        let stock = match target.len() > FEW * PIECE {
            true => &self.large,
            false => &self.small,
        };
        let most = stock.bytes;
        for (piece, target) in (first..).step_by(most / PIECE).zip(target.chunks_mut(most)) {
            let mut buf = stock.take().await;
            buf.set_len(target.len());
            let (outcome, buf) = self.file.take(piece, buf).await;
            if outcome.is_ok() {
                target.copy_from_slice(&buf);
            }
            stock.give(buf);
            outcome?;
        }
        Ok(())
    }

    /// Writes one piece; durable after a flush.
    pub async fn write_piece(
        &self,
        piece: u64,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), IoError> {
        let mut buf = self.small.take().await;
        buf.set_len(PIECE);
        fill(&mut buf);
        let (outcome, buf) = self.file.put(piece, buf).await;
        self.small.give(buf);
        self.judge(outcome)
    }

    /// Writes the head of a chunk, as it is when its turn has come: the last one written is the newest.
    async fn write_head(&self, chunk: u32) -> Result<(), IoError> {
        self.heads.acquire(1).await;
        let head = self.kept(chunk).head;
        let fill = |piece: &mut [u8]| self.image.encode_head(chunk, &head, piece);
        let outcome = self.write_piece(self.image.head(chunk), fill).await;
        self.heads.release(1);
        outcome
    }

    fn judge(&self, outcome: Result<(), IoError>) -> Result<(), IoError> {
        if let Err(error) = outcome {
            self.broken.set(self.broken.get().or(Some(error)));
        }
        self.broken.get().map_or(Ok(()), Err)
    }
}

/// Buffers that are there for good.
struct Stock {
    bytes: usize,
    bufs: RefCell<Vec<Buf>>,
    there: Semaphore,
}

impl Stock {
    fn new(count: usize, bytes: usize) -> Result<Self, IoError> {
        let bufs: Option<Vec<Buf>> = (0..count).map(|_| Buf::take(bytes)).collect();
        Ok(Self {
            bytes,
            bufs: RefCell::new(bufs.ok_or(IoError::Busy)?),
            there: Semaphore::new(count),
        })
    }

    async fn take(&self) -> Buf {
        self.there.acquire(1).await;
        let buf = self.bufs.borrow_mut().pop();
        buf.expect("there is one for each permit")
    }

    fn give(&self, buf: Buf) {
        self.bufs.borrow_mut().push(buf);
        self.there.release(1);
    }
}
