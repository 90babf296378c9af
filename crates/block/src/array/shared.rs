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

use super::member::{Failure, Member};
use super::places;
use super::record::{MemberState, Part, Record};
use super::set::Set;
use super::types::{ArrayCounts, Options, Pace, Scrub};
use crate::gate::Gate;
use crate::io::Done;
use crate::{IoError, IoFuture};

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
    pub(super) sets: RefCell<Vec<Rc<Set>>>,
    pub(super) notes: RefCell<Vec<String>>,
    /// Held by who changes the record.
    pub(super) changing: Semaphore,
    /// How many members have failed so far, and of how many of these the record says so.
    failures: Cell<u64>,
    durable_failures: Cell<u64>,
    recorded: Notify,
    recording: Cell<bool>,
    watching_hangs: Cell<bool>,
    watching_rests: Cell<bool>,
    pub(super) working: Cell<bool>,
    pub(super) closed: Cell<bool>,
    counts: Cell<ArrayCounts>,
    /// I/Os of users so far: background work goes slowly while they come.
    pub(super) foreground: Cell<u64>,
    pub(super) scrub: RefCell<Scrub>,
    pub(super) rebuild: Cell<Pace>,
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
            sets: RefCell::default(),
            notes: RefCell::default(),
            changing: Semaphore::new(1),
            failures: Cell::new(0),
            durable_failures: Cell::new(0),
            recorded: Notify::new(),
            recording: Cell::new(false),
            watching_hangs: Cell::new(false),
            watching_rests: Cell::new(false),
            working: Cell::new(false),
            closed: Cell::new(false),
            counts: Cell::default(),
            foreground: Cell::new(0),
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

    /// Stops using a member, unless it is the last one of its set that has everything.
    pub(super) fn fail(self: &Rc<Self>, set: &Set, member: &Rc<Member>, why: Failure) -> bool {
        match member.state.get() {
            MemberState::Failed => return true,
            MemberState::Active if set.active() == 1 => return false,
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
        set.flights.borrow().wake_all();
        set.changed.notify_all();
        self.record_failures();
        true
    }

    /// Whether every failure is durable.
    #[inline]
    pub(super) fn is_recorded(&self) -> bool {
        self.failures.get() == self.durable_failures.get()
    }

    /// Ends well when every failure is durable.
    pub(super) fn when_recorded(self: &Rc<Self>) -> IoFuture {
        let shared = Rc::clone(self);
        IoFuture::boxed(async move {
            while !shared.is_recorded() {
                shared.recorded.notified().await;
            }
            Ok(Done::EMPTY)
        })
    }

    fn record_failures(self: &Rc<Self>) {
        if self.recording.replace(true) {
            return;
        }
        let shared = Rc::clone(self);
        self.rt
            .spawn(async move {
                while !shared.is_recorded() {
                    shared.changing.acquire(1).await;
                    shared.commit(|_| ()).await;
                    shared.changing.release(1);
                }
                shared.recording.set(false);
                shared.take_spares().await;
                shared.work();
            })
            .detach();
    }

    /// Makes a changed record durable on all members that have not failed, with the states that
    /// they have now. A member that cannot take it has failed, and the record says so then. Who
    /// calls this holds `changing`.
    pub(super) async fn commit(self: &Rc<Self>, change: impl FnOnce(&mut Record)) {
        let mut record = self.record.borrow().next(self.rt.random());
        change(&mut record);
        loop {
            let failures = self.failures.get();
            self.note_states(&mut record);
            let failed = self.write_everywhere(&record).await;
            *self.record.borrow_mut() = record.clone();
            self.durable_failures.set(failures);
            for (member, why) in failed {
                self.fail_anywhere(&member, why);
            }
            if self.is_recorded() {
                self.recorded.notify_all();
                return;
            }
            record = record.next(self.rt.random());
        }
    }

    fn note_states(&self, record: &mut Record) {
        for member in self.members.borrow().iter() {
            if let Some(at) = record.find(member.id) {
                let state = member.state.get();
                let is_copy = matches!(record.members[at].part, Part::Copy(_));
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

    /// Writes a record to all members that are used, at the same time; gives those that failed.
    async fn write_everywhere(self: &Rc<Self>, record: &Record) -> Vec<(Rc<Member>, Failure)> {
        let members = self.members.borrow().clone();
        let listed = |member: &Rc<Member>| {
            let known = record.find(member.id).is_some();
            known && member.state.get() != MemberState::Failed
        };
        let writes = members.into_iter().filter(listed).map(|member| {
            let own = Record {
                own: member.id,
                ..record.clone()
            };
            let (rt, bound) = (self.rt.clone(), self.options.hang_after);
            self.rt.spawn(async move {
                let Some(device) = member.device.clone() else {
                    return (member, Err(Failure::Missing));
                };
                let write = places::write(&*device, &own, member.newest.get());
                let written = rt.timeout(bound, write).await;
                let result = match written {
                    Some(Ok(place)) => {
                        member.newest.set(place);
                        Ok(())
                    }
                    Some(Err(error)) => Err(Failure::Error(error)),
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
            if !rested.is_empty() && set.flush_all().await {
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
    /// Flushes all members that are written; false if that failed somewhere.
    pub(super) async fn flush_all(self: &Rc<Self>) -> bool {
        let members = self.members_that(Member::is_written);
        let mut good = true;
        for member in members {
            let flushed = member.run(&self.rt, |device| {
                device.submit(crate::Tag::default(), crate::Io::Flush)
            });
            if let Err(error) = flushed.await {
                good = false;
                if error != IoError::Busy {
                    self.give_up(&member, error);
                }
            }
        }
        good
    }
}
