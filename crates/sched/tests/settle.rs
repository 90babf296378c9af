//! What a device has really done for tenants decides what they get, where it is told.

use std::collections::VecDeque;

use flashyard_sched::{Ask, Class, Cost, Fair, IoId, Next, Op, Outcome, Policy, TenantId};
use flashyard_time::{Duration, Time};

/// I/Os of each tenant that are queued or in flight.
const DEPTH: u32 = 64;
const BYTES: u64 = 4096;
/// Of the device, for each 4 KiB that it writes.
const SERVICE: Duration = Duration::from_us(10);
const WARM_UP: Duration = Duration::from_secs(1);

/// I/Os of each of two writers that end in four seconds, at a device that does one I/O after
/// another, and writes so many times what is asked, by tenant.
fn served(times: [u64; 2], told: bool) -> [u64; 2] {
    let mut fair = Fair::new();
    let owner = |id: u32| (id / DEPTH) as usize;
    let ask = |id: u32| Ask {
        id: IoId(id),
        tenant: TenantId(1 + id / DEPTH),
        class: Class::Throughput,
        op: Op::Write,
        bytes: BYTES,
        lba: u64::from(id),
    };
    let (mut now, mut ended) = (Time::ZERO, [0; 2]);
    let mut device = VecDeque::new();
    (0..2 * DEPTH).for_each(|id| fair.arrive(now, ask(id)));
    while now < Time::ZERO + WARM_UP + Duration::from_secs(4) {
        while let Next::Dispatch(IoId(id)) = fair.next(now) {
            device.push_back((id, now));
        }
        let Some((id, sent)) = device.pop_front() else {
            now += SERVICE;
            continue;
        };
        let written = times[owner(id)] * BYTES;
        now += SERVICE * times[owner(id)];
        if told {
            let cost = Cost {
                read: 0,
                written,
                upkeep: written - BYTES,
            };
            fair.settle(now, &ask(id), cost);
        }
        let latency = now.since(sent);
        fair.complete(now, &ask(id), Outcome { latency, ok: true });
        fair.arrive(now, ask(id));
        ended[owner(id)] += u64::from(now >= Time::ZERO + WARM_UP);
    }
    ended
}

fn ratio([one, other]: [u64; 2]) -> f64 {
    other as f64 / one as f64
}

#[test]
fn a_writer_that_has_three_times_as_much_done_for_it_gets_a_third() {
    let found = ratio(served([3, 1], true));
    assert!((2.9..3.1).contains(&found), "{found}");
    // What is not told is not known.
    let found = ratio(served([3, 1], false));
    assert!((0.98..1.02).contains(&found), "{found}");
}

#[test]
fn what_is_the_same_for_all_changes_nothing() {
    let found = ratio(served([3, 3], true));
    assert!((0.98..1.02).contains(&found), "{found}");
    assert_eq!(served([2, 2], true), served([2, 2], false));
}
