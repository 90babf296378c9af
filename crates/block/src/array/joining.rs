//! A copy joins a set: first it is durable that it lacks everything, then that it is rebuilt there.
//! Until both are, no I/O goes to it, and nothing has changed if that cannot be recorded.

use std::rc::Rc;

use flashyard_time::Duration;

use super::changes::{entry, part_of};
use super::error::ArrayError;
use super::flight::is_momentary;
use super::member::Member;
use super::record::{MemberState, Uuid};
use super::regions::Regions;
use super::set::Set;
use super::shared::Shared;
use crate::gate::Span as Range;

/// How long the map of a set is tried to be written for want of memory.
const NO_MEMORY: Duration = Duration::from_secs(5);

impl Shared {
    /// Has `new` rebuilt in the place of `failed`, which is no member any more.
    pub(super) async fn put_in_place(
        self: &Rc<Self>,
        set: &Rc<Set>,
        failed: &Rc<Member>,
        new: &Rc<Member>,
    ) -> Result<(), ArrayError> {
        failed.leaving.set(true);
        new.column.set(failed.column.get());
        let added = self.add_copy(set, new, Some(failed.id)).await;
        match added {
            Ok(()) => {
                set.members.borrow_mut().retain(|it| it.id != failed.id);
                self.unlist(|it| it.id == failed.id);
            }
            Err(_) => failed.leaving.set(false),
        }
        added
    }

    /// Adds a copy to a set, which gets all that the others have; `instead` of a member. If that
    /// cannot be recorded the set is as it was, and `new` is a spare.
    pub(super) async fn add_copy(
        self: &Rc<Self>,
        set: &Rc<Set>,
        new: &Rc<Member>,
        instead: Option<Uuid>,
    ) -> Result<(), ArrayError> {
        new.state.set(MemberState::Rebuilding);
        self.adding.acquire(1).await;
        set.joining.set(true);
        let listed = self.list_copy(set, new, instead).await;
        match listed {
            Ok(()) => set.join(new),
            Err(_) if new.state.get() == MemberState::Rebuilding => {
                new.state.set(MemberState::Spare);
            }
            Err(_) => {}
        }
        if !set.is_degraded() {
            set.regions.borrow_mut().none_missed();
        }
        set.joining.set(false);
        self.adding.release(1);
        self.work();
        listed
    }

    /// Has the map of a set say, durably, that a member lacks everything; then the record, that it
    /// is rebuilt there.
    async fn list_copy(
        self: &Rc<Self>,
        set: &Rc<Set>,
        new: &Rc<Member>,
        instead: Option<Uuid>,
    ) -> Result<(), ArrayError> {
        if set.regions.borrow().count() == 0 {
            let whole = Range {
                start: 0,
                end: u64::MAX,
            };
            // No I/O is in flight while a set begins to keep a map.
            let alone = self.gate.exclude(whole, false).await;
            let _alone = alone.map_err(|_| ArrayError::Closed)?;
            *set.regions.borrow_mut() = Regions::new(set.span.regions() as usize);
        }
        {
            let mut regions = set.regions.borrow_mut();
            let all = 0..regions.count();
            regions.make_missed(all);
        }
        set.persist_in_time().await?;
        let _turn = self.turn().await?;
        self.commit(|record| {
            record.members.retain(|it| Some(it.id) != instead);
            let since = record.generation;
            let copy = entry(new, part_of(set, new), since);
            match record.find(new.id) {
                Some(at) => record.members[at] = copy,
                None => record.members.push(copy),
            }
        })
        .await
    }
}

impl Set {
    /// A member that the record lists is written from now on, and gets all that the others have.
    fn join(self: &Rc<Self>, new: &Rc<Member>) {
        new.data_lba
            .set(self.span.data_start() / u64::from(self.block_size));
        self.members.borrow_mut().push(Rc::clone(new));
        let mut regions = self.regions.borrow_mut();
        let all = 0..regions.count();
        regions.make_missed(all);
        // It has no map yet.
        regions.change_all();
        if self.is_rebuilding() {
            regions.begin_rebuild();
        }
        self.joined.set(self.joined.get() + 1);
    }

    /// Makes the map durable; tries it for a while if memory is short.
    async fn persist_in_time(self: &Rc<Self>) -> Result<(), ArrayError> {
        let deadline = self.rt.now() + NO_MEMORY;
        loop {
            match self.persist().await {
                Err(error) if is_momentary(error) && self.rt.now() < deadline => {
                    self.rt.sleep(Duration::from_ms(100)).await;
                }
                written => return written.map_err(|error| self.map_error(error)),
            }
        }
    }
}
