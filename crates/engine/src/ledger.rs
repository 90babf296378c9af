//! Where the latency of a tenant comes from, and who caused it. Pure: the caller gives the time.
//!
//! Every I/O leaves stamps: its first byte was seen, all of it was there, it came to the switch, it
//! was its turn, the device got it, the device was done, its answer went to its host. The spans
//! between them are added up for each tenant, and it is asked what made the I/O slower than its own
//! kind is when nothing is in the way - the least that each of receiving, device and sending took
//! for that tenant, operation and size recently. The excess of the device and the wait for a turn
//! are charged by what was done meanwhile: each tenant counts the work that the device did for it,
//! roughly priced, and remembers the count at the end of each of the last milliseconds, so the work
//! of everybody within any span is a difference of two numbers. Of a tenant that does much in a
//! millisecond, some I/Os stand for the others, and so it is when many tenants do anything; only
//! those that are sampled carry their stamps until their answers have gone.
//!
//! What devices do on their own account, such as a rebuild, has an account for each kind of work.
//!
//! A charge is a share, not a proof: who did twice the work while an I/O waited is charged twice as
//! much of the wait.

mod account;
mod causes;
mod pace;
mod recent;
mod slow_io;
mod stamps;
mod tally;
#[cfg(test)]
mod tests;
mod work;

use flashyard_block::SystemWork;
use flashyard_sched::{Ask, Cost, Roster, TenantId};
use flashyard_time::{Duration, Rng, Time};

use account::Account;
pub use account::Why;
pub use causes::Cause;
use pace::Pace;
pub use pace::Slowness;
pub use recent::{Moved, Recent};
use slow_io::SlowIos;
pub use slow_io::{SlowAfter, SlowIo};
pub(crate) use stamps::{Past, Spans};
pub use stamps::{Sample, Stages};
use tally::Tally;
use work::{Done, History, bin, price, price_upkeep};

/// Who did less than one part in so many of what an I/O waited for is not named.
const LITTLE: u64 = 64;
/// For each account that is gone through to record an I/O, it is so long until the next one is
/// sampled: that costs a small part of the time, however many tenants there are.
const VISIT: Duration = Duration::from_us(2);
/// What may be spent of that at once.
const BURST: Duration = Duration::from_ms(1);

/// The books of one switch. There are as many accounts as there were tenants with I/O at a time.
pub(crate) struct Ledger {
    tenants: Roster<Entry>,
    /// What the device did on its own account.
    housekeeping: (Done, History),
    /// Until when the time is spent that there is for looking at I/Os.
    spent_until: Time,
    /// Lest I/Os be sampled because of their place in a pattern.
    chance: Rng,
    /// Who has done how much, while that is looked at.
    shares: Vec<(Cause, u64)>,
    slow: SlowIos,
    pace: Pace,
}

/// What there is of a tenant.
struct Entry {
    /// What every I/O touches.
    tally: Tally,
    account: Account,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            tenants: Roster::default(),
            housekeeping: Default::default(),
            spent_until: Time::ZERO,
            chance: Rng::new(0),
            shares: Vec::new(),
            slow: SlowIos::default(),
            pace: Pace::new(),
        }
    }
}

impl Ledger {
    /// The device has ended an I/O. Gives how many it stands for if it is to be booked, by
    /// [`Ledger::record`]. `moved` tells what the device has moved on its own account.
    #[inline]
    pub(crate) fn on_end(
        &mut self,
        io: &Ask,
        ended: Time,
        moved: impl FnOnce() -> Option<u64>,
    ) -> Option<u32> {
        let number = match self.tenants.find(io.tenant) {
            Some(number) => number,
            None => self.open(io.tenant, ended),
        };
        let tally = &mut self.tenants[number].tally;
        if ended >= tally.bin_end() {
            self.begin_bin(number, ended);
        }
        let tally = &mut self.tenants[number].tally;
        if !tally.count(io.op, price(io)) {
            return None;
        }
        self.look(number, ended, moved)
    }

    /// What a pool has done for a tenant, whose I/O has just ended.
    pub(crate) fn on_cost(&mut self, tenant: TenantId, cost: &Cost) {
        if let Some(number) = self.tenants.find(tenant) {
            self.tenants[number].tally.count_upkeep(price_upkeep(cost));
        }
    }

    /// It is the turn of an I/O to be looked at, unless others were a moment ago.
    #[cold]
    fn look(
        &mut self,
        number: u32,
        ended: Time,
        moved: impl FnOnce() -> Option<u64>,
    ) -> Option<u32> {
        let tally = &mut self.tenants[number].tally;
        if ended + BURST < self.spent_until {
            tally.put_off();
            return None;
        }
        let times = tally.look();
        let spent = VISIT.as_ns() * self.tenants.iter().count() as u64;
        let spent = Duration::from_ns(spent / 2 + self.chance.below(spent));
        self.spent_until = self.spent_until.max(ended) + spent;
        if let Some(moved) = moved() {
            let (done, history) = &mut self.housekeeping;
            history.fill(bin(ended), *done);
            done.writes = done.writes.max(moved);
        }
        Some(times)
    }

    /// Opens an account, in the place of those of which nothing is known any more.
    #[cold]
    fn open(&mut self, tenant: TenantId, now: Time) -> u32 {
        let old = |(id, _, entry): (TenantId, u32, &Entry)| {
            let is_old = entry.account.is_empty(now) && entry.tally.bin_end() <= now;
            is_old.then_some(id)
        };
        let old: Vec<_> = self.tenants.iter().filter_map(old).collect();
        for tenant in old {
            self.forget(tenant);
        }
        self.tenants.number(tenant, || Entry {
            tally: Tally::default(),
            account: Account::new(tenant, now),
        })
    }

    #[cold]
    fn begin_bin(&mut self, number: u32, now: Time) {
        let Entry { tally, account } = &mut self.tenants[number];
        account.fill(bin(now), tally.done());
        account.roll(now);
        tally.begin_bin(bin(now));
    }

    /// Books an I/O that [`Ledger::on_end`] has chosen. One of a tenant that has gone is not
    /// booked.
    pub(crate) fn record(&mut self, sample: &Sample) {
        let Sample { io, spans, times } = sample;
        let Some(number) = self.tenants.find(io.tenant) else {
            return;
        };
        let times = u64::from(*times);
        let stages = spans.stages();
        self.slow.look(io, &stages, times);
        self.pace.count(io, spans.ended, stages.device, times);
        let account = &mut self.tenants[number].account;
        let excess = account.record(io, spans, &stages, times);
        account.charge(Cause::Receive, excess.receive * times);
        account.charge(Cause::Intake, excess.intake * times);
        account.charge(Cause::Send, excess.send * times);
        if excess.turn > 0 {
            self.charge_turn(number, spans, excess.turn * times);
        }
        if excess.device > 0 {
            self.charge_device(number, spans, excess.device * times);
        }
    }

    /// What is known of a tenant, if it has had any I/O here recently.
    pub(crate) fn why(&mut self, tenant: TenantId, now: Time) -> Option<Why> {
        let number = self.tenants.find(tenant)?;
        let account = &mut self.tenants[number].account;
        account.roll(now);
        Some(account.why())
    }

    /// What each tenant got in the last seconds, of those that got anything.
    pub(crate) fn recent(&self, now: Time) -> Vec<Recent> {
        let all = self.tenants.iter();
        let all = all.filter(|(tenant, _, _)| work_of(*tenant).is_none());
        all.filter_map(|(_, _, entry)| entry.account.recent(now))
            .collect()
    }

    /// The same of one tenant, if it got anything.
    pub(crate) fn recent_of(&self, tenant: TenantId, now: Time) -> Option<Recent> {
        let number = self.tenants.find(tenant)?;
        self.tenants[number].account.recent(now)
    }

    /// From when on a sampled I/O of a tenant is slow; none is with nothing.
    pub(crate) fn watch_slow(&mut self, tenant: TenantId, after: Option<SlowAfter>) {
        self.slow.watch(tenant, after);
    }

    /// The slowest I/O of each tenant that had slow ones since this was asked last.
    pub(crate) fn take_slow(&mut self) -> Vec<SlowIo> {
        self.slow.take()
    }

    /// Whether the device, with so many I/Os at it now, is slower than usual.
    pub(crate) fn slowness(&mut self, now: Time, here: usize) -> Option<Slowness> {
        let done = self.tenants.iter().map(|(_, _, entry)| entry.tally.done());
        let done = done.map(|done| done.reads + done.writes).sum();
        self.pace.slowness(now, done, here)
    }

    /// Forgets a tenant that has gone.
    pub(crate) fn forget(&mut self, tenant: TenantId) {
        if let Some(number) = self.tenants.find(tenant) {
            self.tenants.release(number);
        }
    }

    fn charge_turn(&mut self, number: u32, spans: &Spans, ns: u64) {
        let account = &self.tenants[number].account;
        let (own, beside) = (account.tenant(), account.beside_itself(spans.ended));
        let span = (spans.arrived, spans.dispatched);
        let shares = self.tenants.iter().map(|(tenant, _, entry)| {
            let done = entry.within(span);
            let all = done.reads + done.writes;
            match work_of(tenant) {
                _ if tenant == own => (Cause::OwnQueue, beside.of(all)),
                Some(work) => (Cause::SystemTurn(work), all),
                None => (Cause::Turn(tenant), all),
            }
        });
        self.shares.clear();
        self.shares.extend(shares);
        self.divide(number, ns, Cause::Held);
    }

    fn charge_device(&mut self, number: u32, spans: &Spans, ns: u64) {
        let account = &self.tenants[number].account;
        let (own, beside) = (account.tenant(), account.beside_itself(spans.ended));
        let span = (spans.issued, spans.ended);
        let shares = self.tenants.iter().flat_map(|(tenant, _, entry)| {
            let done = entry.within(span);
            if tenant == own {
                [
                    (Cause::OwnReads, beside.of(done.reads)),
                    (Cause::OwnWrites, beside.of(done.writes)),
                    (Cause::OwnUpkeep, done.upkeep),
                ]
            } else if let Some(work) = work_of(tenant) {
                // It has no upkeep, and its reads and writes are one.
                [
                    (Cause::System(work), done.reads),
                    (Cause::System(work), done.writes),
                    (Cause::System(work), 0),
                ]
            } else {
                [
                    (Cause::Reads(tenant), done.reads),
                    (Cause::Writes(tenant), done.writes),
                    (Cause::Upkeep(tenant), done.upkeep),
                ]
            }
        });
        let (done, history) = &self.housekeeping;
        let moved = history.within(span, *done).writes;
        self.shares.clear();
        self.shares.extend(shares);
        self.shares.push((Cause::Housekeeping, moved));
        self.divide(number, ns, Cause::Device);
    }

    /// Divides `ns` by what was done, which is in `shares`; all of it is `otherwise` when nothing
    /// was.
    fn divide(&mut self, number: u32, ns: u64, otherwise: Cause) {
        let account = &mut self.tenants[number].account;
        let all: u64 = self.shares.iter().map(|(_, share)| share).sum();
        if all == 0 {
            return account.charge(otherwise, ns);
        }
        let part = |share: u64| (u128::from(ns) * u128::from(share) / u128::from(all)) as u64;
        let mut little = 0;
        for &(cause, share) in &self.shares {
            if cause.is_named() && share < all / LITTLE {
                little += share;
            } else {
                account.charge(cause, part(share));
            }
        }
        account.charge(Cause::Others, part(little));
    }
}

/// A part of some work as it is booked: each kind of work has an account, as a tenant has whose
/// number no tenant can have. The copying of volumes that move comes as I/O of the system.
pub(crate) fn booked(work: SystemWork, io: Ask) -> Ask {
    let tenant = TenantId(match work {
        SystemWork::Move => 0,
        SystemWork::Rebuild => u32::MAX,
        SystemWork::Resync => u32::MAX - 1,
        SystemWork::Scrub => u32::MAX - 2,
    });
    Ask { tenant, ..io }
}

/// Of what work an account is.
fn work_of(tenant: TenantId) -> Option<SystemWork> {
    match u32::MAX - tenant.0 {
        u32::MAX => Some(SystemWork::Move),
        0 => Some(SystemWork::Rebuild),
        1 => Some(SystemWork::Resync),
        2 => Some(SystemWork::Scrub),
        _ => None,
    }
}

impl Entry {
    /// What the device did for the tenant between two instants.
    fn within(&self, span: (Time, Time)) -> Done {
        self.account.within(span, self.tally.done())
    }
}
