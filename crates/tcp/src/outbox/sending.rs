//! Those who wait for an outbox: the sending task, which takes parcels when they are due and gives
//! them back, and who needs room.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Outbox, Parcel, SPARES};
use crate::coalesce::Due;

impl Outbox {
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

    /// Waits for something to send; `None` once closed. What is not a full parcel is taken at the
    /// end of the turn in which it is due, so that all who answer in that turn are in it.
    pub(crate) async fn next(&self) -> Option<Parcel> {
        loop {
            if self.closed.get() {
                return None;
            }
            if let Some(parcel) = self.state.borrow_mut().full.pop_front() {
                return Some(parcel);
            }
            let due = self.state.borrow().coalescer.due(self.rt.turn_time());
            match due {
                Due::Now => {
                    let called = self.called.take();
                    called.unwrap_or_else(|| self.rt.turn_end()).await;
                    return self.take();
                }
                Due::At(time) => {
                    let mut late = self.rt.sleep_until(time);
                    self.woken_or(|context| Pin::new(&mut late).poll(context).is_ready())
                        .await;
                }
                Due::Never => self.woken_or(|_| false).await,
            }
        }
    }

    /// The sending task waits until it is woken, or `other` is true.
    async fn woken_or(&self, mut other: impl FnMut(&mut Context<'_>) -> bool) {
        let mut waits = false;
        // What it was called for is over.
        self.called.set(None);
        poll_fn(|context| {
            let woken = self.sender.take().is_none() && waits;
            if woken || other(context) {
                return Poll::Ready(());
            }
            waits = true;
            self.sender.set(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Has the sending task look at the end of this turn, which is when it may send what is not a
    /// full parcel: polled before, it could only begin to wait for that.
    #[inline]
    pub(super) fn call_sender(&self) {
        if let Some(sender) = self.sender.take() {
            self.called.set(Some(self.rt.turn_end_for(sender)));
        }
    }

    /// Has the sending task look in this turn.
    #[inline]
    pub(super) fn wake_sender(&self) {
        if let Some(sender) = self.sender.take() {
            sender.wake();
        }
    }

    /// Takes back a parcel that has been sent.
    pub(crate) fn sent(&self, parcel: Parcel) {
        let Parcel {
            mut gather,
            held,
            mut samples,
            ..
        } = parcel;
        self.bytes
            .set(self.bytes.get().saturating_sub(gather.len()));
        self.sent_bytes
            .set(self.sent_bytes.get() + gather.len() as u64);
        gather.clear();
        samples.clear();
        self.give_back(held);
        let mut state = self.state.borrow_mut();
        if state.spares.len() < SPARES && !self.closed.get() {
            state.spares.push((gather, samples));
        }
        drop(state);
        if !self.is_full() {
            self.drained.notify_all();
        }
    }

    fn take(&self) -> Option<Parcel> {
        let mut state = self.state.borrow_mut();
        if let Some(parcel) = state.full.pop_front() {
            return Some(parcel);
        }
        self.end_report(&mut state);
        state.coalescer.taken();
        let parcel = state.next_filling();
        (parcel.pdus > 0).then_some(parcel)
    }
}
