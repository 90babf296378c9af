//! What `fair` does while a device gives nothing back of one kind of I/O; and that no decision
//! takes memory once ids and tenants have been seen, neither then nor when costs are measured.

#[path = "../../runtime/tests/support/counting.rs"]
mod counting;

use flashyard_sched::{Ask, Class, Fair, IoId, Next, Op, Outcome, Policy, TenantId};
use flashyard_time::{Duration, EventQueue, Rng, Time};

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

const TENANTS: u32 = 16;
const DEPTH: u32 = 8;
/// All has been seen by then.
const WARM: Duration = Duration::from_ms(1200);
/// From [`WARM`] on writes stand still for so long.
const STALL: Duration = Duration::from_ms(200);
/// What a stall does is looked at for so long from [`WARM`] on.
const AFTER: Duration = Duration::from_secs(1);
/// What is allocated, for so long: writes are measured again after 5.6 s.
const WHOLE: Duration = Duration::from_secs(6);

/// Counts what is allocated in it.
fn counted<T>(taken: &mut u64, decide: impl FnOnce() -> T) -> T {
    let before = counting::allocations();
    let decided = decide();
    *taken += counting::allocations() - before;
    decided
}

/// How often the policy has measured costs.
fn probes(fair: &Fair) -> u64 {
    let mut probes = 0;
    fair.watch(Time::ZERO, &mut |gauge| {
        if gauge.name == "probes" {
            probes = gauge.value as u64;
        }
    });
    probes
}

/// The half of the tenants write; each of them asks for two sizes.
fn ask(id: u32) -> Ask {
    let tenant = id / DEPTH;
    Ask {
        id: IoId(id),
        tenant: TenantId(tenant),
        class: Class::Throughput,
        op: if tenant < TENANTS / 2 {
            Op::Read
        } else {
            Op::Write
        },
        bytes: if id.is_multiple_of(2) { 4096 } else { 65_536 },
        lba: 0,
    }
}

struct Seen {
    /// After [`WARM`]: allocations of the policy, measurements of costs, and in [`AFTER`] the
    /// longest time without a read.
    taken: u64,
    probes: u64,
    longest: Duration,
}

fn run() -> Seen {
    let (mut fair, mut chance) = (Fair::new(), Rng::new(1));
    let mut events = EventQueue::with_capacity(1024);
    // When each I/O was sent; of those that have not come, nothing.
    let mut sent: Vec<Option<Time>> = vec![None; (TENANTS * DEPTH) as usize];
    // Eight parts, each does one I/O after the other.
    let mut free = [Time::ZERO; 8];
    for id in 0..TENANTS * DEPTH {
        events.push(Time::ZERO, Some(id));
    }
    let (mut taken, mut before) = (0, 0);
    let warm = Time::ZERO + WARM;
    let mut longest = Duration::ZERO;
    let mut last_read = Time::ZERO;
    while let Some((now, event)) = events.pop() {
        if now > warm + WHOLE {
            break;
        }
        if now < warm {
            (taken, before) = (0, probes(&fair));
        }
        if let Some(id) = event {
            let io = ask(id);
            if let Some(at) = sent[id as usize].take() {
                let outcome = Outcome {
                    latency: now.since(at),
                    ok: true,
                };
                counted(&mut taken, || fair.complete(now, &io, outcome));
                if io.op == Op::Read {
                    if last_read > warm && now < warm + AFTER {
                        longest = longest.max(now.since(last_read));
                    }
                    last_read = now;
                }
            }
            counted(&mut taken, || fair.arrive(now, io));
        }
        loop {
            match counted(&mut taken, || fair.next(now)) {
                Next::Dispatch(IoId(id)) => {
                    sent[id as usize] = Some(now);
                    let io = ask(id);
                    let (parts, each) = match io.op {
                        Op::Read => (0..4, 40_000),
                        _ => (4..8, 400_000),
                    };
                    let part = parts.start + chance.below(4) as usize;
                    let stalled = io.op == Op::Write && now >= warm && now < warm + STALL;
                    let begins = if stalled { warm + STALL } else { now };
                    let ns = each * (2 + io.bytes / 8192) / 2;
                    free[part] = free[part].max(begins) + Duration::from_ns(ns);
                    events.push(free[part], Some(id));
                }
                Next::WaitUntil(at) => {
                    events.push(at, None);
                    break;
                }
                Next::WaitForEvent => break,
            }
        }
    }
    Seen {
        taken,
        probes: probes(&fair) - before,
        longest,
    }
}

#[test]
fn decisions_take_no_memory_once_all_has_been_seen() {
    let Seen { taken, probes, .. } = run();
    assert!(probes > 0, "costs are measured again");
    assert_eq!(taken, 0, "allocations");
}

/// Reads are as far ahead of writes as they may be, all that is in flight are writes, and nothing
/// happens that would let the policy be asked again: it asks to be.
#[test]
fn reads_go_on_while_writes_stand_still() {
    let Seen { longest, .. } = run();
    assert!(longest < STALL / 4, "{longest:?} without a read");
}
