//! A promise beside what the tenant really got: kept, missed or not asked for, and what limits it.
//! Pure. A guarantee holds for who asks for it: one that keeps its queue so short that the device
//! could not give as much with nobody else there has not asked for it. What it could have been is
//! what it was without the time that its I/O waited for others (by Little's law: at the same queue
//! depth, I/O that takes half as long is twice as much).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use flashyard_block::{SystemWork, TenantId};
use flashyard_engine::{Cause, Moved, Recent};
use flashyard_time::Duration;

use crate::control::{LimitedBy, PromiseState};
use crate::spec::RatesSpec;

/// As much as this of what is promised is all of it: figures are of sampled I/O.
const ENOUGH: f64 = 0.95;
/// Whoever has nothing to be done for more of the time than what is left of this, asks for no more.
const BUSY: f64 = 0.9;
/// Whoever gets at least as much as this of its limit is held by it.
const NEAR: f64 = 0.9;
/// The same of one whose I/O waits mostly for its turn, with no neighbour before it: policies let
/// through somewhat less than a limit where I/O comes seldom.
const NEAR_ALONE: f64 = 0.7;
/// Above this it is no limit that is applied.
const BEYOND: f64 = 1.1;
/// A device is in the way when I/O could take so much less of its time.
const MUCH: f64 = 0.4;

/// How a promise stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict {
    pub(super) state: PromiseState,
    /// In the unit of the promise.
    pub(super) got: Option<u64>,
    pub(super) limit: Option<Limiter>,
}

/// What a tenant would need to be without to get more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Limiter {
    /// It had no I/O.
    Idle,
    /// Its hosts asked for no more.
    Demand,
    /// At this queue depth it gets about so much of the device when it is alone.
    QueueDepth(f64, u64),
    /// Its latency is that of its own I/O before.
    OwnQueue,
    OwnLimit,
    Device,
    /// This one, or many.
    Neighbour(Option<TenantId>),
    /// What the device does on its own account.
    System(SystemWork),
    /// The network, or its hosts, which take data and answers slowly.
    Network,
}

impl Limiter {
    pub(super) fn name(self) -> LimitedBy {
        match self {
            Self::Idle | Self::Demand | Self::QueueDepth(..) | Self::OwnQueue => {
                LimitedBy::OwnDemand
            }
            Self::OwnLimit => LimitedBy::OwnLimit,
            Self::Device => LimitedBy::Device,
            Self::Neighbour(_) => LimitedBy::Neighbour,
            Self::System(_) => LimitedBy::SystemWork,
            Self::Network => LimitedBy::NetworkOrHost,
        }
    }
}

/// Whether a tenant with these limits gets the rate with this number in [`RatesSpec::all`].
pub(super) fn judge_rate(
    rate: usize,
    promised: u64,
    recent: Option<&Recent>,
    limit: RatesSpec,
) -> Verdict {
    let Some(recent) = recent.filter(|recent| !recent.is_nothing()) else {
        return judge_nothing(recent, limit, Some(0));
    };
    let (got, excess) = (per_second(rate, recent), Excess::of(recent));
    let is_held = is_at_limit(recent, limit, &excess);
    let is_busy = busy(rate, recent) >= BUSY;
    let all = recent.reads.and(recent.writes).ns as f64;
    let without = |ns: u64| got * all / (all - ns as f64).max(all / 1e3).max(1.0);
    let enough = promised as f64 * ENOUGH;
    let alone = without(excess.neighbours + excess.system);
    let at_best = without(excess.at_device());
    let (state, limit) = match is_busy {
        false if got >= enough => (PromiseState::Kept, Limiter::Demand),
        false => (PromiseState::NotAskedFor, excess.or_demand(recent)),
        true if got >= enough => {
            let limit = if is_held {
                Some(Limiter::OwnLimit)
            } else {
                excess.largest_for_rate(limit)
            };
            let kept = PromiseState::Kept;
            return Verdict {
                state: kept,
                got: Some(got as u64),
                limit,
            };
        }
        true if is_held => (PromiseState::Missed, Limiter::OwnLimit),
        true if alone >= enough => (PromiseState::Missed, excess.others()),
        true if at_best >= enough && excess.at_device() as f64 >= all * MUCH => {
            let largest = excess.largest_for_rate(limit);
            (PromiseState::Missed, largest.unwrap_or(Limiter::Device))
        }
        true => {
            let depth = all / recent.busy.as_ns().max(1) as f64;
            (
                PromiseState::NotAskedFor,
                Limiter::QueueDepth(depth, alone as u64),
            )
        }
    };
    Verdict {
        state,
        got: Some(got as u64),
        limit: Some(limit),
    }
}

/// Whether the latency-sensitive I/O of a tenant with these limits stays under its target.
pub(super) fn judge_latency(
    target: Duration,
    recent: Option<&Recent>,
    limit: RatesSpec,
) -> Verdict {
    let Some((recent, p99)) = recent.and_then(|recent| Some((recent, recent.p99?))) else {
        return judge_nothing(recent, limit, None);
    };
    let got = Some(p99.as_us());
    if p99 <= target {
        return Verdict {
            state: PromiseState::Kept,
            got,
            limit: None,
        };
    }
    let (all, excess) = (recent.reads.and(recent.writes), Excess::of(recent));
    let least = all.ns.saturating_sub(excess.at_device()) / all.ios.max(1);
    let limit = match excess.largest(limit) {
        _ if is_at_limit(recent, limit, &excess) => Limiter::OwnLimit,
        _ if least >= target.as_ns() => Limiter::Device,
        largest => largest.unwrap_or(Limiter::Device),
    };
    Verdict {
        state: PromiseState::Missed,
        got,
        limit: Some(limit),
    }
}

/// No I/O has ended: none was asked for, unless some waits.
fn judge_nothing(recent: Option<&Recent>, limit: RatesSpec, got: Option<u64>) -> Verdict {
    let waits = recent.is_some_and(|recent| recent.is_nothing() && recent.queued > 0);
    let (state, limit) = match waits {
        false => (PromiseState::NotAskedFor, Limiter::Idle),
        true if limit.rates().any() => (PromiseState::Missed, Limiter::OwnLimit),
        true => (PromiseState::Missed, Limiter::Device),
    };
    Verdict {
        state,
        got,
        limit: Some(limit),
    }
}

/// The I/O that a rate counts, and whether it counts bytes.
fn counted(rate: usize, recent: &Recent) -> (Moved, bool) {
    let moved = match rate % 3 {
        0 => recent.reads.and(recent.writes),
        1 => recent.reads,
        _ => recent.writes,
    };
    (moved, rate >= 3)
}

fn per_second(rate: usize, recent: &Recent) -> f64 {
    let (moved, bytes) = counted(rate, recent);
    let count = if bytes { moved.bytes } else { moved.ios };
    count as f64 / seconds(recent.span)
}

/// For how much of the time there was I/O that a rate counts.
fn busy(rate: usize, recent: &Recent) -> f64 {
    let in_flight = counted(rate, recent).0.ns as f64 / recent.span.as_ns().max(1) as f64;
    in_flight.min(seconds(recent.busy) / seconds(recent.span))
}

fn seconds(span: Duration) -> f64 {
    span.as_ns().max(1) as f64 / 1e9
}

/// Whether a tenant that asks for more gets as much as one of its limits.
fn is_at_limit(recent: &Recent, limit: RatesSpec, excess: &Excess) -> bool {
    let least = if excess.queue > 0 && 2 * excess.queue >= excess.at_device() {
        NEAR_ALONE
    } else {
        NEAR
    };
    let limits = limit.all().into_iter().enumerate();
    let mut limits = limits.filter_map(|(rate, (_, most))| Some((rate, most?)));
    limits.any(|(rate, most)| {
        let part = per_second(rate, recent) / most.max(1) as f64;
        (least..=BEYOND).contains(&part) && busy(rate, recent) >= BUSY
    })
}

/// What exceeded the least that a tenant's I/O takes, in nanoseconds, by who can change it.
#[derive(Default)]
struct Excess {
    neighbours: u64,
    /// The neighbour that most of it is due to.
    most: Option<(TenantId, u64)>,
    own: u64,
    /// What devices do on their own account, and what of that most is.
    system: u64,
    work: Option<(u64, SystemWork)>,
    /// It waited for its turn with no neighbour before it.
    queue: u64,
    device: u64,
    /// It waited for its turn while no I/O was served.
    held: u64,
    network: u64,
}

impl Excess {
    fn of(recent: &Recent) -> Self {
        let mut excess = Self::default();
        let mut by_tenant: Vec<(TenantId, u64)> = Vec::new();
        let mut by_work: BTreeMap<SystemWork, u64> = BTreeMap::new();
        for &(cause, ns) in &recent.causes {
            if matches!(cause, Cause::OwnQueue | Cause::Held) {
                excess.queue += ns;
            }
            let sum = match cause {
                Cause::Turn(tenant)
                | Cause::Reads(tenant)
                | Cause::Writes(tenant)
                | Cause::Upkeep(tenant) => {
                    match by_tenant.iter_mut().find(|(known, _)| *known == tenant) {
                        Some((_, sum)) => *sum += ns,
                        None => by_tenant.push((tenant, ns)),
                    }
                    &mut excess.neighbours
                }
                Cause::SystemTurn(work) | Cause::System(work) => {
                    *by_work.entry(work).or_default() += ns;
                    &mut excess.system
                }
                Cause::Others => &mut excess.neighbours,
                Cause::OwnQueue | Cause::OwnReads | Cause::OwnWrites | Cause::OwnUpkeep => {
                    &mut excess.own
                }
                Cause::Housekeeping | Cause::Device => &mut excess.device,
                Cause::Held => &mut excess.held,
                Cause::Receive | Cause::Intake | Cause::Send => &mut excess.network,
            };
            *sum += ns;
        }
        excess.work = by_work.into_iter().map(|(work, ns)| (ns, work)).max();
        excess.most = by_tenant
            .into_iter()
            .max_by_key(|(tenant, ns)| (*ns, Reverse(*tenant)));
        excess
    }

    /// All between the arrival of I/O at the switch and its end.
    fn at_device(&self) -> u64 {
        self.neighbours + self.own + self.system + self.device + self.held
    }

    /// Who is in the way the most, if that is one.
    fn neighbour(&self) -> Limiter {
        let most = self.most.filter(|(_, ns)| 2 * ns >= self.neighbours);
        Limiter::Neighbour(most.map(|(tenant, _)| tenant))
    }

    /// What the device does on its own account, the most of it.
    fn its_work(&self) -> Limiter {
        let work = self.work.map(|(_, work)| work);
        work.map_or(Limiter::Device, Limiter::System)
    }

    /// Who or what else is in the way the most.
    fn others(&self) -> Limiter {
        match self.system > self.neighbours {
            true => self.its_work(),
            false => self.neighbour(),
        }
    }

    /// What is in the way the most. Who has a limit is held by it.
    fn largest(&self, limit: RatesSpec) -> Option<Limiter> {
        let has_limit = limit.rates().any();
        let held = if has_limit {
            Limiter::OwnLimit
        } else {
            Limiter::Device
        };
        let all = [
            (self.neighbours, self.neighbour()),
            (self.own, Limiter::OwnQueue),
            (self.system, self.its_work()),
            (self.device, Limiter::Device),
            (self.held, held),
            (self.network, Limiter::Network),
        ];
        let largest = all
            .into_iter()
            .filter(|(ns, _)| *ns > 0)
            .max_by_key(|(ns, _)| *ns);
        largest.map(|(_, limiter)| limiter)
    }

    /// The same for one that keeps its queue full: if its I/O waits for its own, the device is what
    /// gives no more.
    fn largest_for_rate(&self, limit: RatesSpec) -> Option<Limiter> {
        self.largest(limit).map(|limiter| match limiter {
            Limiter::OwnQueue | Limiter::Network => Limiter::Device,
            other => other,
        })
    }

    /// What is in the way of a tenant whose I/O is mostly not here: the network, as far as that is
    /// known to be slower than it was, or else its hosts want no more.
    fn or_demand(&self, recent: &Recent) -> Limiter {
        match 2 * self.network >= recent.span.as_ns() {
            true => Limiter::Network,
            false => Limiter::Demand,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: TenantId = TenantId(3);
    const MS: u64 = 1_000_000;

    /// A tenant that did so many reads of 4 KiB per second for four seconds, so many of them at a
    /// time, each of which took so long and was latency-sensitive; and of what each of them waited
    /// for so long.
    fn reads(per_second: u64, depth: f64, ms: f64, causes: &[(Cause, f64)]) -> Recent {
        let (span, ios) = (Duration::from_secs(4), 4 * per_second);
        let ns = |ms: f64| (ios as f64 * ms * MS as f64) as u64;
        let each = |&(cause, ms): &(Cause, f64)| (cause, ns(ms));
        Recent {
            tenant: TenantId(1),
            span,
            busy: Duration::from_ns((ns(ms) as f64 / depth) as u64).min(span),
            reads: Moved {
                ios,
                bytes: ios * 4096,
                ns: ns(ms),
            },
            writes: Moved::default(),
            p99: Some(Duration::from_ns((ms * MS as f64) as u64)),
            causes: causes.iter().map(each).collect(),
            queued: 0,
        }
    }

    fn rates(text: &str) -> RatesSpec {
        text.parse().unwrap_or_default()
    }

    #[test]
    fn a_guarantee_is_kept_missed_or_not_asked_for() {
        use PromiseState::{Kept, Missed, NotAskedFor};
        let other = Limiter::Neighbour(Some(OTHER));
        let (turn, busy) = (Cause::Turn(OTHER), Cause::Writes(OTHER));
        for (promise, recent, limit, state, limiter) in [
            // As much as was promised, with a full queue, with less than a full one, at a limit.
            ("read_iops=500", reads(500, 8.0, 16.0, &[]), "", Kept, None),
            (
                "read_iops=500",
                reads(490, 1.0, 2.04, &[(busy, 1.0)]),
                "",
                Kept,
                Some(other),
            ),
            (
                "read_iops=500",
                reads(600, 1.0, 0.5, &[]),
                "",
                Kept,
                Some(Limiter::Demand),
            ),
            (
                "read_iops=500",
                reads(600, 8.0, 13.34, &[(Cause::Held, 13.0)]),
                "iops=600",
                Kept,
                Some(Limiter::OwnLimit),
            ),
            // One at a time on a device that takes 10 ms.
            (
                "iops=500",
                reads(97, 1.0, 10.3, &[(busy, 0.3)]),
                "",
                NotAskedFor,
                Some(Limiter::QueueDepth(1.0, 99)),
            ),
            // The same, when 9 of the 10 ms are a neighbour's, or the device's own.
            (
                "iops=500",
                reads(97, 1.0, 10.3, &[(turn, 5.0), (busy, 4.3)]),
                "",
                Missed,
                Some(other),
            ),
            (
                "iops=500",
                reads(97, 1.0, 10.3, &[(Cause::Housekeeping, 9.3)]),
                "",
                Missed,
                Some(Limiter::Device),
            ),
            // Many at a time, which are in each other's way.
            (
                "iops=500",
                reads(97, 32.0, 329.9, &[(Cause::OwnReads, 300.0)]),
                "",
                Missed,
                Some(Limiter::Device),
            ),
            // A limit of bytes below the guarantee.
            (
                "iops=500",
                reads(244, 8.0, 32.8, &[(turn, 20.0), (Cause::Held, 12.0)]),
                "bandwidth=1MB/s",
                Missed,
                Some(Limiter::OwnLimit),
            ),
            // The same, at three quarters of it, with nobody else there; and with a full device.
            (
                "iops=500",
                reads(183, 8.0, 43.7, &[(Cause::OwnQueue, 30.0)]),
                "bandwidth=1MB/s",
                Missed,
                Some(Limiter::OwnLimit),
            ),
            (
                "iops=500",
                reads(183, 8.0, 43.7, &[(Cause::OwnReads, 30.0)]),
                "bandwidth=1MB/s",
                Missed,
                Some(Limiter::Device),
            ),
            // Its host takes its time; what it asks for has to wait for somebody nevertheless.
            (
                "iops=500",
                reads(100, 1.0, 3.0, &[(turn, 2.0)]),
                "",
                NotAskedFor,
                Some(Limiter::Demand),
            ),
            (
                "iops=500",
                reads(100, 1.0, 3.0, &[(Cause::Send, 7.0)]),
                "",
                NotAskedFor,
                Some(Limiter::Network),
            ),
            // Bytes, and the other direction.
            (
                "read_bandwidth=1MB/s",
                reads(500, 1.0, 2.0, &[]),
                "",
                Kept,
                None,
            ),
            (
                "write_iops=1",
                reads(500, 1.0, 2.0, &[]),
                "",
                NotAskedFor,
                Some(Limiter::Demand),
            ),
            (
                "write_bandwidth=1",
                reads(500, 1.0, 2.0, &[]),
                "",
                NotAskedFor,
                Some(Limiter::Demand),
            ),
        ] {
            let all = rates(promise).all().into_iter().enumerate();
            let (rate, promised) = all.fold((0, 0), |found, (rate, (_, promised))| {
                promised.map_or(found, |promised| (rate, promised))
            });
            let found = judge_rate(rate, promised, Some(&recent), rates(limit));
            assert_eq!(
                (found.state, found.limit),
                (state, limiter),
                "{promise} {recent:?}"
            );
        }
    }

    #[test]
    fn a_latency_target_is_kept_missed_or_not_asked_for() {
        use PromiseState::{Kept, Missed};
        let other = Limiter::Neighbour(Some(OTHER));
        let (turn, busy) = (Cause::Turn(OTHER), Cause::Writes(OTHER));
        for (recent, limit, state, limiter) in [
            (reads(500, 1.0, 2.0, &[(busy, 1.0)]), "", Kept, None),
            (
                reads(30, 1.0, 35.0, &[(turn, 20.0), (busy, 13.0)]),
                "",
                Missed,
                Some(other),
            ),
            (
                reads(
                    30,
                    1.0,
                    35.0,
                    &[(Cause::Turn(TenantId(4)), 10.0), (Cause::Others, 23.0)],
                ),
                "",
                Missed,
                Some(Limiter::Neighbour(None)),
            ),
            // With nobody in the way it would be missed as well.
            (
                reads(30, 1.0, 35.0, &[(busy, 25.0)]),
                "",
                Missed,
                Some(Limiter::Device),
            ),
            (reads(30, 1.0, 35.0, &[]), "", Missed, Some(Limiter::Device)),
            (
                reads(900, 32.0, 35.0, &[(Cause::OwnReads, 33.0)]),
                "",
                Missed,
                Some(Limiter::OwnQueue),
            ),
            (
                reads(30, 1.0, 35.0, &[(Cause::Held, 34.0)]),
                "iops=30",
                Missed,
                Some(Limiter::OwnLimit),
            ),
            (
                reads(10, 1.0, 6.0, &[(Cause::Receive, 5.0)]),
                "",
                Missed,
                Some(Limiter::Device),
            ),
            (
                reads(10, 1.0, 4.0, &[(Cause::Receive, 50.0)]),
                "",
                Kept,
                None,
            ),
        ] {
            let found = judge_latency(Duration::from_ms(5), Some(&recent), rates(limit));
            assert_eq!((found.state, found.limit), (state, limiter), "{recent:?}");
        }
    }

    /// Without I/O nothing was asked for, but where it waits.
    #[test]
    fn nothing_was_asked_for_without_io() {
        let not_asked_for = (PromiseState::NotAskedFor, Some(Limiter::Idle));
        let mut waits = reads(0, 1.0, 0.0, &[]);
        waits.p99 = None;
        let judge = |recent: Option<&Recent>, limit| {
            let rate = judge_rate(0, 500, recent, rates(limit));
            let latency = judge_latency(Duration::from_ms(5), recent, rates(limit));
            assert_eq!((rate.state, rate.limit), (latency.state, latency.limit));
            assert_eq!((rate.got, latency.got), (Some(0), None));
            (rate.state, rate.limit)
        };
        assert_eq!(judge(None, ""), not_asked_for);
        assert_eq!(judge(Some(&waits), ""), not_asked_for);
        waits.queued = 3;
        for (limit, limiter) in [("", Limiter::Device), ("iops=1", Limiter::OwnLimit)] {
            assert_eq!(
                judge(Some(&waits), limit),
                (PromiseState::Missed, Some(limiter))
            );
        }
    }
}
