//! What tenants have cost: bytes at the members below a pool, by who has caused them. Each I/O is
//! charged when it ends, to those whom the store names, and told with the next end of an I/O of
//! that tenant. What nobody has caused is the system's.

use std::cell::RefCell;
use std::collections::BTreeMap;

use flashyard_logstore::Lineage;
use flashyard_sched::{Cost, TenantId};

/// The system itself.
const SYSTEM: TenantId = TenantId(0);

/// See the module. There are as many entries as tenants and volumes.
#[derive(Default)]
pub(super) struct Charges {
    /// Who has written to a volume last.
    owners: RefCell<BTreeMap<Lineage, TenantId>>,
    owed: RefCell<BTreeMap<TenantId, Cost>>,
}

impl Charges {
    /// From now on a volume is written by this tenant.
    pub fn set_owner(&self, lineage: Lineage, tenant: TenantId) {
        self.owners.borrow_mut().insert(lineage, tenant);
    }

    /// A volume is gone.
    pub fn forget(&self, lineage: Lineage) {
        self.owners.borrow_mut().remove(&lineage);
    }

    /// Charges one tenant.
    pub fn charge(&self, tenant: TenantId, cost: Cost) {
        *self.owed.borrow_mut().entry(tenant).or_default() += cost;
    }

    /// Charges the tenants of volumes, each a part; the system if there are none.
    pub fn divide(&self, payers: &[(Lineage, u64)], cost: Cost) {
        let all: u64 = payers.iter().map(|(_, part)| *part).sum();
        let owners = self.owners.borrow();
        let owner = |lineage| owners.get(lineage).copied().unwrap_or(SYSTEM);
        let (mut before, mut told) = (0, Cost::default());
        for (lineage, part) in payers {
            before += part;
            let until = cost.part(before, all);
            self.charge(owner(lineage), until - told);
            told = until;
        }
        if all == 0 {
            self.charge(SYSTEM, cost);
        }
    }

    /// What a tenant has cost since this was called last.
    pub fn take(&self, tenant: TenantId) -> Cost {
        let mut owed = self.owed.borrow_mut();
        owed.get_mut(&tenant)
            .map(std::mem::take)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(read: u64, written: u64) -> Cost {
        Cost {
            read,
            written,
            upkeep: read + written,
        }
    }

    #[test]
    fn every_byte_is_charged_once_whoever_pays() {
        let charges = Charges::default();
        charges.set_owner(Lineage(1), TenantId(1));
        charges.set_owner(Lineage(2), TenantId(2));
        let payers = [(Lineage(1), 1), (Lineage(2), 2), (Lineage(3), 4)];
        for bytes in [4096, 8191, 1] {
            charges.divide(&payers, cost(bytes, 3 * bytes));
        }
        charges.divide(&[], cost(10, 20));
        let taken = [1, 2, 0].map(|tenant| charges.take(TenantId(tenant)));
        let [one, two, system] = taken;
        let read = 4096 + 8191 + 1;
        assert_eq!(one.read + two.read + system.read, read + 10);
        assert_eq!(one.written + two.written + system.written, 3 * read + 20);
        assert!(one.read.abs_diff(read / 7) <= 3 && two.read.abs_diff(2 * read / 7) <= 3);
        assert_eq!(charges.take(TenantId(1)), Cost::default());
        charges.forget(Lineage(2));
        charges.divide(&payers[1..2], cost(5, 5));
        assert_eq!(charges.take(SYSTEM), cost(5, 5), "its volume is gone");
    }
}
