//! Write data on their way: each R2T has a place, which its transfer tag names. A command gets one
//! R2T for all of its data, once there is a share of memory for them. The buffer is taken with the
//! first of them: of a deep queue of large writes those buffers are in use then that are received
//! into or are at the device, and not as many as there are R2Ts, which the processor's cache could
//! not hold. Of a command that is aborted meanwhile the data may still come: they are received and
//! forgotten.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use flashyard_block::IoError;
use flashyard_engine::front::{Failure, Held};
use flashyard_nvme::Status;
use flashyard_nvme::tcp::{H2CData, H2cTransfer, R2T, Violation};
use flashyard_runtime::Buf;
use flashyard_time::{Duration, Time};

/// So many transfers that nobody wants are remembered; the data of an older one break the rules.
const UNWANTED: usize = 1024;

/// The transfers of one connection.
#[derive(Default)]
pub(crate) struct Transfers {
    places: RefCell<Places>,
}

#[derive(Default)]
struct Places {
    by_tag: Vec<Option<Place>>,
    free: Vec<u16>,
    /// Those whose command has been aborted, the oldest first.
    unwanted: VecDeque<u16>,
    /// The one whose data PDU has begun: its tag names no other before that has ended.
    receiving: Option<u16>,
    closed: bool,
}

struct Place {
    rules: H2cTransfer,
    bytes: usize,
    memory: Memory,
    /// The command waits for them.
    wanted: bool,
    digest_ok: bool,
    /// All data have come.
    done: bool,
    /// When it was first seen by [`Transfers::is_overdue`].
    seen: Option<Time>,
    waker: Option<Waker>,
}

/// Where the data go.
enum Memory {
    /// Nothing has come yet. What the buffer is going to be counted against.
    Promised(Option<Held>),
    /// A buffer, and what it is counted against.
    Here(Buf, Option<Held>),
    /// The kernel receives into it.
    Lent(Option<Held>),
    /// They go nowhere: nobody wants them, or the system had no memory.
    None,
}

impl Transfers {
    /// Makes a place for so many bytes of data of command `cid`, counted against `held`; gives the
    /// R2T to be sent and the wait for them.
    pub(crate) fn begin(&self, cid: u16, bytes: usize, held: Option<Held>) -> (R2T, Arrival<'_>) {
        let mut places = self.places.borrow_mut();
        let ttag = places.free.pop().unwrap_or_else(|| {
            places.by_tag.push(None);
            u16::try_from(places.by_tag.len() - 1).expect("a queue has fewer than 65,536 commands")
        });
        let length = u32::try_from(bytes).expect("a transfer is shorter than 4 GiB");
        let r2t = R2T {
            cccid: cid,
            ttag,
            r2to: 0,
            r2tl: length,
        };
        let rules = H2cTransfer::new(&r2t);
        let place = Place {
            rules,
            bytes,
            memory: Memory::Promised(held),
            wanted: true,
            digest_ok: true,
            done: false,
            seen: None,
            waker: None,
        };
        places.by_tag[usize::from(ttag)] = Some(place);
        (
            r2t,
            Arrival {
                transfers: self,
                ttag,
            },
        )
    }

    /// The header of a data PDU has come.
    pub(crate) fn accept(&self, pdu: &H2CData) -> Result<(), Violation> {
        let mut places = self.places.borrow_mut();
        let place = places.get(pdu.ttag).ok_or(Violation::tag())?;
        place.rules.accept(pdu)?;
        place.take_memory();
        places.receiving = Some(pdu.ttag);
        Ok(())
    }

    /// A piece of data has come; it belongs at `at`.
    pub(crate) fn put(&self, ttag: u16, at: usize, piece: &[u8]) {
        let mut places = self.places.borrow_mut();
        if let Some(Memory::Here(buf, _)) = places.get(ttag).map(|place| &mut place.memory) {
            buf[at..at + piece.len()].copy_from_slice(piece);
        }
    }

    /// Lends the buffer out, to be received into.
    pub(crate) fn lend(&self, ttag: u16) -> Option<Buf> {
        let mut places = self.places.borrow_mut();
        let memory = &mut places.get(ttag)?.memory;
        match std::mem::replace(memory, Memory::None) {
            Memory::Here(buf, held) => {
                *memory = Memory::Lent(held);
                Some(buf)
            }
            _ => None,
        }
    }

    /// Takes the buffer back. (Its command may have ended meanwhile, with the connection or by an
    /// Abort.)
    pub(crate) fn take_back(&self, ttag: u16, buf: Buf) {
        let mut places = self.places.borrow_mut();
        if let Some(place) = places.get(ttag)
            && let Memory::Lent(held) = std::mem::replace(&mut place.memory, Memory::None)
            && place.wanted
        {
            place.memory = Memory::Here(buf, held);
        }
    }

    /// A data PDU has ended.
    pub(crate) fn end_pdu(&self, ttag: u16, digest_ok: bool) {
        let mut places = self.places.borrow_mut();
        places.receiving = None;
        let Some(place) = places.get(ttag) else {
            return;
        };
        place.digest_ok &= digest_ok;
        if !place.rules.is_complete() {
            return;
        }
        place.done = true;
        if let Some(waker) = place.waker.take() {
            waker.wake();
        }
        if !place.wanted {
            places.unwanted.retain(|tag| *tag != ttag);
            places.end(ttag);
        }
    }

    /// Whether the host owes any data for so long. A trickle does not help it: each transfer has
    /// its time. Data of a command that was aborted are not owed.
    pub(crate) fn is_overdue(&self, now: Time, span: Duration) -> bool {
        let mut places = self.places.borrow_mut();
        let mut owed = places
            .by_tag
            .iter_mut()
            .flatten()
            .filter(|place| place.wanted && !place.done);
        owed.any(|place| now.since(*place.seen.get_or_insert(now)) >= span)
    }

    /// Nothing more will come.
    pub(crate) fn close(&self) {
        let mut places = self.places.borrow_mut();
        places.closed = true;
        for place in places.by_tag.iter_mut().flatten() {
            if let Some(waker) = place.waker.take() {
                waker.wake();
            }
        }
    }
}

impl Place {
    /// Takes the buffer that is promised. What it is counted against sees to it that there is one,
    /// unless the system has no memory.
    fn take_memory(&mut self) {
        if let Memory::Promised(held) = &mut self.memory {
            let held = held.take();
            self.memory = match Buf::take(self.bytes) {
                Some(buf) => Memory::Here(buf, held),
                None => Memory::None,
            };
        }
    }
}

impl Places {
    fn get(&mut self, ttag: u16) -> Option<&mut Place> {
        self.by_tag.get_mut(usize::from(ttag))?.as_mut()
    }

    /// Nobody waits for the data of `ttag` any more.
    fn leave(&mut self, ttag: u16) {
        let receiving = self.receiving;
        let over = self.closed && receiving != Some(ttag);
        let Some(place) = self.get(ttag) else { return };
        if place.done || over {
            return self.end(ttag);
        }
        place.wanted = false;
        place.waker = None;
        if let Memory::Here(..) | Memory::Promised(_) = place.memory {
            place.memory = Memory::None;
        }
        self.unwanted.push_back(ttag);
        let mut tags = self.unwanted.iter();
        if self.unwanted.len() > UNWANTED
            && let Some(oldest) = tags.position(|tag| Some(*tag) != receiving)
            && let Some(oldest) = self.unwanted.remove(oldest)
        {
            self.end(oldest);
        }
    }

    fn end(&mut self, ttag: u16) {
        self.by_tag[usize::from(ttag)] = None;
        self.free.push(ttag);
    }
}

/// The wait for the data of one command. Dropped before they are here, they are not wanted any
/// more.
pub(crate) struct Arrival<'a> {
    transfers: &'a Transfers,
    ttag: u16,
}

impl Future for Arrival<'_> {
    type Output = Result<(Buf, Option<Held>), Failure>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut places = self.transfers.places.borrow_mut();
        let closed = places.closed;
        let Some(place) = places.get(self.ttag) else {
            return Poll::Ready(Err(Failure::Gone));
        };
        if place.done {
            let memory = std::mem::replace(&mut place.memory, Memory::None);
            return Poll::Ready(match memory {
                Memory::Here(buf, held) if place.digest_ok => Ok((buf, held)),
                Memory::Here(..) => Err(Status::TRANSIENT_TRANSPORT_ERROR.into()),
                _ => Err(IoError::Busy.into()),
            });
        }
        if closed {
            return Poll::Ready(Err(Failure::Gone));
        }
        place.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.transfers.places.borrow_mut().leave(self.ttag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: u32 = 64 << 10;

    fn data(r2t: &R2T, datao: u32, datal: u32) -> H2CData {
        H2CData {
            cccid: r2t.cccid,
            ttag: r2t.ttag,
            datao,
            datal,
            last: datao + datal == r2t.r2tl,
        }
    }

    fn begin(transfers: &Transfers, cid: u16, len: u32) -> (R2T, Arrival<'_>) {
        transfers.begin(cid, len as usize, None)
    }

    fn poll(mut arrival: Arrival<'_>) -> Poll<Result<(Buf, Option<Held>), Failure>> {
        Pin::new(&mut arrival).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// A queue may have asked for more than there is memory, as long as the data come one after the
    /// other and have gone on before the next ones come.
    #[test]
    fn memory_is_taken_when_data_come() {
        const LONG: u32 = 2 << 20;
        let transfers = Transfers::default();
        let all: Vec<_> = (0..100).map(|cid| begin(&transfers, cid, LONG)).collect();
        let taken: Vec<_> = std::iter::from_fn(|| Buf::take(LONG as usize)).collect();
        assert!(taken.len() < all.len(), "they would not all fit");
        drop(taken);
        for (r2t, arrival) in all {
            assert!(transfers.accept(&data(&r2t, 0, LONG)).is_ok());
            transfers.put(r2t.ttag, LONG as usize - 1, &[7]);
            transfers.end_pdu(r2t.ttag, true);
            let Poll::Ready(Ok((buf, None))) = poll(arrival) else {
                panic!("the data of {} are here", r2t.cccid)
            };
            assert_eq!((buf.len(), buf.last()), (LONG as usize, Some(&7)));
        }
    }

    #[test]
    fn data_without_memory_go_nowhere_and_their_command_may_be_tried_again() {
        let transfers = Transfers::default();
        let (r2t, arrival) = begin(&transfers, 0, LARGE);
        let taken: Vec<_> = std::iter::from_fn(|| Buf::take(LARGE as usize)).collect();
        assert!(transfers.accept(&data(&r2t, 0, LARGE)).is_ok());
        drop(taken);
        assert!(transfers.lend(r2t.ttag).is_none());
        transfers.put(r2t.ttag, 0, &[7]);
        transfers.end_pdu(r2t.ttag, true);
        let polled = poll(arrival);
        let busy = Failure::Device(IoError::Busy).status();
        assert!(matches!(polled, Poll::Ready(Err(failure)) if failure.status() == busy));
    }

    /// What comes for a command that was aborted goes nowhere, however many others are aborted and
    /// begun meanwhile.
    #[test]
    fn a_tag_is_given_to_nobody_else_while_its_data_come() {
        let transfers = Transfers::default();
        let (large, arrival) = begin(&transfers, 0, LARGE);
        drop(arrival);
        let pdu = data(&large, 0, LARGE);
        assert!(transfers.accept(&pdu).is_ok());
        for cid in 1..=UNWANTED as u16 {
            drop(begin(&transfers, cid, 4096).1);
        }
        let (small, _arrival) = begin(&transfers, 9, 4096);
        assert_ne!(small.ttag, large.ttag);
        transfers.put(large.ttag, LARGE as usize - 8, &[1; 8]);
        transfers.end_pdu(large.ttag, true);
        // All of it has come, so its tag is free.
        assert!(transfers.accept(&pdu).is_err());
        assert!(transfers.accept(&data(&small, 0, 4096)).is_ok());
    }

    #[test]
    fn of_too_many_that_nobody_wants_the_oldest_is_forgotten() {
        let transfers = Transfers::default();
        let (first, arrival) = begin(&transfers, 0, 4096);
        drop(arrival);
        let waits: Vec<_> = (1..=UNWANTED as u16)
            .map(|cid| begin(&transfers, cid, 4096))
            .collect();
        let last = waits[UNWANTED - 1].0;
        drop(waits);
        assert!(transfers.accept(&data(&first, 0, 4096)).is_err());
        assert!(transfers.accept(&data(&last, 0, 4096)).is_ok());
    }
}
