//! The commands of one queue that wait for their answer: a fixed table of places. A place owns the
//! command's buffer from submission to completion, so a caller that stops waiting leaves nothing
//! behind that the controller's late data could hurt.
//!
//! A command identifier is the place's number and, in its upper four bits, a counter that moves
//! with every use: a second answer to an old command is recognised instead of completing a new one.

use std::task::{Context, Poll, Waker};

use flashyard_nvme::CompletionQueueEntry;
use flashyard_runtime::Buf;

use crate::credits::Charge;
use crate::payload::{Payload, ReadInto};
use crate::queue::HostError;
use crate::receiver::Violation;

/// Most commands that can be in flight on one queue.
pub(crate) const MAX_DEPTH: u16 = 1 << INDEX_BITS;

const INDEX_BITS: u32 = 12;
const INDEX_MASK: u16 = MAX_DEPTH - 1;

/// The controller's answer, success or error, or why there is no answer.
pub(crate) type Outcome = Result<CompletionQueueEntry, HostError>;

#[derive(Debug)]
pub(crate) struct Slots {
    slots: Box<[Slot]>,
    free: Vec<u16>,
}

#[derive(Debug)]
struct Slot {
    state: State,
    generation: u16,
    /// Set for commands that may wait without end (Asynchronous Event Request).
    patient: bool,
    data_damaged: bool,
    /// Age in ticks of the queue's watchdog.
    age: u8,
    /// Bytes the command moves.
    length: u32,
    /// Bytes received, or asked for by R2T, so far.
    moved: u32,
    payload: Payload,
    /// What it takes of a credit.
    charge: Option<Charge>,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Free,
    Waiting,
    /// No task waits any more; the place is freed when the answer comes.
    Abandoned,
    Done(Outcome),
}

/// A part of a write that the controller has asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

impl Slots {
    pub(crate) fn new(depth: u16) -> Self {
        assert!(
            (1..=MAX_DEPTH).contains(&depth),
            "depth was checked by Options"
        );
        Self {
            slots: (0..depth).map(|_| Slot::new()).collect(),
            free: (0..depth).rev().collect(),
        }
    }

    /// Takes a place for a command that moves `payload`, and gives the command identifier. Only
    /// what is to be kept until later is given here: in-capsule data are sent at once and are not.
    ///
    /// # Panics
    /// When no place is free: the queue's semaphore counts them.
    #[inline]
    pub(crate) fn occupy(&mut self, payload: Payload, length: u32, patient: bool) -> u16 {
        let index = self.free.pop().expect("a permit is a free place");
        let slot = &mut self.slots[usize::from(index)];
        slot.generation = (slot.generation + 1) & (u16::MAX >> INDEX_BITS);
        slot.state = State::Waiting;
        slot.patient = patient;
        slot.data_damaged = false;
        slot.age = 0;
        slot.length = length;
        slot.moved = 0;
        slot.payload = payload;
        slot.generation << INDEX_BITS | index
    }

    /// Asks whether the command has been answered; remembers whom to wake if not.
    pub(crate) fn poll(&mut self, cid: u16, context: &mut Context<'_>) -> Poll<(Outcome, Payload)> {
        let slot = &mut self.slots[usize::from(cid & INDEX_MASK)];
        if let State::Done(outcome) = slot.state {
            let payload = std::mem::take(&mut slot.payload);
            slot.waker = None;
            self.release(cid);
            return Poll::Ready((outcome, payload));
        }
        match &mut slot.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Keeps what a command in flight takes of a credit.
    pub(crate) fn keep_charge(&mut self, cid: u16, charge: Charge) {
        self.slots[usize::from(cid & INDEX_MASK)].charge = Some(charge);
    }

    /// What a command takes of a credit, when it is answered or its queue has failed.
    pub(crate) fn take_charge(&mut self, cid: u16) -> Option<Charge> {
        let slot = self.slots.get_mut(usize::from(cid & INDEX_MASK))?;
        slot.charge.take()
    }

    /// The caller does not wait any more. Gives whether the place is free again.
    pub(crate) fn abandon(&mut self, cid: u16) -> bool {
        let slot = &mut self.slots[usize::from(cid & INDEX_MASK)];
        slot.waker = None;
        if matches!(slot.state, State::Done(_)) {
            slot.payload = Payload::None;
            self.release(cid);
            return true;
        }
        slot.state = State::Abandoned;
        false
    }

    /// The controller's answer. Gives whether the place is free again (no task waited).
    pub(crate) fn complete(&mut self, entry: CompletionQueueEntry) -> Result<bool, Violation> {
        let cid = entry.cid();
        let outcome = self.live(cid)?.verdict(entry)?;
        Ok(self.finish(cid, outcome))
    }

    /// C2HData announces `length` bytes at `offset` of the command's data.
    pub(crate) fn expect_data(
        &mut self,
        cid: u16,
        offset: u32,
        length: u32,
    ) -> Result<(), Violation> {
        let slot = self.live(cid)?;
        if !matches!(slot.payload, Payload::In(_)) {
            return Err(Violation::DataNotAskedFor);
        }
        let end = u64::from(offset) + u64::from(length);
        if offset != slot.moved || end > u64::from(slot.length) {
            return Err(Violation::DataOutOfRange);
        }
        Ok(())
    }

    /// Bytes of the announced data.
    #[inline]
    pub(crate) fn fill(&mut self, cid: u16, piece: &[u8]) {
        let slot = &mut self.slots[usize::from(cid & INDEX_MASK)];
        let at = slot.moved as usize;
        if let Payload::In(ReadInto::Buf(buf)) = &mut slot.payload {
            buf[at..at + piece.len()].copy_from_slice(piece);
        }
        slot.moved += piece.len() as u32;
    }

    /// Takes the buffer for a receive straight into it; [`Slots::put_back`] must follow. Gives
    /// where to go on.
    pub(crate) fn borrow_target(&mut self, cid: u16) -> Option<(Buf, usize)> {
        let slot = &mut self.slots[usize::from(cid & INDEX_MASK)];
        if !matches!(slot.payload, Payload::In(ReadInto::Buf(_))) {
            return None;
        }
        let at = slot.moved as usize;
        match std::mem::take(&mut slot.payload) {
            Payload::In(ReadInto::Buf(buf)) => Some((buf, at)),
            _ => None,
        }
    }

    /// Gives the buffer back with `received` more bytes in it.
    pub(crate) fn put_back(&mut self, cid: u16, mut buf: Buf, received: usize) {
        let slot = &mut self.slots[usize::from(cid & INDEX_MASK)];
        buf.set_len(slot.length as usize);
        slot.moved += received as u32;
        slot.payload = Payload::In(ReadInto::Buf(buf));
    }

    /// The data of a C2HData PDU were not what its digest says.
    pub(crate) fn damage(&mut self, cid: u16) {
        self.slots[usize::from(cid & INDEX_MASK)].data_damaged = true;
    }

    /// R2T asks for `length` bytes at `offset`. Parts must be asked for in order and once each. The
    /// specification does not demand that of a controller, but every controller does it.
    pub(crate) fn ask(&mut self, cid: u16, offset: u32, length: u32) -> Result<Asked, Violation> {
        let slot = self.live(cid)?;
        if !slot.payload.is_out() {
            return Err(Violation::TransferNotOffered);
        }
        let end = u64::from(offset) + u64::from(length);
        if length == 0 || offset != slot.moved || end > u64::from(slot.length) {
            return Err(Violation::TransferOutOfRange);
        }
        slot.moved += length;
        Ok(Asked { offset, length })
    }

    /// The data of a write, to send from or to take.
    pub(crate) fn outgoing(&mut self, cid: u16) -> &mut Payload {
        &mut self.slots[usize::from(cid & INDEX_MASK)].payload
    }

    /// Ends every command with `error`. Gives how many places became free.
    pub(crate) fn fail_all(&mut self, error: HostError) -> usize {
        let mut freed = 0;
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if matches!(slot.state, State::Waiting | State::Abandoned) {
                freed += usize::from(self.finish(index as u16, Err(error)));
            }
        }
        freed
    }

    /// One tick of the watchdog: `expired` is called with every command that has now waited for
    /// `limit` ticks, and once more for every further tick, with its age.
    pub(crate) fn tick(&mut self, limit: u8, mut expired: impl FnMut(u16, u8)) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let counts = matches!(slot.state, State::Waiting | State::Abandoned) && !slot.patient;
            if counts {
                slot.age = slot.age.saturating_add(1);
                if slot.age >= limit {
                    expired(slot.generation << INDEX_BITS | index as u16, slot.age);
                }
            }
        }
    }

    fn live(&mut self, cid: u16) -> Result<&mut Slot, Violation> {
        match self.slots.get_mut(usize::from(cid & INDEX_MASK)) {
            Some(slot)
                if slot.generation == cid >> INDEX_BITS
                    && matches!(slot.state, State::Waiting | State::Abandoned) =>
            {
                Ok(slot)
            }
            _ => Err(Violation::UnknownCommand),
        }
    }

    fn finish(&mut self, cid: u16, outcome: Outcome) -> bool {
        let slot = &mut self.slots[usize::from(cid & INDEX_MASK)];
        if outcome.is_err() {
            slot.charge = None;
        }
        if matches!(slot.state, State::Abandoned) {
            slot.payload = Payload::None;
            self.release(cid);
            return true;
        }
        slot.state = State::Done(outcome);
        if let Some(waker) = &slot.waker {
            waker.wake_by_ref();
        }
        false
    }

    fn release(&mut self, cid: u16) {
        let index = cid & INDEX_MASK;
        self.slots[usize::from(index)].state = State::Free;
        self.free.push(index);
    }
}

impl Slot {
    fn new() -> Self {
        Self {
            state: State::Free,
            generation: 0,
            patient: false,
            data_damaged: false,
            age: 0,
            length: 0,
            moved: 0,
            payload: Payload::None,
            charge: None,
            waker: None,
        }
    }

    /// Translates the controller's answer for the caller, given the data that came.
    fn verdict(&self, entry: CompletionQueueEntry) -> Result<Outcome, Violation> {
        if !entry.status().is_success() {
            return Ok(Ok(entry));
        }
        if matches!(self.payload, Payload::In(_)) && self.moved != self.length {
            return Err(Violation::DataMissing);
        }
        Ok(if self.data_damaged {
            Err(HostError::DataDigest)
        } else {
            Ok(entry)
        })
    }
}

#[cfg(test)]
mod tests {
    use flashyard_nvme::Status;
    use flashyard_runtime::Data;

    use super::*;

    fn discard(slots: &mut Slots, bytes: u32) -> u16 {
        slots.occupy(Payload::In(ReadInto::Discard(bytes as usize)), bytes, false)
    }

    fn poll(slots: &mut Slots, cid: u16) -> Poll<Result<u64, HostError>> {
        let polled = slots.poll(cid, &mut Context::from_waker(Waker::noop()));
        polled.map(|(outcome, _)| outcome.map(|entry| entry.value()))
    }

    fn success(cid: u16, value: u64) -> CompletionQueueEntry {
        CompletionQueueEntry::new(cid, Status::SUCCESS).with_value(value)
    }

    #[test]
    fn an_answer_reaches_its_command_once() {
        let mut slots = Slots::new(2);
        let (first, second) = (discard(&mut slots, 0), discard(&mut slots, 0));
        assert_eq!(poll(&mut slots, first), Poll::Pending);
        assert_eq!(slots.complete(success(first, 7)), Ok(false));
        assert_eq!(
            slots.complete(success(first, 8)),
            Err(Violation::UnknownCommand)
        );
        assert_eq!(poll(&mut slots, first), Poll::Ready(Ok(7)));
        let third = discard(&mut slots, 0);
        assert_eq!(
            third & INDEX_MASK,
            first & INDEX_MASK,
            "the place is used again"
        );
        assert_eq!(
            slots.complete(success(first, 9)),
            Err(Violation::UnknownCommand),
            "by another name"
        );
        assert_eq!(slots.complete(success(second, 0)), Ok(false));
        assert_eq!(
            slots.complete(success(MAX_DEPTH - 1, 0)),
            Err(Violation::UnknownCommand)
        );
    }

    #[test]
    fn an_abandoned_command_keeps_its_place_until_the_answer() {
        let mut slots = Slots::new(1);
        let cid = discard(&mut slots, 8);
        assert!(!slots.abandon(cid));
        assert_eq!(slots.expect_data(cid, 0, 8), Ok(()));
        slots.fill(cid, &[0; 8]);
        assert_eq!(slots.complete(success(cid, 0)), Ok(true));
        let cid = discard(&mut slots, 0);
        assert_eq!(slots.complete(success(cid, 0)), Ok(false));
        assert!(slots.abandon(cid), "answered already");
    }

    #[test]
    fn data_come_in_order_and_in_full() {
        let mut slots = Slots::new(4);
        let cid = discard(&mut slots, 100);
        for (offset, length) in [(1, 1), (0, 101), (0, u32::MAX), (u32::MAX, 2)] {
            assert_eq!(
                slots.expect_data(cid, offset, length),
                Err(Violation::DataOutOfRange)
            );
        }
        assert_eq!(slots.expect_data(cid, 0, 60), Ok(()));
        slots.fill(cid, &[0; 60]);
        assert_eq!(slots.complete(success(cid, 0)), Err(Violation::DataMissing));
        assert_eq!(
            slots.expect_data(cid, 0, 40),
            Err(Violation::DataOutOfRange)
        );
        assert_eq!(slots.expect_data(cid, 60, 40), Ok(()));
        slots.fill(cid, &[0; 40]);
        assert_eq!(slots.complete(success(cid, 0)), Ok(false));

        let write = slots.occupy(Payload::Out(Data::Zeroes(8)), 8, false);
        assert_eq!(
            slots.expect_data(write, 0, 8),
            Err(Violation::DataNotAskedFor)
        );
        let damaged = discard(&mut slots, 1);
        slots.fill(damaged, &[1]);
        slots.damage(damaged);
        assert_eq!(slots.complete(success(damaged, 0)), Ok(false));
        assert_eq!(
            poll(&mut slots, damaged),
            Poll::Ready(Err(HostError::DataDigest))
        );
    }

    #[test]
    fn transfers_are_asked_for_in_order_and_once() {
        let mut slots = Slots::new(2);
        let cid = slots.occupy(Payload::Out(Data::Zeroes(100)), 100, false);
        for (offset, length) in [
            (0, 0),
            (1, 10),
            (0, 101),
            (0, u32::MAX),
            (u32::MAX, u32::MAX),
        ] {
            assert_eq!(
                slots.ask(cid, offset, length),
                Err(Violation::TransferOutOfRange)
            );
        }
        assert_eq!(
            slots.ask(cid, 0, 40),
            Ok(Asked {
                offset: 0,
                length: 40
            })
        );
        assert_eq!(slots.ask(cid, 0, 40), Err(Violation::TransferOutOfRange));
        assert_eq!(
            slots.ask(cid, 40, 60),
            Ok(Asked {
                offset: 40,
                length: 60
            })
        );
        assert_eq!(slots.ask(cid, 100, 1), Err(Violation::TransferOutOfRange));
        let read = discard(&mut slots, 8);
        assert_eq!(slots.ask(read, 0, 8), Err(Violation::TransferNotOffered));
    }

    #[test]
    fn the_watchdog_sees_who_waits_too_long() {
        let mut slots = Slots::new(3);
        let late = discard(&mut slots, 0);
        let patient = slots.occupy(Payload::None, 0, true);
        let mut seen = Vec::new();
        slots.tick(2, |cid, age| seen.push((cid, age)));
        discard(&mut slots, 0);
        slots.tick(2, |cid, age| seen.push((cid, age)));
        assert_eq!(seen, [(late, 2)]);
        assert!(!slots.abandon(patient));
        assert_eq!(slots.fail_all(HostError::Timeout), 1, "the abandoned one");
        assert_eq!(poll(&mut slots, late), Poll::Ready(Err(HostError::Timeout)));
    }
}
