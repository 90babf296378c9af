//! Reading with care: all copies of a range are read while no write can change it, what most of
//! them hold is the answer, and the others are written anew.

use std::ops::Range;
use std::rc::Rc;

use flashyard_runtime::sync::oneshot;
use flashyard_runtime::{Buf, Data, Rt, Shared as Bytes};

use super::flight::is_momentary;
use super::member::{Failure, Member};
use super::set::{At, Set};
use super::vote::{Vote, vote};
use crate::io::Done;
use crate::{Io, IoError, Tag};

/// How often copies are read that do not agree: a bit that flips on the way does so once.
const TRIES: usize = 3;

/// Regions that are held: no write enters them. The end lets them in again.
pub(super) struct Held {
    set: Rc<Set>,
    range: Range<usize>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set.regions.borrow_mut().release(self.range.clone());
        self.set.changed.notify_all();
    }
}

/// What reading all copies has given.
struct Copies {
    read: Vec<(Rc<Member>, Buf)>,
    failed: Vec<(Rc<Member>, IoError)>,
}

/// Runs to its end even if no task waits for it: what it writes must not land later than it says.
pub(super) async fn to_the_end<T: 'static>(
    rt: &Rt,
    work: impl Future<Output = T> + 'static,
) -> Option<T> {
    let (sender, receiver) = oneshot::channel();
    let run = async move { drop(sender.send(work.await)) };
    rt.spawn(run).detach();
    receiver.await
}

impl Set {
    /// Bars writes from regions, and waits for those in flight.
    pub(super) async fn hold(self: &Rc<Self>, range: Range<usize>) -> Held {
        let mut held = Held {
            set: Rc::clone(self),
            range: range.start..range.start,
        };
        // In order, so that two who want the same wait for each other in one direction.
        for at in range {
            loop {
                if self.regions.borrow_mut().hold(at) {
                    break;
                }
                self.changed.notified().await;
            }
            held.range.end = at + 1;
        }
        loop {
            if self.regions.borrow().is_still(held.range.clone()) {
                return held;
            }
            self.changed.notified().await;
        }
    }

    /// The same when its copies are equal, but for what a medium has done: also if a write has
    /// failed at some of them. A set of one copy has no regions to be held.
    pub(super) async fn hold_equal(
        self: &Rc<Self>,
        range: Range<usize>,
    ) -> Result<Option<Held>, IoError> {
        if self.regions.borrow().count() == 0 {
            return Ok(None);
        }
        loop {
            self.make_equal(range.clone()).await?;
            let held = self.hold(range.clone()).await;
            if !self.regions.borrow().any_unequal(range.clone()) {
                return Ok(Some(held));
            }
        }
    }

    /// See the module.
    pub(super) async fn read_carefully(self: Rc<Self>, tag: Tag, at: At) -> Result<Done, IoError> {
        let rt = self.rt.clone();
        let read = async move {
            let _held = self.hold_equal(self.regions_of(at)).await?;
            self.agree(tag, at).await.map(|buf| Data::Buf(buf).into())
        };
        to_the_end(&rt, read).await.unwrap_or(Err(IoError::Aborted))
    }

    /// What a range holds, as most copies have it; those that differ or cannot be read are written
    /// anew. The range is held.
    pub(super) async fn agree(self: &Rc<Self>, tag: Tag, at: At) -> Result<Buf, IoError> {
        for attempt in 0..TRIES {
            let copies = self.read_copies(tag, at).await;
            if copies.read.is_empty() {
                let first = copies.failed.first();
                return Err(first.map_or(IoError::NotReady, |(_, error)| *error));
            }
            let slices: Vec<&[u8]> = copies.read.iter().map(|(_, buf)| &**buf).collect();
            let found = vote(&slices, self.block_size as usize);
            if found.is_whole() {
                return self.heal(tag, at, copies, &found).await;
            }
            if attempt == 0
                && let Some(shared) = self.shared.upgrade()
            {
                shared.counts(|counts| counts.disagreements += 1);
            }
        }
        if let Some(shared) = self.shared.upgrade() {
            shared.counts(|counts| counts.unresolved += 1);
        }
        Err(IoError::Integrity)
    }

    /// Reads all active copies of a range.
    async fn read_copies(self: &Rc<Self>, tag: Tag, at: At) -> Copies {
        let (mut read, mut failed) = (Vec::new(), Vec::new());
        for member in self.members_that(Member::is_active) {
            let copy = self.read_copy(&member, tag, at).await;
            match copy.and_then(into_buf) {
                Ok(buf) => read.push((member, buf)),
                Err(error) => failed.push((member, error)),
            }
        }
        Copies { read, failed }
    }

    /// Reads a range of one member.
    pub(super) async fn read_copy(
        self: &Rc<Self>,
        member: &Rc<Member>,
        tag: Tag,
        at: At,
    ) -> Result<Data, IoError> {
        let into = Buf::take(at.bytes as usize).ok_or(IoError::Busy)?;
        self.read_into(member, tag, at, into).await
    }

    pub(super) async fn read_into(
        self: &Rc<Self>,
        member: &Rc<Member>,
        tag: Tag,
        at: At,
        into: Buf,
    ) -> Result<Data, IoError> {
        let lba = self.lba(member, at.at);
        let start = |device: &dyn crate::Device| device.submit(tag, Io::Read { lba, into });
        Ok(self.run(member, start).await?.data)
    }

    /// Writes anew what is wrong; gives what is right.
    async fn heal(
        self: &Rc<Self>,
        tag: Tag,
        at: At,
        copies: Copies,
        found: &Vote,
    ) -> Result<Buf, IoError> {
        let Copies { mut read, failed } = copies;
        let mut ill: Vec<Rc<Member>> = Vec::new();
        for ((member, _), wrong) in read.iter().zip(&found.wrong) {
            if *wrong {
                member.count(|counts| counts.wrong_reads += 1);
                ill.push(Rc::clone(member));
            }
        }
        for (member, error) in failed {
            match error {
                IoError::Read | IoError::Integrity => ill.push(member),
                error if is_momentary(error) => {}
                error => self.give_up(&member, error),
            }
        }
        let right = right_copy(&mut read, found, self.block_size as usize);
        if ill.is_empty() {
            return Ok(right);
        }
        let data = Bytes::from(right);
        for member in ill {
            self.write_anew(&member, tag, at, data.clone()).await;
        }
        self.recorded().await?;
        match data.try_into_buf() {
            Ok(buf) => Ok(buf),
            Err(data) => {
                let mut buf = Buf::take(data.len()).ok_or(IoError::Busy)?;
                buf.copy_from_slice(&data);
                Ok(buf)
            }
        }
    }

    /// Writes what a range of a member should hold; a member that cannot take it has failed.
    pub(super) async fn write_anew(
        self: &Rc<Self>,
        member: &Rc<Member>,
        tag: Tag,
        at: At,
        data: Bytes,
    ) {
        let lba = self.lba(member, at.at);
        let fua = false;
        let write = Io::Write { lba, data, fua };
        match self.run(member, |device| device.submit(tag, write)).await {
            Ok(_) => member.count(|counts| counts.healed += 1),
            Err(error) => self.give_up(member, error),
        }
    }

    /// A member has failed, unless it is the last one.
    pub(super) fn give_up(self: &Rc<Self>, member: &Rc<Member>, error: IoError) {
        if let Some(shared) = self.shared.upgrade() {
            shared.fail(self, member, Failure::Error(error));
        }
    }

    /// Waits until failures are durable.
    pub(super) async fn recorded(self: &Rc<Self>) -> Result<(), IoError> {
        match self.shared.upgrade() {
            Some(shared) if shared.is_recorded() => Ok(()),
            Some(shared) => shared.when_recorded().await.map(drop),
            None => Err(IoError::Aborted),
        }
    }
}

impl Set {
    /// Writes data to the copies of a range that hold something else, if one holds it: else it was
    /// overwritten since. Gives how many were put right.
    pub(super) async fn heal_with(
        self: Rc<Self>,
        tag: Tag,
        at: At,
        data: Buf,
    ) -> Result<usize, IoError> {
        let held = self.hold_equal(self.regions_of(at)).await?;
        if held.is_none() {
            return Ok(0);
        }
        let (mut is_there, mut ill) = (false, Vec::new());
        for member in self.members_that(Member::is_active) {
            match self.read_copy(&member, tag, at).await.and_then(into_buf) {
                Ok(read) if *read == *data => is_there = true,
                Ok(_) => ill.push((member, true)),
                Err(IoError::Read | IoError::Integrity) => ill.push((member, false)),
                Err(error) if is_momentary(error) => {}
                Err(error) => self.give_up(&member, error),
            }
        }
        if !is_there || ill.is_empty() {
            return Ok(0);
        }
        let healed = ill.len();
        let data = Bytes::from(data);
        for (member, lies) in ill {
            member.count(|counts| counts.wrong_reads += u64::from(lies));
            self.write_anew(&member, tag, at, data.clone()).await;
        }
        // One that is being rebuilt may have it from a copy that was wrong.
        for member in self.members_that(|it| it.is_written() && !it.is_active()) {
            self.write_anew(&member, tag, at, data.clone()).await;
        }
        self.recorded().await?;
        Ok(healed)
    }
}

/// What was read, in a buffer.
pub(super) fn into_buf(data: Data) -> Result<Buf, IoError> {
    match data {
        Data::Buf(buf) => Ok(buf),
        Data::Zeroes(len) => Buf::take_zeroed(len).ok_or(IoError::Busy),
    }
}

/// A buffer with what each block should hold.
fn right_copy(read: &mut Vec<(Rc<Member>, Buf)>, found: &Vote, block: usize) -> Buf {
    let first = found.blocks.first().copied().flatten().unwrap_or(0);
    let (_, mut right) = read.swap_remove(first);
    // Where the copies are now: the last one has the place of the first.
    let moved = read.len();
    for (at, copy) in found.blocks.iter().enumerate() {
        let copy = copy.unwrap_or(first);
        if copy == first {
            continue;
        }
        let place = if copy == moved { first } else { copy };
        let range = at * block..(at + 1) * block;
        right[range.clone()].copy_from_slice(&read[place].1[range]);
    }
    right
}
