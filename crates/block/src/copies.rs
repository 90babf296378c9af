//! The copies that a device keeps of its blocks, one by one: for who knows what they should hold.

use std::future::Future;
use std::pin::Pin;

use flashyard_runtime::Buf;

use crate::{IoError, IoFuture, Tag};

/// Ends with how many copies were put right.
pub type Healed = Pin<Box<dyn Future<Output = Result<usize, IoError>>>>;

/// See the module. A range that is read or healed is one of 4 KiB, at a multiple of that.
pub trait Copies {
    /// How many copies of a block can be read now; 0 for what is not on the device.
    fn count(&self, lba: u64) -> usize;

    /// How many of these are stored as they are; the others, which follow, are computed of what
    /// other blocks hold.
    fn stored(&self, lba: u64) -> usize {
        self.count(lba)
    }

    /// All that matters of what is stored was read and verified: the rest may be made to agree with
    /// that, in the background.
    fn verified(&self) {}

    /// Reads one of them into `into`. [`IoError::OutOfRange`] if there is no such copy, or the
    /// range lies on several members.
    fn read(&self, tag: Tag, copy: usize, lba: u64, into: Buf) -> IoFuture;

    /// Writes what a range holds to the copies that hold something else or cannot be read, if a
    /// copy holds it still, and counts these as wrong. Goes to its end once it was polled.
    fn heal(&self, tag: Tag, lba: u64, data: Buf) -> Healed;
}
