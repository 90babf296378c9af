//! Guarantees and limits: rates kept by theoretical times, as in mClock.

use flashyard_time::Time;

use super::costs::Kind;
use crate::Rates;

const SECOND: u128 = 1_000_000_000;
/// How far behind its limit a tenant may be and still catch up: a burst of so much, and of one I/O
/// at least.
const LIMIT_BURST_NS: u64 = 1_000_000;
/// How far behind its guarantee a tenant is served at once, when it had asked for less.
const GUARANTEE_BURST_NS: u64 = 50_000_000;

/// One rate: I/Os or bytes, of both kinds or one.
#[derive(Clone, Copy, Debug)]
struct Rate {
    kind: Option<Kind>,
    bytes: bool,
    per_second: u64,
    /// When everything let through so far is due at this rate, in nanoseconds.
    due: u64,
}

/// The rates of a tenant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paces {
    rates: [Option<Rate>; 6],
    burst: u64,
    /// Whether one kept rate is enough to wait (a limit), or one missed is enough to go (a
    /// guarantee).
    limits: bool,
}

impl Paces {
    pub(super) fn limits(rates: &Rates) -> Option<Self> {
        Self::new(rates, LIMIT_BURST_NS, true)
    }

    pub(super) fn guarantees(rates: &Rates) -> Option<Self> {
        Self::new(rates, GUARANTEE_BURST_NS, false)
    }

    fn new(rates: &Rates, burst: u64, limits: bool) -> Option<Self> {
        let rate = |kind, bytes, per_second: Option<u64>| {
            per_second.map(|per_second| Rate {
                kind,
                bytes,
                per_second: per_second.max(1),
                due: 0,
            })
        };
        rates.any().then(|| Self {
            rates: [
                rate(None, false, rates.ios),
                rate(Some(Kind::Read), false, rates.read_ios),
                rate(Some(Kind::Write), false, rates.write_ios),
                rate(None, true, rates.bytes),
                rate(Some(Kind::Read), true, rates.read_bytes),
                rate(Some(Kind::Write), true, rates.write_bytes),
            ],
            burst,
            limits,
        })
    }

    /// From when on these rates let an I/O of `kind` pass (limits) or ask for one (guarantees);
    /// never, when no guarantee speaks of its kind.
    pub(super) fn opens(&self, kind: Kind) -> Time {
        let of_kind = self
            .rates
            .iter()
            .flatten()
            .filter(|rate| rate.speaks_of(kind));
        let due = of_kind.map(|rate| rate.due);
        Time::from_ns(if self.limits {
            due.max().unwrap_or(0)
        } else {
            due.min().unwrap_or(u64::MAX)
        })
    }

    /// Whether an I/O was due before `late`, in nanoseconds, of one who could do twice the rate:
    /// `ios` a second of `bytes` each.
    pub(super) fn is_behind(&self, late: u64, ios: u64, bytes: u64) -> bool {
        self.rates.iter().flatten().any(|rate| {
            let reach = if rate.bytes {
                ios.saturating_mul(bytes)
            } else {
                ios
            };
            rate.due < late && reach / 2 >= rate.per_second
        })
    }

    /// An I/O was let pass. A limit is rounded up; a guarantee is given a little more than was
    /// said, because what counts is what comes back in time.
    #[inline(never)]
    pub(super) fn charge(&mut self, now: Time, kind: Kind, bytes: u64) {
        for rate in self.rates.iter_mut().flatten() {
            if rate.speaks_of(kind) {
                let amount = if rate.bytes { bytes } else { 1 };
                let second = if self.limits {
                    SECOND
                } else {
                    SECOND - SECOND / 32
                };
                let ns = u128::from(amount) * second;
                let per_second = u128::from(rate.per_second);
                let span = if self.limits {
                    ns.div_ceil(per_second)
                } else {
                    ns / per_second
                };
                let span = u64::try_from(span).unwrap_or(u64::MAX);
                // An I/O that took longer than the rate has for one is caught up by the next.
                let earliest = now.as_ns().saturating_sub(self.burst.max(span));
                rate.due = rate.due.max(earliest).saturating_add(span);
                if !self.limits {
                    // What was had beyond a guarantee is not taken from it.
                    rate.due = rate.due.min(now.as_ns().saturating_add(span));
                }
            }
        }
    }
}

impl Rate {
    fn speaks_of(&self, kind: Kind) -> bool {
        self.kind.is_none_or(|own| own == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// I/Os that are let pass in ten seconds, one at a time, each of which takes the next of
    /// `latencies`, in milliseconds.
    fn passed(limit: Rates, bytes: u64, latencies: &[u64]) -> u64 {
        let mut limit = Paces::limits(&limit).expect("there is one");
        let (mut now, mut passed) = (0, 0);
        for latency in latencies.iter().cycle() {
            now = limit.opens(Kind::Read).as_ns().max(now);
            if now >= 10_000 * MS {
                break;
            }
            limit.charge(Time::from_ns(now), Kind::Read, bytes);
            now += latency * MS;
            passed += 1;
        }
        passed
    }

    #[test]
    fn a_limit_is_reached_though_some_ios_take_longer_than_it_has_for_one() {
        let bandwidth = Rates {
            bytes: Some(4096 * 50),
            ..Rates::NONE
        };
        let ios = Rates {
            ios: Some(50),
            ..Rates::NONE
        };
        for limit in [bandwidth, ios] {
            for (latencies, expected) in [
                (&[0][..], 500),
                (&[10], 500),
                // One has 20 ms.
                (&[10, 30], 500),
                (&[5, 5, 38], 500),
                // The tenant asks for less.
                (&[25], 400),
                // After a pause two may go at once, no more.
                (&[0, 0, 0, 0, 1_000], 48),
            ] {
                let found = passed(limit, 4096, latencies);
                assert!(found.abs_diff(expected) <= 3, "{latencies:?}: {found}");
            }
        }
    }
}
