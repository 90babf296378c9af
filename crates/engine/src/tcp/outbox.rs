//! What a connection is about to send: whole PDUs, gathered over a turn of the executor and sent in one call.
//! PDUs are pushed whole, so they never mix. Parcels are capped: beyond about 128 responses or 512 KiB a larger
//! call only misses caches.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Data, Gather, Rt};

use super::budget::{Budget, Held};

/// PDUs in one parcel.
const PARCEL_PDUS: usize = 128;
/// Bytes in one parcel, beyond which another is begun.
const PARCEL_BYTES: usize = 512 << 10;
/// Empty lists kept: one is sent while another is filled.
const SPARES: usize = 2;

/// The output of one connection.
pub(crate) struct Outbox {
    state: RefCell<State>,
    /// Wakes the sending task; only while it waits.
    ready: Notify,
    sender_waits: Cell<bool>,
    /// Wakes who waits for room.
    drained: Notify,
    bytes: Cell<usize>,
    bytes_max: Cell<usize>,
    closed: Cell<bool>,
    sealed: Cell<bool>,
    budget: OnceCell<Rc<Budget>>,
}

#[derive(Default)]
struct State {
    filling: Parcel,
    full: VecDeque<Parcel>,
    spares: Vec<Gather>,
}

/// What goes in one call.
#[derive(Default)]
pub(crate) struct Parcel {
    /// The bytes.
    pub(crate) gather: Gather,
    pdus: usize,
    held: usize,
}

impl Outbox {
    /// An empty outbox that has room until it holds `bytes_max`.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            state: RefCell::default(),
            ready: Notify::new(),
            sender_waits: Cell::new(false),
            drained: Notify::new(),
            bytes: Cell::new(0),
            bytes_max: Cell::new(bytes_max),
            closed: Cell::new(false),
            sealed: Cell::new(false),
            budget: OnceCell::new(),
        }
    }

    /// From now on there is room until it holds `bytes_max`.
    pub(crate) fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.set(bytes_max);
    }

    /// From now on held memory goes back to `budget` when sent.
    pub(crate) fn set_budget(&self, budget: Rc<Budget>) {
        assert!(
            self.budget.set(budget).is_ok(),
            "a connection becomes a queue once"
        );
    }

    /// Appends a PDU without payload.
    #[inline]
    pub(crate) fn push(&self, pdu: &[u8]) {
        if self.sealed.get() {
            return;
        }
        let mut state = self.state.borrow_mut();
        state.filling.gather.push_bytes(pdu);
        self.pushed(&mut state, pdu.len());
    }

    /// Appends a PDU with `data` between `header` and `trailer` (its digest, and perhaps the PDU that follows).
    #[inline]
    pub(crate) fn push_data(&self, header: &[u8], data: Data, trailer: &[u8], held: Option<Held>) {
        if self.sealed.get() {
            return;
        }
        let len = data.len();
        let mut state = self.state.borrow_mut();
        let filling = &mut state.filling;
        filling.gather.push_bytes(header);
        filling.gather.push_data(data, 0..len);
        if !trailer.is_empty() {
            filling.gather.push_bytes(trailer);
        }
        if let Some(held) = held {
            debug_assert!(
                self.budget.get().is_some(),
                "memory is held against a budget"
            );
            filling.held += held.into_bytes();
        }
        self.pushed(&mut state, header.len() + len + trailer.len());
    }

    /// Whether so much is waiting that no more work should be taken.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.get() > self.bytes_max.get()
    }

    /// Waits until it is not full, or closed.
    pub(crate) async fn room(&self) {
        while self.is_full() && !self.closed.get() {
            self.drained.notified().await;
        }
    }

    /// Waits until everything has been sent, or it is closed.
    pub(crate) async fn flushed(&self) {
        while self.bytes.get() > 0 && !self.closed.get() {
            self.drained.notified().await;
        }
    }

    /// Waits for something to send; `None` once closed. What is not a full parcel is taken at the end of the
    /// turn, so that all who answer in this turn are in it.
    pub(crate) async fn next(&self, rt: &Rt) -> Option<Parcel> {
        loop {
            if self.closed.get() {
                return None;
            }
            if let Some(parcel) = self.state.borrow_mut().full.pop_front() {
                return Some(parcel);
            }
            if self.is_due() {
                rt.turn_end().await;
                return self.take();
            }
            self.sender_waits.set(true);
            self.ready.notified().await;
        }
    }

    /// Takes back a parcel that has been sent.
    pub(crate) fn sent(&self, parcel: Parcel) {
        let Parcel {
            mut gather, held, ..
        } = parcel;
        self.bytes
            .set(self.bytes.get().saturating_sub(gather.len()));
        gather.clear();
        self.give_back(held);
        let mut state = self.state.borrow_mut();
        if state.spares.len() < SPARES && !self.closed.get() {
            state.spares.push(gather);
        }
        drop(state);
        if !self.is_full() {
            self.drained.notify_all();
        }
    }

    /// Takes nothing more: what was pushed last is the last that the peer hears.
    pub(crate) fn seal(&self) {
        self.sealed.set(true);
    }

    /// Forgets all that was not sent, and all that will be pushed.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.sealed.set(true);
        let state = self.state.take();
        let held: usize = state.full.iter().map(|parcel| parcel.held).sum();
        self.give_back(held + state.filling.held);
        drop(state);
        self.ready.notify_one();
        self.drained.notify_all();
    }

    /// Whether what has gathered should go. Always, for now: holding completions back to fill a window, by class
    /// and by load, belongs here.
    fn is_due(&self) -> bool {
        self.state.borrow().filling.pdus > 0
    }

    fn take(&self) -> Option<Parcel> {
        let mut state = self.state.borrow_mut();
        if let Some(parcel) = state.full.pop_front() {
            return Some(parcel);
        }
        let parcel = state.next_filling();
        (parcel.pdus > 0).then_some(parcel)
    }

    #[inline]
    fn pushed(&self, state: &mut State, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
        state.filling.pdus += 1;
        if state.filling.pdus >= PARCEL_PDUS || state.filling.gather.len() >= PARCEL_BYTES {
            let parcel = state.next_filling();
            state.full.push_back(parcel);
        }
        if self.sender_waits.replace(false) {
            self.ready.notify_one();
        }
    }

    fn give_back(&self, held: usize) {
        if let Some(budget) = self.budget.get() {
            budget.release(held);
        }
    }
}

impl State {
    fn next_filling(&mut self) -> Parcel {
        let gather = self.spares.pop().unwrap_or_default();
        std::mem::replace(
            &mut self.filling,
            Parcel {
                gather,
                pdus: 0,
                held: 0,
            },
        )
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.close();
    }
}
