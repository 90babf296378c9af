//! First in, first out: the order of arrival, with a bound on what is in flight.

use alloc::vec::Vec;

use flashyard_time::Time;

use crate::{Ask, IoId, Next, Op, Outcome, Policy};

/// How much may be at the device at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// I/Os, at least 1.
    pub ios: u32,
    /// Sum of the bytes they transfer. An I/O larger than this goes alone.
    pub bytes: u64,
}

impl Window {
    /// No bound.
    pub const UNLIMITED: Self = Self {
        ios: u32::MAX,
        bytes: u64::MAX,
    };
}

/// See the module. Every call takes constant time; memory is one small place per id, taken when the
/// id is first queued and kept.
#[derive(Debug)]
pub struct Fifo {
    window: Window,
    ios_in_flight: u32,
    bytes_in_flight: u64,
    head: u32,
    tail: u32,
    /// The queue: a doubly linked list through the places of the queued ids.
    places: Vec<Place>,
}

/// The end of the list.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Place {
    before: u32,
    behind: u32,
    bytes: u64,
    queued: bool,
}

const FREE: Place = Place {
    before: NONE,
    behind: NONE,
    bytes: 0,
    queued: false,
};

impl Fifo {
    /// An empty queue in front of an idle device.
    ///
    /// # Panics
    /// When the window admits no I/O at all.
    pub fn new(window: Window) -> Self {
        assert!(
            window.ios > 0,
            "a window of no I/Os would never let one pass"
        );
        Self {
            window,
            ios_in_flight: 0,
            bytes_in_flight: 0,
            head: NONE,
            tail: NONE,
            places: Vec::new(),
        }
    }

    fn fits(&self, bytes: u64) -> bool {
        self.ios_in_flight < self.window.ios
            && (self.ios_in_flight == 0
                || self
                    .bytes_in_flight
                    .checked_add(bytes)
                    .is_some_and(|sum| sum <= self.window.bytes))
    }

    fn depart(&mut self, bytes: u64) {
        self.ios_in_flight += 1;
        self.bytes_in_flight += bytes;
    }

    fn unlink(&mut self, index: u32) {
        let Place { before, behind, .. } = self.places[index as usize];
        match self.places.get_mut(before as usize) {
            Some(place) => place.behind = behind,
            None => self.head = behind,
        }
        match self.places.get_mut(behind as usize) {
            Some(place) => place.before = before,
            None => self.tail = before,
        }
        self.places[index as usize] = FREE;
    }
}

impl Policy for Fifo {
    fn arrive(&mut self, _: Time, io: Ask) {
        let IoId(index) = io.id;
        assert!(index != NONE, "ids are small numbers");
        if index as usize >= self.places.len() {
            self.places.resize(index as usize + 1, FREE);
        }
        assert!(!self.places[index as usize].queued, "an id arrives once");
        self.places[index as usize] = Place {
            before: self.tail,
            behind: NONE,
            bytes: transferred(&io),
            queued: true,
        };
        match self.places.get_mut(self.tail as usize) {
            Some(last) => last.behind = index,
            None => self.head = index,
        }
        self.tail = index;
    }

    #[inline]
    fn pass(&mut self, _: Time, io: &Ask) -> bool {
        let bytes = transferred(io);
        let passes = self.head == NONE && self.fits(bytes);
        if passes {
            self.depart(bytes);
        }
        passes
    }

    fn next(&mut self, _: Time) -> Next {
        let index = self.head;
        if index == NONE {
            return Next::WaitForEvent;
        }
        let bytes = self.places[index as usize].bytes;
        if !self.fits(bytes) {
            return Next::WaitForEvent;
        }
        self.unlink(index);
        self.depart(bytes);
        Next::Dispatch(IoId(index))
    }

    fn complete(&mut self, _: Time, io: &Ask, _: Outcome) {
        assert!(
            self.ios_in_flight > 0 && self.bytes_in_flight >= transferred(io),
            "only a dispatched I/O completes"
        );
        self.ios_in_flight -= 1;
        self.bytes_in_flight -= transferred(io);
    }

    fn cancel(&mut self, _: Time, id: IoId) {
        if self
            .places
            .get(id.0 as usize)
            .is_some_and(|place| place.queued)
        {
            self.unlink(id.0);
        }
    }
}

/// Bytes that count against the window: a range that is zeroed or deallocated may be large and
/// costs no transfer.
fn transferred(io: &Ask) -> u64 {
    match io.op {
        Op::Read | Op::Write | Op::CompareAndWrite => io.bytes,
        Op::Flush | Op::WriteZeroes | Op::Deallocate => 0,
    }
}
