//! What writes have really cost, where a device tells: a log-structured pool moves data and writes
//! parity for what some tenants write, and nothing for others.
//!
//! The cost of a class of writes is learnt as the mean of all who write so, with all that is done
//! for them. Each tenant is charged that when its I/O goes, and when it ends what was really done
//! for it is put in the place of that, at the price that work has in the mean. So the sum of all
//! charges stays, and reads are to writes as they were.

use super::Fair;
use super::costs::Kind;
use crate::{Ask, Cost};

/// At which size work is priced.
const USUAL_BYTES: u64 = 128 << 10;
/// So much work is remembered, in bytes written.
const MEMORY: u64 = 64 << 20;

/// What was charged for writes, and the work that was done for that, lately.
#[derive(Debug, Default)]
pub(super) struct Real {
    charged: u64,
    work: u64,
}

impl Real {
    /// A write was charged so much, and this work was done; gives what that should have been.
    fn price(&mut self, charged: u64, work: u64) -> u64 {
        self.charged += charged;
        self.work += work;
        if self.work > MEMORY {
            (self.charged, self.work) = (self.charged / 2, self.work / 2);
        }
        let price = u128::from(work) * u128::from(self.charged) / u128::from(self.work.max(1));
        u64::try_from(price).unwrap_or(u64::MAX)
    }
}

impl Fair {
    /// Puts what was done for an I/O of a tenant, and for what it caused, in the place of what the
    /// I/O was charged; gives whose it is.
    pub(super) fn correct(&mut self, io: &Ask, cost: Cost) -> u32 {
        let place = self.places[io.id.0 as usize];
        let (charged, asked) = match place.kind {
            Kind::Write => (place.cost, 0),
            Kind::Read => (0, place.bytes),
        };
        // What a read reads for itself is in its own cost.
        let read = cost.read.saturating_sub(asked);
        let prices = [Kind::Read, Kind::Write].map(|kind| self.costs.of(kind, USUAL_BYTES));
        let read = u128::from(read) * u128::from(prices[0]) / u128::from(prices[1].max(1));
        let work = cost
            .written
            .saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        let owed = self.real.price(charged, work);
        let tenant = &mut self.tenants[place.tenant];
        let more = tenant.stride(owed.saturating_sub(charged));
        let less = tenant.stride(charged.saturating_sub(owed));
        tenant.tag = tenant.tag.saturating_add(more).saturating_sub(less);
        place.tenant
    }
}
