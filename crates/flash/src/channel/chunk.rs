//! A chunk and its rules: what may be written, read and reset in which state.

use super::{Geometry, Status};

/// The state of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChunkState {
    /// Erased; a write at its first sector opens it.
    Free,
    /// Partly written.
    Open,
    /// Not to be written before it is reset: full, or closed early.
    Closed,
    /// Out of use for good.
    Offline,
}

/// What a device reports of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkInfo {
    /// The address of its first sector.
    pub address: u64,
    /// Its state.
    pub state: ChunkState,
    /// Sectors of acknowledged writes, where the next write goes if the chunk is open. A closed
    /// chunk ends here: it may hold fewer sectors than others, when it was closed early, and none
    /// when its reset was interrupted. After a power cut it is what was programmed, which may be
    /// less than was acknowledged, by no more than `mw_cunits`.
    pub write_pointer: u32,
    /// How worn it is, from 0 to 255 where the endurance ends; without a limit, resets, and 255 for
    /// all above.
    pub wear_index: u8,
    /// How often it was erased.
    pub resets: u32,
    /// It is written from its start to its end: the only type there is.
    pub sequential: bool,
}

/// A chunk. Sectors are written, then acknowledged, then programmed; without early acknowledgement
/// the last two are the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub state: ChunkState,
    /// A reset was accepted.
    pub resetting: bool,
    pub resets: u32,
    /// Where the next write has to begin.
    pub next: u32,
    pub acknowledged: u32,
    /// Sectors that can be read once the chunk is closed.
    pub programmed: u32,
    /// Sectors before this one and not programmed were destroyed.
    pub torn: u32,
    /// Write units accepted whose program has not ended.
    pub writers: u32,
    /// Sectors of accepted reads that have not been sensed.
    pub readers: u32,
    /// The reset that waits for readers and writers.
    pub waiting: Option<u32>,
}

impl Chunk {
    pub fn new(state: ChunkState) -> Self {
        Self {
            state,
            resetting: false,
            resets: 0,
            next: 0,
            acknowledged: 0,
            programmed: 0,
            torn: 0,
            writers: 0,
            readers: 0,
            waiting: None,
        }
    }

    /// Nothing is in flight that a reset has to wait for.
    pub fn is_quiet(&self) -> bool {
        self.readers == 0 && self.writers == 0
    }

    /// Whether a write unit may begin at `sector`.
    pub fn may_write(&self, sector: u32) -> Result<(), Status> {
        match self.state {
            ChunkState::Offline => Err(Status::Offline),
            ChunkState::Closed => Err(Status::OutOfOrder),
            _ if self.resetting || sector != self.next => Err(Status::OutOfOrder),
            _ => Ok(()),
        }
    }

    /// Whether `sector` may be read.
    pub fn may_read(&self, sector: u32, geometry: &Geometry) -> Result<(), Status> {
        let readable = match self.state {
            ChunkState::Offline => return Err(Status::Offline),
            _ if self.resetting => return Err(Status::Unwritten),
            ChunkState::Free => 0,
            ChunkState::Open => self.acknowledged.saturating_sub(geometry.mw_cunits),
            ChunkState::Closed => self.programmed,
        };
        match sector {
            _ if sector < readable => Ok(()),
            _ if sector < self.torn => Err(Status::Unreadable),
            _ => Err(Status::Unwritten),
        }
    }

    /// Whether a reset may be accepted; what was accepted before it is done first.
    pub fn may_reset(&self, geometry: &Geometry) -> Result<(), Status> {
        let allowed = match self.state {
            ChunkState::Offline => return Err(Status::Offline),
            ChunkState::Free => geometry.reset_free,
            ChunkState::Open => geometry.reset_open,
            ChunkState::Closed => true,
        };
        (allowed && !self.resetting)
            .then_some(())
            .ok_or(Status::InvalidReset)
    }

    /// Ends the chunk where its programmed sectors end; those from there up to `torn` are
    /// destroyed.
    pub fn close_early(&mut self, torn: u32) {
        self.state = ChunkState::Closed;
        self.next = self.programmed;
        self.acknowledged = self.programmed;
        self.torn = self.torn.max(torn);
    }

    /// Is erased, and free again.
    pub fn erased(&mut self) {
        *self = Self {
            resets: self.resets + 1,
            ..Self::new(ChunkState::Free)
        };
    }

    /// Leaves use.
    pub fn take_offline(&mut self) {
        *self = Self {
            resets: self.resets,
            ..Self::new(ChunkState::Offline)
        };
    }

    /// From 0 to 255.
    pub fn wear_index(&self, endurance: u32) -> u8 {
        let worn = if endurance == 0 {
            u64::from(self.resets)
        } else {
            u64::from(self.resets) * 255 / u64::from(endurance)
        };
        worn.min(255) as u8
    }
}
