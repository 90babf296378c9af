//! Receives that the core tries by itself, once per turn, with a system call: a core that polls
//! does not need the kernel to wake it. Such a receive is in no table of operations, and ends one
//! turn after its data came. It is put into the table when it becomes the driver's, see
//! [`Table::hand_over`](crate::table::Table::hand_over).

use std::io;
use std::task::Waker;

use crate::op::{Outcome, Receive};
use crate::ticket::Place;

/// Receives that are tried directly at a time. Where more sockets are busy, one entrance of the
/// kernel for all of them costs less than a call for each.
pub(crate) const MOST: usize = 4;

/// The receives of a core that are tried directly.
#[derive(Default)]
pub(crate) struct Direct {
    slots: [Option<Slot>; MOST],
    /// How many slots are used.
    used: usize,
    /// How many of those wait for bytes.
    waiting: usize,
    /// How many have ended since [`Direct::next_ended`] was asked.
    ended: usize,
    /// How many have ended since the beginning.
    arrivals: u64,
}

struct Slot {
    receive: Receive,
    /// Fruitless tries.
    tries: u32,
    waker: Option<Waker>,
    result: Option<io::Result<Outcome>>,
    /// It has ended, and the waiting task is to be woken.
    news: bool,
}

/// The result of a try.
pub(crate) enum Tried {
    Ended(io::Result<Outcome>),
    /// Nothing yet.
    Nothing,
    /// It is for the driver to go on.
    Unfit,
}

impl Direct {
    /// How many receives there are, including ended ones that no task has seen.
    #[inline]
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// How many receives wait for bytes.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many receives have brought something.
    #[inline]
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Whether a receive has ended that [`Direct::next_ended`] has not returned.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended > 0
    }

    /// Takes a receive in. Fewer than [`MOST`] are here.
    #[inline]
    pub(crate) fn insert(&mut self, receive: Receive) -> Place {
        let free = self.slots.iter().position(Option::is_none);
        let place = free.expect("the caller has counted");
        self.slots[place] = Some(Slot {
            receive,
            tries: 0,
            waker: None,
            result: None,
            news: false,
        });
        self.used += 1;
        self.waiting += 1;
        Place(place as u8)
    }

    /// Tries each receive that waits. Those that `attempt` calls unfit, or that had `tries` tries
    /// in vain, are named to `left`.
    #[inline]
    pub(crate) fn try_each(
        &mut self,
        tries: u32,
        mut attempt: impl FnMut(&mut Receive) -> Tried,
        mut left: impl FnMut(Place),
    ) {
        for (place, slot) in self.slots.iter_mut().enumerate() {
            let Some(slot) = slot.as_mut().filter(|slot| slot.result.is_none()) else {
                continue;
            };
            match attempt(&mut slot.receive) {
                Tried::Ended(result) => {
                    slot.result = Some(result);
                    slot.news = true;
                    self.waiting -= 1;
                    self.ended += 1;
                    self.arrivals += 1;
                }
                Tried::Nothing if slot.tries < tries => slot.tries += 1,
                Tried::Nothing | Tried::Unfit => left(Place(place as u8)),
            }
        }
    }

    /// A receive that waits for bytes.
    pub(crate) fn any_waiting(&self) -> Option<Place> {
        let waits = |slot: &Option<Slot>| slot.as_ref().is_some_and(|slot| slot.result.is_none());
        let place = self.slots.iter().position(waits)?;
        Some(Place(place as u8))
    }

    /// Takes out a receive that waits for bytes, with the waker of its task.
    pub(crate) fn take(&mut self, place: Place) -> (Receive, Option<Waker>) {
        let slot = self.remove(place);
        debug_assert!(slot.result.is_none(), "what has ended is not taken away");
        (slot.receive, slot.waker)
    }

    /// Ends a receive that waits for bytes as cancelled. Nothing happens to one that has ended.
    pub(crate) fn cancel(&mut self, place: Place) {
        let slot = self.slots[usize::from(place.0)].as_mut();
        let slot = slot.expect("a place is used until its receive is taken out");
        if slot.result.is_none() {
            slot.result = Some(Err(io::Error::from_raw_os_error(libc::ECANCELED)));
            slot.news = true;
            self.waiting -= 1;
            self.ended += 1;
        }
    }

    /// Ends all receives that wait for bytes as cancelled.
    pub(crate) fn cancel_all(&mut self) {
        while let Some(place) = self.any_waiting() {
            self.cancel(place);
        }
    }

    /// The waker of a receive that has ended; of each once.
    #[inline]
    pub(crate) fn next_ended(&mut self) -> Option<Waker> {
        while self.ended > 0 {
            let mut slots = self.slots.iter_mut().flatten();
            let slot = slots.find(|slot| slot.news)?;
            slot.news = false;
            self.ended -= 1;
            if let Some(waker) = slot.waker.take() {
                return Some(waker);
            }
        }
        None
    }

    /// The end of a receive, which is taken out with it. Before the end it records the waker of the
    /// task, and gives the one recorded before, to be dropped outside of any borrow.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        place: Place,
        waker: &Waker,
    ) -> Result<(Receive, io::Result<Outcome>), Option<Waker>> {
        let slot = self.slots[usize::from(place.0)].as_mut();
        let slot = slot.expect("a place is used until its receive is taken out");
        if slot.result.is_none() {
            return Err(slot.waker.replace(waker.clone()));
        }
        let slot = self.remove(place);
        let result = slot.result.expect("it was just seen");
        Ok((slot.receive, result))
    }

    /// Takes a receive out whose future was dropped; to be dropped outside of any borrow.
    pub(crate) fn abandon(&mut self, place: Place) -> impl Sized + use<> {
        self.remove(place)
    }

    #[inline]
    fn remove(&mut self, place: Place) -> Slot {
        let slot = self.slots[usize::from(place.0)].take();
        let slot = slot.expect("a place is used until its receive is taken out");
        self.used -= 1;
        self.waiting -= usize::from(slot.result.is_none());
        self.ended -= usize::from(slot.news);
        slot
    }
}
