//! What hosts may have outstanding, as reported to them (feature C1h). The policy says what a
//! tenant may have at a device; its home core puts that into the tenant's account there, and
//! whoever answers a host reads it, on whichever core.
//!
//! What a tenant may have is shared by all who use it there: each association's namespace on the
//! device receives what the others leave of it, and its equal part of it at least. So whoever wants
//! much gets what the others do not want, and nobody has to wait until another one has had enough.
//! Only hosts that receive credits count; the others queue in the target, where the policy decides
//! whose turn it is, as it does with those who send more than they may.
//!
//! Nothing here is exact at every instant: numbers are read while they move. What is reported is a
//! total, repeated with every completion.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::atomic::{AtomicU64 as Generation, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flashyard_block::TenantId;
use flashyard_nvme::Allowance;
use flashyard_sched::{Ask, Credit};

/// No policy has said anything.
const UNBOUNDED: u64 = u64::MAX;

/// The accounts of a switch, one for each tenant whose host receives credits.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    /// Moves when an account comes or goes; 0 as long as there has been none.
    moved: Generation,
    list: Mutex<BTreeMap<TenantId, Arc<Account>>>,
}

/// What a tenant may have outstanding at a device, and has. In units of [`Allowance::cost`].
#[derive(Debug)]
pub(crate) struct Account {
    allowed: AtomicU64,
    outstanding: AtomicU64,
    /// Parts that have anything outstanding.
    busy: AtomicU32,
}

/// What one association has outstanding at one device, over all its queues.
#[derive(Debug, Default)]
pub(crate) struct Part {
    outstanding: AtomicU64,
}

/// What one association has outstanding, by the number of the device.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    list: Mutex<BTreeMap<u32, Arc<Part>>>,
}

/// What one queue has outstanding at one device; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct CreditShare {
    account: Arc<Account>,
    part: Arc<Part>,
    spent: Cell<u64>,
    /// What was reported last here.
    reported: Cell<Allowance>,
}

impl Accounts {
    /// The account of `tenant`; a new one if there is none.
    pub(crate) fn of(&self, tenant: TenantId) -> Arc<Account> {
        let mut list = self.list();
        let account = list.entry(tenant).or_insert_with(|| {
            self.moved.fetch_add(1, Ordering::Release);
            Arc::new(Account::new())
        });
        account.clone()
    }

    fn forget(&self, tenant: TenantId) {
        if self.list().remove(&tenant).is_some() {
            self.moved.fetch_add(1, Ordering::Release);
        }
    }

    fn list(&self) -> MutexGuard<'_, BTreeMap<TenantId, Arc<Account>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The accounts as the home core of the device keeps them: a copy, so that the end of an I/O takes
/// no lock.
#[derive(Debug, Default)]
pub(crate) struct Book {
    accounts: Arc<Accounts>,
    seen: Cell<u64>,
    copy: RefCell<BTreeMap<TenantId, Arc<Account>>>,
}

impl Book {
    /// For the other cores.
    pub(crate) fn accounts(&self) -> &Arc<Accounts> {
        &self.accounts
    }

    /// `io` has ended: takes down what its tenant may have from now on, if a host receives credits.
    #[inline]
    pub(crate) fn enter(&self, io: &Ask, credit: impl FnOnce() -> Option<Credit>) {
        let moved = self.accounts.moved.load(Ordering::Acquire);
        if moved == 0 {
            return;
        }
        if moved != self.seen.replace(moved) {
            *self.copy.borrow_mut() = self.accounts.list().clone();
        }
        if let Some(account) = self.copy.borrow().get(&io.tenant) {
            let units = credit().map_or(UNBOUNDED, |credit| units(credit, io.bytes));
            account.allowed.store(units, Relaxed);
        }
    }

    /// The tenant has gone from here.
    pub(crate) fn forget(&self, tenant: TenantId) {
        self.accounts.forget(tenant);
    }
}

/// Units of a credit. A policy that counts I/Os alone is taken to mean I/Os like the one that has
/// just ended.
fn units(credit: Credit, bytes: u64) -> u64 {
    let ios = u64::from(credit.ios);
    if credit.bytes == u64::MAX {
        return ios
            .saturating_mul(Allowance::cost(bytes))
            .min(UNBOUNDED - 1);
    }
    (ios * Allowance::LEAST).max(credit.bytes / Allowance::UNIT)
}

impl Account {
    fn new() -> Self {
        Self {
            allowed: AtomicU64::new(UNBOUNDED),
            outstanding: AtomicU64::new(0),
            busy: AtomicU32::new(0),
        }
    }
}

impl Parts {
    /// The part of a device.
    pub(crate) fn of(&self, device: u32) -> Arc<Part> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        // Devices that no queue knows any more.
        list.retain(|number, part| *number == device || Arc::strong_count(part) > 1);
        list.entry(device).or_default().clone()
    }
}

impl CreditShare {
    /// A credit_share with nothing spent.
    pub(crate) fn new(account: Arc<Account>, part: Arc<Part>) -> Self {
        Self {
            account,
            part,
            spent: Cell::new(0),
            reported: Cell::new(Allowance::Silent),
        }
    }

    /// A command of so many bytes has come.
    #[inline]
    pub(crate) fn spend(&self, bytes: u64) {
        let cost = Allowance::cost(bytes);
        self.spent.set(self.spent.get() + cost);
        self.account.outstanding.fetch_add(cost, Relaxed);
        if self.part.outstanding.fetch_add(cost, Relaxed) == 0 {
            self.account.busy.fetch_add(1, Relaxed);
        }
    }

    /// A command of so many bytes is being answered.
    #[inline]
    pub(crate) fn give_back(&self, bytes: u64) {
        self.take_off(Allowance::cost(bytes));
    }

    fn take_off(&self, cost: u64) {
        self.spent.set(self.spent.get() - cost);
        self.account.outstanding.fetch_sub(cost, Relaxed);
        if self.part.outstanding.fetch_sub(cost, Relaxed) == cost {
            // The part may have become busy under an account that has been forgotten since.
            let fewer = |busy: u32| busy.checked_sub(1);
            let _ = self.account.busy.fetch_update(Relaxed, Relaxed, fewer);
        }
    }

    /// What the host may have outstanding here.
    #[inline]
    pub(crate) fn allowance(&self) -> Allowance {
        let allowance = self.left_by_others();
        self.reported.set(allowance);
        allowance
    }

    /// The same, if it is worth a message: it was not reported yet, or is another by more than an
    /// eighth.
    #[inline]
    pub(crate) fn news(&self) -> Option<Allowance> {
        let allowance = self.left_by_others();
        let is_old = match (self.reported.get(), allowance) {
            (Allowance::Units(reported), Allowance::Units(now)) => {
                reported.abs_diff(now) <= reported / 8
            }
            (reported, now) => reported == now,
        };
        (!is_old).then(|| {
            self.reported.set(allowance);
            allowance
        })
    }

    fn left_by_others(&self) -> Allowance {
        let allowed = self.account.allowed.load(Relaxed);
        if allowed == UNBOUNDED {
            return Allowance::Unbounded;
        }
        let own = self.part.outstanding.load(Relaxed);
        let others = self.account.outstanding.load(Relaxed).saturating_sub(own);
        let parts = self.account.busy.load(Relaxed) + u32::from(own == 0);
        let equal = allowed / u64::from(parts.max(1));
        Allowance::Units(equal.max(allowed.saturating_sub(others)))
    }
}

impl Drop for CreditShare {
    fn drop(&mut self) {
        let spent = self.spent.get();
        if spent > 0 {
            self.take_off(spent);
        }
    }
}

#[cfg(test)]
mod tests {
    use flashyard_sched::{Class, IoId, Op};

    use super::*;

    const TENANT: TenantId = TenantId(7);

    fn ended(bytes: u64) -> Ask {
        Ask {
            id: IoId(0),
            tenant: TENANT,
            class: Class::Throughput,
            op: Op::Read,
            bytes,
            lba: 0,
        }
    }

    fn credit(ios: u32, bytes: u64) -> Credit {
        Credit { ios, bytes }
    }

    fn credit_share(book: &Book, part: &Arc<Part>) -> CreditShare {
        CreditShare::new(book.accounts().of(TENANT), part.clone())
    }

    #[test]
    fn what_the_policy_says_is_what_is_told() {
        let book = Book::default();
        book.enter(&ended(4096), || panic!("no host receives credits"));
        let credit_share = credit_share(&book, &Arc::default());
        assert_eq!(credit_share.allowance(), Allowance::Unbounded);
        for (credit, bytes, reported) in [
            (credit(16, 16 * 4096), 4096, 128),
            (credit(16, 16 * 512), 512, 128),
            (credit(16, 16 << 17), 4096, 16 * 256),
            (credit(4, u64::MAX), 8192, 64),
            (credit(u32::MAX, u64::MAX), u64::MAX, UNBOUNDED - 1),
        ] {
            book.enter(&ended(bytes), || Some(credit));
            assert_eq!(
                credit_share.allowance(),
                Allowance::Units(reported),
                "{credit:?}"
            );
        }
        book.enter(&ended(4096), || None);
        assert_eq!(credit_share.allowance(), Allowance::Unbounded);
    }

    #[test]
    fn others_leave_what_they_do_not_use_and_never_less_than_an_equal_part() {
        let book = Book::default();
        let parts: [Arc<Part>; 2] = Default::default();
        let credit_shares = [&parts[0], &parts[1]].map(|part| credit_share(&book, part));
        let second_queue = credit_share(&book, &parts[0]);
        book.enter(&ended(4096), || Some(credit(100, 100 * 4096)));
        assert_eq!(credit_shares[0].allowance(), Allowance::Units(800));
        // It does not take anything away from itself, on whichever queue.
        (0..50).for_each(|_| credit_shares[0].spend(4096));
        second_queue.spend(8192);
        assert_eq!(credit_shares[0].allowance(), Allowance::Units(800));
        assert_eq!(second_queue.allowance(), Allowance::Units(800));
        assert_eq!(credit_shares[1].allowance(), Allowance::Units(400));
        credit_shares[1].spend(4096);
        assert_eq!(credit_shares[0].allowance(), Allowance::Units(792));
        (0..70).for_each(|_| credit_shares[1].spend(4096));
        assert_eq!(credit_shares[0].allowance(), Allowance::Units(400));
        (0..71).for_each(|_| credit_shares[1].give_back(4096));
        assert_eq!(credit_shares[0].allowance(), Allowance::Units(800));
    }

    #[test]
    fn a_queue_that_ends_gives_back_what_it_had() {
        let book = Book::default();
        let parts: [Arc<Part>; 2] = Default::default();
        let (gone, left) = (
            credit_share(&book, &parts[0]),
            credit_share(&book, &parts[1]),
        );
        book.enter(&ended(4096), || Some(credit(10, 10 * 4096)));
        (0..9).for_each(|_| gone.spend(4096));
        assert_eq!(left.allowance(), Allowance::Units(40));
        drop(gone);
        assert_eq!(left.allowance(), Allowance::Units(80));
        assert_eq!(left.account.busy.load(Relaxed), 0);
    }

    #[test]
    fn only_news_are_worth_a_message() {
        let book = Book::default();
        let credit_share = credit_share(&book, &Arc::default());
        let news = |ios: u32| {
            book.enter(&ended(4096), || Some(credit(ios, u64::from(ios) * 4096)));
            credit_share.news()
        };
        assert_eq!(news(80), Some(Allowance::Units(640)));
        assert_eq!(news(85), None);
        assert_eq!(news(70), None);
        assert_eq!(news(69), Some(Allowance::Units(552)));
    }

    #[test]
    fn a_tenant_that_has_gone_is_forgotten() {
        let book = Book::default();
        let old = credit_share(&book, &Arc::default());
        book.forget(TENANT);
        book.enter(&ended(4096), || panic!("no host receives credits"));
        let new = credit_share(&book, &Arc::default());
        book.enter(&ended(4096), || Some(credit(1, 4096)));
        assert_eq!(new.allowance(), Allowance::Units(8));
        assert_eq!(old.allowance(), Allowance::Unbounded);
    }

    #[test]
    fn an_association_keeps_nothing_of_devices_that_it_knows_no_more() {
        let parts = Parts::default();
        let known = parts.of(7);
        for device in 8..1000 {
            drop(parts.of(device));
            assert!(parts.list.lock().expect("nobody has it").len() <= 2);
        }
        assert!(Arc::ptr_eq(&known, &parts.of(7)));
    }

    /// Its last volume on the device has gone and another one has come, under the same association.
    #[test]
    fn an_account_that_is_opened_anew_counts_nobody_who_was_busy_before() {
        let book = Book::default();
        let part = Arc::default();
        let old = credit_share(&book, &part);
        old.spend(4096);
        book.forget(TENANT);
        let new = credit_share(&book, &part);
        new.spend(4096);
        old.give_back(4096);
        new.give_back(4096);
        book.enter(&ended(4096), || Some(credit(10, 10 * 4096)));
        assert_eq!(new.allowance(), Allowance::Units(80));
        let others = Arc::default();
        let other = credit_share(&book, &others);
        (0..10).for_each(|_| other.spend(4096));
        assert_eq!(new.allowance(), Allowance::Units(40));
    }
}
