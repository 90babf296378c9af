//! What the sets of an array share: its record, members that fail, and looks at what hangs and what
//! has rested.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use flashyard_runtime::Rt;
use flashyard_runtime::sync::{Notify, Semaphore};
use flashyard_time::Duration;

use super::member::{Failure, Member};
use super::rate_limit::RateLimit;
use super::record::{MemberState, Record};
use super::set::Set;
use super::types::{ArrayCounts, Options, Pace, RebuildPriority, Scrub};
use crate::gate::Gate;
use crate::turns::Queue;
use crate::{Device, Io, IoError, Tag, Unneeded};

/// How often dirty regions are looked at.
const REST: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct Shared {
    pub(super) rt: Rt,
    pub(super) options: Options,
    pub(super) gate: Rc<Gate>,
    pub(super) record: RefCell<Record>,
    /// All members, spares included, in the order of the record.
    pub(super) members: RefCell<Vec<Rc<Member>>>,
    /// Former members at which I/O has not ended.
    former: RefCell<Vec<Rc<Member>>>,
    pub(super) sets: RefCell<Vec<Rc<Set>>>,
    pub(super) notes: RefCell<Vec<String>>,
    /// Held by who changes the record: see [`Shared::turn`].
    pub(super) changing: Semaphore,
    /// Held by who adds members, from before they are written until the record lists them.
    pub(super) adding: Semaphore,
    /// How many members have failed so far, and of how many of these the record says so.
    pub(super) failures: Cell<u64>,
    pub(super) durable_failures: Cell<u64>,
    pub(super) recorded: Notify,
    /// Why the last record could not be made durable.
    pub(super) unrecorded: Cell<Option<IoError>>,
    pub(super) recording: Cell<bool>,
    /// Spares that could not be taken are tried again some time.
    pub(super) retrying: Cell<bool>,
    watching_hangs: Cell<bool>,
    watching_rests: Cell<bool>,
    pub(super) working: Cell<bool>,
    pub(super) closed: Cell<bool>,
    counts: Cell<ArrayCounts>,
    /// Where background work takes its turns.
    pub(super) queue: Queue,
    /// What members that are rebuilt need not get.
    pub(super) unneeded: RefCell<Option<Unneeded>>,
    pub(super) scrub: RefCell<Scrub>,
    pub(super) rebuild: Cell<Pace>,
    pub(super) rebuild_priority: Cell<RebuildPriority>,
    pub(super) rebuild_limit: RateLimit,
    pub(super) blank: Cell<bool>,
}

impl Shared {
    pub(super) fn new(rt: &Rt, options: Options, record: Record, blank: bool) -> Rc<Self> {
        Rc::new(Self {
            rt: rt.clone(),
            options,
            gate: Gate::new(rt),
            record: RefCell::new(record),
            members: RefCell::default(),
            former: RefCell::default(),
            sets: RefCell::default(),
            notes: RefCell::default(),
            changing: Semaphore::new(1),
            adding: Semaphore::new(1),
            failures: Cell::new(0),
            durable_failures: Cell::new(0),
            recorded: Notify::new(),
            unrecorded: Cell::new(None),
            recording: Cell::new(false),
            retrying: Cell::new(false),
            watching_hangs: Cell::new(false),
            watching_rests: Cell::new(false),
            working: Cell::new(false),
            closed: Cell::new(false),
            counts: Cell::default(),
            queue: Queue::default(),
            unneeded: RefCell::default(),
            scrub: RefCell::default(),
            rebuild: Cell::default(),
            rebuild_priority: Cell::new(options.rebuild_priority),
            rebuild_limit: RateLimit::new(options.rebuild_limit),
            blank: Cell::new(blank),
        })
    }

    /// Counts something.
    pub(super) fn counts(&self, change: impl FnOnce(&mut ArrayCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    pub(super) fn counted(&self) -> ArrayCounts {
        self.counts.get()
    }

    /// The sets, as they are now.
    pub(super) fn all_sets(&self) -> Vec<Rc<Set>> {
        self.sets.borrow().clone()
    }

    /// Takes members out of the list; of those at which I/O has not ended that is remembered.
    pub(super) fn unlist(&self, gone: impl Fn(&Member) -> bool) {
        let mut former = self.former.borrow_mut();
        former.retain(|it| it.load() > 0);
        self.members.borrow_mut().retain(|it| {
            let stays = !gone(it);
            if !stays && it.load() > 0 {
                former.push(Rc::clone(it));
            }
            stays
        });
    }

    /// Members that are not used, and former ones, at which I/O has not ended: it may still change
    /// their devices.
    pub(super) fn unfinished(&self) -> Vec<Rc<Member>> {
        let (members, former) = (self.members.borrow(), self.former.borrow());
        let failed = members
            .iter()
            .filter(|it| it.state.get() == MemberState::Failed);
        let unfinished = failed.chain(former.iter()).filter(|it| it.load() > 0);
        unfinished.cloned().collect()
    }

    /// Stops using a member, unless it is the last one of its set that has everything.
    pub(super) fn fail(self: &Rc<Self>, set: &Set, member: &Rc<Member>, why: Failure) -> bool {
        match member.state.get() {
            MemberState::Failed => return true,
            MemberState::Active if !set.can_lose(member) => return false,
            _ => {}
        }
        member.fail(why);
        self.failures.set(self.failures.get() + 1);
        {
            let mut regions = set.regions.borrow_mut();
            if !set.is_rebuilding() {
                regions.end_rebuild();
            }
            if set.active() == 1 && !set.is_rebuilding() {
                regions.none_unequal();
            }
        }
        set.wake_flights();
        self.record_failures();
        true
    }

    /// Stops using a member of any set, or a spare; true if it was used until now.
    pub(super) fn fail_anywhere(self: &Rc<Self>, member: &Rc<Member>, why: Failure) -> bool {
        if member.state.get() == MemberState::Failed {
            return false;
        }
        let sets = self.all_sets();
        let of = |set: &&Rc<Set>| set.all().iter().any(|it| it.id == member.id);
        match sets.iter().find(of) {
            Some(set) => self.fail(set, member, why),
            None => {
                member.fail(why);
                self.failures.set(self.failures.get() + 1);
                self.record_failures();
                true
            }
        }
    }

    /// Looks for I/Os that hang, as long as there are any in flight.
    #[inline]
    pub(super) fn watch_hangs(self: &Rc<Self>) {
        if !self.watching_hangs.replace(true) {
            let (this, rt) = (Rc::downgrade(self), self.rt.clone());
            let period = self.options.hang_after.scale(1, 2);
            self.rt.spawn(watch_hangs(this, rt, period)).detach();
        }
    }

    /// Fails those at which an I/O hangs; false if none is in flight.
    fn look_for_hangs(self: &Rc<Self>) -> bool {
        let mut in_flight = false;
        for set in self.all_sets() {
            let members = set.members_that(|it| it.state.get() != MemberState::Failed);
            for member in members {
                in_flight |= member.load() > 0;
                if member.look() {
                    self.fail(&set, &member, Failure::Hung);
                }
            }
        }
        in_flight
    }

    /// Looks at the dirty regions, as long as there are any.
    pub(super) fn watch_rests(self: &Rc<Self>) {
        if !self.watching_rests.replace(true) {
            let (this, rt) = (Rc::downgrade(self), self.rt.clone());
            self.rt.spawn(watch_rests(this, rt)).detach();
        }
    }

    /// Notes what has rested as clean; false if nothing is dirty.
    pub(super) async fn clean_rested(self: &Rc<Self>, at_once: bool) -> bool {
        let mut dirty = false;
        for set in self.all_sets() {
            let rested = set.regions.borrow_mut().rested(at_once);
            if !rested.is_empty() && set.flush_all().await.is_ok() {
                let degraded = set.is_degraded();
                set.regions.borrow_mut().clean(&rested, degraded, at_once);
            }
            if set.regions.borrow().has_changed() {
                // What is not clean there is written again some time.
                let _ = set.persist().await;
            }
            dirty |= set.regions.borrow().has_dirty();
        }
        dirty
    }
}

async fn watch_hangs(this: Weak<Shared>, rt: Rt, period: Duration) {
    loop {
        rt.sleep(period).await;
        let Some(shared) = this.upgrade() else { return };
        if !shared.look_for_hangs() {
            shared.watching_hangs.set(false);
            return;
        }
    }
}

async fn watch_rests(this: Weak<Shared>, rt: Rt) {
    loop {
        rt.sleep(REST).await;
        let Some(shared) = this.upgrade() else { return };
        if shared.closed.get() || !shared.clean_rested(false).await {
            shared.watching_rests.set(false);
            return;
        }
    }
}

impl Set {
    /// Flushes all members that are written; the error of one that is used still. One that failed
    /// counts no more.
    pub(super) async fn flush_all(self: &Rc<Self>) -> Result<(), IoError> {
        let mut flushed = Ok(());
        for member in self.members_that(Member::is_written) {
            let flush = |device: &dyn Device| device.submit(Tag::default(), Io::Flush);
            if let Err(error) = self.run(&member, flush).await {
                if error != IoError::Busy {
                    self.give_up(&member, error);
                }
                if member.is_written() {
                    flushed = Err(error);
                }
            }
        }
        flushed
    }
}
