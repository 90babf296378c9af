//! Arrays: several devices as one, striped, mirrored, or both (RAID 0, 1 and 10), or with parity
//! (RAID 5 and 6).
//!
//! The members of a set have the same data; data are striped over the sets of a span; spans follow
//! each other, so that an array grows by members. Every member has a superblock, kept twice, that
//! says which members there are and which of them have everything, and a map of the regions whose
//! copies may differ.
//!
//! What holds:
//!
//! - A member that fails, or at which an I/O hangs, is not used from then on, and that is durable
//!   on the others before a change that it missed is answered.
//! - A region is dirty in the map, durably, before it is written first. After a crash dirty regions
//!   are made equal before they are read, durably.
//! - Rows with parity are written whole, by who writes them once between two times that they are
//!   not needed: so a row that was torn by a crash is one that nobody was told of. What is in place
//!   lies in a part that all members have alike.
//! - A member that lacks anything is written, and read only when it has everything.
//! - What is assembled is one truth, see `assembly`.
//!
//! Map: `geometry`, `rows`, `record`, `assembly`, `regions`, `vote` and `sums` decide, pure;
//! `places` and `map` are what is on the members; `member`, `set`, `flight` and `row_io` are I/O;
//! `rate_limit` holds a rebuild back; `careful` reads all copies, and `row_repair` does the same
//! with parity; `shared` keeps the record, `changes` changes it, `joining` adds copies, and
//! `rebuild` works in the background.

mod assembly;
mod careful;
mod changes;
mod check;
mod copies;
mod device;
mod error;
mod flight;
mod geometry;
mod joining;
mod map;
mod member;
mod opening;
mod places;
mod rate_limit;
mod rebuild;
mod record;
mod recording;
mod regions;
mod row_io;
mod row_repair;
mod rows;
mod set;
mod shared;
mod sums;
mod types;
mod unneeded;
mod vote;

use std::num::NonZeroU64;
use std::rc::Rc;

pub use assembly::NoRecord;
pub use check::{MemberReport, check};
pub use error::ArrayError;
pub use geometry::MAX_COPIES;
pub use member::{Failure, MemberCounts};
pub use record::{Contradiction, MEMBER_VERSION, MemberState, PARITY_VERSION, SETS_VERSION, Uuid};
pub use rows::MAX_COLUMNS;
pub use types::{
    ArrayCounts, Layout, MemberStatus, NewMember, Options, Rebuild, RebuildPriority, Scrub, Status,
};

use self::geometry::Piece;
use self::member::Member;
use self::set::{At, Set};
use self::shared::Shared;
use crate::IoError;

/// An open array. Lives on the core that all its members live on.
pub struct Array {
    shared: Rc<Shared>,
}

impl Array {
    /// How it is now.
    pub fn status(&self) -> Status {
        let shared = &self.shared;
        let record = shared.record.borrow();
        let members = shared.members.borrow();
        let members = members.iter().map(|member| MemberStatus {
            name: member.label.borrow().clone(),
            id: member.id,
            set: shared.set_of(member.id).map(|set| set.number),
            state: member.state.get(),
            failure: member.failure.get(),
            counts: member.counts.get(),
            leaving: member.leaving.get(),
        });
        let mut members: Vec<MemberStatus> = members.collect();
        members.sort_by_key(|it| it.set.unwrap_or(usize::MAX));
        let sets = shared.all_sets();
        Status {
            uuid: record.array,
            generation: record.generation,
            copies: record.copies as usize,
            parity: record.parity as usize,
            safe_read: record.safe_read,
            bytes: record.geometry.bytes(),
            members,
            rebuild: self.rebuilding(),
            rebuild_priority: shared.rebuild_priority.get(),
            rebuild_limit: shared.rebuild_limit.rate(),
            scrub: shared.scrub.borrow().clone(),
            dirty_regions: sets.iter().map(|set| set.regions.borrow().dirty()).sum(),
            counts: shared.counted(),
            notes: [shared.notes.borrow().clone(), self.losses()].concat(),
        }
    }

    /// What a rebuild cannot copy, since no member can give it.
    fn losses(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for set in self.shared.all_sets() {
            let (regions, lost) = (set.regions.borrow(), set.lost.borrow());
            let mut there = lost.iter().filter(|(at, _)| regions.is_behind(**at));
            let bytes: u64 = there.clone().map(|(_, loss)| loss.bytes).sum();
            let number = set.number;
            if let Some((first, _)) = there.next() {
                let from = *first as u64 * set.span.region;
                notes.push(format!(
                    "{bytes} bytes of set {number}, the first from byte {from} of it on, cannot be read from any member: \
                     all else is rebuilt; write them again, and the rebuild ends a minute later"
                ));
            }
        }
        notes
    }

    fn rebuilding(&self) -> Option<Rebuild> {
        let left = self.shared.to_copy();
        let pace = self.shared.rebuild.get();
        let rebuilt = |it: &Rc<Member>| it.state.get() == MemberState::Rebuilding;
        let rebuilt = self.shared.members.borrow().iter().any(rebuilt);
        if left == 0 && !rebuilt {
            return None;
        }
        let of = pace.of.max(left);
        let done = of - left;
        let took = pace.begun.map(|begun| self.shared.rt.now().since(begun));
        let rest = took.filter(|_| done > 0);
        Some(Rebuild {
            done: done as u64,
            of: of as u64,
            left: rest.map(|took| took.scale(left as u64, done as u64)),
        })
    }

    /// Adds sets of new members: the array grows while it is used.
    pub async fn add(&self, devices: Vec<NewMember>, force: bool) -> Result<(), ArrayError> {
        self.shared.add_sets(devices, force).await
    }

    /// Adds hot spares.
    pub async fn add_spares(&self, devices: Vec<NewMember>, force: bool) -> Result<(), ArrayError> {
        self.shared.add_spares(devices, force).await
    }

    /// Has a device rebuilt in the place of a member, which may be the same device if it has
    /// failed. A member that works is used until the new one has everything.
    pub async fn replace(&self, old: &str, new: NewMember, force: bool) -> Result<(), ArrayError> {
        self.shared.replace(old, new, force).await
    }

    /// Takes a spare, or a member that its set does not need, away.
    pub async fn remove(&self, name: &str) -> Result<(), ArrayError> {
        self.shared.remove(name).await
    }

    /// Reads all copies of everything, in the background, and repairs what differs. Goes on with
    /// one that runs.
    pub fn scrub(&self) {
        let mut scrub = self.shared.scrub.borrow_mut();
        if !scrub.running {
            let sets = self.shared.all_sets();
            *scrub = Scrub {
                running: true,
                of: sets.iter().map(|set| set.span.regions()).sum(),
                ..Scrub::default()
            };
        }
        drop(scrub);
        self.shared.work();
    }

    /// Ends a scrub.
    pub fn stop_scrub(&self) {
        self.shared.scrub.borrow_mut().running = false;
    }

    /// What a rebuild is beside the I/O of users, from the next piece on. It is not kept on the
    /// members.
    pub fn set_rebuild_priority(&self, priority: RebuildPriority) {
        self.shared.rebuild_priority.set(priority);
    }

    /// Bytes a second that a rebuild writes to each member at most, from the next piece on. It is
    /// not kept on the members.
    pub fn set_rebuild_limit(&self, limit: Option<NonZeroU64>) {
        self.shared.rebuild_limit.set(limit);
    }

    /// The names of devices that are used no more and have I/O that has not ended: failed members,
    /// and former ones. Until it has, it may change them.
    pub fn unfinished(&self) -> Vec<String> {
        let unfinished = self.shared.unfinished().into_iter();
        unfinished.map(|it| it.label.borrow().clone()).collect()
    }

    /// Refuses to let go of a device that is used no more and has I/O that has not ended.
    pub fn check_finished(&self, name: &str) -> Result<(), ArrayError> {
        self.shared.check_finished(name)
    }

    /// Ends the array: later I/O gets [`IoError::NotReady`], what was issued has ended when this
    /// does, nothing is dirty then, and no superblock is written any more.
    pub async fn close(&self) {
        self.shared.queue.end();
        self.shared.gate.close(IoError::NotReady);
        self.shared.gate.drained().await;
        self.shared.clean_rested(true).await;
        self.shared.end_changes().await;
    }

    /// Takes the array off its devices, which count as empty then. After it nothing else works.
    pub async fn destroy(&self) -> Result<(), ArrayError> {
        self.shared.queue.end();
        self.shared.gate.close(IoError::NotReady);
        self.shared.gate.drained().await;
        self.shared.end_changes().await;
        let members = self.shared.members.borrow().clone();
        for member in members {
            if let Some(device) = &member.device {
                let erased = places::Start(&**device).erase().await;
                let name = || member.label.borrow().clone();
                erased.map_err(|error| ArrayError::Device(name(), "erasing", error))?;
            }
        }
        Ok(())
    }
}

impl Shared {
    /// As much of a range as lies in one set.
    fn piece(&self, at: u64, bytes: u64) -> Option<(Rc<Set>, At)> {
        let record = self.record.borrow();
        let Piece { set, at, bytes } = record.geometry.first_piece(at, bytes)?;
        let set = self.sets.borrow().get(set).cloned()?;
        Some((set, At { at, bytes }))
    }
}
