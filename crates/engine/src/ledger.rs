//! Where the latency of a tenant comes from, and who caused it. Pure: time is told.
//!
//! Every I/O leaves three spans: it waited for its turn, its data were waited for, the device had it. The spans are
//! added up for each tenant, and it is asked what made the I/O slower than its own kind is when nothing is in the
//! way - the least that the device took for that tenant, operation and size lately. The excess is charged by what was
//! done meanwhile: each tenant counts the work that the device did for it, roughly priced, and remembers the
//! count at the end of each of the last milliseconds, so the work of everybody within any span is a difference of two
//! numbers. Of a tenant that does much in a millisecond, one I/O in eight stands for the others.
//!
//! A charge is a share, not a proof: who did twice the work while an I/O waited is charged twice as much of the wait.

use std::array;

use flashyard_sched::{Io, Op, TenantId};
use flashyard_time::{Duration, Histogram, Time};

/// How exactly the past is remembered, and for how long.
const BIN: Duration = Duration::from_ms(1);
const BINS: usize = 256;
/// Between what a written byte costs a drive that was written in order (about 3) and one that is full of holes (about
/// 9).
const WRITE: u64 = 5;
/// What is told covers the last one to two of these.
const WINDOW: Duration = Duration::from_secs(10);
/// Of a tenant's I/Os in a bin, so many are looked at one by one; of the others one in [`SAMPLE`], which stands for as
/// many.
const CLOSELY: u32 = 8;
const SAMPLE: u32 = 8;
/// Bytes up to which an I/O is of each size kind but the last.
const SIZES: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];
const KINDS: usize = 2 * (SIZES.len() + 1);

/// What made an I/O slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// It waited for its turn behind I/O of the same tenant.
    OwnQueue,
    /// It waited for its turn while this other tenant was served.
    Turn(TenantId),
    /// It waited for its turn while nobody was served: a limit of the tenant holds it back, or what serves the
    /// others takes long.
    Held,
    /// Its data were waited for.
    Network,
    /// The device was busy with other reads of the same tenant.
    OwnReads,
    /// The device was busy with other writes of the same tenant.
    OwnWrites,
    /// The device was busy with reads of this other tenant.
    Reads(TenantId),
    /// The device was busy with writes of this other tenant.
    Writes(TenantId),
    /// The device moved data on its own account, such as for garbage collection.
    Housekeeping,
    /// The device took long with nothing else to do that is known of.
    Device,
}

/// Where the latency of a tenant came from lately. Sums are nanoseconds.
#[derive(Clone, Debug)]
pub struct Why {
    /// Whose.
    pub tenant: TenantId,
    /// I/Os that ended.
    pub ios: u64,
    /// Nanoseconds from arrival to completion, of each.
    pub latency: Histogram,
    /// Waiting for a turn, of all.
    pub turn: u64,
    /// Waiting for data, of all.
    pub network: u64,
    /// At the device, of all.
    pub device: u64,
    /// What exceeded the least that the device takes, of all, by cause; the largest first.
    pub causes: Vec<(Cause, u64)>,
}

/// The spans of an I/O that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spans {
    /// It came.
    pub(crate) arrived: Time,
    /// It was its turn.
    pub(crate) dispatched: Time,
    /// The device got it.
    pub(crate) issued: Time,
    /// The device was done.
    pub(crate) ended: Time,
}

/// The books of one switch.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Place of each tenant's account, by its number.
    places: Vec<Option<u32>>,
    accounts: Vec<Account>,
    /// What the device did on its own account.
    housekeeping: Work,
}

/// Work done so far: reads and writes, priced.
#[derive(Clone, Copy, Default)]
struct Done {
    reads: u64,
    writes: u64,
}

/// The work of one tenant, and how much it was at the end of each of the last bins.
struct Work {
    done: Done,
    bin: u64,
    history: Box<[Done; BINS]>,
}

struct Account {
    tenant: TenantId,
    work: Work,
    /// When the present bin ends, and the I/Os in it so far.
    bin_end: Time,
    in_bin: u32,
    least: [Least; KINDS],
    windows: [Books; 2],
    since: Time,
}

/// The least of two windows.
#[derive(Clone, Copy)]
struct Least {
    now: u64,
    before: u64,
}

struct Books {
    latency: Histogram,
    turn: u64,
    network: u64,
    device: u64,
    causes: Vec<(Cause, u64)>,
}

impl Ledger {
    /// An I/O has ended. `moved` tells what the device has moved on its own account.
    #[inline]
    pub(crate) fn on_end(&mut self, io: &Io, spans: Spans, moved: impl FnOnce() -> Option<u64>) {
        let place = self.place(io.tenant, spans.ended);
        let account = &mut self.accounts[place];
        if spans.ended >= account.bin_end {
            account.begin_bin(spans.ended);
        }
        account.work.done.add(io.op, price(io));
        account.in_bin += 1;
        if account.in_bin <= CLOSELY {
            self.look(place, io, &spans, 1, moved);
        } else if account.in_bin.is_multiple_of(SAMPLE) {
            self.look(place, io, &spans, u64::from(SAMPLE), moved);
        }
    }

    /// Books one I/O, which stands for `times`.
    #[cold]
    fn look(
        &mut self,
        place: usize,
        io: &Io,
        spans: &Spans,
        times: u64,
        moved: impl FnOnce() -> Option<u64>,
    ) {
        let account = &mut self.accounts[place];
        let device = spans.ended.since(spans.issued).as_ns();
        let least = account.least[kind(io)].heed(device);
        account.windows[0].add(spans, times);
        if let Some(moved) = moved() {
            let more = moved.saturating_sub(self.housekeeping.done.writes);
            self.housekeeping.fill(bin(spans.ended));
            self.housekeeping.done.add(Op::Write, more);
        }
        self.charge(place, spans, device.saturating_sub(least), times);
    }

    /// What is known of a tenant, if it has had any I/O here.
    pub(crate) fn why(&mut self, tenant: TenantId, now: Time) -> Option<Why> {
        let place = (*self.places.get(tenant.0 as usize)?)?;
        let account = &mut self.accounts[place as usize];
        account.roll(now);
        let [recent, older] = &account.windows;
        let mut latency = recent.latency.clone();
        latency.merge(&older.latency);
        let mut causes = recent.causes.clone();
        for (cause, ns) in &older.causes {
            book(&mut causes, *cause, *ns);
        }
        causes.sort_unstable_by_key(|(cause, ns)| (std::cmp::Reverse(*ns), *cause));
        Some(Why {
            tenant,
            ios: latency.count(),
            latency,
            turn: recent.turn + older.turn,
            network: recent.network + older.network,
            device: recent.device + older.device,
            causes,
        })
    }

    /// Forgets a tenant that has gone.
    pub(crate) fn forget(&mut self, tenant: TenantId) {
        let Some(place) = self
            .places
            .get_mut(tenant.0 as usize)
            .and_then(Option::take)
        else {
            return;
        };
        self.accounts.swap_remove(place as usize);
        if let Some(moved) = self.accounts.get(place as usize) {
            self.places[moved.tenant.0 as usize] = Some(place);
        }
    }

    #[inline]
    fn place(&mut self, tenant: TenantId, now: Time) -> usize {
        let index = tenant.0 as usize;
        match self.places.get(index) {
            Some(Some(place)) => *place as usize,
            _ => self.open(tenant, now),
        }
    }

    #[cold]
    fn open(&mut self, tenant: TenantId, now: Time) -> usize {
        let index = tenant.0 as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, None);
        }
        let place = self.accounts.len();
        self.places[index] =
            Some(u32::try_from(place).expect("each tenant has a number of its own"));
        self.accounts.push(Account::new(tenant, now));
        place
    }

    /// Charges what an I/O had to wait for.
    fn charge(&mut self, place: usize, spans: &Spans, excess: u64, times: u64) {
        let own = self.accounts[place].tenant;
        let beside = self.accounts[place].beside_itself(spans.ended);
        let waited = spans.dispatched.since(spans.arrived).as_ns();
        let network = spans.issued.since(spans.dispatched).as_ns();
        if waited + network + excess == 0 {
            return;
        }
        let mut charges = Vec::new();
        if waited > 0 {
            let span = (spans.arrived, spans.dispatched);
            let shares = self.accounts.iter().map(|account| {
                let done = account.work.within(span);
                match account.tenant {
                    tenant if tenant == own => {
                        (Cause::OwnQueue, beside.of(done.reads + done.writes))
                    }
                    tenant => (Cause::Turn(tenant), done.reads + done.writes),
                }
            });
            divide(&mut charges, waited, shares, Cause::Held);
        }
        if excess > 0 {
            let span = (spans.issued, spans.ended);
            let shares = self.accounts.iter().flat_map(|account| {
                let done = account.work.within(span);
                match account.tenant {
                    tenant if tenant == own => [
                        (Cause::OwnReads, beside.of(done.reads)),
                        (Cause::OwnWrites, beside.of(done.writes)),
                    ],
                    tenant => [
                        (Cause::Reads(tenant), done.reads),
                        (Cause::Writes(tenant), done.writes),
                    ],
                }
            });
            let moved = self.housekeeping.within(span).writes;
            let shares = shares.chain([(Cause::Housekeeping, moved)]);
            divide(&mut charges, excess, shares, Cause::Device);
        }
        charges.push((Cause::Network, network));
        let causes = &mut self.accounts[place].windows[0].causes;
        for (cause, ns) in charges {
            book(causes, cause, ns * times);
        }
    }
}

impl Account {
    fn new(tenant: TenantId, now: Time) -> Self {
        Self {
            tenant,
            work: Work::default(),
            bin_end: Time::ZERO,
            in_bin: 0,
            least: [Least::NONE; KINDS],
            windows: array::from_fn(|_| Books::new()),
            since: now,
        }
    }

    /// The part of the tenant's own work that goes on beside any one of its I/Os. Who has one I/O under way at a time
    /// is never in its own way: by Little's law the mean number under way is the sum of their times over the time.
    fn beside_itself(&self, now: Time) -> Part {
        let books = &self.windows[0];
        let under_way = books.turn + books.device;
        let passed = now.since(self.since).as_ns();
        Part {
            of: under_way.max(1),
            is: under_way.saturating_sub(passed),
        }
    }

    #[cold]
    fn begin_bin(&mut self, now: Time) {
        let bin = bin(now);
        self.work.fill(bin);
        self.bin_end = Time::from_ns((bin + 1) * BIN.as_ns());
        self.in_bin = 0;
        self.roll(now);
    }

    /// Begins a new window when it is time.
    fn roll(&mut self, now: Time) {
        if now.since(self.since) < WINDOW {
            return;
        }
        if now.since(self.since) >= WINDOW.scale(2, 1) {
            self.windows[0].clear();
        }
        self.windows.swap(0, 1);
        self.windows[0].clear();
        for least in &mut self.least {
            least.roll();
        }
        self.since = now;
    }
}

/// A fraction.
#[derive(Clone, Copy)]
struct Part {
    is: u64,
    of: u64,
}

impl Part {
    fn of(self, whole: u64) -> u64 {
        (u128::from(whole) * u128::from(self.is) / u128::from(self.of)) as u64
    }
}

impl Done {
    #[inline]
    fn add(&mut self, op: Op, price: u64) {
        match op {
            Op::Read => self.reads += price,
            _ => self.writes += price,
        }
    }
}

impl Default for Work {
    fn default() -> Self {
        Self {
            done: Done::default(),
            bin: 0,
            history: Box::new([Done::default(); BINS]),
        }
    }
}

impl Work {
    /// Notes the count at the end of every bin before `to`.
    fn fill(&mut self, to: u64) {
        let from = self.bin.max(to.saturating_sub(BINS as u64));
        for bin in from..to {
            self.history[bin as usize % BINS] = self.done;
        }
        self.bin = self.bin.max(to);
    }

    /// What was done between two instants, to the exactness of a bin.
    fn within(&self, (from, to): (Time, Time)) -> Done {
        let (before, after) = (self.before(bin(from)), self.before(bin(to) + 1));
        Done {
            reads: after.reads - before.reads,
            writes: after.writes - before.writes,
        }
    }

    /// The count at the beginning of a bin.
    fn before(&self, bin: u64) -> Done {
        if bin > self.bin {
            return self.done;
        }
        let oldest = self.bin.saturating_sub(BINS as u64);
        match bin.checked_sub(1) {
            None => Done::default(),
            Some(last) => self.history[last.max(oldest) as usize % BINS],
        }
    }
}

impl Least {
    const NONE: Self = Self {
        now: u64::MAX,
        before: u64::MAX,
    };

    fn heed(&mut self, ns: u64) -> u64 {
        self.now = self.now.min(ns);
        self.now.min(self.before)
    }

    fn roll(&mut self) {
        self.before = self.now;
        self.now = u64::MAX;
    }
}

impl Books {
    fn new() -> Self {
        Self {
            latency: Histogram::new(),
            turn: 0,
            network: 0,
            device: 0,
            causes: Vec::new(),
        }
    }

    fn add(&mut self, spans: &Spans, times: u64) {
        self.turn += spans.dispatched.since(spans.arrived).as_ns() * times;
        self.network += spans.issued.since(spans.dispatched).as_ns() * times;
        self.device += spans.ended.since(spans.issued).as_ns() * times;
        self.latency
            .record_n(spans.ended.since(spans.arrived).as_ns(), times);
    }

    fn clear(&mut self) {
        self.latency.clear();
        self.causes.clear();
        (self.turn, self.network, self.device) = (0, 0, 0);
    }
}

/// Divides `ns` by what was done; all of it is `otherwise` when nothing was.
fn divide(
    charges: &mut Vec<(Cause, u64)>,
    ns: u64,
    shares: impl Iterator<Item = (Cause, u64)> + Clone,
    otherwise: Cause,
) {
    let all: u64 = shares.clone().map(|(_, share)| share).sum();
    if all == 0 {
        charges.push((otherwise, ns));
        return;
    }
    let part = |share: u64| (u128::from(ns) * u128::from(share) / u128::from(all)) as u64;
    charges.extend(
        shares
            .filter(|(_, share)| *share > 0)
            .map(|(cause, share)| (cause, part(share))),
    );
}

fn book(causes: &mut Vec<(Cause, u64)>, cause: Cause, ns: u64) {
    if ns == 0 {
        return;
    }
    match causes.iter_mut().find(|(known, _)| *known == cause) {
        Some((_, sum)) => *sum += ns,
        None => causes.push((cause, ns)),
    }
}

fn bin(now: Time) -> u64 {
    now.as_ns() / BIN.as_ns()
}

/// What an I/O is worth beside others: its bytes with a floor for small ones, a write as much as [`WRITE`] reads.
#[inline]
fn price(io: &Io) -> u64 {
    match io.op {
        Op::Read => io.bytes.max(4096),
        Op::Write | Op::CompareAndWrite => io.bytes.max(4096) * WRITE,
        Op::Flush | Op::WriteZeroes | Op::Deallocate => 4096,
    }
}

fn kind(io: &Io) -> usize {
    let size = SIZES.iter().filter(|most| io.bytes > **most).count();
    2 * size + usize::from(io.op != Op::Read)
}

#[cfg(test)]
mod tests {
    use flashyard_sched::{Class, IoId};

    use super::*;

    const READER: TenantId = TenantId(7);
    const WRITER: TenantId = TenantId(3);

    fn io(tenant: TenantId, op: Op, bytes: u64) -> Io {
        Io {
            id: IoId(0),
            tenant,
            class: Class::Throughput,
            op,
            bytes,
            lba: 0,
        }
    }

    /// Spans from nanoseconds since the origin.
    fn spans(at: [u64; 4]) -> Spans {
        let [arrived, dispatched, issued, ended] = at.map(|us| Time::from_ns(us * 1000));
        Spans {
            arrived,
            dispatched,
            issued,
            ended,
        }
    }

    fn share(why: &Why, cause: Cause) -> f64 {
        let all: u64 = why.causes.iter().map(|(_, ns)| ns).sum();
        let found = why.causes.iter().find(|(known, _)| *known == cause);
        found.map_or(0.0, |(_, ns)| *ns as f64 / all as f64)
    }

    #[test]
    fn a_reader_hears_who_was_served_while_it_waited() {
        let mut ledger = Ledger::default();
        let read = io(READER, Op::Read, 4096);
        // Alone, a read takes 100 us.
        for n in 0..16 {
            ledger.on_end(
                &read,
                spans([n * 200, n * 200, n * 200, n * 200 + 100]),
                || None,
            );
        }
        let alone = ledger.why(READER, Time::from_ns(4_000_000)).expect("known");
        assert!(alone.causes.is_empty() && alone.ios == 16, "{alone:?}");
        // Then a writer is served three parts of four while each read waits 2 ms and is 1 ms at the device.
        for n in 0..64 {
            let at = 10_000 + n * 4_000;
            let write = io(WRITER, Op::Write, 65_536);
            ledger.on_end(&write, spans([at, at, at, at + 1_500]), || None);
            ledger.on_end(&write, spans([at, at, at, at + 2_600]), || None);
            ledger.on_end(
                &read,
                spans([at, at + 2_000, at + 2_000, at + 3_000]),
                || None,
            );
        }
        let why = ledger
            .why(READER, Time::from_ns(300_000_000))
            .expect("known");
        assert_eq!(why.ios, 80);
        assert_eq!(why.turn, 64 * 2_000_000);
        assert_eq!(why.device, 16 * 100_000 + 64 * 1_000_000);
        assert_eq!(why.causes[0].0, Cause::Turn(WRITER));
        assert!(share(&why, Cause::Turn(WRITER)) > 0.6, "{:?}", why.causes);
        assert!(share(&why, Cause::OwnReads) == 0.0, "{:?}", why.causes);
        assert!(
            share(&why, Cause::Writes(WRITER)) > 0.15,
            "{:?}",
            why.causes
        );
        let charged: u64 = why.causes.iter().map(|(_, ns)| ns).sum();
        let excess = 64 * 2_900_000;
        assert!(
            charged.abs_diff(excess) < excess / 3,
            "{charged} of {excess}"
        );
    }

    #[test]
    fn waits_without_anybody_served_are_told_apart() {
        let mut ledger = Ledger::default();
        let read = io(READER, Op::Read, 4096);
        for n in 0..8 {
            let at = n * 200;
            ledger.on_end(&read, spans([at, at, at, at + 100]), || None);
        }
        for n in 1..17_u64 {
            let at = n * 10_000;
            let moved = || Some(n * 100);
            ledger.on_end(&read, spans([at, at + 500, at + 700, at + 1_800]), moved);
        }
        let why = ledger
            .why(READER, Time::from_ns(200_000_000))
            .expect("known");
        let known = [Cause::Held, Cause::Network, Cause::Housekeeping];
        assert!(
            known.iter().all(|cause| share(&why, *cause) > 0.0),
            "{why:?}"
        );
        assert_eq!(why.network, 16 * 200_000);
    }

    #[test]
    fn what_is_long_past_is_forgotten_and_tenants_can_go() {
        let mut ledger = Ledger::default();
        for tenant in [READER, WRITER, TenantId(0)] {
            let read = io(tenant, Op::Read, 4096);
            (0..16).for_each(|n| ledger.on_end(&read, spans([n, n + 5, n + 5, n + 9]), || None));
        }
        ledger.forget(READER);
        ledger.forget(TenantId(1_000_000));
        assert!(ledger.why(READER, Time::ZERO).is_none());
        assert_eq!(ledger.why(TenantId(0), Time::ZERO).expect("known").ios, 16);
        assert_eq!(ledger.why(WRITER, Time::ZERO).expect("known").ios, 16);
        let later = Time::ZERO + WINDOW + BIN;
        assert_eq!(ledger.why(WRITER, later).expect("known").ios, 16);
        let much_later = later + WINDOW;
        assert_eq!(ledger.why(WRITER, much_later).expect("known").ios, 0);
        let very_much_later = Time::ZERO + Duration::from_secs(3600);
        assert_eq!(
            ledger.why(TenantId(0), very_much_later).expect("known").ios,
            0
        );
    }

    /// Differences of the remembered counts are what was really done.
    #[test]
    fn work_within_a_span_is_what_was_done_in_its_bins() {
        let mut work = Work::default();
        let mut rng = flashyard_time::Rng::new(1);
        let (mut at, mut all) = (0, Vec::new());
        for _ in 0..5_000 {
            at += rng.below(400_000);
            work.fill(bin(Time::from_ns(at)));
            work.done.add(Op::Read, 1);
            all.push(at / 1_000_000);
        }
        for _ in 0..1_000 {
            let to = at - rng.below(100_000_000);
            let from = to - rng.below(100_000_000);
            let span = (Time::from_ns(from), Time::from_ns(to));
            let bins = from / 1_000_000..=to / 1_000_000;
            let real = all.iter().filter(|bin| bins.contains(bin)).count() as u64;
            assert_eq!(work.within(span).reads, real);
        }
    }
}
