//! An I/O that lost its dispatch slot because its host kept it waiting has paid already, and is
//! dispatched again at no cost.

use std::collections::VecDeque;

use flashyard_sched::{Ask, Class, Fair, IoId, Next, Op, Outcome, Policy, TenantId};
use flashyard_time::{Duration, Time};

/// Writes that each tenant always has here.
const DEPTH: u32 = 64;
/// What the device takes for a write; one after the other.
const SERVICE: Duration = Duration::from_us(100);

/// Writes done by two tenants with equal shares, each of whose writes has this many turns.
fn done(turns: [u32; 2]) -> [u32; 2] {
    let mut fair = Fair::new();
    let mut now = Time::ZERO;
    let mut device: VecDeque<(Ask, Time)> = VecDeque::new();
    let mut left = [0; 2 * DEPTH as usize];
    let mut done = [0; 2];
    let io = |id: u32| Ask {
        id: IoId(id),
        tenant: TenantId(1 + id / DEPTH),
        class: Class::Throughput,
        op: Op::Write,
        bytes: 65_536,
        lba: 0,
    };
    for id in 0..2 * DEPTH {
        left[id as usize] = turns[(id / DEPTH) as usize];
        fair.arrive(now, io(id));
    }
    while now < Time::ZERO + Duration::from_secs(4) {
        while let Next::Dispatch(IoId(id)) = fair.next(now) {
            device.push_back((io(id), now));
        }
        now += SERVICE;
        let Some((io, begun)) = device.pop_front() else {
            continue;
        };
        let (id, owner) = (io.id.0 as usize, (io.id.0 / DEPTH) as usize);
        left[id] -= 1;
        let outcome = Outcome {
            latency: now.since(begun),
            ok: left[id] == 0,
        };
        fair.complete(now, &io, outcome);
        if outcome.ok {
            done[owner] += u32::from(now >= Time::ZERO + Duration::from_secs(2));
            left[id] = turns[owner];
            fair.arrive(now, io);
        } else {
            fair.arrive_again(now, io);
        }
    }
    done
}

#[test]
fn who_has_two_turns_for_each_write_pays_for_one() {
    for (turns, [one, other]) in [([1, 1], done([1, 1])), ([2, 1], done([2, 1]))] {
        assert!(one + other > 10_000, "{turns:?}: {one} and {other}");
        assert!(
            one.abs_diff(other) < other / 20,
            "{turns:?}: {one} and {other}"
        );
    }
}
