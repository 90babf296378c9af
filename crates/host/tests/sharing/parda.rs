//! Hosts that control their window by the measured latency, as Parda does, with a target that does
//! nothing.

use flashyard_engine::{Limits, TenantId};
use flashyard_host::{Association, Options};
use flashyard_runtime::Rt;
use flashyard_runtime::sim::Config;
use flashyard_sched::{Fifo, Window};
use flashyard_time::{Duration, Rng};

use crate::world::{BULK, DRIVE, Site, one, options, rates};

const THRESHOLD: Duration = Duration::from_us(800);

fn site(config: Config) -> Site {
    let policy = Box::new(Fifo::new(Window::UNLIMITED));
    Site::new(config, 1, Limits::default(), policy, DRIVE)
}

/// I/Os per second of two hosts that want 256 at a time, and the mean time that the drive has one,
/// in nanoseconds.
fn two_hosts(parda: Option<Duration>) -> ([u64; 2], u64) {
    let site = site(Config::calm(4));
    let addr = site.bench.addr;
    let rates = site.run(move |rt: Rt| async move {
        let connect = |tenant, host| {
            let options = Options {
                parda,
                depth: 256,
                ..options(tenant, host)
            };
            Association::connect(&rt, addr, options)
        };
        let (a, b) = (connect("a", 1).await, connect("b", 2).await);
        let (a, b) = (a.expect("connects"), b.expect("connects"));
        assert_eq!(a.credit(1).is_some(), parda.is_some());
        rates(&rt, [(&a, BULK), (&b, BULK)]).await
    });
    let why = site.switch.why(TenantId(1)).expect("it had I/O");
    (rates, why.stages.device / why.ios)
}

#[test]
fn the_latency_is_what_was_asked_for_and_the_drive_stays_busy() {
    let (without, queued) = two_hosts(None);
    assert!(queued > 10 * THRESHOLD.as_ns(), "{queued} ns");
    let (with, steered) = two_hosts(Some(THRESHOLD));
    let near = THRESHOLD.as_ns() / 2..THRESHOLD.as_ns() * 3 / 2;
    assert!(near.contains(&steered), "{steered} ns");
    let (all, before): (u64, u64) = (with.iter().sum(), without.iter().sum());
    assert!(all * 10 > before * 9, "{with:?} instead of {without:?}");
    assert!(with[0].abs_diff(with[1]) < all / 8, "{with:?}");
}

/// What each command waits for comes, however long answers take: a window never closes.
#[test]
fn every_command_ends() {
    for seed in 0..6 {
        let site = site(Config::stormy(seed));
        let addr = site.bench.addr;
        site.run(move |rt: Rt| async move {
            let options = Options {
                // Nothing is as quick as that.
                parda: Some(Duration::from_ns(1)),
                queues: 1 + (seed % 3) as u16,
                // The network may be slow.
                command_timeout: Duration::from_secs(1_000),
                ..options("a", 1)
            };
            let association = Association::connect(&rt, addr, options).await;
            let association = association.expect("connects");
            let tasks: Vec<_> = (0..16)
                .map(|number| {
                    let queue = association.queue(number as usize);
                    let mut rng = Rng::new(seed).split(number);
                    rt.spawn(async move {
                        for _ in 0..8 {
                            one(&queue, BULK, &mut rng).await.expect("it is in order");
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await;
            }
            let credit = association.credit(1).expect("it has a window");
            assert_eq!((credit.allowed, credit.outstanding), (Some(4096), 0));
            association.close().await;
        });
    }
}
