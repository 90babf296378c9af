//! How things that are counted are shared out among parties that may be greedy: connections, queues
//! and controllers, among addresses and tenants. The rule is that of memory: of what is left, each
//! may hold a quarter, and never more than a bound of its own. So whoever comes finds some, though
//! many others have taken all they may, and a party that is alone has a fifth of the whole. (Of
//! 16,384, the twentieth greedy party still gets 47.)

use std::net::{IpAddr, Ipv6Addr};

/// A party may hold a quarter of what is left.
const PART: usize = 4;

/// What is shared out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stock {
    /// All there is.
    pub(crate) total: usize,
    /// Most of one party.
    pub(crate) most: usize,
}

impl Stock {
    /// Whether a party that holds `held` may have one more, while all parties together hold
    /// `taken`. The first one it may have as long as there is any.
    pub(crate) fn allows(self, taken: usize, held: usize) -> bool {
        let free = self.total.saturating_sub(taken);
        let most = self.most.min(free / PART);
        free > 0 && (held == 0 || held < most)
    }
}

/// The party that an address belongs to. Whoever has one address of IPv6 has a whole /64 mostly.
pub(crate) fn party(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(network))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;

    fn takes(stock: Stock, held: &mut [usize], party: usize, want: usize) {
        let others = held.iter().sum::<usize>() - held[party];
        let most = held[party].saturating_add(want);
        while held[party] < most && stock.allows(others + held[party], held[party]) {
            held[party] += 1;
        }
    }

    fn takes_all_it_may(stock: Stock, held: &mut [usize], party: usize) {
        takes(stock, held, party, usize::MAX);
    }

    /// What the last of so many greedy parties gets, when each has taken all it may before the next
    /// came.
    fn last_of(parties: usize, stock: Stock) -> usize {
        let mut held = vec![0; parties];
        for party in 0..parties {
            takes_all_it_may(stock, &mut held, party);
        }
        held[parties - 1]
    }

    #[test]
    fn one_after_the_other() {
        let stock = Stock {
            total: 16_384,
            most: 16_384,
        };
        let table = [
            (1, 3277),
            (2, 2621),
            (5, 1342),
            (10, 440),
            (20, 47),
            (40, 1),
        ];
        for (parties, got) in table {
            assert_eq!(last_of(parties, stock), got, "{parties}");
        }
        let most = 100;
        assert_eq!(last_of(9, Stock { most, ..stock }), 100);
        let few = Stock { total: 3, most: 3 };
        assert_eq!(
            [1, 2, 3, 4].map(|parties| last_of(parties, few)),
            [1, 1, 1, 0]
        );
    }

    /// In whatever order greedy parties come, take, give back and take again: there is one for
    /// whoever comes next.
    #[test]
    fn whoever_comes_next_gets_in() {
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let total = 512 << rng.below(6);
            let stock = Stock { total, most: total };
            let parties = 1 + rng.below(20) as usize;
            let mut held = vec![0; parties];
            for _ in 0..200 {
                let party = rng.below(parties as u64) as usize;
                match rng.below(4) {
                    0 => held[party] = rng.below(held[party] as u64 + 1) as usize,
                    1 => takes_all_it_may(stock, &mut held, party),
                    _ => takes(stock, &mut held, party, rng.below(total as u64) as usize),
                }
                let taken: usize = held.iter().sum();
                assert!(taken <= total);
                let mut with_next = [held.clone(), vec![0]].concat();
                takes_all_it_may(stock, &mut with_next, parties);
                let got = with_next[parties];
                assert!(got > 0, "seed {seed}: {held:?} of {total}");
                // As much as anybody who would come then.
                assert!(got >= (total - taken) / 6, "seed {seed}: {got}");
            }
        }
    }

    #[test]
    fn addresses_and_who_has_them() {
        let same = [
            ("192.0.2.7", "::ffff:192.0.2.7"),
            ("2001:db8::1", "2001:db8::ffff:1:2:3"),
        ];
        let other = [
            ("192.0.2.7", "192.0.2.8"),
            ("2001:db8::1", "2001:db8:0:1::1"),
        ];
        let party = |text: &str| super::party(text.parse().expect("an address"));
        assert!(same.iter().all(|(a, b)| party(a) == party(b)));
        assert!(other.iter().all(|(a, b)| party(a) != party(b)));
    }
}
