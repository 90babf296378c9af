//! A set: members with the same data, or with parity. A set of one member that was never more
//! passes I/O on; any other one keeps its copies equal. Where there is parity that goes for its
//! first part; `row_io.rs` has its rows.
//!
//! - A change goes to all members that are active or are being rebuilt, at the same time, once the
//!   region map says dirty of its regions. If it fails at some of them, those have failed, which is
//!   durable on the others before the change is answered. If it fails at all of them, or because
//!   memory was short, the answer is that error, and the regions are made equal before they are
//!   read again.
//! - A read goes to the active member with the least in flight. If that fails, `careful.rs` reads
//!   the others and heals it. A safe read reads all, and compares.

use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::{Rc, Weak};

use flashyard_codec::parity::Parity;
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Buf, Rt, Shared as Bytes};
use flashyard_time::Time;

use super::flight::{Child, Flight, Flights, Kind};
use super::geometry::Span;
use super::map::MapWriter;
use super::member::Member;
use super::record::Uuid;
use super::regions::{Entry, Regions};
pub(super) use super::rows::At;
use super::shared::Shared;
use crate::{Device, Done, Io, IoError, IoFuture, Served, Tag, Zero};

/// Regions that become dirty together, where writes come in order: one write of the map for them.
const AHEAD: usize = 16;

/// See the module.
pub(super) struct Set {
    pub(super) this: Weak<Self>,
    pub(super) shared: Weak<Shared>,
    pub(super) rt: Rt,
    pub(super) number: usize,
    pub(super) span: Span,
    pub(super) block_size: u32,
    pub(super) safe_read: Cell<bool>,
    /// Its copies.
    pub(super) members: RefCell<Vec<Rc<Member>>>,
    pub(super) regions: RefCell<Regions>,
    /// Writes have left regions that are held, or regions are not held any more.
    pub(super) changed: Notify,
    pub(super) map: MapWriter,
    pub(super) flights: RefCell<Flights>,
    /// Where the next region to be copied is looked for.
    pub(super) cursor: Cell<usize>,
    /// A member is about to be rebuilt here: the map has to say that it lacks everything.
    pub(super) joining: Cell<bool>,
    /// Members that have joined so far, to be rebuilt.
    pub(super) joined: Cell<u64>,
    /// Regions that were copied since that was noted.
    pub(super) copied: RefCell<Vec<u32>>,
    /// Regions of which something cannot be read anywhere, and a member that is rebuilt lacks it.
    pub(super) lost: RefCell<BTreeMap<usize, Loss>>,
    /// The member that was read last, where several have as little in flight.
    turn: Cell<usize>,
    /// Computes parity.
    pub(super) parity: Parity,
}

/// What of a region no member can give.
#[derive(Clone, Copy)]
pub(super) struct Loss {
    pub(super) bytes: u64,
    /// When it is tried again.
    pub(super) again: Time,
}

impl Set {
    pub(super) fn new(
        shared: Weak<Shared>,
        rt: Rt,
        number: usize,
        span: Span,
        block_size: u32,
        safe_read: bool,
        members: Vec<Rc<Member>>,
    ) -> Rc<Self> {
        for member in &members {
            let lba = span.data_start() / u64::from(block_size);
            member.data_lba.set(lba);
        }
        let regions = match members.len() {
            1 => 0,
            _ => span.regions() as usize,
        };
        Rc::new_cyclic(|this| Self {
            this: this.clone(),
            shared,
            rt,
            number,
            span,
            block_size,
            safe_read: Cell::new(safe_read),
            members: RefCell::new(members),
            regions: RefCell::new(Regions::new(regions)),
            changed: Notify::new(),
            map: MapWriter::default(),
            flights: RefCell::default(),
            cursor: Cell::new(0),
            joining: Cell::new(false),
            joined: Cell::new(0),
            copied: RefCell::default(),
            lost: RefCell::default(),
            turn: Cell::new(0),
            parity: Parity::new(),
        })
    }

    /// Itself, as long as it lives.
    pub(super) fn own(&self) -> Rc<Self> {
        self.this.upgrade().expect("a set is held by an Rc")
    }

    /// Members that have everything; of two that are the same column, one.
    pub(super) fn active(&self) -> usize {
        let members = self.members.borrow();
        let active = || members.iter().filter(|it| it.is_active());
        match self.span.rows {
            None => active().count(),
            Some(rows) => {
                let has = |column: &usize| active().any(|it| it.column.get() == *column);
                (0..rows.columns).filter(has).count()
            }
        }
    }

    /// So many of them are needed.
    pub(super) fn needed(&self) -> usize {
        self.span.rows.map_or(1, |rows| rows.data())
    }

    /// Whether another member has everything that a member has; of copies that is known.
    pub(super) fn has_other(&self, member: &Member) -> bool {
        let same = |it: &Rc<Member>| {
            let other = it.id != member.id && it.is_active();
            other && it.column.get() == member.column.get()
        };
        self.span.rows.is_none() || self.members.borrow().iter().any(same)
    }

    /// Whether nothing is lost without a member that has everything.
    pub(super) fn can_lose(&self, member: &Member) -> bool {
        let twice = self.span.rows.is_some() && self.has_other(member);
        twice || self.active() > self.needed()
    }

    /// Has every I/O looked at: a member is used no more.
    pub(super) fn wake_flights(&self) {
        self.flights.borrow().wake_all();
        self.changed.notify_all();
    }

    /// Members that meet a condition.
    pub(super) fn members_that(&self, which: impl Fn(&Member) -> bool) -> Vec<Rc<Member>> {
        let members = self.members.borrow();
        members.iter().filter(|it| which(it)).cloned().collect()
    }

    /// Whether a member is being rebuilt.
    pub(super) fn is_rebuilding(&self) -> bool {
        let members = self.members.borrow();
        members.iter().any(|it| it.is_written() && !it.is_active())
    }

    /// Whether a member lacks what is written.
    pub(super) fn is_degraded(&self) -> bool {
        let members = self.members.borrow();
        members.iter().any(|it| !it.is_active())
    }

    /// Whether a member that was replaced is left, and none of these copies lacks anything.
    pub(super) fn has_one_too_many(&self, copies: usize) -> bool {
        let members = self.members.borrow();
        let mut leaving = members.iter().filter(|it| it.leaving.get());
        let many = match self.span.rows {
            Some(_) => leaving.any(|it| self.has_other(it)),
            None => leaving.next().is_some() && self.active() > copies,
        };
        many && !self.is_degraded()
    }

    /// The only member, of a set that keeps no map.
    fn plain(&self) -> Option<Rc<Member>> {
        let members = self.members.borrow();
        let tracked = self.regions.borrow().count() > 0;
        (!tracked).then(|| members.first().cloned())?
    }

    /// A range in blocks of the member's device.
    pub(super) fn lba(&self, member: &Member, at: u64) -> u64 {
        member.data_lba.get() + at / u64::from(self.block_size)
    }

    /// An I/O at a member that is not a user's, to its end; [`IoError::NotReady`] when the member
    /// fails before, as it does when this hangs.
    pub(super) async fn run(
        &self,
        member: &Rc<Member>,
        start: impl FnOnce(&dyn Device) -> IoFuture,
    ) -> Result<Done, IoError> {
        if let Some(shared) = self.shared.upgrade() {
            shared.watch_hangs();
        }
        member.run(&self.rt, start).await
    }

    /// The regions of a range; none of a set that keeps no map.
    pub(super) fn tracked(&self, at: At) -> Range<usize> {
        match self.regions.borrow().count() {
            0 => 0..0,
            _ => self.regions_of(at),
        }
    }

    /// The regions of a range.
    pub(super) fn regions_of(&self, at: At) -> Range<usize> {
        self.span.regions_of(at.at, at.bytes)
    }

    /// Does an I/O that lies in this set, with data of the length of the range.
    pub(super) fn submit(&self, tag: Tag, at: At, io: Io) -> IoFuture {
        if let Some(member) = self.plain() {
            let Some(device) = &member.device else {
                return IoFuture::ready(Err(IoError::NotReady));
            };
            return match io {
                Io::Flush => device.submit(tag, io),
                io => device.submit(tag, io.at(self.lba(&member, at.at))),
            };
        }
        let rows = self.span.rows.filter(|rows| at.at >= rows.alike);
        if let Some(rows) = rows
            && !matches!(io, Io::Flush)
        {
            return self.submit_rows(rows, tag, at, io);
        }
        match io {
            Io::Flush => self.flush(tag),
            Io::Read { into, .. } => self.read(tag, at, into),
            Io::Write { data, fua, .. } => self.change(tag, at, Change::Write(data, fua)),
            Io::Zero { how, .. } => self.change(tag, at, Change::Zero(how)),
            Io::CompareAndWrite(_) => IoFuture::ready(Err(IoError::Unsupported)),
        }
    }

    pub(super) fn change(&self, tag: Tag, at: At, change: Change) -> IoFuture {
        let range = self.regions_of(at);
        let entry = self.regions.borrow_mut().enter(range.clone());
        if entry == Entry::Entered {
            return self.begin_change(tag, at, &change);
        }
        let set = self.own();
        IoFuture::boxed(async move {
            set.enter(range).await?;
            set.begin_change(tag, at, &change).await
        })
    }

    /// Waits until a write may go to regions.
    async fn enter(self: &Rc<Self>, range: Range<usize>) -> Result<(), IoError> {
        loop {
            let entry = self.regions.borrow_mut().enter(range.clone());
            match entry {
                Entry::Entered => return Ok(()),
                Entry::Held => self.changed.notified().await,
                Entry::Unmarked => self.mark_dirty(range.clone()).await?,
            }
        }
    }

    /// Has the map say that regions are dirty.
    pub(super) async fn mark_dirty(self: &Rc<Self>, range: Range<usize>) -> Result<(), IoError> {
        while !self.regions.borrow().are_marked(range.clone()) {
            let regions = &self.regions;
            regions.borrow_mut().make_dirty_ahead(range.clone(), AHEAD);
            self.persist().await?;
            if let Some(shared) = self.shared.upgrade() {
                shared.watch_rests();
            }
        }
        Ok(())
    }

    fn begin_change(&self, tag: Tag, at: At, change: &Change) -> IoFuture {
        let kind = Kind::Change(self.regions_of(at));
        let blocks = at.bytes / u64::from(self.block_size);
        let which = |member: &Member| member.is_written();
        self.begin(tag, at, kind, which, |member, lba| match change {
            Change::Write(data, fua) => Some(Io::Write {
                lba,
                data: data.clone(),
                fua: *fua,
            }),
            Change::Zero(how) => Some(Io::Zero {
                lba,
                blocks,
                how: *how,
            }),
            Change::Rows(columns, fua) => {
                let role = self.role_of(member, at.at);
                let (data, fua) = (columns.get(role)?.clone(), *fua);
                Some(Io::Write { lba, data, fua })
            }
        })
    }

    fn flush(&self, tag: Tag) -> IoFuture {
        let which = |member: &Member| member.is_written();
        let at = At { at: 0, bytes: 0 };
        self.begin(tag, at, Kind::Flush, which, |_, _| Some(Io::Flush))
    }

    fn read(&self, tag: Tag, at: At, into: Buf) -> IoFuture {
        let range = self.regions_of(at);
        if self.regions.borrow().any_unequal(range.clone()) {
            let set = self.own();
            return IoFuture::boxed(async move {
                set.make_equal(range).await?;
                set.read(tag, at, into).await
            });
        }
        let mut into = Some(into);
        if self.safe_read.get() && self.active() > 1 {
            let quiet = self.regions.borrow().quiet(range);
            let bytes = at.bytes as usize;
            return self.begin(
                tag,
                at,
                Kind::Compare(quiet),
                Member::is_active,
                move |_, lba| {
                    let into = into.take().or_else(|| Buf::take(bytes))?;
                    Some(Io::Read { lba, into })
                },
            );
        }
        let chosen = self.idlest();
        let which = |member: &Member| Some(member.id) == chosen;
        self.begin(tag, at, Kind::Read, which, move |_, lba| {
            Some(Io::Read {
                lba,
                into: into.take()?,
            })
        })
    }

    /// The active member with the least in flight; they take turns where that is the same.
    fn idlest(&self) -> Option<Uuid> {
        let members = self.members.borrow();
        let count = members.len();
        let from = self.turn.get() + 1;
        let round = (0..count).map(|step| (from + step) % count);
        let active = round.filter(|at| members[*at].is_active());
        let chosen = active.min_by_key(|at| members[*at].load())?;
        self.turn.set(chosen);
        Some(members[chosen].id)
    }

    /// Issues an I/O of each member of a kind, all at the same time.
    pub(super) fn begin(
        &self,
        tag: Tag,
        at: At,
        kind: Kind,
        which: impl Fn(&Member) -> bool,
        mut io: impl FnMut(&Member, u64) -> Option<Io>,
    ) -> IoFuture {
        let mut flight = self.flights.borrow_mut().unused();
        flight.begin(tag, at, kind);
        let members = self.members.borrow();
        for member in members.iter().filter(|member| which(member)) {
            let Some(device) = &member.device else {
                continue;
            };
            let Some(io) = io(member, self.lba(member, at.at)) else {
                // No memory for another copy.
                flight
                    .children
                    .push(Child::Ended(Rc::clone(member), Err(IoError::Busy)));
                continue;
            };
            let period = member.begin();
            let child = match device.submit(tag, io).try_finish() {
                Ok(result) => {
                    member.end(period);
                    Child::Ended(Rc::clone(member), result)
                }
                Err(io) => Child::InFlight(Rc::clone(member), io, period),
            };
            flight.children.push(child);
        }
        drop(members);
        self.start(flight)
    }

    fn start(&self, mut flight: Box<Flight>) -> IoFuture {
        if !flight.is_in_flight() {
            match self.settle(&mut flight) {
                super::flight::Settled::Ended(result) => {
                    self.flights.borrow_mut().give_back(flight);
                    return IoFuture::ready(result);
                }
                super::flight::Settled::Goes(io) => flight.rest = Some(io),
            }
        } else if let Some(shared) = self.shared.upgrade() {
            shared.watch_hangs();
        }
        let slot = self.flights.borrow_mut().put(flight);
        IoFuture::served(Served::new(self.own(), slot))
    }

    /// Borrows the members.
    pub(super) fn all(&self) -> Ref<'_, Vec<Rc<Member>>> {
        self.members.borrow()
    }

    /// The device of a member is as large as the span needs.
    pub(super) fn fits(&self, device: &dyn Device) -> bool {
        let info = device.info();
        info.blocks * u64::from(info.block_size) >= self.span.member_bytes()
    }
}

/// What is written to members.
pub(super) enum Change {
    Write(Bytes, bool),
    Zero(Zero),
    /// Each member has its own, by role.
    Rows(Vec<Bytes>, bool),
}
