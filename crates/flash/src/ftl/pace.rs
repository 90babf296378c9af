//! Divides the write bandwidth between garbage collection and the host, so that neither waits long.
//!
//! Headroom is the flash that can be written before lines run short, counting what the collector
//! has passed over as won. While it is below one line the collector works, and every unit of the
//! host has a price in units moved: from nothing at one line of headroom to what the victim's valid
//! units demand at none, and more below. So the host slows down along a line, not at an edge, and
//! settles where as much is won as written.

/// Prices are in this fraction of a moved unit.
const UNIT_PRICE: u64 = 1024;

#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Price of a unit that the host writes, in [`UNIT_PRICE`], when headroom is just used up.
    balance: u64,
    /// What was moved and is not spent.
    budget: u64,
    most: u64,
}

impl Pace {
    /// The budget holds the price of so many units.
    pub fn new(units: u32) -> Self {
        Self {
            balance: 0,
            budget: 0,
            most: u64::from(units) * UNIT_PRICE,
        }
    }

    /// A victim has so many valid units of so many.
    pub fn measure(&mut self, valid: u32, units: u32) {
        let won = u64::from(units.saturating_sub(valid)).max(1);
        self.balance = u64::from(valid) * UNIT_PRICE / won;
    }

    /// Units were moved.
    pub fn earn(&mut self, units: u32) {
        self.budget = (self.budget + u64::from(units) * UNIT_PRICE).min(self.most);
    }

    /// Whether the host may write so many units with this headroom, of `lead` at which it is free.
    pub fn spend(&mut self, units: u32, headroom: i64, lead: u32) -> bool {
        let short = u64::try_from(i64::from(lead) - headroom).unwrap_or(0);
        let short = short.min(8 * u64::from(lead));
        let price = self.balance * short / u64::from(lead.max(1));
        // A budget that can never hold the price would stop the host for good.
        let price = (price * u64::from(units)).min(self.most);
        let paid = price <= self.budget;
        if paid {
            self.budget -= price;
        }
        paid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units the host may write while a thousand are moved.
    fn share(headroom: i64) -> u32 {
        let mut pace = Pace::new(1_000_000);
        pace.measure(75, 100);
        pace.earn(1000);
        (0..100_000)
            .take_while(|_| pace.spend(1, headroom, 100))
            .count() as u32
    }

    #[test]
    fn the_host_slows_down_along_a_line() {
        assert_eq!(share(100), 100_000, "nothing to pay");
        assert_eq!(share(50), 666, "half the price");
        assert_eq!(share(0), 333, "three moved for one written");
        assert_eq!(share(-100), 166);
        assert_eq!(share(i64::MIN / 2), 41, "never nothing");
    }

    #[test]
    fn a_price_above_the_budget_is_the_budget() {
        let mut pace = Pace::new(8);
        pace.measure(1_000, 1_001);
        assert!(!pace.spend(8, 0, 100));
        pace.earn(1_000);
        assert!(pace.spend(8, 0, 100));
        assert!(!pace.spend(8, 0, 100));
    }
}
