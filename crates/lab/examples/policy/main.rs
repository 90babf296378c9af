//! A policy of one's own, beside FIFO, on an emulated drive in virtual time: a tenant that reads
//! one block at a time, and a neighbour with a hundred times as much in flight.
//!
//!   cargo run --release -p flashyard-lab --example policy
//!
//! docs/guide/writing-a-policy.md shows it.

mod turns;

use flashyard_flash::Profile;
use flashyard_flash::ssd::{Condition, Device};
use flashyard_lab::bench::{Results, Setup};
use flashyard_lab::load::{Pace, Pattern, Worker};
use flashyard_lab::measure::percentile_us;
use flashyard_lab::policies;
use flashyard_sched::{Class, Policy};
use flashyard_time::Duration;
use turns::Turns;

/// The two tenants behind a policy, for a second of virtual time.
fn run(policy: Box<dyn Policy>) -> Results {
    let profile = Profile::named("dct983").expect("it ships");
    let drive = Device::in_condition(&profile, 8 << 30, 1, Condition::Clean).expect("it fits");
    let worker = |name: &str, tenant, depth| {
        let pattern = Pattern::random(100, 4096);
        Worker::new(name, tenant, Pace::Closed { depth }, pattern)
    };
    let reader = worker("reader", 1, 1).of_class(Class::Latency);
    let workers = vec![reader, worker("neighbour", 2, 100)];
    let setup = Setup::new(drive, policy, workers);
    let setup = setup.measured(Duration::from_ms(100), Duration::from_ms(1000));
    setup.run().expect("they fit the drive")
}

/// What the tenants get under each policy.
fn table() -> Vec<String> {
    let header = "policy  reader IOPS  reader p99  neighbour IOPS".to_owned();
    let rows = [
        ("fifo", policies::fifo()),
        ("turns", Box::<Turns>::default() as Box<dyn Policy>),
        ("fair", policies::named("fair").expect("it ships")),
    ]
    .map(|(name, policy)| {
        let [reader, neighbour] = &run(policy).workers[..] else {
            unreachable!("there are two");
        };
        let p99 = percentile_us(&reader.total(), 990_000).unwrap_or(f64::NAN);
        let [reader, neighbour] = [reader.iops(), neighbour.iops()];
        format!("{name:6} {reader:>12.0} {p99:>8.0} us {neighbour:>15.0}")
    });
    [header].into_iter().chain(rows).collect()
}

fn main() {
    for line in table() {
        println!("{line}");
    }
}

#[cfg(test)]
mod tests {
    use flashyard_sched::{Ask, IoId, Next, Op, TenantId};
    use flashyard_time::Time;

    use super::*;

    fn p99(results: &Results) -> f64 {
        percentile_us(&results.workers[0].total(), 990_000).expect("it has read")
    }

    #[test]
    fn the_reader_waits_less_than_behind_fifo() {
        let [fifo, turns] = [run(policies::fifo()), run(Box::<Turns>::default())];
        assert!(p99(&turns) < p99(&fifo), "{} {}", p99(&turns), p99(&fifo));
        assert!(turns.workers[0].iops() > fifo.workers[0].iops());
    }

    #[test]
    fn what_is_cancelled_is_not_dispatched_and_all_else_is_in_turn() {
        let (mut turns, now) = (Turns::default(), Time::from_ns(0));
        for (id, tenant) in [(0, 1), (1, 1), (2, 2), (3, 2)] {
            turns.arrive(now, ask(id, tenant));
        }
        turns.cancel(now, IoId(2));
        turns.forget(now, TenantId(1));
        let mut sent: Vec<Next> = (0..3).map(|_| turns.next(now)).collect();
        sent.sort_by_key(|next| format!("{next:?}"));
        assert_eq!(sent, [0, 1, 3].map(|id| Next::Dispatch(IoId(id))));
        assert_eq!(turns.next(now), Next::WaitForEvent);
    }

    fn ask(id: u32, tenant: u32) -> Ask {
        Ask {
            id: IoId(id),
            tenant: TenantId(tenant),
            class: Class::Throughput,
            op: Op::Read,
            bytes: 4096,
            lba: 0,
        }
    }

    const PAGE: &str = include_str!("../../../../docs/guide/writing-a-policy.md");

    /// Its row of `fair` changes with that policy.
    #[test]
    fn the_guide_shows_what_comes_out() {
        let table = table();
        let stays = |line: &&String| !line.starts_with("fair ");
        let old = table
            .iter()
            .filter(stays)
            .find(|line| !PAGE.contains(*line));
        assert_eq!(old, None, "writing-a-policy.md is old: {table:#?}");
    }

    /// The page shows the policy as it stands here.
    #[test]
    fn the_guide_shows_this_policy() {
        let (_, shown) = PAGE.split_once("```rust\n").expect("it shows code");
        let (shown, _) = shown.split_once("```").expect("a fence ends");
        assert!(shown.lines().count() > 40, "{shown}");
        assert!(include_str!("turns.rs").contains(shown), "{shown}");
    }
}
