//! Where the latency of a tenant comes from, and who caused it. Pure: time is told.
//!
//! Every I/O leaves stamps: its first byte was seen, all of it was there, it came to the switch, it was its turn, the
//! device got it, the device was done, its answer went to the network. The spans between them are added up for each tenant, and
//! it is asked what made the I/O slower than its own kind is when nothing is in the way - the least that each of
//! network, device and sending took for that tenant, operation and size lately. The excess of the device and the wait for
//! a turn are charged by what was done meanwhile: each tenant counts the work that the device did for it, roughly priced,
//! and remembers the count at the end of each of the last milliseconds, so the work of everybody within any span is a
//! difference of two numbers. Of a tenant that does much in a millisecond, one I/O in eight stands for the others; only
//! those that are looked at carry their stamps until their answers have gone.
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
use work::{BIN, Work, bin, price};

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
    /// Place of each tenant's account, by its number.
    places: Vec<Option<u32>>,
    accounts: Vec<Account>,
    /// What the device did on its own account.
    housekeeping: Work,
}

struct Account {
    tenant: TenantId,
    work: Work,
    /// When the present bin ends, and the I/Os in it so far.
    bin_end: Time,
    in_bin: u32,
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
        let place = self.place(io.tenant, ended);
        let account = &mut self.accounts[place];
        if ended >= account.bin_end {
            account.begin_bin(ended);
        }
        account.work.done.add(io.op, price(io));
        account.in_bin += 1;
        let times = if account.in_bin <= CLOSELY {
            1
        } else if account.in_bin.is_multiple_of(SAMPLE) {
            SAMPLE
        } else {
            return None;
        };
        self.keep_house(ended, moved);
        Some(times)
    }

    fn keep_house(&mut self, now: Time, moved: impl FnOnce() -> Option<u64>) {
        if let Some(moved) = moved() {
            let more = moved.saturating_sub(self.housekeeping.done.writes);
            self.housekeeping.fill(bin(now));
            self.housekeeping.done.add(Op::Write, more);
        }
    }

    /// Books an I/O that [`Ledger::on_end`] has chosen. One of a tenant that has gone is not booked.
    pub(crate) fn book(&mut self, record: &Record) {
        let Record { io, spans, times } = record;
        let Some(Some(place)) = self.places.get(io.tenant.0 as usize) else {
            return;
        };
        let (place, times) = (*place as usize, u64::from(*times));
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
        let place = (*self.places.get(tenant.0 as usize)?)?;
        let account = &mut self.accounts[place as usize];
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
    fn charge(&mut self, place: usize, spans: &Spans, excess: &Stages, times: u64) {
        if excess.all() == 0 {
            return;
        }
        let mut charges = vec![
            (Cause::Network, excess.network),
            (Cause::Intake, excess.intake),
            (Cause::Send, excess.send),
        ];
        if excess.turn > 0 {
            self.charge_turn(place, spans, excess.turn, &mut charges);
        }
        if excess.device > 0 {
            self.charge_device(place, spans, excess.device, &mut charges);
        }
        let causes = &mut self.accounts[place].windows[0].causes;
        for (cause, ns) in charges {
            charge_to(causes, cause, ns * times);
        }
    }

    fn charge_turn(&self, place: usize, spans: &Spans, ns: u64, charges: &mut Vec<(Cause, u64)>) {
        let own = self.accounts[place].tenant;
        let beside = self.accounts[place].beside_itself(spans.ended);
        let span = (spans.arrived, spans.dispatched);
        let shares = self.accounts.iter().map(|account| {
            let done = account.work.within(span);
            match account.tenant {
                tenant if tenant == own => (Cause::OwnQueue, beside.of(done.reads + done.writes)),
                tenant => (Cause::Turn(tenant), done.reads + done.writes),
            }
        });
        divide(charges, ns, shares, Cause::Held);
    }

    fn charge_device(&self, place: usize, spans: &Spans, ns: u64, charges: &mut Vec<(Cause, u64)>) {
        let own = self.accounts[place].tenant;
        let beside = self.accounts[place].beside_itself(spans.ended);
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
        divide(charges, ns, shares, Cause::Device);
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

impl Account {
    fn new(tenant: TenantId, now: Time) -> Self {
        Self {
            tenant,
            work: Work::default(),
            bin_end: Time::ZERO,
            in_bin: 0,
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
