//! Flash in a file. What is programmed is written and flushed before its completion is reported, so
//! that the device can be opened again after the program, or the power of the machine, has gone at
//! any instant.
//!
//! A flush serves all writes that ended before it. When the file fails, the device is out of order
//! until it is opened again, since what the file holds is unknown. Where its file system has no
//! space left, writes wait for space and nothing is lost: none of them was reported as complete.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use flashyard_block::{DeviceExt, FileDevice, IoError, Tag};
use flashyard_flash::channel::{MOST_ADDRESSES, Metadata};
use flashyard_runtime::sync::Semaphore;
use flashyard_runtime::{Buf, Rt};
use flashyard_time::Duration;

use super::image::{Fate, Head, Image, PIECE, Record, checksum};

/// Transfers of many pieces, and of few, that can be in flight: memory is kept for them, so that
/// none has to wait for what hosts have taken.
const LARGE: usize = 16;
const SMALL: usize = 64;
/// Heads that can be written at once; two of the same chunk never are.
const HEADS_AT_ONCE: usize = 16;
/// Pieces of a small transfer.
const FEW: usize = 4;
/// How long to wait for memory that is in use.
const PATIENCE: Duration = Duration::from_ms(1);
/// The interval of retries when there is no space.
const SPACE_PAUSE: Duration = Duration::from_ms(100);

/// See the module.
pub(super) struct FileStore {
    rt: Rt,
    pub(super) file: FileDevice,
    image: Image,
    chunks: RefCell<Vec<Kept>>,
    /// Of each chunk, the checksums of its sectors, as far as it is written.
    sums: RefCell<Vec<Vec<u32>>>,
    growing: RefCell<BTreeMap<u32, Growing>>,
    /// Held by the heads that are being written.
    heads: Vec<Semaphore>,
    large: Stock,
    small: Stock,
    broken: Cell<Option<IoError>>,
    /// Writes that wait for space, whether any may, and what is called for the first.
    without_space: Cell<u32>,
    waits_for_space: Cell<bool>,
    on_full: RefCell<Option<Box<dyn Fn()>>>,
}

/// What is known of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub head: Head,
    /// Write units that are durable.
    pub durable: u32,
}

/// A chunk whose head does not have its records yet.
#[derive(Debug, Default)]
struct Growing {
    /// What the records say, for the head.
    bodies: Vec<u8>,
    /// Runs of units that are durable, though units before them are not yet: the first, and the one
    /// behind the last.
    early: BTreeMap<u32, u32>,
}

/// Write units of one chunk that follow each other, as they are in the file: room for each record,
/// and the sectors.
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
            growing: RefCell::default(),
            heads: (0..HEADS_AT_ONCE).map(|_| Semaphore::new(1)).collect(),
            large: Stock::new(LARGE, most * PIECE)?,
            small: Stock::new(SMALL, FEW * PIECE)?,
            broken: Cell::new(None),
            without_space: Cell::new(0),
            waits_for_space: Cell::new(false),
            on_full: RefCell::default(),
            image,
        })
    }

    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Whether something waits for space.
    pub fn is_full(&self) -> bool {
        self.without_space.get() > 0
    }

    /// Whether to wait for space from now on, or to fail without it.
    pub fn wait_for_space(&self, wait: bool) {
        self.waits_for_space.set(wait);
    }

    /// Sets what is called when a write begins to wait for space.
    pub fn on_full(&self, tell: impl Fn() + 'static) {
        self.on_full.replace(Some(Box::new(tell)));
    }

    /// A random number, for identifiers.
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

    /// Gives a chunk that is in its last state the records that its head is to have;
    /// [`FileStore::settle`] writes it.
    pub fn set_bodies(&self, chunk: u32, bodies: Vec<u8>) {
        let early = BTreeMap::new();
        let growing = Growing { bodies, early };
        self.growing.borrow_mut().insert(chunk, growing);
    }

    /// Chunks whose heads do not have their records yet.
    pub fn unsettled(&self) -> Vec<u32> {
        self.growing.borrow().keys().copied().collect()
    }

    /// Heads that can be read at once.
    pub fn heads_together(&self) -> u32 {
        let pieces = self.large.bytes / PIECE;
        (pieces as u32 / self.image.head_pieces() as u32).max(1)
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

    /// Gives the first `sectors` of what is staged, which are programmed now, their records. The
    /// first unit of a chunk begins a new epoch. In the order in which the units of a chunk are
    /// programmed.
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
            self.set_bodies(chunk, Vec::new());
        }
        let sums = &mut self.sums.borrow_mut()[chunk as usize];
        sums.truncate(sector as usize);
        let mut growing = self.growing.borrow_mut();
        let bodies = growing.get_mut(&chunk).map(|one| &mut one.bodies);
        let mut bodies = bodies.filter(|_| self.image.settles());
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
            if let Some(bodies) = &mut bodies {
                bodies.extend_from_slice(self.image.body(piece));
            }
        }
        staged.bytes.truncate(units * (size + 1) * PIECE);
        Some(Sealed {
            chunk,
            unit,
            units: units as u32,
            bytes: staged.bytes,
        })
    }

    /// Writes units; durable after a [`FileStore::flush`] that is reported by
    /// [`FileStore::flushed`].
    pub async fn write(&self, sealed: &Sealed) -> Result<(), IoError> {
        if sealed.unit == 0 {
            self.write_head(sealed.chunk, &[]).await?;
        }
        let at = self.image.record(sealed.chunk, sealed.unit);
        self.write_pieces(at, &sealed.bytes).await
    }

    /// Units were flushed after they were written.
    pub fn flushed(&self, sealed: &Sealed) {
        let mut growing = self.growing.borrow_mut();
        let Some(Growing { early, .. }) = growing.get_mut(&sealed.chunk) else {
            return;
        };
        early.insert(sealed.unit, sealed.unit + sealed.units);
        let durable = &mut self.chunks.borrow_mut()[sealed.chunk as usize].durable;
        while let Some(behind) = early.remove(durable) {
            *durable = behind;
        }
    }

    /// Gives the chunk of these units its records into its head, if it is full and durable now.
    pub async fn settle_full(&self, sealed: &Sealed) -> Result<(), IoError> {
        match self.kept(sealed.chunk).durable == self.image.units() {
            true => self.settle(sealed.chunk).await,
            false => Ok(()),
        }
    }

    /// Gives a chunk to which nothing is added its records into its head, as far as they are
    /// durable.
    pub async fn settle(&self, chunk: u32) -> Result<(), IoError> {
        let growing = self.growing.borrow_mut().remove(&chunk);
        let Some(Growing { mut bodies, .. }) = growing.filter(|_| self.image.settles()) else {
            return Ok(());
        };
        let durable = {
            let kept = &mut self.chunks.borrow_mut()[chunk as usize];
            let sectors = kept.durable * self.image.geometry().ws_min;
            kept.head.fate = Fate::Settled(sectors);
            kept.durable
        };
        bodies.truncate(durable as usize * self.image.body_bytes());
        self.write_head(chunk, &bodies).await
    }

    /// Makes durable what was written before.
    pub async fn flush(&self) -> Result<(), IoError> {
        let outcome = self.file.flush(Tag::default()).await;
        self.judge(outcome)
    }

    /// A chunk has come to an end before it was full; durable after a flush.
    pub async fn end(&self, chunk: u32, fate: Fate) -> Result<(), IoError> {
        self.chunks.borrow_mut()[chunk as usize].head.fate = fate;
        self.growing.borrow_mut().remove(&chunk);
        self.write_head(chunk, &[]).await
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
        self.write_head(chunk, &[]).await
    }

    /// Gives the space of a chunk back whose erase is durable.
    pub async fn forget(&self, chunk: u32) -> Result<(), IoError> {
        let first = self.image.record(chunk, 0);
        let pieces = self.image.data_pieces();
        loop {
            let freed = self.file.deallocate(Tag::default(), first, pieces).await;
            match freed {
                Err(IoError::Busy) => self.rt.sleep(PATIENCE).await,
                outcome => return self.judge(outcome),
            }
        }
    }

    /// Reads pieces from `first` on. Damage of the file is an error, and changes nothing.
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
        let mut bytes = [0; PIECE];
        fill(&mut bytes);
        self.write_pieces(piece, &bytes).await
    }

    async fn write_pieces(&self, first: u64, bytes: &[u8]) -> Result<(), IoError> {
        let mut waited = false;
        let outcome = loop {
            match self.try_write(first, bytes).await {
                Err(IoError::NoSpace) if self.waits_for_space.get() => {
                    if !waited {
                        self.begin_wait();
                    }
                    waited = true;
                    self.rt.sleep(SPACE_PAUSE).await;
                }
                outcome => break outcome,
            }
        };
        let waiting = self.without_space.get() - u32::from(waited);
        self.without_space.set(waiting);
        self.judge(outcome)
    }

    fn begin_wait(&self) {
        let before = self.without_space.get();
        self.without_space.set(before + 1);
        if before == 0
            && let Some(tell) = &*self.on_full.borrow()
        {
            tell();
        }
    }

    async fn try_write(&self, first: u64, bytes: &[u8]) -> Result<(), IoError> {
        let stock = match bytes.len() > FEW * PIECE {
            true => &self.large,
            false => &self.small,
        };
        let each = stock.bytes / PIECE;
        for (piece, part) in (first..).step_by(each).zip(bytes.chunks(stock.bytes)) {
            let mut buf = stock.take().await;
            buf.set_len(part.len());
            buf.copy_from_slice(part);
            let (outcome, buf) = self.file.put(piece, buf).await;
            stock.give(buf);
            outcome?;
        }
        Ok(())
    }

    /// Writes the head of a chunk, as it is when its turn has come, with the records in it or none:
    /// the last one written is the newest.
    async fn write_head(&self, chunk: u32, bodies: &[u8]) -> Result<(), IoError> {
        let turn = &self.heads[chunk as usize % HEADS_AT_ONCE];
        turn.acquire(1).await;
        let head = self.kept(chunk).head;
        let pieces = match bodies.is_empty() {
            true => 1,
            false => self.image.head_pieces() as usize,
        };
        let mut bytes = vec![0; pieces * PIECE];
        self.image.encode_head(chunk, &head, bodies, &mut bytes);
        let outcome = self.write_pieces(self.image.head(chunk), &bytes).await;
        turn.release(1);
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
