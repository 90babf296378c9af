//! What is said to an array, and what it says of itself.

use std::num::NonZeroU64;

use flashyard_time::{Duration, Time};

use super::member::{Failure, MemberCounts};
use super::record::{MemberState, Uuid};
use crate::SharedDevice;

/// A device that is to be a member.
#[derive(Clone)]
pub struct NewMember {
    /// What it is called, for people.
    pub name: String,
    /// The device.
    pub device: SharedDevice,
}

/// What a rebuild is beside the I/O of users, where the device has turns to give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RebuildPriority {
    /// High while the next failure would lose data, else low.
    #[default]
    Auto,
    /// In the background: [`Class::Background`](flashyard_sched::Class::Background).
    Low,
    /// It has a share: [`Class::Throughput`](flashyard_sched::Class::Throughput).
    High,
}

/// How an array behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// A member at which an I/O takes longer has failed, at the latest after twice as long.
    pub hang_after: Duration,
    /// What a rebuild is; see [`Array::set_rebuild_priority`](super::Array::set_rebuild_priority).
    pub rebuild_priority: RebuildPriority,
    /// Bytes a second that a rebuild writes to each member at most.
    pub rebuild_limit: Option<NonZeroU64>,
}

impl Default for Options {
    /// Hosts time out after 30 s.
    fn default() -> Self {
        Self {
            hang_after: Duration::from_secs(8),
            rebuild_priority: RebuildPriority::default(),
            rebuild_limit: None,
        }
    }
}

/// What a new array is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Copies of all data: 1 for none beside the first. With parity: all members.
    pub copies: usize,
    /// How many members have parity in each row: so many may be lost. 0 where members are copies.
    pub parity: usize,
    /// Reads compare all copies.
    pub safe_read: bool,
}

/// What an array has counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrayCounts {
    /// Safe reads that found copies different, or that failed at a member, with no write at the
    /// same time.
    pub mismatches: u64,
    /// Ranges whose copies did not agree when they were read with care for the first time.
    pub disagreements: u64,
    /// Ranges of which no content had most copies, or that no member could give: they were answered
    /// with an error.
    pub unresolved: u64,
}

/// How an array is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Given when it was created.
    pub uuid: Uuid,
    /// Number of changes of its record.
    pub generation: u64,
    /// Members that each set is to have: copies, or with parity all of them.
    pub copies: usize,
    /// How many of them have parity in each row.
    pub parity: usize,
    /// Whether reads compare all copies.
    pub safe_read: bool,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its members, spares last.
    pub members: Vec<MemberStatus>,
    /// What is being copied.
    pub rebuild: Option<Rebuild>,
    /// What that is beside the I/O of users.
    pub rebuild_priority: RebuildPriority,
    /// Bytes a second that it writes to each member at most.
    pub rebuild_limit: Option<NonZeroU64>,
    /// The scrub that runs, or the last one.
    pub scrub: Scrub,
    /// Regions whose copies may differ if power were cut now.
    pub dirty_regions: usize,
    /// What it has counted.
    pub counts: ArrayCounts,
    /// What was noticed when it was opened.
    pub notes: Vec<String>,
}

/// How a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// What its device was called when it became a member.
    pub name: String,
    /// Given once.
    pub id: Uuid,
    /// The set that it is a copy of; nothing for a spare.
    pub set: Option<usize>,
    /// How it is.
    pub state: MemberState,
    /// Why it is not used.
    pub failure: Option<Failure>,
    /// What has happened there.
    pub counts: MemberCounts,
    /// It goes when the member that replaces it has everything.
    pub leaving: bool,
}

/// How far copying has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebuild {
    /// Regions that were copied since it began, or since the array was opened.
    pub done: u64,
    /// Regions in all.
    pub of: u64,
    /// How long the rest takes at the speed so far; nothing at the beginning.
    pub left: Option<Duration>,
}

impl Status {
    /// Whether a set has fewer copies than it is to have.
    pub fn is_degraded(&self) -> bool {
        let sets = self.members.iter().filter_map(|it| it.set).max();
        let active = |set: usize| {
            let members = self.members.iter();
            members
                .filter(|it| it.set == Some(set) && it.state == MemberState::Active)
                .count()
        };
        (0..=sets.unwrap_or(0)).any(|set| active(set) < self.copies)
    }
}

/// How fast a rebuild goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    pub(super) begun: Option<Time>,
    /// Regions at the beginning.
    pub(super) of: usize,
}

/// A scrub, the one that runs or the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrub {
    /// Whether it runs.
    pub running: bool,
    /// Regions that were read.
    pub done: u64,
    /// Regions in all.
    pub of: u64,
    /// Ranges in which copies differed or could not be read, and were written anew.
    pub repaired: u64,
    /// Ranges in which copies differ and none is known to be right, or none can be read.
    pub unresolved: u64,
    /// The set of the first ones of these, and the byte in it.
    pub places: Vec<(usize, u64)>,
}
