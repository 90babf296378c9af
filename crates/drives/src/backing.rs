//! What partitions are built on: parallel units with chunks, in the model of an open-channel device
//! or in the zones of a real one.

use std::rc::Weak;

use flashyard_block::IoError;
use flashyard_flash::channel::{ChunkInfo, Geometry, Metadata, Op, Rejected};
use flashyard_runtime::Rt;
use flashyard_time::{Histogram, Time};

/// An owner submits commands, and is notified when they end.
pub(crate) trait Owner {
    /// A command is complete, at this instant of the device.
    fn completed(&self, at: Time, done: &Done);

    /// The instant that was asked for by [`Backing::set_alarm`] has come.
    fn alarm(&self, at: Time);

    /// The device has failed: no command is ever completed any more.
    fn lost(&self) {}

    /// The store of the device has no space left: until there is some, nothing is written, and
    /// writes in flight are not complete.
    fn full(&self) {}
}

/// A vector command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vector<'a> {
    pub op: Op<'a>,
    pub addresses: &'a [u64],
    /// Of a read: a bit for each address whose data are wanted; of the others only the metadata
    /// are.
    pub wanted: u64,
}

/// A command that is complete.
#[derive(Debug)]
pub(crate) struct Done {
    pub tag: u32,
    /// A bit for each address that failed, the lowest for the first.
    pub failed: u64,
    /// Of a read, of each address.
    pub metadata: Vec<Metadata>,
}

/// Names an owner.
pub(crate) type OwnerId = usize;

/// See the module. The default answers are those of a real device.
pub(crate) trait Backing {
    fn rt(&self) -> &Rt;

    fn geometry(&self) -> &Geometry;

    /// Units that partitions may have in all; nothing when all of them.
    fn most_units(&self) -> Option<u32> {
        None
    }

    /// Write vectors that may be in flight at once in one chunk.
    fn writes_per_chunk(&self) -> u32;

    /// Adds an owner that will submit commands.
    fn register(&self, owner: Weak<dyn Owner>) -> OwnerId;

    /// Whether the power was not taken away.
    fn is_on(&self) -> bool {
        true
    }

    /// The device's time, after everything that is due was reported.
    fn catch_up(&self) -> Time;

    /// Submits a command at an instant that is not before the last report. Which addresses were
    /// accepted: a bit each. Data of those of a write are [stored](Self::store) before anything
    /// else happens. Nothing when the power is off.
    fn submit(
        &self,
        at: Time,
        owner: OwnerId,
        tag: u32,
        vector: Vector<'_>,
    ) -> Option<Result<u64, Rejected>>;

    /// To be called after submitting: what was submitted may be due.
    fn doorbell(&self) {}

    /// Notifies `owner` at `alarm`; without a time, no more.
    fn set_alarm(&self, owner: OwnerId, alarm: Option<Time>);

    /// Stores data of a sector of a write that was accepted. Nothing when the power is off.
    fn store(
        &self,
        owner: OwnerId,
        tag: u32,
        address: u64,
        data: &[u8],
    ) -> Option<Result<(), IoError>>;

    /// Gives a sector of the read whose completion is being reported; false when it is lost.
    fn read(&self, address: u64, target: &mut [u8]) -> bool;

    /// The chunk that begins at `address` was reset: what was in it may be forgotten.
    fn forget(&self, _address: u64) {}

    /// The chunk that holds `address`; nothing when none does, or the power is off.
    fn chunk(&self, address: u64) -> Option<ChunkInfo>;

    /// Every chunk, ordered by address.
    fn report(&self) -> Vec<ChunkInfo>;

    /// How much later than due completions were reported to `owner`, in nanoseconds of the
    /// machine's clock.
    fn lateness(&self, _owner: OwnerId) -> Histogram {
        Histogram::new()
    }

    /// Whether its content survives the end of the program.
    fn is_kept(&self) -> bool {
        true
    }

    /// Whether its store has no space left for writes.
    fn is_full(&self) -> bool {
        false
    }

    /// Whether to wait for space from now on, or to fail without it.
    fn wait_for_space(&self, _wait: bool) {}

    /// Why it has failed, if it has.
    fn failure(&self) -> Option<IoError> {
        None
    }
}
