//! A host that marks everything latency-sensitive. A tenant's configuration grants a class, marks
//! can lower it and never raise it, and a tenant with the class gets no more of the device by it.

use flashyard_engine::{Class, Limits};
use flashyard_host::{Association, Options};
use flashyard_runtime::Rt;
use flashyard_runtime::sim::Config;
use flashyard_sched::{Fair, Fifo, Policy, Window};
use flashyard_time::Duration;

use crate::world::{Site, Speed, Work, load, options};

/// 40,000 reads a second.
const DRIVE: Speed = Speed {
    parts: 4,
    fixed: Duration::from_us(80),
    each: Duration::from_us(20),
};

/// What a tenant's host does.
#[derive(Clone, Copy)]
struct Workload {
    granted: Class,
    depth: usize,
    /// It marks each command, and its queues.
    sensitive: bool,
}

/// What a tenant got.
#[derive(Debug)]
struct Got {
    rate: u64,
    p99: u64,
}

fn run(workloads: [Workload; 2]) -> [Got; 2] {
    run_behind(Box::new(Fair::new()), workloads)
}

fn run_behind(policy: Box<dyn Policy>, workloads: [Workload; 2]) -> [Got; 2] {
    let site = Site::new(Config::calm(1), 1, Limits::default(), policy, DRIVE);
    for ((id, name), workload) in [(1, "a"), (2, "b")].into_iter().zip(workloads) {
        site.set_class(id, name, workload.granted);
    }
    let addr = site.bench.addr;
    site.run(move |rt: Rt| async move {
        let from = rt.now() + Duration::from_ms(300);
        let span = (from, from + Duration::from_ms(250));
        let running: Vec<_> = ["a", "b"]
            .into_iter()
            .zip(workloads)
            .map(|(name, workload)| {
                let clock = rt.clone();
                let options = Options {
                    queues: 2,
                    priority: workload.sensitive.then_some(0),
                    ..options(name, name.as_bytes()[0])
                };
                rt.spawn(async move {
                    let association = Association::connect(&clock, addr, options).await;
                    let work = Work {
                        depth: workload.depth,
                        blocks: 1,
                        write: false,
                        sensitive: workload.sensitive,
                    };
                    let association = association.expect("connects");
                    let tally = load(&clock, &association, work, span, 1).await;
                    let p99 = tally.latency.borrow().percentile(990_000);
                    let rate = tally.done.get() * 4;
                    Got { rate, p99 }
                })
            })
            .collect();
        let mut got = Vec::new();
        for workload in running {
            got.push(workload.await);
        }
        <[Got; 2]>::try_from(got).expect("there are two")
    })
}

fn bulk(granted: Class, sensitive: bool) -> Workload {
    Workload {
        granted,
        depth: 128,
        sensitive,
    }
}

const LATENCY: Workload = Workload {
    granted: Class::Latency,
    depth: 1,
    sensitive: false,
};

/// Without the right to it a mark has no effect: the tenant that marks does not gain, nor do a
/// latency-sensitive tenant and another bulk tenant lose.
#[test]
fn marks_without_the_right_change_nothing() {
    let bulks = bulk(Class::Throughput, false);
    for (granted, other) in [(Class::Throughput, LATENCY), (Class::Background, bulks)] {
        let plain = run([bulk(granted, false), other]);
        let marked = run([bulk(granted, true), other]);
        for (marked, plain) in marked.iter().zip(&plain) {
            let (rates, p99s) = ((marked.rate, plain.rate), (marked.p99, plain.p99));
            assert!(
                rates.0.abs_diff(rates.1) <= rates.1 / 50,
                "{marked:?} {plain:?}"
            );
            assert!(
                p99s.0.abs_diff(p99s.1) <= p99s.1 / 10,
                "{marked:?} {plain:?}"
            );
        }
    }
}

/// With the right it goes first, and is billed: what it has beyond its share is the eighth of the
/// device that is kept for who is latency-sensitive, and bursts of 4 ms (docs/scheduling.md). (Both
/// get less than without, for while any tenant is latency-sensitive the device is not filled.)
#[test]
fn a_latency_tenant_under_continuous_load_gets_an_eighth_more_and_no_more() {
    const DEVICE: u64 = 40_000;
    let [sensitive, other] = run([bulk(Class::Latency, true), bulk(Class::Throughput, false)]);
    let beyond = DEVICE / 8 + 4 * DEVICE * 4 / 1000;
    assert!(
        sensitive.rate <= other.rate + beyond,
        "{sensitive:?} {other:?}"
    );
    assert!(other.rate > 10_000, "{other:?}");
    // Which is what the right is for.
    let [sensitive, _] = run([LATENCY, bulk(Class::Throughput, false)]);
    assert!(sensitive.p99 < 1_000_000, "{sensitive:?}");
}

/// A tenant that reads little, one at a time, goes first, though its host marks nothing, like an
/// unmodified one.
#[test]
fn one_read_at_a_time_goes_before_bulk_without_a_mark() {
    let workloads = [LATENCY, bulk(Class::Throughput, false)];
    let [fifo, _] = run_behind(Box::new(Fifo::new(Window::UNLIMITED)), workloads);
    let [fair, other] = run(workloads);
    assert!(2 * fair.p99 < fifo.p99, "{fair:?} {fifo:?}");
    assert!(other.rate > 10_000, "{other:?}");
}
