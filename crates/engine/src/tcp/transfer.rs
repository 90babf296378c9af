//! Write data on their way: each R2T has a place, which its transfer tag names. Whole commands are invited, one R2T
//! each, once there is a buffer for all of their data.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use flashyard_nvme::tcp::{H2CData, H2cTransfer, R2T, Violation};
use flashyard_runtime::Buf;
use flashyard_time::{Duration, Time};

/// The transfers of one connection.
#[derive(Default)]
pub(crate) struct Transfers {
    places: RefCell<Places>,
}

#[derive(Default)]
struct Places {
    by_tag: Vec<Option<Place>>,
    free: Vec<u16>,
    closed: bool,
}

struct Place {
    rules: H2cTransfer,
    /// Away while the kernel receives into it.
    buf: Option<Buf>,
    digest_ok: bool,
    /// All data have come.
    done: bool,
    /// When it was first seen by [`Transfers::is_overdue`].
    seen: Option<Time>,
    waker: Option<Waker>,
}

/// How a transfer ended.
pub(crate) enum Arrived {
    /// The data.
    Whole(Buf),
    /// The data, but a digest was wrong.
    Damaged,
    /// The connection has ended.
    Never,
}

impl Transfers {
    /// Makes a place for the data of command `cid`, which fill `buf`; gives the R2T to be sent and the wait for
    /// them.
    pub(crate) fn invite(&self, cid: u16, buf: Buf) -> (R2T, Arrival<'_>) {
        let mut places = self.places.borrow_mut();
        let ttag = places.free.pop().unwrap_or_else(|| {
            places.by_tag.push(None);
            u16::try_from(places.by_tag.len() - 1).expect("a queue has fewer than 65,536 commands")
        });
        let length = u32::try_from(buf.len()).expect("a buffer is shorter than 4 GiB");
        let r2t = R2T {
            cccid: cid,
            ttag,
            r2to: 0,
            r2tl: length,
        };
        let rules = H2cTransfer::new(&r2t);
        let place = Place {
            rules,
            buf: Some(buf),
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
        place.rules.accept(pdu)
    }

    /// A piece of data has come; it belongs at `at`.
    pub(crate) fn put(&self, ttag: u16, at: usize, piece: &[u8]) {
        let mut places = self.places.borrow_mut();
        if let Some(buf) = places.get(ttag).and_then(|place| place.buf.as_mut()) {
            buf[at..at + piece.len()].copy_from_slice(piece);
        }
    }

    /// Lends the buffer out, to be received into.
    pub(crate) fn lend(&self, ttag: u16) -> Option<Buf> {
        self.places.borrow_mut().get(ttag)?.buf.take()
    }

    /// Takes the buffer back. (Its command may have ended meanwhile, with the connection.)
    pub(crate) fn take_back(&self, ttag: u16, buf: Buf) {
        if let Some(place) = self.places.borrow_mut().get(ttag) {
            place.buf = Some(buf);
        }
    }

    /// A data PDU has ended.
    pub(crate) fn end_pdu(&self, ttag: u16, digest_ok: bool) {
        let mut places = self.places.borrow_mut();
        let Some(place) = places.get(ttag) else {
            return;
        };
        place.digest_ok &= digest_ok;
        if place.rules.is_complete() {
            place.done = true;
            if let Some(waker) = place.waker.take() {
                waker.wake();
            }
        }
    }

    /// Whether the host owes any data for so long. A trickle does not help it: each transfer has its time.
    pub(crate) fn is_overdue(&self, now: Time, span: Duration) -> bool {
        let mut places = self.places.borrow_mut();
        let mut owed = places
            .by_tag
            .iter_mut()
            .flatten()
            .filter(|place| !place.done);
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

impl Places {
    fn get(&mut self, ttag: u16) -> Option<&mut Place> {
        self.by_tag.get_mut(usize::from(ttag))?.as_mut()
    }
}

/// The wait for the data of one command.
pub(crate) struct Arrival<'a> {
    transfers: &'a Transfers,
    ttag: u16,
}

impl Future for Arrival<'_> {
    type Output = Arrived;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Arrived> {
        let mut places = self.transfers.places.borrow_mut();
        let closed = places.closed;
        let Some(place) = places.get(self.ttag) else {
            return Poll::Ready(Arrived::Never);
        };
        if place.done {
            let whole = place.buf.take().filter(|_| place.digest_ok);
            return Poll::Ready(whole.map_or(Arrived::Damaged, Arrived::Whole));
        }
        if closed {
            return Poll::Ready(Arrived::Never);
        }
        place.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        let mut places = self.transfers.places.borrow_mut();
        let place = places.by_tag[usize::from(self.ttag)].take();
        places.free.push(self.ttag);
        drop(places);
        drop(place);
    }
}
