//! What the sets of an array share: its record and who keeps it durable, members that fail, and
//! looks at what hangs and what has rested.
//!
//! A member that fails is not used from that moment on, and no change is answered before the record
//! without it is durable on all members that are left.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use flashyard_runtime::Rt;
use flashyard_runtime::sync::{Notify, Semaphore};
use flashyard_time::Duration;

use super::careful::to_the_end;
use super::error::ArrayError;
use super::member::{Failure, Member};
use super::record::{MemberState, Part, Record};
use super::set::Set;
use super::types::{ArrayCounts, Options, Pace, Scrub};
use crate::gate::Gate;
use crate::io::Done;
use crate::turns::Queue;
use crate::{Device, Io, IoError, IoFuture, Tag, Unneeded};

/// How often dirty regions are looked at.
const REST: Duration = Duration::from_secs(2);

/// How long a record that could not be made durable is left alone.
const UNRECORDED: Duration = Duration::from_secs(1);

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
    changing: Semaphore,
    /// Held by who adds members, from before they are written until the record lists them.
    pub(super) adding: Semaphore,
    /// How many members have failed so far, and of how many of these the record says so.
    failures: Cell<u64>,
    durable_failures: Cell<u64>,
    recorded: Notify,
    /// Why the last record could not be made durable.
    unrecorded: Cell<Option<IoError>>,
    recording: Cell<bool>,
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
    pub(super) blank: Cell<bool>,
}

/// The right to change the record of an array.
pub(super) struct Turn(Rc<Shared>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.changing.release(1);
    }
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

    /// Whether every failure is durable.
    #[inline]
    pub(super) fn is_recorded(&self) -> bool {
        self.failures.get() == self.durable_failures.get()
    }

    /// Ends well when every failure is durable; with an error when that cannot be for now.
    pub(super) fn when_recorded(self: &Rc<Self>) -> IoFuture {
        let shared = Rc::clone(self);
        IoFuture::boxed(async move {
            loop {
                match (shared.is_recorded(), shared.unrecorded.get()) {
                    (true, _) => return Ok(Done::EMPTY),
                    (false, Some(error)) => return Err(error),
                    (false, None) => shared.recorded.notified().await,
                }
            }
        })
    }

    /// Waits until no other task changes the record; nobody else does while the turn is held.
    ///
    /// # Errors
    /// The array is closed: its devices may be somebody else's.
    pub(super) async fn turn(self: &Rc<Self>) -> Result<Turn, ArrayError> {
        self.changing.acquire(1).await;
        let turn = Turn(Rc::clone(self));
        match self.closed.get() {
            true => Err(ArrayError::Closed),
            false => Ok(turn),
        }
    }

    /// Ends all changes of the record: none is under way when this ends, and none comes later.
    pub(super) async fn end_changes(&self) {
        self.closed.set(true);
        self.changing.acquire(1).await;
        self.changing.release(1);
    }

    /// What was found out at the start could not be made durable: it counts as a failure that is
    /// not, until it is.
    pub(super) fn record_later(self: &Rc<Self>) {
        self.failures.set(self.failures.get() + 1);
        self.record_failures();
    }

    /// Makes failures durable, and has spares take the places of those members.
    pub(super) fn record_failures(self: &Rc<Self>) {
        if self.recording.replace(true) {
            return;
        }
        let (this, rt) = (Rc::downgrade(self), self.rt.clone());
        self.rt
            .spawn(async move {
                while let Some(shared) = this.upgrade() {
                    if shared.is_recorded() {
                        shared.recording.set(false);
                        shared.take_spares().await;
                        return shared.work();
                    }
                    let Ok(turn) = shared.turn().await else {
                        shared.recording.set(false);
                        return shared.is_unrecorded(IoError::NotReady);
                    };
                    let recorded = shared.commit(|_| ()).await;
                    drop((turn, shared));
                    if recorded.is_err() {
                        rt.sleep(UNRECORDED).await;
                    }
                }
            })
            .detach();
    }

    /// Failures cannot be made durable for now: who waits for that gets this.
    fn is_unrecorded(&self, error: IoError) {
        self.unrecorded.set(Some(error));
        self.recorded.notify_all();
    }

    /// Makes a changed record durable on all members that have not failed, with the states that
    /// they have now. A member that cannot take it has failed, and the record says so then. If so
    /// many cannot that the array could be opened without it, nothing has changed. Who calls this
    /// has the turn.
    pub(super) async fn commit(
        self: &Rc<Self>,
        change: impl FnOnce(&mut Record),
    ) -> Result<(), ArrayError> {
        self.unrecorded.set(None);
        let before = self.record.borrow().clone();
        let mut record = before.next(self.rt.random());
        change(&mut record);
        loop {
            let failures = self.failures.get();
            self.note_states(&mut record);
            let failed = self.write_to(self.written(&record), &record).await;
            *self.record.borrow_mut() = record.clone();
            let mut without = Vec::new();
            for (member, why) in failed {
                self.fail_anywhere(&member, why);
                if member.state.get() != MemberState::Failed {
                    without.push((member, why));
                }
            }
            if let Some(error) = self.is_not_durable(&without) {
                // Those that have it continue this history.
                let Record {
                    generation,
                    history,
                    ..
                } = record;
                *self.record.borrow_mut() = Record {
                    generation,
                    history,
                    ..before
                };
                self.is_unrecorded(IoError::Write);
                return Err(error);
            }
            self.durable_failures.set(failures);
            if self.is_recorded() {
                self.recorded.notify_all();
                return Ok(());
            }
            record = record.next(self.rt.random());
        }
    }

    /// Why a record does not rule that some members lack, which are the last of their sets: all
    /// members of a set have to have it, for no array is opened without one of each set.
    fn is_not_durable(&self, without: &[(Rc<Member>, Failure)]) -> Option<ArrayError> {
        let (first, why) = without.first()?;
        let lacks = |set: &Rc<Set>| {
            let members = set.all();
            let mut active = members.iter().filter(|it| it.is_active());
            active.all(|it| without.iter().any(|(member, _)| member.id == it.id))
        };
        if !self.all_sets().iter().all(lacks) {
            return None;
        }
        let error = match why {
            Failure::Error(error) => *error,
            Failure::Missing | Failure::Hung => IoError::NotReady,
        };
        let name = first.label.borrow().clone();
        let action = "writing the superblock of";
        Some(ArrayError::Device(name, action, error))
    }

    fn note_states(&self, record: &mut Record) {
        for member in self.members.borrow().iter() {
            if let Some(at) = record.find(member.id) {
                let state = member.state.get();
                let is_copy = record.members[at].part != Part::Spare;
                if is_copy && state == MemberState::Failed {
                    record.set_state(at, state);
                }
            }
        }
        // A spare that does not work is none.
        let failed = |id| {
            let members = self.members.borrow();
            let mut members = members.iter();
            members.any(|it| it.id == id && it.state.get() == MemberState::Failed)
        };
        let keep = |it: &super::record::Member| it.part != Part::Spare || !failed(it.id);
        record.members.retain(keep);
    }

    /// Writes the record that was found to members that a power cut kept it from. One that cannot
    /// take it has failed, unless it is needed: then the next record will say what is wrong. Who
    /// calls this has the turn.
    pub(super) async fn complete(self: &Rc<Self>, found: &Record, behind: &[usize]) {
        let mut members = self.written(found);
        members.retain(|it| behind.iter().any(|at| found.members[*at].id == it.id));
        for (member, why) in self.write_to(members, found).await {
            self.fail_anywhere(&member, why);
        }
    }

    /// The members that a record is written to: those it lists that are used.
    fn written(&self, record: &Record) -> Vec<Rc<Member>> {
        let mut members = self.members.borrow().clone();
        members.retain(|member| {
            let known = record.find(member.id).is_some();
            known && member.state.get() != MemberState::Failed
        });
        members
    }

    /// Writes a record to members, at the same time; gives those that failed.
    async fn write_to(
        self: &Rc<Self>,
        members: Vec<Rc<Member>>,
        record: &Record,
    ) -> Vec<(Rc<Member>, Failure)> {
        let writes = members.into_iter().map(|member| {
            let own = Record {
                own: member.id,
                ..record.clone()
            };
            let (rt, bound) = (self.rt.clone(), self.options.hang_after);
            self.rt.spawn(async move {
                let (own_rt, writer) = (rt.clone(), Rc::clone(&member));
                let write = async move { writer.write_record(&own_rt, &own).await };
                let written = rt.timeout(bound, to_the_end(&rt, write)).await;
                let result = match written.flatten() {
                    Some(written) => written.map_err(Failure::Error),
                    None => Err(Failure::Hung),
                };
                (member, result)
            })
        });
        let writes: Vec<_> = writes.collect();
        let mut failed = Vec::new();
        for write in writes {
            if let (member, Err(why)) = write.await {
                failed.push((member, why));
            }
        }
        failed
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
