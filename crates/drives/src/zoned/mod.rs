//! The zones of a real zoned block device as the chunks of parallel units, for partitions with
//! translation layers of their own.
//!
//! The kernel's zoned interface and the vector interface of open-channel devices agree in what
//! matters: space is written in order, at a pointer that the device keeps, and erased as a whole. A
//! zone is a chunk; N consecutive zones form one parallel unit. Three things differ, and are
//! handled here:
//!
//! - A zone has no place beside its data: [`unit`] keeps what belongs there in the last block of
//!   each write unit.
//! - A write is complete when it is durable (`RWF_DSYNC`); so nothing has to be written behind it.
//! - A device limits the number of active zones. At that limit, the zone that was written least
//!   recently is finished before another one is begun; its owner then learns that the chunk was
//!   closed early.
//!
//! Which channels zones share inside a device is not known: tenants have their own flash and
//! garbage collection, but not their own channels.
//!
//! Map: `unit` is the bytes, `survey` what is found when a device is opened, `commands` what
//! becomes of vectors; `look` is for those who only want to know what is there.

mod commands;
mod look;
mod survey;
mod unit;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::rc::{Rc, Weak};

use flashyard_block::{IoError, OpenError};
use flashyard_flash::channel::{ChunkInfo, ChunkState, Geometry, Op, Place, Rejected};
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Buf, File, Rt, Zoned};
use flashyard_time::Time;

use crate::backing::{Backing, Owner, OwnerId, Vector};
use commands::Staged;
pub(crate) use look::{Sight, Undivided, is_zoned};
use unit::{SECTOR, Trailer};

/// Trailers that are remembered, some 320 bytes each.
const TRAILERS: usize = 4096;
/// Zones that a unit of a partition may have partly written: one for what hosts write, one for what
/// is moved, one for checkpoints.
const ACTIVE_PER_UNIT: u32 = 3;
/// Zones that the layout of the partitions may have partly written.
const ACTIVE_OF_LAYOUT: u32 = 1;

/// See the module.
pub(crate) struct Zones {
    rt: Rt,
    file: File,
    facts: Zoned,
    geometry: Geometry,
    state: RefCell<State>,
    /// A zone is not written any more, or not active.
    calmed: Notify,
    this: Weak<Self>,
}

struct State {
    /// Units follow each other.
    chunks: Vec<Chunk>,
    owners: Vec<Registered>,
    /// Writes whose data are on their way.
    staged: BTreeMap<(OwnerId, u32), Staged>,
    trailers: Trailers,
    /// What the read brought whose completion is being reported.
    reporting: Vec<Piece>,
    /// Counts writes.
    writes: u64,
}

struct Registered {
    owner: Weak<dyn Owner>,
    alarm: Option<Time>,
    /// Commands that were submitted, and whose end is not reported yet.
    in_flight: usize,
}

impl Registered {
    /// It is gone, and nothing that is meant for it can come, except an alarm, which counts only
    /// for the owner that has set it.
    fn is_vacant(&self) -> bool {
        self.in_flight == 0 && self.owner.strong_count() == 0
    }
}

/// A zone as a chunk.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    /// Where the zone begins, in bytes.
    start: u64,
    state: ChunkState,
    /// Sectors that are written, by whole units.
    written: u32,
    /// The device counts it as partly written.
    active: bool,
    /// A write, reset or finish is in flight.
    busy: bool,
    /// The zone can hold more than its units: it has to be finished when they are written.
    room_left: bool,
    /// The number of the last write.
    used: u64,
}

impl Chunk {
    /// What it is as number `index` of the device.
    fn info(&self, geometry: &Geometry, index: usize) -> ChunkInfo {
        let place = Place {
            group: 0,
            pu: index as u32 / geometry.chunks,
            chunk: index as u32 % geometry.chunks,
            sector: 0,
        };
        let address = geometry.address(place);
        ChunkInfo {
            address: address.expect("every chunk has an address"),
            state: self.state,
            write_pointer: self.written,
            wear_index: 0,
            resets: 0,
            sequential: true,
        }
    }

    /// Whether a sector can be read.
    fn has(&self, sector: u32) -> bool {
        let readable = matches!(self.state, ChunkState::Open | ChunkState::Closed);
        readable && sector < self.written
    }
}

/// Where a chunk is in the list of all.
fn index(geometry: &Geometry, place: &Place) -> usize {
    place.pu as usize * geometry.chunks as usize + place.chunk as usize
}

/// Data of sectors of one unit that follow each other.
struct Piece {
    /// Address of the first sector.
    address: u64,
    /// How many of them there are. Behind them the buffer may hold the trailer: by its place on the
    /// medium it would be taken for the first sector of the next unit.
    sectors: usize,
    buf: Buf,
}

impl Piece {
    fn sector(&self, address: u64) -> Option<&[u8]> {
        let sector = usize::try_from(address.checked_sub(self.address)?).ok()?;
        let bytes = || sector * SECTOR..(sector + 1) * SECTOR;
        (sector < self.sectors).then(|| &self.buf[bytes()])
    }
}

impl Zones {
    /// Opens a host-managed zoned block device, exclusively, with its zones dealt out to
    /// `units`; without a number, to as many as make sense.
    pub async fn open(rt: &Rt, path: &Path, units: Option<u32>) -> Result<Rc<Self>, OpenError> {
        let found = survey::open(rt, path, units).await?;
        Ok(Rc::new_cyclic(|this: &Weak<Self>| Self {
            rt: rt.clone(),
            file: found.file,
            facts: found.facts,
            geometry: found.geometry,
            state: RefCell::new(State {
                chunks: found.chunks,
                owners: Vec::new(),
                staged: BTreeMap::new(),
                trailers: Trailers::default(),
                reporting: Vec::new(),
                writes: 0,
            }),
            calmed: Notify::new(),
            this: this.clone(),
        }))
    }

    fn info(&self, chunk: usize) -> ChunkInfo {
        let zone = self.state.borrow().chunks[chunk];
        zone.info(&self.geometry, chunk)
    }

    /// Where a chunk is in the list.
    fn index(&self, place: &Place) -> usize {
        index(&self.geometry, place)
    }

    fn ring(&self, owner: OwnerId, at: Time) {
        let mut state = self.state.borrow_mut();
        let registered = &mut state.owners[owner];
        if registered.alarm != Some(at) {
            return;
        }
        registered.alarm = None;
        let owner = registered.owner.upgrade();
        drop(state);
        if let Some(owner) = owner {
            owner.alarm(self.rt.turn_time());
        }
    }
}

impl Backing for Zones {
    fn rt(&self) -> &Rt {
        &self.rt
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn writes_per_chunk(&self) -> u32 {
        1
    }

    fn catch_up(&self) -> Time {
        self.rt.turn_time()
    }

    fn most_units(&self) -> Option<u32> {
        most_units(&self.facts)
    }

    fn register(&self, owner: Weak<dyn Owner>) -> OwnerId {
        let owners = &mut self.state.borrow_mut().owners;
        let registered = Registered {
            owner,
            alarm: None,
            in_flight: 0,
        };
        match owners.iter().position(Registered::is_vacant) {
            Some(id) => {
                owners[id] = registered;
                id
            }
            None => {
                owners.push(registered);
                owners.len() - 1
            }
        }
    }

    fn submit(
        &self,
        _: Time,
        owner: OwnerId,
        tag: u32,
        vector: Vector<'_>,
    ) -> Option<Result<u64, Rejected>> {
        let this = self.this.upgrade().expect("the caller holds it");
        self.state.borrow_mut().owners[owner].in_flight += 1;
        let (addresses, wanted) = (vector.addresses.to_vec(), vector.wanted);
        let all = u64::MAX >> (u64::BITS as usize - addresses.len().clamp(1, 64));
        let task = match vector.op {
            Op::Read => self
                .rt
                .spawn(async move { this.read_vector(owner, tag, addresses, wanted).await }),
            Op::Reset => self
                .rt
                .spawn(async move { this.reset_vector(owner, tag, addresses).await }),
            Op::Write { metadata } => {
                if !self.stage(owner, tag, metadata, &addresses) {
                    self.rt
                        .spawn(async move { this.tell(owner, tag, u64::MAX, Vec::new()) })
                        .detach();
                    return Some(Ok(0));
                }
                self.rt
                    .spawn(async move { this.write_vector(owner, tag).await })
            }
            // No FTL asks a zoned device to copy.
            Op::Copy { .. } => self
                .rt
                .spawn(async move { this.tell(owner, tag, u64::MAX, Vec::new()) }),
        };
        task.detach();
        Some(Ok(all))
    }

    fn set_alarm(&self, owner: OwnerId, alarm: Option<Time>) {
        let former = std::mem::replace(&mut self.state.borrow_mut().owners[owner].alarm, alarm);
        let Some(at) = alarm.filter(|_| alarm != former) else {
            return;
        };
        let this = self.this.clone();
        let sleep = self.rt.sleep_until(at);
        let ring = async move {
            sleep.await;
            if let Some(this) = this.upgrade() {
                this.ring(owner, at);
            }
        };
        self.rt.spawn(ring).detach();
    }

    fn store(
        &self,
        owner: OwnerId,
        tag: u32,
        address: u64,
        data: &[u8],
    ) -> Option<Result<(), IoError>> {
        let mut state = self.state.borrow_mut();
        let staged = state.staged.get_mut(&(owner, tag));
        let stored = staged
            .and_then(|staged| staged.sector(address))
            .map(|sector| sector.copy_from_slice(data));
        Some(stored.ok_or(IoError::OutOfRange))
    }

    fn read(&self, address: u64, target: &mut [u8]) -> bool {
        let state = self.state.borrow();
        let mut pieces = state.reporting.iter();
        let Some(sector) = pieces.find_map(|piece| piece.sector(address)) else {
            return false;
        };
        target.copy_from_slice(sector);
        true
    }

    fn chunk(&self, address: u64) -> Option<ChunkInfo> {
        let place = self.geometry.place(address)?;
        Some(self.info(self.index(&place)))
    }

    fn report(&self) -> Vec<ChunkInfo> {
        let count = self.state.borrow().chunks.len();
        (0..count).map(|chunk| self.info(chunk)).collect()
    }
}

/// Units that partitions may have in all on a device; nothing when all.
fn most_units(facts: &Zoned) -> Option<u32> {
    let active = facts.active_most.checked_sub(ACTIVE_OF_LAYOUT)?;
    Some(active / ACTIVE_PER_UNIT)
}

/// A cache of trailers of units that were read or written recently.
#[derive(Default)]
struct Trailers {
    known: BTreeMap<(usize, u32), Rc<Trailer>>,
    order: VecDeque<(usize, u32)>,
}

impl Trailers {
    /// The trailer of a unit of a chunk.
    fn get(&self, chunk: usize, unit: u32) -> Option<Rc<Trailer>> {
        self.known.get(&(chunk, unit)).cloned()
    }

    fn put(&mut self, chunk: usize, unit: u32, trailer: Rc<Trailer>) {
        if self.known.insert((chunk, unit), trailer).is_some() {
            return;
        }
        self.order.push_back((chunk, unit));
        if self.order.len() > TRAILERS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Forgets those of a chunk that was erased.
    fn forget(&mut self, chunk: usize) {
        self.known.retain(|(of, _), _| *of != chunk);
        self.order.retain(|(of, _)| *of != chunk);
    }
}

#[cfg(test)]
mod tests;
