//! What partitions stand on: the model of an open-channel device, or the zones of a real one. To
//! those above, both are units with chunks.

use std::rc::{Rc, Weak};

use flashyard_flash::channel::{ChunkInfo, Geometry, Op, Rejected};
use flashyard_runtime::Rt;
use flashyard_time::{Histogram, Time};

use super::drive::{Drive, Owner, OwnerId};
use super::medium::Medium;
use crate::zoned::Zones;
use flashyard_block::IoError;

/// See the module.
#[derive(Clone)]
pub(super) enum Backing {
    Model(Rc<Drive>),
    Zones(Rc<Zones>),
}

impl Backing {
    pub fn rt(&self) -> &Rt {
        match self {
            Self::Model(drive) => drive.rt(),
            Self::Zones(zones) => zones.rt(),
        }
    }

    pub fn geometry(&self) -> &Geometry {
        match self {
            Self::Model(drive) => drive.geometry(),
            Self::Zones(zones) => zones.geometry(),
        }
    }

    /// Units that partitions may have in all; nothing when all of them.
    pub fn most_units(&self) -> Option<u32> {
        match self {
            Self::Model(_) => None,
            Self::Zones(zones) => zones.most_units(),
        }
    }

    /// Write vectors that may be under way at once in one chunk.
    pub fn writes_per_chunk(&self) -> u32 {
        match self {
            Self::Model(_) => 2,
            Self::Zones(_) => 1,
        }
    }

    /// Adds somebody who will submit commands.
    pub fn register(&self, owner: Weak<dyn Owner>) -> OwnerId {
        match self {
            Self::Model(drive) => drive.register(owner),
            Self::Zones(zones) => zones.register(owner),
        }
    }

    /// Whether the power was not taken away.
    pub fn is_on(&self) -> bool {
        match self {
            Self::Model(drive) => drive.is_on(),
            Self::Zones(_) => true,
        }
    }

    /// The device's time, after everything that is due was told.
    pub fn catch_up(&self) -> Time {
        match self {
            Self::Model(drive) => drive.catch_up(),
            Self::Zones(zones) => zones.rt().turn_time(),
        }
    }

    /// To be called after submitting: what was submitted may be due.
    pub fn hurry(&self) {
        match self {
            Self::Model(drive) => drive.hurry(),
            // Commands go their way by themselves.
            Self::Zones(_) => {}
        }
    }

    /// Submits a command. Which addresses were accepted: a bit each. Data of those of a write are
    /// [stored](Self::store) before anything else happens. Of a read, data of the addresses in
    /// `wanted` are wanted, of others metadata only. Nothing when the power is off.
    pub fn submit(
        &self,
        at: Time,
        owner: OwnerId,
        tag: u32,
        op: Op<'_>,
        (addresses, wanted): (&[u64], u64),
    ) -> Option<Result<u64, Rejected>> {
        match self {
            Self::Model(drive) => drive.submit(at, owner, tag, op, (addresses, wanted)),
            Self::Zones(zones) => Some(Ok(zones.submit(owner, tag, op, addresses, wanted))),
        }
    }

    /// Has `owner` told at `alarm`, or not any more.
    pub fn set_alarm(&self, owner: OwnerId, alarm: Option<Time>) {
        match self {
            Self::Model(drive) => drive.set_alarm(owner, alarm),
            Self::Zones(zones) => zones.set_alarm(owner, alarm),
        }
    }

    /// Stores data of a sector of a write that was accepted. Nothing when the power is off.
    pub fn store(
        &self,
        owner: OwnerId,
        tag: u32,
        address: u64,
        data: &[u8],
    ) -> Option<Result<(), IoError>> {
        match self {
            Self::Model(drive) => drive.store(address, data),
            Self::Zones(zones) => Some(zones.store(owner, tag, address, data)),
        }
    }

    /// Gives a sector of the read whose completion is being told; false when it is lost.
    pub fn read(&self, address: u64, target: &mut [u8]) -> bool {
        match self {
            Self::Model(drive) => drive.read(address, target),
            Self::Zones(zones) => zones.read(address, target),
        }
    }

    /// The chunk that begins at `address` was reset: what was in it may be forgotten.
    pub fn forget(&self, address: u64) {
        match self {
            Self::Model(drive) => drive.forget(address),
            // The device did that.
            Self::Zones(_) => {}
        }
    }

    /// The chunk that holds `address`; nothing when none does, or the power is off.
    pub fn chunk(&self, address: u64) -> Option<ChunkInfo> {
        match self {
            Self::Model(drive) => drive.chunk(address),
            Self::Zones(zones) => zones.chunk(address),
        }
    }

    /// Every chunk.
    pub fn report(&self) -> Vec<ChunkInfo> {
        match self {
            Self::Model(drive) => drive.report(),
            Self::Zones(zones) => zones.report(),
        }
    }

    /// How much later than due completions were told, in nanoseconds of the machine's clock.
    /// Of what was told to one owner, or to all.
    pub fn lateness(&self, owner: Option<OwnerId>) -> Histogram {
        match self {
            Self::Model(drive) => drive.lateness(owner),
            Self::Zones(_) => Histogram::new(),
        }
    }

    /// Bytes of memory that the content takes.
    pub fn allocated(&self) -> u64 {
        match self {
            Self::Model(drive) => drive.allocated(),
            Self::Zones(_) => 0,
        }
    }

    /// Whether it is kept when the program ends.
    pub fn is_kept(&self) -> bool {
        match self {
            Self::Model(drive) => drive.is_kept(),
            Self::Zones(_) => true,
        }
    }

    /// Whether what a model is in has no space left for what is to be written.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Model(drive) => drive.is_full(),
            Self::Zones(_) => false,
        }
    }

    /// Whether to wait for space from now on, or to fail without it.
    pub fn wait_for_space(&self, wait: bool) {
        if let Self::Model(drive) = self {
            drive.wait_for_space(wait);
        }
    }

    /// Why it has failed, if it has.
    pub fn failure(&self) -> Option<IoError> {
        match self {
            Self::Model(drive) => drive.failure(),
            Self::Zones(_) => None,
        }
    }

    /// Finishes when the file of a model is not used any more.
    pub async fn idle(&self) {
        match self {
            Self::Model(drive) => drive.idle().await,
            Self::Zones(_) => {}
        }
    }

    /// Takes the power of a model away: what the flash keeps. Nothing of a real device.
    pub fn cut(&self) -> Option<Medium> {
        match self {
            Self::Model(drive) => drive.cut(),
            Self::Zones(_) => None,
        }
    }
}
