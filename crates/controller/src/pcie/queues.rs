//! The queues of a function: Create and Delete, doorbells, heads and tails, and the phase of
//! completions. Where they lie in the guest's memory is only a number here.
//!
//! A command is fetched only when there is a place for its completion: each takes one of its
//! completion queue, over all submission queues of that.

use alloc::vec::Vec;

use flashyard_nvme::{Status, SubmissionQueueEntry};

use super::{DOORBELLS, PAGE};

/// A doorbell: the tail of a submission queue or the head of a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Doorbell {
    /// Tail of this submission queue.
    Tail(u16),
    /// Head of this completion queue.
    Head(u16),
}

impl Doorbell {
    /// The doorbell at an offset of BAR 0; CAP.DSTRD is 0.
    pub fn at(offset: u64) -> Option<Self> {
        let index = offset.checked_sub(DOORBELLS)? / 4;
        let qid = u16::try_from(index / 2).ok()?;
        Some(if index % 2 == 0 {
            Self::Tail(qid)
        } else {
            Self::Head(qid)
        })
    }

    /// Its number among the doorbells.
    pub fn index(self) -> u32 {
        match self {
            Self::Tail(qid) => u32::from(qid) * 2,
            Self::Head(qid) => u32::from(qid) * 2 + 1,
        }
    }
}

/// A doorbell that was written in vain: an asynchronous event tells the guest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum InvalidDoorbell {
    /// There is no such queue.
    Queue,
    /// The queue cannot have this value.
    Value,
}

/// A queue that a Create command asks for, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewQueue {
    /// Queue Identifier.
    pub qid: u16,
    /// Entries.
    pub entries: u16,
    /// Priority class of a submission queue, 0 urgent to 3 low.
    pub priority: u8,
}

/// A submission queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubmissionQueue {
    base: u64,
    entries: u16,
    head: u16,
    tail: u16,
    cqid: u16,
}

/// A completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompletionQueue {
    base: u64,
    entries: u16,
    head: u16,
    tail: u16,
    phase: bool,
    vector: Option<u16>,
    /// The tail when the guest was interrupted last, or found to need no interrupt.
    notified: u16,
    /// Submission queues that complete here.
    users: u16,
    /// Places that are kept for commands in flight.
    promised: u16,
}

/// Whether a guest needs an interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// It has read everything.
    Nothing,
    /// It does not look any more.
    Interrupt,
    /// It is reading: ask again when it has moved its head, which has to be noticed.
    Later,
}

/// The place of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Guest address.
    pub address: u64,
    /// Phase Tag to write.
    pub phase: bool,
}

/// All queues of a function; number 0 is the Admin queue.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    submission: Table<SubmissionQueue>,
    completion: Table<CompletionQueue>,
}

/// Queues by their number.
#[derive(Clone, Debug)]
struct Table<T>(Vec<Option<T>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Table<T> {
    fn get(&self, qid: u16) -> Option<&T> {
        self.0.get(usize::from(qid))?.as_ref()
    }

    fn get_mut(&mut self, qid: u16) -> Option<&mut T> {
        self.0.get_mut(usize::from(qid))?.as_mut()
    }

    fn insert(&mut self, qid: u16, queue: T) {
        let place = usize::from(qid);
        if self.0.len() <= place {
            self.0.resize_with(place + 1, || None);
        }
        self.0[place] = Some(queue);
    }

    fn remove(&mut self, qid: u16) -> Option<T> {
        self.0.get_mut(usize::from(qid))?.take()
    }

    fn iter(&self) -> impl Iterator<Item = (u16, &T)> {
        let all = (0..).zip(&self.0);
        all.filter_map(|(qid, queue)| Some((qid, queue.as_ref()?)))
    }
}

/// What bounds a Create command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// I/O queues that the guest was granted.
    pub queues: u16,
    /// Entries of a queue at most.
    pub entries: u16,
    /// Interrupt vectors.
    pub vectors: u16,
}

impl SubmissionQueue {
    /// One of so many entries at `base`, empty, that completes to `cqid`.
    fn new(base: u64, entries: u16, cqid: u16) -> Self {
        Self {
            base,
            entries,
            head: 0,
            tail: 0,
            cqid,
        }
    }

    /// Where the next entry is read from, for SQHD.
    pub fn head(&self) -> u16 {
        self.head
    }

    /// Up to where the guest has written.
    pub fn tail(&self) -> u16 {
        self.tail
    }

    /// Entries.
    pub fn entries(&self) -> u16 {
        self.entries
    }

    /// Its completion queue.
    pub fn cqid(&self) -> u16 {
        self.cqid
    }

    /// Whether there is something to be fetched.
    pub fn has_entries(&self) -> bool {
        self.head != self.tail
    }
}

impl CompletionQueue {
    fn new(base: u64, entries: u16, vector: Option<u16>) -> Self {
        Self {
            base,
            entries,
            head: 0,
            tail: 0,
            phase: true,
            vector,
            notified: 0,
            users: 0,
            promised: 0,
        }
    }

    /// Entries.
    pub fn entries(&self) -> u16 {
        self.entries
    }

    /// The vector by which it interrupts, if it does.
    pub fn vector(&self) -> Option<u16> {
        self.vector
    }

    /// Up to where the guest has read.
    pub fn head(&self) -> u16 {
        self.head
    }

    /// Whether the guest has completions to read.
    pub fn has_entries(&self) -> bool {
        self.head != self.tail
    }

    /// Entries that the guest has not read.
    fn unread(&self) -> u16 {
        distance(self.head, self.tail, self.entries)
    }

    /// Whether the guest needs an interrupt to see the last completions. As long as it has not read
    /// all of which it was notified, it is at it, or about to be, and will look for more.
    pub fn need(&self) -> Need {
        let new = distance(self.notified, self.tail, self.entries);
        match self.unread() {
            0 => Need::Nothing,
            unread if unread <= new => Need::Interrupt,
            _ => Need::Later,
        }
    }

    /// Whether half of it is not read.
    pub fn is_half_full(&self) -> bool {
        self.unread() >= self.entries / 2
    }

    /// Whether there is a place for one more command's completion.
    pub fn has_room(&self) -> bool {
        u32::from(self.unread()) + u32::from(self.promised) < u32::from(self.entries) - 1
    }
}

/// From `from` to `to`, going round.
fn distance(from: u16, to: u16, entries: u16) -> u16 {
    if to >= from {
        to - from
    } else {
        entries - (from - to)
    }
}

/// The place behind `at`, going round.
fn next(at: u16, entries: u16) -> u16 {
    if at + 1 == entries { 0 } else { at + 1 }
}

impl Queues {
    /// Those of a controller that is being enabled: the Admin queue.
    pub fn set_admin(&mut self, queues: &super::AdminQueues) {
        let super::AdminQueues {
            submission,
            submission_entries,
            completion,
            completion_entries,
            ..
        } = *queues;
        self.reset();
        let mut of_admin = CompletionQueue::new(completion, completion_entries, Some(0));
        of_admin.users = 1;
        self.completion.insert(0, of_admin);
        let of_admin = SubmissionQueue::new(submission, submission_entries, 0);
        self.submission.insert(0, of_admin);
    }

    /// Forgets all.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// A submission queue.
    pub fn submission(&self, qid: u16) -> Option<&SubmissionQueue> {
        self.submission.get(qid)
    }

    /// A completion queue.
    pub fn completion(&self, qid: u16) -> Option<&CompletionQueue> {
        self.completion.get(qid)
    }

    /// How many submission queues there are.
    pub fn submissions(&self) -> usize {
        self.submission.iter().count()
    }

    /// The numbers of all submission queues are below this one.
    pub fn submission_end(&self) -> u16 {
        self.submission.0.len() as u16
    }

    /// The submission queues that complete to `cqid`.
    pub fn users(&self, cqid: u16) -> impl Iterator<Item = u16> + '_ {
        let all = self.submission.iter();
        all.filter_map(move |(qid, queue)| (queue.cqid == cqid).then_some(qid))
    }

    /// The doorbells of all I/O queues: where each is, and the entries of its queue.
    pub fn doorbells(&self) -> Vec<(Doorbell, u16, u16)> {
        let tails = self.submission.iter();
        let tails = tails.map(|(qid, queue)| (Doorbell::Tail(qid), queue.tail, queue.entries));
        let heads = self.completion.iter();
        let heads = heads.map(|(qid, queue)| (Doorbell::Head(qid), queue.head, queue.entries));
        let all = tails.chain(heads);
        all.filter(|(doorbell, ..)| doorbell.index() > 1).collect()
    }

    /// Whether any completion queue with this vector has completions for the guest to read.
    pub fn has_unread(&self, vector: u16) -> bool {
        let mut all = self.completion.iter();
        all.any(|(_, queue)| queue.vector == Some(vector) && queue.has_entries())
    }

    /// Create I/O Completion Queue.
    ///
    /// # Errors
    /// The status to answer with.
    pub fn create_completion(
        &mut self,
        sqe: &SubmissionQueueEntry,
        bounds: Bounds,
    ) -> Result<NewQueue, Status> {
        let taken = |qid| self.completion.get(qid).is_some();
        let (new, base) = checked(sqe, bounds, taken)?;
        let (interrupts, vector) = (sqe.cdw11() & 2 != 0, (sqe.cdw11() >> 16) as u16);
        if interrupts && vector >= bounds.vectors {
            return Err(Status::INVALID_INTERRUPT_VECTOR.with_dnr());
        }
        let queue = CompletionQueue::new(base, new.entries, interrupts.then_some(vector));
        self.completion.insert(new.qid, queue);
        Ok(new)
    }

    /// Checks Create I/O Submission Queue. [`Self::add_submission`] makes it.
    ///
    /// # Errors
    /// The status to answer with.
    pub fn check_submission(
        &self,
        sqe: &SubmissionQueueEntry,
        bounds: Bounds,
    ) -> Result<NewQueue, Status> {
        let cqid = (sqe.cdw11() >> 16) as u16;
        if cqid != 0 && cqid > bounds.queues {
            return Err(Status::INVALID_QUEUE_IDENTIFIER.with_dnr());
        }
        if cqid == 0 || self.completion.get(cqid).is_none() {
            return Err(Status::COMPLETION_QUEUE_INVALID.with_dnr());
        }
        let taken = |qid| self.submission.get(qid).is_some();
        checked(sqe, bounds, taken).map(|(new, _)| new)
    }

    /// Makes the submission queue of a command that [`Self::check_submission`] has accepted.
    pub fn add_submission(&mut self, sqe: &SubmissionQueueEntry, new: &NewQueue) {
        let cqid = (sqe.cdw11() >> 16) as u16;
        if let Some(completion) = self.completion.get_mut(cqid) {
            completion.users += 1;
        }
        let queue = SubmissionQueue::new(sqe.prp1(), new.entries, cqid);
        self.submission.insert(new.qid, queue);
    }

    /// Checks Delete I/O Submission Queue: gives its number. [`Self::remove_submission`] removes it
    /// when all its commands have been answered.
    ///
    /// # Errors
    /// The status to answer with.
    pub fn check_delete_submission(&self, sqe: &SubmissionQueueEntry) -> Result<u16, Status> {
        let qid = sqe.cdw10() as u16;
        if qid == 0 || self.submission.get(qid).is_none() {
            return Err(Status::INVALID_QUEUE_IDENTIFIER.with_dnr());
        }
        Ok(qid)
    }

    /// Removes a submission queue.
    pub fn remove_submission(&mut self, qid: u16) {
        if let Some(queue) = self.submission.remove(qid)
            && let Some(completion) = self.completion.get_mut(queue.cqid)
        {
            completion.users -= 1;
        }
    }

    /// Delete I/O Completion Queue: gives its number.
    ///
    /// # Errors
    /// The status to answer with.
    pub fn delete_completion(&mut self, sqe: &SubmissionQueueEntry) -> Result<u16, Status> {
        let qid = sqe.cdw10() as u16;
        let queue = self.completion.get(qid).filter(|_| qid != 0);
        let queue = queue.ok_or(Status::INVALID_QUEUE_IDENTIFIER.with_dnr())?;
        if queue.users > 0 {
            return Err(Status::INVALID_QUEUE_DELETION.with_dnr());
        }
        self.completion.remove(qid);
        Ok(qid)
    }

    /// The guest has moved a doorbell. Bits 31:16 of a doorbell are reserved.
    ///
    /// # Errors
    /// There is no such queue, or it cannot have this value; nothing has changed.
    pub fn ring(&mut self, doorbell: Doorbell, value: u32) -> Result<(), InvalidDoorbell> {
        let value = value as u16;
        match doorbell {
            Doorbell::Tail(qid) => {
                let queue = self.submission.get_mut(qid);
                let queue = queue.ok_or(InvalidDoorbell::Queue)?;
                if value >= queue.entries {
                    return Err(InvalidDoorbell::Value);
                }
                queue.tail = value;
            }
            Doorbell::Head(qid) => {
                let queue = self.completion.get_mut(qid);
                let queue = queue.ok_or(InvalidDoorbell::Queue)?;
                let read = value < queue.entries
                    && distance(queue.head, value, queue.entries) <= queue.unread();
                if !read {
                    return Err(InvalidDoorbell::Value);
                }
                queue.head = value;
            }
        }
        Ok(())
    }

    /// Takes the next entry of a submission queue, if there is one and a place for its completion:
    /// its address. The place is kept until [`Self::post`].
    pub fn fetch(&mut self, qid: u16) -> Option<u64> {
        let queue = self.submission.get_mut(qid)?;
        if !queue.has_entries() {
            return None;
        }
        let completion = self.completion.get_mut(queue.cqid)?;
        if !completion.has_room() {
            return None;
        }
        completion.promised += 1;
        let at = u64::from(queue.head) * SubmissionQueueEntry::LEN as u64;
        queue.head = next(queue.head, queue.entries);
        queue.base.checked_add(at)
    }

    /// Gives back the place that was kept for a command which is not answered soon: a request for
    /// asynchronous events.
    pub fn release(&mut self, cqid: u16) {
        if let Some(queue) = self.completion.get_mut(cqid) {
            queue.promised = queue.promised.saturating_sub(1);
        }
    }

    /// Keeps a place again for a command that has given its own back; false if there is none.
    pub fn keep_place(&mut self, cqid: u16) -> bool {
        let queue = self.completion.get_mut(cqid);
        let queue = queue.filter(|queue| queue.has_room());
        queue.is_some_and(|queue| {
            queue.promised += 1;
            true
        })
    }

    /// The guest is being interrupted for all there is in `cqid`, or has read it.
    pub fn notify(&mut self, cqid: u16) {
        if let Some(queue) = self.completion.get_mut(cqid) {
            queue.notified = queue.tail;
        }
    }

    /// The place of the next completion in `cqid`.
    pub fn post(&mut self, cqid: u16) -> Option<Slot> {
        let queue = self.completion.get_mut(cqid)?;
        queue.promised = queue.promised.saturating_sub(1);
        let slot = Slot {
            address: queue.base.checked_add(u64::from(queue.tail) * 16)?,
            phase: queue.phase,
        };
        queue.tail = next(queue.tail, queue.entries);
        if queue.tail == 0 {
            queue.phase = !queue.phase;
        }
        Some(slot)
    }
}

/// What both Create commands have in common: the queue, and its address.
fn checked(
    sqe: &SubmissionQueueEntry,
    bounds: Bounds,
    taken: impl Fn(u16) -> bool,
) -> Result<(NewQueue, u64), Status> {
    let (qid, size) = (sqe.cdw10() as u16, (sqe.cdw10() >> 16) as u16);
    if qid == 0 || qid > bounds.queues || taken(qid) {
        return Err(Status::INVALID_QUEUE_IDENTIFIER.with_dnr());
    }
    if size == 0 || size >= bounds.entries {
        return Err(Status::INVALID_QUEUE_SIZE.with_dnr());
    }
    // CAP.CQR: queues have to be contiguous.
    if sqe.cdw11() & 1 == 0 {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    if !sqe.prp1().is_multiple_of(PAGE) {
        return Err(Status::PRP_OFFSET_INVALID.with_dnr());
    }
    let new = NewQueue {
        qid,
        entries: size + 1,
        priority: (sqe.cdw11() >> 1) as u8 & 3,
    };
    Ok((new, sqe.prp1()))
}
