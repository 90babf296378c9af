//! The two places of the layout on a device: a chunk at each end of it. A chunk is reset before a
//! copy is written to it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use flashyard_block::superblock::{
    self, Content, Found, Newest, Places, Raw, Reads, Unusable, WritablePlaces,
};
use flashyard_flash::UNIT_BYTES;
use flashyard_flash::channel::{ChunkInfo, ChunkState, MOST_ADDRESSES, Op};
use flashyard_runtime::sync::oneshot;
use flashyard_time::Time;

use super::error::PartitionError;
use super::layout::Layout;
use super::medium::SECTOR;
use super::units::{OwnUnits, Scope, copies};
use crate::backing::{Backing, Done, Owner, Vector};

/// Sectors of a copy at most.
pub(super) const SECTORS: usize = Layout::MAX_BYTES.div_ceil(SECTOR);

/// How often a copy is written before its flash counts as failed.
const TRIES: u32 = 4;

/// Access to both copies.
pub(super) struct Copies {
    units: OwnUnits,
    next: Cell<u32>,
    waiting: RefCell<BTreeMap<u32, Waiting>>,
}

/// A task that waits for a command.
struct Waiting {
    sender: oneshot::Sender<Ended>,
    /// Of a read, what is wanted.
    addresses: Vec<u64>,
}

/// How a command ended: a bit for each address that failed, and the sectors of a read.
#[derive(Debug, Default)]
struct Ended {
    failed: u64,
    data: Vec<u8>,
}

impl Owner for Copies {
    fn completed(&self, _at: Time, done: &Done) {
        let waiting = self.waiting.borrow_mut().remove(&done.tag);
        let Some(Waiting { sender, addresses }) = waiting else {
            return;
        };
        let mut ended = Ended {
            failed: done.failed,
            data: vec![0; addresses.len() * SECTOR],
        };
        let sectors = ended.data.chunks_exact_mut(SECTOR).zip(&addresses);
        for (place, (sector, &address)) in sectors.enumerate() {
            let lost = ended.failed >> place & 1 == 0 && !self.units.read(address, sector);
            ended.failed |= u64::from(lost) << place;
        }
        let _whoever_asked_may_have_gone = sender.send(ended);
    }

    fn alarm(&self, _at: Time) {}
}

impl Places for Copies {
    type Error = PartitionError;
    type Bytes = Vec<u8>;

    async fn read(&self, place: usize) -> Result<Reads<Vec<u8>>, PartitionError> {
        let first = copies(self.units.drive().geometry())[place];
        let chunk = self.units.chunk(first).ok_or(PartitionError::Off)?;
        if chunk.state == ChunkState::Free {
            return Ok(vec![Raw::Blank]);
        }
        let mut bytes = vec![0; SECTORS * SECTOR];
        let addresses: Vec<u64> = (first..).take(SECTORS).collect();
        for (part, addresses) in addresses.chunks(MOST_ADDRESSES).enumerate() {
            let ended = self.vector(Op::Read, addresses, &[]).await?;
            if part == 0 && ended.failed & 1 == 1 {
                return Ok(vec![Raw::Unreadable]);
            }
            let at = part * MOST_ADDRESSES * SECTOR;
            bytes[at..at + ended.data.len()].copy_from_slice(&ended.data);
        }
        Ok(vec![Raw::Bytes(bytes)])
    }
}

impl WritablePlaces for Copies {
    type Laid = Vec<u8>;

    fn lay_out(&self, bytes: &[u8]) -> Result<Vec<u8>, PartitionError> {
        Ok(bytes.to_vec())
    }

    /// A program that failed is tried again in the chunk that was erased; one that cannot be erased
    /// ends it.
    async fn write(&self, place: usize, laid: Vec<u8>) -> Result<(), PartitionError> {
        for _ in 1..TRIES {
            match self.try_write(place, &laid).await {
                Err(PartitionError::Medium) => {}
                outcome => return outcome,
            }
        }
        self.try_write(place, &laid).await
    }
}

impl Copies {
    /// The copies on a device. It has at least two units, and chunks long enough.
    pub fn new(drive: &Rc<dyn Backing>) -> Result<Rc<Self>, PartitionError> {
        let geometry = drive.geometry();
        let bound = (geometry.clba as usize) < SECTORS + 2 * geometry.mw_cunits as usize;
        if geometry.total_pus() < 2 || bound {
            return Err(PartitionError::Geometry(format!(
                "an open-channel device needs two units and chunks of {} sectors: make it larger",
                SECTORS + 2 * geometry.mw_cunits as usize
            )));
        }
        Ok(Rc::new_cyclic(|this: &Weak<Self>| {
            let owner: Weak<dyn Owner> = this.clone();
            Self {
                units: OwnUnits::new(drive, Scope::Layout, owner),
                next: Cell::new(0),
                waiting: RefCell::default(),
            }
        }))
    }

    /// The newest state; nothing when the device never had any.
    pub async fn find(&self) -> Result<Option<Newest<Layout>>, PartitionError> {
        newest(superblock::find(self).await?, self.is_used())
    }

    /// Writes the copy that is not the newest. One that cannot be written any more stays as it is;
    /// the next change reports that.
    pub async fn repair(&self, newest: &Newest<Layout>) -> Result<(), PartitionError> {
        match superblock::repair(self, newest).await {
            Err(PartitionError::Medium) => Ok(()),
            outcome => outcome,
        }
    }

    /// Makes `layout`, which has its new generation, the state on the device; `newest` is the copy
    /// that counted. The copy that counts now.
    pub async fn commit(&self, layout: &Layout, newest: usize) -> Result<usize, PartitionError> {
        let prepared = superblock::prepare(self, layout)?;
        superblock::commit(self, prepared, newest).await
    }

    /// Whether something was written elsewhere on the device.
    fn is_used(&self) -> bool {
        let drive = self.units.drive();
        let own = copies(drive.geometry());
        let written = |chunk: &ChunkInfo| {
            let written = matches!(chunk.state, ChunkState::Open | ChunkState::Closed);
            written && !own.contains(&chunk.address)
        };
        drive.report().iter().any(written)
    }

    /// Writes a copy, and as much behind it as makes it readable.
    async fn try_write(&self, copy: usize, bytes: &[u8]) -> Result<(), PartitionError> {
        let geometry = self.units.drive().geometry().clone();
        let first = copies(&geometry)[copy];
        let state = self.units.chunk(first).ok_or(PartitionError::Off)?.state;
        if state != ChunkState::Free {
            self.succeed(Op::Reset, &[first], &[]).await?;
            self.units.forget(first);
        }
        let sectors = bytes.len().div_ceil(UNIT_BYTES as usize) + geometry.mw_cunits as usize;
        let sectors = sectors.next_multiple_of(geometry.ws_min as usize);
        let addresses: Vec<u64> = (first..).take(sectors).collect();
        for (place, unit) in addresses.chunks(geometry.ws_min as usize).enumerate() {
            let at = place * unit.len() * SECTOR;
            let data = bytes.get(at..).unwrap_or_default();
            let write = Op::Write { metadata: &[] };
            self.succeed(write, unit, data).await?;
        }
        Ok(())
    }

    /// Stores data of a write unit that was accepted, zeros behind their end.
    fn store(&self, tag: u32, addresses: &[u64], data: &[u8]) -> Result<(), PartitionError> {
        let mut sectors = data.chunks(SECTOR);
        for &address in addresses {
            let mut sector = [0; SECTOR];
            let data = sectors.next().unwrap_or_default();
            sector[..data.len()].copy_from_slice(data);
            let stored = self.units.store(tag, address, &sector);
            stored
                .ok_or(PartitionError::Off)?
                .map_err(|_| PartitionError::Memory)?;
        }
        Ok(())
    }

    async fn succeed(
        &self,
        op: Op<'_>,
        addresses: &[u64],
        data: &[u8],
    ) -> Result<(), PartitionError> {
        match self.vector(op, addresses, data).await?.failed {
            0 => Ok(()),
            _ => Err(PartitionError::Medium),
        }
    }

    /// Does a vector command, a write with its data.
    async fn vector(
        &self,
        op: Op<'_>,
        addresses: &[u64],
        data: &[u8],
    ) -> Result<Ended, PartitionError> {
        let tag = self.next.get();
        self.next.set(tag.wrapping_add(1));
        let (sender, receiver) = oneshot::channel();
        let waiting = Waiting {
            sender,
            addresses: match op {
                Op::Read => addresses.to_vec(),
                _ => Vec::new(),
            },
        };
        self.waiting.borrow_mut().insert(tag, waiting);
        let at = self.units.drive().catch_up();
        let vector = Vector {
            op,
            addresses,
            wanted: u64::MAX,
        };
        let submitted = self.units.submit(at, tag, vector);
        let Ok(accepted) = submitted else {
            self.waiting.borrow_mut().remove(&tag);
            return Err(PartitionError::Off);
        };
        if matches!(op, Op::Write { .. }) && accepted != 0 {
            self.store(tag, addresses, data)?;
        }
        self.units.drive().doorbell();
        receiver.await.ok_or(PartitionError::Off)
    }
}

/// The newest of two copies, on a device on which something else is `used` or not.
pub(super) fn newest(
    found: Found<Layout>,
    used: bool,
) -> Result<Option<Newest<Layout>>, PartitionError> {
    match found.newest() {
        Ok(newest) => Ok(Some(newest)),
        // When one is damaged, the first write of all was interrupted, and it was never reported.
        Err(Unusable::Absent | Unusable::Unfinished(_)) if !used => Ok(None),
        Err(why) => Err(why.into()),
    }
}

impl From<Unusable> for PartitionError {
    fn from(why: Unusable) -> Self {
        let [first, second] = match why {
            Unusable::Newer(version) => return Self::Newer(version),
            Unusable::Absent => ["there is none", "there is none"].map(String::from),
            Unusable::Unfinished(copies) | Unusable::Damaged(copies) => copies,
        };
        Self::Damaged(format!("first copy: {first}; second copy: {second}"))
    }
}
