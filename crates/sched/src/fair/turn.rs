//! Whose turn it is: latency-sensitive I/O, what is owed, then by virtual time as far as the
//! windows let it, then what nobody else is in need of.

use flashyard_time::Time;

use super::Fair;
use super::costs::{Class, Kind, PER_NS};
use super::heap::Heap;
use super::learn::Phase;
use super::slices::Scene;
use super::tenants::{LANES, Lane, Place, WEIGHT_UNIT};
use crate::Next;

/// For how long after the last latency-sensitive I/O.
const QUIET_NS: u64 = 20_000_000;
/// So many I/Os of a kind may be in flight whatever they count; one while latency-sensitive I/O is
/// about.
const FLOOR: u32 = 4;
/// How far all who do one kind of I/O may be ahead of those who wait for the window of the other
/// kind, in device time: drives take writes in bursts, and hold them back in bursts.
const LEAD_NS: u64 = 20_000_000;
/// Latency-sensitive I/O goes first as long as its tenants take no more than their share, or
/// all of it together no more than this part of the device's time.
const LATENCY_PART: u64 = 8;
/// What may be taken of that part at once, in device time.
const LATENCY_BURST_NS: u64 = 4_000_000;
/// Out of what an I/O is paid.
#[derive(Clone, Copy, Debug)]
pub(super) enum Payer {
    /// Its tenant's share.
    Share,
    /// What is kept for latency-sensitive I/O.
    LatencyPart,
    /// Nobody: it was in nobody's way.
    Nobody,
}

/// The head of a tenant's lane, to go to the device.
pub(super) type Choice = (u32, Lane, Payer);

impl Fair {
    /// What is to be done, when something waits. Kept apart from [`crate::Policy::next`], which is
    /// asked more often than there is anything to be found.
    #[inline(never)]
    pub(super) fn look(&mut self, now: Time) -> Next {
        self.open_gates(now);
        self.advance_virtual_time();
        self.slice(now);
        let plain = self.is_plain(now);
        let choice = if plain {
            self.next_shared(now)
        } else {
            self.choose(now)
        };
        let Some(choice) = choice else {
            if plain && self.gated.is_empty() {
                self.stick(now);
            }
            return self.wake_up(now);
        };
        let next = self.dispatch(now, choice);
        if plain && self.queued > 0 && self.gated.is_empty() && !self.has_next(now) {
            // What another look would find, and do.
            self.advance_virtual_time();
            self.stick(now);
        }
        next
    }

    /// Remembers that nothing that is plain may go.
    #[inline]
    fn stick(&mut self, now: Time) {
        self.stuck = true;
        self.stuck_until = self.silence_due(now);
    }

    /// When it may come out that the device does not serve a kind that others wait for, be it
    /// their own: they have room, and nothing else may happen until then.
    #[inline]
    fn silence_due(&self, now: Time) -> u64 {
        let tick = self.learner.tick_length();
        let due = |(kind, other): (Kind, Kind)| {
            let waits = !self.ready[kind.lane() as usize].is_empty() && self.has_room(now, kind);
            let of = |rival: Kind, holds: bool| match waits && holds {
                true => self.silent.due(rival, tick),
                false => u64::MAX,
            };
            let own = of(kind, !self.claims[kind as usize].is_empty());
            own.min(of(other, self.in_flight[other as usize] > 0))
        };
        let kinds = [(Kind::Read, Kind::Write), (Kind::Write, Kind::Read)];
        let due = kinds.into_iter().map(due).fold(u64::MAX, u64::min);
        due.max(self.learner.tick_ends())
    }

    /// Whether anything that is plain finds room.
    #[inline]
    fn has_next(&self, now: Time) -> bool {
        [Kind::Read, Kind::Write]
            .into_iter()
            .any(|kind| !self.ready[kind.lane() as usize].is_empty() && self.may_go(now, kind))
    }

    /// What goes next, if anything may.
    #[inline(never)]
    fn choose(&mut self, now: Time) -> Option<Choice> {
        self.next_latency_sensitive(now)
            .or_else(|| self.next_reserved(now))
            .or_else(|| self.next_background(now, false))
            .or_else(|| self.next_shared(now))
            .or_else(|| self.next_background(now, true))
    }

    /// There is nothing but I/O for throughput, owed nothing but its share; so what may go is a
    /// matter of the windows and of who waits, and not of the time.
    #[inline]
    pub(super) fn is_plain(&self, now: Time) -> bool {
        !self.is_quiet(now)
            && self.learner.phase() == Phase::Open
            && self.ready[Lane::Latency as usize].is_empty()
            && self.ready[Lane::Background as usize].is_empty()
            && self.reserved.is_empty()
    }

    /// Latency-sensitive I/O is about, or was a moment ago.
    #[inline]
    pub(super) fn is_quiet(&self, now: Time) -> bool {
        now.as_ns() < self.quiet_until || self.of_lane[Lane::Latency as usize] > 0
    }

    pub(super) fn keep_quiet(&mut self, now: Time) {
        self.quiet_until = now.as_ns() + QUIET_NS;
    }

    /// With nothing queued, an I/O for throughput may go if there is room and nobody's claim is in
    /// its way.
    #[inline]
    pub(super) fn may_pass(&self, now: Time, place: &Place) -> bool {
        let other = match place.kind {
            Kind::Read => Kind::Write,
            Kind::Write => Kind::Read,
        };
        matches!(place.lane, Lane::Read | Lane::Write)
            && self.learner.phase() == Phase::Open
            && self.claims[other as usize].is_empty()
            && self.claims[place.kind as usize].least() >= self.tenants[place.tenant].tag
            && self.may_go(now, place.kind)
    }

    /// Reads, writes and what is done in the background go by turns while latency-sensitive I/O is
    /// about. Reads and writes do when it is known what they cost.
    #[inline]
    fn slice(&mut self, now: Time) {
        if !self.is_quiet(now) || self.learner.phase() != Phase::Open {
            return self.slices.stop();
        }
        let background = self.ready[Lane::Background as usize].first();
        let head = background.map(|(number, _)| self.tenants[number].head(Lane::Background));
        let scene = Scene {
            least: [self.least_tag(Kind::Read), self.least_tag(Kind::Write)],
            known: self.learner.has_tried()
                || self.costs.is_any_learnt(Kind::Read) && self.costs.is_any_learnt(Kind::Write),
            in_flight: [Lane::Read, Lane::Write].map(|lane| self.of_lane[lane as usize]),
            background: head.map(|head| self.places[head as usize].kind),
            background_in_flight: self.of_lane[Lane::Background as usize],
        };
        self.slices.turn(now.as_ns(), &scene);
    }

    /// Whether it is the turn of I/O of a kind for throughput, and the device has room for it.
    #[inline]
    pub(super) fn may_go(&self, now: Time, kind: Kind) -> bool {
        self.has_room(now, kind) && (!self.is_quiet(now) || self.slices.admit(now.as_ns(), kind))
    }

    /// Whether the device has room for an I/O of a kind.
    #[inline]
    fn has_room(&self, now: Time, kind: Kind) -> bool {
        let place = kind as usize;
        let (floor, window) = match self.learner.phase() {
            Phase::Settling(_) => (FLOOR, 0),
            Phase::Alone(_) => (FLOOR, self.squeeze),
            Phase::Open => {
                let window = self.windows[place].min(self.squeeze);
                if self.is_quiet(now) {
                    (1, window.min(self.quiet.window()))
                } else {
                    (FLOOR, window)
                }
            }
        };
        self.in_flight[place] < floor || self.load[place] < window
    }

    /// The least tag of those who wait for I/O of a kind; beyond all others when nobody
    /// does, or the device does not serve it.
    #[inline]
    pub(super) fn least_tag(&self, kind: Kind) -> u64 {
        if self.silent.is(kind) {
            return u64::MAX;
        }
        let lane = [Lane::Read, Lane::Write][kind as usize];
        let ready = self.ready[lane as usize].least();
        ready.min(self.claims[kind as usize].least())
    }

    /// The least tag of those who wait with nothing queued for what the device has of a kind. It
    /// gives them less than their share while others of the same kind fill it.
    #[inline]
    fn least_claim(&self, kind: Kind) -> u64 {
        match self.silent.is(kind) {
            true => u64::MAX,
            false => self.claims[kind as usize].least(),
        }
    }

    /// The waiting tag that is least, but never less than before. While a class is tried out only
    /// its kind counts: latency-sensitive tenants then have no others to be compared with, and
    /// would take all that these do not.
    #[inline]
    fn advance_virtual_time(&mut self) {
        let least = match self.learner.phase() {
            Phase::Open => self
                .least_tag(Kind::Read)
                .min(self.least_tag(Kind::Write))
                .min(self.ready[Lane::Latency as usize].least()),
            Phase::Settling(class) | Phase::Alone(class) => self.least_tag(class.kind()),
        };
        if least < u64::MAX {
            self.virtual_now = self.virtual_now.max(least);
        }
    }

    /// Latency-sensitive I/O: out of its tenant's share, else out of the part of the device that is
    /// kept for it.
    fn next_latency_sensitive(&mut self, now: Time) -> Option<Choice> {
        let (number, tag) = self.ready[Lane::Latency as usize].first()?;
        if tag <= self.virtual_now + self.lead() {
            return Some((number, Lane::Latency, Payer::Share));
        }
        let earned = now
            .as_ns()
            .saturating_sub(self.budgeted)
            .min(LATENCY_BURST_NS * LATENCY_PART);
        self.budgeted = now.as_ns();
        self.latency_budget =
            (self.latency_budget + earned * PER_NS / LATENCY_PART).min(LATENCY_BURST_NS * PER_NS);
        let head = self.places[self.tenants[number].head(Lane::Latency) as usize];
        let cost = self
            .costs
            .of(head.kind, head.bytes)
            .min(LATENCY_BURST_NS * PER_NS);
        (self.latency_budget >= cost).then_some((number, Lane::Latency, Payer::LatencyPart))
    }

    /// What is owed to a guarantee.
    fn next_reserved(&self, now: Time) -> Option<Choice> {
        let (item, due) = self.reserved.first()?;
        let lane = LANES[item as usize % 4];
        (due <= now.as_ns()).then_some((item / 4, lane, Payer::Share))
    }

    /// How far ahead a tenant may be, in virtual time.
    pub(super) fn lead(&self) -> u64 {
        LEAD_NS * PER_NS * WEIGHT_UNIT / self.active_weight.max(1)
    }

    /// The head that comes next in virtual time, if the device has room for it; else the first of
    /// the other kind; and neither if it is too far ahead of those who wait.
    #[inline]
    fn next_shared(&mut self, now: Time) -> Option<Choice> {
        if let Phase::Alone(class) | Phase::Settling(class) = self.learner.phase() {
            return self.next_of_class(now, class);
        }
        let read = self.ready[Lane::Read as usize].least();
        let write = self.ready[Lane::Write as usize].least();
        let (first, second) = if write < read {
            (Kind::Write, Kind::Read)
        } else {
            (Kind::Read, Kind::Write)
        };
        if let Some(number) = self.next_of_kind(now, first) {
            return Some((number, first.lane(), Payer::Share));
        }
        let number = self.next_of_kind(now, second)?;
        Some((number, second.lane(), Payer::Share))
    }

    /// Whose I/O of a kind comes next, if it may go.
    #[inline(never)]
    fn next_of_kind(&self, now: Time, kind: Kind) -> Option<u32> {
        let (lane, other) = match kind {
            Kind::Read => (Lane::Read, Kind::Write),
            Kind::Write => (Lane::Write, Kind::Read),
        };
        let (number, tag) = self.ready[lane as usize].first()?;
        if !self.may_go(now, kind) {
            return None;
        }
        let rival = self.least_tag(other).min(self.least_claim(kind));
        if tag > rival {
            let tenant = &self.tenants[number];
            let bytes = self.places[tenant.head(lane) as usize].bytes;
            let stride = tenant.stride(self.costs.of(kind, bytes));
            if tag > rival + self.lead() + stride {
                return None;
            }
        }
        Some(number)
    }

    /// The next I/O of the class that is tried out. Where none of it waits the next of another size
    /// goes of those who mix both: they would come to send none of the class.
    #[inline(never)]
    fn next_of_class(&mut self, now: Time, class: Class) -> Option<Choice> {
        if !self.has_room(now, class.kind()) {
            return None;
        }
        let lane = class.kind().lane();
        while let Some((number, tag)) = self.ready[lane as usize].first() {
            let head = self.tenants[number].head(lane);
            if self.places[head as usize].class == class {
                return Some((number, lane, Payer::Share));
            }
            self.ready[lane as usize].remove(number);
            let mixes = self.tenants[number].classes & (1 << class.0) != 0;
            let tag = if mixes { tag } else { u64::MAX };
            self.parked.set(number * 4 + lane as u32, tag);
        }
        let (item, tag) = self.parked.first()?;
        (tag < u64::MAX).then_some((item / 4, lane, Payer::Share))
    }

    /// Background I/O is held back though nobody waits: who asks for one thing at a time, and soon,
    /// never does.
    fn is_background_held(&self, now: Time) -> bool {
        self.is_quiet(now) && !self.slices.is_on() && self.background_due > now.as_ns()
    }

    /// Background I/O whose slice it is or whose small share is due, or, when nobody else waits,
    /// any.
    fn next_background(&self, now: Time, idle: bool) -> Option<Choice> {
        if self.learner.phase() != Phase::Open {
            return None;
        }
        let (number, _) = self.ready[Lane::Background as usize].first()?;
        let head = self.tenants[number].head(Lane::Background);
        let sliced = self.slices.is_on();
        let due = match idle {
            _ if sliced => self.slices.admit_background(now.as_ns()),
            true => self.ready[..3].iter().all(Heap::is_empty) && !self.is_background_held(now),
            false => self.background_tag < self.virtual_now,
        };
        let payer = if idle || sliced {
            Payer::Nobody
        } else {
            Payer::Share
        };
        let room = due && self.has_room(now, self.places[head as usize].kind);
        room.then_some((number, Lane::Background, payer))
    }

    /// When to look again though nothing happened.
    #[inline(never)]
    fn wake_up(&self, now: Time) -> Next {
        let tick = match self.learner.phase() {
            Phase::Open => self.silence_due(now),
            Phase::Settling(_) | Phase::Alone(_) => self.learner.tick_ends(),
        };
        let waits = !self.ready[Lane::Background as usize].is_empty();
        let background = if waits && self.is_background_held(now) {
            match self.quiet_until > now.as_ns() {
                true => self.background_due.min(self.quiet_until),
                false => self.background_due,
            }
        } else {
            u64::MAX
        };
        let owed = self.gated.least().min(self.reserved.least());
        let slice = self.slices.changes(now.as_ns());
        Self::wait(now, owed.min(tick).min(background).min(slice))
    }

    #[inline]
    pub(super) fn wait(now: Time, until: u64) -> Next {
        if until < u64::MAX {
            Next::WaitUntil(Time::from_ns(until.max(now.as_ns() + 1)))
        } else {
            Next::WaitForEvent
        }
    }
}
