//! Work in the background: regions are made equal after a crash, copied to members that are being
//! rebuilt, and scrubbed. It takes turns with the I/O of users where the device has turns to give,
//! piece by piece; writes to a region wait only while a piece of it is copied. It is in the
//! background, but a rebuild may have a share: see [`RebuildPriority`].

use std::rc::{Rc, Weak};

use flashyard_runtime::{Data, Rt, Shared as Bytes};
use flashyard_sched::{Class, Op};
use flashyard_time::Duration;

use super::careful::to_the_end;
use super::flight::is_momentary;
use super::member::Member;
use super::record::{MemberState, Uuid};
use super::set::{At, Loss, Set};
use super::shared::Shared;
use super::types::{Pace, RebuildPriority};
use crate::turns::Taken;
use crate::{Device, Io, IoError, Step, SystemWork, Tag, Zero};

/// Bytes that are copied together. While one is written, what hosts write waits behind it in the
/// drive. Measured by the experiment `raid-degraded` under `fifo`: with 256 KiB hosts keep 0.39 to
/// 0.63 of their rate beside a rebuild, with this 0.60 to 0.98, with 64 KiB 0.73 to 1.18. With no
/// host beside it a rebuild of a mirror has 417, 351 and 281 MB/s.
const PIECE: u64 = 128 << 10;
/// Regions that are copied between two notes of how far it is.
const NOTED: usize = 64;
/// After a failure nothing is tried for so long.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// What no member can give is tried again after so long: it may have been written since.
const AFTER_LOSS: Duration = Duration::from_secs(60);
/// Places that are kept of those where copies disagree.
const MOST_PLACES: usize = 16;

impl Shared {
    /// Begins what is to be done in the background, if anything is.
    pub(super) fn work(self: &Rc<Self>) {
        if self.closed.get() || self.working.replace(true) {
            return;
        }
        let (this, rt) = (Rc::downgrade(self), self.rt.clone());
        self.rt.spawn(work(this, rt)).detach();
    }

    /// The next region to be copied, of the sets that have least copies first.
    fn next_copy(&self) -> Option<(Rc<Set>, usize)> {
        let mut sets = self.all_sets();
        sets.sort_by_key(|set| {
            let (unequal, _) = set.regions.borrow().to_copy();
            (unequal == 0, set.active(), set.number)
        });
        sets.into_iter().find_map(|set| {
            let now = self.rt.now();
            let lost = set.lost.borrow();
            let waits = |at: usize| lost.get(&at).is_some_and(|it| now < it.again);
            let next = set.regions.borrow().next_to_copy(set.cursor.get(), waits);
            drop(lost);
            next.map(|(at, _)| (set, at))
        })
    }

    /// Regions that are to be copied, in all sets.
    pub(super) fn to_copy(&self) -> usize {
        let sets = self.all_sets();
        let of = |set: &Rc<Set>| {
            let (unequal, behind) = set.regions.borrow().to_copy();
            unequal.max(behind)
        };
        sets.iter().map(of).sum()
    }

    fn note_pace(&self) {
        let (left, mut pace) = (self.to_copy(), self.rebuild.get());
        match (left, pace.begun) {
            (0, _) => pace = Pace::default(),
            (left, None) => {
                pace = Pace {
                    begun: Some(self.rt.now()),
                    of: left,
                };
            }
            (left, Some(_)) => pace.of = pace.of.max(left),
        }
        self.rebuild.set(pace);
    }

    /// One step; false if there is nothing to do.
    async fn step(self: &Rc<Self>) -> Result<bool, IoError> {
        self.note_pace();
        if let Some((set, at)) = self.next_copy() {
            set.cursor.set(at + 1);
            let copied = set.copy_in_turns(at).await;
            let due = set.copied_since_note();
            if copied.is_ok() && due >= NOTED {
                set.note_copied().await?;
            }
            return copied.map(|()| true);
        }
        let copies = self.record.borrow().copies as usize;
        for set in self.all_sets() {
            let is_due = set.is_rebuilding() || set.has_one_too_many(copies);
            let has_all = set.regions.borrow().to_copy() == (0, 0);
            if is_due && has_all && !set.joining.get() {
                return self.promote(&set).await.map(|()| true);
            }
        }
        match self.scrub_step().await {
            false if self.to_copy() > 0 => Err(IoError::Read),
            stepped => Ok(stepped),
        }
    }

    /// The members of a set that are being rebuilt have everything now, and those that they replace
    /// go.
    async fn promote(self: &Rc<Self>, set: &Rc<Set>) -> Result<(), IoError> {
        // It is read from now on: also after a power cut.
        set.note_copied().await?;
        // One that has everything has a map.
        set.persist().await?;
        let unrecorded = |_| IoError::Write;
        let turn = self.turn().await.map_err(unrecorded)?;
        // A region may have been left behind since.
        if set.regions.borrow().to_copy() != (0, 0) {
            return Ok(());
        }
        let ready = set.members_that(|it| it.state.get() == MemberState::Rebuilding);
        if !ready.is_empty() {
            let activated = self.commit(|record| {
                for member in &ready {
                    if let Some(at) = record.find(member.id) {
                        record.set_state(at, MemberState::Active);
                    }
                }
            });
            activated.await.map_err(unrecorded)?;
        }
        for member in &ready {
            // One that failed meanwhile stays so.
            if member.state.get() == MemberState::Rebuilding {
                member.state.set(MemberState::Active);
            }
        }
        let copies = self.record.borrow().copies as usize;
        if ready.iter().any(|it| it.is_active()) || set.has_one_too_many(copies) {
            let gone = set.members_that(|it| it.leaving.get() && set.has_other(it));
            let gone: Vec<_> = gone.iter().map(|it| it.id).collect();
            self.drop_members(&gone).await.map_err(unrecorded)?;
        }
        // A failure is recorded by who has the turn, and the map waits for that.
        drop(turn);
        if !set.is_degraded() {
            set.regions.borrow_mut().none_missed();
            let _ = set.persist().await;
        }
        Ok(())
    }

    /// Reads the next region of a scrub.
    async fn scrub_step(self: &Rc<Self>) -> bool {
        let (running, mut at) = {
            let scrub = self.scrub.borrow();
            (scrub.running, scrub.done)
        };
        if !running {
            return false;
        }
        for set in self.all_sets() {
            let regions = set.span.regions();
            if at < regions {
                set.scrub_region(at).await;
                self.scrub.borrow_mut().done += 1;
                return true;
            }
            at -= regions;
        }
        self.scrub.borrow_mut().running = false;
        false
    }

    /// Puts spares in the place of members that have failed; tries it again some time where that
    /// does not succeed.
    pub(super) async fn take_spares(self: &Rc<Self>) {
        for set in self.all_sets() {
            let unreplaced =
                |it: &Member| it.state.get() == MemberState::Failed && !it.leaving.get();
            for failed in set.members_that(unreplaced) {
                let works = set.active() >= set.needed();
                let spare = self.spare_for(&set).filter(|_| works);
                if let Some(spare) = spare
                    && self.put_in_place(&set, &failed, &spare).await.is_err()
                {
                    return self.retry_spares();
                }
            }
        }
    }

    fn spare_for(&self, set: &Set) -> Option<Rc<Member>> {
        let members = self.members.borrow();
        let mut spares = members.iter().filter(|it| {
            let fits = it.device.as_ref().is_some_and(|it| set.fits(&**it));
            it.state.get() == MemberState::Spare && fits
        });
        spares.next().cloned()
    }

    fn retry_spares(self: &Rc<Self>) {
        if self.closed.get() || self.retrying.replace(true) {
            return;
        }
        let (this, rt) = (Rc::downgrade(self), self.rt.clone());
        let retry = async move {
            rt.sleep(AFTER_FAILURE).await;
            if let Some(shared) = this.upgrade() {
                shared.retrying.set(false);
                shared.record_failures();
            }
        };
        self.rt.spawn(retry).detach();
    }
}

/// A region that is being copied.
#[derive(Clone, Copy)]
pub(super) struct Copying {
    at: usize,
    /// Its copies may differ, and are made equal.
    pub(super) unequal: bool,
    /// Members that had joined when it began.
    joined: u64,
    /// Bytes of it that no member can give.
    lost: u64,
}

async fn work(this: Weak<Shared>, rt: Rt) {
    loop {
        let Some(shared) = this.upgrade() else { return };
        if shared.closed.get() || shared.queue.is_ended() {
            return;
        }
        match shared.step().await {
            Ok(false) => {
                shared.working.set(false);
                return;
            }
            Ok(true) => {
                drop(shared);
                rt.turn_end().await;
            }
            Err(_) => {
                drop(shared);
                rt.sleep(AFTER_FAILURE).await;
            }
        }
    }
}

impl Set {
    /// Makes regions equal before they are read.
    pub(super) async fn make_equal(
        self: &Rc<Self>,
        range: std::ops::Range<usize>,
    ) -> Result<(), IoError> {
        for at in range {
            if self.regions.borrow().any_unequal(at..at + 1) {
                self.copy_region(at).await?;
            }
        }
        Ok(())
    }

    /// Copies a region to all that may lack it, to its end. Somebody waits for that: it takes no
    /// turn, and nobody gets between.
    async fn copy_region(self: &Rc<Self>, at: usize) -> Result<(), IoError> {
        let set = Rc::clone(self);
        let copied = to_the_end(&self.rt, async move {
            let _held = set.hold(at..at + 1).await;
            let mut copying = set.copying(at);
            for place in set.pieces(at) {
                set.copy_next(&mut copying, place).await?;
            }
            set.end_copy(copying).await
        });
        copied.await.unwrap_or(Err(IoError::Aborted))
    }

    /// The same for nobody, a piece in each turn. What is written between two of them goes to all
    /// that have pieces already. When that has failed, or another one has copied the region, or a
    /// member has joined, this copy counts for nothing.
    async fn copy_in_turns(self: &Rc<Self>, at: usize) -> Result<(), IoError> {
        let shared = self.shared.upgrade().ok_or(IoError::Aborted)?;
        self.regions.borrow_mut().begin_copy(at);
        if self.clear_in_turn(&shared, at).await? {
            return Ok(());
        }
        let (mut copying, last) = (self.copying(at), self.pieces(at).count() - 1);
        for (number, place) in self.pieces(at).enumerate() {
            let work = match copying.unequal {
                true => SystemWork::Resync,
                false => SystemWork::Rebuild,
            };
            if work == SystemWork::Rebuild {
                shared.rebuild_limit.take(&shared.rt, place.bytes).await;
            }
            let step = self.step_of(work, Op::Write, place, 1);
            let turn = shared.queue.take(step).await.ok_or(IoError::Aborted)?;
            let set = Rc::clone(self);
            let copied = to_the_end(&self.rt, async move {
                let is_last = number == last;
                set.copy_in_turn(&mut copying, place, turn, is_last)
                    .await
                    .map(|goes_on| goes_on.then_some(copying))
            });
            match copied.await.unwrap_or(Err(IoError::Aborted))? {
                Some(next) => copying = next,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Copies a piece in its turn; false if the region is not to be copied on.
    async fn copy_in_turn(
        self: &Rc<Self>,
        copying: &mut Copying,
        place: At,
        mut turn: Taken,
        is_last: bool,
    ) -> Result<bool, IoError> {
        let _held = self.hold(copying.at..copying.at + 1).await;
        if !self.is_still_wanted(copying) {
            return Ok(false);
        }
        turn.begin();
        let copied = self.copy_next(copying, place).await;
        turn.end(copied.is_ok());
        copied?;
        if is_last {
            self.end_copy(*copying).await?;
        }
        Ok(!is_last)
    }

    /// Whether a copy that has begun is what the region needs still. The region is held.
    pub(super) fn is_still_wanted(&self, copying: &Copying) -> bool {
        let is_wanted = self.regions.borrow().is_wanted(copying.at, copying.unequal);
        is_wanted && self.joined.get() == copying.joined
    }

    pub(super) fn copying(&self, at: usize) -> Copying {
        Copying {
            at,
            unequal: self.regions.borrow().any_unequal(at..at + 1),
            joined: self.joined.get(),
            lost: 0,
        }
    }

    /// Where a region is on the members.
    pub(super) fn region(&self, at: usize) -> At {
        let bytes = self.span.region;
        At {
            at: at as u64 * bytes,
            bytes,
        }
    }

    /// The parts of a region that are copied together.
    fn pieces(&self, at: usize) -> impl Iterator<Item = At> + use<> {
        let At { at, bytes } = self.region(at);
        let starts = (at..at + bytes).step_by(PIECE as usize);
        starts.map(|at| At { at, bytes: PIECE })
    }

    /// A piece as a part of some work. Of rows as much is moved at each member as when all of their
    /// data are written, or read.
    pub(super) fn step_of(&self, work: SystemWork, op: Op, place: At, copies: usize) -> Step {
        let rows = self.span.rows.filter(|rows| place.at >= rows.alike);
        let times = match (rows, op) {
            (Some(rows), Op::Read) => rows.columns,
            (Some(rows), _) => rows.data(),
            (None, _) => copies,
        };
        Step {
            work,
            class: self.class_of(work),
            op,
            bytes: place.bytes * times as u64,
            lba: place.at / u64::from(self.block_size),
        }
    }

    fn class_of(&self, work: SystemWork) -> Class {
        let shared = self
            .shared
            .upgrade()
            .filter(|_| work == SystemWork::Rebuild);
        let priority = shared.map_or(RebuildPriority::Low, |it| it.rebuild_priority.get());
        let has_a_share = match priority {
            RebuildPriority::Low => false,
            RebuildPriority::High => true,
            // With the next member that fails data are lost.
            RebuildPriority::Auto => self.active() <= self.needed(),
        };
        match has_a_share {
            true => Class::Throughput,
            false => Class::Background,
        }
    }

    async fn copy_next(self: &Rc<Self>, copying: &mut Copying, place: At) -> Result<(), IoError> {
        let lost = self.copy_what_there_is(place, copying.unequal).await?;
        copying.lost += lost;
        Ok(())
    }

    /// All pieces of a region are copied, and it is held.
    pub(super) async fn end_copy(self: &Rc<Self>, copying: Copying) -> Result<(), IoError> {
        let Copying {
            at,
            unequal,
            joined,
            lost,
        } = copying;
        if unequal {
            // It is read from now on: also after a power cut.
            self.flush_all().await?;
            self.recorded().await?;
        }
        // A member that has joined meanwhile may have a part of it only.
        if self.joined.get() == joined {
            self.regions.borrow_mut().copied(at, unequal);
            match lost > 0 && self.is_rebuilding() {
                true => self.note_loss(at, lost),
                false => {
                    self.lost.borrow_mut().remove(&at);
                    self.copied.borrow_mut().push(at as u32);
                }
            }
        }
        Ok(())
    }

    /// A member that is rebuilt lacks what no other can give. It is not read before somebody has
    /// written that, for it holds something else there.
    fn note_loss(&self, at: usize, bytes: u64) {
        self.regions.borrow_mut().behind_again(at);
        let again = self.rt.now() + AFTER_LOSS;
        self.lost.borrow_mut().insert(at, Loss { bytes, again });
    }

    /// Copies a range, and where it cannot be read all blocks of it that can; gives the bytes of
    /// the others.
    async fn copy_what_there_is(self: &Rc<Self>, place: At, unequal: bool) -> Result<u64, IoError> {
        let is_lost = |error| matches!(error, IoError::Read | IoError::Integrity);
        match self.copy_piece(place, unequal).await {
            Err(error) if is_lost(error) => {}
            copied => return copied.map(|()| 0),
        }
        let (mut lost, bytes) = (0, u64::from(self.block_size));
        for from in (0..place.bytes).step_by(bytes as usize) {
            let at = place.at + from;
            match self.copy_piece(At { at, bytes }, unequal).await {
                Err(error) if is_lost(error) => lost += bytes,
                copied => copied?,
            }
        }
        Ok(lost)
    }

    async fn copy_piece(self: &Rc<Self>, place: At, unequal: bool) -> Result<(), IoError> {
        if let Some(rows) = self.span.rows.filter(|rows| place.at >= rows.alike) {
            return self.copy_rows(rows, place, unequal).await;
        }
        let tag = Tag::default();
        let (source, data) = self.read_source(tag, place, unequal).await?;
        let lacks = |it: &Member| {
            let other = Some(it.id) != source;
            other && it.is_written() && (unequal || !it.is_active())
        };
        let data = match data {
            Data::Buf(buf) => Some(Bytes::from(buf)),
            Data::Zeroes(_) => None,
        };
        let blocks = place.bytes / u64::from(self.block_size);
        for member in self.members_that(lacks) {
            let lba = self.lba(&member, place.at);
            let io = match &data {
                Some(data) => Io::Write {
                    lba,
                    data: data.clone(),
                    fua: false,
                },
                None => Io::Zero {
                    lba,
                    blocks,
                    how: Zero::Write { deallocate: true },
                },
            };
            let start = |device: &dyn Device| device.submit(tag, io);
            match self.run(&member, start).await {
                Ok(_) => member.count(|counts| counts.copied_bytes += place.bytes),
                Err(IoError::Busy) => return Err(IoError::Busy),
                Err(error) => self.give_up(&member, error),
            }
        }
        Ok(())
    }

    /// What a range is to be on all members, and the one that was read.
    ///
    /// Where copies may differ, any of them may be the one: what it has is written to all others,
    /// also to one that could not be read. Where they are equal but for what a medium has done, a
    /// member that is replaced is copied as it is: what another copy has lost is lost there only.
    async fn read_source(
        self: &Rc<Self>,
        tag: Tag,
        place: At,
        unequal: bool,
    ) -> Result<(Option<Uuid>, Data), IoError> {
        let mut sources = self.members_that(Member::is_active);
        if !unequal {
            sources.sort_by_key(|it| !it.leaving.get());
        }
        let mut failed = IoError::NotReady;
        for source in sources {
            match self.read_copy(&source, tag, place).await {
                Ok(data) => return Ok((Some(source.id), data)),
                Err(error) if is_momentary(error) => return Err(error),
                Err(error) => failed = error,
            }
            if !unequal {
                let data = self.agree(tag, place).await?;
                return Ok((None, Data::Buf(data)));
            }
        }
        Err(failed)
    }

    fn copied_since_note(&self) -> usize {
        self.copied.borrow().len()
    }

    /// Makes durable what was copied, and that no member lacks it any more.
    async fn note_copied(self: &Rc<Self>) -> Result<(), IoError> {
        self.flush_all().await?;
        let copied = std::mem::take(&mut *self.copied.borrow_mut());
        let failed = self.members_that(|it| it.state.get() == MemberState::Failed);
        // One that is about to join lacks everything.
        if failed.is_empty() && !self.joining.get() {
            self.regions.borrow_mut().not_missed(&copied);
            // What is not noted now is copied once more after a restart.
            let _ = self.persist().await;
        }
        Ok(())
    }

    async fn scrub_region(self: &Rc<Self>, at: u64) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        for place in self.pieces(at as usize) {
            let step = self.step_of(SystemWork::Scrub, Op::Read, place, self.active());
            let Some(mut turn) = shared.queue.take(step).await else {
                return;
            };
            if !shared.scrub.borrow().running {
                return;
            }
            let before: u64 = self.healed();
            let set = Rc::clone(self);
            let read = to_the_end(&shared.rt, async move {
                let _held = set.hold_equal(set.regions_of(place)).await?;
                turn.begin();
                let read = match set.span.rows.filter(|rows| place.at >= rows.alike) {
                    Some(rows) => set.scrub_rows(rows, place).await,
                    None => set.agree(Tag::default(), place).await.map(drop),
                };
                turn.end(read.is_ok());
                read
            });
            let read = read.await;
            let mut scrub = shared.scrub.borrow_mut();
            scrub.repaired += u64::from(self.healed() > before);
            if matches!(read, Some(Err(error)) if !is_momentary(error)) {
                scrub.unresolved += 1;
                if scrub.places.len() < MOST_PLACES {
                    scrub.places.push((self.number, place.at));
                }
            }
        }
    }

    fn healed(&self) -> u64 {
        let members = self.all();
        members.iter().map(|it| it.counts.get().healed).sum()
    }
}
