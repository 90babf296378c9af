//! Where the latency of a tenant comes from, and who caused it. Pure: time is told.
//!
//! Every I/O leaves stamps: its first byte was seen, all of it was there, it came to the switch, it was its turn, the
//! device got it, the device was done, its answer went to the network. The spans between them are added up for each tenant, and
//! it is asked what made the I/O slower than its own kind is when nothing is in the way - the least that each of
//! network, device and sending took for that tenant, operation and size lately. The excess of the device and the wait for
//! a turn are charged by what was done meanwhile: each tenant counts the work that the device did for it, roughly priced,
//! and remembers the count at the end of each of the last milliseconds, so the work of everybody within any span is a
//! difference of two numbers. Of a tenant that does much in a millisecond, some I/Os stand for the others; only those that
//! are looked at carry their stamps until their answers have gone.
//!
//! A charge is a share, not a proof: who did twice the work while an I/O waited is charged twice as much of the wait.

mod stamps;
#[cfg(test)]
mod tests;
mod work;

use std::array;

use flashyard_sched::{Io, Op, TenantId};
use flashyard_time::{Duration, Histogram, Time};

pub(crate) use stamps::{Looked, Past, Record, Spans};
use work::{BIN, Done, History, bin, price};

/// What is told covers the last one to two of these.
const WINDOW: Duration = Duration::from_secs(10);
/// How many of a tenant's I/Os in a bin are looked at: each up to the first number, then one in so many. These are
/// primes, so that an I/O is not looked at because of its place in a pattern.
const STEPS: [(u32, u32); 3] = [(8, 1), (64, 7), (u32::MAX, 31)];
/// Bytes up to which an I/O is of each size kind but the last.
const SIZES: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];
const KINDS: usize = 2 * (SIZES.len() + 1);

/// What made an I/O slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The rest of its command or its data were waited for: the network, or its host.
    Network,
    /// It was here and had not come to the switch: memory that its tenant may use was waited for, or room for answers
    /// that its host does not take, or others were in a hurry.
    Intake,
    /// It waited for its turn behind I/O of the same tenant.
    OwnQueue,
    /// It waited for its turn while this other tenant was served.
    Turn(TenantId),
    /// It waited for its turn while nobody was served: a limit of the tenant holds it back, or what serves the
    /// others takes long.
    Held,
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
    /// Its answer waited for others to go with, or for the network to take it.
    Send,
}

/// Where the latency of a tenant came from lately. Sums are nanoseconds.
#[derive(Clone, Debug)]
pub struct Why {
    /// Whose.
    pub tenant: TenantId,
    /// I/Os that ended.
    pub ios: u64,
    /// Nanoseconds from the first byte of its command to the last of its answer, of each.
    pub latency: Histogram,
    /// The same, stage by stage, of all.
    pub stages: Stages,
    /// What exceeded the least that it takes, of all, by cause; the largest first.
    pub causes: Vec<(Cause, u64)>,
}

/// Time by stage, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// Waiting for the rest of a command, or for data.
    pub network: u64,
    /// Here, and not yet at the switch.
    pub intake: u64,
    /// Waiting for a turn.
    pub turn: u64,
    /// At the device.
    pub device: u64,
    /// From there until the answer has gone.
    pub send: u64,
}

/// The books of one switch.
#[derive(Default)]
pub(crate) struct Ledger {
    /// By the number of the tenant: what every I/O touches.
    tallies: Vec<Tally>,
    accounts: Vec<Account>,
    /// What the device did on its own account.
    housekeeping: (Done, History),
    /// Who has done how much, while that is looked at.
    shares: Vec<(Cause, u64)>,
}

/// What is counted of a tenant's I/Os.
#[derive(Default)]
struct Tally {
    done: Done,
    /// When the present bin ends, and the I/Os in it so far.
    bin_end: Time,
    in_bin: u32,
    /// Which of them is looked at next, and for how many since the last one it stands.
    next: u32,
    stands_for: u32,
    /// Where its account is.
    place: Option<u32>,
}

struct Account {
    tenant: TenantId,
    history: History,
    network: [Least; KINDS],
    device: [Least; KINDS],
    send: [Least; KINDS],
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
    stages: Stages,
    causes: Vec<(Cause, u64)>,
}

impl Ledger {
    /// The device has ended an I/O. Gives how many it stands for if it is to be booked, by [`Ledger::book`].
    /// `moved` tells what the device has moved on its own account.
    #[inline]
    pub(crate) fn on_end(
        &mut self,
        io: &Io,
        ended: Time,
        moved: impl FnOnce() -> Option<u64>,
    ) -> Option<u32> {
        let index = io.tenant.0 as usize;
        let tally = self.tallies.get(index);
        if tally.is_none_or(|tally| ended >= tally.bin_end) {
            self.begin_bin(io.tenant, ended);
        }
        let tally = &mut self.tallies[index];
        tally.done.add(io.op, price(io));
        tally.in_bin += 1;
        if tally.in_bin < tally.next {
            return None;
        }
        let times = tally.look();
        self.keep_house(ended, moved);
        Some(times)
    }

    fn keep_house(&mut self, now: Time, moved: impl FnOnce() -> Option<u64>) {
        if let Some(moved) = moved() {
            let (done, history) = &mut self.housekeeping;
            history.fill(bin(now), *done);
            done.writes = done.writes.max(moved);
        }
    }

    #[cold]
    fn begin_bin(&mut self, tenant: TenantId, now: Time) {
        let place = self.place(tenant, now);
        let (tally, account) = (
            &mut self.tallies[tenant.0 as usize],
            &mut self.accounts[place],
        );
        let bin = bin(now);
        account.history.fill(bin, tally.done);
        account.roll(now);
        tally.begin_bin(Time::from_ns((bin + 1) * BIN.as_ns()));
    }

    /// Books an I/O that [`Ledger::on_end`] has chosen. One of a tenant that has gone is not booked.
    pub(crate) fn book(&mut self, record: &Record) {
        let Record { io, spans, times } = record;
        let Some(place) = self.find(io.tenant) else {
            return;
        };
        let times = u64::from(*times);
        let account = &mut self.accounts[place];
        let stages = spans.stages();
        let excess = account.excess(kind(io), &stages);
        let books = &mut account.windows[0];
        books.stages.add(&stages, times);
        books.latency.record_n(stages.all(), times);
        self.charge(place, spans, &excess, times);
    }

    /// What is known of a tenant, if it has had any I/O here.
    pub(crate) fn why(&mut self, tenant: TenantId, now: Time) -> Option<Why> {
        let place = self.find(tenant)?;
        let account = &mut self.accounts[place];
        account.roll(now);
        let [recent, older] = &account.windows;
        let mut latency = recent.latency.clone();
        latency.merge(&older.latency);
        let mut stages = recent.stages;
        stages.add(&older.stages, 1);
        let mut causes = recent.causes.clone();
        for (cause, ns) in &older.causes {
            charge_to(&mut causes, *cause, *ns);
        }
        causes.sort_unstable_by_key(|(cause, ns)| (std::cmp::Reverse(*ns), *cause));
        Some(Why {
            tenant,
            ios: latency.count(),
            latency,
            stages,
            causes,
        })
    }

    /// Forgets a tenant that has gone.
    pub(crate) fn forget(&mut self, tenant: TenantId) {
        let Some(place) = self.find(tenant) else {
            return;
        };
        self.tallies[tenant.0 as usize] = Tally::default();
        self.accounts.swap_remove(place);
        if let Some(moved) = self.accounts.get(place) {
            self.tallies[moved.tenant.0 as usize].place = Some(place as u32);
        }
    }

    fn find(&self, tenant: TenantId) -> Option<usize> {
        let tally = self.tallies.get(tenant.0 as usize)?;
        tally.place.map(|place| place as usize)
    }

    /// Where the account of a tenant is, which is opened if there is none.
    fn place(&mut self, tenant: TenantId, now: Time) -> usize {
        if let Some(place) = self.find(tenant) {
            return place;
        }
        let index = tenant.0 as usize;
        if self.tallies.len() <= index {
            self.tallies.resize_with(index + 1, Tally::default);
        }
        let place = self.accounts.len();
        let number = u32::try_from(place).expect("each tenant has a number of its own");
        self.tallies[index].place = Some(number);
        self.accounts.push(Account::new(tenant, now));
        place
    }

    /// Charges what an I/O had to wait for.
    fn charge(&mut self, place: usize, spans: &Spans, excess: &Stages, times: u64) {
        let charges = &mut self.accounts[place].windows[0].causes;
        charge_to(charges, Cause::Network, excess.network * times);
        charge_to(charges, Cause::Intake, excess.intake * times);
        charge_to(charges, Cause::Send, excess.send * times);
        if excess.turn > 0 {
            self.charge_turn(place, spans, excess.turn * times);
        }
        if excess.device > 0 {
            self.charge_device(place, spans, excess.device * times);
        }
    }

    fn charge_turn(&mut self, place: usize, spans: &Spans, ns: u64) {
        let own = self.accounts[place].tenant;
        let beside = self.accounts[place].beside_itself(spans.ended);
        let span = (spans.arrived, spans.dispatched);
        let tallies = &self.tallies;
        let shares = self.accounts.iter().map(|account| {
            let done = account.within(span, tallies);
            match account.tenant {
                tenant if tenant == own => (Cause::OwnQueue, beside.of(done.reads + done.writes)),
                tenant => (Cause::Turn(tenant), done.reads + done.writes),
            }
        });
        self.shares.clear();
        self.shares.extend(shares);
        self.divide(place, ns, Cause::Held);
    }

    fn charge_device(&mut self, place: usize, spans: &Spans, ns: u64) {
        let own = self.accounts[place].tenant;
        let beside = self.accounts[place].beside_itself(spans.ended);
        let span = (spans.issued, spans.ended);
        let tallies = &self.tallies;
        let shares = self.accounts.iter().flat_map(|account| {
            let done = account.within(span, tallies);
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
        let (done, history) = &self.housekeeping;
        let moved = history.within(span, *done).writes;
        self.shares.clear();
        self.shares.extend(shares);
        self.shares.push((Cause::Housekeeping, moved));
        self.divide(place, ns, Cause::Device);
    }

    /// Divides `ns` by what was done, which is in `shares`; all of it is `otherwise` when nothing was.
    fn divide(&mut self, place: usize, ns: u64, otherwise: Cause) {
        let causes = &mut self.accounts[place].windows[0].causes;
        let all: u64 = self.shares.iter().map(|(_, share)| share).sum();
        if all == 0 {
            return charge_to(causes, otherwise, ns);
        }
        for (cause, share) in &self.shares {
            let part = u128::from(ns) * u128::from(*share) / u128::from(all);
            charge_to(causes, *cause, part as u64);
        }
    }
}

impl Stages {
    fn add(&mut self, more: &Self, times: u64) {
        self.network += more.network * times;
        self.intake += more.intake * times;
        self.turn += more.turn * times;
        self.device += more.device * times;
        self.send += more.send * times;
    }

    /// All of it.
    pub fn all(&self) -> u64 {
        self.network + self.intake + self.turn + self.device + self.send
    }
}

impl Tally {
    /// Begins a new bin. What was not looked at in the last one is stood for by the first of the new one.
    fn begin_bin(&mut self, end: Time) {
        let step = self.next.saturating_sub(self.in_bin);
        self.stands_for = self.stands_for.saturating_sub(step) + 1;
        self.bin_end = end;
        self.in_bin = 0;
        self.next = 1;
    }

    /// Looks at the present I/O; gives how many it stands for.
    #[cold]
    fn look(&mut self) -> u32 {
        let step = STEPS.iter().find(|(most, _)| self.in_bin < *most);
        let (_, step) = step.copied().unwrap_or_default();
        self.next = self.in_bin.saturating_add(step);
        std::mem::replace(&mut self.stands_for, step)
    }
}

impl Account {
    fn new(tenant: TenantId, now: Time) -> Self {
        Self {
            tenant,
            history: History::default(),
            network: [Least::NONE; KINDS],
            device: [Least::NONE; KINDS],
            send: [Least::NONE; KINDS],
            windows: array::from_fn(|_| Books::new()),
            since: now,
        }
    }

    /// What is more than the least of lately. Nobody needs to wait for a turn, or to be taken in.
    fn excess(&mut self, kind: usize, stages: &Stages) -> Stages {
        Stages {
            network: self.network[kind].excess(stages.network),
            device: self.device[kind].excess(stages.device),
            send: self.send[kind].excess(stages.send),
            ..*stages
        }
    }

    /// The part of the tenant's own work that goes on beside any one of its I/Os. Who has one I/O under way at a time
    /// is never in its own way: by Little's law the mean number under way is the sum of their times over the time.
    fn beside_itself(&self, now: Time) -> Part {
        let stages = &self.windows[0].stages;
        let under_way = stages.turn + stages.device;
        let passed = now.since(self.since).as_ns();
        Part {
            of: under_way.max(1),
            is: under_way.saturating_sub(passed),
        }
    }

    /// What the device did for the tenant between two instants.
    fn within(&self, span: (Time, Time), tallies: &[Tally]) -> Done {
        self.history
            .within(span, tallies[self.tenant.0 as usize].done)
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
        let leasts = [&mut self.network, &mut self.device, &mut self.send];
        leasts.into_iter().flatten().for_each(Least::roll);
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

impl Least {
    const NONE: Self = Self {
        now: u64::MAX,
        before: u64::MAX,
    };

    /// Heeds `ns`, and gives what of it is more than the least.
    fn excess(&mut self, ns: u64) -> u64 {
        self.now = self.now.min(ns);
        ns - self.now.min(self.before)
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
            stages: Stages::default(),
            causes: Vec::new(),
        }
    }

    fn clear(&mut self) {
        self.latency.clear();
        self.causes.clear();
        self.stages = Stages::default();
    }
}

fn charge_to(causes: &mut Vec<(Cause, u64)>, cause: Cause, ns: u64) {
    if ns == 0 {
        return;
    }
    match causes.iter_mut().find(|(known, _)| *known == cause) {
        Some((_, sum)) => *sum += ns,
        None => causes.push((cause, ns)),
    }
}

fn kind(io: &Io) -> usize {
    let size = SIZES.iter().filter(|most| io.bytes > **most).count();
    2 * size + usize::from(io.op != Op::Read)
}
