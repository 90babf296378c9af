//! An open-channel drive: flash whose chunks the host writes, reads and resets itself, as a model
//! in virtual time.
//!
//! The vector interface of the Open-Channel SSD specification 2.0. A command names up to
//! [`MOST_ADDRESSES`] sectors or chunks, its parts go to the dies they are on, and it is complete
//! when the last of them is. Chunks are written in order, in write units; a write is complete at
//! the end of its program, or, with [`Options::buffered`], once the die has its data.
//!
//! No data are kept, only [metadata](Metadata). [`Device::submit`] says at once which addresses of
//! a write or copy were accepted: the owner may then store their data by address, for what is not
//! yet programmed cannot be read. An address that a read or a power cut reports as readable has the
//! data that were accepted there last. Data of a chunk may be forgotten when its reset is complete.
//!
//! The same commands at the same instants give the same completions, however often
//! [`Device::advance`] is called between them, in every build and on every machine.

mod accept;
mod chunk;
mod execute;
mod faults;
mod geometry;
pub mod load;
mod options;
mod power;
mod restore;
mod status;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::convert::Infallible;
use core::fmt;

use flashyard_time::{Rng, Time};

pub use crate::die::{DieCounts, DieTime};
pub use crate::ssd::BuildError;
pub use chunk::{ChunkInfo, ChunkState};
pub use faults::{Fault, Faults};
pub use geometry::{Geometry, MOST_ADDRESSES, Place};
pub use options::{ChannelOrder, DieOrder, Options};
pub use power::Recovered;
pub use restore::{KeptChunk, Shape};
pub use status::Status;

use crate::Profile;
use crate::die::Engine;
use crate::front::Front;
use chunk::Chunk;
use faults::{FaultSource, Kind};

/// Commands that may be in flight at once.
const MOST_COMMANDS: usize = 65_536;
/// Notifications that are kept until they are taken.
const MOST_NOTIFICATIONS: usize = 4096;

/// What is stored beside the data of a sector, from which recovery finds out what it is.
pub type Metadata = [u64; 2];

/// What a command does with its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Reads sectors, with their metadata.
    Read,
    /// Writes sectors: write units of `ws_min` sectors in order, each unit at the write pointer of
    /// its chunk.
    Write {
        /// Of each sector, or nothing for zeros.
        metadata: &'a [Metadata],
    },
    /// Resets the chunks that begin with these sectors.
    Reset,
    /// Writes what is read from the addresses, with its metadata, to as many others, which are as
    /// for a write.
    Copy {
        /// Where to.
        to: &'a [u64],
    },
}

/// A command to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// Identifies the completion; need not be unique.
    pub tag: u64,
    /// What to do.
    pub op: Op<'a>,
    /// One to [`MOST_ADDRESSES`] packed addresses.
    pub addresses: &'a [u64],
}

/// A command that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// When it was done.
    pub at: Time,
    /// The tag of the command.
    pub tag: u64,
    /// How the first address that failed ended; of all when none did.
    pub status: Status,
    /// A bit for each address, the lowest for the first: it failed.
    pub failed: u64,
    slot: u32,
    serial: u64,
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// No address, too many, or not as many metadata or destinations.
    Length,
    /// As many commands as the device takes are in flight.
    QueueFull,
}

/// Something about a chunk that its writer did not ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The first sector of the chunk.
    pub address: u64,
    /// What happened to it.
    pub event: Event,
}

/// What happened to a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A program failed: the chunk is closed, and ends at its write pointer.
    ClosedEarly,
    /// A reset failed: the chunk is offline.
    ResetFailed,
    /// Its endurance is used up: the chunk is offline.
    WornOut,
}

/// Counters of a device; those of its dies are in [`Device::pu_counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Commands completed.
    pub completions: u64,
    /// Of these, commands with an address that failed.
    pub failures: u64,
    /// Sectors read, by copies too.
    pub read_sectors: u64,
    /// Sectors programmed, by copies too.
    pub written_sectors: u64,
    /// Chunks erased.
    pub resets: u64,
    /// Chunks closed early.
    pub closed_early: u64,
    /// Chunks taken offline since the device was built.
    pub taken_offline: u64,
    /// Notifications dropped because the host did not fetch them; the chunk report has what they
    /// would have reported.
    pub notifications_lost: u64,
}

/// An open-channel device.
#[derive(Debug)]
pub struct Device {
    clock: u64,
    geometry: Geometry,
    options: Options,
    front: Front,
    dies: Engine<Infallible>,
    chunks: Vec<Chunk>,
    /// Of each chunk that was ever written with metadata.
    metadata: Vec<Option<Box<[Metadata]>>>,
    /// Open chunks and resets of each die.
    open: Vec<u32>,
    resets: Vec<u32>,
    commands: Vec<Active>,
    unused: Vec<u32>,
    serial: u64,
    /// The instants at which the firmware and each direction of the link are free.
    firmware_free: u64,
    link_out_free: u64,
    link_in_free: u64,
    lot: FaultSource,
    /// How long programs take.
    spread: Rng,
    notifications: VecDeque<Notification>,
    done: Vec<Completion>,
    stats: Stats,
    digest: u64,
}

/// What a command in flight does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Read,
    Write,
    Reset,
    Copy,
}

/// A command in flight. Its addresses are numbers of sectors, counted over all chunks.
#[derive(Debug)]
struct Active {
    tag: u64,
    serial: u64,
    action: Action,
    count: u8,
    status: Status,
    failed: u64,
    /// Addresses that were accepted.
    accepted: u64,
    /// Parts that the completion waits for.
    parts: u32,
    /// Programs that have not ended, acknowledged or not.
    programs: u32,
    complete: bool,
    units: [u32; MOST_ADDRESSES],
    /// Where a copy goes.
    targets: [u32; MOST_ADDRESSES],
    metadata: Vec<Metadata>,
}

impl Device {
    /// A device with `capacity` bytes of flash, everything erased. What does not fill a chunk of
    /// every parallel unit is left out; smaller devices have smaller chunks. Whatever is left to
    /// chance follows from `seed`.
    pub fn new(
        profile: &Profile,
        capacity: u64,
        seed: u64,
        options: Options,
    ) -> Result<Self, BuildError> {
        let geometry = Geometry::new(profile, capacity, &options)?;
        let chunks = geometry.total_chunks();
        let dies = geometry.total_pus() as usize;
        let mut device = Self {
            clock: 0,
            front: Front::new(profile),
            dies: Engine::new(profile, options.order()),
            chunks: vec![Chunk::new(ChunkState::Free); chunks],
            metadata: vec![None; chunks],
            open: vec![0; dies],
            resets: vec![0; dies],
            commands: Vec::new(),
            unused: Vec::new(),
            serial: 0,
            firmware_free: 0,
            link_out_free: 0,
            link_in_free: 0,
            lot: FaultSource::new(options.faults, seed),
            spread: Rng::new(seed).split(4),
            notifications: VecDeque::new(),
            done: Vec::with_capacity(256),
            stats: Stats::default(),
            digest: 0,
            options,
            geometry,
        };
        for bad in FaultSource::bad_chunks(options.faults, seed, chunks as u32) {
            device.chunks[bad as usize].take_offline();
        }
        Ok(device)
    }

    /// The geometry of the device.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Takes a command at `now`. Events up to `now` happen before it. A bit for each address tells
    /// which were accepted, the lowest for the first: they are executed, and what the others lack
    /// is reported by the completion.
    pub fn submit(&mut self, now: Time, command: Command<'_>) -> Result<u64, Rejected> {
        self.run(now.as_ns());
        let count = command.addresses.len();
        let fits = match command.op {
            Op::Read | Op::Reset => true,
            Op::Write { metadata } => metadata.is_empty() || metadata.len() == count,
            Op::Copy { to } => to.len() == count,
        };
        if !(1..=MOST_ADDRESSES).contains(&count) || !fits {
            return Err(Rejected::Length);
        }
        if self.outstanding() >= MOST_COMMANDS {
            return Err(Rejected::QueueFull);
        }
        Ok(self.accept(command))
    }

    /// When something happens next, if nothing is submitted before; nothing when the device is
    /// idle.
    pub fn next_event(&self) -> Option<Time> {
        if self.done.is_empty() {
            self.dies.events.next_time().map(Time::from_ns)
        } else {
            Some(self.now())
        }
    }

    /// Lets time pass until `now` and adds what was completed to `completions`, in order.
    pub fn advance(&mut self, now: Time, completions: &mut Vec<Completion>) {
        self.run(now.as_ns());
        completions.append(&mut self.done);
    }

    /// The instant up to which everything has happened.
    pub fn now(&self) -> Time {
        Time::from_ns(self.clock)
    }

    /// Commands in flight.
    pub fn outstanding(&self) -> usize {
        self.commands.len() - self.unused.len()
    }

    /// The metadata of a read that is complete, one for each address, zeros for those that failed.
    /// Only until the next command is submitted; then there are none.
    pub fn metadata(&self, completion: &Completion) -> &[Metadata] {
        match self.commands.get(completion.slot as usize) {
            Some(command) if command.serial == completion.serial => &command.metadata,
            _ => &[],
        }
    }

    /// The chunk that holds `address`; nothing when none does.
    pub fn chunk(&self, address: u64) -> Option<ChunkInfo> {
        let place = self.geometry.place(address)?;
        Some(self.chunk_info(self.geometry.chunk_number(place)))
    }

    /// Every chunk, ordered by address.
    pub fn report(&self) -> impl Iterator<Item = ChunkInfo> + '_ {
        let geometry = &self.geometry;
        (0..geometry.total_chunks() as u32).map(move |place| {
            let (pu, chunk) = (place / geometry.chunks, place % geometry.chunks);
            let die = geometry.die(pu / geometry.pus, pu % geometry.pus);
            self.chunk_info(die * geometry.chunks + chunk)
        })
    }

    /// The oldest notification that was not taken.
    pub fn take_notification(&mut self) -> Option<Notification> {
        self.notifications.pop_front()
    }

    /// Injects one failure; false when there is no such address. For tests.
    pub fn inject(&mut self, fault: Fault) -> bool {
        let (kind, address) = match fault {
            Fault::Write(address) => (Kind::Write, address),
            Fault::Reset(address) => (Kind::Reset, address),
            Fault::Read(address) => (Kind::Read, address),
        };
        let unit = self.unit(address);
        if let Some(unit) = unit {
            self.lot.tell(kind, unit);
        }
        unit.is_some()
    }

    /// Counters since the device was built.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Counters of a parallel unit; nothing when there is no such unit.
    pub fn pu_counts(&self, group: u32, pu: u32) -> Option<&DieCounts> {
        let there = group < self.geometry.groups && pu < self.geometry.pus;
        let die = self.geometry.die(group, pu);
        self.dies.counts().nth(die as usize).filter(|_| there)
    }

    /// A number that depends on instant, tag, status and order of every completion so far.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    fn chunk_info(&self, number: u32) -> ChunkInfo {
        let chunk = &self.chunks[number as usize];
        let place = self.geometry.chunk_place(number);
        ChunkInfo {
            address: self
                .geometry
                .address(place)
                .expect("every chunk has an address"),
            state: chunk.state,
            write_pointer: chunk.acknowledged,
            wear_index: chunk.wear_index(self.options.endurance),
            resets: chunk.resets,
            sequential: true,
        }
    }

    /// The number of the sector at `address`.
    fn unit(&self, address: u64) -> Option<u32> {
        let place = self.geometry.place(address)?;
        Some(self.geometry.chunk_number(place) * self.geometry.clba + place.sector)
    }

    /// Chunk and sector of a unit.
    fn split(&self, unit: u32) -> (usize, u32) {
        let chunk = unit / self.geometry.clba;
        (chunk as usize, unit - chunk * self.geometry.clba)
    }

    fn die_of(&self, chunk: usize) -> u32 {
        chunk as u32 / self.geometry.chunks
    }

    fn notify(&mut self, chunk: usize, event: Event) {
        if self.notifications.len() >= MOST_NOTIFICATIONS {
            self.stats.notifications_lost += 1;
            return;
        }
        let address = self.chunk_info(chunk as u32).address;
        self.notifications
            .push_back(Notification { address, event });
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "no address, more than 64, or not as many of what belongs to them",
            Self::QueueFull => "too many commands are in flight",
        })
    }
}

impl core::error::Error for Rejected {}
