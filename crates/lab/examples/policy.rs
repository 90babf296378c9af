//! A policy of one's own, beside FIFO, on an emulated drive in virtual time: a tenant that reads
//! one block at a time, and a neighbour with a hundred times as much in flight.
//!
//!   cargo run --release -p flashyard-lab --example policy
//!
//! docs/guide/writing-a-policy.md shows it.

use std::collections::VecDeque;

use flashyard_flash::Profile;
use flashyard_flash::ssd::{Condition, Device};
use flashyard_lab::bench::{Results, Setup};
use flashyard_lab::load::{Pace, Pattern, Worker};
use flashyard_lab::measure::percentile_us;
use flashyard_lab::policies;
use flashyard_sched::{Ask, Class, IoId, Next, Outcome, Policy, TenantId};
use flashyard_time::{Duration, Time};

/// One I/O of each tenant in turn, and few at the drive at a time.
#[derive(Default)]
struct Turns {
    queues: VecDeque<(TenantId, VecDeque<IoId>)>,
    in_flight: u32,
}

/// As many as keep the drive's dies busy without long queues inside it.
const MOST_IN_FLIGHT: u32 = 32;

impl Policy for Turns {
    fn arrive(&mut self, _: Time, io: Ask) {
        let known = self.queues.iter_mut().find(|(id, _)| *id == io.tenant);
        match known {
            Some((_, queue)) => queue.push_back(io.id),
            None => self.queues.push_back((io.tenant, VecDeque::from([io.id]))),
        }
    }

    fn next(&mut self, _: Time) -> Next {
        if self.in_flight == MOST_IN_FLIGHT {
            return Next::WaitForEvent;
        }
        for _ in 0..self.queues.len() {
            self.queues.rotate_left(1);
            let front = self.queues.back_mut().and_then(|(_, it)| it.pop_front());
            if let Some(id) = front {
                self.in_flight += 1;
                return Next::Dispatch(id);
            }
        }
        Next::WaitForEvent
    }

    fn complete(&mut self, _: Time, _: &Ask, _: Outcome) {
        self.in_flight -= 1;
    }

    fn cancel(&mut self, _: Time, id: IoId) {
        for (_, queue) in &mut self.queues {
            queue.retain(|queued| *queued != id);
        }
    }

    fn forget(&mut self, _: Time, tenant: TenantId) {
        self.queues
            .retain(|(id, queue)| *id != tenant || !queue.is_empty());
    }
}

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

fn main() {
    println!("policy  reader IOPS  reader p99  neighbour IOPS");
    for (name, policy) in [
        ("fifo", policies::fifo()),
        ("turns", Box::<Turns>::default() as Box<dyn Policy>),
        ("fair", policies::named("fair").expect("it ships")),
    ] {
        let [reader, neighbour] = &run(policy).workers[..] else {
            unreachable!("there are two");
        };
        let p99 = percentile_us(&reader.total(), 990_000).unwrap_or(f64::NAN);
        let [reader, neighbour] = [reader.iops(), neighbour.iops()];
        println!("{name:6} {reader:>12.0} {p99:>8.0} us {neighbour:>15.0}");
    }
}

#[cfg(test)]
mod tests {
    use flashyard_sched::Op;

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

    /// The page shows the policy as it stands here.
    #[test]
    fn the_guide_shows_this_policy() {
        let page = include_str!("../../../docs/guide/writing-a-policy.md");
        let (_, shown) = page.split_once("```rust\n").expect("it shows code");
        let (shown, _) = shown.split_once("```").expect("a fence ends");
        assert!(shown.lines().count() > 40, "{shown}");
        assert!(include_str!("policy.rs").contains(shown), "{shown}");
    }
}
