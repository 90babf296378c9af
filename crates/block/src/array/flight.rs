//! The I/Os of a set in flight, each with its children, and what becomes of one when they have
//! ended. They are kept when they end, so that another one costs no allocation.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use flashyard_runtime::{Data, Rt};

use super::geometry::MAX_COPIES;
use super::member::{Failure, Member};
use super::record::MemberState;
use super::set::{At, Set};
use super::shared::Shared;
use crate::io::Done;
use crate::{IoError, IoFuture, Server, Tag};

/// Flights that are kept without an I/O.
const KEPT: usize = 1024;

/// What an I/O of a set is.
#[derive(Debug)]
pub(super) enum Kind {
    /// It changes these regions.
    Change(Range<usize>),
    Flush,
    /// One copy is read.
    Read,
    /// All copies are read; with the number of writes before, if none was in flight.
    Compare(Option<u64>),
}

pub(super) enum Child {
    InFlight(Rc<Member>, IoFuture, u8),
    Ended(Rc<Member>, Result<Done, IoError>),
}

/// An I/O of a set.
pub(super) struct Flight {
    pub(super) tag: Tag,
    pub(super) at: At,
    pub(super) kind: Kind,
    pub(super) children: Vec<Child>,
    /// What is left to be done when all children have ended.
    pub(super) rest: Option<IoFuture>,
    /// Its regions have been left.
    left: bool,
    /// Its result was given.
    ended: bool,
    waker: Option<Waker>,
}

/// What becomes of an I/O when its children have ended.
pub(super) enum Settled {
    Ended(Result<Done, IoError>),
    Goes(IoFuture),
}

/// Flights by slot, and those that are not used.
#[derive(Default)]
pub(super) struct Flights {
    slots: Vec<Option<Box<Flight>>>,
    free: Vec<u32>,
    #[expect(
        clippy::vec_box,
        reason = "a flight goes to and from its slot without being copied"
    )]
    unused: Vec<Box<Flight>>,
}

impl Flights {
    /// A flight that can be begun.
    pub(super) fn unused(&mut self) -> Box<Flight> {
        self.unused.pop().unwrap_or_else(|| {
            Box::new(Flight {
                tag: Tag::default(),
                at: At { at: 0, bytes: 0 },
                kind: Kind::Flush,
                children: Vec::with_capacity(MAX_COPIES + 1),
                rest: None,
                left: false,
                ended: false,
                waker: None,
            })
        })
    }

    pub(super) fn give_back(&mut self, mut flight: Box<Flight>) {
        flight.children.clear();
        flight.rest = None;
        flight.waker = None;
        if self.unused.len() < KEPT {
            self.unused.push(flight);
        }
    }

    pub(super) fn put(&mut self, flight: Box<Flight>) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(flight);
                slot
            }
            None => {
                self.slots.push(Some(flight));
                self.slots.len() as u32 - 1
            }
        }
    }

    fn take(&mut self, slot: u32) -> Option<Box<Flight>> {
        self.slots.get_mut(slot as usize)?.take()
    }

    fn put_back(&mut self, slot: u32, flight: Box<Flight>) {
        self.slots[slot as usize] = Some(flight);
    }

    /// Has every I/O looked at.
    pub(super) fn wake_all(&self) {
        for flight in self.slots.iter().flatten() {
            if let Some(waker) = &flight.waker {
                waker.wake_by_ref();
            }
        }
    }
}

impl Flight {
    pub(super) fn begin(&mut self, tag: Tag, at: At, kind: Kind) {
        (self.tag, self.at, self.kind) = (tag, at, kind);
        (self.left, self.ended) = (false, false);
    }

    pub(super) fn is_in_flight(&self) -> bool {
        let mut children = self.children.iter();
        children.any(|child| matches!(child, Child::InFlight(..)))
    }

    /// Goes on with every child. One at a member that has failed is not waited for.
    fn poll_children(&mut self, rt: &Rt, context: &mut Context<'_>) -> bool {
        let mut in_flight = false;
        for child in &mut self.children {
            let Child::InFlight(member, io, period) = child else {
                continue;
            };
            let member = Rc::clone(member);
            if member.state.get() == MemberState::Failed {
                let ended = Child::Ended(Rc::clone(&member), Err(IoError::NotReady));
                let period = *period;
                if let Child::InFlight(_, io, _) = std::mem::replace(child, ended) {
                    member.leave_behind(rt, io, period);
                }
                continue;
            }
            match Pin::new(io).poll(context) {
                Poll::Ready(result) => {
                    member.end(*period);
                    *child = Child::Ended(member, result);
                }
                Poll::Pending => in_flight = true,
            }
        }
        in_flight
    }
}

impl Server for Set {
    fn poll_served(&self, slot: u32, context: &mut Context<'_>) -> Poll<Result<Done, IoError>> {
        let flight = self.flights.borrow_mut().take(slot);
        let mut flight = flight.expect("a slot has its flight until it is released");
        let polled = self.poll_flight(&mut flight, context);
        match polled {
            Poll::Pending => flight.waker = Some(context.waker().clone()),
            Poll::Ready(_) => flight.ended = true,
        }
        self.flights.borrow_mut().put_back(slot, flight);
        polled
    }

    fn release(&self, slot: u32) {
        let flight = self.flights.borrow_mut().take(slot);
        self.flights.borrow_mut().free.push(slot);
        match flight {
            Some(flight) if flight.ended => self.flights.borrow_mut().give_back(flight),
            Some(flight) => self.run_on(flight),
            None => {}
        }
    }
}

impl Set {
    /// What was issued runs to its end when no task waits any more.
    fn run_on(&self, flight: Box<Flight>) {
        let set = self.own();
        // In a slot, so that it is looked at when a member fails.
        let slot = self.flights.borrow_mut().put(flight);
        let run = async move {
            let _ignored = poll_fn(|context| set.poll_served(slot, context)).await;
            set.release(slot);
        };
        self.rt.spawn(run).detach();
    }

    fn poll_flight(
        &self,
        flight: &mut Flight,
        context: &mut Context<'_>,
    ) -> Poll<Result<Done, IoError>> {
        if flight.rest.is_none() {
            if flight.poll_children(&self.rt, context) {
                return Poll::Pending;
            }
            match self.settle(flight) {
                Settled::Ended(result) => return Poll::Ready(result),
                Settled::Goes(rest) => flight.rest = Some(rest),
            }
        }
        match &mut flight.rest {
            Some(rest) => Pin::new(rest).poll(context),
            None => Poll::Pending,
        }
    }

    /// What becomes of an I/O whose children have ended.
    pub(super) fn settle(&self, flight: &mut Flight) -> Settled {
        let settled = match flight.kind {
            Kind::Change(_) | Kind::Flush => self.settle_change(flight),
            Kind::Read => self.settle_read(flight),
            Kind::Compare(quiet) => self.settle_compare(flight, quiet),
        };
        self.leave(flight);
        settled
    }

    /// Counts a change out of its regions.
    fn leave(&self, flight: &mut Flight) {
        if let Kind::Change(range) = &flight.kind
            && !std::mem::replace(&mut flight.left, true)
            && self.regions.borrow_mut().leave(range.clone())
        {
            self.changed.notify_all();
        }
    }

    fn settle_change(&self, flight: &mut Flight) -> Settled {
        let Some(shared) = self.shared.upgrade() else {
            return Settled::Ended(Err(IoError::Aborted));
        };
        let (mut done, mut error, mut again) = (false, None, false);
        for child in &flight.children {
            let Child::Ended(member, result) = child else {
                continue;
            };
            match result {
                // What it said while it failed does not count.
                _ if member.state.get() == MemberState::Failed => {}
                Ok(_) => done |= member.is_active(),
                Err(why) => {
                    again |= is_momentary(*why) && !matches!(flight.kind, Kind::Flush);
                    error = error.or(Some(*why));
                }
            }
        }
        if let (Some(error), true) = (error, again || !done) {
            // Copies may differ: the host may repeat it, and until then one of them counts.
            self.unsettle(&shared, flight);
            return Settled::Ended(Err(error));
        }
        if !done {
            self.unsettle(&shared, flight);
            return Settled::Ended(Err(IoError::NotReady));
        }
        for child in &flight.children {
            if let Child::Ended(member, Err(error)) = child
                && !shared.fail(self, member, Failure::Error(*error))
            {
                // One that is needed has missed it.
                self.unsettle(&shared, flight);
                return Settled::Ended(Err(*error));
            }
        }
        match shared.is_recorded() {
            true => Settled::Ended(Ok(Done::EMPTY)),
            false => Settled::Goes(shared.when_recorded()),
        }
    }

    fn unsettle(&self, shared: &Rc<Shared>, flight: &Flight) {
        if let Kind::Change(range) = &flight.kind
            && self.members.borrow().len() > 1
        {
            self.regions.borrow_mut().make_unequal(range.clone());
            shared.work();
        }
    }

    fn settle_read(&self, flight: &mut Flight) -> Settled {
        let Some(Child::Ended(member, result)) = flight.children.pop() else {
            return Settled::Ended(Err(IoError::NotReady));
        };
        match result {
            Ok(done) => Settled::Ended(Ok(done)),
            Err(error) if is_momentary(error) => Settled::Ended(Err(error)),
            Err(_) => {
                member.count(|counts| counts.read_errors += 1);
                let (set, tag, at) = (self.own(), flight.tag, flight.at);
                if let Some(rows) = self.span.rows.filter(|rows| at.at >= rows.alike) {
                    let read = set.read_column_carefully(rows, tag, at, member.column.get());
                    return Settled::Goes(IoFuture::boxed(read));
                }
                Settled::Goes(IoFuture::boxed(set.read_carefully(tag, at)))
            }
        }
    }

    fn settle_compare(&self, flight: &mut Flight, quiet: Option<u64>) -> Settled {
        let mut whole = true;
        let mut first: Option<Data> = None;
        let mut momentary = None;
        for child in &mut flight.children {
            let Child::Ended(member, result) = child else {
                continue;
            };
            // One that was failed or taken away meanwhile says nothing of the copies.
            if member.state.get() == MemberState::Failed && result.is_err() {
                continue;
            }
            match std::mem::replace(result, Ok(Done::EMPTY)) {
                Ok(done) => match &first {
                    None => first = Some(done.data),
                    Some(first) => whole &= is_same(first, &done.data),
                },
                Err(error) if is_momentary(error) => momentary = Some(error),
                Err(_) => whole = false,
            }
        }
        match (first, momentary) {
            (_, Some(error)) => Settled::Ended(Err(error)),
            (Some(data), None) if whole => Settled::Ended(Ok(data.into())),
            _ => {
                let range = self.regions_of(flight.at);
                let still = quiet.is_some() && self.regions.borrow().quiet(range) == quiet;
                if let (true, Some(shared)) = (still, self.shared.upgrade()) {
                    shared.counts(|counts| counts.mismatches += 1);
                }
                let (set, tag, at) = (self.own(), flight.tag, flight.at);
                Settled::Goes(IoFuture::boxed(set.read_carefully(tag, at)))
            }
        }
    }
}

/// Whether an error says nothing of the member.
pub(super) fn is_momentary(error: IoError) -> bool {
    matches!(
        error,
        IoError::Busy | IoError::Aborted | IoError::NoSpace | IoError::OutOfRange
    )
}

/// Whether two reads gave the same.
pub(super) fn is_same(one: &Data, other: &Data) -> bool {
    match (one, other) {
        (Data::Zeroes(one), Data::Zeroes(other)) => one == other,
        (Data::Buf(one), Data::Buf(other)) => **one == **other,
        (Data::Buf(buf), Data::Zeroes(len)) | (Data::Zeroes(len), Data::Buf(buf)) => {
            buf.len() == *len && buf.iter().all(|byte| *byte == 0)
        }
    }
}
