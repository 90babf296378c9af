//! Changes of who is a member: growing by sets, spares, exchanging and taking away.

use std::rc::Rc;

use super::careful::to_the_end;
use super::error::ArrayError;
use super::geometry::{MAX_COPIES, MAX_MEMBERS, MAX_SPANS, Span};
use super::member::{Failure, Member};
use super::places::{self, Start, new_id, occupied};
use super::record::{self, MemberState, Part, Record, Uuid, label};
use super::set::Set;
use super::shared::Shared;
use super::types::NewMember;
use crate::{IoError, SharedDevice};

impl Shared {
    /// Adds sets at the end: the array grows by them.
    pub(super) async fn add_sets(
        self: &Rc<Self>,
        devices: Vec<NewMember>,
        force: bool,
    ) -> Result<(), ArrayError> {
        let (copies, parity) = {
            let record = self.record.borrow();
            (record.copies as usize, record.parity as usize)
        };
        let sets = devices.len() / copies.max(1);
        if sets == 0 || !devices.len().is_multiple_of(copies) {
            return Err(match parity {
                0 => ArrayError::Members(devices.len(), copies),
                _ => ArrayError::Groups(devices.len(), copies),
            });
        }
        self.check_new(&devices, 0, force).await?;
        let spans = spans_of(&devices, copies, parity)?;
        let spans: Vec<Span> = spans.into_iter().map(Span::behind).collect();
        {
            let record = self.record.borrow();
            let full = record.geometry.spans.len() + spans.len() > MAX_SPANS;
            let many = record.members.len() + devices.len() > MAX_MEMBERS;
            if full || many {
                return Err(ArrayError::TooMany);
            }
        }
        self.adding.acquire(1).await;
        let added = self.add_spans(devices, spans).await;
        self.adding.release(1);
        added
    }

    async fn add_spans(
        self: &Rc<Self>,
        devices: Vec<NewMember>,
        spans: Vec<Span>,
    ) -> Result<(), ArrayError> {
        let (first, copies) = {
            let record = self.record.borrow();
            (record.geometry.sets(), record.copies as usize)
        };
        let blank = devices.iter().all(|new| new.device.is_blank());
        let mut sets = Vec::new();
        for ((at, chunk), span) in devices.chunks(copies).enumerate().zip(by_set(&spans)) {
            let members = chunk
                .iter()
                .map(|new| self.new_member(new, MemberState::Active));
            let set = self.new_set(first + at, span, members.collect());
            set.number_columns();
            set.begin_empty(blank).await?;
            sets.push(set);
        }
        // A failure is recorded by who has the turn, and maps wait for that.
        let turn = self.turn().await?;
        let added = self.list_sets(&sets, &spans).await;
        drop(turn);
        added?;
        // From here on there is I/O to them.
        self.sets.borrow_mut().extend(sets);
        self.blank.set(false);
        self.work();
        Ok(())
    }

    /// Lists new sets in the record, first as spares. An array needs members of each of its sets:
    /// a power cut must not leave a record with a set whose members have none yet. Who calls this
    /// has the turn.
    async fn list_sets(
        self: &Rc<Self>,
        sets: &[Rc<Set>],
        spans: &[Span],
    ) -> Result<(), ArrayError> {
        let new: Vec<Rc<Member>> = sets.iter().flat_map(|set| set.all().clone()).collect();
        let is_new = |id: &Uuid| new.iter().any(|new| new.id == *id);
        self.members.borrow_mut().extend(new.iter().cloned());
        let known = self.commit(|record| {
            let since = record.generation;
            let spare = |it: &Rc<Member>| record::Member {
                state: MemberState::Spare,
                ..entry(it, Part::Spare, since)
            };
            record.members.extend(new.iter().map(spare));
        });
        let added = match known.await.and_then(|()| all_work(&new)) {
            Ok(()) => {
                let listed = self.commit(|record| {
                    record.members.retain(|it| !is_new(&it.id));
                    record.geometry.spans.extend(spans);
                    for set in sets {
                        list(record, set);
                    }
                });
                listed.await
            }
            Err(error) => Err(error),
        };
        if added.is_err() {
            let unlisted = self.commit(|record| record.members.retain(|it| !is_new(&it.id)));
            match unlisted.await {
                Ok(()) => {
                    for new in &new {
                        self.undo(new).await;
                    }
                }
                // A member may have a record with them: they keep theirs, as spares.
                Err(_) => self.unlist(|it| is_new(&it.id)),
            }
        }
        added
    }

    /// Adds hot spares, and puts them to use if a member has failed.
    pub(super) async fn add_spares(
        self: &Rc<Self>,
        devices: Vec<NewMember>,
        force: bool,
    ) -> Result<(), ArrayError> {
        let least = {
            let record = self.record.borrow();
            if record.members.len() + devices.len() > MAX_MEMBERS {
                return Err(ArrayError::TooMany);
            }
            record.bytes_of(Part::Spare)
        };
        self.check_new(&devices, least, force).await?;
        let turn = self.turn().await?;
        let new = devices
            .iter()
            .map(|new| self.new_member(new, MemberState::Spare));
        let new: Vec<Rc<Member>> = new.collect();
        self.members.borrow_mut().extend(new.iter().cloned());
        let added = self.commit(|record| {
            for member in &new {
                let since = record.generation;
                record.members.push(entry(member, Part::Spare, since));
            }
        });
        let added = added.await;
        drop(turn);
        if let Err(error) = added {
            let is_new = |it: &Rc<Member>| new.iter().any(|new| new.id == it.id);
            self.members.borrow_mut().retain(|it| !is_new(it));
            return Err(error);
        }
        self.take_spares().await;
        Ok(())
    }

    /// Has a device rebuilt in the place of a member, which is used until that is done if it can.
    pub(super) async fn replace(
        self: &Rc<Self>,
        old: &str,
        new: NewMember,
        force: bool,
    ) -> Result<(), ArrayError> {
        let old = self.find(old)?;
        let Some(set) = self.set_of(old.id) else {
            return Err(ArrayError::NotAMember(old.label.borrow().clone()));
        };
        let full = set.span.rows.is_none() && set.all().len() > MAX_COPIES;
        if set.is_rebuilding() || full {
            let rebuilt = set.members_that(|it| it.state.get() == MemberState::Rebuilding);
            let name = rebuilt.first().unwrap_or(&old).label.borrow().clone();
            return Err(ArrayError::Rebuilding(name));
        }
        let same = new.name == *old.label.borrow();
        if same && old.state.get() != MemberState::Failed {
            return Err(ArrayError::IsMember(new.name));
        }
        let least = set.span.member_bytes();
        // What a former member holds is its part of this array.
        self.check_new(std::slice::from_ref(&new), least, force || same)
            .await?;
        let member = self.new_member(&new, MemberState::Rebuilding);
        self.members.borrow_mut().push(Rc::clone(&member));
        let added = if old.state.get() == MemberState::Failed {
            self.put_in_place(&set, &old, &member).await
        } else {
            old.leaving.set(true);
            member.column.set(old.column.get());
            let added = self.add_copy(&set, &member, None).await;
            old.leaving.set(added.is_ok());
            added
        };
        if added.is_err() {
            self.undo(&member).await;
        }
        added
    }

    /// Takes a device that has not become a member off the list, and its superblock off the device
    /// if that was written.
    async fn undo(self: &Rc<Self>, new: &Rc<Member>) {
        let own = new.id;
        let erased = self.at_former(new, async move |device| {
            if matches!(places::read(&*device).await, Ok((record, _)) if record.own == own) {
                let _ = Start(&*device).erase().await;
            }
        });
        self.unlist(|it| it.id == own);
        erased.await;
    }

    /// Does something at the device of one that is no member any more. A device that hangs is
    /// waited for no longer than for any I/O; until it ends the former member counts as unfinished.
    fn at_former<W, F>(&self, former: &Rc<Member>, work: W) -> impl Future<Output = ()> + use<W, F>
    where
        W: FnOnce(SharedDevice) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        let (rt, bound) = (self.rt.clone(), self.options.hang_after);
        let (former, period) = (Rc::clone(former), former.begin());
        let work = async move {
            if let Some(device) = former.device.clone() {
                work(device).await;
            }
            former.end(period);
        };
        async move {
            let _ = rt.timeout(bound, to_the_end(&rt, work)).await;
        }
    }

    /// Takes a spare or a member that is not needed away; its device counts as empty then.
    pub(super) async fn remove(self: &Rc<Self>, name: &str) -> Result<(), ArrayError> {
        let _turn = self.turn().await?;
        let member = self.find(name)?;
        if let Some(set) = self.set_of(member.id) {
            let copies = self.record.borrow().copies as usize;
            let others = set.members_that(|it| it.is_active() && it.id != member.id);
            // The place of a column is never empty, whether what is there works or not.
            let column = |it: &Rc<Member>| it.column.get() == member.column.get();
            let is_needed = match set.span.rows {
                Some(_) => !others.iter().any(column),
                None => others.is_empty() || (member.is_active() && others.len() < copies),
            };
            if is_needed {
                return Err(ArrayError::Needed(name.to_owned()));
            }
        }
        self.check_finished(name)?;
        self.drop_members(&[member.id]).await
    }

    /// Takes members out of the array. Who calls this has the turn.
    pub(super) async fn drop_members(self: &Rc<Self>, ids: &[Uuid]) -> Result<(), ArrayError> {
        if ids.is_empty() {
            return Ok(());
        }
        self.commit(|record| record.members.retain(|it| !ids.contains(&it.id)))
            .await?;
        for set in self.all_sets() {
            let dropped = set.members_that(|it| ids.contains(&it.id));
            for member in dropped {
                set.members.borrow_mut().retain(|it| it.id != member.id);
            }
        }
        let dropped = self.members.borrow().clone().into_iter();
        let dropped = dropped.filter(|it| ids.contains(&it.id));
        let works = |it: &Rc<Member>| it.state.get() != MemberState::Failed;
        let dropped: Vec<Rc<Member>> = dropped.filter(works).collect();
        // What is in flight there is not waited for: if it hung, no look would find that.
        for member in &dropped {
            member.leave();
        }
        for set in self.all_sets() {
            set.wake_flights();
        }
        let erase = async |device: SharedDevice| {
            // What is left there says an old generation, if this fails.
            let _ = Start(&*device).erase().await;
        };
        let erased: Vec<_> = dropped.iter().map(|it| self.at_former(it, erase)).collect();
        self.unlist(|it| ids.contains(&it.id));
        for erased in erased {
            erased.await;
        }
        Ok(())
    }

    /// Refuses to let go of a device that is used no more while it may still change.
    pub(super) fn check_finished(&self, name: &str) -> Result<(), ArrayError> {
        let unfinished = self.unfinished();
        let mut unfinished = unfinished.iter();
        match unfinished.any(|it| *it.label.borrow() == label(name)) {
            true => Err(ArrayError::Unfinished(name.to_owned())),
            false => Ok(()),
        }
    }

    fn find(&self, name: &str) -> Result<Rc<Member>, ArrayError> {
        let members = self.members.borrow();
        let mut members = members.iter();
        let found = members
            .find(|it| *it.label.borrow() == label(name))
            .cloned();
        found.ok_or_else(|| ArrayError::NotAMember(name.to_owned()))
    }

    pub(super) fn set_of(&self, id: Uuid) -> Option<Rc<Set>> {
        let sets = self.all_sets();
        sets.into_iter()
            .find(|set| set.all().iter().any(|it| it.id == id))
    }

    /// Refuses devices that cannot be members, or that hold something.
    async fn check_new(
        &self,
        devices: &[NewMember],
        least: u64,
        force: bool,
    ) -> Result<(), ArrayError> {
        let block_size = self.record.borrow().geometry.block_size;
        for new in devices {
            let info = new.device.info();
            if info.block_size != block_size {
                let (name, own) = (new.name.clone(), info.block_size);
                return Err(ArrayError::BlockSize(name, own, block_size));
            }
            let bytes = info.blocks * u64::from(block_size);
            if bytes < least {
                return Err(ArrayError::TooSmall(new.name.clone(), bytes, least));
            }
            let used = self.members.borrow().iter().any(|it| {
                let same = *it.label.borrow() == label(&new.name);
                same && it.state.get() != MemberState::Failed
            });
            if used {
                return Err(ArrayError::IsMember(new.name.clone()));
            }
            // What is written there late would fall on what it gets as a new member.
            let mut unfinished = self.unfinished().into_iter();
            if unfinished.any(|it| it.is_busy_with(&new.device)) {
                return Err(ArrayError::Unfinished(new.name.clone()));
            }
            if !force {
                occupied(new).await?;
            }
        }
        Ok(())
    }

    fn new_member(&self, new: &NewMember, state: MemberState) -> Rc<Member> {
        let (id, name) = (new_id(&self.rt), label(&new.name));
        Member::new(id, name, state, Some(new.device.clone()), 1)
    }

    pub(super) fn new_set(
        self: &Rc<Self>,
        number: usize,
        span: Span,
        members: Vec<Rc<Member>>,
    ) -> Rc<Set> {
        let (block_size, safe_read) = {
            let record = self.record.borrow();
            (record.geometry.block_size, record.safe_read)
        };
        let (this, rt) = (Rc::downgrade(self), self.rt.clone());
        Set::new(this, rt, number, span, block_size, safe_read, members)
    }
}

impl Set {
    pub(super) fn map_error(&self, error: IoError) -> ArrayError {
        let members = self.all();
        let first = members.first();
        let name = first.map_or(String::new(), |it| it.label.borrow().clone());
        ArrayError::Device(name, "writing the region map of", error)
    }

    /// Gives the members of a new set their columns, in their order.
    pub(super) fn number_columns(&self) {
        for (column, member) in self.all().iter().enumerate() {
            member.column.set(column);
        }
    }

    /// The map of a set whose members have nothing yet: equal if they read as zeroes, else they
    /// become so before they are read.
    pub(super) async fn begin_empty(self: &Rc<Self>, blank: bool) -> Result<(), ArrayError> {
        {
            let mut regions = self.regions.borrow_mut();
            let all = 0..regions.count();
            if !blank {
                regions.make_unequal(all);
            }
            regions.change_all();
        }
        let written = self.persist().await;
        written.map_err(|error| self.map_error(error))
    }
}

/// Refuses new members of which one could not take what was written to it.
fn all_work(new: &[Rc<Member>]) -> Result<(), ArrayError> {
    let mut failed = new.iter().filter_map(|it| Some((it, it.failure.get()?)));
    let Some((member, why)) = failed.next() else {
        return Ok(());
    };
    let error = match why {
        Failure::Error(error) => error,
        Failure::Missing | Failure::Hung => IoError::NotReady,
    };
    let name = member.label.borrow().clone();
    Err(ArrayError::Device(name, "writing the superblock of", error))
}

/// The spans of new sets, as the first ones of an array: one of copies, one for each set that has
/// parity.
pub(super) fn spans_of(
    devices: &[NewMember],
    copies: usize,
    parity: usize,
) -> Result<Vec<Span>, ArrayError> {
    match parity {
        0 => Ok(vec![span_of(devices, devices.len() / copies, 0)?]),
        _ => {
            let sets = devices.chunks(copies);
            sets.map(|set| span_of(set, 1, parity)).collect()
        }
    }
}

/// The span of each set.
pub(super) fn by_set(spans: &[Span]) -> impl Iterator<Item = Span> {
    spans.iter().flat_map(|span| (0..span.sets).map(|_| *span))
}

fn span_of(devices: &[NewMember], sets: usize, parity: usize) -> Result<Span, ArrayError> {
    let bytes = |new: &NewMember| {
        let info = new.device.info();
        info.blocks * u64::from(info.block_size)
    };
    let smallest = devices.iter().min_by_key(|new| bytes(new));
    let smallest = smallest.ok_or(ArrayError::Members(0, 1))?;
    let (span, least) = match parity {
        0 => (Span::of(sets as u32, bytes(smallest)), 2 << 20),
        _ => {
            let span = Span::of_rows(devices.len(), parity, bytes(smallest));
            (span, 6 << 20)
        }
    };
    let least = super::geometry::MAP_START + least;
    span.ok_or_else(|| ArrayError::TooSmall(smallest.name.clone(), bytes(smallest), least))
}

/// Lists the members of a set in a record.
pub(super) fn list(record: &mut Record, set: &Set) {
    let since = record.generation;
    for member in set.all().iter() {
        let part = part_of(set, member);
        record.members.push(entry(member, part, since));
    }
}

/// What a member of a set is there for.
pub(super) fn part_of(set: &Set, member: &Member) -> Part {
    match set.span.rows {
        Some(_) => Part::Column {
            set: set.number as u32,
            column: member.column.get() as u32,
        },
        None => Part::Copy(set.number as u32),
    }
}

pub(super) fn entry(member: &Member, part: Part, since: u64) -> record::Member {
    record::Member {
        id: member.id,
        part,
        state: member.state.get(),
        since,
        label: member.label.borrow().clone(),
    }
}
