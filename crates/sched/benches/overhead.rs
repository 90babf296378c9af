//! What a policy costs per I/O: nanoseconds from arrival over dispatch to completion, on a device
//! that takes no time of the processor.
//!
//! Each load keeps its I/Os in flight while virtual time goes on as on a drive of 400,000 I/Os per
//! second; what a policy holds back is waited for in virtual time only. The loop around the policy
//! costs the same for all; FIFO is the reference.

use std::collections::VecDeque;
use std::fs;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

use flashyard_sched::flashfq::{Line, Model};
use flashyard_sched::gimbal::{Flaws, Tuning};
use flashyard_sched::reflex::{Calibration, Point};
use flashyard_sched::{
    Ask, Caps, Class, Fair, Fifo, FlashFq, Gimbal, IoId, Next, Op, Outcome, Policy, Reflex,
    TenantId, Window,
};
use flashyard_time::{Duration, Time};

const IOS: u32 = 1_000_000;
const SERVICE: Duration = Duration::from_ns(2_500);

fn main() {
    let loads = [(1, 1), (1, 32), (16, 32)];
    println!("ns per I/O, best of 7; in brackets, more than fifo");
    let mut reference = Vec::new();
    for (name, make) in policies() {
        print!("{name:>16}:");
        for (place, &(tenants, depth)) in loads.iter().enumerate() {
            let runs = (0..7).map(|_| run(&mut *make(), tenants, depth));
            let best = runs.fold(f64::INFINITY, f64::min);
            if reference.len() == place {
                reference.push(best);
            }
            let more = best - reference[place];
            print!("  {tenants} tenants QD {depth}: {best:6.1} ({more:+6.1})");
        }
        println!();
    }
}

type Make = fn() -> Box<dyn Policy>;

fn policies() -> [(&'static str, Make); 7] {
    [
        ("fifo", || Box::new(Fifo::new(Window::UNLIMITED))),
        ("caps", || Box::new(Caps::new())),
        ("flashfq", || {
            Box::new(FlashFq::new(Model {
                depth: 128,
                read: Line::through(400_000, 25_000),
                write: Line::through(40_000, 1_400),
                lead: Duration::from_us(700),
                anticipation: Duration::from_us(100),
            }))
        }),
        ("reflex", || {
            let points = vec![Point {
                latency: Duration::from_ms(1),
                tokens: 60_000_000,
            }];
            Box::new(Reflex::new(Calibration::new(900, points)))
        }),
        ("gimbal", || {
            Box::new(Gimbal::new(Tuning::default(), Flaws::default()))
        }),
        ("gimbal-released", || {
            Box::new(Gimbal::new(Tuning::default(), Flaws::RELEASED))
        }),
        ("fair", || Box::new(Fair::new())),
    ]
}

/// Time of the processor per I/O.
fn run(policy: &mut dyn Policy, tenants: u32, depth: u32) -> f64 {
    let mut now = Time::ZERO;
    let mut in_flight: VecDeque<(u32, Time)> = VecDeque::new();
    let begin = cpu_ns();
    for id in 0..tenants * depth {
        offer(policy, now, id, depth, &mut in_flight);
    }
    for _ in 0..IOS {
        let wake = dispatch(policy, now, &mut in_flight);
        let Some((id, since)) = in_flight.pop_front() else {
            now = wake.expect("something is queued and will go");
            continue;
        };
        now += SERVICE;
        let outcome = Outcome {
            latency: now.since(since),
            ok: true,
        };
        policy.complete(now, &io(id, depth), outcome);
        offer(policy, now, id, depth, &mut in_flight);
    }
    black_box(&in_flight);
    (cpu_ns() - begin) as f64 / f64::from(IOS)
}

/// Nanoseconds that this thread has run, as Linux counts them: other programs do not count.
/// Nanoseconds of the wall clock where there is no such count.
fn cpu_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let counted = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ran = counted.split(' ').next().and_then(|ns| ns.parse().ok());
    ran.unwrap_or_else(|| START.get_or_init(Instant::now).elapsed().as_nanos() as u64)
}

fn offer(
    policy: &mut dyn Policy,
    now: Time,
    id: u32,
    depth: u32,
    in_flight: &mut VecDeque<(u32, Time)>,
) {
    let io = io(id, depth);
    if policy.pass(now, &io) {
        in_flight.push_back((id, now));
    } else {
        policy.arrive(now, io);
    }
}

/// Lets everything go that may; says when more may.
fn dispatch(
    policy: &mut dyn Policy,
    now: Time,
    in_flight: &mut VecDeque<(u32, Time)>,
) -> Option<Time> {
    loop {
        match policy.next(now) {
            Next::Dispatch(IoId(id)) => in_flight.push_back((id, now)),
            Next::WaitUntil(at) => return Some(at),
            Next::WaitForEvent => return None,
        }
    }
}

fn io(id: u32, depth: u32) -> Ask {
    Ask {
        id: IoId(id),
        tenant: TenantId(1 + id / depth),
        class: Class::Throughput,
        op: Op::Read,
        bytes: 4096,
        lba: u64::from(id),
    }
}
