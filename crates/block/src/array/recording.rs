//! The record of an array on its members: who changes it, how it becomes durable, and who waits for
//! that.
//!
//! A member that fails is not used from that moment on, and no change is answered before the record
//! without it is durable on all members that are left.

use std::rc::Rc;

use flashyard_time::Duration;

use super::careful::to_the_end;
use super::error::ArrayError;
use super::member::{Failure, Member};
use super::record::{MemberState, Part, Record};
use super::set::Set;
use super::shared::Shared;
use crate::io::Done;
use crate::{IoError, IoFuture};

/// How long a record that could not be made durable is left alone.
const UNRECORDED: Duration = Duration::from_secs(1);

/// The right to change the record of an array.
pub(super) struct Turn(Rc<Shared>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.changing.release(1);
    }
}

impl Shared {
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

    /// Waits until no other task changes the record, and keeps others from it while the turn is
    /// held.
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

    /// Ends all changes of the record: none is in progress when this ends, and none comes later.
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
}
